//! Deleting old ended jobs, a bounded batch at a time.

use std::collections::HashSet;

use uuid::Uuid;
use windlass_model::{JobId, State, Time};

use super::{Postgres, control::transaction, sql};
use crate::{
    Error, Now, Prune, Pruned,
    columns::{self, CANCELLED, DONE, FAILED},
};

pub(super) async fn prune(store: &Postgres, now: Now, prune: &Prune) -> Result<Pruned, Error> {
    columns::check_prune(prune)?;
    let (state, sql) = match prune.state {
        State::Failed => (FAILED, sql::prune::UNSUCCESSFUL_CANDIDATES),
        State::Cancelled => (CANCELLED, sql::prune::UNSUCCESSFUL_CANDIDATES),
        _ => (DONE, sql::prune::CANDIDATES),
    };
    let limit = i64::try_from(prune.limit.max(1)).unwrap_or(i64::MAX);
    let after = prune.after.map(|id| id.0);
    transaction(store, now, async |conn, now| {
        let rows = conn.query(sql, &[&state, &prune.before.micros(), &after, &limit, &prune.kind]).await?;
        let last = rows.last().filter(|_| rows.len() as i64 == limit).map(|row| JobId(row.get(0)));
        let old: Vec<_> = rows.iter().filter(|row| row.get::<_, Option<bool>>(1) == Some(true)).collect();
        // Names that are still theirs, as far as they still hold them in the state they are in.
        let mut names: (Vec<i32>, Vec<String>, Vec<Uuid>) = Default::default();
        let mut holding = HashSet::new();
        for row in &old {
            let Some(unique) = columns::settings(row.get(3)).unique else { continue };
            let id: Uuid = row.get(0);
            if unique.holds(prune.state, Time(row.get(5)), now) {
                holding.insert(id);
            }
            names.0.push(row.get(4));
            names.1.push(unique.key);
            names.2.push(id);
        }
        if !holding.is_empty() {
            let sql = sql::prune::UNIQUE_NAMES;
            let theirs = conn.query(sql, &[&names.0, &names.1, &names.2]).await?;
            let theirs: HashSet<Uuid> = theirs.iter().map(|row| row.get(0)).collect();
            holding.retain(|id| theirs.contains(id));
        }
        let needed =
            |row: &&&tokio_postgres::Row| row.get::<_, bool>(2) || holding.contains(&row.get::<_, Uuid>(0));
        let kept = old.iter().filter(needed).count();
        let gone: Vec<Uuid> = old.iter().filter(|row| !needed(row)).map(|row| row.get(0)).collect();
        let sql = sql::prune::JOBS;
        let rows =
            conn.query(sql, &[&gone, &state, &names.0, &names.1, &names.2, &prune.before.micros()]).await?;
        let jobs = rows.first().map_or(0, |row| row.get::<_, i64>(0) as usize);
        if prune.state == State::Done {
            conn.execute(sql::prune::FIRINGS, &[&prune.before.micros()]).await?;
        }
        Ok(Pruned { jobs, kept, after: last })
    })
    .await
}
