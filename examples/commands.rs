//! A program that has the commands of `windlass` for its own kinds.
//!
//! `cargo run -p windlass-cli --example commands -- submit shout '{"text": "hello"}'`, then `… -- worker` in another
//! terminal, `… -- jobs`, and so on.

use std::{convert::Infallible, process::ExitCode};

use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Shout {
    text: String,
}

impl Task for Shout {
    const KIND: &'static str = "shout";
    const QUEUE: &'static str = "voices";
    type Output = String;
    type Error = Infallible;

    async fn run(self, _cx: &TaskCx) -> Result<String, Infallible> {
        Ok(self.text.to_uppercase())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let engine = Engine::builder("sqlite://commands.db").task::<Shout>().queue("voices", Pool::slots(4));
    windlass_cli::run(engine).await
}
