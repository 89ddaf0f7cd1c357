//! A worker: starts all loops, and stops them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use windlass_env::JoinHandle;
use windlass_model::WorkerId;
use windlass_store::{Error, Store};

use crate::{
    Config, Pool, Registry, Stats, Submitter, Waiters, branches, cancellations, claimer,
    committer::Committer,
    core::{Core, Phase},
    gatekeeper, pruner, releaser, renewer, rollups, suspects,
    sync::lock,
    telemetry::{StoreCall, add},
    timekeeper,
};

/// How long a stopping worker waits for attempts that were asked to end, and then for those that were aborted: they have
/// had the full drain time before.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// How long a stopping worker waits for the outcomes of its attempts to be committed, if the store fails.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stopping worker waits for the store to retire it.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// One process that runs jobs of a store.
pub struct Worker {
    core: Arc<Core>,
    tasks: Vec<JoinHandle<()>>,
    /// The renewer's thread, until it was joined.
    renewer: Option<std::thread::JoinHandle<()>>,
}

impl Worker {
    /// Registers a worker and starts all of its loops. Every pool serves all kinds of the registry. Up to `max_in_flight`
    /// transactions commit outcomes at once.
    ///
    /// The worker has the clock and the tasks of its submitter.
    pub async fn start(
        store: Arc<dyn Store>,
        registry: Registry,
        pools: Vec<(String, Pool)>,
        submitter: &Arc<Submitter>,
        waiters: Arc<Waiters>,
        max_in_flight: usize,
        config: Config,
    ) -> Result<Worker, Error> {
        config.check().map_err(Error::Config)?;
        pools.iter().try_for_each(|(queue, pool)| pool.check(queue)).map_err(Error::Config)?;
        let core = Arc::new(Core::new(store, registry, pools, waiters, max_in_flight, config, submitter));
        core.register(&*core.store).await?;
        // The jobs that a dead predecessor on this machine held are returned before anything else.
        renewer::reap_local(&core, &*core.store, &mut Default::default()).await;
        let mut tasks = Vec::new();
        for _ in 0..max_in_flight.max(1) {
            tasks.push(core.env.spawn(Committer::run(Arc::clone(&core))));
        }
        for (index, pool) in core.pools.iter().enumerate() {
            tasks.push(core.env.spawn(claimer::run(Arc::clone(&core), Arc::clone(pool), index)));
        }
        tasks.push(core.env.spawn(gatekeeper::run(Arc::clone(&core))));
        tasks.push(core.env.spawn(timekeeper::run(Arc::clone(&core))));
        tasks.push(core.env.spawn(suspects::run(Arc::clone(&core))));
        tasks.push(core.env.spawn(cancellations::run(Arc::clone(&core))));
        tasks.push(core.env.spawn(branches::run(Arc::clone(&core))));
        tasks.push(core.env.spawn(releaser::run(Arc::clone(&core))));
        tasks.push(core.env.spawn(pruner::run(Arc::clone(&core))));
        tasks.push(core.env.spawn(rollups::run(Arc::clone(&core))));
        let renewer = renewer::spawn(Arc::clone(&core))
            .map_err(|error| Error::Fault(format!("the renewer's thread cannot be started: {error}")))?;
        submitter.attach(&core);
        Ok(Worker { core, tasks, renewer: Some(renewer) })
    }

    /// The id that this worker is registered under. It changes if the worker is declared dead.
    pub fn id(&self) -> WorkerId {
        self.core.worker()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The counters of this worker.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.core.stats
    }

    /// Stops: claims no more jobs, releases those that have not started, waits up to the configured time for running
    /// attempts, commits their outcomes, and retires. Returns how many attempts did not end in the configured time.
    pub async fn stop(&mut self) -> usize {
        let core = &self.core;
        core.set_phase(Phase::Draining);
        // Jobs that have not started are released as they are dropped.
        core.all_pools().iter().for_each(|pool| drop(pool.take_buffered(true)));
        let deadline = core.env.instant() + core.config.drain;
        let unfinished = self.drain(deadline).await;
        if unfinished > 0 {
            tracing::warn!(
                attempts = unfinished,
                "attempts did not end in time; they are given up and their jobs released"
            );
            core.cancel_attempts();
            if self.drain(core.env.instant() + LAST_WAIT).await > 0 {
                core.aborts.abort_all();
                self.drain(core.env.instant() + LAST_WAIT).await;
            }
        }
        if core.env.timeout(FLUSH_TIMEOUT, core.committer.flushed()).await.is_err() {
            tracing::warn!(
                "the store does not answer; jobs whose outcomes could not be committed are left to the reaper"
            );
        }
        let deadline = deadline.max(core.env.instant() + LAST_WAIT);
        if core.env.timeout_at(deadline, core.releaser.emptied()).await.is_err() {
            let jobs = core.releaser.waiting();
            tracing::warn!(jobs, "jobs could not be released in time; they are as the worker retires");
        }
        core.releaser.close();
        self.tasks.drain(..).for_each(|task| task.abort());
        core.committer.close();
        self.retire().await;
        core.set_phase(Phase::Stopped);
        *lock(&core.liveness_file) = None;
        if let Some(renewer) = self.renewer.take() {
            let _ = core.env.spawn_blocking(move || renewer.join()).await;
        }
        unfinished
    }

    /// Waits until no attempt runs, or the deadline has passed; returns how many still run.
    async fn drain(&self, deadline: Instant) -> usize {
        let core = &self.core;
        for pool in core.all_pools() {
            loop {
                let idle = pool.idle.notified();
                let mut idle = std::pin::pin!(idle);
                idle.as_mut().enable();
                if pool.running() == 0 || core.env.timeout_at(deadline, idle).await.is_err() {
                    break;
                }
            }
        }
        while core.running_suspects.load(Ordering::Acquire) > 0 && core.env.instant() < deadline {
            core.env.sleep(Duration::from_millis(5)).await;
        }
        let suspects = core.running_suspects.load(Ordering::Acquire);
        core.all_pools().iter().map(|pool| pool.running()).sum::<usize>() + suspects
    }

    /// Ends the registration in the store, which releases the jobs that are still claimed.
    async fn retire(&self) {
        let core = &self.core;
        // A renewal that is in flight may find the worker retired: that is no loss, and nothing to report.
        core.aborts.unset_registered(core.worker());
        let retired = core.env.timeout(RETIRE_TIMEOUT, core.store.retire_worker(None, core.worker())).await;
        match retired {
            Ok(Ok(released)) => add(&core.stats.released, released),
            Ok(Err(error)) => {
                core.metrics.count_error(StoreCall::Retire);
                tracing::warn!(%error, "the worker could not retire; its lease will run out");
            }
            Err(_) => tracing::warn!("the worker could not retire in time; its lease will run out"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let core = &self.core;
        core.releaser.close();
        self.tasks.iter().for_each(|task| task.abort());
        core.committer.close();
        if core.set_phase(Phase::Stopped) != Phase::Stopped {
            // Dropped without a stop: other workers must see at once that nobody runs its claims.
            for pool in core.all_pools() {
                pool.take_buffered(true);
            }
            if let Some(file) = lock(&core.liveness_file).take() {
                file.unlock();
            }
            core.aborts.abort_all();
        }
    }
}
