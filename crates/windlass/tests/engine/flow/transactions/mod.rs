//! Transactions of workflows: the rows of the user and the record of the call are committed together, wherever the worker
//! dies. The same code runs on both databases.

mod failing;
mod undone;

use std::sync::Arc;

use windlass::{
    prelude::*,
    store::{postgres::Options, rusqlite::Connection, tokio_postgres},
    testing::Lab,
};

use super::On;
use crate::common::TestStore;

/// Runs a test body on both databases.
macro_rules! on_both_databases {
    ($($name:ident),* $(,)?) => {
        $crate::flow::transactions::on_both_databases!(@ sqlite Sqlite $($name)*);
        $crate::flow::transactions::on_both_databases!(@ postgres Postgres $($name)*);
    };
    (@ $store:ident $on:ident $($name:ident)*) => {
        mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::flow::On::$on).await;
            })*
        }
    };
}
pub(super) use on_both_databases;

on_both_databases!(
    a_transaction_happens_once_whenever_the_worker_dies,
    a_transaction_by_the_driver_happens_once_whenever_the_worker_dies,
    values_return_as_they_were,
);

/// How a transaction sends its statements.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum By {
    Tx,
    Postgres,
    Sqlite,
}

/// Books three things, one after the other, in a table of the user.
#[derive(Serialize, Deserialize)]
struct Book {
    by: By,
    things: Vec<String>,
}

const INSERT: &str = "insert into bookings (job, thing) values ($1, $2)";
const COUNT: &str = "select count(*) as count from bookings where job = $1";

impl Workflow for Book {
    const KIND: &'static str = "book";
    type Output = Vec<i64>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<i64>, Failure> {
        let mut counts = Vec::new();
        let id = flow.id().to_string();
        for thing in &self.things {
            // Closures borrow what they need of the workflow, also of `self`.
            let book = match self.by {
                By::Tx => flow.transaction("book", async |tx| {
                    tx.execute(INSERT, (&id, thing)).await?;
                    tx.query_one(COUNT, (&id,)).await?.get("count")
                }),
                By::Postgres => flow.transaction_in_postgres("book", async |tx| {
                    tx.execute(INSERT, &[&id, thing]).await?;
                    Ok(tx.query_one(COUNT, &[&id]).await?.get("count"))
                }),
                By::Sqlite => flow.transaction_in_sqlite("book", |connection| {
                    connection.execute(INSERT, (&id, thing))?;
                    Ok(connection.query_row(COUNT, [&id], |row| row.get("count"))?)
                }),
            };
            counts.push(book.key(thing).await?);
            flow.sleep(minutes(1)).key(thing).await;
        }
        Ok(counts)
    }
}

const TABLE: &str = "create table if not exists bookings (job text not null, thing text not null)";

/// The rows of one job in the table of the user.
pub(super) async fn booked(url: &str, job: JobId) -> Vec<String> {
    let (sql, job) = ("select thing from bookings where job = ", job.to_string());
    match url.strip_prefix("sqlite://") {
        Some(path) => {
            let connection = Connection::open(path).expect("opened");
            let mut statement = connection.prepare(&format!("{sql} ?1 order by rowid")).expect("prepared");
            let rows = statement.query_map([job], |row| row.get(0)).expect("queried");
            rows.collect::<Result<_, _>>().expect("read")
        }
        None => {
            let rows = client(url).await.query(&format!("{sql} $1"), &[&job]).await.expect("queried");
            rows.iter().map(|row| row.get(0)).collect()
        }
    }
}

/// A connection of the user.
pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let plain = url.split('?').next().expect("a URL");
    let (client, connection) =
        tokio_postgres::connect(plain, tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

/// Makes tables of the user.
async fn make_table(url: &str, table: &str) {
    match url.strip_prefix("sqlite://") {
        Some(path) => {
            let connection = Connection::open(path).expect("opened");
            connection.execute_batch(table).expect("created");
        }
        None => {
            assert!(Options::parse(url).is_ok());
            // Several tests may create it at the same time.
            let _ = client(url).await.batch_execute(table).await;
        }
    }
}

/// A fresh store with the table of the user.
async fn store_with_table(on: On) -> TestStore {
    let store = on.fresh().await;
    drop(Engine::open(&store.url).await.expect("opened"));
    make_table(&store.url, TABLE).await;
    store
}

async fn crash_everywhere(on: On, by: By) {
    let store = store_with_table(on).await;
    let url: Arc<str> = store.url.as_str().into();
    let open = async || url.to_string();
    let things = ["hotel", "flight", "car"].map(String::from).to_vec();
    let scenario = async |lab: Arc<Lab>| {
        let job = lab.submit(Book { by, things: things.clone() }).await;
        lab.run().await;
        (lab.result(job).await.map_err(|error| error.to_string()), booked(&url, job.id()).await)
    };
    let setup = |engine: windlass::Builder| engine.workflow::<Book>();
    let report = windlass::testing::crash_at_every_commit_on(open, setup, scenario).await;
    assert_eq!(report.outcome, (Ok(vec![1, 2, 3]), things), "each thing was booked once");
    assert!(report.crashes >= 12, "{report:?}");
}

async fn a_transaction_happens_once_whenever_the_worker_dies(on: On) {
    crash_everywhere(on, By::Tx).await;
}

async fn a_transaction_by_the_driver_happens_once_whenever_the_worker_dies(on: On) {
    crash_everywhere(on, if on == On::Postgres { By::Postgres } else { By::Sqlite }).await;
}

/// Writes values of all types into a table and reads them back.
#[derive(Serialize, Deserialize)]
struct Values {
    note: Option<String>,
    paid: bool,
    cents: i64,
    rate: f64,
    photo: Vec<u8>,
    tags: serde_json::Value,
}

impl Workflow for Values {
    const KIND: &'static str = "values";
    type Output = (Option<String>, bool, i64, f64, Vec<u8>, serde_json::Value, bool);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Self::Output, Failure> {
        let (id, now) = (flow.id(), flow.now());
        flow.transaction("write", async |tx| {
            let insert = "insert into all_values (job, note, paid, cents, rate, photo, tags, at)
                          values ($1, $2, $3, $4, $5, $6, $7, $8)";
            let Values { note, paid, cents, rate, photo, tags } = &self;
            tx.execute(insert, (id, note, paid, cents, rate, photo, tags, now)).await?;
            let row = tx.query_one("select * from all_values where job = $1", (id,)).await?;
            let at: windlass::Time = row.get("at")?;
            Ok((
                row.get("note")?,
                row.get("paid")?,
                row.get("cents")?,
                row.get("rate")?,
                row.get("photo")?,
                row.get("tags")?,
                at == now,
            ))
        })
        .await
    }
}

async fn values_return_as_they_were(on: On) {
    let store = on.fresh().await;
    drop(Engine::open(&store.url).await.expect("opened"));
    let table = "create table if not exists all_values (job text, note text, paid boolean, cents bigint,
                 rate double precision, photo bytea, tags jsonb, at timestamptz)";
    make_table(&store.url, table).await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Values>()).await;
    for note in [None, Some("it's $1".to_owned())] {
        let values = |note: Option<String>| Values {
            note,
            paid: true,
            cents: i64::MIN,
            rate: 0.1,
            photo: vec![0, 255],
            tags: serde_json::json!(["a", null, {"b": 1.5}]),
        };
        let job = lab.submit(values(note.clone())).await;
        lab.run().await;
        let Values { paid, cents, rate, photo, tags, .. } = values(None);
        assert_eq!(lab.result(job).await.expect("done"), (note, paid, cents, rate, photo, tags, true));
    }
}
