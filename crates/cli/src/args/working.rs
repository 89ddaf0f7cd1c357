//! How jobs are run: what `worker` and `serve` share.

use std::time::Duration;

use crate::{
    config::{Keep, RetentionSettings, Settings},
    durations,
};

/// The arguments of a command that runs jobs.
#[derive(clap::Args)]
pub(crate) struct Working {
    /// Serve this queue with this many slots; may be repeated [env: WINDLASS_QUEUES, separated by commas]
    /// [default: default=64]
    #[arg(long, value_name = "NAME[=SLOTS]")]
    queue: Vec<String>,
    /// The name of this worker, for people [env: WINDLASS_NAME] [default: host name and process id]
    #[arg(long)]
    name: Option<String>,
    /// How long its lease lasts: without a renewal for this long, other workers take its jobs [env: WINDLASS_LEASE] [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    lease: Option<Duration>,
    /// How often the lease is renewed [env: WINDLASS_RENEW_EVERY] [default: a third of the lease]
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    renew_every: Option<Duration>,
    /// How long a stopping worker waits for running attempts [env: WINDLASS_DRAIN] [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    drain: Option<Duration>,
    /// A job fails as poison after this many workers died while running it alone [env: WINDLASS_MAX_CRASHES] [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_crashes: Option<u16>,
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

impl Working {
    /// The settings of these arguments.
    pub(crate) fn into_settings(self) -> anyhow::Result<Settings> {
        let mut settings = Settings {
            name: self.name,
            lease: self.lease,
            renew_every: self.renew_every,
            drain: self.drain,
            max_crashes: self.max_crashes,
            retention: RetentionSettings {
                done: self.keep_done,
                failed: self.keep_failed,
                cancelled: self.keep_cancelled,
                throughput: self.keep_throughput,
            },
            ..Settings::default()
        };
        for queue in &self.queue {
            settings.serve(queue)?;
        }
        #[cfg(not(feature = "otel"))]
        if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
            tracing::warn!(
                "OTEL_EXPORTER_OTLP_ENDPOINT is set, but this build sends no spans; build with --features otel"
            );
        }
        Ok(settings)
    }
}
