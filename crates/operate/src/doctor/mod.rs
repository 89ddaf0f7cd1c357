//! A check-up of an installation: what works, what needs attention, what is broken.
//!
//! [`check_store`] examines the database by its address, so that it can also report a store that cannot be opened.
//! [`Operator::doctor`] examines the clock, workers, jobs, branches and flow control of an open one. Both only read. Every
//! [`Finding`] is decided by a pure function of what was read, in the file of its subject. Advice names commands as the stock
//! binary has them, between backticks.

mod backlog;
mod branches;
mod clock;
mod database;
mod flow_control;
mod unserved;

pub(crate) use branches::{is_blocked, pending};

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_store::{Error, schema_state, sqlite_path, without_password};

use crate::Operator;

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is as it should be.
    Ok,
    /// It works and needs attention.
    Warn,
    /// It is broken, or could not be checked.
    Fail,
}

/// What one check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Whether it is as it should be.
    pub verdict: Verdict,
    /// What was checked, as a word that stays the same.
    pub what: Cow<'static, str>,
    /// What was found.
    pub found: String,
    /// What to do about it, or where to read more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The numbers behind it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<Cow<'static, str>, u64>,
}

impl Finding {
    fn new(verdict: Verdict, what: &'static str, found: impl Into<String>) -> Finding {
        Finding { verdict, what: what.into(), found: found.into(), advice: None, numbers: BTreeMap::new() }
    }

    fn ok(what: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(Verdict::Ok, what, found)
    }

    fn warn(what: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(Verdict::Warn, what, found)
    }

    /// A check that failed, or could not be made.
    pub fn fail(what: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(Verdict::Fail, what, found)
    }

    /// What was checked, of a finding that was made here.
    #[cfg(test)]
    fn known_what(&self) -> &'static str {
        match self.what {
            Cow::Borrowed(what) => what,
            Cow::Owned(_) => panic!("it was read from JSON"),
        }
    }

    fn advice(self, advice: impl Into<String>) -> Finding {
        Finding { advice: Some(advice.into()), ..self }
    }

    fn number(mut self, name: &'static str, number: u64) -> Finding {
        self.numbers.insert(name.into(), number);
        self
    }

    fn seconds(self, name: &'static str, duration: Duration) -> Finding {
        self.number(name, duration.as_secs())
    }
}

/// What [`check_store`] found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StoreReport {
    /// From the address upward; a check that depends on a failed one is skipped.
    pub findings: Vec<Finding>,
    /// Whether the store exists and this binary may use its schema.
    pub is_usable: bool,
}

/// Checks the store at an address: whether it can be reached, its database, its schema. Creates and migrates nothing.
pub async fn check_store(url: &str) -> StoreReport {
    let unusable = |findings| StoreReport { findings, is_usable: false };
    let address = without_password(url);
    let schema = match schema_state(url).await {
        Ok(schema) => schema,
        Err(error) => {
            return unusable(vec![Finding::fail("store", format!("{address} cannot be read: {error}"))]);
        }
    };
    if sqlite_path(url).is_some_and(|path| !path.exists()) {
        let found = Finding::warn("store", format!("there is none at {address} yet"));
        return unusable(vec![found.advice("`windlass submit` or `windlass worker` creates it")]);
    }
    let mut findings = vec![Finding::ok("store", format!("{address} is reachable"))];
    findings.extend(match windlass_store::database(url).await {
        Ok(database) => database::examine(&database),
        Err(error) => vec![Finding::fail("database", error.to_string())],
    });
    let is_usable = match schema.check() {
        Ok(()) => {
            let found = format!("version {}, this binary needs {}", schema.version, schema.latest);
            findings.push(Finding::ok("schema", found));
            true
        }
        Err(error) => {
            findings.push(Finding::fail("schema", error.to_string()));
            false
        }
    };
    StoreReport { findings, is_usable }
}

impl Operator {
    /// Checks the clock, the workers, and jobs, branches and flow control. A subject that cannot be read is a failure of its own.
    pub async fn doctor(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut add = |what, read: Result<Vec<Finding>, Error>| match read {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(Finding::fail(what, error.to_string())),
        };
        add("clock", clock::read(self).await.map(|clocks| vec![clocks.judge()]));
        add("backlog", backlog::read(self).await.map(|backlog| backlog.judge()));
        add("branches", branches::read(self).await.map(|branches| branches.judge()));
        add("flow control", flow_control::read(self).await.map(|rules| rules.judge()));
        findings
    }
}
