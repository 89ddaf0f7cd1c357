//! Reads for people: what keeps jobs from running, the rules behind that, and the audit log; inboxes and transitions.

use rusqlite::params;
use windlass_model::{JobId, Rev, Signal, Time, WorkerId};

use super::{
    arrivals,
    job_actions::{self, JobRow},
    rate::Bucket,
    serial::Placement,
    signal, sql,
    tx::{Tx, read_id},
};
use crate::{
    AuditEntry, AuditFilter, CancelHold, Error, Holds, LimitView, Pause, QueueView, RateHold, SerialHold,
    SerialView, Transition, TransitionCount, Waiting, columns,
};

/// A number of rows as SQLite takes it.
pub(super) fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Reads a pause from three columns: when, by whom, and why.
pub(super) fn pause(row: &rusqlite::Row<'_>, from: usize) -> rusqlite::Result<Option<Pause>> {
    let Some(at) = row.get::<_, Option<i64>>(from)? else { return Ok(None) };
    let author = row.get::<_, Option<String>>(from + 1)?.unwrap_or_default();
    Ok(Some(Pause { at: Time(at), author, note: row.get(from + 2)? }))
}

/// What keeps a live job from running.
pub(super) fn holds(tx: &Tx<'_>, id: JobId) -> Result<Option<Holds>, Error> {
    let Some(job) = job_actions::read_job(tx, id)? else {
        let arriving = arrivals::is_arriving(tx, id)?;
        return Ok(arriving.then(|| Holds { arriving, ..Holds::default() }));
    };
    if job.state.is_final() {
        return Ok(None);
    }
    let placement = &job.placement;
    let params = params![id.as_bytes(), placement.lane];
    let found = tx.query_one(sql::views::HOLDS, params, |row| {
        let cancel_requested = match row.get::<_, Option<i64>>(3)? {
            Some(at) => Some(CancelHold { deadline_at: Time(at), author: row.get(4)?, note: row.get(5)? }),
            None => None,
        };
        Ok((pause(row, 0)?, cancel_requested, pause(row, 6)?))
    })?;
    let (paused, cancel_requested, queue_paused) = found.unwrap_or_default();
    let ahead = match job.in_ready {
        true => {
            let params = params![placement.ready_lane(), placement.rank(), id.as_bytes()];
            tx.query_one(sql::views::JOBS_AHEAD, params, |row| row.get::<_, i64>(0))?
        }
        false => None,
    };
    Ok(Some(Holds {
        waiting: waiting(tx, placement)?,
        arriving: false,
        paused,
        queue_paused,
        cancel_requested,
        serial: serial_hold(tx, &job)?,
        rate: rate_hold(tx, &job)?,
        suspect: placement.suspect,
        ahead: ahead.unwrap_or(0) as u64,
    }))
}

fn serial_hold(tx: &Tx<'_>, job: &JobRow) -> Result<Option<SerialHold>, Error> {
    let Some(serial) = job.placement.serial_key else { return Ok(None) };
    let params = params![serial, job.placement.id.as_bytes(), job.placement.serial_position.micros()];
    let hold = tx.query_one(sql::views::SERIAL_HOLD, params, |row| {
        let (key, slots, held) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let ahead = row.get::<_, i64>(3)? as u64;
        Ok(SerialHold { key, slots, held, holders: Vec::new(), hidden_holders: 0, ahead })
    })?;
    let Some(hold) = hold else { return Ok(None) };
    let holders = tx.query_all(sql::views::SERIAL_HOLDERS, [serial], |row| read_id(row, 0))?;
    Ok(Some(SerialHold { holders, ..hold }))
}

fn rate_hold(tx: &Tx<'_>, job: &JobRow) -> Result<Option<RateHold>, Error> {
    let Some(charge) = &job.settings.rate else { return Ok(None) };
    let Some(bucket) = Bucket::named(tx, &charge.limit)? else { return Ok(None) };
    let now = tx.now(None);
    let level = bucket.level.refilled(&bucket.limit, now);
    let affordable_at = if bucket.lifted { now } else { level.affordable_at(&bucket.limit, charge.weight) };
    let limit = (!bucket.lifted).then_some(bucket.limit);
    Ok(Some(RateHold { limit, name: charge.limit.clone(), weight: charge.weight, affordable_at }))
}

pub(super) fn queues(tx: &Tx<'_>) -> Result<Vec<QueueView>, Error> {
    tx.query_all(sql::views::QUEUES, [], |row| {
        let oldest_ready = row.get::<_, Option<i64>>(4)?.map(Time);
        Ok(QueueView { name: row.get(0)?, paused: pause(row, 1)?, oldest_ready })
    })
}

pub(super) fn rate_limits(tx: &Tx<'_>) -> Result<Vec<LimitView>, Error> {
    let now = tx.now(None);
    tx.query_all(sql::views::RATE_LIMITS, [], |row| {
        let Bucket { limit, level, lifted, .. } = Bucket::read(row)?;
        let tokens = level.refilled(&limit, now).tokens(&limit);
        Ok(LimitView { limit, lifted, tokens, waiting: row.get::<_, i64>(8)? as u64 })
    })
}

pub(super) fn serial_keys(tx: &Tx<'_>, key: Option<&str>, limit: usize) -> Result<Vec<SerialView>, Error> {
    tx.query_all(sql::views::SERIAL_KEYS, params![key, row_limit(limit)], |row| {
        let (held, waiting) = (row.get::<_, i64>(2)? as u64, row.get::<_, i64>(3)? as u64);
        Ok(SerialView { key: row.get(0)?, slots: row.get(1)?, held, waiting })
    })
}

pub(super) fn audit(tx: &Tx<'_>, filter: &AuditFilter) -> Result<Vec<AuditEntry>, Error> {
    let params = params![filter.subject, filter.before, row_limit(filter.limit)];
    tx.query_all(sql::views::AUDIT_LOG, params, |row| {
        Ok(AuditEntry {
            number: row.get(0)?,
            at: Time(row.get(1)?),
            author: row.get(2)?,
            action: row.get(3)?,
            subject: row.get(4)?,
            note: row.get(5)?,
        })
    })
}

/// What a parked job waits for, and what of it has arrived.
pub(super) fn waiting(tx: &Tx<'_>, placement: &Placement) -> Result<Option<Waiting>, Error> {
    if !placement.parked {
        return Ok(None);
    }
    let id = placement.id.as_bytes();
    let found = tx.query_one(sql::inspect::WAIT, [id], |row| {
        let wait = row.get::<_, Option<String>>(0)?;
        let since = row.get::<_, Option<i64>>(3)?.map(Time);
        Ok((wait, row.get::<_, Option<i64>>(1)?, row.get(2)?, since))
    })?;
    let Some((wait, wait_until, pending_children, since)) = found else { return Ok(None) };
    let Some(condition) = columns::Decoder::default().wait(wait.as_deref()) else { return Ok(None) };
    let mut arrived: Vec<String> = tx.query_all(sql::signals::INBOX_NAMES, [id], |row| row.get(0))?;
    arrived.sort_unstable();
    arrived.dedup();
    let (wait_until, unreadable) = (wait_until.map(Time), signal::unreadable_signals(tx, id)?);
    Ok(Some(Waiting { condition, since, wait_until, arrived, pending_children, unreadable }))
}

pub(super) fn inbox(tx: &Tx<'_>, id: JobId, limit: usize) -> Result<Vec<Signal>, Error> {
    tx.query_all(sql::inspect::INBOX, params![id.as_bytes(), row_limit(limit)], |row| {
        Ok(Signal { unreadable: row.get(5)?, ..signal::read(row)? })
    })
}

pub(super) fn transitions(
    tx: &Tx<'_>,
    id: JobId,
    after: Option<Rev>,
    limit: usize,
) -> Result<Vec<Transition>, Error> {
    let after = after.map_or(-1, |rev| rev.0);
    tx.query_all(sql::inspect::TRANSITIONS, params![id.as_bytes(), after, row_limit(limit)], |row| {
        Ok(Transition {
            rev: Rev(row.get(0)?),
            stage: row.get(1)?,
            next: row.get(2)?,
            outcome: row.get(3)?,
            at: Time(row.get(4)?),
            worker: WorkerId(row.get(5)?),
        })
    })
}

pub(super) fn transition_counts(
    tx: &Tx<'_>,
    kind: &str,
    limit: usize,
) -> Result<Vec<TransitionCount>, Error> {
    tx.query_all(sql::inspect::TRANSITION_COUNTS, params![kind, row_limit(limit)], |row| {
        Ok(TransitionCount {
            version: row.get(0)?,
            stage: row.get(1)?,
            next: row.get(2)?,
            outcome: row.get(3)?,
            times: row.get::<_, i64>(4)? as u64,
        })
    })
}
