//! Running suspects, one at a time and alone if that can be had.

use std::sync::Arc;

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
    let change = match core.company.alone(span).await {
        Some(alone) => {
            let run = core.attempt(job, &watch);
            tokio::pin!(run);
            tokio::select! {
                change = &mut run => change,
                () = tokio::time::sleep(span) => {
                    // From now on its death no longer proves anything; the store is told before company comes.
                    join(core, number).await;
                    drop(alone);
                    run.await
                }
            }
        }
        None => {
            join(core, number).await;
            let seat = core.company.join().await;
            let change = core.attempt(job, &watch).await;
            drop(seat);
            change
        }
    };
    pool.unwatch(&watch);
    if let Some(change) = change {
        core.committer.push(core, change, number, pool).await;
    }
}

/// Tells the store that a claim no longer runs alone.
async fn join(core: &Arc<Core>, number: ClaimNo) {
    core.ledger.joined(number);
    core.renew_now().await;
}
