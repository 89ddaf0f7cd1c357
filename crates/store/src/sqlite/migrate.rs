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

pub(super) fn state(conn: &Connection) -> Result<SchemaState, Error> {
    if !are_there(conn, &["windlass_meta"])? {
        return Ok(SchemaState { version: 0, oldest: 0, latest: LATEST });
    }
    Ok(conn.query_row("select version, oldest from windlass_meta", [], |row| {
        Ok(SchemaState { version: row.get(0)?, oldest: row.get(1)?, latest: LATEST })
    })?)
}

/// Whether all of these tables are there.
fn are_there(conn: &Connection, names: &[&str]) -> Result<bool, Error> {
    for name in names {
        let sql = "select exists (select 1 from sqlite_schema where type = 'table' and name = ?1)";
        if !conn.query_row(sql, [name], |row| row.get::<_, bool>(0))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes over a file of a build from before names had a prefix. A table `meta` of someone else's stands without the rest.
fn adopt(conn: &Connection) -> Result<(), Error> {
    if !are_there(conn, &["windlass_meta"])?
        && are_there(conn, &["meta", "lanes", "claims", "gates", "attempts"])?
    {
        conn.execute_batch(include_str!("migrations/0001_names.sql"))?;
        tracing::info!("the tables of an early build have names of their own now");
    }
    Ok(())
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
    adopt(&tx)?;
    let before = state(&tx)?;
    let target = before.target(target)?;
    for migration in MIGRATIONS.iter().filter(|m| m.version > before.version && m.version <= target) {
        tx.execute_batch(migration.up)?;
        tx.execute("delete from windlass_meta", [])?;
        let params = (migration.version, OLDEST.min(migration.version));
        tx.execute("insert into windlass_meta (one, version, oldest) values (1, ?1, ?2)", params)?;
        tracing::info!(version = migration.version, name = migration.name, "migrated the schema up");
    }
    for migration in MIGRATIONS.iter().rev().filter(|m| m.version <= before.version && m.version > target) {
        if migration.version > 1 {
            // Binaries that were too old for what is undone may use it again.
            let sql = "update windlass_meta set version = ?1, oldest = min(oldest, ?1)";
            tx.execute(sql, [migration.version - 1])?;
        }
        tx.execute_batch(migration.down)?;
        tracing::info!(version = migration.version, name = migration.name, "migrated the schema down");
    }
    let after = state(&tx)?;
    tx.commit()?;
    super::file::look_closely(conn)?;
    Ok(after)
}
