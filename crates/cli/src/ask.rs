//! Asking before something is done that cannot be taken back, or is done to many.

use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};

use crate::out;

/// Whether it is to be done: `yes` says so, a person at the terminal is asked, and without either it is refused.
pub(crate) fn sure(yes: bool, question: &str) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    if !(std::io::stdin().is_terminal() && console::Term::stderr().is_term()) {
        bail!("nobody is at the terminal to be asked, so nothing was done; add --yes if it is meant");
    }
    let mut screen = std::io::stderr();
    let _ = write!(screen, "{question} [y/N] ").and_then(|()| screen.flush());
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("the answer cannot be read")?;
    let sure = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if !sure {
        out::note("nothing was done");
    }
    Ok(sure)
}
