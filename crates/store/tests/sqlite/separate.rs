//! The suite once more with every sibling opened on its own, as another process would be: own connections, own
//! caches, and the file's locks between them.

use std::{path::PathBuf, sync::Arc};

use tempfile::TempDir;
use windlass_model::{Change, ClaimNo, Epoch, JobId, Limits, NewJob, Submitted, Verdict, WorkerId};
use windlass_store::{
    Ask, Beat, Born, Due, Ended, Fut, Haul, Inspect, NewWorker, Now, Reaped, Renewal, Store, Sweep,
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

impl Store for Separate {
    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(std::future::ready(Ok(separate(self.path.clone()))))
    }

    fn enlist<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        self.store.enlist(now, worker)
    }

    fn submit<'a>(&'a self, now: Now, jobs: &'a [NewJob], born: Option<Born>) -> Fut<'a, Vec<Submitted>> {
        self.store.submit(now, jobs, born)
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a Ask) -> Fut<'a, Haul> {
        self.store.claim(now, ask)
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<Verdict>> {
        self.store.commit(now, changes)
    }

    fn renew<'a>(&'a self, now: Now, beat: &'a Beat) -> Fut<'a, Renewal> {
        self.store.renew(now, beat)
    }

    fn reap<'a>(&'a self, now: Now, sweep: &'a Sweep) -> Fut<'a, Reaped> {
        self.store.reap(now, sweep)
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [(JobId, Epoch)]) -> Fut<'a, usize> {
        self.store.release(now, jobs)
    }

    fn disown<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        self.store.disown(now, worker, numbers)
    }

    fn retire<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize> {
        self.store.retire(now, worker)
    }

    fn due(&self, now: Now, limit: usize) -> Fut<'_, Due> {
        self.store.due(now, limit)
    }

    fn gate<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        self.store.gate(queues)
    }

    fn ended<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<Ended>>> {
        self.store.ended(ids)
    }

    fn inspect(&self) -> &dyn Inspect {
        self.store.inspect()
    }

    fn control(&self) -> &dyn windlass_store::Control {
        self.store.control()
    }

    fn orders(&self, worker: WorkerId) -> Fut<'_, Vec<windlass_store::Order>> {
        self.store.orders(worker)
    }

    fn sweep(&self, now: Now) -> Fut<'_, usize> {
        self.store.sweep(now)
    }

    fn limits(&self) -> &Limits {
        self.store.limits()
    }

    fn beacon_dir(&self) -> Option<PathBuf> {
        self.store.beacon_dir()
    }

    fn statements(&self) -> u64 {
        self.store.statements()
    }
}
