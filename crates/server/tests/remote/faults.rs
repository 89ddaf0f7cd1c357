//! Nothing is lost and nothing is committed twice, whatever happens between a worker and its server.

use std::{net::SocketAddr, time::Duration};

use tokio::sync::oneshot;
use windlass::{Engine, JobId, State, prelude::*};
use windlass_server::{Server, Settings};

use crate::{
    engine::{host, remote, soon},
    kinds::{Counter, Double, Tour, executions},
    kit::{self, Database, Running, settings},
    on_both,
    proxy::Proxy,
};

on_both! {
    lost_answers_and_cut_connections_lose_and_repeat_nothing
    a_server_that_is_killed_and_restarted_loses_and_repeats_nothing
    two_servers_behind_a_load_balancer_are_one
}

const TASKS: u64 = 300;
const MACHINES: u64 = 20;
const STEPS: u32 = 25;
const TOURS: u64 = 6;

/// The jobs of a test.
struct Work {
    test: String,
    tasks: Vec<Handle<Double>>,
    machines: Vec<Handle<Counter>>,
    tours: Vec<Handle<Tour>>,
}

impl Work {
    /// Submits through the engine that is given: it may be behind the faults too.
    async fn submit(engine: &Engine, test: String) -> Work {
        let (mut tasks, mut machines, mut tours) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..TASKS {
            tasks.push(engine.submit(Double { test: test.clone(), n }).await.expect("submitted"));
        }
        for _ in 0..MACHINES {
            machines.push(engine.submit(Counter::At { n: 0, of: STEPS }).await.expect("submitted"));
        }
        for n in 0..TOURS {
            let tour = engine.submit(Tour { test: test.clone(), n }).await.expect("submitted");
            engine.signal(tour.id(), "go", 7u64).await.expect("delivered");
            tours.push(tour);
        }
        Work { test, tasks, machines, tours }
    }

    /// Waits until all have ended, and checks what they left in the store, which `host` reads directly.
    async fn check(self, host: &Engine) {
        let output = async |id: JobId| -> u64 { soon(host.result(id)).await.expect("an output") };
        for (n, task) in self.tasks.iter().enumerate() {
            let n = n as u64;
            assert_eq!(output(task.id()).await, 2 * n);
            let job = host.inspect().job(task.id()).await.expect("read").expect("it exists");
            let attempts = if n % 7 == 3 { 2 } else { 1 };
            assert_eq!(job.rev.0, attempts, "task {n} was committed once per attempt");
            let ran =
                executions().lock().expect("no panic").get(&format!("{}/double/{n}", self.test)).copied();
            assert!(ran.unwrap_or(0) >= attempts as u32, "task {n} ran {ran:?} times");
        }
        for machine in &self.machines {
            assert_eq!(output(machine.id()).await, u64::from(STEPS));
            let transitions = host.inspect().transitions(machine.id(), None, 1_000).await.expect("read");
            let job = host.inspect().job(machine.id()).await.expect("read").expect("it exists");
            assert_eq!(transitions.len() as u32, STEPS + 1, "each step was committed once");
            assert!(job.rev.0 as u32 > STEPS, "{}", job.rev.0);
            let revs: Vec<i32> = transitions.iter().map(|transition| transition.rev.0).collect();
            assert!(revs.is_sorted_by(|a, b| a < b), "{revs:?}");
        }
        for (n, tour) in self.tours.iter().enumerate() {
            assert_eq!(output(tour.id()).await, Tour::expected(n as u64, 7));
            let journal = host.inspect().journal(tour.id(), None, 10_000).await.expect("read");
            let ends = journal.iter().filter(|entry| entry.name == "first" && entry.event.is_done()).count();
            assert_eq!(ends, 1, "the step was recorded once");
        }
        let counts = host.inspect().state_counts().await.expect("read");
        let unfinished: Vec<_> =
            counts.iter().filter(|count| count.state != State::Done && count.jobs > 0).collect();
        assert!(unfinished.is_empty(), "{unfinished:?}");
        let miscounts = host.store().diagnose().miscounts().await.expect("counted");
        assert!(miscounts.is_empty(), "{miscounts:?}");
    }
}

async fn lost_answers_and_cut_connections_lose_and_repeat_nothing(database: Database) {
    let server = host(database).await;
    let proxy = Proxy::start(server.address, 0).await;
    let worker = remote(&proxy.url(), None).await.expect("an engine");
    proxy.set_every(4);
    worker.start().await.expect("a worker");
    let work = Work::submit(&worker, format!("faults {database:?}")).await;
    work.check(&server.engine).await;
    proxy.set_every(0);
    worker.stop().await;
    let met = proxy.met();
    assert!(met.len() > 20, "too few faults were met: {met:?}");
}

/// Serves a store at an address until it is killed: connections are cut wherever they are.
async fn serve(engine: &Engine, address: Option<SocketAddr>) -> (SocketAddr, oneshot::Sender<()>) {
    let listen = address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let settings = || Settings { listen, drain: Duration::ZERO, ..settings() };
    let server = soon(async {
        loop {
            // The system may not have given the port back yet.
            match Server::bind(engine.clone(), settings()).await {
                Ok(server) => return server,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await;
    let (kill, killed) = oneshot::channel::<()>();
    let address = server.address();
    let serving = tokio::spawn(server.run(std::future::pending()));
    tokio::spawn(async move {
        let _ = killed.await;
        serving.abort();
    });
    (address, kill)
}

async fn a_server_that_is_killed_and_restarted_loses_and_repeats_nothing(database: Database) {
    let (_dir, engine) = kit::engine(database).await;
    engine.start_maintenance().await.expect("maintenance");
    let (address, mut kill) = serve(&engine, None).await;
    // The proxy keeps its address while the server is away, and answers 503 then, as a load balancer does.
    let proxy = Proxy::start(address, 0).await;
    let worker = remote(&proxy.url(), None).await.expect("an engine");
    worker.start().await.expect("a worker");
    let submitter = remote(&proxy.url(), None).await.expect("an engine");
    let submitting =
        tokio::spawn(async move { Work::submit(&submitter, format!("killed {database:?}")).await });
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        drop(kill);
        tokio::time::sleep(Duration::from_millis(40)).await;
        let (address, next) = serve(&engine, None).await;
        proxy.redirect(address);
        kill = next;
    }
    let work = soon(submitting).await.expect("submitted in spite of all");
    work.check(&engine).await;
    worker.stop().await;
    drop(kill);
}

async fn two_servers_behind_a_load_balancer_are_one(database: Database) {
    let first = host(database).await;
    let second = Running::on(tempfile::tempdir().expect("a folder"), first.engine.clone(), settings()).await;
    let proxy = Proxy::start(first.address, 9).await;
    let worker = remote(&proxy.url(), None).await.expect("an engine");
    worker.start().await.expect("a worker");
    let submitter = remote(&proxy.url(), None).await.expect("an engine");
    let submitting = tokio::spawn(async move { Work::submit(&submitter, format!("two {database:?}")).await });
    for turn in 0..40 {
        // New connections go to the other one: a claim of one is committed through the other.
        proxy.redirect(if turn % 2 == 0 { second.address } else { first.address });
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let work = soon(submitting).await.expect("submitted");
    work.check(&first.engine).await;
    proxy.set_every(0);
    worker.stop().await;
}
