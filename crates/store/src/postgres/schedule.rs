//! Schedules: what is submitted by the calendar.

use std::collections::HashSet;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{
    JobId, NewJob, Payload, Schedule, Time,
    calendar::{Missed, Overlap},
};

use super::{
    Postgres, control::transaction, job_actions, micros, names::Names, pool::Guard, sql, submit::Batch,
};
use crate::{Actor, ControlOutcome, Error, Now, columns, control::outcome};

/// How many schedules fire in one transaction.
const BATCH: i64 = 1_000;

/// A schedule that is locked.
struct Kept {
    id: i32,
    schedule: Schedule,
    next_at: Option<Time>,
    last_job: Option<Uuid>,
}

fn kept(row: &Row) -> Result<Kept, Error> {
    let input = Payload { codec: row.get::<_, i16>(2) as u8, bytes: row.get(3) };
    Ok(Kept {
        id: row.get(0),
        schedule: columns::schedule(row.get(1), input)?,
        next_at: row.get::<_, Option<i64>>(4).map(Time),
        last_job: row.get(5),
    })
}

/// Fires schedules that are due; answers how many jobs were submitted.
pub(super) async fn fire(store: &Postgres, now: Now) -> Result<usize, Error> {
    let names = names(store, now).await?;
    transaction(store, now, async |conn, now| {
        let rows = conn.query(sql::schedules::LOCK_DUE, &[&now.micros(), &BATCH]).await?;
        // One that became due, or was changed, since the names were looked up has its turn at the next look.
        let due = rows.iter().filter_map(|row| kept(row).ok());
        let due: Vec<Kept> = due.filter(|kept| names.know(store, &kept.schedule.job(now))).collect();
        let busy = busy(conn, &due).await?;
        let mut firing = Firing::new(&names);
        for kept in &due {
            let is_busy = kept.last_job.is_some_and(|id| busy.contains(&id));
            let next_at = kept.next_at.unwrap_or(now);
            let tick = columns::tick(&kept.schedule, next_at, now, is_busy);
            let last = firing.add(store, conn, now, kept, &tick.fire, is_busy).await?;
            firing.next.push((kept.id, tick.next_at, last));
            for (missed, why) in tick.missed {
                miss(conn, kept.id, now, missed, why).await?;
            }
        }
        firing.write(store, conn, now).await
    })
    .await
}

/// The names of the jobs of all schedules that are due. One that cannot be read is paused, and says so: it must not hold
/// up the others.
async fn names(store: &Postgres, now: Now) -> Result<Names, Error> {
    let conn = store.conn().await?;
    let mut jobs = Vec::new();
    for row in conn.query(sql::schedules::READ_DUE, &[&micros(now), &BATCH]).await? {
        match kept(&row) {
            Ok(kept) => jobs.push(kept.schedule.job(Time(0))),
            Err(error) => {
                let (id, why) = (row.get::<_, i32>(0), error.to_string());
                tracing::error!(schedule = id, %error, "a schedule cannot be read; it is paused");
                conn.execute(sql::schedules::PAUSE_UNREADABLE, &[&micros(now), &id, &why]).await?;
            }
        }
    }
    std::mem::drop(conn);
    Names::unchecked(store, &jobs).await
}

/// The names of the jobs of one schedule, if it is there.
pub(super) async fn names_of(store: &Postgres, name: &str) -> Result<Names, Error> {
    let all = store.read_schedules().await?;
    match all.into_iter().find(|view| view.schedule.name == name) {
        Some(view) => Names::unchecked(store, &[view.schedule.job(Time(0))]).await,
        None => Ok(Names::default()),
    }
}

async fn busy(conn: &Guard<'_>, due: &[Kept]) -> Result<HashSet<Uuid>, Error> {
    let asks = |kept: &&Kept| matches!(kept.schedule.overlap, Overlap::Skip | Overlap::CancelPrevious);
    let last: Vec<Uuid> = due.iter().filter(asks).filter_map(|kept| kept.last_job).collect();
    if last.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = conn.query(sql::schedules::LIVE_JOBS, &[&last]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Jobs to be submitted by schedules, and how those move on.
struct Firing<'a> {
    names: &'a Names,
    jobs: Vec<NewJob>,
    fired: Vec<(i32, Time)>,
    next: Vec<(i32, Option<Time>, Option<Uuid>)>,
    /// How many jobs were submitted so far.
    made: usize,
}

impl<'a> Firing<'a> {
    fn new(names: &'a Names) -> Firing<'a> {
        Firing { names, jobs: Vec::new(), fired: Vec::new(), next: Vec::new(), made: 0 }
    }

    /// Adds the ticks of one schedule; answers its last job.
    async fn add(
        &mut self,
        store: &Postgres,
        conn: &Guard<'_>,
        now: Time,
        kept: &Kept,
        ticks: &[Time],
        busy: bool,
    ) -> Result<Option<Uuid>, Error> {
        let schedule = &kept.schedule;
        let mut last = kept.last_job.filter(|_| busy).map(JobId);
        for tick in ticks {
            let job = schedule.job(*tick);
            if let (Overlap::CancelPrevious, Some(last)) = (schedule.overlap, last) {
                // One that this call submits must be in before it can be cancelled.
                self.write_jobs(store, conn, now).await?;
                let by = outcome::next_tick(&schedule.name);
                job_actions::cancel(store, conn, now, &[last], columns::GRACE, &by).await?;
            }
            last = Some(job.id);
            self.fired.push((kept.id, *tick));
            self.jobs.push(job);
        }
        Ok(if ticks.is_empty() { None } else { last.map(|id| id.0) })
    }

    async fn write_jobs(&mut self, store: &Postgres, conn: &Guard<'_>, now: Time) -> Result<(), Error> {
        let (jobs, fired) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.fired));
        if jobs.is_empty() {
            return Ok(());
        }
        let batch = Batch {
            store,
            conn,
            now: Some(now),
            jobs: &jobs,
            names: self.names,
            claim_on_submit: None,
            runs: &[],
        };
        if batch.put_within().await?.iter().any(Option::is_none) {
            // Its row is being deleted: the tick is fired by the next call.
            return Err(Error::Unavailable(
                "the job of a tick is being deleted; it is submitted again".into(),
            ));
        }
        let (ids, ticks): (Vec<i32>, Vec<i64>) = fired.iter().map(|(id, tick)| (*id, tick.micros())).unzip();
        let made: Vec<Uuid> = jobs.iter().map(|job| job.id.0).collect();
        conn.execute(sql::schedules::ADD_FIRING, &[&ids, &ticks, &made]).await?;
        self.made += jobs.len();
        Ok(())
    }

    /// Writes everything; answers how many jobs were submitted.
    async fn write(mut self, store: &Postgres, conn: &Guard<'_>, now: Time) -> Result<usize, Error> {
        self.write_jobs(store, conn, now).await?;
        let ids: Vec<i32> = self.next.iter().map(|(id, ..)| *id).collect();
        let next: Vec<Option<i64>> = self.next.iter().map(|(_, at, _)| at.map(Time::micros)).collect();
        let last: Vec<Option<Uuid>> = self.next.iter().map(|(.., last)| *last).collect();
        conn.execute(sql::schedules::SET_NEXT, &[&ids, &next, &last]).await?;
        Ok(self.made)
    }
}

async fn miss(conn: &Guard<'_>, id: i32, now: Time, missed: Missed, why: &str) -> Result<(), Error> {
    let Missed { from, to, count, at_least } = missed;
    let (to, count) = (to.micros(), count as i64);
    let sql = sql::schedules::EXTEND_MISS;
    if conn.execute(sql, &[&id, &why, &to, &count, &at_least]).await? == 0 {
        let sql = sql::schedules::ADD_MISS;
        conn.execute(sql, &[&id, &now.micros(), &from.micros(), &to, &count, &at_least, &why]).await?;
    }
    Ok(())
}

async fn lock(conn: &Guard<'_>, name: &str) -> Result<Option<(Kept, Option<String>)>, Error> {
    let rows = conn.query(sql::schedules::LOCK, &[&name]).await?;
    rows.first().map(|row| Ok((kept(row)?, row.get(6)))).transpose()
}

/// Makes or changes a schedule.
pub(super) async fn put(conn: &Guard<'_>, now: Time, schedule: &Schedule) -> Result<ControlOutcome, Error> {
    gate(conn).await?;
    let mut next_at = schedule.calendar.next_after(now);
    if let Some((kept, _)) = lock(conn, &schedule.name).await? {
        if kept.schedule == *schedule {
            return Ok(ControlOutcome::Already("it is so already".into()));
        }
        if kept.schedule.calendar == schedule.calendar {
            next_at = kept.next_at;
        }
    }
    let (spec, codec) = (columns::schedule_text(schedule), i16::from(schedule.input.codec));
    let (bytes, next) = (&schedule.input.bytes, next_at.map(Time::micros));
    let sql = sql::schedules::SET;
    conn.execute(sql, &[&schedule.name, &spec, &codec, bytes, &next]).await?;
    Ok(ControlOutcome::Done)
}

/// Lets a schedule rest, or takes that back.
pub(super) async fn pause(
    conn: &Guard<'_>,
    now: Time,
    name: &str,
    by: Option<&Actor>,
) -> Result<ControlOutcome, Error> {
    let Some((kept, paused_by)) = lock(conn, name).await? else { return Ok(ControlOutcome::Unknown) };
    match (by, paused_by) {
        (Some(_), Some(author)) => {
            return Ok(ControlOutcome::Already(format!("it was paused by {author} before")));
        }
        (None, None) => return Ok(ControlOutcome::Already("it is not paused".into())),
        _ => {}
    }
    let at = by.map(|_| now.micros());
    let (author, note) = (by.map(|by| &by.author), by.and_then(|by| by.note.as_ref()));
    let next = match by {
        Some(_) => kept.next_at.map(Time::micros),
        None => kept.schedule.calendar.next_after(now).map(Time::micros),
    };
    conn.execute(sql::schedules::PAUSE, &[&kept.id, &at, &author, &note, &next]).await?;
    if by.is_none() {
        gate(conn).await?;
    }
    Ok(ControlOutcome::Done)
}

/// Forgets a schedule.
pub(super) async fn drop(conn: &Guard<'_>, name: &str) -> Result<ControlOutcome, Error> {
    let rows = conn.query(sql::schedules::DROP, &[&name]).await?;
    Ok(match rows.first().map(|row| row.get::<_, i64>(0)) {
        Some(1) => ControlOutcome::Done,
        _ => ControlOutcome::Unknown,
    })
}

/// Submits the job of a schedule now.
pub(super) async fn trigger(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Time,
    name: &str,
    names: &Names,
) -> Result<ControlOutcome, Error> {
    let Some((kept, _)) = lock(conn, name).await? else { return Ok(ControlOutcome::Unknown) };
    let due = [kept];
    let is_busy = !busy(conn, &due).await?.is_empty();
    let [kept] = due;
    if let (true, Overlap::Skip, Some(job)) = (is_busy, kept.schedule.overlap, kept.last_job) {
        return Ok(outcome::still_runs(JobId(job)));
    }
    if !names.know(store, &kept.schedule.job(now)) {
        return Err(Error::Unavailable("the schedule was changed meanwhile; trigger it again".into()));
    }
    let mut firing = Firing::new(names);
    let last = firing.add(store, conn, now, &kept, &[now], is_busy).await?;
    firing.next.push((kept.id, kept.next_at, last));
    firing.write(store, conn, now).await?;
    Ok(ControlOutcome::Created(JobId(last.expect("it was made"))))
}

async fn gate(conn: &Guard<'_>) -> Result<(), Error> {
    let sql = sql::gates::BUMP;
    conn.execute(sql, &[&vec![0i32], &conn.gate_writer]).await.map(std::mem::drop)
}
