//! The commands of the `windlass` binary as a library. [`run`] gives a program with kinds of its own the same commands; the stock
//! binary adds `bench` and `demo` to [`Command`].
//!
//! In reading order: `config` reads the settings, `program` opens the store as a command needs it, `commands` has one file per
//! command. Commands share: `args`, flags that several take; `resolve`, which finds the job that a name means; `actions` and
//! `outcome`, which act on jobs and on queues, limits, keys and schedules; `out`, `table`, `durations`, `progress` and `confirm`,
//! which print and ask.
//!
//! What always holds: answers go to standard output and everything else to standard error; a closed pipe is no error; the exit
//! code is 0 only if the command achieved what it was called for.

mod actions;
mod args;
mod commands;
mod config;
mod confirm;
mod durations;
mod log;
mod out;
mod outcome;
mod program;
mod progress;
mod resolve;
mod stop;
mod table;

use std::process::ExitCode;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use config::Settings;
use program::Program;
use windlass::Engine;

/// The commands as a `clap` subcommand, for a program that adds others: flatten it into an enum of its own and call
/// [`Command::run`]. A program that adds none calls [`run`].
pub struct Command(commands::Command);

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Command, clap::Error> {
        commands::Command::from_arg_matches(matches).map(Command)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Subcommand for Command {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        commands::Command::augment_subcommands(command)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        commands::Command::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        commands::Command::has_subcommand(name)
    }
}

impl Command {
    /// Runs the command on the store that the settings name. `add_kinds` registers the kinds that the program serves.
    pub async fn run(self, flags: Flags, add_kinds: fn(Engine) -> Engine) -> anyhow::Result<ExitCode> {
        let Flags { store, common } = flags;
        let flags = Settings { store, log: common.log, ..Settings::default() };
        let settings = config::read(common.config.as_deref(), flags)?;
        let _log = self.0.start_log(&settings)?;
        self.0.run(&Program::stock(settings, add_kinds)).await
    }
}

/// The flags that every command takes, for a program that uses [`Command`].
#[derive(Args)]
pub struct Flags {
    /// The store: sqlite://PATH or postgres://USER@HOST/DATABASE [env: WINDLASS_STORE]
    /// [default: sqlite://windlass.db]
    #[arg(long, global = true, value_name = "URL", help_heading = "Settings")]
    store: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// The flags that every command takes in every program.
#[derive(Args)]
struct Common {
    /// The settings file [env: WINDLASS_CONFIG] [default: windlass.toml, if it exists]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Settings")]
    config: Option<std::path::PathBuf>,
    /// What to log to standard error: error, warn, info, debug, or a filter like windlass_runtime=debug
    /// [env: WINDLASS_LOG, RUST_LOG]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Settings")]
    log: Option<String>,
}

/// The command line of a program with an engine of its own.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct OwnCommandLine {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: commands::Command,
}

/// Runs the command that the process's arguments name (`worker`, `submit`, `jobs`, `why`, `signal`, `cancel`, …), with the kinds
/// of an engine that is opened and not started:
///
/// ```no_run
/// # use windlass::Engine;
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     match Engine::open("sqlite://work.db").await {
///         Ok(engine) => windlass_cli::run(engine /* .task::<MyTask>() … */).await,
///         Err(error) => panic!("{error}"),
///     }
/// }
/// ```
///
/// Settings are read as the stock binary reads them, and override those that the engine was given in code.
pub async fn run(engine: Engine) -> ExitCode {
    let name = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = name.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("windlass").to_owned();
    let matches = OwnCommandLine::command().display_name(name.clone()).bin_name(name.clone()).get_matches();
    let OwnCommandLine { common, command } = match OwnCommandLine::from_arg_matches(&matches) {
        Ok(parsed) => parsed,
        Err(error) => error.exit(),
    };
    let result = Box::pin(async {
        let flags = Settings { log: common.log, ..Settings::default() };
        let settings = config::read(common.config.as_deref(), flags)?;
        let _log = command.start_log(&settings)?;
        command.run(&Program::with_engine(engine, settings, &name)).await
    });
    result.await.unwrap_or_else(|error| report(&error))
}

/// Prints the error that ended a command. Returns the exit code 1.
pub fn report(error: &anyhow::Error) -> ExitCode {
    out::note(&format!("error: {error:#}"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_command_line() {
        OwnCommandLine::command().debug_assert();
    }
}
