//! Forks: new jobs from part of another's journal.

use rusqlite::params;
use windlass_model::{NewJob, Payload, Time};

use super::{
    admin, journal,
    rate::Buckets,
    sql,
    submit::insert_jobs,
    tx::{Tx, read_id},
};
use crate::{Actor, ControlOutcome, Error, Fork, columns, control::outcome};

/// What a fork takes over from its origin, and what decides whether the position is valid.
struct Origin {
    lane: i32,
    job: NewJob,
    /// See [`columns::Decoder`].
    fault: Option<Box<str>>,
    /// Whether the entry exists before which the fork begins.
    is_there: bool,
    last: Option<i32>,
}

/// Creates a fork.
pub(super) fn fork(tx: &Tx<'_>, now: Time, fork: &Fork, actor: &Actor) -> Result<ControlOutcome, Error> {
    let Some(origin) = origin(tx, fork)? else { return Ok(ControlOutcome::Unknown) };
    let id = fork.id.as_bytes();
    if tx.query_one(sql::submit::FIND_BY_ID, [id], |_| Ok(()))?.is_some() {
        return Ok(ControlOutcome::Created(fork.id));
    }
    if !origin.is_there && !fork.is_whole(origin.last) {
        return Ok(outcome::fork_nowhere(fork.before));
    }
    if let Some(fault) = &origin.fault {
        return Ok(outcome::undecodable(fault));
    }
    let lane = tx.store.lane(tx, origin.lane)?;
    if let Some(key) = &fork.key {
        let params = params![lane.kind_id, key];
        if let Some(other) = tx.query_one(sql::submit::FIND_BY_KEY, params, |row| read_id(row, 0))? {
            return Ok(outcome::fork_key_taken(key, other));
        }
    }
    let mut new = fork.job(&origin.job);
    // Its rate limit is that of the lane, whatever the limit pays for by now.
    let limit = new.settings.rate.as_ref().map(|charge| (charge.limit.clone(), lane.bucket));
    let buckets: Buckets = limit.into_iter().collect();
    (new.kind, new.queue) = (lane.kind, lane.queue);
    insert_jobs(tx, now, &[new], &buckets, None)?;
    let from = fork.from.as_bytes();
    tx.execute(sql::fork::COPY_STAGE, params![id, from])?;
    tx.execute(sql::fork::COPY_DATA, params![id, from])?;
    tx.execute(sql::fork::COPY_JOURNAL, params![id, from, fork.before])?;
    journal::add(tx, fork.id, &fork.entry(now))?;
    admin::log(tx, now, &columns::fork_action(fork), &fork.from.to_string(), actor)?;
    Ok(ControlOutcome::Created(fork.id))
}

fn origin(tx: &Tx<'_>, fork: &Fork) -> Result<Option<Origin>, Error> {
    let params = params![fork.from.as_bytes(), fork.before];
    tx.query_one(sql::fork::READ_JOB, params, |row| {
        let input = Payload { codec: row.get(3)?, bytes: row.get(4)? };
        // Its kind and queue are those of the lane.
        let mut job = NewJob::new(fork.from, "", "", input);
        (job.priority, job.digest) = (row.get(1)?, row.get(2)?);
        let mut decoder = columns::Decoder::default();
        job.tags = decoder.tags(row.get::<_, Option<String>>(5)?.as_deref());
        job.options = row.get(6)?;
        job.settings = decoder.settings(row.get::<_, Option<String>>(7)?.as_deref());
        Ok(Origin {
            lane: row.get(0)?,
            job,
            fault: decoder.fault(),
            is_there: row.get(8)?,
            last: row.get(9)?,
        })
    })
}
