//! A server on a store of its own, in this process.

use std::{
    net::SocketAddr,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::oneshot, task::JoinHandle};
use windlass::{
    Engine,
    model::{Role, Scope},
    operate::TokenRequest,
    prelude::*,
};
use windlass_server::{Server, Settings};
use windlass_testpg::Cluster;

use crate::client::{Request, Response};

/// How long a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns its input.
#[derive(Serialize, Deserialize)]
pub(crate) struct Echo(pub(crate) serde_json::Value);

impl Task for Echo {
    const KIND: &'static str = "echo";
    type Output = serde_json::Value;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<serde_json::Value, Failure> {
        match self.0.as_str() {
            Some("fail") => Err(Failure::stop("it was asked to")),
            _ => Ok(self.0),
        }
    }
}

/// Waits for a signal.
#[derive(Serialize, Deserialize)]
pub(crate) struct Approval {}

impl Workflow for Approval {
    const KIND: &'static str = "approval";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        flow.step("ask", || async { Ok::<(), Failure>(()) }).await?;
        flow.signal::<String>("approved").await
    }
}

/// Where a store is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

/// Makes a test of each case for each database.
#[macro_export]
macro_rules! on_both {
    ($($case:ident)*) => {$(
        mod $case {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$case($crate::kit::Database::Sqlite).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$case($crate::kit::Database::Postgres).await;
            }
        }
    )*};
}

fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        // These tests are about HTTP, not about the disk, and every engine has connections of its own.
        let builder = Cluster::builder().setting("fsync", "off").setting("max_connections", 400);
        builder.start().unwrap_or_else(|error| panic!("PostgreSQL is needed for these tests: {error}"))
    })
}

/// A server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
    _dir: TempDir,
}

/// Opens an engine on a new store.
pub(crate) async fn engine(database: Database) -> (TempDir, Engine) {
    engine_with(database, |builder| builder).await
}

/// The same with other kinds besides.
pub(crate) async fn engine_with(
    database: Database,
    change: impl FnOnce(Builder) -> Builder,
) -> (TempDir, Engine) {
    static SCHEMAS: AtomicU32 = AtomicU32::new(0);
    let dir = tempfile::tempdir().expect("a folder");
    let url = match database {
        Database::Sqlite => format!("sqlite://{}", dir.path().join("jobs.db").display()),
        Database::Postgres => {
            let cluster = tokio::task::spawn_blocking(cluster).await.expect("a server");
            format!("{}?schema=s{}", cluster.url(), SCHEMAS.fetch_add(1, Ordering::Relaxed))
        }
    };
    let builder = change(Engine::builder(url).task::<Echo>().workflow::<Approval>());
    (dir, builder.open().await.expect("an engine"))
}

/// The settings of tests: any free port, no limit of the rate.
pub(crate) fn settings() -> Settings {
    Settings { listen: SocketAddr::from(([127, 0, 0, 1], 0)), rate: 0, ..Settings::default() }
}

impl Running {
    /// A server on a new store, whose jobs nobody runs.
    pub(crate) async fn new(database: Database) -> Running {
        Running::with(database, |_| {}).await
    }

    /// The same with a worker.
    pub(crate) async fn working(database: Database) -> Running {
        let running = Running::new(database).await;
        running.engine.start().await.expect("a worker");
        running
    }

    /// The same with other settings.
    pub(crate) async fn with(database: Database, change: impl FnOnce(&mut Settings)) -> Running {
        let (dir, engine) = engine(database).await;
        let mut settings = settings();
        change(&mut settings);
        Running::on(dir, engine, settings).await
    }

    pub(crate) async fn on(dir: TempDir, engine: Engine, settings: Settings) -> Running {
        let server = Server::bind(engine.clone(), settings).await.expect("a server");
        let (stop, stopped) = oneshot::channel::<()>();
        let address = server.address();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Running { address, engine, stop: Some(stop), task: Some(task), _dir: dir }
    }

    pub(crate) async fn send(&self, request: Request) -> Response {
        tokio::time::timeout(PATIENCE, request.send(self.address)).await.expect("an answer")
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send(Request::get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Response {
        self.send(Request::post(path, &body)).await
    }

    /// Submits a job. Returns its id.
    pub(crate) async fn submit(&self, job: Value) -> String {
        let submitted = self.post("/v1/jobs", job).await.expect(201);
        submitted["id"].as_str().expect("an id").to_owned()
    }

    /// Submits an `echo` job.
    pub(crate) async fn echo(&self, input: &str) -> String {
        self.submit(json!({ "kind": "echo", "input": input })).await
    }

    /// Creates a token. Returns its text.
    pub(crate) async fn token(&self, name: &str, role: Role, kinds: &[&str], queues: &[&str]) -> String {
        token(&self.engine, name, role, kinds, queues).await
    }

    /// Requests the server to stop.
    pub(crate) fn request_stop(&mut self) {
        self.stop.take().expect("it runs").send(()).expect("it runs");
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(&mut self) {
        let task = self.task.take().expect("it runs");
        tokio::time::timeout(PATIENCE, task).await.expect("it stops").expect("no panic");
    }
}

pub(crate) async fn token(
    engine: &Engine,
    name: &str,
    role: Role,
    kinds: &[&str],
    queues: &[&str],
) -> String {
    let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let scope = Scope { kinds: list(kinds), queues: list(queues) };
    let request = TokenRequest { name: name.into(), role, scope, expires_in: None };
    engine.control("test").create_token(&request).await.expect("created").expect("accepted").text
}
