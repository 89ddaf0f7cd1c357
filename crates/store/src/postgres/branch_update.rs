//! What steps do to branches of their jobs: they are opened, filled, sealed, watched and merged.
//!
//! Children of a branch go in by one statement for all of them, which writes to no row of their parent.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::join5;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{BranchNo, BranchUpdate, Change, JobId, NewJob, StepWrites, Time};

use super::{
    Postgres, SPAN,
    branch::Key,
    change_params::Param,
    job_params::{BranchColumns, Rows},
    micros,
    pool::Guard,
    span, sql,
    submit::lower_floors,
};
use crate::{Error, Now, columns};

const READ: &str = sql::branches::READ_SEALED;
const OPEN: &str = sql::branches::OPEN;
const GROW: &str = sql::branches::UPDATE;
const ITEMS: &str = sql::branches::COUNT_ITEMS;
const TWIGS: &str = sql::submit::INSERT_BRANCH_CHILDREN;

/// Which branches are there, and whether they are sealed.
type There = HashMap<(JobId, BranchNo), bool>;

/// Whether a change does anything to branches: to those of its job, or to that of which its job is a block.
pub(super) fn grows(change: &Change) -> bool {
    change.step.as_ref().is_some_and(|step| {
        let twigs = || step.children.iter().any(|child| child.branch_position.is_some());
        !step.branches.is_empty() || step.items > 0 || !step.promoted.is_empty() || twigs()
    })
}

/// The branches that changes name.
fn named<'a>(changes: impl Iterator<Item = &'a Change>) -> Vec<Key> {
    let mut named = Vec::new();
    for change in changes {
        if let Some(step) = &change.step {
            let grown = step.branches.iter().map(|grow| grow.number);
            let spawned =
                step.children.iter().filter_map(|child| Some(child.branch_position.as_ref()?.branch));
            named.extend(grown.chain(spawned).map(|number| (change.job.0, number.0)));
        }
    }
    named.sort_unstable();
    named.dedup();
    named
}

/// Reads the branches that changes name. Sent after the changes are written, and so after their jobs are locked.
pub(super) async fn read<'a>(
    conn: &Guard<'_>,
    changes: impl Iterator<Item = &'a Change>,
) -> Result<There, Error> {
    let named = named(changes);
    if named.is_empty() {
        return Ok(There::new());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = named.into_iter().unzip();
    let rows = conn.query(READ, &[&jobs, &numbers]).await?;
    let branch = |row: &Row| ((JobId(row.get(0)), BranchNo(row.get(1))), row.get(2));
    Ok(rows.iter().map(branch).collect())
}

/// Prepares what [`read`] and [`put`] send.
pub(super) async fn prepare(conn: &Guard<'_>) -> Result<(), Error> {
    for sql in [READ, OPEN, GROW, ITEMS, TWIGS] {
        conn.prepare(sql).await?;
    }
    Ok(())
}

/// What is wrong with what a step does to branches, if anything is.
fn refusal(there: &There, change: &Change, step: &StepWrites) -> Option<String> {
    for grow in &step.branches {
        match (there.get(&(change.job, grow.number)), &grow.opened_as) {
            (Some(_), Some(_)) => return Some(format!("there is a branch {} already", grow.number)),
            (None, None) => return Some(format!("there is no branch {}", grow.number)),
            _ => {}
        }
    }
    let opened = |number| step.branches.iter().any(|grow| grow.number == number && grow.opened_as.is_some());
    let is_open = |number| there.get(&(change.job, number)).is_some_and(|sealed| !sealed) || opened(number);
    let spawned = step.children.iter().filter_map(|child| Some(child.branch_position.as_ref()?.branch));
    let mut shut = spawned.filter(|number| !is_open(*number));
    shut.next().map(|number| format!("there is no open branch {number}"))
}

/// Writes what changes, which are written, do to branches, and puts in those of their children that need no more than a row
/// and a place, if they may go straight in. Nothing waits for the answer of another.
pub(super) async fn put(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    changes: &[&Change],
    there: &There,
    straight: bool,
) -> Result<(), Error> {
    for change in changes {
        if let Some(why) = change.step.as_deref().and_then(|step| refusal(there, change, step)) {
            return Err(Error::Refused(why));
        }
    }
    let growth = Growth::of(changes, straight);
    for (branch, grown) in &growth.grown {
        if grown.grow.watch.is_some() {
            conn.watch_branch(*branch);
        }
    }
    // Polled, and so sent, in this order: a branch is there before its children.
    let (opened, grown, noted, children, promoted) = join5(
        open(conn, now, &growth.grown),
        write(conn, now, &growth.grown),
        account(conn, &growth.blocks),
        insert(store, conn, now, growth.children, Put::Spawned),
        insert(store, conn, now, growth.promoted, Put::Promoted),
    )
    .await;
    opened.and(grown).and(noted).and(children).and(promoted)?;
    insert(store, conn, now, growth.attempted, Put::Attempted).await
}

/// How children of a branch are put in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Put {
    /// They are counted as spawned.
    Spawned,
    /// They take the place of items that were.
    Promoted,
    /// The same, and they go into no place: how their first attempt ended is written next.
    Attempted,
}

/// What changes do to branches.
#[derive(Default)]
struct Growth<'a> {
    grown: BTreeMap<Key, Grown>,
    blocks: Blocks,
    /// Children that go straight in, with their parents.
    children: Vec<(Uuid, &'a NewJob)>,
    /// The same for those that take the place of items of a block.
    promoted: Vec<(Uuid, &'a NewJob)>,
    /// Those of them that were tried in the block.
    attempted: Vec<(Uuid, &'a NewJob)>,
}

impl<'a> Growth<'a> {
    fn of(changes: &[&'a Change], straight: bool) -> Growth<'a> {
        let mut growth = Growth::default();
        for change in changes {
            if let Some(step) = change.step.as_deref() {
                growth.add(change, step, straight);
            }
        }
        growth
    }

    fn add(&mut self, change: &Change, step: &'a StepWrites, straight: bool) {
        for grow in &step.branches {
            let grown = self.grown.entry((change.job.0, grow.number.0));
            grown.or_default().add(grow);
        }
        let plain = |job: &&NewJob| straight && is_plain(job);
        self.children.extend(step.children.iter().filter(plain).map(|child| (change.job.0, child)));
        let Some(counted) = change.branch_member else { return };
        let attempted = step.attempted_jobs();
        for job in &step.promoted {
            if attempted.contains(&job.id) {
                self.attempted.push((counted.parent.0, job));
            } else if plain(&job) {
                self.promoted.push((counted.parent.0, job));
            }
        }
        if step.items > 0 || !step.promoted.is_empty() {
            let items =
                step.promoted.iter().filter_map(|job| Some(job.branch_position.as_ref()?.items)).sum::<u32>();
            self.blocks.0.push(change.job.0);
            self.blocks.1.push(step.items as i32);
            self.blocks.2.push(items as i32);
        }
    }
}

/// Blocks, how many of their items are counted, and how many were promoted.
type Blocks = (Vec<Uuid>, Vec<i32>, Vec<i32>);

/// Accounts for items of blocks.
async fn account(conn: &Guard<'_>, blocks: &Blocks) -> Result<(), Error> {
    if blocks.0.is_empty() {
        return Ok(());
    }
    let rows = conn.query(ITEMS, &[&blocks.0, &blocks.1, &blocks.2]).await?;
    let short =
        rows.iter().map(|row| (row.get::<_, i32>(0), row.get::<_, i32>(1))).find(|(left, _)| *left < 0);
    let Some((left, items)) = short else { return Ok(()) };
    Err(Error::Refused(format!("{items} items are accounted for, and {} are left", left + items)))
}

/// Whether a job is a child of a branch that needs no more than a row and a place.
pub(super) fn is_plain(job: &NewJob) -> bool {
    job.branch_position.is_some() && !job.needs_slow_path()
}

/// What a step does to one branch.
#[derive(Default)]
struct Grown {
    grow: BranchUpdate,
    /// Children that were put in and are not counted by the statement that did.
    spawned: i64,
}

impl Grown {
    /// Adds what comes later in the same step.
    fn add(&mut self, later: &BranchUpdate) {
        let grow = &mut self.grow;
        let BranchUpdate {
            number,
            opened_as: open,
            spawns,
            cursor,
            seal,
            watch,
            merge_record: goal,
            merged: merge,
            cancel_children: cut,
        } = later.clone();
        *grow = BranchUpdate {
            number,
            opened_as: open.or(grow.opened_as.take()),
            spawns: spawns.or(grow.spawns.take()),
            cursor: cursor.or(grow.cursor.take()),
            seal: seal | grow.seal,
            watch: watch.or(grow.watch.take()),
            merge_record: goal.or(grow.merge_record.take()),
            merged: merge | grow.merged,
            cancel_children: cut | grow.cancel_children,
        };
    }
}

async fn open(conn: &Guard<'_>, now: Now, grown: &BTreeMap<Key, Grown>) -> Result<(), Error> {
    let opened = grown.iter().filter_map(|(branch, grown)| Some((*branch, grown.grow.opened_as.as_deref()?)));
    let (branches, names): (Vec<Key>, Vec<&str>) = opened.unzip();
    if branches.is_empty() {
        return Ok(());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = branches.into_iter().unzip();
    conn.execute(OPEN, &[&micros(now), &jobs, &numbers, &names]).await.map(drop)
}

async fn write(conn: &Guard<'_>, now: Now, grown: &BTreeMap<Key, Grown>) -> Result<(), Error> {
    if grown.is_empty() {
        return Ok(());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = grown.keys().copied().unzip();
    let all = || grown.values();
    let text = |names: &Vec<String>| serde_json::to_string(names).expect("text is plain data");
    let spawns: Vec<Option<String>> = all().map(|g| g.grow.spawns.as_ref().map(text)).collect();
    let codecs: Vec<Option<i16>> = all().map(|g| Some(i16::from(g.grow.cursor.as_ref()?.codec))).collect();
    let cursors: Vec<Option<&[u8]>> = all().map(|g| Some(g.grow.cursor.as_ref()?.bytes.as_slice())).collect();
    let seals: Vec<bool> = all().map(|g| g.grow.seal).collect();
    let watches: Vec<Option<String>> =
        all().map(|g| g.grow.watch.as_ref().map(columns::watch_text)).collect();
    let paces: Vec<i64> =
        all().map(|g| g.grow.watch.as_ref().map_or(0, |watch| span(watch.poll_interval.min))).collect();
    let goals: Vec<Option<&str>> = all().map(|g| g.grow.merge_record.as_deref()).collect();
    let merges: Vec<bool> = all().map(|g| g.grow.merged).collect();
    let cuts: Vec<bool> = all().map(|g| g.grow.cancel_children).collect();
    let spawned: Vec<i64> = all().map(|g| g.spawned).collect();
    let params: [Param<'_>; 14] = [
        &micros(now),
        &jobs,
        &numbers,
        &spawns,
        &codecs,
        &cursors,
        &seals,
        &watches,
        &paces,
        &goals,
        &merges,
        &cuts,
        &spawned,
        &conn.gate_writer,
    ];
    conn.execute(GROW, &params).await.map(drop)
}

/// Adds to what was spawned in branches, for children that were put in by the longer way.
pub(super) async fn spawned(conn: &Guard<'_>, put: impl Iterator<Item = &NewJob>) -> Result<(), Error> {
    let mut grown: BTreeMap<Key, Grown> = BTreeMap::new();
    for job in put {
        let (Some(parent), Some(twig)) = (job.parent, &job.branch_position) else { continue };
        let grown = grown.entry((parent.0, twig.branch.0)).or_default();
        grown.spawned += i64::from(twig.items);
    }
    write(conn, None, &grown).await
}

/// Puts children of branches in, with their parents.
async fn insert(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    mut children: Vec<(Uuid, &NewJob)>,
    how: Put,
) -> Result<(), Error> {
    if children.is_empty() {
        return Ok(());
    }
    children.sort_by_key(|(_, child)| child.id);
    let (parents, jobs): (Vec<Uuid>, Vec<&NewJob>) = children.into_iter().unzip();
    lower_floors(store, now, &jobs);
    let rows = Rows::plain(store, &jobs)?;
    let twigs = BranchColumns::of(&jobs);
    let (now, last) = (micros(now), Time::MAX.micros());
    let (spawned, placed) = (how == Put::Spawned, how != Put::Attempted);
    let mut params: Vec<Param<'_>> = vec![&now, &last];
    params.extend(rows.params());
    params.push(&parents);
    params.extend(twigs.params());
    params.extend::<[Param<'_>; 4]>([&spawned, &SPAN, &conn.gate_writer, &placed]);
    conn.execute(TWIGS, &params).await.map(drop)
}
