//! Your own error type: which errors are retried, how often, and how a caller reads them.
//!
//! Run it with `cargo run -p windlass --example retries`.

use std::fmt;

use windlass::prelude::*;

/// The errors of a payment.
#[derive(Debug, Serialize, Deserialize)]
enum PaymentError {
    /// The bank is busy: retry soon.
    Busy { waiting: u32 },
    /// The network failed: retry with longer delays.
    Network,
    /// The card was declined: do not retry.
    Declined { code: u16 },
}

impl fmt::Display for PaymentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PaymentError::Busy { waiting } => write!(f, "the bank is busy, {waiting} are waiting"),
            PaymentError::Network => f.write_str("the network failed"),
            PaymentError::Declined { code } => write!(f, "the card was declined ({code})"),
        }
    }
}

/// Decides which errors are retried. Retry rules match the class; the detail is kept as data.
impl From<PaymentError> for Failure {
    fn from(error: PaymentError) -> Failure {
        let failure = match &error {
            PaymentError::Busy { .. } => Failure::retry(&error).class("busy"),
            PaymentError::Network => Failure::retry(&error).class("network"),
            PaymentError::Declined { .. } => Failure::stop(&error).class("declined"),
        };
        failure.with_detail(&error)
    }
}

#[derive(Serialize, Deserialize)]
struct Pay {
    cents: u64,
}

impl Task for Pay {
    const KIND: &'static str = "pay";
    type Output = u32;
    type Error = PaymentError;

    /// Returns the number of the attempt that succeeded. A real task would pass `cx.id()` to the bank as an idempotency key.
    async fn run(self, cx: &TaskCx) -> Result<u32, PaymentError> {
        match (self.cents, cx.attempt()) {
            (0, _) => Err(PaymentError::Declined { code: 51 }),
            (_, 1) => Err(PaymentError::Busy { waiting: 7 }),
            (_, 2) => Err(PaymentError::Network),
            (_, attempt) => Ok(attempt),
        }
    }

    /// Each class has its own number of attempts. An error that no rule matches fails the job at once.
    fn retry() -> Retry {
        let (soon, later) = (Duration::from_millis(50), Duration::from_secs(60));
        Retry::rules().on("busy", 10).backoff(soon, soon).on("network", 5).backoff(soon * 2, later)
    }

    fn timeout() -> Option<Duration> {
        Some(Duration::from_secs(20))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder("memory:").task::<Pay>().start().await?;

    let job = engine.submit(Pay { cents: 1_999 }).await?;
    println!("paid on attempt {}", job.result().await?);
    for attempt in engine.inspect().history(job.id()).await? {
        println!("  after {}", attempt.failure);
    }

    // The caller gets the task's own error back.
    match engine.submit(Pay { cents: 0 }).await?.result().await {
        Err(error) => match error.error() {
            Some(PaymentError::Declined { code }) => println!("{error}; use another card (code {code})"),
            _ => println!("not expected: {error}"),
        },
        Ok(attempt) => println!("not expected: paid on attempt {attempt}"),
    }
    engine.stop().await;
    Ok(())
}
