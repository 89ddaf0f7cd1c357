//! `windlass submit`: submits jobs.

use std::{
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use serde_json::{Value, json};
use windlass::{JobId, Time, model::trace};

use crate::{
    args::{self, FlowControl, KindVersion, UniqueName},
    client::{Client, Ended, NewJob, Submitted},
    durations, out,
    program::Program,
    resolve,
};

/// Submit a job, and print its id
///
/// The input is a JSON value; `-` reads it from standard input, `@FILE` from a file. Built-in kinds: exec
/// ({"command": "tar", "args": ["czf", "a.tgz", "a"], "env": {}, "cwd": "/data", "stdin": "text"}), sleep ({"ms": 100}),
/// noop, approval ({"Ask": {"what": "deploy 17", "seconds": 3600}}), which waits for the signal approve or reject, and reminder
/// ({"what": "water the plants", "seconds": 5}), which reminds until it gets the signal answer.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kind of the job
    kind: String,
    /// Its input, as JSON; `-` reads it from standard input, `@FILE` from a file
    #[arg(default_value = "null", allow_hyphen_values = true)]
    input: String,
    /// The job's key: a second submit with the same key returns the first job
    #[arg(long, conflicts_with = "count")]
    key: Option<String>,
    /// Its queue [default: that of the kind]
    #[arg(long)]
    queue: Option<String>,
    /// From -100 (most urgent) to 100 (least urgent); one step counts as much as a minute of waiting
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i16,
    /// Start it this long from now, e.g. 10m
    #[arg(long, value_name = "DURATION", value_parser = durations::parse, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Start it at this time, e.g. 2026-11-15T08:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<Time>,
    /// Fail it if it has not ended by then: a time, or a duration from now
    #[arg(long, value_name = "TIME|DURATION", value_parser = time_or_duration)]
    deadline: Option<Time>,
    /// A tag to find it by; may be repeated
    #[arg(long)]
    tag: Vec<String>,
    /// Any JSON, kept with the job
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
    /// The number of attempts in total [default: the kind's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: Option<u32>,
    /// How long one attempt may run [default: the kind's]
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    timeout: Option<Duration>,
    /// The trace that it belongs to, a W3C traceparent [env: TRACEPARENT]
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
    #[command(flatten)]
    version: KindVersion,
    /// Submit this many of it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Its parent, by id, kind/key or key: `cancel --children` cancels it with the parent, and it is kept while the parent exists and
    /// is not done
    #[arg(long, value_name = "JOB")]
    parent: Option<String>,
    /// A signal that is in its inbox from the start: NAME, or NAME=JSON; may be repeated. If a job with its key or unique
    /// name exists, that job gets the signal
    #[arg(long, value_name = "NAME[=JSON]")]
    signal: Vec<String>,
    /// Wait for it to end and print its output; exit code 1 if it failed
    #[arg(long, conflicts_with = "count")]
    wait: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Flow control")]
    unique: UniqueName,
    #[command(flatten)]
    flow_control: FlowControl,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let input = args::json("input", &args.input)?;
    let options = args.options.as_ref().map(|text| args::json("value of --options", text)).transpose()?;
    let signals = args.signal.iter().map(|text| parse_signal(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let version = args.version.resolve(program, &args.kind).await?;
    let client = program.client_or_create().await?;
    let parent = match &args.parent {
        Some(parent) => Some(resolve::job(parent, &client, program).await?),
        None => None,
    };
    // TRACEPARENT in the environment may be invalid, and is used only if it is not.
    let inherited = || std::env::var("TRACEPARENT").ok().filter(|text| trace::parse(text).is_some());
    let job = NewJob {
        kind: args.kind.clone(),
        version,
        input,
        is_unchecked: args.version.any_kind,
        key: args.key.clone(),
        queue: args.queue.clone(),
        priority: args.priority,
        delay: args.delay,
        at: args.at,
        deadline_at: args.deadline,
        tags: args.tag.clone(),
        options,
        attempts: args.attempts,
        timeout: args.timeout,
        trace: args.trace.clone().or_else(inherited),
        unique: args.unique.unique(),
        serial: args.flow_control.serial(),
        rate: args.flow_control.charge(),
        parent,
        signals,
    };
    if args.wait {
        return wait(&args, program, &client, &job).await;
    }
    if !args.json {
        client.submit(&job, args.count, &mut |job| out::print(&(line(&job) + "\n"))).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut all: Vec<Value> = Vec::new();
    let mut add = |job| {
        all.push(to_json(&job));
        Ok(())
    };
    client.submit(&job, args.count, &mut add).await?;
    match all.as_slice() {
        [one] => out::print_json(one)?,
        all => out::print_json(&all)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses NAME or NAME=JSON.
fn parse_signal(text: &str) -> anyhow::Result<(String, Value)> {
    match text.split_once('=') {
        Some((name, payload)) => Ok((name.to_owned(), args::json("payload of the signal", payload)?)),
        None => Ok((text.to_owned(), Value::Null)),
    }
}

fn line(job: &Submitted) -> String {
    match (job.is_new, job.differs) {
        (true, _) => match job.replaced {
            Some(other) => format!("{} replaces {other}", job.id),
            None => job.id.to_string(),
        },
        (false, false) => format!("{} existing", job.id),
        (false, true) => format!("{} existing, with another input", job.id),
    }
}

fn to_json(job: &Submitted) -> Value {
    let mut answer = json!({ "id": job.id, "new": job.is_new, "differs": job.differs });
    if let Some(other) = job.replaced {
        answer["replaced"] = json!(other);
    }
    answer
}

/// Submits a job, waits until it has ended, and prints its output or its failure.
async fn wait(args: &Args, program: &Program, client: &Client, job: &NewJob) -> anyhow::Result<ExitCode> {
    let mut submitted = None;
    let mut note = |job| {
        out::note(&format!("job {}", line(&job)));
        submitted = Some(job);
        Ok(())
    };
    client.submit(job, 1, &mut note).await?;
    let submitted = submitted.context("nothing was submitted")?;
    let ended = {
        let result = client.result(submitted.id);
        tokio::pin!(result);
        tokio::select! {
            result = &mut result => result,
            () = warn_without_worker(client, program) => result.await,
        }
    };
    print_end(ended?, to_json(&submitted), submitted.id, args.json, program)
}

/// Prints the output or the error of a job; with `is_json` all of it, added to `answer`.
pub(crate) fn print_end(
    ended: Ended,
    mut answer: Value,
    id: JobId,
    is_json: bool,
    program: &Program,
) -> anyhow::Result<ExitCode> {
    let (code, text) = match ended {
        Ended::Done(output) => {
            let text = serde_json::to_string_pretty(&output)? + "\n";
            answer["output"] = output;
            (ExitCode::SUCCESS, text)
        }
        Ended::Error { text, reason, failure } => {
            answer["error"] = json!(text);
            if let (Some(reason), Some(failure)) = (reason, failure) {
                answer["reason"] = json!(reason);
                answer["failure"] = json!(failure);
            }
            if !is_json {
                out::note(&format!("error: {text}; `{} show {id}` shows more", program.name));
            }
            (ExitCode::FAILURE, String::new())
        }
    };
    if is_json {
        out::print_json(&answer)?
    } else {
        out::print(&text)?
    }
    Ok(code)
}

/// After a moment, warns if no worker is alive. Never returns.
async fn warn_without_worker(client: &Client, program: &Program) {
    tokio::time::sleep(Duration::from_millis(700)).await;
    if let Ok(false) = client.has_worker().await {
        out::note(&format!(
            "no worker is alive on {}; start one with `{} worker`",
            program.display_url(),
            program.name
        ));
    }
    std::future::pending::<()>().await;
}

fn time_or_duration(text: &str) -> Result<Time, String> {
    if let Ok(duration) = durations::parse(text) {
        return Ok(Time::from_system(SystemTime::now()) + duration);
    }
    text.parse().map_err(|why| format!("{why}, or as a duration from now like 2h"))
}
