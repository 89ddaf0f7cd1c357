//! A checkout that waits for its payment, and fails if none arrives in time.
//!
//! Run it with `cargo run -p windlass --example checkout`.

use windlass::prelude::*;

/// The stages of a checkout. Each is committed before the next one runs. While the checkout waits, it takes no slot and no
/// memory.
#[derive(Serialize, Deserialize)]
enum Checkout {
    Start { order: u32, cents: u64 },
    AwaitPayment { order: u32, cents: u64 },
    Ship { order: u32, paid: u64 },
    Refund { order: u32, paid: u64 },
}

/// What the payment service sends.
#[derive(Serialize, Deserialize)]
struct Payment {
    cents: u64,
}

impl Signal for Payment {
    const NAME: &'static str = "payment";
}

/// How long the checkout waits for the payment. In a shop it would be an hour or a day, which costs no more.
const PAYMENT_TIME: Duration = Duration::from_millis(1_500);

impl Machine for Checkout {
    const KIND: &'static str = "checkout";
    type Output = String;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Checkout>, Failure> {
        Ok(match self {
            Checkout::Start { order, cents } => {
                println!("  order {order}: reserved, waits for {cents} cents");
                Next::receive::<Payment>(Checkout::AwaitPayment { order, cents }).timeout(PAYMENT_TIME)
            }
            Checkout::AwaitPayment { order, cents } => match cx.receive()? {
                Some(Payment { cents: paid }) if paid == cents => Next::to(Checkout::Ship { order, paid }),
                Some(Payment { cents: paid }) => Next::to(Checkout::Refund { order, paid }),
                None => Next::stop(format!("order {order} was not paid within {PAYMENT_TIME:?}")),
            },
            Checkout::Ship { order, paid } => {
                // The same for every attempt of this step: the shipping service recognises a repeat by it.
                println!("  order {order}: shipped under the idempotency key …{}", &cx.step_id()[30..]);
                Next::done(format!("order {order} shipped for {paid} cents"))
            }
            Checkout::Refund { order, paid } => {
                Next::done(format!("order {order} cancelled, {paid} cents refunded"))
            }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());
    let engine = Engine::builder(&url).machine::<Checkout>().start().await?;
    let start = |order| engine.submit(Checkout::Start { order, cents: 1_200 }).key(format!("order-{order}"));

    println!("paid twice, shipped once:");
    let job = start(1).await?;
    for _ in 0..2 {
        let payment = Payment { cents: 1_200 };
        match engine.signal_key("checkout", "order-1", Payment::NAME, payment).dedup("charge-77").await {
            Ok(delivery) => println!("  payment of charge-77: {delivery:?}"),
            // The machine may be faster than the second payment.
            Err(error) => println!("  payment of charge-77: {error}"),
        }
    }
    println!("  {}", job.result().await?);

    println!("the payment arrives first, and submits the order:");
    let job = start(2).signal_once(Payment::NAME, "charge-78", Payment { cents: 1_200 }).await?;
    println!("  {}", job.result().await?);

    println!("the wrong amount:");
    let job = start(3).await?;
    job.send(Payment { cents: 12 }).await?;
    println!("  {}", job.result().await?);

    println!("no payment at all:");
    let job = start(4).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    if let Some(why) = engine.why(job.id()).await? {
        println!("  {}", why.because);
    }
    match job.result().await {
        Err(error) => println!("  {error}"),
        Ok(output) => println!("  not expected: {output}"),
    }
    match job.send(Payment { cents: 1_200 }).await {
        Err(error) => println!("  a payment after that: {error}"),
        Ok(delivery) => println!("  not expected: {delivery:?}"),
    }

    println!("transitions of all checkouts:");
    for path in engine.inspect().transition_counts("checkout", 100).await? {
        let next = path.next.as_deref().unwrap_or("the end");
        println!("  {} → {next}, {} ({}x)", path.stage, path.outcome, path.times);
    }
    engine.stop().await;
    Ok(())
}
