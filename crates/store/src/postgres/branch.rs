//! Branches: counting how their children end, and notifying their parents.
//!
//! A verb that ends a child notes that in its transaction ([`Tx::count_end`]). [`finish`] writes the sums, one row per branch and
//! connection, commits, and reads the counts of the branches, all in one round trip: of several transactions that commit at
//! once, the last one sees the counts of all. If a watch is met, a second transaction notifies the parent. After a crash
//! between the two, [`super::poll`] does.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::{join3, join4};
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{BranchCounts, Change, Reason, Rev, State};

use super::{
    Postgres,
    conn::{Conn, retry_deadlock},
    errors::PgError,
    micros, serial, sql,
    tx::{Executor, Tx},
    wait,
};
use crate::{Error, Now, columns};

/// A branch: its job, and its number there.
pub(super) type BranchKey = (Uuid, i64);

/// What a transaction counts.
#[derive(Default)]
pub(super) struct Counts {
    added: BTreeMap<BranchKey, BranchCounts>,
    /// Branches whose watches are checked once the transaction is committed.
    to_check: BTreeSet<BranchKey>,
}

impl Counts {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.to_check.is_empty()
    }

    fn add(&mut self, branch: BranchKey, counts: BranchCounts) {
        if counts.ends() != (0, 0, 0) {
            self.to_check.insert(branch);
        }
        self.added.entry(branch).or_default().add(counts);
    }
}

/// What the row of a job says about the branch that it is in.
#[derive(Clone, Copy)]
pub(super) struct Member {
    branch: BranchKey,
    /// How many children it represents that are not counted yet.
    items: i64,
    /// Whether it has committed nothing yet.
    is_unstarted: bool,
}

impl Member {
    /// Reads parent, branch, items and revision, from this column on; `None` if the job is in no branch.
    pub(super) fn read(row: &Row, from: usize) -> Option<Member> {
        let member = Member::read_started(row, from)?;
        Some(Member { is_unstarted: Rev(row.get(from + 3)) == Rev(0), ..member })
    }

    /// Reads parent, branch and items of a job that has just committed something.
    pub(super) fn read_started(row: &Row, from: usize) -> Option<Member> {
        let (parent, branch) = (row.get::<_, Option<Uuid>>(from)?, row.get::<_, Option<i64>>(from + 1)?);
        let items = i64::from(row.get::<_, i32>(from + 2));
        Some(Member { branch: (parent, branch), items, is_unstarted: false })
    }

    /// The job that opened its branch.
    pub(super) fn parent(&self) -> Uuid {
        self.branch.0
    }
}

impl Tx<'_> {
    /// Counts the end of a child.
    pub(super) fn count_end(&self, member: &Member, state: State) {
        self.counts().add(member.branch, BranchCounts::of_end(state, member.items, member.is_unstarted));
    }

    /// Counts that a child which had ended in state `was` is live again.
    pub(super) fn count_revival(&self, member: &Member, was: State) {
        self.counts().add(member.branch, BranchCounts::of_revival(was, member.items, member.is_unstarted));
    }

    /// Counts a change of a child that was written.
    pub(super) fn count_change(&self, change: &Change, member: &Member) {
        self.counts().add(member.branch, change.counts(member.items));
    }

    /// Checks the watch of a branch once the transaction is committed.
    pub(super) fn check_watch(&self, branch: BranchKey) {
        self.counts().to_check.insert(branch);
    }
}

/// The branches in which changes end children.
pub(super) fn branches_of_ends<'a>(changes: impl Iterator<Item = &'a Change>) -> Vec<BranchKey> {
    let ends = changes.filter(|change| change.outcome.ends());
    let keys: BTreeSet<BranchKey> = ends
        .filter_map(|change| change.branch_member.map(|member| (member.parent.0, member.branch.0)))
        .collect();
    keys.into_iter().collect()
}

/// Ends a transaction: commits if the work in it succeeded, with what it has counted and the serial slots it has freed, and
/// rolls back if not. Then notifies the parents whose watches are met.
pub(super) async fn finish<T>(
    store: &Postgres,
    tx: Tx<'_>,
    now: Now,
    result: Result<T, PgError>,
) -> Result<T, PgError> {
    let result = match result {
        Ok(value) => serial::fill_slots(&tx).await.map(|_| value),
        Err(error) => Err(error),
    };
    let counts = std::mem::take(&mut *tx.counts());
    if result.is_err() || counts.is_empty() {
        return tx.finish(result).await;
    }
    let Counts { added, to_check } = counts;
    for sql in [sql::branches::ADD_COUNTS, sql::branches::READ_COUNTS] {
        tx.prepare(sql).await?;
    }
    let to_check: Vec<BranchKey> = to_check.into_iter().collect();
    // Polled, and so sent, in this order. If the first fails, the second rolls back.
    let after_end = Executor::Conn(tx.after_end());
    let (counted, committed, met) =
        join3(add_counts(&tx, &added), tx.commit(), find_met(after_end, &to_check)).await;
    counted?;
    committed?;
    notify_met(store, tx.into_conn(), now, met).await;
    result
}

/// Writes what a transaction has counted. Returns the branches whose watches must be checked after the commit.
pub(super) async fn write_counts(tx: &Tx<'_>) -> Result<Vec<BranchKey>, PgError> {
    let Counts { added, to_check } = std::mem::take(&mut *tx.counts());
    add_counts(tx, &added).await?;
    Ok(to_check.into_iter().collect())
}

/// Notifies parents whose watches are met as far as an open transaction sees. The same watches are checked again after its
/// commit.
pub(super) async fn notify_in(tx: &Tx<'_>, now: Now) -> Result<(), PgError> {
    let to_check = write_counts(tx).await?;
    let met = find_met(Executor::Tx(tx), &to_check).await?;
    tx.counts().to_check.extend(to_check);
    if met.is_empty() {
        return Ok(());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = met.into_iter().unzip();
    wait::lock_jobs(tx, &jobs).await?;
    tx.execute(sql::branches::LOCK, &[&jobs, &numbers]).await?;
    signal_parents(tx, now, &jobs, &numbers).await.map(drop)
}

/// Ends watches, sends their parents signals, and wakes those whose waits are met by that. Parents and branches are locked.
/// Returns how many watches ended.
async fn signal_parents(tx: &Tx<'_>, now: Now, jobs: &[Uuid], numbers: &[i64]) -> Result<usize, PgError> {
    if jobs.is_empty() {
        return Ok(0);
    }
    let sql = sql::signals::NOTIFY_PARENTS;
    let notified = tx.query(sql, &[&micros(now), &jobs, &numbers]).await?.len();
    let woken = wait::wake(tx, now, jobs).await?;
    serial::settle(tx, &woken.unsettled).await?;
    Ok(notified)
}

/// Adds to the counts of branches, in the rows of the connection.
pub(super) async fn add_counts(
    tx: &Tx<'_>,
    counts: &BTreeMap<BranchKey, BranchCounts>,
) -> Result<(), PgError> {
    let changed = || counts.iter().filter(|(_, counts)| **counts != BranchCounts::default());
    if changed().next().is_none() {
        return Ok(());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = changed().map(|(branch, _)| *branch).unzip();
    let column =
        |of: fn(&BranchCounts) -> i64| -> Vec<i64> { changed().map(|(_, counts)| of(counts)).collect() };
    let (started, done) = (column(|counts| counts.started), column(|counts| counts.done));
    let (failed, cancelled) = (column(|counts| counts.failed), column(|counts| counts.cancelled));
    let writer = tx.count_writer;
    let sql = sql::branches::ADD_COUNTS;
    tx.execute(sql, &[&jobs, &numbers, &started, &done, &failed, &cancelled, &writer]).await.map(drop)
}

/// Finds those of some branches whose watch is met.
pub(super) async fn find_met(
    executor: Executor<'_>,
    branches: &[BranchKey],
) -> Result<Vec<BranchKey>, PgError> {
    if branches.is_empty() {
        return Ok(Vec::new());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = branches.iter().copied().unzip();
    let rows = executor.read(sql::branches::READ_COUNTS, &[&jobs, &numbers]).await?;
    let met = |row: &&Row| columns::watch(row.get(2)).is_some_and(|watch| watch.is_met(&read_counts(row, 3)));
    Ok(rows.iter().filter(met).map(|row| (row.get(0), row.get(1))).collect())
}

/// Reads started, done, failed and cancelled, from this column on.
pub(super) fn read_counts(row: &Row, from: usize) -> BranchCounts {
    let column = |n: usize| row.get::<_, i64>(from + n);
    BranchCounts { started: column(0), done: column(1), failed: column(2), cancelled: column(3) }
}

/// Notifies the parents of branches that [`find_met`] has found after a commit. An error is only logged: the commit is valid.
pub(super) async fn notify_met(
    store: &Postgres,
    conn: &mut Conn,
    now: Now,
    met: Result<Vec<BranchKey>, PgError>,
) {
    let notified = async {
        match met?.as_slice() {
            [] => Ok(0),
            met => notify(store, conn, now, met).await,
        }
    };
    if let Err(error) = notified.await {
        tracing::debug!(%error, "parents of branches were not notified; the next poll notifies them");
    }
}

/// Notifies the parents of those branches whose watches are met: the one routine for all verbs. Returns how many were.
pub(super) async fn notify(
    store: &Postgres,
    conn: &mut Conn,
    now: Now,
    branches: &[BranchKey],
) -> Result<usize, Error> {
    let notified = retry_deadlock!(notify_once(conn, now, branches, true));
    store.shared.floors.lowered(i64::MIN);
    notified
}

/// Notifies the parents of watched branches, whether or not the watches are met: some may never be.
pub(super) async fn notify_unmet(
    store: &Postgres,
    conn: &mut Conn,
    now: Now,
    branches: &[BranchKey],
) -> Result<usize, Error> {
    let notified = retry_deadlock!(notify_once(conn, now, branches, false));
    store.shared.floors.lowered(i64::MIN);
    notified
}

async fn notify_once(
    conn: &mut Conn,
    now: Now,
    branches: &[BranchKey],
    only_met: bool,
) -> Result<usize, PgError> {
    for sql in [wait::LOCK_JOBS, sql::branches::LOCK, sql::branches::READ_COUNTS] {
        conn.prepare(sql).await?;
    }
    let tx = Tx::pipelined(conn);
    let work = async {
        let jobs: BTreeSet<Uuid> = branches.iter().map(|(job, _)| *job).collect();
        let parents: Vec<Uuid> = jobs.into_iter().collect();
        let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = branches.iter().copied().unzip();
        // The counts are read by a statement of its own, so that those written before the locks were acquired are seen.
        let (begun, locked, watched, met) = join4(
            tx.begin(),
            wait::lock_jobs(&tx, &parents),
            tx.execute(sql::branches::LOCK, &[&jobs, &numbers]),
            find_met(Executor::Tx(&tx), branches),
        )
        .await;
        begun?;
        locked?;
        watched?;
        let met = met?;
        let notified = if only_met { &met } else { branches };
        let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = notified.iter().copied().unzip();
        let notified = signal_parents(&tx, now, &jobs, &numbers).await?;
        serial::fill_slots(&tx).await?;
        Ok(notified)
    };
    let notified = work.await;
    tx.finish(notified).await
}

/// Ends the watches of branches of jobs that have ended. If a job was cancelled or has expired, the children in its branches are
/// cancelled too.
pub(super) async fn parents_ended(executor: Executor<'_>, now: Now, jobs: &[Uuid]) -> Result<(), PgError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let expired = columns::reason_number(Reason::Expired);
    let sql = sql::branches::END_WATCHES;
    executor.execute(sql, &[&micros(now), &executor.gate_writer(), &jobs, &expired]).await.map(drop)
}
