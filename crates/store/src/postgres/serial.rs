//! The one routine by which jobs enter the ready set or a line, and by which slots of serial keys are handed over.
//!
//! Whoever changes what is in a line, a slot or the ready set for a job with a serial key locks the key first
//! ([`lock`]), changes it in later statements, and has its slots handed over ([`leave`], [`settle`]), all in one transaction.
//! That is done once, at the end of the transaction ([`hand_over`]): who is first in line is decided when all jobs of a call
//! stand where it leaves them.

use std::collections::HashMap;

use uuid::Uuid;
use windlass_model::NewJob;

use super::{Postgres, SPAN, pool::Guard, sql};
use crate::Error;

/// Locks the serial keys of some jobs.
pub(super) async fn lock(conn: &Guard<'_>, ids: &[Uuid]) -> Result<(), Error> {
    conn.execute(sql::serial::LOCK_KEYS_OF_JOBS, &[&ids]).await.map(drop)
}

/// Takes jobs out of slots and lines in which they have no more business; what is free goes to the first in line at the end
/// of the transaction. Needs [`lock`] before.
pub(super) async fn leave(conn: &Guard<'_>, ids: &[Uuid]) -> Result<(), Error> {
    conn.execute(sql::serial::LEAVE, &[&ids]).await?;
    conn.unsettled().extend(ids);
    Ok(())
}

/// Both: for jobs that have left, or stand in line since an earlier statement of this transaction.
pub(super) async fn settle(conn: &Guard<'_>, ids: &[Uuid]) -> Result<(), Error> {
    if ids.is_empty() {
        return Ok(());
    }
    lock(conn, ids).await?;
    leave(conn, ids).await
}

/// The last but the commit in a transaction that has touched serial keys: free slots go to the first in line. Answers how many
/// jobs entered the ready set.
pub(super) async fn hand_over(conn: &Guard<'_>) -> Result<usize, Error> {
    let ids = std::mem::take(&mut *conn.unsettled());
    if ids.is_empty() {
        return Ok(0);
    }
    let promote = sql::serial::FILL_SLOTS;
    let rows = conn.query(promote, &[&ids, &SPAN, &conn.gate_writer]).await?;
    Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as usize))
}

/// The same in a transaction of its own, for jobs whose own is over.
pub(super) async fn settle_alone(conn: &Guard<'_>, ids: &[Uuid]) -> Result<(), Error> {
    if ids.is_empty() {
        return Ok(());
    }
    conn.begin().await?;
    let settled = async {
        settle(conn, ids).await?;
        hand_over(conn).await
    };
    let settled = settled.await;
    match &settled {
        Ok(_) => conn.commit().await?,
        Err(_) => conn.rollback().await,
    }
    settled.map(drop)
}

/// Lets live jobs that are due, locked and not held enter the ready set or their key's line.
pub(super) async fn enter(conn: &Guard<'_>, ids: &[Uuid]) -> Result<(), Error> {
    if enter_unsettled(conn, ids).await? {
        settle(conn, ids).await?;
    }
    Ok(())
}

/// The same without handing slots over; answers whether some stand in line now.
pub(super) async fn enter_unsettled(conn: &Guard<'_>, ids: &[Uuid]) -> Result<bool, Error> {
    if ids.is_empty() {
        return Ok(false);
    }
    let rows = conn.query(sql::serial::ENTER, &[&ids, &SPAN, &conn.gate_writer]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// The numbers of the serial keys of some jobs, which are made if needed; those that name their slots have them
/// afterwards. Committed at once: what a key is does not hang on what becomes of the jobs.
pub(super) async fn intern(store: &Postgres, jobs: &[NewJob]) -> Result<HashMap<String, i64>, Error> {
    let mut slots: HashMap<&str, Option<i32>> = HashMap::new();
    for serial in jobs.iter().filter_map(|job| job.settings.serial.as_ref()) {
        let known = slots.entry(&serial.key).or_default();
        *known = serial.slots.map(|slots| slots as i32).or(*known);
    }
    if slots.is_empty() {
        return Ok(HashMap::new());
    }
    let keys: Vec<&str> = slots.keys().copied().collect();
    let conn = store.conn().await?;
    let read = async || {
        let rows = conn.query(sql::serial::READ, &[&keys]).await?;
        Ok::<Vec<(String, i64, i32)>, Error>(
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect(),
        )
    };
    let mut known = read().await?;
    if known.len() < keys.len() {
        conn.execute(sql::serial::ADD, &[&keys]).await?;
        known = read().await?;
    }
    let differs = |(key, id, now): &(String, i64, i32)| {
        let wanted = slots.get(key.as_str()).copied().flatten()?;
        (wanted != *now).then_some((*id, wanted))
    };
    let (changed, counts): (Vec<i64>, Vec<i32>) = known.iter().filter_map(differs).unzip();
    if !changed.is_empty() {
        conn.begin().await?;
        let work = async {
            conn.execute(sql::serial::LOCK_KEYS, &[&changed]).await?;
            conn.execute(sql::serial::CHANGE_SLOTS, &[&changed, &counts]).await?;
            // More slots than before may let someone in.
            for serial in &changed {
                settle_key(&conn, *serial).await?;
            }
            hand_over(&conn).await?;
            Ok::<_, Error>(())
        };
        match work.await {
            Ok(()) => conn.commit().await?,
            Err(error) => {
                conn.rollback().await;
                return Err(error);
            }
        }
        store.shared.floors.lowered(i64::MIN);
    }
    Ok(known.into_iter().map(|(key, id, _)| (key, id)).collect())
}

/// Hands free slots of one key over; its row is locked by this transaction.
pub(super) async fn settle_key(conn: &Guard<'_>, serial: i64) -> Result<(), Error> {
    let rows = conn.query(sql::serial::FIRST_WAITING, &[&serial]).await?;
    match rows.first() {
        Some(row) => settle(conn, &[row.get(0)]).await,
        None => Ok(()),
    }
}

/// The backstop; see [`crate::Maintenance::repair`].
pub(super) async fn sweep(store: &Postgres) -> Result<usize, Error> {
    let conn = store.conn().await?;
    let mut ids: Vec<Uuid> = Vec::new();
    for sql in [sql::repair::STALE_HOLDERS, sql::repair::FREE_SERIAL_KEYS] {
        ids.extend(conn.query(sql, &[]).await?.iter().map(|row| row.get::<_, Uuid>(0)));
    }
    if ids.is_empty() {
        return Ok(0);
    }
    conn.begin().await?;
    let entered = async {
        settle(&conn, &ids).await?;
        hand_over(&conn).await
    };
    let entered = entered.await;
    match &entered {
        Ok(_) => conn.commit().await?,
        Err(_) => conn.rollback().await,
    }
    store.shared.floors.lowered(i64::MIN);
    entered
}
