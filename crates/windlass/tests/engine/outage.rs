//! A database that goes away and comes back: nothing is lost, nothing is doubled, and nobody has to help.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use windlass::{Config, State, prelude::*};
use windlass_cluster::Cluster;

/// How often each number was executed, and by which fence.
static RUNS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

#[derive(Serialize, Deserialize)]
struct Count {
    n: u64,
    ms: u64,
}

impl Task for Count {
    const KIND: &'static str = "count";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
        RUNS.lock().expect("not poisoned").push(self.n);
        Ok(self.n)
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn server() -> Arc<Mutex<Cluster>> {
    let cluster =
        tokio::task::spawn_blocking(Cluster::start).await.expect("ran").expect("PostgreSQL is needed");
    Arc::new(Mutex::new(cluster))
}

/// Kills the server as a crash of the machine would, and starts it again after a while.
async fn crash(cluster: &Arc<Mutex<Cluster>>, away: Duration) {
    let cluster = Arc::clone(cluster);
    let crash = move || {
        let mut cluster = cluster.lock().expect("not poisoned");
        cluster.kill().expect("killed");
        std::thread::sleep(away);
        cluster.restart().expect("restarted");
    };
    tokio::task::spawn_blocking(crash).await.expect("crashed and restarted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_costs_nothing() {
    let cluster = server().await;
    let place = crate::common::on(&cluster.lock().expect("not poisoned"));
    let config = Config { lease: Duration::from_secs(5), beat: Duration::from_secs(1), ..Config::default() };
    let engine = Engine::open(&place.url).await.expect("opened").task::<Count>().config(config);
    let engine = engine.start().await.expect("started");
    let submitted = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    // A client that goes on submitting throughout, each submit until it is acknowledged.
    let client = tokio::spawn({
        let (engine, submitted, over) = (engine.clone(), Arc::clone(&submitted), Arc::clone(&over));
        async move {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                let batch: Vec<Count> = (n..n + 20).map(|n| Count { n, ms: n % 7 }).collect();
                n += 20;
                engine.submit_all(batch).key(|job| job.n.to_string()).await.expect("ridden out");
                submitted.store(n, Ordering::Relaxed);
            }
            n
        }
    });
    for away in [0, 1_500] {
        let before = engine.counts().committed;
        until("work goes on", async || engine.counts().committed > before + 500).await;
        crash(&cluster, Duration::from_millis(away)).await;
    }
    let before = engine.counts().committed;
    until("work goes on by itself", async || engine.counts().committed > before + 500).await;
    over.store(true, Ordering::Relaxed);
    let n = client.await.expect("the client");

    let done = async || {
        let census = engine.inspect().census(u64::MAX).await.unwrap_or_default();
        census.iter().filter(|c| c.state == State::Done).map(|c| c.jobs).sum::<u64>()
    };
    until("all acknowledged work is done", async || done().await == n).await;
    let counts = engine.counts();
    engine.stop().await;
    let mut runs: Vec<u64> =
        RUNS.lock().expect("not poisoned").iter().copied().filter(|n| *n < 1_000_000).collect();
    runs.sort_unstable();
    let executed = runs.len() as u64;
    runs.dedup();
    assert_eq!(runs.len() as u64, n, "every job was executed");
    assert_eq!(executed, n, "and none twice: {counts:?}");
    assert_eq!(counts.fenced, 0, "the worker was never taken for dead: {counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_outlive_an_outage_longer_than_their_lease() {
    let cluster = server().await;
    let place = crate::common::on(&cluster.lock().expect("not poisoned"));
    let config = |name: &str| Config {
        name: name.into(),
        lease: Duration::from_millis(1_500),
        beat: Duration::from_millis(300),
        ..Config::default()
    };
    let mut engines = Vec::new();
    for name in ["one", "two"] {
        let engine = Engine::open(&place.url).await.expect("opened").task::<Count>().config(config(name));
        engines.push(engine.queue("default", Pool::slots(2)).start().await.expect("started"));
    }
    // Attempts that run through the whole outage.
    let base = 1_000_000;
    let jobs =
        engines[0].submit_all((base..base + 4).map(|n| Count { n, ms: 4_000 })).await.expect("submitted");
    until("all run", async || engines.iter().map(|e| e.counts().started).sum::<u64>() == 4).await;
    crash(&cluster, Duration::from_secs(3)).await;
    for job in jobs {
        engines[0].result::<u64>(job.id).await.expect("done by its first attempt");
        let seen = engines[0].inspect().job(job.id).await.expect("read").expect("there");
        assert_eq!((seen.deaths, seen.epoch.0), (0, 0), "nobody took anybody for dead");
    }
    for engine in &engines {
        assert_eq!(engine.counts().dead_workers, 0);
        engine.stop().await;
    }
    let runs = RUNS.lock().expect("not poisoned");
    assert_eq!(runs.iter().filter(|n| **n >= base).count(), 4, "each ran once");
}
