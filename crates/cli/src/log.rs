//! Logging to standard error, as the settings say. In a build with the feature `otel`, a worker also sends spans to a collector.

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::config::Settings;

/// Active logging. Dropping it sends the spans that are still buffered.
pub(crate) struct Log {
    #[cfg(feature = "otel")]
    _spans: Option<otel::Spans>,
}

/// Logs to standard error.
pub(crate) fn start(settings: &Settings, default_level: &str) -> anyhow::Result<Log> {
    let log = tracing_subscriber::fmt().with_env_filter(filter(settings, default_level)?);
    // A program that has set up logging itself keeps it.
    let _ = log.with_writer(std::io::stderr).with_ansi(is_term()).with_target(false).try_init();
    Ok(Log {
        #[cfg(feature = "otel")]
        _spans: None,
    })
}

fn filter(settings: &Settings, default_level: &str) -> anyhow::Result<EnvFilter> {
    let level = settings.log.as_deref().unwrap_or(default_level);
    level.parse().with_context(|| {
        format!("{level:?} is not a log level; use error, warn, info, debug, trace, or a filter like windlass_store=debug")
    })
}

fn is_term() -> bool {
    console::Term::stderr().is_term()
}

#[cfg(feature = "otel")]
pub(crate) use otel::start as start_with_spans;

#[cfg(feature = "otel")]
mod otel {
    use anyhow::Context as _;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_otlp::{SpanExporter, WithExportConfig};
    use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
    use tracing_subscriber::{Layer as _, filter::LevelFilter, prelude::*};

    use super::{Log, Settings, filter, is_term};

    /// Spans that are sent to a collector.
    pub(super) struct Spans(SdkTracerProvider);

    impl Drop for Spans {
        fn drop(&mut self) {
            if let Err(error) = self.0.shutdown() {
                crate::out::note(&format!("warning: the last spans did not reach the collector ({error})"));
            }
        }
    }

    /// Logs to standard error, and sends spans to the collector at `url` or, without one, to that of the environment, if any.
    pub(crate) fn start(settings: &Settings, default_level: &str, url: Option<&str>) -> anyhow::Result<Log> {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let in_env = is_set("OTEL_EXPORTER_OTLP_ENDPOINT") || is_set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        if url.is_none() && !in_env {
            return super::start(settings, default_level);
        }
        let mut exporter = SpanExporter::builder().with_http();
        if let Some(url) = url {
            if !url.starts_with("http://") {
                anyhow::bail!(
                    "--otlp {url:?} is not supported: spans are sent over plain HTTP; use http://HOST:PORT of a local collector"
                );
            }
            exporter = exporter.with_endpoint(format!("{}/v1/traces", url.trim_end_matches('/')));
        }
        let exporter = exporter.build().context(
            "spans cannot be sent; give --otlp or OTEL_EXPORTER_OTLP_ENDPOINT as http://HOST:PORT of a collector",
        )?;
        let mut resource = Resource::builder();
        if !is_set("OTEL_SERVICE_NAME") {
            resource = resource.with_service_name("windlass");
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(is_term());
        let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("windlass"));
        // Separate filters: the log level does not affect which spans are sent.
        let _ = tracing_subscriber::registry()
            .with(log.with_target(false).with_filter(filter(settings, default_level)?))
            .with(spans.with_filter(LevelFilter::INFO))
            .try_init();
        Ok(Log { _spans: Some(Spans(provider)) })
    }
}
