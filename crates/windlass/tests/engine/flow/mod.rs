//! Workflows: what each call promises, with a worker that dies at each of its commits, on every store.

mod branches;
mod cascades;
mod changed;
mod children;
mod crashes;
mod decided;
mod dropped;
mod ids;
mod kept;
mod limits;
mod mended;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod missing;
mod misuse;
mod packed;
mod repeated;
mod retried;
mod sealed;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod sourced;
mod spawned;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod transacted;
mod undone;

use std::{collections::BTreeMap, sync::Mutex};

use windlass::{Engine, testing::CrashReport, testing::Lab};

use crate::common::{TestStore, postgres, sqlite};

/// The stores that a case is run on.
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
        setup: impl Fn(Engine) -> Engine + Send + Sync + 'static,
        scenario: F,
    ) -> CrashReport<R>
    where
        R: PartialEq + std::fmt::Debug,
        F: Fn(std::sync::Arc<Lab>) -> Fut,
        Fut: Future<Output = R>,
    {
        // A schema is slow to make: there, the runs share one, in which all jobs of the others have ended.
        let shared = self.fresh().await;
        let places = Mutex::new(Vec::new());
        let open = async || {
            if self == On::Postgres {
                return shared.url.clone();
            }
            let place = self.fresh().await;
            let url = place.url.clone();
            places.lock().expect("places").push(place);
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

/// What ran, and how often, by a name of the test's choice.
static RAN: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// Notes that something ran, and says how often by now.
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
