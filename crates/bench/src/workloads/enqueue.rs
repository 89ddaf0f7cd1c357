//! Bulk submit.

use std::time::Instant;

use windlass::env::IdSource;

use super::{
    Stores, drain,
    record::{Account, Noop},
    report::Report,
};

pub(super) async fn run(stores: &Stores, n: usize) -> anyhow::Result<Report> {
    let floor = {
        let store = stores.store().await?;
        let ids = IdSource::default();
        let chunks: Vec<_> =
            (0..n).step_by(1_000).map(|from| drain::jobs(&ids, from..(from + 1_000).min(n))).collect();
        let started = Instant::now();
        for pair in chunks.chunks(2) {
            let sends = pair.iter().map(|chunk| store.submit(None, chunk, None));
            futures_util::future::try_join_all(sends).await?;
        }
        n as f64 / started.elapsed().as_secs_f64()
    };
    stores.settle()?;
    let engine = stores.builder().open().await?;
    let started = Instant::now();
    let submitted = engine.submit_all((0..n).map(|n| Noop { n })).await?;
    let seconds = started.elapsed().as_secs_f64();

    let state_counts = engine.inspect().state_counts().await?;
    let ready: u64 = state_counts.iter().map(|count| count.jobs).sum();
    let new = submitted.iter().filter(|submitted| submitted.is_new()).count();
    let account = Account {
        lost: n.saturating_sub(ready as usize).max(n - new),
        duplicated: (ready as usize).saturating_sub(n),
    };
    let bytes = engine.inspect().bytes().await?;
    Ok(Report::new("enqueue", stores.name(), n)
        .rate(n, seconds)
        .figure("floor_per_second", floor)
        .figure("db_bytes_per_job", bytes as f64 / n as f64)
        .account(account))
}
