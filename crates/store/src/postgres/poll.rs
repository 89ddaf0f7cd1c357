//! Looking at branches from time to time; see [`crate::Store::poll`].
//!
//! Whoever takes a branch has it to itself for [`HELD`]: what takes long is done without a lock, so that nobody who ends a
//! child or commits for the parent waits for it.

use std::{collections::BTreeMap, time::Duration};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{
    BranchCounts, BranchPoll, BranchWatch, Time,
    branch::PollInterval,
    poll::{ChildRows, MAX_REDELIVERED, PollSample, Recount},
};

use super::{
    Postgres, SPAN,
    branch::{self, Key, sum},
    change_params::Param,
    conn::retry_deadlock,
    micros,
    pool::Guard,
    serial, sql, wait,
};
use crate::{CANCEL_AGAIN, Error, Now, PollReport, columns};

/// How long whoever looks at a branch has it to itself: longer than a walk over a million children takes. After a crash it is
/// looked at again so much later.
const HELD: Duration = Duration::from_secs(60);

/// How many children one statement walks over: few enough for it to answer in time.
pub(super) const PAGE: i64 = 20_000;

pub(super) async fn poll(store: &Postgres, now: Now, limit: usize) -> Result<PollReport, Error> {
    let conn = store.conn().await?;
    let (now, next_at) = next(&conn, now).await?;
    let mut polled = PollReport { now, next_at, ..PollReport::default() };
    if next_at.is_none_or(|at| at > now) {
        return Ok(polled);
    }
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let until = now.plus(HELD);
    let sql = sql::poll::TAKE_DUE;
    let rows = conn.query(sql, &[&now.micros(), &limit, &until.micros()]).await?;
    let taken: Vec<Key> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    polled.polled = taken.len();
    for view in views(&conn, &taken).await? {
        poll_branch(store, &conn, &view, now, until, &mut polled).await?;
    }
    polled.next_at = next(&conn, Some(now)).await?.1;
    Ok(polled)
}

async fn next(conn: &Guard<'_>, now: Now) -> Result<(Time, Option<Time>), Error> {
    let rows = conn.read(sql::poll::NEXT, &[&micros(now)]).await?;
    let row = rows.first().ok_or_else(|| Error::Fault("the clock answered nothing".into()))?;
    Ok((Time(row.get(0)), row.get::<_, Option<i64>>(1).map(Time)))
}

/// What is to be seen of a branch.
struct View {
    branch: Key,
    spawned: i64,
    watch: Option<BranchWatch>,
    before: BranchPoll,
    tally: BranchCounts,
    claimed: i64,
    begun: i64,
}

impl View {
    fn seen(&self, now: Time) -> PollSample {
        let View { spawned, tally: counts, claimed, begun: claimed_unstarted, .. } = *self;
        PollSample { now, spawned, counts, claimed, claimed_unstarted }
    }
}

async fn views(conn: &Guard<'_>, branches: &[Key]) -> Result<Vec<View>, Error> {
    if branches.is_empty() {
        return Ok(Vec::new());
    }
    let (jobs, numbers): (Vec<Uuid>, Vec<i64>) = branches.iter().copied().unzip();
    let rows = conn.read(sql::poll::SAMPLE, &[&jobs, &numbers]).await?;
    let view = |row: &Row| View {
        branch: (row.get(0), row.get(1)),
        spawned: row.get(2),
        watch: columns::watch(row.get(3)),
        before: columns::poll(row.get(4), None),
        tally: sum(row, 5),
        claimed: row.get(9),
        begun: row.get(10),
    };
    Ok(rows.iter().map(view).collect())
}

async fn poll_branch(
    store: &Postgres,
    conn: &Guard<'_>,
    view: &View,
    now: Time,
    mut until: Time,
    polled: &mut PollReport,
) -> Result<(), Error> {
    let pace = view.watch.as_ref().map_or(PollInterval::default(), |watch| watch.poll_interval);
    let (branch, before) = (view.branch, &view.before);
    let mut poll = before.next(&view.seen(now), pace);
    let mut tally = view.tally;
    if before.recount_due(&poll) || before.search_due(&poll) {
        // All children are walked over now, and others may have been before.
        let held = until;
        until = held.plus(HELD);
        let params: [Param<'_>; 4] = [&branch.0, &branch.1, &held.micros(), &until.micros()];
        if conn.execute(sql::poll::EXTEND, &params).await? == 0 {
            return Ok(());
        }
    }
    if before.recount_due(&poll) {
        let Some(recount) = recount(conn, branch, until).await? else { return Ok(()) };
        if recount.difference != BranchCounts::default() {
            polled.corrected += 1;
            if let Some(view) = views(conn, &[branch]).await?.first() {
                tally = view.tally;
                poll = before.next(&view.seen(now), pace);
            }
        }
        poll.missing = recount.missing;
        poll.counted_at = Some(now);
    }
    if before.search_due(&poll) {
        let lost = redeliver(store, conn, branch).await?;
        polled.redelivered += lost;
        poll.add_redelivered(lost);
    }
    let next_at = poll.next_at.map(Time::micros);
    let text = columns::poll_text(&poll);
    let (live, again) = (poll.pending > 0, now.plus(CANCEL_AGAIN).micros());
    let params: [Param<'_>; 7] = [&branch.0, &branch.1, &until.micros(), &text, &live, &again, &next_at];
    let rows = conn.query(sql::poll::WRITE, &params).await?;
    if rows.first().is_some_and(|row| row.get(0)) {
        polled.to_cancel.push((windlass_model::JobId(branch.0), windlass_model::BranchNo(branch.1)));
    }
    if poll.found_missing() {
        polled.notified += branch::notify_unmet(store, conn, Some(now), &[branch]).await?;
    } else if view.watch.as_ref().is_some_and(|watch| watch.is_met(&tally)) {
        polled.notified += branch::notify(store, conn, Some(now), &[branch]).await?;
    }
    Ok(())
}

/// Counts the children of a branch anew, and corrects the counts. Rows and sums are compared as they were at one moment, and the
/// difference is added: that is right whatever others have counted meanwhile, unless they have recounted. So it is added only
/// while the look is this one's; `None` if it is not.
async fn recount(conn: &Guard<'_>, branch: Key, until: Time) -> Result<Option<Recount>, Error> {
    conn.begin_snapshot().await?;
    let recount = compared(conn, branch).await;
    conn.rollback().await;
    let recount = recount?;
    if recount.difference == BranchCounts::default() {
        return Ok(Some(recount));
    }
    conn.begin().await?;
    let work = async {
        let params: [Param<'_>; 3] = [&branch.0, &branch.1, &until.micros()];
        let mine = !conn.query(sql::poll::LOCK_TAKEN, &params).await?.is_empty();
        if mine {
            branch::write(conn, &BTreeMap::from([(branch, recount.difference)])).await?;
        }
        conn.commit().await?;
        Ok(mine.then_some(recount))
    };
    let written = work.await;
    if written.is_err() {
        conn.rollback().await;
    }
    written
}

async fn compared(conn: &Guard<'_>, (job, number): Key) -> Result<Recount, Error> {
    let ends =
        |row: &Row| BranchCounts { started: 0, done: row.get(0), failed: row.get(1), cancelled: row.get(2) };
    let sums = conn.query(sql::poll::READ_SUM, &[&job, &number]).await?;
    let (counted, spawned) = sums.first().map_or((BranchCounts::default(), 0), |row| (ends(row), row.get(3)));
    let mut rows = ChildRows::default();
    let mut after = Some(Uuid::nil());
    while let Some(from) = after.take() {
        let page = conn.query(sql::poll::COUNT_CHILDREN, &[&job, &number, &from, &PAGE]).await?;
        if let Some(row) = page.first() {
            rows.ends.add(ends(row));
            rows.live += row.get::<_, i64>(3);
            after = row.get(4);
        }
    }
    Ok(rows.recount(spawned, &counted))
}

/// Puts children of a branch back that are in no place at all; answers how many.
async fn redeliver(store: &Postgres, conn: &Guard<'_>, (job, number): Key) -> Result<usize, Error> {
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
    let back = retry_deadlock!(put_back(conn, &lost))?;
    store.shared.floors.lowered(i64::MIN);
    Ok(back)
}

async fn put_back(conn: &Guard<'_>, lost: &[Uuid]) -> Result<usize, Error> {
    conn.begin().await?;
    let work = async {
        wait::lock(conn, lost).await?;
        // Whether they are lost is asked again, now that nobody moves them.
        let rows = conn.query(sql::poll::REDELIVER, &[&lost, &SPAN]).await?;
        let back: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        serial::enter(conn, &back).await?;
        serial::hand_over(conn).await?;
        conn.commit().await?;
        Ok(back.len())
    };
    let back = work.await;
    if back.is_err() {
        conn.rollback().await;
    }
    back
}
