//! Blocks: many items of a packed branch in one row.
//!
//! A block is a job of its items' kind. Its input is their inputs, its output their outputs, and between two commits of a long
//! one its data says which items have ended. An item that does not end well at once is moved out of the block: it becomes a
//! job of its own, in the same commit, with the attempt that failed as its first. A block that a worker died with is taken
//! apart.

use std::{
    borrow::Cow,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use windlass_env::IdSource;
use windlass_model::{
    BranchMember, BranchNo, BranchPosition, Failure, FirstAttempt, JobId, KindVersion, NewJob, Outcome,
    Payload, Retry, Step, Time, Verdict, When, branch::MAX_BLOCK_ITEMS, failure::class,
};
use windlass_runtime::{Attempt, StepResult, StepWriter};
use windlass_store::JobEnd;

use super::results::ChildOf;
use crate::{JobError, Task, TaskCx, child::Packable, codec::Codecs, machine::Services};

/// The stage of a job that is a block.
pub const BLOCK: &str = "windlass.block";

/// The most bytes of inputs, or of outputs, in one block, unless less may be kept in one row.
const BYTES: usize = 256 << 10;
/// How many items of a block may wait for something at the same time.
const WAITING: usize = 64;
/// How long an item may take before it becomes a job of its own.
const SLOW_ITEM: Duration = Duration::from_secs(5);
/// How often what was done of a block is committed: that much is done again after a crash, beside what is under way.
const COMMIT_INTERVAL: Duration = Duration::from_secs(2);
/// How long an item without a time limit may hold its thread.
const BLOCKED: Duration = Duration::from_secs(3_600);
/// How many items are run, and for how long, before others get their turn.
const TURN: usize = 64;
const HELD: Duration = Duration::from_millis(10);
/// Into how many parts a block is taken apart.
const PARTS: usize = 10;

/// Which item of a block a task runs for.
pub(crate) struct BlockItem {
    counted: BranchMember,
    spawn: i16,
    key: ItemKey,
}

enum ItemKey {
    Number(u64),
    Text(String),
}

impl BlockItem {
    /// The id of the item: that of the job that it becomes if it is moved.
    pub(crate) fn id(&self) -> JobId {
        let BranchMember { parent, branch, .. } = self.counted;
        match &self.key {
            ItemKey::Number(number) => JobId::of_item(parent, branch, self.spawn, &number.to_string()),
            ItemKey::Text(key) => JobId::of_item(parent, branch, self.spawn, key),
        }
    }
}

/// How many bytes of inputs a block may have, and of outputs: twice as many are always taken.
pub(crate) fn bytes(bound: &Services) -> usize {
    BYTES.min(bound.store.limits().payload / 4)
}

/// Whether a job in this stage is a block.
pub fn is_block(stage: Option<&str>) -> bool {
    stage == Some(BLOCK)
}

/// The items of a block, as they are kept.
#[derive(Serialize, Deserialize)]
struct Items<'a> {
    /// Which spawn of the branch they come from.
    spawn: i16,
    /// The number of the first one.
    #[serde(default)]
    first: u64,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
    /// What people know them by; left out if they are numbered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keys: Option<Vec<String>>,
}

impl<'a> Items<'a> {
    fn read(bytes: &'a [u8]) -> Result<Items<'a>, Failure> {
        serde_json::from_slice(bytes).map_err(|error| {
            Failure::stop(format!("the items of the block cannot be read ({error})"))
                .class(class::UNDECODABLE)
        })
    }

    /// What people know an item by.
    fn key(&self, place: usize) -> String {
        match &self.keys {
            Some(keys) => keys.get(place).cloned().unwrap_or_default(),
            None => (self.first + place as u64).to_string(),
        }
    }
}

/// What has become of the items of a block.
#[derive(Serialize, Deserialize, Default)]
struct Progress {
    /// Which of them have ended well, a bit for each.
    done: Bits,
    /// Which of them are jobs of their own.
    moved: Bits,
    /// What those returned that have ended well; null for the others.
    results: Vec<Option<Box<RawValue>>>,
}

/// The same as it is read by those who want the results.
#[derive(Deserialize, Default)]
struct StoredProgress<'a> {
    done: Bits,
    moved: Bits,
    #[serde(borrow)]
    results: Vec<Option<&'a RawValue>>,
}

impl<'a> StoredProgress<'a> {
    /// What an item returned, if it has ended well. One that returned nothing reads as if it had not returned.
    fn result(&self, place: usize) -> Option<&'a RawValue> {
        let result = self.results.get(place).copied().flatten();
        self.done.has(place).then(|| result.unwrap_or(RawValue::NULL))
    }
}

/// A bit for each item, as hexadecimal digits.
#[derive(Clone, Default)]
struct Bits(Vec<u8>);

impl Bits {
    fn set(&mut self, place: usize) {
        if self.0.len() <= place / 8 {
            self.0.resize(place / 8 + 1, 0);
        }
        self.0[place / 8] |= 1 << (place % 8);
    }

    fn has(&self, place: usize) -> bool {
        self.0.get(place / 8).is_some_and(|byte| byte & (1 << (place % 8)) != 0)
    }
}

impl Serialize for Bits {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Bits, D::Error> {
        let text = String::deserialize(from)?;
        let byte = |place: usize| u8::from_str_radix(text.get(place..place + 2).unwrap_or("x"), 16);
        let bytes = (0..text.len()).step_by(2).map(byte).collect::<Result<_, _>>();
        bytes.map(Bits).map_err(serde::de::Error::custom)
    }
}

/// Why a child cannot be packed.
pub(crate) fn unpackable(kind: &str) -> Failure {
    let text = format!(
        "a child of kind {kind:?} cannot be packed: packed children are plain tasks without settings of their own (but their \
         queue). Leave out `.packed()`, or its settings"
    );
    Failure::stop(text).class(class::REFUSED)
}

/// Packs items into blocks, in their order.
pub(crate) struct Packer {
    spawn: i16,
    when: When,
    /// The most bytes of inputs in one block.
    limit: usize,
    open: Option<Open>,
    blocks: Vec<NewJob>,
}

/// A block that is being filled.
struct Open {
    kind: KindVersion,
    queue: Cow<'static, str>,
    first: u64,
    /// What stands between the brackets of its items.
    items: Vec<u8>,
    /// Where the last one begins.
    last: usize,
    keys: Vec<String>,
    count: u32,
    bytes: usize,
}

impl Packer {
    pub(crate) fn new(spawn: i16, when: When, limit: usize) -> Packer {
        Packer { spawn, when, limit, open: None, blocks: Vec::new() }
    }

    /// Adds an item, with its key or the number it is known by.
    pub(crate) fn push(
        &mut self,
        item: Packable,
        key: Option<String>,
        number: u64,
        ids: &IdSource,
    ) -> Result<(), String> {
        let input = item.input?;
        let limit = self.limit;
        if input.len() > limit {
            return Err(format!(
                "an item of {} bytes is too long to be packed, more than {limit}; keep large data elsewhere and pass a reference",
                input.len()
            ));
        }
        let bytes = input.len() + key.as_ref().map_or(0, String::len);
        let fits = self.open.as_ref().is_some_and(|open| {
            (open.count as usize) < MAX_BLOCK_ITEMS
                && open.bytes + bytes <= limit
                && open.kind.kind == item.kind
                && open.kind.version == item.version
                && open.queue == item.queue
        });
        if !fits {
            self.close(ids);
        }
        let open = self.open.get_or_insert_with(|| Open {
            kind: KindVersion { kind: item.kind.to_owned(), version: item.version },
            queue: item.queue,
            first: number,
            items: Vec::with_capacity(input.len() * 64),
            last: 0,
            keys: Vec::new(),
            count: 0,
            bytes: 0,
        });
        open.bytes += bytes + 4;
        if open.count > 0 {
            open.items.push(b',');
        }
        open.last = open.items.len();
        open.items.extend_from_slice(&input);
        open.keys.extend(key);
        open.count += 1;
        Ok(())
    }

    /// What tells the last item from others.
    pub(crate) fn last(&self) -> Option<[u8; 16]> {
        let open = self.open.as_ref()?;
        let input = Payload::json(open.items[open.last..].to_vec());
        Some(windlass_model::job::digest(&open.kind.kind, &input))
    }

    /// The blocks.
    pub(crate) fn finish(mut self, ids: &IdSource) -> Vec<NewJob> {
        self.close(ids);
        self.blocks
    }

    fn close(&mut self, ids: &IdSource) {
        let Some(Open { kind, queue, first, items, keys, count, .. }) = self.open.take() else { return };
        let item = keys.first().cloned().unwrap_or_else(|| first.to_string());
        let twig = BranchPosition { branch: BranchNo(0), spawn: self.spawn, item, items: count };
        let mut input = format!("{{\"spawn\":{},\"first\":{first},\"items\":[", self.spawn).into_bytes();
        input.extend_from_slice(&items);
        input.push(b']');
        if !keys.is_empty() {
            input.extend_from_slice(b",\"keys\":");
            input.extend(serde_json::to_vec(&keys).unwrap_or_default());
        }
        input.push(b'}');
        let job = NewJob::new(ids.job(), &kind.kind, &queue, Payload::json(input));
        let (stage, twig) = (Some(BLOCK.into()), Some(Box::new(twig)));
        self.blocks.push(NewJob { kind, stage, branch_position: twig, when: self.when, ..job });
    }
}

/// An item of a block that is no job of its own.
pub struct Packed {
    /// Its place among all items of the block.
    pub place: usize,
    /// What people know it by.
    pub key: String,
    /// Its input.
    pub input: Box<RawValue>,
    /// What it returned, if it has ended well.
    pub result: Option<Box<RawValue>>,
}

/// The items of a block that are no jobs of their own. `kept` is the block's output if it is done, and its data otherwise.
pub fn packed(input: &Payload, kept: Option<&Payload>, codecs: &Codecs) -> Result<Vec<Packed>, Failure> {
    let plain = codecs.decode(input).map_err(Failure::stop)?;
    let items = Items::read(&plain)?;
    let kept = kept.map(|kept| codecs.decode(kept)).transpose().map_err(Failure::stop)?;
    let came: StoredProgress<'_> = match &kept {
        Some(kept) => serde_json::from_slice(kept).map_err(Failure::stop)?,
        None => StoredProgress::default(),
    };
    let item = |place: usize| {
        let (input, result) = (items.items[place].to_owned(), came.result(place).map(ToOwned::to_owned));
        Packed { place, key: items.key(place), input, result }
    };
    Ok((0..items.items.len()).filter(|place| !came.moved.has(*place)).map(item).collect())
}

/// How the items of a block ended that has itself ended, but for those that are jobs of their own.
pub(crate) fn ended<T: DeserializeOwned>(
    id: JobId,
    input: &Payload,
    data: Option<&Payload>,
    ended: JobEnd,
    codecs: &Codecs,
) -> Result<Vec<ChildOf<T>>, Failure> {
    let kept = match &ended {
        JobEnd::Done(output) => Some(output),
        _ => data,
    };
    let child = |packed: Packed| {
        let result = match packed.result {
            Some(result) => {
                serde_json::from_str(result.get()).map_err(|source| JobError::Undecodable { id, source })
            }
            None => crate::output::decode_output(id, ended.clone(), codecs),
        };
        ChildOf { id, item: packed.key, result }
    };
    Ok(packed(input, kept, codecs)?.into_iter().map(child).collect())
}

/// The items that have ended well of a block that has not ended.
pub(crate) fn done_so_far<T: DeserializeOwned>(
    id: JobId,
    input: &Payload,
    data: Option<&Payload>,
    codecs: &Codecs,
) -> Result<Vec<ChildOf<T>>, Failure> {
    let child = |packed: Packed| {
        let result = packed.result?;
        let result =
            serde_json::from_str(result.get()).map_err(|source| JobError::Undecodable { id, source });
        Some(ChildOf { id, item: packed.key, result })
    };
    Ok(packed(input, data, codecs)?.into_iter().filter_map(child).collect())
}

/// What the items of a block returned that ended well.
pub(crate) fn results<T: DeserializeOwned>(
    id: JobId,
    output: &Payload,
    codecs: &Codecs,
) -> Result<Vec<T>, Failure> {
    let plain = codecs.decode(output).map_err(Failure::stop)?;
    let came: StoredProgress<'_> = serde_json::from_slice(&plain).map_err(Failure::stop)?;
    let read = |place: usize| {
        let result = came.result(place)?;
        Some(serde_json::from_str(result.get()).map_err(|error| {
            let text = format!(
                "what an item of the block {id} returned does not decode as {} ({error})",
                std::any::type_name::<T>()
            );
            Failure::stop(text).class(class::UNDECODABLE)
        }))
    };
    (0..came.results.len()).filter_map(read).collect()
}

/// What one item returned.
type Returned = Result<Box<RawValue>, Failure>;

/// What has become of an item.
enum ItemOutcome {
    /// It has ended well.
    Returned(Box<RawValue>),
    /// It has failed.
    Failed(Failure),
    /// It takes long, and is not waited for.
    Slow,
}

/// A block that is being run.
struct Running<'a> {
    attempt: Arc<Attempt>,
    bound: Arc<Services>,
    retry: Retry,
    counted: BranchMember,
    items: Arc<Items<'a>>,
    progress: Progress,
    /// Items that have ended well and were not committed.
    fresh: u32,
    /// Jobs that take the place of items, not committed.
    promoted: Vec<NewJob>,
    /// How the items among them were tried here.
    first_attempts: Vec<FirstAttempt>,
    /// How many bytes the results have, and how many they should have at most.
    bytes: usize,
    limit: usize,
    /// When what was done is committed next.
    commit_at: Instant,
}

/// Runs the items of a block.
pub(crate) async fn run<T: Task>(
    attempt: Arc<Attempt>,
    bound: Arc<Services>,
    retry: Retry,
    limit: Option<Duration>,
) -> Result<StepResult, Failure> {
    let job = Arc::clone(&attempt.job);
    let items = Arc::new(Items::read(&job.input.bytes)?);
    let progress: Progress = match &job.data {
        Some(data) => serde_json::from_slice(&data.bytes).map_err(|error| {
            Failure::stop(format!("what was done of the block cannot be read ({error})"))
                .class(class::UNDECODABLE)
        })?,
        None => Progress::default(),
    };
    let Some(counted) = job.branch_member else {
        return Err(
            Failure::stop("a block that belongs to no branch cannot be run").class(class::UNDECODABLE)
        );
    };
    let (fresh, promoted, first_attempts) = (0, Vec::new(), Vec::new());
    let bytes = progress.results.iter().flatten().map(|result| result.get().len()).sum();
    let limit_bytes = self::bytes(&bound);
    let commit_at = bound.env.instant() + COMMIT_INTERVAL;
    let mut running = Running {
        attempt,
        bound,
        retry,
        counted,
        items,
        progress,
        fresh,
        promoted,
        first_attempts,
        bytes,
        limit: limit_bytes,
        commit_at,
    };
    running.progress.results.resize_with(running.items.items.len(), || None);
    let left = running.left();
    if (running.attempt.job.worker_deaths > 0 || running.attempt.job.attempts > 0) && left.len() > 1 {
        running.split(&left);
        return running.end();
    }
    running.run::<T>(left, limit).await
}

impl Running<'_> {
    /// The items of which nothing has become yet.
    fn left(&self) -> Vec<usize> {
        let open = |place: &usize| !self.progress.done.has(*place) && !self.progress.moved.has(*place);
        (0..self.items.items.len()).filter(open).collect()
    }

    async fn run<T: Task>(
        mut self,
        left: Vec<usize>,
        limit: Option<Duration>,
    ) -> Result<StepResult, Failure> {
        let patience = limit.map_or(SLOW_ITEM, |limit| limit.min(SLOW_ITEM));
        // One that is only slower than others of its block has not failed.
        let late = || match limit.filter(|limit| *limit <= SLOW_ITEM) {
            Some(limit) => ItemOutcome::Failed(timed_out(limit)),
            None => ItemOutcome::Slow,
        };
        let mut waiting = FuturesUnordered::new();
        let env = self.bound.env.clone();
        let mut yielded = env.instant();
        for (count, place) in left.iter().copied().enumerate() {
            let item = AssertUnwindSafe(one::<T>(self.cx(place), self.items.items[place]));
            let mut item = Box::pin(item.catch_unwind());
            // One that holds its thread is given up like any other task, and the block is taken apart after that.
            self.attempt.writer.set_poll_deadline(Some(limit.unwrap_or(BLOCKED)));
            let polled = poll_once(&mut item).await;
            self.attempt.writer.set_poll_deadline(None);
            match polled {
                Poll::Ready(came) => self.note_item(place, None, flat(came)),
                Poll::Pending => {
                    let started_at = Some(self.attempt.writer.now());
                    let env = env.clone();
                    waiting.push(async move {
                        match env.timeout(patience, item).await {
                            Ok(came) => (place, started_at, flat(came)),
                            Err(_) => (place, started_at, late()),
                        }
                    })
                }
            }
            while waiting.len() >= WAITING {
                if let Some(turn) = self.next_of(&mut waiting).await? {
                    return Ok(turn);
                }
            }
            if self.bytes > self.limit {
                // What it returns would be too long for one row: the rest is another block.
                while !waiting.is_empty() {
                    if let Some(turn) = self.next_of(&mut waiting).await? {
                        return Ok(turn);
                    }
                }
                self.promote_to_blocks(&left[count + 1..]);
                return self.end();
            }
            if count % TURN == TURN - 1 || env.since(yielded) > HELD {
                tokio::task::yield_now().await;
                yielded = env.instant();
            }
            if self.attempt.is_cancelled() {
                break;
            }
            if let Some(turn) = self.commit_if_due().await? {
                return Ok(turn);
            }
        }
        while !waiting.is_empty() {
            if let Some(turn) = self.next_of(&mut waiting).await? {
                return Ok(turn);
            }
        }
        if self.left().is_empty() {
            return self.end();
        }
        // It is to end before it is through: what was done is kept.
        let over = self.commit().await?;
        Ok(match (over, self.attempt.cancel_requested_by()) {
            (Some(turn), _) => turn,
            (None, Some(by)) => StepResult::Commit { step: None, outcome: Outcome::Cancelled(by.failure()) },
            (None, None) => StepResult::ClaimOver,
        })
    }

    /// Waits for the next item that ends, or until a commit is due, which is made. Answers how the attempt ends, if it does.
    async fn next_of<F>(&mut self, waiting: &mut FuturesUnordered<F>) -> Result<Option<StepResult>, Failure>
    where
        F: Future<Output = (usize, Option<Time>, ItemOutcome)>,
    {
        let left = self.commit_at.saturating_duration_since(self.bound.env.instant());
        let next = self.bound.env.timeout(left, waiting.next()).await;
        if let Ok(Some((place, started_at, came))) = next {
            self.note_item(place, started_at, came);
        }
        self.commit_if_due().await
    }

    fn cx(&self, place: usize) -> TaskCx {
        let (counted, spawn) = (self.counted, self.items.spawn);
        let key = match &self.items.keys {
            Some(keys) => ItemKey::Text(keys.get(place).cloned().unwrap_or_default()),
            None => ItemKey::Number(self.items.first + place as u64),
        };
        TaskCx::item(Arc::clone(&self.attempt), BlockItem { counted, spawn, key })
    }

    /// The id of an item: that of the job that it becomes if it is moved.
    fn id(&self, place: usize) -> JobId {
        JobId::of_item(self.counted.parent, self.counted.branch, self.items.spawn, &self.items.key(place))
    }

    /// An item has ended, or is not waited for any longer. Of one that ended at once nobody has noted when it started.
    fn note_item(&mut self, place: usize, started_at: Option<Time>, came: ItemOutcome) {
        match came {
            // What does not fit is run again as a job of its own, which may keep more.
            ItemOutcome::Returned(result) if self.bytes + result.get().len() > 2 * self.limit => {
                self.promote_item(place);
            }
            ItemOutcome::Returned(result) => {
                self.bytes += result.get().len();
                self.progress.results[place] = Some(result);
                self.progress.done.set(place);
                self.fresh += 1;
            }
            ItemOutcome::Slow => _ = self.promote_item(place),
            ItemOutcome::Failed(failure) => {
                let started_at = started_at.unwrap_or_else(|| self.attempt.writer.now());
                let outcome = match self.attempt.cancel_requested_by() {
                    // Whatever it says: it is not tried again.
                    Some(by) => Outcome::Cancelled(by.failure()),
                    None => self.retry.outcome(failure, &[], self.attempt.writer.random()),
                };
                let job = self.promote_item(place);
                self.first_attempts.push(FirstAttempt { job, started_at, outcome });
            }
        }
    }

    /// An item becomes a job of its own.
    fn promote_item(&mut self, place: usize) -> JobId {
        let (id, twig) = (self.id(place), self.position(place, 1));
        let input = Payload::json(self.items.items[place].get().as_bytes().to_vec());
        self.promoted.push(self.job(id, twig, input));
        self.progress.moved.set(place);
        id
    }

    fn position(&self, place: usize, items: u32) -> BranchPosition {
        let (branch, spawn) = (self.counted.branch, self.items.spawn);
        BranchPosition { branch, spawn, item: self.items.key(place), items }
    }

    fn job(&self, id: JobId, twig: BranchPosition, input: Payload) -> NewJob {
        let kind = &self.attempt.job.kind;
        let job = NewJob::new(id, &kind.kind, self.attempt.writer.queue(), input);
        NewJob { kind: kind.clone(), branch_position: Some(Box::new(twig)), ..job }
    }

    /// Items become blocks of their own.
    fn promote_to_blocks(&mut self, places: &[usize]) {
        let [first, ..] = places else { return };
        let items: Vec<&RawValue> = places.iter().map(|place| self.items.items[*place]).collect();
        let keys = places.iter().map(|place| self.items.key(*place)).collect();
        let twig = self.position(*first, items.len() as u32);
        let items = Items { spawn: twig.spawn, first: 0, items, keys: Some(keys) };
        let input = Payload::json(serde_json::to_vec(&items).unwrap_or_default());
        let job = self.job(self.bound.ids.job(), twig, input);
        self.promoted.push(NewJob { stage: Some(BLOCK.into()), ..job });
        places.iter().for_each(|place| self.progress.moved.set(*place));
    }

    /// Workers died with this block, and with it alone: the item that kills them is looked for.
    fn split(&mut self, left: &[usize]) {
        for part in left.chunks(left.len().div_ceil(PARTS)) {
            self.promote_to_blocks(part);
        }
    }

    /// Commits what was done so far, if the last commit was long enough ago.
    async fn commit_if_due(&mut self) -> Result<Option<StepResult>, Failure> {
        if self.commit_at <= self.bound.env.instant() { self.commit().await } else { Ok(None) }
    }

    /// Commits what was done so far. Answers how the attempt ends, if it does.
    async fn commit(&mut self) -> Result<Option<StepResult>, Failure> {
        self.commit_at = self.bound.env.instant() + COMMIT_INTERVAL;
        if self.fresh == 0 && self.promoted.is_empty() {
            return Ok(None);
        }
        let data = self.encode(serde_json::to_vec(&self.progress).unwrap_or_default())?;
        let step = Step {
            stage: Some((BLOCK.into(), data)),
            items: std::mem::take(&mut self.fresh),
            promoted: self.encoded()?,
            first_attempts: std::mem::take(&mut self.first_attempts),
            ..Step::default()
        };
        Ok(match StepWriter::commit_detached(&self.attempt, step).await {
            Verdict::Committed => None,
            Verdict::Halted => Some(StepResult::Halted),
            Verdict::Fenced => Some(StepResult::ClaimOver),
            Verdict::Refused(_) if self.attempt.writer.is_closed() => Some(StepResult::ClaimOver),
            Verdict::Refused(why) => return Err(Failure::stop(why).class(class::REFUSED)),
        })
    }

    /// All items are accounted for.
    fn end(mut self) -> Result<StepResult, Failure> {
        let output = self.encode(serde_json::to_vec(&self.progress).unwrap_or_default())?;
        let first_attempts = std::mem::take(&mut self.first_attempts);
        let step = Step { promoted: self.encoded()?, first_attempts, ..Step::default() };
        let step = (!step.promoted.is_empty()).then(|| Box::new(step));
        Ok(StepResult::Commit { step, outcome: Outcome::Done(output) })
    }

    fn encode(&self, plain: Vec<u8>) -> Result<Payload, Failure> {
        self.bound.codecs.encode(plain).map_err(|error| Failure::stop(error).class(class::REFUSED))
    }

    fn encoded(&mut self) -> Result<Vec<NewJob>, Failure> {
        let encode = |job| {
            let encoded = self.bound.codecs.encoded(job);
            encoded.map_err(|error| Failure::stop(error).class(class::REFUSED))
        };
        std::mem::take(&mut self.promoted).into_iter().map(encode).collect()
    }
}

/// Runs one item.
async fn one<T: Task>(cx: TaskCx, input: &RawValue) -> Returned {
    let task: T = serde_json::from_str(input.get()).map_err(|error| {
        Failure::stop(format!("the input does not decode as {:?} ({error})", T::KIND))
            .class(class::UNDECODABLE)
    })?;
    let output = task.run(&cx).await.map_err(Into::into)?;
    serde_json::value::to_raw_value(&output).map_err(Failure::stop)
}

/// Polls something once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(future.poll_unpin(cx))).await
}

fn flat(came: Result<Returned, Box<dyn std::any::Any + Send>>) -> ItemOutcome {
    match came {
        Ok(Ok(result)) => ItemOutcome::Returned(result),
        Ok(Err(failure)) => ItemOutcome::Failed(failure),
        Err(panic) => {
            ItemOutcome::Failed(Failure::retry(crate::workflow::panic_text(&*panic)).class(class::PANIC))
        }
    }
}

/// The item took longer than its task may.
fn timed_out(limit: Duration) -> Failure {
    Failure::retry(format!("the attempt ran longer than {limit:?}")).class(class::TIMEOUT)
}
