//! Deleting ended jobs with all their rows.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;
use windlass_model::{JobId, State, Time, Unique};

use super::{
    Sqlite, schedule, sql,
    tx::{Tx, read_id},
    unique,
};
use crate::{
    Error, Now, Prune, Pruned,
    columns::{self, DONE},
    list::{period_of, span},
};

/// An ended job that may be pruned.
struct Candidate {
    id: JobId,
    state: i16,
    finished_at: Time,
    lane: i32,
    kind: i32,
    submitted_at: Time,
    /// Whether its parent exists and is not done, and so may read it, now or when it is retried.
    is_needed: bool,
    unique: Option<Box<Unique>>,
    tags: Vec<String>,
    is_external: bool,
    has_branches: bool,
}

/// Deletes a bounded batch.
pub(super) async fn prune(store: &Sqlite, now: Now, prune: &Prune) -> Result<Pruned, Error> {
    let limit = prune.limit.max(1);
    store
        .write(limit, |tx| {
            let kind = match &prune.kind {
                None => None,
                Some(name) => {
                    let kind = tx.query_one(sql::prune::KIND, [name], |row| row.get::<_, i32>(0));
                    // A kind that was never used has no jobs; no number is 0.
                    Some(kind?.unwrap_or(0))
                }
            };
            prune_batch(tx, tx.now(now), prune, kind, limit)
        })
        .await
}

fn prune_batch(
    tx: &Tx<'_>,
    now: Time,
    prune: &Prune,
    kind: Option<i32>,
    limit: usize,
) -> Result<Pruned, Error> {
    let state = columns::state_number(prune.state);
    let candidates = read_candidates(tx, state, prune.after, limit)?;
    let mut pruned = Pruned::default();
    if candidates.len() == limit {
        pruned.after = candidates.last().map(|candidate| candidate.id);
    }
    let is_prunable = |candidate: &Candidate| {
        candidate.state == state
            && candidate.finished_at < prune.before
            && kind.is_none_or(|kind| kind == candidate.kind)
    };
    let mut periods: BTreeMap<i64, BTreeSet<i32>> = BTreeMap::new();
    for candidate in candidates.into_iter().filter(is_prunable) {
        if candidate.is_needed || holds_name(tx, now, prune.state, &candidate)? {
            pruned.kept += 1;
        } else {
            delete(tx, prune.state, &candidate)?;
            periods.entry(period_of(candidate.id)).or_default().insert(candidate.lane);
            pruned.jobs += 1;
        }
    }
    drop_periods(tx, periods)?;
    if prune.state == State::Done {
        schedule::prune(tx, prune.before)?;
    }
    Ok(pruned)
}

/// The next jobs by id: all of them, or those in the given state where an index holds them.
fn read_candidates(
    tx: &Tx<'_>,
    state: i16,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<Candidate>, Error> {
    let sql = match state {
        DONE => sql::prune::CANDIDATES,
        _ => sql::prune::UNSUCCESSFUL_CANDIDATES,
    };
    let after = after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    tx.query_all(sql, params![state, after, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
        // A row that cannot be decoded is deleted too. What is left of its tags and its unique name belongs to no job.
        let mut decoder = columns::Decoder::default();
        Ok(Candidate {
            id: read_id(row, 0)?,
            state: row.get(1)?,
            finished_at: Time(row.get::<_, Option<i64>>(2)?.unwrap_or(i64::MAX)),
            kind: row.get(3)?,
            submitted_at: Time(row.get(4)?),
            is_needed: row.get(5)?,
            unique: decoder.settings(row.get::<_, Option<String>>(6)?.as_deref()).unique,
            tags: decoder.tags(row.get::<_, Option<String>>(7)?.as_deref()),
            is_external: row.get::<_, Option<i16>>(8)?.is_some(),
            has_branches: row.get::<_, Option<bool>>(9)?.is_some(),
            lane: row.get(10)?,
        })
    })
}

/// Whether a job still holds its unique name.
fn holds_name(tx: &Tx<'_>, now: Time, state: State, candidate: &Candidate) -> Result<bool, Error> {
    match &candidate.unique {
        Some(unique) if unique.holds(state, candidate.submitted_at, now) => {
            Ok(unique::last_holder(tx, candidate.kind, &unique.key)? == Some(candidate.id))
        }
        _ => Ok(false),
    }
}

/// Forgets the periods of pruned jobs in which their lanes have no jobs any more.
fn drop_periods(tx: &Tx<'_>, periods: BTreeMap<i64, BTreeSet<i32>>) -> Result<(), Error> {
    for (period, lanes) in periods {
        let (low, high) = span(period);
        let params = params![low.as_bytes(), high.as_bytes()];
        let kept: Vec<i32> = tx.query_all(sql::prune::LANES_OF_PERIOD, params, |row| row.get(0))?;
        for lane in lanes.into_iter().filter(|lane| !kept.contains(lane)) {
            tx.execute(sql::prune::PERIOD, params![lane, period])?;
        }
    }
    Ok(())
}

fn delete(tx: &Tx<'_>, state: State, candidate: &Candidate) -> Result<(), Error> {
    let id = candidate.id.as_bytes();
    if let Some(unique) = &candidate.unique {
        tx.execute(sql::unique::RELEASE, params![candidate.kind, unique.key, id])?;
    }
    for tag in &candidate.tags {
        tx.execute(sql::prune::TAG, params![tag, id])?;
    }
    if candidate.is_external {
        tx.execute(sql::prune::PAYLOADS, [id])?;
    }
    if candidate.has_branches {
        tx.execute(sql::prune::BRANCHES, [id])?;
        tx.execute(sql::prune::BRANCH_TIMES, [id])?;
    }
    tx.count_deleted(candidate.lane, state);
    for sql in [
        sql::prune::ATTEMPTS,
        sql::prune::SIGNALS,
        sql::prune::DELIVERED_SIGNALS,
        sql::prune::TRANSITIONS,
        sql::prune::JOURNAL,
        sql::prune::CONTEXT,
        sql::prune::JOB,
    ] {
        tx.execute(sql, [id])?;
    }
    Ok(())
}
