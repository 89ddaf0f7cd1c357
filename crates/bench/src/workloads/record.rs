//! Executions, recorded by the tasks themselves and compared with the store.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};

use windlass::{
    Engine, JobId, State,
    prelude::*,
    store::{Filter, Inspect},
};

/// How often each number was executed.
static EXECUTIONS: OnceLock<Vec<AtomicU32>> = OnceLock::new();

/// Prepares the record for numbers below `n`.
pub(super) fn prepare(n: usize) {
    EXECUTIONS.get_or_init(|| (0..n).map(|_| AtomicU32::new(0)).collect());
}

/// A task that only records that it ran.
#[derive(Serialize, Deserialize)]
pub(super) struct Noop {
    pub(super) n: usize,
}

impl Task for Noop {
    const KIND: &'static str = "bench.noop";
    type Output = usize;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<usize, Failure> {
        if let Some(count) = EXECUTIONS.get().and_then(|all| all.get(self.n)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.n)
    }
}

/// How many numbers were executed at least once.
pub(super) fn executed() -> usize {
    let all = EXECUTIONS.get().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(|count| count.load(Ordering::Relaxed) > 0).count()
}

/// The differences between the record and the store.
#[derive(Clone, Copy, Default)]
pub(super) struct Account {
    /// Jobs that were submitted and were not executed, or are not done in the store with the output of their own run.
    pub(super) lost: usize,
    /// Jobs that were executed more than once.
    pub(super) duplicated: usize,
}

/// Compares the record with the store, job by job.
pub(super) async fn account(engine: &Engine, n: usize) -> anyhow::Result<Account> {
    let executions = EXECUTIONS.get().map(Vec::as_slice).unwrap_or_default();
    let mut done = vec![false; n];
    for id in done_jobs(engine.inspect()).await? {
        for ended in engine.store().job_ends(&id).await?.into_iter().flatten() {
            if let windlass::store::JobEnd::Done(output) = ended {
                let number: usize = serde_json::from_slice(&output.bytes)?;
                if let Some(done) = done.get_mut(number) {
                    *done = true;
                }
            }
        }
    }
    let count = |n: usize| executions.get(n).map_or(0, |count| count.load(Ordering::Relaxed));
    Ok(Account {
        lost: (0..n).filter(|n| !done[*n] || count(*n) == 0).count(),
        duplicated: (0..n).filter(|n| count(*n) > 1).count(),
    })
}

/// The ids of all jobs that are done, a page at a time.
async fn done_jobs(inspect: &dyn Inspect) -> anyhow::Result<Vec<Vec<JobId>>> {
    let mut pages = Vec::new();
    let mut filter = Filter { state: Some(State::Done), limit: 5_000, ..Filter::default() };
    loop {
        let page = inspect.jobs(&filter).await?;
        pages.push(page.jobs.iter().map(|job| job.id).collect());
        let Some(next) = page.next else { return Ok(pages) };
        filter.before = Some(next);
    }
}
