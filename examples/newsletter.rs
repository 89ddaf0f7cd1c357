//! A workflow that sends a newsletter by the calendar: here every two seconds, in production every Monday.
//!
//! Run it with `cargo run -p windlass --example newsletter`; it creates the file `newsletter.db` and ends by itself. Kill
//! it and start it again: it continues where it was, and sends the issues that were due meanwhile.

use std::ops::ControlFlow;

use windlass::{Unit, prelude::*};

#[derive(Serialize, Deserialize)]
struct Newsletter {
    subscriber: String,
    /// The subscription ends after this number of issues.
    issues: u64,
}

impl Workflow for Newsletter {
    const KIND: &'static str = "newsletter";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let Newsletter { subscriber, issues } = &self;
        flow.step("welcome", || async move {
            println!("  welcome, {subscriber}");
            Ok(())
        })
        .await?;

        // In production: `Calendar::cron("0 8 * * mon", "Europe/Berlin")?`. The ticks are those of the calendar, however late
        // one of them runs. The journal keeps only the position of the repeat, so a replay after years is as fast as on the
        // first day.
        let calendar = Calendar::every(2, Unit::Seconds)?;
        let ended: Option<String> = flow
            .repeat("issue", calendar, |tick, cx| async move {
                println!("  the issue of {tick}");
                cx.set("last_issue", tick)?;
                // A tick may end the repeat: `ControlFlow::Break(why)`.
                Ok(ControlFlow::Continue(()))
            })
            .times(*issues)
            .await?;

        flow.step("goodbye", || async move {
            println!("  goodbye, {subscriber}");
            Ok(())
        })
        .await?;
        Ok(ended.unwrap_or_else(|| format!("{issues} issues were sent")))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = "sqlite://newsletter.db";
    let engine = Engine::builder(url).workflow::<Newsletter>().start().await?;
    let open = windlass::Filter { kind: Some("newsletter".into()), limit: 1, ..Default::default() };
    let newest = engine.inspect().jobs(&open).await?.jobs.into_iter().find(|job| !job.state.is_final());
    let newsletter: Handle<Newsletter> = match newest {
        Some(job) => {
            println!("an open subscription continues:");
            engine.job(job.id).await?
        }
        None => {
            println!("a subscription of three issues:");
            engine.submit(Newsletter { subscriber: "Ann".into(), issues: 3 }).await?
        }
    };
    let id = newsletter.id();
    println!("  (meanwhile, in another terminal: windlass --store {url} show {id})");
    println!("{}", newsletter.result().await?);
    let context = engine.context(id).await?;
    println!("the last issue, from its context: {}", context["last_issue"]);
    println!("draw it: windlass --store {url} diagram {id}");
    engine.stop().await;
    Ok(())
}
