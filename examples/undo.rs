//! An undo and a transaction: an order is paid, shipped, and booked in a table of the shop. If it cannot be shipped, it is not
//! booked, and its payment is undone.
//!
//! Run it with `cargo run -p windlass --example undo`; it creates the file `undo.db`. On PostgreSQL:
//! `cargo run -p windlass --example undo -- postgres://user@host/database`.

use windlass::{
    prelude::*,
    store::{rusqlite, tokio_postgres},
};

#[derive(Serialize, Deserialize)]
struct Order {
    number: i64,
    goods: String,
}

impl Workflow for Order {
    const KIND: &'static str = "order";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let Order { number, goods } = &self;

        // A step: what it returns is recorded, and it does not run again after a crash. It has an undo, which runs if the
        // workflow fails or is cancelled.
        let payment = flow
            .step_with("pay", |cx| async move {
                // The same for every attempt of this step: the payment service recognises a repeat by it.
                println!("  order {number}: paid under the idempotency key …{}", &cx.step_id()[30..]);
                Ok(format!("payment {number}"))
            })
            .undo(|payment: String| async move {
                println!("  {payment} is given back");
                Ok(())
            })
            .await?;

        // The error of a step is a value: `?` ends the workflow with it, and then the undo of the payment runs.
        let parcel = flow
            .step("ship", || async move {
                match goods.as_str() {
                    "a piano" => Err(Failure::stop("a piano does not fit into the van")),
                    _ => Ok(format!("parcel {number}")),
                }
            })
            .await?;

        // A transaction: the row is in the table of the shop if, and only if, the workflow has recorded the call. The code is
        // the same on both databases.
        let what = format!("{goods}, {payment}, {parcel}, shipped by {}", flow.now());
        flow.transaction("book", async |tx| {
            tx.execute("insert into shop_orders (number, what) values ($1, $2)", (number, &what)).await
        })
        .await?;
        Ok(format!("{goods} is on its way as {parcel}"))
    }
}

/// The table of the shop, in the same database as those of the engine.
enum Table {
    Sqlite(rusqlite::Connection),
    Postgres(tokio_postgres::Client),
}

impl Table {
    async fn open(url: &str) -> Result<Table, Box<dyn std::error::Error>> {
        if let Some(file) = url.strip_prefix("sqlite://") {
            let connection = rusqlite::Connection::open(file)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            connection.execute_batch("create table if not exists shop_orders (number integer, what text)")?;
            return Ok(Table::Sqlite(connection));
        }
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        client
            .batch_execute("create table if not exists public.shop_orders (number bigint, what text)")
            .await?;
        Ok(Table::Postgres(client))
    }

    async fn rows(&self) -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let sql = "select what from shop_orders order by number";
        Ok(match self {
            Table::Sqlite(connection) => {
                let mut statement = connection.prepare(sql)?;
                let rows = statement.query_map([], |row| row.get(0))?;
                rows.collect::<Result<Vec<String>, _>>()?
            }
            Table::Postgres(client) => {
                let rows = client.query(sql, &[]).await?;
                rows.iter().map(|row| row.get(0)).collect()
            }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "sqlite://undo.db".to_owned());
    let engine = Engine::builder(&url).workflow::<Order>().start().await?;
    let table = Table::open(&url).await?;
    let number = i64::try_from(table.rows().await?.len())? + 1;

    println!("a lamp:");
    let lamp = engine.submit(Order { number, goods: "a lamp".into() }).await?;
    println!("  {}", lamp.result().await?);

    println!("a piano:");
    let piano = engine.submit(Order { number: number + 1, goods: "a piano".into() }).await?;
    match piano.result().await {
        Err(error) => println!("  {error}"),
        Ok(output) => println!("  not expected: {output}"),
    }

    println!("in the shop's table:");
    for row in table.rows().await? {
        println!("  {row}");
    }
    println!("in the journal of the piano:");
    for entry in engine.inspect().journal(piano.id(), None, 100).await? {
        println!("  {:>2} {} {:?}: {}", entry.seq, entry.call_kind, entry.name, entry.event);
    }
    println!("show it:    windlass --store {url} show {}", piano.id());
    println!("draw it:    windlass --store {url} diagram {} --svg order.svg", piano.id());
    engine.stop().await;
    Ok(())
}
