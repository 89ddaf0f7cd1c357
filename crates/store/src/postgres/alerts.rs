//! Alerts.

use tokio_postgres::Row;
use windlass_model::{NewJob, Time, calendar::Missed, schedule::MISSED_BY_OVERLAP};

use super::{
    Postgres,
    change_params::Param,
    conn::retry_deadlock,
    control::{log, transaction},
    errors::PgError,
    micros,
    names::Names,
    sql,
    submit::Batch,
    tx::Tx,
};
use crate::{
    Actor, Alert, AlertChange, AlertMute, Alerts, ControlOutcome, Error, Fut, MISSES_READ, Miss,
    NewAlertMute, Now,
    alerts::{
        Columns, MUTED, TESTED, UNMUTED, audit_subject, check, check_message, check_mute, check_names,
        outcome, subject_of_text, subject_text, target_text,
    },
    control::check_actor,
};

impl Alerts for Postgres {
    fn write_alerts<'a>(&'a self, now: Now, changes: &'a [AlertChange]) -> Fut<'a, Vec<bool>> {
        Box::pin(async move {
            check(changes, &self.shared.options.limits)?;
            retry_deadlock!(write_all(self, now, changes))
        })
    }

    fn open_alerts(&self, limit: usize) -> Fut<'_, Vec<Alert>> {
        Box::pin(read(self, sql::alerts::OPEN, limit))
    }

    fn resolved_alerts(&self, limit: usize) -> Fut<'_, Vec<Alert>> {
        Box::pin(read(self, sql::alerts::RESOLVED, limit))
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
            let messages = std::slice::from_ref(message);
            let names = Names::unchecked(self, messages).await?;
            let submitted = transaction(self, now, async |tx, now| {
                submit(self, tx, now, messages, &names).await?;
                log(tx, now, TESTED, &[rule.to_owned()], actor).await?;
                Ok(ControlOutcome::Created(message.id))
            });
            Ok(submitted.await?)
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
            let (subject, until) = (subject.as_deref(), until.map(Time::micros));
            let muted = transaction(self, now, async |tx, now| {
                let (subject_text, now_micros) = (subject_text(subject), now.micros());
                let params: [Param<'_>; 6] =
                    [rule, &subject_text, &until, &now_micros, &actor.author, &actor.note];
                tx.execute(sql::alerts::MUTE, &params).await?;
                log(tx, now, MUTED, &[audit_subject(rule, subject)], actor).await?;
                Ok(ControlOutcome::Done)
            });
            Ok(muted.await?)
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
            let unmuted = transaction(self, now, async |tx, now| {
                let rows = tx.query(sql::alerts::UNMUTE, &[&rule, &subject_text(subject)]).await?;
                let until = rows.first().map(|row| row.get::<_, Option<i64>>(0));
                if until.is_none_or(|until| until.is_some_and(|until| until <= now.micros())) {
                    return Ok(outcome::not_muted());
                }
                log(tx, now, UNMUTED, &[audit_subject(rule, subject)], actor).await?;
                Ok(ControlOutcome::Done)
            });
            Ok(unmuted.await?)
        })
    }

    fn alert_mutes(&self, now: Now) -> Fut<'_, Vec<AlertMute>> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::alerts::MUTES, &[&micros(now)]).await?;
            let mute = |row: &Row| AlertMute {
                rule: row.get(0),
                subject: subject_of_text(row.get(1)),
                until: row.get::<_, Option<i64>>(2).map(Time),
                at: Time(row.get(3)),
                author: row.get(4),
                note: row.get(5),
            };
            Ok(rows.iter().map(mute).collect())
        })
    }

    fn prune_alerts(&self, before: Time, limit: usize) -> Fut<'_, usize> {
        Box::pin(async move {
            let (before, limit) = (before.micros(), i64::try_from(limit).unwrap_or(i64::MAX));
            let conn = self.conn().await?;
            let alerts = conn.execute(sql::alerts::PRUNE, &[&before, &limit]).await?;
            let mutes = conn.execute(sql::alerts::PRUNE_MUTES, &[&before, &limit]).await?;
            Ok((alerts + mutes) as usize)
        })
    }

    fn latest_misses(&self) -> Fut<'_, Vec<(String, Miss)>> {
        Box::pin(async move {
            let limit = MISSES_READ as i64;
            let params: [Param<'_>; 2] = [&MISSED_BY_OVERLAP, &limit];
            let rows = self.conn().await?.read(sql::alerts::LATEST_MISSES, &params).await?;
            let miss = |row: &Row| {
                let (from, to) = (Time(row.get(2)), Time(row.get(3)));
                let missed = Missed { from, to, count: row.get::<_, i64>(4) as u64, at_least: row.get(5) };
                (row.get(0), Miss { at: Time(row.get(1)), missed, why: row.get(6) })
            };
            Ok(rows.iter().map(miss).collect())
        })
    }
}

async fn write_all(store: &Postgres, now: Now, changes: &[AlertChange]) -> Result<Vec<bool>, PgError> {
    let messages: Vec<NewJob> = changes.iter().filter_map(AlertChange::message).cloned().collect();
    // Before the transaction: names are added over another connection.
    let names = Names::unchecked(store, &messages).await?;
    transaction(store, now, async |tx, now| {
        let (mut written, mut messages) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            let is_written = write(tx, change).await?;
            messages.extend(change.message().filter(|_| is_written).cloned());
            written.push(is_written);
        }
        submit(store, tx, now, &messages, &names).await?;
        Ok(written)
    })
    .await
}

/// Submits messages.
async fn submit(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Time,
    messages: &[NewJob],
    names: &Names,
) -> Result<(), PgError> {
    if messages.is_empty() {
        return Ok(());
    }
    let batch = Batch { store, now: Some(now), jobs: messages, names, claim_on_submit: None, running: &[] };
    if batch.insert_in(tx).await?.iter().any(Option::is_none) {
        let why = "a message with the same key is being pruned; it is submitted again";
        return Err(Error::Unavailable(why.into()).into());
    }
    Ok(())
}

/// Writes a change. Returns whether the alert was as the change knows it.
async fn write(tx: &Tx<'_>, change: &AlertChange) -> Result<bool, PgError> {
    let alert = match change {
        AlertChange::Set { alert, .. } => alert,
        AlertChange::Delete { rule, subject, rev } => {
            return Ok(tx.execute(sql::alerts::DELETE, &[rule, subject, rev]).await? == 1);
        }
    };
    let (severity, state, target) =
        (alert.severity.number(), alert.state.number(), target_text(&alert.target));
    let (since, updated_at, is_open) = (alert.since.micros(), alert.updated_at.micros(), alert.is_open());
    let time = |at: Option<Time>| at.map(Time::micros);
    let (fired_at, clear_since, resolved_at) =
        (time(alert.fired_at), time(alert.clear_since), time(alert.resolved_at));
    let mut params: Vec<Param<'_>> = vec![
        &alert.rule,
        &alert.subject,
        &severity,
        &state,
        &alert.value,
        &alert.text,
        &target,
        &since,
        &fired_at,
        &clear_since,
        &resolved_at,
        &updated_at,
        &alert.posted,
        &is_open,
    ];
    let sql = match alert.rev {
        0 => sql::alerts::ADD,
        _ => {
            params.push(&alert.rev);
            sql::alerts::CHANGE
        }
    };
    Ok(tx.execute(sql, &params).await? == 1)
}

async fn read(store: &Postgres, sql: &'static str, limit: usize) -> Result<Vec<Alert>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = store.conn().await?.read(sql, &[&limit]).await?;
    rows.iter().map(|row| columns(row).decode()).collect()
}

fn columns(row: &Row) -> Columns {
    Columns {
        rule: row.get(0),
        subject: row.get(1),
        severity: row.get(2),
        state: row.get(3),
        value: row.get(4),
        text: row.get(5),
        target: row.get(6),
        since: row.get(7),
        fired_at: row.get(8),
        clear_since: row.get(9),
        resolved_at: row.get(10),
        updated_at: row.get(11),
        posted: row.get(12),
        rev: row.get(13),
    }
}
