//! The company's tasks, by where in the company they belong.

pub(super) mod bakery;
pub(super) mod office;
pub(super) mod shops;
pub(super) mod statements;

use std::{ops::RangeInclusive, time::Duration};

use windlass::Builder;

pub(super) const SHOPS: &str = "shops";
pub(super) const BAKERY: &str = "bakery";
pub(super) const OFFICE: &str = "office";
pub(super) const PAYMENTS: &str = "payments";
pub(super) const MAIL: &str = "mail";
pub(super) const LETTERS: &str = "letters";
pub(super) const REPORTS: &str = "reports";
pub(super) const STATEMENTS: &str = "statements";

/// The queues, with their slots in each worker.
pub(super) const POOLS: [(&str, usize); 8] = [
    (SHOPS, 4),
    (BAKERY, 6),
    (OFFICE, 12),
    (PAYMENTS, 4),
    (MAIL, 4),
    (LETTERS, 2),
    (REPORTS, 2),
    (STATEMENTS, 16),
];

/// How many shops there are.
pub(super) const SHOP_COUNT: u8 = 12;

pub(super) fn add(builder: Builder) -> Builder {
    builder
        .task::<shops::CollectTills>()
        .task::<shops::ImportTill>()
        .task::<shops::UpdateMenu>()
        .task::<shops::CountShelf>()
        .task::<shops::CheckPrice>()
        .task::<bakery::PrintLabel>()
        .task::<bakery::BakeBatch>()
        .task::<bakery::PlanRoute>()
        .task::<bakery::ReadOvens>()
        .task::<office::ChargeCard>()
        .task::<office::SendEmail>()
        .task::<office::PrintLetter>()
        .task::<office::ExportSales>()
        .task::<office::BackUpRecipes>()
        .task::<statements::Statement>()
}

/// Takes as long as the real work would: a random time, in milliseconds.
pub(super) async fn work(millis: RangeInclusive<u64>) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(millis))).await;
}
