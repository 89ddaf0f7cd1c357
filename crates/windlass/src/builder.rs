//! What an engine is made of: the store, the kinds that it serves, its queues, and the program's own data.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use windlass_env::{Env, IdSource};
use windlass_model::{
    KindVersion,
    limits::{RESERVED_PREFIX, check_name},
};
use windlass_runtime::{Config, Handler, Layer, Pool, Registry};
use windlass_store::Store;
use windlass_workflow::{
    Codec, Data, Error, Machine, Needs, Task, Workflow,
    engine::{
        Codecs, MachineHandler, Reader, Replayer, Replays, Services, TaskHandler, WorkflowHandler, stage,
    },
};

use crate::{
    Engine,
    engine::{Kinds, Missing, Shared, WeakEngine, check_served},
    hidden_errors::find_again,
    server::ServerAccess,
};

/// An engine that is being described: [`start`](Builder::start) opens its store and runs jobs, [`open`](Builder::open) opens its
/// store to submit jobs and to look at them.
///
/// Nothing is opened before that. Mistakes in the description (a kind registered twice, data that a kind needs and that is missing)
/// are errors of `start` and `open` that say what to write instead.
///
/// ```no_run
/// use windlass::prelude::*;
/// # #[derive(Serialize, Deserialize)]
/// # struct Resize;
/// # impl Task for Resize {
/// #     const KIND: &'static str = "resize";
/// #     type Output = ();
/// #     type Error = Failure;
/// #     async fn run(self, _cx: &TaskCx) -> Result<(), Failure> { Ok(()) }
/// # }
/// # struct Images;
/// # impl Images { fn connect() -> Images { Images } }
///
/// # async fn start() -> Result<(), windlass::Error> {
/// let engine = Engine::builder("sqlite://work.db")
///     .data(Images::connect())
///     .task::<Resize>()
///     .queue("default", Pool::slots(64))
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// What an engine serves is settled when it starts. Registering a kind afterwards does not compile:
///
/// ```compile_fail,E0599
/// # use windlass::prelude::*;
/// # #[derive(Serialize, Deserialize)]
/// # struct Resize;
/// # impl Task for Resize {
/// #     const KIND: &'static str = "resize";
/// #     type Output = ();
/// #     type Error = Failure;
/// #     async fn run(self, _cx: &TaskCx) -> Result<(), Failure> { Ok(()) }
/// # }
/// # async fn start() -> Result<(), windlass::Error> {
/// let engine = Engine::builder("sqlite://work.db").start().await?;
/// engine.task::<Resize>();
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until it is started or opened"]
pub struct Builder {
    url: String,
    store: Option<Arc<dyn Store>>,
    env: Env,
    kinds: Vec<Registration>,
    /// Has the layers; the handlers are added when the engine is opened.
    registry: Registry,
    /// `None` if none was named.
    pools: Option<Vec<(String, Pool)>>,
    /// The pools of the engine's own queues.
    own_pools: Vec<(String, Pool)>,
    config: Config,
    codecs: Codecs,
    data: Data,
    server: ServerAccess,
    /// What was wrong with a call; `start` and `open` return it.
    fault: Option<String>,
}

/// A kind that is served.
struct Registration {
    kind: KindVersion,
    /// The queue of its jobs, unless the submit names another.
    queue: &'static str,
    is_machine: bool,
    /// Whether it is one of the engine's own.
    is_own: bool,
    needs: Needs,
    replayer: Option<Arc<dyn Replayer>>,
    handler: MakeHandler,
}

type MakeHandler = Box<dyn FnOnce(&Arc<Services>) -> Arc<dyn Handler> + Send>;

impl Builder {
    pub(crate) fn new(url: String) -> Builder {
        Builder {
            url,
            store: None,
            env: Env::real(),
            kinds: Vec::new(),
            registry: Registry::default(),
            pools: None,
            own_pools: Vec::new(),
            config: Config::default(),
            codecs: Codecs::default(),
            data: Data::default(),
            server: ServerAccess::default(),
            fault: None,
        }
    }

    /// Gives the code of jobs a value of the program's own: a connection pool, a client, configuration. [`TaskCx::data`] and the
    /// other contexts return it by its type, so there is one of each type; wrap two values of one type in types of your own.
    ///
    /// [`TaskCx::data`]: crate::TaskCx::data
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Builder {
        if !self.data.insert(value) {
            let name = std::any::type_name::<T>();
            self.fault.get_or_insert(format!(
                "the engine is given data of the type `{name}` twice, and contexts return data by type; wrap each in a type of its own"
            ));
        }
        self
    }

    /// Serves jobs of a task's kind.
    pub fn task<T: Task>(self) -> Builder {
        let handler =
            |services: &Arc<Services>| -> Arc<dyn Handler> { Arc::new(TaskHandler::<T>::new(services)) };
        let kind = KindVersion { kind: T::KIND.to_owned(), version: T::VERSION };
        self.register(Registration { needs: T::needs(), ..Registration::new(kind, T::QUEUE, handler) })
    }

    /// Serves jobs of a machine's kind. Several versions of one kind can be served at the same time.
    pub fn machine<M: Machine>(mut self) -> Builder {
        if let Err(why) = stage::variants::<M>() {
            self.fault.get_or_insert(format!("the machine {:?} cannot be served: {why}", M::KIND));
        }
        let handler =
            |services: &Arc<Services>| -> Arc<dyn Handler> { Arc::new(MachineHandler::<M>::new(services)) };
        let kind = KindVersion { kind: M::KIND.to_owned(), version: M::VERSION };
        let registration = Registration::new(kind, M::QUEUE, handler);
        self.register(Registration { is_machine: true, needs: M::needs(), ..registration })
    }

    /// Serves jobs of a workflow's kind. Several versions of one kind can be served at the same time.
    pub fn workflow<W: Workflow>(self) -> Builder {
        let handler =
            |services: &Arc<Services>| -> Arc<dyn Handler> { Arc::new(WorkflowHandler::<W>::new(services)) };
        let kind = KindVersion { kind: W::KIND.to_owned(), version: W::VERSION };
        let replayer: Arc<dyn Replayer> = Arc::new(Replays::<W>::default());
        let registration = Registration::new(kind, W::QUEUE, handler);
        self.register(Registration { needs: W::needs(), replayer: Some(replayer), ..registration })
    }

    /// Serves jobs of a kind with a handler of your own.
    pub fn handler(self, kind: &str, version: i32, handler: Arc<dyn Handler>) -> Builder {
        let kind = KindVersion { kind: kind.to_owned(), version };
        self.register(Registration::new(kind, "default", move |_: &Arc<Services>| handler))
    }

    /// Serves one of the engine's own kinds, with a pool for its own queue. The names of both are reserved, so that nobody can submit such
    /// jobs, and pause or flood their queue. For parts of Windlass outside of this crate.
    #[doc(hidden)]
    pub fn own_task<T: Task>(mut self, pool: Pool) -> Builder {
        let is_reserved = |name: &str| name.starts_with(RESERVED_PREFIX);
        assert!(
            is_reserved(T::KIND) && is_reserved(T::QUEUE),
            "{} in {} is a user's own kind",
            T::KIND,
            T::QUEUE
        );
        self.own_pools.retain(|(queue, _)| queue != T::QUEUE);
        self.own_pools.push((T::QUEUE.to_owned(), pool));
        let handler =
            |services: &Arc<Services>| -> Arc<dyn Handler> { Arc::new(TaskHandler::<T>::new(services)) };
        let kind = KindVersion { kind: T::KIND.to_owned(), version: T::VERSION };
        let registration = Registration::new(kind, T::QUEUE, handler);
        self.register(Registration { is_own: true, needs: T::needs(), ..registration })
    }

    fn register(mut self, registration: Registration) -> Builder {
        let KindVersion { kind, version } = &registration.kind;
        if self.kinds.iter().any(|known| known.kind == registration.kind) {
            self.fault.get_or_insert(format!(
                "the kind {kind:?} is registered twice in version {version}; remove one, or give one another KIND or VERSION"
            ));
        }
        self.kinds.push(registration);
        self
    }

    /// Adds a layer around all attempts, within the layers that were added before; see [`Layer`].
    pub fn layer(mut self, layer: impl Layer) -> Builder {
        self.registry.layer(layer);
        self
    }

    /// Serves a queue with a pool of slots. Without this call, `default` is served with a default pool.
    pub fn queue(mut self, queue: impl Into<String>, pool: Pool) -> Builder {
        let queue = queue.into();
        let pools = self.pools.get_or_insert_default();
        pools.retain(|(name, _)| *name != queue);
        pools.push((queue, pool));
        self
    }

    /// Serves these queues, and none that were named before. With none at all, the engine runs only what [`Engine::run`] and
    /// [`Engine::retry_here`] are called for.
    pub fn serve_only(mut self, queues: impl IntoIterator<Item = (String, Pool)>) -> Builder {
        self.pools = Some(Vec::new());
        queues.into_iter().fold(self, |builder, (queue, pool)| builder.queue(queue, pool))
    }

    /// Sets the settings of the worker.
    pub fn config(mut self, config: Config) -> Builder {
        self.config = config;
        self
    }

    /// Encodes all payloads with `codec`. Codecs added before still decode their own; see [`crate::codec`].
    pub fn codec(mut self, codec: impl Codec) -> Builder {
        self.codecs.add(codec, true);
        self
    }

    /// Decodes payloads of `codec`, and encodes as before.
    pub fn reads_codec(mut self, codec: impl Codec) -> Builder {
        self.codecs.add(codec, false);
        self
    }

    /// Finds an error type again that `Box<dyn Error>` or `anyhow::Error` hides: its own conversion into a
    /// [`Failure`](crate::Failure) then decides whether it is retried. Holds for the whole process, so for all engines and labs of a test program.
    /// A hidden error of any other type is retried, and a warning in the log tells of it once.
    pub fn error<E>(self) -> Builder
    where
        E: Into<windlass_model::Failure> + std::error::Error + Send + Sync + 'static,
    {
        windlass_model::failure::register::<E>();
        self
    }

    /// Uses another store than the one that it was made with.
    pub fn url(mut self, url: impl Into<String>) -> Builder {
        self.url = url.into();
        self
    }

    /// Uses a store that is already open; the URL is only shown.
    pub fn store(mut self, store: Arc<dyn Store>) -> Builder {
        self.store = Some(store);
        self
    }

    /// Proves with this token who the worker is, if the store is a server: `windlass tokens create NAME --role worker` makes one. A
    /// server on a loopback address may need none.
    pub fn token(mut self, token: impl Into<String>) -> Builder {
        self.server.token = Some(token.into());
        self
    }

    /// Trusts the certificates in this PEM file, in place of those of the system, if the store is a server.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Builder {
        self.server.ca_file = Some(path.into());
        self
    }

    /// Allows `http://` to a server on another machine: everybody in between can read the token and the jobs.
    pub fn allow_http(mut self) -> Builder {
        self.server.allow_http = true;
        self
    }

    /// Uses another clock, other randomness and other tasks than those of the process: for tests.
    pub fn env(mut self, env: Env) -> Builder {
        self.env = env;
        self
    }

    /// The address of the store.
    pub fn address(&self) -> &str {
        &self.url
    }

    /// The kinds it serves, sorted.
    pub fn kinds(&self) -> Vec<KindVersion> {
        let mut kinds: Vec<KindVersion> = self.kinds.iter().map(|known| known.kind.clone()).collect();
        kinds.sort();
        kinds
    }

    /// The queues that it serves: those that it was given, or else `default`.
    pub fn queues(&self) -> Vec<(String, Pool)> {
        self.pools.clone().unwrap_or_else(|| vec![("default".to_owned(), Pool::default())])
    }

    /// The settings of the worker.
    pub fn settings(&self) -> &Config {
        &self.config
    }

    /// Checks what can be checked without the store.
    fn check(&self) -> Result<(), Error> {
        if let Some(fault) = &self.fault {
            return Err(Error::Setup(fault.clone()));
        }
        self.codecs.check().map_err(|error| Error::Setup(error.to_string()))?;
        for known in self.kinds.iter().filter(|known| !known.is_own) {
            check_name("kind", &known.kind.kind)?;
        }
        for (queue, _) in self.pools.iter().flatten() {
            check_name("queue", queue)?;
        }
        Ok(())
    }

    /// Opens the store, and creates its schema if it has none, without running jobs: to submit them, wait for them and look at
    /// them.
    pub async fn open(self) -> Result<Engine, Error> {
        self.check()?;
        find_again();
        let mut pools = self.queues();
        pools.extend(self.own_pools);
        let store = match self.store {
            Some(store) => store,
            None => self.server.open(&self.url).await?,
        };
        let (env, codecs, kinds) = (self.env, Arc::new(self.codecs), self.kinds);
        let make = |engine: WeakEngine| {
            let missing = missing(&kinds, &self.data, &*store);
            let mut data = self.data;
            data.insert(engine);
            let services = Arc::new(Services {
                ids: IdSource::new(env.clone()),
                reader: Arc::new(Reader::new(env.clone(), Arc::clone(&store))),
                store,
                codecs,
                data,
                env,
            });
            let kinds = Kinds { missing, ..registered(kinds, self.registry, &services) };
            Shared::new(self.url, services, kinds, pools, self.config)
        };
        Ok(Engine::make(make))
    }

    /// Opens the store, and starts a worker that runs jobs. At least one kind must be served, with the data that it needs.
    pub async fn start(self) -> Result<Engine, Error> {
        self.check()?;
        check_served(self.kinds.len(), &missing_data(&self.kinds, &self.data))?;
        // What the store lacks is checked once it is open.
        let engine = self.open().await?;
        engine.start().await?;
        Ok(engine)
    }
}

impl Registration {
    fn new(
        kind: KindVersion,
        queue: &'static str,
        handler: impl FnOnce(&Arc<Services>) -> Arc<dyn Handler> + Send + 'static,
    ) -> Registration {
        let (needs, handler) = (Needs::new(), Box::new(handler));
        Registration { kind, queue, is_machine: false, is_own: false, needs, replayer: None, handler }
    }
}

/// Makes the handlers of the kinds.
fn registered(registrations: Vec<Registration>, mut registry: Registry, services: &Arc<Services>) -> Kinds {
    let (mut default_queues, mut machines, mut replayers) = (HashMap::new(), HashSet::new(), HashMap::new());
    for Registration { kind, queue, is_machine, replayer, handler, .. } in registrations {
        default_queues.insert(kind.kind.clone(), queue);
        if is_machine {
            machines.insert(kind.kind.clone());
        }
        replayers.extend(replayer.map(|replayer| (kind.clone(), replayer)));
        registry.add(kind, handler(services));
    }
    Kinds { registry, default_queues, machines, replayers: Arc::new(replayers), missing: Missing::default() }
}

/// Returns the kinds that need what is not there.
fn missing(registrations: &[Registration], data: &Data, store: &dyn Store) -> Missing {
    let needs_database = |known: &&Registration| known.needs.needs_database();
    let without_database = registrations.iter().filter(needs_database).map(|known| known.kind.kind.clone());
    Missing {
        data: missing_data(registrations, data),
        database: if store.runs_transactions() { Vec::new() } else { without_database.collect() },
    }
}

/// Returns the kinds that need data which is not there, with the types.
fn missing_data(registrations: &[Registration], data: &Data) -> Vec<(String, Vec<&'static str>)> {
    let missing = registrations.iter().map(|known| (known.kind.kind.clone(), known.needs.missing(data)));
    missing.filter(|(_, types)| !types.is_empty()).collect()
}
