//! Engines with the address of a server: the same runtime, without access to the database.

use windlass::{Error, JobError, model::Role, prelude::*, store::JobAction};

use crate::{
    kinds::{Counter, Declared, Double, Tour, Transfers},
    kit::{self, Database, PATIENCE, Running, settings},
    on_both,
};

on_both! {
    tasks_machines_and_workflows_run_through_a_server
    a_transaction_is_refused_by_name_when_it_is_called
    a_kind_that_needs_the_database_does_not_start
    a_token_that_is_not_accepted_is_an_error_of_the_start
    a_cancel_reaches_an_attempt_on_another_host
    a_schedule_fires_for_a_worker_on_another_host
    the_jobs_of_a_worker_that_dies_run_again
}

/// An engine that runs the kinds of these tests, and knows only the address of a server.
pub(crate) async fn remote(url: &str, token: Option<&str>) -> Result<Engine, Error> {
    let mut builder = Engine::builder(url)
        .task::<Double>()
        .machine::<Counter>()
        .workflow::<Tour>()
        .workflow::<Transfers>()
        .queue("default", Pool::slots(32));
    if let Some(token) = token {
        builder = builder.token(token);
    }
    builder.open().await
}

/// A server whose own engine runs nothing but maintenance.
pub(crate) async fn host(database: Database) -> Running {
    let server = Running::new(database).await;
    server.engine.start_maintenance().await.expect("maintenance");
    server
}

pub(crate) fn url(server: &Running) -> String {
    format!("http://{}", server.address)
}

/// Waits, not for ever.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it takes too long")
}

async fn tasks_machines_and_workflows_run_through_a_server(database: Database) {
    let (dir, engine) = kit::engine(database).await;
    let token = kit::token(&engine, "worker", Role::Worker, &[], &[]).await;
    engine.start_maintenance().await.expect("maintenance");
    let server = Running::on(dir, engine, windlass_server::Settings { login: true, ..settings() }).await;
    let worker = remote(&url(&server), Some(&token)).await.expect("an engine");
    worker.start().await.expect("a worker");

    let test = format!("plain {database:?}");
    let task = worker.submit(Double { test: test.clone(), n: 21 }).await.expect("submitted");
    assert_eq!(soon(task.result()).await.expect("an output"), 42);
    let retried = worker.submit(Double { test: test.clone(), n: 3 }).await.expect("submitted");
    assert_eq!(soon(retried.result()).await.expect("an output"), 6, "the second attempt succeeds");
    let machine = worker.submit(Counter::At { n: 0, of: 150 }).await.expect("submitted");
    assert_eq!(soon(machine.result()).await.expect("an output"), 150);
    let tour = worker.submit(Tour { test: test.clone(), n: 4 }).await.expect("submitted");
    worker.signal(tour.id(), "go", 1_000u64).await.expect("delivered");
    assert_eq!(soon(tour.result()).await.expect("an output"), Tour::expected(4, 1_000));

    // Submitted by others, with a time, a key and a serial line.
    let later = server.engine.submit(Double { test: test.clone(), n: 5 }).delay(Duration::from_millis(50));
    let later = later.key("five").serial("line").await.expect("submitted");
    assert_eq!(soon(later.result()).await.expect("an output"), 10);
    let again = worker.submit(Double { test, n: 5 }).key("five").await.expect("the same key");
    assert_eq!(again.id(), later.id());
    let found: Result<Handle<Double>, Error> = worker.job("five").await;
    let Err(error) = found.map_err(|error| error.to_string()) else {
        panic!("people's reads are not for workers");
    };
    assert!(error.contains("/v1"), "{error}");
    assert_eq!(worker.stop().await, 0);
    let workers = server.engine.inspect().workers().await.expect("read");
    assert!(workers.iter().any(|known| !known.alive && known.serves.len() == 1), "{workers:?}");
}

async fn a_transaction_is_refused_by_name_when_it_is_called(database: Database) {
    let server = host(database).await;
    let worker = remote(&url(&server), None).await.expect("an engine");
    worker.start().await.expect("a worker");
    let job = worker.submit(Transfers {}).await.expect("submitted");
    let error = soon(job.result()).await.expect_err("it has no database").to_string();
    for part in ["\"book\"", "database", "Needs::new().database()"] {
        assert!(error.contains(part), "{error}");
    }
    worker.stop().await;
}

async fn a_kind_that_needs_the_database_does_not_start(database: Database) {
    let server = host(database).await;
    let builder = Engine::builder(url(&server)).task::<Double>().workflow::<Declared>();
    let error = builder.start().await.err().expect("it does not start").to_string();
    assert!(error.contains("\"declared\"") || error.contains("declared"), "{error}");
    assert!(error.contains("address of the database") && !error.contains("double"), "{error}");
    let here = Engine::builder(server.engine.url()).store(std::sync::Arc::clone(server.engine.store()));
    let local = here
        .workflow::<Declared>()
        .queue("declared", Pool::slots(1))
        .start()
        .await
        .expect("it has the database");
    local.stop().await;
}

async fn a_token_that_is_not_accepted_is_an_error_of_the_start(database: Database) {
    let (dir, engine) = kit::engine(database).await;
    let viewer = kit::token(&engine, "viewer", Role::Viewer, &[], &[]).await;
    let server = Running::on(dir, engine, windlass_server::Settings { login: true, ..settings() }).await;
    for (token, why) in
        [(None, "no token"), (Some("windlass_x_y"), "not known"), (Some(viewer.as_str()), "the role viewer")]
    {
        let error = remote(&url(&server), token).await.err().expect("refused").to_string();
        assert!(error.contains(why) && !error.contains("not available"), "{error}");
    }
    let plain = Engine::builder("http://10.255.255.1:7077").task::<Double>().token(viewer).open().await;
    let error = plain.err().expect("the token would be read by others").to_string();
    assert!(error.contains("https://"), "{error}");
}

/// Ends when it is cancelled.
#[derive(Serialize, Deserialize)]
struct Patient {}

impl Task for Patient {
    const KIND: &'static str = "patient";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        cx.progress(1, 2, "waits");
        while !cx.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(Failure::cancel("its code asks for it"))
    }
}

async fn a_cancel_reaches_an_attempt_on_another_host(database: Database) {
    let server = host(database).await;
    let config = windlass::Config { renew_every: Duration::from_millis(100), ..windlass::Config::default() };
    let worker =
        Engine::builder(url(&server)).task::<Patient>().config(config).start().await.expect("a worker");
    let job = worker.submit(Patient {}).await.expect("submitted");
    soon(async {
        loop {
            let shown = server.engine.inspect().job(job.id()).await.expect("read").expect("it exists");
            if shown.progress.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let cancel = JobAction::Cancel { grace: Duration::from_secs(600) };
    let outcome = server.engine.control("ada").act_on_job(job.id(), cancel).await.expect("an outcome");
    assert!(outcome.accepted().is_ok());
    let ended = soon(job.result()).await;
    assert!(matches!(ended, Err(JobError::Cancelled { .. })), "{ended:?}");
    worker.stop().await;
}

async fn a_schedule_fires_for_a_worker_on_another_host(database: Database) {
    let server = host(database).await;
    let worker = remote(&url(&server), None).await.expect("an engine");
    worker.start().await.expect("a worker");
    let calendar: Calendar = "every 1 second".parse().expect("a calendar");
    let job = Double { test: format!("tick {database:?}"), n: 1 };
    server.engine.schedule("ticks", calendar, job).await.expect("set");
    soon(async {
        loop {
            let firings = server.engine.inspect().firings("ticks", 5).await.expect("read");
            let ends = firings.iter().map(|firing| firing.job).collect::<Vec<_>>();
            let ends = server.engine.store().job_ends(&ends).await.expect("read");
            if ends.iter().flatten().count() > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    worker.stop().await;
}

async fn the_jobs_of_a_worker_that_dies_run_again(database: Database) {
    let server = host(database).await;
    let job =
        server.engine.submit(Double { test: format!("dies {database:?}"), n: 8 }).await.expect("submitted");
    // A worker that claims and never calls again. The host judges leases after it has renewed its own for one lease.
    let short = serde_json::json!({ "name": "dies", "lease_ms": 50 });
    let worker = server.post("/worker/v1/register", short).await.expect(200)["worker"].clone();
    let claim = serde_json::json!({
        "worker": worker, "number": 1, "queue": "default", "kinds": [{ "kind": "double" }], "limit": 9,
    });
    let claimed = server.post("/worker/v1/claim", claim).await.expect(200);
    assert_eq!(claimed["jobs"].as_array().expect("a list").len(), 1);
    let other = remote(&url(&server), None).await.expect("an engine");
    other.start().await.expect("a worker");
    assert_eq!(soon(job.result()).await.expect("an output"), 16);
    other.stop().await;
}
