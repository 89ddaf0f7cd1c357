//! Runs suspects, one at a time and alone if possible.
//!
//! A suspect is a job whose worker died while it held the job. If its next worker dies too while the suspect runs alone,
//! the suspect is known to be the cause.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use windlass_model::{Change, Outcome, Wait, crash::solo_time};

use crate::{
    claimer::{Claim, claim},
    core::Core,
    pool::{Job, QueuePool},
    watchdog::AttemptWatch,
};

/// After a vain wait to run alone, suspects do not wait again for this many times as long: so other attempts are kept from
/// starting for a tenth of the time at most.
const RESPITE: u32 = 10;

/// The longest wait for the refill of a rate limit; a later one is found when something else wakes this loop.
const MAX_REFILL_WAIT: Duration = Duration::from_secs(600);

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut no_wait_until = core.env.instant();
    loop {
        tokio::select! {
            () = core.suspects_changed.notified() => {}
            () = core.stopping() => return,
        }
        for pool in &core.pools {
            while !core.is_stopping() && core.running_suspects.load(Ordering::Acquire) < pool.config.slots {
                match claim(&core, pool, Claim::Suspect).await {
                    Some((_, jobs)) if !jobs.is_empty() => {
                        for job in jobs {
                            tick(&core, pool, job, &mut no_wait_until).await;
                        }
                    }
                    Some((batch, _)) => {
                        // Suspects that wait for a rate limit are claimed when it has tokens for them.
                        if let Some(at) = batch.refill_at {
                            let woken = Arc::clone(&core);
                            let wait = (at - batch.now).min(MAX_REFILL_WAIT);
                            core.env.spawn(async move {
                                woken.env.sleep(wait).await;
                                woken.suspects_changed.notify_one();
                            });
                        }
                        break;
                    }
                    None => break,
                }
            }
        }
    }
}

/// Runs one suspect: alone for a while if the other attempts end in time, together with them otherwise. Returns when it has
/// ended or no longer runs alone: then the next suspect may run.
async fn tick(core: &Arc<Core>, pool: &Arc<QueuePool>, job: Job, no_wait_until: &mut Instant) {
    let (solo_time, number) = (solo_time(job.claimed.worker_deaths), job.claim.number);
    let max_wait = if core.env.instant() < *no_wait_until { Duration::ZERO } else { solo_time };
    let solo = tokio::select! {
        solo = core.solo_lock.solo(&core.env, max_wait) => solo,
        () = core.stopping() => return,
    };
    if solo.is_none() {
        if !max_wait.is_zero() {
            *no_wait_until = core.env.instant() + solo_time * RESPITE;
        }
        core.end_solo(number).await;
    }
    // Counted before the check whether the worker stops: either the check sees that, or the stopping worker sees the count.
    let running = RunningSuspect::new(core);
    if solo.is_some() && !core.wait_may_start(&job).await {
        return;
    }
    // In a task of its own: if the suspect blocks its thread, other attempts must still start when its time alone is over.
    let attempt = run_suspect(Arc::clone(core), Arc::clone(pool), job, solo.is_some());
    let mut run = core.runtime.spawn(async move {
        let _running = running;
        attempt.await;
    });
    if let Some(solo) = solo {
        tokio::select! {
            _ = &mut run => {}
            () = core.env.sleep(solo_time) => {
                // From now on a death of the worker proves nothing. The store confirms that before other attempts start.
                core.end_solo(number).await;
                let shared = solo.downgrade();
                core.runtime.spawn(async move {
                    let _ = run.await;
                    drop(shared);
                });
            }
        }
    }
}

/// Counts a suspect that runs, or is about to: a worker that stops waits for it.
struct RunningSuspect(Arc<Core>);

impl RunningSuspect {
    fn new(core: &Arc<Core>) -> RunningSuspect {
        core.running_suspects.fetch_add(1, Ordering::AcqRel);
        RunningSuspect(Arc::clone(core))
    }
}

impl Drop for RunningSuspect {
    fn drop(&mut self) {
        self.0.running_suspects.fetch_sub(1, Ordering::AcqRel);
        // Another suspect may wait for this slot.
        self.0.suspects_changed.notify_one();
    }
}

/// Runs one attempt of a suspect and commits its outcome. If it does not run alone, it starts like an ordinary job.
async fn run_suspect(core: Arc<Core>, pool: Arc<QueuePool>, job: Job, is_solo: bool) {
    let shared = match is_solo {
        true => None,
        false => match core.start_shared(&job).await {
            Some(shared) => Some(shared),
            None => return,
        },
    };
    let watch = Arc::new(AttemptWatch::default());
    pool.add_watch(Arc::clone(&watch));
    let end = AssertUnwindSafe(core.run_attempt(&job, &pool, &watch)).catch_unwind().await;
    drop(shared);
    pool.remove_watch(&watch);
    let change = match end {
        Ok(change) => change,
        Err(panic) => core.after_panic(&watch, &*panic),
    };
    if let Some(change) = change {
        // A machine whose step did not kill the worker is no suspect any more: it yields, and continues as an ordinary job.
        let outcome = match change.outcome {
            Outcome::Next => Outcome::Wait(Wait::YIELD),
            outcome => outcome,
        };
        let change = Change { outcome, ..change };
        core.committer.push(&core, change, &job.claim, &pool).await;
    }
}
