//! Attempts as they are seen from outside: each in a span, counted when it ends, and part of its job's trace.
//!
//! What an attempt submits is part of the same trace, so a chain of jobs over many processes has one. Without a
//! subscriber a span is one comparison; nothing is formatted.

use std::{sync::Arc, time::Instant};

use tracing::{Instrument, Span, field::Empty};
use windlass_model::{Change, NewJob, trace};

use crate::{
    executor::Watch,
    metrics::{Ending, Kind},
    pool::{Job, QueuePool},
    worker::Core,
};

tokio::task_local! {
    /// The trace of the job that this task runs.
    static TRACE: Option<String>;
}

/// How much of an error is kept in its span.
const ERROR: usize = 500;

impl Core {
    /// Runs one attempt, or one step of it, to its end, in its span. `None` if it was given up: then the job is, or will be, someone
    /// else's.
    pub(crate) async fn attempt(
        self: &Arc<Core>,
        job: &Job,
        pool: &Arc<QueuePool>,
        watch: &Watch,
    ) -> Option<Change> {
        let mut seen = Seen::new(job, pool, self.metrics.kind(&job.claimed.kind.kind));
        let trace = job.claimed.settings.trace.clone();
        let change = TRACE.scope(trace, self.run(job, pool, watch)).instrument(seen.span.clone()).await;
        seen.ended(change.as_ref());
        change
    }
}

/// Gives jobs that are submitted here the trace of where they come from, unless they were given one.
pub(crate) fn stamp(jobs: &mut [NewJob]) {
    let mut here = None;
    for job in jobs.iter_mut().filter(|job| job.settings.trace.is_none()) {
        job.settings.trace.clone_from(here.get_or_insert_with(current));
    }
}

/// The trace of whatever runs here: as a subscriber to spans knows it, or else that of the job.
pub(crate) fn current() -> Option<String> {
    #[cfg(feature = "otel")]
    if let Some(trace) = crate::otel::current() {
        return Some(trace);
    }
    TRACE.try_with(Clone::clone).ok().flatten()
}

/// An attempt under way. However it ends, it is counted once.
struct Seen<'a> {
    span: Span,
    kind: &'a Kind,
    started: Instant,
    ending: Ending,
}

impl<'a> Seen<'a> {
    fn new(job: &Job, pool: &QueuePool, kind: &'a Kind) -> Seen<'a> {
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
            crate::otel::adopt(&span, parent);
        }
        Seen { span, kind, started: Instant::now(), ending: Ending::GivenUp }
    }

    fn ended(&mut self, change: Option<&Change>) {
        let Some(outcome) = change.map(|change| &change.outcome) else { return };
        self.ending = outcome.into();
        if let Some(failure) = outcome.failure()
            && !self.span.is_disabled()
        {
            let text: String = failure.to_string().chars().take(ERROR).collect();
            self.span.record("error", text.as_str());
            #[cfg(feature = "otel")]
            crate::otel::failed(&self.span, text);
        }
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.span.record("outcome", self.ending.word());
        self.kind.note(self.ending, self.started.elapsed());
    }
}
