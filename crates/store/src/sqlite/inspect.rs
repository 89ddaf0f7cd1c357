//! Reads for people.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Row, params};
use windlass_model::{Epoch, JobId, Payload, Rev, State, Time, WorkerId, rank::AGEING_SPAN};

use super::{Sqlite, Tx, job_id, migrate, unpack};
use crate::{
    Attempt, Backlog, Census, Ended, Error, Filter, Fut, Inspect, Job, SchemaState, Summary, WorkerView,
    pick::{self, ALIVE, CANCELLED, FAILED},
};

const SPAN: i64 = AGEING_SPAN.as_micros() as i64;

pub(super) fn ended(tx: &Tx<'_>, ids: &[JobId]) -> Result<Vec<Option<Ended>>, Error> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        let row = tx.one(include_str!("sql/ended.sql"), [id.as_bytes().as_slice()], |row| {
            let output = row.get::<_, Option<Vec<u8>>>(4)?;
            let output = output.map(|bytes| row.get(3).map(|codec| Payload { codec, bytes })).transpose();
            Ok((row.get::<_, i16>(0)?, row.get(1)?, row.get::<_, Option<String>>(2)?, output?))
        })?;
        answers.push(match row {
            None => Some(Ended::Gone),
            Some((state, reason, failure, output)) => pick::final_state(state).and_then(|state| {
                Ended::from_parts(state, pick::reason(reason), pick::failure(failure.as_deref()), output)
            }),
        });
    }
    Ok(answers)
}

fn summary(tx: &Tx<'_>, row: &Row<'_>) -> Result<Summary, Error> {
    let lane = tx.store.lane(tx, row.get(1)?)?;
    let state = match pick::final_state(row.get(3)?) {
        Some(state) => state,
        None if row.get(10)? => State::Ready,
        None if row.get(11)? => State::Scheduled,
        None => State::Running,
    };
    Ok(Summary {
        id: job_id(&row.get::<_, [u8; 16]>(0)?)?,
        kind: lane.kind.kind,
        version: lane.kind.version,
        queue: lane.queue,
        key: row.get(9)?,
        state,
        reason: pick::reason(row.get(4)?),
        priority: row.get(2)?,
        attempts: row.get(5)?,
        submitted_at: Time(row.get(6)?),
        due_at: Time(row.get(7)?),
        finished_at: row.get::<_, Option<i64>>(8)?.map(Time),
    })
}

/// Which worker has each running job, and since when.
type Holders = HashMap<(JobId, Epoch), (WorkerId, Time)>;

fn holders(tx: &Tx<'_>) -> Result<Holders, Error> {
    let mut statement = tx.prepare(include_str!("sql/inspect_claim.sql"))?;
    let mut rows = statement.query([])?;
    let mut holders = HashMap::new();
    while let Some(row) = rows.next()? {
        let holder = (WorkerId(row.get(0)?), Time(row.get(1)?));
        for pair in unpack(&row.get::<_, Vec<u8>>(2)?)? {
            holders.insert(pair, holder);
        }
    }
    Ok(holders)
}

fn job(tx: &Tx<'_>, id: JobId) -> Result<Option<Job>, Error> {
    let mut statement = tx.prepare(include_str!("sql/inspect_job.sql"))?;
    let mut rows = statement.query(params![id.as_bytes(), SPAN])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let summary = summary(tx, row)?;
    let epoch = Epoch(row.get(12)?);
    let holder = match summary.state {
        State::Running => holders(tx)?.remove(&(id, epoch)),
        _ => None,
    };
    let output: Option<Vec<u8>> = row.get(26)?;
    Ok(Some(Job {
        epoch,
        rev: Rev(row.get(13)?),
        deaths: row.get(14)?,
        crashes: row.get(15)?,
        worker: holder.map(|(worker, _)| worker).or(row.get::<_, Option<i64>>(16)?.map(WorkerId)),
        started_at: holder.map(|(_, at)| at).or(row.get::<_, Option<i64>>(17)?.map(Time)),
        deadline_at: row.get::<_, Option<i64>>(18)?.map(Time),
        parent: None,
        tags: pick::tags(row.get::<_, Option<String>>(19)?.as_deref()),
        options: row.get(20)?,
        settings: pick::settings(row.get::<_, Option<String>>(21)?.as_deref()),
        spent: pick::spent(row.get::<_, Option<String>>(22)?.as_deref()),
        input: Payload { codec: row.get(23)?, bytes: row.get(24)? },
        output: output.map(|bytes| Ok::<_, Error>(Payload { codec: row.get(25)?, bytes })).transpose()?,
        failure: pick::failure(row.get::<_, Option<String>>(27)?.as_deref()),
        summary,
    }))
}

fn jobs(tx: &Tx<'_>, filter: &Filter) -> Result<Vec<Summary>, Error> {
    let (state, is_ready, is_scheduled) = pick::places(filter.state);
    let sql = match state {
        Some(FAILED | CANCELLED) => include_str!("sql/inspect_trouble.sql"),
        _ => include_str!("sql/inspect_jobs.sql"),
    };
    let mut statement = tx.prepare(sql)?;
    let before = filter.before.map(|id| *id.as_bytes());
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![
        SPAN,
        before,
        state,
        is_ready,
        is_scheduled,
        filter.kind,
        filter.queue,
        filter.tag,
        filter.key,
        limit,
    ])?;
    let mut summaries = Vec::new();
    while let Some(row) = rows.next()? {
        summaries.push(summary(tx, row)?);
    }
    Ok(summaries)
}

fn history(tx: &Tx<'_>, id: JobId) -> Result<Vec<Attempt>, Error> {
    let mut statement = tx.prepare(include_str!("sql/inspect_history.sql"))?;
    let mut rows = statement.query([id.as_bytes().as_slice()])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        attempts.push(Attempt {
            epoch: Epoch(row.get(0)?),
            worker: WorkerId(row.get(1)?),
            started_at: Time(row.get(2)?),
            ended_at: Time(row.get(3)?),
            failure: pick::failure(Some(&row.get::<_, String>(4)?)).expect("there is text"),
        });
    }
    Ok(attempts)
}

fn census(tx: &Tx<'_>, cap: u64) -> Result<Vec<Census>, Error> {
    let mut statement = tx.prepare(include_str!("sql/inspect_census.sql"))?;
    let mut rows = statement.query([i64::MAX])?;
    let mut counts: BTreeMap<(i32, String), u64> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        counts.insert((row.get(0)?, row.get(1)?), row.get::<_, i64>(2)? as u64);
    }
    pick::census(counts, cap, |lane| tx.store.lane(tx, lane))
}

fn backlog(tx: &Tx<'_>, cap: u64) -> Result<Vec<Backlog>, Error> {
    let mut statement = tx.prepare(include_str!("sql/inspect_backlog.sql"))?;
    let mut rows = statement.query([i64::try_from(cap).unwrap_or(i64::MAX)])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        counts.push((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)? as u64, row.get(3)?));
    }
    let mut claims = tx.prepare(include_str!("sql/inspect_claim.sql"))?;
    let mut rows = claims.query([])?;
    let mut left = usize::try_from(cap).unwrap_or(usize::MAX);
    while left > 0
        && let Some(row) = rows.next()?
    {
        for (id, epoch) in unpack(&row.get::<_, Vec<u8>>(2)?)?.into_iter().take(left) {
            left -= 1;
            let sql = include_str!("sql/inspect_running.sql");
            let lane = tx.one(sql, params![id.as_bytes(), epoch.0], |row| row.get(0))?;
            counts.extend(lane.map(|lane| (lane, "running".to_owned(), 1, None)));
        }
    }
    pick::backlog(counts, cap, |lane| tx.store.lane(tx, lane))
}

fn workers(tx: &Tx<'_>) -> Result<Vec<WorkerView>, Error> {
    let mut statement = tx.prepare(include_str!("sql/inspect_workers.sql"))?;
    let rows = statement.query_map([], |row| {
        Ok(WorkerView {
            id: WorkerId(row.get(0)?),
            name: row.get(1)?,
            beacon: row.get(2)?,
            alive: row.get::<_, i16>(3)? == ALIVE,
            lease_until: Time(row.get(4)?),
            claims: row.get::<_, i64>(5)? as u64,
            serves: Vec::new(),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Inspect for Sqlite {
    fn job(&self, id: JobId) -> Fut<'_, Option<Job>> {
        Box::pin(std::future::ready(self.read(|tx| job(tx, id))))
    }

    fn jobs<'a>(&'a self, filter: &'a Filter) -> Fut<'a, Vec<Summary>> {
        Box::pin(std::future::ready(self.read(|tx| jobs(tx, filter))))
    }

    fn history(&self, id: JobId) -> Fut<'_, Vec<Attempt>> {
        Box::pin(std::future::ready(self.read(|tx| history(tx, id))))
    }

    fn census(&self, cap: u64) -> Fut<'_, Vec<Census>> {
        Box::pin(std::future::ready(self.read(|tx| census(tx, cap))))
    }

    fn backlog(&self, cap: u64) -> Fut<'_, Vec<Backlog>> {
        Box::pin(std::future::ready(self.read(|tx| backlog(tx, cap))))
    }

    fn workers(&self) -> Fut<'_, Vec<WorkerView>> {
        Box::pin(std::future::ready(self.read(workers)))
    }

    fn holds(&self, _id: JobId) -> Fut<'_, Option<crate::Holds>> {
        stub()
    }

    fn queues(&self) -> Fut<'_, Vec<crate::QueueView>> {
        stub()
    }

    fn rate_limits(&self) -> Fut<'_, Vec<crate::LimitView>> {
        stub()
    }

    fn serial_keys<'a>(&'a self, _key: Option<&'a str>, _limit: usize) -> Fut<'a, Vec<crate::SerialView>> {
        stub()
    }

    fn audit<'a>(&'a self, _filter: &'a crate::AuditFilter) -> Fut<'a, Vec<crate::AuditEntry>> {
        stub()
    }

    fn schedules(&self) -> Fut<'_, Vec<crate::ScheduleView>> {
        stub()
    }

    fn firings<'a>(&'a self, _schedule: &'a str, _limit: usize) -> Fut<'a, Vec<crate::Firing>> {
        stub()
    }

    fn misses<'a>(&'a self, _schedule: &'a str, _limit: usize) -> Fut<'a, Vec<crate::Miss>> {
        stub()
    }

    fn children(&self, _parent: JobId, _after: Option<JobId>, _limit: usize) -> Fut<'_, Vec<Summary>> {
        stub()
    }

    fn schema(&self) -> Fut<'_, SchemaState> {
        Box::pin(std::future::ready(self.read(|tx| migrate::state(tx.conn))))
    }

    fn bytes(&self) -> Fut<'_, u64> {
        let bytes = self.read(|tx| {
            let size = tx.one(include_str!("sql/inspect_bytes.sql"), [], |row| row.get::<_, i64>(0))?;
            Ok(size.unwrap_or(0) as u64)
        });
        Box::pin(std::future::ready(bytes))
    }

    fn clock(&self) -> Fut<'_, Time> {
        Box::pin(std::future::ready(self.read(|tx| Ok(tx.now(None)))))
    }
}

fn stub<'a, T: Send + 'a>() -> Fut<'a, T> {
    Box::pin(std::future::ready(Err(Error::Fault("not there yet".into()))))
}
