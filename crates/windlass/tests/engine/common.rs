//! Fresh stores for tests of the engine: a SQLite file and a schema in a private PostgreSQL server.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use windlass::{
    Engine,
    model::{ClaimNo, KindVersion},
    store::{Ask, IdSource, NewWorker, Sweep},
};
use windlass_cluster::Cluster;

/// A store that is gone after the test.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) _dir: Option<tempfile::TempDir>,
}

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A fresh SQLite file.
pub(crate) fn sqlite() -> Place {
    let dir = tempfile::tempdir().expect("a temporary folder");
    Place { url: format!("sqlite://{}", dir.path().join("work.db").display()), _dir: Some(dir) }
}

/// A fresh schema in a server that all tests of this process share. It ends with the process.
pub(crate) fn postgres() -> Place {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| Cluster::start().expect("PostgreSQL is needed for this test"));
    on(cluster)
}

/// A fresh schema in a server of the test's own.
pub(crate) fn on(cluster: &Cluster) -> Place {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Place { url: format!("{}?schema=t{}_{number}", cluster.url(), std::process::id()), _dir: None }
}

/// Claims jobs of a kind for a worker that then dies: they become suspects.
pub(crate) async fn lose(engine: &Engine, kind: &str, jobs: usize) {
    let store = engine.store();
    let id = IdSource::new().worker();
    let new = NewWorker {
        id,
        name: "dies".into(),
        beacon: None,
        lease: Duration::from_secs(60),
        serves: Vec::new(),
    };
    assert!(store.enlist(None, &new).await.expect("enlisted"));
    let kinds = [KindVersion { kind: kind.into(), version: 1 }].into();
    let (number, queue) = (ClaimNo(1), "default".into());
    let ask = Ask { worker: id, number, queue, kinds, limit: jobs, alone: false, settled: vec![] };
    assert_eq!(store.claim(None, &ask).await.expect("claimed").jobs.len(), jobs);
    let sweep = Sweep { dead: vec![id], lapsed: false, limit: 9, crashes: 3 };
    assert_eq!(store.reap(None, &sweep).await.expect("reaped").returned, jobs);
}

/// Runs a test body on both stores.
#[macro_export]
macro_rules! on_both_stores {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        mod sqlite {
            $($(#[$meta])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let place = $crate::common::sqlite();
                super::$name(&place.url).await;
            })*
        }
        mod postgres {
            $($(#[$meta])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let place = tokio::task::spawn_blocking($crate::common::postgres).await.expect("a server");
                super::$name(&place.url).await;
            })*
        }
    };
}
