//! A worker on another host learns of jobs without polling.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use windlass::{
    prelude::*,
    store::{CANCEL_GATE, Fut, Now, RenewRequest, Renewal, Store, TIMER_GATE, Wrapper},
};

use crate::{
    engine::{host, soon, url},
    kinds::Double,
    kit::{self, Database, Running, settings},
    on_both,
};

on_both! {
    a_job_starts_when_its_gate_moves_and_not_at_the_next_poll
    an_idle_worker_only_renews_its_lease
    a_wait_ends_when_a_queue_changes_and_not_when_timers_do
    where_too_many_wait_the_gates_are_polled
}

const HOUR: Duration = Duration::from_secs(3_600);

/// A worker on another host that polls no more often than is given.
async fn worker(server: &Running, poll: Duration, config: windlass::Config) -> Engine {
    let pool = Pool::slots(4).poll(poll, poll);
    let builder = Engine::builder(url(server)).task::<Double>().queue("default", pool).config(config);
    builder.start().await.expect("a worker")
}

async fn a_job_starts_when_its_gate_moves_and_not_at_the_next_poll(database: Database) {
    let server = host(database).await;
    let worker = worker(&server, HOUR, windlass::Config::default()).await;
    for n in [5, 6, 8] {
        // Another process submits it.
        let job = server.engine.submit(Double { test: format!("gate {database:?}"), n });
        let job = job.await.expect("submitted");
        assert_eq!(soon(server.engine.result::<u64>(job.id())).await.expect("an output"), 2 * n);
    }
    let calls = worker.store().statements();
    assert!(calls < 60, "{calls} calls for three jobs");
    assert_eq!(soon(worker.stop()).await, 0, "a read that waits does not hold up the stop");
}

/// A store that counts the renewals of leases of this length.
struct Renewals {
    store: Arc<dyn Store>,
    lease: Duration,
    count: Arc<AtomicU64>,
}

impl Wrapper for Renewals {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn renew<'a>(&'a self, now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal> {
        self.count.fetch_add(u64::from(request.lease == self.lease), Ordering::SeqCst);
        self.store.renew(now, request)
    }
}

async fn an_idle_worker_only_renews_its_lease(database: Database) {
    const RENEWALS: u64 = 50;
    let (dir, engine) = kit::engine(database).await;
    let (lease, count) = (Duration::from_millis(1_234), Arc::new(AtomicU64::new(0)));
    let store = Renewals { store: Arc::clone(engine.store()), lease, count: Arc::clone(&count) };
    let engine = Engine::builder(engine.url()).store(Arc::new(store)).open().await.expect("an engine");
    engine.start_maintenance().await.expect("maintenance");
    let server = Running::on(dir, engine, settings()).await;
    let renew_every = Duration::from_millis(20);
    let config = windlass::Config { lease, renew_every, ..windlass::Config::default() };
    let worker = worker(&server, Duration::from_millis(10), config).await;
    soon(async {
        while count.load(Ordering::SeqCst) < RENEWALS {
            tokio::time::sleep(renew_every).await;
        }
    })
    .await;
    let (calls, renewals) = (worker.store().statements(), count.load(Ordering::SeqCst));
    assert!(calls <= renewals + 15, "{calls} calls, of which {renewals} renewals");
    soon(worker.stop()).await;
}

async fn a_wait_ends_when_a_queue_changes_and_not_when_timers_do(database: Database) {
    let server = Running::new(database).await;
    let client = Engine::builder(url(&server)).task::<Double>().open().await.expect("an engine");
    let gates = ["default", TIMER_GATE, CANCEL_GATE].map(str::to_owned);
    let known = client.store().gates(&gates).await.expect("read");
    let waiting = {
        let (store, gates, known) = (Arc::clone(client.store()), gates.clone(), known.clone());
        tokio::spawn(async move { store.wait_for_gates(&gates, &known, HOUR).await })
    };
    let job = |n| Double { test: format!("wait {database:?}"), n };
    server.engine.submit(job(1)).delay(HOUR).await.expect("submitted");
    let moved = server.engine.store().gates(&gates).await.expect("read");
    assert_ne!(moved[1], known[1], "a timer was set");
    assert_eq!(moved[0], known[0]);
    server.engine.submit(job(2)).await.expect("submitted");
    let changed = soon(waiting).await.expect("no panic").expect("read");
    assert_ne!(changed[0], known[0], "the queue has a job");
    assert_eq!(changed[1..], known[1..], "timers are the server's own work");
}

async fn where_too_many_wait_the_gates_are_polled(database: Database) {
    let server = Running::with(database, |settings| settings.max_streams = 0).await;
    server.engine.start_maintenance().await.expect("maintenance");
    let worker = worker(&server, Duration::from_millis(10), windlass::Config::default()).await;
    for n in [1, 2] {
        let job = server.engine.submit(Double { test: format!("many {database:?}"), n });
        let job = job.await.expect("submitted");
        assert_eq!(soon(server.engine.result::<u64>(job.id())).await.expect("an output"), 2 * n);
    }
    soon(worker.stop()).await;
}
