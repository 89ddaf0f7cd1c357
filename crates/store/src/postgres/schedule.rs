//! Schedules: jobs that a calendar submits.

use std::collections::HashSet;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{
    JobId, NewJob, Payload, Schedule, Time,
    calendar::{Missed, Overlap},
};

use super::{
    Postgres, control::transaction, errors::PgError, job_actions, micros, names::Names, sql, submit::Batch,
    tx::Tx,
};
use crate::{Actor, ControlOutcome, Error, Now, columns, control::outcome};

/// How many schedules fire in one transaction: few enough to lock them for some milliseconds.
const BATCH: i64 = 1_000;

/// A schedule as it is stored.
struct Stored {
    id: i32,
    schedule: Schedule,
    next_at: Option<Time>,
    last_job: Option<Uuid>,
}

fn read(row: &Row) -> Result<Stored, PgError> {
    let input = Payload { codec: row.get::<_, i16>(2) as u8, bytes: row.get(3) };
    Ok(Stored {
        id: row.get(0),
        schedule: columns::schedule(row.get(1), input)?,
        next_at: row.get::<_, Option<i64>>(4).map(Time),
        last_job: row.get(5),
    })
}

/// Fires schedules that are due. Returns how many jobs were submitted.
pub(super) async fn fire(store: &Postgres, now: Now) -> Result<usize, PgError> {
    let names = names_of_due(store, now).await?;
    transaction(store, now, async |tx, now| {
        let rows = tx.query(sql::schedules::LOCK_DUE, &[&now.micros(), &BATCH]).await?;
        // A schedule that became due or was changed after its names were read fires at the next call.
        let due = rows.iter().filter_map(|row| read(row).ok());
        let due: Vec<Stored> = due.filter(|stored| names.has(store, &stored.schedule.job(now))).collect();
        let busy = busy_jobs(tx, &due).await?;
        let mut ticks = Ticks::new(&names);
        for stored in &due {
            let is_busy = stored.last_job.is_some_and(|id| busy.contains(&id));
            let next_at = stored.next_at.unwrap_or(now);
            let tick = stored.schedule.due_ticks(next_at, now, is_busy);
            let last = ticks.add(store, tx, now, stored, (&tick.fire, None), is_busy).await?;
            ticks.next.push((stored.id, tick.next_at, last));
            for (missed, why) in tick.missed {
                record_miss(tx, stored.id, now, missed, why).await?;
            }
        }
        ticks.write(store, tx, now).await
    })
    .await
}

/// Reads the names of the jobs of all schedules that are due. A schedule that cannot be read is paused, with the error as its note:
/// it must not hold up the others.
async fn names_of_due(store: &Postgres, now: Now) -> Result<Names, PgError> {
    let conn = store.conn().await?;
    let mut jobs = Vec::new();
    for row in conn.query(sql::schedules::READ_DUE, &[&micros(now), &BATCH]).await? {
        match read(&row) {
            Ok(stored) => jobs.push(stored.schedule.job(Time(0))),
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

/// Reads the names of the jobs of one schedule, if it exists.
pub(super) async fn names_of(store: &Postgres, name: &str) -> Result<Names, PgError> {
    let all = store.read_schedules().await?;
    match all.into_iter().find(|view| view.schedule.name == name) {
        Some(view) => Names::unchecked(store, &[view.schedule.job(Time(0))]).await,
        None => Ok(Names::default()),
    }
}

/// Finds the last jobs of schedules that are live, where the schedule's overlap rule depends on it.
async fn busy_jobs(tx: &Tx<'_>, due: &[Stored]) -> Result<HashSet<Uuid>, PgError> {
    let depends =
        |stored: &&Stored| matches!(stored.schedule.overlap, Overlap::Skip | Overlap::CancelPrevious);
    let last: Vec<Uuid> = due.iter().filter(depends).filter_map(|stored| stored.last_job).collect();
    if last.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = tx.query(sql::schedules::LIVE_JOBS, &[&last]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The ticks that a transaction fires.
struct Ticks<'a> {
    names: &'a Names,
    /// Jobs that are not submitted yet.
    jobs: Vec<NewJob>,
    /// The schedule and time of each of them.
    fired: Vec<(i32, Time)>,
    /// The next tick and the last job of each schedule.
    next: Vec<(i32, Option<Time>, Option<Uuid>)>,
    /// How many jobs were submitted so far.
    submitted: usize,
}

impl<'a> Ticks<'a> {
    fn new(names: &'a Names) -> Ticks<'a> {
        Ticks { names, jobs: Vec::new(), fired: Vec::new(), next: Vec::new(), submitted: 0 }
    }

    /// Adds ticks of one schedule, whose jobs have this id if one is given. Returns its last job.
    async fn add(
        &mut self,
        store: &Postgres,
        tx: &Tx<'_>,
        now: Time,
        stored: &Stored,
        (ticks, id): (&[Time], Option<JobId>),
        is_busy: bool,
    ) -> Result<Option<Uuid>, PgError> {
        let schedule = &stored.schedule;
        let mut last = stored.last_job.filter(|_| is_busy).map(JobId);
        for tick in ticks {
            let mut job = schedule.job(*tick);
            job.id = id.unwrap_or(job.id);
            if let (Overlap::CancelPrevious, Some(last)) = (schedule.overlap, last) {
                // A job of this call must be submitted before it can be cancelled.
                self.submit_jobs(store, tx, now).await?;
                let actor = outcome::next_tick(&schedule.name);
                job_actions::cancel(store, tx, now, &[last], columns::GRACE, &actor).await?;
            }
            last = Some(job.id);
            self.fired.push((stored.id, *tick));
            self.jobs.push(job);
        }
        Ok(if ticks.is_empty() { None } else { last.map(|id| id.0) })
    }

    async fn submit_jobs(&mut self, store: &Postgres, tx: &Tx<'_>, now: Time) -> Result<(), PgError> {
        let (jobs, fired) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.fired));
        if jobs.is_empty() {
            return Ok(());
        }
        let (now, names) = (Some(now), self.names);
        let batch = Batch { store, now, jobs: &jobs, names, claim_on_submit: None, running: &[] };
        if batch.insert_in(tx).await?.iter().any(Option::is_none) {
            // A job with its id is being deleted: the next call fires the tick.
            let why = "the job of a tick is being deleted; it is submitted again";
            return Err(Error::Unavailable(why.into()).into());
        }
        let (ids, ticks): (Vec<i32>, Vec<i64>) = fired.iter().map(|(id, tick)| (*id, tick.micros())).unzip();
        let job_ids: Vec<Uuid> = jobs.iter().map(|job| job.id.0).collect();
        tx.execute(sql::schedules::ADD_FIRING, &[&ids, &ticks, &job_ids]).await?;
        self.submitted += jobs.len();
        Ok(())
    }

    /// Submits the jobs and moves the schedules on. Returns how many jobs were submitted in all.
    async fn write(mut self, store: &Postgres, tx: &Tx<'_>, now: Time) -> Result<usize, PgError> {
        self.submit_jobs(store, tx, now).await?;
        let ids: Vec<i32> = self.next.iter().map(|(id, ..)| *id).collect();
        let next: Vec<Option<i64>> = self.next.iter().map(|(_, at, _)| at.map(Time::micros)).collect();
        let last: Vec<Option<Uuid>> = self.next.iter().map(|(.., last)| *last).collect();
        tx.execute(sql::schedules::SET_NEXT, &[&ids, &next, &last]).await?;
        Ok(self.submitted)
    }
}

async fn record_miss(tx: &Tx<'_>, id: i32, now: Time, missed: Missed, why: &str) -> Result<(), PgError> {
    let Missed { from, to, count, at_least } = missed;
    let (to, count) = (to.micros(), count as i64);
    if tx.execute(sql::schedules::EXTEND_MISS, &[&id, &why, &to, &count, &at_least]).await? == 0 {
        let sql = sql::schedules::ADD_MISS;
        tx.execute(sql, &[&id, &now.micros(), &from.micros(), &to, &count, &at_least, &why]).await?;
    }
    Ok(())
}

/// Locks and reads a schedule, with the author of its pause.
async fn lock(tx: &Tx<'_>, name: &str) -> Result<Option<(Stored, Option<String>)>, PgError> {
    let rows = tx.query(sql::schedules::LOCK, &[&name]).await?;
    rows.first().map(|row| Ok((read(row)?, row.get(6)))).transpose()
}

/// Adds or changes a schedule.
pub(super) async fn set(tx: &Tx<'_>, now: Time, schedule: &Schedule) -> Result<ControlOutcome, PgError> {
    bump_timer_gate(tx).await?;
    let stored = lock(tx, &schedule.name).await?;
    if stored.as_ref().is_some_and(|(stored, _)| stored.schedule == *schedule) {
        return Ok(ControlOutcome::Already("it is so already".into()));
    }
    let previous = stored.as_ref().map(|(stored, _)| (&stored.schedule, stored.next_at));
    let next_at = schedule.next_at_when_set(previous, now);
    let (spec, codec) = (columns::schedule_text(schedule), i16::from(schedule.input.codec));
    let (bytes, next) = (&schedule.input.bytes, next_at.map(Time::micros));
    tx.execute(sql::schedules::SET, &[&schedule.name, &spec, &codec, bytes, &next]).await?;
    Ok(ControlOutcome::Done)
}

/// Pauses a schedule, or resumes it if there is no `actor`.
pub(super) async fn pause(
    tx: &Tx<'_>,
    now: Time,
    name: &str,
    actor: Option<&Actor>,
) -> Result<ControlOutcome, PgError> {
    let Some((stored, paused_by)) = lock(tx, name).await? else { return Ok(ControlOutcome::Unknown) };
    match (actor, paused_by) {
        (Some(_), Some(author)) => {
            return Ok(ControlOutcome::Already(format!("it was paused by {author} before")));
        }
        (None, None) => return Ok(ControlOutcome::Already("it is not paused".into())),
        _ => {}
    }
    let at = actor.map(|_| now.micros());
    let (author, note) = (actor.map(|actor| &actor.author), actor.and_then(|actor| actor.note.as_ref()));
    let next = match actor {
        Some(_) => stored.next_at.map(Time::micros),
        None => stored.schedule.calendar.next_after(now).map(Time::micros),
    };
    tx.execute(sql::schedules::PAUSE, &[&stored.id, &at, &author, &note, &next]).await?;
    if actor.is_none() {
        bump_timer_gate(tx).await?;
    }
    Ok(ControlOutcome::Done)
}

/// Deletes a schedule.
pub(super) async fn drop(tx: &Tx<'_>, name: &str) -> Result<ControlOutcome, PgError> {
    let rows = tx.query(sql::schedules::DROP, &[&name]).await?;
    Ok(match rows.first().map(|row| row.get::<_, i64>(0)) {
        Some(1) => ControlOutcome::Done,
        _ => ControlOutcome::Unknown,
    })
}

/// Submits the job of a schedule now.
pub(super) async fn trigger(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Time,
    name: &str,
    id: Option<JobId>,
    names: &Names,
) -> Result<ControlOutcome, PgError> {
    let Some((stored, _)) = lock(tx, name).await? else { return Ok(ControlOutcome::Unknown) };
    if let Some(id) = id
        && !tx.query(sql::inspect::JOB_ENDS, &[&vec![id.0]]).await?.is_empty()
    {
        return Ok(outcome::triggered_before());
    }
    let due = [stored];
    let is_busy = !busy_jobs(tx, &due).await?.is_empty();
    let [stored] = due;
    if let (true, Overlap::Skip, Some(job)) = (is_busy, stored.schedule.overlap, stored.last_job) {
        return Ok(outcome::still_runs(JobId(job)));
    }
    if !names.has(store, &stored.schedule.job(now)) {
        let why = "the schedule was changed meanwhile; trigger it again";
        return Err(Error::Unavailable(why.into()).into());
    }
    let mut ticks = Ticks::new(names);
    let last = ticks.add(store, tx, now, &stored, (&[now], id), is_busy).await?;
    ticks.next.push((stored.id, stored.next_at, last));
    ticks.write(store, tx, now).await?;
    Ok(ControlOutcome::Created(JobId(last.expect("one tick was added"))))
}

async fn bump_timer_gate(tx: &Tx<'_>) -> Result<(), PgError> {
    tx.execute(sql::gates::BUMP, &[&vec![0i32], &tx.gate_writer]).await.map(std::mem::drop)
}
