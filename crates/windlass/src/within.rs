//! Submitting in the caller's own transaction: the job exists if, and only if, that transaction commits.
//!
//! The transaction only appends a row, so it blocks nobody, however long it takes. A worker admits the job after the commit: a
//! worker in this process at once after [`Engine::poke`], others within two seconds. Only then key and unique name are checked:
//! if another job has them, this one ends as cancelled, with the class `duplicate`.

use windlass_model::{NewJob, SubmitOutcome};
#[cfg(feature = "postgres")]
use windlass_store::{postgres, tokio_postgres::GenericClient};
#[cfg(feature = "sqlite")]
use windlass_store::{rusqlite::Connection, sqlite};

use crate::{AnyKind, Engine, Error, Handle, Kind, Submit, SubmitJson};

impl<J: Kind<M>, M> Submit<'_, J, M> {
    /// Submits within a PostgreSQL transaction of your own, on the database that holds the store's schema.
    #[cfg(feature = "postgres")]
    pub async fn in_postgres(self, tx: &impl GenericClient) -> Result<Handle<J>, Error> {
        let (engine, job) = self.into_job()?;
        append_postgres(&engine, tx, &job).await?;
        Ok(appended(engine, job))
    }

    /// Submits within a SQLite transaction of your own, on the file of the store. Nobody else can write to the file while it is
    /// open: keep it short.
    #[cfg(feature = "sqlite")]
    pub fn in_sqlite(self, tx: &Connection) -> Result<Handle<J>, Error> {
        let (engine, job) = self.into_job()?;
        sqlite::submit_in(tx, &job, engine.store().limits())?;
        Ok(appended(engine, job))
    }
}

impl SubmitJson<'_> {
    /// As [`Submit::in_postgres`].
    #[cfg(feature = "postgres")]
    pub async fn in_postgres(self, tx: &impl GenericClient) -> Result<Handle<AnyKind>, Error> {
        let (engine, job) = self.into_job()?;
        append_postgres(&engine, tx, &job).await?;
        Ok(appended(engine, job))
    }

    /// As [`Submit::in_sqlite`].
    #[cfg(feature = "sqlite")]
    pub fn in_sqlite(self, tx: &Connection) -> Result<Handle<AnyKind>, Error> {
        let (engine, job) = self.into_job()?;
        sqlite::submit_in(tx, &job, engine.store().limits())?;
        Ok(appended(engine, job))
    }
}

#[cfg(feature = "postgres")]
async fn append_postgres(engine: &Engine, tx: &impl GenericClient, job: &NewJob) -> Result<(), Error> {
    let Some(schema) = engine.store().schema_name() else {
        return Err(windlass_store::Error::Config(format!(
            "{} is no PostgreSQL store; use `in_sqlite`, or submit without a transaction",
            windlass_store::without_password(engine.url())
        ))
        .into());
    };
    postgres::submit_in(tx, schema, engine.store().limits(), job).await?;
    Ok(())
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn appended<J>(engine: Engine, job: NewJob) -> Handle<J> {
    Handle::submitted(engine, job.id, SubmitOutcome::New { claimed: None })
}
