//! What people do to work that is there.

use windlass_model::{JobId, Time};

use super::{
    Postgres, admin, branch, conn::retry_deadlock, fork, job_actions, micros, pool::Guard, sql, stage_update,
};
use crate::{
    Actor, AdminAction, Control, ControlOutcome, Error, Fork, Fut, JobAction, Now, StageUpdate,
    control::check_actor,
};

/// Runs `work` in a transaction, at one moment of the store's clock.
pub(super) async fn transaction<T>(
    store: &Postgres,
    now: Now,
    work: impl AsyncFnOnce(&Guard<'_>, Time) -> Result<T, Error>,
) -> Result<T, Error> {
    let conn = store.conn().await?;
    conn.begin().await?;
    let answer = async {
        let now = clock(&conn, now).await?;
        Ok((work(&conn, now).await?, now))
    };
    let answer = answer.await;
    match &answer {
        Ok((_, now)) => branch::commit(store, &conn, Some(*now)).await?,
        Err(_) => conn.rollback().await,
    }
    store.shared.floors.lowered(i64::MIN);
    answer.map(|(answer, _)| answer)
}

/// The store's clock.
pub(super) async fn clock(conn: &Guard<'_>, now: Now) -> Result<Time, Error> {
    if let Some(now) = now {
        return Ok(now);
    }
    let rows = conn.read(sql::timers::NEXT, &[&micros(now)]).await?;
    rows.first().map(|row| Time(row.get(0))).ok_or_else(|| Error::Fault("the clock answered nothing".into()))
}

/// Adds entries to the audit log.
pub(super) async fn log(
    conn: &Guard<'_>,
    now: Time,
    action: &str,
    subjects: &[String],
    by: &Actor,
) -> Result<(), Error> {
    if subjects.is_empty() {
        return Ok(());
    }
    let sql = sql::control::WRITE_AUDIT;
    conn.execute(sql, &[&now.micros(), &by.author, &action, &subjects, &by.note]).await.map(drop)
}

impl Control for Postgres {
    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        what: JobAction,
        by: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(job_actions::act(self, now, jobs, what, by))
    }

    fn administer<'a>(&'a self, now: Now, what: &'a AdminAction, by: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move { retry_deadlock!(admin::rule(self, now, what, by)) })
    }

    fn update_stages<'a>(
        &'a self,
        now: Now,
        jobs: &'a [StageUpdate],
        by: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(stage_update::restate(self, now, jobs, by))
    }

    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], by: &'a Actor) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(fork::fork(self, now, forks, by))
    }

    fn record_audit<'a>(&'a self, now: Now, action: &'a str, subject: &'a str, by: &'a Actor) -> Fut<'a, ()> {
        Box::pin(async move {
            check_actor(by)?;
            let subjects = [subject.to_owned()];
            transaction(self, now, async |conn, now| log(conn, now, action, &subjects, by).await).await
        })
    }
}
