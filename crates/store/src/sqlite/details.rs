//! What lists say of many jobs at once.

use rusqlite::{Row, params, types::ToSql};
use windlass_model::{
    BranchNo, Epoch, JobId, Location, Payload, State, Time, WaitCondition, WorkerId,
    journal::{CallEvent, CallKind},
};

use super::{
    inspect::{SPAN, summary},
    pulse::id_list,
    sql,
    tx::{Tx, read_id, unpack},
    views::pause,
};
use crate::{
    CancelHold, Error, JobDetails, LastCall, ParkedJob, RunningDetails, Summary, Unsuccessful,
    UnsuccessfulFilter, UnsuccessfulJob, WaitDetails, columns, failure_text,
    inspect::details::{DETAILS_MESSAGE, SettingsText, UNSUCCESSFUL_MESSAGE},
};

/// A place for each id, filled from rows that name its position in a column.
struct Places<T>(Vec<Option<T>>);

impl<T> Places<T> {
    fn of(ids: &[JobId]) -> Places<T> {
        Places(ids.iter().map(|_| None).collect())
    }

    fn at(&mut self, position: i64) -> Option<&mut Option<T>> {
        self.0.get_mut(usize::try_from(position).ok()?)
    }

    fn fill(&mut self, position: i64, value: T) {
        if let Some(place) = self.at(position) {
            *place = Some(value);
        }
    }
}

pub(super) fn summaries(tx: &Tx<'_>, ids: &[JobId]) -> Result<Vec<Option<Summary>>, Error> {
    let mut found = Places::of(ids);
    let mut statement = tx.prepare(sql::details::SUMMARIES)?;
    let mut rows = statement.query(params![SPAN, id_list(ids)])?;
    while let Some(row) = rows.next()? {
        found.fill(row.get(14)?, summary(tx, row)?);
    }
    Ok(found.0)
}

pub(super) fn details(tx: &Tx<'_>, ids: &[JobId]) -> Result<Vec<Option<JobDetails>>, Error> {
    let mut found = Places::of(ids);
    let mut running = Vec::new();
    let mut statement = tx.prepare(sql::details::DETAILS)?;
    let mut rows = statement.query(params![SPAN, id_list(ids)])?;
    while let Some(row) = rows.next()? {
        let (position, details) = (row.get(0)?, job_details(row)?);
        if details.state == State::Running {
            running.push((read_id(row, 1)?, Epoch(row.get(2)?), position));
        }
        found.fill(position, details);
    }
    if !running.is_empty() {
        add_claims(tx, &running, &mut found)?;
    }
    Ok(found.0)
}

/// Adds who runs jobs, by their ids, epochs and positions.
fn add_claims(
    tx: &Tx<'_>,
    running: &[(JobId, Epoch, i64)],
    found: &mut Places<JobDetails>,
) -> Result<(), Error> {
    let mut statement = tx.prepare(sql::details::CLAIMS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let holder =
            RunningDetails { worker: WorkerId(row.get(0)?), name: row.get(2)?, since: Time(row.get(1)?) };
        for (id, epoch) in unpack(&row.get::<_, Vec<u8>>(3)?)? {
            for (.., position) in running.iter().filter(|(job, at, _)| (*job, *at) == (id, epoch)) {
                if let Some(Some(details)) = found.at(*position) {
                    details.running = Some(holder.clone());
                }
            }
        }
    }
    Ok(())
}

fn job_details(row: &Row<'_>) -> Result<JobDetails, Error> {
    let location = Location { is_ready: row.get(4)?, is_scheduled: row.get(5)?, is_parked: row.get(6)? };
    let state = columns::final_state(row.get(3)?).unwrap_or_else(|| location.state());
    let cancel_requested = match row.get::<_, Option<i64>>(15)? {
        Some(at) => Some(CancelHold { deadline_at: Time(at), author: row.get(16)?, note: row.get(17)? }),
        None => None,
    };
    let settings = SettingsText::decode(row.get::<_, Option<String>>(18)?.as_deref());
    let failure = row.get::<_, Option<String>>(11)?;
    Ok(JobDetails {
        state,
        running: None,
        waiting: if state == State::Waiting { Some(wait_details(row, 7)?) } else { None },
        failure: failure_text::read(failure.as_deref(), DETAILS_MESSAGE),
        paused: pause(row, 12)?,
        cancel_requested,
        serial_key: settings.serial_key,
        waits_for_slot: row.get(19)?,
        rate: settings.rate,
        suspect: row.get(20)?,
        unwinding: row.get(21)?,
        max_attempts: settings.max_attempts,
        started_at: row.get::<_, Option<i64>>(22)?.map(Time),
        parent: row.get::<_, Option<[u8; 16]>>(23)?.map(JobId::from_bytes),
        items: row.get(24)?,
        branch: row.get::<_, Option<i64>>(25)?.map(BranchNo),
    })
}

/// Reads four columns: what a job waits for, since when, until when, and for how many children.
fn wait_details(row: &Row<'_>, from: usize) -> Result<WaitDetails, Error> {
    let wait = row.get::<_, Option<String>>(from)?;
    Ok(WaitDetails {
        condition: columns::Decoder::default().wait(wait.as_deref()).unwrap_or(WaitCondition::Nothing),
        since: row.get::<_, Option<i64>>(from + 1)?.map(Time),
        until: row.get::<_, Option<i64>>(from + 2)?.map(Time),
        pending_children: row.get(from + 3)?,
    })
}

pub(super) fn unsuccessful(
    tx: &Tx<'_>,
    filter: &UnsuccessfulFilter,
    limit: usize,
) -> Result<Unsuccessful, Error> {
    let mut found = Vec::new();
    match &filter.error_class {
        Some(class) => {
            read_unsuccessful(tx, sql::details::UNSUCCESSFUL_OF_CLASS, filter, class, limit, &mut found)?
        }
        None => {
            for state in filter.walked_states() {
                read_unsuccessful(tx, sql::details::UNSUCCESSFUL, filter, state, limit, &mut found)?;
            }
        }
    }
    Ok(Unsuccessful::select(found, filter, limit))
}

fn read_unsuccessful(
    tx: &Tx<'_>,
    sql: &str,
    filter: &UnsuccessfulFilter,
    wanted: &dyn ToSql,
    limit: usize,
    found: &mut Vec<UnsuccessfulJob>,
) -> Result<(), Error> {
    let mut statement = tx.prepare(sql)?;
    let (before, from) = (filter.before.map(|id| *id.as_bytes()), filter.since.map(JobId::lowest_at));
    let mut rows = statement.query(params![before, from.map(|id| *id.as_bytes()), wanted])?;
    let mut read = 0;
    while read < limit
        && let Some(row) = rows.next()?
    {
        read += 1;
        found.push(unsuccessful_job(tx, row)?);
    }
    Ok(())
}

fn unsuccessful_job(tx: &Tx<'_>, row: &Row<'_>) -> Result<UnsuccessfulJob, Error> {
    let lane = tx.store.lane(tx, row.get(1)?)?;
    let failure = row.get::<_, Option<String>>(5)?;
    Ok(UnsuccessfulJob {
        id: read_id(row, 0)?,
        kind: lane.kind.kind,
        version: lane.kind.version,
        queue: lane.queue,
        key: row.get(2)?,
        state: columns::final_state(row.get(3)?).unwrap_or(State::Failed),
        reason: columns::reason(row.get(4)?),
        failure: failure_text::read(failure.as_deref(), UNSUCCESSFUL_MESSAGE).unwrap_or_default(),
        attempts: row.get(6)?,
        finished_at: Time(row.get::<_, Option<i64>>(7)?.unwrap_or(row.get(8)?)),
        parent: row.get::<_, Option<[u8; 16]>>(9)?.map(JobId::from_bytes),
        branch: row.get::<_, Option<i64>>(10)?.map(BranchNo),
    })
}

pub(super) fn parked(tx: &Tx<'_>, limit: usize) -> Result<Vec<ParkedJob>, Error> {
    let stages: Vec<String> = tx.query_all(sql::details::PARKED_STAGES, [], |row| row.get(0))?;
    let mut ids = Vec::new();
    let mut statement = tx.prepare(sql::details::PARKED_IDS)?;
    for stage in std::iter::once(None).chain(stages.into_iter().map(Some)) {
        let mut rows = statement.query([stage])?;
        let mut read = 0;
        while read < limit
            && let Some(row) = rows.next()?
        {
            read += 1;
            ids.push(read_id(row, 0)?);
        }
    }
    ids.sort_unstable();
    ids.truncate(limit);
    let mut jobs = Vec::with_capacity(ids.len());
    let mut statement = tx.prepare(sql::details::PARKED)?;
    let mut rows = statement.query([id_list(&ids)])?;
    while let Some(row) = rows.next()? {
        let lane = tx.store.lane(tx, row.get(1)?)?;
        jobs.push(ParkedJob {
            id: read_id(row, 0)?,
            kind: lane.kind.kind,
            version: lane.kind.version,
            queue: lane.queue,
            key: row.get(2)?,
            stage: row.get(3)?,
            wait: wait_details(row, 4)?,
        });
    }
    Ok(jobs)
}

pub(super) fn last_calls(tx: &Tx<'_>, ids: &[JobId]) -> Result<Vec<Option<LastCall>>, Error> {
    let mut found = Places::of(ids);
    let (repeat, begun) = (CallKind::Repeat.number(), CallEvent::Begun.number());
    let mut statement = tx.prepare(sql::details::LAST_CALLS)?;
    let mut rows = statement.query(params![id_list(ids), repeat, begun])?;
    while let Some(row) = rows.next()? {
        let Some(call_kind) = CallKind::from_number(row.get(1)?) else { continue };
        let codec: Option<u8> = row.get(4)?;
        let progress = codec.map(|codec| row.get(5).map(|bytes| Payload { codec, bytes })).transpose()?;
        let call = LastCall { call_kind, name: row.get(2)?, at: Time(row.get(3)?), progress };
        found.fill(row.get(0)?, call);
    }
    Ok(found.0)
}
