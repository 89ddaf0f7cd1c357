//! Schema versions in PostgreSQL. Each migration and its note in `meta` commit together, under an advisory lock,
//! so processes that start at once do it once.

use tokio_postgres::Client;

use super::{Options, errors::sorted, pool::connect, settings::Openings};
use crate::{
    Error, Migration, SchemaState,
    schema::{LATEST, OLDEST},
};

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "core",
        up: include_str!("migrations/0001_core.up.sql"),
        down: include_str!("migrations/0001_core.down.sql"),
    },
    Migration {
        version: 2,
        name: "jobs",
        up: include_str!("migrations/0002_jobs.up.sql"),
        down: include_str!("migrations/0002_jobs.down.sql"),
    },
    Migration {
        version: 3,
        name: "machines",
        up: include_str!("migrations/0003_machines.up.sql"),
        down: include_str!("migrations/0003_machines.down.sql"),
    },
    Migration {
        version: 4,
        name: "workflows",
        up: include_str!("migrations/0004_workflows.up.sql"),
        down: include_str!("migrations/0004_workflows.down.sql"),
    },
    Migration {
        version: 5,
        name: "branches",
        up: include_str!("migrations/0005_branches.up.sql"),
        down: include_str!("migrations/0005_branches.down.sql"),
    },
    Migration {
        version: 6,
        name: "promises",
        up: include_str!("migrations/0006_promises.up.sql"),
        down: include_str!("migrations/0006_promises.down.sql"),
    },
];

async fn state(client: &Client, schema: &str) -> Result<SchemaState, Error> {
    let there = client
        .query_one("select to_regclass($1::text) is not null", &[&format!("{schema}.meta")])
        .await
        .map_err(sorted)?;
    if !there.get::<_, bool>(0) {
        return Ok(SchemaState { version: 0, oldest: 0, latest: LATEST });
    }
    let row = client.query_one("select version, oldest from meta", &[]).await.map_err(sorted)?;
    Ok(SchemaState { version: row.get(0), oldest: row.get(1), latest: LATEST })
}

/// Where the schema stands.
pub(super) async fn read(options: &Options) -> Result<SchemaState, Error> {
    let client = connect(options, &tokio::runtime::Handle::current()).await?;
    client.batch_execute(&Openings::new(&options.schema).read).await.map_err(sorted)?;
    state(&client, &options.schema).await
}

/// Makes the schema fit for use, or says why it is not.
pub(super) async fn prepare(options: &Options) -> Result<(), Error> {
    let state = read(options).await?;
    if options.migrate && state.version < state.latest {
        to(options, None).await?.check()
    } else {
        state.check()
    }
}

/// Takes the schema to `target`.
pub(super) async fn to(options: &Options, target: Option<i32>) -> Result<SchemaState, Error> {
    // Dropped before it has committed, it leaves nothing.
    let tx = connect(options, &tokio::runtime::Handle::current()).await?;
    let schema = &options.schema;
    tx.batch_execute(&Openings::new(schema).migrate).await.map_err(sorted)?;
    tx.execute(
        "select pg_advisory_xact_lock(hashtextextended($1, 0))",
        &[&format!("windlass schema {schema}")],
    )
    .await
    .map_err(sorted)?;
    let before = state(&tx, schema).await?;
    let target = before.target(target)?;
    if target > 0 {
        tx.batch_execute(&format!("create schema if not exists \"{schema}\"")).await.map_err(sorted)?;
    }
    for migration in MIGRATIONS.iter().filter(|m| m.version > before.version && m.version <= target) {
        tx.batch_execute(migration.up).await.map_err(sorted)?;
        tx.execute("delete from meta", &[]).await.map_err(sorted)?;
        let oldest = OLDEST.min(migration.version);
        tx.execute(
            "insert into meta (one, version, oldest) values (1, $1, $2)",
            &[&migration.version, &oldest],
        )
        .await
        .map_err(sorted)?;
        tracing::info!(version = migration.version, name = migration.name, "migrated the schema up");
    }
    for migration in MIGRATIONS.iter().rev().filter(|m| m.version <= before.version && m.version > target) {
        if migration.version > 1 {
            let version = migration.version - 1;
            tx.execute("update meta set version = $1, oldest = least(oldest, $1)", &[&version])
                .await
                .map_err(sorted)?;
        }
        tx.batch_execute(migration.down).await.map_err(sorted)?;
        tracing::info!(version = migration.version, name = migration.name, "migrated the schema down");
    }
    let after = state(&tx, schema).await?;
    tx.batch_execute("commit").await.map_err(sorted)?;
    Ok(after)
}
