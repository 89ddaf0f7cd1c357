//! Layers: code around every attempt. One measures and counts attempts, one adds the tenant of the job to every log line and refuses
//! the jobs of unknown tenants.
//!
//! Run it with `cargo run -p windlass --example layers`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use tracing::Instrument;
use windlass::{
    prelude::*,
    runtime::{AttemptInfo, Ended, Layer, NextLayer},
};

/// Sends an invoice; the mail server is busy at first.
#[derive(Serialize, Deserialize)]
struct SendInvoice {
    number: u32,
}

impl Task for SendInvoice {
    const KIND: &'static str = "send_invoice";
    type Output = String;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<String, Failure> {
        if cx.attempt() == 1 {
            let busy = Failure::retry("the mail server is busy").class("busy");
            return Err(busy.retry_after(Duration::from_millis(10)));
        }
        tracing::info!(invoice = self.number, "sending");
        Ok(format!("invoice {}", self.number))
    }
}

/// Counts attempts by kind and by how they ended, and measures them.
#[derive(Clone, Default)]
struct Statistics {
    ended: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Layer for Statistics {
    async fn call(&self, attempt: AttemptInfo, next: NextLayer) -> Result<Ended, Failure> {
        let begun = Instant::now();
        // A refusal of a layer further in is an error here; the attempt has not run.
        let result = next.run().await;
        let end = match &result {
            Ok(ended) => ended.failure().map_or("done", |failure| &failure.class),
            Err(refusal) => &refusal.class,
        };
        let line = format!("{} attempt {}: {end}", attempt.kind().kind, attempt.attempt());
        println!("  {line}, in {:?}", begun.elapsed());
        *self.ended.lock().expect("not poisoned").entry(line).or_default() += 1;
        result
    }
}

/// Runs the attempt in a span of the tenant that the key of its job begins with.
async fn tenant(attempt: AttemptInfo, next: NextLayer) -> Result<Ended, Failure> {
    let tenant = attempt.key().and_then(|key| key.split('/').next()).unwrap_or_default();
    match tenant {
        "acme" | "globex" => next.run().instrument(tracing::info_span!("of", tenant)).await,
        unknown => Err(Failure::stop(format!("there is no tenant {unknown:?}")).class("tenant")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().without_time().with_ansi(false).with_env_filter("layers=info").init();
    let statistics = Statistics::default();
    let engine = Engine::builder("memory:")
        .layer(statistics.clone()) // the first layer is the outermost
        .layer(tenant)
        .task::<SendInvoice>()
        .start()
        .await?;

    for key in ["acme/17", "globex/18", "initech/19"] {
        println!("{key}");
        match engine.submit(SendInvoice { number: 7 }).key(key).await?.result().await {
            Ok(sent) => println!("  sent {sent}"),
            Err(error) => println!("  {error}"),
        }
    }
    engine.stop().await;

    println!("all attempts");
    for (line, count) in statistics.ended.lock().expect("not poisoned").iter() {
        println!("  {line} ({count})");
    }
    Ok(())
}
