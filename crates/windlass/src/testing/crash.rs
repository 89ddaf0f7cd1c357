//! Runs a scenario once for each of its commits, and kills the worker there.

use std::{fmt::Debug, future::Future, ops::RangeInclusive, sync::Arc};

use windlass_model::Time;

use super::{
    ids::number_ids,
    lab::{Lab, Setup},
    shared::Crash,
    store::expect_store,
};
use crate::Builder;

/// The result of [`crash_at_every_commit`].
#[derive(Debug)]
pub struct CrashReport<R> {
    /// What the scenario returned in every run.
    pub outcome: R,
    /// The number of commits of the run without a crash.
    pub commits: usize,
    /// The number of runs with a crash.
    pub crashes: usize,
}

/// Runs a scenario in a fresh [`Lab`] with a store in memory, and then twice for each of its commits with a worker that dies
/// there: before the commit is applied, and after, before the worker receives the answer.
///
/// All runs start at the same time of the lab. Ids of jobs are new in every run; outcomes that contain them, also as part of an id of
/// a step, are compared by their `Debug` text, in which ids are replaced by the order of their first appearance.
///
/// # Panics
///
/// If a run returns something else than the first one.
pub async fn crash_at_every_commit<R, S, F, Fut>(setup: S, scenario: F) -> CrashReport<R>
where
    R: PartialEq + Debug,
    S: Fn(Builder) -> Builder + Send + Sync + 'static,
    F: Fn(Arc<Lab>) -> Fut,
    Fut: Future<Output = R>,
{
    crash_at_every_commit_on(async || "memory:".to_owned(), setup, scenario).await
}

/// The same on a store of your choice: `open` returns the URL of an empty store. It is called once before each run, and so is also the
/// place to reset data that the setup shares with the scenario.
pub async fn crash_at_every_commit_on<R, S, F, Fut>(
    open: impl AsyncFn() -> String,
    setup: S,
    scenario: F,
) -> CrashReport<R>
where
    R: PartialEq + Debug,
    S: Fn(Builder) -> Builder + Send + Sync + 'static,
    F: Fn(Arc<Lab>) -> Fut,
    Fut: Future<Output = R>,
{
    let setup: Setup = Arc::new(setup);
    let started_at = Lab::start_time();
    let run = async |crash: Option<Crash>| {
        let url = open().await;
        let store = expect_store(windlass_store::open(&url, true).await, &url);
        let lab = Arc::new(Lab::with(&url, store, Arc::clone(&setup), started_at, crash).await);
        let outcome = scenario(Arc::clone(&lab)).await;
        (outcome, lab)
    };
    let (outcome, lab) = run(None).await;
    let (commits, times) = (lab.commits(), lab.times());
    // The runs may share a store: the worker of this one must not continue.
    drop(lab);
    let mut crashes = 0;
    for commit in 0.. {
        let mut happened = false;
        for applied in [false, true] {
            let crash = Crash { commit, applied };
            let (other, lab) = run(Some(crash)).await;
            if !lab.has_crashed() {
                continue;
            }
            happened = true;
            crashes += 1;
            if other != outcome && !differ_only_in_ids((&outcome, &times), (&other, &lab.times())) {
                let how = if applied { "after" } else { "before" };
                panic!(
                    "a crash {how} commit {commit} of {commits} changes the outcome\n  without: {outcome:?}\n  with:    {other:?}\n\
                     jobs and journals in the store:\n{}",
                    lab.describe().await
                );
            }
        }
        if !happened {
            return CrashReport { outcome, commits, crashes };
        }
    }
    unreachable!("a scenario has a last commit")
}

/// Whether two outcomes differ only in the ids of jobs that their runs made.
fn differ_only_in_ids<R: Debug>(
    (one, times): (&R, &RangeInclusive<Time>),
    (other, other_times): (&R, &RangeInclusive<Time>),
) -> bool {
    let (one, other) = (format!("{one:?}"), format!("{other:?}"));
    // The same text of unequal values does not show what is different.
    one != other && number_ids(&one, times) == number_ids(&other, other_times)
}
