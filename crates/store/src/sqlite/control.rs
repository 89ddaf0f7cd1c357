//! What people do to jobs and rules; each call is one transaction.

use windlass_model::JobId;

use super::{Sqlite, admin, fork, job_actions, pool::SMALL, stage_update};
use crate::{
    Actor, AdminAction, AuditRecord, Control, ControlOutcome, Fork, Fut, JobAction, Now, StageUpdate,
    columns, control::check_actor,
};

impl Control for Sqlite {
    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        act: JobAction,
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(async move {
            check_actor(actor)?;
            columns::check_act(act)?;
            self.write(jobs.len() * 4, |tx| {
                let now = tx.now(now);
                jobs.iter().map(|id| job_actions::act(tx, now, *id, act, actor)).collect()
            })
            .await
        })
    }

    fn administer<'a>(
        &'a self,
        now: Now,
        rule: &'a AdminAction,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_actor(actor)?;
            columns::check_admin(rule, &self.shared.options.limits)?;
            self.write(1, |tx| admin::rule(tx, tx.now(now), rule, actor)).await
        })
    }

    fn update_stages<'a>(
        &'a self,
        now: Now,
        jobs: &'a [StageUpdate],
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(async move {
            check_actor(actor)?;
            let limits = &self.shared.options.limits;
            jobs.iter().try_for_each(|update| columns::check_stage_update(update, limits))?;
            stage_update::update_stages(self, now, jobs, actor).await
        })
    }

    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(async move {
            check_actor(actor)?;
            forks.iter().try_for_each(Fork::check)?;
            self.write(SMALL + 1, |tx| {
                let now = tx.now(now);
                forks.iter().map(|fork| fork::fork(tx, now, fork, actor)).collect()
            })
            .await
        })
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
            self.write(1, |tx| admin::log(tx, tx.now(now), action, subject, actor)).await
        })
    }

    fn record_audits<'a>(&'a self, now: Now, records: &'a [AuditRecord]) -> Fut<'a, ()> {
        Box::pin(async move {
            records.iter().try_for_each(|record| check_actor(&record.actor))?;
            self.write(records.len(), |tx| {
                let now = tx.now(now);
                let log = |record: &AuditRecord| {
                    admin::log(tx, now, &record.action, &record.subject, &record.actor)
                };
                records.iter().try_for_each(log)
            })
            .await
        })
    }
}
