//! The stock `windlass` binary: the commands of `windlass_cli` with the built-in kinds, and `bench` and `demo` of `windlass_bench`.

mod kinds;

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use windlass::Engine;

/// A durable work engine: every step of a job is committed before the job continues
#[derive(Parser)]
#[command(name = "windlass", version, max_term_width = 100, after_help = AFTER)]
struct CommandLine {
    #[command(flatten)]
    flags: windlass_cli::Flags,
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Start with `windlass demo`: it needs nothing but this binary.

Settings are read from windlass.toml, from the environment (WINDLASS_STORE, WINDLASS_LEASE, …) and from flags; each \
overrides the ones before.";

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Shared(windlass_cli::Command),
    #[command(flatten)]
    Bench(windlass_bench::Command),
}

/// The store if no setting names one.
const DEFAULT_STORE: &str = "sqlite://windlass.db";

fn main() -> ExitCode {
    keep_memory_flat();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return windlass_cli::report(
                &anyhow::Error::new(error).context("the async runtime cannot start"),
            );
        }
    };
    let (CommandLine { flags, command }, with_exec) = parse();
    let result = runtime.block_on(Box::pin(async {
        match command {
            Command::Shared(command) => {
                let engine = kinds::add(Engine::builder(DEFAULT_STORE), with_exec);
                command.run(flags, engine, "windlass", command_line()).await
            }
            Command::Bench(command) => command.run().await,
        }
    }));
    // Dropping the runtime would wait for a blocking read of standard input.
    runtime.shutdown_background();
    result.unwrap_or_else(|error| {
        // Of `retry --here`, for a job of that kind.
        let needs_exec = !with_exec && format!("{error:#}").contains("\"exec\" job");
        windlass_cli::report(&if needs_exec { error.context(EXEC_IS_OFF) } else { error })
    })
}

/// Parses the arguments of the process; prints the help or what is wrong with them and ends it.
/// Returns also whether the built-in kind `exec` is known.
fn parse() -> (CommandLine, bool) {
    let matches = command_line().get_matches();
    let with_exec = knows_exec(&matches);
    (CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()), with_exec)
}

fn command_line() -> clap::Command {
    let command = windlass_cli::with_default_store(CommandLine::command(), DEFAULT_STORE);
    RUN_JOBS.iter().fold(command, |command, name| command.mut_subcommand(name, add_exec_flag))
}

/// The commands that run jobs: those of others, and one job that is named with `retry --here`.
const RUN_JOBS: [&str; 3] = ["worker", "serve", "retry"];
const EXEC_IS_OFF: &str = "exec jobs are not run here; start with --exec to run them";

fn add_exec_flag(command: clap::Command) -> clap::Command {
    let help = match command.get_name() {
        "retry" => {
            "With --here: run also a job of the kind exec, which runs the program that whoever submitted it has named"
        }
        _ => "Run jobs of the kind exec: whoever may submit jobs can then run any program as this user",
    };
    let flag = Arg::new("exec").long("exec").action(ArgAction::SetTrue).env("WINDLASS_EXEC");
    command.arg(flag.value_parser(clap::builder::FalseyValueParser::new()).help(help).hide_env_values(true))
}

/// Whether the kind `exec` is known: to commands that run jobs only with their flag, and to all others, which check inputs by it.
fn knows_exec(matches: &ArgMatches) -> bool {
    let Some((name, matches)) = matches.subcommand() else { return true };
    let is_set = |flag: &str| matches!(matches.try_get_one::<bool>(flag), Ok(Some(true)));
    match name {
        "retry" => !is_set("here") || is_set("exec"),
        name if RUN_JOBS.contains(&name) => {
            if !is_set("no_work") && !is_set("exec") {
                eprintln!("{EXEC_IS_OFF}");
            }
            is_set("exec")
        }
        _ => true,
    }
}

/// Makes glibc return the memory of large buffers and share its heaps between threads. By default each thread has a heap of its
/// own, which buffers of changing size fragment: the memory in use does not grow with the number of children of a branch, but the
/// memory that the process keeps would, to three times as much, for a speed-up of a twentieth.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "mallopt has no safe wrapper")]
fn keep_memory_flat() {
    const SETTINGS: [(libc::c_int, libc::c_int); 3] =
        [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, 128 << 10), (libc::M_TRIM_THRESHOLD, 16 << 20)];
    for (setting, value) in SETTINGS {
        // SAFETY: it takes two numbers, and no other thread has started. An unknown setting is ignored.
        unsafe { libc::mallopt(setting, value) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_memory_flat() {}
