//! `windlass check`: would this build break workflows that are under way?

use std::{process::ExitCode, sync::atomic::Ordering};

use serde_json::{Value, json};
use windlass::{Broken, CallChange, ChangedCall, Checked};

use crate::{
    out,
    place::Place,
    progress::Progress,
    stop::{self, Stop},
};

/// Replay every open workflow against this build, and list those that it would break
///
/// To be run from the new build before it is deployed. It reads the journal of every workflow that has not ended, runs
/// the code of this program over it, and writes nothing; no step is run. The exit code is 1 if any would break.
///
/// It also lists the calls in which this build differs from what was recorded: those that it does not come to any more, and
/// those that it would run although later ones are recorded. A call that was renamed is both: it would run again, and what
/// it did under its old name cannot be undone. With --strict the exit code is 1 if there is any such call.
///
/// Workflows are code, so only the program that has it can check it: the stock binary knows the stock kinds alone. A program
/// with workflows of its own gets this command by `windlass_cli::run(engine)`; see examples/commands.rs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only workflows of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Fail also if this build does not come to recorded calls, or would run new ones before them
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.knower().await?;
    let mut check = engine.check();
    if let Some(kind) = args.kind {
        check = check.kind(kind);
    }
    let told = Stop::flag()?;
    let mut progress = Progress::new(None);
    let seen = |checked: &Checked| {
        let broken = format!("replayed, {} would break", out::thousands(checked.broken.len() as u64));
        progress.at(checked.jobs as u64, &broken);
        !told.load(Ordering::Relaxed)
    };
    let checked = check.run(seen).await;
    progress.close();
    let checked = checked?;
    if args.json {
        out::print_json(&answer(&checked))?;
    } else {
        out::print(&page(&checked))?;
    }
    Ok(match &checked {
        Checked { cut_short: true, .. } => {
            out::note("ended on the way: not all were replayed");
            ExitCode::from(stop::INTERRUPTED)
        }
        Checked { broken, .. } if !broken.is_empty() => ExitCode::FAILURE,
        Checked { changed, .. } if args.strict && !changed.is_empty() => {
            out::note("--strict: this build differs from what open workflows have recorded");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    })
}

fn answer(checked: &Checked) -> Value {
    let Checked { jobs, calls, broken, skipping, losing_undo, changed, unserved, cut_short } = checked;
    let told = |broken: &Broken| {
        json!({
            "job": broken.job, "kind": broken.kind.kind, "version": broken.kind.version, "key": broken.key,
            "why": broken.why,
        })
    };
    let call = |call: &ChangedCall| {
        json!({
            "kind": call.kind.kind, "version": call.kind.version, "how": call.how, "op": call.op, "name": call.name,
            "line": call.line, "undo": call.undo, "jobs": call.jobs, "example": call.example,
        })
    };
    json!({
        "jobs": jobs, "entries": calls, "broken": broken.iter().map(told).collect::<Vec<Value>>(),
        "skipping": skipping, "losing_undo": losing_undo,
        "changed": changed.iter().map(call).collect::<Vec<Value>>(), "unserved": unserved, "cut_short": cut_short,
    })
}

fn page(checked: &Checked) -> String {
    let workflows = |count: usize| match count {
        1 => "1 open workflow".to_owned(),
        count => format!("{} open workflows", out::thousands(count as u64)),
    };
    let mut page = format!(
        "{} replayed, {} entries in their journals: ",
        workflows(checked.jobs),
        out::thousands(checked.calls as u64)
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
    let list = |how| checked.changed.iter().filter(move |call| call.how == how);
    if list(CallChange::NotReached).next().is_some() {
        page += "recorded, and not reached by this build (removed, renamed, or behind a new call); it is passed over:\n";
        list(CallChange::NotReached).for_each(|call| page += &line(call));
    }
    if list(CallChange::UndoRemoved).next().is_some() {
        page += "recorded with an undo, and without one in this build; it would not be undone:\n";
        list(CallChange::UndoRemoved).for_each(|call| page += &line(call));
    }
    if list(CallChange::New).next().is_some() {
        page += "not recorded, and reached before calls that are (added or renamed); it would be run:\n";
        list(CallChange::New).for_each(|call| page += &line(call));
    }
    if checked.losing_undo > 0 {
        page += "A step that is not reached, or has no undo, cannot be undone: if such a job fails or is cancelled, its end \
                 says so. Keep the step's name and its undo, or put what is new behind it or in `flow.version` \
                 (docs/changing-workflows.md).\n";
    }
    if checked.unserved > 0 {
        page += &format!(
            "{} of a version that this build does not serve: not replayed\n",
            match checked.unserved {
                1 => "1 is".to_owned(),
                many => format!("{} are", out::thousands(many as u64)),
            }
        );
    }
    page
}

/// A call in which the build differs, on a line.
fn line(call: &ChangedCall) -> String {
    let ChangedCall { kind, op, name, line, undo, jobs, example, .. } = call;
    let place = line.as_ref().map(|line| format!(" at {}", out::plain(line))).unwrap_or_default();
    let undo = if *undo { ", WITH AN UNDO" } else { "" };
    let jobs = match jobs {
        1 => format!("job {example}"),
        jobs => format!("{} jobs, e.g. {example}", out::thousands(*jobs as u64)),
    };
    let (kind, version) = (out::plain(&kind.kind), kind.version);
    format!("  {op} {}{place}{undo}: {kind} version {version}, {jobs}\n", out::plain(&format!("{name:?}")))
}

#[cfg(test)]
mod tests {
    use windlass::{
        Failure,
        model::{KindVersion, journal::Op},
    };

    use super::*;

    #[test]
    fn a_report_names_jobs_and_what_would_happen_to_them() {
        let why =
            Failure::stop("its journal says…\n  recorded:  step at a.rs:1\n  attempted: sleep at a.rs:2")
                .class("diverged");
        let job: windlass::JobId = "0199f0c2-6f7a-7000-8000-3d2a2d6b8c91".parse().expect("an id");
        let kind = KindVersion { kind: "order".into(), version: 2 };
        let call = |how, op, name: &str, line: &str, undo, jobs| ChangedCall {
            kind: kind.clone(),
            how,
            op,
            name: name.into(),
            line: Some(line.into()),
            undo,
            jobs,
            example: job,
        };
        let changed = vec![
            call(CallChange::NotReached, Op::Step, "charge", "a.rs:7", true, 1_100),
            call(CallChange::NotReached, Op::Sleep, "rest", "a.rs:8", false, 1),
            call(CallChange::UndoRemoved, Op::Step, "book", "a.rs:6", true, 1),
            call(CallChange::New, Op::Step, "pay", "a.rs:9", false, 1_100),
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
            cut_short: false,
        };
        let expected = "1,200 open workflows replayed, 9 entries in their journals: 1 would break, 1,100 would lose an \
            undo\n\n\
            job 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91, order version 2, key o-7\n  diverged: its journal says…\n    \
            recorded:  step at a.rs:1\n    attempted: sleep at a.rs:2\n\n\
            recorded, and not reached by this build (removed, renamed, or behind a new call); it is passed over:\n  \
            step \"charge\" at a.rs:7, WITH AN UNDO: order version 2, 1,100 jobs, e.g. 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91\n  \
            sleep \"rest\" at a.rs:8: order version 2, job 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91\n\
            recorded with an undo, and without one in this build; it would not be undone:\n  \
            step \"book\" at a.rs:6, WITH AN UNDO: order version 2, job 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91\n\
            not recorded, and reached before calls that are (added or renamed); it would be run:\n  \
            step \"pay\" at a.rs:9: order version 2, 1,100 jobs, e.g. 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91\n\
            A step that is not reached, or has no undo, cannot be undone: if such a job fails or is cancelled, its end \
            says so. Keep the step's name and its undo, or put what is new behind it or in `flow.version` \
            (docs/changing-workflows.md).\n\
            2 are of a version that this build does not serve: not replayed\n";
        assert_eq!(page(&checked), expected);
    }
}
