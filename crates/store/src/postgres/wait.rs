//! Parked jobs: the one routine by which they are woken before their timeout, and by which the ends of children are counted in
//! the waits of their parents.
//!
//! A signal and the wait that it meets both lock the job's row, and the later one sees the earlier: a wait reads the inbox after it
//! has written the row, and a signal reads the row after it has locked it.

use std::collections::{BTreeMap, HashSet};

use uuid::Uuid;
use windlass_model::NewJob;

use super::{Postgres, SPAN, control::transaction, errors::PgError, micros, serial, sql, tx::Tx};
use crate::Now;

/// The statements that callers must prepare before they pipeline [`wake`], [`lock_jobs`] and [`count_child_ends`].
pub(super) const WAKE: &str = sql::waits::WAKE;
pub(super) const LOCK_JOBS: &str = sql::commit::LOCK_JOBS;
pub(super) const COUNT_CHILD_ENDS: &str = sql::commit::COUNT_CHILD_ENDS;

/// The jobs that were woken.
#[derive(Default)]
pub(super) struct Woken {
    pub(super) ids: HashSet<Uuid>,
    /// Those that wait for their serial key or are held: [`serial::settle`] must follow.
    pub(super) unsettled: Vec<Uuid>,
}

/// Locks jobs, by id.
pub(super) async fn lock_jobs(tx: &Tx<'_>, ids: &[Uuid]) -> Result<(), PgError> {
    if ids.is_empty() {
        return Ok(());
    }
    tx.execute(LOCK_JOBS, &[&ids]).await.map(drop)
}

/// Wakes those of some jobs that are parked and whose wait is met. An earlier statement must have locked them.
pub(super) async fn wake(tx: &Tx<'_>, now: Now, ids: &[Uuid]) -> Result<Woken, PgError> {
    let mut woken = Woken::default();
    if ids.is_empty() {
        return Ok(woken);
    }
    for row in tx.query(WAKE, &[&micros(now), &ids, &SPAN, &tx.gate_writer, &tx.count_writer]).await? {
        woken.ids.insert(row.get(0));
        woken.unsettled.extend(row.get::<_, bool>(1).then(|| row.get::<_, Uuid>(0)));
    }
    Ok(woken)
}

/// Counts the ends of children in the waits of their parents, or sends those signals, unless a parent has ended. The parents of
/// children in `before_parents` have ended too, but after them, in this transaction. Returns the parents, which must be woken.
pub(super) async fn count_child_ends(
    tx: &Tx<'_>,
    now: Now,
    children: &[Uuid],
    before_parents: &[Uuid],
) -> Result<Vec<Uuid>, PgError> {
    count(tx, now, children, -1, before_parents).await
}

/// Counts children that are live again in the waits of their parents.
pub(super) async fn count_revivals(tx: &Tx<'_>, children: &[Uuid]) -> Result<(), PgError> {
    count(tx, None, children, 1, &[]).await.map(drop)
}

async fn count(
    tx: &Tx<'_>,
    now: Now,
    children: &[Uuid],
    each: i32,
    before_parents: &[Uuid],
) -> Result<Vec<Uuid>, PgError> {
    if children.is_empty() {
        return Ok(Vec::new());
    }
    let rows = tx.query(COUNT_CHILD_ENDS, &[&micros(now), &children, &each, &before_parents]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Counts new children in the waits of their parents (`each` is 1), or undoes that (-1).
pub(super) async fn count_new_children(tx: &Tx<'_>, jobs: &[&NewJob], each: i32) -> Result<(), PgError> {
    let mut added: BTreeMap<Uuid, i32> = BTreeMap::new();
    for (parent, _) in jobs.iter().filter_map(|job| job.counting_parent()) {
        *added.entry(parent.0).or_default() += each;
    }
    if added.is_empty() {
        return Ok(());
    }
    let (parents, counts): (Vec<Uuid>, Vec<i32>) = added.into_iter().unzip();
    tx.execute(sql::commit::ADD_PENDING_CHILDREN, &[&parents, &counts]).await.map(drop)
}

/// Counts the ends of children, and wakes the parents whose waits are met by that.
pub(super) async fn children_ended(tx: &Tx<'_>, now: Now, children: &[Uuid]) -> Result<(), PgError> {
    let parents = count_child_ends(tx, now, children, &[]).await?;
    let woken = wake(tx, now, &parents).await?;
    serial::settle(tx, &woken.unsettled).await
}

/// Wakes parked jobs whose wait is met: see [`crate::Maintenance::repair`].
pub(super) async fn repair(store: &Postgres, now: Now) -> Result<usize, PgError> {
    let rows = store.conn().await?.query(sql::repair::MET_WAITS, &[]).await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    if ids.is_empty() {
        return Ok(0);
    }
    transaction(store, now, async |tx, now| {
        lock_jobs(tx, &ids).await?;
        let woken = wake(tx, Some(now), &ids).await?;
        serial::settle(tx, &woken.unsettled).await?;
        Ok(woken.ids.len())
    })
    .await
}
