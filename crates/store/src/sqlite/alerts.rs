//! Alerts.

use rusqlite::{Row, params};
use windlass_model::{NewJob, Time, calendar::Missed, schedule::MISSED_BY_OVERLAP};

use super::{Sqlite, admin::log, rate::Buckets, sql, submit::insert_jobs, tx::Tx};
use crate::{
    Actor, Alert, AlertChange, AlertMute, Alerts, ControlOutcome, Error, Fut, MISSES_READ, Miss,
    NewAlertMute, Now,
    alerts::{
        Columns, MUTED, TESTED, UNMUTED, audit_subject, check, check_message, check_mute, check_names,
        outcome, subject_of_text, subject_text, target_text,
    },
    control::check_actor,
};

impl Sqlite {
    /// Gives numbers to the lanes of messages.
    async fn intern_messages(&self, messages: impl Iterator<Item = &NewJob>) -> Result<(), Error> {
        self.intern(messages.map(|message| (message.queue.as_str(), &message.kind, 0))).await
    }
}

impl Alerts for Sqlite {
    fn write_alerts<'a>(&'a self, now: Now, changes: &'a [AlertChange]) -> Fut<'a, Vec<bool>> {
        Box::pin(async move {
            check(changes, &self.shared.options.limits)?;
            self.intern_messages(changes.iter().filter_map(AlertChange::message)).await?;
            self.write(changes.len(), |tx| {
                let now = tx.now(now);
                let mut written = Vec::with_capacity(changes.len());
                for change in changes {
                    let is_written = write(tx, change)?;
                    if let (true, Some(message)) = (is_written, change.message()) {
                        insert_jobs(tx, now, std::slice::from_ref(message), &Buckets::new(), None)?;
                    }
                    written.push(is_written);
                }
                Ok(written)
            })
            .await
        })
    }

    fn open_alerts(&self, limit: usize) -> Fut<'_, Vec<Alert>> {
        Box::pin(std::future::ready(self.read(|tx| read(tx, sql::alerts::OPEN, limit))))
    }

    fn resolved_alerts(&self, limit: usize) -> Fut<'_, Vec<Alert>> {
        Box::pin(std::future::ready(self.read(|tx| read(tx, sql::alerts::RESOLVED, limit))))
    }

    fn test_alert<'a>(
        &'a self,
        now: Now,
        rule: &'a str,
        message: &'a NewJob,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_actor(actor)?;
            check_names(rule, None)?;
            check_message(message, &self.shared.options.limits)?;
            self.intern_messages(std::iter::once(message)).await?;
            self.write(1, |tx| {
                let now = tx.now(now);
                insert_jobs(tx, now, std::slice::from_ref(message), &Buckets::new(), None)?;
                log(tx, now, TESTED, rule, actor)?;
                Ok(ControlOutcome::Created(message.id))
            })
            .await
        })
    }

    fn mute_alerts<'a>(
        &'a self,
        now: Now,
        mute: &'a NewAlertMute,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_mute(mute, actor)?;
            let NewAlertMute { rule, subject, until } = mute;
            self.write(1, |tx| {
                let now = tx.now(now);
                let (subject, until) = (subject.as_deref(), until.map(Time::micros));
                let params =
                    params![rule, subject_text(subject), until, now.micros(), actor.author, actor.note];
                tx.execute(sql::alerts::MUTE, params)?;
                log(tx, now, MUTED, &audit_subject(rule, subject), actor)?;
                Ok(ControlOutcome::Done)
            })
            .await
        })
    }

    fn unmute_alerts<'a>(
        &'a self,
        now: Now,
        rule: &'a str,
        subject: Option<&'a str>,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_actor(actor)?;
            check_names(rule, subject)?;
            self.write(1, |tx| {
                let now = tx.now(now);
                let params = params![rule, subject_text(subject)];
                let until = tx.query_one(sql::alerts::UNMUTE, params, |row| row.get::<_, Option<i64>>(0))?;
                if until.is_none_or(|until| until.is_some_and(|until| until <= now.micros())) {
                    return Ok(outcome::not_muted());
                }
                log(tx, now, UNMUTED, &audit_subject(rule, subject), actor)?;
                Ok(ControlOutcome::Done)
            })
            .await
        })
    }

    fn alert_mutes(&self, now: Now) -> Fut<'_, Vec<AlertMute>> {
        let mutes = self.read(|tx| {
            tx.query_all(sql::alerts::MUTES, [tx.now(now).micros()], |row| {
                Ok(AlertMute {
                    rule: row.get(0)?,
                    subject: subject_of_text(row.get(1)?),
                    until: row.get::<_, Option<i64>>(2)?.map(Time),
                    at: Time(row.get(3)?),
                    author: row.get(4)?,
                    note: row.get(5)?,
                })
            })
        });
        Box::pin(std::future::ready(mutes))
    }

    fn prune_alerts(&self, before: Time, limit: usize) -> Fut<'_, usize> {
        Box::pin(async move {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            self.write(1, |tx| {
                let params = [before.micros(), limit];
                Ok(tx.execute(sql::alerts::PRUNE, params)? + tx.execute(sql::alerts::PRUNE_MUTES, params)?)
            })
            .await
        })
    }

    fn latest_misses(&self) -> Fut<'_, Vec<(String, Miss)>> {
        let params = params![MISSED_BY_OVERLAP, MISSES_READ as i64];
        let misses = self.read(|tx| {
            tx.query_all(sql::alerts::LATEST_MISSES, params, |row| {
                let (from, to) = (Time(row.get(2)?), Time(row.get(3)?));
                let missed = Missed { from, to, count: row.get::<_, i64>(4)? as u64, at_least: row.get(5)? };
                Ok((row.get(0)?, Miss { at: Time(row.get(1)?), missed, why: row.get(6)? }))
            })
        });
        Box::pin(std::future::ready(misses))
    }
}

/// Writes a change. Returns whether the alert was as the change knows it.
fn write(tx: &Tx<'_>, change: &AlertChange) -> Result<bool, Error> {
    let alert = match change {
        AlertChange::Set { alert, .. } => alert,
        AlertChange::Delete { rule, subject, rev } => {
            return Ok(tx.execute(sql::alerts::DELETE, params![rule, subject, rev])? == 1);
        }
    };
    let target = target_text(&alert.target);
    let time = |at: Option<Time>| at.map(Time::micros);
    let (fired_at, clear_since, resolved_at) =
        (time(alert.fired_at), time(alert.clear_since), time(alert.resolved_at));
    macro_rules! columns {
        ($($more:expr)?) => {
            params![
                alert.rule,
                alert.subject,
                alert.severity.number(),
                alert.state.number(),
                alert.value,
                alert.text,
                target,
                alert.since.micros(),
                fired_at,
                clear_since,
                resolved_at,
                alert.updated_at.micros(),
                alert.posted,
                alert.is_open(),
                $($more)?
            ]
        };
    }
    let changed = match alert.rev {
        0 => tx.execute(sql::alerts::ADD, columns!())?,
        rev => tx.execute(sql::alerts::CHANGE, columns!(rev))?,
    };
    Ok(changed == 1)
}

fn read(tx: &Tx<'_>, sql: &str, limit: usize) -> Result<Vec<Alert>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    tx.query_all(sql, [limit], columns)?.into_iter().map(Columns::decode).collect()
}

fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        rule: row.get(0)?,
        subject: row.get(1)?,
        severity: row.get(2)?,
        state: row.get(3)?,
        value: row.get(4)?,
        text: row.get(5)?,
        target: row.get(6)?,
        since: row.get(7)?,
        fired_at: row.get(8)?,
        clear_since: row.get(9)?,
        resolved_at: row.get(10)?,
        updated_at: row.get(11)?,
        posted: row.get(12)?,
        rev: row.get(13)?,
    })
}
