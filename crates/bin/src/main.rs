//! The stock `windlass` binary: the commands of `windlass_cli` with the built-in kinds, and `bench` and `demo` of `windlass_bench`.

mod kinds;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Durable work: jobs whose every step is committed before the work goes on.
#[derive(Parser)]
#[command(name = "windlass", version, max_term_width = 100, after_help = AFTER)]
struct Windlass {
    #[command(flatten)]
    flags: windlass_cli::Flags,
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Start with `windlass demo`: it needs nothing but this binary.

Settings are read from windlass.toml, then from the environment (WINDLASS_STORE, WINDLASS_LEASE, …), then from flags; \
the last one wins.";

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Jobs(windlass_cli::Command),
    #[command(flatten)]
    Bench(windlass_bench::Command),
}

fn main() -> ExitCode {
    keep_memory_flat();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return windlass_cli::report(
                &anyhow::Error::new(error).context("the async runtime does not start"),
            );
        }
    };
    let Windlass { flags, command } = Windlass::parse();
    let done = runtime.block_on(Box::pin(async {
        match command {
            Command::Jobs(command) => command.run(flags, kinds::add).await,
            Command::Bench(command) => command.run().await,
        }
    }));
    // Not dropped: a blocking read of standard input would hold up the end.
    runtime.shutdown_background();
    done.unwrap_or_else(|error| windlass_cli::report(&error))
}

/// Has glibc give back what large buffers took, and share its heaps between threads. By default each thread gets a heap of its
/// own, into which buffers of changing length are put between what stays: what is in use does not grow with the number of
/// children of a branch, but what is kept of it would, to three times as much, for a gain in speed of a twentieth.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe way to say this to glibc")]
fn keep_memory_flat() {
    const SETTINGS: [(libc::c_int, libc::c_int); 3] =
        [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, 128 << 10), (libc::M_TRIM_THRESHOLD, 16 << 20)];
    for (setting, value) in SETTINGS {
        // SAFETY: it takes two numbers, and no other thread has started. A setting that is not known is passed over.
        unsafe { libc::mallopt(setting, value) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_memory_flat() {}
