//! The program that a command runs in: its name, its engine's builder, and the settings that override what the builder says, among
//! them the server that is used in place of a store.

use std::cell::Cell;

use anyhow::{Context, bail};
use windlass::{
    Builder, Engine, Error, JobId,
    model::KindVersion,
    store::{sqlite_path, with_limits, without_password},
};

use crate::{
    client::{Client, Server},
    config::Settings,
};

/// An engine that is described and not opened, with the settings of the program.
pub(crate) struct Program {
    /// Taken by the one engine that a command opens.
    builder: Cell<Option<Builder>>,
    url: String,
    kinds: Vec<KindVersion>,
    pub(crate) settings: Settings,
    /// The program's name, for hints that name its commands.
    pub(crate) name: String,
}

impl Program {
    /// A program with this engine, on the store that the settings name, or else on the engine's own.
    pub(crate) fn new(builder: Builder, settings: Settings, name: &str) -> Program {
        let url = settings.store.as_deref().unwrap_or(builder.address());
        let url = with_limits(url, settings.limits.iter().map(|(name, value)| (name.as_str(), *value)));
        let kinds = builder.kinds();
        let builder = Cell::new(Some(builder.url(&url)));
        Program { builder, url, kinds, settings, name: name.to_owned() }
    }

    /// The address of the store.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The address of the server, or of the store without its password.
    pub(crate) fn display_url(&self) -> String {
        self.settings.remote.url.clone().unwrap_or_else(|| without_password(&self.url))
    }

    /// Whether a server is used in place of a store.
    pub(crate) fn is_remote(&self) -> bool {
        self.settings.remote.url.is_some()
    }

    /// Refuses a command that a server cannot do.
    pub(crate) fn need_store(&self, command: &str) -> anyhow::Result<()> {
        if self.is_remote() {
            bail!(
                "`{} {command}` works on a store, not on the server {}: give --store",
                self.name,
                self.display_url()
            );
        }
        Ok(())
    }

    /// The server, or the store, which is never created or migrated.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Ok(match self.is_remote() {
            true => Client::Server(self.server()?),
            false => Client::store(self.reader().await?, self),
        })
    }

    /// The server, or the store, which is created if it does not exist.
    pub(crate) async fn client_or_create(&self) -> anyhow::Result<Client> {
        Ok(match self.is_remote() {
            true => Client::Server(self.server()?),
            false => Client::store(self.engine().await?, self),
        })
    }

    /// The server that is used in place of a store. Sends nothing.
    pub(crate) fn server(&self) -> anyhow::Result<Server> {
        Server::new(&self.settings.remote, self)
    }

    /// The kinds whose inputs are checked at a submit, and who knows them.
    pub(crate) async fn known_kinds(&self) -> anyhow::Result<(Vec<KindVersion>, &'static str)> {
        Ok(match self.is_remote() {
            true => (self.server()?.kinds().await?, "the server"),
            false => (self.kinds.clone(), "this program"),
        })
    }

    /// The engine's builder, for a command that starts it.
    pub(crate) fn builder(&self) -> anyhow::Result<Builder> {
        if self.is_remote() {
            bail!("this command works on a store, not on the server {}: give --store", self.display_url());
        }
        self.builder.take().context("a command opens its engine once")
    }

    /// The engine's builder, for a worker: of a store, or of jobs that a server hands out.
    pub(crate) fn worker_builder(&self) -> anyhow::Result<Builder> {
        if !self.is_remote() {
            return self.builder();
        }
        #[cfg(feature = "remote")]
        return self.settings.remote.apply(self.builder.take().context("a command opens its engine once")?);
        #[cfg(not(feature = "remote"))]
        bail!(
            "this program was built without the feature `remote`, so its workers need a store: give --store"
        );
    }

    /// Opens the engine to submit to. Creates the store if it does not exist.
    pub(crate) async fn engine(&self) -> anyhow::Result<Engine> {
        self.builder()?.open().await.with_context(|| self.open_error())
    }

    /// Opens the engine to read with. Never creates or migrates a store.
    pub(crate) async fn reader(&self) -> anyhow::Result<Engine> {
        self.open_existing(self.builder()?).await
    }

    /// Opens an engine that, once it is started, serves no queue and runs only jobs that it is called for. Never creates or
    /// migrates a store.
    pub(crate) async fn runner(&self) -> anyhow::Result<Engine> {
        self.open_existing(self.settings.apply(self.builder()?)?.serve_only([])).await
    }

    async fn open_existing(&self, builder: Builder) -> anyhow::Result<Engine> {
        if let Some(path) = sqlite_path(&self.url)
            && !path.exists()
        {
            bail!(
                "there is no store at {} yet; `{} submit` or `{} worker` creates it, or name another with --store",
                self.display_url(),
                self.name,
                self.name
            );
        }
        let store = windlass::store::open(&self.url, false).await.with_context(|| self.open_error())?;
        builder.store(store).open().await.with_context(|| self.open_error())
    }

    /// The error text for an id that no job in the store has.
    pub(crate) fn no_job(&self, id: JobId) -> String {
        no_job(id, &self.display_url(), &self.name)
    }

    /// An error of the library, with the store that it is about.
    pub(crate) fn explain(&self, error: Error) -> anyhow::Error {
        explain(error, &self.display_url(), &self.name)
    }

    /// A text of the library with its commands called by this program's name.
    pub(crate) fn with_own_name(&self, text: &str) -> String {
        text.replace("`windlass ", &format!("`{} ", self.name))
    }

    /// The text for a store that cannot be opened.
    pub(crate) fn open_error(&self) -> String {
        format!("the store {} cannot be opened", self.display_url())
    }
}

/// The error text for an id that no job has in the store or server at `url`, for the program called `name`.
pub(crate) fn no_job(id: JobId, url: &str, name: &str) -> String {
    format!(
        "there is no job {id} in {url}; it was pruned, or it is in another store (`{name} jobs` lists the jobs of this one)"
    )
}

/// An error of the library, with the store that it is about.
pub(crate) fn explain(error: Error, url: &str, name: &str) -> anyhow::Error {
    match error {
        Error::NoSuchJob(id) => anyhow::anyhow!(no_job(id, url, name)),
        error => error.into(),
    }
}
