//! A rate limit: jobs start no faster than a service allows, large ones cost more, and the limit changes while jobs wait.
//!
//! Run it with `cargo run -p windlass --example rate`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use windlass::prelude::*;

/// The calls of each half second, and their addresses. The engine gives it to the tasks.
struct Calls {
    begin: Instant,
    counts: Mutex<BTreeMap<u128, (u32, u32)>>,
}

/// A request for a number of addresses.
#[derive(Serialize, Deserialize)]
struct Locate {
    addresses: u32,
}

impl Task for Locate {
    const KIND: &'static str = "locate";
    type Output = ();
    type Error = Failure;

    fn needs() -> Needs {
        Needs::new().data::<Arc<Calls>>()
    }

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        let calls: &Arc<Calls> = cx.data();
        let mut counts = calls.counts.lock().expect("nobody panics here");
        let (calls, weight) = counts.entry(calls.begin.elapsed().as_millis() / 500).or_default();
        *calls += 1;
        *weight += self.addresses;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());
    let calls = Arc::new(Calls { begin: Instant::now(), counts: Mutex::default() });
    let engine = Engine::builder(&url).data(Arc::clone(&calls)).task::<Locate>().start().await?;

    // 20 addresses a second, at most 10 at once. Set limits when your program starts, before jobs use them.
    let control = engine.control("the program");
    control.set_limit(RateLimit::per_second("maps", 20).burst(10)).await?;
    let mut jobs = Vec::new();
    for number in 0..60 {
        let addresses = if number % 10 == 0 { 5 } else { 1 };
        jobs.push(engine.submit(Locate { addresses }).rate(RateCharge::new("maps").weight(addresses)).await?);
    }
    if let Some(why) = engine.why(jobs[59].id()).await? {
        println!("the last job: {}", why.because);
    }

    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("after two seconds the limit is raised to 60 a second");
    control.note("we have a larger plan now").set_limit(RateLimit::per_second("maps", 60).burst(30)).await?;
    for job in jobs {
        job.result().await?;
    }
    for (half, (calls, weight)) in calls.counts.lock().expect("nobody panics here").iter() {
        let from = *half as f64 / 2.0;
        println!("  {from:.1} s to {:.1} s: {calls:>2} calls for {weight:>2} addresses", from + 0.5);
    }

    match engine.submit(Locate { addresses: 31 }).rate(RateCharge::new("maps").weight(31)).await {
        Err(error) => println!("too large: {error}"),
        Ok(_) => println!("not expected"),
    }
    engine.stop().await;
    Ok(())
}
