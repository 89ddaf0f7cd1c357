//! Commits the changes of all attempts, in batches.
//!
//! Whatever waits is committed together as soon as the last commit has returned. So a batch is one change when idle, and
//! grows with the load; there is no timer. While no commit is in flight, the caller that brings a change commits it
//! itself, which saves a task switch; otherwise a task of the committer does. If the store does not answer, the commit is
//! repeated until it does; nothing is dropped.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use windlass_model::{
    Change, CommitOutcome, Failure, Outcome, Reason, failure::class, limits::MAX_BATCH_BYTES,
};
use windlass_store::Error;

use crate::{
    backoff::Backoff,
    core::Core,
    pool::QueuePool,
    releaser::ClaimGuard,
    sync::{lock, wait_until},
    telemetry::{StoreCall, add},
    write_turns::{WriteTurn, WriteTurns},
};

/// The most changes, with their children, in one transaction. Larger batches gain nothing per change, and delay their first.
const BATCH_ROWS: usize = 1_000;
/// How many waiting changes are worth a second transaction while one is in flight.
const SECOND_BATCH: usize = 24;

pub(crate) struct Committer {
    state: Mutex<State>,
    /// Notified when there may be a batch for a committing task.
    work: Notify,
    /// Notified when the backlog has shrunk.
    shrunk: Notify,
    /// How many transactions may be in flight.
    max_in_flight: usize,
    /// Shared with the submitter of this process.
    turns: WriteTurns,
    /// How many changes may wait before slots stop starting new attempts.
    max_backlog: usize,
    /// Whether the worker has stopped, and nothing is committed any more.
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    waiting: Vec<Item>,
    in_flight: usize,
}

/// A change that is to be committed.
struct Item {
    change: Change,
    owner: Owner,
}

/// Where a change comes from.
struct Owner {
    claim: Arc<ClaimGuard>,
    pool: Arc<QueuePool>,
    /// The caller that waits for the outcome, if one does.
    reply: Option<oneshot::Sender<CommitOutcome>>,
}

impl State {
    /// Takes as many changes as one transaction may have, at least one if any waits.
    fn take_batch(&mut self) -> Vec<Item> {
        let (mut bytes, mut rows) = (0, 0);
        let fits = |item: &Item| {
            bytes += item.change.bytes();
            rows +=
                1 + item.change.writes.as_ref().map_or(0, |step| step.children.len() + step.promoted.len());
            bytes <= MAX_BATCH_BYTES && rows <= BATCH_ROWS
        };
        let count = self.waiting.iter().map(fits).take_while(|fits| *fits).count();
        let rest = self.waiting.split_off(count.max(1).min(self.waiting.len()));
        std::mem::replace(&mut self.waiting, rest)
    }
}

impl Committer {
    pub(crate) fn new(max_in_flight: usize, max_backlog: usize, turns: WriteTurns) -> Committer {
        Committer {
            state: Mutex::default(),
            work: Notify::new(),
            shrunk: Notify::new(),
            max_in_flight: max_in_flight.max(1),
            turns,
            max_backlog,
            closed: AtomicBool::new(false),
        }
    }

    /// A committing task. There are as many as transactions may be in flight.
    pub(crate) async fn run(core: Arc<Core>) {
        loop {
            let work = core.committer.work.notified();
            if !core.committer.tick(&core).await {
                work.await;
            }
        }
    }

    /// Commits one batch; `false` if there is none for this task.
    async fn tick(&self, core: &Core) -> bool {
        {
            let mut state = lock(&self.state);
            let least = if state.in_flight == 0 { 1 } else { SECOND_BATCH };
            if state.waiting.len() < least || state.in_flight >= self.max_in_flight {
                return false;
            }
            state.in_flight += 1;
        }
        self.commit(core, InFlight::new(self)).await;
        true
    }

    /// Adds a change. Returns before it is committed, unless no other commit was in flight.
    pub(crate) async fn push(
        &self,
        core: &Core,
        change: Change,
        claim: &Arc<ClaimGuard>,
        pool: &Arc<QueuePool>,
    ) {
        let owner = Owner { claim: Arc::clone(claim), pool: Arc::clone(pool), reply: None };
        self.add(core, Item { change, owner }).await;
    }

    /// Adds a step, and returns the store's outcome when it is committed.
    pub(crate) async fn commit_step(
        &self,
        core: &Core,
        change: Change,
        claim: &Arc<ClaimGuard>,
        pool: &Arc<QueuePool>,
    ) -> CommitOutcome {
        let (reply, outcome) = oneshot::channel();
        let owner = Owner { claim: Arc::clone(claim), pool: Arc::clone(pool), reply: Some(reply) };
        self.add(core, Item { change, owner }).await;
        // Every change gets its outcome, unless the committer was closed: then the attempt must not continue.
        outcome.await.unwrap_or(CommitOutcome::Fenced)
    }

    async fn add(&self, core: &Core, item: Item) {
        let in_flight = {
            let mut state = lock(&self.state);
            state.waiting.push(item);
            if state.in_flight == 0 {
                state.in_flight = 1;
                Some(InFlight::new(self))
            } else {
                if state.in_flight < self.max_in_flight && state.waiting.len() >= SECOND_BATCH {
                    self.work.notify_one();
                }
                None
            }
        };
        if let Some(in_flight) = in_flight {
            self.commit(core, in_flight).await;
        }
    }

    /// Returns when the backlog is short enough for new attempts.
    pub(crate) async fn wait_for_room(&self) {
        wait_until(&self.shrunk, || lock(&self.state).waiting.len() < self.max_backlog).await;
    }

    /// Returns when everything that was added is committed.
    pub(crate) async fn flushed(&self) {
        let is_flushed = || {
            let state = lock(&self.state);
            state.waiting.is_empty() && state.in_flight == 0
        };
        wait_until(&self.shrunk, is_flushed).await;
    }

    /// Commits nothing any more. Callers that wait for an outcome get `Fenced`.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        lock(&self.state).waiting.clear();
        self.shrunk.notify_waiters();
    }

    /// Commits what waits, up to one batch, and does what follows from each outcome.
    async fn commit(&self, core: &Core, mut in_flight: InFlight<'_>) {
        let turn = self.turns.next().await;
        self.turns.gather().await;
        in_flight.take_batch();
        if in_flight.changes.is_empty() {
            return;
        }
        let outcomes = commit_until_answered(core, &in_flight.changes, turn).await;
        let (changes, owners) =
            (std::mem::take(&mut in_flight.changes), std::mem::take(&mut in_flight.owners));
        add(&core.stats.commits, 1);
        let mut refused = Vec::new();
        let mut settled = Vec::with_capacity(changes.len());
        let mut unheld = Vec::with_capacity(changes.len());
        let count = |wanted: &CommitOutcome| outcomes.iter().filter(|outcome| *outcome == wanted).count();
        add(&core.stats.committed, count(&CommitOutcome::Committed) + count(&CommitOutcome::Halted));
        add(&core.stats.fenced, count(&CommitOutcome::Fenced));
        for ((change, outcome), Owner { claim, pool, reply }) in changes.into_iter().zip(outcomes).zip(owners)
        {
            if let Some(reply) = reply {
                let _ = reply.send(outcome.clone());
            }
            let job = change.job;
            let ending = match outcome {
                // The job is still claimed, and continues.
                CommitOutcome::Committed if change.outcome == Outcome::Next => continue,
                CommitOutcome::Committed => core.after_commit(change, &pool),
                CommitOutcome::Halted => {
                    tracing::info!(%job, "the job was paused or cancelled; its claim is over");
                    None
                }
                CommitOutcome::Fenced => {
                    tracing::warn!(job = %change.job, epoch = change.epoch.0, "fenced: this worker no longer held the job");
                    // If it still does, another change was written under the same revision: then the job is released as the
                    // claim is dropped.
                    continue;
                }
                CommitOutcome::Refused(why) => {
                    add(&core.stats.refused, 1);
                    tracing::error!(job = %change.job, why, "the store refused an outcome; the job fails");
                    let owner = Owner { claim, pool, reply: None };
                    refused.push(Item { change: refusal(change, &why), owner });
                    continue;
                }
            };
            let number = claim.close();
            if number.is_some() || ending.is_some() {
                unheld.push((job, ending));
            }
            settled.extend(number);
        }
        core.waiters.unhold_committed(unheld);
        core.ledger.settle(settled.into_iter());
        if !refused.is_empty() {
            lock(&self.state).waiting.extend(refused);
        }
    }
}

/// A transaction in flight. If its future is dropped before the store has answered, as that of a workflow may be, its
/// changes wait again: a commit can be repeated safely.
struct InFlight<'a> {
    committer: &'a Committer,
    changes: Vec<Change>,
    owners: Vec<Owner>,
}

impl<'a> InFlight<'a> {
    /// A transaction that the committer has counted and that has no changes yet.
    fn new(committer: &'a Committer) -> InFlight<'a> {
        InFlight { committer, changes: Vec::new(), owners: Vec::new() }
    }

    fn take_batch(&mut self) {
        let batch = lock(&self.committer.state).take_batch();
        (self.changes, self.owners) = batch.into_iter().map(|item| (item.change, item.owner)).unzip();
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let changes = std::mem::take(&mut self.changes).into_iter();
        let unanswered: Vec<Item> = changes
            .zip(std::mem::take(&mut self.owners))
            .map(|(change, owner)| Item { change, owner })
            .collect();
        let committer = self.committer;
        if !unanswered.is_empty() && !committer.closed.load(Ordering::Acquire) {
            lock(&committer.state).waiting.splice(0..0, unanswered);
        }
        let has_more = {
            let mut state = lock(&committer.state);
            state.in_flight -= 1;
            !state.waiting.is_empty()
        };
        if has_more {
            committer.work.notify_one();
        }
        committer.shrunk.notify_waiters();
    }
}

/// The change that is committed in place of one that the store refused: it fails the job, and writes nothing else.
fn refusal(change: Change, why: &str) -> Change {
    let failure = Failure::stop(format!("the store refused what the attempt wanted written: {why}"))
        .class(class::REFUSED);
    Change { outcome: Outcome::Failed { reason: Reason::Refused, failure }, writes: None, ..change }
}

/// Commits until the store has answered for all changes. Every call is a blind repeat of the one before, which
/// `Execution::commit` allows. After an error half as many changes are sent, in case the batch was too much for a slow database.
/// Once the committer is closed, changes without an answer count as fenced: their jobs are left to the reaper.
async fn commit_until_answered(core: &Core, changes: &[Change], turn: WriteTurn) -> Vec<CommitOutcome> {
    let mut backoff = Backoff::new(&core.env, "committing");
    let mut outcomes = Vec::with_capacity(changes.len());
    let mut size = changes.len();
    let mut first_turn = Some(turn);
    loop {
        let rest = &changes[outcomes.len()..];
        let turn = match first_turn.take() {
            Some(turn) => turn,
            None => core.committer.turns.next().await,
        };
        let started = core.env.instant();
        let committed = core.store.commit(None, &rest[..size.min(rest.len())]).await;
        // Others write while this one waits to try again.
        drop(turn);
        match committed {
            Ok(answers) => {
                backoff.reset();
                core.metrics.commit_batch_size.record(answers.len() as u64);
                core.metrics.commit_seconds.record_duration(core.env.since(started));
                outcomes.extend(answers);
                if outcomes.len() == changes.len() {
                    return outcomes;
                }
                size = size.saturating_mul(2);
            }
            Err(error) => {
                core.metrics.count_error(StoreCall::Commit);
                if core.committer.closed.load(Ordering::Acquire) {
                    outcomes.resize(changes.len(), CommitOutcome::Fenced);
                    return outcomes;
                }
                size = (size / 2).max(1);
                backoff.wait(&error).await;
                if !matches!(error, Error::Unavailable(_)) {
                    // Not a passing fault: a person must repair the database first, so the calls are rare.
                    core.env.sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}
