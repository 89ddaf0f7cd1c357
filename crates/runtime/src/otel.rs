//! Spans and OpenTelemetry: where a trace comes in and where it goes on.

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use windlass_model::trace;

/// Makes what a job was given the parent of its attempt's span.
pub(crate) fn adopt(span: &Span, parent: &str) {
    let Some(parent) = trace::parse(parent) else { return };
    let (Ok(trace_id), Ok(span_id)) = (TraceId::from_hex(parent.trace_id), SpanId::from_hex(parent.span_id))
    else {
        return;
    };
    let flags = if parent.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let context = SpanContext::new(trace_id, span_id, flags, true, TraceState::default());
    // It fails if nobody exports spans; then there is nothing to adopt.
    let _ = span.set_parent(Context::new().with_remote_span_context(context));
}

/// The trace of the span that is entered here, if somebody exports spans.
pub(crate) fn current() -> Option<String> {
    let of = |context: Context| {
        let span = context.span();
        let span = span.span_context();
        let flags = u8::from(span.is_sampled());
        span.is_valid().then(|| format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id()))
    };
    of(Span::current().context()).or_else(|| of(Context::current()))
}

/// Marks an attempt's span as gone wrong.
pub(crate) fn failed(span: &Span, why: String) {
    span.set_status(Status::error(why));
}
