//! A workflow whose code blocks its thread while a transaction of its own is settled: the outcomes of others are committed all
//! the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use windlass::{
    AnyError,
    model::{Change, CommitOutcome},
    prelude::*,
    store::{Error, Fut, Now, Store, Work, delegate_store},
};

use crate::on_both_stores;

on_both_stores!(a_settling_transaction_holds_nobody_up);

/// How long the thread is blocked at most.
const BLOCKED: Duration = Duration::from_secs(10);

/// What happens, by store.
struct Seen {
    /// The transaction was made, and its answer lost.
    lost: AtomicBool,
    /// It is being settled.
    settling: AtomicBool,
    /// The thread is blocked.
    blocks: AtomicBool,
    /// It may go on.
    goes_on: AtomicBool,
}

static SEEN: [Seen; 2] = [const { Seen::new() }, const { Seen::new() }];

impl Seen {
    const fn new() -> Seen {
        let [lost, settling, blocks, goes_on] = [const { AtomicBool::new(false) }; 4];
        Seen { lost, settling, blocks, goes_on }
    }
}

async fn until(what: &str, holds: &AtomicBool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !holds.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "not within 40 s: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A store that loses the answer to the first transaction, and does not settle it before a thread is blocked.
struct Losing {
    store: Arc<dyn Store>,
    seen: &'static Seen,
}

impl Store for Losing {
    fn transact<'a>(&'a self, now: Now, work: Work<'a>) -> Fut<'a, Option<CommitOutcome>> {
        Box::pin(async move {
            let verdict = self.store.transact(now, work).await?;
            match self.seen.lost.swap(true, Ordering::SeqCst) {
                true => Ok(verdict),
                false => Err(Error::Unavailable("the answer was lost".into())),
            }
        })
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(async move {
            if self.seen.lost.load(Ordering::SeqCst) && !self.seen.settling.swap(true, Ordering::SeqCst) {
                until("a thread is blocked", &self.seen.blocks).await;
            }
            self.store.commit(now, changes).await
        })
    }

    delegate_store!(
        register_worker submit claim signal renew reap release release_claims retire_worker fire_timers cancel_requests repair poll_branches gates job_ends sibling rest
    );
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

/// Makes a transaction, and blocks its thread beside it.
#[derive(Serialize, Deserialize)]
struct Blocks {
    postgres: bool,
}

impl Workflow for Blocks {
    const KIND: &'static str = "blocks";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let seen = &SEEN[usize::from(self.postgres)];
        let transaction = flow.transaction("write");
        let transaction = async {
            match self.postgres {
                true => transaction.in_postgres(|_| Box::pin(async { Ok::<_, AnyError>(()) })).await,
                false => transaction.in_sqlite(|_| Ok::<_, AnyError>(())).await,
            }
        };
        let step = flow.step("block", async || {
            until("it is settled", &seen.settling).await;
            seen.blocks.store(true, Ordering::SeqCst);
            let since = Instant::now();
            while !seen.goes_on.load(Ordering::SeqCst) && since.elapsed() < BLOCKED {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok::<_, Failure>(())
        });
        let (written, blocked) = tokio::join!(transaction, step);
        written.map_err(Failure::from)?;
        blocked
    }
}

async fn a_settling_transaction_holds_nobody_up(url: &str) {
    let postgres = url.starts_with("postgres");
    let seen = &SEEN[usize::from(postgres)];
    let store = Engine::open(url).await.expect("opened").store().clone();
    let engine = Engine::on(url, Arc::new(Losing { store, seen })).workflow::<Blocks>().task::<Quick>();
    let engine = engine.start().await.expect("started");
    // With nothing to run, the other thread would leave timers and sockets to the one that is blocked.
    let awake = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let blocks = engine.submit(Blocks { postgres }).await.expect("submitted");
    until("the thread is blocked", &seen.blocks).await;
    let since = Instant::now();
    engine.submit(Quick).await.expect("submitted").result().await.expect("done");
    assert!(since.elapsed() < BLOCKED / 2, "done while the thread is blocked: {:?}", since.elapsed());
    seen.goes_on.store(true, Ordering::SeqCst);
    blocks.result().await.expect("done");
    awake.abort();
    engine.stop().await;
}
