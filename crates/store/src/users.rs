//! Users and their sessions: how people prove who they are.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_model::{
    Invalid, Role, Time,
    limits::{MAX_DELAY, check_name},
};

use crate::{Actor, ControlOutcome, Error, Fut, Now, control::check_actor};

/// The users of a store and their sessions. Called by the crate `windlass-operate`, for the server and for `windlass users`.
///
/// The store keeps a slow hash of a user's password and a fast one of a session's secret, and neither of them in plain. Every change of a
/// user is one transaction with its entry in the audit log: a crash before the commit leaves neither, a crash after leaves both. Users are
/// disabled and never deleted, so that a name in the audit log means one person.
///
/// A session has no role of its own: [`Users::session`] returns the user's current one. No session outlives a change of the password or
/// the role of its user, nor that the user is disabled.
pub trait Users: Send + Sync + 'static {
    /// Adds a user. [`ControlOutcome::Refused`] if there is or was a user or a token of this name.
    fn add_user<'a>(&'a self, now: Now, user: &'a NewUser, actor: &'a Actor) -> Fut<'a, ControlOutcome>;

    /// Changes a user. A change of the password or the role, and disabling, end all sessions of the user in the same transaction.
    fn change_user<'a>(
        &'a self,
        now: Now,
        user: &'a str,
        change: &'a UserChange,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome>;

    /// The user with this name, with the hash of the password.
    fn user<'a>(&'a self, name: &'a str) -> Fut<'a, Option<StoredUser>>;

    /// All users, disabled ones included, by name.
    fn users(&self) -> Fut<'_, Vec<User>>;

    /// Adds a session, and records that its user has logged in. Does nothing and returns false if there is no such user, if the user is
    /// disabled, or if the password is not the one that was checked any more: so no session is added that a concurrent change of the user
    /// would have ended.
    fn add_session<'a>(&'a self, now: Now, session: &'a NewSession) -> Fut<'a, bool>;

    /// The session with this hash, also one that has expired and is not pruned yet.
    fn session<'a>(&'a self, hash: &'a [u8; 32]) -> Fut<'a, Option<Session>>;

    /// Records that a session was used, and lengthens it, unless it has expired or its use was recorded lately. Returns whether it was
    /// recorded now.
    fn touch_session<'a>(&'a self, now: Now, used: &'a SessionUse) -> Fut<'a, bool>;

    /// Ends a session. Returns whether there was one.
    fn end_session<'a>(&'a self, hash: &'a [u8; 32]) -> Fut<'a, bool>;

    /// Ends all sessions of a user.
    fn end_sessions<'a>(&'a self, now: Now, user: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
}

/// The hash of a password with its parameters and its salt, as PHC text. It is not shown by `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(pub String);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

/// A user to be added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewUser {
    /// The name, which the audit log has as the author.
    pub name: String,
    /// What the user may do: any role but [`Role::Worker`].
    pub role: Role,
    /// The hash of the password.
    pub password_hash: PasswordHash,
}

/// A change of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UserChange {
    /// Give the user this role.
    Role(Role),
    /// Give the user another password.
    Password(PasswordHash),
    /// Accept the user no longer.
    Disable,
    /// Accept the user again.
    Enable,
}

/// A user as people see it: without the hash of the password.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct User {
    /// The name.
    pub name: String,
    /// What the user may do.
    pub role: Role,
    /// When the user was created.
    pub created_at: Time,
    /// Who created the user.
    pub created_by: String,
    /// When the user was disabled; `None` if the user may log in.
    pub disabled_at: Option<Time>,
    /// When the user last logged in.
    pub last_login_at: Option<Time>,
}

/// A user with the hash of the password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredUser {
    /// The user.
    pub user: User,
    /// The hash.
    pub password_hash: PasswordHash,
}

/// A session to be added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewSession {
    /// The hash of its secret.
    pub hash: [u8; 32],
    /// The name of its user.
    pub user: String,
    /// The hash that the user's password was checked against.
    pub password_hash: PasswordHash,
    /// For how long it works.
    pub lasts: Duration,
}

/// A session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The name of its user.
    pub user: String,
    /// The role that the user has now.
    pub role: Role,
    /// Whether the user is disabled now.
    pub is_disabled: bool,
    /// When the user logged in.
    pub created_at: Time,
    /// When it stops working.
    pub expires_at: Time,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Time>,
}

/// The use of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionUse {
    /// The hash of its secret.
    pub hash: [u8; 32],
    /// Nothing is recorded if a use was recorded at this time or later.
    pub unless_since: Time,
    /// For how long it works from now on, unless that is longer already.
    pub lasts: Duration,
    /// How old it may become: no use lengthens it beyond.
    pub max_age: Duration,
}

/// The most bytes of a password hash: those of argon2 have about a hundred.
const MAX_HASH_BYTES: usize = 500;

/// Refuses what cannot be stored.
pub(crate) fn check(user: &NewUser, actor: &Actor) -> Result<(), Error> {
    check_actor(actor)?;
    check_name("user name", &user.name)?;
    check_role(user.role)?;
    check_hash(&user.password_hash)
}

/// Refuses what cannot be stored.
pub(crate) fn check_change(change: &UserChange, actor: &Actor) -> Result<(), Error> {
    check_actor(actor)?;
    match change {
        UserChange::Role(role) => check_role(*role),
        UserChange::Password(hash) => check_hash(hash),
        UserChange::Disable | UserChange::Enable => Ok(()),
    }
}

fn check_role(role: Role) -> Result<(), Error> {
    if role != Role::Worker {
        return Ok(());
    }
    Err(Error::Invalid(Invalid {
        what: "the role worker".into(),
        why: "is for the tokens of workers, and a user is a person".into(),
        hint: "use viewer, operator or admin".into(),
    }))
}

/// The text is in no error: it is a secret.
fn check_hash(hash: &PasswordHash) -> Result<(), Error> {
    let PasswordHash(text) = hash;
    if text.starts_with('$') && text.len() <= MAX_HASH_BYTES && !text.contains('\0') {
        return Ok(());
    }
    Err(Error::Invalid(Invalid {
        what: "the hash of the password".into(),
        why: format!("is not PHC text of at most {MAX_HASH_BYTES} bytes"),
        hint: "hash the password with `Control::create_user` or `Control::set_password`".into(),
    }))
}

/// A span of time as a parameter, at most the longest delay of a job: sums of times must not overflow.
pub(crate) fn span_micros(span: Duration) -> i64 {
    i64::try_from(span.min(MAX_DELAY).as_micros()).unwrap_or(i64::MAX)
}

/// What the databases return of a user, in the order of the columns.
pub(crate) struct Columns {
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) password_hash: String,
    pub(crate) created_at: i64,
    pub(crate) created_by: String,
    pub(crate) disabled_at: Option<i64>,
    pub(crate) last_login_at: Option<i64>,
}

impl Columns {
    /// Decodes a row. A row that does not decode is an error, never a user with another role.
    pub(crate) fn decode(self) -> Result<StoredUser, Error> {
        let user = User {
            role: decode_role(&self.role, &self.name)?,
            name: self.name,
            created_at: Time(self.created_at),
            created_by: self.created_by,
            disabled_at: self.disabled_at.map(Time),
            last_login_at: self.last_login_at.map(Time),
        };
        Ok(StoredUser { user, password_hash: PasswordHash(self.password_hash) })
    }
}

/// What the databases return of a session, in the order of the columns.
pub(crate) struct SessionColumns {
    pub(crate) user: String,
    pub(crate) role: String,
    pub(crate) is_disabled: bool,
    pub(crate) created_at: i64,
    pub(crate) expires_at: i64,
    pub(crate) last_used_at: Option<i64>,
}

impl SessionColumns {
    /// Decodes a row.
    pub(crate) fn decode(self) -> Result<Session, Error> {
        Ok(Session {
            role: decode_role(&self.role, &self.user)?,
            user: self.user,
            is_disabled: self.is_disabled,
            created_at: Time(self.created_at),
            expires_at: Time(self.expires_at),
            last_used_at: self.last_used_at.map(Time),
        })
    }
}

/// A worker's role is no user's, whoever wrote it there.
fn decode_role(text: &str, user: &str) -> Result<Role, Error> {
    let role = text.parse().ok().filter(|role| *role != Role::Worker);
    role.ok_or_else(|| Error::Fault(format!("the column role of the user {user:?} does not decode")))
}

impl UserChange {
    /// Its name in the audit log.
    pub(crate) fn action(&self) -> String {
        match self {
            UserChange::Role(role) => format!("set role {role}"),
            UserChange::Password(_) => "set password".into(),
            UserChange::Disable => "disable user".into(),
            UserChange::Enable => "enable user".into(),
        }
    }

    /// Why it changes nothing of this user; `None` if it does.
    pub(crate) fn why_unchanged(&self, user: &User) -> Option<ControlOutcome> {
        let already = |why: &str| Some(ControlOutcome::Already(why.into()));
        match self {
            UserChange::Role(role) if *role == user.role => already(&format!("the role is {role} already")),
            UserChange::Disable if user.disabled_at.is_some() => already("the user was disabled before"),
            UserChange::Enable if user.disabled_at.is_none() => already("the user is not disabled"),
            _ => None,
        }
    }

    /// Makes it.
    pub(crate) fn apply(&self, now: Time, stored: &mut StoredUser) {
        match self {
            UserChange::Role(role) => stored.user.role = *role,
            UserChange::Password(hash) => stored.password_hash = hash.clone(),
            UserChange::Disable => stored.user.disabled_at = Some(now),
            UserChange::Enable => stored.user.disabled_at = None,
        }
    }

    /// Whether it ends the sessions of the user.
    pub(crate) fn ends_sessions(&self) -> bool {
        *self != UserChange::Enable
    }
}

/// Outcomes with their texts, the same for every backend.
pub(crate) mod outcome {
    use crate::ControlOutcome;

    /// Users and tokens share their names: both are authors in the audit log.
    pub(crate) fn name_taken(name: &str) -> ControlOutcome {
        ControlOutcome::Refused(format!(
            "there is a user or a token {name:?}, or was one; choose another name"
        ))
    }

    pub(crate) fn no_sessions() -> ControlOutcome {
        ControlOutcome::Already("the user has no session".into())
    }
}

/// The entries of the audit log, besides those of changes.
pub(crate) const ADDED: &str = "create user";
pub(crate) const SESSIONS_ENDED: &str = "end sessions";
