//! Deleting ended jobs, with all that is kept of them.

use rusqlite::params;
use windlass_model::{JobId, State, Time, Unique};

use super::{
    Sqlite, schedule, sql,
    tx::{Tx, id_of},
    unique,
};
use crate::{
    Error, Now, Prune, Pruned,
    columns::{self, CANCELLED, DONE, FAILED},
};

/// An ended job that was looked at.
struct Old {
    id: JobId,
    state: i16,
    finished_at: Time,
    kind: i32,
    submitted_at: Time,
    /// Whether its parent is there and not done, and so may read it, now or when it is retried.
    needed: bool,
    unique: Option<Box<Unique>>,
    tags: Vec<String>,
    far: bool,
    branched: bool,
}

pub(super) async fn prune(store: &Sqlite, now: Now, prune: &Prune) -> Result<Pruned, Error> {
    let most = prune.limit.max(1);
    store
        .write(most, |tx| {
            let kind = match &prune.kind {
                None => None,
                Some(name) => {
                    let kind = tx.one(sql::prune::KIND, [name], |row| row.get::<_, i32>(0));
                    // A kind that was never used has no jobs; no number is 0.
                    Some(kind?.unwrap_or(0))
                }
            };
            walk(tx, tx.now(now), prune, kind, most)
        })
        .await
}

fn walk(tx: &Tx<'_>, now: Time, prune: &Prune, kind: Option<i32>, most: usize) -> Result<Pruned, Error> {
    let state = match prune.state {
        State::Failed => FAILED,
        State::Cancelled => CANCELLED,
        _ => DONE,
    };
    let looked = read_candidates(tx, state, prune.after, most)?;
    let mut pruned = Pruned::default();
    if looked.len() == most {
        pruned.after = looked.last().map(|old| old.id);
    }
    let meant = |old: &Old| {
        old.state == state && old.finished_at < prune.before && kind.is_none_or(|kind| kind == old.kind)
    };
    for old in looked.into_iter().filter(meant) {
        if old.needed || has_name(tx, now, prune.state, &old)? {
            pruned.kept += 1;
        } else {
            forget(tx, &old)?;
            pruned.jobs += 1;
        }
    }
    if prune.state == State::Done {
        schedule::prune(tx, prune.before)?;
    }
    Ok(pruned)
}

/// The next jobs in the order of ids: all of them, or where an index holds them, those in the state that is meant.
fn read_candidates(tx: &Tx<'_>, state: i16, after: Option<JobId>, most: usize) -> Result<Vec<Old>, Error> {
    let sql = match state {
        DONE => sql::prune::CANDIDATES,
        _ => sql::prune::UNSUCCESSFUL_CANDIDATES,
    };
    let after = after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    tx.all(sql, params![state, after, i64::try_from(most).unwrap_or(i64::MAX)], |row| {
        Ok(Old {
            id: id_of(row, 0)?,
            state: row.get(1)?,
            finished_at: Time(row.get::<_, Option<i64>>(2)?.unwrap_or(i64::MAX)),
            kind: row.get(3)?,
            submitted_at: Time(row.get(4)?),
            needed: row.get(5)?,
            unique: columns::settings(row.get::<_, Option<String>>(6)?.as_deref()).unique,
            tags: columns::tags(row.get::<_, Option<String>>(7)?.as_deref()),
            far: row.get::<_, Option<i16>>(8)?.is_some(),
            branched: row.get::<_, Option<bool>>(9)?.is_some(),
        })
    })
}

/// Whether a job has its unique name still.
fn has_name(tx: &Tx<'_>, now: Time, state: State, old: &Old) -> Result<bool, Error> {
    match &old.unique {
        Some(unique) if unique.holds(state, old.submitted_at, now) => {
            Ok(unique::owner(tx, old.kind, &unique.key)? == Some(old.id))
        }
        _ => Ok(false),
    }
}

fn forget(tx: &Tx<'_>, old: &Old) -> Result<(), Error> {
    let id = old.id.as_bytes();
    if let Some(unique) = &old.unique {
        tx.run(sql::unique::RELEASE, params![old.kind, unique.key, id])?;
    }
    for tag in &old.tags {
        tx.run(sql::prune::TAG, params![tag, id])?;
    }
    if old.far {
        tx.run(sql::prune::PAYLOADS, [id])?;
    }
    if old.branched {
        tx.run(sql::prune::BRANCHES, [id])?;
    }
    for sql in [
        sql::prune::ATTEMPTS,
        sql::prune::SIGNALS,
        sql::prune::DELIVERED_SIGNALS,
        sql::prune::TRANSITIONS,
        sql::prune::JOURNAL,
        sql::prune::CONTEXT,
        sql::prune::JOB,
    ] {
        tx.run(sql, [id])?;
    }
    Ok(())
}
