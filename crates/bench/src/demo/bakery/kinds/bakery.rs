//! Tasks of the bakery: labels, batches, the routes of the vans, the temperatures of the ovens.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Failure, Retry, Task, TaskCx, span::seconds};

use super::{BAKERY, work};

/// Prints the labels of one batch, with its allergens. Some recipes are faulty, and no retry helps.
#[derive(Serialize, Deserialize)]
pub(crate) struct PrintLabel {
    pub(crate) recipe: u32,
    pub(crate) pieces: u32,
}

impl Task for PrintLabel {
    const KIND: &'static str = "print_label";
    const QUEUE: &'static str = BAKERY;
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        work(20..=90).await;
        let PrintLabel { recipe, pieces } = self;
        let fault = match recipe % 80 {
            13 => format!("recipe {recipe} has no list of allergens"),
            47 if recipe % 160 == 47 => format!("the ingredients of recipe {recipe} do not fit on a label"),
            _ => return Ok(pieces),
        };
        Err(Failure::stop(fault).class("recipe_invalid"))
    }
}

/// Bakes a batch for an order, as its child. For some orders the oven fails, nearly always.
#[derive(Serialize, Deserialize)]
pub(crate) struct BakeBatch {
    pub(crate) order: u32,
    pub(crate) loaves: u32,
}

/// Whether the oven fails at the batch of this order.
pub(crate) fn oven_fails(order: u32) -> bool {
    order % 16 == 5
}

impl Task for BakeBatch {
    const KIND: &'static str = "bake_batch";
    const QUEUE: &'static str = BAKERY;
    type Output = u32;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u32, Failure> {
        const TRAYS: u32 = 8;
        for tray in 0..TRAYS {
            cx.progress(tray.into(), u64::from(TRAYS), "trays");
            work(120..=380).await;
        }
        if oven_fails(self.order) && fastrand::u8(0..100) < 85 {
            let oven = 1 + self.order % 4;
            return Err(
                Failure::retry(format!("oven {oven} does not reach 230 degrees")).class("oven_too_cold")
            );
        }
        Ok(self.loaves)
    }

    fn retry() -> Retry {
        Retry::times(2).backoff(seconds(4), seconds(8))
    }
}

/// Plans the route of one van. Very long routes take longer than they may.
#[derive(Serialize, Deserialize)]
pub(crate) struct PlanRoute {
    pub(crate) van: u8,
    pub(crate) stops: u32,
}

impl Task for PlanRoute {
    const KIND: &'static str = "plan_route";
    const QUEUE: &'static str = BAKERY;
    /// The length in metres.
    type Output = u32;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u32, Failure> {
        for stop in 0..self.stops {
            cx.progress(stop.into(), u64::from(self.stops), "stops");
            work(60..=140).await;
        }
        Ok(self.stops * 1_350)
    }

    fn retry() -> Retry {
        Retry::times(3).backoff(seconds(5), seconds(20))
    }

    fn timeout() -> Option<Duration> {
        Some(seconds(8))
    }
}

/// Reads the temperatures of all ovens. A schedule submits it.
#[derive(Serialize, Deserialize)]
pub(crate) struct ReadOvens {}

impl Task for ReadOvens {
    const KIND: &'static str = "read_ovens";
    const QUEUE: &'static str = BAKERY;
    type Output = [u32; 4];
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<[u32; 4], Failure> {
        work(5..=25).await;
        Ok([(); 4].map(|()| fastrand::u32(218..=236)))
    }
}
