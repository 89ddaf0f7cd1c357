//! The company's rate limits, schedules and the queue that is paused.

use windlass::{Calendar, Engine, Overlap, RateLimit, Unit};

use super::kinds::{
    LETTERS, MAIL, PAYMENTS, STATEMENTS,
    bakery::{PlanRoute, ReadOvens},
    office::{BackUpRecipes, ExportSales},
    shops::CollectTills,
};

/// The names of the schedules.
const OVENS: &str = "oven-temperatures";
const TILLS: &str = "tills";
const SALES: &str = "sales-export";
const BACKUP: &str = "recipe-backup";
const WEEKEND: &str = "weekend-routes";

/// How long the large branch is to drain, in seconds.
const DRAIN_SECONDS: u32 = 300;

/// Sets the limits and the schedules, and pauses what is paused. No worker must run yet.
pub(crate) async fn set(engine: &Engine, statements: u32) -> anyhow::Result<()> {
    let program = engine.control("fennel-lane");
    let statements_per_second = statements.div_ceil(DRAIN_SECONDS).max(5);
    for limit in [
        RateLimit::per_second(PAYMENTS, 4).burst(6),
        RateLimit::per_second(MAIL, 2).burst(4),
        RateLimit::per_second(STATEMENTS, statements_per_second).burst(statements_per_second.div_ceil(2)),
    ] {
        program.set_limit(limit).await?;
    }
    schedules(engine).await?;
    let facility =
        engine.control("tomas").note("the printer in the office is being repaired, until Thursday");
    facility.pause_queue(LETTERS).await?;
    let planning = engine.control("ines").note("no deliveries at weekends before the new van is there");
    planning.pause_schedule(WEEKEND).await?.accepted()?;
    Ok(())
}

async fn schedules(engine: &Engine) -> anyhow::Result<()> {
    // The first one to be set is the first one whose ticks pass unattended.
    engine.schedule(OVENS, Calendar::every(2, Unit::Seconds)?, ReadOvens {}).by("fennel-lane").await?;
    let tills = engine.schedule(TILLS, Calendar::every(1, Unit::Minutes)?, CollectTills {});
    tills.overlap(Overlap::Queue).by("fennel-lane").await?;
    engine.schedule(SALES, Calendar::every(20, Unit::Seconds)?, ExportSales {}).by("fennel-lane").await?;
    let nights = Calendar::cron("30 2 * * *", "Europe/Dublin")?;
    engine.schedule(BACKUP, nights, BackUpRecipes {}).by("fennel-lane").await?;
    let fridays = Calendar::cron("0 14 * * fri", "Europe/Dublin")?;
    engine.schedule(WEEKEND, fridays, PlanRoute { van: 1, stops: 30 }).by("fennel-lane").await?;
    Ok(())
}

/// Drops the schedules: on a store that stays, nobody would run their jobs.
pub(crate) async fn drop_schedules(engine: &Engine) -> anyhow::Result<()> {
    let program = engine.control("fennel-lane").note("the demo has ended");
    for name in [OVENS, TILLS, SALES, BACKUP, WEEKEND] {
        // One that is not there was not set yet.
        let _ = program.drop_schedule(name).await?;
    }
    Ok(())
}
