//! Steps: calls whose body runs once it is needed and whose result is recorded.

use std::{
    any::Any,
    collections::BTreeMap,
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
use windlass_model::{Failure, JobId, Payload, Retry, Time, failure::class, journal::Op};
use windlass_runtime::Policy;

use super::{
    Boxed,
    core::Core,
    journal::{CallEnd, Ident},
    state::{AwaitedSignal, CallSpec, CallStatus, CallWait, Start, Undo, diverged, source_location},
    step_id::step_id,
    undo::UndoCx,
};
use crate::{
    branch::{Merged, Results},
    codec::Codecs,
    store_retry::retry_unavailable,
};

/// What a running step knows of itself. There is nothing durable to be called here: a step is run again as a whole.
#[derive(Clone)]
pub struct TryCx {
    core: Arc<Core>,
    call: usize,
    ident: Ident,
    tries: u32,
    given: Option<Payload>,
    id: String,
}

impl TryCx {
    /// The job.
    pub fn id(&self) -> JobId {
        self.core.job.id
    }

    /// The caller's name for the job.
    pub fn key(&self) -> Option<&str> {
        self.core.job.key.as_deref()
    }

    /// Which try at this step it is, from 1. Tries that a death of the worker cut off do not count.
    pub fn attempt(&self) -> u32 {
        self.tries + 1
    }

    /// The name of this step, the same for all tries and different from all other steps of all jobs: an idempotency key for
    /// whatever it does to the outside world once. A step that is run again after it was undone has another one: what was
    /// undone is to be done once more.
    pub fn step_id(&self) -> &str {
        &self.id
    }

    /// A number that is larger in every later claim of this job. Systems that refuse writes with an older number than they
    /// have seen are safe from attempts that were taken for dead and were not.
    pub fn fence(&self) -> i32 {
        self.core.job.epoch.0
    }

    /// The trace that this attempt is part of, as a W3C `traceparent` to be sent along with calls to other services.
    pub fn traceparent(&self) -> Option<String> {
        self.core.attempt.as_ref()?.traceparent()
    }

    /// Whether the step should end soon: someone cancelled the job, or the worker is stopping.
    pub fn is_cancelled(&self) -> bool {
        self.core.attempt.as_ref().is_some_and(|attempt| attempt.is_cancelled())
    }

    /// Returns when [`TryCx::is_cancelled`] becomes true.
    pub async fn cancelled(&self) {
        match &self.core.attempt {
            Some(attempt) => attempt.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// The context of another workflow, e.g. of a child ([`crate::Flow::child_id`]): its values by name.
    pub async fn context_of(&self, job: JobId) -> Result<BTreeMap<String, serde_json::Value>, Failure> {
        let bound = &self.core.bound;
        let kept = retry_unavailable!(bound.store.inspect().context(job))?;
        let value = |(name, value): (String, Payload)| {
            let plain = bound.codecs.decode(&value).map_err(Failure::stop)?;
            Ok((name, serde_json::from_slice(&plain).map_err(Failure::stop)?))
        };
        kept.into_iter().map(value).collect()
    }

    /// How the children of merged branches ended, one after the other, read from the store a page at a time.
    pub fn results<T: DeserializeOwned>(&self, merged: &Merged) -> Results<T> {
        merged.results(&self.core.bound)
    }

    /// Sets a value of the workflow's context, in the commit that records this step and if it ends well.
    pub fn set<T: Serialize>(&self, name: &str, value: T) -> Result<(), Failure> {
        let value = super::context::Value::new(&self.core, name, &value)?;
        self.core.set(Some((self.call, &self.ident)), name, value);
        Ok(())
    }

    /// The payload of the signal that has the condition looked at again; `None` on the first look, or if the signal brought
    /// none.
    pub(super) fn signal_payload<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        let Some(payload) = &self.given else { return Ok(None) };
        let plain = self.core.bound.codecs.decode(payload).map_err(Failure::stop)?;
        serde_json::from_slice(&plain).map_err(|error| {
            Failure::stop(format!("the payload of the signal does not decode ({error})")).class("signal")
        })
    }
}

/// Makes the future of one try.
pub(super) type Body<'f> = Box<dyn FnMut(TryCx) -> Boxed<'f, Result<Vec<u8>, Failure>> + Send + 'f>;

/// What a body that ended well means.
pub(super) type OnBodyDone = fn(&RawStep<'_>, usize, Vec<u8>);

/// A call with a body, whatever its type.
pub(super) struct RawStep<'f> {
    pub(super) core: Arc<Core>,
    pub(super) op: Op,
    pub(super) name: String,
    pub(super) key: Option<String>,
    pub(super) line: &'static Location<'static>,
    pub(super) retry: Retry,
    pub(super) timeout: Option<Duration>,
    /// How long it may take until it ends well, over all tries.
    pub(super) within: Option<Duration>,
    /// How long after a look at a condition the next one follows.
    pub(super) every: Option<Duration>,
    /// The signal that has a condition looked at.
    pub(super) signal: Option<AwaitedSignal>,
    pub(super) undo: Option<UndoBody>,
    pub(super) on_done: OnBodyDone,
    pub(super) body: Body<'f>,
    running: Option<Boxed<'f, Result<Vec<u8>, Failure>>>,
    call: Option<usize>,
    registered: bool,
}

impl<'f> RawStep<'f> {
    pub(super) fn new(
        core: &Arc<Core>,
        op: Op,
        name: &str,
        line: &'static Location<'static>,
        body: Body<'f>,
    ) -> RawStep<'f> {
        let Policy { retry, timeout } = Policy::default();
        RawStep {
            core: Arc::clone(core),
            op,
            name: name.to_owned(),
            key: None,
            line,
            retry,
            timeout,
            within: None,
            every: None,
            signal: None,
            undo: None,
            on_done: |step, id, result| step.core.complete_call(id, result, step.undo.is_some()),
            body,
            running: None,
            call: None,
            registered: false,
        }
    }

    fn ident(&self) -> Ident {
        (self.name.as_str().into(), self.key.as_deref().map(Into::into))
    }

    fn step_id(&self, ident: &Ident) -> String {
        let undone = self.core.lock().journal.undo.count(ident);
        let job = &self.core.job;
        step_id(job.id, undone, job.stage.as_deref(), &self.name, self.key.as_deref())
    }

    fn start(&mut self, id: usize) {
        let (tries, given) = {
            let state = self.core.lock();
            let call = state.calls[id].as_ref();
            let tried = call.and_then(|call| state.journal.calls.of(&call.ident)?.tried.as_ref());
            let given = call.and_then(|call| call.signal.as_ref()).map(|signal| signal.payload.clone());
            (tried.map_or(0, |tried| tried.tries), given)
        };
        let ident = self.ident();
        let step_id = self.step_id(&ident);
        let cx = TryCx { core: Arc::clone(&self.core), call: id, ident, tries, given, id: step_id };
        // What is in there before its first `await` is as much the step as what comes after.
        let (core, body) = (Arc::clone(&self.core), &mut self.body);
        let made = core.run_as_body(&self.name, self.timeout, || catch_unwind(AssertUnwindSafe(|| body(cx))));
        self.running = Some(match made {
            Ok(run) => within(&self.core.bound.env, self.timeout, run),
            Err(panic) => {
                let failure = Failure::retry(panic_text(&*panic)).class(class::PANIC);
                Box::pin(std::future::ready(Err(failure)))
            }
        });
    }

    /// Polls the body. What it returns, a panic and a timeout become what follows from them.
    fn poll_body(&mut self, id: usize) -> Poll<()> {
        let running = self.running.as_mut().expect("started");
        let core = Arc::clone(&self.core);
        let polled = core.poll_body(id, &self.name, self.timeout, |cx| {
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
            Err(panic) => Failure::retry(panic_text(&*panic)).class(class::PANIC),
        };
        self.core.fail_or_retry_call(id, failure, &self.retry);
        Poll::Ready(())
    }

    /// What it did is undone if the workflow does not end well.
    fn register_undo(&mut self, seq: i32, payload: Payload) {
        let Some(mut undo) = self.undo.take() else { return };
        let codecs = Arc::clone(&self.core.bound.codecs);
        let run = Box::new(move |cx| undo(cx, &payload, &codecs));
        let ident = self.ident();
        let step_id = self.step_id(&ident);
        self.core.lock().undos.push(Undo { seq, ident, step_id, retry: self.retry.clone(), run });
    }

    /// A condition did not hold: it is looked at again later.
    pub(super) fn check_again_later(&self, id: usize) {
        let now = self.core.now();
        let deadline = self.deadline(id);
        if deadline.is_some_and(|deadline| deadline <= now) {
            let text = format!("the condition {:?} did not hold in time", self.name);
            let failure = Failure::stop(text).class(class::TIMEOUT);
            return self.core.fail_or_retry_call(id, failure, &Retry::never());
        }
        let next = self.every.map(|every| now.plus(every));
        let due = [next, deadline].into_iter().flatten().min();
        self.core.wait_again(
            id,
            CallWait { due_at: due, signal: self.signal.clone(), runs_body: true, ..CallWait::default() },
        );
    }

    pub(super) fn deadline(&self, id: usize) -> Option<Time> {
        let state = self.core.lock();
        let known = state.journal.calls.of(&state.calls[id].as_ref()?.ident)?;
        serde_json::from_slice(&known.begun.as_ref()?.1.bytes).ok()
    }
}

impl Future for RawStep<'_> {
    /// Where its end stands in the journal, and how it ended.
    type Output = (i32, CallEnd);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(i32, CallEnd)> {
        let this = self.get_mut();
        if !this.registered {
            this.registered = true;
            this.call = this.core.register(CallSpec {
                op: this.op,
                name: &this.name,
                key: this.key.as_deref(),
                line: this.line,
                start: Start::Body { within: this.within },
            });
        }
        let Some(id) = this.call else { return Poll::Pending };
        loop {
            match this.core.poll_call(id, cx) {
                CallStatus::Ready(seq, ending) => {
                    this.call = None;
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
        // The body goes first: what it holds may look at the call.
        self.running = None;
        if let Some(id) = self.call.take() {
            // What it did is done, although nobody waits for its end.
            if self.undo.is_some()
                && let Some((seq, payload)) = self.core.success_of(id)
            {
                self.register_undo(seq, payload);
            }
            self.core.abandon_call(id);
        }
    }
}

/// A step that is being described; `.await` runs it, or returns what it returned before.
///
/// It runs at least once and its result is recorded exactly once. What it returns is kept as JSON: after a crash, and
/// however often the workflow is replayed, `.await` returns the same value without running it again. An error is tried
/// again as the retry policy says; when it says no more, the error is the result, and stays so.
#[must_use = "a step does nothing until it is awaited"]
pub struct Step<'f, T, E> {
    raw: RawStep<'f>,
    result: PhantomData<fn() -> Result<T, E>>,
}

impl<'f, T, E> Step<'f, T, E>
where
    T: Serialize + DeserializeOwned + Send,
    E: Into<Failure> + From<Failure>,
{
    pub(super) fn new<F, Fut>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        mut run: F,
    ) -> Step<'f, T, E>
    where
        F: FnMut(TryCx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, E>> + Send + 'f,
    {
        let body: Body<'f> = Box::new(move |cx| {
            let run = run(cx);
            Box::pin(async move { encode_result(&run.await.map_err(Into::into)?) })
        });
        Step { raw: RawStep::new(core, Op::Step, name, line, body), result: PhantomData }
    }

    /// Under another name than it was given.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.raw.name = name.into();
        self
    }

    /// What tells it from other steps of its name, e.g. in a loop.
    pub fn key(mut self, key: impl ToString) -> Self {
        self.raw.key = Some(key.to_string());
        self
    }

    /// When to try again: 20 tries with growing waits, unless you say otherwise.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.raw.retry = retry;
        self
    }

    /// How long one try may run: an hour, unless you say otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.raw.timeout = Some(timeout);
        self
    }

    /// One try may run for as long as it likes.
    pub fn no_timeout(mut self) -> Self {
        self.raw.timeout = None;
        self
    }

    /// What undoes it, given what it returned. It runs if the workflow fails, is cancelled or expires after the step has
    /// ended well: the undos of all such steps, the last one first, each as a step of its own with this step's retry policy.
    pub fn undo<U, Fut, X>(self, mut undo: U) -> Self
    where
        U: FnMut(T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), X>> + Send + 'static,
        X: Into<Failure>,
        T: 'static,
    {
        self.undo_with(move |_, result| undo(result))
    }

    /// The same for an undo that wants to know of its tries, or the id under which the step ran; see [`UndoCx`].
    pub fn undo_with<U, Fut, X>(mut self, mut undo: U) -> Self
    where
        U: FnMut(UndoCx, T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), X>> + Send + 'static,
        X: Into<Failure>,
        T: 'static,
    {
        self.raw.undo = Some(Box::new(move |cx, payload, codecs| {
            let decoded = codecs.decode(payload).map_err(|error| error.to_string());
            let decoded =
                decoded.and_then(|plain| serde_json::from_slice(&plain).map_err(|error| error.to_string()));
            match decoded {
                Ok(result) => {
                    let run = undo(cx, result);
                    Box::pin(async move { run.await.map_err(Into::into) })
                }
                Err(error) => {
                    let text = format!("what the step returned does not decode ({error})");
                    Box::pin(std::future::ready(Err(Failure::stop(text).class(class::UNDECODABLE))))
                }
            }
        }));
        self
    }
}

impl<T, E> Unpin for Step<'_, T, E> {}

impl<T, E> Future for Step<'_, T, E>
where
    T: DeserializeOwned + Send + 'static,
    E: From<Failure>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let this = self.get_mut();
        let Poll::Ready((_, ending)) = Pin::new(&mut this.raw).poll(cx) else { return Poll::Pending };
        decode_result(&this.raw.core, &this.raw.name, this.raw.line, ending)
    }
}

/// A try within its time limit.
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

/// Undoes a step, given what it returned as it is kept.
pub(super) type UndoBody =
    Box<dyn FnMut(UndoCx, &Payload, &Codecs) -> Boxed<'static, Result<(), Failure>> + Send>;

/// What a call returned, as its type; if it does not decode, the workflow has diverged.
pub(super) fn decode_result<T: DeserializeOwned, E: From<Failure>>(
    core: &Core,
    name: &str,
    line: &'static Location<'static>,
    ending: CallEnd,
) -> Poll<Result<T, E>> {
    let payload = match ending {
        CallEnd::Done(payload) => payload,
        CallEnd::Failed { failure, .. } => return Poll::Ready(Err(failure.into())),
    };
    let decoded = core.bound.codecs.decode(&payload).map_err(|error| error.to_string());
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

/// A result as JSON.
pub(super) fn encode_result<T: Serialize>(result: &T) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(result).map_err(|error| {
        Failure::stop(format!("the result cannot be written as JSON ({error})")).class(class::REFUSED)
    })
}

/// What a panic says.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// That a condition held.
pub(super) fn if_true(step: &RawStep<'_>, id: usize, result: Vec<u8>) {
    if result == b"false" { step.check_again_later(id) } else { step.core.complete_call(id, result, false) }
}
