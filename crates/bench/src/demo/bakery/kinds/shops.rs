//! Tasks of the shops: their tills, the menu on the web, shelves and prices.

use serde::{Deserialize, Serialize};
use windlass::{EngineCx, Failure, Retry, Task, TaskCx, span::seconds};

use super::{SHOP_COUNT, SHOPS, work};

/// Submits an import for the till of each shop. A schedule submits it.
#[derive(Serialize, Deserialize)]
pub(crate) struct CollectTills {}

impl Task for CollectTills {
    const KIND: &'static str = "collect_tills";
    const QUEUE: &'static str = SHOPS;
    type Output = u8;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u8, Failure> {
        let tick = cx.tick().map(|tick| tick.to_string());
        let engine = cx.engine();
        for shop in 1..=SHOP_COUNT {
            let import = engine.submit(ImportTill { shop, until: tick.clone() });
            // If this runs again, each import exists once.
            import.key(format!("{}-{shop:02}", cx.id())).serial(serial_key(shop)).tag(tag(shop)).await?;
        }
        Ok(SHOP_COUNT)
    }
}

/// Imports the receipts of one shop's till. Imports of one shop run one after the other.
#[derive(Serialize, Deserialize)]
pub(crate) struct ImportTill {
    pub(crate) shop: u8,
    pub(crate) until: Option<String>,
}

pub(crate) fn serial_key(shop: u8) -> String {
    format!("till-{shop:02}")
}

pub(crate) fn tag(shop: u8) -> String {
    format!("shop-{shop:02}")
}

impl Task for ImportTill {
    const KIND: &'static str = "import_till";
    const QUEUE: &'static str = SHOPS;
    /// How many receipts.
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        work(150..=900).await;
        if fastrand::u8(0..100) < 6 {
            return Err(Failure::retry(format!("the till of shop {} did not answer", self.shop))
                .class("till_unreachable"));
        }
        Ok(fastrand::u32(4..140))
    }

    fn retry() -> Retry {
        Retry::times(8).backoff(seconds(3), seconds(30))
    }
}

/// Writes the page of a product anew. Of several changes in short succession only the last one is written.
#[derive(Serialize, Deserialize)]
pub(crate) struct UpdateMenu {
    pub(crate) product: u32,
    pub(crate) change: u32,
}

impl Task for UpdateMenu {
    const KIND: &'static str = "update_menu";
    const QUEUE: &'static str = SHOPS;
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        work(60..=200).await;
        Ok(())
    }
}

/// Counts what is on one shelf, as a child of a stocktake.
#[derive(Serialize, Deserialize)]
pub(crate) struct CountShelf {
    pub(crate) shelf: u32,
}

impl Task for CountShelf {
    const KIND: &'static str = "count_shelf";
    const QUEUE: &'static str = SHOPS;
    /// How many pieces.
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        work(10..=60).await;
        Ok(self.shelf * 7 % 40)
    }
}

/// Compares the price of a product with what it costs, as a child of a price list. Some products cannot be compared.
#[derive(Serialize, Deserialize)]
pub(crate) struct CheckPrice {
    pub(crate) product: u32,
}

impl Task for CheckPrice {
    const KIND: &'static str = "check_price";
    const QUEUE: &'static str = SHOPS;
    /// The margin in percent.
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        work(30..=50).await;
        match self.product % 30 {
            11 => Err(Failure::stop(format!("product {} has no purchase price", self.product))
                .class("price_missing")),
            _ => Ok(20 + self.product % 35),
        }
    }
}
