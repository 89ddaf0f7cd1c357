//! The state that a running workflow's code and its driver share.
//!
//! Every durable call registers here when it is first polled, or, if it has no body, when it was made. From then on its future only checks whether the driver has
//! delivered its end. The driver delivers one end at a time, in the order of the journal, on the first run as on every replay:
//! so whatever the code makes of several calls at once (`join!`, `select!`), it makes the same of them each time.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use windlass_model::{
    ClaimedJob, Failure, Payload, Reason, Time,
    failure::class,
    journal::{CallEvent, CallKind},
    retry::RetryDecision,
};
use windlass_runtime::Attempt;

use super::{
    call::{AfterCommit, Call, CallSpec, CallStatus, CallWait, Phase},
    call_retry::{CallRetry, KindBackoff},
    context::Value,
    fault::nested,
    journal::{CallEnd, Ident, Journal, RetryState},
    made::Made,
    state::{NOW, RESUMED, RunState},
};
use crate::{codec::Codecs, machine::Services};

thread_local! {
    /// The workflow whose code this thread is polling or waking.
    static CURRENT_WORKFLOW: Cell<usize> = const { Cell::new(0) };
}

/// The state that a running workflow's code and its driver share.
pub(crate) struct Core {
    pub(super) job: Arc<ClaimedJob>,
    /// `None` if the workflow is only replayed, to check its code.
    pub(super) attempt: Option<Arc<Attempt>>,
    pub(super) services: Arc<Services>,
    pub(super) one_commit: bool,
    /// How long calls of the kind wait before the next attempt, unless they say so themselves.
    pub(super) backoff: KindBackoff,
    state: Mutex<RunState>,
    /// The calls that were made since the code was last polled.
    pub(super) made: Mutex<Vec<Made>>,
    /// Wakes the driver.
    driver: AtomicWaker,
    /// Whether something other than a durable call woke the code.
    foreign_wake: AtomicBool,
    /// Whether the code asked to be polled again while it was polled.
    repoll: AtomicBool,
}

impl Core {
    pub(super) fn new(
        job: Arc<ClaimedJob>,
        attempt: Option<Arc<Attempt>>,
        services: Arc<Services>,
        (one_commit, backoff): (bool, KindBackoff),
        journal: Journal,
    ) -> Core {
        let state = RunState::new(journal, job.inbox.clone());
        let core = Core {
            job,
            attempt,
            services,
            one_commit,
            backoff,
            state: Mutex::new(state),
            made: Mutex::default(),
            driver: AtomicWaker::new(),
            foreign_wake: AtomicBool::new(false),
            repoll: AtomicBool::new(false),
        };
        core.resume();
        core
    }

    /// Records that the job continues, if it had ended.
    fn resume(&self) {
        let now = self.now();
        let state = &mut *self.lock();
        if std::mem::take(&mut state.journal.needs_resume) {
            let payload = Payload::json(b"null".to_vec());
            let entry = state.entry_of(
                &(RESUMED.into(), None),
                CallKind::Lifecycle,
                CallEvent::Done,
                None,
                payload,
                now,
            );
            state.pending.push(entry);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether the code has caught that the job is cancelled, and continues.
    pub(super) fn has_caught_cancel(&self) -> bool {
        self.lock().caught_at.is_some()
    }

    /// The store's clock.
    pub(super) fn now(&self) -> Time {
        match &self.attempt {
            Some(attempt) => attempt.writer.now(),
            None => self.services.env.now(),
        }
    }

    pub(super) fn random(&self) -> f64 {
        self.attempt.as_ref().map_or(0.5, |attempt| attempt.writer.random())
    }

    /// Registers the driver's task to be woken by bodies and faults.
    pub(super) fn register_driver(&self, cx: &Context<'_>) {
        self.driver.register(cx.waker());
    }

    /// Runs something as the code of this workflow, or on its behalf: wakes by it are not foreign.
    pub(super) fn run_as_code<T>(self: &Arc<Self>, run: impl FnOnce() -> T) -> T {
        struct Restore(usize);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT_WORKFLOW.set(self.0);
            }
        }
        let _restore = Restore(CURRENT_WORKFLOW.replace(Arc::as_ptr(self) as usize));
        run()
    }

    /// Whether something other than a durable call woke the code.
    pub(super) fn has_foreign_wake(&self) -> bool {
        self.foreign_wake.load(Ordering::Acquire)
    }

    /// Whether the code asked to be polled again, since the last call.
    pub(super) fn take_repoll(&self) -> bool {
        self.repoll.swap(false, Ordering::AcqRel)
    }

    /// Registers a call whose future is polled for the first time. `None` if the call is refused: then the fault is noted, and
    /// the future never completes.
    pub(super) fn register(&self, call: CallSpec<'_>) -> Option<usize> {
        let mut state = self.lock();
        let CallSpec { call_kind, name, key, line, start, detached } = call;
        match state.check_call(call_kind, name, key, line) {
            Ok(ident) => {
                let id = state.add(ident, call_kind, line, start);
                if let Some(call) = state.calls.get_mut(id) {
                    call.detached = detached;
                }
                Some(id)
            }
            Err(fault) => {
                state.code.fault.get_or_insert(fault);
                None
            }
        }
    }

    /// Returns what a call's future does next.
    pub(super) fn poll_call(&self, id: usize, cx: &Context<'_>) -> CallStatus {
        let mut state = self.lock();
        let Some(call) = state.calls.get_mut(id) else { return CallStatus::Pending };
        match &call.phase {
            Phase::Ready(..) => {
                let phase = std::mem::replace(&mut call.phase, Phase::Finished);
                state.calls.remove(id);
                match phase {
                    Phase::Ready(seq, ending) => CallStatus::Ready(seq, ending),
                    _ => CallStatus::Pending,
                }
            }
            Phase::CanStart => {
                call.phase = Phase::Running;
                CallStatus::Go
            }
            Phase::Running => {
                call.waker = Some(cx.waker().clone());
                CallStatus::Running
            }
            _ => {
                call.waker = Some(cx.waker().clone());
                CallStatus::Pending
            }
        }
    }

    /// Removes a call whose future was dropped: nobody awaits its end.
    pub(super) fn abandon_call(&self, id: usize) {
        let mut state = self.lock();
        if let Some(Call { phase: Phase::Recorded(seq), .. }) = state.calls.get(id) {
            let seq = *seq;
            state.delivered.next.remove(&seq);
            let ident = state.calls.get(id).map(|call| call.ident.clone());
            ident.iter().for_each(|ident| state.journal.mark_reached(ident));
        }
        state.calls.remove(id);
        state.calls.finished.retain(|finished| finished.call != id);
        if state.calls.transacting == Some(id) {
            state.calls.transacting = None;
        }
    }

    /// Returns the sequence number and result of a call that succeeded, whether or not its end was delivered.
    pub(super) fn success_of(&self, id: usize) -> Option<(i32, Payload)> {
        let state = self.lock();
        let call = state.calls.get(id)?;
        let (seq, ending) = match &call.phase {
            Phase::Ready(seq, ending) => (*seq, ending.clone()),
            _ => state.journal.calls.of(&call.ident)?.end.clone()?,
        };
        match ending {
            CallEnd::Done(payload) => Some((seq, payload)),
            CallEnd::Failed { .. } => None,
        }
    }

    /// Polls the body of a step: durable calls in there are a fault, and wakes by it are not foreign.
    pub(super) fn poll_body<T>(
        self: &Arc<Self>,
        id: usize,
        name: &str,
        limit: Option<Duration>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let waker = Waker::from(Arc::new(BodyWaker { core: Arc::clone(self), call: id }));
        self.run_as_body(name, limit, || poll(&mut Context::from_waker(&waker)))
    }

    /// Runs something as the body of a step.
    pub(super) fn run_as_body<T>(&self, name: &str, limit: Option<Duration>, run: impl FnOnce() -> T) -> T {
        struct Outside<'a>(&'a Core, usize);
        impl Drop for Outside<'_> {
            fn drop(&mut self) {
                CURRENT_WORKFLOW.set(self.1);
                self.0.lock().code.polled_step = None;
                self.0.set_poll_deadline(Some(super::driver::MAX_POLL));
            }
        }
        self.lock().code.polled_step = Some(name.to_owned());
        // A body that blocks its thread for longer than it may run ends the attempt, as a task does.
        self.set_poll_deadline(limit.map(|limit| limit.saturating_add(super::driver::MAX_POLL)));
        let _outside = Outside(self, CURRENT_WORKFLOW.replace(0));
        run()
    }

    pub(super) fn set_poll_deadline(&self, limit: Option<Duration>) {
        if let Some(attempt) = &self.attempt {
            attempt.writer.set_poll_deadline(limit);
        }
    }

    /// Wakes the future of a call.
    pub(super) fn wake_call(self: &Arc<Self>, id: usize) {
        let waker = self.lock().calls.get_mut(id).and_then(|call| call.waker.take());
        if let Some(waker) = waker {
            self.run_as_code(|| waker.wake());
        }
    }

    /// Records that the body of a call succeeded, with this result as JSON.
    pub(super) fn complete_call(&self, id: usize, result: Vec<u8>, undo: bool) {
        let payload = match self.encode(result).and_then(|payload| self.check_size(payload)) {
            Ok(payload) => payload,
            Err(failure) => return self.fail_call(id, failure),
        };
        let sets = self
            .lock()
            .calls
            .get_mut(id)
            .map(|call| std::mem::take(&mut call.context_sets))
            .unwrap_or_default();
        let encode = |(name, value): (String, Value)| {
            let payload = value.payload(self)?;
            Ok((name, value, payload))
        };
        let sets = match sets.into_iter().map(encode).collect::<Result<Vec<_>, Failure>>() {
            Ok(sets) => sets,
            Err(failure) => return self.fail_call(id, failure),
        };
        let now = self.now();
        let mut state = self.lock();
        state.pending.has_undo |= undo;
        let event = if undo { CallEvent::DoneWithUndo } else { CallEvent::Done };
        let seq = state.finish(id, event, payload, now);
        if !sets.is_empty() {
            state.write_sets(id, seq, sets, now);
        }
    }

    /// Records that the body of a call failed: it is retried, or the call has failed.
    pub(super) fn fail_or_retry_call(&self, id: usize, failure: Failure, retry: &CallRetry) {
        let now = self.now();
        let random = self.random();
        let retry_counts = {
            let state = self.lock();
            let Some(call) = state.calls.get(id) else { return };
            let recorded = state.journal.calls.of(&call.ident);
            recorded.and_then(|recorded| recorded.tried.as_ref()).map(|tried| tried.retry_counts.clone())
        };
        // Not under the lock: the backoff is code of the author.
        let decision = retry.decide(&failure, &retry_counts.unwrap_or_default(), random);
        let mut state = self.lock();
        let Some(call) = state.calls.get(id) else { return };
        let ident = call.ident.clone();
        let recorded = state.journal.calls.of(&ident);
        match decision {
            RetryDecision::Retry { after, retry_counts } => {
                let attempts =
                    recorded.and_then(|recorded| recorded.tried.as_ref()).map_or(0, |tried| tried.attempts)
                        + 1;
                let next_at = now + after;
                let tried = RetryState { attempts, retry_counts, next_at, failure };
                let payload = Payload::json(serde_json::to_vec(&tried).unwrap_or_default());
                let entry = state.entry(id, CallEvent::Tried, payload, now);
                state.pending.push(entry);
                state.journal.recorded_mut(&ident).tried = Some(tried);
                let wait = CallWait { due_at: Some(next_at), runs_body: true, ..CallWait::default() };
                state.calls.mark_finished(id, AfterCommit::Wait(wait));
            }
            decision => {
                let reason = match decision {
                    RetryDecision::Fail(reason) => reason,
                    _ => Reason::Stopped,
                };
                state.fail(id, failure, reason, now);
            }
        }
    }

    /// Records that a call failed that is not retried.
    pub(super) fn fail_call(&self, id: usize, failure: Failure) {
        self.fail_or_retry_call(id, failure, &CallRetry::never());
    }

    /// Records that a condition did not hold: the body runs again when the wait is over.
    pub(super) fn wait_again(&self, id: usize, wait: CallWait) {
        let mut state = self.lock();
        state.consume_signal(id);
        state.calls.mark_finished(id, AfterCommit::Wait(wait));
    }

    /// Encodes a result.
    pub(super) fn encode(&self, plain: Vec<u8>) -> Result<Payload, Failure> {
        encode_payload(&self.services.codecs, plain)
    }

    /// Refuses a result that is too large.
    pub(super) fn check_size(&self, payload: Payload) -> Result<Payload, Failure> {
        let (size, limit) = (payload.bytes.len(), self.services.store.limits().payload);
        if size <= limit {
            return Ok(payload);
        }
        let text = format!(
            "the result is {size} bytes long, more than the {limit} allowed; keep large data elsewhere and return a reference \
             to it, or {}",
            windlass_model::Limits::raise_hint("payload")
        );
        Err(Failure::stop(text).class(class::REFUSED))
    }

    /// Notes a fault of the code. The code cannot catch it: it is not polled again.
    pub(super) fn fault(&self, failure: Failure) {
        self.lock().code.fault.get_or_insert(failure);
        self.driver.wake();
    }

    /// Sets a value of the context, on behalf of the code or of the body of a step.
    pub(super) fn set(&self, call: Option<(usize, &Ident)>, name: &str, value: Value) {
        let mut state = self.lock();
        match call {
            None => state.set(name, value),
            // A body that outlives its attempt sets nothing.
            Some((id, ident)) => {
                if let Some(call) = state.calls.get_mut(id)
                    && call.ident == *ident
                    && matches!(call.phase, Phase::Running)
                {
                    call.context_sets.push((name.to_owned(), value));
                }
            }
        }
    }

    /// Returns a number that is the same on every replay and different for every call.
    pub(super) fn draw_random(&self) -> u64 {
        let mut state = self.lock();
        state.delivered.draws += 1;
        let run = self.job.stage.as_deref().unwrap_or_default();
        let seed = format!("{}/{run}/{}/{}", self.job.id, state.delivered.last, state.delivered.draws);
        let digest = windlass_model::job::digest(NOW, &Payload::json(seed.into_bytes()));
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        u64::from_le_bytes(bytes)
    }

    /// Whether a durable call may be made here. If not, the fault is noted.
    pub(super) fn may_call(&self, what: &str) -> bool {
        let mut state = self.lock();
        let Some(inside) = state.code.polled_step.clone() else { return true };
        let fault = nested(what, &inside);
        state.code.fault.get_or_insert(fault);
        false
    }
}

/// Encodes a payload of a journal entry.
pub(super) fn encode_payload(codecs: &Codecs, plain: Vec<u8>) -> Result<Payload, Failure> {
    codecs.encode(plain).map_err(|error| {
        Failure::stop(format!("what is to be kept cannot be written: {error}")).class(class::REFUSED)
    })
}

/// Wakes the driver for the body of a step.
struct BodyWaker {
    core: Arc<Core>,
    call: usize,
}

impl Wake for BodyWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A combinator (`FuturesUnordered`) polls only futures that were woken.
        self.core.wake_call(self.call);
        self.core.driver.wake();
    }
}

/// The waker that the workflow's code is polled with: only durable calls may use it.
pub(super) struct RootWaker(pub(super) Arc<Core>);

impl Wake for RootWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if CURRENT_WORKFLOW.get() == Arc::as_ptr(&self.0) as usize {
            self.0.repoll.store(true, Ordering::Release);
        } else {
            self.0.foreign_wake.store(true, Ordering::Release);
            self.0.driver.wake();
        }
    }
}
