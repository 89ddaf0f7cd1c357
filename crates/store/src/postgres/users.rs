//! Users and their sessions.

use tokio_postgres::Row;
use windlass_model::Time;

use super::{
    Postgres,
    change_params::Param,
    control::{log, transaction},
    errors::PgError,
    micros, sql,
    tx::Tx,
};
use crate::{
    Actor, ControlOutcome, Fut, NewSession, NewUser, Now, Session, SessionUse, StoredUser, User, UserChange,
    Users,
    control::check_actor,
    users::{ADDED, Columns, SESSIONS_ENDED, SessionColumns, check, check_change, outcome, span_micros},
};

impl Users for Postgres {
    fn add_user<'a>(&'a self, now: Now, user: &'a NewUser, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check(user, actor)?;
            let NewUser { name, role, password_hash } = user;
            let added = transaction(self, now, async |tx, now| {
                lock_names(self, tx).await?;
                let (role, now_micros) = (role.name(), now.micros());
                let params: [Param<'_>; 5] = [name, &role, &password_hash.0, &now_micros, &actor.author];
                if tx.execute(sql::users::ADD, &params).await? == 0 {
                    return Ok(outcome::name_taken(name));
                }
                log(tx, now, ADDED, std::slice::from_ref(name), actor).await?;
                Ok(ControlOutcome::Done)
            });
            Ok(added.await?)
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
            let changed = transaction(self, now, async |tx, now| {
                let Some(mut stored) = lock(tx, user).await? else { return Ok(ControlOutcome::Unknown) };
                if let Some(unchanged) = change.why_unchanged(&stored.user) {
                    return Ok(unchanged);
                }
                change.apply(now, &mut stored);
                let StoredUser { user: changed, password_hash } = stored;
                let (role, disabled_at) = (changed.role.name(), changed.disabled_at.map(Time::micros));
                tx.execute(sql::users::WRITE, &[&user, &role, &password_hash.0, &disabled_at]).await?;
                if change.ends_sessions() {
                    tx.execute(sql::users::END_SESSIONS, &[&user]).await?;
                }
                log(tx, now, &change.action(), &[user.to_owned()], actor).await?;
                Ok(ControlOutcome::Done)
            });
            Ok(changed.await?)
        })
    }

    fn user<'a>(&'a self, name: &'a str) -> Fut<'a, Option<StoredUser>> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::users::READ, &[&name]).await?;
            rows.first().map(|row| columns(row).decode()).transpose()
        })
    }

    fn users(&self) -> Fut<'_, Vec<User>> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::users::LIST, &[]).await?;
            rows.iter().map(|row| Ok(columns(row).decode()?.user)).collect()
        })
    }

    fn add_session<'a>(&'a self, now: Now, session: &'a NewSession) -> Fut<'a, bool> {
        Box::pin(async move {
            let NewSession { hash, user, password_hash, lasts } = session;
            let conn = self.conn().await?;
            let params: [Param<'_>; 5] =
                [&micros(now), &hash.as_slice(), user, &password_hash.0, &span_micros(*lasts)];
            Ok(conn.execute(sql::users::ADD_SESSION, &params).await? == 1)
        })
    }

    fn session<'a>(&'a self, hash: &'a [u8; 32]) -> Fut<'a, Option<Session>> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::users::READ_SESSION, &[&hash.as_slice()]).await?;
            rows.first().map(|row| session_columns(row).decode()).transpose()
        })
    }

    fn touch_session<'a>(&'a self, now: Now, used: &'a SessionUse) -> Fut<'a, bool> {
        Box::pin(async move {
            let SessionUse { hash, unless_since, lasts, max_age } = used;
            let conn = self.conn().await?;
            let (since, lasts, max_age) = (unless_since.micros(), span_micros(*lasts), span_micros(*max_age));
            let params: [Param<'_>; 5] = [&micros(now), &hash.as_slice(), &since, &lasts, &max_age];
            Ok(conn.execute(sql::users::TOUCH_SESSION, &params).await? == 1)
        })
    }

    fn end_session<'a>(&'a self, hash: &'a [u8; 32]) -> Fut<'a, bool> {
        Box::pin(async move {
            let conn = self.conn().await?;
            Ok(conn.execute(sql::users::END_SESSION, &[&hash.as_slice()]).await? == 1)
        })
    }

    fn end_sessions<'a>(&'a self, now: Now, user: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_actor(actor)?;
            let ended = transaction(self, now, async |tx, now| {
                if lock(tx, user).await?.is_none() {
                    return Ok(ControlOutcome::Unknown);
                }
                if tx.execute(sql::users::END_SESSIONS, &[&user]).await? == 0 {
                    return Ok(outcome::no_sessions());
                }
                log(tx, now, SESSIONS_ENDED, &[user.to_owned()], actor).await?;
                Ok(ControlOutcome::Done)
            });
            Ok(ended.await?)
        })
    }
}

/// Deletes expired sessions.
pub(super) async fn prune_sessions(store: &Postgres, now: Now, limit: usize) -> Result<usize, PgError> {
    let limit = i64::try_from(limit.max(1)).unwrap_or(i64::MAX);
    let conn = store.conn().await?;
    Ok(conn.execute(sql::users::PRUNE_SESSIONS, &[&micros(now), &limit]).await? as usize)
}

/// Waits for other transactions that add users or tokens, which share their names.
pub(super) async fn lock_names(store: &Postgres, tx: &Tx<'_>) -> Result<(), PgError> {
    let lock = format!("windlass names of authors of {}", store.shared.options.schema);
    tx.execute(sql::users::LOCK_NAMES, &[&lock]).await.map(drop)
}

/// Reads a user, and locks the row.
async fn lock(tx: &Tx<'_>, name: &str) -> Result<Option<StoredUser>, PgError> {
    let rows = tx.query(sql::users::LOCK, &[&name]).await?;
    Ok(rows.first().map(|row| columns(row).decode()).transpose()?)
}

fn columns(row: &Row) -> Columns {
    Columns {
        name: row.get(0),
        role: row.get(1),
        password_hash: row.get(2),
        created_at: row.get(3),
        created_by: row.get(4),
        disabled_at: row.get(5),
        last_login_at: row.get(6),
    }
}

fn session_columns(row: &Row) -> SessionColumns {
    SessionColumns {
        user: row.get(0),
        role: row.get(1),
        is_disabled: row.get(2),
        created_at: row.get(3),
        expires_at: row.get(4),
        last_used_at: row.get(5),
    }
}
