//! Users and their sessions.

use super::*;
use crate::{
    ControlOutcome, NewSession, NewUser, Session, SessionUse, StoredUser, User, UserChange, Users,
    control::check_actor,
    users::{ADDED, SESSIONS_ENDED, check, check_change, outcome},
};

/// A session as it is kept.
pub(super) struct StoredSession {
    user: String,
    created_at: Time,
    expires_at: Time,
    last_used_at: Option<Time>,
}

impl Inner {
    /// Whether a user or a token has this name, or had it.
    pub(super) fn has_author(&self, name: &str) -> bool {
        self.users.contains_key(name) || self.tokens.iter().any(|known| known.token.name == name)
    }

    /// Ends the sessions of a user. Returns whether there were any.
    fn end_sessions(&mut self, user: &str) -> bool {
        let before = self.sessions.len();
        self.sessions.retain(|_, session| session.user != user);
        self.sessions.len() < before
    }

    /// Deletes expired sessions, those first that expired first.
    pub(super) fn prune_sessions(&mut self, now: Time, limit: usize) -> usize {
        let mut expired: Vec<(Time, [u8; 32])> =
            self.sessions.iter().map(|(hash, session)| (session.expires_at, *hash)).collect();
        expired.retain(|(expires_at, _)| *expires_at <= now);
        expired.sort_unstable();
        expired.truncate(limit.max(1));
        expired.iter().for_each(|(_, hash)| drop(self.sessions.remove(hash)));
        expired.len()
    }
}

impl Users for Memory {
    fn add_user<'a>(&'a self, now: Now, user: &'a NewUser, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check(user, actor)?;
            if inner.has_author(&user.name) {
                return Ok(outcome::name_taken(&user.name));
            }
            let NewUser { name, role, password_hash } = user.clone();
            let user = User {
                name: name.clone(),
                role,
                created_at: now,
                created_by: actor.author.clone(),
                disabled_at: None,
                last_login_at: None,
            };
            inner.log(now, ADDED, &name, actor);
            inner.users.insert(name, StoredUser { user, password_hash });
            Ok(ControlOutcome::Done)
        })
    }

    fn change_user<'a>(
        &'a self,
        now: Now,
        user: &'a str,
        change: &'a UserChange,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check_change(change, actor)?;
            let Some(stored) = inner.users.get_mut(user) else { return Ok(ControlOutcome::Unknown) };
            if let Some(unchanged) = change.why_unchanged(&stored.user) {
                return Ok(unchanged);
            }
            change.apply(now, stored);
            if change.ends_sessions() {
                inner.end_sessions(user);
            }
            inner.log(now, &change.action(), user, actor);
            Ok(ControlOutcome::Done)
        })
    }

    fn user<'a>(&'a self, name: &'a str) -> Fut<'a, Option<StoredUser>> {
        self.run(None, |inner, _| Ok(inner.users.get(name).cloned()))
    }

    fn users(&self) -> Fut<'_, Vec<User>> {
        self.run(None, |inner, _| Ok(inner.users.values().map(|stored| stored.user.clone()).collect()))
    }

    fn add_session<'a>(&'a self, now: Now, session: &'a NewSession) -> Fut<'a, bool> {
        self.run(now, |inner, now| {
            let NewSession { hash, user, password_hash, lasts } = session;
            let known = inner
                .users
                .get_mut(user)
                .filter(|stored| stored.password_hash == *password_hash && stored.user.disabled_at.is_none());
            let Some(stored) = known.filter(|_| !inner.sessions.contains_key(hash)) else {
                return Ok(false);
            };
            stored.user.last_login_at = Some(now);
            let (user, expires_at) = (user.clone(), now + *lasts);
            inner
                .sessions
                .insert(*hash, StoredSession { user, created_at: now, expires_at, last_used_at: None });
            Ok(true)
        })
    }

    fn session<'a>(&'a self, hash: &'a [u8; 32]) -> Fut<'a, Option<Session>> {
        self.run(None, |inner, _| {
            let Some(session) = inner.sessions.get(hash) else { return Ok(None) };
            let StoredSession { user, created_at, expires_at, last_used_at } = session;
            let found = inner.users.get(user).map(|stored| Session {
                user: user.clone(),
                role: stored.user.role,
                is_disabled: stored.user.disabled_at.is_some(),
                created_at: *created_at,
                expires_at: *expires_at,
                last_used_at: *last_used_at,
            });
            Ok(found)
        })
    }

    fn touch_session<'a>(&'a self, now: Now, used: &'a SessionUse) -> Fut<'a, bool> {
        self.run(now, |inner, now| {
            let SessionUse { hash, unless_since, lasts, max_age } = used;
            let is_due = |session: &&mut StoredSession| {
                session.expires_at > now && session.last_used_at.is_none_or(|at| at < *unless_since)
            };
            let Some(session) = inner.sessions.get_mut(hash).filter(is_due) else { return Ok(false) };
            session.last_used_at = Some(now);
            let lengthened = (now + *lasts).min(session.created_at + *max_age);
            session.expires_at = session.expires_at.max(lengthened);
            Ok(true)
        })
    }

    fn end_session<'a>(&'a self, hash: &'a [u8; 32]) -> Fut<'a, bool> {
        self.run(None, |inner, _| Ok(inner.sessions.remove(hash).is_some()))
    }

    fn end_sessions<'a>(&'a self, now: Now, user: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            if !inner.users.contains_key(user) {
                return Ok(ControlOutcome::Unknown);
            }
            if !inner.end_sessions(user) {
                return Ok(outcome::no_sessions());
            }
            inner.log(now, SESSIONS_ENDED, user, actor);
            Ok(ControlOutcome::Done)
        })
    }
}
