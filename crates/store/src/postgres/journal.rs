//! Journals and contexts of workflows: the arrays that a commit sends, and reading them.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::join_all;
use tokio_postgres::{Row, binary_copy::BinaryCopyOutRow, types::Type};
use uuid::Uuid;
use windlass_model::{
    Change, JobId, JournalEntry, Payload, StepWrites, Time,
    journal::{CallEvent, CallKind},
};

use super::{
    Postgres,
    change_params::Param,
    errors::PgError,
    sql,
    tx::{Executor, Tx},
};
use crate::{Error, JournalEnd, JournalHead, columns};

/// The entries that steps add to journals, as arrays with one element per entry.
#[derive(Default)]
pub(super) struct Entries<'a> {
    job: Vec<Uuid>,
    seq: Vec<i32>,
    call_kind: Vec<i16>,
    event: Vec<i16>,
    name: Vec<&'a str>,
    key: Vec<Option<&'a str>>,
    line: Vec<Option<&'a str>>,
    at: Vec<i64>,
    codec: Vec<i16>,
    payload: Vec<&'a [u8]>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(changes: &[&'a Change]) -> Entries<'a> {
        let mut entries = Entries::default();
        for change in changes {
            for entry in change.writes.iter().flat_map(|step| &step.entries) {
                entries.job.push(change.job.0);
                entries.seq.push(entry.seq);
                entries.call_kind.push(entry.call_kind.number());
                entries.event.push(entry.event.number());
                entries.name.push(&entry.name);
                entries.key.push(entry.key.as_deref());
                entries.line.push(entry.line.as_deref());
                entries.at.push(entry.at.micros());
                entries.codec.push(i16::from(entry.payload.codec));
                entries.payload.push(&entry.payload.bytes);
            }
        }
        entries
    }

    pub(super) fn params(&self) -> [Param<'_>; 10] {
        [
            &self.job,
            &self.seq,
            &self.call_kind,
            &self.event,
            &self.name,
            &self.key,
            &self.line,
            &self.at,
            &self.codec,
            &self.payload,
        ]
    }
}

/// The only entry of a step that does nothing but add it.
pub(super) fn only_entry(change: &Change) -> Option<&JournalEntry> {
    let step = change.writes.as_deref()?;
    let plain =
        step.from_stage.is_none() && step.stage.is_none() && step.consumed.is_empty() && !step.partial;
    match step.entries.as_slice() {
        [entry] if plain => Some(entry),
        _ => None,
    }
}

/// The changes that a statement writes for, as arrays: each statement checks by itself whether the change will be written.
#[derive(Default)]
struct Guards {
    job: Vec<Uuid>,
    epoch: Vec<i32>,
    rev: Vec<i32>,
    worker: Vec<i64>,
    claim: Vec<i64>,
}

impl Guards {
    fn push(&mut self, change: &Change) {
        self.job.push(change.job.0);
        self.epoch.push(change.epoch.0);
        self.rev.push(change.rev.0);
        self.worker.push(change.worker.0);
        self.claim.push(change.claim.0);
    }

    fn params(&self) -> [Param<'_>; 5] {
        [&self.job, &self.epoch, &self.rev, &self.worker, &self.claim]
    }
}

/// What few steps write: cleared journals, forgotten entries, values of contexts, the start of an unwind, and unreadable signals.
/// Sent before the changes themselves, once their jobs are locked.
#[derive(Default)]
pub(super) struct JournalWrites<'a> {
    cleared: Guards,
    forgotten: (Guards, Vec<i32>),
    context: (Guards, Vec<&'a str>, Vec<i16>, Vec<&'a [u8]>),
    unwinds: (Guards, Vec<String>),
    unreadable: (Guards, Vec<i64>, Vec<&'a str>),
}

impl<'a> JournalWrites<'a> {
    pub(super) fn of(changes: impl Iterator<Item = &'a Change>) -> JournalWrites<'a> {
        let mut writes = JournalWrites::default();
        for change in changes {
            if let Some(step) = change.writes.as_deref() {
                writes.push(change, step);
            }
        }
        writes
    }

    fn push(&mut self, change: &'a Change, step: &'a StepWrites) {
        if step.continue_as_new {
            self.cleared.push(change);
        }
        for seq in &step.forget_entries {
            self.forgotten.0.push(change);
            self.forgotten.1.push(*seq);
        }
        // Of two values with one name, the last is kept.
        let context: BTreeMap<&str, &Payload> =
            step.context.iter().map(|(name, value)| (name.as_str(), value)).collect();
        for (name, value) in context {
            self.context.0.push(change);
            self.context.1.push(name);
            self.context.2.push(i16::from(value.codec));
            self.context.3.push(&value.bytes);
        }
        if let Some(unwind) = &step.unwind {
            self.unwinds.0.push(change);
            self.unwinds.1.push(columns::unwind_text(unwind));
        }
        for signal in &step.unreadable {
            self.unreadable.0.push(change);
            self.unreadable.1.push(signal.number);
            self.unreadable.2.push(&signal.why);
        }
    }

    /// The statements, each with the changes that it writes for and its other parameters.
    fn statements(&self) -> [(&'static str, &Guards, Vec<Param<'_>>); 5] {
        [
            (sql::journal::CLEAR, &self.cleared, Vec::new()),
            (sql::journal::FORGET_ENTRIES, &self.forgotten.0, vec![&self.forgotten.1]),
            (
                sql::journal::SET_CONTEXT,
                &self.context.0,
                vec![&self.context.1, &self.context.2, &self.context.3],
            ),
            (sql::commit::START_UNWIND, &self.unwinds.0, vec![&self.unwinds.1]),
            (sql::signals::MARK_UNREADABLE, &self.unreadable.0, vec![&self.unreadable.1, &self.unreadable.2]),
        ]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.statements().iter().all(|(_, guards, _)| guards.job.is_empty())
    }

    /// Prepares what [`JournalWrites::write`] sends.
    pub(super) async fn prepare(&self, executor: Executor<'_>) -> Result<(), PgError> {
        for (sql, guards, _) in self.statements() {
            if !guards.job.is_empty() {
                executor.prepare(sql).await?;
            }
        }
        Ok(())
    }

    /// Sends the statements that have something to write, in one round trip.
    pub(super) async fn write(&self, tx: &Tx<'_>) -> Result<(), PgError> {
        let send = async |(sql, guards, more): (&'static str, &Guards, Vec<Param<'_>>)| {
            let mut params = guards.params().to_vec();
            params.extend(more);
            tx.execute(sql, &params).await.map(drop)
        };
        let needed = self.statements().into_iter().filter(|(_, guards, _)| !guards.job.is_empty());
        join_all(needed.map(send)).await.into_iter().collect()
    }
}

impl Postgres {
    pub(super) async fn read_journal(
        &self,
        id: JobId,
        after: Option<i32>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, Error> {
        let mut conn = self.conn().await?;
        let first = i64::try_from(limit.min(SHORT)).unwrap_or(i64::MAX);
        let sql = sql::inspect::JOURNAL;
        let rows = conn.read(sql, &[&id.0, &after.unwrap_or(i32::MIN), &first]).await?;
        let mut journal = rows.first().map_or(Ok(Vec::new()), entries)?;
        if journal.len() == SHORT && limit > SHORT {
            let after = journal[SHORT - 1].seq;
            conn.copy(&copy_sql(id, after, limit - SHORT), COLUMNS, |row| {
                journal.push(entry(row)?);
                Ok(())
            })
            .await?;
        }
        Ok(journal)
    }

    pub(super) async fn read_journals(&self, ids: &[JobId]) -> Result<Vec<Vec<JournalEntry>>, Error> {
        let all: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let rows = self.conn().await?.read(sql::inspect::JOURNALS, &[&all]).await?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            found.insert(JobId(row.get(9)), entries(row)?);
        }
        Ok(ids.iter().map(|id| found.remove(id).unwrap_or_default()).collect())
    }

    pub(super) async fn read_journal_end(&self, id: JobId, limit: usize) -> Result<JournalEnd, Error> {
        let conn = self.conn().await?;
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let kind = CallKind::Lifecycle.number();
        let rows = conn.read(sql::inspect::JOURNAL_END, &[&id.0, &most, &kind]).await?;
        let entries = rows.iter().rev().map(head).collect::<Result<Vec<_>, Error>>()?;
        let Some(first) = entries.first() else { return Ok(JournalEnd::default()) };
        let counted = JournalEnd::COUNTED as i64;
        let rows = conn.read(sql::inspect::JOURNAL_BEFORE, &[&id.0, &first.entry.seq, &counted]).await?;
        let before = rows.first().map_or(0, |row| row.get::<_, i64>(0).unsigned_abs());
        Ok(JournalEnd { entries, before })
    }

    pub(super) async fn read_context(&self, id: JobId) -> Result<Vec<(String, Payload)>, Error> {
        let rows = self.conn().await?.read(sql::inspect::CONTEXT, &[&id.0]).await?;
        let value =
            |row: &Row| (row.get(0), Payload { codec: row.get::<_, i16>(1) as u8, bytes: row.get(2) });
        let values: BTreeMap<String, Payload> = rows.iter().map(value).collect();
        Ok(values.into_iter().collect())
    }
}

/// How many entries of a journal one prepared statement reads. The rest of a longer journal is streamed, so that the server and
/// this process work on it at the same time.
const SHORT: usize = 200;

/// The types of a streamed entry's columns.
const COLUMNS: &[Type] = &[
    Type::INT4,
    Type::INT2,
    Type::INT2,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::INT8,
    Type::INT2,
    Type::BYTEA,
];

/// The statement that streams the entries of a job after an entry. A `copy` takes no parameters.
fn copy_sql(id: JobId, after: i32, limit: usize) -> String {
    let (job, limit) = (id.0, i64::try_from(limit).unwrap_or(i64::MAX));
    format!(
        "copy (select seq, call_kind, event, name, key, source_line, at, codec, payload from journal where job = '{job}' and seq > {after} \
         order by seq limit {limit}) to stdout (format binary)"
    )
}

/// Reads a streamed entry.
fn entry(row: &BinaryCopyOutRow) -> Result<JournalEntry, Error> {
    Ok(JournalEntry {
        seq: row.get(0),
        call_kind: call_kind(row.get(1))?,
        event: event(row.get(2))?,
        name: row.get(3),
        key: row.get(4),
        line: row.get(5),
        at: Time(row.get(6)),
        payload: Payload { codec: row.get::<i16>(7) as u8, bytes: row.get(8) },
    })
}

/// Reads an entry of the end of a journal.
fn head(row: &Row) -> Result<JournalHead, Error> {
    let entry = JournalEntry {
        seq: row.get(0),
        call_kind: call_kind(row.get(1))?,
        event: event(row.get(2))?,
        name: row.get(3),
        key: row.get(4),
        line: row.get(5),
        at: Time(row.get(6)),
        payload: Payload { codec: row.get::<_, i16>(7) as u8, bytes: row.get(8) },
    };
    Ok(JournalHead { entry, bytes: row.get::<_, i64>(9).unsigned_abs() })
}

fn call_kind(number: i16) -> Result<CallKind, Error> {
    CallKind::from_number(number).ok_or_else(|| unknown("the call", number))
}

fn event(number: i16) -> Result<CallEvent, Error> {
    CallEvent::from_number(number).ok_or_else(|| unknown("the event", number))
}

fn unknown(what: &str, number: i16) -> Error {
    Error::Fault(format!("a journal has an entry with {what} {number}, which this binary does not know"))
}

/// Reads all entries of a short journal, which is one row of arrays: many small rows would take twice as long.
fn entries(row: &Row) -> Result<Vec<JournalEntry>, Error> {
    let Some(seqs) = row.get::<_, Option<Vec<i32>>>(0) else { return Ok(Vec::new()) };
    let (call_kinds, events) = (row.get::<_, Vec<i16>>(1), row.get::<_, Vec<i16>>(2));
    let mut names = row.get::<_, Vec<String>>(3).into_iter();
    let mut keys = row.get::<_, Vec<Option<String>>>(4).into_iter();
    let mut lines = row.get::<_, Vec<Option<String>>>(5).into_iter();
    let (ats, codecs) = (row.get::<_, Vec<i64>>(6), row.get::<_, Vec<i16>>(7));
    let mut payloads = row.get::<_, Vec<Vec<u8>>>(8).into_iter();
    let entry = |(index, seq): (usize, i32)| {
        Ok(JournalEntry {
            seq,
            call_kind: call_kind(call_kinds[index])?,
            event: event(events[index])?,
            name: names.next().unwrap_or_default(),
            key: keys.next().flatten(),
            line: lines.next().flatten(),
            at: Time(ats[index]),
            payload: Payload { codec: codecs[index] as u8, bytes: payloads.next().unwrap_or_default() },
        })
    };
    seqs.into_iter().enumerate().map(entry).collect()
}
