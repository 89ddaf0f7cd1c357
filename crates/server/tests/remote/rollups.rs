//! What workers on other hosts commit is summed up as soon as what the server's own worker does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use windlass::{
    Time,
    env::{Env, VirtualClock},
    prelude::*,
    store::{Fut, RollUpReport, RollUpRequest, Store, Wrapper},
};

use crate::{
    engine::{remote, soon, url},
    kinds::Double,
    kit::{self, Database, Running, settings},
    on_both,
};

on_both! {
    commits_through_a_server_are_summed_up_every_ten_seconds
}

/// A store that counts the roll-ups that follow commits: those of the pruner are told by what they delete.
struct RollUps {
    store: Arc<dyn Store>,
    count: Arc<AtomicUsize>,
}

impl Wrapper for RollUps {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn roll_up<'a>(&'a self, request: &'a RollUpRequest) -> Fut<'a, RollUpReport> {
        self.count.fetch_add(usize::from(request.hours_before.is_none()), Ordering::SeqCst);
        self.store.roll_up(request)
    }
}

async fn commits_through_a_server_are_summed_up_every_ten_seconds(database: Database) {
    let (dir, engine) = kit::engine(database).await;
    let count = Arc::new(AtomicUsize::new(0));
    let store = RollUps { store: Arc::clone(engine.store()), count: Arc::clone(&count) };
    let clock = Arc::new(VirtualClock::new(Time::from_system(SystemTime::now())));
    let engine =
        Engine::builder(engine.url()).store(Arc::new(store)).env(Env::with_clock(Arc::clone(&clock)));
    let engine = engine.open().await.expect("an engine");
    engine.start_maintenance().await.expect("maintenance");
    let server = Running::on(dir, engine, settings()).await;
    let worker = remote(&url(&server), None).await.expect("an engine");
    worker.start().await.expect("a worker");
    let job = worker.submit(Double { test: format!("sums {database:?}"), n: 4 }).await.expect("submitted");
    assert_eq!(soon(job.result()).await.expect("an output"), 8);
    assert_eq!(count.load(Ordering::SeqCst), 0, "ten seconds have not passed");
    clock.set(clock.now() + Duration::from_secs(11));
    soon(async {
        while count.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    worker.stop().await;
}
