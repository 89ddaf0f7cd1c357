//! The conformance suite with every sibling opened separately, as in another process: it has connections and caches of its
//! own, and shares only the file and its locks.

use std::{path::PathBuf, sync::Arc};

use tempfile::TempDir;
use windlass_store::{
    Fut, Store, Wrapper,
    sqlite::{Options, Sqlite},
};

struct Separate {
    path: PathBuf,
    store: Sqlite,
}

fn separate(path: PathBuf) -> Arc<dyn Store> {
    let store = Sqlite::open(Options::new(&path)).expect("open");
    Arc::new(Separate { path, store })
}

async fn open() -> (TempDir, Arc<dyn Store>) {
    let (folder, path) = super::path();
    (folder, separate(path))
}

windlass_store::conformance!(open);

impl Wrapper for Separate {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(std::future::ready(Ok(separate(self.path.clone()))))
    }
}
