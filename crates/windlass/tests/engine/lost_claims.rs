//! A worker whose store has lost a claim: it was restored from a backup, or is a standby that lagged behind.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use windlass::{
    Config,
    prelude::*,
    store::{Error, Store},
};

use crate::{
    common::{Call, Faults, faulty},
    on_both_stores,
};

on_both_stores!(attempts_of_a_lost_claim_are_dropped);

/// Loses the first claim that has jobs, after the worker has received it.
struct LosesFirstClaim {
    store: Arc<dyn Store>,
    is_lost: AtomicBool,
}

impl Faults for LosesFirstClaim {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        if let Call::Claimed(request, batch) = call
            && !batch.jobs.is_empty()
            && !self.is_lost.swap(true, Ordering::SeqCst)
        {
            self.store.release_claims(None, request.worker, &[request.number]).await?;
        }
        Ok(())
    }
}

/// Notifies when its attempt is dropped.
struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// The attempts of one test.
#[derive(Default)]
struct Attempts {
    runs: AtomicUsize,
    dropped: Arc<Notify>,
}

/// By the URL of the test's store.
static ATTEMPTS: Mutex<BTreeMap<String, Arc<Attempts>>> = Mutex::new(BTreeMap::new());

fn attempts(url: &str) -> Arc<Attempts> {
    Arc::clone(ATTEMPTS.lock().expect("attempts").entry(url.to_owned()).or_default())
}

/// Hangs in its first attempt.
#[derive(Serialize, Deserialize)]
struct Hangs {
    url: String,
}

impl Task for Hangs {
    const KIND: &'static str = "hangs";
    type Output = usize;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<usize, Failure> {
        let attempts = attempts(&self.url);
        let run = attempts.runs.fetch_add(1, Ordering::SeqCst);
        if run == 0 {
            let _guard = OnDrop(Arc::clone(&attempts.dropped));
            std::future::pending::<()>().await;
        }
        Ok(run)
    }
}

async fn attempts_of_a_lost_claim_are_dropped(url: &str) {
    let submitter = Engine::open(url).await.expect("opened");
    let id = submitter.submit(Hangs { url: url.to_owned() }).await.expect("submitted").id();
    let faults = LosesFirstClaim { store: submitter.store().clone(), is_lost: AtomicBool::new(false) };
    let config = Config {
        lease: Duration::from_secs(60),
        renew_every: Duration::from_millis(50),
        ..Config::default()
    };
    let engine = faulty(url, &Arc::new(faults)).await.task::<Hangs>().config(config);
    let engine = engine.start().await.expect("started");
    let dropped = attempts(url).dropped.clone();
    let waited = tokio::time::timeout(Duration::from_secs(60), dropped.notified()).await;
    assert!(waited.is_ok(), "the attempt under a claim that the store does not know continues");
    assert_eq!(engine.result::<usize>(id).await.expect("done"), 1, "the second attempt's outcome is kept");
    engine.stop().await;
}
