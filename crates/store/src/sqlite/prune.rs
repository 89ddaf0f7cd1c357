//! Deleting ended jobs, with all that is kept of them.

use rusqlite::params;
use windlass_model::{JobId, State, Time, Unique};

use super::{
    Sqlite, schedule, scope,
    tx::{Tx, id_of},
};
use crate::{
    Error, Now, Prune, Pruned,
    pick::{self, CANCELLED, DONE, FAILED},
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
                    let kind = tx.one(include_str!("sql/prune_kind.sql"), [name], |row| row.get::<_, i32>(0));
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
    let looked = look(tx, state, prune.after, most)?;
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
fn look(tx: &Tx<'_>, state: i16, after: Option<JobId>, most: usize) -> Result<Vec<Old>, Error> {
    let sql = match state {
        DONE => include_str!("sql/prune_jobs.sql"),
        _ => include_str!("sql/prune_trouble.sql"),
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
            unique: pick::settings(row.get::<_, Option<String>>(6)?.as_deref()).unique,
            tags: pick::tags(row.get::<_, Option<String>>(7)?.as_deref()),
            far: row.get::<_, Option<i16>>(8)?.is_some(),
            branched: row.get::<_, Option<bool>>(9)?.is_some(),
        })
    })
}

/// Whether a job has its unique name still.
fn has_name(tx: &Tx<'_>, now: Time, state: State, old: &Old) -> Result<bool, Error> {
    match &old.unique {
        Some(unique) if unique.holds(state, old.submitted_at, now) => {
            Ok(scope::owner(tx, old.kind, &unique.key)? == Some(old.id))
        }
        _ => Ok(false),
    }
}

fn forget(tx: &Tx<'_>, old: &Old) -> Result<(), Error> {
    let id = old.id.as_bytes();
    if let Some(unique) = &old.unique {
        tx.run(include_str!("sql/scope_forget.sql"), params![old.kind, unique.key, id])?;
    }
    for tag in &old.tags {
        tx.run(include_str!("sql/prune_tag.sql"), params![tag, id])?;
    }
    if old.far {
        tx.run(include_str!("sql/prune_payloads.sql"), [id])?;
    }
    if old.branched {
        tx.run(include_str!("sql/prune_branches.sql"), [id])?;
    }
    for sql in [
        include_str!("sql/prune_attempts.sql"),
        include_str!("sql/prune_signals.sql"),
        include_str!("sql/prune_heard.sql"),
        include_str!("sql/prune_steps.sql"),
        include_str!("sql/prune_journal.sql"),
        include_str!("sql/prune_context.sql"),
        include_str!("sql/prune_job.sql"),
    ] {
        tx.run(sql, [id])?;
    }
    Ok(())
}
