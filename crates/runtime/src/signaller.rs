//! Delivering signals from this process: whatever comes while a delivery is under way goes together in the next.
//!
//! A caller who finds nothing under way delivers its own signals itself, which saves a wake-up. A delivery is repeated
//! blindly until the store answers, or the caller has waited long enough: the dedup ids are the same.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use windlass_model::NewSignal;
use windlass_store::{Error, SignalOutcome, Store};

use crate::{Submitter, retrying::Backoff};

/// The most signals in one transaction.
const CHUNK: usize = 1_000;

/// Delivers signals, for all callers of this process.
pub struct Signaller {
    store: Arc<dyn Store>,
    /// Knows this process's worker.
    submitter: Arc<Submitter>,
    state: Mutex<State>,
    /// How many transactions may be in flight.
    flights: usize,
    patience: Duration,
    runtime: tokio::runtime::Handle,
}

#[derive(Default)]
struct State {
    waiting: Vec<Item>,
    flying: usize,
}

type Answer = Result<Vec<SignalOutcome>, Error>;

struct Item {
    signals: Vec<NewSignal>,
    reply: oneshot::Sender<Answer>,
}

/// One of the transactions that may be in flight. However it ends, whatever came meanwhile is seen to.
struct Flight(Arc<Signaller>);

impl Drop for Flight {
    fn drop(&mut self) {
        let signaller = &self.0;
        let go_on = {
            let mut state = signaller.lock();
            let go_on = !state.waiting.is_empty();
            state.flying -= usize::from(!go_on);
            go_on
        };
        if go_on {
            // On the engine's runtime: the caller's may end before the answer comes.
            signaller.runtime.spawn(Arc::clone(signaller).fly());
        }
    }
}

impl Signaller {
    /// A signaller on the current runtime that keeps up to `flights` transactions in flight and tells callers after
    /// `patience` that the store is away.
    pub fn new(
        store: Arc<dyn Store>,
        submitter: Arc<Submitter>,
        flights: usize,
        patience: Duration,
    ) -> Arc<Signaller> {
        let runtime = tokio::runtime::Handle::current();
        let flights = flights.max(1);
        Arc::new(Signaller { store, submitter, state: Mutex::default(), flights, patience, runtime })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Delivers signals and says of each what became of it. After [`Error::Unavailable`] call again with the same ones.
    pub async fn signal(self: &Arc<Self>, signals: Vec<NewSignal>) -> Answer {
        signals.iter().try_for_each(|signal| self.store.limits().check_signal(signal))?;
        let flight = {
            let mut state = self.lock();
            (state.flying < self.flights).then(|| state.flying += 1).map(|()| Flight(Arc::clone(self)))
        };
        match flight {
            Some(_flight) => self.deliver(&signals).await,
            None => {
                let (reply, answer) = oneshot::channel();
                self.lock().waiting.push(Item { signals, reply });
                // Whoever was under way may have ended before this was put in line.
                self.help();
                answer.await.unwrap_or_else(|_| Err(Error::Unavailable("the engine has stopped".into())))
            }
        }
    }

    /// Sees to those who wait if nobody does.
    fn help(self: &Arc<Self>) {
        let idle = {
            let mut state = self.lock();
            let idle = state.flying == 0 && !state.waiting.is_empty();
            state.flying += usize::from(idle);
            idle
        };
        if idle {
            self.runtime.spawn(Arc::clone(self).fly());
        }
    }

    /// Delivers a group of those that wait; the next is seen to when this flight ends.
    async fn fly(self: Arc<Self>) {
        let _flight = Flight(Arc::clone(&self));
        let group: Vec<Item> = {
            let mut state = self.lock();
            let mut size = 0;
            let fits = |item: &Item| {
                size += item.signals.len();
                size <= CHUNK
            };
            let count = state.waiting.iter().map(fits).take_while(|fits| *fits).count().max(1);
            let count = count.min(state.waiting.len());
            state.waiting.drain(..count).collect()
        };
        if group.is_empty() {
            return;
        }
        let mut groups = vec![group];
        while let Some(mut group) = groups.pop() {
            let signals: Vec<NewSignal> = group.iter().flat_map(|item| &item.signals).cloned().collect();
            match self.deliver(&signals).await {
                Ok(answers) => {
                    let mut answers = answers.into_iter();
                    for Item { signals, reply } in group {
                        let _ = reply.send(Ok(answers.by_ref().take(signals.len()).collect()));
                    }
                }
                // Halves, and theirs, until what is wrong with a signal is said to the caller whose signal it is.
                Err(error) if !error.is_retryable() && group.len() > 1 => {
                    let rest = group.split_off(group.len() / 2);
                    groups.extend([rest, group]);
                }
                Err(error) => group.into_iter().for_each(|item| _ = item.reply.send(Err(error.again()))),
            }
        }
    }

    /// Delivers until the store answers or patience is over.
    async fn deliver(&self, signals: &[NewSignal]) -> Answer {
        let since = Instant::now();
        let mut backoff = Backoff::new("delivering signals");
        let mut again = false;
        loop {
            match self.store.signal(None, signals).await {
                Ok(mut answers) => {
                    if again {
                        // What is there now was delivered by an earlier send of this call, whose answer was lost; or by
                        // someone else before: either way it is there.
                        for answer in answers.iter_mut().filter(|answer| **answer == SignalOutcome::Duplicate)
                        {
                            *answer = SignalOutcome::Delivered { woke: true };
                        }
                    }
                    if answers.contains(&SignalOutcome::Delivered { woke: true }) {
                        self.submitter.wake();
                    }
                    return Ok(answers);
                }
                Err(error) if !error.is_retryable() || since.elapsed() > self.patience => return Err(error),
                Err(error) => {
                    self.submitter.failed_to_signal();
                    again = true;
                    backoff.wait(&error).await;
                }
            }
        }
    }
}
