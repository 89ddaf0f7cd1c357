//! An engine in a test: virtual time, one slot, and crashes on demand.

use std::{
    marker::PhantomData,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Mutex;
use windlass_env::{Env, VirtualClock};
use windlass_model::{JobId, JournalEntry, State, Time};
use windlass_runtime::{Config, Pool, Retention};
use windlass_store::{Backlog, ReapRequest, Store};

use super::store::{Crash, Life, Shared, VirtualStore, opened};
use crate::{Engine, Error, Filter, JobError, Kind};

/// Registers the kinds under test with an engine.
pub(super) type Setup = Arc<dyn Fn(Engine) -> Engine + Send + Sync>;

/// How long a job may run without a commit, in real time.
const PATIENCE: Duration = Duration::from_secs(30);
/// The lease of a lab's worker, so that it holds when the clock jumps.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// An engine in a test, with a clock of its own that is set forward when there is nothing to do but wait.
pub struct Lab {
    store: Arc<dyn Store>,
    url: String,
    shared: Arc<Shared>,
    setup: Setup,
    engine: Mutex<Option<Engine>>,
    life: Mutex<Arc<Life>>,
}

/// A job in a lab.
pub struct LabJob<O> {
    id: JobId,
    output: PhantomData<fn() -> O>,
}

impl<O> Clone for LabJob<O> {
    fn clone(&self) -> LabJob<O> {
        *self
    }
}

impl<O> Copy for LabJob<O> {}

impl<O> LabJob<O> {
    /// Its id.
    pub fn id(&self) -> JobId {
        self.id
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.life.get_mut().end();
        self.life.get_mut().mark_dead();
    }
}

impl Lab {
    /// A lab with a store in memory. `setup` registers the kinds under test: `|engine| engine.workflow::<Order>()`.
    pub async fn new(setup: impl Fn(Engine) -> Engine + Send + Sync + 'static) -> Lab {
        Lab::on("memory:", setup).await
    }

    /// A lab on the store at `url`. Let nobody else work on it.
    pub async fn on(url: &str, setup: impl Fn(Engine) -> Engine + Send + Sync + 'static) -> Lab {
        let store = opened(windlass_store::open(url, true).await, url);
        Lab::with(url, store, Arc::new(setup), None).await
    }

    /// Where its store is.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(super) async fn with(url: &str, store: Arc<dyn Store>, setup: Setup, crash: Option<Crash>) -> Lab {
        // Whole seconds are easier to read.
        let now = Env::real().now().micros() / 1_000_000 * 1_000_000;
        let shared = Arc::new(Shared::new(VirtualClock::new(Time(now)), crash));
        let lab = Lab {
            store,
            url: url.to_owned(),
            shared,
            setup,
            engine: Mutex::new(None),
            life: Mutex::default(),
        };
        lab.restart().await;
        lab
    }

    /// The time in the lab.
    pub fn now(&self) -> Time {
        self.shared.now()
    }

    /// The engine, for whatever the lab itself has no word for. After a crash it is another one.
    pub async fn engine(&self) -> Engine {
        match &*self.engine.lock().await {
            Some(engine) => engine.clone(),
            None => unreachable!("a lab always has an engine"),
        }
    }

    /// Lets the worker die, wherever it is, and starts another.
    pub async fn crash(&self) {
        self.life.lock().await.end();
        self.restart().await;
    }

    async fn restart(&self) {
        let mut engine = self.engine.lock().await;
        let dead = match &*engine {
            Some(engine) => engine.worker().await,
            None => None,
        };
        *engine = None;
        if let Some(dead) = dead {
            let sweep = ReapRequest { dead: vec![dead], lapsed: false, limit: 1_000, crashes: u16::MAX };
            opened(self.store.reap(Some(self.now()), &sweep).await, &self.url);
        }
        let life = Arc::new(Life::default());
        std::mem::replace(&mut *self.life.lock().await, Arc::clone(&life)).mark_dead();
        let (store, shared) = (Arc::clone(&self.store), Arc::clone(&self.shared));
        let store: Arc<dyn Store> = Arc::new(VirtualStore { store, shared, life });
        // The same dice in every run.
        let env = Env::with_clock(Arc::clone(&self.shared.clock)).with_random(|| 0.5);
        let (lease, retention) = (YEAR, Retention::FOREVER);
        let config = Config { lease, retention, drain: Duration::ZERO, ..Config::default() };
        // One change per commit: where a run crashes is then the same in every run.
        let new = (self.setup)(Engine::with_env(&self.url, store, env))
            .config(config)
            .queue("default", Pool::slots(1));
        let started = new.start().await;
        *engine = Some(started.unwrap_or_else(|error| panic!("the engine of the lab: {error}")));
    }

    /// Puts a job in.
    pub async fn submit<J: Kind<M>, M>(&self, job: J) -> LabJob<J::Output> {
        let handle = self.engine().await.submit(job).id(self.engine().await.new_id()).await;
        let handle = handle.unwrap_or_else(|error| panic!("a submit in the lab: {error}"));
        LabJob { id: handle.id(), output: PhantomData }
    }

    /// A job that was put in through the engine.
    pub fn job<O>(&self, id: JobId) -> LabJob<O> {
        LabJob { id, output: PhantomData }
    }

    /// Sends a signal to a job.
    pub async fn signal<O, T: Serialize>(&self, job: LabJob<O>, name: &str, payload: T) {
        let sent = self.engine().await.signal(job.id, name, payload).await;
        sent.unwrap_or_else(|error| panic!("a signal in the lab: {error}"));
    }

    /// Cancels a job.
    pub async fn cancel<O>(&self, job: LabJob<O>) {
        let engine = self.engine().await;
        let did = engine.control("lab").cancel(job.id).await;
        did.unwrap_or_else(|error| panic!("a cancel in the lab: {error}"));
    }

    /// Runs until every job has ended or waits for something from outside. The clock is set forward to each timer.
    pub async fn run(&self) {
        self.work(None).await;
    }

    /// Runs until this much time has passed in the lab.
    pub async fn advance(&self, span: Duration) {
        let until = self.now().plus(span);
        self.work(Some(until)).await;
        self.shared.set(until);
        self.work(Some(until)).await;
    }

    async fn work(&self, until: Option<Time>) {
        let real = Env::real();
        let mut last = (None, real.instant());
        loop {
            if self.shared.is_dead.swap(false, Ordering::SeqCst) {
                self.restart().await;
            }
            let moved = self.shared.moved.notified();
            let verbs = self.shared.verbs().await;
            let backlog = opened(self.store.inspect().backlog(1_000).await, &self.url);
            let due = opened(self.store.fire_timers(Some(self.now()), 1_000).await, &self.url);
            let paused = opened(self.store.inspect().queues().await, &self.url);
            // What waits in a paused queue waits for someone from outside.
            let paused = |name: &str| paused.iter().any(|queue| queue.name == name && queue.paused.is_some());
            let ready = |queue: &Backlog| if paused(&queue.queue) { 0 } else { queue.ready };
            let running: u64 = backlog.iter().map(|queue| queue.running).sum();
            let is_busy = running > 0 || backlog.iter().any(|queue| ready(queue) > 0);
            if !is_busy && due.woken + due.admitted + due.fired + due.expired + due.cancelled == 0 {
                let next = due.next_at.filter(|at| until.is_none_or(|until| *at <= until));
                // Unless the worker did something meanwhile: then what was seen is of different moments.
                if self.shared.set_if_still(verbs, next).await && next.is_none() {
                    return;
                }
                continue;
            }
            if running == 0 {
                self.engine().await.poke();
            }
            let progress = Some((self.shared.commits.load(Ordering::SeqCst), self.now()));
            if last.0 != progress {
                last = (progress, real.instant());
            }
            let something = async {
                tokio::select! {
                    () = moved => {}
                    () = self.shared.died.notified() => {}
                }
            };
            if real.timeout_at(last.1 + PATIENCE, something).await.is_err() {
                panic!("nothing was committed in the lab for {PATIENCE:?}: {backlog:?}");
            }
        }
    }

    /// What became of a job that has ended; [`JobError::Unfinished`] of one that waits.
    pub async fn result<O: DeserializeOwned>(&self, job: LabJob<O>) -> Result<O, JobError> {
        let engine = self.engine().await;
        match self.store.job_ends(&[job.id]).await.map_err(JobError::Store)?.pop().flatten() {
            Some(ended) => windlass_workflow::engine::decode_output(job.id, ended, engine.codecs()),
            None => Err(JobError::Unfinished(job.id)),
        }
    }

    /// Where a job stands.
    pub async fn state<O>(&self, job: LabJob<O>) -> State {
        let found = opened(self.store.inspect().job(job.id).await, &self.url);
        found.map(|job| job.summary.state).unwrap_or_else(|| panic!("job {} is not there", job.id))
    }

    /// A value of a workflow's context.
    pub async fn context<O, T: DeserializeOwned>(&self, job: LabJob<O>, name: &str) -> Option<T> {
        let engine = self.engine().await;
        let context = engine.context(job.id).await;
        let context = context.unwrap_or_else(|error: Error| panic!("a context in the lab: {error}"));
        context.get(name).cloned().and_then(|value| serde_json::from_value(value).ok())
    }

    /// A workflow's journal.
    pub async fn journal<O>(&self, job: LabJob<O>) -> Vec<JournalEntry> {
        opened(self.store.inspect().journal(job.id, None, usize::MAX).await, &self.url)
    }

    /// How many changes were brought to the store.
    pub fn commits(&self) -> usize {
        self.shared.commits.load(Ordering::SeqCst)
    }

    /// Whether the crash that was planned has happened.
    pub(super) fn has_crashed(&self) -> bool {
        self.shared.crash.lock().unwrap_or_else(|e| e.into_inner()).is_none()
    }

    /// All jobs and their journals, for a report.
    pub(super) async fn describe(&self) -> String {
        let filter = Filter { limit: 20, ..Filter::default() };
        let jobs = opened(self.store.inspect().jobs(&filter).await, &self.url);
        let mut text = String::new();
        for job in jobs {
            text += &format!("  {} {} is {}\n", job.kind, job.id, job.state);
            for entry in opened(self.store.inspect().journal(job.id, None, 200).await, &self.url) {
                let key = entry.key.map(|key| format!(" [{key}]")).unwrap_or_default();
                let payload = String::from_utf8_lossy(&entry.payload.bytes);
                text += &format!(
                    "    {:>4} {} {:?}{key} {}: {}\n",
                    entry.seq,
                    entry.op,
                    entry.name,
                    entry.mark,
                    payload.chars().take(100).collect::<String>()
                );
            }
        }
        text
    }
}
