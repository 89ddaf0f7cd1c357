//! What steps do to branches of their jobs: open them, spawn children in them, seal, watch and merge them.
//!
//! Children of branches are inserted by one statement for all of them, which writes no row of their parents.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::join5;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{
    BranchNo, BranchUpdate, Change, JobId, NewJob, StepWrites, Time, branch::items_refusal,
};

use super::{
    Postgres, SPAN,
    branch::BranchKey,
    change_params::Param,
    errors::PgError,
    job_params::{BranchColumns, Rows},
    micros, span, sql,
    submit::lower_floors,
    tx::{Executor, Tx},
};
use crate::{Error, Now, columns};

/// The statements that [`read_sealed`] and [`apply`] send.
const STATEMENTS: [&str; 5] = [
    sql::branches::READ_SEALED,
    sql::branches::OPEN,
    sql::branches::UPDATE,
    sql::branches::COUNT_ITEMS,
    sql::submit::INSERT_BRANCH_CHILDREN,
];

/// The branches that exist, and whether they are sealed.
type Sealed = HashMap<(JobId, BranchNo), bool>;

/// Whether a change does anything to branches of its job, or to the block that its job is.
pub(super) fn updates_branches(change: &Change) -> bool {
    change.writes.as_ref().is_some_and(|step| {
        let spawns = || step.children.iter().any(|child| child.branch_position.is_some());
        !step.branches.is_empty() || step.accounts_for_items() || spawns()
    })
}

/// The branches that changes name.
fn branches_of<'a>(changes: impl Iterator<Item = &'a Change>) -> Vec<BranchKey> {
    let mut keys = Vec::new();
    for change in changes {
        let numbers = change.writes.as_ref().map(|step| step.named_branches()).unwrap_or_default();
        keys.extend(numbers.into_iter().map(|number| (change.job.0, number.0)));
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Reads the branches that changes name. Sent after the changes are written, and so after their jobs are locked.
pub(super) async fn read_sealed<'a>(
    tx: &Tx<'_>,
    changes: impl Iterator<Item = &'a Change>,
) -> Result<Sealed, PgError> {
    let branches = branches_of(changes);
    if branches.is_empty() {
        return Ok(Sealed::new());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = branches.into_iter().unzip();
    let rows = tx.query(sql::branches::READ_SEALED, &[&jobs, &numbers]).await?;
    let branch = |row: &Row| ((JobId(row.get(0)), BranchNo(row.get(1))), row.get(2));
    Ok(rows.iter().map(branch).collect())
}

/// Prepares what [`read_sealed`] and [`apply`] send.
pub(super) async fn prepare(executor: Executor<'_>) -> Result<(), PgError> {
    for sql in STATEMENTS {
        executor.prepare(sql).await?;
    }
    Ok(())
}

/// Writes what changes, which are written, do to branches. With `unordered`, also inserts those of their children that need only
/// a row and a placement. One round trip, or two with first attempts.
pub(super) async fn apply(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Now,
    changes: &[&Change],
    sealed: &Sealed,
    unordered: bool,
) -> Result<(), PgError> {
    for change in changes {
        let is_sealed = |number| sealed.get(&(change.job, number)).copied();
        if let Some(why) = change.writes.as_ref().and_then(|step| step.branch_refusal(is_sealed)) {
            return Err(Error::Refused(why).into());
        }
    }
    let writes = BranchWrites::of(changes, unordered);
    for (branch, merged) in &writes.updates {
        if merged.update.watch.is_some() {
            tx.check_watch(*branch);
        }
    }
    // Polled, and so sent, in this order: a branch exists before its children.
    let (opened, updated, counted, children, promoted) = join5(
        open(tx, now, &writes.updates),
        update(tx, now, &writes.updates),
        count_items(tx, &writes.blocks),
        insert(store, tx, now, writes.children, ChildKind::Spawned),
        insert(store, tx, now, writes.promoted, ChildKind::Promoted),
    )
    .await;
    opened.and(updated).and(counted).and(children).and(promoted)?;
    insert(store, tx, now, writes.attempted, ChildKind::Attempted).await
}

/// How children of a branch are inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChildKind {
    /// They are counted as spawned.
    Spawned,
    /// They replace items of a block, which were counted before.
    Promoted,
    /// The same, but they get no placement: the outcome of their first attempt is written next.
    Attempted,
}

/// What changes write to branches.
#[derive(Default)]
struct BranchWrites<'a> {
    updates: BTreeMap<BranchKey, MergedUpdate>,
    blocks: Blocks,
    /// Children that are inserted here, with their parents.
    children: Vec<(Uuid, &'a NewJob)>,
    /// Children that replace items of a block.
    promoted: Vec<(Uuid, &'a NewJob)>,
    /// Those of them that had an attempt in the block.
    attempted: Vec<(Uuid, &'a NewJob)>,
}

impl<'a> BranchWrites<'a> {
    fn of(changes: &[&'a Change], unordered: bool) -> BranchWrites<'a> {
        let mut writes = BranchWrites::default();
        for change in changes {
            if let Some(step) = change.writes.as_deref() {
                writes.add(change, step, unordered);
            }
        }
        writes
    }

    fn add(&mut self, change: &Change, step: &'a StepWrites, unordered: bool) {
        for update in &step.branches {
            let merged = self.updates.entry((change.job.0, update.number.0));
            merged.or_default().add(update);
        }
        let plain = |job: &&NewJob| unordered && is_plain_child(job);
        self.children.extend(step.children.iter().filter(plain).map(|child| (change.job.0, child)));
        let Some(member) = change.branch_member else { return };
        let attempted = step.attempted_jobs();
        for job in &step.promoted {
            if attempted.contains(&job.id) {
                self.attempted.push((member.parent.0, job));
            } else if plain(&job) {
                self.promoted.push((member.parent.0, job));
            }
        }
        if step.accounts_for_items() {
            self.blocks.0.push(change.job.0);
            self.blocks.1.push(step.items as i32);
            self.blocks.2.push(step.promoted_items() as i32);
        }
    }
}

/// Blocks, the number of their items that are done, and the number that are promoted.
type Blocks = (Vec<Uuid>, Vec<i32>, Vec<i32>);

/// Counts items of blocks as done or promoted. Fails if a block has fewer left.
async fn count_items(tx: &Tx<'_>, blocks: &Blocks) -> Result<(), PgError> {
    if blocks.0.is_empty() {
        return Ok(());
    }
    let rows = tx.query(sql::branches::COUNT_ITEMS, &[&blocks.0, &blocks.1, &blocks.2]).await?;
    // What a block has left after this, and how many items it accounted for.
    let refusal = |row: &Row| {
        let (left, items) = (row.get::<_, i32>(0), row.get::<_, i32>(1));
        items_refusal(items.max(0) as u32, (left + items).max(0) as u32)
    };
    rows.iter().find_map(refusal).map_or(Ok(()), |why| Err(Error::Refused(why).into()))
}

/// Whether a job is a child of a branch that needs only a row and a placement.
pub(super) fn is_plain_child(job: &NewJob) -> bool {
    job.branch_position.is_some() && !job.needs_slow_path()
}

/// What a step does to one branch.
#[derive(Default)]
struct MergedUpdate {
    update: BranchUpdate,
    /// Children that were inserted by a statement that does not count them.
    spawned: i64,
}

impl MergedUpdate {
    /// Adds a later update of the same step.
    fn add(&mut self, later: &BranchUpdate) {
        let earlier = &mut self.update;
        let BranchUpdate {
            number,
            opened_as,
            spawns,
            cursor,
            seal,
            watch,
            merge_record,
            merged,
            cancel_children,
        } = later.clone();
        *earlier = BranchUpdate {
            number,
            opened_as: opened_as.or(earlier.opened_as.take()),
            spawns: spawns.or(earlier.spawns.take()),
            cursor: cursor.or(earlier.cursor.take()),
            seal: seal | earlier.seal,
            watch: watch.or(earlier.watch.take()),
            merge_record: merge_record.or(earlier.merge_record.take()),
            merged: merged | earlier.merged,
            cancel_children: cancel_children | earlier.cancel_children,
        };
    }
}

async fn open(tx: &Tx<'_>, now: Now, updates: &BTreeMap<BranchKey, MergedUpdate>) -> Result<(), PgError> {
    let opened =
        updates.iter().filter_map(|(branch, merged)| Some((*branch, merged.update.opened_as.as_deref()?)));
    let (branches, names): (Vec<BranchKey>, Vec<&str>) = opened.unzip();
    if branches.is_empty() {
        return Ok(());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = branches.into_iter().unzip();
    tx.execute(sql::branches::OPEN, &[&micros(now), &jobs, &numbers, &names]).await.map(drop)
}

async fn update(tx: &Tx<'_>, now: Now, updates: &BTreeMap<BranchKey, MergedUpdate>) -> Result<(), PgError> {
    if updates.is_empty() {
        return Ok(());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = updates.keys().copied().unzip();
    let all = || updates.values().map(|merged| &merged.update);
    let text = |names: &Vec<String>| serde_json::to_string(names).expect("strings always serialize");
    let spawns: Vec<Option<String>> = all().map(|update| update.spawns.as_ref().map(text)).collect();
    let codecs: Vec<Option<i16>> =
        all().map(|update| Some(i16::from(update.cursor.as_ref()?.codec))).collect();
    let cursors: Vec<Option<&[u8]>> =
        all().map(|update| Some(update.cursor.as_ref()?.bytes.as_slice())).collect();
    let seals: Vec<bool> = all().map(|update| update.seal).collect();
    let watches: Vec<Option<String>> =
        all().map(|update| update.watch.as_ref().map(columns::watch_text)).collect();
    let poll_intervals: Vec<i64> =
        all().map(|update| update.watch.as_ref().map_or(0, |watch| span(watch.poll_interval.min))).collect();
    let merge_records: Vec<Option<&str>> = all().map(|update| update.merge_record.as_deref()).collect();
    let merged: Vec<bool> = all().map(|update| update.merged).collect();
    let cancel_children: Vec<bool> = all().map(|update| update.cancel_children).collect();
    let spawned: Vec<i64> = updates.values().map(|merged| merged.spawned).collect();
    let params: [Param<'_>; 14] = [
        &micros(now),
        &jobs,
        &numbers,
        &spawns,
        &codecs,
        &cursors,
        &seals,
        &watches,
        &poll_intervals,
        &merge_records,
        &merged,
        &cancel_children,
        &spawned,
        &tx.gate_writer,
    ];
    tx.execute(sql::branches::UPDATE, &params).await.map(drop)
}

/// Counts children as spawned that [`Batch::insert_in`](super::submit::Batch::insert_in) has inserted.
pub(super) async fn count_spawned(
    tx: &Tx<'_>,
    children: impl Iterator<Item = &NewJob>,
) -> Result<(), PgError> {
    let mut updates: BTreeMap<BranchKey, MergedUpdate> = BTreeMap::new();
    for job in children {
        let (Some(parent), Some(position)) = (job.parent, &job.branch_position) else { continue };
        let merged = updates.entry((parent.0, position.branch.0)).or_default();
        merged.spawned += i64::from(position.items);
    }
    update(tx, None, &updates).await
}

/// Inserts children of branches, given with their parents.
async fn insert(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Now,
    mut children: Vec<(Uuid, &NewJob)>,
    kind: ChildKind,
) -> Result<(), PgError> {
    if children.is_empty() {
        return Ok(());
    }
    children.sort_by_key(|(_, child)| child.id);
    let (parents, jobs): (Vec<Uuid>, Vec<&NewJob>) = children.into_iter().unzip();
    lower_floors(store, now, &jobs);
    let rows = Rows::plain(store, &jobs)?;
    let positions = BranchColumns::of(&jobs);
    let (now, last) = (micros(now), Time::MAX.micros());
    let (is_spawned, is_placed) = (kind == ChildKind::Spawned, kind != ChildKind::Attempted);
    let mut params: Vec<Param<'_>> = vec![&now, &last];
    params.extend(rows.params());
    params.push(&parents);
    params.extend(positions.params());
    params.extend::<[Param<'_>; 5]>([&is_spawned, &SPAN, &tx.gate_writer, &is_placed, &tx.count_writer]);
    params.extend::<[Param<'_>; 2]>([&rows.periods.lane, &rows.periods.period]);
    tx.execute(sql::submit::INSERT_BRANCH_CHILDREN, &params).await.map(drop)
}
