//! The engine: a store, the kinds it serves, and a worker once it has started.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use windlass_env::{Env, IdSource};
use windlass_model::{Calendar, JobId, KindVersion, Payload, WorkerId, limits::check_name};
use windlass_runtime::{
    Config, Counts, Handler, Pool, Registry, Signaller, Submitter, Telemetry, Waiters, Worker,
};
use windlass_store::{Inspect, Store};

use windlass_operate::{Check, Control, Item, Items, Operator, Why};
use windlass_workflow::{
    Codec, Error, JobError, Kind, Machine, Task, Workflow, codec,
    engine::{
        Codecs, MachineHandler, Reader, Replayer, Replays, Services, TaskHandler, WorkflowHandler, coded,
        decode_output, stage,
    },
};

use crate::{Scheduling, Signal, Submit, SubmitAll, SubmitJson};

/// Durable work on one store. Cheap to clone; all clones are the same engine.
///
/// After `open` it can submit jobs and wait for them; after `start` it also runs them.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    setup: Setup,
}

struct Shared {
    env: Env,
    url: String,
    store: Arc<dyn Store>,
    ids: IdSource,
    submitter: Arc<Submitter>,
    signaller: Arc<Signaller>,
    waiters: Arc<Waiters>,
    max_in_flight: usize,
    worker: tokio::sync::Mutex<Option<Worker>>,
    telemetry: Arc<Telemetry>,
}

/// What the engine serves once it has started.
#[derive(Clone, Default)]
struct Setup {
    registry: Registry,
    /// The default queue of each kind.
    default_queues: HashMap<String, &'static str>,
    /// The kinds that are machines.
    machines: HashSet<String>,
    /// Replays the workflows that are served.
    replayers: Arc<HashMap<KindVersion, Arc<dyn Replayer>>>,
    /// What the code of machines and workflows needs; set when the engine starts.
    services: Arc<OnceLock<Arc<Services>>>,
    /// What was wrong with a kind when it was added; `start` returns it.
    fault: Option<String>,
    pools: Vec<(String, Pool)>,
    config: Config,
    codecs: Arc<Codecs>,
}

impl Engine {
    /// Opens the store at `url` (`sqlite://path`, `postgres://user@host/database` or `memory:`), and creates its schema if it
    /// has none.
    pub async fn open(url: &str) -> Result<Engine, Error> {
        let store = windlass_store::open(url, true).await?;
        Ok(Engine::on(url, store))
    }

    /// Makes an engine on a store that is already open; `url` is its address.
    pub fn on(url: &str, store: Arc<dyn Store>) -> Engine {
        Engine::with_env(url, store, Env::real())
    }

    /// Makes an engine on a store that is already open, with a clock and tasks of your own.
    pub fn with_env(url: &str, store: Arc<dyn Store>, env: Env) -> Engine {
        let max_in_flight = store.concurrent_commits();
        // Long enough to ride out a restart of the database, short enough that a caller learns of an outage.
        let submitter =
            Submitter::new(env.clone(), Arc::clone(&store), max_in_flight, Duration::from_secs(30));
        let max_outage = Duration::from_secs(30);
        let signaller = Signaller::new(
            env.clone(),
            Arc::clone(&store),
            Arc::clone(&submitter),
            max_in_flight,
            max_outage,
        );
        let waiters = Waiters::new(env.clone(), Arc::clone(&store));
        env.spawn(Arc::clone(&waiters).run());
        let shared = Shared {
            url: url.to_owned(),
            telemetry: Telemetry::new(env.clone(), Arc::clone(&store)),
            store,
            ids: IdSource::new(env.clone()),
            env,
            submitter,
            signaller,
            waiters,
            max_in_flight,
            worker: Default::default(),
        };
        Engine { shared: Arc::new(shared), setup: Setup::default() }
    }

    /// Serves jobs of a task's kind.
    pub fn task<T: Task>(mut self) -> Engine {
        self.setup.default_queues.insert(T::KIND.to_owned(), T::QUEUE);
        let handler = TaskHandler::<T>::new(Arc::clone(&self.setup.services));
        self.handler(T::KIND, T::VERSION, Arc::new(handler))
    }

    /// Serves jobs of a machine's kind. Several versions of one kind can be served at the same time.
    pub fn machine<M: Machine>(mut self) -> Engine {
        if let Err(why) = stage::variants::<M>() {
            self.setup.fault.get_or_insert(format!("the machine {:?} cannot be served: {why}", M::KIND));
        }
        self.setup.default_queues.insert(M::KIND.to_owned(), M::QUEUE);
        self.setup.machines.insert(M::KIND.to_owned());
        let handler = MachineHandler::<M>::new(Arc::clone(&self.setup.services));
        self.handler(M::KIND, M::VERSION, Arc::new(handler))
    }

    /// Serves jobs of a workflow's kind. Several versions of one kind can be served at the same time.
    pub fn workflow<W: Workflow>(mut self) -> Engine {
        self.setup.default_queues.insert(W::KIND.to_owned(), W::QUEUE);
        let kind = KindVersion { kind: W::KIND.to_owned(), version: W::VERSION };
        Arc::make_mut(&mut self.setup.replayers).insert(kind, Arc::new(Replays::<W>::default()));
        let handler = WorkflowHandler::<W>::new(Arc::clone(&self.setup.services));
        self.handler(W::KIND, W::VERSION, Arc::new(handler))
    }

    /// Serves jobs of a kind with a handler of your own.
    pub fn handler(mut self, kind: &str, version: i32, handler: Arc<dyn Handler>) -> Engine {
        self.setup.registry.add(KindVersion { kind: kind.to_owned(), version }, handler);
        self
    }

    /// Serves a queue with a pool of slots. Without this call, `default` is served with a default pool.
    pub fn queue(mut self, queue: impl Into<String>, pool: Pool) -> Engine {
        let queue = queue.into();
        self.setup.pools.retain(|(name, _)| *name != queue);
        self.setup.pools.push((queue, pool));
        self
    }

    /// Serves these queues, and none that were named before.
    pub fn serve_only(mut self, queues: impl IntoIterator<Item = (String, Pool)>) -> Engine {
        self.setup.pools.clear();
        queues.into_iter().fold(self, |engine, (queue, pool)| engine.queue(queue, pool))
    }

    /// Sets the settings of the worker.
    pub fn config(mut self, config: Config) -> Engine {
        self.setup.config = config;
        self
    }

    /// Encodes all payloads with `codec` from now on. Codecs added before still decode their own; see [`crate::codec`].
    pub fn codec(mut self, codec: impl Codec) -> Engine {
        Arc::make_mut(&mut self.setup.codecs).add(codec, true);
        self
    }

    /// Decodes payloads of `codec`, and encodes as before.
    pub fn reads_codec(mut self, codec: impl Codec) -> Engine {
        Arc::make_mut(&mut self.setup.codecs).add(codec, false);
        self
    }

    /// Starts a worker. At least one kind must be served.
    pub async fn start(self) -> Result<Engine, Error> {
        let mut setup = self.setup.clone();
        if setup.pools.is_empty() {
            setup.pools.push(("default".to_owned(), Pool::default()));
        }
        let kinds = setup.registry.kinds();
        if kinds.is_empty() {
            return Err(Error::Setup(
                "nothing to serve: add a kind with `.task::<T>()`, `.machine::<M>()` or `.workflow::<W>()` before `.start()`"
                    .into(),
            ));
        }
        if let Some(fault) = setup.fault {
            return Err(Error::Setup(fault));
        }
        for kind in &kinds {
            check_name("kind", &kind.kind)?;
        }
        for (queue, _) in &setup.pools {
            check_name("queue", queue)?;
        }
        setup.codecs.check().map_err(|error| Error::Setup(error.to_string()))?;
        let shared = &self.shared;
        let mut running = shared.worker.lock().await;
        if running.is_some() {
            return Err(Error::Setup("this engine has been started already".into()));
        }
        self.services();
        let worker = Worker::start(
            Arc::clone(&shared.store),
            coded(&setup.registry, &setup.codecs),
            setup.pools,
            &shared.submitter,
            Arc::clone(&shared.waiters),
            shared.max_in_flight,
            setup.config,
        )
        .await?;
        shared.telemetry.attach(&worker);
        *running = Some(worker);
        drop(running);
        self.warn_of_unserved_queues().await;
        Ok(self)
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
        tracing::info!("stopping: finishing what runs, handing back the rest");
        Ok(self.stop().await)
    }

    /// Submits a job; see [`Submit`] for its settings.
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

    /// Sends a signal to a job: when this returns, the signal is durably in the job's inbox. See [`Signal`].
    pub fn signal<T: Serialize>(&self, job: JobId, name: &str, payload: T) -> Signal<'_> {
        Signal::to_id(self, job, name, &payload)
    }

    /// Sends a signal to the job of a kind that has this key.
    pub fn signal_key<T: Serialize>(&self, kind: &str, key: &str, name: &str, payload: T) -> Signal<'_> {
        Signal::to_key(self, kind, key, name, &payload)
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
        Operator::new(Arc::new(self.new_services()), Arc::clone(&self.setup.replayers), move || {
            submitter.poke()
        })
        .with_default_queues(self.setup.default_queues.clone())
    }

    /// Makes the worker of this engine check for work at once, e.g. after a transaction of your own that submitted jobs has
    /// committed. Other workers check within two seconds.
    pub fn poke(&self) {
        self.shared.submitter.poke();
    }

    /// Waits until a job has ended, in whichever process it runs, and returns its output.
    pub async fn result<O: DeserializeOwned>(&self, id: JobId) -> Result<O, JobError> {
        decode_output(id, self.shared.waiters.wait_for_end(id).await.map_err(JobError::Store)?, self.codecs())
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
        self.shared.ids.job()
    }

    /// Reads for people: jobs, their history, workers, counts.
    pub fn inspect(&self) -> &dyn Inspect {
        self.shared.store.inspect()
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The address of the store.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// The kinds this engine serves.
    pub fn kinds(&self) -> Vec<KindVersion> {
        self.setup.registry.kinds()
    }

    /// The queues that this engine was given; if there are none, it serves `default`.
    pub fn queues(&self) -> &[(String, Pool)] {
        &self.setup.pools
    }

    /// Settings of the worker.
    pub fn settings(&self) -> &Config {
        &self.setup.config
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
        self.setup.default_queues.get(kind).copied().unwrap_or("default")
    }

    /// Checks an input of a kind that this engine serves, given as plain JSON. Of a kind that it does not serve, it accepts any.
    pub(crate) fn check_input(&self, kind: &KindVersion, input: &[u8]) -> Result<(), Error> {
        let checked = self.setup.registry.get(kind).map_or(Ok(()), |handler| handler.check_input(input));
        checked.map_err(|why| Error::Input { kind: kind.kind.clone(), why })
    }

    /// The stage that a job starts in, of a kind that this program may know only by name.
    pub(crate) fn stage(&self, kind: &str, input: &[u8]) -> Option<String> {
        let is_machine = self.setup.machines.contains(kind);
        is_machine.then(|| stage::split(input).map(|(name, _)| name)).flatten()
    }

    /// What the code of machines and workflows needs.
    pub(crate) fn services(&self) -> Arc<Services> {
        Arc::clone(self.setup.services.get_or_init(|| Arc::new(self.new_services())))
    }

    fn new_services(&self) -> Services {
        let env = self.shared.env.clone();
        Services {
            store: Arc::clone(&self.shared.store),
            codecs: Arc::clone(&self.setup.codecs),
            ids: IdSource::new(env.clone()),
            reader: Arc::new(Reader::new(env.clone(), Arc::clone(&self.shared.store))),
            env,
        }
    }

    pub(crate) fn ids(&self) -> &IdSource {
        &self.shared.ids
    }

    pub(crate) fn signaller(&self) -> &Arc<Signaller> {
        &self.shared.signaller
    }

    pub(crate) fn codecs(&self) -> &Codecs {
        &self.setup.codecs
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
