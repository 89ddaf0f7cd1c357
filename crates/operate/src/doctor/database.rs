//! Checks the database: durability, permission to write, space, long transactions.

use std::time::Duration;

use windlass_store::{Database, PostgresHealth, SqliteHealth, WriteAccess};

use super::Finding;
use crate::text;

/// Less free space than this is a warning.
const LOW: u64 = 1 << 30;
/// Less free space than this is a failure: writes will soon fail.
const FULL: u64 = 64 << 20;
/// A transaction that has been open for longer keeps vacuum from removing dead rows, which slows everything down.
const LONG_TRANSACTION: Duration = Duration::from_secs(600);

pub(super) fn examine(database: &Database) -> Vec<Finding> {
    match database {
        Database::Memory => Vec::new(),
        Database::Sqlite(health) => vec![journal(health), file_access(health), disk_space(health)],
        Database::Postgres(health) => {
            let mut findings = vec![server(health)];
            findings.extend(durability(health));
            findings.push(role_access(health));
            findings.extend(long_transaction(health));
            findings
        }
    }
}

fn journal(health: &SqliteHealth) -> Finding {
    match health.journal_mode.as_str() {
        "wal" => {
            let found = "journal in WAL mode; every connection of the engine sets synchronous=FULL";
            Finding::ok("durability", found)
        }
        mode => Finding::warn("durability", format!("the journal is in {mode} mode"))
            .advice("the engine switches it to WAL when it opens the file"),
    }
}

fn file_access(health: &SqliteHealth) -> Finding {
    match health.write {
        WriteAccess::Allowed => Finding::ok("write", "this user may write"),
        WriteAccess::Locked => Finding::fail("write", "another process has held the write lock for 3 s")
            .advice("is one stopped (SIGSTOP, a debugger) inside a write?"),
        WriteAccess::Denied | WriteAccess::Standby | WriteAccess::ReadOnly => {
            Finding::fail("write", "this user may not write to the file or its folder")
                .advice("change their owner or mode")
        }
    }
}

fn disk_space(health: &SqliteHealth) -> Finding {
    let used = format!("{} used by the store", text::bytes(health.used_bytes));
    let Some(free) = health.free_bytes else {
        let found = Finding::warn("disk", format!("{used}, and the free space cannot be read"));
        return found.number("used_bytes", health.used_bytes);
    };
    let found = format!("{} free, {used}", text::bytes(free));
    let finding = match free {
        ..FULL => Finding::fail("disk", found).advice("free some space, or writes will fail"),
        FULL..LOW => Finding::warn("disk", found).advice("free some space soon"),
        _ => Finding::ok("disk", found),
    };
    finding.number("free_bytes", free).number("used_bytes", health.used_bytes)
}

fn server(health: &PostgresHealth) -> Finding {
    let used = health.tables.iter().map(|table| table.bytes).sum();
    let dead = health.tables.iter().map(|table| table.dead_rows).sum();
    let PostgresHealth { version, schema, .. } = health;
    let found = format!("PostgreSQL {version}, {} used by schema {schema}", text::bytes(used));
    Finding::ok("server", found).number("used_bytes", used).number("dead_rows", dead)
}

fn durability(health: &PostgresHealth) -> Vec<Finding> {
    let settings = [
        ("fsync", &health.fsync, "a crash of the machine can lose and corrupt everything"),
        ("full_page_writes", &health.full_page_writes, "a crash of the machine can corrupt pages"),
        (
            "synchronous_commit",
            &health.synchronous_commit,
            "a crash of the server can lose acknowledged jobs",
        ),
    ];
    let off: Vec<Finding> = settings
        .iter()
        .filter(|(_, value, _)| *value == "off")
        .map(|(name, _, risk)| {
            Finding::fail("durability", format!("{name} is off: {risk}")).advice("turn it on")
        })
        .collect();
    if !off.is_empty() {
        return off;
    }
    let values = settings.map(|(name, value, _)| format!("{name} {value}"));
    vec![Finding::ok("durability", values.join(", "))]
}

fn role_access(health: &PostgresHealth) -> Finding {
    let PostgresHealth { user, schema, .. } = health;
    match health.write {
        WriteAccess::Allowed => Finding::ok("write", format!("{user} may write")),
        WriteAccess::Standby => {
            Finding::fail("write", "this server is a standby").advice("use the primary's address")
        }
        WriteAccess::ReadOnly => {
            Finding::fail("write", "transactions are read-only here (default_transaction_read_only)")
                .advice("use a session that may write")
        }
        WriteAccess::Denied | WriteAccess::Locked => {
            Finding::fail("write", format!("{user} may not write to schema {schema}"))
                .advice("grant it, or use another user")
        }
    }
}

fn long_transaction(health: &PostgresHealth) -> Option<Finding> {
    let open = health.longest_transaction;
    (open > LONG_TRANSACTION).then(|| {
        let minutes = open.as_secs() / 60;
        let found = format!("one has been open for {minutes} min and keeps vacuum from removing dead rows");
        Finding::warn("transactions", found)
            .advice("find it in pg_stat_activity")
            .seconds("longest_seconds", open)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn sqlite(write: WriteAccess, free_bytes: Option<u64>) -> Database {
        Database::Sqlite(SqliteHealth { journal_mode: "wal".into(), write, used_bytes: 2_048, free_bytes })
    }

    fn postgres() -> PostgresHealth {
        PostgresHealth {
            version: "18.1".into(),
            schema: "jobs".into(),
            user: "ada".into(),
            fsync: "on".into(),
            full_page_writes: "on".into(),
            synchronous_commit: "on".into(),
            write: WriteAccess::Allowed,
            longest_transaction: Duration::ZERO,
            tables: Vec::new(),
        }
    }

    fn verdicts(database: &Database) -> Vec<(&'static str, Verdict)> {
        examine(database).iter().map(|finding| (finding.known_what(), finding.verdict)).collect()
    }

    #[test]
    fn a_file_needs_wal_a_writer_and_space() {
        assert_eq!(verdicts(&Database::Memory), []);
        let ok = [("durability", Verdict::Ok), ("write", Verdict::Ok), ("disk", Verdict::Ok)];
        assert_eq!(verdicts(&sqlite(WriteAccess::Allowed, Some(LOW))), ok);
        let full = examine(&sqlite(WriteAccess::Locked, Some(FULL - 1)));
        assert_eq!([full[1].verdict, full[2].verdict], [Verdict::Fail; 2]);
        assert_eq!(full[2].numbers["free_bytes"], FULL - 1);
        assert_eq!(examine(&sqlite(WriteAccess::Allowed, Some(FULL)))[2].verdict, Verdict::Warn);
        assert_eq!(examine(&sqlite(WriteAccess::Allowed, None))[2].verdict, Verdict::Warn);
    }

    #[test]
    fn a_server_that_may_lose_commits_is_a_failure_for_each_setting() {
        let ok = [("server", Verdict::Ok), ("durability", Verdict::Ok), ("write", Verdict::Ok)];
        assert_eq!(verdicts(&Database::Postgres(postgres())), ok);
        let health = PostgresHealth { fsync: "off".into(), synchronous_commit: "off".into(), ..postgres() };
        let found = verdicts(&Database::Postgres(health));
        assert_eq!(found[1..3], [("durability", Verdict::Fail); 2]);
    }

    #[test]
    fn a_standby_cannot_be_written_to_and_a_long_transaction_is_a_warning() {
        let health = PostgresHealth {
            write: WriteAccess::Standby,
            longest_transaction: Duration::from_secs(1_200),
            ..postgres()
        };
        let found = examine(&Database::Postgres(health));
        assert_eq!(
            (found[2].verdict, found[2].advice.as_deref()),
            (Verdict::Fail, Some("use the primary's address"))
        );
        assert!(found[3].found.starts_with("one has been open for 20 min"), "{found:?}");
    }
}
