//! `windlass worker`: runs jobs until it is stopped.

use std::process::ExitCode;

use anyhow::Context;
use windlass::store::without_password;

use crate::{
    args::Working,
    config::Settings,
    out,
    program::Program,
    stop::{self, StopSignals},
};

/// Run jobs until stopped by SIGINT or SIGTERM
///
/// After the first signal the worker claims nothing more, releases jobs that have not started, and waits for running attempts for
/// as long as --drain says. After the second signal it exits at once, and other workers run its jobs again.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) working: Working,
    /// Serve /metrics for Prometheus and /healthz here, e.g. 127.0.0.1:9464; port 0 takes any free port
    /// [env: WINDLASS_METRICS]
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let flags = Settings { metrics: args.metrics, ..args.working.into_settings()? };
    let settings = flags.over(program.settings.clone());
    // Before anything is claimed, so that no signal is lost.
    let mut stop = StopSignals::listen()?;
    let builder = settings.apply(program.worker_builder()?)?;
    #[cfg(feature = "serve")]
    let builder = settings.alerts.serve_webhooks(builder)?;
    #[cfg(not(feature = "serve"))]
    if !settings.alerts.webhooks.is_empty() {
        tracing::warn!("this build posts no messages to webhooks; build with --features serve");
    }
    let shown = without_password(builder.address());
    let engine = builder.open().await.with_context(|| format!("the store {shown} cannot be opened"))?;
    let metrics = settings.metrics.as_deref().map(|addr| engine.serve_metrics(addr)).transpose()?;
    engine.start().await?;
    let metrics = metrics.map(|addr| format!(" · metrics http://{addr}/metrics")).unwrap_or_default();
    out::print(&format!("{}{metrics}\n", greeting(&engine, &shown).await))?;
    stop.received().await;
    tracing::info!(
        "stopping: waiting for running attempts, releasing the rest; a second signal exits at once"
    );
    tokio::select! {
        left = engine.stop() => {
            let counts = engine.counts();
            tracing::info!(committed = counts.committed, released = counts.released, abandoned = left, "stopped");
            Ok(ExitCode::SUCCESS)
        }
        () = stop.received() => {
            out::note("second signal: exiting at once; other workers run the jobs of this one again");
            // Waits for nothing: an attempt may block its thread.
            std::process::exit(stop::INTERRUPTED.into())
        }
    }
}

async fn greeting(engine: &windlass::Engine, store: &str) -> String {
    let worker = engine.worker().await.map(|id| id.to_string()).unwrap_or_default();
    let queues: Vec<String> =
        engine.queues().iter().map(|(name, pool)| format!("{name}={}", pool.slots)).collect();
    let kinds: Vec<String> = engine
        .kinds()
        .into_iter()
        .map(|kind| if kind.version == 1 { kind.kind } else { format!("{} v{}", kind.kind, kind.version) })
        .collect();
    format!(
        "worker {worker} ({}) serves {store} · queues {} · kinds {}",
        engine.settings().name,
        queues.join(", "),
        kinds.join(", ")
    )
}
