//! What people do in a lab, at the virtual time.

use windlass_model::JobId;
use windlass_store::{
    Actor, AdminAction, Control, ControlOutcome, Fork, Fut, JobAction, Now, Prune, Pruned, StageUpdate,
};

use super::store::VirtualStore;

impl Control for VirtualStore {
    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        act: JobAction,
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(self.outside_call(async move {
            self.store.control().act_on_jobs(self.now(now), jobs, act, actor).await
        }))
    }

    fn administer<'a>(
        &'a self,
        now: Now,
        rule: &'a AdminAction,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        Box::pin(
            self.outside_call(
                async move { self.store.control().administer(self.now(now), rule, actor).await },
            ),
        )
    }

    fn update_stages<'a>(
        &'a self,
        now: Now,
        jobs: &'a [StageUpdate],
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(self.outside_call(async move {
            self.store.control().update_stages(self.now(now), jobs, actor).await
        }))
    }

    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(
            self.outside_call(async move { self.store.control().fork(self.now(now), forks, actor).await }),
        )
    }

    fn record_audit<'a>(
        &'a self,
        now: Now,
        action: &'a str,
        subject: &'a str,
        actor: &'a Actor,
    ) -> Fut<'a, ()> {
        Box::pin(self.outside_call(async move {
            self.store.control().record_audit(self.now(now), action, subject, actor).await
        }))
    }

    fn prune<'a>(&'a self, now: Now, prune: &'a Prune) -> Fut<'a, Pruned> {
        Box::pin(self.outside_call(async move { self.store.control().prune(self.now(now), prune).await }))
    }
}
