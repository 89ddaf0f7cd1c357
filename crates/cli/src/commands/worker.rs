//! `windlass worker`: runs jobs until it is stopped.

use std::process::ExitCode;

use anyhow::Context;
use windlass::store::without_password;

use crate::{
    config::{Keep, RetentionSettings, Settings},
    durations, out,
    program::Program,
    stop::{self, StopSignals},
};

/// Run jobs until stopped by SIGINT or SIGTERM
///
/// After the first signal the worker claims nothing more, releases jobs that have not started, and waits for running attempts for
/// as long as --drain says. After the second signal it exits at once, and other workers run its jobs again.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Serve this queue with this many slots; may be repeated [env: WINDLASS_QUEUES, separated by commas]
    /// [default: default=64]
    #[arg(long, value_name = "NAME[=SLOTS]")]
    queue: Vec<String>,
    /// The name of this worker, for people [env: WINDLASS_NAME] [default: host name and process id]
    #[arg(long)]
    name: Option<String>,
    /// How long its lease lasts: without a renewal for this long, other workers take its jobs [env: WINDLASS_LEASE] [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    lease: Option<std::time::Duration>,
    /// How often the lease is renewed [env: WINDLASS_RENEW_EVERY] [default: a third of the lease]
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    renew_every: Option<std::time::Duration>,
    /// How long a stopping worker waits for running attempts [env: WINDLASS_DRAIN] [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    drain: Option<std::time::Duration>,
    /// A job fails as poison after this many workers died while running it alone [env: WINDLASS_MAX_CRASHES] [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_crashes: Option<u16>,
    /// Serve /metrics for Prometheus and /healthz here, e.g. 127.0.0.1:9464; port 0 takes any free port
    /// [env: WINDLASS_METRICS]
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Send a span of each attempt to this OpenTelemetry collector, e.g. http://127.0.0.1:4318
    /// [env: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// How long done jobs are kept: a duration, or forever [env: WINDLASS_KEEP_DONE] [default: 30d]
    #[arg(long, value_name = "DURATION")]
    keep_done: Option<Keep>,
    /// How long failed jobs are kept [env: WINDLASS_KEEP_FAILED] [default: 90d]
    #[arg(long, value_name = "DURATION")]
    keep_failed: Option<Keep>,
    /// How long cancelled jobs are kept [env: WINDLASS_KEEP_CANCELLED] [default: 30d]
    #[arg(long, value_name = "DURATION")]
    keep_cancelled: Option<Keep>,
    /// How long sums of what ended per hour are kept [env: WINDLASS_KEEP_THROUGHPUT] [default: 60d]
    #[arg(long, value_name = "DURATION")]
    keep_throughput: Option<Keep>,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let mut flags =
        Settings { name: args.name, lease: args.lease, renew_every: args.renew_every, ..Settings::default() };
    flags.drain = args.drain;
    flags.max_crashes = args.max_crashes;
    flags.metrics = args.metrics;
    flags.retention = RetentionSettings {
        done: args.keep_done,
        failed: args.keep_failed,
        cancelled: args.keep_cancelled,
        throughput: args.keep_throughput,
    };
    for queue in &args.queue {
        flags.serve(queue)?;
    }
    let settings = flags.over(program.settings.clone());
    // Before anything is claimed, so that no signal is lost.
    let mut stop = StopSignals::listen()?;
    #[cfg(not(feature = "otel"))]
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        tracing::warn!(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but this build sends no spans; build with --features otel"
        );
    }
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
