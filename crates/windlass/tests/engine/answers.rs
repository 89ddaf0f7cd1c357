//! Results of jobs that run in the process that waits for them: they come from the commit that ends the job, not from a read.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use windlass::{
    Config,
    model::{Change, CommitOutcome},
    prelude::*,
    store::{Fut, JobEnd, Now, Store, Wrapper},
};

use crate::{
    common::{gate, until},
    on_both_stores,
};

on_both_stores!(
    a_job_that_runs_here_is_answered_without_a_read,
    the_answer_waits_for_the_acknowledgement_of_the_commit,
    a_caller_that_comes_after_the_end_is_answered_by_a_read,
    a_job_that_leaves_this_process_is_still_answered,
);

/// Counts the reads of ends, and can keep the acknowledgements of commits back.
struct Watched {
    store: Arc<dyn Store>,
    reads: AtomicUsize,
    keeps_back: AtomicBool,
    /// The number of commits that the store has done and the engine does not know of.
    kept_back: AtomicUsize,
}

impl Wrapper for Watched {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.store.job_ends(ids)
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(async move {
            let outcomes = self.store.commit(now, changes).await?;
            self.kept_back.fetch_add(1, Ordering::SeqCst);
            while self.keeps_back.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.kept_back.fetch_sub(1, Ordering::SeqCst);
            Ok(outcomes)
        })
    }
}

/// Waits at its gate, and returns the number of the attempt.
#[derive(Serialize, Deserialize)]
struct Gated {
    gate: String,
}

impl Task for Gated {
    const KIND: &'static str = "gated";
    type Output = u32;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u32, Failure> {
        gate(&self.gate).acquire().await.map_err(Failure::stop)?.forget();
        Ok(cx.attempt())
    }
}

async fn open(url: &str) -> (Engine, Arc<Watched>) {
    let store = Engine::open(url).await.expect("opened").store().clone();
    let (reads, keeps_back, kept_back) = Default::default();
    let watched = Arc::new(Watched { store, reads, keeps_back, kept_back });
    let config = Config { drain: Duration::ZERO, ..Config::default() };
    let engine =
        Engine::builder(url).store(Arc::clone(&watched) as Arc<dyn Store>).task::<Gated>().config(config);
    (engine.start().await.expect("started"), watched)
}

/// Submits a job, and returns once it runs.
async fn running(engine: &Engine, name: &str) -> Handle<Gated> {
    let started = engine.counts().started;
    let job = engine.submit(Gated { gate: name.to_owned() }).await.expect("submitted");
    until("it runs", async || engine.counts().started == started + 1).await;
    job
}

async fn a_job_that_runs_here_is_answered_without_a_read(url: &str) {
    let (engine, watched) = open(url).await;
    let name = format!("answers {url}");
    for _ in 0..3 {
        let job = running(&engine, &name).await;
        let open = async { gate(&name).add_permits(1) };
        let (one, other, ()) = tokio::join!(job.result(), job.result(), open);
        assert_eq!((one.expect("done"), other.expect("done")), (1, 1));
    }
    assert_eq!(watched.reads.load(Ordering::SeqCst), 0);
    engine.stop().await;
}

async fn the_answer_waits_for_the_acknowledgement_of_the_commit(url: &str) {
    let (engine, watched) = open(url).await;
    let name = format!("acknowledged {url}");
    let job = running(&engine, &name).await;
    let mut result = Box::pin(job.result());
    assert!(result.as_mut().now_or_never().is_none());
    watched.keeps_back.store(true, Ordering::SeqCst);
    gate(&name).add_permits(1);
    until("the store has done it", async || watched.kept_back.load(Ordering::SeqCst) == 1).await;
    assert!(result.as_mut().now_or_never().is_none(), "the engine cannot know that it is committed");
    watched.keeps_back.store(false, Ordering::SeqCst);
    assert_eq!(result.await.expect("done"), 1);
    engine.stop().await;
}

async fn a_caller_that_comes_after_the_end_is_answered_by_a_read(url: &str) {
    let (engine, watched) = open(url).await;
    let name = format!("late {url}");
    let job = running(&engine, &name).await;
    gate(&name).add_permits(1);
    until("it has ended", async || engine.counts().committed == 1).await;
    assert_eq!(job.result().await.expect("done"), 1);
    assert_eq!(watched.reads.load(Ordering::SeqCst), 1);
    engine.stop().await;
}

/// The worker stops while a caller waits, and the job ends in another process.
async fn a_job_that_leaves_this_process_is_still_answered(url: &str) {
    let (engine, watched) = open(url).await;
    let name = format!("leaves {url}");
    let job = running(&engine, &name).await;
    let mut result = Box::pin(job.result());
    assert!(result.as_mut().now_or_never().is_none());
    assert_eq!(watched.reads.load(Ordering::SeqCst), 0);
    engine.stop().await;
    let (other, _) = open(url).await;
    gate(&name).add_permits(1);
    assert_eq!(result.await.expect("it ended elsewhere"), 1, "it was released");
    assert!(watched.reads.load(Ordering::SeqCst) > 0);
    other.stop().await;
}
