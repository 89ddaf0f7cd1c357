//! Workflows and branches on every store; for most calls with a worker that dies at each commit.

mod blocks;
mod branch_cancels;
mod branch_crashes;
mod cancel_scopes;
mod code_changes;
mod crashes;
mod dropped_futures;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod encrypted;
mod fixed_branches;
mod in_flight;
mod made_calls;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod missing_children;
mod misuse;
mod recorded;
mod redrives;
mod repeats;
mod retries;
mod retry_or_fork;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod sources;
mod spawns;
mod step_ids;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod transactions;
mod undos;

use std::{collections::BTreeMap, sync::Mutex};

use windlass::testing::{CrashReport, Lab};

use crate::common::{TestStore, postgres, sqlite};

/// The stores that a test runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum On {
    Memory,
    Sqlite,
    Postgres,
}

impl On {
    /// A fresh, empty store.
    pub(crate) async fn fresh(self) -> TestStore {
        match self {
            On::Memory => TestStore { url: "memory:".into(), _dir: None },
            On::Sqlite => sqlite(),
            On::Postgres => tokio::task::spawn_blocking(postgres).await.expect("a server"),
        }
    }

    /// Runs a scenario with a crash at each of its commits.
    pub(crate) async fn crash<R, F, Fut>(
        self,
        setup: impl Fn(windlass::Builder) -> windlass::Builder + Send + Sync + 'static,
        scenario: F,
    ) -> CrashReport<R>
    where
        R: PartialEq + std::fmt::Debug,
        F: Fn(std::sync::Arc<Lab>) -> Fut,
        Fut: Future<Output = R>,
    {
        // Making a schema is slow: on PostgreSQL the runs share one. All jobs of the earlier runs have ended.
        let shared = self.fresh().await;
        let stores = Mutex::new(Vec::new());
        let open = async || {
            if self == On::Postgres {
                return shared.url.clone();
            }
            let store = self.fresh().await;
            let url = store.url.clone();
            stores.lock().expect("stores").push(store);
            url
        };
        windlass::testing::crash_at_every_commit_on(open, setup, scenario).await
    }
}

/// Runs a test body on every store.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        $crate::flow::on_every_store!(@ , memory Memory $($name)*);
        $crate::flow::on_every_store!(@ feature = "sqlite", sqlite Sqlite $($name)*);
        $crate::flow::on_every_store!(@ feature = "postgres", postgres Postgres $($name)*);
    };
    (@ $($when:meta)? , $store:ident $on:ident $($name:ident)*) => {
        $(#[cfg($when)])?
        mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::flow::On::$on).await;
            })*
        }
    };
}
pub(crate) use on_every_store;

/// How often something ran, by a name that the test chooses.
static RAN: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// Counts that something ran, and returns how often by now.
pub(crate) fn ran(what: impl ToString) -> u32 {
    let mut ran = RAN.lock().unwrap_or_else(|e| e.into_inner());
    let count = ran.entry(what.to_string()).or_default();
    *count += 1;
    *count
}

/// How often something ran.
pub(crate) fn times(what: impl ToString) -> u32 {
    RAN.lock().unwrap_or_else(|e| e.into_inner()).get(&what.to_string()).copied().unwrap_or(0)
}
