//! A standing order: a workflow that repeats a delivery. Some deliveries take longer than the time to the next one, which is then late.

use std::{ops::ControlFlow, time::Duration};

use serde::{Deserialize, Serialize};
use windlass::{Calendar, Failure, Flow, Unit, Workflow};

use super::kinds::{OFFICE, work};

#[derive(Serialize, Deserialize)]
pub(super) struct StandingOrder {
    pub(super) customer: String,
    /// The seconds from one delivery to the next.
    pub(super) every: u32,
    /// How many deliveries; `None` is without an end.
    pub(super) deliveries: Option<u64>,
}

/// One in so many deliveries takes longer than the time to the next.
const SLOW: i64 = 6;

impl Workflow for StandingOrder {
    const KIND: &'static str = "standing_order";
    const QUEUE: &'static str = OFFICE;
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let every = Duration::from_secs(self.every.into());
        flow.context().set("customer", &self.customer)?;
        let deliveries =
            flow.repeat("delivery", Calendar::every(self.every, Unit::Seconds)?, |tick, cx| async move {
                let nth = tick.0 / every.as_micros() as i64;
                match nth % SLOW {
                    0 => tokio::time::sleep(every * 5 / 4).await,
                    _ => work(400..=1_200).await,
                }
                cx.set("last_delivery", tick)?;
                Ok(ControlFlow::<()>::Continue(()))
            });
        match self.deliveries {
            Some(times) => deliveries.times(times).await?,
            None => deliveries.await?,
        };
        Ok(format!("all deliveries to {} are made", self.customer))
    }
}
