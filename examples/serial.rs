//! Jobs of one serial key run one after the other, in the order of their submits; other keys run at the same time.
//!
//! Run it with `cargo run -p windlass --example serial`.

use std::time::Instant;

use windlass::prelude::*;

/// When the program started. The engine gives it to the tasks.
struct Begin(Instant);

/// Something that must not run concurrently with others of its owner.
#[derive(Serialize, Deserialize)]
struct Change {
    owner: String,
    number: u32,
}

impl Task for Change {
    const KIND: &'static str = "change";
    type Output = ();
    type Error = Failure;

    fn needs() -> Needs {
        Needs::new().data::<Begin>()
    }

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        let Begin(begin) = cx.data();
        let began = begin.elapsed().as_millis();
        tokio::time::sleep(Duration::from_millis(200)).await;
        println!(
            "  {:<12} {}   {began:>4} to {:>4} ms",
            self.owner,
            self.number,
            begin.elapsed().as_millis()
        );
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());
    let engine = Engine::builder(&url).data(Begin(Instant::now())).task::<Change>().start().await?;

    println!(
        "the orders of each customer one by one, several customers at once, two jobs at a time on the printer:"
    );
    let mut jobs = Vec::new();
    for number in 1..=4 {
        for owner in ["customer-17", "customer-18"] {
            let change = Change { owner: owner.into(), number };
            // Priorities do not change the order of jobs of one key.
            jobs.push(engine.submit(change).serial(owner).priority(if number == 4 { -50 } else { 0 }).await?);
        }
        let change = Change { owner: "printer".into(), number };
        jobs.push(engine.submit(change).serial(Serial::new("printer").slots(2)).await?);
    }
    for key in engine.inspect().serial_keys(None, 10).await? {
        println!("  {:<12} {} of {} slots held, {} wait in line", key.key, key.held, key.slots, key.waiting);
    }
    for job in jobs {
        job.result().await?;
    }

    println!("many submits at once, each with a key made from its job:");
    let numbers = (1..=6).map(|number| Change { owner: format!("account-{}", number % 2), number });
    for submitted in engine.submit_all(numbers).serial_by(|change| change.owner.clone()).await? {
        let job: Handle<Change> = engine.job(submitted.id()?).await?;
        job.result().await?;
    }
    engine.stop().await;
    Ok(())
}
