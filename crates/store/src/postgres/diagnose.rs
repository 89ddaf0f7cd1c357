//! A diagnosis of the server, of the schema, and of the work in it.

use std::time::Duration;

use tokio_postgres::{Client, Row};
use windlass_model::{BranchCounts, JobId, Time};

use super::{Options, Postgres, errors::PgError, migrate, pool, sql};
use crate::{
    BranchHealth, Database, Diagnose, Error, Fut, Miscount, OldestReady, PostgresHealth, SchemaState,
    TableHealth, WriteAccess, diagnose::merge,
};

impl Postgres {
    /// Reads the schema version. Writes nothing.
    pub async fn schema_of(options: &Options) -> Result<SchemaState, Error> {
        migrate::read(options).await
    }

    /// Reads the settings and health of the server and of the schema, in a session with nothing but the role's defaults. Neither the
    /// schema nor its tables need exist.
    pub async fn database_of(options: &Options) -> Result<Database, Error> {
        let (client, _) = pool::connect(options, &tokio::runtime::Handle::current()).await?;
        let read = read_health(&client, options.schema_name());
        // As for any other statement: a connection whose peer has vanished answers nothing.
        let late = |_| Error::Unavailable(format!("PostgreSQL did not answer within {:?}", options.patience));
        let health = tokio::time::timeout(options.patience, read).await.map_err(late)?;
        Ok(Database::Postgres(health.map_err(PgError::from)?))
    }

    async fn branch_health(&self, sql: &'static str, limit: usize) -> Result<Vec<BranchHealth>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.conn().await?.read(sql, &[&limit]).await?;
        let health = |row: &Row| {
            let (done, failed, cancelled) = (row.get(4), row.get(5), row.get(6));
            BranchHealth {
                job: JobId(row.get(0)),
                name: row.get(1),
                merge: merge(row.get(2)),
                spawned: row.get(3),
                counts: BranchCounts { started: 0, done, failed, cancelled },
                poll_at: row.get::<_, Option<i64>>(7).map(Time),
            }
        };
        Ok(rows.iter().map(health).collect())
    }
}

async fn read_health(client: &Client, schema: &str) -> Result<PostgresHealth, tokio_postgres::Error> {
    let server = client.query_one(sql::diagnose::SERVER, &[&schema]).await?;
    let tables = client.query(sql::diagnose::TABLES, &[&schema]).await?;
    let number = |row: &Row, column: usize| row.get::<_, i64>(column).max(0).unsigned_abs();
    let table = |row: &Row| TableHealth {
        name: row.get(0),
        bytes: number(row, 1),
        live_rows: number(row, 2),
        dead_rows: number(row, 3),
    };
    Ok(PostgresHealth {
        version: server.get(0),
        schema: schema.to_owned(),
        user: server.get(1),
        fsync: server.get(2),
        full_page_writes: server.get(3),
        synchronous_commit: server.get(4),
        write: match (server.get(5), server.get(6), server.get(7)) {
            (true, ..) => WriteAccess::Standby,
            (false, true, _) => WriteAccess::ReadOnly,
            (false, false, false) => WriteAccess::Denied,
            (false, false, true) => WriteAccess::Allowed,
        },
        longest_transaction: Duration::from_secs(number(&server, 8)),
        tables: tables.iter().map(table).collect(),
    })
}

impl Diagnose for Postgres {
    fn database(&self) -> Fut<'_, Database> {
        Box::pin(Postgres::database_of(&self.shared.options))
    }

    fn oldest_ready(&self) -> Fut<'_, Vec<OldestReady>> {
        Box::pin(async {
            let rows = self.conn().await?.read(sql::diagnose::OLDEST_READY, &[]).await?;
            let oldest = |row: &Row| {
                let (queue, kind, version) = (row.get(0), row.get(1), row.get(2));
                OldestReady { queue, kind, version, due_at: Time(row.get(3)) }
            };
            Ok(rows.iter().map(oldest).collect())
        })
    }

    fn suspects(&self, cap: u64) -> Fut<'_, u64> {
        Box::pin(async move {
            let cap = i64::try_from(cap).unwrap_or(i64::MAX);
            let rows = self.conn().await?.read(sql::diagnose::SUSPECTS, &[&cap]).await?;
            Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0)).unsigned_abs())
        })
    }

    fn unhandled_failures(&self, cap: u64) -> Fut<'_, u64> {
        Box::pin(async move {
            let cap = i64::try_from(cap).unwrap_or(i64::MAX);
            let rows = self.conn().await?.read(sql::diagnose::UNHANDLED_FAILURES, &[&cap]).await?;
            Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0)).unsigned_abs())
        })
    }

    fn awaited_branches(&self, limit: usize) -> Fut<'_, Vec<BranchHealth>> {
        Box::pin(self.branch_health(sql::diagnose::AWAITED_BRANCHES, limit))
    }

    fn orphaned_branches(&self, limit: usize) -> Fut<'_, Vec<BranchHealth>> {
        Box::pin(self.branch_health(sql::diagnose::ORPHANED_BRANCHES, limit))
    }

    fn miscounts(&self) -> Fut<'_, Vec<Miscount>> {
        Box::pin(self.find_miscounts())
    }
}
