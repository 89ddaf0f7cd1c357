//! The third door.

use windlass_model::JobId;

use super::{SMALL, Sqlite, act, journal, machine, prune, rules};
use crate::{Act, By, Control, Did, Fork, Fut, Now, Prune, Pruned, Restate, Rule, control::check_by, pick};

impl Control for Sqlite {
    fn act<'a>(&'a self, now: Now, jobs: &'a [JobId], act: Act, by: &'a By) -> Fut<'a, Vec<Did>> {
        Box::pin(async move {
            check_by(by)?;
            pick::check_act(act)?;
            self.write(jobs.len() * 4, |tx| {
                let now = tx.now(now);
                jobs.iter().map(|id| act::act(tx, now, *id, act, by)).collect()
            })
            .await
        })
    }

    fn rule<'a>(&'a self, now: Now, rule: &'a Rule, by: &'a By) -> Fut<'a, Did> {
        Box::pin(async move {
            check_by(by)?;
            pick::check_rule(rule, &self.shared.options.limits)?;
            self.write(1, |tx| rules::rule(tx, tx.now(now), rule, by)).await
        })
    }

    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], by: &'a By) -> Fut<'a, Vec<Did>> {
        Box::pin(async move {
            check_by(by)?;
            forks.iter().try_for_each(Fork::check)?;
            self.write(SMALL + 1, |tx| {
                let now = tx.now(now);
                forks.iter().map(|fork| journal::fork(tx, now, fork, by)).collect()
            })
            .await
        })
    }

    fn restate<'a>(&'a self, now: Now, jobs: &'a [Restate], by: &'a By) -> Fut<'a, Vec<Did>> {
        Box::pin(async move {
            check_by(by)?;
            let limits = &self.shared.options.limits;
            jobs.iter().try_for_each(|restate| pick::check_restate(restate, limits))?;
            machine::restate(self, now, jobs, by).await
        })
    }

    fn note<'a>(&'a self, now: Now, action: &'a str, subject: &'a str, by: &'a By) -> Fut<'a, ()> {
        Box::pin(async move {
            check_by(by)?;
            self.write(1, |tx| rules::log(tx, tx.now(now), action, subject, by)).await
        })
    }

    fn prune<'a>(&'a self, now: Now, prune: &'a Prune) -> Fut<'a, Pruned> {
        Box::pin(async move {
            pick::check_prune(prune)?;
            prune::prune(self, now, prune).await
        })
    }
}
