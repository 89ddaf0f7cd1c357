//! What tests do with jobs: read their state, keep attempts waiting, lose workers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::Semaphore;
use windlass::{
    Engine, JobId, State,
    env::IdSource,
    model::{ClaimNo, KindVersion},
    store::{ClaimRequest, NewWorker, ReapRequest},
};

use super::until;

/// The state of a job.
pub(crate) async fn state(engine: &Engine, id: JobId) -> State {
    engine.inspect().job(id).await.expect("read").expect("the job exists").summary.state
}

/// Returns once the job is in this state.
pub(crate) async fn reaches(engine: &Engine, id: JobId, wanted: State) {
    until(&format!("{id} is {wanted}"), async || state(engine, id).await == wanted).await;
}

/// The gate of this name: attempts wait there until a test adds permits. Names must differ between tests.
pub(crate) fn gate(name: &str) -> Arc<Semaphore> {
    static GATES: Mutex<BTreeMap<String, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());
    let mut gates = GATES.lock().expect("gates");
    Arc::clone(gates.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))))
}

/// Claims jobs of a kind for a worker that then dies: they become suspects.
pub(crate) async fn make_suspects(engine: &Engine, kind: &str, jobs: usize) {
    let store = engine.store();
    let id = IdSource::default().worker();
    let worker = NewWorker {
        id,
        name: "dies".into(),
        liveness_file: None,
        lease: Duration::from_secs(60),
        serves: Vec::new(),
        token: None,
    };
    assert!(store.register_worker(None, &worker).await.expect("registered"));
    let kinds = [KindVersion { kind: kind.into(), version: 1 }].into();
    let (number, queue) = (ClaimNo(1), "default".into());
    let request = ClaimRequest {
        worker: id,
        number,
        queue,
        kinds,
        limit: jobs,
        solo: false,
        only: None,
        settled: vec![],
    };
    assert_eq!(store.claim(None, &request).await.expect("claimed").jobs.len(), jobs);
    let request = ReapRequest { dead: vec![id], lapsed: false, limit: 9, max_crashes: 3 };
    assert_eq!(store.reap(None, &request).await.expect("reaped").returned, jobs);
}
