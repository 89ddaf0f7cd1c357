//! Polling branches; see [`crate::Maintenance::poll_branches`].
//!
//! What takes long (counting the children of a branch, finding lost ones) is read in one snapshot, beside the writer.
//! The result is written in one short transaction, if nobody else has polled the branch meanwhile. Counts are
//! corrected by the difference that the snapshot showed, because every commit keeps rows and counts in step.

use std::collections::{HashMap, HashSet};

use rusqlite::{Row, params};
use windlass_model::{
    BranchCounts, BranchNo, BranchPoll, BranchWatch, Epoch, JobId, Time,
    branch::PollInterval,
    poll::{ChildRows, MAX_REDELIVERED, PollSample, Recount},
};

use super::{
    Sqlite,
    branch::{self, BranchKey},
    inspect::SPAN,
    lease,
    pool::SMALL,
    sql,
    tx::{Tx, read_id, unpack},
    views::row_limit,
};
use crate::{CANCEL_AGAIN, Error, Now, PollReport, columns};

/// A branch that is due to be polled.
struct DueBranch {
    key: BranchKey,
    poll_at: Time,
    spawned: i64,
    counts: BranchCounts,
    watch: Option<BranchWatch>,
    cancels_children: bool,
    poll: BranchPoll,
}

/// How many children of a branch are claimed, and how many of these have committed nothing.
#[derive(Clone, Copy, Default)]
struct Claimed {
    items: i64,
    unstarted: i64,
}

/// What the snapshot shows of a branch.
struct Sample {
    key: BranchKey,
    poll_at: Time,
    claimed: Claimed,
    /// The result of counting its children, if that was done.
    recount: Option<Recount>,
    /// Its children that are nowhere, if they were searched for.
    lost: Option<Vec<(JobId, Epoch)>>,
}

/// Polls up to `limit` branches that are due.
pub(super) async fn poll(store: &Sqlite, now: Now, limit: usize) -> Result<PollReport, Error> {
    let (now, next_at) = store.read(|tx| Ok((tx.now(now), next(tx)?)))?;
    if limit == 0 || next_at.is_none_or(|at| at > now) {
        return Ok(PollReport { next_at, now, ..PollReport::default() });
    }
    let samples = store.read_snapshot(|tx| sample_branches(tx, now, limit))?;
    store
        .write(SMALL + samples.len(), |tx| {
            let mut report = PollReport { now, ..PollReport::default() };
            samples.iter().try_for_each(|sample| apply(tx, now, sample, &mut report))?;
            report.next_at = next(tx)?;
            Ok(report)
        })
        .await
}

/// When the next branch is due to be polled.
fn next(tx: &Tx<'_>) -> Result<Option<Time>, Error> {
    let next = tx.query_one(sql::poll::NEXT, [], |row| row.get::<_, Option<i64>>(0))?;
    Ok(next.flatten().map(Time))
}

fn read_branch(row: &Row<'_>) -> rusqlite::Result<DueBranch> {
    let poll_at = Time(row.get(2)?);
    Ok(DueBranch {
        key: (read_id(row, 0)?, BranchNo(row.get(1)?)),
        poll_at,
        spawned: row.get(3)?,
        counts: branch::read_counts(row, 4)?,
        watch: branch::watch(row, 8)?,
        cancels_children: row.get(9)?,
        poll: columns::poll(row.get::<_, Option<String>>(10)?.as_deref(), Some(poll_at)),
    })
}

impl DueBranch {
    /// The next poll, given what is seen now.
    fn next(&self, now: Time, claimed: Claimed) -> BranchPoll {
        let Claimed { items, unstarted } = claimed;
        let sample = PollSample {
            now,
            spawned: self.spawned,
            counts: self.counts,
            claimed: items,
            claimed_unstarted: unstarted,
        };
        self.poll.next(&sample, PollInterval::of(self.watch.as_ref()))
    }
}

/// Reads the branches that are due, and more of those that make no progress. Writes nothing.
fn sample_branches(tx: &Tx<'_>, now: Time, limit: usize) -> Result<Vec<Sample>, Error> {
    let due = tx.query_all(sql::poll::READ_DUE, params![now.micros(), row_limit(limit)], read_branch)?;
    let jobs = claimed_jobs(tx)?;
    let claimed = count_claimed(tx, &jobs)?;
    let mut samples = Vec::with_capacity(due.len());
    for mut branch in due {
        let claimed = claimed.get(&branch.key).copied().unwrap_or_default();
        let mut recount = None;
        if branch.poll.recount_due(&branch.next(now, claimed)) {
            let counted = self::recount(tx, &branch)?;
            branch.counts.add(counted.difference);
            recount = Some(counted);
        }
        let stuck = branch.poll.search_due(&branch.next(now, claimed));
        let lost = if stuck { Some(find_lost(tx, branch.key, &jobs)?) } else { None };
        samples.push(Sample { key: branch.key, poll_at: branch.poll_at, claimed, recount, lost });
    }
    Ok(samples)
}

/// All claimed jobs.
fn claimed_jobs(tx: &Tx<'_>) -> Result<HashSet<(JobId, Epoch)>, Error> {
    let claims = tx.query_all(sql::inspect::CLAIMS, [], |row| row.get::<_, Vec<u8>>(2))?;
    let mut claimed = HashSet::new();
    for jobs in &claims {
        claimed.extend(unpack(jobs)?);
    }
    Ok(claimed)
}

/// How many children of each branch are claimed.
fn count_claimed(tx: &Tx<'_>, jobs: &HashSet<(JobId, Epoch)>) -> Result<HashMap<BranchKey, Claimed>, Error> {
    let mut branches: HashMap<BranchKey, Claimed> = HashMap::new();
    for (id, epoch) in jobs {
        let params = params![id.as_bytes(), epoch.0];
        let found = tx.query_one(sql::poll::READ_CLAIMED, params, |row| {
            let key = (read_id(row, 0)?, BranchNo(row.get(1)?));
            Ok((key, row.get::<_, i64>(2)?, row.get::<_, bool>(3)?))
        })?;
        if let Some((key, items, first)) = found {
            let claimed = branches.entry(key).or_default();
            claimed.items += items;
            claimed.unstarted += if first { items } else { 0 };
        }
    }
    Ok(branches)
}

/// Compares the counts of a branch with its rows.
fn recount(tx: &Tx<'_>, branch: &DueBranch) -> Result<Recount, Error> {
    let (job, number) = branch.key;
    let rows = tx.query_one(sql::poll::COUNT_CHILDREN, params![job.as_bytes(), number.0], |row| {
        let ends =
            BranchCounts { started: 0, done: row.get(0)?, failed: row.get(1)?, cancelled: row.get(2)? };
        Ok(ChildRows { ends, live: row.get(3)? })
    })?;
    Ok(rows.unwrap_or_default().recount(branch.spawned, &branch.counts))
}

/// Children of a branch that are nowhere.
fn find_lost(
    tx: &Tx<'_>,
    key: BranchKey,
    claimed: &HashSet<(JobId, Epoch)>,
) -> Result<Vec<(JobId, Epoch)>, Error> {
    let mut statement = tx.prepare(sql::poll::FIND_LOST)?;
    let mut rows = statement.query(params![key.0.as_bytes(), key.1.0, SPAN])?;
    let mut lost = Vec::new();
    while lost.len() < MAX_REDELIVERED
        && let Some(row) = rows.next()?
    {
        let pair = (read_id(row, 0)?, Epoch(row.get(1)?));
        if !claimed.contains(&pair) {
            lost.push(pair);
        }
    }
    Ok(lost)
}

/// Writes the result of a poll, unless someone else has polled the branch meanwhile.
fn apply(tx: &Tx<'_>, now: Time, sample: &Sample, report: &mut PollReport) -> Result<(), Error> {
    let (job, number) = sample.key;
    let params = params![job.as_bytes(), number.0, sample.poll_at.micros()];
    let Some(mut branch) = tx.query_one(sql::poll::READ_BRANCH, params, read_branch)? else { return Ok(()) };
    report.polled += 1;
    let difference = sample.recount.map_or(BranchCounts::default(), |recount| recount.difference);
    if difference != BranchCounts::default() {
        tracing::warn!(%job, %number, ?difference, "the children of a branch were counted wrong");
        branch.counts.add(difference);
        tx.write_count(sample.key, branch.counts)?;
        report.corrected += 1;
    }
    let mut poll = branch.next(now, sample.claimed);
    match sample.recount {
        Some(recount) => (poll.missing, poll.counted_at) = (recount.missing, Some(now)),
        None => poll.counted_at = branch.poll.counted_at,
    }
    match sample.lost.as_deref() {
        Some(lost) if branch.poll.search_due(&poll) && !lost.is_empty() => {
            let lost = lease::return_jobs(tx, lost)?;
            tracing::warn!(%job, %number, lost, "children of a branch were lost and have been returned to the ready set");
            report.redelivered += lost;
            poll.add_redelivered(lost);
        }
        Some(_) => {}
        // Lost children are searched for next time.
        None => poll.searched_at = branch.poll.searched_at,
    }
    if branch.watch.take_if(|watch| poll.found_missing() || watch.is_met(&branch.counts)).is_some() {
        tx.notify(now, sample.key)?;
        report.notified += 1;
    }
    let cancels_children = branch.cancels_children && poll.pending > 0;
    let poll_at = poll.next_poll_at(cancels_children, branch.watch.is_some(), CANCEL_AGAIN);
    if cancels_children {
        report.to_cancel.push(sample.key);
    }
    let text = columns::poll_text(&poll);
    let params = params![job.as_bytes(), number.0, text, cancels_children, poll_at.map(Time::micros)];
    tx.execute(sql::poll::WRITE, params)?;
    Ok(())
}
