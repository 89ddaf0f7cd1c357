//! What rules are evaluated against: read at one time, by a few statements that read sums, queues and lists of bounded length.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use windlass_model::{JobId, Time};
use windlass_store::{BranchHealth, Error, Miss, QueueView, ThroughputBy, ThroughputFilter, WorkerView};

use super::{Rule, evaluate::branch_subject, rule::Condition};
use crate::Operator;

/// How often branches and schedules are read: their rules are about minutes and hours.
const SELDOM: Duration = Duration::from_secs(60);
/// Sums of a span are read again after this part of it: those of a day are thousands of rows.
const PART_OF_SPAN: u32 = 240;
/// Passes begin a little early and a little late.
const TOLERANCE: Duration = Duration::from_secs(2);
/// A minute in microseconds.
const MINUTE: i64 = 60_000_000;
/// How many branches are read, as by the doctor.
const MAX_BRANCHES: usize = 10_000;
/// For how many branches it is looked up when a child ended last, when an evaluator starts: two statements each.
const MAX_LOOKUPS: usize = 50;

/// What is known of a store at one time, as far as rules ask for it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// The store's clock.
    pub now: Time,
    /// The queues.
    pub queues: Vec<QueueView>,
    /// What ended within each span that a rule counts in.
    pub ended: Vec<(Duration, Vec<EndedOfKind>)>,
    /// Branches that their jobs wait for.
    pub branches: Vec<ObservedBranch>,
    /// The schedules.
    pub schedules: Vec<ObservedSchedule>,
    /// The workers, lost ones included.
    pub workers: Vec<WorkerView>,
}

/// What ended of a kind in a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndedOfKind {
    /// The queue.
    pub queue: String,
    /// The kind.
    pub kind: String,
    /// How many jobs are done.
    pub done: u64,
    /// How many failed.
    pub failed: u64,
    /// How many attempts failed and were followed by another one.
    pub retried: u64,
}

/// A branch that its job waits for.
#[derive(Clone, PartialEq, Debug)]
pub struct ObservedBranch {
    /// The branch.
    pub branch: BranchHealth,
    /// Since when no child has ended, as far as that is known.
    pub idle_since: Time,
}

/// A schedule, and what it missed.
#[derive(Clone, PartialEq, Debug)]
pub struct ObservedSchedule {
    /// Its name.
    pub name: String,
    /// When it fires next, unless it is paused.
    pub next_at: Option<Time>,
    /// What it missed last because no worker was running.
    pub missed: Option<Miss>,
}

/// Reads snapshots. Keeps what need not be read every time, and how far branches were.
#[derive(Default)]
pub(super) struct SnapshotReader {
    ended: HashMap<Duration, CachedRead<Vec<EndedOfKind>>>,
    branches: Option<CachedRead<Vec<ObservedBranch>>>,
    schedules: Option<CachedRead<Vec<ObservedSchedule>>>,
    /// How many children of each branch had ended, and since when.
    progress: HashMap<(JobId, String), (i64, Time)>,
}

/// What was read at a time.
struct CachedRead<T> {
    value: T,
    read_at: Time,
}

impl<T> CachedRead<T> {
    fn is_fresh(&self, now: Time, every: Duration) -> bool {
        // A clock that was set back makes it old too.
        self.read_at <= now && now - self.read_at + TOLERANCE < every
    }
}

impl SnapshotReader {
    /// Reads what the rules ask for. `open_branches` are the subjects of open alerts about branches.
    pub(super) async fn read(
        &mut self,
        operator: &Operator,
        rules: &[Rule],
        open_branches: &HashSet<String>,
    ) -> Result<Snapshot, Error> {
        let inspect = operator.inspect();
        let now = inspect.clock().await?;
        let mut snapshot = Snapshot { now, ..Snapshot::default() };
        let asks = |is_asked: fn(&Condition) -> bool| rules.iter().any(|rule| is_asked(&rule.when));
        if asks(|when| matches!(when, Condition::OldestReady { .. } | Condition::QueuePaused { .. })) {
            snapshot.queues = inspect.queues().await?;
        }
        if asks(|when| matches!(when, Condition::WorkerLost { .. })) {
            snapshot.workers = inspect.workers().await?;
        }
        let spans: BTreeSet<Duration> = rules.iter().filter_map(|rule| rule.when.counts_within()).collect();
        for span in spans {
            snapshot.ended.push((span, self.ended(operator, span, now).await?));
        }
        if asks(|when| matches!(when, Condition::StuckBranch { .. })) {
            snapshot.branches = self.branches(operator, now, open_branches).await?;
        }
        if asks(|when| matches!(when, Condition::ScheduleMissed { .. })) {
            snapshot.schedules = self.schedules(operator, now).await?;
        }
        Ok(snapshot)
    }

    async fn ended(
        &mut self,
        operator: &Operator,
        span: Duration,
        now: Time,
    ) -> Result<Vec<EndedOfKind>, Error> {
        if let Some(kept) = self.ended.get(&span).filter(|kept| kept.is_fresh(now, span / PART_OF_SPAN)) {
            return Ok(kept.value.clone());
        }
        let filter = ThroughputFilter {
            queues: Vec::new(),
            kinds: Vec::new(),
            // The whole minute in which the span begins: sums are per minute.
            from: Time((now - span).micros().div_euclid(MINUTE) * MINUTE),
            // The minute that has begun too.
            until: now + Duration::from_micros(1),
            by: ThroughputBy::Kind,
        };
        let rows = operator.inspect().throughput(&filter).await?.into_iter().map(|row| {
            let (queue, kind) = row.queue_and_kind.unwrap_or_default();
            let ended = row.ended;
            EndedOfKind { queue, kind, done: ended.done, failed: ended.failed, retried: ended.retried }
        });
        let value: Vec<EndedOfKind> = rows.collect();
        self.ended.insert(span, CachedRead { value: value.clone(), read_at: now });
        Ok(value)
    }

    async fn schedules(&mut self, operator: &Operator, now: Time) -> Result<Vec<ObservedSchedule>, Error> {
        if let Some(kept) = self.schedules.as_ref().filter(|kept| kept.is_fresh(now, SELDOM)) {
            return Ok(kept.value.clone());
        }
        let schedules = operator.inspect().schedules().await?;
        let mut misses: HashMap<String, Miss> = match schedules.is_empty() {
            true => HashMap::new(),
            false => operator.store().latest_misses().await?.into_iter().collect(),
        };
        let seen = |view: windlass_store::ScheduleView| {
            let name = view.schedule.name;
            ObservedSchedule { missed: misses.remove(&name), next_at: view.next_at, name }
        };
        let value: Vec<ObservedSchedule> = schedules.into_iter().map(seen).collect();
        self.schedules = Some(CachedRead { value: value.clone(), read_at: now });
        Ok(value)
    }

    async fn branches(
        &mut self,
        operator: &Operator,
        now: Time,
        open: &HashSet<String>,
    ) -> Result<Vec<ObservedBranch>, Error> {
        if let Some(kept) = self.branches.as_ref().filter(|kept| kept.is_fresh(now, SELDOM)) {
            return Ok(kept.value.clone());
        }
        let is_first = self.branches.is_none();
        let mut awaited = operator.store().diagnose().awaited_branches(MAX_BRANCHES).await?;
        // Those that there is an alert about come first: it must not be resolved because nobody knows how far the branch was.
        awaited.sort_by_key(|branch| !open.contains(&branch_subject(branch)));
        let mut lookups = 0;
        let mut progress = HashMap::new();
        let mut value = Vec::with_capacity(awaited.len());
        for branch in awaited {
            let (key, ended) = ((branch.job, branch.name.clone()), branch.counts.ended());
            let idle_since = match self.progress.get(&key) {
                Some((before, since)) if *before == ended => *since,
                Some(_) => now,
                None if is_first && lookups < MAX_LOOKUPS => {
                    lookups += 1;
                    last_end(operator, &branch).await?.unwrap_or(now)
                }
                None => now,
            };
            progress.insert(key, (ended, idle_since));
            value.push(ObservedBranch { branch, idle_since });
        }
        self.progress = progress;
        self.branches = Some(CachedRead { value: value.clone(), read_at: now });
        Ok(value)
    }
}

/// When a child of a branch ended last, or when the branch was opened if none has; `None` if the branch is gone.
async fn last_end(operator: &Operator, branch: &BranchHealth) -> Result<Option<Time>, Error> {
    let inspect = operator.inspect();
    let branches = inspect.branches(branch.job).await?;
    let Some(opened) = branches.into_iter().rev().find(|opened| opened.name == branch.name) else {
        return Ok(None);
    };
    let times = inspect.branch_times(branch.job).await?;
    let last =
        times.into_iter().find(|times| times.branch == opened.number).and_then(|times| times.last_end_at);
    Ok(Some(last.unwrap_or(opened.opened_at)))
}
