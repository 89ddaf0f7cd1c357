//! Migrations of a SQLite file. Each migration and its row in `meta` commit together, under the write lock, so that
//! processes which start at the same time migrate once.

use rusqlite::Connection;

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

/// Reads the version of the schema.
pub(super) fn state(conn: &Connection, migrations: &[Migration]) -> Result<SchemaState, Error> {
    let sql = "select exists (select 1 from sqlite_schema where type = 'table' and name = 'windlass_meta')";
    if !conn.query_row(sql, [], |row| row.get::<_, bool>(0))? {
        return Ok(SchemaState::none(migrations));
    }
    Ok(conn.query_row("select version, oldest from windlass_meta", [], |row| {
        Ok(SchemaState { version: row.get(0)?, oldest: row.get(1)?, latest: latest(migrations) })
    })?)
}

/// Migrates the schema if that is wanted and needed. Fails if this binary may not use it.
pub(super) fn prepare(conn: &mut Connection, migrate: bool) -> Result<(), Error> {
    let state = state(conn, MIGRATIONS)?;
    if migrate && state.version < state.latest { to(conn, None, MIGRATIONS)?.check() } else { state.check() }
}

/// Migrates the schema to a version; `None` is the newest.
pub(super) fn to(
    conn: &mut Connection,
    target: Option<i32>,
    migrations: &[Migration],
) -> Result<SchemaState, Error> {
    conn.busy_timeout(std::time::Duration::from_secs(30))?;
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let before = state(&tx, migrations)?;
    for step in steps(before.version, before.target(target)?, migrations) {
        tx.execute_batch(step.sql())?;
        if step.version > 0 {
            tx.execute(
                "insert into windlass_meta (one, version, oldest) values (1, ?1, ?2)
                 on conflict (one) do update set version = excluded.version, oldest = excluded.oldest",
                (step.version, step.oldest),
            )?;
        }
        step.log();
    }
    let after = state(&tx, migrations)?;
    tx.commit()?;
    super::conn::set_busy_handler(conn)?;
    Ok(after)
}
