//! `windlass signal`: says something to a job that lives; and what people do about a signal that it cannot read.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{
    ControlOutcome, Delivery, Engine, Error, JobId, State,
    model::{Awaited, branch::BRANCH, wait::CHILD},
    store::{Filter, Job},
};

use crate::{act, author::Author, kind, out, place::Place};

/// Send a signal to a job: it is in its inbox, for good, when this returns
///
/// The payload is any JSON value, null if it is left out; `-` reads it from standard input, `@FILE` from a file. The job is
/// named by its id, or by --kind and --key: `windlass signal --kind order --key 17 paid '{"cents": 1200}'`.
///
/// A signal that a job cannot read is set aside: `show` and `why` say which, and why. `windlass signal --drop JOB NUMBER` takes
/// it out of the inbox for good; `windlass signal --restore JOB NUMBER` has it read again, once it can be.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job; left out with --kind and --key
    job: String,
    /// The signal's name; with --drop or --restore, its number in the inbox
    #[arg(allow_negative_numbers = true)]
    name: Option<String>,
    /// What it says, as JSON; `-` reads it from standard input, `@FILE` from a file [default: null]
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
    /// Once: a signal with this name and id that was sent to the job before is not delivered again
    #[arg(long, value_name = "ID")]
    dedup: Option<String>,
    /// To the job of this kind with the key that --key says
    #[arg(long, requires = "key")]
    kind: Option<String>,
    /// To the job with this key, instead of a job's id
    #[arg(long, requires = "kind")]
    key: Option<String>,
    /// Take the signal with this number out of the inbox for good
    #[arg(long, conflicts_with_all = ["restore", "dedup"])]
    drop: bool,
    /// Put the signal with this number back that was set aside
    #[arg(long, conflicts_with = "dedup")]
    restore: bool,
    #[command(flatten)]
    author: Author,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// To whom, and what.
struct Letter {
    to: To,
    name: String,
    payload: Value,
}

enum To {
    Id(JobId),
    Key { kind: String, key: String },
}

impl Args {
    fn letter(&self) -> anyhow::Result<Letter> {
        let (to, name, payload) = match (&self.kind, &self.key) {
            (Some(kind), Some(key)) => {
                if self.payload.is_some() {
                    bail!("both a job and --key are given; name the job by one of them");
                }
                let to = To::Key { kind: kind.clone(), key: key.clone() };
                (to, self.job.clone(), &self.name)
            }
            _ => {
                let id = self.job.parse().map_err(anyhow::Error::msg)?;
                let Some(name) = self.name.clone() else {
                    bail!("the signal has no name; say which: `signal {id} NAME`");
                };
                (To::Id(id), name, &self.payload)
            }
        };
        let payload = match payload {
            Some(text) => kind::json("payload", text)?,
            None => Value::Null,
        };
        Ok(Letter { to, name, payload })
    }
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let Letter { to, name, payload } = args.letter()?;
    let acts = args.drop || args.restore;
    if args.author.is_given() && !acts {
        bail!("signals are not in the audit log; --by and --note are for --drop and --restore");
    }
    let engine = place.reader().await?;
    let id = match to {
        To::Id(id) => id,
        To::Key { kind, key } => find(&engine, kind, key).await?,
    };
    if acts {
        return act_on(&args, &engine, id, &name, place).await;
    }
    let signal = engine.signal(id, &name, payload);
    let sent = match args.dedup {
        Some(dedup) => signal.dedup(dedup).await,
        None => signal.await,
    };
    let delivery = match sent {
        Ok(delivery) => delivery,
        Err(Error::NoSuchJob(id)) => bail!(place.no_job(id)),
        Err(error) => bail!(place.said(&error.to_string())),
    };
    let (word, more) = match delivery {
        Delivery::Delivered => ("delivered", ""),
        Delivery::Duplicate => ("duplicate", ": it was sent one with this name and dedup id before"),
    };
    if args.json {
        out::print_json(&json!({ "job": id, "name": name, "delivery": word }))?;
    } else {
        out::print(&format!("{id} {word}{more}\n"))?;
    }
    if let Some(job) = engine.inspect().job(id).await?
        && let begun = !engine.inspect().journal(id, None, 1).await?.is_empty()
        && let Some(note) = unheard(&job, begun, &name)
    {
        out::note(&format!("note: {note}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Drops or restores a signal.
async fn act_on(
    args: &Args,
    engine: &Engine,
    id: JobId,
    number: &str,
    place: &Place,
) -> anyhow::Result<ExitCode> {
    let Ok(number) = number.parse::<i64>() else {
        bail!("{number:?} is not the number of a signal; `{} show {id} --json` has them", place.program);
    };
    let control = args.author.control(engine);
    let (did, participle) = match args.drop {
        true => (control.drop_signal(id, number).await?, "dropped"),
        false => (control.restore_signal(id, number).await?, "restored"),
    };
    if args.json {
        let mut told = act::answer(id, &did);
        told["number"] = json!(number);
        out::print_json(&told)?;
    }
    match did {
        ControlOutcome::Unknown => bail!(place.no_job(id)),
        ControlOutcome::Refused(why) => {
            bail!("signal {number} of {id} cannot be {participle}: {}", out::plain(&why))
        }
        _ if args.json => {}
        ControlOutcome::Already(why) => out::print(&format!("{id} left as it is: {}\n", out::plain(&why)))?,
        _ => out::print(&format!("{id} signal {number} {participle}\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The job of a kind that has a key.
async fn find(engine: &Engine, kind: String, key: String) -> anyhow::Result<JobId> {
    let filter = Filter { kind: Some(kind.clone()), key: Some(key.clone()), limit: 1, ..Filter::default() };
    match engine.inspect().jobs(&filter).await?.first() {
        Some(job) => Ok(job.id),
        None => bail!(Error::NoSuchKey { kind, key }),
    }
}

/// Why nobody may listen to a signal of this name. `begun` is whether the job has a journal.
fn unheard(job: &Job, begun: bool, name: &str) -> Option<String> {
    if job.summary.stage.is_none() && !begun && job.wait.is_none() {
        return Some(
            "the job has no stage and no journal: it is a machine or workflow that has not begun, or a plain task, which \
             takes no signals"
                .into(),
        );
    }
    let names = job.wait.as_ref().map(|wait| wait.names().collect::<Vec<&str>>()).unwrap_or_default();
    let children = job.wait.as_ref().is_some_and(|wait| matches!(wait, Awaited::Children { .. }));
    let child = children || names.contains(&CHILD);
    let branch = names.contains(&BRANCH);
    let waits: Vec<&str> = names.into_iter().filter(|name| ![CHILD, BRANCH].contains(name)).collect();
    if job.summary.state != State::Waiting || waits.contains(&name) {
        return None;
    }
    let what = match waits.as_slice() {
        [] if branch => "its branches".to_owned(),
        [] if child => "its children".to_owned(),
        [] => "its time".to_owned(),
        names => names.join(", "),
    };
    Some(format!("the job waits for {what} and not for {name}; the signal stays in its inbox until it does"))
}
