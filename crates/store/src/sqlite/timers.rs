//! Firing due timers, and reading gates.

use rusqlite::params;
use windlass_model::{Failure, JobId, Reason, State, Time, Unwind};

use super::{
    Sqlite, arrivals,
    job_actions::{self, JobRow},
    schedule,
    serial::Placement,
    sql,
    tx::{CANCEL_GATE_ID, TIMER_GATE_ID, Tx, read_id},
};
use crate::{
    Actor, CANCEL_GATE, Error, Now, TIMER_GATE, TimerReport,
    columns::{self, DEADLINE, LIVE, WAKE},
};

/// A due timer, with its job.
struct DueTimer {
    at: Time,
    purpose: i16,
    live: bool,
    placement: Placement,
}

/// Fires due timers, admits arrivals and fires schedules. Checks without the write lock first: most calls find
/// nothing to do.
pub(super) async fn fire_timers(store: &Sqlite, now: Now, limit: usize) -> Result<TimerReport, Error> {
    // One time for all: an arrival is due at this very moment, not a microsecond later.
    let (now, next) = store.read(|tx| Ok((tx.now(now), next(tx)?)))?;
    let has_come = |at: Option<Time>| at.is_some_and(|at| at <= now);
    if !has_come(next.at(now)) {
        return Ok(TimerReport { now, next_at: next.at(now), ..TimerReport::default() });
    }
    let mut report = TimerReport { now, ..TimerReport::default() };
    // Three transactions: a failure of one must not hold up the others.
    let (mut failed, mut added_lanes) = (None, false);
    if has_come(next.timer) {
        match store.write(limit, |tx| fire(tx, now, limit)).await {
            Ok(fired) => report = fired,
            Err(error) => failed = Some(error),
        }
    }
    if next.arrivals {
        match store.write(limit, |tx| arrivals::admit(tx, now, limit)).await {
            Ok(arrived) => (report.admitted, added_lanes) = (arrived.admitted, arrived.added_lanes),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if has_come(next.tick) {
        match store.write(limit, |tx| schedule::fire(tx, now)).await {
            Ok((fired, made)) => (report.fired, added_lanes) = (fired, added_lanes || made),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed.filter(|_| report == TimerReport { now, ..TimerReport::default() }) {
        return Err(error);
    }
    if added_lanes {
        store.read_lanes()?;
    }
    report.next_at = store.read(self::next)?.at(now);
    Ok(report)
}

/// When there is something to do.
struct Next {
    timer: Option<Time>,
    tick: Option<Time>,
    /// Whether jobs wait to be admitted.
    arrivals: bool,
}

impl Next {
    /// When there is something to do next: now, if jobs wait to be admitted.
    fn at(&self, now: Time) -> Option<Time> {
        self.arrivals.then_some(now).into_iter().chain(self.timer).chain(self.tick).min()
    }
}

fn next(tx: &Tx<'_>) -> Result<Next, Error> {
    let next = tx.query_one(sql::timers::NEXT, [], |row| {
        let (timer, tick) = (row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?);
        Ok(Next { timer: timer.map(Time), tick: tick.map(Time), arrivals: row.get(2)? })
    })?;
    next.ok_or_else(|| Error::Fault("the query for the next timer returned no row".into()))
}

fn fire(tx: &Tx<'_>, now: Time, limit: usize) -> Result<TimerReport, Error> {
    let params = params![now.micros(), i64::try_from(limit).unwrap_or(i64::MAX)];
    let fired = tx.query_all(sql::timers::READ_DUE, params, |row| {
        let (at, id): (_, JobId) = (Time(row.get(0)?), read_id(row, 1)?);
        let live = row.get::<_, i16>(3)? == LIVE;
        Ok(DueTimer { at, purpose: row.get(2)?, live, placement: Placement::read(id, row, 4)? })
    })?;
    let mut report = TimerReport { now, ..TimerReport::default() };
    for DueTimer { at, purpose, live, placement } in &fired {
        // An end earlier in this batch may have deleted the job's other timers.
        if !tx.delete_timer(*at, placement.id, *purpose)? || !live {
            continue;
        }
        match *purpose {
            WAKE => {
                if placement.parked {
                    tx.record_wait(now, placement, true)?;
                    tx.end_wait(placement)?
                } else {
                    tx.count_moved(placement.lane, State::Scheduled, State::Ready);
                    tx.enter(placement)?
                }
                report.woken += 1;
            }
            DEADLINE => {
                expire(tx, now, &read_current(tx, placement)?, *at)?;
                report.expired += 1;
            }
            _ => {
                let actor = tx.take_cancel_request(placement.id)?.unwrap_or_else(|| Actor::new("someone"));
                job_actions::end_cancelled(tx, now, &read_current(tx, placement)?, &actor)?;
                report.cancelled += 1;
            }
        }
    }
    Ok(report)
}

fn expire(tx: &Tx<'_>, now: Time, job: &JobRow, at: Time) -> Result<(), Error> {
    let (placement, failure) = (&job.placement, Failure::expired(at));
    if job.must_unwind {
        return tx.unwind(
            now,
            placement,
            job.state,
            &Unwind { reason: Some(Reason::Expired), failure },
            None,
        );
    }
    let (reason, failure) = (columns::reason_number(Reason::Expired), columns::failure_text(&failure));
    let params = params![placement.id.as_bytes(), reason, failure, now.micros()];
    tx.execute(sql::timers::EXPIRE, params)?;
    tx.count_moved(placement.lane, job.state, State::Failed);
    tx.record_end_outside(now, placement, State::Failed)?;
    tx.remove_placement(placement)?;
    tx.after_end(now, &Placement { deadline_at: None, ..*placement })
}

/// A job whose timer is due, as it is now: the end of a child earlier in this batch may have woken it.
fn read_current(tx: &Tx<'_>, placement: &Placement) -> Result<JobRow, Error> {
    job_actions::read_job(tx, placement.id)?
        .ok_or_else(|| Error::Fault(format!("job {} is gone", placement.id)))
}

/// Reads all gates at once: they are few.
pub(super) fn gates(store: &Sqlite, queues: &[String]) -> Result<Vec<u64>, Error> {
    let known = |queue: &String| match queue.as_str() {
        TIMER_GATE => Some(TIMER_GATE_ID),
        CANCEL_GATE => Some(CANCEL_GATE_ID),
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
