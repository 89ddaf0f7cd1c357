//! Statements that are sent without a transaction: those that a step or an idle worker sends alone.
//!
//! A transaction around a statement costs two more answers of the server, for which a chain of steps waits, and a server that counts
//! statements counts each setting. These statements need no settings: they qualify the names of their tables, they are correct at
//! every isolation level, and if a default of the role ends one, it is sent once more with all settings. See decision 0009.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use tokio_postgres::Statement;

/// How long a statement stays prepared. The session's defaults decide about its plan: a plan that scans a table, made while that was
/// small, must not be kept until the table is large.
const PLAN_AGE: Duration = Duration::from_secs(5);

/// The tables that these statements name.
const TABLES: [&str; 11] = [
    "arrivals",
    "claims",
    "gates",
    "jobs",
    "journal",
    "lanes",
    "queues",
    "ready",
    "signals",
    "transitions",
    "workers",
];

/// The statements that are prepared in one session, and since when.
pub(super) struct Prepared<S = Statement> {
    statements: Mutex<HashMap<&'static str, (S, Instant)>>,
}

impl<S: Clone> Prepared<S> {
    pub(super) fn new() -> Prepared<S> {
        Prepared { statements: Mutex::default() }
    }

    /// The statement, unless its plan is too old.
    pub(super) fn get(&self, sql: &'static str, now: Instant) -> Option<S> {
        let statements = self.statements.lock().unwrap_or_else(|e| e.into_inner());
        let (statement, since) = statements.get(sql)?;
        (now.saturating_duration_since(*since) < PLAN_AGE).then(|| statement.clone())
    }

    pub(super) fn put(&self, sql: &'static str, statement: S, now: Instant) {
        self.statements.lock().unwrap_or_else(|e| e.into_inner()).insert(sql, (statement, now));
    }
}

/// Qualifies the names of a statement's tables with the schema, so that the search path does not matter.
pub(super) fn qualified(sql: &str, schema: &str) -> String {
    let mut text = String::with_capacity(sql.len() + 100);
    let mut names_a_table = false;
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let end = match is_part(first) {
            true => rest.find(|c| !is_part(c)),
            false => rest.find(is_part),
        };
        let (token, tail) = rest.split_at(end.unwrap_or(rest.len()));
        if is_part(first) {
            if names_a_table && TABLES.contains(&token) {
                text += &format!("\"{schema}\".");
            }
            names_a_table = matches!(token, "from" | "into" | "join" | "update");
        } else if !token.trim().is_empty() {
            names_a_table = false;
        }
        text += token;
        rest = tail;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_prepared_again_before_its_plan_is_too_old() {
        let (prepared, now) = (Prepared::new(), Instant::now());
        assert_eq!(prepared.get("select", now), None);
        prepared.put("select", 1, now);
        assert_eq!(prepared.get("select", now + PLAN_AGE / 2), Some(1));
        assert_eq!(prepared.get("select", now + PLAN_AGE), None);
        prepared.put("select", 2, now + PLAN_AGE);
        assert_eq!(prepared.get("select", now + PLAN_AGE), Some(2));
    }

    #[test]
    fn the_names_of_tables_and_nothing_else_are_qualified() {
        let sql = "with jobs_of as (select claims.jobs from claims where ready = 1 for update skip locked)\n\
                   insert into transitions select extract(epoch from now()) from jobs_of\n    join jobs j using (id), (select 1) ready";
        let full = "with jobs_of as (select claims.jobs from \"a\".claims where ready = 1 for update skip locked)\n\
                   insert into \"a\".transitions select extract(epoch from now()) from jobs_of\n    join \"a\".jobs j using (id), (select 1) ready";
        assert_eq!(qualified(sql, "a"), full);
    }
}
