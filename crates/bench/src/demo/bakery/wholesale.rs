//! The order of a café: a workflow with steps and undos, an approval, a child, and a sleep until the day of delivery.

use serde::{Deserialize, Serialize};
use windlass::{
    Failure, Flow, Retry, Workflow,
    span::{days, hours, seconds},
};

use super::kinds::{
    MAIL, OFFICE,
    bakery::{BakeBatch, PrintLabel},
    office::SendEmail,
    work,
};

/// From how many loaves on somebody must approve an order.
const NEEDS_APPROVAL: u32 = 300;

const CAFES: [&str; 8] = [
    "Café Amsel",
    "Harbour Street Café",
    "Station Kiosk",
    "The Reading Room",
    "School Canteen North",
    "Theatre Foyer",
    "Lakeside Inn",
    "Market Hall Stall 9",
];

/// An order. All of it follows from its number.
#[derive(Serialize, Deserialize)]
pub(super) struct WholesaleOrder {
    pub(super) number: u32,
    pub(super) customer: String,
    pub(super) loaves: u32,
    /// The seconds until the day of delivery.
    deliver_in: u64,
}

/// The approval of a large order.
#[derive(Serialize, Deserialize)]
pub(super) struct Approval {
    pub(super) granted: bool,
    pub(super) by: String,
}

impl WholesaleOrder {
    pub(super) fn of(number: u32) -> WholesaleOrder {
        let customer = CAFES[number as usize % CAFES.len()].to_owned();
        let loaves = if number % 5 == 2 { NEEDS_APPROVAL + number % 400 } else { 20 + number * 7 % 200 };
        let deliver_in = match number % 12 {
            4 => days(3).as_secs(),
            8 => hours(9).as_secs(),
            _ => 20 + u64::from(number % 9) * 15,
        };
        WholesaleOrder { number, customer, loaves, deliver_in }
    }

    pub(super) fn key(number: u32) -> String {
        format!("order-{number}")
    }

    /// The number of the order that has this key.
    pub(super) fn number(key: &str) -> Option<u32> {
        key.strip_prefix("order-")?.parse().ok()
    }

    pub(super) fn needs_approval(&self) -> bool {
        self.loaves >= NEEDS_APPROVAL
    }

    /// Whether it cannot be baked, and everything is undone.
    #[cfg(test)]
    fn fails(&self) -> bool {
        super::kinds::bakery::oven_fails(self.number)
    }
}

impl Workflow for WholesaleOrder {
    const KIND: &'static str = "wholesale_order";
    const QUEUE: &'static str = OFFICE;
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let (number, loaves) = (self.number, self.loaves);
        flow.context().set("customer", &self.customer)?;
        let oven = flow
            .step("reserve_oven", || async move {
                work(60..=200).await;
                Ok(1 + number % 4)
            })
            .undo(|_oven: u32| async move {
                work(40..=90).await;
                Ok(())
            })
            .await?;
        flow.step("take_deposit", || async move {
            work(120..=500).await;
            Ok(u64::from(loaves) * 90)
        })
        .retry(Retry::times(5).backoff(seconds(3), seconds(60)))
        .undo(|_cents: u64| async move {
            work(80..=300).await;
            Ok(())
        })
        .await?;
        if self.needs_approval() {
            flow.context().set("waits_for", "approval by the bakery")?;
            let approval: Approval = flow.signal("approved").timeout(days(2)).await?;
            if !approval.granted {
                let why = format!("{} did not approve {loaves} loaves", approval.by);
                return Err(Failure::stop(why).class("not_approved"));
            }
            flow.context().set("approved_by", &approval.by)?;
        }
        let baked = flow.child("bake", BakeBatch { order: number, loaves }).await?;
        flow.child("label", PrintLabel { recipe: number % 12, pieces: baked }).detach();
        flow.context().set("waits_for", "the day of delivery")?;
        flow.sleep(seconds(self.deliver_in)).name("until_delivery").await;
        flow.step("deliver", || async move {
            work(300..=1_500).await;
            Ok(())
        })
        .await?;
        let invoice = SendEmail { customer: number, subject: format!("Invoice for order {number}") };
        flow.child("invoice", invoice).with(|child| child.rate(MAIL)).detach();
        Ok(format!("{baked} loaves from oven {oven} for {}", self.customer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_orders_in_a_row_have_every_sort() {
        for first in [10_000, 12_345] {
            let orders: Vec<WholesaleOrder> = (first..first + 60).map(WholesaleOrder::of).collect();
            let has = |wanted: fn(&WholesaleOrder) -> bool| orders.iter().any(wanted);
            assert!(has(WholesaleOrder::needs_approval) && has(WholesaleOrder::fails));
            assert!(has(|order| order.fails() && !order.needs_approval()), "it fails without anybody's help");
            assert!(has(|order| order.deliver_in == days(3).as_secs()) && has(|order| order.deliver_in < 60));
        }
        assert_eq!(WholesaleOrder::number(&WholesaleOrder::key(17)), Some(17));
    }
}
