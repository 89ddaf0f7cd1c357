//! Who sends a request: the bearer of a token, or anybody on a loopback address that needs no login.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};
use windlass::{
    Filter,
    model::{Permission, Role, Scope},
    operate::{Operator, TokenRefusal},
    store::Summary,
};

use crate::{
    error::{Error, ErrorKind},
    settings::Settings,
};

/// The author of what is done without a login.
const LOOPBACK: &str = "loopback";

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

/// Finds out who sends a request. A token that is sent is always checked, also where none is needed.
pub(crate) async fn authenticate(
    settings: &Settings,
    operator: &Operator,
    headers: &HeaderMap,
    client: IpAddr,
) -> Result<Principal, Error> {
    let mut sent = headers.get_all(header::AUTHORIZATION).iter();
    let unauthorized = |message: &str| {
        let hint = "send `Authorization: Bearer TOKEN`; `windlass tokens create` makes one";
        Error::new(ErrorKind::Unauthorized, message, hint)
    };
    let token = match (sent.next(), sent.next()) {
        (None, _) if settings.needs_login() => return Err(unauthorized("the request has no token")),
        (None, _) => {
            let (author, role) = (LOOPBACK.to_owned(), Role::Admin);
            return Ok(Principal { author, role, ..Principal::nobody() });
        }
        (Some(_), Some(_)) => return Err(unauthorized("the request has several Authorization headers")),
        (Some(value), None) => {
            let value = value.to_str().ok().and_then(|value| value.split_once(' '));
            let token = value.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            token.ok_or_else(|| unauthorized("the Authorization header has no bearer token"))?.1.trim()
        }
    };
    match operator.authenticate(token).await? {
        Ok(token) => {
            let author = format!("{}@{client}", token.name);
            let (role, scope) = (token.role, token.scope);
            Ok(Principal { author, token: Some(token.id), role, scope, user: None, session: None })
        }
        Err(TokenRefusal::Unknown) => Err(unauthorized("the token is not known here")),
        Err(TokenRefusal::Revoked) => Err(unauthorized("the token was revoked")),
        Err(TokenRefusal::Expired) => Err(unauthorized("the token has expired")),
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
