//! How commands print: answers to standard output, everything else to standard error. A closed pipe (`windlass jobs | head`)
//! is no error.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use serde::Serialize;
pub(crate) use windlass::operate::text::{counted, jobs, thousands};

/// Prints an answer. The text must end with a newline.
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

/// Prints a line to standard error. A failure is ignored: there is no other place to report it.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The width of the terminal; `None`, without a limit, if standard output is no terminal.
pub(crate) fn width() -> Option<usize> {
    let out = console::Term::stdout();
    if !out.is_term() {
        return None;
    }
    out.size_checked().map(|(_, columns)| usize::from(columns)).filter(|columns| *columns > 0)
}

/// Text without control characters: data of jobs must not control the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
