//! A database that fails and recovers: no job is lost, none runs twice, and nobody has to intervene.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use windlass::{
    Config, MachineCx, State,
    prelude::*,
    store::{
        postgres::{Options, Postgres},
        tokio_postgres,
    },
};
use windlass_testpg::{Cluster, Proxy};

use crate::common::{postgres_on, until};

/// The numbers of all attempts.
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

async fn server() -> Arc<Mutex<Cluster>> {
    let cluster =
        tokio::task::spawn_blocking(Cluster::start).await.expect("ran").expect("PostgreSQL is needed");
    Arc::new(Mutex::new(cluster))
}

/// Kills the server as a crash of the machine would, and starts it again after a while.
async fn crash(cluster: &Arc<Mutex<Cluster>>, down_for: Duration) {
    let cluster = Arc::clone(cluster);
    let crash = move || {
        let mut cluster = cluster.lock().expect("not poisoned");
        cluster.kill().expect("killed");
        std::thread::sleep(down_for);
        cluster.restart().expect("restarted");
    };
    tokio::task::spawn_blocking(crash).await.expect("crashed and restarted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_and_repeats_no_job() {
    let cluster = server().await;
    let place = postgres_on(&cluster.lock().expect("not poisoned"));
    let config =
        Config { lease: Duration::from_secs(5), renew_every: Duration::from_secs(1), ..Config::default() };
    let engine = Engine::builder(&place.url).task::<Count>().config(config);
    let engine = engine.start().await.expect("started");
    let submitted = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    // A client that submits throughout, and waits until each submit is acknowledged.
    let client = tokio::spawn({
        let (engine, submitted, over) = (engine.clone(), Arc::clone(&submitted), Arc::clone(&over));
        async move {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                let batch: Vec<Count> = (n..n + 20).map(|n| Count { n, ms: n % 7 }).collect();
                n += 20;
                engine
                    .submit_all(batch)
                    .key(|job| job.n.to_string())
                    .await
                    .expect("retried until the server is back");
                submitted.store(n, Ordering::Relaxed);
            }
            n
        }
    });
    for down_for in [0, 1_500] {
        let before = engine.counts().committed;
        until("jobs run", async || engine.counts().committed > before + 500).await;
        crash(&cluster, Duration::from_millis(down_for)).await;
    }
    let before = engine.counts().committed;
    until("jobs run again", async || engine.counts().committed > before + 500).await;
    over.store(true, Ordering::Relaxed);
    let n = client.await.expect("the client");

    let done = async || {
        let counts = engine.inspect().state_counts().await.unwrap_or_default();
        counts.iter().filter(|c| c.state == State::Done).map(|c| c.jobs).sum::<u64>()
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
    assert_eq!(counts.fenced, 0, "the worker was never declared dead: {counts:?}");
}

/// Describes an engine on a store that gives up waiting for an answer after `patience`.
async fn impatient(url: &str, patience: Duration) -> windlass::Builder {
    let options = Options::parse(url).expect("an address").patience(patience);
    Engine::builder(url).store(Arc::new(Postgres::open(options).await.expect("opened")))
}

/// A minute without a server, scaled down: the outage is longer than the lease and the store's patience together, as a minute is
/// with their defaults (15 s and 10 s).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_outlive_an_outage_longer_than_their_lease() {
    let cluster = server().await;
    let place = postgres_on(&cluster.lock().expect("not poisoned"));
    let config = |name: &str| Config {
        name: name.into(),
        lease: Duration::from_millis(1_500),
        renew_every: Duration::from_millis(300),
        ..Config::default()
    };
    let mut engines = Vec::new();
    for name in ["one", "two"] {
        let engine = impatient(&place.url, Duration::from_millis(500)).await;
        let engine = engine.task::<Count>().config(config(name));
        engines.push(engine.queue("default", Pool::slots(2)).start().await.expect("started"));
    }
    // Attempts that run during the entire outage.
    let base = 1_000_000;
    let jobs =
        engines[0].submit_all((base..base + 4).map(|n| Count { n, ms: 4_000 })).await.expect("submitted");
    until("all run", async || engines.iter().map(|e| e.counts().started).sum::<u64>() == 4).await;
    crash(&cluster, Duration::from_secs(3)).await;
    for job in jobs {
        engines[0].result::<u64>(job.id().expect("submitted")).await.expect("done by its first attempt");
        let seen = engines[0]
            .inspect()
            .job(job.id().expect("submitted"))
            .await
            .expect("read")
            .expect("the job exists");
        assert_eq!((seen.worker_deaths, seen.epoch.0), (0, 0), "no worker was declared dead");
    }
    for engine in &engines {
        assert_eq!(engine.counts().dead_workers, 0);
        engine.stop().await;
    }
    let runs = RUNS.lock().expect("not poisoned");
    assert_eq!(runs.iter().filter(|n| **n >= base).count(), 4, "each ran once");
}

/// Climbs step by step; each transition is recorded.
#[derive(Serialize, Deserialize)]
enum Climb {
    At { n: u64, height: u64 },
}

/// The number of steps of a climb and of a walk.
const STEPS: u64 = 10;

impl Machine for Climb {
    const KIND: &'static str = "climb";
    type Output = u64;
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Climb>, Failure> {
        let Climb::At { n, height } = self;
        tokio::time::sleep(Duration::from_millis(n % 5)).await;
        Ok(match height {
            STEPS => Next::done(n + height),
            height => Next::to(Climb::At { n, height: height + 1 }),
        })
    }
}

/// Adds up what its steps return, with a sleep in the middle.
#[derive(Serialize, Deserialize)]
struct Walk {
    n: u64,
}

impl Workflow for Walk {
    const KIND: &'static str = "walk";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let mut sum = self.n;
        for step in 0..STEPS {
            sum += flow.step("step", async || Ok(1)).key(step).await?;
            if step == STEPS / 2 {
                flow.sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(sum)
    }
}

/// Adds up what its children return.
#[derive(Serialize, Deserialize)]
struct Fan {
    children: u64,
}

/// A child of a branch.
#[derive(Serialize, Deserialize)]
struct Number {
    n: u64,
}

impl Task for Number {
    const KIND: &'static str = "outage_number";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        tokio::time::sleep(Duration::from_millis(self.n % 5)).await;
        Ok(self.n)
    }
}

impl Workflow for Fan {
    const KIND: &'static str = "outage_fan";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let branch =
            flow.branch("numbers").chunk(250).spawn_each("number", 0..self.children, |n| Number { n });
        branch.automerge().reduce(0, |sum: u64, n: u64| sum + n).await
    }
}

/// What a job returns. Panics with its state after a minute.
async fn result_of(engine: &Engine, id: windlass::JobId) -> u64 {
    match tokio::time::timeout(Duration::from_secs(60), engine.result::<u64>(id)).await {
        Ok(result) => result.expect("done"),
        Err(_) => {
            let seen = engine.inspect().job(id).await;
            panic!(
                "not within a minute: {seen:#?}, {:?}, {:?}",
                engine.inspect().holds(id).await,
                engine.counts()
            );
        }
    }
}

/// Kills the server twice while jobs run, the second time for longer.
async fn kill_twice(cluster: &Arc<Mutex<Cluster>>, engine: &Engine) {
    for down_for in [0, 1_500] {
        let before = engine.counts().committed;
        until("jobs run", async || engine.counts().committed > before + 100).await;
        crash(cluster, Duration::from_millis(down_for)).await;
    }
}

/// An engine for all kinds on a server of its own.
async fn all_kinds() -> (Arc<Mutex<Cluster>>, Engine) {
    let cluster = server().await;
    let place = postgres_on(&cluster.lock().expect("not poisoned"));
    let config =
        Config { lease: Duration::from_secs(5), renew_every: Duration::from_secs(1), ..Config::default() };
    let engine = Engine::builder(&place.url).config(config);
    let engine = engine.machine::<Climb>().workflow::<Walk>().workflow::<Fan>().task::<Number>();
    (cluster, engine.queue("default", Pool::slots(16)).start().await.expect("started"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_machines_costs_no_transition() {
    let (cluster, engine) = all_kinds().await;
    let jobs = engine.submit_all((0..400).map(|n| Climb::At { n, height: 0 })).await.expect("submitted");
    kill_twice(&cluster, &engine).await;
    for (n, job) in jobs.iter().enumerate() {
        assert_eq!(result_of(&engine, job.id().expect("submitted")).await, n as u64 + STEPS);
        let steps =
            engine.inspect().transitions(job.id().expect("submitted"), None, 100).await.expect("steps");
        assert_eq!(steps.len() as u64, STEPS + 1, "each transition is recorded once");
    }
    assert_eq!(engine.counts().fenced, 0, "the worker was never declared dead");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_workflows_costs_no_step() {
    let (cluster, engine) = all_kinds().await;
    let jobs = engine.submit_all((0..200).map(|n| Walk { n })).await.expect("submitted");
    kill_twice(&cluster, &engine).await;
    for (n, job) in jobs.iter().enumerate() {
        assert_eq!(result_of(&engine, job.id().expect("submitted")).await, n as u64 + STEPS);
    }
    assert_eq!(engine.counts().fenced, 0, "the worker was never declared dead");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_a_branch_costs_no_child() {
    let (cluster, engine) = all_kinds().await;
    let children = 3_000;
    let job = engine.submit(Fan { children }).await.expect("submitted");
    kill_twice(&cluster, &engine).await;
    assert_eq!(result_of(&engine, job.id()).await, (0..children).sum::<u64>());
    let branches = engine.inspect().branches(job.id()).await.expect("branches");
    let seen: Vec<_> = branches.iter().map(|branch| (branch.spawned, branch.counts.ends())).collect();
    assert_eq!(seen, [(children as i64, (children as i64, 0, 0))], "each was spawned and counted once");
    assert_eq!(engine.counts().fenced, 0, "the worker was never declared dead");
    engine.stop().await;
}

/// A server that was made a standby: it can be read, but not written.
fn standby() -> Cluster {
    let mut standby = Cluster::builder().setting("fsync", "off").start().expect("PostgreSQL is needed");
    standby.stop().expect("stopped");
    std::fs::write(standby.data_dir().join("standby.signal"), "").expect("written");
    standby.restart().expect("restarted");
    standby
}

/// The address leads to a standby for a while. A worker that has connected to the standby must leave it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_reconnects_from_a_standby_to_the_primary() {
    let cluster = server().await;
    let standby = tokio::task::spawn_blocking(standby).await.expect("a server");
    let primary = cluster.lock().expect("not poisoned").port();
    let proxy = Proxy::to(primary).expect("a proxy");
    let url = format!("postgres://windlass@127.0.0.1:{}/windlass?schema=moved", proxy.port());
    let config = Config {
        lease: Duration::from_secs(5),
        renew_every: Duration::from_millis(200),
        ..Config::default()
    };
    let engine = Engine::builder(&url).task::<Number>().config(config);
    let engine = engine.start().await.expect("started");
    assert_eq!(engine.submit(Number { n: 1 }).await.expect("submitted").result().await.expect("done"), 1);
    proxy.retarget(standby.port());
    proxy.cut();
    let sessions = "select pid from pg_stat_activity where application_name = 'windlass'";
    let now =
        || standby.sql("windlass", sessions).expect("sql").lines().map(str::to_owned).collect::<Vec<_>>();
    // A refused session is closed at once, so they seldom exist at the same time.
    let mut sessions_seen = std::collections::BTreeSet::new();
    until("the worker and its renewer were connected to the standby", async || {
        sessions_seen.extend(now());
        sessions_seen.len() >= 2
    })
    .await;
    proxy.retarget(primary);
    let job = tokio::time::timeout(Duration::from_secs(30), async {
        engine.submit(Number { n: 2 }).await.expect("submitted").result().await
    });
    assert_eq!(job.await.expect("it reconnects by itself").expect("done"), 2);
    until("no session to the standby is left", async || now().is_empty()).await;
    engine.stop().await;
}

/// A row of a table of the user.
#[derive(Serialize, Deserialize)]
struct Row {
    id: u64,
}

/// Adds up the rows of a table of the user, each in a child.
#[derive(Serialize, Deserialize)]
struct FanOfRows;

impl Workflow for FanOfRows {
    const KIND: &'static str = "outage_fan_of_rows";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let rows = Rows::<Row>::table("public.outage_rows");
        let branch = flow.branch("rows").spawn_each("row", rows, |row| Number { n: row.id });
        branch.automerge().reduce(0, |sum: u64, n: u64| sum + n).await
    }
}

/// A source that does not answer delays only its parent, which gives up its slot and tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_does_not_answer_costs_no_slot() {
    let cluster = server().await;
    let place = postgres_on(&cluster.lock().expect("not poisoned"));
    let sql =
        |statements: &str| cluster.lock().expect("not poisoned").sql("windlass", statements).expect("sql");
    sql("create table outage_rows as select generate_series(1, 10)::int8 as id");
    let engine = impatient(&place.url, Duration::from_millis(200)).await;
    let engine = engine.workflow::<FanOfRows>().task::<Number>().queue("default", Pool::slots(1));
    let engine = engine.start().await.expect("started");
    // The server accepts the query and does not answer it.
    let url = cluster.lock().expect("not poisoned").url();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    client.batch_execute("begin; lock table outage_rows in access exclusive mode").await.expect("locked");
    let parent = engine.submit(FanOfRows).await.expect("submitted");
    let waits =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%outage_rows%'";
    until("its rows are queried", async || sql(waits) != "0").await;
    let other = engine.submit(Number { n: 7 }).await.expect("submitted");
    until("the only slot is free for others", async || {
        engine
            .inspect()
            .job(other.id())
            .await
            .is_ok_and(|job| job.is_some_and(|job| job.summary.state == State::Done))
    })
    .await;
    client.batch_execute("rollback").await.expect("unlocked");
    let sum = tokio::time::timeout(Duration::from_secs(60), parent.result()).await;
    assert_eq!(sum.expect("within a minute").expect("done"), (1..=10).sum::<u64>());
    engine.stop().await;
}
