//! Branches: how the ends of their children are counted, and who is told.
//!
//! Whoever ends a child in a transaction notes that with its connection ([`Conn::count_end`]). [`commit`] writes the sums, one
//! row for each branch in the lane of the connection, commits, and looks at the branches, all in one round trip. Of
//! several that commit at once the last one sees the whole sum. If a watch is met, a second transaction tells the parent; a
//! crash between the two is what [`super::poll`] is for.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::{join3, join4};
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{BranchCounts, Change, NewJob, Outcome, Reason, Rev, State};

use super::{
    Postgres,
    conn::{Conn, retry_deadlock},
    micros,
    pool::Guard,
    serial, sql,
    wait::{self, LOCK},
};
use crate::{Error, Now, columns};

/// A branch: its job and its number.
pub(super) type Key = (Uuid, i64);

/// The statement that reads watches and sums, for those who prepare it.
pub(super) const WATCHED_SUMS: &str = sql::branches::READ_COUNTS;

const TALLY: &str = sql::branches::ADD_COUNTS;
const WATCHED: &str = sql::branches::LOCK;

/// What a transaction counts, and which branches are to be looked at once it is committed.
#[derive(Default)]
pub(super) struct Counts {
    tallies: BTreeMap<Key, BranchCounts>,
    looks: BTreeSet<Key>,
}

impl Counts {
    fn add(&mut self, branch: Key, tally: BranchCounts) {
        if tally.ends() != (0, 0, 0) {
            self.looks.insert(branch);
        }
        self.tallies.entry(branch).or_default().add(tally);
    }
}

/// A child of a branch, as its row says.
#[derive(Clone, Copy)]
pub(super) struct Child {
    branch: Key,
    /// How many children it stands for that are not counted yet.
    items: i64,
    /// Whether it has written nothing yet.
    fresh: bool,
}

impl Child {
    /// Out of four columns: parent, branch, items and revision. `None` if it is none.
    pub(super) fn read(row: &Row, first: usize) -> Option<Child> {
        let child = Child::wrote(row, first)?;
        Some(Child { fresh: Rev(row.get(first + 3)) == Rev(0), ..child })
    }

    /// Out of the first three of them, of a child that has just written.
    pub(super) fn wrote(row: &Row, first: usize) -> Option<Child> {
        let (parent, branch) = (row.get::<_, Option<Uuid>>(first)?, row.get::<_, Option<i64>>(first + 1)?);
        Some(Child { branch: (parent, branch), items: i64::from(row.get::<_, i32>(first + 2)), fresh: false })
    }

    /// The job that opened its branch.
    pub(super) fn parent(&self) -> Uuid {
        self.branch.0
    }

    /// What its end in a state counts for, once or, if it is live again, with -1 as `times`.
    fn tally(&self, state: State, times: i64) -> BranchCounts {
        let mut tally = BranchCounts::of(state, times * self.items);
        // It never wrote anything, and will not.
        tally.started = if self.fresh { times * self.items } else { 0 };
        tally
    }
}

impl Conn {
    /// Counts the end of a child, in the transaction that is open.
    pub(super) fn count_end(&self, child: &Child, state: State) {
        self.counts().add(child.branch, child.tally(state, 1));
    }

    /// Counts that a child which had ended is live again.
    pub(super) fn count_life(&self, child: &Child, was: State) {
        self.counts().add(child.branch, child.tally(was, -1));
    }

    /// Counts what a change of a child has written, by what its row said then.
    pub(super) fn count_change(&self, change: &Change, child: &Child) {
        self.counts().add(child.branch, tally(change, child.items));
    }

    /// Has a branch looked at once the transaction that is open is committed.
    pub(super) fn watch_branch(&self, branch: Key) {
        self.counts().looks.insert(branch);
    }
}

/// What a child's change counts for: whether it is its first, which items of a block it accounts for, and its end. `items` is
/// how many children it stands for that are not counted yet.
fn tally(change: &Change, items: i64) -> BranchCounts {
    let step = change.step.as_deref();
    let done = step.map_or(0, |step| i64::from(step.items));
    // What was promoted begins anew.
    let promoted = step.map_or(0, |step| promoted_items(&step.promoted));
    let first = if change.rev == Rev(0) { items } else { 0 };
    let mut tally = BranchCounts { started: first - promoted, done, ..BranchCounts::default() };
    if let Some(state) = end(&change.outcome) {
        tally.add(BranchCounts::of(state, items - done - promoted));
    }
    tally
}

fn promoted_items(promoted: &[NewJob]) -> i64 {
    promoted.iter().filter_map(|job| Some(i64::from(job.branch_position.as_ref()?.items))).sum()
}

/// The state in which an outcome ends its job, if it does.
fn end(outcome: &Outcome) -> Option<State> {
    match outcome {
        Outcome::Done(_) => Some(State::Done),
        Outcome::Failed { .. } => Some(State::Failed),
        Outcome::Cancelled(_) => Some(State::Cancelled),
        _ => None,
    }
}

/// Whether there is something to count of a change: it is the first or the last of a child, or accounts for a part of a block.
/// How much, its row says.
pub(super) fn counts(change: &Change) -> bool {
    change.branch_member.is_some() && (change.rev == Rev(0) || change.outcome.ends() || !is_whole(change))
}

/// Whether a statement can count a change by what it finds in the row: it accounts for no part of a block.
pub(super) fn is_whole(change: &Change) -> bool {
    change.step.as_ref().is_none_or(|step| step.items == 0 && step.promoted.is_empty())
}

/// The branches in which changes end children.
pub(super) fn touched<'a>(changes: impl Iterator<Item = &'a Change>) -> Vec<Key> {
    let ends = changes.filter(|change| change.outcome.ends());
    let keys: BTreeSet<Key> = ends
        .filter_map(|change| change.branch_member.map(|counted| (counted.parent.0, counted.branch.0)))
        .collect();
    keys.into_iter().collect()
}

/// Commits the transaction that is open, with what was counted in it and the slots of serial keys that it has freed; then tells parents what they wait to be told.
pub(super) async fn commit(store: &Postgres, conn: &Guard<'_>, now: Now) -> Result<(), Error> {
    serial::hand_over(conn).await?;
    let Counts { tallies, looks } = std::mem::take(&mut *conn.counts());
    if tallies.is_empty() && looks.is_empty() {
        return conn.commit().await;
    }
    for sql in [TALLY, WATCHED_SUMS] {
        conn.prepare(sql).await?;
    }
    let looks: Vec<Key> = looks.into_iter().collect();
    // Polled, and so sent, in this order. If the first fails, the second rolls back.
    let (counted, committed, met) =
        join3(write(conn, &tallies), conn.commit(), read_watched(conn, &looks)).await;
    counted?;
    committed?;
    notified(store, conn, now, met).await;
    Ok(())
}

/// Writes what was counted in the transaction that is open, whose commit is for others; answers the branches that are to be
/// looked at afterwards.
pub(super) async fn flush(conn: &Guard<'_>) -> Result<Vec<Key>, Error> {
    let Counts { tallies, looks } = std::mem::take(&mut *conn.counts());
    write(conn, &tallies).await?;
    Ok(looks.into_iter().collect())
}

/// Tells parents what they wait to be told, as far as it is seen within the transaction that is open, which goes on. They are
/// looked at again when it is committed.
pub(super) async fn notify_in_transaction(conn: &Guard<'_>, now: Now) -> Result<(), Error> {
    let touched = flush(conn).await?;
    let met = read_watched(conn, &touched).await?;
    conn.counts().looks.extend(touched);
    if met.is_empty() {
        return Ok(());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = met.into_iter().unzip();
    wait::lock(conn, &jobs).await?;
    conn.execute(WATCHED, &[&jobs, &numbers]).await?;
    end_watches(conn, now, &jobs, &numbers).await.map(drop)
}

/// Ends watches that are met, tells the parents, and wakes them if that is what they wait for. Both are locked.
async fn end_watches(conn: &Guard<'_>, now: Now, jobs: &[Uuid], numbers: &[i64]) -> Result<usize, Error> {
    if jobs.is_empty() {
        return Ok(0);
    }
    let sql = sql::signals::NOTIFY_PARENTS;
    let told = conn.query(sql, &[&micros(now), &jobs, &numbers]).await?.len();
    let woken = wait::wake(conn, now, jobs).await?;
    serial::settle(conn, &woken.unsettled).await?;
    Ok(told)
}

/// Adds to the tallies of branches, in the lane of the connection.
pub(super) async fn write(conn: &Guard<'_>, tallies: &BTreeMap<Key, BranchCounts>) -> Result<(), Error> {
    let some = || tallies.iter().filter(|(_, tally)| **tally != BranchCounts::default());
    if some().next().is_none() {
        return Ok(());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = some().map(|(branch, _)| *branch).unzip();
    let column = |of: fn(&BranchCounts) -> i64| -> Vec<i64> { some().map(|(_, tally)| of(tally)).collect() };
    let (started, done) = (column(|tally| tally.started), column(|tally| tally.done));
    let (failed, cancelled) = (column(|tally| tally.failed), column(|tally| tally.cancelled));
    let lane = conn.lane();
    conn.execute(TALLY, &[&jobs, &numbers, &started, &done, &failed, &cancelled, &lane]).await.map(drop)
}

/// Those of some branches whose watch is met.
pub(super) async fn read_watched(conn: &Guard<'_>, branches: &[Key]) -> Result<Vec<Key>, Error> {
    if branches.is_empty() {
        return Ok(Vec::new());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = branches.iter().copied().unzip();
    let rows = conn.read(WATCHED_SUMS, &[&jobs, &numbers]).await?;
    let met = |row: &&Row| columns::watch(row.get(2)).is_some_and(|watch| watch.is_met(&sum(row, 3)));
    Ok(rows.iter().filter(met).map(|row| (row.get(0), row.get(1))).collect())
}

/// A tally out of four columns.
pub(super) fn sum(row: &Row, first: usize) -> BranchCounts {
    let column = |n: usize| row.get::<_, i64>(first + n);
    BranchCounts { started: column(0), done: column(1), failed: column(2), cancelled: column(3) }
}

/// Tells parents what a look has found. What was committed before is committed, whatever comes of this.
pub(super) async fn notified(store: &Postgres, conn: &Guard<'_>, now: Now, met: Result<Vec<Key>, Error>) {
    let told = async {
        match met?.as_slice() {
            [] => Ok(0),
            met => notify(store, conn, now, met).await,
        }
    };
    if let Err(error) = told.await {
        tracing::debug!(%error, "what is to be told of branches is left to the next look at them");
    }
}

/// Tells parents that some of their branches have come to what they watch for, those that have: the one routine for all doors.
/// Answers how many branches had.
pub(super) async fn notify(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    branches: &[Key],
) -> Result<usize, Error> {
    let told = retry_deadlock!(notify_once(conn, now, branches, true));
    store.shared.floors.lowered(i64::MIN);
    told
}

/// Tells parents of branches that they watch, whether or not they have come to what is watched for: that may never be.
pub(super) async fn notify_unmet(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    branches: &[Key],
) -> Result<usize, Error> {
    let told = retry_deadlock!(notify_once(conn, now, branches, false));
    store.shared.floors.lowered(i64::MIN);
    told
}

async fn notify_once(conn: &Guard<'_>, now: Now, branches: &[Key], only_met: bool) -> Result<usize, Error> {
    for sql in [LOCK, WATCHED, WATCHED_SUMS] {
        conn.prepare(sql).await?;
    }
    let work = async {
        let jobs: BTreeSet<Uuid> = branches.iter().map(|(job, _)| *job).collect();
        let parents: Vec<Uuid> = jobs.into_iter().collect();
        let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = branches.iter().copied().unzip();
        // The sum is read by a statement of its own: what was counted before the locks were had is seen.
        let (begun, locked, watched, met) = join4(
            conn.begin(),
            wait::lock(conn, &parents),
            conn.execute(WATCHED, &[&jobs, &numbers]),
            read_watched(conn, branches),
        )
        .await;
        begun?;
        locked?;
        watched?;
        let met = met?;
        let told = if only_met { &met } else { branches };
        let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = told.iter().copied().unzip();
        let told = end_watches(conn, now, &jobs, &numbers).await?;
        serial::hand_over(conn).await?;
        conn.commit().await?;
        Ok(told)
    };
    let told = work.await;
    if told.is_err() {
        conn.rollback().await;
    }
    told
}

/// Jobs with branches have ended: nobody waits for these any more, and those of a job that was made to end are cut.
pub(super) async fn orphan(conn: &Guard<'_>, now: Now, jobs: &[Uuid]) -> Result<(), Error> {
    if jobs.is_empty() {
        return Ok(());
    }
    let expired = columns::reason_number(Reason::Expired);
    let sql = sql::branches::END_WATCHES;
    conn.execute(sql, &[&micros(now), &conn.gate_writer, &jobs, &expired]).await.map(drop)
}
