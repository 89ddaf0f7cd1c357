//! Drains preloaded jobs, with and without the engine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use windlass::{
    Time,
    env::IdSource,
    model::{Change, ClaimNo, CommitOutcome, KindVersion, NewJob, Outcome, Payload},
    store::{ClaimRequest, NewWorker, Store},
};

use super::{
    Stores,
    record::{self, Noop},
    report::Report,
};

/// The batch size of the floor.
const BATCH: usize = 500;

/// Claims and commits n jobs by batches, on two connections, without an engine.
pub(super) async fn floor(stores: &Stores, n: usize) -> anyhow::Result<Report> {
    let (seconds, bytes) = measure_floor(stores, n).await?;
    let rate = n as f64 / seconds;
    Ok(Report::new("floor", stores.name(), n)
        .rate(n, seconds)
        .figure("floor_per_second", rate)
        .figure("db_bytes_per_job", bytes as f64 / n as f64))
}

/// The jobs of a floor: the same rows as the engine's.
pub(super) fn jobs(ids: &IdSource, range: std::ops::Range<usize>) -> Vec<NewJob> {
    let input = |n: usize| Payload::json(format!("{{\"n\":{n}}}").into_bytes());
    range.map(|n| NewJob::new(ids.job(), "bench.noop", "default", input(n))).collect()
}

/// Returns how long n jobs take by batches without an engine, and the size of the store afterwards.
pub(super) async fn measure_floor(stores: &Stores, n: usize) -> anyhow::Result<(f64, u64)> {
    let store = stores.store().await?;
    let ids = IdSource::default();
    let mut from = 0;
    while from < n {
        let to = (from + 1_000).min(n);
        store.submit(None, &jobs(&ids, from..to), None).await?;
        from = to;
    }
    stores.settle()?;
    let started = Instant::now();
    let (a, b) = tokio::join!(
        tokio::spawn(claim_and_commit(Arc::clone(&store), ids.worker())),
        tokio::spawn(claim_and_commit(Arc::clone(&store), ids.worker()))
    );
    let (a, b) = (a??, b??);
    let seconds = started.elapsed().as_secs_f64();
    anyhow::ensure!(a + b == n, "the floor committed {} of {n} jobs", a + b);
    Ok((seconds, store.inspect().bytes().await?))
}

/// One connection's work: claim a batch, commit it, until there is none.
async fn claim_and_commit(store: Arc<dyn Store>, worker: windlass::model::WorkerId) -> anyhow::Result<usize> {
    let new = NewWorker {
        id: worker,
        name: "floor".into(),
        liveness_file: None,
        lease: Duration::from_secs(600),
        serves: Vec::new(),
        token: None,
    };
    anyhow::ensure!(store.register_worker(None, &new).await?, "the worker's name is taken");
    let kinds: Arc<[KindVersion]> = [KindVersion { kind: "bench.noop".into(), version: 1 }].into();
    let mut committed = 0;
    for number in 1.. {
        let settled = if number > 1 { vec![ClaimNo(number - 1)] } else { Vec::new() };
        let request = ClaimRequest {
            worker,
            number: ClaimNo(number),
            queue: "default".into(),
            kinds: Arc::clone(&kinds),
            limit: BATCH,
            solo: false,
            only: None,
            settled,
        };
        let batch = store.claim(None, &request).await?;
        if batch.jobs.is_empty() {
            return Ok(committed);
        }
        let now = Time::from_system(std::time::SystemTime::now());
        let change = |job: windlass::model::ClaimedJob| {
            Change::new(&job, worker, now, Outcome::Done(Payload::json(b"12345".to_vec())))
        };
        let changes: Vec<Change> = batch.jobs.into_iter().map(change).collect();
        let outcomes = store.commit(None, &changes).await?;
        committed += outcomes.iter().filter(|outcome| **outcome == CommitOutcome::Committed).count();
    }
    unreachable!("the numbers do not end")
}

/// Drains n preloaded tasks with one worker and the library's defaults.
pub(super) async fn run(stores: &Stores, n: usize) -> anyhow::Result<Report> {
    let (floor_seconds, _) = measure_floor(stores, n).await?;
    record::prepare(n);
    let engine = stores.builder().task::<Noop>().open().await?;
    engine.submit_all((0..n).map(|n| Noop { n })).await?;
    stores.settle()?;

    let started = Instant::now();
    engine.start().await?;
    let deadline = started + Duration::from_secs(300);
    while engine.counts().committed < n as u64 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let counts = engine.counts();
    engine.stop().await;
    let account = record::account(&engine, n).await?;
    let bytes = engine.inspect().bytes().await?;
    Ok(Report::new("drain", stores.name(), n)
        .rate(n, seconds)
        .figure("floor_per_second", n as f64 / floor_seconds)
        .figure("db_bytes_per_job", bytes as f64 / n as f64)
        .figure("commits_per_job", counts.commits as f64 / n as f64)
        .with("executed", record::executed())
        .account(account))
}
