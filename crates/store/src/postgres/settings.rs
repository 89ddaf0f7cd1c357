//! What a transaction sets for itself before its first statement.
//!
//! Nothing is set for a session, neither when it is opened nor later. The defaults of a role or a database must not matter, nor
//! a default that is changed while the store runs, and a pooler may give each transaction another session. So the transaction
//! sets everything that its statements rely on: see decision 0009.

/// Tables are reached by their indexes only: a plan that was made while a table was empty must not be reused as a scan when it
/// is full. Index scans and loops are set too, because a role's `off` for them weighs as much in a plan as the ones here.
const PLANNER: &[(&str, &str)] = &[
    ("enable_seqscan", "off"),
    ("enable_indexscan", "on"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_nestloop", "on"),
    ("enable_bitmapscan", "off"),
    ("enable_material", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
];

/// A statement may run for any time. Waiting for a lock, or leaving a transaction open, ends before the connection is given up
/// (10 s by default: see [`super::Options`]).
const TIMEOUTS: &[(&str, &str)] =
    &[("statement_timeout", "0"), ("lock_timeout", "8s"), ("idle_in_transaction_session_timeout", "10s")];

/// Migrations are planned as usual and wait for others without limit, and their string literals are read as they are written.
const MIGRATION: &[(&str, &str)] = &[
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("standard_conforming_strings", "on"),
    ("client_min_messages", "warning"),
];

/// What a transaction may do, and what it sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// It may write; each statement sees what was committed before it.
    Write,
    /// It only reads, and a standby accepts it.
    Read,
    /// It only reads, and all its statements see the store as it was at one moment.
    Snapshot,
    /// It changes the schema.
    Migrate,
    /// It only reads tables of the user, with the settings that the user has by default.
    UserRead,
}

/// How transactions begin, for one schema.
#[derive(Debug)]
pub(super) struct BeginSql {
    schema: String,
    write: String,
    read: String,
    snapshot: String,
    migrate: String,
    take_over: String,
}

impl BeginSql {
    pub(super) fn new(schema: &str) -> BeginSql {
        let local = |settings: &[&[(&str, &str)]]| {
            let path = format!("set local search_path to \"{schema}\", pg_temp");
            let settings = settings.iter().copied().flatten();
            settings.fold(path, |sql, (name, value)| format!("{sql}; set local {name} to '{value}'"))
        };
        // Not `begin isolation level …`: if that fails, no transaction is open, and the statements that were sent after it
        // would be committed one by one. A failure within the transaction ends all of it.
        let begin = |mode: &str, settings: &str| {
            format!("begin; set transaction isolation level {mode}, not deferrable; {settings}")
        };
        let all = local(&[PLANNER, TIMEOUTS]);
        BeginSql {
            schema: schema.to_owned(),
            write: begin("read committed, read write", &all),
            read: begin("read committed, read only", &all),
            snapshot: begin("repeatable read, read only", &all),
            migrate: begin("read committed, read write", &local(&[MIGRATION])),
            take_over: all,
        }
    }

    /// What begins a transaction, in one simple query.
    pub(super) fn of(&self, mode: Mode) -> &str {
        match mode {
            Mode::Write => &self.write,
            Mode::Read => &self.read,
            Mode::Snapshot => &self.snapshot,
            Mode::Migrate => &self.migrate,
            Mode::UserRead => {
                "begin; set transaction isolation level read committed, read only, not deferrable; reset all"
            }
        }
    }

    /// What is set in a transaction that a caller has begun, once the store continues it.
    pub(super) fn take_over(&self) -> &str {
        &self.take_over
    }

    /// The schema that has the tables.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// The same settings for a whole session, which no pooler shares.
    pub(super) fn for_session(schema: &str) -> String {
        BeginSql::new(schema).take_over.replace("set local ", "set ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_states_its_mode_and_sets_everything_locally() {
        let begin = BeginSql::new("jobs");
        for (mode, sql) in [
            (Mode::Write, "read committed, read write"),
            (Mode::Read, "read committed, read only"),
            (Mode::Snapshot, "repeatable read, read only"),
            (Mode::Migrate, "read committed, read write"),
            (Mode::UserRead, "read committed, read only"),
        ] {
            let start = format!("begin; set transaction isolation level {sql}, not deferrable; ");
            assert!(begin.of(mode).starts_with(&start), "{mode:?}");
        }
        let own = [Mode::Write, Mode::Read, Mode::Snapshot, Mode::Migrate].map(|mode| begin.of(mode));
        for sql in own.into_iter().chain([begin.take_over()]) {
            assert!(sql.contains("set local search_path to \"jobs\", pg_temp"), "{sql}");
            let sets = sql.matches("set ").count() - sql.matches("set transaction ").count();
            assert_eq!(sets, sql.matches("set local ").count(), "{sql}");
        }
    }
}
