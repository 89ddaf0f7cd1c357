//! Passwords: read from a file that nobody else may read, or from a person at the terminal, and never from the command line, which every user
//! of the machine can see.

use std::{
    io::{BufRead, IsTerminal, Read, Write, stdin},
    path::Path,
};

use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::{
    config::secret,
    out,
    stop::{INTERRUPTED, StopSignals},
};

/// Reads a password of one line: from a file, from standard input if the file is `-`, or from the terminal. There it is asked for twice,
/// because nobody sees what is typed.
pub(crate) async fn read_password(file: Option<&Path>, user: &str) -> anyhow::Result<String> {
    let text = match file {
        Some(path) if path == Path::new("-") => {
            let mut text = String::new();
            let read = stdin().take(secret::MAX_BYTES).read_to_string(&mut text);
            read.context("the password cannot be read from standard input")?;
            text
        }
        Some(path) => secret::read("the password file", path)?,
        None => return ask(user).await,
    };
    one_line(&text).map(str::to_owned)
}

/// The only line of a text, without its end. Spaces belong to a password.
fn one_line(text: &str) -> anyhow::Result<&str> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        bail!(
            "there is no password; write it into the file, or leave --password-file out to be asked for it"
        );
    }
    if line.contains('\n') {
        bail!("there are several lines, and a password is one; write the password alone");
    }
    Ok(line)
}

/// Asks for a password on the terminal, twice.
async fn ask(user: &str) -> anyhow::Result<String> {
    if !(stdin().is_terminal() && console::Term::stderr().is_term()) {
        bail!(
            "there is no terminal to ask for the password on; name the file that has it with --password-file"
        );
    }
    let mut stop = StopSignals::listen().context("signals cannot be caught")?;
    // Dropped at the end, also by a signal: a terminal without echo is of no use to anybody.
    let hidden = Hidden::new().context("the terminal cannot hide what is typed")?;
    let asked = async {
        let password = answer(format!("password of {}: ", out::plain(user))).await?;
        let again = answer("the same again: ".into()).await?;
        if password != again {
            bail!("the two passwords differ; nothing was done");
        }
        one_line(&password).map(str::to_owned)
    };
    tokio::select! {
        password = asked => password,
        () = stop.received() => {
            drop(hidden);
            out::note("");
            std::process::exit(INTERRUPTED.into())
        }
    }
}

/// Asks one question. Reading blocks a thread, until the process ends if need be.
async fn answer(question: String) -> anyhow::Result<String> {
    let read = tokio::task::spawn_blocking(move || {
        let mut terminal = std::io::stderr();
        let _ = write!(terminal, "{question}").and_then(|()| terminal.flush());
        let mut line = String::new();
        stdin().lock().read_line(&mut line).map(|_| line)
    });
    read.await.context("the question was not asked")?.context("the answer cannot be read")
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden {
    before: Termios,
}

impl Hidden {
    fn new() -> rustix::io::Result<Hidden> {
        let before = tcgetattr(stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        hidden.local_modes.insert(LocalModes::ECHONL);
        // What was typed before the question is no answer to it.
        tcsetattr(stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Hidden { before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_only_line_of_its_file() {
        for (text, password) in [("a b\n", "a b"), ("a b", "a b"), (" a \r\n", " a "), ("\ta\n", "\ta")] {
            assert_eq!(one_line(text).expect("a password"), password);
        }
        for bad in ["", "\n", "\r\n", "a\nb\n", "a\n\n"] {
            assert!(one_line(bad).is_err(), "{bad:?}");
        }
        let error = one_line("secret\nmore").expect_err("two lines").to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
