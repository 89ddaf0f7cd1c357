//! `windlass completions`: prints the script by which a shell completes the commands.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::out;

/// Print the script by which a shell completes commands and flags
///
/// bash: `windlass completions bash > ~/.local/share/bash-completion/completions/windlass`.
/// zsh: `windlass completions zsh > DIR/_windlass`, where DIR is in $fpath.
/// fish: `windlass completions fish > ~/.config/fish/completions/windlass.fish`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: KnownShell,
}

/// The shells whose scripts are tested.
#[derive(Clone, Copy, clap::ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

impl Args {
    /// Prints the script for this command line of the program of this name.
    pub(crate) fn print(&self, line: clap::Command, name: &str) -> anyhow::Result<ExitCode> {
        let shell = match self.shell {
            KnownShell::Bash => Shell::Bash,
            KnownShell::Zsh => Shell::Zsh,
            KnownShell::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut visible(&line), name, &mut script);
        out::print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The command line without hidden commands, which the scripts would offer too.
fn visible(line: &clap::Command) -> clap::Command {
    let commands = line.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    // The scripts are made for the name that is given beside it.
    let visible = clap::Command::new("windlass").args(line.get_arguments().cloned()).subcommands(commands);
    match line.get_version() {
        // It has the flag --version.
        Some(_) => visible.version(env!("CARGO_PKG_VERSION")),
        None => visible,
    }
}
