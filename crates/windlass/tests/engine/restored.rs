//! A worker whose store has lost a claim: it was restored from a backup, or is a standby that had not got everything.

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
    store::{ClaimBatch, ClaimRequest, Fut, Now, Store, Wrapper},
};

use crate::on_both_stores;

on_both_stores!(attempts_of_a_lost_claim_are_dropped);

/// A store that forgets the first claim it answers.
struct Forgetful {
    store: Arc<dyn Store>,
    forgot: AtomicBool,
}

impl Wrapper for Forgetful {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(async move {
            let haul = self.store.claim(now, ask).await?;
            if !haul.jobs.is_empty() && !self.forgot.swap(true, Ordering::SeqCst) {
                self.store.release_claims(now, ask.worker, &[ask.number]).await?;
            }
            Ok(haul)
        })
    }
}

/// Says that its attempt was dropped.
struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// What the attempts of one test did.
#[derive(Default)]
struct Seen {
    runs: AtomicUsize,
    dropped: Arc<Notify>,
}

/// By the address of the test's store.
static SEEN: Mutex<BTreeMap<String, Arc<Seen>>> = Mutex::new(BTreeMap::new());

fn seen(url: &str) -> Arc<Seen> {
    Arc::clone(SEEN.lock().expect("what was seen").entry(url.to_owned()).or_default())
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
        let seen = seen(&self.url);
        let run = seen.runs.fetch_add(1, Ordering::SeqCst);
        if run == 0 {
            let _guard = OnDrop(Arc::clone(&seen.dropped));
            std::future::pending::<()>().await;
        }
        Ok(run)
    }
}

async fn attempts_of_a_lost_claim_are_dropped(url: &str) {
    let submitter = Engine::open(url).await.expect("opened");
    let store = submitter.store().clone();
    let id = submitter.submit(Hangs { url: url.to_owned() }).await.expect("submitted").id();
    let forgetful = Forgetful { store, forgot: AtomicBool::new(false) };
    let config = Config {
        lease: Duration::from_secs(60),
        renew_every: Duration::from_millis(50),
        ..Config::default()
    };
    let engine = Engine::on(url, Arc::new(forgetful)).task::<Hangs>().config(config);
    let engine = engine.start().await.expect("started");
    let dropped = seen(url).dropped.clone();
    let waited = tokio::time::timeout(Duration::from_secs(60), dropped.notified()).await;
    assert!(waited.is_ok(), "the attempt under a claim that the store does not know goes on");
    assert_eq!(engine.result::<usize>(id).await.expect("done"), 1, "the second attempt's outcome is kept");
    engine.stop().await;
}
