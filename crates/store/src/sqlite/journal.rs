//! Journals and contexts of workflows: written with a change, read for a replay.

use rusqlite::{Row, params};
use windlass_model::{
    JobId, JournalEntry, Payload, StepWrites, Time,
    journal::{CallEvent, CallKind},
};

use super::{sql, tx::Tx};
use crate::Error;

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
