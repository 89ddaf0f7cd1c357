//! Journals and contexts of workflows: written with a change, read for a replay, and handed on to forks.

use rusqlite::{Row, params};
use windlass_model::{
    Entry, JobId, NewJob, Payload, Step, Time,
    journal::{Mark, Op},
};

use super::{
    admin,
    rate::Buckets,
    sql,
    submit::put,
    tx::{Tx, id_of},
};
use crate::{Actor, ControlOutcome, Error, Fork, columns, control::outcome};

/// Writes what a step says of the journal and the context. A step of a workflow is one insert here.
pub(super) fn write(tx: &Tx<'_>, job: JobId, step: &Step) -> Result<(), Error> {
    if step.continue_as_new {
        tx.run(sql::journal::CLEAR, [job.as_bytes()])?;
    }
    for seq in &step.forget_entries {
        tx.run(sql::journal::FORGET_ENTRIES, params![job.as_bytes(), seq])?;
    }
    for entry in &step.entries {
        add(tx, job, entry)?;
    }
    for (name, value) in &step.context {
        let params = params![job.as_bytes(), name, value.codec, value.bytes];
        tx.run(sql::journal::SET_CONTEXT, params)?;
    }
    Ok(())
}

fn add(tx: &Tx<'_>, job: JobId, entry: &Entry) -> Result<(), Error> {
    let params = params![
        job.as_bytes(),
        entry.seq,
        entry.op.number(),
        entry.mark.number(),
        entry.name,
        entry.key,
        entry.line,
        entry.at.micros(),
        entry.payload.codec,
        entry.payload.bytes,
    ];
    tx.run(sql::journal::APPEND, params)?;
    Ok(())
}

/// Reads a range of a journal.
pub(super) fn read(tx: &Tx<'_>, id: JobId, after: Option<i32>, limit: usize) -> Result<Vec<Entry>, Error> {
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

fn entry(row: &Row<'_>) -> Result<Entry, Error> {
    let (op, mark) = (row.get(1)?, row.get(2)?);
    let unknown = || Error::Fault(format!("an entry of a journal has op {op} and mark {mark}"));
    Ok(Entry {
        seq: row.get(0)?,
        op: Op::from_number(op).ok_or_else(unknown)?,
        mark: Mark::from_number(mark).ok_or_else(unknown)?,
        name: row.get(3)?,
        key: row.get(4)?,
        line: row.get(5)?,
        at: Time(row.get(6)?),
        payload: Payload { codec: row.get(7)?, bytes: row.get(8)? },
    })
}

pub(super) fn context(tx: &Tx<'_>, id: JobId) -> Result<Vec<(String, Payload)>, Error> {
    tx.all(sql::inspect::CONTEXT, [id.as_bytes()], |row| {
        Ok((row.get(0)?, Payload { codec: row.get(1)?, bytes: row.get(2)? }))
    })
}

/// A job as far as a fork has it from it, and what of its journal decides where it may be forked.
struct Origin {
    lane: i32,
    job: NewJob,
    /// Whether there is an entry where the fork begins.
    is_there: bool,
    last: Option<i32>,
}

/// Makes a job that goes on from somewhere in the journal of another.
pub(super) fn fork(tx: &Tx<'_>, now: Time, fork: &Fork, by: &Actor) -> Result<ControlOutcome, Error> {
    let Some(origin) = origin(tx, fork)? else { return Ok(ControlOutcome::Unknown) };
    let id = fork.id.as_bytes();
    if tx.one(sql::submit::FIND_BY_ID, [id], |_| Ok(()))?.is_some() {
        return Ok(ControlOutcome::Created(fork.id));
    }
    if !origin.is_there && !fork.is_whole(origin.last) {
        return Ok(outcome::fork_nowhere(fork.before));
    }
    let lane = tx.store.lane(tx, origin.lane)?;
    if let Some(key) = &fork.key {
        let params = params![lane.kind_id, key];
        if let Some(other) = tx.one(sql::submit::FIND_BY_KEY, params, |row| id_of(row, 0))? {
            return Ok(outcome::fork_key_taken(key, other));
        }
    }
    let mut new = fork.job(&origin.job);
    // Its rate limit is that of the lane, whatever the limit pays for by now.
    let limit = new.settings.rate.as_ref().map(|charge| (charge.limit.clone(), lane.bucket));
    let buckets: Buckets = limit.into_iter().collect();
    (new.kind, new.queue) = (lane.kind, lane.queue);
    put(tx, now, &[new], &buckets, None)?;
    let from = fork.from.as_bytes();
    tx.run(sql::fork::COPY_STAGE, params![id, from])?;
    tx.run(sql::fork::COPY_DATA, params![id, from])?;
    tx.run(sql::fork::COPY_JOURNAL, params![id, from, fork.before])?;
    add(tx, fork.id, &fork.entry(now))?;
    admin::log(tx, now, &columns::fork_action(fork), &fork.from.to_string(), by)?;
    Ok(ControlOutcome::Created(fork.id))
}

fn origin(tx: &Tx<'_>, fork: &Fork) -> Result<Option<Origin>, Error> {
    let params = params![fork.from.as_bytes(), fork.before];
    tx.one(sql::fork::READ_JOB, params, |row| {
        let input = Payload { codec: row.get(3)?, bytes: row.get(4)? };
        // Its kind and queue are those of the lane.
        let mut job = NewJob::new(fork.from, "", "", input);
        (job.priority, job.digest) = (row.get(1)?, row.get(2)?);
        job.tags = columns::tags(row.get::<_, Option<String>>(5)?.as_deref());
        job.options = row.get(6)?;
        job.settings = columns::settings(row.get::<_, Option<String>>(7)?.as_deref());
        Ok(Origin { lane: row.get(0)?, job, is_there: row.get(8)?, last: row.get(9)? })
    })
}
