//! The smallest program: a task, an engine on a SQLite file, one job.
//!
//! Run it with `cargo run -p windlass --example hello`, and again: the job and its result exist already.

use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Task for Greet {
    const KIND: &'static str = "greet";
    type Output = String;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        Ok(format!("hello, {}", self.name))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder("sqlite://hello.db").task::<Greet>().start().await?;
    let job = engine.submit(Greet { name: "world".into() }).key("first").await?;
    println!("{} ({})", job.result().await?, if job.is_new() { "new" } else { "done before" });
    engine.stop().await;
    Ok(())
}
