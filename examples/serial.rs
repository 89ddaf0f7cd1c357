//! Jobs of one key run one after the other, in the order in which they came; other keys run beside them.
//!
//! Run it with `cargo run -p windlass --example serial`.

use std::{sync::LazyLock, time::Instant};

use windlass::prelude::*;

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Something that must not run beside others of its kind.
#[derive(Serialize, Deserialize)]
struct Change {
    whose: String,
    number: u32,
}

impl Task for Change {
    const KIND: &'static str = "change";
    type Output = ();
    type Error = AnyError;

    async fn run(self, _cx: &TaskCx) -> Result<(), AnyError> {
        let began = BEGIN.elapsed().as_millis();
        tokio::time::sleep(Duration::from_millis(200)).await;
        println!(
            "  {:<12} {}   {began:>4} to {:>4} ms",
            self.whose,
            self.number,
            BEGIN.elapsed().as_millis()
        );
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());
    let engine = Engine::open(&url).await?.task::<Change>().start().await?;
    LazyLock::force(&BEGIN);

    println!(
        "the orders of each customer one by one, customers beside each other, two at a time on the printer:"
    );
    let mut jobs = Vec::new();
    for number in 1..=4 {
        for whose in ["customer-17", "customer-18"] {
            let change = Change { whose: whose.into(), number };
            // A priority does not let a job pass others of its key.
            jobs.push(engine.submit(change).serial(whose).priority(if number == 4 { -50 } else { 0 }).await?);
        }
        let change = Change { whose: "printer".into(), number };
        jobs.push(engine.submit(change).serial(Serial::new("printer").slots(2)).await?);
    }
    for key in engine.inspect().serial_keys(None, 10).await? {
        println!("  {:<12} {} of {} slots held, {} wait in line", key.key, key.held, key.slots, key.waiting);
    }
    for job in jobs {
        job.result().await?;
    }

    println!("many at once, each with a key made from it:");
    let numbers = (1..=6).map(|number| Change { whose: format!("account-{}", number % 2), number });
    for job in engine.submit_all(numbers).serial_by(|change| change.whose.clone()).await? {
        engine.result::<()>(job.id).await?;
    }
    engine.stop().await;
    Ok(())
}
