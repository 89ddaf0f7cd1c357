//! Running suspects, one at a time and alone if that can be had.

use std::sync::{Arc, atomic::Ordering};

use windlass_model::{ClaimNo, crash::time_alone};

use crate::{
    executor::Watch,
    feeder::claim,
    pool::{Job, QueuePool},
    worker::Core,
};

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        tokio::select! {
            () = core.suspects.notified() => {}
            () = core.stopping() => return,
        }
        for pool in &core.pools {
            while !core.is_stopping() {
                match claim(&core, pool, 1, true).await {
                    Some((_, jobs)) if !jobs.is_empty() => {
                        for job in jobs {
                            tick(&core, pool, job).await;
                        }
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Runs one suspect: alone for a while if the others leave in time, in company otherwise.
async fn tick(core: &Arc<Core>, pool: &Arc<QueuePool>, job: Job) {
    let (span, number) = (time_alone(job.claimed.deaths), job.number);
    let watch = Arc::new(Watch::default());
    pool.watch(Arc::clone(&watch));
    core.alone.fetch_add(1, Ordering::AcqRel);
    let alone = core.company.alone(span).await;
    let seat = match alone {
        Some(_) => None,
        None => {
            join(core, number).await;
            Some(core.company.join().await)
        }
    };
    // In a task of its own: if it blocks its thread, the others must still be let in when its time is over.
    let mut run = core.runtime.spawn({
        let (core, watch) = (Arc::clone(core), Arc::clone(&watch));
        async move { core.attempt(job, &watch).await }
    });
    let ended = match alone {
        Some(alone) => tokio::select! {
            ended = &mut run => ended,
            () = tokio::time::sleep(span) => {
                // From now on its death no longer proves anything; the store is told before company comes.
                join(core, number).await;
                drop(alone);
                run.await
            }
        },
        None => run.await,
    };
    drop(seat);
    pool.unwatch(&watch);
    if let Ok(Some(change)) = ended {
        core.committer.push(core, change, number, pool).await;
    }
    core.alone.fetch_sub(1, Ordering::AcqRel);
}

/// Tells the store that a claim no longer runs alone.
async fn join(core: &Arc<Core>, number: ClaimNo) {
    core.ledger.joined(number);
    core.renew_now().await;
}
