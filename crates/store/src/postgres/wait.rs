//! Parked jobs: the one routine by which they are woken before their time is over, and by which the ends of children
//! count for the waits of their parents.
//!
//! A signal and the wait that it ends meet at the lock of the job's row. Whoever has it first is seen by the other: a wait
//! looks into the inbox after it has written the row, a signal looks at the row after it has locked it.

use std::collections::{BTreeMap, HashSet};

use uuid::Uuid;
use windlass_model::{NewJob, Rev};

use super::{Postgres, SPAN, control::transaction, micros, pool::Guard, serial, sql};
use crate::{Error, Now};

/// The statement that wakes, for those who prepare it.
pub(super) const WAKE: &str = sql::waits::WAKE;

/// The statement that locks jobs by id.
pub(super) const LOCK: &str = sql::commit::LOCK_JOBS;

/// The statement that counts ends of children.
pub(super) const COUNT: &str = sql::commit::COUNT_CHILD_ENDS;

/// What a call woke.
#[derive(Default)]
pub(super) struct Woken {
    pub(super) ids: HashSet<Uuid>,
    /// Those that stand in the line of their serial key, or were set aside: [`serial::settle`] comes next.
    pub(super) unsettled: Vec<Uuid>,
}

/// Locks jobs by id.
pub(super) async fn lock(conn: &Guard<'_>, ids: &[Uuid]) -> Result<(), Error> {
    if ids.is_empty() {
        return Ok(());
    }
    conn.execute(LOCK, &[&ids]).await.map(drop)
}

/// Wakes those of some jobs that are parked and have what they wait for. Needs their locks from an earlier statement.
pub(super) async fn wake(conn: &Guard<'_>, now: Now, ids: &[Uuid]) -> Result<Woken, Error> {
    let mut woken = Woken::default();
    if ids.is_empty() {
        return Ok(woken);
    }
    for row in conn.query(WAKE, &[&micros(now), &ids, &SPAN, &conn.gate_writer]).await? {
        woken.ids.insert(row.get(0));
        woken.unsettled.extend(row.get::<_, bool>(1).then(|| row.get::<_, Uuid>(0)));
    }
    Ok(woken)
}

/// Counts the ends of children, or tells their parents of them, unless these have ended: those of `first` did so after their
/// children, in the same transaction. Answers the parents, which are to be woken.
pub(super) async fn count_ends(
    conn: &Guard<'_>,
    now: Now,
    children: &[Uuid],
    first: &[Uuid],
) -> Result<Vec<Uuid>, Error> {
    count(conn, now, children, -1, first).await
}

/// Counts children that came back to life.
pub(super) async fn count_revivals(conn: &Guard<'_>, children: &[Uuid]) -> Result<(), Error> {
    count(conn, None, children, 1, &[]).await.map(drop)
}

async fn count(
    conn: &Guard<'_>,
    now: Now,
    children: &[Uuid],
    each: i32,
    first: &[Uuid],
) -> Result<Vec<Uuid>, Error> {
    if children.is_empty() {
        return Ok(Vec::new());
    }
    let rows = conn.query(COUNT, &[&micros(now), &children, &each, &first]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Counts children that were put in for the waits of their parents, or takes that back (`each` is -1).
pub(super) async fn count_new_children(conn: &Guard<'_>, jobs: &[&NewJob], each: i32) -> Result<(), Error> {
    let counts = |job: &NewJob| job.parent_rev.is_some_and(|round| round != Rev::SIGNALLED);
    let mut births: BTreeMap<Uuid, i32> = BTreeMap::new();
    for parent in jobs.iter().filter(|job| counts(job)).filter_map(|job| job.parent) {
        *births.entry(parent.0).or_default() += each;
    }
    if births.is_empty() {
        return Ok(());
    }
    let (parents, counts): (Vec<Uuid>, Vec<i32>) = births.into_iter().unzip();
    conn.execute(sql::commit::ADD_PENDING_CHILDREN, &[&parents, &counts]).await.map(drop)
}

/// Children have ended: their parents are woken if these were the last, or if being told of it is what they wait for.
pub(super) async fn children_ended(conn: &Guard<'_>, now: Now, children: &[Uuid]) -> Result<(), Error> {
    let parents = count_ends(conn, now, children, &[]).await?;
    let woken = wake(conn, now, &parents).await?;
    serial::settle(conn, &woken.unsettled).await
}

/// The backstop; see [`crate::Maintenance::repair`].
pub(super) async fn sweep(store: &Postgres, now: Now) -> Result<usize, Error> {
    let rows = store.conn().await?.query(sql::repair::MET_WAITS, &[]).await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    if ids.is_empty() {
        return Ok(0);
    }
    transaction(store, now, async |conn, now| {
        lock(conn, &ids).await?;
        let woken = wake(conn, Some(now), &ids).await?;
        serial::settle(conn, &woken.unsettled).await?;
        Ok(woken.ids.len())
    })
    .await
}
