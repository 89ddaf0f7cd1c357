//! Migrations of a PostgreSQL schema. Each migration and its row in `meta` commit together, under an advisory lock, so
//! processes that start at the same time migrate once.

use tokio_postgres::Client;

use super::{Options, errors::sorted, pool::connect, settings::Openings};
use crate::{
    Error, Migration, SchemaState,
    schema::{latest, steps},
};

/// The migrations of this build.
pub(super) const MIGRATIONS: &[Migration] = &[Migration {
    version: 7,
    oldest: 7,
    name: "baseline",
    up: include_str!("migrations/0007_baseline.up.sql"),
    down: include_str!("migrations/0007_baseline.down.sql"),
}];

async fn state(client: &Client, schema: &str, migrations: &[Migration]) -> Result<SchemaState, Error> {
    let there = client
        .query_one("select to_regclass($1::text) is not null", &[&format!("{schema}.meta")])
        .await
        .map_err(sorted)?;
    if !there.get::<_, bool>(0) {
        return Ok(SchemaState::none(migrations));
    }
    let row = client.query_one("select version, oldest from meta", &[]).await.map_err(sorted)?;
    Ok(SchemaState { version: row.get(0), oldest: row.get(1), latest: latest(migrations) })
}

/// The version of the schema.
pub(super) async fn read(options: &Options) -> Result<SchemaState, Error> {
    let client = connect(options, &tokio::runtime::Handle::current()).await?;
    client.batch_execute(&Openings::new(&options.schema).read).await.map_err(sorted)?;
    state(&client, &options.schema, MIGRATIONS).await
}

/// Migrates the schema if that is wanted and needed; fails if this binary may not use it.
pub(super) async fn prepare(options: &Options) -> Result<(), Error> {
    let state = read(options).await?;
    if options.migrate && state.version < state.latest {
        to(options, None, MIGRATIONS).await?.check()
    } else {
        state.check()
    }
}

/// Migrates the schema to a version; `None` is the newest.
pub(super) async fn to(
    options: &Options,
    target: Option<i32>,
    migrations: &[Migration],
) -> Result<SchemaState, Error> {
    // Dropped before it has committed, the connection leaves nothing.
    let tx = connect(options, &tokio::runtime::Handle::current()).await?;
    let schema = &options.schema;
    tx.batch_execute(&Openings::new(schema).migrate).await.map_err(sorted)?;
    tx.execute(
        "select pg_advisory_xact_lock(hashtextextended($1, 0))",
        &[&format!("windlass schema {schema}")],
    )
    .await
    .map_err(sorted)?;
    let before = state(&tx, schema, migrations).await?;
    let target = before.target(target)?;
    if target > 0 {
        tx.batch_execute(&format!("create schema if not exists \"{schema}\"")).await.map_err(sorted)?;
    }
    for step in steps(before.version, target, migrations) {
        tx.batch_execute(step.sql()).await.map_err(sorted)?;
        if step.version > 0 {
            tx.execute(
                "insert into meta (one, version, oldest) values (1, $1, $2)
                 on conflict (one) do update set version = excluded.version, oldest = excluded.oldest",
                &[&step.version, &step.oldest],
            )
            .await
            .map_err(sorted)?;
        }
        step.log();
    }
    let after = state(&tx, schema, migrations).await?;
    tx.batch_execute("commit").await.map_err(sorted)?;
    Ok(after)
}
