//! Drains preloaded jobs through a server: the worker has no access to the database.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use windlass::Engine;
use windlass_server::{Server, Settings};

use super::{
    Stores, drain,
    record::{self, Noop},
    report::Report,
};

/// How long the jobs may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Drains n preloaded tasks with one worker that knows only the address of a server.
pub(super) async fn run(stores: &Stores, n: usize) -> anyhow::Result<Report> {
    let (floor_seconds, _) = drain::measure_floor(stores, n).await?;
    record::prepare(n);
    let host = stores.builder().task::<Noop>().open().await?;
    host.submit_all((0..n).map(|n| Noop { n })).await?;
    host.start_maintenance().await?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(host.clone(), Settings { listen, rate: 0, ..Settings::default() }).await?;
    let url = format!("http://{}", server.address());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async move {
        let _ = stopped.await;
    }));
    let worker = Engine::builder(url).task::<Noop>().open().await?;
    stores.settle()?;

    let before = worker.store().statements();
    let started = Instant::now();
    worker.start().await?;
    while worker.counts().committed < n as u64 && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let calls = worker.store().statements() - before;
    let counts = worker.counts();
    worker.stop().await;
    drop(stop);
    serving.await?;
    host.stop().await;
    let account = record::account(&host, n).await?;
    let bytes = host.inspect().bytes().await?;
    Ok(Report::new("remote", stores.name(), n)
        .rate(n, seconds)
        .figure("floor_per_second", n as f64 / floor_seconds)
        .figure("db_bytes_per_job", bytes as f64 / n as f64)
        .figure("commits_per_job", counts.commits as f64 / n as f64)
        .figure("calls_per_job", calls as f64 / n as f64)
        .with("executed", record::executed())
        .account(account))
}
