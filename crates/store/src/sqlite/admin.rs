//! Changes to rules that many jobs share: queues, rate limits, serial keys, schedules. And the audit log.

use rusqlite::params;
use windlass_model::{RateLimit, Time, rate::BucketLevel};

use super::{rate::Bucket, schedule, sql, tx::Tx};
use crate::{Actor, AdminAction, ControlOutcome, Error, columns};

/// Adds an entry to the audit log.
pub(super) fn log(tx: &Tx<'_>, now: Time, action: &str, subject: &str, actor: &Actor) -> Result<(), Error> {
    let params = params![now.micros(), actor.author, action, subject, actor.note];
    tx.execute(sql::control::WRITE_AUDIT, params)?;
    Ok(())
}

/// Changes one rule, and records that in the audit log.
pub(super) fn rule(
    tx: &Tx<'_>,
    now: Time,
    rule: &AdminAction,
    actor: &Actor,
) -> Result<ControlOutcome, Error> {
    let result = match rule {
        AdminAction::PauseQueue(queue) => pause(tx, now, queue, actor)?,
        AdminAction::ResumeQueue(queue) => {
            let id = tx.query_one(sql::admin::RESUME_QUEUE, [queue], |row| row.get(0))?;
            id.map_or_else(
                || ControlOutcome::Already("it is not paused".into()),
                |id| {
                    tx.bump_gate(id);
                    ControlOutcome::Done
                },
            )
        }
        AdminAction::Limit(limit) => set_limit(tx, now, limit)?,
        AdminAction::Lift(name) => match Bucket::named(tx, name)? {
            None => ControlOutcome::Unknown,
            Some(bucket) if bucket.lifted => ControlOutcome::Already("it is lifted".into()),
            Some(bucket) => {
                tx.execute(sql::rate::LIFT, [bucket.id])?;
                limit_moved(tx, bucket.id)?;
                ControlOutcome::Done
            }
        },
        AdminAction::Slots { key, slots } => {
            tx.serial_key(key, Some(*slots))?;
            ControlOutcome::Done
        }
        AdminAction::Schedule(wanted) => schedule::set(tx, now, wanted)?,
        AdminAction::DropSchedule(name) => schedule::drop(tx, name)?,
        AdminAction::PauseSchedule(name) => schedule::pause(tx, now, name, Some(actor))?,
        AdminAction::ResumeSchedule(name) => schedule::pause(tx, now, name, None)?,
        AdminAction::Trigger { name, id } => schedule::trigger(tx, now, name, *id)?,
    };
    if matches!(result, ControlOutcome::Done | ControlOutcome::Created(_)) {
        let (action, subject) = columns::admin_action(rule);
        log(tx, now, &action, &subject, actor)?;
    }
    Ok(result)
}

fn pause(tx: &Tx<'_>, now: Time, queue: &str, actor: &Actor) -> Result<ControlOutcome, Error> {
    tx.execute(sql::names::ADD_QUEUE, [queue])?;
    let params = params![queue, now.micros(), actor.author, actor.note];
    if tx.execute(sql::admin::PAUSE_QUEUE, params)? == 1 {
        return Ok(ControlOutcome::Done);
    }
    let author = tx.query_one(sql::admin::QUEUE_PAUSED_BY, [queue], |row| row.get::<_, String>(0))?;
    Ok(ControlOutcome::Already(format!("it was paused by {} before", author.unwrap_or_default())))
}

fn set_limit(tx: &Tx<'_>, now: Time, limit: &RateLimit) -> Result<ControlOutcome, Error> {
    let level = match Bucket::named(tx, &limit.name)? {
        Some(old) if old.limit == *limit && !old.lifted => {
            return Ok(ControlOutcome::Already("it is so already".into()));
        }
        Some(old) => old.level.converted(&old.limit, limit, now),
        None => BucketLevel::full(limit, now),
    };
    let per = limit.per.as_micros() as i64;
    let params = params![limit.name, limit.rate, per, limit.burst, level.units, level.at.micros()];
    if let Some(id) = tx.query_one(sql::rate::SET, params, |row| row.get(0))? {
        limit_moved(tx, id)?;
    }
    Ok(ControlOutcome::Done)
}

/// Moves the gates of the queues in which jobs wait for a rate limit: some of them may start now.
fn limit_moved(tx: &Tx<'_>, bucket: i32) -> Result<(), Error> {
    let queues = tx.query_all(sql::rate::WAITING_QUEUES, [bucket], |row| row.get(0))?;
    queues.into_iter().for_each(|queue| tx.bump_gate(queue));
    Ok(())
}
