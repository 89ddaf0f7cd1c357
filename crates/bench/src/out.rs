//! What is printed: results on standard output, everything else on standard error. A closed pipe is no error.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use indicatif::HumanCount;

/// Prints a result, which ends with a newline of its own.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written")
        }
        _ => Ok(()),
    }
}

/// Prints a line beside the result.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A number with commas between thousands.
pub(crate) fn thousands(number: u64) -> String {
    HumanCount(number).to_string()
}
