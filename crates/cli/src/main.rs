//! The stock `windlass` binary: the commands of `windlass_cli`, with the built-in kinds.

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_cli::stock()
}
