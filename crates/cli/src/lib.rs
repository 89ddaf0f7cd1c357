//! The commands of the `windlass` binary as a library. [`run`] gives a program with kinds of its own the same commands; the stock
//! binary adds `bench` and `demo` to [`Command`].
//!
//! In reading order: `config` reads the settings, `program` opens the store, or the way to a server, as a command needs it; `client` has
//! one method for each thing that commands ask of either; `commands` has one file per command, which does not know where its data comes
//! from. Commands share: `args`, flags that several take; `resolve`, which finds the job that a name means; `actions` and
//! `outcome`, which act on jobs and on queues, limits, keys and schedules; `out`, `table`, `durations`, `progress`, `confirm` and
//! `password`, which print and ask.
//!
//! What always holds: answers go to standard output and everything else to standard error; a closed pipe is no error; the exit
//! code is 0 only if the command achieved what it was called for.

mod actions;
mod args;
mod client;
mod commands;
mod config;
mod confirm;
mod durations;
mod log;
mod out;
mod outcome;
mod password;
mod program;
mod progress;
mod resolve;
mod stop;
mod table;

use std::process::ExitCode;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use config::{RemoteSettings, Settings};
use program::Program;
use windlass::Builder;

/// The commands as a `clap` subcommand, for a program that adds others: flatten it into an enum of its own and call
/// [`Command::run`]. A program that adds none calls [`run`].
pub struct Command(Box<commands::Command>);

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Command, clap::Error> {
        commands::Command::from_arg_matches(matches).map(Box::new).map(Command)
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
    /// Runs the command on the store or the server that the settings name, or else on the engine's own store. `name` is the
    /// program's, and `line` its whole command line, for `completions`.
    pub async fn run(
        self,
        flags: Flags,
        engine: Builder,
        name: &str,
        line: clap::Command,
    ) -> anyhow::Result<ExitCode> {
        // Before anything is read that may be wrong.
        let command = match *self.0 {
            commands::Command::Completions(args) => return args.print(line, name),
            command => command,
        };
        let Flags { store, store_file, server, token_file, ca_file, config, log } = flags;
        let remote = RemoteSettings { url: server, token_file, ca_file, ..RemoteSettings::default() };
        let flags = Settings { store, store_file, remote, log, ..Settings::default() };
        let mut settings = config::read(config.as_deref(), flags)?;
        command.complete(&mut settings);
        let _log = command.start_log(&settings)?;
        // Boxed, because the futures of all commands are in it.
        Box::pin(command.run(&Program::new(engine, settings, name))).await
    }
}

/// The flags that every command takes, for a program that uses [`Command`].
#[derive(Args)]
pub struct Flags {
    /// The store: sqlite://PATH or postgres://USER@HOST/DATABASE [env: WINDLASS_STORE]
    #[arg(long, global = true, value_name = "URL", help_heading = "Settings")]
    store: Option<String>,
    /// A file with the address of the store, which may have a password [env: WINDLASS_STORE_FILE]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Settings")]
    store_file: Option<std::path::PathBuf>,
    /// A server to use in place of a store: https://HOST:PORT [env: WINDLASS_SERVER]
    #[arg(long, global = true, value_name = "URL", help_heading = "Settings")]
    server: Option<String>,
    /// The file with the token for the server, which only you may read [env: WINDLASS_TOKEN_FILE; WINDLASS_TOKEN has the token itself]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Settings")]
    token_file: Option<std::path::PathBuf>,
    /// The certificate of the authority to trust in place of those of this system, a PEM file [env: WINDLASS_CA_FILE]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Settings")]
    ca_file: Option<std::path::PathBuf>,
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
    flags: Flags,
    #[command(subcommand)]
    command: Command,
}

/// Runs the command that the process's arguments name (`worker`, `submit`, `jobs`, `why`, `signal`, `cancel`, …), with the kinds
/// and the store of an engine:
///
/// ```no_run
/// # use windlass::Engine;
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     windlass_cli::run(Engine::builder("sqlite://work.db") /* .task::<MyTask>() … */).await
/// }
/// ```
///
/// Settings are read as the stock binary reads them (`--store`, `WINDLASS_STORE`, `windlass.toml`, …), and override those that the
/// builder was given in code. Nothing is opened before the arguments are parsed.
pub async fn run(engine: Builder) -> ExitCode {
    let name = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = name.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("windlass").to_owned();
    let matches = command_line(&name, &engine).get_matches();
    let OwnCommandLine { flags, command } = match OwnCommandLine::from_arg_matches(&matches) {
        Ok(parsed) => parsed,
        Err(error) => error.exit(),
    };
    let line = command_line(&name, &engine);
    Box::pin(command.run(flags, engine, &name, line)).await.unwrap_or_else(|error| report(&error))
}

/// The command line of a program of this name with this engine, whose store is the default.
fn command_line(name: &str, engine: &Builder) -> clap::Command {
    let command = OwnCommandLine::command().display_name(name.to_owned()).bin_name(name.to_owned());
    with_default_store(command, engine.address())
}

/// Shows in the help of [`Flags`] which store is used if no setting names one, for a program that uses [`Command`].
pub fn with_default_store(command: clap::Command, url: &str) -> clap::Command {
    let default = windlass::store::without_password(url);
    command.mut_arg("store", |arg| {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        arg.help(format!("{help} [default: {default}]"))
    })
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
        command_line("shop", &windlass::Engine::builder("sqlite://shop.db")).debug_assert();
    }
}
