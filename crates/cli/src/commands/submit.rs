//! `windlass submit`: puts jobs in.

use std::{
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::bail;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use windlass::{Engine, Handle, JobError, JobId, Retry, SubmitJson, Time, model::trace};

use crate::{
    flow::Flow,
    kind::{self, Version},
    out,
    place::Place,
    span,
    unique::Name,
};

/// Put a job in, and print its id.
///
/// The input is a JSON value; `-` reads it from standard input, `@FILE` from a file. Kinds that are built in: exec
/// ({"command": "tar", "args": ["czf", "a.tgz", "a"], "env": {}, "cwd": "/data", "stdin": "text"}), sleep ({"ms": 100}),
/// noop, and approval ({"Ask": {"what": "deploy 17", "seconds": 3600}}), which waits for the signal approve or reject.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What kind of job
    kind: String,
    /// Its input, as JSON; `-` reads it from standard input, `@FILE` from a file
    #[arg(default_value = "null", allow_hyphen_values = true)]
    input: String,
    /// A name of your choice: a second submit with it answers the job that is there
    #[arg(long, conflicts_with = "count")]
    key: Option<String>,
    /// The queue it waits in [default: that of the kind]
    #[arg(long)]
    queue: Option<String>,
    /// From -100 (most urgent) to 100 (least urgent); each step is a minute's place in line
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i16,
    /// Due so long from now, e.g. 10m
    #[arg(long, value_name = "SPAN", value_parser = span::parse, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Due at this time, e.g. 2026-11-15T08:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<Time>,
    /// Failed if it has not ended by then: a time, or a span from now
    #[arg(long, value_name = "TIME|SPAN", value_parser = moment)]
    deadline: Option<Time>,
    /// A word to find it by; may be repeated
    #[arg(long)]
    tag: Vec<String>,
    /// Free JSON that is kept with it
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
    /// How many attempts in all [default: the kind's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: Option<u32>,
    /// How long one attempt may run [default: the kind's]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    timeout: Option<Duration>,
    /// The trace it is part of, a W3C traceparent [env: TRACEPARENT]
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
    #[command(flatten)]
    version: Version,
    /// Submit so many alike
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// The job that this one belongs to: it is cancelled with it by `cancel --children`, and kept while that is live
    #[arg(long, value_name = "JOB")]
    parent: Option<JobId>,
    /// A signal that is in its inbox from the start: NAME, or NAME=JSON; may be repeated. If a job with its key or unique
    /// name is there already, that one gets it
    #[arg(long, value_name = "NAME[=JSON]")]
    signal: Vec<String>,
    /// Wait for it to end and print its output; exit code 1 if it failed
    #[arg(long, conflicts_with = "count")]
    wait: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Together with other jobs")]
    name: Name,
    #[command(flatten)]
    flow: Flow,
}

/// How many submits wait at once: they go in together, a thousand to a transaction.
const TOGETHER: usize = 2_000;

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let input = kind::input(&args.input)?;
    let signals = args.signal.iter().map(|text| signal(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let engine = place.engine().await?;
    let version = args.version.of(&engine, &args.kind)?;
    let submit = |_| {
        let submit = describe(&engine, &args, version, &input);
        signals.iter().fold(submit, |submit, (name, said)| submit.signal(name, said)).into_future()
    };
    let submits = futures_util::stream::iter(0..args.count).map(submit).buffered(TOGETHER);
    if args.wait {
        let jobs: Vec<Handle<Value>> = submits.try_collect().await?;
        let Some(job) = jobs.into_iter().next() else { bail!("nothing was submitted") };
        return wait(&args, place, &engine, job).await;
    }
    if args.json {
        let all: Vec<Value> = submits.map_ok(|job| answer(&job)).try_collect().await?;
        match all.as_slice() {
            [one] => out::print_json(one)?,
            all => out::print_json(&all)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    submits
        .map_err(anyhow::Error::from)
        .try_for_each(|job| async move { out::print(&(line(&job) + "\n")) })
        .await?;
    Ok(ExitCode::SUCCESS)
}

fn describe<'a>(engine: &'a Engine, args: &Args, version: i32, input: &Value) -> SubmitJson<'a> {
    let mut submit = engine.submit_json(&args.kind, version, input.clone()).priority(args.priority);
    for tag in &args.tag {
        submit = submit.tag(tag);
    }
    if let Some(key) = &args.key {
        submit = submit.key(key);
    }
    if let Some(queue) = &args.queue {
        submit = submit.queue(queue);
    }
    if let Some(delay) = args.delay {
        submit = submit.delay(delay);
    }
    if let Some(at) = args.at {
        submit = submit.at(at);
    }
    if let Some(deadline) = args.deadline {
        submit = submit.deadline(deadline);
    }
    if let Some(options) = &args.options {
        submit = submit.options(options);
    }
    if let Some(attempts) = args.attempts {
        submit = submit.retry(Retry::times(attempts));
    }
    if let Some(timeout) = args.timeout {
        submit = submit.timeout(timeout);
    }
    // What stands in the environment may be anyone's, and is taken only if it is one.
    let inherited = || std::env::var("TRACEPARENT").ok().filter(|text| trace::parse(text).is_some());
    if let Some(trace) = args.trace.clone().or_else(inherited) {
        submit = submit.trace(trace);
    }
    if let Some(unique) = args.name.unique() {
        submit = submit.unique(unique);
    }
    if let Some(serial) = args.flow.serial() {
        submit = submit.serial(serial);
    }
    if let Some(charge) = args.flow.charge() {
        submit = submit.rate(charge);
    }
    if let Some(parent) = args.parent {
        submit = submit.parent(parent);
    }
    submit
}

/// Reads a signal: its name, and what it says.
fn signal(text: &str) -> anyhow::Result<(String, Value)> {
    match text.split_once('=') {
        Some((name, payload)) => Ok((name.to_owned(), kind::json("payload of the signal", payload)?)),
        None => Ok((text.to_owned(), Value::Null)),
    }
}

fn line(job: &Handle<Value>) -> String {
    match (job.is_new(), job.differs()) {
        (true, _) => match job.replaced() {
            Some(other) => format!("{} in place of {other}", job.id()),
            None => job.id().to_string(),
        },
        (false, false) => format!("{} existing", job.id()),
        (false, true) => format!("{} existing, with another input", job.id()),
    }
}

fn answer(job: &Handle<Value>) -> Value {
    let mut answer = json!({ "id": job.id(), "new": job.is_new(), "differs": job.differs() });
    if let Some(other) = job.replaced() {
        answer["replaced"] = json!(other);
    }
    answer
}

/// Waits for a job and prints how it ended.
async fn wait(args: &Args, place: &Place, engine: &Engine, job: Handle<Value>) -> anyhow::Result<ExitCode> {
    out::note(&format!("job {}", line(&job)));
    let result = {
        let result = job.result();
        tokio::pin!(result);
        tokio::select! {
            result = &mut result => result,
            () = say_if_nobody_works(engine, place) => result.await,
        }
    };
    let mut told = answer(&job);
    let (code, text) = match result {
        Ok(output) => {
            told["output"] = output.clone();
            (ExitCode::SUCCESS, serde_json::to_string_pretty(&output)? + "\n")
        }
        Err(JobError::Store(error)) => return Err(error.into()),
        Err(error) => {
            told["error"] = json!(error.to_string());
            if let JobError::Failed { reason, failure } = &error {
                told["reason"] = json!(reason);
                told["failure"] = json!(failure);
            }
            if !args.json {
                out::note(&format!("error: {error}; `{} show {}` tells more", place.program, job.id()));
            }
            (ExitCode::FAILURE, String::new())
        }
    };
    if args.json {
        out::print_json(&told)?
    } else {
        out::print(&text)?
    }
    Ok(code)
}

/// After a moment, says so if no worker is there to do the work.
async fn say_if_nobody_works(engine: &Engine, place: &Place) {
    tokio::time::sleep(Duration::from_millis(700)).await;
    if let Ok(workers) = engine.inspect().workers().await
        && !workers.iter().any(|worker| worker.alive)
    {
        out::note(&format!(
            "no worker is alive on {}; start one with `{} worker`",
            place.shown(),
            place.program
        ));
    }
    std::future::pending::<()>().await;
}

/// A time, or a span from now.
fn moment(text: &str) -> Result<Time, String> {
    if let Ok(span) = span::parse(text) {
        return Ok(Time::from_system(SystemTime::now()).plus(span));
    }
    text.parse().map_err(|why| format!("{why}, or as a span from now like 2h"))
}
