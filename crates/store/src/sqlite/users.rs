//! Users and their sessions.

use rusqlite::{Row, params};
use windlass_model::Time;

use super::{Sqlite, admin::log, sql, tx::Tx, views::row_limit};
use crate::{
    Actor, ControlOutcome, Error, Fut, NewSession, NewUser, Now, Session, SessionUse, StoredUser, User,
    UserChange, Users,
    control::check_actor,
    users::{ADDED, Columns, SESSIONS_ENDED, SessionColumns, check, check_change, outcome, span_micros},
};

impl Users for Sqlite {
    fn add_user<'a>(&'a self, now: Now, user: &'a NewUser, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check(user, actor)?;
            self.write(1, |tx| {
                let now = tx.now(now);
                let NewUser { name, role, password_hash } = user;
                let params = params![name, role.name(), password_hash.0, now.micros(), actor.author];
                if tx.execute(sql::users::ADD, params)? == 0 {
                    return Ok(outcome::name_taken(name));
                }
                log(tx, now, ADDED, name, actor)?;
                Ok(ControlOutcome::Done)
            })
            .await
        })
    }

    fn change_user<'a>(
        &'a self,
        now: Now,
        user: &'a str,
        change: &'a UserChange,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_change(change, actor)?;
            self.write(1, |tx| {
                let now = tx.now(now);
                let Some(mut stored) = read(tx, user)? else { return Ok(ControlOutcome::Unknown) };
                if let Some(unchanged) = change.why_unchanged(&stored.user) {
                    return Ok(unchanged);
                }
                change.apply(now, &mut stored);
                let StoredUser { user: changed, password_hash } = stored;
                let disabled_at = changed.disabled_at.map(Time::micros);
                let params = params![user, changed.role.name(), password_hash.0, disabled_at];
                tx.execute(sql::users::WRITE, params)?;
                if change.ends_sessions() {
                    tx.execute(sql::users::END_SESSIONS, [user])?;
                }
                log(tx, now, &change.action(), user, actor)?;
                Ok(ControlOutcome::Done)
            })
            .await
        })
    }

    fn user<'a>(&'a self, name: &'a str) -> Fut<'a, Option<StoredUser>> {
        Box::pin(std::future::ready(self.read(|tx| read(tx, name))))
    }

    fn users(&self) -> Fut<'_, Vec<User>> {
        let rows = self.read(|tx| tx.query_all(sql::users::LIST, [], columns));
        let decode = |rows: Vec<Columns>| rows.into_iter().map(|row| Ok(row.decode()?.user)).collect();
        Box::pin(std::future::ready(rows.and_then(decode)))
    }

    fn add_session<'a>(&'a self, now: Now, session: &'a NewSession) -> Fut<'a, bool> {
        Box::pin(async move {
            self.write(1, |tx| {
                let now = tx.now(now).micros();
                let NewSession { hash, user, password_hash, lasts } = session;
                if tx.execute(sql::users::LOG_IN, params![user, now, password_hash.0])? == 0 {
                    return Ok(false);
                }
                let params = params![hash, user, now, now + span_micros(*lasts)];
                Ok(tx.execute(sql::users::ADD_SESSION, params)? == 1)
            })
            .await
        })
    }

    fn session<'a>(&'a self, hash: &'a [u8; 32]) -> Fut<'a, Option<Session>> {
        let row = self.read(|tx| tx.query_one(sql::users::READ_SESSION, [hash], session_columns));
        Box::pin(std::future::ready(row.and_then(|row| row.map(SessionColumns::decode).transpose())))
    }

    fn touch_session<'a>(&'a self, now: Now, used: &'a SessionUse) -> Fut<'a, bool> {
        Box::pin(async move {
            self.write_one(|tx| {
                let SessionUse { hash, unless_since, lasts, max_age } = used;
                let (now, lasts, max_age) =
                    (tx.now(now).micros(), span_micros(*lasts), span_micros(*max_age));
                let params = params![hash, now, unless_since.micros(), lasts, max_age];
                Ok(tx.execute(sql::users::TOUCH_SESSION, params)? == 1)
            })
            .await
        })
    }

    fn end_session<'a>(&'a self, hash: &'a [u8; 32]) -> Fut<'a, bool> {
        Box::pin(
            async move { self.write_one(|tx| Ok(tx.execute(sql::users::END_SESSION, [hash])? == 1)).await },
        )
    }

    fn end_sessions<'a>(&'a self, now: Now, user: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_actor(actor)?;
            self.write(1, |tx| {
                if read(tx, user)?.is_none() {
                    return Ok(ControlOutcome::Unknown);
                }
                if tx.execute(sql::users::END_SESSIONS, [user])? == 0 {
                    return Ok(outcome::no_sessions());
                }
                log(tx, tx.now(now), SESSIONS_ENDED, user, actor)?;
                Ok(ControlOutcome::Done)
            })
            .await
        })
    }
}

/// Deletes expired sessions.
pub(super) async fn prune_sessions(store: &Sqlite, now: Now, limit: usize) -> Result<usize, Error> {
    let limit = limit.max(1);
    let prune =
        |tx: &Tx<'_>| tx.execute(sql::users::PRUNE_SESSIONS, params![tx.now(now).micros(), row_limit(limit)]);
    store.write(limit, prune).await
}

fn read(tx: &Tx<'_>, name: &str) -> Result<Option<StoredUser>, Error> {
    tx.query_one(sql::users::READ, [name], columns)?.map(Columns::decode).transpose()
}

fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        name: row.get(0)?,
        role: row.get(1)?,
        password_hash: row.get(2)?,
        created_at: row.get(3)?,
        created_by: row.get(4)?,
        disabled_at: row.get(5)?,
        last_login_at: row.get(6)?,
    })
}

fn session_columns(row: &Row<'_>) -> rusqlite::Result<SessionColumns> {
    Ok(SessionColumns {
        user: row.get(0)?,
        role: row.get(1)?,
        is_disabled: row.get(2)?,
        created_at: row.get(3)?,
        expires_at: row.get(4)?,
        last_used_at: row.get(5)?,
    })
}
