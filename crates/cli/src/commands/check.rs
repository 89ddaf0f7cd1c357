//! `windlass check`: finds the open workflows that this build would break.

use std::{process::ExitCode, sync::atomic::Ordering};

use serde_json::{Value, json};
use windlass::operate::{Broken, CallChange, ChangedCall, Checked};

use crate::{
    out,
    program::Program,
    progress::Progress,
    stop::{self, StopSignals},
};

/// Replay every open workflow against this build, and list those that it would break
///
/// Run it from the new build before you deploy it. It reads the journal of every workflow that has not ended and replays the
/// code of this program over it. It writes nothing and runs no step. The exit code is 1 if any workflow would break.
///
/// It also lists the calls in which this build differs from the journals: recorded calls that the build does not reach, and new
/// calls that it would run before recorded ones. A renamed call is both: it would run again, and its work under the old name
/// cannot be undone. With --strict the exit code is 1 if there is any such call.
///
/// Only the program that has the code of a workflow can check it; the stock binary has only the built-in kinds. A program with
/// workflows of its own gets this command by `windlass_cli::run(builder)`; see examples/commands.rs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only workflows of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Also fail if this build does not reach recorded calls, or would run new ones before them
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    program.need_store("check")?;
    let engine = program.reader().await?;
    let mut check = engine.check();
    if let Some(kind) = args.kind {
        check = check.kind(kind);
    }
    let stop = StopSignals::flag()?;
    let mut progress = Progress::of_jobs(None);
    let on_batch = |checked: &Checked| {
        let broken = format!("replayed, {} would break", out::thousands(checked.broken.len() as u64));
        progress.update(checked.jobs as u64, &broken);
        !stop.load(Ordering::Relaxed)
    };
    let checked = check.run(on_batch).await;
    progress.close();
    let checked = checked?;
    if args.json {
        out::print_json(&to_json(&checked))?;
    } else {
        out::print(&page(&checked))?;
    }
    Ok(match &checked {
        Checked { interrupted: true, .. } => {
            out::note("interrupted: some workflows were not replayed");
            ExitCode::from(stop::INTERRUPTED)
        }
        Checked { broken, .. } if !broken.is_empty() => ExitCode::FAILURE,
        Checked { changed, .. } if args.strict && !changed.is_empty() => {
            out::note("--strict: this build differs from the journals of open workflows");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    })
}

fn to_json(checked: &Checked) -> Value {
    let Checked { jobs, calls, broken, skipping, losing_undo, changed, unserved, interrupted } = checked;
    let broken_job = |broken: &Broken| {
        json!({
            "job": broken.job, "kind": broken.kind.kind, "version": broken.kind.version, "key": broken.key,
            "why": broken.why,
        })
    };
    let call = |call: &ChangedCall| {
        json!({
            "kind": call.kind.kind, "version": call.kind.version, "change": call.change, "call_kind": call.call_kind, "name": call.name,
            "line": call.line, "undo": call.undo, "jobs": call.jobs, "example": call.example,
        })
    };
    json!({
        "jobs": jobs, "entries": calls, "broken": broken.iter().map(broken_job).collect::<Vec<Value>>(),
        "skipping": skipping, "losing_undo": losing_undo,
        "changed": changed.iter().map(call).collect::<Vec<Value>>(), "unserved": unserved, "interrupted": interrupted,
    })
}

fn page(checked: &Checked) -> String {
    let mut page = format!(
        "{} replayed, {} in their journals: ",
        out::counted(checked.jobs as u64, "open workflow", "open workflows"),
        out::counted(checked.calls as u64, "entry", "entries")
    );
    page += &match checked.broken.len() {
        0 => "none would break".to_owned(),
        broken => format!("{} would break", out::thousands(broken as u64)),
    };
    page += &match checked.losing_undo {
        0 => "\n".to_owned(),
        losing => format!(", {} would lose an undo\n", out::thousands(losing as u64)),
    };
    for Broken { job, kind, key, why } in &checked.broken {
        let key = key.as_ref().map(|key| format!(", key {}", out::plain(key))).unwrap_or_default();
        page += &format!("\njob {job}, {} version {}{key}\n", out::plain(&kind.kind), kind.version);
        for line in format!("{}: {}", why.class, why.message).lines() {
            page += &format!("  {}\n", out::plain(line));
        }
    }
    if !checked.broken.is_empty() {
        page.push('\n');
    }
    for (change, heading) in CHANGES {
        let mut calls = checked.changed.iter().filter(|call| call.change == change).peekable();
        if calls.peek().is_some() {
            page += &format!("{heading}:\n");
            calls.for_each(|call| page += &line(call));
        }
    }
    if checked.losing_undo > 0 {
        page += "A step that is not reached or has no undo cannot be undone: if its job fails or is cancelled, the failure names \
                 the step. Keep the step's name and its undo, or put new calls after it or in `flow.version` \
                 (docs/changing-workflows.md).\n";
    }
    if checked.unserved > 0 {
        let verb = if checked.unserved == 1 { "is" } else { "are" };
        let unserved = out::thousands(checked.unserved as u64);
        page += &format!("{unserved} {verb} of a version that this build does not serve, and not replayed\n");
    }
    page
}

/// The changes in the order of the page, with what each means.
const CHANGES: [(CallChange, &str); 3] = [
    (
        CallChange::NotReached,
        "recorded but not reached by this build (removed, renamed, or after a new call); its record is ignored",
    ),
    (CallChange::UndoRemoved, "recorded with an undo but without one in this build; it would not be undone"),
    (CallChange::New, "not recorded but reached before recorded calls (added or renamed); it would run"),
];

/// A changed call, on one line.
fn line(call: &ChangedCall) -> String {
    let ChangedCall { kind, call_kind, name, line, undo, jobs, example, .. } = call;
    let source = line.as_ref().map(|line| format!(" at {}", out::plain(line))).unwrap_or_default();
    let undo = if *undo { ", WITH AN UNDO" } else { "" };
    let jobs = match jobs {
        1 => format!("job {example}"),
        jobs => format!("{} jobs, e.g. {example}", out::thousands(*jobs as u64)),
    };
    let (kind, version) = (out::plain(&kind.kind), kind.version);
    format!(
        "  {call_kind} {}{source}{undo}: {kind} version {version}, {jobs}\n",
        out::plain(&format!("{name:?}"))
    )
}

#[cfg(test)]
mod tests {
    use windlass::{
        Failure,
        model::{KindVersion, journal::CallKind},
    };

    use super::*;

    #[test]
    fn the_page_lists_broken_jobs_and_changed_calls() {
        let why =
            Failure::stop("its journal says…\n  recorded:  step at a.rs:1\n  attempted: sleep at a.rs:2")
                .class("diverged");
        let job: windlass::JobId = "0199f0c2-6f7a-7000-8000-3d2a2d6b8c91".parse().expect("an id");
        let kind = KindVersion { kind: "order".into(), version: 2 };
        let call = |change, call_kind, name: &str, line: &str, undo, jobs| ChangedCall {
            kind: kind.clone(),
            change,
            call_kind,
            name: name.into(),
            line: Some(line.into()),
            undo,
            jobs,
            example: job,
        };
        let changed = vec![
            call(CallChange::NotReached, CallKind::Step, "charge", "a.rs:7", true, 1_100),
            call(CallChange::NotReached, CallKind::Sleep, "rest", "a.rs:8", false, 1),
            call(CallChange::UndoRemoved, CallKind::Step, "book", "a.rs:6", true, 1),
            call(CallChange::New, CallKind::Step, "pay", "a.rs:9", false, 1_100),
        ];
        let broken = vec![Broken { job, kind: kind.clone(), key: Some("o-7".into()), why }];
        let checked = Checked {
            jobs: 1_200,
            calls: 9,
            broken,
            skipping: 1_100,
            losing_undo: 1_100,
            changed,
            unserved: 2,
            interrupted: false,
        };
        let expected = "1,200 open workflows replayed, 9 entries in their journals: 1 would break, 1,100 would lose an \
            undo\n\n\
            job 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91, order version 2, key o-7\n  diverged: its journal says…\n    \
            recorded:  step at a.rs:1\n    attempted: sleep at a.rs:2\n\n\
            recorded but not reached by this build (removed, renamed, or after a new call); its record is ignored:\n  \
            step \"charge\" at a.rs:7, WITH AN UNDO: order version 2, 1,100 jobs, e.g. 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91\n  \
            sleep \"rest\" at a.rs:8: order version 2, job 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91\n\
            recorded with an undo but without one in this build; it would not be undone:\n  \
            step \"book\" at a.rs:6, WITH AN UNDO: order version 2, job 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91\n\
            not recorded but reached before recorded calls (added or renamed); it would run:\n  \
            step \"pay\" at a.rs:9: order version 2, 1,100 jobs, e.g. 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91\n\
            A step that is not reached or has no undo cannot be undone: if its job fails or is cancelled, the failure names \
            the step. Keep the step's name and its undo, or put new calls after it or in `flow.version` \
            (docs/changing-workflows.md).\n\
            2 are of a version that this build does not serve, and not replayed\n";
        assert_eq!(page(&checked), expected);
    }
}
