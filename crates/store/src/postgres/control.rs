//! What people do to jobs, queues, schedules and limits. Each act is one transaction, with its entry in the audit log.

use windlass_model::{JobId, Time};

use super::{
    Postgres, admin, branch, conn::retry_deadlock, errors::PgError, fork, job_actions, micros, sql,
    stage_update, tx::Tx,
};
use crate::{
    Actor, AdminAction, AuditRecord, Control, ControlOutcome, Error, Fork, Fut, JobAction, Now, StageUpdate,
    control::check_actor,
};

/// Runs `work` in a transaction, at one time of the store's clock.
pub(super) async fn transaction<T>(
    store: &Postgres,
    now: Now,
    work: impl AsyncFnOnce(&Tx<'_>, Time) -> Result<T, PgError>,
) -> Result<T, PgError> {
    let mut conn = store.conn().await?;
    let tx = Tx::write(&mut conn).await?;
    let mut at = now;
    let result = async {
        let now = clock(&tx, now).await?;
        at = Some(now);
        work(&tx, now).await
    };
    let result = result.await;
    let result = branch::finish(store, tx, at, result).await;
    store.shared.floors.lowered(i64::MIN);
    result
}

/// Reads the store's clock, unless the time is given.
pub(super) async fn clock(tx: &Tx<'_>, now: Now) -> Result<Time, PgError> {
    if let Some(now) = now {
        return Ok(now);
    }
    let rows = tx.query(sql::timers::NEXT, &[&micros(now)]).await?;
    let row = rows.first().ok_or_else(|| Error::Fault("the clock returned no row".into()))?;
    Ok(Time(row.get(0)))
}

/// Adds entries to the audit log.
pub(super) async fn log(
    tx: &Tx<'_>,
    now: Time,
    action: &str,
    subjects: &[String],
    actor: &Actor,
) -> Result<(), PgError> {
    if subjects.is_empty() {
        return Ok(());
    }
    let sql = sql::control::WRITE_AUDIT;
    tx.execute(sql, &[&now.micros(), &actor.author, &action, &subjects, &actor.note]).await.map(drop)
}

impl Control for Postgres {
    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(fork::fork(self, now, forks, actor))
    }

    fn update_stages<'a>(
        &'a self,
        now: Now,
        jobs: &'a [StageUpdate],
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(stage_update::update_stages(self, now, jobs, actor))
    }

    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        what: JobAction,
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(job_actions::act(self, now, jobs, what, actor))
    }

    fn administer<'a>(
        &'a self,
        now: Now,
        what: &'a AdminAction,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        Box::pin(async move { retry_deadlock!(admin::administer(self, now, what, actor)) })
    }

    fn record_audit<'a>(
        &'a self,
        now: Now,
        action: &'a str,
        subject: &'a str,
        actor: &'a Actor,
    ) -> Fut<'a, ()> {
        Box::pin(async move {
            check_actor(actor)?;
            let subjects = [subject.to_owned()];
            transaction(self, now, async |tx, now| log(tx, now, action, &subjects, actor).await).await?;
            Ok(())
        })
    }

    fn record_audits<'a>(&'a self, now: Now, records: &'a [AuditRecord]) -> Fut<'a, ()> {
        Box::pin(async move {
            records.iter().try_for_each(|record| check_actor(&record.actor))?;
            let authors: Vec<&str> = records.iter().map(|record| record.actor.author.as_str()).collect();
            let actions: Vec<&str> = records.iter().map(|record| record.action.as_str()).collect();
            let subjects: Vec<&str> = records.iter().map(|record| record.subject.as_str()).collect();
            let notes: Vec<Option<&str>> =
                records.iter().map(|record| record.actor.note.as_deref()).collect();
            let now = now.map(Time::micros);
            let conn = self.conn().await?;
            conn.execute(sql::control::WRITE_AUDITS, &[&now, &authors, &actions, &subjects, &notes]).await?;
            Ok(())
        })
    }
}
