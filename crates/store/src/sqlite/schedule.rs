//! Schedules: jobs that a calendar submits.

use rusqlite::{Row, params};
use windlass_model::{
    JobId, Payload, Schedule, Time,
    calendar::{Missed, Overlap},
};

use super::{
    job_actions,
    rate::{self, Bucket, Buckets},
    sql,
    submit::insert_jobs,
    tx::{TIMER_GATE_ID, Tx, read_id},
    views::pause as read_pause,
};
use crate::{Actor, ControlOutcome, Error, Firing, Miss, ScheduleView, columns, control::outcome};

/// How many schedules fire in one transaction: few enough to hold the file for some milliseconds.
const BATCH: i64 = 1_000;

/// A schedule as it is stored.
struct Stored {
    id: i64,
    schedule: Schedule,
    next_at: Option<Time>,
    last_job: Option<JobId>,
    paused_by: Option<String>,
}

/// The columns of a schedule, not decoded yet.
struct ScheduleRow {
    id: i64,
    spec: String,
    input: Payload,
    next_at: Option<i64>,
    last_job: Option<[u8; 16]>,
    paused_by: Option<String>,
}

fn read(row: &Row<'_>) -> rusqlite::Result<ScheduleRow> {
    Ok(ScheduleRow {
        id: row.get(0)?,
        spec: row.get(1)?,
        input: Payload { codec: row.get(2)?, bytes: row.get(3)? },
        next_at: row.get(4)?,
        last_job: row.get(5)?,
        paused_by: row.get(6)?,
    })
}

impl ScheduleRow {
    fn stored(self) -> Result<Stored, Error> {
        Ok(Stored {
            id: self.id,
            schedule: columns::schedule(&self.spec, self.input)?,
            next_at: self.next_at.map(Time),
            last_job: self.last_job.map(JobId::from_bytes),
            paused_by: self.paused_by,
        })
    }
}

/// Fires schedules that are due. Returns how many jobs were submitted, and whether lanes were added for them.
pub(super) fn fire(tx: &Tx<'_>, now: Time) -> Result<(usize, bool), Error> {
    let due = tx.query_all(sql::schedules::READ_DUE, [now.micros(), BATCH], read)?;
    let (mut fired, mut added_lanes) = (0, false);
    for row in due {
        let id = row.id;
        let mut stored = match row.stored() {
            Ok(stored) => stored,
            Err(error) => {
                // It must not hold up the others.
                tracing::error!(schedule = id, %error, "a schedule cannot be read; it is paused");
                let params = params![id, now.micros(), error.to_string()];
                tx.execute(sql::schedules::PAUSE_UNREADABLE, params)?;
                continue;
            }
        };
        let next_at = stored.next_at.unwrap_or(now);
        let tick = stored.schedule.due_ticks(next_at, now, is_busy(tx, &stored)?);
        fired += tick.fire.len();
        for at in tick.fire {
            added_lanes |= fire_tick(tx, &mut stored, at, now, None)?;
        }
        let next = tick.next_at.map(Time::micros);
        let last = stored.last_job.as_ref().map(JobId::as_bytes);
        tx.execute(sql::schedules::SET_NEXT, params![stored.id, next, last])?;
        for (missed, why) in tick.missed {
            record_miss(tx, stored.id, now, missed, why)?;
        }
    }
    Ok((fired, added_lanes))
}

/// Whether the last job of a schedule is live.
fn is_busy(tx: &Tx<'_>, stored: &Stored) -> Result<bool, Error> {
    let Some(last) = &stored.last_job else { return Ok(false) };
    let live = tx.query_one(sql::schedules::LIVE_JOBS, [last.as_bytes()], |_| Ok(()))?;
    Ok(live.is_some())
}

/// Submits the job of one tick, under this id if one is given. Returns whether a lane was added for it.
fn fire_tick(
    tx: &Tx<'_>,
    stored: &mut Stored,
    tick: Time,
    now: Time,
    id: Option<JobId>,
) -> Result<bool, Error> {
    let mut job = stored.schedule.job(tick);
    job.id = id.unwrap_or(job.id);
    if let (Overlap::CancelPrevious, Some(last)) = (stored.schedule.overlap, stored.last_job)
        && let Some(previous) = job_actions::read_job(tx, last)?
    {
        let _ = job_actions::cancel(
            tx,
            now,
            &previous,
            columns::GRACE,
            &outcome::next_tick(&stored.schedule.name),
        )?;
    }
    // Its weight was checked when the schedule was set; a burst that was lowered since is no reason to refuse it.
    let mut buckets = Buckets::new();
    if let Some(charge) = &job.settings.rate {
        let bucket = Bucket::named(tx, &charge.limit)?.ok_or_else(|| columns::no_limit(&charge.limit))?;
        buckets.insert(charge.limit.clone(), bucket.id);
    }
    let name = (job.queue.as_str(), &job.kind, rate::bucket_of(&job, &buckets));
    let added_lanes = tx.store.shared.lanes.get_in(name.0, name.1, name.2).is_none();
    if added_lanes {
        tx.intern(name)?;
    }
    insert_jobs(tx, now, std::slice::from_ref(&job), &buckets, None)?;
    let params = params![stored.id, tick.micros(), job.id.as_bytes()];
    tx.execute(sql::schedules::ADD_FIRING, params)?;
    stored.last_job = Some(job.id);
    Ok(added_lanes)
}

fn record_miss(tx: &Tx<'_>, id: i64, now: Time, missed: Missed, why: &str) -> Result<(), Error> {
    let Missed { from, to, count, at_least } = missed;
    let params = params![id, why, to.micros(), count as i64, at_least];
    if tx.execute(sql::schedules::EXTEND_MISS, params)? == 0 {
        let params = params![id, now.micros(), from.micros(), to.micros(), count as i64, at_least, why];
        tx.execute(sql::schedules::ADD_MISS, params)?;
    }
    Ok(())
}

fn find(tx: &Tx<'_>, name: &str) -> Result<Option<Stored>, Error> {
    tx.query_one(sql::schedules::READ, [name], read)?.map(ScheduleRow::stored).transpose()
}

/// Adds or changes a schedule.
pub(super) fn set(tx: &Tx<'_>, now: Time, schedule: &Schedule) -> Result<ControlOutcome, Error> {
    rate::check_in(tx, std::iter::once(&schedule.job(now)))?;
    tx.bump_gate(TIMER_GATE_ID);
    let stored = find(tx, &schedule.name)?;
    if stored.as_ref().is_some_and(|stored| stored.schedule == *schedule) {
        return Ok(ControlOutcome::Already("it is so already".into()));
    }
    let previous = stored.as_ref().map(|stored| (&stored.schedule, stored.next_at));
    let next_at = schedule.next_at_when_set(previous, now);
    let (spec, next) = (columns::schedule_text(schedule), next_at.map(Time::micros));
    let params = params![schedule.name, spec, schedule.input.codec, schedule.input.bytes, next];
    tx.execute(sql::schedules::SET, params)?;
    Ok(ControlOutcome::Done)
}

/// Pauses a schedule, or resumes it (`actor` is `None`).
pub(super) fn pause(
    tx: &Tx<'_>,
    now: Time,
    name: &str,
    actor: Option<&Actor>,
) -> Result<ControlOutcome, Error> {
    let Some(stored) = find(tx, name)? else { return Ok(ControlOutcome::Unknown) };
    let mut next_at = stored.next_at;
    match (actor, stored.paused_by) {
        (Some(_), Some(author)) => {
            return Ok(ControlOutcome::Already(format!("it was paused by {author} before")));
        }
        (None, None) => return Ok(ControlOutcome::Already("it is not paused".into())),
        (None, Some(_)) => {
            next_at = stored.schedule.calendar.next_after(now);
            tx.bump_gate(TIMER_GATE_ID);
        }
        (Some(_), None) => {}
    }
    let (at, author) = (actor.map(|_| now.micros()), actor.map(|actor| &actor.author));
    let note = actor.and_then(|actor| actor.note.as_ref());
    let params = params![stored.id, at, author, note, next_at.map(Time::micros)];
    tx.execute(sql::schedules::PAUSE, params)?;
    Ok(ControlOutcome::Done)
}

/// Deletes a schedule with its firings and misses.
pub(super) fn drop(tx: &Tx<'_>, name: &str) -> Result<ControlOutcome, Error> {
    let Some(stored) = find(tx, name)? else { return Ok(ControlOutcome::Unknown) };
    for sql in [sql::schedules::DROP_FIRINGS, sql::schedules::DROP_MISSES, sql::schedules::DROP] {
        tx.execute(sql, [stored.id])?;
    }
    Ok(ControlOutcome::Done)
}

/// Submits the job of a schedule now.
pub(super) fn trigger(
    tx: &Tx<'_>,
    now: Time,
    name: &str,
    id: Option<JobId>,
) -> Result<ControlOutcome, Error> {
    let Some(mut stored) = find(tx, name)? else { return Ok(ControlOutcome::Unknown) };
    if let Some(id) = id
        && tx.query_one(sql::submit::FIND_BY_ID, [id.as_bytes()], |_| Ok(()))?.is_some()
    {
        return Ok(outcome::triggered_before());
    }
    if let (Overlap::Skip, Some(job), true) =
        (stored.schedule.overlap, stored.last_job, is_busy(tx, &stored)?)
    {
        return Ok(outcome::still_runs(job));
    }
    fire_tick(tx, &mut stored, now, now, id)?;
    let (next, last) = (stored.next_at.map(Time::micros), stored.last_job.as_ref().map(JobId::as_bytes));
    tx.execute(sql::schedules::SET_NEXT, params![stored.id, next, last])?;
    Ok(stored.last_job.map_or(ControlOutcome::Unknown, ControlOutcome::Created))
}

/// Deletes what schedules fired and missed before a time.
pub(super) fn prune(tx: &Tx<'_>, before: Time) -> Result<(), Error> {
    tx.execute(sql::prune::FIRINGS, [before.micros()])?;
    tx.execute(sql::prune::MISSES, [before.micros()])?;
    Ok(())
}

pub(super) fn schedules(tx: &Tx<'_>) -> Result<Vec<ScheduleView>, Error> {
    let rows = tx.query_all(sql::views::SCHEDULES, [], |row| Ok((read(row)?, read_pause(row, 7)?)))?;
    let view = |(row, paused): (ScheduleRow, Option<crate::Pause>)| {
        let stored = row.stored()?;
        let next_at = stored.next_at.filter(|_| paused.is_none());
        Ok(ScheduleView { schedule: stored.schedule, next_at, paused, last_job: stored.last_job })
    };
    rows.into_iter().map(view).collect()
}

pub(super) fn firings(tx: &Tx<'_>, name: &str, limit: usize) -> Result<Vec<Firing>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    tx.query_all(sql::views::FIRINGS, params![name, limit], |row| {
        Ok(Firing { tick: Time(row.get(0)?), job: read_id(row, 1)? })
    })
}

pub(super) fn misses(tx: &Tx<'_>, name: &str, limit: usize) -> Result<Vec<Miss>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    tx.query_all(sql::views::MISSES, params![name, limit], |row| {
        let (from, to) = (Time(row.get(1)?), Time(row.get(2)?));
        let missed = Missed { from, to, count: row.get::<_, i64>(3)? as u64, at_least: row.get(4)? };
        Ok(Miss { at: Time(row.get(0)?), missed, why: row.get(5)? })
    })
}
