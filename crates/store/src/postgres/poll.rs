//! Polling branches: see [`crate::Maintenance::poll_branches`].
//!
//! A poll takes a branch for [`POLL_LEASE`]. What takes long is done without a lock, so that it blocks neither the ends of children
//! nor commits of the parent.

use std::{collections::BTreeMap, time::Duration};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{
    BranchCounts, BranchNo, BranchPoll, BranchWatch, JobId, Time,
    branch::PollInterval,
    poll::{ChildRows, MAX_REDELIVERED, PollSample, Recount},
};

use super::{
    Postgres, SPAN,
    branch::{self, BranchKey, read_counts},
    change_params::Param,
    conn::{Conn, retry_deadlock},
    errors::PgError,
    micros, serial, sql,
    tx::Tx,
    wait,
};
use crate::{CANCEL_AGAIN, Error, Now, PollReport, columns};

/// How long a poll has a branch to itself: longer than reading a million children takes. After a crash, the branch is polled again
/// this much later.
const POLL_LEASE: Duration = Duration::from_secs(60);

/// How many children one statement reads: few enough that it answers in time.
pub(super) const PAGE: i64 = 20_000;

pub(super) async fn poll(store: &Postgres, now: Now, limit: usize) -> Result<PollReport, Error> {
    let mut conn = store.conn().await?;
    let (now, next_at) = next(&conn, now).await?;
    let mut report = PollReport { now, next_at, ..PollReport::default() };
    if next_at.is_none_or(|at| at > now) {
        return Ok(report);
    }
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let until = now + POLL_LEASE;
    let rows = conn.query(sql::poll::TAKE_DUE, &[&now.micros(), &limit, &until.micros()]).await?;
    let taken: Vec<BranchKey> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    report.polled = taken.len();
    for branch in sample(&conn, &taken).await? {
        poll_branch(store, &mut conn, &branch, now, until, &mut report).await?;
    }
    report.next_at = next(&conn, Some(now)).await?.1;
    Ok(report)
}

async fn next(conn: &Conn, now: Now) -> Result<(Time, Option<Time>), PgError> {
    let rows = conn.read(sql::poll::NEXT, &[&micros(now)]).await?;
    let row = rows.first().ok_or_else(|| Error::Fault("the clock returned no row".into()))?;
    Ok((Time(row.get(0)), row.get::<_, Option<i64>>(1).map(Time)))
}

/// A branch that is polled.
struct DueBranch {
    key: BranchKey,
    spawned: i64,
    watch: Option<BranchWatch>,
    last_poll: BranchPoll,
    counts: BranchCounts,
    claimed: i64,
    claimed_unstarted: i64,
}

impl DueBranch {
    fn sample(&self, now: Time) -> PollSample {
        let DueBranch { spawned, counts, claimed, claimed_unstarted, .. } = *self;
        PollSample { now, spawned, counts, claimed, claimed_unstarted }
    }
}

async fn sample(conn: &Conn, branches: &[BranchKey]) -> Result<Vec<DueBranch>, PgError> {
    if branches.is_empty() {
        return Ok(Vec::new());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = branches.iter().copied().unzip();
    let rows = conn.read(sql::poll::SAMPLE, &[&jobs, &numbers]).await?;
    let branch = |row: &Row| DueBranch {
        key: (row.get(0), row.get(1)),
        spawned: row.get(2),
        watch: columns::watch(row.get(3)),
        last_poll: columns::poll(row.get(4), None),
        counts: read_counts(row, 5),
        claimed: row.get(9),
        claimed_unstarted: row.get(10),
    };
    Ok(rows.iter().map(branch).collect())
}

async fn poll_branch(
    store: &Postgres,
    conn: &mut Conn,
    branch: &DueBranch,
    now: Time,
    mut until: Time,
    report: &mut PollReport,
) -> Result<(), Error> {
    let interval = PollInterval::of(branch.watch.as_ref());
    let (key, last) = (branch.key, &branch.last_poll);
    let mut poll = last.next(&branch.sample(now), interval);
    let mut counts = branch.counts;
    if last.recount_due(&poll) || last.search_due(&poll) {
        // All children are read now, and those of other branches may have been read before.
        let taken_until = until;
        until = taken_until + POLL_LEASE;
        let params: [Param<'_>; 4] = [&key.0, &key.1, &taken_until.micros(), &until.micros()];
        if conn.execute(sql::poll::EXTEND, &params).await? == 0 {
            return Ok(());
        }
    }
    if last.recount_due(&poll) {
        let Some(recount) = recount(conn, key, until).await? else { return Ok(()) };
        if recount.difference != BranchCounts::default() {
            report.corrected += 1;
            if let Some(branch) = sample(conn, &[key]).await?.first() {
                counts = branch.counts;
                poll = last.next(&branch.sample(now), interval);
            }
        }
        poll.missing = recount.missing;
        poll.counted_at = Some(now);
    }
    if last.search_due(&poll) {
        let lost = redeliver(store, conn, key).await?;
        report.redelivered += lost;
        poll.add_redelivered(lost);
    }
    let next_at = poll.next_at.map(Time::micros);
    let text = columns::poll_text(&poll);
    let (is_live, cancel_again_at) = (poll.pending > 0, (now + CANCEL_AGAIN).micros());
    let params: [Param<'_>; 7] =
        [&key.0, &key.1, &until.micros(), &text, &is_live, &cancel_again_at, &next_at];
    let rows = conn.query(sql::poll::WRITE, &params).await?;
    if rows.first().is_some_and(|row| row.get(0)) {
        report.to_cancel.push((JobId(key.0), BranchNo(key.1)));
    }
    if poll.found_missing() {
        report.notified += branch::notify_unmet(store, conn, Some(now), &[key]).await?;
    } else if branch.watch.as_ref().is_some_and(|watch| watch.is_met(&counts)) {
        report.notified += branch::notify(store, conn, Some(now), &[key]).await?;
    }
    Ok(())
}

/// Counts the children of a branch again, and corrects its counts. Rows and counts are compared as they were at one moment, and the
/// difference is added: that is right whatever others have counted meanwhile, unless they have recounted too. So it is added only
/// while this poll has the branch; `None` if it does not.
async fn recount(conn: &mut Conn, branch: BranchKey, until: Time) -> Result<Option<Recount>, PgError> {
    let tx = Tx::snapshot(conn).await?;
    let recount = compare(&tx, branch).await;
    tx.rollback().await;
    let recount = recount?;
    if recount.difference == BranchCounts::default() {
        return Ok(Some(recount));
    }
    let tx = Tx::write(conn).await?;
    let work = async {
        let params: [Param<'_>; 3] = [&branch.0, &branch.1, &until.micros()];
        let is_taken = !tx.query(sql::poll::LOCK_TAKEN, &params).await?.is_empty();
        if is_taken {
            branch::add_counts(&tx, &BTreeMap::from([(branch, recount.difference)])).await?;
        }
        Ok(is_taken.then_some(recount))
    };
    let recount = work.await;
    tx.finish(recount).await
}

/// Compares the counts of a branch with the rows of its children.
async fn compare(tx: &Tx<'_>, (job, number): BranchKey) -> Result<Recount, PgError> {
    let ends =
        |row: &Row| BranchCounts { started: 0, done: row.get(0), failed: row.get(1), cancelled: row.get(2) };
    let sums = tx.query(sql::poll::READ_SUM, &[&job, &number]).await?;
    let (counted, spawned) = sums.first().map_or((BranchCounts::default(), 0), |row| (ends(row), row.get(3)));
    let mut rows = ChildRows::default();
    let mut after = Some(Uuid::nil());
    while let Some(from) = after.take() {
        let page = tx.query(sql::poll::COUNT_CHILDREN, &[&job, &number, &from, &PAGE]).await?;
        if let Some(row) = page.first() {
            rows.ends.add(ends(row));
            rows.live += row.get::<_, i64>(3);
            after = row.get(4);
        }
    }
    Ok(rows.recount(spawned, &counted))
}

/// Finds children of a branch that are live and have no placement, and makes them ready. Returns how many.
async fn redeliver(store: &Postgres, conn: &mut Conn, (job, number): BranchKey) -> Result<usize, Error> {
    let mut lost: Vec<Uuid> = Vec::new();
    let mut after = Some(Uuid::nil());
    while let Some(from) = after.take().filter(|_| lost.len() < MAX_REDELIVERED) {
        let sql = sql::poll::FIND_LOST;
        for row in conn.query(sql, &[&job, &number, &from, &PAGE, &SPAN]).await? {
            lost.extend(row.get::<_, Vec<Uuid>>(0));
            after = row.get(1);
        }
    }
    lost.truncate(MAX_REDELIVERED);
    if lost.is_empty() {
        return Ok(0);
    }
    let redelivered = retry_deadlock!(redeliver_jobs(conn, &lost))?;
    store.shared.floors.lowered(i64::MIN);
    Ok(redelivered)
}

async fn redeliver_jobs(conn: &mut Conn, lost: &[Uuid]) -> Result<usize, PgError> {
    let tx = Tx::write(conn).await?;
    let work = async {
        wait::lock_jobs(&tx, lost).await?;
        // Checked again, now that nobody else moves them.
        let rows = tx.query(sql::poll::REDELIVER, &[&lost, &SPAN]).await?;
        let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        serial::enter(&tx, &ids).await?;
        serial::fill_slots(&tx).await?;
        Ok(ids.len())
    };
    let redelivered = work.await;
    tx.finish(redelivered).await
}
