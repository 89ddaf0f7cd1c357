//! Pruning: deleting jobs that ended long ago, a bounded batch at a time.

use std::collections::HashSet;

use uuid::Uuid;
use windlass_model::{JobId, State, Time};

use super::{Postgres, change_params::Param, control::transaction, errors::PgError, sql, tx::Tx};
use crate::{
    Now, Prune, Pruned,
    columns::{self, CANCELLED, DONE, FAILED},
    list::{period_of, span},
};

pub(super) async fn prune(store: &Postgres, now: Now, prune: &Prune) -> Result<Pruned, PgError> {
    columns::check_prune(prune)?;
    let (state, sql) = match prune.state {
        State::Failed => (FAILED, sql::prune::UNSUCCESSFUL_CANDIDATES),
        State::Cancelled => (CANCELLED, sql::prune::UNSUCCESSFUL_CANDIDATES),
        _ => (DONE, sql::prune::CANDIDATES),
    };
    let limit = i64::try_from(prune.limit.max(1)).unwrap_or(i64::MAX);
    let after = prune.after.map(|id| id.0);
    transaction(store, now, async |tx, now| {
        let rows = tx.query(sql, &[&state, &prune.before.micros(), &after, &limit, &prune.kind]).await?;
        let last = rows.last().filter(|_| rows.len() as i64 == limit).map(|row| JobId(row.get(0)));
        let old: Vec<_> = rows.iter().filter(|row| row.get::<_, Option<bool>>(1) == Some(true)).collect();
        // A job that still holds its unique name in its state is kept.
        let mut names: (Vec<i32>, Vec<String>, Vec<Uuid>) = Default::default();
        let mut tags: (Vec<Uuid>, Vec<String>) = Default::default();
        let mut holding = HashSet::new();
        for row in &old {
            let id: Uuid = row.get(0);
            // A row that cannot be decoded is deleted too. What is left of its tags and its unique name belongs to no job.
            let mut decoder = columns::Decoder::default();
            tags.extend(decoder.tags(row.get(6)).into_iter().map(|tag| (id, tag)));
            let Some(unique) = decoder.settings(row.get(3)).unique else { continue };
            if unique.holds(prune.state, Time(row.get(5)), now) {
                holding.insert(id);
            }
            names.0.push(row.get(4));
            names.1.push(unique.key);
            names.2.push(id);
        }
        if !holding.is_empty() {
            let sql = sql::prune::UNIQUE_NAMES;
            let holders = tx.query(sql, &[&names.0, &names.1, &names.2]).await?;
            let holders: HashSet<Uuid> = holders.iter().map(|row| row.get(0)).collect();
            holding.retain(|id| holders.contains(id));
        }
        let needed =
            |row: &&&tokio_postgres::Row| row.get::<_, bool>(2) || holding.contains(&row.get::<_, Uuid>(0));
        let kept = old.iter().filter(needed).count();
        let pruned: Vec<Uuid> = old.iter().filter(|row| !needed(row)).map(|row| row.get(0)).collect();
        let sql = sql::prune::JOBS;
        let before = prune.before.micros();
        let params: [Param<'_>; 9] =
            [&pruned, &state, &names.0, &names.1, &names.2, &before, &tags.0, &tags.1, &tx.count_writer];
        let rows = tx.query(sql, &params).await?;
        let jobs = rows.first().map_or(0, |row| row.get::<_, i64>(0) as usize);
        if let Some(row) = rows.first().filter(|_| jobs > 0) {
            drop_periods(tx, &row.get::<_, Vec<i32>>(1), &pruned).await?;
        }
        if prune.state == State::Done {
            tx.execute(sql::prune::FIRINGS, &[&prune.before.micros()]).await?;
        }
        Ok(Pruned { jobs, kept, after: last })
    })
    .await
}

/// Forgets the periods of pruned jobs in which their lanes have no jobs any more.
async fn drop_periods(tx: &Tx<'_>, lanes: &[i32], pruned: &[Uuid]) -> Result<(), PgError> {
    let mut periods: Vec<i64> = pruned.iter().map(|id| period_of(JobId(*id))).collect();
    periods.sort_unstable();
    periods.dedup();
    let (low, high): (Vec<Uuid>, Vec<Uuid>) =
        periods.iter().map(|period| span(*period)).map(|(low, high)| (low.0, high.0)).unzip();
    tx.execute(sql::prune::PERIODS, &[&lanes, &periods, &low, &high]).await.map(drop)
}
