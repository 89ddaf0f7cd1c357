//! Writing outcomes: natural group commit.
//!
//! Whatever waits is committed together as soon as the last commit has returned: the batch grows with the load and is
//! one when idle. There is no timer. When nothing is in flight, whoever brings an outcome commits it itself, which
//! saves a wake-up; otherwise a task of the committer does. A store that is away is waited for; nothing is dropped.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Notify, oneshot};
use windlass_model::{Change, Failure, Outcome, Reason, Verdict, failure::class, limits::MAX_BATCH_BYTES};
use windlass_store::Error;

use crate::{metrics::Verb, pool::QueuePool, releaser::Claim, retrying::Backoff, stats::add, worker::Core};

/// The most changes, and children of theirs, in one transaction: the gain per change is gone well before, and a larger one
/// delays its first.
const BATCH: usize = 1_000;
/// How many changes are worth a second transaction while one is in flight.
const SECOND: usize = 64;

pub(crate) struct Committer {
    state: Mutex<State>,
    /// Told when there is something for a committing task to do.
    work: Notify,
    /// Told when the backlog has shrunk, or everything is committed.
    shrunk: Notify,
    /// How many transactions may be in flight.
    flights: usize,
    /// How many outcomes may wait before slots stop starting new work.
    backlog: usize,
    /// Whether nothing is committed any more.
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    waiting: Vec<Item>,
    flying: usize,
}

impl State {
    /// Takes as much as goes in one transaction.
    fn batch(&mut self) -> Vec<Item> {
        let (mut bytes, mut rows) = (0, 0);
        let fits = |item: &Item| {
            bytes += item.change.bytes();
            rows += 1 + item.change.step.as_ref().map_or(0, |step| step.children.len() + step.promoted.len());
            bytes <= MAX_BATCH_BYTES && rows <= BATCH
        };
        let count = self.waiting.iter().map(fits).take_while(|fits| *fits).count();
        let rest = self.waiting.split_off(count.max(1).min(self.waiting.len()));
        std::mem::replace(&mut self.waiting, rest)
    }
}

struct Item {
    change: Change,
    claim: Arc<Claim>,
    pool: Arc<QueuePool>,
    /// Who goes on when it is committed.
    reply: Option<oneshot::Sender<Verdict>>,
}

impl Committer {
    pub(crate) fn new(flights: usize, backlog: usize) -> Committer {
        Committer {
            state: Mutex::default(),
            work: Notify::new(),
            shrunk: Notify::new(),
            flights: flights.max(1),
            backlog,
            closed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes an outcome; returns before it is committed unless nothing else was under way.
    pub(crate) async fn push(&self, core: &Core, change: Change, claim: &Arc<Claim>, pool: &Arc<QueuePool>) {
        let (claim, pool) = (Arc::clone(claim), Arc::clone(pool));
        self.take_in(core, Item { change, claim, pool, reply: None }).await;
    }

    /// Takes a step and returns when it is committed, with the store's answer.
    pub(crate) async fn commit_step(
        &self,
        core: &Core,
        change: Change,
        claim: &Arc<Claim>,
        pool: &Arc<QueuePool>,
    ) -> Verdict {
        let (reply, answer) = oneshot::channel();
        let (claim, pool) = (Arc::clone(claim), Arc::clone(pool));
        self.take_in(core, Item { change, claim, pool, reply: Some(reply) }).await;
        // The committer answers everything it takes, unless it is stopped: then nobody goes on.
        answer.await.unwrap_or(Verdict::Fenced)
    }

    async fn take_in(&self, core: &Core, item: Item) {
        let mine = {
            let mut state = self.lock();
            state.waiting.push(item);
            if state.flying == 0 {
                state.flying = 1;
                Some(state.batch())
            } else {
                if state.flying < self.flights && state.waiting.len() >= SECOND {
                    self.work.notify_one();
                }
                None
            }
        };
        if let Some(batch) = mine {
            self.commit(core, batch).await;
        }
    }

    /// Returns when the backlog is short enough for new work.
    pub(crate) async fn room(&self) {
        loop {
            let shrunk = self.shrunk.notified();
            if self.lock().waiting.len() < self.backlog {
                return;
            }
            shrunk.await;
        }
    }

    /// Returns when everything that was brought is committed.
    pub(crate) async fn flushed(&self) {
        loop {
            let shrunk = self.shrunk.notified();
            let mut shrunk = std::pin::pin!(shrunk);
            shrunk.as_mut().enable();
            {
                let state = self.lock();
                if state.waiting.is_empty() && state.flying == 0 {
                    return;
                }
            }
            shrunk.await;
        }
    }

    /// Nothing is committed any more: who waits for an answer is told so.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lock().waiting.clear();
        self.shrunk.notify_waiters();
    }

    /// A committing task: there are as many as transactions may be in flight.
    pub(crate) async fn run(core: Arc<Core>) {
        let committer = &core.committer;
        loop {
            let work = committer.work.notified();
            match committer.take() {
                Some(batch) => committer.commit(&core, batch).await,
                None => work.await,
            }
        }
    }

    fn take(&self) -> Option<Vec<Item>> {
        let mut state = self.lock();
        let worth = if state.flying == 0 { 1 } else { SECOND };
        if state.waiting.len() < worth || state.flying >= self.flights {
            return None;
        }
        state.flying += 1;
        Some(state.batch())
    }

    fn landed(&self) {
        let more = {
            let mut state = self.lock();
            state.flying -= 1;
            !state.waiting.is_empty()
        };
        if more {
            self.work.notify_one();
        }
        self.shrunk.notify_waiters();
    }

    async fn commit(&self, core: &Core, batch: Vec<Item>) {
        let mut flight = Flight::new(self, batch);
        let verdicts = until_answered(core, &flight.changes).await;
        let (changes, rest) = (std::mem::take(&mut flight.changes), std::mem::take(&mut flight.rest));
        add(&core.stats.commits, 1);
        let mut refused = Vec::new();
        let mut settled = Vec::with_capacity(changes.len());
        let count = |wanted: &Verdict| verdicts.iter().filter(|verdict| *verdict == wanted).count();
        add(&core.stats.committed, count(&Verdict::Committed) + count(&Verdict::Halted));
        add(&core.stats.fenced, count(&Verdict::Fenced));
        for ((change, verdict), (claim, pool, reply)) in changes.into_iter().zip(verdicts).zip(rest) {
            if let Some(reply) = reply {
                let _ = reply.send(verdict.clone());
            }
            match verdict {
                // It is still claimed, and goes on.
                Verdict::Committed if change.outcome == Outcome::Next => continue,
                Verdict::Committed => {
                    core.committed(change, &pool);
                }
                Verdict::Halted => {
                    tracing::info!(job = %change.job, "the job was paused or told to end: it goes no further now");
                }
                Verdict::Fenced => {
                    tracing::warn!(job = %change.job, epoch = change.epoch.0, "fenced: the job had been taken away from this worker");
                    // Or it is this worker's still, and somebody else wrote under its revision: then it is handed back
                    // as the claim is dropped.
                    continue;
                }
                Verdict::Refused(why) => {
                    add(&core.stats.refused, 1);
                    tracing::error!(job = %change.job, why, "the store refused an outcome; the job fails");
                    refused.push(Item { change: refusal(change, &why), claim, pool, reply: None });
                    continue;
                }
            }
            settled.extend(claim.end());
        }
        core.ledger.settle(settled.into_iter());
        if !refused.is_empty() {
            self.lock().waiting.extend(refused);
        }
    }
}

/// What goes with a change: its claim, its pool, and who goes on when it is committed.
type Rest = (Arc<Claim>, Arc<QueuePool>, Option<oneshot::Sender<Verdict>>);

/// A transaction under way. If whoever flies it is dropped before the answer has come, as the future of a workflow may be,
/// its changes go back to those that wait: a commit may be repeated blindly.
struct Flight<'a> {
    committer: &'a Committer,
    changes: Vec<Change>,
    rest: Vec<Rest>,
}

impl<'a> Flight<'a> {
    fn new(committer: &'a Committer, batch: Vec<Item>) -> Flight<'a> {
        let (changes, rest) =
            batch.into_iter().map(|item| (item.change, (item.claim, item.pool, item.reply))).unzip();
        Flight { committer, changes, rest }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let changes = std::mem::take(&mut self.changes).into_iter();
        let back = changes.zip(std::mem::take(&mut self.rest));
        let back = back.map(|(change, (claim, pool, reply))| Item { change, claim, pool, reply });
        let back: Vec<Item> = back.collect();
        if !back.is_empty() && !self.committer.closed.load(Ordering::Acquire) {
            self.committer.lock().waiting.splice(0..0, back);
        }
        self.committer.landed();
    }
}

/// What is committed in place of an outcome that the store refused: as little as can be.
fn refusal(change: Change, why: &str) -> Change {
    let failure = Failure::stop(format!("the store refused what the attempt wanted written: {why}"))
        .class(class::REFUSED);
    Change { outcome: Outcome::Failed { reason: Reason::Refused, failure }, step: None, ..change }
}

/// Commits until the store has answered for all. Every call is a blind repeat of the one before, which `Store::commit`
/// allows. After a failure half as many are sent, in case the whole was too much for a database that is slow. Once the
/// committer is closed nobody goes on, and what is not answered is left to the reaper.
async fn until_answered(core: &Core, changes: &[Change]) -> Vec<Verdict> {
    let mut backoff = Backoff::new("committing");
    let mut verdicts = Vec::with_capacity(changes.len());
    let mut size = changes.len();
    loop {
        let rest = &changes[verdicts.len()..];
        let asked = Instant::now();
        match core.store.commit(None, &rest[..size.min(rest.len())]).await {
            Ok(answers) => {
                backoff.reset();
                core.metrics.commit_size.note(answers.len() as u64);
                core.metrics.commit_seconds.note_span(asked.elapsed());
                verdicts.extend(answers);
                if verdicts.len() == changes.len() {
                    return verdicts;
                }
                size = size.saturating_mul(2);
            }
            Err(error) => {
                core.metrics.failed(Verb::Commit);
                if core.committer.closed.load(Ordering::Acquire) {
                    verdicts.resize(changes.len(), Verdict::Fenced);
                    return verdicts;
                }
                size = (size / 2).max(1);
                backoff.wait(&error).await;
                if !matches!(error, Error::Unavailable(_)) {
                    // Not a passing fault: do not hammer a database that someone must mend.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}
