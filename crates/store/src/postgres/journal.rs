//! Journals and contexts of workflows: as the arrays that a commit sends, and as they are read.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::join_all;
use tokio_postgres::{Row, binary_copy::BinaryCopyOutRow, types::Type};
use uuid::Uuid;
use windlass_model::{
    Change, JobId, JournalEntry, Payload, StepWrites, Time,
    journal::{CallEvent, CallKind},
};

use super::{Postgres, change_params::Param, pool::Guard, sql};
use crate::{Error, columns};

/// The entries that steps add to journals, as arrays: one element for each entry.
#[derive(Default)]
pub(super) struct Entries<'a> {
    job: Vec<Uuid>,
    seq: Vec<i32>,
    op: Vec<i16>,
    mark: Vec<i16>,
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
            for entry in change.step.iter().flat_map(|step| &step.entries) {
                entries.job.push(change.job.0);
                entries.seq.push(entry.seq);
                entries.op.push(entry.op.number());
                entries.mark.push(entry.mark.number());
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
            &self.op,
            &self.mark,
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
pub(super) fn lone_entry(change: &Change) -> Option<&JournalEntry> {
    let step = change.step.as_deref()?;
    let plain =
        step.from_stage.is_none() && step.stage.is_none() && step.consumed.is_empty() && !step.partial;
    match step.entries.as_slice() {
        [entry] if plain => Some(entry),
        _ => None,
    }
}

const ANEW: &str = sql::journal::CLEAR;
const FORGET: &str = sql::journal::FORGET_ENTRIES;
const CONTEXT: &str = sql::journal::SET_CONTEXT;
const UNWIND: &str = sql::commit::START_UNWIND;
const SET_ASIDE: &str = sql::signals::MARK_UNREADABLE;

/// The changes that one of these statements is about.
#[derive(Default)]
struct Of {
    job: Vec<Uuid>,
    epoch: Vec<i32>,
    rev: Vec<i32>,
    worker: Vec<i64>,
    claim: Vec<i64>,
}

impl Of {
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

/// What few steps write: journals that start anew, entries that are forgotten, values of contexts, that a job is being
/// unwound, and signals that are set aside. It is sent before the changes themselves, once their jobs are locked: each statement looks by itself whether the
/// change will be written.
#[derive(Default)]
pub(super) struct JournalWrites<'a> {
    anew: Of,
    forget: (Of, Vec<i32>),
    context: (Of, Vec<&'a str>, Vec<i16>, Vec<&'a [u8]>),
    unwind: (Of, Vec<String>),
    aside: (Of, Vec<i64>, Vec<&'a str>),
}

impl<'a> JournalWrites<'a> {
    pub(super) fn of(changes: impl Iterator<Item = &'a Change>) -> JournalWrites<'a> {
        let mut beside = JournalWrites::default();
        for change in changes {
            if let Some(step) = change.step.as_deref() {
                beside.push(change, step);
            }
        }
        beside
    }

    fn push(&mut self, change: &'a Change, step: &'a StepWrites) {
        if step.continue_as_new {
            self.anew.push(change);
        }
        for seq in &step.forget_entries {
            self.forget.0.push(change);
            self.forget.1.push(*seq);
        }
        // Of two values for one name the last one counts.
        let context: BTreeMap<&str, &Payload> =
            step.context.iter().map(|(name, value)| (name.as_str(), value)).collect();
        for (name, value) in context {
            self.context.0.push(change);
            self.context.1.push(name);
            self.context.2.push(i16::from(value.codec));
            self.context.3.push(&value.bytes);
        }
        if let Some(unwind) = &step.unwind {
            self.unwind.0.push(change);
            self.unwind.1.push(columns::unwind_text(unwind));
        }
        for aside in &step.unreadable {
            self.aside.0.push(change);
            self.aside.1.push(aside.number);
            self.aside.2.push(&aside.why);
        }
    }

    /// What is to be sent: each statement with the changes it is about, and what it needs to know of them.
    fn statements(&self) -> [(&'static str, &Of, Vec<Param<'_>>); 5] {
        [
            (ANEW, &self.anew, Vec::new()),
            (FORGET, &self.forget.0, vec![&self.forget.1]),
            (CONTEXT, &self.context.0, vec![&self.context.1, &self.context.2, &self.context.3]),
            (UNWIND, &self.unwind.0, vec![&self.unwind.1]),
            (SET_ASIDE, &self.aside.0, vec![&self.aside.1, &self.aside.2]),
        ]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.statements().iter().all(|(_, of, _)| of.job.is_empty())
    }

    /// Prepares what [`Beside::write`] sends.
    pub(super) async fn prepare(&self, conn: &Guard<'_>) -> Result<(), Error> {
        for (sql, of, _) in self.statements() {
            if !of.job.is_empty() {
                conn.prepare(sql).await?;
            }
        }
        Ok(())
    }

    /// Sends what there is; none waits for the answer of another.
    pub(super) async fn write(&self, conn: &Guard<'_>) -> Result<(), Error> {
        let send = async |(sql, of, more): (&'static str, &Of, Vec<Param<'_>>)| {
            let mut params = of.params().to_vec();
            params.extend(more);
            conn.execute(sql, &params).await.map(drop)
        };
        let there = self.statements().into_iter().filter(|(_, of, _)| !of.job.is_empty());
        join_all(there.map(send)).await.into_iter().collect()
    }
}

impl Postgres {
    pub(super) async fn read_journal(
        &self,
        id: JobId,
        after: Option<i32>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, Error> {
        let conn = self.conn().await?;
        let first = i64::try_from(limit.min(SHORT)).unwrap_or(i64::MAX);
        let sql = sql::inspect::JOURNAL;
        let rows = conn.read(sql, &[&id.0, &after.unwrap_or(i32::MIN), &first]).await?;
        let mut journal = rows.first().map_or(Ok(Vec::new()), entries)?;
        if journal.len() == SHORT && limit > SHORT {
            let after = journal[SHORT - 1].seq;
            conn.copy(&copied(id, after, limit - SHORT), COLUMNS, |row| {
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

    pub(super) async fn read_context(&self, id: JobId) -> Result<Vec<(String, Payload)>, Error> {
        let rows = self.conn().await?.read(sql::inspect::CONTEXT, &[&id.0]).await?;
        let value =
            |row: &Row| (row.get(0), Payload { codec: row.get::<_, i16>(1) as u8, bytes: row.get(2) });
        let values: BTreeMap<String, Payload> = rows.iter().map(value).collect();
        Ok(values.into_iter().collect())
    }
}

/// How many entries of a journal are read by one prepared statement. The rest of a long one is streamed, so that the server
/// and this process work on it at the same time.
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

/// What streams the entries of a job that follow a place. Such a statement takes no parameters.
fn copied(id: JobId, after: i32, limit: usize) -> String {
    let (job, limit) = (id.0, i64::try_from(limit).unwrap_or(i64::MAX));
    format!(
        "copy (select seq, op, mark, name, key, source_line, at, codec, payload from journal where job = '{job}' and seq > {after} \
         order by seq limit {limit}) to stdout (format binary)"
    )
}

/// A streamed entry.
fn entry(row: &BinaryCopyOutRow) -> Result<JournalEntry, Error> {
    Ok(JournalEntry {
        seq: row.get(0),
        op: op(row.get(1))?,
        mark: mark(row.get(2))?,
        name: row.get(3),
        key: row.get(4),
        line: row.get(5),
        at: Time(row.get(6)),
        payload: Payload { codec: row.get::<i16>(7) as u8, bytes: row.get(8) },
    })
}

fn op(number: i16) -> Result<CallKind, Error> {
    CallKind::from_number(number).ok_or_else(|| unknown("the call", number))
}

fn mark(number: i16) -> Result<CallEvent, Error> {
    CallEvent::from_number(number).ok_or_else(|| unknown("the mark", number))
}

fn unknown(what: &str, number: i16) -> Error {
    Error::Fault(format!("a journal has an entry with {what} {number}, which this binary does not know"))
}

/// All entries of a short journal, which come as one row of columns: many small rows would take twice as long.
fn entries(row: &Row) -> Result<Vec<JournalEntry>, Error> {
    let Some(seqs) = row.get::<_, Option<Vec<i32>>>(0) else { return Ok(Vec::new()) };
    let (ops, marks) = (row.get::<_, Vec<i16>>(1), row.get::<_, Vec<i16>>(2));
    let mut names = row.get::<_, Vec<String>>(3).into_iter();
    let mut keys = row.get::<_, Vec<Option<String>>>(4).into_iter();
    let mut lines = row.get::<_, Vec<Option<String>>>(5).into_iter();
    let (ats, codecs) = (row.get::<_, Vec<i64>>(6), row.get::<_, Vec<i16>>(7));
    let mut payloads = row.get::<_, Vec<Vec<u8>>>(8).into_iter();
    let entry = |(place, seq): (usize, i32)| {
        Ok(JournalEntry {
            seq,
            op: op(ops[place])?,
            mark: mark(marks[place])?,
            name: names.next().unwrap_or_default(),
            key: keys.next().flatten(),
            line: lines.next().flatten(),
            at: Time(ats[place]),
            payload: Payload { codec: codecs[place] as u8, bytes: payloads.next().unwrap_or_default() },
        })
    };
    seqs.into_iter().enumerate().map(entry).collect()
}
