//! Telemetry: metrics for Prometheus, and log lines with the job and the trace that they belong to.
//!
//! Run it with `cargo run -p windlass --example telemetry`, and read the metrics that it serves while it runs.

use windlass::prelude::*;

/// Splits a film into scenes, each of which is a job.
#[derive(Serialize, Deserialize)]
struct Split {
    film: String,
    scenes: u32,
}

impl Task for Split {
    const KIND: &'static str = "split";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        tracing::info!(film = self.film, "splitting");
        // These jobs belong to the same trace automatically.
        cx.engine().submit_all((1..=self.scenes).map(|number| Scene { number })).await?;
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Scene {
    number: u32,
}

impl Task for Scene {
    const KIND: &'static str = "scene";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_millis(20 * u64::from(self.number))).await;
        tracing::info!(number = self.number, traceparent = cx.traceparent(), "done");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let engine = Engine::builder("memory:").task::<Split>().task::<Scene>();
    let engine = engine.queue("default", Pool::slots(4)).start().await?;
    let addr = engine.serve_metrics("127.0.0.1:0")?;
    println!("curl http://{addr}/metrics");

    // From the header `traceparent` of the request that causes this submit.
    let trace = "00-5f1c9a0e7b3d42868ce01b9d4a7733e2-3ac1e57d90b64f28-01";
    engine.submit(Split { film: "Metropolis".into(), scenes: 8 }).trace(trace).await?;
    while engine.counts().committed < 9 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let page = engine.metrics().await;
    let names = ["outcomes_total", "attempt_seconds_sum", "queue_wait_seconds_sum", "slots{", "oldest_ready"];
    let wanted = |line: &&str| names.iter().any(|name| line.starts_with(&format!("windlass_{name}")));
    page.lines().filter(wanted).for_each(|line| println!("{line}"));
    engine.stop().await;
    Ok(())
}
