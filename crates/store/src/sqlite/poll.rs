//! Looking at branches from time to time.
//!
//! All that takes long (counting a branch anew, looking for children that are in no place) is read in one snapshot, beside
//! the writer. What follows from it is then written in one short transaction, if nobody else has looked meanwhile: counts are
//! put right by what they were wrong by in the snapshot, since every commit keeps rows and counts in step.

use std::collections::{HashMap, HashSet};

use rusqlite::{Row, params};
use windlass_model::{
    BranchNo, BranchPoll, Epoch, JobId, Tally, Time, Watch,
    branch::PollInterval,
    poll::{ChildCounts, PollSample, REDELIVERED, Recount},
};

use super::{
    Sqlite,
    branch::{self, Key},
    inspect::SPAN,
    lease,
    pool::SMALL,
    sql,
    tx::{Tx, id_of, unpack},
    views::most,
};
use crate::{CANCEL_AGAIN, Error, Now, PollReport, columns};

/// A branch that is due to be looked at.
struct Due {
    key: Key,
    poll_at: Time,
    spawned: i64,
    tally: Tally,
    watch: Option<Watch>,
    cut: bool,
    poll: BranchPoll,
}

/// What workers have of a branch: how many children, and how many of these have written nothing.
#[derive(Clone, Copy, Default)]
struct Claimed {
    items: i64,
    begun: i64,
}

/// What was found out about a branch in a snapshot.
struct Sampler {
    key: Key,
    poll_at: Time,
    claimed: Claimed,
    /// What came of counting its children anew, if that was done.
    recount: Option<Recount>,
    /// Its children that are in no place, if they were searched.
    lost: Option<Vec<(JobId, Epoch)>>,
}

pub(super) async fn poll(store: &Sqlite, now: Now, limit: usize) -> Result<PollReport, Error> {
    let (now, next_at) = store.read(|tx| Ok((tx.now(now), next(tx)?)))?;
    if limit == 0 || next_at.is_none_or(|at| at > now) {
        return Ok(PollReport { next_at, now, ..PollReport::default() });
    }
    let looks = store.walk(|tx| poll_branch(tx, now, limit))?;
    store
        .write(SMALL + looks.len(), |tx| {
            let mut polled = PollReport { now, ..PollReport::default() };
            looks.iter().try_for_each(|look| settle(tx, now, look, &mut polled))?;
            polled.next_at = next(tx)?;
            Ok(polled)
        })
        .await
}

/// When the next branch is to be looked at.
fn next(tx: &Tx<'_>) -> Result<Option<Time>, Error> {
    let next = tx.one(sql::poll::NEXT, [], |row| row.get::<_, Option<i64>>(0))?;
    Ok(next.flatten().map(Time))
}

fn read(row: &Row<'_>) -> rusqlite::Result<Due> {
    let poll_at = Time(row.get(2)?);
    Ok(Due {
        key: (id_of(row, 0)?, BranchNo(row.get(1)?)),
        poll_at,
        spawned: row.get(3)?,
        tally: branch::tally(row, 4)?,
        watch: branch::watch(row, 8)?,
        cut: row.get(9)?,
        poll: columns::poll(row.get::<_, Option<String>>(10)?.as_deref(), Some(poll_at)),
    })
}

impl Due {
    /// What is seen of it now.
    fn next(&self, now: Time, claimed: Claimed) -> BranchPoll {
        let Claimed { items, begun } = claimed;
        let seen = PollSample { now, spawned: self.spawned, tally: self.tally, claimed: items, begun };
        let pace = self.watch.as_ref().map_or(PollInterval::default(), |watch| watch.poll_interval);
        self.poll.next(&seen, pace)
    }
}

/// Looks at the branches that are due, and closer at those where nothing moves. Only reads.
fn poll_branch(tx: &Tx<'_>, now: Time, limit: usize) -> Result<Vec<Sampler>, Error> {
    let due = tx.all(sql::poll::READ_DUE, params![now.micros(), most(limit)], read)?;
    let pairs = pairs(tx)?;
    let claimed = claimed(tx, &pairs)?;
    let mut looks = Vec::with_capacity(due.len());
    for mut due in due {
        let claimed = claimed.get(&due.key).copied().unwrap_or_default();
        let mut recount = None;
        if due.poll.is_still(&due.next(now, claimed)) {
            let counted = self::recount(tx, &due)?;
            due.tally.add(counted.difference);
            recount = Some(counted);
        }
        let stuck = due.poll.is_stuck(&due.next(now, claimed));
        let lost = if stuck { Some(self::lost(tx, due.key, &pairs)?) } else { None };
        looks.push(Sampler { key: due.key, poll_at: due.poll_at, claimed, recount, lost });
    }
    Ok(looks)
}

/// All that workers have claimed.
fn pairs(tx: &Tx<'_>) -> Result<HashSet<(JobId, Epoch)>, Error> {
    let claims = tx.all(sql::inspect::CLAIMS, [], |row| row.get::<_, Vec<u8>>(2))?;
    let mut pairs = HashSet::new();
    for jobs in &claims {
        pairs.extend(unpack(jobs)?);
    }
    Ok(pairs)
}

/// What workers have of each branch.
fn claimed(tx: &Tx<'_>, pairs: &HashSet<(JobId, Epoch)>) -> Result<HashMap<Key, Claimed>, Error> {
    let mut branches: HashMap<Key, Claimed> = HashMap::new();
    for (id, epoch) in pairs {
        let params = params![id.as_bytes(), epoch.0];
        let found = tx.one(sql::poll::READ_CLAIMED, params, |row| {
            let key = (id_of(row, 0)?, BranchNo(row.get(1)?));
            Ok((key, row.get::<_, i64>(2)?, row.get::<_, bool>(3)?))
        })?;
        if let Some((key, items, first)) = found {
            let claimed = branches.entry(key).or_default();
            claimed.items += items;
            claimed.begun += if first { items } else { 0 };
        }
    }
    Ok(branches)
}

/// Compares the counts of a branch with its rows.
fn recount(tx: &Tx<'_>, due: &Due) -> Result<Recount, Error> {
    let (job, number) = due.key;
    let rows = tx.one(sql::poll::COUNT_CHILDREN, params![job.as_bytes(), number.0], |row| {
        let ends = Tally { started: 0, done: row.get(0)?, failed: row.get(1)?, cancelled: row.get(2)? };
        Ok(ChildCounts { ends, live: row.get(3)? })
    })?;
    Ok(rows.unwrap_or_default().recount(due.spawned, &due.tally))
}

/// Children of a branch that are in no place at all.
fn lost(tx: &Tx<'_>, key: Key, claimed: &HashSet<(JobId, Epoch)>) -> Result<Vec<(JobId, Epoch)>, Error> {
    let mut statement = tx.prepare(sql::poll::FIND_LOST)?;
    let mut rows = statement.query(params![key.0.as_bytes(), key.1.0, SPAN])?;
    let mut lost = Vec::new();
    while lost.len() < REDELIVERED
        && let Some(row) = rows.next()?
    {
        let pair = (id_of(row, 0)?, Epoch(row.get(1)?));
        if !claimed.contains(&pair) {
            lost.push(pair);
        }
    }
    Ok(lost)
}

/// Writes what follows from a look, unless someone else has looked meanwhile.
fn settle(tx: &Tx<'_>, now: Time, look: &Sampler, polled: &mut PollReport) -> Result<(), Error> {
    let (job, number) = look.key;
    let params = params![job.as_bytes(), number.0, look.poll_at.micros()];
    let Some(mut due) = tx.one(sql::poll::READ_BRANCH, params, read)? else { return Ok(()) };
    polled.polled += 1;
    let difference = look.recount.map_or(Tally::default(), |recount| recount.difference);
    if difference != Tally::default() {
        tracing::warn!(%job, %number, ?difference, "the children of a branch were counted wrong");
        due.tally.add(difference);
        tx.write_count(look.key, due.tally)?;
        polled.corrected += 1;
    }
    let mut poll = due.next(now, look.claimed);
    match look.recount {
        Some(recount) => (poll.missing, poll.counted_at) = (recount.missing, Some(now)),
        None => poll.counted_at = due.poll.counted_at,
    }
    match look.lost.as_deref() {
        Some(lost) if due.poll.is_stuck(&poll) && !lost.is_empty() => {
            let lost = lease::hand_back(tx, lost)?;
            tracing::warn!(%job, %number, lost, "children of a branch were in no place and were put back");
            polled.redelivered += lost;
            poll.found(lost);
        }
        Some(_) => {}
        // What was not searched is searched next time.
        None => poll.searched_at = due.poll.searched_at,
    }
    if due.watch.take_if(|watch| poll.lacks_children() || watch.is_met(&due.tally)).is_some() {
        tx.notify(now, look.key)?;
        polled.notified += 1;
    }
    let cut = due.cut && poll.pending > 0;
    let poll_at = match (cut, &due.watch) {
        (true, _) => Some(now.plus(CANCEL_AGAIN)),
        (false, Some(_)) => poll.next_at,
        (false, None) => None,
    };
    if cut {
        polled.to_cancel.push(look.key);
    }
    let text = columns::poll_text(&poll);
    let params = params![job.as_bytes(), number.0, text, cut, poll_at.map(Time::micros)];
    tx.run(sql::poll::WRITE, params)?;
    Ok(())
}
