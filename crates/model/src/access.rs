//! Access over the network: roles, what each may do, and scopes.
//!
//! Pure rules. The store keeps users with a role, and tokens with a role and a scope; the server asks these rules at every request.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What a user or the bearer of a token may do. Every role but `worker` may do what the roles before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read.
    Viewer,
    /// Submit, signal, cancel, retry, pause, and change limits and schedules.
    Operator,
    /// Delete jobs, and manage users and tokens.
    Admin,
    /// Run jobs and read gates: what a worker on another host needs, and nothing of what people do.
    Worker,
}

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// Read jobs, queues and everything that is known about them.
    Read,
    /// Read the versions of gates.
    Gates,
    /// Submit jobs and change them, their queues, limits and schedules.
    Act,
    /// Delete jobs, and manage users and tokens.
    Administer,
    /// Run jobs: register a worker, claim, commit, and read what its code needs.
    Work,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Operator, Role::Admin, Role::Worker];

    /// Whether this role has a permission.
    pub fn may(self, permission: Permission) -> bool {
        match (self, permission) {
            (Role::Admin, _) | (_, Permission::Gates) | (Role::Worker, Permission::Work) => true,
            (Role::Worker, _) | (_, Permission::Work) => false,
            (Role::Viewer | Role::Operator, Permission::Read) => true,
            (role, Permission::Act) => role == Role::Operator,
            (_, Permission::Administer) => false,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
            Role::Worker => "worker",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let known = Role::ALL.into_iter().find(|role| role.name() == text);
        known.ok_or_else(|| format!("{text:?} is not a role; use viewer, operator, admin or worker"))
    }
}

/// To which jobs a token is limited. An empty list sets no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Scope {
    /// The kinds of the jobs.
    pub kinds: Vec<String>,
    /// The queues of the jobs.
    pub queues: Vec<String>,
}

impl Scope {
    /// Whether it sets no limit at all.
    pub fn is_unlimited(&self) -> bool {
        self.kinds.is_empty() && self.queues.is_empty()
    }

    /// Whether a job of this kind in this queue is within it.
    pub fn has_job(&self, kind: &str, queue: &str) -> bool {
        let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|known| known == name);
        has(&self.kinds, kind) && has(&self.queues, queue)
    }

    /// Whether the version of a queue's gate is within it.
    pub fn has_gate(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|known| known == queue)
    }

    /// Whether a whole queue is within it: not only the jobs of some kinds in it.
    pub fn has_queue(&self, queue: &str) -> bool {
        self.kinds.is_empty() && self.has_gate(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_its_line_says() {
        use Permission::{Act, Administer, Gates, Read, Work};
        let may = |role: Role| [Read, Gates, Act, Administer, Work].map(|permission| role.may(permission));
        assert_eq!(may(Role::Viewer), [true, true, false, false, false]);
        assert_eq!(may(Role::Operator), [true, true, true, false, false]);
        assert_eq!(may(Role::Admin), [true, true, true, true, true]);
        assert_eq!(may(Role::Worker), [false, true, false, false, true]);
    }

    #[test]
    fn names_of_roles_are_parsed() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }

    #[test]
    fn a_scope_of_kinds_has_no_whole_queue() {
        let of = |kinds: &[&str], queues: &[&str]| Scope {
            kinds: kinds.iter().map(ToString::to_string).collect(),
            queues: queues.iter().map(ToString::to_string).collect(),
        };
        assert!(of(&[], &[]).has_job("a", "q") && of(&[], &[]).has_queue("q"));
        assert!(of(&["a"], &[]).has_job("a", "q") && !of(&["a"], &[]).has_job("b", "q"));
        assert!(!of(&["a"], &[]).has_queue("q") && of(&["a"], &[]).has_gate("q"));
        assert!(of(&["a"], &["q"]).has_job("a", "q") && !of(&["a"], &["q"]).has_job("a", "r"));
        assert!(of(&[], &["q"]).has_queue("q") && !of(&[], &["q"]).has_queue("r"));
    }
}
