//! The program that a command runs in: the stock binary, whose settings name the store, or a program with an engine of its own.

use anyhow::{Context, bail};
use windlass::{
    Engine, Error, JobId,
    store::{sqlite_path, with_limits, without_password},
};

use crate::config::{DEFAULT_STORE, Settings};

/// A store, opened or only named, with the settings and the kinds of the program.
pub(crate) struct Program {
    engine: Option<Engine>,
    /// Adds the program's kinds to an engine that is opened here.
    add_kinds: fn(Engine) -> Engine,
    url: String,
    pub(crate) settings: Settings,
    /// The program's name, for hints that name its commands.
    pub(crate) name: String,
}

impl Program {
    /// The stock binary, on the store that the settings name.
    pub(crate) fn stock(settings: Settings, add_kinds: fn(Engine) -> Engine) -> Program {
        let url = settings.store.as_deref().unwrap_or(DEFAULT_STORE);
        let url = with_limits(url, settings.limits.iter().map(|(name, value)| (name.as_str(), *value)));
        Program { engine: None, add_kinds, url, settings, name: "windlass".to_owned() }
    }

    /// A program with an engine of its own, which has its kinds already.
    pub(crate) fn with_engine(engine: Engine, settings: Settings, name: &str) -> Program {
        let url = engine.url().to_owned();
        Program { engine: Some(engine), add_kinds: |engine| engine, url, settings, name: name.to_owned() }
    }

    /// The address of the store.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The address of the store without its password.
    pub(crate) fn display_url(&self) -> String {
        without_password(&self.url)
    }

    /// Opens an engine to submit to or to work with. Creates the store if it does not exist.
    pub(crate) async fn engine(&self) -> anyhow::Result<Engine> {
        match &self.engine {
            Some(engine) => Ok(engine.clone()),
            None => Ok((self.add_kinds)(Engine::open(&self.url).await.with_context(|| self.open_error())?)),
        }
    }

    /// Opens an engine to read with. Never creates or migrates a store.
    pub(crate) async fn reader(&self) -> anyhow::Result<Engine> {
        if let Some(engine) = &self.engine {
            return Ok(engine.clone());
        }
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
        Ok(Engine::on(&self.url, store))
    }

    /// Opens an engine to read with that has the code of the program's kinds.
    pub(crate) async fn reader_with_kinds(&self) -> anyhow::Result<Engine> {
        Ok((self.add_kinds)(self.reader().await?))
    }

    /// The error text for an id that no job in the store has.
    pub(crate) fn no_job(&self, id: JobId) -> String {
        format!(
            "there is no job {id} in {}; it was pruned, or it is in another store (`{} jobs` lists the jobs of this one)",
            self.display_url(),
            self.name
        )
    }

    /// An error of the library, with the store that it is about.
    pub(crate) fn explain(&self, error: Error) -> anyhow::Error {
        match error {
            Error::NoSuchJob(id) => anyhow::anyhow!(self.no_job(id)),
            error => error.into(),
        }
    }

    /// A text of the library with its commands called by this program's name.
    pub(crate) fn with_own_name(&self, text: &str) -> String {
        text.replace("`windlass ", &format!("`{} ", self.name))
    }

    fn open_error(&self) -> String {
        format!("the store {} cannot be opened", self.display_url())
    }
}
