//! An order from its payment to its delivery, on SQLite and on PostgreSQL with the same code: a step with an undo, thousands
//! of children, a signal with a timeout, a row in a table of the shop, a rate limit, a machine, a schedule, and their tests.
//!
//! Run it with `cargo run -p windlass --features anyhow --example orders`; it creates the file `orders.db`. On PostgreSQL, give
//! the address: `… --example orders -- postgres://user@host/database`, or set `WINDLASS_STORE`. Test it with
//! `cargo test -p windlass --features anyhow --example orders`; the tests start a PostgreSQL server of their own.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use anyhow::Context as _;
use windlass::{Builder, Cause, prelude::*};

/// What the engine gives to the code of jobs: settings, and the services that it calls.
struct Shop {
    approval_time: Duration,
    grams_per_parcel: u64,
    bank: Bank,
}

impl Shop {
    fn new() -> Arc<Shop> {
        let bank = Bank { card_limit: 1_000_000, payments: Mutex::default() };
        Arc::new(Shop { approval_time: days(14), grams_per_parcel: 500, bank })
    }
}

/// Stands for a payment service: what is left of each payment, by its idempotency key.
struct Bank {
    card_limit: u64,
    payments: Mutex<BTreeMap<String, u64>>,
}

impl Bank {
    async fn charge(&self, key: &str, cents: u64) -> Result<String, BankError> {
        if cents > self.card_limit {
            return Err(BankError::Declined { limit: self.card_limit });
        }
        // A repeat with the same key charges nothing.
        self.payments.lock().map_err(|_| BankError::Down)?.entry(key.to_owned()).or_insert(cents);
        Ok(key.to_owned())
    }

    async fn refund(&self, payment: &str) -> Result<(), BankError> {
        self.payments.lock().map_err(|_| BankError::Down)?.insert(payment.to_owned(), 0);
        Ok(())
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum BankError {
    Down,
    Declined { limit: u64 },
}

impl fmt::Display for BankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BankError::Down => f.write_str("the bank does not answer"),
            BankError::Declined { limit } => write!(f, "the limit of the card is {limit} cents"),
        }
    }
}

/// Decides which errors are retried; `?` applies it in steps.
impl From<BankError> for Failure {
    fn from(error: BankError) -> Failure {
        let failure = match &error {
            BankError::Down => Failure::retry(&error).class("down"),
            BankError::Declined { .. } => Failure::stop(&error).class("declined"),
        };
        failure.with_detail(&error)
    }
}

/// Prints the label of one parcel, and returns the weight. With `anyhow`, every error is retried unless its type decides.
#[derive(Serialize, Deserialize)]
struct Label {
    parcel: u64,
}

impl Task for Label {
    const KIND: &'static str = "label";
    type Output = u64;
    type Error = anyhow::Error;

    fn needs() -> Needs {
        Needs::new().data::<Arc<Shop>>()
    }

    async fn run(self, cx: &TaskCx) -> anyhow::Result<u64> {
        let code =
            u32::try_from(self.parcel).with_context(|| format!("the code of parcel {}", self.parcel))?;
        Ok(cx.data::<Arc<Shop>>().grams_per_parcel + u64::from(code % 2))
    }
}

/// A mail to the customer. The mail service takes a few in a second: who submits it names the rate limit.
#[derive(Serialize, Deserialize)]
struct Mail {
    text: String,
}

impl Task for Mail {
    const KIND: &'static str = "mail";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        println!("  mail: {}", self.text);
        Ok(())
    }
}

/// Counts the shelves, by a schedule. `windlass show` and `why` show how far it is, within seconds.
#[derive(Serialize, Deserialize)]
struct Stocktake {
    shelves: u64,
}

impl Task for Stocktake {
    const KIND: &'static str = "stocktake";
    type Output = u64;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u64, Failure> {
        for shelf in 0..self.shelves {
            cx.progress(shelf, self.shelves, "counting");
            tokio::task::yield_now().await;
        }
        Ok(self.shelves)
    }
}

/// The signal of the carrier.
#[derive(Serialize, Deserialize)]
struct Delivered {
    to: String,
}

impl Signal for Delivered {
    const NAME: &'static str = "delivered";
}

/// The way of an order to its customer: people search for machines by their stage.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Delivery {
    Pack { order: i64 },
    OnTheWay { order: i64 },
}

impl Machine for Delivery {
    const KIND: &'static str = "delivery";
    type Output = String;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Delivery>, Failure> {
        Ok(match self {
            Delivery::Pack { order } => {
                Next::receive::<Delivered>(Delivery::OnTheWay { order }).timeout(days(7))
            }
            Delivery::OnTheWay { order } => match cx.receive()? {
                Some(Delivered { to }) => Next::done(format!("order {order} was handed to {to}")),
                None => Next::stop(format!("order {order} is lost")),
            },
        })
    }
}

/// The signal of the person who approves an order.
#[derive(Serialize, Deserialize)]
struct Approve {
    by: String,
}

impl Signal for Approve {
    const NAME: &'static str = "approve";
}

#[derive(Serialize, Deserialize)]
struct Fulfil {
    number: i64,
    cents: u64,
    parcels: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    payment: String,
    grams: u64,
    approved_by: String,
    invoice: String,
}

impl Workflow for Fulfil {
    const KIND: &'static str = "fulfil";
    type Output = Receipt;
    type Error = Failure;

    fn needs() -> Needs {
        Needs::new().data::<Arc<Shop>>()
    }

    async fn run(self, flow: Flow) -> Result<Receipt, Failure> {
        let Fulfil { number, cents, parcels } = self;
        // Recorded once. The undo runs if the workflow fails or is cancelled later.
        let payment = flow
            .step_with("pay", async |cx| Ok(cx.data::<Arc<Shop>>().bank.charge(cx.step_id(), cents).await?))
            .undo_with(async |cx, payment| Ok(cx.data::<Arc<Shop>>().bank.refund(&payment).await?))
            .await?;
        // `?` takes an `anyhow::Error` too.
        let invoice = flow.step("invoice", async || Ok(invoice(number, cents)?)).await?;
        let grams = flow
            .branch("labels")
            .spawn_each("label", 0..parcels, |parcel| Label { parcel })
            .automerge()
            .reduce(0, |sum: u64, grams: u64| sum + grams)
            .await?;

        // A setting that decides something is read in a step: it stays the same on every replay.
        let time = flow.step_with("terms", async |cx| Ok(cx.data::<Arc<Shop>>().approval_time)).await?;
        let Approve { by } = flow.receive().timeout(time).await?;

        // In the table of the shop if, and only if, the workflow has recorded the call. The same code on both databases.
        flow.transaction("record", async |tx| {
            let sql = "insert into shop_orders (number, approved_by) values ($1, $2)";
            tx.execute(sql, (number, &by)).await
        })
        .await?;
        // Nobody waits for the delivery here; the mail is waited for.
        flow.child("deliver", Delivery::Pack { order: number })
            .with(|child| child.key(format!("delivery-{number}")))
            .detach();
        let text = format!("order {number}, {grams} grams, is on its way");
        flow.child("mail", Mail { text }).with(|child| child.rate("mail")).await?;
        Ok(Receipt { payment, grams, approved_by: by, invoice })
    }
}

fn invoice(number: i64, cents: u64) -> anyhow::Result<String> {
    let number = u32::try_from(number).context("the number of an invoice")?;
    Ok(format!("invoice {number}: {}.{:02}", cents / 100, cents % 100))
}

/// The table of the shop, and the orders in it: a workflow, since its transactions are the same on both databases.
#[derive(Serialize, Deserialize)]
struct Ledger {}

impl Workflow for Ledger {
    const KIND: &'static str = "ledger";
    type Output = Vec<(i64, String)>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<(i64, String)>, Failure> {
        flow.transaction("read", async |tx| {
            tx.execute("create table if not exists shop_orders (number bigint, approved_by text)", ())
                .await?;
            let rows = tx.query("select number, approved_by from shop_orders order by number", ()).await?;
            rows.iter().map(|row| Ok((row.get("number")?, row.get("approved_by")?))).collect()
        })
        .await
    }
}

/// What a process of the shop serves: the program, and the labs of the tests.
fn serve(engine: Builder, shop: Arc<Shop>) -> Builder {
    engine
        .data(shop)
        .task::<Label>()
        .task::<Mail>()
        .task::<Stocktake>()
        .machine::<Delivery>()
        .workflow::<Fulfil>()
        .workflow::<Ledger>()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).or_else(|| std::env::var("WINDLASS_STORE").ok());
    let url = url.unwrap_or_else(|| "sqlite://orders.db".to_owned());
    let engine = serve(Engine::builder(&url), Shop::new()).start().await?;
    // At every start of the program, before jobs name the limit.
    engine.control("the program").set_limit(RateLimit::per_second("mail", 5)).await?;
    engine.schedule("stocktake", "every day".parse()?, Stocktake { shelves: 40 }).await?;

    let number = i64::try_from(engine.run(Ledger {}).await?.len())? + 1;
    println!("order {number}, with 5,000 parcels:");
    let order = Fulfil { number, cents: 4_200, parcels: 5_000 };
    let order = engine.submit(order).key(format!("order-{number}")).await?;
    // Until it waits for the signal. If another process approved it meanwhile, it may have ended.
    let waits = loop {
        let why = order.why().await?;
        match why.cause {
            Cause::Signal => {
                println!("  why does it wait? {}", why.because);
                break true;
            }
            _ if why.state.is_some_and(|state| state.is_final()) => break false,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    if waits {
        order.send(Approve { by: "Ada".into() }).await?;
    }
    println!("  {:?}", order.result().await?);

    let delivery: Handle<Delivery> = engine.job(format!("delivery-{number}")).await?;
    delivery.send(Delivered { to: "a neighbour".into() }).await?;
    println!("  {}", delivery.result().await?);
    println!("in the table of the shop: {:?}", engine.run(Ledger {}).await?);
    engine.stop().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use windlass::testing::{self, Lab};
    use windlass_testpg::Cluster;

    use super::*;

    fn order(parcels: u64) -> Fulfil {
        Fulfil { number: 7, cents: 4_200, parcels }
    }

    /// The limit and the table, which a program makes when it starts; and the rows of the table.
    async fn ledger(lab: &Lab) -> Vec<(i64, String)> {
        let limit = RateLimit::per_second("mail", 1);
        lab.engine().await.control("test").set_limit(limit).await.unwrap();
        let ledger = lab.submit(Ledger {}).await;
        lab.run().await;
        lab.result(ledger).await.unwrap()
    }

    /// A lab with virtual time. Transactions need a file or a server.
    async fn lab(url: &str, shop: &Arc<Shop>) -> Lab {
        let shop = Arc::clone(shop);
        let lab = Lab::on(url, move |engine| serve(engine, Arc::clone(&shop))).await;
        ledger(&lab).await;
        lab
    }

    async fn approved(url: &str, parcels: u64) {
        let shop = Shop::new();
        let lab = lab(url, &shop).await;
        let job = lab.submit(order(parcels)).await;
        lab.run().await;
        lab.send(job, Approve { by: "Ada".into() }).await;
        lab.run().await;
        let receipt = lab.result(job).await.unwrap();
        assert_eq!(receipt.grams, parcels * 500 + parcels / 2);
        assert_eq!(shop.bank.payments.lock().unwrap()[&receipt.payment], 4_200);
        assert_eq!(ledger(&lab).await, [(7, "Ada".to_owned())]);
    }

    async fn forgotten(url: &str) {
        let shop = Shop::new();
        let lab = lab(url, &shop).await;
        let job = lab.submit(order(3)).await;
        let timeout = lab.run().await;
        assert_eq!(timeout, Some(lab.now() + days(14)));
        lab.run_past_timeouts().await;
        let error = lab.result(job).await.unwrap_err();
        assert_eq!(error.failure().unwrap().class, "timeout");
        // The undo of the payment ran, and nothing was recorded.
        assert!(shop.bank.payments.lock().unwrap().values().eq([&0]));
        assert_eq!(ledger(&lab).await, []);
    }

    async fn crashing(open: impl AsyncFn() -> String) {
        let shop = Shop::new();
        let data = Arc::clone(&shop);
        let setup = move |engine| serve(engine, Arc::clone(&data));
        let report = testing::crash_at_every_commit_on(open, setup, async |lab| {
            ledger(&lab).await;
            let job = lab.submit(order(5)).await;
            lab.run().await;
            lab.send(job, Approve { by: "Ada".into() }).await;
            lab.run().await;
            let receipt = lab.result(job).await.map_err(|error| error.to_string());
            // All runs have one bank: the keys of this job's payments begin with its id.
            let (payments, id) = (shop.bank.payments.lock().unwrap().clone(), job.id().to_string());
            let paid = payments.into_iter().filter(|(key, _)| key.starts_with(&id));
            (receipt, paid.map(|(_, cents)| cents).sum(), ledger(&lab).await)
        })
        .await;
        let (receipt, paid, rows): (Result<Receipt, String>, u64, _) = report.outcome;
        assert_eq!(receipt.unwrap().approved_by, "Ada");
        assert_eq!((paid, rows), (4_200, vec![(7, "Ada".to_owned())]));
        assert!(report.crashes > 0);
    }

    fn new_file(dir: &tempfile::TempDir) -> String {
        let files = std::fs::read_dir(dir.path()).unwrap().count();
        format!("sqlite://{}", dir.path().join(format!("{files}.db")).display())
    }

    #[tokio::test]
    async fn an_approved_order_is_recorded_once() {
        approved(&new_file(&tempfile::tempdir().unwrap()), 300).await;
    }

    #[tokio::test]
    async fn an_order_that_nobody_approves_is_refunded() {
        forgotten(&new_file(&tempfile::tempdir().unwrap())).await;
    }

    #[tokio::test]
    async fn no_crash_changes_an_order() {
        let dir = tempfile::tempdir().unwrap();
        crashing(async || new_file(&dir)).await;
    }

    /// Each run has a schema of its own: `schema` is that of the engine's tables, `search_path` that of the shop's.
    #[tokio::test]
    async fn the_same_on_postgres() {
        let server = tokio::task::spawn_blocking(Cluster::start).await.unwrap().unwrap();
        let (url, runs) = (server.url(), AtomicU32::new(0));
        let new_schema = || {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            format!("{url}?schema=orders_{run}&options=-c%20search_path%3Dorders_{run}")
        };
        approved(&new_schema(), 50).await;
        forgotten(&new_schema()).await;
        crashing(async || new_schema()).await;
    }

    #[tokio::test]
    async fn a_declined_card_stops_the_order() {
        let lab = Lab::new(|engine| serve(engine, Shop::new())).await;
        let job = lab.submit(Fulfil { number: 8, cents: 2_000_000, parcels: 1 }).await;
        lab.run().await;
        let error = lab.result(job).await.unwrap_err();
        assert_eq!(error.failure().unwrap().detail(), Some(BankError::Declined { limit: 1_000_000 }));
    }

    #[tokio::test]
    async fn mails_start_no_faster_than_their_limit() {
        let lab = Lab::new(|engine| serve(engine, Shop::new())).await;
        let (engine, begun) = (lab.engine().await, lab.now());
        engine.control("test").set_limit(RateLimit::per_second("mail", 1)).await.unwrap();
        for number in 0..4 {
            engine.submit(Mail { text: format!("mail {number}") }).rate("mail").await.unwrap();
        }
        lab.run().await;
        assert_eq!(lab.now(), begun + seconds(3));
    }

    #[tokio::test]
    async fn stock_is_taken_every_day() {
        let lab = Lab::new(|engine| serve(engine, Shop::new())).await;
        let engine = lab.engine().await;
        engine.schedule("stocktake", "every day".parse().unwrap(), Stocktake { shelves: 3 }).await.unwrap();
        lab.advance(days(3)).await;
        assert_eq!(engine.inspect().firings("stocktake", 10).await.unwrap().len(), 3);
    }

    /// Contexts without an engine: one call of the code.
    #[tokio::test]
    async fn a_label_and_a_stage() {
        let cx = testing::task_cx().data(Shop::new()).build();
        assert_eq!(Label { parcel: 3 }.run(&cx).await.unwrap(), 501);
        let lost = testing::machine_cx().waited_for(WaitFor::receive::<Delivered>()).build();
        let next = Delivery::OnTheWay { order: 7 }.step(&lost).await.unwrap();
        assert_eq!(next.failure().unwrap().message, "order 7 is lost");
    }
}
