//! Running suspects, one at a time and alone if that can be had.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::FutureExt;

use windlass_model::{Change, Outcome, Wait, crash::solo_time};

use crate::{
    executor::Watch,
    feeder::claim,
    pool::{Job, QueuePool},
    worker::Core,
};

/// After waiting in vain to be alone, how many times as long nobody waits again: newcomers are held up for a tenth of
/// the time at most.
const RESPITE: u32 = 10;

/// Further away than this is looked for when something else happens.
const FAR: Duration = Duration::from_secs(600);

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut no_wait_until = Instant::now();
    loop {
        tokio::select! {
            () = core.suspects.notified() => {}
            () = core.stopping() => return,
        }
        for pool in &core.pools {
            while !core.is_stopping() && core.alone.load(Ordering::Acquire) < pool.config.slots {
                match claim(&core, pool, 1, true).await {
                    Some((_, jobs)) if !jobs.is_empty() => {
                        for job in jobs {
                            tick(&core, pool, job, &mut no_wait_until).await;
                        }
                    }
                    Some((haul, _)) => {
                        // They wait for a rate limit: look again when it has something for them.
                        if let Some(at) = haul.refill_at {
                            let core = Arc::clone(&core);
                            let wait = at.since(haul.now).min(FAR);
                            tokio::spawn(async move {
                                tokio::time::sleep(wait).await;
                                core.suspects.notify_one();
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

/// A suspect that is run, or about to be: a worker that stops waits for it.
struct Alone(Arc<Core>);

impl Alone {
    fn of(core: &Arc<Core>) -> Alone {
        core.alone.fetch_add(1, Ordering::AcqRel);
        Alone(Arc::clone(core))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.alone.fetch_sub(1, Ordering::AcqRel);
        // There may be more who waited for room.
        self.0.suspects.notify_one();
    }
}

/// Runs one suspect: alone for a while if the others leave in time, in company otherwise. Returns when it has ended or
/// has company: then the next one may have its turn.
async fn tick(core: &Arc<Core>, pool: &Arc<QueuePool>, job: Job, no_wait_until: &mut Instant) {
    let (span, number) = (solo_time(job.claimed.worker_deaths), job.claim.number);
    let patience = if Instant::now() < *no_wait_until { Duration::ZERO } else { span };
    let alone = tokio::select! {
        alone = core.solo_lock.solo(patience) => alone,
        () = core.stopping() => return,
    };
    if alone.is_none() {
        if !patience.is_zero() {
            *no_wait_until = Instant::now() + span * RESPITE;
        }
        core.joined(number).await;
    }
    // Before it is looked whether the worker stops: either that is seen here, or this is seen by it.
    let place = Alone::of(core);
    if alone.is_some() && !core.may_start(&job).await {
        return;
    }
    // In a task of its own: if it blocks its thread, the others must still be let in when its time is over.
    let attempt = attempt(Arc::clone(core), Arc::clone(pool), job, alone.is_none());
    let mut run = core.runtime.spawn(async move {
        let _place = place;
        attempt.await;
    });
    if let Some(alone) = alone {
        tokio::select! {
            _ = &mut run => {}
            () = tokio::time::sleep(span) => {
                // From now on its death no longer proves anything; the store is told before company comes.
                core.joined(number).await;
                let seat = alone.downgrade();
                core.runtime.spawn(async move {
                    let _ = run.await;
                    drop(seat);
                });
            }
        }
    }
}

/// One attempt of a suspect, to the commit of its outcome.
async fn attempt(core: Arc<Core>, pool: Arc<QueuePool>, job: Job, in_company: bool) {
    let seat = match in_company {
        true => match core.seat(&job).await {
            Some(seat) => Some(seat),
            None => return,
        },
        false => None,
    };
    let watch = Arc::new(Watch::default());
    pool.watch(Arc::clone(&watch));
    let ended = AssertUnwindSafe(core.attempt(&job, &pool, &watch)).catch_unwind().await;
    drop(seat);
    pool.unwatch(&watch);
    let change = match ended {
        Ok(change) => change,
        Err(panic) => core.after_panic(&watch, &*panic),
    };
    if let Some(change) = change {
        // A machine has shown that it does not kill its worker: it goes on among the others.
        let outcome = match change.outcome {
            Outcome::Next => Outcome::Wait(Wait::YIELD),
            outcome => outcome,
        };
        let change = Change { outcome, ..change };
        core.committer.push(&core, change, &job.claim, &pool).await;
    }
}
