//! Asks a person before a command does something to many jobs, or something that cannot be undone.

use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};

use crate::out;

/// Returns whether to proceed: `yes` (the flag --yes) answers the question, otherwise the person at the terminal does.
/// Fails without a terminal.
pub(crate) fn confirm(yes: bool, question: &str) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    if !(std::io::stdin().is_terminal() && console::Term::stderr().is_term()) {
        bail!(
            "this needs a confirmation and there is no terminal to ask on; nothing was done; add --yes to confirm"
        );
    }
    let mut terminal = std::io::stderr();
    let _ = write!(terminal, "{question} [y/N] ").and_then(|()| terminal.flush());
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("the answer cannot be read")?;
    let confirmed = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if !confirmed {
        out::note("nothing was done");
    }
    Ok(confirmed)
}
