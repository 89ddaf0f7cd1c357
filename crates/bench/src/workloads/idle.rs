//! A worker with nothing to do: what it costs the database and the machine.

use std::time::{Duration, Instant};

use anyhow::Context;
use windlass::Pool;

use super::{Stores, record::Noop, report::Report};

/// How long the worker may settle, and how long it is measured.
const SETTLE: Duration = Duration::from_secs(12);
const WATCH: Duration = Duration::from_secs(60);

pub(super) async fn run(stores: &Stores, quick: bool) -> anyhow::Result<Report> {
    let (settle, watch) = if quick { (Duration::ZERO, Duration::from_secs(1)) } else { (SETTLE, WATCH) };
    let mut engine = stores.builder().task::<Noop>();
    for number in 0..10 {
        engine = engine.queue(format!("queue{number}"), Pool::default());
    }
    let engine = engine.start().await?;
    if stores.name() == "postgres" {
        stores.sql("create extension if not exists pg_stat_statements")?;
    }
    tokio::time::sleep(settle).await;
    let before = (statements(stores, &engine)?, cpu_seconds()?, Instant::now());
    tokio::time::sleep(watch).await;
    let after = (statements(stores, &engine)?, cpu_seconds()?, before.2.elapsed().as_secs_f64());
    engine.stop().await;
    let per_minute = (after.0 - before.0) as f64 * 60.0 / after.2;
    let cpu = (after.1 - before.1) * 100.0 / after.2;
    Ok(Report::new("idle", stores.name(), 0)
        .figure("seconds", after.2)
        .figure("statements_per_minute", per_minute)
        .figure("cpu_percent", cpu))
}

/// Statements run so far, counted by the server if there is one, otherwise by the store.
fn statements(stores: &Stores, engine: &windlass::Engine) -> anyhow::Result<u64> {
    let sql = "select coalesce(sum(calls), 0)::int8 from pg_stat_statements where query not like '%pg_stat_statements%'";
    match stores.sql(sql)? {
        Some(text) => text.trim().parse().context("the server's count of statements"),
        None => Ok(engine.store().statements()),
    }
}

/// Processor time of this process.
fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("this process's statistics")?;
    // The name may contain spaces; what follows its closing parenthesis does not.
    let rest = stat.rsplit_once(')').context("this process's statistics")?.1;
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
    // A tick is a hundredth of a second on every Linux that is in use.
    Ok(ticks.iter().sum::<u64>() as f64 / 100.0)
}
