//! An engine for tests: a virtual clock, one slot, and crashes on demand.

use std::{
    marker::PhantomData,
    ops::RangeInclusive,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Mutex;
use windlass_env::{Env, VirtualClock};
use windlass_model::{JobId, JournalEntry, State, Time};
use windlass_runtime::{Config, Pool, Retention};
use windlass_store::{ReapRequest, Store};

use super::{
    shared::{Crash, Lifetime, Shared},
    store::{VirtualStore, expect_store},
    timeouts::note_waiting_jobs,
};
use crate::{Builder, ControlOutcome, Engine, Error, Filter, JobError, Kind, Signal};

/// Registers the kinds under test with an engine.
pub(super) type Setup = Arc<dyn Fn(Builder) -> Builder + Send + Sync>;

/// The lease of a lab's worker: it must not lapse when the clock is set forward.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// An engine for tests, with a virtual clock.
///
/// The clock does not move while jobs run. When all of them wait, [`Lab::run`] sets it forward, but not past the timeout of a wait
/// for a signal; [`Lab::run_past_timeouts`] and [`Lab::advance`] do that, and [`Lab::run_until_waiting`] does not move it. The worker
/// has one slot, so that a scenario makes the same commits in every run. Methods panic if the store fails.
///
/// ```
/// use windlass::{prelude::*, testing::Lab};
///
/// #[derive(Serialize, Deserialize)]
/// struct Offer { to: String }
///
/// impl Workflow for Offer {
///     const KIND: &'static str = "offer";
///     type Output = bool;
///     type Error = Failure;
///
///     async fn run(self, flow: Flow) -> Result<bool, Failure> {
///         flow.step("send", async || Ok(())).await?;
///         Ok(flow.signal::<()>("accept").timeout(days(14)).await.is_ok())
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let lab = Lab::new(|engine| engine.workflow::<Offer>()).await;
/// let accepted = lab.submit(Offer { to: "Ada".into() }).await;
/// let forgotten = lab.submit(Offer { to: "Bob".into() }).await;
/// lab.run().await;                                            // until both wait
/// lab.signal(accepted, "accept", ()).await;
/// lab.run_past_timeouts().await;                              // two weeks, in no time
/// assert!(lab.result(accepted).await.unwrap());
/// assert!(!lab.result(forgotten).await.unwrap());
/// # }
/// ```
pub struct Lab {
    pub(super) store: Arc<dyn Store>,
    pub(super) url: String,
    pub(super) shared: Arc<Shared>,
    setup: Setup,
    engine: Mutex<Option<Engine>>,
    lifetime: Mutex<Arc<Lifetime>>,
    /// The time at which it started.
    started_at: Time,
}

/// A job in a lab.
pub struct LabJob<J> {
    id: JobId,
    kind: PhantomData<fn() -> J>,
}

impl<J> Clone for LabJob<J> {
    fn clone(&self) -> LabJob<J> {
        *self
    }
}

impl<J> Copy for LabJob<J> {}

impl<J> LabJob<J> {
    /// The id of the job.
    pub fn id(&self) -> JobId {
        self.id
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.lifetime.get_mut().end();
        self.lifetime.get_mut().mark_engine_dropped();
    }
}

impl Lab {
    /// Makes a lab with a store in memory. `setup` registers the kinds under test: `|engine| engine.workflow::<Order>()`.
    pub async fn new(setup: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Lab {
        Lab::on("memory:", setup).await
    }

    /// Makes a lab on the store at `url`, a `&str` or a `String`. No other worker may use that store.
    pub async fn on(url: impl AsRef<str>, setup: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Lab {
        let url = url.as_ref();
        let store = expect_store(windlass_store::open(url, true).await, url);
        Lab::with(url, store, Arc::new(setup), Lab::start_time(), None).await
    }

    /// The time at which a lab starts: full seconds are easier to read in reports.
    pub(super) fn start_time() -> Time {
        Time(Env::real().now().micros() / 1_000_000 * 1_000_000)
    }

    /// The URL of the store.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(super) async fn with(
        url: &str,
        store: Arc<dyn Store>,
        setup: Setup,
        started_at: Time,
        crash: Option<Crash>,
    ) -> Lab {
        let shared = Arc::new(Shared::new(VirtualClock::new(started_at), crash));
        expect_store(note_waiting_jobs(&*store, &shared).await, url);
        let lab = Lab {
            store,
            url: url.to_owned(),
            shared,
            setup,
            engine: Mutex::new(None),
            lifetime: Mutex::default(),
            started_at,
        };
        lab.restart().await;
        lab
    }

    /// The time of the lab.
    pub fn now(&self) -> Time {
        self.shared.now()
    }

    /// The engine, for everything that the lab has no method for. A crash replaces it.
    pub async fn engine(&self) -> Engine {
        match &*self.engine.lock().await {
            Some(engine) => engine.clone(),
            None => unreachable!("a lab always has an engine"),
        }
    }

    /// Kills the worker, whatever it is doing, and starts another.
    pub async fn crash(&self) {
        self.lifetime.lock().await.end();
        self.restart().await;
    }

    pub(super) async fn restart(&self) {
        let mut engine = self.engine.lock().await;
        let dead = match &*engine {
            Some(engine) => engine.worker().await,
            None => None,
        };
        *engine = None;
        if let Some(dead) = dead {
            let request =
                ReapRequest { dead: vec![dead], lapsed: false, limit: 1_000, max_crashes: u16::MAX };
            expect_store(self.store.reap(Some(self.now()), &request).await, &self.url);
        }
        let lifetime = Arc::new(Lifetime::default());
        std::mem::replace(&mut *self.lifetime.lock().await, Arc::clone(&lifetime)).mark_engine_dropped();
        self.shared.forget_empty_claims();
        let (store, shared) = (Arc::clone(&self.store), Arc::clone(&self.shared));
        let store: Arc<dyn Store> = Arc::new(VirtualStore { store, shared, lifetime });
        // The same random numbers in every run.
        let env = Env::with_clock(Arc::clone(&self.shared.clock)).with_random(|| 0.5);
        let (lease, retention) = (YEAR, Retention::FOREVER);
        let config = Config { lease, retention, drain: Duration::ZERO, ..Config::default() };
        // One slot, and so one change per commit: commits have the same numbers in every run.
        let new = (self.setup)(Engine::builder(&self.url).store(store).env(env))
            .config(config)
            .queue("default", Pool::slots(1));
        let started = new.start().await;
        *engine = Some(started.unwrap_or_else(|error| panic!("the engine of the lab: {error}")));
    }

    /// Submits a job.
    pub async fn submit<J: Kind<M>, M>(&self, job: J) -> LabJob<J> {
        let handle = self.engine().await.submit(job).id(self.engine().await.new_id()).await;
        let handle = handle.unwrap_or_else(|error| panic!("a submit in the lab: {error}"));
        LabJob { id: handle.id(), kind: PhantomData }
    }

    /// A job that was submitted through the engine.
    pub fn job<J>(&self, id: JobId) -> LabJob<J> {
        LabJob { id, kind: PhantomData }
    }

    /// Sends a signal to a job. [`Engine::signal`] returns an error instead of panicking: `lab.engine().await.signal(job.id(), …)`.
    ///
    /// # Panics
    ///
    /// If the job has ended, or its inbox is full.
    pub async fn signal<J, T: Serialize>(&self, job: LabJob<J>, name: &str, payload: T) {
        let sent = self.engine().await.signal(job.id, name, payload).await;
        sent.unwrap_or_else(|error| panic!("a signal in the lab: {error}"));
    }

    /// Sends a signal to a job, by its type. [`Engine::send`] returns an error instead of panicking.
    ///
    /// # Panics
    ///
    /// If the job has ended, or its inbox is full.
    pub async fn send<J, S: Signal>(&self, job: LabJob<J>, signal: S) {
        self.signal(job, S::NAME, signal).await;
    }

    /// Cancels a job. Its outcome says whether the job is cancelled, is asked to end, or has ended before.
    pub async fn cancel<J>(&self, job: LabJob<J>) -> ControlOutcome {
        let engine = self.engine().await;
        let outcome = engine.control("lab").cancel(job.id).await;
        outcome.unwrap_or_else(|error| panic!("a cancel in the lab: {error}"))
    }

    /// The result of a job that has ended; [`JobError::Unfinished`] if it has not.
    pub async fn result<J: Kind<M>, M>(&self, job: LabJob<J>) -> Result<J::Output, JobError<J::Error>> {
        let engine = self.engine().await;
        match self.store.job_ends(&[job.id]).await.map_err(JobError::Store)?.pop().flatten() {
            Some(ended) => windlass_workflow::engine::decode_output(job.id, ended, engine.codecs()),
            None => Err(JobError::Unfinished(job.id)),
        }
    }

    /// The state of a job.
    pub async fn state<J>(&self, job: LabJob<J>) -> State {
        let found = expect_store(self.store.inspect().job(job.id).await, &self.url);
        found.map(|job| job.summary.state).unwrap_or_else(|| panic!("job {} does not exist", job.id))
    }

    /// A value of a workflow's context; `None` if it is not set or has another type.
    pub async fn context<J, T: DeserializeOwned>(&self, job: LabJob<J>, name: &str) -> Option<T> {
        let engine = self.engine().await;
        let context = engine.context(job.id).await;
        let context = context.unwrap_or_else(|error: Error| panic!("a context in the lab: {error}"));
        context.get(name).cloned().and_then(|value| serde_json::from_value(value).ok())
    }

    /// The journal of a workflow.
    pub async fn journal<J>(&self, job: LabJob<J>) -> Vec<JournalEntry> {
        expect_store(self.store.inspect().journal(job.id, None, usize::MAX).await, &self.url)
    }

    /// The number of changes that workers wanted to commit.
    pub fn commits(&self) -> usize {
        self.shared.commits.load(Ordering::SeqCst)
    }

    /// The times between which the ids of its jobs were made.
    pub(super) fn times(&self) -> RangeInclusive<Time> {
        self.started_at..=self.now()
    }

    /// Whether the planned crash has happened.
    pub(super) fn has_crashed(&self) -> bool {
        self.shared.crash.lock().unwrap_or_else(|e| e.into_inner()).is_none()
    }

    /// The jobs and their journals, as text for a report.
    pub(super) async fn describe(&self) -> String {
        let filter = Filter { limit: 20, ..Filter::default() };
        let jobs = expect_store(self.store.inspect().jobs(&filter).await, &self.url);
        let mut text = String::new();
        for job in jobs.jobs {
            text += &format!("  {} {} is {}\n", job.kind, job.id, job.state);
            for entry in expect_store(self.store.inspect().journal(job.id, None, 200).await, &self.url) {
                let key = entry.key.map(|key| format!(" [{key}]")).unwrap_or_default();
                let payload = String::from_utf8_lossy(&entry.payload.bytes);
                text += &format!(
                    "    {:>4} {} {:?}{key} {}: {}\n",
                    entry.seq,
                    entry.call_kind,
                    entry.name,
                    entry.event,
                    payload.chars().take(100).collect::<String>()
                );
            }
        }
        text
    }
}
