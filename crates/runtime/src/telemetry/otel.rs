//! Connects the spans of attempts with OpenTelemetry: traces come in with a job, and continue in what it submits.

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use windlass_model::trace;

/// Makes a job's trace the parent of its attempt's span.
pub(crate) fn set_parent(span: &Span, parent: &str) {
    let Some(parent) = trace::parse(parent) else { return };
    let (Ok(trace_id), Ok(span_id)) = (TraceId::from_hex(parent.trace_id), SpanId::from_hex(parent.span_id))
    else {
        return;
    };
    let flags = if parent.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let context = SpanContext::new(trace_id, span_id, flags, true, TraceState::default());
    // Fails if nothing exports spans; then no parent is needed.
    let _ = span.set_parent(Context::new().with_remote_span_context(context));
}

/// The trace of the current span, if something exports spans.
pub(crate) fn current() -> Option<String> {
    let traceparent = |context: Context| {
        let span = context.span();
        let span = span.span_context();
        let flags = u8::from(span.is_sampled());
        span.is_valid().then(|| format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id()))
    };
    traceparent(Span::current().context()).or_else(|| traceparent(Context::current()))
}

/// Gives an attempt's span the status *error*.
pub(crate) fn set_error(span: &Span, message: String) {
    span.set_status(Status::error(message));
}
