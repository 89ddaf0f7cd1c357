//! How results are printed: to standard output, everything else to standard error. A closed pipe is no error.

use std::io::{ErrorKind, Write};

use anyhow::Context;
pub(crate) use windlass::operate::text::thousands;

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

/// Prints a line to standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
