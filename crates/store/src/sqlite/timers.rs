//! Due timers, and the gates.

use rusqlite::params;
use windlass_model::{JobId, Reason, Time, Unwind};

use super::{
    Sqlite, arrivals,
    job_actions::{self, JobRow},
    schedule,
    serial::Placement,
    sql,
    tx::{ORDERS, TIMERS, Tx, id_of},
};
use crate::{
    Actor, CANCEL_GATE, Error, Now, TIMER_GATE, TimerReport,
    columns::{self, DEADLINE, LIVE, WAKE},
    memory::expired,
};

/// A timer that is due, with its job.
struct Fired {
    at: Time,
    what: i16,
    live: bool,
    spot: Placement,
}

/// Fires what is due and puts in what has arrived. Looks without the write lock first: most calls find nothing to do.
pub(super) async fn due(store: &Sqlite, now: Now, limit: usize) -> Result<TimerReport, Error> {
    // Looked at once: an arrival is due at this very moment, not a microsecond later.
    let (now, next) = store.read(|tx| Ok((tx.now(now), next(tx)?)))?;
    let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
    if !is_due(next.at(now)) {
        return Ok(TimerReport { now, next_at: next.at(now), ..TimerReport::default() });
    }
    let mut due = TimerReport { now, ..TimerReport::default() };
    // Three transactions: what is wrong with one must not hold up the others.
    let (mut failed, mut learned) = (None, false);
    if is_due(next.timer) {
        match store.write(limit, |tx| fire(tx, now, limit)).await {
            Ok(fired) => due = fired,
            Err(error) => failed = Some(error),
        }
    }
    if next.arrivals {
        match store.write(limit, |tx| arrivals::admit(tx, now, limit)).await {
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
    if let Some(error) = failed.filter(|_| due == TimerReport { now, ..TimerReport::default() }) {
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
    let next = tx.one(sql::timers::NEXT, [], |row| {
        let (timer, tick) = (row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?);
        Ok(Next { timer: timer.map(Time), tick: tick.map(Time), arrivals: row.get(2)? })
    })?;
    next.ok_or_else(|| Error::Fault("the timers answered nothing".into()))
}

fn fire(tx: &Tx<'_>, now: Time, limit: usize) -> Result<TimerReport, Error> {
    let params = params![now.micros(), i64::try_from(limit).unwrap_or(i64::MAX)];
    let fired = tx.all(sql::timers::READ_DUE, params, |row| {
        let (at, id): (_, JobId) = (Time(row.get(0)?), id_of(row, 1)?);
        let live = row.get::<_, i16>(3)? == LIVE;
        Ok(Fired { at, what: row.get(2)?, live, spot: Placement::read(id, row, 4)? })
    })?;
    let mut due = TimerReport { now, ..TimerReport::default() };
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
                let by = tx.take_cancel_request(spot.id)?.unwrap_or_else(|| Actor::new("someone"));
                job_actions::end_cancelled(tx, now, &as_it_is(tx, spot)?, &by)?;
                due.cancelled += 1;
            }
        }
    }
    Ok(due)
}

fn expire(tx: &Tx<'_>, now: Time, seen: &JobRow, at: Time) -> Result<(), Error> {
    let (spot, failure) = (&seen.spot, expired(at));
    if seen.unwinds {
        return tx.unwind(now, spot, &Unwind { reason: Some(Reason::Expired), failure }, None);
    }
    let (reason, failure) = (columns::reason_number(Reason::Expired), columns::failure_text(&failure));
    let params = params![spot.id.as_bytes(), reason, failure, now.micros()];
    tx.run(sql::timers::EXPIRE, params)?;
    tx.unplace(spot)?;
    tx.clear(now, &Placement { deadline_at: None, ..*spot })
}

/// A job whose timer is due, as it is now: the end of a child earlier in this batch may have woken it.
fn as_it_is(tx: &Tx<'_>, spot: &Placement) -> Result<JobRow, Error> {
    job_actions::read_job(tx, spot.id)?.ok_or_else(|| Error::Fault(format!("job {} is gone", spot.id)))
}

/// Reads all gates at once: they are few.
pub(super) fn gate(store: &Sqlite, queues: &[String]) -> Result<Vec<u64>, Error> {
    let known = |queue: &String| match queue.as_str() {
        TIMER_GATE => Some(TIMERS),
        CANCEL_GATE => Some(ORDERS),
        queue => store.shared.lanes.queue(queue),
    };
    if queues.iter().any(|queue| known(queue).is_none()) {
        store.read_lanes()?;
    }
    let ids: Vec<Option<i32>> = queues.iter().map(known).collect();
    store.read(|tx| {
        let mut statement = tx.prepare(sql::gates::VERSIONS)?;
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
