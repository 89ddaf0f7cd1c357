//! Schedules: by a cron expression in a time zone, and at even intervals; ticks while the last job still runs; and a job that
//! is triggered by hand.
//!
//! Run it with `cargo run -p windlass --example schedule`.

use windlass::{ControlOutcome, Overlap, prelude::*};

/// Reports on the time up to its tick.
#[derive(Serialize, Deserialize)]
struct Report {
    about: String,
    takes: Duration,
}

impl Task for Report {
    const KIND: &'static str = "report";
    type Output = ();
    type Error = Failure;

    /// The tick is the same in every attempt, however late it runs: base a report on it, not on the clock.
    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        let tick = cx.tick().map(|tick| tick.to_string()).unwrap_or_default();
        tokio::time::sleep(self.takes).await;
        println!("  {} up to {tick}", self.about);
        Ok(())
    }
}

fn report(about: &str, takes: u64) -> Report {
    Report { about: about.into(), takes: Duration::from_millis(takes) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());
    let engine = Engine::builder(&url).task::<Report>().start().await?;

    // At every start of the program: a schedule that exists unchanged is left alone.
    let weekdays = Calendar::cron("30 2 * * mon-fri", "Europe/Berlin")?;
    engine.schedule("nightly", weekdays.clone(), report("sales", 100)).await?;
    let often: Calendar = "every 2 seconds".parse()?;
    engine.schedule("often", often, report("visits", 2_500)).overlap(Overlap::Skip).tag("visits").await?;

    // Ticks of Berlin time, printed in UTC.
    let now = engine.inspect().clock().await?;
    println!("the next nightly reports:");
    for tick in weekdays.ticks_after(now).take(3) {
        println!("  {tick}");
    }

    println!("seven seconds of visits, a report every two, each of which takes two and a half:");
    tokio::time::sleep(Duration::from_secs(7)).await;
    for schedule in engine.inspect().schedules().await? {
        let name = &schedule.schedule.name;
        let fired = engine.inspect().firings(name, 100).await?;
        println!("{name} ({}) fired {} times", schedule.schedule.calendar, fired.len());
        for miss in engine.inspect().misses(name, 100).await? {
            println!("  {} missed, the first {}: {}", miss.missed.count, miss.missed.from, miss.why);
        }
    }

    println!("the nightly report, triggered by hand:");
    let control = engine.control("operator").note("the numbers were corrected");
    if let ControlOutcome::Created(job) = control.trigger("nightly").await? {
        let report: Handle<Report> = engine.job(job).await?;
        report.result().await?;
    }
    engine.stop().await;
    Ok(())
}
