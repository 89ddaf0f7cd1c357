//! Runs single jobs here and now, for callers that wait for them: ahead of their queue, each in a slot of its own.
//!
//! Such a job is claimed as any other, by its submit or by its id, so its record, its lease and its fencing are the same. What
//! keeps other jobs from running keeps it too: a paused queue, a serial key without a free slot, a rate limit. Then it waits
//! its turn, here or in another worker of its queue.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::oneshot;
use windlass_model::{JobId, KindVersion, NewJob, SubmitOutcome};
use windlass_store::{ClaimOnSubmit, Error};

use crate::{
    Pool, Submitter,
    claimer::{self, Claim},
    core::Core,
    pool::QueuePool,
    submitter::{Batch, Call, can_claim_at_submit, claimed_at_submit, wake_for},
    sync::lock,
    telemetry::{add, trace},
};

/// As many jobs of a queue as callers want run at once.
const SLOTS: usize = 1 << 30;
/// The shortest and the longest interval between two claims of a job that is waited for and does not run here.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(2);

/// The pools of jobs that run outside of the slots of their queues, one for each queue. Nothing claims for them.
#[derive(Default)]
pub(crate) struct DirectPools(Mutex<Vec<Arc<QueuePool>>>);

impl DirectPools {
    pub(crate) fn all(&self) -> Vec<Arc<QueuePool>> {
        lock(&self.0).clone()
    }

    /// The pool for jobs of a queue, made when it is first needed.
    fn get(&self, core: &Core, queue: &str) -> Arc<QueuePool> {
        let mut pools = lock(&self.0);
        if let Some(pool) = pools.iter().find(|pool| pool.queue == queue) {
            return Arc::clone(pool);
        }
        let config = Pool::slots(SLOTS).prefetch(0);
        let kinds = core.registry.kinds().into();
        let pool = Arc::new(QueuePool::unclaimed(queue.to_owned(), config, kinds, core.env.clone()));
        pools.push(Arc::clone(&pool));
        pool
    }
}

impl Core {
    /// The pools of all queues that are served, and those of direct runs.
    pub(crate) fn all_pools(&self) -> Vec<Arc<QueuePool>> {
        self.pools.iter().cloned().chain(self.direct_pools.all()).collect()
    }
}

impl Submitter {
    /// Whether the worker of this process can run jobs of a kind; the error says what is missing.
    pub fn check_runs(&self, kind: &KindVersion) -> Result<(), String> {
        let KindVersion { kind: name, version } = kind;
        let Some(core) = self.core().filter(|core| !core.is_stopping()) else {
            return Err(format!(
                "a {name:?} job cannot be run here, because this engine has no running worker; start it before, or submit the job"
            ));
        };
        match core.registry.get(kind) {
            Some(_) => Ok(()),
            None => Err(format!(
                "a {name:?} job of version {version} cannot be run here, because this engine does not serve that kind; add it before \
                 the start, or submit the job"
            )),
        }
    }

    /// Submits a job. If it may run now, it is claimed by the submit itself and runs in this process, in a slot of its own.
    pub async fn submit_direct(self: &Arc<Self>, job: NewJob) -> Result<SubmitOutcome, Error> {
        let core = self.core().filter(|core| !core.is_stopping() && core.lease_holds());
        let Some(core) = core.filter(|_| can_claim_at_submit(&job)) else {
            return Ok(self.submit(vec![job]).await?.remove(0));
        };
        let mut jobs = vec![job];
        trace::pass_on(&mut jobs);
        self.store.limits().check(&jobs[0])?;
        let (reply, answer) = oneshot::channel();
        let batch = Batch::new(vec![Call { jobs, since: self.env().instant(), reply }]);
        // In a task of its own: a job that was claimed must run, also if the caller gives up.
        self.runtime.spawn(Arc::clone(self).send_direct(core, batch));
        match answer.await {
            Ok(outcomes) => Ok(outcomes?.remove(0)),
            Err(_) => Err(Error::Unavailable("the engine has stopped; submit again".into())),
        }
    }

    async fn send_direct(self: Arc<Self>, core: Arc<Core>, mut batch: Batch) {
        let claim = ClaimOnSubmit { worker: core.worker(), number: core.ledger.next_number() };
        let outcomes = self.send_until_answered(&mut batch, Some(claim), None).await;
        let (job, outcome) = (&batch.jobs[0], outcomes.as_ref().ok().and_then(|all| all.first()));
        let is_claimed = matches!(outcome, Some(SubmitOutcome::New { claimed: Some(_) }));
        core.ledger.open(claim.number, usize::from(is_claimed));
        if is_claimed {
            add(&core.stats.claimed, 1);
            let pool = core.direct_pools.get(&core, &job.queue);
            pool.accept(&core, vec![claimed_at_submit(&core, claim, job)]);
        } else if outcome.is_some_and(SubmitOutcome::is_inserted) {
            wake_for(&core, job);
        }
        batch.reply(outcomes);
    }

    /// Claims a job for this process whenever it is ready and not held here, ahead of its queue, and runs it in a slot of its
    /// own. Does not return: drop it when the job has ended.
    pub async fn run_when_ready(&self, job: JobId, kind: KindVersion, queue: &str) -> Infallible {
        let mut wait = MIN_INTERVAL;
        loop {
            if let Some(core) = self.core().filter(|core| !core.is_stopping())
                && !core.waiters.is_held(job)
            {
                let pool = core.direct_pools.get(&core, queue);
                // In a task of its own: a claim needs its answer, also if the caller gives up.
                let claim = claim_and_run(Arc::clone(&core), pool, Claim::Job { job, kind: kind.clone() });
                if core.runtime.spawn(claim).await.unwrap_or(false) {
                    wait = MIN_INTERVAL;
                }
            }
            self.env().sleep(wait).await;
            wait = (wait * 2).min(MAX_INTERVAL);
        }
    }
}

/// Makes one claim, and runs what it returns; `false` if that is nothing.
async fn claim_and_run(core: Arc<Core>, pool: Arc<QueuePool>, claim: Claim) -> bool {
    match claimer::claim(&core, &pool, claim).await {
        Some((_, jobs)) if !jobs.is_empty() => {
            pool.accept(&core, jobs);
            true
        }
        _ => false,
    }
}
