//! A museum lends objects, with `anyhow` as the error of all code: the objects are taken off the shelf in tables of the museum, inspected
//! in a child for each row, and insured; the director decides by a typed signal, and a lorry is booked. If the loan comes to nothing, the
//! insurance is cancelled by the undo of a step, and the objects go back by the undo of a transaction. The same code runs on both stores.
//!
//! Run it with `cargo run -p windlass --features anyhow --example loans`; it creates the file `loans.db`. On PostgreSQL, give the
//! address: `… --example loans -- postgres://user@host/database`. Test it with `cargo test -p windlass --features anyhow --example
//! loans`; the tests are in `tests.rs`, and start a PostgreSQL server of their own.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use anyhow::Context as _;
use windlass::{Builder, prelude::*};

/// What the engine gives to the code of jobs. It also stands for an insurance company and a carrier.
struct Museum {
    /// How many objects each policy insures, by the id of its application.
    policies: Mutex<BTreeMap<String, u64>>,
    /// What the lorry can carry.
    lorry_grams: u64,
}

impl Museum {
    fn new(lorry_grams: u64) -> Arc<Museum> {
        Arc::new(Museum { policies: Mutex::default(), lorry_grams })
    }

    /// Insures objects. To apply again changes nothing.
    async fn insure(&self, application: &str, objects: u64) -> anyhow::Result<String> {
        self.policies.lock().unwrap().insert(application.to_owned(), objects);
        Ok(application.to_owned())
    }

    async fn cancel_policy(&self, policy: &str) -> anyhow::Result<()> {
        self.policies.lock().unwrap().remove(policy);
        Ok(())
    }

    async fn book_lorry(&self, _order: &str, grams: u64) -> Result<String, TooHeavy> {
        if grams > self.lorry_grams { Err(TooHeavy { grams }) } else { Ok("lorry 4".to_owned()) }
    }
}

#[derive(Debug)]
struct TooHeavy {
    grams: u64,
}

impl fmt::Display for TooHeavy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} g are too much for the lorry", self.grams)
    }
}

impl std::error::Error for TooHeavy {}

/// A load does not become lighter. `anyhow` hides this conversion; `.error::<TooHeavy>()` finds it again.
impl From<TooHeavy> for Failure {
    fn from(error: TooHeavy) -> Failure {
        Failure::stop(error).class("too_heavy")
    }
}

/// Lends the objects from `first` to `last`.
#[derive(Serialize, Deserialize)]
struct Loan {
    number: i64,
    borrower: String,
    first: i64,
    last: i64,
}

/// The director's answer.
#[derive(Serialize, Deserialize)]
struct Decision {
    lend: bool,
    because: String,
}

impl Signal for Decision {
    const NAME: &'static str = "decision";
}

impl Workflow for Loan {
    const KIND: &'static str = "loan";
    type Output = String;
    type Error = anyhow::Error;

    async fn run(self, flow: Flow) -> anyhow::Result<String> {
        let objects = self.take_objects(&flow).await?;
        let grams = self.inspect(&flow).await?;
        insure(&flow, objects).await?;

        let Decision { lend, because } = flow.receive().timeout(days(14)).await?;
        if !lend {
            return Err(Failure::cancel(format!("the director says no: {because}")).into());
        }
        let lorry = self.book_lorry(&flow, grams).await?;
        Ok(format!("{objects} objects, {grams} g, go to {} in {lorry}", self.borrower))
    }
}

const TAKE: &str = "update objects set loan = $1 where id between $2 and $3 and loan is null";
const PUT_BACK: &str = "update objects set loan = null where loan = $1";

/// Code that only calls `flow` returns what those calls return, a `Failure`; `?` makes an `anyhow::Error` of it.
impl Loan {
    /// Takes all of the objects, or none.
    async fn take_objects(&self, flow: &Flow) -> Result<u64, Failure> {
        let loan = self.number;
        flow.transaction("take", async |tx| {
            tx.execute("insert into loans (id, borrower) values ($1, $2)", (loan, &self.borrower)).await?;
            let taken = tx.execute(TAKE, (loan, self.first, self.last)).await?;
            if i64::try_from(taken)? <= self.last - self.first {
                return Err(Failure::stop(format!("only {taken} of the objects are on the shelf")));
            }
            Ok(taken)
        })
        .undo_with(move |cx: UndoCx, _taken| async move {
            cx.engine().submit(PutBack { loan }).key(cx.undo_id()).await?;
            Ok(())
        })
        .await
    }

    /// Inspects the objects side by side, and adds up what they weigh. One that cannot travel ends the loan.
    async fn inspect(&self, flow: &Flow) -> Result<u64, Failure> {
        let objects = Rows::table("objects").filter(format!("loan = {}", self.number));
        flow.branch("inspections")
            .spawn_each("object", objects, |object: Inspect| object)
            .merge(Merge::fail_fast())
            .reduce(0, |sum: u64, grams: u64| sum + grams)
            .await
    }

    async fn book_lorry(&self, flow: &Flow, grams: u64) -> Result<String, Failure> {
        flow.step_with("lorry", async |cx| {
            let museum: &Arc<Museum> = cx.data();
            let booked = museum.book_lorry(cx.step_id(), grams).await;
            Ok(booked.with_context(|| format!("no lorry to {}", self.borrower))?)
        })
        .await
    }
}

/// Insures the objects until the loan is over.
async fn insure(flow: &Flow, objects: u64) -> Result<String, Failure> {
    flow.step_with("insure", async |cx| {
        let museum: &Arc<Museum> = cx.data();
        Ok(museum.insure(cx.step_id(), objects).await?)
    })
    .undo_with(move |cx: UndoCx, policy: String| async move {
        let museum: &Arc<Museum> = cx.data();
        Ok(museum.cancel_policy(&policy).await?)
    })
    .await
}

/// Inspects one object, and returns what it weighs when it is wrapped. Its input is a row of the table `objects`.
#[derive(Serialize, Deserialize)]
struct Inspect {
    id: i64,
    grams: u64,
}

impl Task for Inspect {
    const KIND: &'static str = "inspect";
    type Output = u64;
    type Error = anyhow::Error;

    async fn run(self, _cx: &TaskCx) -> anyhow::Result<u64> {
        if self.grams > 1_000 {
            return Err(Failure::stop(format!("object {} is too heavy to travel", self.id)).into());
        }
        Ok(self.grams + 50)
    }
}

/// Puts the objects of a loan back; the undo of the loan submits it.
#[derive(Serialize, Deserialize)]
struct PutBack {
    loan: i64,
}

impl Workflow for PutBack {
    const KIND: &'static str = "put_back";
    type Output = u64;
    type Error = anyhow::Error;

    async fn run(self, flow: Flow) -> anyhow::Result<u64> {
        let objects = flow.transaction("put_back", async |tx| {
            tx.execute("delete from loans where id = $1", (self.loan,)).await?;
            tx.execute(PUT_BACK, (self.loan,)).await
        });
        Ok(objects.await?)
    }
}

/// Makes the tables and puts objects on the shelf if they are not there yet, and counts those that are lent.
#[derive(Serialize, Deserialize)]
struct Inventory {
    objects: i64,
}

const TABLES: [&str; 2] = [
    "create table if not exists loans (id bigint primary key, borrower text not null)",
    "create table if not exists objects (id bigint primary key, grams bigint not null, loan bigint)",
];
const ADD: &str = "insert into objects (id, grams) values ($1, $2) on conflict do nothing";

impl Workflow for Inventory {
    const KIND: &'static str = "inventory";
    type Output = i64;
    type Error = anyhow::Error;

    async fn run(self, flow: Flow) -> anyhow::Result<i64> {
        let lent = flow.transaction("count", async |tx| {
            for table in TABLES {
                tx.execute(table, ()).await?;
            }
            for id in 1..=self.objects {
                tx.execute(ADD, (id, 400 + id)).await?;
            }
            tx.query_one("select count(*) as lent from objects where loan is not null", ()).await?.get("lent")
        });
        Ok(lent.await?)
    }
}

/// What a process of the museum serves: the program, and the labs of the tests.
fn serve(engine: Builder, museum: &Arc<Museum>) -> Builder {
    engine
        .data(Arc::clone(museum))
        .error::<TooHeavy>()
        .workflow::<Inventory>()
        .workflow::<Loan>()
        .workflow::<PutBack>()
        .task::<Inspect>()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "sqlite://loans.db".to_owned());
    let engine = serve(Engine::builder(&url), &Museum::new(1_000_000)).start().await?;

    engine.run(Inventory { objects: 400 }).await?;
    let loan = Loan { number: 1, borrower: "the museum of Delft".into(), first: 1, last: 300 };
    let loan = engine.submit(loan).key("loan-1").await?;
    if loan.is_new() {
        loan.send(Decision { lend: true, because: "they lent us the globe".into() }).await?;
    }
    println!("{}", loan.result().await?);
    println!("{} of 400 objects are lent", engine.run(Inventory { objects: 400 }).await?);
    engine.stop().await;
    Ok(())
}

#[cfg(test)]
mod tests;
