//! What people do to jobs and rules.

use super::*;
use crate::{
    AdminAction, AuditRecord, Control, ControlOutcome, Fork, JobAction, StageUpdate, control::check_actor,
};

impl Control for Memory {
    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        action: JobAction,
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            columns::check_act(action)?;
            Ok(jobs.iter().map(|id| inner.act(now, *id, action, actor)).collect())
        })
    }

    fn administer<'a>(
        &'a self,
        now: Now,
        action: &'a AdminAction,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            columns::check_admin(action, &self.limits)?;
            inner.administer(now, action, actor)
        })
    }

    fn update_stages<'a>(
        &'a self,
        now: Now,
        updates: &'a [StageUpdate],
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            updates.iter().try_for_each(|update| columns::check_stage_update(update, &self.limits))?;
            Ok(updates.iter().map(|update| inner.update_stage(now, update, actor)).collect())
        })
    }

    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            forks.iter().try_for_each(Fork::check)?;
            Ok(forks.iter().map(|fork| inner.fork(now, fork, actor)).collect())
        })
    }

    fn record_audit<'a>(
        &'a self,
        now: Now,
        action: &'a str,
        subject: &'a str,
        actor: &'a Actor,
    ) -> Fut<'a, ()> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            inner.log(now, action, subject, actor);
            Ok(())
        })
    }

    fn record_audits<'a>(&'a self, now: Now, records: &'a [AuditRecord]) -> Fut<'a, ()> {
        self.run(now, |inner, now| {
            records.iter().try_for_each(|record| check_actor(&record.actor))?;
            for AuditRecord { action, subject, actor } in records {
                inner.log(now, action, subject, actor);
            }
            Ok(())
        })
    }
}
