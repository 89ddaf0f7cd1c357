//! Steps: calls whose body runs when it is needed and whose result is recorded.

use std::{
    future::Future,
    marker::PhantomData,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt;
use serde::{Serialize, de::DeserializeOwned};
use windlass_env::Env;
use windlass_model::{Failure, Payload, Retry, Time, failure::class, journal::CallKind};
use windlass_runtime::Policy;

use super::{
    Boxed,
    body_call::BodyCall,
    call::{AwaitedSignal, CallStatus, CallWait},
    call_retry::{CallRetry, retry_settings},
    core::Core,
    fault::{diverged, source_location},
    journal::CallEnd,
    step_cx::StepCx,
    undo::UndoCx,
    undo_body::{UndoBody, id_of, register_undo, undo_body},
};
use crate::heartbeat::Heartbeat;

/// Makes the future of one attempt.
pub(super) type Body<'f> = Box<dyn FnMut(StepCx) -> Boxed<'f, Result<Vec<u8>, Failure>> + Send + 'f>;

/// What follows when a body has succeeded.
pub(super) type OnBodyDone = fn(&RawStep<'_>, usize, Vec<u8>);

/// A call with a body, whatever its type.
pub(super) struct RawStep<'f> {
    pub(super) call: BodyCall,
    pub(super) retry: CallRetry,
    pub(super) timeout: Option<Duration>,
    /// How long one attempt may run without reporting progress.
    pub(super) heartbeat_timeout: Option<Duration>,
    /// How long after a check of a condition the next one follows.
    pub(super) every: Option<Duration>,
    /// The signal that causes a check of a condition.
    pub(super) signal: Option<AwaitedSignal>,
    pub(super) undo: Option<UndoBody>,
    pub(super) on_done: OnBodyDone,
    pub(super) body: Body<'f>,
    running: Option<Boxed<'f, Result<Vec<u8>, Failure>>>,
}

impl<'f> RawStep<'f> {
    pub(super) fn new(
        core: &Arc<Core>,
        call_kind: CallKind,
        name: &str,
        line: &'static Location<'static>,
        body: Body<'f>,
    ) -> RawStep<'f> {
        RawStep {
            call: BodyCall::new(core, call_kind, name, line),
            retry: CallRetry::of_engine(),
            timeout: Policy::default().timeout,
            heartbeat_timeout: None,
            every: None,
            signal: None,
            undo: None,
            on_done: |step, id, result| step.call.core.complete_call(id, result, step.undo.is_some()),
            body,
            running: None,
        }
    }

    fn start(&mut self, id: usize) {
        let (attempts, signal_payload) = {
            let state = self.call.core.lock();
            let call = state.calls.get(id);
            let tried = call.and_then(|call| state.journal.calls.of(&call.ident)?.tried.as_ref());
            let signal_payload =
                call.and_then(|call| call.signal.as_ref()).map(|signal| signal.payload.clone());
            (tried.map_or(0, |tried| tried.attempts), signal_payload)
        };
        let ident = self.call.ident();
        let (core, body) = (Arc::clone(&self.call.core), &mut self.body);
        let step_id = id_of(&core, &ident);
        let env = &core.services.env;
        let heartbeat = self.heartbeat_timeout.map(|timeout| Arc::new(Heartbeat::new(env, timeout)));
        let cx = StepCx::new(Arc::clone(&core), (id, ident), attempts, signal_payload, step_id)
            .with_heartbeat(heartbeat.clone());
        // Code before the first `await` is part of the step.
        let made =
            core.run_as_body(&self.call.name, self.timeout, || catch_unwind(AssertUnwindSafe(|| body(cx))));
        self.running = Some(match made {
            Ok(run) => within(env, self.timeout, watched(env, heartbeat, run)),
            Err(panic) => {
                let failure = Failure::of_panic(&*panic);
                Box::pin(std::future::ready(Err(failure)))
            }
        });
    }

    /// Polls the body, and completes, retries or fails the call when it has ended.
    fn poll_body(&mut self, id: usize) -> Poll<()> {
        let running = self.running.as_mut().expect("started");
        let core = Arc::clone(&self.call.core);
        let polled = core.poll_body(id, &self.call.name, self.timeout, |cx| {
            AssertUnwindSafe(running).catch_unwind().poll_unpin(cx)
        });
        let Poll::Ready(result) = polled else { return Poll::Pending };
        self.running = None;
        let failure = match result {
            Ok(Ok(result)) => {
                (self.on_done)(self, id, result);
                return Poll::Ready(());
            }
            Ok(Err(failure)) => failure,
            Err(panic) => Failure::of_panic(&*panic),
        };
        core.fail_or_retry_call(id, failure, &self.retry);
        Poll::Ready(())
    }

    /// Registers the undo of a step that has succeeded.
    fn register_undo(&mut self, seq: i32, payload: Payload) {
        if let Some(undo) = self.undo.take() {
            let (ident, retry) = (self.call.ident(), self.retry.clone());
            register_undo(&self.call.core, self.call.call_kind, ident, retry, undo, (seq, payload));
        }
    }

    /// A condition did not hold: checks it again later.
    pub(super) fn check_again_later(&self, id: usize) {
        let now = self.call.core.now();
        let deadline = self.deadline(id);
        if deadline.is_some_and(|deadline| deadline <= now) {
            let text = format!("the condition {:?} did not hold in time", self.call.name);
            let failure = Failure::stop(text).class(class::TIMEOUT);
            return self.call.core.fail_call(id, failure);
        }
        let next = self.every.map(|every| now + every);
        let due = [next, deadline].into_iter().flatten().min();
        self.call.core.wait_again(
            id,
            CallWait { due_at: due, signal: self.signal.clone(), runs_body: true, ..CallWait::default() },
        );
    }

    pub(super) fn deadline(&self, id: usize) -> Option<Time> {
        let state = self.call.core.lock();
        let recorded = state.journal.calls.of(&state.calls.get(id)?.ident)?;
        serde_json::from_slice(&recorded.begun.as_ref()?.1.bytes).ok()
    }
}

impl Future for RawStep<'_> {
    /// The sequence number of its end, and how it ended.
    type Output = (i32, CallEnd);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(i32, CallEnd)> {
        let this = self.get_mut();
        let Some(id) = this.call.register() else { return Poll::Pending };
        loop {
            match this.call.core.poll_call(id, cx) {
                CallStatus::Ready(seq, ending) => {
                    this.call.end();
                    if let CallEnd::Done(payload) = &ending {
                        this.register_undo(seq, payload.clone());
                    }
                    return Poll::Ready((seq, ending));
                }
                CallStatus::Go => this.start(id),
                CallStatus::Running if this.running.is_some() => {
                    if this.poll_body(id).is_pending() {
                        return Poll::Pending;
                    }
                }
                CallStatus::Running | CallStatus::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for RawStep<'_> {
    fn drop(&mut self) {
        // The body is dropped first: it may still use the call.
        self.running = None;
        // The step has succeeded, although nobody awaits it.
        if let Some(id) = self.call.id()
            && self.undo.is_some()
            && let Some((seq, payload)) = self.call.core.success_of(id)
        {
            self.register_undo(seq, payload);
        }
    }
}

/// A step that is being described; `.await` runs it, or returns what it returned before.
///
/// It runs at least once, and its result is recorded exactly once, as JSON: after a crash, and on every replay, `.await`
/// returns the same value without running it again. An error is retried as the retry policy says; the last error is recorded as
/// the result.
#[must_use = "a step does nothing until it is awaited"]
pub struct Step<'f, T> {
    raw: RawStep<'f>,
    result: PhantomData<fn() -> T>,
}

impl<'f, T> Step<'f, T>
where
    T: Serialize + DeserializeOwned + Send,
{
    pub(super) fn new<F, Fut>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        mut run: F,
    ) -> Step<'f, T>
    where
        F: FnMut(StepCx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, Failure>> + Send + 'f,
    {
        let body: Body<'f> = Box::new(move |cx| {
            let run = run(cx);
            Box::pin(async move { encode_result(&run.await?) })
        });
        let mut raw = RawStep::new(core, CallKind::Step, name, line, body);
        raw.retry = CallRetry::new(core.backoff);
        Step { raw, result: PhantomData }
    }

    /// Gives it another name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.raw.call.name = name.into();
        self
    }

    /// Distinguishes it from other steps of the same name, e.g. in a loop.
    pub fn key(mut self, key: impl ToString) -> Self {
        self.raw.call.key = Some(key.to_string());
        self
    }

    retry_settings!("the step", raw.retry);

    /// How long one attempt may run: by default an hour.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.raw.timeout = Some(timeout);
        self
    }

    /// How long one attempt may run without a call of [`StepCx::progress`]; then it ends like one that has reached its timeout. By
    /// default it need not report.
    pub fn heartbeat_timeout(mut self, timeout: Duration) -> Self {
        self.raw.heartbeat_timeout = Some(timeout);
        self
    }

    /// Removes the limit on how long one attempt may run.
    pub fn no_timeout(mut self) -> Self {
        self.raw.timeout = None;
        self
    }

    /// Sets the undo, which gets what the step returned. It runs if the workflow fails, is cancelled or expires after the step
    /// has succeeded: the undos of all such steps, the last step first, each as a step of its own with this step's retry
    /// policy and backoff.
    pub fn undo<U, Fut>(self, mut undo: U) -> Self
    where
        U: FnMut(T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
        T: 'static,
    {
        self.undo_with(move |_, result| undo(result))
    }

    /// The same, for an undo that needs the number of its attempt or the id of the step; see [`UndoCx`].
    pub fn undo_with<U, Fut>(mut self, undo: U) -> Self
    where
        U: FnMut(UndoCx, T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
        T: 'static,
    {
        self.raw.undo = Some(undo_body(undo));
        self
    }
}

impl<T> Unpin for Step<'_, T> {}

impl<T> Future for Step<'_, T>
where
    T: DeserializeOwned + Send + 'static,
{
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let this = self.get_mut();
        let Poll::Ready((_, ending)) = Pin::new(&mut this.raw).poll(cx) else { return Poll::Pending };
        decode_result(&this.raw.call.core, &this.raw.call.name, this.raw.call.line, ending)
    }
}

/// Limits how long an attempt may run without reporting progress.
fn watched<'f>(
    env: &Env,
    heartbeat: Option<Arc<Heartbeat>>,
    run: Boxed<'f, Result<Vec<u8>, Failure>>,
) -> Boxed<'f, Result<Vec<u8>, Failure>> {
    let Some(heartbeat) = heartbeat else { return run };
    let env = env.clone();
    Box::pin(async move { heartbeat.watch(&env, run).await })
}

/// Limits how long an attempt may run.
fn within<'f>(
    env: &Env,
    limit: Option<Duration>,
    run: Boxed<'f, Result<Vec<u8>, Failure>>,
) -> Boxed<'f, Result<Vec<u8>, Failure>> {
    let Some(limit) = limit else { return run };
    let env = env.clone();
    Box::pin(async move {
        match env.timeout(limit, run).await {
            Ok(result) => result,
            Err(_) => {
                Err(Failure::retry(format!("the step ran longer than {limit:?}")).class(class::TIMEOUT))
            }
        }
    })
}

/// Decodes the result of a call. If that fails, the workflow has diverged.
pub(super) fn decode_result<T: DeserializeOwned>(
    core: &Core,
    name: &str,
    line: &'static Location<'static>,
    ending: CallEnd,
) -> Poll<Result<T, Failure>> {
    let payload = match ending {
        CallEnd::Done(payload) => payload,
        CallEnd::Failed { failure, .. } => return Poll::Ready(Err(failure)),
    };
    let decoded = core.services.codecs.decode(&payload).map_err(|error| error.to_string());
    let decoded = decoded.and_then(|plain| {
        serde_json::from_slice(&plain).map_err(|error| {
            let text = String::from_utf8_lossy(&plain);
            let short: String = text.chars().take(200).collect();
            format!("{error}\n  recorded:  {short}")
        })
    });
    match decoded {
        Ok(result) => Poll::Ready(Ok(result)),
        Err(error) => {
            core.fault(diverged(&format!(
                "the recorded result of {name:?} does not decode as what the code expects: {error}\n  attempted: {} at {}\n\
                 Let the type read what was written before (`#[serde(default)]`, an alias), or give the call another name.",
                std::any::type_name::<T>(),
                source_location(line),
            )));
            Poll::Pending
        }
    }
}

/// Encodes a result as JSON.
pub(super) fn encode_result<T: Serialize>(result: &T) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(result).map_err(|error| {
        Failure::stop(format!("the result cannot be written as JSON ({error})")).class(class::REFUSED)
    })
}

/// Completes a call unless its condition returned `false`.
pub(super) fn complete_if_true(step: &RawStep<'_>, id: usize, result: Vec<u8>) {
    if result == b"false" {
        step.check_again_later(id)
    } else {
        step.call.core.complete_call(id, result, false)
    }
}
