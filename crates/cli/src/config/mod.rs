//! Settings: from a file, from the environment, from flags; each layer overrides the ones before.

mod alerts;
mod file;
mod nearest;
mod remote;
mod retention;
pub(crate) mod secret;
mod server;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use alerts::AlertSettings;
use anyhow::{Context, anyhow, bail};
pub(crate) use remote::RemoteSettings;
pub(crate) use retention::{Keep, RetentionSettings};
pub(crate) use server::ServerSettings;
use windlass::{Builder, Config, Pool, model::Limits, store::without_password};

use crate::{durations, out};

/// The settings file that is read if it exists.
const DEFAULT_FILE: &str = "windlass.toml";

/// The settings of one layer. What it does not set is left to the layers below.
#[derive(Clone, Default, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) store: Option<String>,
    /// A file with the address of the store, which may have a password.
    pub(crate) store_file: Option<PathBuf>,
    /// The server to use in place of a store.
    pub(crate) remote: RemoteSettings,
    pub(crate) log: Option<String>,
    /// The worker's name, for people.
    pub(crate) name: Option<String>,
    pub(crate) lease: Option<Duration>,
    pub(crate) renew_every: Option<Duration>,
    pub(crate) drain: Option<Duration>,
    pub(crate) max_crashes: Option<u16>,
    /// The address that serves metrics.
    pub(crate) metrics: Option<String>,
    pub(crate) retention: RetentionSettings,
    pub(crate) server: ServerSettings,
    pub(crate) alerts: AlertSettings,
    /// Size limits, by the names of `Limits`.
    pub(crate) limits: BTreeMap<String, usize>,
    /// The queues to serve; empty if this layer does not set them.
    pub(crate) serve: Vec<String>,
    /// The settings of each queue's pool.
    pub(crate) queues: BTreeMap<String, PoolSettings>,
}

/// The settings of a queue's pool in one layer.
#[derive(Clone, Default, Debug, PartialEq)]
pub(crate) struct PoolSettings {
    pub(crate) slots: Option<usize>,
    pub(crate) prefetch: Option<usize>,
    pub(crate) min_demand: Option<usize>,
    pub(crate) poll: Option<Duration>,
    pub(crate) max_poll: Option<Duration>,
}

/// Reads the file and the environment; `flags` override both.
pub(crate) fn read(path: Option<&Path>, flags: Settings) -> anyhow::Result<Settings> {
    let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let named = path.map(Path::to_owned).or_else(|| env("WINDLASS_CONFIG").map(Into::into));
    let file = match named {
        Some(path) => file::read(&path)?,
        None if Path::new(DEFAULT_FILE).exists() => file::read(Path::new(DEFAULT_FILE))?,
        None => Settings::default(),
    };
    warn_of_misspelt_variables();
    if flags.store.as_ref().is_some_and(|url| without_password(url) != *url) {
        bail!(
            "the address after --store has a password, which every user of this machine can see in the list of processes; put the \
             address into a file and name it with --store-file, or set WINDLASS_STORE"
        );
    }
    Ok(flags.with_one_place()?.over(from_env(env)?.with_one_place()?).over(file.with_one_place()?))
}

/// The environment variables that are read, in addition to `RUST_LOG` and the limits.
const VARIABLES: [&str; 31] = [
    "WINDLASS_CONFIG",
    "WINDLASS_STORE",
    "WINDLASS_STORE_FILE",
    "WINDLASS_SERVER",
    "WINDLASS_TOKEN",
    "WINDLASS_TOKEN_FILE",
    "WINDLASS_CA_FILE",
    "WINDLASS_ALLOW_HTTP",
    "WINDLASS_LISTEN",
    "WINDLASS_HOSTS",
    "WINDLASS_TRUSTED_PROXIES",
    "WINDLASS_TLS_CERT",
    "WINDLASS_TLS_KEY",
    "WINDLASS_LOGIN",
    "WINDLASS_RATE",
    "WINDLASS_PUBLIC_URL",
    "WINDLASS_CLIENT_CONNECTIONS",
    "WINDLASS_CLIENT_STREAMS",
    "WINDLASS_EXEC",
    "WINDLASS_LOG",
    "WINDLASS_NAME",
    "WINDLASS_LEASE",
    "WINDLASS_RENEW_EVERY",
    "WINDLASS_DRAIN",
    "WINDLASS_MAX_CRASHES",
    "WINDLASS_METRICS",
    "WINDLASS_QUEUES",
    "WINDLASS_KEEP_DONE",
    "WINDLASS_KEEP_FAILED",
    "WINDLASS_KEEP_CANCELLED",
    "WINDLASS_KEEP_THROUGHPUT",
];

/// Warns of variables that are similar to a known one. Others with our prefix may belong to another program.
fn warn_of_misspelt_variables() {
    let limits: Vec<String> = Limits::NAMES.iter().map(|name| Limits::env_variable(name)).collect();
    let known: Vec<&str> = VARIABLES.into_iter().chain(limits.iter().map(String::as_str)).collect();
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if name.starts_with("WINDLASS_")
            && !known.contains(&name.as_str())
            && let Some(near) = nearest::of(&name, known.iter().copied())
        {
            out::note(&format!("warning: {name} is not read; did you mean {near}?"));
        }
    }
}

fn from_env(env: impl Fn(&str) -> Option<String>) -> anyhow::Result<Settings> {
    let duration = |name: &str| -> anyhow::Result<Option<Duration>> {
        let read = |text: String| durations::parse(&text).map_err(|why| anyhow!("{name}: {why}"));
        env(name).map(read).transpose()
    };
    let crashes = |text: String| {
        text.parse().map_err(|_| anyhow!("WINDLASS_MAX_CRASHES: {text:?} is not a count from 1 to 65535"))
    };
    let boolean = |name: &str| -> anyhow::Result<Option<bool>> {
        match env(name).as_deref() {
            None => Ok(None),
            Some("1" | "true") => Ok(Some(true)),
            Some("0" | "false") => Ok(Some(false)),
            Some(text) => Err(anyhow!("{name}: {text:?} is neither true nor false")),
        }
    };
    let count = |name: &str, what: &str| -> anyhow::Result<Option<u32>> {
        let read =
            |text: String| text.parse().map_err(|_| anyhow!("{name}: {text:?} is not a number of {what}"));
        env(name).map(read).transpose()
    };
    let keep = |name: &str| -> anyhow::Result<Option<Keep>> {
        let read = |text: String| text.parse().map_err(|why| anyhow!("{name}: {why}"));
        env(name).map(read).transpose()
    };
    let mut settings = Settings {
        store: env("WINDLASS_STORE"),
        store_file: env("WINDLASS_STORE_FILE").map(PathBuf::from),
        remote: RemoteSettings {
            url: env("WINDLASS_SERVER"),
            token: env("WINDLASS_TOKEN"),
            token_file: env("WINDLASS_TOKEN_FILE").map(PathBuf::from),
            ca_file: env("WINDLASS_CA_FILE").map(PathBuf::from),
            allow_http: boolean("WINDLASS_ALLOW_HTTP")?,
        },
        log: env("WINDLASS_LOG").or_else(|| env("RUST_LOG")),
        name: env("WINDLASS_NAME"),
        lease: duration("WINDLASS_LEASE")?,
        renew_every: duration("WINDLASS_RENEW_EVERY")?,
        drain: duration("WINDLASS_DRAIN")?,
        max_crashes: env("WINDLASS_MAX_CRASHES").map(crashes).transpose()?,
        metrics: env("WINDLASS_METRICS"),
        retention: RetentionSettings {
            done: keep("WINDLASS_KEEP_DONE")?,
            failed: keep("WINDLASS_KEEP_FAILED")?,
            cancelled: keep("WINDLASS_KEEP_CANCELLED")?,
            throughput: keep("WINDLASS_KEEP_THROUGHPUT")?,
        },
        server: ServerSettings {
            listen: env("WINDLASS_LISTEN"),
            hosts: server::list(env("WINDLASS_HOSTS")),
            trusted_proxies: server::list(env("WINDLASS_TRUSTED_PROXIES")),
            tls_cert: env("WINDLASS_TLS_CERT"),
            tls_key: env("WINDLASS_TLS_KEY"),
            login: boolean("WINDLASS_LOGIN")?,
            rate: count("WINDLASS_RATE", "requests per second")?,
            client_connections: count("WINDLASS_CLIENT_CONNECTIONS", "connections")?,
            client_streams: count("WINDLASS_CLIENT_STREAMS", "streams")?,
            public_url: env("WINDLASS_PUBLIC_URL"),
        },
        ..Settings::default()
    };
    for name in Limits::NAMES {
        let variable = Limits::env_variable(name);
        if let Some(text) = env(&variable) {
            let value = Limits::parse(name, &text).map_err(|why| anyhow!("{variable}: {why}"))?;
            settings.limits.insert((*name).to_owned(), value);
        }
    }
    for queue in env("WINDLASS_QUEUES").iter().flat_map(|text| text.split(',')) {
        settings.serve(queue.trim()).with_context(|| "WINDLASS_QUEUES".to_owned())?;
    }
    Ok(settings)
}

impl Settings {
    /// These settings over those of the layer below.
    pub(crate) fn over(self, below: Settings) -> Settings {
        let mut queues = below.queues;
        for (name, pool) in self.queues {
            let under = queues.remove(&name).unwrap_or_default();
            queues.insert(name, pool.over(under));
        }
        let limits = below.limits.into_iter().chain(self.limits).collect();
        // A layer that names a store or a server replaces both of the layers below.
        let (store, url) = match (self.store, self.remote.url.clone()) {
            (None, None) => (below.store, below.remote.url.clone()),
            own => own,
        };
        Settings {
            limits,
            store,
            store_file: None,
            remote: RemoteSettings { url, ..self.remote.over(below.remote) },
            log: self.log.or(below.log),
            name: self.name.or(below.name),
            lease: self.lease.or(below.lease),
            renew_every: self.renew_every.or(below.renew_every),
            drain: self.drain.or(below.drain),
            max_crashes: self.max_crashes.or(below.max_crashes),
            metrics: self.metrics.or(below.metrics),
            retention: self.retention.over(below.retention),
            server: self.server.over(below.server),
            alerts: self.alerts.over(below.alerts),
            serve: if self.serve.is_empty() { below.serve } else { self.serve },
            queues,
        }
    }

    /// Reads the address of the store, and refuses a layer that names a server too.
    fn with_one_place(self) -> anyhow::Result<Settings> {
        let settings = self.with_store_of_file()?;
        if let (Some(store), Some(server)) = (&settings.store, &settings.remote.url) {
            bail!(
                "the store {} and the server {server} are both named, by --store and --server or by the settings of the same names; use \
                 one",
                without_password(store)
            );
        }
        Ok(settings)
    }

    /// Reads the file that has the address of the store.
    fn with_store_of_file(mut self) -> anyhow::Result<Settings> {
        let Some(path) = self.store_file.take() else { return Ok(self) };
        if self.store.is_some() {
            bail!("the store is named both by its address and by the file {}; use one", path.display());
        }
        let text = secret::read("the file of the store's address,", &path)?;
        let text = text.trim();
        if text.is_empty() {
            bail!("the file {} is empty; write the address of the store into it", path.display());
        }
        self.store = Some(text.to_owned());
        Ok(self)
    }

    /// Adds a queue to serve, given as `NAME` or `NAME=SLOTS`.
    pub(crate) fn serve(&mut self, text: &str) -> anyhow::Result<()> {
        let (name, slots) = match text.split_once('=') {
            Some((name, slots)) => (name, Some(slots)),
            None => (text, None),
        };
        windlass::model::limits::check_name("queue", name)?;
        if let Some(slots) = slots {
            let slots = slots.parse().ok().filter(|slots| *slots > 0);
            let slots =
                slots.ok_or_else(|| anyhow!("{text:?} has no number of slots; write it as {name}=16"))?;
            self.queues.entry(name.to_owned()).or_default().slots = Some(slots);
        }
        if !self.serve.iter().any(|queue| queue == name) {
            self.serve.push(name.to_owned());
        }
        Ok(())
    }

    /// Applies the settings to an engine's builder. What they do not set stays as the builder has it.
    pub(crate) fn apply(&self, mut engine: Builder) -> anyhow::Result<Builder> {
        let given = engine.settings().clone();
        let lease = self.lease.unwrap_or(given.lease);
        let renew_every = match (self.renew_every, self.lease) {
            (Some(renew_every), _) => renew_every,
            // Two renewals may fail before the lease ends.
            (None, Some(lease)) => lease / 3,
            (None, None) => given.renew_every,
        };
        if renew_every.is_zero() || renew_every * 2 > lease {
            bail!(
                "renewing every {} does not fit a lease of {}: one late renewal must not end the lease; set `renew_every` to at \
                 most {}",
                durations::format(renew_every),
                durations::format(lease),
                durations::format(lease / 2)
            );
        }
        let config = Config {
            name: self.name.clone().unwrap_or(given.name),
            lease,
            renew_every,
            drain: self.drain.unwrap_or(given.drain),
            max_crashes: self.max_crashes.unwrap_or(given.max_crashes),
            retention: self.retention.apply(given.retention),
            ..given
        };
        let serve =
            if self.serve.is_empty() { self.queues.keys().cloned().collect() } else { self.serve.clone() };
        let known: BTreeMap<String, Pool> = engine.queues().iter().cloned().collect();
        let pool = |queue: String| {
            let pool = known.get(&queue).cloned().unwrap_or_default();
            let pool = self.queues.get(&queue).map_or(pool.clone(), |settings| settings.apply(pool));
            (queue, pool)
        };
        if !serve.is_empty() {
            engine = engine.serve_only(serve.into_iter().map(pool));
        }
        Ok(engine.config(config))
    }
}

impl PoolSettings {
    fn over(self, below: PoolSettings) -> PoolSettings {
        PoolSettings {
            slots: self.slots.or(below.slots),
            prefetch: self.prefetch.or(below.prefetch),
            min_demand: self.min_demand.or(below.min_demand),
            poll: self.poll.or(below.poll),
            max_poll: self.max_poll.or(below.max_poll),
        }
    }

    fn apply(&self, pool: Pool) -> Pool {
        let poll = self.poll.unwrap_or(pool.poll);
        Pool {
            slots: self.slots.unwrap_or(pool.slots),
            prefetch: self.prefetch.unwrap_or(pool.prefetch),
            min_demand: self.min_demand.unwrap_or(pool.min_demand),
            poll,
            max_poll: self.max_poll.unwrap_or(pool.max_poll).max(poll),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_layer_overrides_what_it_sets() {
        let env = from_env(|name| match name {
            "WINDLASS_LEASE" => Some("30s".into()),
            "WINDLASS_QUEUES" => Some("mail=4, default".into()),
            "WINDLASS_KEEP_DONE" => Some("forever".into()),
            _ => None,
        });
        let file = file::parse(
            "lease = '9s'\ndrain = '1m'\n[queues.mail]\nslots = 8\nprefetch = 5\n[retention]\ndone = '7d'",
        )
        .expect("valid");
        let all = env.expect("valid").over(file);
        assert_eq!(all.retention, RetentionSettings { done: Some(Keep::Forever), ..Default::default() });
        assert_eq!((all.lease, all.drain), (Some(Duration::from_secs(30)), Some(Duration::from_secs(60))));
        assert_eq!(all.serve, ["mail", "default"]);
        assert_eq!((all.queues["mail"].slots, all.queues["mail"].prefetch), (Some(4), Some(5)));
    }

    #[test]
    fn every_limit_can_be_set_in_the_file_and_in_the_environment() {
        for name in Limits::NAMES {
            let file = file::parse(&format!("[limits]\n{name} = 70_000")).expect("valid");
            assert_eq!(file.limits.get(*name), Some(&70_000));
            let sized = file::parse(&format!("[limits]\n{name} = '2MiB'")).expect("valid");
            assert_eq!(sized.limits.get(*name), Some(&(2 << 20)));
            let env = from_env(|variable| (variable == Limits::env_variable(name)).then(|| "64KiB".into()))
                .expect("valid");
            let all = env.over(file);
            assert_eq!(all.limits.get(*name), Some(&65_536), "the environment is above the file");
            let engine = windlass::Engine::builder("sqlite://shop.db");
            let program = crate::program::Program::new(engine, all, "shop");
            assert_eq!(program.url(), format!("sqlite://shop.db?limit_{name}=65536"));
        }
        let error = from_env(|variable| (variable == "WINDLASS_LIMIT_INBOX").then(|| "lots".into()))
            .expect_err("no number");
        assert!(error.to_string().starts_with("WINDLASS_LIMIT_INBOX: the limit inbox of"), "{error}");
    }

    #[test]
    fn an_error_names_the_variable_and_its_value() {
        let error =
            from_env(|name| (name == "WINDLASS_LEASE").then(|| "soon".into())).expect_err("not a duration");
        assert!(error.to_string().contains("WINDLASS_LEASE: \"soon\" is not a duration"));
        let error =
            from_env(|name| (name == "WINDLASS_QUEUES").then(|| "mail=many".into())).expect_err("no count");
        assert!(format!("{error:#}").contains("mail=16"), "{error:#}");
    }

    #[test]
    fn the_address_of_the_store_can_come_from_a_file() {
        let path = std::env::temp_dir().join(format!("windlass-store-{}", std::process::id()));
        std::fs::write(&path, "postgres://ada:secret@db/jobs\n").expect("written");
        let mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("changed");
        };
        let named = Settings { store_file: Some(path.clone()), ..Settings::default() };
        mode(0o644);
        let error = named.clone().with_store_of_file().expect_err("others may read it").to_string();
        assert!(error.contains("chmod 600") && !error.contains("secret@"), "{error}");
        mode(0o600);
        let read = named.clone().with_store_of_file().expect("read");
        assert_eq!((read.store.as_deref(), read.store_file), (Some("postgres://ada:secret@db/jobs"), None));
        let both = Settings { store: Some("sqlite://a.db".into()), ..named.clone() };
        assert!(both.with_store_of_file().expect_err("two stores").to_string().contains("use one"));
        std::fs::write(&path, " \n").expect("written");
        assert!(named.clone().with_store_of_file().is_err(), "it is empty");
        std::fs::remove_file(&path).expect("removed");
        let error = named.with_store_of_file().expect_err("it is gone");
        assert!(!format!("{error:#}").contains("secret"), "{error:#}");
    }

    #[test]
    fn a_higher_layer_names_a_store_or_a_server_in_place_of_both() {
        let file = file::parse("server = 'https://jobs.example'\ntoken_file = 't'\nallow_http = true")
            .expect("valid");
        let store =
            from_env(|name| (name == "WINDLASS_STORE").then(|| "sqlite://a.db".into())).expect("valid");
        let all = store.clone().over(file.clone());
        assert_eq!((all.store.as_deref(), all.remote.url), (Some("sqlite://a.db"), None));
        let all = file.clone().over(store);
        assert_eq!((all.store, all.remote.url.as_deref()), (None, Some("https://jobs.example")));
        let all = Settings::default().over(file);
        assert_eq!(
            (all.remote.url.as_deref(), all.remote.allow_http),
            (Some("https://jobs.example"), Some(true))
        );
        let both =
            file::parse("store = 'sqlite://a.db'\nserver = 'https://b'").expect("valid").with_one_place();
        assert!(both.expect_err("both").to_string().contains("use one"));
    }

    #[test]
    fn a_password_on_the_command_line_is_refused() {
        let flags = Settings { store: Some("postgres://ada:secret@db/jobs".into()), ..Settings::default() };
        let error = read(None, flags).expect_err("refused").to_string();
        assert!(error.contains("--store-file") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn the_server_is_set_in_the_file_and_in_the_environment() {
        let file = file::parse(
            "[server]\nlisten = '0.0.0.0:80'\nhosts = ['jobs.example']\ntls_cert = 'c.pem'\nlogin = false\nrate = 5\nclient_connections = 0",
        )
        .expect("valid");
        let env = from_env(|name| match name {
            "WINDLASS_LISTEN" => Some("127.0.0.1:81".into()),
            "WINDLASS_TRUSTED_PROXIES" => Some("10.0.0.1, 10.1.0.0/16".into()),
            "WINDLASS_LOGIN" => Some("true".into()),
            "WINDLASS_CLIENT_STREAMS" => Some("9".into()),
            _ => None,
        });
        let all = env.expect("valid").over(file).server;
        assert_eq!(all.listen.as_deref(), Some("127.0.0.1:81"));
        assert_eq!((all.hosts, all.trusted_proxies.len()), (vec!["jobs.example".to_owned()], 2));
        assert_eq!((all.tls_cert.as_deref(), all.login, all.rate), (Some("c.pem"), Some(true), Some(5)));
        assert_eq!((all.client_connections, all.client_streams), (Some(0), Some(9)));
        assert!(from_env(|name| (name == "WINDLASS_CLIENT_STREAMS").then(|| "many".into())).is_err());
        assert!(from_env(|name| (name == "WINDLASS_LOGIN").then(|| "perhaps".into())).is_err());
        assert!(file::parse("[server]\nport = 80").is_err());
    }
}
