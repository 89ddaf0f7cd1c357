//! What the company has to do when the demo begins: some of everything.

use futures_util::{StreamExt, TryStreamExt, stream};
use windlass::{
    Engine, Error,
    span::{days, hours, minutes},
};

use super::{
    Numbers,
    branches::{PriceList, StatementRun, Stocktake},
    complaint::{Complaint, Photo},
    kinds::{
        MAIL, PAYMENTS, SHOP_COUNT,
        bakery::{PlanRoute, PrintLabel},
        office::{BackUpRecipes, ChargeCard, PrintLetter, SendEmail},
        shops::{ImportTill, serial_key, tag},
    },
    standing::StandingOrder,
    wholesale::WholesaleOrder,
};

/// How many machines and workflows there are at the start.
const COMPLAINTS: u32 = 200;
const ORDERS: u32 = 60;
/// How many submits are in progress at once.
const SUBMITS: usize = 16;

/// Submits all of it.
pub(super) async fn submit(engine: &Engine, numbers: &Numbers, statements: u32) -> anyhow::Result<()> {
    branches(engine, numbers, statements).await?;
    tasks(engine).await?;
    let complaints: Vec<u32> = (0..COMPLAINTS).map(|_| numbers.next()).collect();
    let complaints = complaints.into_iter().map(|number| complain(engine, number));
    stream::iter(complaints).buffer_unordered(SUBMITS).try_collect::<Vec<()>>().await?;
    let orders: Vec<u32> = (0..ORDERS).map(|_| numbers.next()).collect();
    let orders = orders.into_iter().map(|number| order(engine, number));
    stream::iter(orders).buffer_unordered(SUBMITS).try_collect::<Vec<()>>().await?;
    for (customer, every, deliveries) in [("Lakeside Inn", 20, None), ("Harbour Street Café", 15, Some(12))]
    {
        let standing = StandingOrder { customer: customer.into(), every, deliveries };
        engine.submit(standing).key(format!("standing-order-{}", numbers.next())).await?;
    }
    Ok(())
}

async fn branches(engine: &Engine, numbers: &Numbers, statements: u32) -> anyhow::Result<()> {
    make_statements(engine, statements).await?;
    let number = numbers.next();
    engine.submit(Stocktake { shop: 4 }).key(format!("stocktake-{number}")).tag(tag(4)).await?;
    engine.submit(PriceList { products: 90 }).key(format!("price-list-{number}")).await?;
    Ok(())
}

/// Submits a run of the statements of this month: the first one, or another one if there is one already.
pub(super) async fn make_statements(engine: &Engine, customers: u32) -> anyhow::Result<()> {
    let now = engine.inspect().clock().await?.to_string();
    let month = now.get(..7).unwrap_or(&now);
    let mut key = format!("statements-{month}");
    for nth in 2.. {
        let run = engine.submit(StatementRun { customers }).key(&key).tag("monthly").await?;
        if run.is_new() {
            break;
        }
        key = format!("statements-{month}-{nth}");
    }
    Ok(())
}

/// Work for the first minute, and some for later.
async fn tasks(engine: &Engine) -> anyhow::Result<()> {
    let recipe = || fastrand::u32(0..1_000);
    let labels = (0..300).map(|_| PrintLabel { recipe: recipe(), pieces: 24 }).collect::<Vec<_>>();
    engine.submit_all(labels).await?;
    // Faults that are there from the start.
    engine.submit_all([13, 47, 93, 173].map(|recipe| PrintLabel { recipe, pieces: 24 })).await?;
    let mails = (0..60).map(|_| mail("Your order is confirmed")).collect::<Vec<_>>();
    engine.submit_all(mails).rate(MAIL).await?;
    let cards = (0..40).map(|_| card()).collect::<Vec<_>>();
    engine.submit_all(cards).rate(PAYMENTS).await?;
    engine.submit_all((0..20).map(|_| letter()).collect::<Vec<_>>()).await?;
    engine.submit_all((1..=6).map(|van| route(van, 20 + u32::from(van) * 5))).priority(-10).await?;
    // It takes longer than it may.
    engine.submit(route(7, 140)).tag("van-07").await?;
    for shop in 1..=SHOP_COUNT {
        let import = engine.submit(ImportTill { shop, until: None });
        import.serial(serial_key(shop)).tag(tag(shop)).priority(10).await?;
    }
    engine.submit_all((0..12).map(|_| mail("Rate your last order"))).rate(MAIL).delay(hours(4)).await?;
    engine.submit(BackUpRecipes {}).delay(minutes(25)).tag("before-the-holidays").await?;
    engine.submit(BackUpRecipes {}).delay(days(2)).tag("before-the-holidays").await?;
    Ok(())
}

pub(super) fn mail(subject: &str) -> SendEmail {
    SendEmail { customer: fastrand::u32(1_000..90_000), subject: subject.into() }
}

pub(super) fn card() -> ChargeCard {
    ChargeCard { receipt: fastrand::u32(100_000..900_000), cents: fastrand::u32(200..6_000) }
}

pub(super) fn letter() -> PrintLetter {
    PrintLetter { customer: fastrand::u32(1_000..90_000) }
}

pub(super) fn route(van: u8, stops: u32) -> PlanRoute {
    PlanRoute { van, stops }
}

/// Submits a complaint; with most of them comes a photo.
pub(super) async fn complain(engine: &Engine, number: u32) -> Result<(), Error> {
    let shop = tag((number % u32::from(SHOP_COUNT)) as u8 + 1);
    let complaint =
        engine.submit(Complaint::Received { number }).key(format!("complaint-{number}")).tag(shop);
    let complaint = match number % 7 {
        0 | 1 => complaint,
        _ => complaint.signal_once("photo", "first", Photo::of(number)),
    };
    complaint.await.map(|_| ())
}

pub(super) async fn order(engine: &Engine, number: u32) -> Result<(), Error> {
    let order = WholesaleOrder::of(number);
    let is_large = order.needs_approval();
    let submit = engine.submit(order).key(WholesaleOrder::key(number)).tag("wholesale");
    let submit = if is_large { submit.tag("large").priority(-5) } else { submit };
    submit.await.map(|_| ())
}
