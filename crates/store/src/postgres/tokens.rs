//! Tokens.

use tokio_postgres::Row;
use windlass_model::{Time, WorkerId};

use super::{
    Postgres,
    change_params::Param,
    control::{log, transaction},
    micros, sql, users,
};
use crate::{
    Actor, ControlOutcome, Fut, NewToken, Now, Registrant, StoredToken, Token, Tokens,
    control::check_actor,
    tokens::{ADDED, Columns, REVOKED, check, list_text, outcome},
};

impl Tokens for Postgres {
    fn add_token<'a>(&'a self, now: Now, token: &'a NewToken, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check(token, actor)?;
            let (kinds, queues) = (list_text(&token.scope.kinds), list_text(&token.scope.queues));
            let (role, hash) = (token.role.name(), token.hash.as_slice());
            let expires_at = token.expires_at.map(Time::micros);
            let added = transaction(self, now, async |tx, now| {
                users::lock_names(self, tx).await?;
                let now_micros = now.micros();
                let params: [Param<'_>; 9] = [
                    &token.id,
                    &token.name,
                    &role,
                    &kinds,
                    &queues,
                    &hash,
                    &now_micros,
                    &actor.author,
                    &expires_at,
                ];
                if tx.execute(sql::tokens::ADD, &params).await? == 0 {
                    return Ok(outcome::name_taken(&token.name));
                }
                log(tx, now, ADDED, std::slice::from_ref(&token.name), actor).await?;
                Ok(ControlOutcome::Done)
            });
            Ok(added.await?)
        })
    }

    fn revoke_token<'a>(&'a self, now: Now, token: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_actor(actor)?;
            let revoked = transaction(self, now, async |tx, now| {
                let rows = tx.query(sql::tokens::REVOKE, &[&token, &now.micros()]).await?;
                if let Some(row) = rows.first() {
                    log(tx, now, REVOKED, &[row.get(0)], actor).await?;
                    return Ok(ControlOutcome::Done);
                }
                let known = tx.query(sql::tokens::EXISTS, &[&token]).await?;
                Ok(if known.is_empty() { ControlOutcome::Unknown } else { outcome::revoked_before() })
            });
            Ok(revoked.await?)
        })
    }

    fn touch_token<'a>(&'a self, now: Now, id: &'a str, unless_since: Time) -> Fut<'a, bool> {
        Box::pin(async move {
            let conn = self.conn().await?;
            let params: [Param<'_>; 3] = [&micros(now), &id, &unless_since.micros()];
            Ok(conn.execute(sql::tokens::TOUCH, &params).await? == 1)
        })
    }

    fn token<'a>(&'a self, id: &'a str) -> Fut<'a, Option<StoredToken>> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::tokens::READ, &[&id]).await?;
            rows.first().map(|row| columns(row).decode()).transpose()
        })
    }

    fn tokens(&self) -> Fut<'_, Vec<Token>> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::tokens::LIST, &[]).await?;
            rows.iter().map(|row| Ok(columns(row).decode()?.token)).collect()
        })
    }

    fn registrant(&self, worker: WorkerId) -> Fut<'_, Registrant> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::tokens::REGISTRANT, &[&worker.0]).await?;
            Ok(Registrant::of_column(rows.first().map(|row| row.get(0))))
        })
    }
}

fn columns(row: &Row) -> Columns {
    Columns {
        id: row.get(0),
        name: row.get(1),
        role: row.get(2),
        kinds: row.get(3),
        queues: row.get(4),
        hash: row.get(5),
        created_at: row.get(6),
        created_by: row.get(7),
        expires_at: row.get(8),
        revoked_at: row.get(9),
        last_used_at: row.get(10),
    }
}
