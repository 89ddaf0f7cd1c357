//! Where a command works: the store that the settings name, or the engine of the program it is part of.

use anyhow::{Context, bail};
pub(crate) use windlass::store::sqlite_path;
use windlass::{
    Engine, JobId,
    store::{with_limits, without_password},
};

use crate::config::{DEFAULT_STORE, Settings};

/// A store, opened or only named, and the settings.
pub(crate) struct Place {
    engine: Option<Engine>,
    /// Adds the program's kinds to an engine that is opened here.
    add_kinds: fn(Engine) -> Engine,
    url: String,
    pub(crate) settings: Settings,
    /// What the program is called, for hints.
    pub(crate) program: String,
}

impl Place {
    /// The store that the settings name.
    pub(crate) fn named(settings: Settings, add_kinds: fn(Engine) -> Engine) -> Place {
        let url = settings.store.as_deref().unwrap_or(DEFAULT_STORE);
        let url = with_limits(url, settings.limits.iter().map(|(name, value)| (name.as_str(), *value)));
        Place { engine: None, add_kinds, url, settings, program: "windlass".to_owned() }
    }

    /// A program's own engine.
    pub(crate) fn opened(engine: Engine, settings: Settings, program: &str) -> Place {
        let url = engine.url().to_owned();
        // The engine has its kinds.
        Place { engine: Some(engine), add_kinds: |engine| engine, url, settings, program: program.to_owned() }
    }

    /// Where the store is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The address without its password, for people.
    pub(crate) fn shown(&self) -> String {
        without_password(&self.url)
    }

    /// An engine to submit to or to work with. A store that is not there yet is made.
    pub(crate) async fn engine(&self) -> anyhow::Result<Engine> {
        match &self.engine {
            Some(engine) => Ok(engine.clone()),
            None => Ok((self.add_kinds)(Engine::open(&self.url).await.with_context(|| self.trouble())?)),
        }
    }

    /// An engine to read with: a look changes nothing, and makes no empty store where there is none.
    pub(crate) async fn reader(&self) -> anyhow::Result<Engine> {
        if let Some(engine) = &self.engine {
            return Ok(engine.clone());
        }
        if let Some(path) = sqlite_path(&self.url)
            && !path.exists()
        {
            bail!(
                "there is no store at {} yet; `{} submit` or `{} worker` makes it, or name another with --store",
                self.shown(),
                self.program,
                self.program
            );
        }
        let store = windlass::store::open(&self.url, false).await.with_context(|| self.trouble())?;
        Ok(Engine::on(&self.url, store))
    }

    /// An engine to read with that knows the code of its kinds.
    pub(crate) async fn knower(&self) -> anyhow::Result<Engine> {
        Ok((self.add_kinds)(self.reader().await?))
    }

    /// What is said of a job that is not there.
    pub(crate) fn no_job(&self, id: JobId) -> String {
        format!(
            "there is no job {id} in {}; it was pruned, or is in another store (`{} jobs` lists this one's)",
            self.shown(),
            self.program
        )
    }

    /// A text of the library as this program says it: commands are called by its name.
    pub(crate) fn said(&self, text: &str) -> String {
        text.replace("`windlass ", &format!("`{} ", self.program))
    }

    fn trouble(&self) -> String {
        format!("the store {} cannot be opened", self.shown())
    }
}

/// Whether this is the address of a PostgreSQL database.
pub(crate) fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}
