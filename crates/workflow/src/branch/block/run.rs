//! Running a block: its items one after the other, those that wait for something at the same time.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use serde_json::value::RawValue;
use windlass_model::{
    BranchMember, CommitOutcome, Failure, FirstAttempt, NewJob, Outcome, Payload, Retry, StepWrites, Time,
    failure::class,
};
use windlass_runtime::{Attempt, StepResult, StepWriter};

use super::{
    BLOCK, BlockItem, ItemKey,
    format::{Items, Progress},
    max_bytes,
};
use crate::{Task, TaskCx, machine::Services};

/// The most items of a block that wait for something at the same time.
const MAX_WAITING: usize = 64;
/// How long an item may take before it is promoted: others of its block wait for a slow one.
const SLOW_ITEM: Duration = Duration::from_secs(5);
/// How often the progress of a block is committed. A crash repeats that much, and the items that were running.
const COMMIT_INTERVAL: Duration = Duration::from_secs(2);
/// How long an item whose task has no timeout may block its thread.
const MAX_BLOCKING: Duration = Duration::from_secs(3_600);
/// After how many items, or after what time, the block yields to other tasks of its thread.
const YIELD_ITEMS: usize = 64;
const YIELD_INTERVAL: Duration = Duration::from_millis(10);

/// What the code of one item returned, as JSON.
type ItemResult = Result<Box<RawValue>, Failure>;

/// How the attempt at an item ended.
enum ItemOutcome {
    Returned(Box<RawValue>),
    Failed(Failure),
    /// It takes too long for a block.
    Slow,
}

/// A block that is being run.
pub(super) struct RunningBlock<'a> {
    pub(super) attempt: Arc<Attempt>,
    pub(super) services: Arc<Services>,
    retry: Retry,
    /// [`Task::backoff`] of the kind.
    backoff: fn(&Failure, u32) -> Option<Duration>,
    pub(super) member: BranchMember,
    pub(super) items: Arc<Items<'a>>,
    pub(super) progress: Progress,
    /// The number of items that are done and not committed.
    uncommitted: u32,
    /// Jobs that replace items, not committed.
    pub(super) promoted: Vec<NewJob>,
    /// The attempts at promoted items that failed here, not committed.
    first_attempts: Vec<FirstAttempt>,
    /// The bytes of all results, and how many there should be at most.
    bytes: usize,
    max_bytes: usize,
    /// When the progress is committed next.
    commit_at: Instant,
}

/// Runs the items of a block.
pub(crate) async fn run<T: Task>(
    attempt: Arc<Attempt>,
    services: Arc<Services>,
    retry: Retry,
    timeout: Option<Duration>,
) -> Result<StepResult, Failure> {
    let job = Arc::clone(&attempt.job);
    let items = Arc::new(Items::read(&job.input.bytes)?);
    let mut progress: Progress = match &job.data {
        Some(data) => serde_json::from_slice(&data.bytes).map_err(|error| {
            Failure::stop(format!("the progress of the block cannot be read ({error})"))
                .class(class::UNDECODABLE)
        })?,
        None => Progress::default(),
    };
    progress.results.resize_with(items.items.len(), || None);
    let Some(member) = job.branch_member else {
        return Err(
            Failure::stop("a block that belongs to no branch cannot be run").class(class::UNDECODABLE)
        );
    };
    let mut block = RunningBlock {
        bytes: progress.results.iter().flatten().map(|result| result.get().len()).sum(),
        max_bytes: max_bytes(&services),
        commit_at: services.env.instant() + COMMIT_INTERVAL,
        attempt,
        services,
        retry,
        backoff: T::backoff,
        member,
        items,
        progress,
        uncommitted: 0,
        promoted: Vec::new(),
        first_attempts: Vec::new(),
    };
    let open = block.open_items();
    if (job.worker_deaths > 0 || job.attempts > 0) && open.len() > 1 {
        block.split(&open);
        return block.end();
    }
    block.run::<T>(open, timeout).await
}

impl RunningBlock<'_> {
    /// Returns the items that are neither done nor promoted.
    fn open_items(&self) -> Vec<usize> {
        let open = |index: &usize| !self.progress.done.has(*index) && !self.progress.promoted.has(*index);
        (0..self.items.items.len()).filter(open).collect()
    }

    async fn run<T: Task>(
        mut self,
        open: Vec<usize>,
        timeout: Option<Duration>,
    ) -> Result<StepResult, Failure> {
        let max_wait = timeout.map_or(SLOW_ITEM, |timeout| timeout.min(SLOW_ITEM));
        // An item that is only slower than others of its block has not failed.
        let late = || match timeout.filter(|timeout| *timeout <= SLOW_ITEM) {
            Some(timeout) => ItemOutcome::Failed(timed_out(timeout)),
            None => ItemOutcome::Slow,
        };
        let mut waiting = FuturesUnordered::new();
        let env = self.services.env.clone();
        let mut yielded_at = env.instant();
        for (count, index) in open.iter().copied().enumerate() {
            let item = AssertUnwindSafe(run_item::<T>(self.task_cx(index), self.items.items[index]));
            let mut item = Box::pin(item.catch_unwind());
            // An item that blocks its thread ends the attempt as any other task does; the next attempt splits the block.
            self.attempt.writer.set_poll_deadline(Some(timeout.unwrap_or(MAX_BLOCKING)));
            let polled = poll_once(&mut item).await;
            self.attempt.writer.set_poll_deadline(None);
            match polled {
                Poll::Ready(result) => self.item_ended(index, None, item_outcome(result)),
                Poll::Pending => {
                    let started_at = Some(self.attempt.writer.now());
                    let env = env.clone();
                    waiting.push(async move {
                        match env.timeout(max_wait, item).await {
                            Ok(result) => (index, started_at, item_outcome(result)),
                            Err(_) => (index, started_at, late()),
                        }
                    })
                }
            }
            if let Some(result) = self.wait_below(MAX_WAITING, &mut waiting).await? {
                return Ok(result);
            }
            if self.bytes > self.max_bytes {
                // More results would be too long for one row: the remaining items become another block.
                if let Some(result) = self.wait_below(1, &mut waiting).await? {
                    return Ok(result);
                }
                self.promote_to_block(&open[count + 1..]);
                return self.end();
            }
            if count % YIELD_ITEMS == YIELD_ITEMS - 1 || env.since(yielded_at) > YIELD_INTERVAL {
                tokio::task::yield_now().await;
                yielded_at = env.instant();
            }
            if self.attempt.is_cancelled() {
                break;
            }
            if let Some(result) = self.commit_if_due().await? {
                return Ok(result);
            }
        }
        if let Some(result) = self.wait_below(1, &mut waiting).await? {
            return Ok(result);
        }
        if self.open_items().is_empty() {
            return self.end();
        }
        // Cancelled with items open: those that are done stay done.
        let result = self.commit().await?;
        Ok(match (result, self.attempt.cancel_requested_by()) {
            (Some(result), _) => result,
            (None, Some(actor)) => {
                StepResult::Commit { step: None, outcome: Outcome::Cancelled(actor.failure()) }
            }
            (None, None) => StepResult::ClaimOver,
        })
    }

    /// Waits until fewer than `count` items are waiting, and commits whenever that is due. Returns how the attempt ends, if it
    /// does.
    async fn wait_below<F>(
        &mut self,
        count: usize,
        waiting: &mut FuturesUnordered<F>,
    ) -> Result<Option<StepResult>, Failure>
    where
        F: Future<Output = (usize, Option<Time>, ItemOutcome)>,
    {
        while waiting.len() >= count {
            let until_commit = self.commit_at.saturating_duration_since(self.services.env.instant());
            let next = self.services.env.timeout(until_commit, waiting.next()).await;
            if let Ok(Some((index, started_at, outcome))) = next {
                self.item_ended(index, started_at, outcome);
            }
            if let Some(result) = self.commit_if_due().await? {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }

    fn task_cx(&self, index: usize) -> TaskCx {
        let (member, spawn) = (self.member, self.items.spawn);
        let key = match &self.items.keys {
            Some(keys) => ItemKey::Text(keys.get(index).cloned().unwrap_or_default()),
            None => ItemKey::Number(self.items.first + index as u64),
        };
        TaskCx::item(Arc::clone(&self.attempt), BlockItem { member, spawn, key }, Arc::clone(&self.services))
    }

    /// Records how the attempt at an item ended. `started_at` is `None` if the item ended in its first poll.
    fn item_ended(&mut self, index: usize, started_at: Option<Time>, outcome: ItemOutcome) {
        match outcome {
            // A result that does not fit is dropped: as a job of its own, the item may return a longer one.
            ItemOutcome::Returned(result) if self.bytes + result.get().len() > 2 * self.max_bytes => {
                self.promote_item(index);
            }
            ItemOutcome::Returned(result) => {
                self.bytes += result.get().len();
                self.progress.results[index] = Some(result);
                self.progress.done.set(index);
                self.uncommitted += 1;
            }
            ItemOutcome::Slow => _ = self.promote_item(index),
            ItemOutcome::Failed(failure) => {
                let started_at = started_at.unwrap_or_else(|| self.attempt.writer.now());
                let outcome = match self.attempt.cancel_requested_by() {
                    // A cancelled item is not retried, whatever its failure says.
                    Some(actor) => Outcome::Cancelled(actor.failure()),
                    None => self.first_failure(failure),
                };
                let job = self.promote_item(index);
                self.first_attempts.push(FirstAttempt { job, started_at, outcome });
            }
        }
    }

    /// What follows from the first failure of an item.
    fn first_failure(&self, failure: Failure) -> Outcome {
        let backoff = |failure: &Failure, nth: u32| {
            catch_unwind(AssertUnwindSafe(|| (self.backoff)(failure, nth))).ok().flatten()
        };
        self.retry.outcome_with(failure, &[], self.attempt.writer.random(), backoff)
    }

    async fn commit_if_due(&mut self) -> Result<Option<StepResult>, Failure> {
        if self.commit_at <= self.services.env.instant() { self.commit().await } else { Ok(None) }
    }

    /// Commits the progress. Returns how the attempt ends, if it does.
    async fn commit(&mut self) -> Result<Option<StepResult>, Failure> {
        self.commit_at = self.services.env.instant() + COMMIT_INTERVAL;
        if self.uncommitted == 0 && self.promoted.is_empty() {
            return Ok(None);
        }
        let data = self.encode(serde_json::to_vec(&self.progress).unwrap_or_default())?;
        let step = StepWrites {
            stage: Some((BLOCK.into(), data)),
            items: std::mem::take(&mut self.uncommitted),
            promoted: self.take_promoted()?,
            first_attempts: std::mem::take(&mut self.first_attempts),
            ..StepWrites::default()
        };
        Ok(match StepWriter::commit_detached(&self.attempt, step).await {
            CommitOutcome::Committed => None,
            CommitOutcome::Halted => Some(StepResult::Halted),
            CommitOutcome::Fenced => Some(StepResult::ClaimOver),
            CommitOutcome::Refused(_) if self.attempt.writer.is_closed() => Some(StepResult::ClaimOver),
            CommitOutcome::Refused(why) => return Err(Failure::stop(why).class(class::REFUSED)),
        })
    }

    /// Ends the block: every item is done or promoted.
    fn end(mut self) -> Result<StepResult, Failure> {
        let output = self.encode(serde_json::to_vec(&self.progress).unwrap_or_default())?;
        let first_attempts = std::mem::take(&mut self.first_attempts);
        let step = StepWrites { promoted: self.take_promoted()?, first_attempts, ..StepWrites::default() };
        let step = (!step.promoted.is_empty()).then(|| Box::new(step));
        Ok(StepResult::Commit { step, outcome: Outcome::Done(output) })
    }

    fn encode(&self, plain: Vec<u8>) -> Result<Payload, Failure> {
        self.services.codecs.encode(plain).map_err(|error| Failure::stop(error).class(class::REFUSED))
    }

    /// Takes the promoted jobs, with their inputs encoded.
    fn take_promoted(&mut self) -> Result<Vec<NewJob>, Failure> {
        let encode = |job| {
            let encoded = self.services.codecs.encoded(job);
            encoded.map_err(|error| Failure::stop(error).class(class::REFUSED))
        };
        std::mem::take(&mut self.promoted).into_iter().map(encode).collect()
    }
}

async fn run_item<T: Task>(cx: TaskCx, input: &RawValue) -> ItemResult {
    let task: T = serde_json::from_str(input.get()).map_err(|error| {
        Failure::stop(format!("the input does not decode as {:?} ({error})", T::KIND))
            .class(class::UNDECODABLE)
    })?;
    let output = task.run(&cx).await.map_err(Into::into)?;
    serde_json::value::to_raw_value(&output).map_err(Failure::stop)
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(future.poll_unpin(cx))).await
}

fn item_outcome(result: Result<ItemResult, Box<dyn std::any::Any + Send>>) -> ItemOutcome {
    match result {
        Ok(Ok(result)) => ItemOutcome::Returned(result),
        Ok(Err(failure)) => ItemOutcome::Failed(failure),
        Err(panic) => ItemOutcome::Failed(Failure::of_panic(&*panic)),
    }
}

fn timed_out(timeout: Duration) -> Failure {
    Failure::retry(format!("the attempt ran longer than {timeout:?}")).class(class::TIMEOUT)
}
