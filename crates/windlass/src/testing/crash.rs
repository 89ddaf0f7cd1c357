//! Runs a scenario once for each of its commits, and lets the worker die there.

use std::{fmt::Debug, future::Future, sync::Arc};

use super::{
    lab::{Lab, Setup},
    store::{Crash, opened},
};
use crate::Engine;

/// What came of it.
#[derive(Debug)]
pub struct CrashReport<R> {
    /// What the scenario returned, in every run.
    pub outcome: R,
    /// How many commits it makes if nobody dies.
    pub commits: usize,
    /// How often it was run with a crash.
    pub crashes: usize,
}

/// Runs a scenario in a fresh [`Lab`] in memory, and again for each of its commits with a worker that dies there: once
/// before the commit is applied, and once after, before the worker hears of it. Panics if any run returns something else
/// than the first.
pub async fn crash_at_every_commit<R, S, F, Fut>(setup: S, scenario: F) -> CrashReport<R>
where
    R: PartialEq + Debug,
    S: Fn(Engine) -> Engine + Send + Sync + 'static,
    F: Fn(Arc<Lab>) -> Fut,
    Fut: Future<Output = R>,
{
    crash_at_every_commit_on(async || "memory:".to_owned(), setup, scenario).await
}

/// The same on a store of your choice: `open` answers the URL of a fresh, empty one for each run.
pub async fn crash_at_every_commit_on<R, S, F, Fut>(
    open: impl AsyncFn() -> String,
    setup: S,
    scenario: F,
) -> CrashReport<R>
where
    R: PartialEq + Debug,
    S: Fn(Engine) -> Engine + Send + Sync + 'static,
    F: Fn(Arc<Lab>) -> Fut,
    Fut: Future<Output = R>,
{
    let setup: Setup = Arc::new(setup);
    let run = async |crash: Option<Crash>| {
        let url = open().await;
        let store = opened(windlass_store::open(&url, true).await, &url);
        let lab = Arc::new(Lab::with(&url, store, Arc::clone(&setup), crash).await);
        let outcome = scenario(Arc::clone(&lab)).await;
        (outcome, lab)
    };
    let (outcome, lab) = run(None).await;
    let commits = lab.commits();
    // The runs may share a store: nobody of this one works on it any more.
    drop(lab);
    let mut crashes = 0;
    for at in 0.. {
        let mut happened = false;
        for applied in [false, true] {
            let crash = Crash { at, applied };
            let (other, lab) = run(Some(crash)).await;
            if !lab.has_crashed() {
                continue;
            }
            happened = true;
            crashes += 1;
            if other != outcome {
                let how = if applied { "after" } else { "before" };
                panic!(
                    "a crash {how} commit {at} of {commits} changes the outcome\n  without: {outcome:?}\n  with:    {other:?}\n\
                     what the store has then:\n{}",
                    lab.describe().await
                );
            }
        }
        if !happened {
            return CrashReport { outcome, commits, crashes };
        }
    }
    unreachable!("a scenario has an end")
}
