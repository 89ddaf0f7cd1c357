//! Submitting in the caller's own transaction: the job is in if, and only if, that commits.
//!
//! The transaction only appends a row, so it holds up nobody, however long it takes. The next worker that looks puts the
//! job in; a worker in this process looks at once after [`Engine::poke`]. Key and unique name are judged then: if
//! another job has them, this one ends as cancelled, with the class `duplicate`.

use windlass_model::SubmitOutcome;
use windlass_store::{postgres, rusqlite, sqlite, tokio_postgres};

use crate::{Engine, Error, Handle, Kind, Submit, SubmitJson};

impl<J: Kind<M>, M> Submit<'_, J, M> {
    /// Submits within a PostgreSQL transaction of your own, on the database that holds the store's schema.
    pub async fn in_postgres(
        self,
        tx: &impl tokio_postgres::GenericClient,
    ) -> Result<Handle<J::Output>, Error> {
        let (engine, job) = self.into_job()?;
        append_postgres(&engine, tx, &job).await?;
        Ok(Handle::new(engine, job.id, SubmitOutcome::New { claimed: None }))
    }

    /// Submits within a SQLite transaction of your own, on the file of the store. As long as it is open nobody else
    /// writes to the file: keep it short.
    pub fn in_sqlite(self, tx: &rusqlite::Connection) -> Result<Handle<J::Output>, Error> {
        let (engine, job) = self.into_job()?;
        sqlite::submit_in(tx, &job, engine.store().limits())?;
        Ok(Handle::new(engine, job.id, SubmitOutcome::New { claimed: None }))
    }
}

impl SubmitJson<'_> {
    /// As [`Submit::in_postgres`].
    pub async fn in_postgres(
        self,
        tx: &impl tokio_postgres::GenericClient,
    ) -> Result<Handle<serde_json::Value>, Error> {
        let (engine, job) = self.into_job()?;
        append_postgres(&engine, tx, &job).await?;
        Ok(Handle::new(engine, job.id, SubmitOutcome::New { claimed: None }))
    }

    /// As [`Submit::in_sqlite`].
    pub fn in_sqlite(self, tx: &rusqlite::Connection) -> Result<Handle<serde_json::Value>, Error> {
        let (engine, job) = self.into_job()?;
        sqlite::submit_in(tx, &job, engine.store().limits())?;
        Ok(Handle::new(engine, job.id, SubmitOutcome::New { claimed: None }))
    }
}

async fn append_postgres(
    engine: &Engine,
    tx: &impl tokio_postgres::GenericClient,
    job: &windlass_model::NewJob,
) -> Result<(), Error> {
    let options = postgres::Options::parse(engine.url())?;
    postgres::submit_in(tx, options.schema_name(), engine.store().limits(), job).await?;
    Ok(())
}
