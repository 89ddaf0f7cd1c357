//! Journals and contexts of workflows: written with a change, read for a replay.

use rusqlite::{Row, params};
use windlass_model::{
    JobId, JournalEntry, Payload, StepWrites, Time,
    journal::{CallEvent, CallKind},
};

use super::{sql, tx::Tx};
use crate::{Error, JournalEnd, JournalHead};

/// Writes what a step adds to the journal and the context. Most steps of a workflow are one insert here.
pub(super) fn write(tx: &Tx<'_>, job: JobId, step: &StepWrites) -> Result<(), Error> {
    if step.continue_as_new {
        tx.execute(sql::journal::CLEAR, [job.as_bytes()])?;
    }
    for seq in &step.forget_entries {
        tx.execute(sql::journal::FORGET_ENTRIES, params![job.as_bytes(), seq])?;
    }
    for entry in &step.entries {
        add(tx, job, entry)?;
    }
    for (name, value) in &step.context {
        let params = params![job.as_bytes(), name, value.codec, value.bytes];
        tx.execute(sql::journal::SET_CONTEXT, params)?;
    }
    Ok(())
}

/// Adds one entry.
pub(super) fn add(tx: &Tx<'_>, job: JobId, entry: &JournalEntry) -> Result<(), Error> {
    let params = params![
        job.as_bytes(),
        entry.seq,
        entry.call_kind.number(),
        entry.event.number(),
        entry.name,
        entry.key,
        entry.line,
        entry.at.micros(),
        entry.payload.codec,
        entry.payload.bytes,
    ];
    tx.execute(sql::journal::APPEND, params)?;
    Ok(())
}

/// Reads a range of a journal.
pub(super) fn read(
    tx: &Tx<'_>,
    id: JobId,
    after: Option<i32>,
    limit: usize,
) -> Result<Vec<JournalEntry>, Error> {
    let mut statement = tx.prepare(sql::inspect::JOURNAL)?;
    let mut rows = statement.query(params![id.as_bytes(), after.map_or(i64::MIN, i64::from)])?;
    let mut entries = Vec::new();
    while entries.len() < limit
        && let Some(row) = rows.next()?
    {
        entries.push(entry(row)?);
    }
    Ok(entries)
}

/// The bytes of the payloads of a range of a journal.
pub(super) fn sizes(tx: &Tx<'_>, id: JobId, after: Option<i32>, limit: usize) -> Result<Vec<u64>, Error> {
    let mut statement = tx.prepare(sql::inspect::JOURNAL_SIZES)?;
    let mut rows = statement.query(params![id.as_bytes(), after.map_or(i64::MIN, i64::from)])?;
    let mut sizes = Vec::new();
    while sizes.len() < limit
        && let Some(row) = rows.next()?
    {
        sizes.push(row.get::<_, i64>(0)?.unsigned_abs());
    }
    Ok(sizes)
}

/// Reads the end of a journal.
pub(super) fn end(tx: &Tx<'_>, id: JobId, limit: usize) -> Result<JournalEnd, Error> {
    let mut statement = tx.prepare(sql::inspect::JOURNAL_END)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![id.as_bytes(), limit, CallKind::Lifecycle.number()])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(JournalHead { entry: entry(row)?, bytes: row.get::<_, i64>(9)?.unsigned_abs() });
    }
    entries.reverse();
    let Some(first) = entries.first() else { return Ok(JournalEnd::default()) };
    let params = params![id.as_bytes(), first.entry.seq, JournalEnd::COUNTED as i64];
    let before = tx.query_one(sql::inspect::JOURNAL_BEFORE, params, |row| row.get::<_, i64>(0))?;
    Ok(JournalEnd { entries, before: before.unwrap_or(0).unsigned_abs() })
}

fn entry(row: &Row<'_>) -> Result<JournalEntry, Error> {
    let (call_kind, event) = (row.get(1)?, row.get(2)?);
    let unknown =
        || Error::Fault(format!("an entry of a journal has call_kind {call_kind} and event {event}"));
    Ok(JournalEntry {
        seq: row.get(0)?,
        call_kind: CallKind::from_number(call_kind).ok_or_else(unknown)?,
        event: CallEvent::from_number(event).ok_or_else(unknown)?,
        name: row.get(3)?,
        key: row.get(4)?,
        line: row.get(5)?,
        at: Time(row.get(6)?),
        payload: Payload { codec: row.get(7)?, bytes: row.get(8)? },
    })
}

/// Reads a context.
pub(super) fn context(tx: &Tx<'_>, id: JobId) -> Result<Vec<(String, Payload)>, Error> {
    tx.query_all(sql::inspect::CONTEXT, [id.as_bytes()], |row| {
        Ok((row.get(0)?, Payload { codec: row.get(1)?, bytes: row.get(2)? }))
    })
}
