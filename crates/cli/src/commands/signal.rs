//! `windlass signal`: sends a signal to a job, and drops or restores signals in its inbox.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use windlass::{ControlOutcome, Delivery, JobId, operate::JobAction};

use crate::{
    actions,
    args::{self, Actor},
    client::{Client, SentSignal},
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
        bail!(
            "a signal that is sent has no note and no other author; --by and --note work with --drop and --restore only"
        );
    }
    let client = program.client().await?;
    let id = resolve::job(&args.job, &client, program).await?;
    if edits_inbox {
        return drop_or_restore(&args, &client, id, &name, program).await;
    }
    let sent = client.signal(id, &name, &payload, args.dedup.as_deref()).await;
    let SentSignal { delivery, note } =
        sent.map_err(|error| anyhow!(program.with_own_name(&format!("{error:#}"))))?;
    let more = match delivery {
        Delivery::Delivered => "delivered",
        Delivery::Duplicate => "duplicate: the job was sent one with this name and dedup id before",
    };
    if args.json {
        out::print_json(&json!({ "job": id, "name": name, "delivery": delivery }))?;
    } else {
        out::print(&format!("{id} {more}\n"))?;
    }
    if let Some(note) = note {
        out::note(&format!("note: {note}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn drop_or_restore(
    args: &Args,
    client: &Client,
    id: JobId,
    number: &str,
    program: &Program,
) -> anyhow::Result<ExitCode> {
    let Ok(number) = number.parse::<i64>() else {
        bail!("{number:?} is not the number of a signal; `{} show {id} --json` lists them", program.name);
    };
    let (action, participle) = match args.drop {
        true => (JobAction::DropSignal(number), "dropped"),
        false => (JobAction::RestoreSignal(number), "restored"),
    };
    let outcome = client.act(&[id], action, &args.actor).await?.remove(0).outcome;
    if outcome == ControlOutcome::Unknown {
        bail!(program.no_job(id));
    }
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
