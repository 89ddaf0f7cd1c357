//! A job submitted in your own transaction: the order and its job are committed together, or not at all.
//!
//! Run it with `cargo run -p windlass --example transaction`. On PostgreSQL it is `.in_postgres(&tx).await`, or
//! `select windlass.submit(…)` from any language.

use windlass::{prelude::*, store::rusqlite};

#[derive(Serialize, Deserialize)]
struct Confirm {
    order: i64,
}

impl Task for Confirm {
    const KIND: &'static str = "confirm";
    type Output = String;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        Ok(format!("order {} is confirmed", self.order))
    }
}

/// Inserts an order, and submits the job that confirms it. With `fails`, something goes wrong after both.
fn take(
    engine: &Engine,
    connection: &mut rusqlite::Connection,
    goods: &str,
    fails: bool,
) -> Result<Handle<Confirm>, Box<dyn std::error::Error>> {
    // An immediate transaction takes the write lock at its beginning. Keep it short: nothing else writes meanwhile.
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    tx.execute("insert into shop_orders (goods) values (?1)", [goods])?;
    let order = tx.last_insert_rowid();
    let job = engine.submit(Confirm { order }).in_sqlite(&tx)?;
    if fails {
        // Dropping the transaction rolls it back.
        return Err(format!("the card for {goods} was declined").into());
    }
    tx.commit()?;
    engine.poke();
    Ok(job)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("shop.db");
    let engine = Engine::builder(format!("sqlite://{}", file.display())).task::<Confirm>().start().await?;
    let mut connection = rusqlite::Connection::open(&file)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    // Your tables and those of the engine are in one file, so they must have different names.
    connection.execute_batch("create table shop_orders (id integer primary key, goods text not null)")?;

    let job = take(&engine, &mut connection, "a lamp", false)?;
    println!("committed: {}", job.result().await?);
    if let Err(error) = take(&engine, &mut connection, "a chair", true) {
        println!("rolled back: {error}");
    }
    engine.poke();
    tokio::time::sleep(Duration::from_millis(200)).await;

    let orders: i64 = connection.query_row("select count(*) from shop_orders", [], |row| row.get(0))?;
    let jobs: i64 = connection.query_row("select count(*) from windlass_jobs", [], |row| row.get(0))?;
    println!("in the file: {orders} order, {jobs} job");
    engine.stop().await;
    Ok(())
}
