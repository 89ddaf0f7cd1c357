//! The monthly statement of one card holder: a child of the large branch.

use serde::{Deserialize, Serialize};
use windlass::{Failure, Retry, Task, TaskCx};

use super::{STATEMENTS, work};

/// Makes the statement of one customer. One in a thousand cannot be made.
#[derive(Serialize, Deserialize)]
pub(crate) struct Statement {
    pub(crate) customer: u32,
}

impl Task for Statement {
    const KIND: &'static str = "statement";
    const QUEUE: &'static str = STATEMENTS;
    /// The sum in cents.
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        work(4..=24).await;
        let customer = self.customer;
        match customer % 2_000 {
            499 => Err(Failure::stop(format!("the address of customer {customer} has no postcode"))
                .class("address_incomplete")),
            1_499 => {
                Err(Failure::stop(format!("the statement of customer {customer} has more than 40 pages"))
                    .class("statement_too_long"))
            }
            _ => Ok(u64::from(customer) * 37 % 9_000),
        }
    }

    fn retry() -> Retry {
        Retry::times(3)
    }
}
