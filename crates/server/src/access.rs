//! Who sends a request: the bearer of a token, or anybody on a loopback address that needs no login.

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use axum::http::{HeaderMap, header};
use windlass::{
    Filter,
    model::{Permission, Role, Scope},
    operate::{Operator, TokenRefusal},
    store::Summary,
};

use crate::{
    error::{Error, ErrorKind},
    rate::RateLimiter,
    settings::Settings,
};

/// The author of what is done without a login.
const LOOPBACK: &str = "loopback";
/// How many accepted tokens are remembered: more than one server has.
const MAX_ACCEPTED: usize = 10_000;

/// Who sends a request.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    /// The name in the audit log: the token's name and the client's address, or `loopback`.
    pub(crate) author: String,
    /// The id of the token, if one was sent.
    pub(crate) token: Option<String>,
    /// What it may do.
    pub(crate) role: Role,
    /// To which jobs.
    pub(crate) scope: Scope,
    /// The name of the user who is logged in.
    pub(crate) user: Option<String>,
    /// The secret of the user's session.
    pub(crate) session: Option<String>,
}

/// Limits how many tokens a client may try, which each cost a read of the store.
pub(crate) struct TokenChecks {
    tried: RateLimiter,
    /// The hashes of tokens that were accepted: they are always read, also of a client that others share with somebody who tries many.
    accepted: Mutex<HashSet<blake3::Hash>>,
}

impl TokenChecks {
    pub(crate) fn new(settings: &Settings) -> TokenChecks {
        TokenChecks { tried: RateLimiter::new(settings.failed_tokens), accepted: Mutex::default() }
    }

    /// Finds out who sends a request. A token that is sent is always checked, also where none is needed.
    pub(crate) async fn authenticate(
        &self,
        settings: &Settings,
        operator: &Operator,
        headers: &HeaderMap,
        client: IpAddr,
    ) -> Result<Principal, Refused> {
        let Some(token) = bearer(settings, headers)? else {
            let (author, role) = (LOOPBACK.to_owned(), Role::Admin);
            return Ok(Principal { author, role, ..Principal::nobody() });
        };
        let hash = blake3::hash(token.as_bytes());
        let is_known = self.accepted().contains(&hash);
        if !is_known && !self.tried.admit(client, Instant::now()) {
            let message = "this client has sent too many tokens that are not accepted";
            return Err(
                Error::new(ErrorKind::TooMany, message, "wait some seconds, and check the token").into()
            );
        }
        let authenticated = operator.authenticate(token).await;
        if authenticated.is_err() && !is_known {
            // Whether it is accepted is not known.
            self.tried.give_back(client);
        }
        let authenticated = authenticated.map_err(Error::from)?;
        match (&authenticated, is_known) {
            (Ok(_), false) => {
                self.tried.give_back(client);
                let mut accepted = self.accepted();
                if accepted.len() >= MAX_ACCEPTED {
                    accepted.clear();
                }
                accepted.insert(hash);
            }
            (Err(_), true) => {
                self.accepted().remove(&hash);
            }
            _ => {}
        }
        let (message, name) = match authenticated {
            Ok(token) => {
                let author = format!("{}@{client}", token.name);
                let (role, scope) = (token.role, token.scope);
                return Ok(Principal {
                    author,
                    token: Some(token.id),
                    role,
                    scope,
                    user: None,
                    session: None,
                });
            }
            Err(TokenRefusal::Unknown) => ("the token is not known here", None),
            Err(TokenRefusal::Revoked(name)) => ("the token was revoked", Some(name)),
            Err(TokenRefusal::Expired(name)) => ("the token has expired", Some(name)),
        };
        Err(Refused { error: unauthorized(message), token: name })
    }

    fn accepted(&self) -> std::sync::MutexGuard<'_, HashSet<blake3::Hash>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why nobody is known to have sent a request.
pub(crate) struct Refused {
    pub(crate) error: Error,
    /// The name of the token, if it was one.
    pub(crate) token: Option<String>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused { error, token: None }
    }
}

fn unauthorized(message: &str) -> Error {
    let hint = "send `Authorization: Bearer TOKEN`; `windlass tokens create` makes one";
    Error::new(ErrorKind::Unauthorized, message, hint)
}

/// The token of a request; `None` if it has none and needs none.
fn bearer<'h>(settings: &Settings, headers: &'h HeaderMap) -> Result<Option<&'h str>, Error> {
    let mut sent = headers.get_all(header::AUTHORIZATION).iter();
    match (sent.next(), sent.next()) {
        (None, _) if settings.needs_login() => Err(unauthorized("the request has no token")),
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(unauthorized("the request has several Authorization headers")),
        (Some(value), None) => {
            let value = value.to_str().ok().and_then(|value| value.split_once(' '));
            let token = value.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let token = token.ok_or_else(|| unauthorized("the Authorization header has no bearer token"))?;
            Ok(Some(token.1.trim()))
        }
    }
}

/// The token that forms on the pages of this reader carry. It is made of what another site's page does not know: the secret of the session, or a
/// key of this process where nobody logs in.
pub(crate) fn form_token(key: &str, principal: &Principal) -> String {
    let secret = principal.session.as_deref().unwrap_or(key);
    let hash = blake3::derive_key("windlass 2026-11 token of a form", secret.as_bytes());
    blake3::Hash::from_bytes(hash).to_hex()[..32].to_owned()
}

/// Whether a form carries the token of this reader. Compared in constant time.
pub(crate) fn is_form_token(key: &str, principal: &Principal, sent: &str) -> bool {
    let expected = form_token(key, principal);
    let difference = expected.bytes().zip(sent.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    expected.len() == sent.len() && difference == 0
}

impl Principal {
    /// The sender of a request that everybody may make.
    pub(crate) fn nobody() -> Principal {
        let (token, user, session) = (None, None, None);
        Principal { author: String::new(), token, role: Role::Worker, scope: Scope::default(), user, session }
    }

    /// Refuses what the role does not allow.
    pub(crate) fn check(&self, permission: Permission) -> Result<(), Error> {
        if self.role.may(permission) {
            return Ok(());
        }
        let roles: Vec<&str> =
            Role::ALL.into_iter().filter(|role| role.may(permission)).map(Role::name).collect();
        Err(forbidden(
            format!("the role {} may not do this", self.role),
            format!("use a token with the role {}", roles.join(" or ")),
        ))
    }

    /// Refuses a token that is limited to some kinds or queues.
    pub(crate) fn check_unlimited(&self, what: &str) -> Result<(), Error> {
        if self.scope.is_unlimited() {
            return Ok(());
        }
        Err(forbidden(
            format!("{what} concern jobs of all kinds and queues, and this token is limited to some"),
            "use a token without kinds and queues",
        ))
    }

    /// Refuses a queue outside of the scope, or of which the scope has only some kinds.
    pub(crate) fn check_queue(&self, queue: &str) -> Result<(), Error> {
        if self.scope.has_queue(queue) {
            return Ok(());
        }
        Err(forbidden(
            format!("this token is limited to other queues than {queue:?}, or to some kinds"),
            "use a token for the queue",
        ))
    }

    /// Refuses a kind outside of the scope, or of which the scope has only some queues.
    pub(crate) fn check_kind(&self, kind: &str) -> Result<(), Error> {
        let Scope { kinds, queues } = &self.scope;
        if queues.is_empty() && (kinds.is_empty() || kinds.iter().any(|known| known == kind)) {
            return Ok(());
        }
        Err(forbidden(
            format!("this token is limited to other kinds than {kind:?}, or to some queues"),
            "use a token for the kind",
        ))
    }

    /// Refuses a job that may not be submitted.
    pub(crate) fn check_new_job(&self, kind: &str, queue: &str) -> Result<(), Error> {
        if self.scope.has_job(kind, queue) {
            return Ok(());
        }
        Err(forbidden(
            format!("this token is limited to other jobs than {kind:?} in the queue {queue:?}"),
            "use a token for them",
        ))
    }

    /// Whether a job may be seen. One that may not does not exist, as far as the client learns.
    pub(crate) fn sees(&self, job: &Summary) -> bool {
        self.scope.has_job(&job.kind, &job.queue)
    }

    /// Limits a filter to the scope. A scope of several kinds or queues needs a filter that names one.
    pub(crate) fn limit(&self, mut filter: Filter) -> Result<Filter, Error> {
        limit_to("kind", &self.scope.kinds, &mut filter.kind)?;
        limit_to("queue", &self.scope.queues, &mut filter.queue)?;
        Ok(filter)
    }
}

fn limit_to(what: &str, allowed: &[String], wanted: &mut Option<String>) -> Result<(), Error> {
    match (allowed, &*wanted) {
        ([], _) => Ok(()),
        (allowed, Some(name)) if allowed.contains(name) => Ok(()),
        ([only], None) => {
            *wanted = Some(only.clone());
            Ok(())
        }
        (allowed, None) => Err(forbidden(
            format!("this token is limited to several {what}s, and a list has one of them"),
            format!("name one with {what}={}", allowed.join(" or ")),
        )),
        (_, Some(name)) => Err(forbidden(
            format!("this token is limited to other {what}s than {name:?}"),
            format!("use a token for the {what}"),
        )),
    }
}

pub(crate) fn forbidden(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(ErrorKind::Forbidden, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(kinds: &[&str], queues: &[&str]) -> Principal {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let scope = Scope { kinds: list(kinds), queues: list(queues) };
        Principal { author: "test".into(), role: Role::Operator, scope, ..Principal::nobody() }
    }

    fn of(kind: Option<&str>) -> Filter {
        Filter { kind: kind.map(Into::into), ..Filter::default() }
    }

    #[test]
    fn a_form_needs_the_token_of_its_own_session() {
        let session =
            |secret: Option<&str>| Principal { session: secret.map(Into::into), ..principal(&[], &[]) };
        let (one, other, none) = (session(Some("a")), session(Some("b")), session(None));
        let token = form_token("key", &one);
        assert!(
            is_form_token("key", &one, &token) && is_form_token("other key", &one, &token),
            "every server accepts it"
        );
        assert!(!is_form_token("key", &other, &token) && !is_form_token("key", &none, &token));
        assert!(is_form_token("key", &none, &form_token("key", &none)));
        assert!(!is_form_token("new key", &none, &form_token("key", &none)));
        assert!(!is_form_token("key", &one, "") && !is_form_token("key", &one, &token[..31]));
    }

    #[test]
    fn filters_are_limited_to_the_scope() {
        let limited = |principal: &Principal, filter| {
            principal.limit(filter).ok().map(|filter| (filter.kind, filter.queue))
        };
        assert_eq!(limited(&principal(&[], &[]), of(None)), Some((None, None)));
        let one = principal(&["mail"], &["bulk"]);
        let both = Some((Some("mail".to_owned()), Some("bulk".to_owned())));
        assert_eq!(limited(&one, of(None)), both);
        assert_eq!(limited(&one, of(Some("mail"))), both);
        assert_eq!(limited(&one, of(Some("sms"))), None);
        let two = principal(&["mail", "sms"], &[]);
        assert_eq!(limited(&two, of(None)), None, "a list has one kind");
        assert_eq!(limited(&two, of(Some("sms"))), Some((Some("sms".to_owned()), None)));
    }
}
