//! Tokens.

use rusqlite::{Row, params};
use windlass_model::{Time, WorkerId};

use super::{Sqlite, admin::log, sql};
use crate::{
    Actor, ControlOutcome, Fut, NewToken, Now, Registrant, StoredToken, Token, Tokens,
    control::check_actor,
    tokens::{ADDED, Columns, REVOKED, check, list_text, outcome},
};

impl Tokens for Sqlite {
    fn add_token<'a>(&'a self, now: Now, token: &'a NewToken, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check(token, actor)?;
            self.write(1, |tx| {
                let now = tx.now(now);
                let (kinds, queues) = (list_text(&token.scope.kinds), list_text(&token.scope.queues));
                let expires_at = token.expires_at.map(Time::micros);
                let role = token.role.name();
                let params = params![
                    token.id,
                    token.name,
                    role,
                    kinds,
                    queues,
                    token.hash,
                    now.micros(),
                    actor.author,
                    expires_at
                ];
                if tx.execute(sql::tokens::ADD, params)? == 0 {
                    return Ok(outcome::name_taken(&token.name));
                }
                log(tx, now, ADDED, &token.name, actor)?;
                Ok(ControlOutcome::Done)
            })
            .await
        })
    }

    fn revoke_token<'a>(&'a self, now: Now, token: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_actor(actor)?;
            self.write(1, |tx| {
                let now = tx.now(now);
                let params = params![token, now.micros()];
                if let Some(name) =
                    tx.query_one(sql::tokens::REVOKE, params, |row| row.get::<_, String>(0))?
                {
                    log(tx, now, REVOKED, &name, actor)?;
                    return Ok(ControlOutcome::Done);
                }
                let known = tx.query_one(sql::tokens::EXISTS, [token], |_| Ok(()))?;
                Ok(known.map_or(ControlOutcome::Unknown, |()| outcome::revoked_before()))
            })
            .await
        })
    }

    fn touch_token<'a>(&'a self, now: Now, id: &'a str, unless_since: Time) -> Fut<'a, bool> {
        Box::pin(async move {
            self.write_one(|tx| {
                let params = params![id, tx.now(now).micros(), unless_since.micros()];
                Ok(tx.execute(sql::tokens::TOUCH, params)? == 1)
            })
            .await
        })
    }

    fn token<'a>(&'a self, id: &'a str) -> Fut<'a, Option<StoredToken>> {
        let row = self.read(|tx| tx.query_one(sql::tokens::READ, [id], columns));
        Box::pin(std::future::ready(row.and_then(|row| row.map(Columns::decode).transpose())))
    }

    fn tokens(&self) -> Fut<'_, Vec<Token>> {
        let rows = self.read(|tx| tx.query_all(sql::tokens::LIST, [], columns));
        let decode = |rows: Vec<Columns>| rows.into_iter().map(|row| Ok(row.decode()?.token)).collect();
        Box::pin(std::future::ready(rows.and_then(decode)))
    }

    fn registrant(&self, worker: WorkerId) -> Fut<'_, Registrant> {
        let row = self.read(|tx| tx.query_one(sql::tokens::REGISTRANT, [worker.0], |row| row.get(0)));
        Box::pin(std::future::ready(row.map(Registrant::of_column)))
    }
}

fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        id: row.get(0)?,
        name: row.get(1)?,
        role: row.get(2)?,
        kinds: row.get(3)?,
        queues: row.get(4)?,
        hash: row.get(5)?,
        created_at: row.get(6)?,
        created_by: row.get(7)?,
        expires_at: row.get(8)?,
        revoked_at: row.get(9)?,
        last_used_at: row.get(10)?,
    })
}
