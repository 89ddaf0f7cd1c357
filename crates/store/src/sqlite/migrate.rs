//! Schema versions in a SQLite file. Each migration and its note in `meta` commit together, under the write
//! lock, so two processes that start at once do it once.

use rusqlite::Connection;

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
];

pub(super) fn state(conn: &Connection) -> Result<SchemaState, Error> {
    let there: bool = conn.query_row(
        "select exists (select 1 from sqlite_schema where type = 'table' and name = 'meta')",
        [],
        |row| row.get(0),
    )?;
    if !there {
        return Ok(SchemaState { version: 0, oldest: 0, latest: LATEST });
    }
    Ok(conn.query_row("select version, oldest from meta", [], |row| {
        Ok(SchemaState { version: row.get(0)?, oldest: row.get(1)?, latest: LATEST })
    })?)
}

/// Makes the schema fit for use, or says why it is not.
pub(super) fn prepare(conn: &mut Connection, migrate: bool) -> Result<(), Error> {
    let state = state(conn)?;
    if migrate && state.version < state.latest { to(conn, None)?.check() } else { state.check() }
}

/// Takes the schema to `target`.
pub(super) fn to(conn: &mut Connection, target: Option<i32>) -> Result<SchemaState, Error> {
    conn.busy_timeout(std::time::Duration::from_secs(30))?;
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let before = state(&tx)?;
    let target = before.target(target)?;
    for migration in MIGRATIONS.iter().filter(|m| m.version > before.version && m.version <= target) {
        tx.execute_batch(migration.up)?;
        tx.execute("delete from meta", [])?;
        let params = (migration.version, OLDEST.min(migration.version));
        tx.execute("insert into meta (one, version, oldest) values (1, ?1, ?2)", params)?;
        tracing::info!(version = migration.version, name = migration.name, "migrated the schema up");
    }
    for migration in MIGRATIONS.iter().rev().filter(|m| m.version <= before.version && m.version > target) {
        if migration.version > 1 {
            // Binaries that were too old for what is undone may use it again.
            tx.execute("update meta set version = ?1, oldest = min(oldest, ?1)", [migration.version - 1])?;
        }
        tx.execute_batch(migration.down)?;
        tracing::info!(version = migration.version, name = migration.name, "migrated the schema down");
    }
    let after = state(&tx)?;
    tx.commit()?;
    super::file::look_closely(conn)?;
    Ok(after)
}
