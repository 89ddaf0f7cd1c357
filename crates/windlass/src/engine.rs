//! The engine: a store, the kinds it serves, and a worker once it has started.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use windlass_env::{Env, IdSource};
use windlass_model::{Calendar, Failure, JobId, KindVersion, Payload, WorkerId};
use windlass_operate::{Check, Control, Item, Items, Operator, Why};
use windlass_runtime::{Config, Counts, Pool, Registry, Signaller, Submitter, Telemetry, Waiters, Worker};
use windlass_store::{Inspect, Store};
use windlass_workflow::{
    Error, JobError, Kind, MachineCx, StepCx, TaskCx, UndoCx, codec,
    engine::{Codecs, Replayer, Services, coded, decode_output, end_attempt, stage},
};

use crate::{
    Builder, Handle, JobRef, Scheduling, SendSignal, Signal, Submit, SubmitAll, SubmitJson, handle::find,
};

/// How long submits and signals are retried during an outage: long enough to ride out a restart of the database, short enough
/// that a caller learns of an outage.
const MAX_OUTAGE: Duration = Duration::from_secs(30);

/// Durable work on one store. Cheap to clone; all clones are the same engine.
///
/// [`Engine::builder`] describes an engine that runs jobs; [`Engine::open`] opens one that submits jobs and waits for them.
///
/// ```no_run
/// use windlass::prelude::*;
/// # #[derive(Serialize, Deserialize)]
/// # struct Greet { name: String }
/// # impl Task for Greet {
/// #     const KIND: &'static str = "greet";
/// #     type Output = String;
/// #     type Error = Failure;
/// #     async fn run(self, _cx: &TaskCx) -> Result<String, Failure> { Ok(self.name) }
/// # }
///
/// # async fn worker() -> Result<(), Box<dyn std::error::Error>> {
/// // A process that runs jobs, until it gets SIGTERM.
/// let engine = Engine::builder("postgres://windlass@localhost/windlass").task::<Greet>().start().await?;
/// engine.run_until_signal().await?;
/// # Ok(())
/// # }
/// # async fn client() -> Result<(), Box<dyn std::error::Error>> {
/// // A process that submits them.
/// let engine = Engine::open("postgres://windlass@localhost/windlass").await?;
/// let job = engine.submit(Greet { name: "world".into() }).await?;
/// println!("{}", job.result().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    url: String,
    services: Arc<Services>,
    kinds: Kinds,
    pools: Vec<(String, Pool)>,
    config: Config,
    submitter: Arc<Submitter>,
    signaller: Arc<Signaller>,
    waiters: Arc<Waiters>,
    max_in_flight: usize,
    worker: tokio::sync::Mutex<Option<Worker>>,
    telemetry: Arc<Telemetry>,
}

/// The kinds that an engine serves.
pub(crate) struct Kinds {
    pub(crate) registry: Registry,
    /// The default queue of each kind.
    pub(crate) default_queues: HashMap<String, &'static str>,
    /// The kinds that are machines.
    pub(crate) machines: HashSet<String>,
    /// Replays the workflows that are served.
    pub(crate) replayers: Arc<HashMap<KindVersion, Arc<dyn Replayer>>>,
    /// What they need and the engine does not have.
    pub(crate) missing: Missing,
}

/// What kinds need and an engine does not have.
#[derive(Default)]
pub(crate) struct Missing {
    /// Kinds that need data which the engine was not given, with the types.
    pub(crate) data: Vec<(String, Vec<&'static str>)>,
    /// Kinds that need the store's database, if the store is a server.
    pub(crate) database: Vec<String>,
}

impl Kinds {
    /// Checks that there are any, and that they have what they need.
    fn check(&self) -> Result<(), Error> {
        check_served(self.registry.kinds().len(), &self.missing.data)?;
        match self.missing.database.as_slice() {
            [] => Ok(()),
            kinds => Err(Error::Setup(format!(
                "the kinds {} need the store's database, for transactions or for rows of its tables, and this engine runs jobs through a \
                 server, without access to it; run them in a worker with the address of the database, and leave them out here",
                kinds.join(", ")
            ))),
        }
    }
}

/// Checks that an engine can start: it serves kinds, and none lacks data.
pub(crate) fn check_served(kinds: usize, missing: &[(String, Vec<&'static str>)]) -> Result<(), Error> {
    if kinds == 0 {
        return Err(Error::Setup(
            "nothing to serve: add a kind with `.task::<T>()`, `.machine::<M>()` or `.workflow::<W>()` before `.start()`; to \
             submit jobs only, use `.open()`"
                .into(),
        ));
    }
    match missing.first() {
        None => Ok(()),
        Some((kind, types)) => Err(Error::Setup(format!(
            "the kind {kind:?} needs data of the type `{}`, and the engine was given none; add `.data(value)` before `.start()`",
            types.join("` and `")
        ))),
    }
}

/// An engine that does not keep itself open: what its own jobs have of it.
pub(crate) struct WeakEngine(Weak<Shared>);

/// Keeps an engine open for the context of a unit test.
pub(crate) struct KeptEngine(#[expect(dead_code, reason = "only its lifetime matters")] pub(crate) Engine);

impl Shared {
    pub(crate) fn new(
        url: String,
        services: Arc<Services>,
        kinds: Kinds,
        pools: Vec<(String, Pool)>,
        config: Config,
    ) -> Shared {
        let (env, store) = (&services.env, &services.store);
        let max_in_flight = store.concurrent_commits();
        let submitter = Submitter::new(env.clone(), Arc::clone(store), max_in_flight, MAX_OUTAGE);
        let signaller =
            Signaller::new(env.clone(), Arc::clone(store), Arc::clone(&submitter), max_in_flight, MAX_OUTAGE);
        let waiters = Waiters::new(env.clone(), Arc::clone(store));
        env.spawn(Arc::clone(&waiters).run());
        let telemetry = Telemetry::new(env.clone(), Arc::clone(store));
        let worker = tokio::sync::Mutex::default();
        Shared {
            url,
            services,
            kinds,
            pools,
            config,
            submitter,
            signaller,
            waiters,
            max_in_flight,
            worker,
            telemetry,
        }
    }
}

impl Engine {
    /// Describes an engine on the store at `url` (`sqlite://path`, `postgres://user@host/database` or `memory:`). Nothing is opened
    /// before [`Builder::start`] or [`Builder::open`].
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url.into())
    }

    /// Opens the store at `url` to submit jobs, wait for them and look at them; creates its schema if it has none. To run jobs, use
    /// [`Engine::builder`].
    pub async fn open(url: &str) -> Result<Engine, Error> {
        Engine::builder(url).open().await
    }

    pub(crate) fn make(make: impl FnOnce(WeakEngine) -> Shared) -> Engine {
        Engine { shared: Arc::new_cyclic(|weak| make(WeakEngine(Weak::clone(weak)))) }
    }

    pub(crate) fn downgrade(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.shared))
    }

    /// Starts the worker of an engine that was opened with [`Builder::open`]: it runs jobs of the kinds that the builder was given.
    /// [`Builder::start`] is both in one.
    pub async fn start(&self) -> Result<(), Error> {
        let shared = &self.shared;
        shared.kinds.check()?;
        let registry = coded(&shared.kinds.registry, &shared.services.codecs);
        self.start_worker(registry, shared.pools.clone()).await?;
        self.warn_of_unserved_queues().await;
        Ok(())
    }

    /// Starts a worker that runs no jobs: it fires timers and schedules, returns the jobs of workers that were lost, polls branches and
    /// deletes old jobs. For a server whose jobs all run in workers on other hosts, which do none of that.
    pub async fn start_maintenance(&self) -> Result<(), Error> {
        self.start_worker(Registry::default(), Vec::new()).await
    }

    async fn start_worker(&self, registry: Registry, pools: Vec<(String, Pool)>) -> Result<(), Error> {
        let shared = &self.shared;
        let mut worker = shared.worker.lock().await;
        if worker.is_some() {
            return Err(Error::Setup(
                "this engine has been started already; stop it before you start it again, or use it as it is"
                    .into(),
            ));
        }
        let started = Worker::start(
            Arc::clone(self.store()),
            registry,
            pools,
            &shared.submitter,
            Arc::clone(&shared.waiters),
            shared.max_in_flight,
            shared.config.clone(),
        )
        .await?;
        shared.telemetry.attach(&started);
        *worker = Some(started);
        Ok(())
    }

    /// Stops the worker: claims nothing more, releases jobs that have not started, and waits for running attempts as long as
    /// [`Config::drain`] says. Returns how many attempts did not end in time.
    pub async fn stop(&self) -> usize {
        let worker = self.shared.worker.lock().await.take();
        match worker {
            Some(mut worker) => worker.stop().await,
            None => 0,
        }
    }

    /// Runs until the process gets SIGINT or SIGTERM, then stops gracefully.
    pub async fn run_until_signal(&self) -> std::io::Result<usize> {
        stop_requested().await?;
        tracing::info!("stopping: finishing what runs, releasing the rest");
        Ok(self.stop().await)
    }

    /// Submits a job; see [`Submit`] for its settings.
    ///
    /// The input is not decoded again here, as that of [`Engine::submit_json`] is: it is a value of the type that the code runs on. If
    /// serde attributes of that type write what they cannot read, the job fails as undecodable at its first attempt.
    pub fn submit<J: Kind<M>, M>(&self, job: J) -> Submit<'_, J, M> {
        Submit::new(self, job)
    }

    /// Submits many jobs, streamed in chunks; see [`SubmitAll`].
    pub fn submit_all<I: IntoIterator<Item = J>, J: Kind<M>, M>(&self, jobs: I) -> SubmitAll<'_, I, J, M> {
        SubmitAll::new(self, jobs)
    }

    /// Submits a job of a kind that this program knows only by name. If the engine serves the kind, an input that its code cannot
    /// decode is refused with [`Error::Input`]; see [`SubmitJson::unchecked`].
    pub fn submit_json(&self, kind: &str, version: i32, input: serde_json::Value) -> SubmitJson<'_> {
        SubmitJson::new(self, KindVersion { kind: kind.to_owned(), version }, input)
    }

    /// Sends a signal to a job: when this returns, the signal is durably in the job's inbox. See [`SendSignal`].
    pub fn signal<T: Serialize>(&self, job: JobId, name: &str, payload: T) -> SendSignal<'_> {
        SendSignal::to_id(self, job, name, &payload)
    }

    /// Sends a signal to a job, by its type; see [`Signal`].
    pub fn send<S: Signal>(&self, job: JobId, signal: S) -> SendSignal<'_> {
        self.signal(job, S::NAME, signal)
    }

    /// Sends a signal to the job of a kind that has this key.
    pub fn signal_key<T: Serialize>(&self, kind: &str, key: &str, name: &str, payload: T) -> SendSignal<'_> {
        SendSignal::to_key(self, kind, key, name, &payload)
    }

    /// Submits a job at each tick of a calendar; see [`Scheduling`].
    pub fn schedule<J: Kind<M>, M>(&self, name: &str, calendar: Calendar, job: J) -> Scheduling<'_> {
        Scheduling::new(self, name, calendar, &job)
    }

    /// Submits a job at each tick of a calendar, of a kind that this program knows only by name. Its input is checked as by
    /// [`Engine::submit_json`].
    pub fn schedule_json(
        &self,
        name: &str,
        calendar: Calendar,
        kind: &str,
        version: i32,
        input: &serde_json::Value,
    ) -> Scheduling<'_> {
        Scheduling::json(self, name, calendar, KindVersion { kind: kind.to_owned(), version }, input)
    }

    /// Replays every open workflow against this program's code, before it is deployed, and reports which would break and why;
    /// see [`Check`]. The engine need not be started.
    pub fn check(&self) -> Check {
        self.operator().check()
    }

    /// Changes jobs, queues, limits and schedules on behalf of a person, whose name is in the audit log.
    pub fn control(&self, author: impl Into<String>) -> Control {
        self.operator().control(author)
    }

    /// Explains why a job is not progressing, and what to do about it; `None` if the job does not exist.
    pub async fn why(&self, id: JobId) -> Result<Option<Why>, Error> {
        self.operator().why(id).await
    }

    /// Lists the children of a job's branches, or of the branch with this name, including those in blocks.
    pub async fn items(
        &self,
        job: JobId,
        branch: Option<&str>,
        only: windlass_store::ChildStates,
    ) -> Result<Items, Error> {
        self.operator().items(job, branch, only).await
    }

    /// Returns the child of a branch with this name: `parent$branch$spawn_item`, where the parent is a job's key or its id.
    pub async fn item(&self, key: &str) -> Result<Item, Error> {
        self.operator().item(key).await
    }

    /// What people see and do: views, explanations and changes by hand.
    pub fn operator(&self) -> Operator {
        let submitter = Arc::clone(&self.shared.submitter);
        let (services, replayers) =
            (Arc::clone(&self.shared.services), Arc::clone(&self.shared.kinds.replayers));
        Operator::new(services, replayers, move || submitter.poke())
            .with_default_queues(self.shared.kinds.default_queues.clone())
    }

    /// Makes the worker of this engine check for work at once, e.g. after a transaction of your own that submitted jobs has
    /// committed. Other workers check within two seconds.
    pub fn poke(&self) {
        self.shared.submitter.poke();
    }

    /// Tells the worker of this engine that this process has committed outcomes for a worker on another host, as a server does: it sums
    /// up what has ended as often as after commits of its own.
    pub fn note_commit_elsewhere(&self) {
        self.shared.submitter.note_commit_elsewhere();
    }

    /// Waits until a job has ended, in whichever process it runs, and returns its output.
    pub async fn result<O: DeserializeOwned>(&self, id: JobId) -> Result<O, JobError> {
        self.typed_result(id).await
    }

    pub(crate) async fn typed_result<O: DeserializeOwned, E>(&self, id: JobId) -> Result<O, JobError<E>> {
        decode_output(id, self.shared.waiters.wait_for_end(id).await.map_err(JobError::Store)?, self.codecs())
    }

    /// Returns a handle to a job that was submitted before, by its id or by its key. The type of the handle says what kind it is:
    ///
    /// ```no_run
    /// # use windlass::prelude::*;
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Greet;
    /// # impl Task for Greet {
    /// #     const KIND: &'static str = "greet";
    /// #     type Output = String;
    /// #     type Error = Failure;
    /// #     async fn run(self, _cx: &TaskCx) -> Result<String, Failure> { Ok(String::new()) }
    /// # }
    /// # async fn attach(engine: Engine) -> Result<(), Failure> {
    /// let job: Handle<Greet> = engine.job("first").await?;
    /// println!("{}", job.result().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A job of another kind is an error. [`AnyKind`](crate::AnyKind) stands for all kinds.
    pub async fn job<J: Kind<M>, M>(&self, job: impl Into<JobRef>) -> Result<Handle<J>, Error> {
        let found = find(self, J::KIND, J::ANY, job.into()).await?;
        Ok(Handle::attached(self.clone(), found))
    }

    /// The context of a workflow: its values by name.
    pub async fn context(&self, id: JobId) -> Result<BTreeMap<String, serde_json::Value>, Error> {
        let mut context = BTreeMap::new();
        for (name, value) in self.inspect().context(id).await? {
            let kind = format!("value {name:?} of a context");
            let plain = self.codecs().decode(&value).map_err(|source| Error::Codec { kind, source })?;
            let value = serde_json::from_slice(&plain).unwrap_or_default();
            context.insert(name, value);
        }
        Ok(context)
    }

    /// Decodes a payload that [`Engine::inspect`] returned to plain JSON.
    pub fn decode(&self, payload: &Payload) -> Result<Vec<u8>, codec::Error> {
        Ok(self.codecs().decode(payload)?.into_owned())
    }

    /// Draws an id for a submit that can be repeated.
    pub fn new_id(&self) -> JobId {
        self.shared.services.ids.job()
    }

    /// Reads for people: jobs, their history, workers, counts.
    pub fn inspect(&self) -> &dyn Inspect {
        self.store().inspect()
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.services.store
    }

    /// The environment from which this engine takes time, random numbers and ids.
    pub fn env(&self) -> &Env {
        &self.shared.services.env
    }

    /// The address of the store.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// The kinds this engine serves.
    pub fn kinds(&self) -> Vec<KindVersion> {
        self.shared.kinds.registry.kinds()
    }

    /// The queues that this engine serves once it is started.
    pub fn queues(&self) -> &[(String, Pool)] {
        &self.shared.pools
    }

    /// Settings of the worker.
    pub fn settings(&self) -> &Config {
        &self.shared.config
    }

    /// The id of this engine's worker while it runs.
    pub async fn worker(&self) -> Option<WorkerId> {
        self.shared.worker.lock().await.as_ref().map(Worker::id)
    }

    /// Counts of what this engine's worker has done.
    pub fn counts(&self) -> Counts {
        self.shared.telemetry.counts()
    }

    /// The default queue of a kind.
    pub(crate) fn default_queue(&self, kind: &str) -> &'static str {
        self.shared.kinds.default_queues.get(kind).copied().unwrap_or("default")
    }

    /// Checks an input of a kind that this engine serves, given as plain JSON. Of a kind that it does not serve, it accepts any.
    pub(crate) fn check_input(&self, kind: &KindVersion, input: &[u8]) -> Result<(), Error> {
        let checked =
            self.shared.kinds.registry.get(kind).map_or(Ok(()), |handler| handler.check_input(input));
        checked.map_err(|why| Error::Input { kind: kind.kind.clone(), why })
    }

    /// The stage that a job starts in, of a kind that this program may know only by name.
    pub(crate) fn stage(&self, kind: &str, input: &[u8]) -> Option<String> {
        let is_machine = self.shared.kinds.machines.contains(kind);
        is_machine.then(|| stage::split(input).map(|(name, _)| name)).flatten()
    }

    /// Whether this engine serves the kind as a workflow.
    pub(crate) fn is_workflow(&self, kind: &str, version: i32) -> bool {
        let kind = KindVersion { kind: kind.to_owned(), version };
        self.shared.kinds.replayers.contains_key(&kind)
    }

    pub(crate) fn ids(&self) -> &IdSource {
        &self.shared.services.ids
    }

    pub(crate) fn signaller(&self) -> &Arc<Signaller> {
        &self.shared.signaller
    }

    pub(crate) fn codecs(&self) -> &Arc<Codecs> {
        &self.shared.services.codecs
    }

    pub(crate) fn telemetry(&self) -> &Arc<Telemetry> {
        &self.shared.telemetry
    }

    pub(crate) fn submitter(&self) -> &Arc<Submitter> {
        &self.shared.submitter
    }

    pub(crate) fn max_in_flight(&self) -> usize {
        self.shared.max_in_flight
    }
}

/// The engine that a job runs in, for code that submits other jobs or sends signals.
pub trait EngineCx {
    /// The engine that this job runs in.
    ///
    /// # Panics
    ///
    /// If the context was built for a unit test and was given no engine; see [`crate::testing::CxBuilder::engine`].
    #[track_caller]
    fn engine(&self) -> Engine;
}

/// A macro because the contexts have no trait in common.
macro_rules! engine_cx {
    ($($cx:ty),+) => {
        $(impl EngineCx for $cx {
            #[track_caller]
            fn engine(&self) -> Engine {
                let Some(WeakEngine(shared)) = self.try_data() else {
                    panic!(
                        "this context was built for a unit test and has no engine; give it one with `.engine(&engine)` before \
                         `.build()`, or run the job in a `windlass::testing::Lab`"
                    )
                };
                match shared.upgrade() {
                    Some(shared) => Engine { shared },
                    None => end_attempt(Failure::retry("the engine that this job ran in is gone: the program has dropped it")),
                }
            }
        })+
    };
}

engine_cx!(TaskCx, MachineCx, StepCx, UndoCx);

/// Returns when the process gets SIGINT or SIGTERM.
async fn stop_requested() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
