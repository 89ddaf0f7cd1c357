//! Tokens.

use super::*;
use crate::{
    ControlOutcome, NewToken, Registrant, StoredToken, Token, Tokens,
    control::check_actor,
    tokens::{ADDED, REVOKED, check, outcome},
};

impl Tokens for Memory {
    fn add_token<'a>(&'a self, now: Now, token: &'a NewToken, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check(token, actor)?;
            if inner.has_author(&token.name) || inner.tokens.iter().any(|known| known.token.id == token.id) {
                return Ok(outcome::name_taken(&token.name));
            }
            let NewToken { id, name, role, scope, hash, expires_at } = token.clone();
            let token = Token {
                id,
                name,
                role,
                scope,
                created_at: now,
                created_by: actor.author.clone(),
                expires_at,
                revoked_at: None,
                last_used_at: None,
            };
            inner.log(now, ADDED, &token.name, actor);
            inner.tokens.push(StoredToken { token, hash });
            Ok(ControlOutcome::Done)
        })
    }

    fn revoke_token<'a>(&'a self, now: Now, token: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            let is_named = |known: &&mut StoredToken| known.token.id == token || known.token.name == token;
            let Some(known) = inner.tokens.iter_mut().find(is_named) else {
                return Ok(ControlOutcome::Unknown);
            };
            if known.token.revoked_at.is_some() {
                return Ok(outcome::revoked_before());
            }
            known.token.revoked_at = Some(now);
            let name = known.token.name.clone();
            inner.log(now, REVOKED, &name, actor);
            Ok(ControlOutcome::Done)
        })
    }

    fn touch_token<'a>(&'a self, now: Now, id: &'a str, unless_since: Time) -> Fut<'a, bool> {
        self.run(now, |inner, now| {
            let known = inner.tokens.iter_mut().find(|known| known.token.id == id);
            let Some(known) =
                known.filter(|known| known.token.last_used_at.is_none_or(|at| at < unless_since))
            else {
                return Ok(false);
            };
            known.token.last_used_at = Some(now);
            Ok(true)
        })
    }

    fn token<'a>(&'a self, id: &'a str) -> Fut<'a, Option<StoredToken>> {
        self.run(None, |inner, _| Ok(inner.tokens.iter().find(|known| known.token.id == id).cloned()))
    }

    fn tokens(&self) -> Fut<'_, Vec<Token>> {
        self.run(None, |inner, _| {
            let mut tokens: Vec<Token> = inner.tokens.iter().map(|known| known.token.clone()).collect();
            tokens.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(tokens)
        })
    }

    fn registrant(&self, worker: WorkerId) -> Fut<'_, Registrant> {
        self.run(None, |inner, _| {
            Ok(Registrant::of_column(inner.workers.get(&worker).map(|worker| worker.token.clone())))
        })
    }
}
