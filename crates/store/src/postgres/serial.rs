//! The one routine by which jobs become ready or wait for their serial key, and by which free slots of serial keys are filled.
//!
//! A verb that moves a job with a serial key between its slots, its waiting jobs and the ready set locks the key first
//! ([`lock_keys`]), moves the job in later statements, and notes it ([`leave`], [`settle`]), all in one transaction. Free slots are
//! filled once, at the end of the transaction ([`fill_slots`]): which job is first in line is decided when all jobs of the call
//! are where the call leaves them.

use std::collections::HashMap;

use uuid::Uuid;
use windlass_model::NewJob;

use super::{Postgres, SPAN, conn::Conn, errors::PgError, sql, tx::Tx};

/// Locks the serial keys of some jobs.
pub(super) async fn lock_keys(tx: &Tx<'_>, ids: &[Uuid]) -> Result<(), PgError> {
    tx.execute(sql::serial::LOCK_KEYS_OF_JOBS, &[&ids]).await.map(drop)
}

/// Takes jobs out of slots and lines in which they no longer belong. Their serial keys must be locked ([`lock_keys`]); free
/// slots are filled at the end of the transaction.
pub(super) async fn leave(tx: &Tx<'_>, ids: &[Uuid]) -> Result<(), PgError> {
    tx.execute(sql::serial::LEAVE, &[&ids]).await?;
    tx.unsettled().extend(ids);
    Ok(())
}

/// Locks the serial keys of jobs that an earlier statement of this transaction has moved, then does what [`leave`] does.
pub(super) async fn settle(tx: &Tx<'_>, ids: &[Uuid]) -> Result<(), PgError> {
    if ids.is_empty() {
        return Ok(());
    }
    lock_keys(tx, ids).await?;
    leave(tx, ids).await
}

/// Gives free slots of the serial keys that the transaction has touched to the first jobs that wait for them. Must be the last
/// before the counts of branches and the commit. Returns how many jobs became ready.
pub(super) async fn fill_slots(tx: &Tx<'_>) -> Result<usize, PgError> {
    let ids = std::mem::take(&mut *tx.unsettled());
    if ids.is_empty() {
        return Ok(0);
    }
    let rows = tx.query(sql::serial::FILL_SLOTS, &[&ids, &SPAN, &tx.gate_writer]).await?;
    Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as usize))
}

/// Settles jobs and fills the slots of their keys in a transaction of its own. Returns how many jobs became ready.
pub(super) async fn settle_alone(conn: &mut Conn, ids: &[Uuid]) -> Result<usize, PgError> {
    if ids.is_empty() {
        return Ok(0);
    }
    let tx = Tx::write(conn).await?;
    let settled = async {
        settle(&tx, ids).await?;
        fill_slots(&tx).await
    };
    let settled = settled.await;
    tx.finish(settled).await
}

/// Makes live jobs ready that are due, locked and not held, or lets them wait for their serial key.
pub(super) async fn enter(tx: &Tx<'_>, ids: &[Uuid]) -> Result<(), PgError> {
    if enter_unsettled(tx, ids).await? {
        settle(tx, ids).await?;
    }
    Ok(())
}

/// The same without settling them. Returns whether any waits for its serial key; then [`settle`] must follow.
pub(super) async fn enter_unsettled(tx: &Tx<'_>, ids: &[Uuid]) -> Result<bool, PgError> {
    if ids.is_empty() {
        return Ok(false);
    }
    let rows = tx.query(sql::serial::ENTER, &[&ids, &SPAN, &tx.gate_writer]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Returns the numbers of the serial keys of some jobs, and adds those that do not exist. Jobs that state the number of slots set
/// it. Committed at once: what a key is does not depend on whether the jobs are submitted.
pub(super) async fn intern(store: &Postgres, jobs: &[NewJob]) -> Result<HashMap<String, i64>, PgError> {
    let mut slots: HashMap<&str, Option<i32>> = HashMap::new();
    for serial in jobs.iter().filter_map(|job| job.settings.serial.as_ref()) {
        let stated = slots.entry(&serial.key).or_default();
        *stated = serial.slots.map(|slots| slots as i32).or(*stated);
    }
    if slots.is_empty() {
        return Ok(HashMap::new());
    }
    let keys: Vec<&str> = slots.keys().copied().collect();
    let mut conn = store.conn().await?;
    let mut known = read(&conn, &keys).await?;
    if known.len() < keys.len() {
        conn.execute(sql::serial::ADD, &[&keys]).await?;
        known = read(&conn, &keys).await?;
    }
    let differs = |(key, id, now): &(String, i64, i32)| {
        let wanted = slots.get(key.as_str()).copied().flatten()?;
        (wanted != *now).then_some((*id, wanted))
    };
    let (changed, counts): (Vec<i64>, Vec<i32>) = known.iter().filter_map(differs).unzip();
    if !changed.is_empty() {
        let tx = Tx::write(&mut conn).await?;
        let work = async {
            tx.execute(sql::serial::LOCK_KEYS, &[&changed]).await?;
            tx.execute(sql::serial::CHANGE_SLOTS, &[&changed, &counts]).await?;
            // More slots than before may admit a waiting job.
            for serial in &changed {
                settle_key(&tx, *serial).await?;
            }
            fill_slots(&tx).await
        };
        let filled = work.await;
        tx.finish(filled).await?;
        store.shared.floors.lowered(i64::MIN);
    }
    Ok(known.into_iter().map(|(key, id, _)| (key, id)).collect())
}

/// Reads name, number and slots of serial keys.
async fn read(conn: &Conn, keys: &[&str]) -> Result<Vec<(String, i64, i32)>, PgError> {
    let rows = conn.query(sql::serial::READ, &[&keys]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
}

/// Notes that a serial key, which is locked, may have free slots.
pub(super) async fn settle_key(tx: &Tx<'_>, serial: i64) -> Result<(), PgError> {
    let rows = tx.query(sql::serial::FIRST_WAITING, &[&serial]).await?;
    match rows.first() {
        Some(row) => settle(tx, &[row.get(0)]).await,
        None => Ok(()),
    }
}

/// Fills free slots that have waiting jobs, and frees slots of jobs that no longer need them: see [`crate::Maintenance::repair`].
pub(super) async fn repair(store: &Postgres) -> Result<usize, PgError> {
    let mut conn = store.conn().await?;
    let mut ids: Vec<Uuid> = Vec::new();
    for sql in [sql::repair::STALE_HOLDERS, sql::repair::FREE_SERIAL_KEYS] {
        ids.extend(conn.query(sql, &[]).await?.iter().map(|row| row.get::<_, Uuid>(0)));
    }
    if ids.is_empty() {
        return Ok(0);
    }
    let filled = settle_alone(&mut conn, &ids).await;
    store.shared.floors.lowered(i64::MIN);
    filled
}
