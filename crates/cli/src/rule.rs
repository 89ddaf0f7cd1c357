//! How commands that change a rule (a queue, a limit, a serial key, a schedule) say what came of it.

use std::process::ExitCode;

use windlass::{ControlOutcome, Time, store::Pause};

use crate::{out, place::Place, span};

/// Says what came of a change to `what` called `name`.
pub(crate) fn said(
    place: &Place,
    what: &str,
    name: &str,
    did: &ControlOutcome,
    done: &str,
) -> anyhow::Result<ExitCode> {
    let subject = format!("{what} {}", out::plain(name));
    match did {
        ControlOutcome::Done => out::print(&format!("{subject}: {done}\n"))?,
        ControlOutcome::Created(job) => out::print(&format!("{job}\n"))?,
        ControlOutcome::CancelRequested => out::print(&format!("{subject}: told\n"))?,
        ControlOutcome::Already(why) => {
            out::print(&format!("{subject}: left as it is, {}\n", out::plain(why)))?
        }
        ControlOutcome::Refused(why) => anyhow::bail!("{subject}: {}", out::plain(why)),
        ControlOutcome::Unknown => {
            anyhow::bail!("there is no {subject}; `{} {}` lists them", place.program, lister(what))
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The command that lists such things.
fn lister(what: &str) -> &'static str {
    match what {
        "limit" => "limits",
        "schedule" => "schedules",
        "serial key" => "serial",
        _ => "queues",
    }
}

/// By whom and why something was paused, in a cell.
pub(crate) fn paused(pause: &Pause, now: Time) -> String {
    let note = pause.note.as_ref().map(|note| format!(": {}", out::plain(note))).unwrap_or_default();
    format!("by {} {}{note}", out::plain(&pause.author), span::relative(pause.at, now))
}
