//! `windlass signal`: sends a signal to a job, and drops or restores signals in its inbox.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{
    ControlOutcome, Delivery, Engine, Error, JobId, State,
    model::{WaitCondition, branch::BRANCH_SIGNAL, wait::CHILD_SIGNAL},
    store::Job,
};

use crate::{
    actions,
    args::{self, Actor},
    out,
    program::Program,
    resolve,
};

/// Send a signal to a job; when this returns, the signal is durably in the job's inbox
///
/// The payload is any JSON value, null by default; `-` reads it from standard input, `@FILE` from a file. Name the job by its
/// id or by kind and key: `windlass signal order/17 paid '{"cents": 1200}'`.
///
/// A signal that the job's code cannot decode is marked unreadable: `show` and `why` list it with the reason.
/// `windlass signal --drop JOB NUMBER` deletes a signal from the inbox; `windlass signal --restore JOB NUMBER` makes an
/// unreadable signal readable again, for code that can decode it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job: its id, kind/key, its key, or its name as a child of a branch
    job: String,
    /// The signal's name; with --drop or --restore, its number in the inbox
    #[arg(allow_negative_numbers = true)]
    name: Option<String>,
    /// Its payload, as JSON; `-` reads it from standard input, `@FILE` from a file [default: null]
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
    /// Deliver it once: if the job was sent a signal with this name and id before, this one is dropped
    #[arg(long, value_name = "ID")]
    dedup: Option<String>,
    /// Delete the signal with this number from the inbox
    #[arg(long, conflicts_with_all = ["restore", "dedup"])]
    drop: bool,
    /// Make the unreadable signal with this number readable again
    #[arg(long, conflicts_with = "dedup")]
    restore: bool,
    #[command(flatten)]
    actor: Actor,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let Some(name) = args.name.clone() else {
        bail!("the signal needs a name: `{} signal {} NAME`", program.name, args.job);
    };
    let payload = match &args.payload {
        Some(text) => args::json("payload", text)?,
        None => Value::Null,
    };
    let edits_inbox = args.drop || args.restore;
    if args.actor.is_given() && !edits_inbox {
        bail!("sent signals are not in the audit log; --by and --note work with --drop and --restore only");
    }
    let engine = program.reader().await?;
    let id = resolve::job(&args.job, &engine, program).await?;
    if edits_inbox {
        return drop_or_restore(&args, &engine, id, &name, program).await;
    }
    let signal = engine.signal(id, &name, payload);
    let sent = match args.dedup {
        Some(dedup) => signal.dedup(dedup).await,
        None => signal.await,
    };
    let delivery = match sent {
        Ok(delivery) => delivery,
        Err(Error::NoSuchJob(id)) => bail!(program.no_job(id)),
        Err(error) => bail!(program.with_own_name(&error.to_string())),
    };
    let (word, more) = match delivery {
        Delivery::Delivered => ("delivered", ""),
        Delivery::Duplicate => ("duplicate", ": the job was sent one with this name and dedup id before"),
    };
    if args.json {
        out::print_json(&json!({ "job": id, "name": name, "delivery": word }))?;
    } else {
        out::print(&format!("{id} {word}{more}\n"))?;
    }
    if let Some(job) = engine.inspect().job(id).await?
        && let begun = !engine.inspect().journal(id, None, 1).await?.is_empty()
        && let Some(note) = why_not_awaited(&job, begun, &name)
    {
        out::note(&format!("note: {note}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn drop_or_restore(
    args: &Args,
    engine: &Engine,
    id: JobId,
    number: &str,
    program: &Program,
) -> anyhow::Result<ExitCode> {
    let Ok(number) = number.parse::<i64>() else {
        bail!("{number:?} is not the number of a signal; `{} show {id} --json` lists them", program.name);
    };
    let control = args.actor.control(engine);
    let (outcome, participle) = match args.drop {
        true => (control.drop_signal(id, number).await, "dropped"),
        false => (control.restore_signal(id, number).await, "restored"),
    };
    let outcome = outcome.map_err(|error| program.explain(error))?;
    if args.json {
        let mut answer = actions::to_json(id, &outcome);
        answer["number"] = json!(number);
        out::print_json(&answer)?;
    }
    match outcome {
        ControlOutcome::Refused(why) => {
            bail!("signal {number} of {id} cannot be {participle}: {}", out::plain(&why))
        }
        _ if args.json => {}
        ControlOutcome::Already(why) => out::print(&format!("{id} unchanged: {}\n", out::plain(&why)))?,
        _ => out::print(&format!("{id} signal {number} {participle}\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Why the job may not consume a signal of this name soon. `begun` is whether it has a journal.
fn why_not_awaited(job: &Job, begun: bool, name: &str) -> Option<String> {
    if job.summary.stage.is_none() && !begun && job.wait.is_none() {
        return Some(
            "the job has no stage and no journal: it is a machine or workflow that has not started, or a task, which \
             consumes no signals"
                .into(),
        );
    }
    let names = job.wait.as_ref().map(|wait| wait.names().collect::<Vec<&str>>()).unwrap_or_default();
    let children = job.wait.as_ref().is_some_and(|wait| matches!(wait, WaitCondition::Children { .. }));
    let child = children || names.contains(&CHILD_SIGNAL);
    let branch = names.contains(&BRANCH_SIGNAL);
    let waits: Vec<&str> =
        names.into_iter().filter(|name| ![CHILD_SIGNAL, BRANCH_SIGNAL].contains(name)).collect();
    if job.summary.state != State::Waiting || waits.contains(&name) {
        return None;
    }
    let what = match waits.as_slice() {
        [] if branch => "its branches".to_owned(),
        [] if child => "its children".to_owned(),
        [] => "a time".to_owned(),
        names => names.join(", "),
    };
    Some(format!(
        "the job waits for {what} and not for {name}; the signal stays in its inbox until it waits for it"
    ))
}
