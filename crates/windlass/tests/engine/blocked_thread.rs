//! A workflow whose code blocks its thread while the engine finds out whether its transaction was committed: other jobs must
//! be committed meanwhile.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use windlass::{Failure, prelude::*, store::Error};

use crate::{
    common::{Call, Faults, faulty, until},
    on_both_stores,
};

on_both_stores!(other_jobs_are_committed_while_a_blocked_thread_settles_its_transaction);

/// How long the thread is blocked at most.
const BLOCKED: Duration = Duration::from_secs(10);

/// What has happened so far.
#[derive(Default)]
struct Progress {
    /// The transaction was committed, and its answer lost.
    lost: AtomicBool,
    /// The commit that settles it was begun.
    settling: AtomicBool,
    /// The thread is blocked.
    is_blocked: AtomicBool,
    /// The thread may continue.
    unblocked: AtomicBool,
}

/// By store: SQLite, PostgreSQL.
static PROGRESS: [LazyLock<Arc<Progress>>; 2] = [const { LazyLock::new(Arc::default) }; 2];

async fn until_set(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl Faults for Progress {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        match call {
            Call::Transacted if !self.lost.swap(true, Ordering::SeqCst) => {
                Err(Error::Unavailable("the answer was lost".into()))
            }
            Call::Commit
                if self.lost.load(Ordering::SeqCst) && !self.settling.swap(true, Ordering::SeqCst) =>
            {
                until_set(&self.is_blocked).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Quick;

impl Task for Quick {
    const KIND: &'static str = "quick";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

/// Makes a transaction, and blocks its thread at the same time.
#[derive(Serialize, Deserialize)]
struct Blocks {
    postgres: bool,
}

impl Workflow for Blocks {
    const KIND: &'static str = "blocks";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let progress = &PROGRESS[usize::from(self.postgres)];
        let transaction = flow.transaction("write");
        let transaction = async {
            match self.postgres {
                true => transaction.in_postgres(|_| Box::pin(async { Ok(()) })).await,
                false => transaction.in_sqlite(|_| Ok(())).await,
            }
        };
        let step = flow.step("block", async || {
            until_set(&progress.settling).await;
            progress.is_blocked.store(true, Ordering::SeqCst);
            let since = Instant::now();
            while !progress.unblocked.load(Ordering::SeqCst) && since.elapsed() < BLOCKED {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        });
        let (written, blocked) = tokio::join!(transaction, step);
        written?;
        blocked
    }
}

async fn other_jobs_are_committed_while_a_blocked_thread_settles_its_transaction(url: &str) {
    let postgres = url.starts_with("postgres");
    let progress = &PROGRESS[usize::from(postgres)];
    let engine = faulty(url, progress).await.workflow::<Blocks>().task::<Quick>();
    let engine = engine.start().await.expect("started");
    // With nothing to run, the other thread would leave timers and sockets to the one that is blocked.
    let awake = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let blocks = engine.submit(Blocks { postgres }).await.expect("submitted");
    until("the thread is blocked", async || progress.is_blocked.load(Ordering::SeqCst)).await;
    let since = Instant::now();
    engine.submit(Quick).await.expect("submitted").result().await.expect("done");
    assert!(since.elapsed() < BLOCKED / 2, "done while the thread is blocked: {:?}", since.elapsed());
    progress.unblocked.store(true, Ordering::SeqCst);
    blocks.result().await.expect("done");
    awake.abort();
    engine.stop().await;
}
