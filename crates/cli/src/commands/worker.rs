//! `windlass worker`: works off jobs until told to stop.

use std::process::ExitCode;

use windlass::Pool;

use crate::{
    config::{Keep, RetentionSettings, Settings},
    out,
    place::Place,
    span,
    stop::{self, Stop},
};

/// Work off jobs until told to stop (SIGINT or SIGTERM).
///
/// Told once, the worker claims nothing more, hands back what has not started and finishes what runs, for as long as
/// --drain says. Told twice, it exits at once; its jobs go to other workers.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Serve this queue, with so many slots; may be repeated [env: WINDLASS_QUEUES, separated by commas]
    /// [default: default=64]
    #[arg(long, value_name = "NAME[=SLOTS]")]
    queue: Vec<String>,
    /// What people know this worker by [env: WINDLASS_NAME] [default: host and process number]
    #[arg(long)]
    name: Option<String>,
    /// How long it may go without renewing before others take its jobs [env: WINDLASS_LEASE] [default: 15s]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    lease: Option<std::time::Duration>,
    /// How often the lease is renewed [env: WINDLASS_BEAT] [default: a third of the lease]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    beat: Option<std::time::Duration>,
    /// How long a stopping worker waits for running attempts [env: WINDLASS_DRAIN] [default: 30s]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    drain: Option<std::time::Duration>,
    /// How many deaths of a worker that ran it alone make a job fail as poison [env: WINDLASS_CRASHES] [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    crashes: Option<u16>,
    /// Serve /metrics for Prometheus and /healthz here, e.g. 127.0.0.1:9464; port 0 takes any that is free
    /// [env: WINDLASS_METRICS]
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Send a span of each attempt to this OpenTelemetry collector, e.g. http://127.0.0.1:4318
    /// [env: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// How long jobs that are done are kept: a span, or forever [env: WINDLASS_KEEP_DONE] [default: 30d]
    #[arg(long, value_name = "SPAN")]
    keep_done: Option<Keep>,
    /// How long jobs that failed are kept [env: WINDLASS_KEEP_FAILED] [default: 90d]
    #[arg(long, value_name = "SPAN")]
    keep_failed: Option<Keep>,
    /// How long jobs that were cancelled are kept [env: WINDLASS_KEEP_CANCELLED] [default: 30d]
    #[arg(long, value_name = "SPAN")]
    keep_cancelled: Option<Keep>,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let mut flags = Settings { name: args.name, lease: args.lease, beat: args.beat, ..Settings::default() };
    flags.drain = args.drain;
    flags.crashes = args.crashes;
    flags.metrics = args.metrics;
    flags.retention =
        RetentionSettings { done: args.keep_done, failed: args.keep_failed, cancelled: args.keep_cancelled };
    for queue in &args.queue {
        flags.serve(queue)?;
    }
    let settings = flags.over(place.settings.clone());
    // Before anything is claimed: a signal that comes now is not lost.
    let mut stop = Stop::listen()?;
    #[cfg(not(feature = "otel"))]
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        tracing::warn!(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but this build sends no spans; build with --features otel"
        );
    }
    let engine = settings.apply(place.engine().await?)?;
    let metrics = settings.metrics.as_deref().map(|addr| engine.serve_metrics(addr)).transpose()?;
    let engine = engine.start().await?;
    let metrics = metrics.map(|addr| format!(" · metrics http://{addr}/metrics")).unwrap_or_default();
    out::print(&format!("{}{metrics}\n", started(&engine, place).await))?;
    stop.told().await;
    tracing::info!("stopping: finishing what runs, handing back the rest; a second signal exits at once");
    tokio::select! {
        left = engine.stop() => {
            let counts = engine.counts();
            tracing::info!(committed = counts.committed, handed_back = counts.released, given_up = left, "stopped");
            Ok(ExitCode::SUCCESS)
        }
        () = stop.told() => {
            out::note("told twice: exiting at once; other workers take over what ran here");
            // What runs may block its thread, so nothing is waited for.
            std::process::exit(stop::INTERRUPTED.into())
        }
    }
}

async fn started(engine: &windlass::Engine, place: &Place) -> String {
    let worker = engine.worker().await.map(|id| id.to_string()).unwrap_or_default();
    let default = [("default".to_owned(), Pool::default())];
    let queues = if engine.queues().is_empty() { &default } else { engine.queues() };
    let queues: Vec<String> = queues.iter().map(|(name, pool)| format!("{name}={}", pool.slots)).collect();
    let kinds: Vec<String> = engine
        .kinds()
        .into_iter()
        .map(|kind| if kind.version == 1 { kind.kind } else { format!("{} v{}", kind.kind, kind.version) })
        .collect();
    format!(
        "worker {worker} ({}) serves {} · queues {} · kinds {}",
        engine.settings().name,
        place.shown(),
        queues.join(", "),
        kinds.join(", ")
    )
}
