//! Due timers, and the gates.

use rusqlite::params;
use windlass_model::{JobId, Reason, Time, Unwind};

use super::{
    Sqlite,
    act::{self, Seen},
    arrive,
    flow::Spot,
    schedule,
    tx::{ORDERS, TIMERS, Tx, id_of},
};
use crate::{
    By, Due, Error, Now, ORDER_GATE, TIMER_GATE,
    memory::expired,
    pick::{self, DEADLINE, LIVE, WAKE},
};

/// A timer that is due, with its job.
struct Fired {
    at: Time,
    what: i16,
    live: bool,
    spot: Spot,
}

/// Fires what is due and puts in what has arrived. Looks without the write lock first: most calls find nothing to do.
pub(super) async fn due(store: &Sqlite, now: Now, limit: usize) -> Result<Due, Error> {
    // Looked at once: an arrival is due at this very moment, not a microsecond later.
    let (now, next) = store.read(|tx| Ok((tx.now(now), next(tx)?)))?;
    let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
    if !is_due(next.at(now)) {
        return Ok(Due { now, next_at: next.at(now), ..Due::default() });
    }
    let mut due = Due { now, ..Due::default() };
    // Three transactions: what is wrong with one must not hold up the others.
    let (mut failed, mut learned) = (None, false);
    if is_due(next.timer) {
        match store.write(limit, |tx| fire(tx, now, limit)).await {
            Ok(fired) => due = fired,
            Err(error) => failed = Some(error),
        }
    }
    if next.arrivals {
        match store.write(limit, |tx| arrive::admit(tx, now, limit)).await {
            Ok(arrived) => (due.admitted, learned) = (arrived.admitted, arrived.learned),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if is_due(next.tick) {
        match store.write(limit, |tx| schedule::fire(tx, now)).await {
            Ok((fired, made)) => (due.fired, learned) = (fired, learned || made),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed.filter(|_| due == Due { now, ..Due::default() }) {
        return Err(error);
    }
    if learned {
        store.read_lanes()?;
    }
    due.next_at = store.read(self::next)?.at(now);
    Ok(due)
}

/// When there is something to do.
struct Next {
    timer: Option<Time>,
    tick: Option<Time>,
    /// Whether jobs wait to be put in.
    arrivals: bool,
}

impl Next {
    /// When there is something to do next: now, if jobs wait to be put in.
    fn at(&self, now: Time) -> Option<Time> {
        self.arrivals.then_some(now).into_iter().chain(self.timer).chain(self.tick).min()
    }
}

fn next(tx: &Tx<'_>) -> Result<Next, Error> {
    let next = tx.one(include_str!("sql/due_next.sql"), [], |row| {
        let (timer, tick) = (row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?);
        Ok(Next { timer: timer.map(Time), tick: tick.map(Time), arrivals: row.get(2)? })
    })?;
    next.ok_or_else(|| Error::Fault("the timers answered nothing".into()))
}

fn fire(tx: &Tx<'_>, now: Time, limit: usize) -> Result<Due, Error> {
    let params = params![now.micros(), i64::try_from(limit).unwrap_or(i64::MAX)];
    let fired = tx.all(include_str!("sql/due.sql"), params, |row| {
        let (at, id): (_, JobId) = (Time(row.get(0)?), id_of(row, 1)?);
        let live = row.get::<_, i16>(3)? == LIVE;
        Ok(Fired { at, what: row.get(2)?, live, spot: Spot::read(id, row, 4)? })
    })?;
    let mut due = Due { now, ..Due::default() };
    for Fired { at, what, live, spot } in &fired {
        // An end earlier in this batch may have taken the job's other timers with it.
        if !tx.unset_timer(*at, spot.id, *what)? || !live {
            continue;
        }
        match *what {
            WAKE => {
                if spot.parked {
                    tx.rouse(spot)?
                } else {
                    tx.enter(spot)?
                }
                due.woken += 1;
            }
            DEADLINE => {
                expire(tx, now, &as_it_is(tx, spot)?, *at)?;
                due.expired += 1;
            }
            _ => {
                let by = tx.take_order(spot.id)?.unwrap_or_else(|| By::new("someone"));
                act::end_cancelled(tx, now, &as_it_is(tx, spot)?, &by)?;
                due.cancelled += 1;
            }
        }
    }
    Ok(due)
}

fn expire(tx: &Tx<'_>, now: Time, seen: &Seen, at: Time) -> Result<(), Error> {
    let (spot, failure) = (&seen.spot, expired(at));
    if seen.unwinds {
        return tx.unwind(now, spot, &Unwind { reason: Some(Reason::Expired), failure }, None);
    }
    let (reason, failure) = (pick::reason_number(Reason::Expired), pick::failure_text(&failure));
    let params = params![spot.id.as_bytes(), reason, failure, now.micros()];
    tx.run(include_str!("sql/due_expire.sql"), params)?;
    tx.unplace(spot)?;
    tx.clear(now, &Spot { deadline_at: None, ..*spot })
}

/// A job whose timer is due, as it is now: the end of a child earlier in this batch may have woken it.
fn as_it_is(tx: &Tx<'_>, spot: &Spot) -> Result<Seen, Error> {
    act::look(tx, spot.id)?.ok_or_else(|| Error::Fault(format!("job {} is gone", spot.id)))
}

/// Reads all gates at once: they are few.
pub(super) fn gate(store: &Sqlite, queues: &[String]) -> Result<Vec<u64>, Error> {
    let known = |queue: &String| match queue.as_str() {
        TIMER_GATE => Some(TIMERS),
        ORDER_GATE => Some(ORDERS),
        queue => store.shared.lanes.queue(queue),
    };
    if queues.iter().any(|queue| known(queue).is_none()) {
        store.read_lanes()?;
    }
    let ids: Vec<Option<i32>> = queues.iter().map(known).collect();
    store.read(|tx| {
        let mut statement = tx.prepare(include_str!("sql/gate.sql"))?;
        let mut rows = statement.query([])?;
        let mut sums = vec![0u64; queues.len()];
        while let Some(row) = rows.next()? {
            let (queue, version, arrived) =
                (row.get::<_, i32>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?);
            // Far apart, so that an arrival cannot look like a timer that was set.
            let version = (version as u64).wrapping_add((arrived as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for (sum, id) in sums.iter_mut().zip(&ids) {
                if *id == Some(queue) {
                    *sum = sum.wrapping_add(version);
                }
            }
        }
        Ok(sums)
    })
}
