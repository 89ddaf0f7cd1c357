//! What lists say of many jobs at once.

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{
    BranchNo, JobId, Location, State, Time, WaitCondition, WorkerId,
    journal::{CallEvent, CallKind},
};

use super::{Postgres, SPAN, change_params::Param, inspect::payload, sql, views::read_pause};
use crate::{
    CancelHold, Error, JobDetails, LastCall, ParkedJob, RunningDetails, Summary, Unsuccessful,
    UnsuccessfulFilter, UnsuccessfulJob, WaitDetails,
    columns::{self, class_in_json},
    failure_text,
    inspect::details::{DETAILS_MESSAGE, SettingsText, UNSUCCESSFUL_MESSAGE},
};

/// A place for each id, filled from rows that name its position, counted from one, in a column.
struct Places<T>(Vec<Option<T>>);

impl<T> Places<T> {
    fn of(ids: &[JobId]) -> Places<T> {
        Places(ids.iter().map(|_| None).collect())
    }

    fn fill(&mut self, position: i64, value: T) {
        if let Some(place) = usize::try_from(position - 1).ok().and_then(|position| self.0.get_mut(position))
        {
            *place = Some(value);
        }
    }
}

fn uuids(ids: &[JobId]) -> Vec<Uuid> {
    ids.iter().map(|id| id.0).collect()
}

impl Postgres {
    pub(super) async fn read_summaries(&self, ids: &[JobId]) -> Result<Vec<Option<Summary>>, Error> {
        let conn = self.conn().await?;
        let rows = conn.read(sql::details::SUMMARIES, &[&SPAN, &uuids(ids)]).await?;
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(1))).await?;
        let mut found = Places::of(ids);
        for row in &rows {
            found.fill(row.get(14), self.summary(row)?);
        }
        Ok(found.0)
    }

    pub(super) async fn read_details(&self, ids: &[JobId]) -> Result<Vec<Option<JobDetails>>, Error> {
        let rows = self.conn().await?.read(sql::details::DETAILS, &[&SPAN, &uuids(ids)]).await?;
        let mut found = Places::of(ids);
        rows.iter().for_each(|row| found.fill(row.get(0), job_details(row)));
        Ok(found.0)
    }

    pub(super) async fn read_unsuccessful_jobs(
        &self,
        filter: &UnsuccessfulFilter,
        limit: usize,
    ) -> Result<Unsuccessful, Error> {
        let conn = self.conn().await?;
        let (before, from) = (filter.before.map(|id| id.0), filter.since.map(|at| JobId::lowest_at(at).0));
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = Vec::new();
        match &filter.error_class {
            Some(class) => {
                let params: [Param<'_>; 4] = [&before, &from, &most, &class_in_json(class)];
                rows = conn.read(sql::details::UNSUCCESSFUL_OF_CLASS, &params).await?;
            }
            None => {
                for state in filter.walked_states() {
                    let params: [Param<'_>; 4] = [&before, &from, &most, state];
                    rows.extend(conn.read(sql::details::UNSUCCESSFUL, &params).await?);
                }
            }
        }
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(1))).await?;
        let jobs = rows.iter().map(|row| self.unsuccessful_job(row)).collect::<Result<_, _>>()?;
        Ok(Unsuccessful::select(jobs, filter, limit))
    }

    fn unsuccessful_job(&self, row: &Row) -> Result<UnsuccessfulJob, Error> {
        let lane = self.lane(row.get(1))?;
        Ok(UnsuccessfulJob {
            id: JobId(row.get(0)),
            kind: lane.kind.kind,
            version: lane.kind.version,
            queue: lane.queue,
            key: row.get(2),
            state: columns::final_state(row.get(3)).unwrap_or(State::Failed),
            reason: columns::reason(row.get(4)),
            failure: failure_text::read(row.get(5), UNSUCCESSFUL_MESSAGE).unwrap_or_default(),
            attempts: row.get::<_, i32>(6) as u32,
            finished_at: Time(row.get::<_, Option<i64>>(7).unwrap_or_else(|| row.get(8))),
            parent: row.get::<_, Option<Uuid>>(9).map(JobId),
            branch: row.get::<_, Option<i64>>(10).map(BranchNo),
        })
    }

    pub(super) async fn read_parked(&self, limit: usize) -> Result<Vec<ParkedJob>, Error> {
        let conn = self.conn().await?;
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = conn.read(sql::details::PARKED, &[&most]).await?;
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(1))).await?;
        rows.iter().map(|row| self.parked_job(row)).collect()
    }

    fn parked_job(&self, row: &Row) -> Result<ParkedJob, Error> {
        let lane = self.lane(row.get(1))?;
        Ok(ParkedJob {
            id: JobId(row.get(0)),
            kind: lane.kind.kind,
            version: lane.kind.version,
            queue: lane.queue,
            key: row.get(2),
            stage: row.get(3),
            wait: wait_details(row, 4),
        })
    }

    pub(super) async fn read_last_calls(&self, ids: &[JobId]) -> Result<Vec<Option<LastCall>>, Error> {
        let (repeat, begun) = (CallKind::Repeat.number(), CallEvent::Begun.number());
        let params: [Param<'_>; 3] = [&uuids(ids), &repeat, &begun];
        let rows = self.conn().await?.read(sql::details::LAST_CALLS, &params).await?;
        let mut found = Places::of(ids);
        for row in &rows {
            let Some(call_kind) = CallKind::from_number(row.get(1)) else { continue };
            let progress = payload(row.get(4), row.get(5));
            found.fill(row.get(0), LastCall { call_kind, name: row.get(2), at: Time(row.get(3)), progress });
        }
        Ok(found.0)
    }
}

fn job_details(row: &Row) -> JobDetails {
    let location = Location { is_ready: row.get(2), is_scheduled: row.get(3), is_parked: row.get(4) };
    let state = columns::final_state(row.get(1)).unwrap_or_else(|| location.state());
    let running = row.get::<_, Option<i64>>(5).filter(|_| state == State::Running);
    let cancel_requested = row.get::<_, Option<i64>>(16).map(|at| CancelHold {
        deadline_at: Time(at),
        author: row.get(17),
        note: row.get(18),
    });
    let settings = SettingsText::decode(row.get(19));
    JobDetails {
        state,
        running: running.map(|worker| RunningDetails {
            worker: WorkerId(worker),
            name: row.get(7),
            since: Time(row.get(6)),
        }),
        waiting: (state == State::Waiting).then(|| wait_details(row, 8)),
        failure: failure_text::read(row.get(12), DETAILS_MESSAGE),
        paused: read_pause(row, 13),
        cancel_requested,
        serial_key: settings.serial_key,
        waits_for_slot: row.get(20),
        rate: settings.rate,
        suspect: row.get(21),
        unwinding: row.get(22),
        max_attempts: settings.max_attempts,
        started_at: row.get::<_, Option<i64>>(23).map(Time),
        parent: row.get::<_, Option<Uuid>>(24).map(JobId),
        items: row.get::<_, i32>(25).max(0) as u32,
        branch: row.get::<_, Option<i64>>(26).map(BranchNo),
    }
}

/// Reads four columns: what a job waits for, since when, until when, and for how many children.
fn wait_details(row: &Row, from: usize) -> WaitDetails {
    WaitDetails {
        condition: columns::Decoder::default().wait(row.get(from)).unwrap_or(WaitCondition::Nothing),
        since: row.get::<_, Option<i64>>(from + 1).map(Time),
        until: row.get::<_, Option<i64>>(from + 2).map(Time),
        pending_children: row.get::<_, i32>(from + 3).max(0) as u32,
    }
}
