//! Spawning: makes children from sources, chunk by chunk, ahead of the commits.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use windlass_env::JoinHandle;
use windlass_model::{
    BranchNo, BranchPosition, Failure, JobId, NewJob, Payload, Time, When,
    branch::{MAX_SPAWNS, check_branch},
    failure::class,
};

use super::{
    block,
    source::{PreviousItem, STORE, Source, SourceItem, SourceReader, SourceStart},
};
use crate::{
    Child, Kind,
    machine::Services,
    store_retry::{self, retry_unavailable},
    workflow::PartError,
};

/// How many children are committed at once by default.
const CHUNK: usize = 1_000;
/// The lowest accepted rate: one child in about eleven days.
const MIN_PER_SECOND: f64 = 1e-6;
/// About how many bytes of inputs are committed at once.
const CHUNK_BYTES: usize = 4 << 20;
/// The number of children in the first chunk, while their size is unknown.
const FIRST_CHUNK: usize = 250;

/// What can be spawned: a job of any kind, a [`Child`] with settings of its own, or a `Result` of either.
pub trait IntoChild<M> {
    /// The child.
    #[doc(hidden)]
    fn into_child(self) -> Result<Child, Failure>;
}

/// Marks [`IntoChild`]ren that are a [`Child`].
pub struct AsChild;
/// Marks [`IntoChild`]ren that are a `Result`.
pub struct AsResult;

impl<J: Kind<M>, M> IntoChild<(M,)> for J {
    fn into_child(self) -> Result<Child, Failure> {
        Ok(Child::new(self))
    }
}

impl IntoChild<AsChild> for Child {
    fn into_child(self) -> Result<Child, Failure> {
        Ok(self)
    }
}

impl<C: IntoChild<M>, E: Into<Failure>, M> IntoChild<(M, AsResult)> for Result<C, E> {
    fn into_child(self) -> Result<Child, Failure> {
        self.map_err(Into::into)?.into_child()
    }
}

/// The spawns of a branch and their settings.
pub(crate) struct Plan {
    pub(crate) name: String,
    spawns: Vec<Spawn>,
    pub(crate) chunk: usize,
    pub(crate) in_flight: Option<u64>,
    pub(crate) per_second: Option<f64>,
    pub(crate) packed: bool,
}

struct Spawn {
    name: String,
    open: OpenReader,
}

type OpenReader = Box<dyn FnOnce(SourceStart) -> Box<dyn ChildReader> + Send>;
type ReadFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A source of children that is being read, whatever its type.
trait ChildReader: Send {
    fn next(&mut self, limit: usize) -> ReadFuture<'_, Vec<SourceItem<Child>>>;
    fn last(&mut self) -> ReadFuture<'_, PreviousItem<Child>>;
}

struct MappedReader<R, F> {
    reader: R,
    make: F,
}

impl<R, F> ChildReader for MappedReader<R, F>
where
    R: SourceReader,
    F: FnMut(R::Item) -> Result<Child, Failure> + Send,
{
    fn next(&mut self, limit: usize) -> ReadFuture<'_, Vec<SourceItem<Child>>> {
        Box::pin(async move {
            let items = self.reader.next(limit).await?;
            let make = |SourceItem { key, after, item }: SourceItem<R::Item>| {
                Ok(SourceItem { key, after, item: (self.make)(item)? })
            };
            items.into_iter().map(make).collect()
        })
    }

    fn last(&mut self) -> ReadFuture<'_, PreviousItem<Child>> {
        Box::pin(async move {
            Ok(match self.reader.last().await? {
                PreviousItem::Keyed => PreviousItem::Keyed,
                PreviousItem::Ended(n) => PreviousItem::Ended(n),
                PreviousItem::Item(item) => PreviousItem::Item((self.make)(item)?),
            })
        })
    }
}

/// The position of the sources of a branch, committed with each chunk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Cursor {
    /// The index of the spawn that is being read.
    spawn: usize,
    /// The number of its items that were spawned.
    n: u64,
    /// The key of the last one, as the store compares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// The digest of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    /// When the first child of the branch starts, if the branch has a rate: later ones, also after a crash, count from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<Time>,
}

/// What is committed next for a branch.
pub(crate) enum Chunk {
    /// More children, and the position of the sources after them.
    Chunk {
        children: Vec<NewJob>,
        /// The names of all spawns; only in the first chunk of an attempt.
        spawns: Option<Vec<String>>,
        /// The position, encoded.
        cursor: Payload,
    },
    /// All children were spawned: the branch is sealed.
    Sealed,
}

impl Plan {
    pub(crate) fn new(name: &str) -> Plan {
        let (chunk, in_flight, per_second) = (CHUNK, None, None);
        Plan { name: name.to_owned(), spawns: Vec::new(), chunk, in_flight, per_second, packed: false }
    }

    pub(crate) fn spawn_each<S, F, C, M>(&mut self, name: &str, source: S, mut make: F)
    where
        S: Source,
        F: FnMut(S::Item) -> C + Send + 'static,
        C: IntoChild<M>,
    {
        let open: OpenReader = Box::new(move |from| {
            Box::new(MappedReader { reader: source.open(from), make: move |item| make(item).into_child() })
        });
        self.spawns.push(Spawn { name: name.to_owned(), open });
    }

    pub(crate) fn spawn(&mut self, name: &str, child: Result<Child, Failure>) {
        let open: OpenReader =
            Box::new(move |from| Box::new(SingleChild { child: Some(child), spawned: from.n > 0 }));
        self.spawns.push(Spawn { name: name.to_owned(), open });
    }

    /// Checks it.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_branch("branch", &self.name).map_err(|error| error.to_string())?;
        if self.spawns.len() > MAX_SPAWNS {
            return Err(format!(
                "the branch {:?} has {} spawns, more than the {MAX_SPAWNS} allowed; use `spawn_each` for many children of one kind",
                self.name,
                self.spawns.len()
            ));
        }
        for (index, spawn) in self.spawns.iter().enumerate() {
            check_branch("spawn", &spawn.name).map_err(|error| error.to_string())?;
            if self.spawns[..index].iter().any(|before| before.name == spawn.name) {
                return Err(format!(
                    "the branch {:?} has two spawns {:?}; children are known by the name of their spawn, so each needs its own",
                    self.name, spawn.name
                ));
            }
        }
        if self.chunk == 0 || self.chunk > windlass_model::limits::MAX_CHILDREN {
            return Err(format!(
                "the chunks of branch {:?} are of {} children; use 1 to {}",
                self.name,
                self.chunk,
                windlass_model::limits::MAX_CHILDREN
            ));
        }
        let too_slow = |rate: f64| !(rate >= MIN_PER_SECOND && rate.is_finite());
        if self.in_flight == Some(0) || self.per_second.is_some_and(too_slow) {
            return Err(format!(
                "the limit of branch {:?} is zero, or too small to ever start its children; use a larger one",
                self.name
            ));
        }
        Ok(())
    }

    /// Returns how many children are committed at once.
    fn chunk(&self) -> usize {
        let room = self.in_flight.map_or(u64::MAX, |limit| limit.div_ceil(2));
        self.chunk.min(usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// Starts to read the sources in a task of their own, so that the next chunk is ready when one is committed. `number` is
    /// that of the branch if it was opened before.
    pub(crate) fn start(self, services: Arc<Services>, job: JobId, number: Option<BranchNo>) -> ChunkStream {
        // One chunk is committed, one waits here, and the next is being made.
        let (sender, chunks) = mpsc::channel(1);
        let (store, env) = (Arc::clone(&services.store), services.env.clone());
        let skipped: Arc<OnceLock<Duration>> = Arc::default();
        let producer = Producer { plan: self, services, job, number, sender, skipped: Arc::clone(&skipped) };
        let work = STORE.scope(store, async move {
            let sender = producer.sender.clone();
            if let Err(failure) = producer.run().await {
                let _ = sender.send(Err(failure)).await;
            }
        });
        ChunkStream { chunks, task: env.spawn(store_retry::inherit_attempt(work)), skipped }
    }
}

/// A spawn of one child.
struct SingleChild {
    child: Option<Result<Child, Failure>>,
    spawned: bool,
}

impl ChildReader for SingleChild {
    fn next(&mut self, _most: usize) -> ReadFuture<'_, Vec<SourceItem<Child>>> {
        let child = self.child.take().filter(|_| !self.spawned);
        let keyed = |item: Child| SourceItem { key: Some(String::new()), after: None, item };
        Box::pin(std::future::ready(child.into_iter().map(|child| child.map(keyed)).collect()))
    }

    fn last(&mut self) -> ReadFuture<'_, PreviousItem<Child>> {
        let last = match self.child.take() {
            Some(child) => child.map(PreviousItem::Item),
            None => Ok(PreviousItem::Ended(0)),
        };
        Box::pin(std::future::ready(last))
    }
}

/// The chunks of a branch, made by a task of their own.
pub(crate) struct ChunkStream {
    chunks: mpsc::Receiver<Result<Chunk, PartError>>,
    task: JoinHandle<()>,
    skipped: Arc<OnceLock<Duration>>,
}

impl ChunkStream {
    /// How long it took to skip the sources forward to their position.
    pub(crate) fn skipped(&self) -> Duration {
        self.skipped.get().copied().unwrap_or_default()
    }

    /// Returns what is committed next.
    pub(crate) async fn next(&mut self) -> Result<Chunk, PartError> {
        match self.chunks.recv().await {
            Some(chunk) => chunk,
            None => Err(match (&mut self.task).await {
                Err(error) if error.is_panic() => {
                    let mut failure = Failure::of_panic(&*error.into_panic());
                    failure.message.insert_str(0, "a source of the branch panicked: ");
                    PartError::Failed(failure.without_retry())
                }
                _ => PartError::Unread(
                    Failure::retry("reading the sources of the branch was aborted").class(class::STORE),
                ),
            }),
        }
    }
}

impl Drop for ChunkStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Producer {
    plan: Plan,
    services: Arc<Services>,
    job: JobId,
    number: Option<BranchNo>,
    sender: mpsc::Sender<Result<Chunk, PartError>>,
    skipped: Arc<OnceLock<Duration>>,
}

impl Producer {
    async fn run(mut self) -> Result<(), PartError> {
        let (store, services) = (Arc::clone(&self.services.store), Arc::clone(&self.services));
        let branch = self.plan.name.clone();
        let mut before = Vec::new();
        let (mut cursor, mut spawned, mut opened_at) = (Cursor::default(), 0, None);
        if let Some(number) = self.number {
            let branches =
                retry_unavailable!(store.inspect().branches(self.job)).map_err(PartError::of_engine)?;
            if let Some(branch) = branches.into_iter().find(|branch| branch.number == number) {
                if branch.sealed {
                    // The branch was merged although it was only partly filled.
                    let _ = self.sender.send(Ok(Chunk::Sealed)).await;
                    return Ok(());
                }
                before = branch.spawns;
                (spawned, opened_at) = (branch.spawned as u64, Some(branch.opened_at));
                if let Some(encoded) = &branch.cursor {
                    let unreadable = |error: &dyn std::fmt::Display| {
                        Failure::stop(format!("the position of the branch cannot be read ({error})"))
                    };
                    let plain = services.codecs.decode(encoded).map_err(|error| unreadable(&error))?;
                    cursor = serde_json::from_slice(&plain).map_err(|error| unreadable(&error))?;
                }
            }
        }
        let names: Vec<String> = self.plan.spawns.iter().map(|spawn| spawn.name.clone()).collect();
        let begun = before.iter().take(cursor.spawn + 1);
        if !before.is_empty() && !begun.eq(names.iter().take(cursor.spawn + 1)) {
            let text = format!(
                "the spawns of branch {branch:?} have changed while it was filled\n  recorded:  {}\n  attempted: {}\n\
                 Leave those that have begun as they are until it is sealed; new ones go behind them.",
                before.join(", "),
                names.join(", ")
            );
            return Err(diverged(text));
        }
        let mut announced = Some(names);
        let started = match cursor.started.or(opened_at) {
            Some(at) => at,
            None => retry_unavailable!(store.inspect().clock()).map_err(PartError::of_engine)?,
        };
        cursor.started = self.plan.per_second.map(|_| started);
        let spawns = std::mem::take(&mut self.plan.spawns);
        let mut fits = FIRST_CHUNK;
        for (index, spawn) in spawns.into_iter().enumerate().skip(cursor.spawn) {
            if index > cursor.spawn {
                cursor = Cursor { spawn: index, started: cursor.started, ..Cursor::default() };
            }
            let mut reader = (spawn.open)(SourceStart { n: cursor.n, after: cursor.after.clone() });
            if cursor.n > 0 {
                let since = services.env.instant();
                check_resumed(&services, &branch, &mut *reader, &cursor, &spawn.name).await?;
                let _ = self.skipped.set(services.env.since(since));
            }
            loop {
                let limit = self.plan.chunk().min(fits);
                let items = reader.next(limit).await?;
                let ended = items.len() < limit;
                if !items.is_empty() {
                    let children = match self.plan.packed {
                        true => self.blocks(index, &mut cursor, items, spawned, started)?,
                        false => self.children(index, &mut cursor, items, spawned, started)?,
                    };
                    let bytes: usize = children.iter().map(|child| child.input.bytes.len()).sum();
                    let items: u64 = children.iter().map(|child| u64::from(items_of(child))).sum();
                    // The next chunk is made as long as this one's average input allows.
                    fits =
                        CHUNK_BYTES.checked_div(bytes / items.max(1) as usize).unwrap_or(usize::MAX).max(1);
                    spawned += items;
                    let encoded = serde_json::to_vec(&cursor).unwrap_or_default();
                    let encoded = services.codecs.encode(encoded).map_err(refused)?;
                    let chunk = Chunk::Chunk { children, spawns: announced.take(), cursor: encoded };
                    if self.sender.send(Ok(chunk)).await.is_err() {
                        return Ok(());
                    }
                }
                if ended {
                    break;
                }
            }
        }
        let _ = self.sender.send(Ok(Chunk::Sealed)).await;
        Ok(())
    }

    /// Makes the next children.
    fn children(
        &self,
        spawn: usize,
        cursor: &mut Cursor,
        items: Vec<SourceItem<Child>>,
        spawned: u64,
        started: Time,
    ) -> Result<Vec<NewJob>, Failure> {
        let mut jobs: Vec<NewJob> = Vec::with_capacity(items.len());
        let mut last = None;
        for SourceItem { key, after, item } in items {
            self.check_repeated_key(cursor, key.as_deref(), after.as_deref())?;
            let mut job = item.into_job(self.services.ids.job()).map_err(refused)?;
            if job.when == When::Now {
                job.when = self.when(spawned + jobs.len() as u64, started);
            }
            let item = key.unwrap_or_else(|| cursor.n.to_string());
            (cursor.n, cursor.after, last) = (cursor.n + 1, after, Some(job.digest));
            let branch = BranchNo(0);
            job.branch_position =
                Some(Box::new(BranchPosition { branch, spawn: spawn as i16, item, items: 1 }));
            self.services
                .store
                .limits()
                .check_payload("input of a child", &job.input.bytes)
                .map_err(refused)?;
            jobs.push(self.services.codecs.encoded(job).map_err(refused)?);
        }
        cursor.last = last.as_ref().map(hex);
        Ok(jobs)
    }

    /// Makes the next children, packed into blocks.
    fn blocks(
        &self,
        spawn: usize,
        cursor: &mut Cursor,
        items: Vec<SourceItem<Child>>,
        spawned: u64,
        started: Time,
    ) -> Result<Vec<NewJob>, Failure> {
        let limit = block::max_bytes(&self.services);
        let mut packer = block::Packer::new(spawn as i16, self.when(spawned, started), limit);
        for SourceItem { key, after, item } in items {
            self.check_repeated_key(cursor, key.as_deref(), after.as_deref())?;
            let item = item.into_item().map_err(|child| block::unpackable(child.kind()))?;
            packer.push(item, key, cursor.n, &self.services.ids).map_err(refused)?;
            (cursor.n, cursor.after) = (cursor.n + 1, after);
        }
        cursor.last = packer.last_digest().as_ref().map(hex);
        let blocks = packer.finish(&self.services.ids).into_iter();
        blocks.map(|job| self.services.codecs.encoded(job).map_err(refused)).collect()
    }

    /// Returns when a child starts, by the number of children that were spawned before it.
    fn when(&self, spawned: u64, started: Time) -> When {
        match self.plan.per_second {
            Some(rate) => When::At(started + Duration::from_secs_f64(spawned as f64 / rate)),
            None => When::Now,
        }
    }

    /// Refuses a key that equals the one before it.
    fn check_repeated_key(
        &self,
        cursor: &Cursor,
        key: Option<&str>,
        after: Option<&str>,
    ) -> Result<(), Failure> {
        if after.is_none() || after != cursor.after.as_deref() {
            return Ok(());
        }
        let (name, key) = (&self.plan.name, key.unwrap_or_default());
        let text =
            format!("the source of branch {name:?} yields the key {key} twice; its key must be unique");
        Err(Failure::stop(text).class(class::REFUSED))
    }
}

/// Checks that a source that is read again yields the same item at the position where reading continues.
async fn check_resumed(
    services: &Services,
    branch: &str,
    reader: &mut dyn ChildReader,
    cursor: &Cursor,
    spawn: &str,
) -> Result<(), PartError> {
    let changed = |what: String| {
        diverged(format!(
            "the source of {spawn:?} in the branch {:?} yields other items than before: {what}. {} of its items were spawned \
             before; a source must yield the same items in the same order until its branch is sealed: make it in a step, \
             or read rows by their key",
            branch, cursor.n
        ))
    };
    match reader.last().await? {
        PreviousItem::Keyed => Ok(()),
        PreviousItem::Ended(n) => Err(changed(format!("now it ends after {n} items"))),
        PreviousItem::Item(child) => {
            let job = child.into_job(services.ids.job()).map_err(refused)?;
            match &cursor.last {
                Some(last) if *last != hex(&job.digest) => {
                    Err(changed(format!("item {} is another one now", cursor.n - 1)))
                }
                _ => Ok(()),
            }
        }
    }
}

pub(crate) fn items_of(job: &NewJob) -> u32 {
    job.branch_position.as_ref().map_or(1, |position| position.items)
}

fn hex(digest: &[u8; 16]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The error for code that does not match what was spawned before.
fn diverged(text: String) -> PartError {
    PartError::Diverged(Failure::stop(text).class(class::DIVERGED))
}

fn refused(why: impl std::fmt::Display) -> Failure {
    Failure::stop(why).class(class::REFUSED)
}
