//! Schedules: what is submitted by the calendar.

use rusqlite::{Row, params};
use windlass_model::{
    JobId, Payload, Schedule, Time,
    calendar::{Missed, Overlap},
};

use super::{
    job_actions,
    rate::{self, Bucket, Buckets},
    sql,
    submit::put,
    tx::{TIMERS, Tx, id_of},
    views::pause as read_pause,
};
use crate::{Actor, ControlOutcome, Error, Firing, Miss, ScheduleView, columns, control::outcome};

/// How many schedules fire in one transaction.
const BATCH: i64 = 1_000;

/// A schedule as it is in the file.
struct Kept {
    id: i64,
    schedule: Schedule,
    next_at: Option<Time>,
    last_job: Option<JobId>,
    paused_by: Option<String>,
}

/// The columns of a schedule, before its text is read.
struct Raw {
    id: i64,
    spec: String,
    input: Payload,
    next_at: Option<i64>,
    last_job: Option<[u8; 16]>,
    paused_by: Option<String>,
}

fn read(row: &Row<'_>) -> rusqlite::Result<Raw> {
    Ok(Raw {
        id: row.get(0)?,
        spec: row.get(1)?,
        input: Payload { codec: row.get(2)?, bytes: row.get(3)? },
        next_at: row.get(4)?,
        last_job: row.get(5)?,
        paused_by: row.get(6)?,
    })
}

impl Raw {
    fn kept(self) -> Result<Kept, Error> {
        Ok(Kept {
            id: self.id,
            schedule: columns::schedule(&self.spec, self.input)?,
            next_at: self.next_at.map(Time),
            last_job: self.last_job.map(JobId::from_bytes),
            paused_by: self.paused_by,
        })
    }
}

/// Fires schedules that are due; answers how many jobs were submitted, and whether lanes were made for them.
pub(super) fn fire(tx: &Tx<'_>, now: Time) -> Result<(usize, bool), Error> {
    let due = tx.all(sql::schedules::READ_DUE, [now.micros(), BATCH], read)?;
    let (mut fired, mut learned) = (0, false);
    for raw in due {
        let id = raw.id;
        let mut kept = match raw.kept() {
            Ok(kept) => kept,
            Err(error) => {
                // It must not hold up the others.
                tracing::error!(schedule = id, %error, "a schedule cannot be read; it is paused");
                let params = params![id, now.micros(), error.to_string()];
                tx.run(sql::schedules::PAUSE_UNREADABLE, params)?;
                continue;
            }
        };
        let next_at = kept.next_at.unwrap_or(now);
        let tick = columns::tick(&kept.schedule, next_at, now, is_busy(tx, &kept)?);
        fired += tick.fire.len();
        for at in tick.fire {
            learned |= fire_one(tx, &mut kept, at, now)?;
        }
        let next = tick.next_at.map(Time::micros);
        let last = kept.last_job.as_ref().map(JobId::as_bytes);
        tx.run(sql::schedules::SET_NEXT, params![kept.id, next, last])?;
        for (missed, why) in tick.missed {
            miss(tx, kept.id, now, missed, why)?;
        }
    }
    Ok((fired, learned))
}

fn is_busy(tx: &Tx<'_>, kept: &Kept) -> Result<bool, Error> {
    let Some(last) = &kept.last_job else { return Ok(false) };
    let live = tx.one(sql::schedules::LIVE_JOBS, [last.as_bytes()], |_| Ok(()))?;
    Ok(live.is_some())
}

/// Submits the job of one tick; answers whether a lane was made for it.
fn fire_one(tx: &Tx<'_>, kept: &mut Kept, tick: Time, now: Time) -> Result<bool, Error> {
    let job = kept.schedule.job(tick);
    if let (Overlap::CancelPrevious, Some(last)) = (kept.schedule.overlap, kept.last_job)
        && let Some(seen) = job_actions::read_job(tx, last)?
    {
        job_actions::cancel(tx, now, &seen, columns::GRACE, &outcome::next_tick(&kept.schedule.name))?;
    }
    // Its weight was checked when it was given; a burst that was lowered since is no reason to refuse it.
    let mut buckets = Buckets::new();
    if let Some(charge) = &job.settings.rate {
        let bucket = Bucket::named(tx, &charge.limit)?.ok_or_else(|| columns::no_limit(&charge.limit))?;
        buckets.insert(charge.limit.clone(), bucket.id);
    }
    let name = (job.queue.as_str(), &job.kind, rate::bucket_of(&job, &buckets));
    let learned = tx.store.shared.lanes.get_in(name.0, name.1, name.2).is_none();
    if learned {
        tx.intern(name)?;
    }
    put(tx, now, std::slice::from_ref(&job), &buckets, None)?;
    let params = params![kept.id, tick.micros(), job.id.as_bytes()];
    tx.run(sql::schedules::ADD_FIRING, params)?;
    kept.last_job = Some(job.id);
    Ok(learned)
}

fn miss(tx: &Tx<'_>, id: i64, now: Time, missed: Missed, why: &str) -> Result<(), Error> {
    let Missed { from, to, count, at_least } = missed;
    let params = params![id, why, to.micros(), count as i64, at_least];
    if tx.run(sql::schedules::EXTEND_MISS, params)? == 0 {
        let params = params![id, now.micros(), from.micros(), to.micros(), count as i64, at_least, why];
        tx.run(sql::schedules::ADD_MISS, params)?;
    }
    Ok(())
}

fn named(tx: &Tx<'_>, name: &str) -> Result<Option<Kept>, Error> {
    tx.one(sql::schedules::READ, [name], read)?.map(Raw::kept).transpose()
}

/// Makes or changes a schedule.
pub(super) fn set(tx: &Tx<'_>, now: Time, schedule: &Schedule) -> Result<ControlOutcome, Error> {
    rate::check_in(tx, std::iter::once(&schedule.job(now)))?;
    tx.move_gate(TIMERS);
    let mut next_at = schedule.calendar.next_after(now);
    if let Some(kept) = named(tx, &schedule.name)? {
        if kept.schedule == *schedule {
            return Ok(ControlOutcome::Already("it is so already".into()));
        }
        if kept.schedule.calendar == schedule.calendar {
            next_at = kept.next_at;
        }
    }
    let (spec, next) = (columns::schedule_text(schedule), next_at.map(Time::micros));
    let params = params![schedule.name, spec, schedule.input.codec, schedule.input.bytes, next];
    tx.run(sql::schedules::SET, params)?;
    Ok(ControlOutcome::Done)
}

/// Lets a schedule rest, or takes that back.
pub(super) fn pause(tx: &Tx<'_>, now: Time, name: &str, by: Option<&Actor>) -> Result<ControlOutcome, Error> {
    let Some(kept) = named(tx, name)? else { return Ok(ControlOutcome::Unknown) };
    let mut next_at = kept.next_at;
    match (by, kept.paused_by) {
        (Some(_), Some(author)) => {
            return Ok(ControlOutcome::Already(format!("it was paused by {author} before")));
        }
        (None, None) => return Ok(ControlOutcome::Already("it is not paused".into())),
        (None, Some(_)) => {
            next_at = kept.schedule.calendar.next_after(now);
            tx.move_gate(TIMERS);
        }
        (Some(_), None) => {}
    }
    let (at, author) = (by.map(|_| now.micros()), by.map(|by| &by.author));
    let note = by.and_then(|by| by.note.as_ref());
    let params = params![kept.id, at, author, note, next_at.map(Time::micros)];
    tx.run(sql::schedules::PAUSE, params)?;
    Ok(ControlOutcome::Done)
}

/// Forgets a schedule, with what it fired and missed.
pub(super) fn drop(tx: &Tx<'_>, name: &str) -> Result<ControlOutcome, Error> {
    let Some(kept) = named(tx, name)? else { return Ok(ControlOutcome::Unknown) };
    for sql in [sql::schedules::DROP_FIRINGS, sql::schedules::DROP_MISSES, sql::schedules::DROP] {
        tx.run(sql, [kept.id])?;
    }
    Ok(ControlOutcome::Done)
}

/// Submits the job of a schedule now.
pub(super) fn trigger(tx: &Tx<'_>, now: Time, name: &str) -> Result<ControlOutcome, Error> {
    let Some(mut kept) = named(tx, name)? else { return Ok(ControlOutcome::Unknown) };
    if let (Overlap::Skip, Some(job), true) = (kept.schedule.overlap, kept.last_job, is_busy(tx, &kept)?) {
        return Ok(outcome::still_runs(job));
    }
    fire_one(tx, &mut kept, now, now)?;
    let (next, last) = (kept.next_at.map(Time::micros), kept.last_job.as_ref().map(JobId::as_bytes));
    tx.run(sql::schedules::SET_NEXT, params![kept.id, next, last])?;
    Ok(kept.last_job.map_or(ControlOutcome::Unknown, ControlOutcome::Created))
}

/// Forgets what schedules fired and missed before a moment.
pub(super) fn prune(tx: &Tx<'_>, before: Time) -> Result<(), Error> {
    tx.run(sql::prune::FIRINGS, [before.micros()])?;
    tx.run(sql::prune::MISSES, [before.micros()])?;
    Ok(())
}

pub(super) fn schedules(tx: &Tx<'_>) -> Result<Vec<ScheduleView>, Error> {
    let rows = tx.all(sql::views::SCHEDULES, [], |row| Ok((read(row)?, read_pause(row, 7)?)))?;
    let view = |(raw, paused): (Raw, Option<crate::Pause>)| {
        let kept = raw.kept()?;
        let next_at = kept.next_at.filter(|_| paused.is_none());
        Ok(ScheduleView { schedule: kept.schedule, next_at, paused, last_job: kept.last_job })
    };
    rows.into_iter().map(view).collect()
}

pub(super) fn firings(tx: &Tx<'_>, name: &str, limit: usize) -> Result<Vec<Firing>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    tx.all(sql::views::FIRINGS, params![name, limit], |row| {
        Ok(Firing { tick: Time(row.get(0)?), job: id_of(row, 1)? })
    })
}

pub(super) fn misses(tx: &Tx<'_>, name: &str, limit: usize) -> Result<Vec<Miss>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    tx.all(sql::views::MISSES, params![name, limit], |row| {
        let (from, to) = (Time(row.get(1)?), Time(row.get(2)?));
        let missed = Missed { from, to, count: row.get::<_, i64>(3)? as u64, at_least: row.get(4)? };
        Ok(Miss { at: Time(row.get(0)?), missed, why: row.get(5)? })
    })
}
