//! Transactions of workflows: the rows of the user and the record of the call are committed together, wherever the worker
//! dies.

use std::sync::Arc;

use windlass::{
    Builder, Failure, JobError,
    prelude::*,
    store::{postgres::Options, rusqlite::Connection, tokio_postgres},
    testing::Lab,
};

use super::On;

/// Books three things, one after the other, in a table of the user.
#[derive(Serialize, Deserialize)]
struct Book {
    postgres: bool,
}

impl Workflow for Book {
    const KIND: &'static str = "book";
    type Output = Vec<i64>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<i64>, Failure> {
        let mut counts = Vec::new();
        for thing in ["hotel", "flight", "car"] {
            let id = flow.id().to_string();
            let transaction = flow.transaction("book").key(thing);
            let count = match self.postgres {
                true => {
                    transaction
                        .in_postgres(move |tx| {
                            let id = id.clone();
                            Box::pin(async move {
                                let sql = "insert into bookings (job, thing) values ($1, $2)";
                                tx.execute(sql, &[&id, &thing]).await.or_retry()?;
                                let sql = "select count(*) from bookings where job = $1";
                                Ok::<i64, Failure>(tx.query_one(sql, &[&id]).await.or_retry()?.get(0))
                            })
                        })
                        .await
                }
                false => {
                    transaction
                        .in_sqlite(move |tx| {
                            tx.execute("insert into bookings (job, thing) values (?1, ?2)", (&id, thing))
                                .or_retry()?;
                            let sql = "select count(*) from bookings where job = ?1";
                            tx.query_row::<i64, _, _>(sql, [&id], |row| row.get(0)).or_retry()
                        })
                        .await
                }
            };
            counts.push(count?);
            flow.sleep(minutes(1)).key(thing).await;
        }
        Ok(counts)
    }
}

const TABLE: &str = "create table if not exists bookings (job text not null, thing text not null)";

/// The rows of one job in the table of the user.
async fn booked(url: &str, job: JobId) -> Vec<String> {
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

async fn make_table(url: &str) {
    match url.strip_prefix("sqlite://") {
        Some(path) => {
            let connection = Connection::open(path).expect("opened");
            connection.execute_batch(TABLE).expect("created");
        }
        None => {
            assert!(Options::parse(url).is_ok());
            // Several tests may create it at the same time.
            let _ = client(url).await.batch_execute(TABLE).await;
        }
    }
}

async fn crash_everywhere(on: On) {
    let store = on.fresh().await;
    let url: Arc<str> = store.url.as_str().into();
    drop(Engine::open(&url).await.expect("opened"));
    make_table(&url).await;
    let open = async || url.to_string();
    let scenario = async |lab: Arc<Lab>| {
        let job = lab.submit(Book { postgres: on == On::Postgres }).await;
        lab.run().await;
        (lab.result(job).await.map_err(|error| error.to_string()), booked(&url, job.id()).await)
    };
    let setup = |engine: Builder| engine.workflow::<Book>();
    let report = windlass::testing::crash_at_every_commit_on(open, setup, scenario).await;
    let things = ["hotel", "flight", "car"].map(String::from).to_vec();
    assert_eq!(report.outcome, (Ok(vec![1, 2, 3]), things), "each thing was booked once");
    assert!(report.crashes >= 12, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_happens_once_whenever_the_worker_dies_on_sqlite() {
    crash_everywhere(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_happens_once_whenever_the_worker_dies_on_postgres() {
    crash_everywhere(On::Postgres).await;
}

/// Makes a mistake in a transaction.
#[derive(Serialize, Deserialize)]
struct Wrong {
    how: String,
}

impl Workflow for Wrong {
    const KIND: &'static str = "wrong";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        let transaction = flow.transaction("wrong").retry(Retry::times(2));
        let id = flow.id().to_string();
        match self.how.as_str() {
            "nested" => {
                let inner = flow.clone();
                transaction
                    .in_sqlite(move |_| {
                        let step = inner.step("inner", async || Ok(()));
                        // Polled once, as block_on would.
                        let _ = futures_util::FutureExt::now_or_never(step);
                        Ok(1)
                    })
                    .await
            }
            "panics" => {
                transaction
                    .in_sqlite(move |tx| {
                        tx.execute("insert into bookings (job, thing) values (?1, 'x')", [&id])
                            .map_err(Failure::stop)?;
                        panic!("in the middle of it");
                        #[expect(unreachable_code, reason = "it gives the closure its type")]
                        Ok(1)
                    })
                    .await
            }
            "fails" => {
                transaction
                    .in_sqlite(move |tx| {
                        tx.execute("insert into bookings (job, thing) values (?1, 'x')", [&id])
                            .map_err(Failure::stop)?;
                        Err::<u32, _>(Failure::stop("not like this"))
                    })
                    .await
            }
            _ => {
                let tx = transaction.in_postgres(|_| Box::pin(async { Ok(1) }));
                tx.await
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_fails_is_rolled_back_and_explained() {
    let store = On::Sqlite.fresh().await;
    drop(Engine::open(&store.url).await.expect("opened"));
    make_table(&store.url).await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Wrong>()).await;
    for (how, part) in [
        ("nested", "is called inside \"wrong\""),
        ("panics", "in the middle of it"),
        ("fails", "not like this"),
        ("another store", "SQLite"),
    ] {
        let job = lab.submit(Wrong { how: how.into() }).await;
        lab.run().await;
        match lab.result(job).await {
            Err(JobError::Failed { failure, .. }) => {
                assert!(failure.message.contains(part), "{how}: {failure} lacks {part:?}");
            }
            other => panic!("{how}: {other:?}"),
        }
        assert_eq!(booked(&store.url, job.id()).await, Vec::<String>::new(), "{how}");
    }
}
