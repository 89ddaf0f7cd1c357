//! How commands speak: answers on standard output, everything else on standard error. A reader that has seen enough
//! (`windlass jobs | head`) is no error and no reason to panic.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use indicatif::HumanCount;
use serde::Serialize;

/// Prints an answer, which ends with a newline of its own.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written")
        }
        _ => Ok(()),
    }
}

/// Prints an answer as JSON.
pub(crate) fn print_json<T: Serialize>(answer: &T) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(answer).context("the answer cannot be written as JSON")?;
    print(&(text + "\n"))
}

/// Says something beside the answer.
pub(crate) fn note(text: &str) {
    // Nobody is left to be told if this fails.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// How many columns the answer has room for; as many as it likes when nobody looks at it directly.
pub(crate) fn width() -> Option<usize> {
    let out = console::Term::stdout();
    if !out.is_term() {
        return None;
    }
    out.size_checked().map(|(_, columns)| usize::from(columns)).filter(|columns| *columns > 0)
}

/// A number with commas between thousands.
pub(crate) fn thousands(number: u64) -> String {
    HumanCount(number).to_string()
}

/// So many jobs.
pub(crate) fn jobs(number: u64) -> String {
    format!("{} {}", thousands(number), if number == 1 { "job" } else { "jobs" })
}

/// Text without control characters, so that what a job carries cannot steer the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
