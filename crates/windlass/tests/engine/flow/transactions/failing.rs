//! Transactions that fail: everything is rolled back, what is worth a retry is retried, and the error says what to do.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use windlass::{JobError, OnFailure, model::failure::class, prelude::*, store::Error, testing::Lab};

use super::{
    super::{On, ran, times},
    INSERT, booked, make_table, on_both_databases, store_with_table,
};
use crate::common::{Call, Faults, faulty, until};

on_both_databases!(
    a_transaction_that_fails_is_rolled_back_and_retried,
    a_mistake_is_rolled_back_and_explained,
    a_transaction_that_takes_too_long_is_rolled_back_and_retried,
    a_transaction_whose_answer_is_lost_is_not_repeated,
);

/// Fails at its first try, in one of several ways.
#[derive(Serialize, Deserialize)]
struct FailsOnce {
    how: String,
}

impl Workflow for FailsOnce {
    const KIND: &'static str = "fails-once";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        let id = flow.id();
        flow.transaction("write", async |tx| {
            let tries = ran(format!("{id}/write"));
            tx.execute(INSERT, (id, &self.how)).await?;
            match (self.how.as_str(), tries) {
                (_, 2..) => Ok(tries),
                ("error", _) => Err(Failure::retry("not yet")),
                ("panic", _) => panic!("not yet"),
                ("bad sql", _) => tx.execute("insert into no_such_table values (1)", ()).await.map(|_| tries),
                // Its error is not returned.
                _ => {
                    let _ = tx.query("select * from no_such_table", ()).await;
                    Ok(tries)
                }
            }
        })
        .await
    }
}

async fn a_transaction_that_fails_is_rolled_back_and_retried(on: On) {
    let store = store_with_table(on).await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<FailsOnce>()).await;
    for how in ["error", "panic", "bad sql", "swallowed"] {
        let job = lab.submit(FailsOnce { how: how.into() }).await;
        lab.run().await;
        assert_eq!(lab.result(job).await.expect("done"), 2, "{how}");
        assert_eq!(booked(&store.url, job.id()).await, [how], "only the second try was committed");
    }
}

/// What became of the statement that a task sent with a transaction that it had kept.
static KEPT: Mutex<Vec<(JobId, Option<String>)>> = Mutex::new(Vec::new());

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
        let id = flow.id();
        ran(format!("{id}/run"));
        match self.how.as_str() {
            "for sqlite" => flow.transaction_in_sqlite("wrong", |_| Ok(1)).await,
            "for postgres" => flow.transaction_in_postgres("wrong", async |_| Ok(1)).await,
            how => {
                flow.transaction("wrong", async |tx| {
                    ran(format!("{id}/wrong"));
                    tx.execute(INSERT, (id, how)).await?;
                    match how {
                        "nested" => {
                            let step = flow.step("inner", || async { Ok::<_, Failure>(()) });
                            // Polled once, as block_on would.
                            let _ = futures_util::FutureExt::now_or_never(step);
                        }
                        "constraint" => {
                            tx.execute("insert into unique_bookings (job) values ($1)", (id,)).await?;
                            tx.execute("insert into unique_bookings (job) values ($1)", (id,)).await?;
                        }
                        "commits" => _ = tx.execute("commit", ()).await?,
                        "type" => _ = tx.query("select cast($1 as bigint)", (u64::MAX,)).await?,
                        "column" => {
                            let row = tx.query_one("select 1 as one", ()).await?;
                            row.get::<i64>("two")?;
                        }
                        "stops" => return Err(Failure::stop("not like this")),
                        // It is kept by a task.
                        _ => {
                            tokio::spawn(async move {
                                let mut answer = tx.execute(INSERT, (id, "kept")).await;
                                while answer.is_ok() {
                                    tokio::task::yield_now().await;
                                    answer = tx.execute(INSERT, (id, "kept")).await;
                                }
                                let error = answer.err().map(|failure| failure.message);
                                KEPT.lock().expect("kept").push((id, error));
                            });
                        }
                    }
                    Ok(1)
                })
                .await
            }
        }
    }
}

async fn a_mistake_is_rolled_back_and_explained(on: On) {
    let store = store_with_table(on).await;
    make_table(&store.url, "create table if not exists unique_bookings (job text primary key)").await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Wrong>()).await;
    let other = if on == On::Postgres { "for sqlite" } else { "for postgres" };
    for (how, class, part) in [
        ("nested", class::REFUSED, "is called inside \"wrong\""),
        ("constraint", class::CONSTRAINT, "unique_bookings"),
        ("commits", class::REFUSED, "leave that to the engine"),
        ("type", class::DATA, "$1"),
        ("column", class::DATA, "no column \"two\"; it has one"),
        ("stops", class::ERROR, "not like this"),
        ("kept", class::REFUSED, "await what uses the `tx` in the closure itself"),
        (other, class::REFUSED, "or the one for both"),
    ] {
        let job = lab.submit(Wrong { how: how.into() }).await;
        lab.run().await;
        match lab.result(job).await {
            Err(JobError::Failed { failure, .. }) => {
                assert_eq!((&*failure.class, failure.then), (class, OnFailure::Stop), "{how}: {failure}");
                assert!(failure.message.contains(part), "{how}: {failure} lacks {part:?}");
            }
            other => panic!("{how}: {other:?}"),
        }
        assert_eq!(booked(&store.url, job.id()).await, Vec::<String>::new(), "{how}");
        assert!(times(format!("{}/wrong", job.id())) <= 1, "{how}: it is not tried again");
        if how == "kept" {
            let ended = async || KEPT.lock().expect("kept").iter().any(|(kept, _)| *kept == job.id());
            until("the task has ended", ended).await;
            let kept = KEPT.lock().expect("kept");
            let (_, error) = kept.iter().find(|(kept, _)| *kept == job.id()).expect("ended");
            assert!(error.as_ref().is_some_and(|error| error.contains("has ended")), "{error:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_store_says_that_it_has_no_transactions() {
    let lab = Lab::on("memory:", |engine| engine.workflow::<Wrong>()).await;
    let job = lab.submit(Wrong { how: "stops".into() }).await;
    lab.run().await;
    let error = lab.result(job).await.expect_err("no transactions").to_string();
    assert!(error.contains("the memory store has no transactions; use SQLite or PostgreSQL"), "{error}");
    assert_eq!(times(format!("{}/wrong", job.id())), 0);
}

/// Does not return at its first try.
#[derive(Serialize, Deserialize)]
struct Hangs;

impl Workflow for Hangs {
    const KIND: &'static str = "hangs";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        let id = flow.id();
        flow.transaction("write", async |tx| {
            tx.execute(INSERT, (id, "row")).await?;
            let tries = ran(format!("{id}/hangs"));
            if tries == 1 {
                std::future::pending::<()>().await;
            }
            Ok(tries)
        })
        .timeout(Duration::from_millis(300))
        .retry(Retry::times(3).backoff(Duration::from_millis(1), Duration::from_millis(1)))
        .await
    }
}

async fn a_transaction_that_takes_too_long_is_rolled_back_and_retried(on: On) {
    let store = store_with_table(on).await;
    let engine = Engine::builder(&store.url).workflow::<Hangs>();
    let engine = engine.start().await.expect("started");
    let job = engine.submit(Hangs).await.expect("submitted");
    let tries = job.result().await.expect("done");
    assert!(tries >= 2, "{tries}");
    assert_eq!(booked(&store.url, job.id()).await, ["row"]);
    engine.stop().await;
}

/// Loses the answer to the first transaction of the store, after it was committed.
#[derive(Default)]
struct LosesAnswer(AtomicBool);

impl Faults for LosesAnswer {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        match call {
            Call::Transacted if !self.0.swap(true, Ordering::SeqCst) => {
                Err(Error::Unavailable("the answer was lost".into()))
            }
            _ => Ok(()),
        }
    }
}

/// Writes once, with an undo that must not run.
#[derive(Serialize, Deserialize)]
struct WritesOnce;

impl Workflow for WritesOnce {
    const KIND: &'static str = "writes-once";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        let id = flow.id();
        flow.transaction("write", async |tx| {
            tx.execute(INSERT, (id, "row")).await?;
            Ok(ran(format!("{id}/writes")))
        })
        .undo(async |_| Err(Failure::stop("nothing is to be undone")))
        .await
    }
}

async fn a_transaction_whose_answer_is_lost_is_not_repeated(on: On) {
    let store = store_with_table(on).await;
    let faults = Arc::new(LosesAnswer::default());
    let engine = faulty(&store.url, &faults).await;
    let engine = engine.workflow::<WritesOnce>().start().await.expect("started");
    let job = engine.submit(WritesOnce).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), 1);
    assert_eq!(booked(&store.url, job.id()).await, ["row"]);
    assert_eq!(times(format!("{}/writes", job.id())), 1);
    assert!(faults.0.load(Ordering::SeqCst), "an answer was lost");
    engine.stop().await;
}
