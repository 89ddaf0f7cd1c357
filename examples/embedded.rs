//! An engine inside a program: submit many jobs at once, wait for their results, stop gracefully.
//!
//! Run it with `cargo run -p windlass --example embedded`. Interrupt it and run it again: it continues where it stopped.

use windlass::prelude::*;

/// Counts the steps that a number takes to 1 by Collatz' rule.
#[derive(Serialize, Deserialize)]
struct Collatz {
    start: u64,
}

impl Task for Collatz {
    const KIND: &'static str = "collatz";
    const QUEUE: &'static str = "numbers";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        let (mut number, mut steps) = (self.start, 0);
        while number > 1 {
            number = if number % 2 == 0 { number / 2 } else { number * 3 + 1 };
            steps += 1;
        }
        Ok(steps)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder("sqlite://embedded.db")
        .task::<Collatz>()
        .queue("numbers", Pool::slots(32))
        .start()
        .await?;

    // The key makes this repeatable: each number is submitted once, however often the program runs.
    let numbers = (1..=5_000).map(|start| Collatz { start });
    let jobs = engine.submit_all(numbers).key(|job| job.start.to_string()).await?;
    println!("{} jobs, {} of them new", jobs.len(), jobs.iter().filter(|job| job.is_new()).count());

    let mut longest = (0, 0);
    for (start, job) in (1..).zip(&jobs) {
        let steps: u32 = engine.result(job.id()?).await?;
        longest = longest.max((steps, start));
    }
    println!("{} takes the most steps to 1: {}", longest.1, longest.0);

    let given_up = engine.stop().await;
    println!(
        "stopped; {given_up} attempts had to be given up, {} outcomes committed",
        engine.counts().committed
    );
    Ok(())
}
