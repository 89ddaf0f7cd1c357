//! Migrations of a PostgreSQL schema. A migration and its row in `meta` commit together, under an advisory lock, so that
//! processes that start at the same time migrate once.

use super::{Options, pool::connect_unpooled, tx::Tx};
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

async fn state(tx: &Tx<'_>, schema: &str, migrations: &[Migration]) -> Result<SchemaState, Error> {
    let exists = "select to_regclass($1::text) is not null";
    let rows = tx.query(exists, &[&format!("{schema}.meta")]).await?;
    if !rows.first().is_some_and(|row| row.get(0)) {
        return Ok(SchemaState::none(migrations));
    }
    let rows = tx.query("select version, oldest from meta", &[]).await?;
    let row = rows.first().ok_or_else(|| Error::Fault("the table meta has no row".into()))?;
    Ok(SchemaState { version: row.get(0), oldest: row.get(1), latest: latest(migrations) })
}

/// Reads the version of the schema.
pub(super) async fn read(options: &Options) -> Result<SchemaState, Error> {
    let mut conn = connect_unpooled(options).await?;
    state(&Tx::read(&mut conn).await?, &options.schema, MIGRATIONS).await
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
    let mut conn = connect_unpooled(options).await?;
    let tx = Tx::migrate(&mut conn).await?;
    let schema = &options.schema;
    let lock = "select pg_advisory_xact_lock(hashtextextended($1, 0))";
    tx.query(lock, &[&format!("windlass schema {schema}")]).await?;
    let before = state(&tx, schema, migrations).await?;
    let target = before.target(target)?;
    if target > 0 {
        tx.simple_query(&format!("create schema if not exists \"{schema}\"")).await?;
    }
    for step in steps(before.version, target, migrations) {
        tx.simple_query(step.sql()).await?;
        if step.version > 0 {
            let sql = "insert into meta (one, version, oldest) values (1, $1, $2)
                 on conflict (one) do update set version = excluded.version, oldest = excluded.oldest";
            tx.execute(sql, &[&step.version, &step.oldest]).await?;
        }
        step.log();
    }
    let after = state(&tx, schema, migrations).await?;
    tx.commit().await?;
    Ok(after)
}
