//! Reads for people: holds of jobs, and what limits them.

use std::collections::HashMap;

use tokio_postgres::Row;
use windlass_model::{JobId, Payload, Rev, Signal, Time, WorkerId, calendar::Missed};

use super::{
    Postgres, SPAN,
    rate::read_bucket,
    signal::{self, unreadable_signals},
    sql,
};
use crate::{
    AuditEntry, AuditFilter, CancelHold, Error, Firing, Holds, LimitView, Miss, Pause, QueueView, RateHold,
    ScheduleView, SerialHold, SerialView, Transition, TransitionCount, Waiting, columns,
};

/// Reads a pause from three columns.
pub(super) fn read_pause(row: &Row, from: usize) -> Option<Pause> {
    let at = Time(row.get::<_, Option<i64>>(from)?);
    Some(Pause { at, author: row.get(from + 1), note: row.get(from + 2) })
}

impl Postgres {
    pub(super) async fn read_holds(&self, id: JobId) -> Result<Option<Holds>, Error> {
        let conn = self.conn().await?;
        let sql = sql::views::HOLDS;
        let rows = conn.read(sql, &[&None::<i64>, &SPAN, &id.0]).await?;
        let Some(row) = rows.first() else {
            let rows = conn.read(sql::arrivals::ARE_WAITING, &[&vec![id.0]]).await?;
            return Ok((!rows.is_empty()).then(|| Holds { arriving: true, ..Holds::default() }));
        };
        let mut holds = Holds {
            suspect: row.get(0),
            paused: read_pause(row, 2),
            queue_paused: read_pause(row, 5),
            ahead: row.get::<_, i64>(20) as u64,
            ..Holds::default()
        };
        holds.cancel_requested = row.get::<_, Option<i64>>(8).map(|at| CancelHold {
            deadline_at: Time(at),
            author: row.get(9),
            note: row.get(10),
        });
        if row.get(1) {
            let (serial_key, position): (i64, i64) = (row.get(13), row.get(14));
            let waiting = conn.read(sql::views::SERIAL_HOLD, &[&serial_key, &position, &id.0]).await?;
            let waiting =
                waiting.first().ok_or_else(|| Error::Fault("a serial key returned no row".into()))?;
            holds.serial = Some(SerialHold {
                key: row.get::<_, Option<String>>(11).unwrap_or_default(),
                slots: row.get::<_, Option<i32>>(12).unwrap_or(1) as u32,
                held: row.get(15),
                holders: waiting.get::<_, Vec<uuid::Uuid>>(0).into_iter().map(JobId).collect(),
                hidden_holders: 0,
                ahead: if row.get(16) { waiting.get::<_, i64>(1) as u64 } else { 0 },
            });
        }
        if let (number, Some(weight)) = (row.get::<_, i32>(17), row.get::<_, Option<i32>>(18)) {
            let now = Time(row.get(21));
            let rows = conn.read(sql::rate::READ, &[&None::<Vec<String>>]).await?;
            holds.rate = rows.iter().find(|row| row.get::<_, i32>(0) == number).map(|row| {
                let (limit, level, lifted) = read_bucket(row);
                let weight = weight as u32;
                let affordable_at =
                    if lifted { now } else { level.refilled(&limit, now).affordable_at(&limit, weight) };
                let name = limit.name.clone();
                RateHold { limit: (!lifted).then_some(limit), name, weight, affordable_at }
            });
        }
        if let Some(condition) = columns::Decoder::default().wait(row.get(22)) {
            let mut arrived: Vec<String> = row.get::<_, Option<Vec<String>>>(25).unwrap_or_default();
            arrived.sort_unstable();
            let wait_until = row.get::<_, Option<i64>>(23).map(Time);
            let (pending_children, unreadable) =
                (row.get::<_, i32>(24).max(0) as u32, unreadable_signals(&conn, id).await?);
            let since = row.get::<_, Option<i64>>(26).map(Time);
            holds.waiting =
                Some(Waiting { condition, since, wait_until, arrived, pending_children, unreadable });
        }
        Ok(Some(holds))
    }

    pub(super) async fn read_queues(&self) -> Result<Vec<QueueView>, Error> {
        let rows = self.conn().await?.read(sql::views::QUEUES, &[]).await?;
        let view = |row: &Row| QueueView {
            name: row.get(0),
            paused: read_pause(row, 1),
            oldest_ready: row.get::<_, Option<i64>>(4).map(Time),
        };
        Ok(rows.iter().map(view).collect())
    }

    pub(super) async fn read_limits(&self) -> Result<Vec<LimitView>, Error> {
        let conn = self.conn().await?;
        let rows = conn.read(sql::views::RATE_LIMITS, &[]).await?;
        let waiting: HashMap<String, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let clock = conn.read(sql::timers::NEXT, &[&None::<i64>]).await?;
        let now = Time(clock.first().map(|row| row.get(0)).unwrap_or_default());
        let rows = conn.read(sql::rate::READ, &[&None::<Vec<String>>]).await?;
        let view = |row: &Row| {
            let (limit, level, lifted) = read_bucket(row);
            let tokens = level.refilled(&limit, now).tokens(&limit);
            let waiting = waiting.get(&limit.name).copied().unwrap_or(0) as u64;
            LimitView { limit, lifted, tokens, waiting }
        };
        Ok(rows.iter().map(view).collect())
    }

    pub(super) async fn read_serial_keys(
        &self,
        key: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SerialView>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.conn().await?.read(sql::views::SERIAL_KEYS, &[&key, &limit]).await?;
        let view = |row: &Row| SerialView {
            key: row.get(0),
            slots: row.get::<_, i32>(1) as u32,
            held: row.get::<_, i64>(2) as u64,
            waiting: row.get::<_, i64>(3) as u64,
        };
        Ok(rows.iter().map(view).collect())
    }

    pub(super) async fn read_audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, Error> {
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let sql = sql::views::AUDIT_LOG;
        let rows = self.conn().await?.read(sql, &[&filter.subject, &filter.before, &limit]).await?;
        let entry = |row: &Row| AuditEntry {
            number: row.get(0),
            at: Time(row.get(1)),
            author: row.get(2),
            action: row.get(3),
            subject: row.get(4),
            note: row.get(5),
        };
        Ok(rows.iter().map(entry).collect())
    }

    pub(super) async fn read_schedules(&self) -> Result<Vec<ScheduleView>, Error> {
        let rows = self.conn().await?.read(sql::views::SCHEDULES, &[]).await?;
        let view = |row: &Row| {
            let input = Payload { codec: row.get::<_, i16>(1) as u8, bytes: row.get(2) };
            let paused = read_pause(row, 4);
            Ok(ScheduleView {
                schedule: columns::schedule(row.get(0), input)?,
                next_at: row.get::<_, Option<i64>>(3).filter(|_| paused.is_none()).map(Time),
                paused,
                last_job: row.get::<_, Option<uuid::Uuid>>(7).map(JobId),
            })
        };
        rows.iter().map(view).collect()
    }

    pub(super) async fn read_firings(&self, name: &str, limit: usize) -> Result<Vec<Firing>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.conn().await?.read(sql::views::FIRINGS, &[&name, &limit]).await?;
        Ok(rows.iter().map(|row| Firing { tick: Time(row.get(0)), job: JobId(row.get(1)) }).collect())
    }

    pub(super) async fn read_misses(&self, name: &str, limit: usize) -> Result<Vec<Miss>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.conn().await?.read(sql::views::MISSES, &[&name, &limit]).await?;
        let miss = |row: &Row| {
            let (from, to) = (Time(row.get(1)), Time(row.get(2)));
            let missed = Missed { from, to, count: row.get::<_, i64>(3) as u64, at_least: row.get(4) };
            Miss { at: Time(row.get(0)), missed, why: row.get(5) }
        };
        Ok(rows.iter().map(miss).collect())
    }

    pub(super) async fn read_inbox(&self, id: JobId, limit: usize) -> Result<Vec<Signal>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.conn().await?.read(sql::inspect::INBOX, &[&id.0, &limit]).await?;
        Ok(rows.iter().map(|row| signal::read(row, 0)).collect())
    }

    pub(super) async fn read_transitions(
        &self,
        id: JobId,
        after: Option<Rev>,
        limit: usize,
    ) -> Result<Vec<Transition>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = sql::inspect::TRANSITIONS;
        let rows = self.conn().await?.read(sql, &[&id.0, &after.map(|rev| rev.0), &limit]).await?;
        let transition = |row: &Row| Transition {
            rev: Rev(row.get(0)),
            stage: row.get(1),
            next: row.get(2),
            outcome: row.get(3),
            at: Time(row.get(4)),
            worker: WorkerId(row.get(5)),
        };
        Ok(rows.iter().map(transition).collect())
    }

    pub(super) async fn read_transition_counts(
        &self,
        kind: &str,
        limit: usize,
    ) -> Result<Vec<TransitionCount>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.conn().await?.read(sql::inspect::TRANSITION_COUNTS, &[&kind, &limit]).await?;
        let count = |row: &Row| TransitionCount {
            version: row.get(0),
            stage: row.get(1),
            next: row.get(2),
            outcome: row.get(3),
            times: row.get::<_, i64>(4) as u64,
        };
        let mut counts: Vec<TransitionCount> = rows.iter().map(count).collect();
        counts.sort_unstable();
        Ok(counts)
    }
}
