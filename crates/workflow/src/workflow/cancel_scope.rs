//! Code that runs when the job is cancelled: a scope that returns the cancel request as an error.
//!
//! An open scope is a call that waits for nothing. When the job is cancelled, the driver ends the innermost one and commits that
//! with the beginning of the unwinding, so that a replay finds the same. The code continues from there; once it has returned, the
//! undos run, and the job ends as cancelled.

use std::{
    fmt,
    future::Future,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use windlass_model::{
    Failure, Payload, Time,
    failure::class,
    journal::{CallEvent, CallKind},
};

use super::{
    Boxed,
    call::{Call, CallSpec, CallStatus, Phase, Start},
    core::Core,
    journal::CallEnd,
    made::Unawaited,
    state::RunState,
};

/// The job was cancelled: the error of [`Flow::catch_cancel`](super::Flow::catch_cancel). As a [`Failure`] it ends the job as
/// cancelled.
#[derive(Clone, PartialEq, Debug)]
pub struct Cancelled {
    failure: Failure,
}

impl Cancelled {
    /// Who cancelled the job, and why.
    pub fn message(&self) -> &str {
        &self.failure.message
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Cancelled {}

impl From<Cancelled> for Failure {
    fn from(cancelled: Cancelled) -> Failure {
        cancelled.failure
    }
}

/// A scope that a cancel request ends; `.await` returns what its code returns, or [`Cancelled`].
#[must_use = "the code of a scope does not run until it is awaited"]
pub struct CatchCancel<'f, T> {
    core: Arc<Core>,
    name: String,
    key: Option<String>,
    line: &'static Location<'static>,
    code: Option<Boxed<'f, T>>,
    call: Option<usize>,
    unawaited: Unawaited,
}

impl<'f, T> CatchCancel<'f, T> {
    pub(super) fn new(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        code: impl Future<Output = T> + Send + 'f,
    ) -> CatchCancel<'f, T> {
        let unawaited = Unawaited::new(core, CallKind::CancelScope, line);
        let (core, name, code) = (Arc::clone(core), name.to_owned(), Some(Box::pin(code) as Boxed<'f, T>));
        CatchCancel { core, name, key: None, line, code, call: None, unawaited }
    }

    /// Distinguishes it from other calls of the same name, e.g. in a loop.
    pub fn key(mut self, key: impl ToString) -> Self {
        self.key = Some(key.to_string());
        self
    }
}

impl<T> Unpin for CatchCancel<'_, T> {}

impl<T> Future for CatchCancel<'_, T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Cancelled>> {
        let this = self.get_mut();
        if this.unawaited.disarm() {
            this.call = this.core.register(CallSpec {
                call_kind: CallKind::CancelScope,
                name: &this.name,
                key: this.key.as_deref(),
                line: this.line,
                start: Start::CancelScope,
                detached: false,
            });
        }
        let (Some(id), Some(code)) = (this.call, &mut this.code) else { return Poll::Pending };
        if let CallStatus::Ready(_, ending) = this.core.poll_call(id, cx) {
            this.call = None;
            // With it go the calls that it has open.
            this.code = None;
            let failure = match ending {
                CallEnd::Done(payload) => serde_json::from_slice(&payload.bytes).ok(),
                CallEnd::Failed { failure, .. } => Some(failure),
            };
            let failure = failure.unwrap_or_else(|| Failure::cancel("the job was cancelled"));
            return Poll::Ready(Err(Cancelled { failure }));
        }
        code.as_mut().poll(cx).map(Ok)
    }
}

impl<T> Drop for CatchCancel<'_, T> {
    fn drop(&mut self) {
        self.code = None;
        if let Some(id) = self.call.take() {
            self.core.abandon_call(id);
        }
    }
}

impl RunState {
    /// Ends the innermost open scope because the job is cancelled. Returns whether there is one.
    pub(super) fn catch_cancel(&mut self, failure: &Failure, now: Time) -> bool {
        let open = self.calls.iter().filter(|(_, call)| call.call_kind == CallKind::CancelScope);
        // A replay does not begin calls that are not recorded.
        let is_open = |call: &Call| matches!(call.phase, Phase::New | Phase::Waiting(_));
        let innermost = open.filter(|(_, call)| is_open(call)).max_by_key(|(_, call)| call.made);
        let Some((id, _)) = innermost else { return false };
        let failure = Failure { class: class::CANCELLED.into(), ..failure.clone() };
        let payload = Payload::json(serde_json::to_vec(&failure).unwrap_or_default());
        let seq = self.finish(id, CallEvent::Done, payload, now);
        self.caught_at = Some(seq);
        true
    }
}
