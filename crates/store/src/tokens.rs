//! Tokens: how requests from other hosts prove who they are.

use serde::{Deserialize, Serialize};
use windlass_model::{Role, Scope, Time, WorkerId, limits::check_name};

use crate::{Actor, ControlOutcome, Error, Fut, Now, control::check_actor};

/// The tokens of a store. Called by the crate `windlass-operate`, for the server at every request and for `windlass tokens`.
///
/// The store keeps a hash of a token's secret, never the secret. Adding and revoking a token is one transaction with its entry
/// in the audit log: a crash before the commit leaves neither, a crash after leaves both.
pub trait Tokens: Send + Sync + 'static {
    /// Adds a token. [`ControlOutcome::Refused`] if its id is taken, or there is or was a user or a token of its name: the name of a
    /// revoked token stays taken, so that a name in the audit log means one token.
    fn add_token<'a>(&'a self, now: Now, token: &'a NewToken, actor: &'a Actor) -> Fut<'a, ControlOutcome>;

    /// Revokes the token with this id or name: requests that read it after this has returned are refused.
    fn revoke_token<'a>(&'a self, now: Now, token: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome>;

    /// Records that a token was used, unless that was recorded since `unless_since`. Returns whether it was recorded now.
    fn touch_token<'a>(&'a self, now: Now, id: &'a str, unless_since: Time) -> Fut<'a, bool>;

    /// The token with this id, with the hash of its secret.
    fn token<'a>(&'a self, id: &'a str) -> Fut<'a, Option<StoredToken>>;

    /// All tokens, revoked ones included, by name.
    fn tokens(&self) -> Fut<'_, Vec<Token>>;

    /// Who registered a worker: only requests with the same token may name it.
    fn registrant(&self, worker: WorkerId) -> Fut<'_, Registrant>;
}

/// Who registered a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Registrant {
    /// There is no such worker, or it was deleted long after it had gone.
    Unknown,
    /// A process with access to the database.
    Process,
    /// A server, for requests with this token.
    Token(String),
}

impl Registrant {
    /// Of the column in the store; `None` without a row.
    pub(crate) fn of_column(row: Option<Option<String>>) -> Registrant {
        match row {
            None => Registrant::Unknown,
            Some(None) => Registrant::Process,
            Some(Some(token)) => Registrant::Token(token),
        }
    }
}

/// A token to be added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewToken {
    /// Its id, which is the first part of the token's text and no secret.
    pub id: String,
    /// Its name for people, which the audit log has as the author.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// To which jobs.
    pub scope: Scope,
    /// The hash of its secret.
    pub hash: [u8; 32],
    /// When it stops working.
    pub expires_at: Option<Time>,
}

/// A token as people see it: without the hash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Token {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// To which jobs.
    #[serde(flatten)]
    pub scope: Scope,
    /// When it was created.
    pub created_at: Time,
    /// Who created it.
    pub created_by: String,
    /// When it stops working.
    pub expires_at: Option<Time>,
    /// When it was revoked.
    pub revoked_at: Option<Time>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Time>,
}

impl Token {
    /// Why it is not accepted at a time; `None` if it is.
    pub fn why_refused(&self, now: Time) -> Option<&'static str> {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => Some("it was revoked"),
            (None, Some(at)) if at <= now => Some("it has expired"),
            _ => None,
        }
    }
}

/// A token with the hash of its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredToken {
    /// The token.
    pub token: Token,
    /// The hash.
    pub hash: [u8; 32],
}

/// How many kinds or queues a token may be limited to: more would not fit a row.
const MAX_SCOPE: usize = 100;

/// Refuses what cannot be stored.
pub(crate) fn check(token: &NewToken, actor: &Actor) -> Result<(), Error> {
    check_actor(actor)?;
    check_name("token id", &token.id)?;
    check_name("token name", &token.name)?;
    let Scope { kinds, queues } = &token.scope;
    for (what, names) in [("kind", kinds), ("queue", queues)] {
        names.iter().try_for_each(|name| check_name(what, name))?;
        if names.len() > MAX_SCOPE {
            return Err(Error::Invalid(windlass_model::Invalid {
                what: format!("the scope of the token {:?}", token.name),
                why: format!("has {} {what}s, and the most are {MAX_SCOPE}", names.len()),
                hint: "use several tokens".into(),
            }));
        }
    }
    Ok(())
}

/// The list of a scope as it is stored.
pub(crate) fn list_text(names: &[String]) -> String {
    serde_json::to_string(names).unwrap_or_else(|_| "[]".into())
}

/// What the databases return of a token, in the order of the columns.
pub(crate) struct Columns {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) kinds: String,
    pub(crate) queues: String,
    pub(crate) hash: Vec<u8>,
    pub(crate) created_at: i64,
    pub(crate) created_by: String,
    pub(crate) expires_at: Option<i64>,
    pub(crate) revoked_at: Option<i64>,
    pub(crate) last_used_at: Option<i64>,
}

impl Columns {
    /// Decodes a row. A row that does not decode is an error, never a token with fewer limits.
    pub(crate) fn decode(self) -> Result<StoredToken, Error> {
        let fault = |column: &str| {
            Error::Fault(format!("the column {column} of the token {:?} does not decode", self.id))
        };
        let list = |column: &str, text: &str| serde_json::from_str(text).map_err(|_| fault(column));
        let scope = Scope { kinds: list("kinds", &self.kinds)?, queues: list("queues", &self.queues)? };
        let role = self.role.parse().map_err(|_| fault("role"))?;
        let hash = self.hash.as_slice().try_into().map_err(|_| fault("hash"))?;
        let token = Token {
            id: self.id,
            name: self.name,
            role,
            scope,
            created_at: Time(self.created_at),
            created_by: self.created_by,
            expires_at: self.expires_at.map(Time),
            revoked_at: self.revoked_at.map(Time),
            last_used_at: self.last_used_at.map(Time),
        };
        Ok(StoredToken { token, hash })
    }
}

/// Outcomes with their texts, the same for every backend.
pub(crate) mod outcome {
    use crate::ControlOutcome;
    pub(crate) use crate::users::outcome::name_taken;

    pub(crate) fn revoked_before() -> ControlOutcome {
        ControlOutcome::Already("it was revoked before".into())
    }
}

/// The entries of the audit log.
pub(crate) const ADDED: &str = "create token";
pub(crate) const REVOKED: &str = "revoke token";
