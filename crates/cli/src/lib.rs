//! The commands of the `windlass` binary as a library: [`run`] gives a program with kinds of its own the same commands, and the
//! stock binary adds `bench` and `demo` to [`Command`].
//!
//! In reading order: `config` reads the settings, `place` opens the store as a command needs it, `commands` has one file per
//! command. Shared by several commands: `which` jobs are meant and how one is `named`, by what `author`, `act` on jobs and `rule`
//! for many, `flow`, `unique` name and `kind` of jobs to come; `out` is how they all speak, `ask` and `progress` how they speak
//! to a person.
//!
//! What always holds: answers go to standard output and everything else to standard error; a closed pipe is no error;
//! the exit code is 0 only if what was asked for came true.

mod act;
mod ask;
mod author;
mod commands;
mod config;
mod flow;
mod kind;
mod log;
mod named;
mod out;
mod pg;
mod place;
mod progress;
mod rule;
mod span;
mod stop;
mod table;
mod unique;
mod which;

use std::process::ExitCode;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use config::Settings;
use place::Place;
use windlass::Engine;

/// The commands, for a program that adds others: flatten it into a `clap` subcommand and call [`Command::run`].
///
/// A program with kinds of its own that adds none calls [`run`].
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
    /// Runs the command on the store that the settings name. `add_kinds` adds the kinds that the program serves.
    pub async fn run(self, flags: Flags, add_kinds: fn(Engine) -> Engine) -> anyhow::Result<ExitCode> {
        let Flags { store, common } = flags;
        let flags = Settings { store, log: common.log, ..Settings::default() };
        let settings = config::read(common.config.as_deref(), flags)?;
        let _log = self.0.log(&settings)?;
        self.0.run(&Place::named(settings, add_kinds)).await
    }
}

/// The settings that every command takes as flags, for a program that adds commands to [`Command`].
#[derive(Args)]
pub struct Flags {
    /// Where jobs are kept: sqlite://PATH or postgres://USER@HOST/DATABASE [env: WINDLASS_STORE]
    /// [default: sqlite://windlass.db]
    #[arg(long, global = true, value_name = "URL", help_heading = "Settings")]
    store: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// What every command takes.
#[derive(Args)]
struct Common {
    /// A file with settings [env: WINDLASS_CONFIG] [default: windlass.toml, if it is there]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Settings")]
    config: Option<std::path::PathBuf>,
    /// What to log to standard error: error, warn, info, debug, or a filter like windlass_runtime=debug
    /// [env: WINDLASS_LOG, RUST_LOG]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Settings")]
    log: Option<String>,
}

/// The commands of a program with kinds of its own.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Own {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: commands::Command,
}

/// Gives a program all commands but `demo` and `bench` (`worker`, `submit`, `jobs`, `why`, `signal`, `cancel`, …) for
/// the kinds of its engine, which is opened and not started:
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
/// The process's arguments say which command; settings are read as by the stock binary, and win over those given to
/// the engine in code.
pub async fn run(engine: Engine) -> ExitCode {
    let name = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = name.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("windlass").to_owned();
    let matches = Own::command().display_name(name.clone()).bin_name(name.clone()).get_matches();
    let own = match Own::from_arg_matches(&matches) {
        Ok(own) => own,
        Err(error) => error.exit(),
    };
    let done = Box::pin(async {
        let flags = Settings { log: own.common.log, ..Settings::default() };
        let settings = config::read(own.common.config.as_deref(), flags)?;
        let _log = own.command.log(&settings)?;
        own.command.run(&Place::opened(engine, settings, &name)).await
    });
    done.await.unwrap_or_else(|error| report(&error))
}

/// Prints the error that ended a command, and returns the exit code of a failed command.
pub fn report(error: &anyhow::Error) -> ExitCode {
    out::note(&format!("error: {error:#}"));
    ExitCode::FAILURE
}
