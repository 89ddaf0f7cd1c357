//! What a transaction sets for itself before its first statement.
//!
//! Nothing is set for a session, neither when it is opened nor later: what a role or a database has for defaults must not
//! matter, a default that is changed while the store works must not either, and a pooler may hand each transaction another
//! session. So everything that a statement relies on is said by the transaction: see decision 0009.

/// Tables are reached by their indexes only; a plan made while a table was empty must not come back as a scan when it is full.
/// Indexes and loops are named too: what is off for a role counts as much against a plan as what is off here.
const PLANNING: &[(&str, &str)] = &[
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

/// A statement takes as long as it takes; whoever waits for a lock, or leaves a transaction open, gives up before the
/// connection is given up.
const WAITING: &[(&str, &str)] =
    &[("statement_timeout", "0"), ("lock_timeout", "8s"), ("idle_in_transaction_session_timeout", "10s")];

/// For migrations, which are planned as usual, wait for others, and have text that is read as it is written.
const MIGRATING: &[(&str, &str)] = &[
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("standard_conforming_strings", "on"),
    ("client_min_messages", "warning"),
];

/// How transactions begin, for one schema.
#[derive(Debug)]
pub(super) struct Openings {
    schema: String,
    /// One that may write, and sees what others have committed before each of its statements.
    pub(super) write: String,
    /// One that only reads; a standby takes it.
    pub(super) read: String,
    /// One that sees the store as it is at one moment, and only reads.
    pub(super) snapshot: String,
    /// One that migrates.
    pub(super) migrate: String,
    /// What is set in a transaction that others have begun, once it is the store's.
    pub(super) takeover: String,
}

impl Openings {
    pub(super) fn new(schema: &str) -> Openings {
        let local = |settings: &[&[(&str, &str)]]| {
            let path = format!("set local search_path to \"{schema}\", pg_temp");
            let settings = settings.iter().copied().flatten();
            settings.fold(path, |sql, (name, value)| format!("{sql}; set local {name} to '{value}'"))
        };
        // Not `begin isolation level …`: when that fails, no transaction is open, and what was sent behind it would be
        // committed statement by statement. A failure within the transaction ends all of it.
        let begin = |mode: &str, settings: &str| {
            format!("begin; set transaction isolation level {mode}, not deferrable; {settings}")
        };
        let all = local(&[PLANNING, WAITING]);
        Openings {
            schema: schema.to_owned(),
            write: begin("read committed, read write", &all),
            read: begin("read committed, read only", &all),
            snapshot: begin("repeatable read, read only", &all),
            migrate: begin("read committed, read write", &local(&[MIGRATING])),
            takeover: all,
        }
    }

    /// Where the tables are.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// The same for a session of one's own, which no pooler shares.
    pub(super) fn for_session(schema: &str) -> String {
        Openings::new(schema).takeover.replace("set local ", "set ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_says_what_it_is_and_sets_everything_locally() {
        let openings = Openings::new("jobs");
        let Openings { write, read, snapshot, migrate, takeover, .. } = &openings;
        for (sql, mode) in [
            (write, "read committed, read write"),
            (read, "read committed, read only"),
            (snapshot, "repeatable read, read only"),
            (migrate, "read committed, read write"),
        ] {
            let begin = format!("begin; set transaction isolation level {mode}, not deferrable; ");
            assert!(sql.starts_with(&begin), "{sql}");
        }
        for sql in [write, read, snapshot, migrate, takeover] {
            assert!(sql.contains("set local search_path to \"jobs\", pg_temp"), "{sql}");
            let sets = sql.matches("set ").count() - sql.matches("set transaction ").count();
            assert_eq!(sets, sql.matches("set local ").count(), "{sql}");
        }
    }
}
