//! The span of each attempt, and the trace that jobs pass on.
//!
//! Jobs that an attempt submits are part of its job's trace, so a chain of jobs over many processes has one trace. Without
//! a subscriber a span costs one comparison; nothing is formatted.

use std::{sync::Arc, time::Instant};

use tracing::{Instrument, Span, field::Empty};
use windlass_env::Env;
use windlass_model::{Change, NewJob, trace};

use super::metrics::{KindMetrics, OutcomeLabel};
use crate::{
    core::Core,
    pool::{Job, QueuePool},
    watchdog::AttemptWatch,
};

tokio::task_local! {
    /// The trace of the job that this task runs.
    static TRACE: Option<String>;
}

/// How many characters of an error its span keeps.
const ERROR_CHARS: usize = 500;

impl Core {
    /// Runs one attempt, or one step of a machine, to its end, in its span. `None` if nothing is to be committed for it.
    pub(crate) async fn run_attempt(
        self: &Arc<Core>,
        job: &Job,
        pool: &Arc<QueuePool>,
        watch: &AttemptWatch,
    ) -> Option<Change> {
        let mut span = AttemptSpan::new(&self.env, job, pool, self.metrics.kind(&job.claimed.kind.kind));
        let trace = job.claimed.settings.trace.clone();
        let change = TRACE.scope(trace, self.execute(job, pool, watch)).instrument(span.span.clone()).await;
        span.set_outcome(change.as_ref());
        change
    }
}

/// Gives jobs that have no trace the trace of the code that submits them.
pub(crate) fn pass_on(jobs: &mut [NewJob]) {
    let mut trace = None;
    for job in jobs.iter_mut().filter(|job| job.settings.trace.is_none()) {
        job.settings.trace.clone_from(trace.get_or_insert_with(current));
    }
}

/// The current trace: that of the current span, if OpenTelemetry exports it, or else that of the job that runs here.
pub(crate) fn current() -> Option<String> {
    #[cfg(feature = "otel")]
    if let Some(trace) = super::otel::current() {
        return Some(trace);
    }
    TRACE.try_with(Clone::clone).ok().flatten()
}

/// The span of an attempt. Dropping it counts the attempt, so that each is counted once, however it ends.
struct AttemptSpan<'a> {
    env: &'a Env,
    span: Span,
    kind: &'a KindMetrics,
    started: Instant,
    outcome: OutcomeLabel,
}

impl<'a> AttemptSpan<'a> {
    fn new(env: &'a Env, job: &Job, pool: &QueuePool, kind: &'a KindMetrics) -> AttemptSpan<'a> {
        let claimed = &job.claimed;
        let parent = claimed.settings.trace.as_deref();
        let span = tracing::info_span!(
            target: "windlass",
            parent: None,
            "attempt",
            job = %claimed.id,
            kind = claimed.kind.kind,
            version = claimed.kind.version,
            queue = pool.queue,
            stage = claimed.stage,
            attempt = claimed.attempts + 1,
            epoch = claimed.epoch.0,
            worker = %job.claim.worker,
            trace = parent.and_then(trace::parse).map(|parent| parent.trace_id),
            outcome = Empty,
            error = Empty,
        );
        #[cfg(feature = "otel")]
        if let Some(parent) = parent {
            super::otel::set_parent(&span, parent);
        }
        AttemptSpan { env, span, kind, started: env.instant(), outcome: OutcomeLabel::GivenUp }
    }

    fn set_outcome(&mut self, change: Option<&Change>) {
        let Some(outcome) = change.map(|change| &change.outcome) else { return };
        self.outcome = outcome.into();
        if let Some(failure) = outcome.failure()
            && !self.span.is_disabled()
        {
            let text: String = failure.to_string().chars().take(ERROR_CHARS).collect();
            self.span.record("error", text.as_str());
            #[cfg(feature = "otel")]
            super::otel::set_error(&self.span, text);
        }
    }
}

impl Drop for AttemptSpan<'_> {
    fn drop(&mut self) {
        self.span.record("outcome", self.outcome.as_str());
        self.kind.count(self.outcome, self.env.since(self.started));
    }
}
