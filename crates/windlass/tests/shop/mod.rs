//! What the tests of sqlx and diesel share: a server, an engine that confirms orders, and a table of the application.

use windlass::prelude::*;
use windlass_testpg::Cluster;

#[derive(Serialize, Deserialize)]
pub(crate) struct Confirm {
    order: i32,
}

impl Task for Confirm {
    const KIND: &'static str = "confirm";
    type Output = String;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        Ok(format!("order {} is confirmed", self.order))
    }
}

/// The table of the application, in the same database as the schema `windlass`.
pub(crate) const ORDERS: &str = "create table shop_orders (id int4 primary key, goods text not null)";

/// A private server, and a started engine on its schema `windlass`.
pub(crate) async fn start() -> (Cluster, Engine) {
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.expect("not interrupted");
    let cluster = cluster.expect("PostgreSQL is needed for this test");
    let engine = Engine::builder(cluster.url()).task::<Confirm>().start().await;
    (cluster, engine.expect("started"))
}

/// The result of a job that was submitted in a committed transaction. The engine finds it within two seconds.
pub(crate) async fn result(engine: &Engine, id: uuid::Uuid) -> String {
    engine.result(id.to_string().parse().expect("an id")).await.expect("done")
}

/// Whether a job that was submitted in a transaction does not exist, because that was rolled back.
pub(crate) async fn is_gone(engine: &Engine, id: uuid::Uuid) -> bool {
    let gone = engine.result::<String>(id.to_string().parse().expect("an id")).await;
    matches!(gone, Err(JobError::Gone(_)))
}
