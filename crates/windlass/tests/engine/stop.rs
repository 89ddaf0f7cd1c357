//! What an engine reports when it stops.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use windlass::{prelude::*, store::Error};

use crate::{
    common::{Call, Faults, faulty, until},
    on_both_stores,
    spans::{errors_of, record},
};

on_both_stores!(a_renewal_that_finds_its_worker_retired_reports_no_loss);

/// The first renewal reaches the store only once its worker is retired.
#[derive(Default)]
struct LateRenewal {
    begun: AtomicUsize,
    retired: AtomicBool,
}

impl Faults for LateRenewal {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        if let Call::Renew(_) = call {
            self.begun.fetch_add(1, Ordering::SeqCst);
            while !self.retired.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Nothing;

impl Task for Nothing {
    const KIND: &'static str = "nothing";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

async fn a_renewal_that_finds_its_worker_retired_reports_no_loss(url: &str) {
    record();
    let renewal = Arc::new(LateRenewal::default());
    let engine = faulty(url, &renewal).await.task::<Nothing>().start().await.expect("started");
    let worker = engine.worker().await.expect("it works");
    until("a renewal has begun", async || renewal.begun.load(Ordering::SeqCst) > 0).await;
    let observer = Engine::open(url).await.expect("opened");
    let stopping = tokio::spawn(async move { engine.stop().await });
    until("the worker is retired", async || {
        let workers = observer.inspect().workers().await.expect("workers");
        workers.iter().all(|other| other.id != worker || !other.alive)
    })
    .await;
    renewal.retired.store(true, Ordering::SeqCst);
    stopping.await.expect("stopped");
    assert!(errors_of(worker).is_empty(), "{:?}", errors_of(worker));
}
