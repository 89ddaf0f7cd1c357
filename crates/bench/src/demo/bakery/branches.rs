//! Workflows with branches: one that drains for minutes, one that is over soon, one that failed children block.

use serde::{Deserialize, Serialize};
use windlass::{Child, Failure, Flow, Merge, Workflow, percent};

use super::kinds::{
    OFFICE, STATEMENTS,
    shops::{CheckPrice, CountShelf},
    statements::Statement,
    work,
};

/// The statements of a month: a child for each card holder, under a rate limit. Some statements may fail.
#[derive(Serialize, Deserialize)]
pub(super) struct StatementRun {
    pub(super) customers: u32,
}

impl Workflow for StatementRun {
    const KIND: &'static str = "statement_run";
    const QUEUE: &'static str = OFFICE;
    /// The sum of all statements, in cents.
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let customers = self.customers;
        let close = || async move {
            work(400..=900).await;
            Ok(())
        };
        flow.step("close_accounts", close).await?;
        let sum = flow
            .branch("statements")
            .spawn_each("customer", 0..customers, |customer| {
                Child::new(Statement { customer }).rate(STATEMENTS)
            })
            .merge(Merge::tolerate(percent(0.5)))
            .reduce(0, |sum: u64, cents: u64| sum + cents)
            .await?;
        let hand_over = || async move {
            work(400..=900).await;
            Ok(())
        };
        flow.step("hand_over_to_print_shop", hand_over).await?;
        Ok(sum)
    }
}

/// Counts the shelves of a shop: two branches, the second of them packed.
#[derive(Serialize, Deserialize)]
pub(super) struct Stocktake {
    pub(super) shop: u8,
}

impl Workflow for Stocktake {
    const KIND: &'static str = "stocktake";
    const QUEUE: &'static str = OFFICE;
    /// How many pieces.
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        flow.branch("shelves").spawn_each("shelf", 0..240_u32, |shelf| CountShelf { shelf }).await?;
        flow.branch("store_room")
            .packed()
            .spawn_each("shelf", 0..1_500_u32, |shelf| CountShelf { shelf })
            .await?;
        let sum = |sum: u32, pieces: u32| sum + pieces;
        let shelves = flow.merge_branch("shelves").reduce(0, sum).await?;
        let store_room = flow.merge_branch("store_room").reduce(0, sum).await?;
        Ok(shelves + store_room)
    }
}

/// A new price list: waits for all products, of which some cannot be checked until somebody mends their data.
#[derive(Serialize, Deserialize)]
pub(super) struct PriceList {
    pub(super) products: u32,
}

impl Workflow for PriceList {
    const KIND: &'static str = "price_list";
    const QUEUE: &'static str = OFFICE;
    /// How many products.
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let product = |product: u32| CheckPrice { product };
        let checked =
            flow.branch("products").spawn_each("product", 0..self.products, product).automerge().await?;
        Ok(checked.done)
    }
}
