//! Tokens: creating, revoking and listing them, and checking the one that a request carries.
//!
//! A token is the text `windlass_ID_SECRET`. The store keeps the BLAKE3 hash of the secret; the text is returned once, when the
//! token is created. The secret has 256 random bits, so a fast hash is enough: nobody can guess it.

use std::time::Duration;

use windlass_env::Env;
use windlass_model::{Role, Scope, Time};
use windlass_store::{ControlOutcome, NewToken, Token};
use windlass_workflow::Error;

use crate::{Control, Operator};

/// With what the text of a token begins, so that people and scanners of leaked secrets recognise it.
const PREFIX: &str = "windlass";
/// How often the use of a token is recorded: often enough to find unused tokens, rarely enough to cost nothing.
const USE_RECORDED_EVERY: Duration = Duration::from_secs(60);
/// The most characters of a token that is looked at.
const MAX_TEXT: usize = 200;

/// A token to be created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRequest {
    /// Its name, which the audit log has as the author of what it does. Never used before.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// To which jobs. The role admin takes none.
    pub scope: Scope,
    /// For how long it works; for ever if `None`.
    pub expires_in: Option<Duration>,
}

/// A token that was created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreatedToken {
    /// The token.
    pub token: Token,
    /// Its text with the secret. It cannot be read again.
    pub text: String,
}

/// Why a token is not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenRefusal {
    /// It is not the text of a token, there is no such token in this store, or its secret is another one. These three
    /// have one answer, so that nobody learns which ids exist.
    Unknown,
    /// The token of this name was revoked.
    Revoked(String),
    /// The token of this name has expired.
    Expired(String),
}

impl Control {
    /// Creates a token. Refused if the name was used before, or if it is an admin with a scope: an admin creates tokens without one.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<Result<CreatedToken, String>, Error> {
        if request.role == Role::Admin && !request.scope.is_unlimited() {
            return Ok(Err(
                "an admin creates tokens of any scope, so that its own would mean nothing; leave the \
                           kinds and queues out, or use the role operator"
                    .into(),
            ));
        }
        let operator = self.operator();
        let (id, secret) = (hex(&random(operator.env())?[..8]), hex(&random(operator.env())?));
        let expires_at = match request.expires_in {
            Some(span) => Some(operator.inspect().clock().await? + span),
            None => None,
        };
        let new = NewToken {
            id: id.clone(),
            name: request.name.clone(),
            role: request.role,
            scope: request.scope.clone(),
            hash: *blake3::hash(secret.as_bytes()).as_bytes(),
            expires_at,
        };
        match operator.store().add_token(None, &new, self.actor()).await? {
            ControlOutcome::Refused(why) => return Ok(Err(why)),
            outcome => debug_assert_eq!(outcome, ControlOutcome::Done),
        }
        let stored = operator.store().token(&id).await?;
        let stored = stored.ok_or_else(|| Error::Setup(format!("the token {id} is gone already")))?;
        Ok(Ok(CreatedToken { token: stored.token, text: format!("{PREFIX}_{id}_{secret}") }))
    }

    /// Revokes the token with this id or name.
    pub async fn revoke_token(&self, token: &str) -> Result<ControlOutcome, Error> {
        Ok(self.operator().store().revoke_token(None, token, self.actor()).await?)
    }
}

impl Operator {
    /// All tokens, revoked ones included, by name.
    pub async fn tokens(&self) -> Result<Vec<Token>, Error> {
        Ok(self.store().tokens().await?)
    }

    /// Returns the token with this text, if it is accepted now, and records that it was used. Reads the store at every call, so that
    /// a revoked token is refused at once.
    pub async fn authenticate(&self, text: &str) -> Result<Result<Token, TokenRefusal>, Error> {
        let Some((id, secret)) = parse(text) else { return Ok(Err(TokenRefusal::Unknown)) };
        let stored = self.store().token(id).await?;
        // An unknown id takes the same time as a wrong secret. `blake3::Hash` compares in constant time.
        let known = stored.as_ref().map_or([0; 32], |stored| stored.hash);
        let matches = blake3::hash(secret.as_bytes()) == blake3::Hash::from_bytes(known);
        let Some(token) = stored.filter(|_| matches).map(|stored| stored.token) else {
            return Ok(Err(TokenRefusal::Unknown));
        };
        let now = self.now();
        if token.revoked_at.is_some() {
            return Ok(Err(TokenRefusal::Revoked(token.name)));
        }
        if token.why_refused(now).is_some() {
            return Ok(Err(TokenRefusal::Expired(token.name)));
        }
        let recorded_since = now - USE_RECORDED_EVERY;
        if token.last_used_at.is_none_or(|at| at < recorded_since) {
            self.store().touch_token(None, &token.id, recorded_since).await?;
        }
        Ok(Ok(token))
    }

    /// The clock of this process: the expiry of a token needs no read of the store's.
    fn now(&self) -> Time {
        self.env().now()
    }
}

/// The id and the secret in the text of a token.
fn parse(text: &str) -> Option<(&str, &str)> {
    let rest = Some(text).filter(|text| text.len() <= MAX_TEXT)?.strip_prefix(PREFIX)?.strip_prefix('_')?;
    let (id, secret) = rest.split_once('_')?;
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex(id) && is_hex(secret)).then_some((id, secret))
}

/// Random bytes for a secret.
pub(crate) fn random(env: &Env) -> Result<[u8; 32], Error> {
    env.secret().map_err(|error| {
        Error::Setup(format!("the operating system returns no random numbers ({error}); try again"))
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_texts_of_tokens_are_parsed() {
        assert_eq!(parse("windlass_0a_ff"), Some(("0a", "ff")));
        let long = format!("windlass_0a_{}", "f".repeat(MAX_TEXT));
        for bad in
            ["", "windlass", "windlass_", "windlass_0a", "windlass__ff", "windlass_0a_", "x_0a_ff", &long]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse("windlass_0a_' or 1=1"), None);
        assert_eq!(hex(&[0, 171]), "00ab");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser_of_tokens(text in "((windlass|Windlass|)_?[0-9a-fA-Fg]{0,18}_?[0-9a-f_]{0,70}|\\PC{0,40})") {
            if let Some((id, secret)) = parse(&text) {
                prop_assert_eq!(&format!("{PREFIX}_{id}_{secret}"), &text);
                prop_assert!(!id.is_empty() && !secret.is_empty());
            }
        }

        #[test]
        fn every_token_is_parsed(id in any::<[u8; 8]>(), secret in any::<[u8; 32]>()) {
            let (id, secret) = (hex(&id), hex(&secret));
            let text = format!("{PREFIX}_{id}_{secret}");
            prop_assert_eq!(parse(&text), Some((id.as_str(), secret.as_str())));
        }
    }
}
