//! Watching an engine: metrics for Prometheus, and log lines that say which job and which trace they belong to.
//!
//! Run it with `cargo run -p windlass --example telemetry`, and look at what it serves while it runs.

use std::sync::OnceLock;

use windlass::prelude::*;

static ENGINE: OnceLock<Engine> = OnceLock::new();

/// Cuts a film into scenes, each a job of its own.
#[derive(Serialize, Deserialize)]
struct Cut {
    film: String,
    scenes: u32,
}

impl Task for Cut {
    const KIND: &'static str = "cut";
    type Output = ();
    type Error = AnyError;

    async fn run(self, _cx: &TaskCx) -> Result<(), AnyError> {
        tracing::info!(film = self.film, "cutting");
        let engine = ENGINE.get().expect("set before anything is submitted");
        // These are part of the same trace without being told.
        engine.submit_all((1..=self.scenes).map(|number| Scene { number })).await?;
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
    type Error = AnyError;

    async fn run(self, cx: &TaskCx) -> Result<(), AnyError> {
        tokio::time::sleep(Duration::from_millis(20 * u64::from(self.number))).await;
        tracing::info!(number = self.number, traceparent = cx.traceparent(), "done");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let engine =
        Engine::open("memory:").await?.task::<Cut>().task::<Scene>().queue("default", Pool::slots(4));
    let addr = engine.serve_metrics("127.0.0.1:0")?;
    println!("curl http://{addr}/metrics");
    let engine = engine.start().await?;
    ENGINE.set(engine.clone()).map_err(|_| "set twice")?;

    // As it came with the request that asks for this, in the header `traceparent`.
    let trace = "00-5f1c9a0e7b3d42868ce01b9d4a7733e2-3ac1e57d90b64f28-01";
    engine.submit(Cut { film: "Metropolis".into(), scenes: 8 }).trace(trace).await?;
    while engine.counts().committed < 9 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let page = engine.metrics().await;
    let told = ["outcomes_total", "attempt_seconds_sum", "queue_wait_seconds_sum", "slots{", "oldest_ready"];
    let wanted = |line: &&str| told.iter().any(|name| line.starts_with(&format!("windlass_{name}")));
    page.lines().filter(wanted).for_each(|line| println!("{line}"));
    engine.stop().await;
    Ok(())
}
