//! Delivers signals from this process, in batches.
//!
//! Signals that come while all transactions are in flight share the next one. A caller that finds one free delivers its
//! own signals itself, which saves a task switch. A delivery is repeated blindly until the store answers or the caller has
//! waited too long: the dedup ids are the same.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::oneshot;
use windlass_env::Env;
use windlass_model::NewSignal;
use windlass_store::{Error, SignalOutcome, Store};

use crate::{Submitter, backoff::Backoff, sync::lock, telemetry::StoreCall};

/// The most signals in one transaction, unless a single call has more.
const BATCH_SIGNALS: usize = 1_000;

/// Delivers signals for all callers of this process.
pub struct Signaller {
    env: Env,
    store: Arc<dyn Store>,
    /// Knows this process's worker.
    submitter: Arc<Submitter>,
    state: Mutex<State>,
    /// How many transactions may be in flight.
    max_in_flight: usize,
    /// How long a caller waits for a store that does not answer.
    max_wait: Duration,
    runtime: tokio::runtime::Handle,
}

#[derive(Default)]
struct State {
    waiting: Vec<Call>,
    in_flight: usize,
}

type Reply = Result<Vec<SignalOutcome>, Error>;

/// One call of [`Signaller::signal`].
struct Call {
    signals: Vec<NewSignal>,
    reply: oneshot::Sender<Reply>,
}

/// One of the transactions that may be in flight. However it ends, a task then delivers the calls that wait.
struct InFlight(Arc<Signaller>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let signaller = &self.0;
        let has_more = {
            let mut state = lock(&signaller.state);
            let has_more = !state.waiting.is_empty();
            state.in_flight -= usize::from(!has_more);
            has_more
        };
        if has_more {
            // On the engine's runtime: the caller's may end before the answer comes.
            signaller.runtime.spawn(Arc::clone(signaller).tick());
        }
    }
}

impl Signaller {
    /// A signaller on the current runtime, with up to `max_in_flight` transactions in flight. A caller gets an error if the
    /// store has not answered after `max_wait`.
    pub fn new(
        env: Env,
        store: Arc<dyn Store>,
        submitter: Arc<Submitter>,
        max_in_flight: usize,
        max_wait: Duration,
    ) -> Arc<Signaller> {
        let runtime = env.runtime();
        let max_in_flight = max_in_flight.max(1);
        let state = Mutex::default();
        Arc::new(Signaller { env, store, submitter, state, max_in_flight, max_wait, runtime })
    }

    /// Delivers signals, and returns the outcome of each. After [`Error::Unavailable`] call again with the same signals.
    pub async fn signal(self: &Arc<Self>, signals: Vec<NewSignal>) -> Reply {
        signals.iter().try_for_each(|signal| self.store.limits().check_signal(signal))?;
        let in_flight = {
            let mut state = lock(&self.state);
            (state.in_flight < self.max_in_flight)
                .then(|| state.in_flight += 1)
                .map(|()| InFlight(Arc::clone(self)))
        };
        match in_flight {
            Some(_in_flight) => self.deliver(&signals).await,
            None => {
                let (reply, answer) = oneshot::channel();
                lock(&self.state).waiting.push(Call { signals, reply });
                // The last transaction may have ended before this call was added.
                self.start_if_idle();
                answer.await.unwrap_or_else(|_| Err(Error::Unavailable("the engine has stopped".into())))
            }
        }
    }

    /// Starts a delivery if calls wait and none is in flight.
    fn start_if_idle(self: &Arc<Self>) {
        let is_idle = {
            let mut state = lock(&self.state);
            let is_idle = state.in_flight == 0 && !state.waiting.is_empty();
            state.in_flight += usize::from(is_idle);
            is_idle
        };
        if is_idle {
            self.runtime.spawn(Arc::clone(self).tick());
        }
    }

    /// Delivers one batch of the calls that wait; the end of this transaction starts the next.
    async fn tick(self: Arc<Self>) {
        let _in_flight = InFlight(Arc::clone(&self));
        let batch: Vec<Call> = {
            let mut state = lock(&self.state);
            let mut size = 0;
            let fits = |call: &Call| {
                size += call.signals.len();
                size <= BATCH_SIGNALS
            };
            let count = state.waiting.iter().map(fits).take_while(|fits| *fits).count().max(1);
            let count = count.min(state.waiting.len());
            state.waiting.drain(..count).collect()
        };
        if batch.is_empty() {
            return;
        }
        let mut batches = vec![batch];
        while let Some(mut batch) = batches.pop() {
            let signals: Vec<NewSignal> = batch.iter().flat_map(|call| &call.signals).cloned().collect();
            match self.deliver(&signals).await {
                Ok(outcomes) => {
                    let mut outcomes = outcomes.into_iter();
                    for Call { signals, reply } in batch {
                        let _ = reply.send(Ok(outcomes.by_ref().take(signals.len()).collect()));
                    }
                }
                // Split until only the caller of the invalid signal gets the error.
                Err(error) if !error.is_retryable() && batch.len() > 1 => {
                    let second_half = batch.split_off(batch.len() / 2);
                    batches.extend([second_half, batch]);
                }
                Err(error) => batch.into_iter().for_each(|call| _ = call.reply.send(Err(error.again()))),
            }
        }
    }

    /// Delivers until the store answers or `max_wait` is over.
    async fn deliver(&self, signals: &[NewSignal]) -> Reply {
        let since = self.env.instant();
        let mut backoff = Backoff::new(&self.env, "delivering signals");
        let mut is_repeat = false;
        loop {
            match self.store.signal(None, signals).await {
                Ok(mut outcomes) => {
                    if is_repeat {
                        // A signal that exists was delivered by an earlier send of this call, whose answer was lost, or by
                        // someone else: either way it was delivered.
                        let repeated =
                            outcomes.iter_mut().filter(|outcome| **outcome == SignalOutcome::Duplicate);
                        repeated.for_each(|outcome| *outcome = SignalOutcome::Delivered { woke: true });
                    }
                    if outcomes.contains(&SignalOutcome::Delivered { woke: true }) {
                        self.submitter.wake_pools();
                    }
                    return Ok(outcomes);
                }
                Err(error) if !error.is_retryable() || self.env.since(since) > self.max_wait => {
                    return Err(error);
                }
                Err(error) => {
                    self.submitter.count_error(StoreCall::Signal);
                    is_repeat = true;
                    backoff.wait(&error).await;
                }
            }
        }
    }
}
