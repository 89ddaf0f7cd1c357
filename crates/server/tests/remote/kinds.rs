//! Kinds whose results show whether a part of them was lost or written twice.

use std::{
    collections::HashMap,
    sync::{Mutex, OnceLock, PoisonError},
};

use windlass::prelude::*;

/// How often each piece of code was executed, by a name of the test's own.
pub(crate) fn executions() -> &'static Mutex<HashMap<String, u32>> {
    static EXECUTIONS: OnceLock<Mutex<HashMap<String, u32>>> = OnceLock::new();
    EXECUTIONS.get_or_init(Mutex::default)
}

/// Notes an execution. Returns how many there were.
pub(crate) fn note(name: &str) -> u32 {
    let mut executions = executions().lock().unwrap_or_else(PoisonError::into_inner);
    let count = executions.entry(name.to_owned()).or_default();
    *count += 1;
    *count
}

/// Doubles a number. The first attempt at every seventh fails.
#[derive(Serialize, Deserialize)]
pub(crate) struct Double {
    pub(crate) test: String,
    pub(crate) n: u64,
}

impl Task for Double {
    const KIND: &'static str = "double";
    type Output = u64;
    type Error = Failure;

    fn retry() -> Retry {
        Retry::times(30).backoff(Duration::from_millis(1), Duration::from_millis(5))
    }

    async fn run(self, cx: &TaskCx) -> Result<u64, Failure> {
        note(&format!("{}/double/{}", self.test, self.n));
        if self.n % 7 == 3 && cx.attempt() == 1 {
            return Err(Failure::retry("not yet").class("busy"));
        }
        Ok(self.n * 2)
    }
}

/// Counts to a number, one committed step each.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) enum Counter {
    At { n: u32, of: u32 },
}

impl Machine for Counter {
    const KIND: &'static str = "counter";
    type Output = u32;
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Self>, Failure> {
        let Counter::At { n, of } = self;
        Ok(if n == of { Next::done(n) } else { Next::to(Counter::At { n: n + 1, of }) })
    }
}

/// Uses most of what a workflow has: a step, a child, a branch of jobs and one of blocks, a sleep, a signal.
#[derive(Serialize, Deserialize)]
pub(crate) struct Tour {
    pub(crate) test: String,
    pub(crate) n: u64,
}

impl Workflow for Tour {
    const KIND: &'static str = "tour";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let (test, n) = (self.test.clone(), self.n);
        let first: u64 = flow.step("first", move || async move { Ok::<_, Failure>(n + 1) }).await?;
        let child: u64 = flow.child("one", Double { test: test.clone(), n: first }).await?;
        flow.sleep(Duration::from_millis(5)).await;
        let parts: Vec<u64> = (0..5).map(|part| 10 * n + part).collect();
        let of = test.clone();
        let sum: u64 = flow
            .branch("parts")
            .spawn_each("part", parts, move |part: u64| Double { test: of.clone(), n: part })
            .merge(Merge::all())
            .reduce(0u64, |sum, part: u64| sum + part)
            .await?;
        let items: u64 = flow
            .branch("items")
            .packed()
            .spawn_each("item", 0..50u64, move |item: u64| Double { test: test.clone(), n: item })
            .merge(Merge::all())
            .reduce(0u64, |sum, item: u64| sum + item)
            .await?;
        let signalled: u64 = flow.signal("go").await?;
        Ok(child + sum + items + signalled)
    }
}

impl Tour {
    /// What it returns if nothing is lost or done twice.
    pub(crate) fn expected(n: u64, signalled: u64) -> u64 {
        let (parts, items) = ((0..5).map(|part| 2 * (10 * n + part)), (0..50).map(|item| 2 * item));
        2 * (n + 1) + parts.sum::<u64>() + items.sum::<u64>() + signalled
    }
}

/// Needs the database, and says so only when it runs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Transfers {}

impl Workflow for Transfers {
    const KIND: &'static str = "transfers";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.transaction("book", |_tx| async { Ok::<_, Failure>(()) }).await
    }
}

/// Needs the database, and says so before.
#[derive(Serialize, Deserialize)]
pub(crate) struct Declared {}

impl Workflow for Declared {
    const KIND: &'static str = "declared";
    type Output = ();
    type Error = Failure;

    fn needs() -> Needs {
        Needs::new().database()
    }

    async fn run(self, _flow: Flow) -> Result<(), Failure> {
        Ok(())
    }
}
