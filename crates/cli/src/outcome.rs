//! Prints the outcome of a change to a queue, a rate limit, a serial key, a schedule, a token or a user.

use std::process::ExitCode;

use windlass::{ControlOutcome, Time, operate::text, store::Pause};

use crate::{out, program::Program};

/// Prints the outcome of a change to the `what` called `name`; `done` says what is true after a change.
pub(crate) fn print(
    program: &Program,
    what: &str,
    name: &str,
    outcome: &ControlOutcome,
    done: &str,
) -> anyhow::Result<ExitCode> {
    let subject = format!("{what} {}", out::plain(name));
    match outcome {
        ControlOutcome::Done => out::print(&format!("{subject}: {done}\n"))?,
        ControlOutcome::Created(job) => out::print(&format!("{job}\n"))?,
        ControlOutcome::CancelRequested => out::print(&format!("{subject}: cancel requested\n"))?,
        ControlOutcome::Already(why) => out::print(&format!("{subject}: unchanged, {}\n", out::plain(why)))?,
        ControlOutcome::Refused(why) => anyhow::bail!("{subject}: {}", out::plain(why)),
        ControlOutcome::Unknown => {
            anyhow::bail!("there is no {subject}; `{} {}` lists them", program.name, list_command(what))
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list_command(what: &str) -> &'static str {
    match what {
        "limit" => "limits",
        "schedule" => "schedules",
        "serial key" => "serial",
        "token" => "tokens list",
        "user" => "users list",
        "alert rule" => "alerts rules",
        _ => "queues",
    }
}

/// Who paused something, when and why, for a cell of a table.
pub(crate) fn paused_by(pause: &Pause, now: Time) -> String {
    out::plain(&text::paused_by(pause, now))
}
