//! Due timers, and the gates.

use rusqlite::params;
use windlass_model::{JobId, Reason, Time, rank::rank};

use super::{Sqlite, Tx, job_id};
use crate::{
    Due, Error, Now, TIMER_GATE,
    memory::expired,
    pick::{self, DEADLINE, LIVE, WAKE},
};

/// A timer that is due, with what is needed of its job.
struct Fired {
    at: i64,
    id: JobId,
    what: i16,
    live: bool,
    lane: i32,
    priority: i16,
    due_at: Time,
    suspect: bool,
    deadline: Option<i64>,
}

/// Fires what is due. Looks without the write lock first: most calls find nothing to do.
pub(super) async fn due(store: &Sqlite, now: Now, limit: usize) -> Result<Due, Error> {
    let (now, next_at) = store.read(|tx| Ok((tx.now(now), next_at(tx)?)))?;
    if next_at.is_none_or(|at| at > now) {
        return Ok(Due { now, next_at, ..Due::default() });
    }
    store.write(limit, |tx| fire(tx, now, limit)).await
}

fn next_at(tx: &Tx<'_>) -> Result<Option<Time>, Error> {
    Ok(tx.one(include_str!("sql/due_next.sql"), [], |row| row.get::<_, Option<i64>>(0))?.flatten().map(Time))
}

fn fire(tx: &Tx<'_>, now: Time, limit: usize) -> Result<Due, Error> {
    let fired = {
        let mut statement = tx.prepare(include_str!("sql/due.sql"))?;
        let mut rows = statement.query(params![now.micros(), limit as i64])?;
        let mut fired = Vec::new();
        while let Some(row) = rows.next()? {
            fired.push(Fired {
                at: row.get(0)?,
                id: job_id(&row.get::<_, [u8; 16]>(1)?)?,
                what: row.get(2)?,
                live: row.get::<_, i16>(3)? == LIVE,
                lane: row.get(4)?,
                priority: row.get(5)?,
                due_at: Time(row.get(6)?),
                suspect: row.get(7)?,
                deadline: row.get(8)?,
            });
        }
        fired
    };
    let mut due = Due { now, ..Due::default() };
    for timer in fired {
        // An expiry earlier in this batch may have taken the job's other timer with it.
        let params = params![timer.at, timer.id.as_bytes(), timer.what];
        if tx.run(include_str!("sql/commit_untimer.sql"), params)? == 0 || !timer.live {
            continue;
        }
        let place = rank(timer.due_at, timer.priority);
        if timer.what == WAKE {
            tx.make_ready(&tx.store.lane(tx, timer.lane)?, timer.suspect, place, timer.id)?;
            due.woken += 1;
        } else {
            expire(tx, now, &timer, place)?;
            due.expired += 1;
        }
    }
    due.next_at = next_at(tx)?;
    Ok(due)
}

fn expire(tx: &Tx<'_>, now: Time, timer: &Fired, place: i64) -> Result<(), Error> {
    let id = timer.id.as_bytes();
    let reason = pick::reason_number(Reason::Expired);
    let failure = pick::failure_text(&expired(Time(timer.deadline.unwrap_or(timer.at))));
    tx.run(include_str!("sql/due_expire.sql"), params![id, reason, failure, now.micros()])?;
    let lane = if timer.suspect { -timer.lane } else { timer.lane };
    tx.run(include_str!("sql/due_unready.sql"), params![lane, place, id])?;
    tx.run(include_str!("sql/commit_untimer.sql"), params![timer.due_at.micros(), id, WAKE])?;
    debug_assert_eq!(timer.what, DEADLINE);
    Ok(())
}

/// Reads all gates at once: they are few.
pub(super) fn gate(store: &Sqlite, queues: &[String]) -> Result<Vec<u64>, Error> {
    if queues.iter().any(|queue| queue != TIMER_GATE && store.shared.lanes.queue(queue).is_none()) {
        store.read_lanes()?;
    }
    store.read(|tx| {
        let mut statement = tx.prepare(include_str!("sql/gate.sql"))?;
        let mut rows = statement.query([])?;
        let ids: Vec<Option<i32>> = queues
            .iter()
            .map(|queue| if queue == TIMER_GATE { Some(0) } else { store.shared.lanes.queue(queue) })
            .collect();
        let mut sums = vec![0u64; queues.len()];
        while let Some(row) = rows.next()? {
            let (queue, version) = (row.get::<_, i32>(0)?, row.get::<_, i64>(1)?);
            for (sum, id) in sums.iter_mut().zip(&ids) {
                if *id == Some(queue) {
                    *sum = sum.wrapping_add(version as u64);
                }
            }
        }
        Ok(sums)
    })
}
