//! Fresh stores for tests of the engine: a SQLite file and a schema in a private PostgreSQL server.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use windlass_testpg::Cluster;

/// A store of one test. Its SQLite file is deleted with it.
pub(crate) struct TestStore {
    pub(crate) url: String,
    pub(crate) _dir: Option<tempfile::TempDir>,
}

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A fresh SQLite file.
pub(crate) fn sqlite() -> TestStore {
    let dir = tempfile::tempdir().expect("a temporary folder");
    TestStore { url: format!("sqlite://{}", dir.path().join("work.db").display()), _dir: Some(dir) }
}

/// A fresh schema in a server that all tests of this process share. It ends with the process.
pub(crate) fn postgres() -> TestStore {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| Cluster::start().expect("PostgreSQL is needed for this test"));
    postgres_on(cluster)
}

/// A fresh schema in a server of the test's own.
pub(crate) fn postgres_on(cluster: &Cluster) -> TestStore {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    TestStore { url: format!("{}?schema=t{}_{number}", cluster.url(), std::process::id()), _dir: None }
}

/// Runs a test body on both stores.
#[macro_export]
macro_rules! on_both_stores {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $($(#[$meta])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let store = $crate::common::sqlite();
                super::$name(&store.url).await;
            })*
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $($(#[$meta])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let store = tokio::task::spawn_blocking($crate::common::postgres).await.expect("a server");
                super::$name(&store.url).await;
            })*
        }
    };
}
