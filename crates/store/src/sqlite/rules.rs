//! Rules that hold for many jobs, and the audit log.

use rusqlite::params;
use windlass_model::{Limit, Time, rate::Level};

use super::{rate::Bucket, schedule, tx::Tx};
use crate::{By, Did, Error, Rule, pick};

/// Adds an entry to the audit log.
pub(super) fn log(tx: &Tx<'_>, now: Time, action: &str, subject: &str, by: &By) -> Result<(), Error> {
    let params = params![now.micros(), by.author, action, subject, by.note];
    tx.run(include_str!("sql/audit.sql"), params)?;
    Ok(())
}

pub(super) fn rule(tx: &Tx<'_>, now: Time, rule: &Rule, by: &By) -> Result<Did, Error> {
    let did = match rule {
        Rule::PauseQueue(queue) => pause(tx, now, queue, by)?,
        Rule::ResumeQueue(queue) => {
            let id = tx.one(include_str!("sql/rule_resume.sql"), [queue], |row| row.get(0))?;
            id.map_or_else(
                || Did::Already("it is not paused".into()),
                |id| {
                    tx.move_gate(id);
                    Did::Done
                },
            )
        }
        Rule::Limit(limit) => set_limit(tx, now, limit)?,
        Rule::Lift(name) => match Bucket::named(tx, name)? {
            None => Did::Unknown,
            Some(bucket) if bucket.lifted => Did::Already("it is lifted".into()),
            Some(bucket) => {
                tx.run(include_str!("sql/rule_lift.sql"), [bucket.id])?;
                limit_moved(tx, bucket.id)?;
                Did::Done
            }
        },
        Rule::Slots { key, slots } => {
            tx.serial(key, Some(*slots))?;
            Did::Done
        }
        Rule::Schedule(what) => schedule::set(tx, now, what)?,
        Rule::DropSchedule(name) => schedule::drop(tx, name)?,
        Rule::PauseSchedule(name) => schedule::pause(tx, now, name, Some(by))?,
        Rule::ResumeSchedule(name) => schedule::pause(tx, now, name, None)?,
        Rule::Trigger(name) => schedule::trigger(tx, now, name)?,
    };
    if matches!(did, Did::Done | Did::Made(_)) {
        let (action, subject) = pick::rule_action(rule);
        log(tx, now, &action, &subject, by)?;
    }
    Ok(did)
}

fn pause(tx: &Tx<'_>, now: Time, queue: &str, by: &By) -> Result<Did, Error> {
    tx.run(include_str!("sql/intern_queue.sql"), [queue])?;
    let params = params![queue, now.micros(), by.author, by.note];
    if tx.run(include_str!("sql/rule_pause.sql"), params)? == 1 {
        return Ok(Did::Done);
    }
    let author = tx.one(include_str!("sql/rule_paused.sql"), [queue], |row| row.get::<_, String>(0))?;
    Ok(Did::Already(format!("it was paused by {} before", author.unwrap_or_default())))
}

fn set_limit(tx: &Tx<'_>, now: Time, limit: &Limit) -> Result<Did, Error> {
    let level = match Bucket::named(tx, &limit.name)? {
        Some(old) if old.limit == *limit && !old.lifted => {
            return Ok(Did::Already("it is so already".into()));
        }
        Some(old) => old.level.under(&old.limit, limit, now),
        None => Level::full(limit, now),
    };
    let per = limit.per.as_micros() as i64;
    let params = params![limit.name, limit.rate, per, limit.burst, level.units, level.at.micros()];
    if let Some(id) = tx.one(include_str!("sql/rule_limit.sql"), params, |row| row.get(0))? {
        limit_moved(tx, id)?;
    }
    Ok(Did::Done)
}

/// What waits for a limit may go on: the gates of its queues move.
fn limit_moved(tx: &Tx<'_>, bucket: i32) -> Result<(), Error> {
    let queues = tx.all(include_str!("sql/rule_queues.sql"), [bucket], |row| row.get(0))?;
    queues.into_iter().for_each(|queue| tx.move_gate(queue));
    Ok(())
}
