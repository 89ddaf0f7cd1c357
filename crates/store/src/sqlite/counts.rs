//! The number of jobs in each state, per lane.
//!
//! A transaction collects how it moves jobs, and writes one row per lane at its end, however many jobs it moves.

use std::collections::BTreeMap;

use rusqlite::{Row, params};
use windlass_model::{JobCounts, State};

use super::{sql, tx::Tx};
use crate::{Error, Miscount};

impl Tx<'_> {
    /// Counts a job that was added in a state.
    pub(super) fn count_added(&self, lane: i32, state: State) {
        self.add_job_counts(lane, JobCounts::of(state));
    }

    /// Counts a job that was deleted in a state.
    pub(super) fn count_deleted(&self, lane: i32, state: State) {
        self.add_job_counts(lane, JobCounts::default().minus(JobCounts::of(state)));
    }

    /// Counts a job that moved from one state to another.
    pub(super) fn count_moved(&self, lane: i32, from: State, to: State) {
        self.add_job_counts(lane, JobCounts::moved(from, to));
    }

    fn add_job_counts(&self, lane: i32, counts: JobCounts) {
        let mut collected = self.job_counts.borrow_mut();
        // Jobs of one lane mostly come together, and lanes are few.
        match collected.iter_mut().rev().find(|(known, _)| *known == lane) {
            Some((_, sum)) => *sum = sum.plus(counts),
            None => collected.push((lane, counts)),
        }
    }

    /// Writes what the transaction has counted.
    pub(super) fn write_job_counts(&self) -> Result<(), Error> {
        for (lane, counts) in self.job_counts.take() {
            if counts == JobCounts::default() {
                continue;
            }
            let JobCounts { live, scheduled, waiting, done, failed, cancelled } = counts;
            self.execute(sql::counts::ADD, params![lane, live, scheduled, waiting, done, failed, cancelled])?;
        }
        Ok(())
    }
}

/// Reads a lane and its counts.
fn read(row: &Row<'_>) -> rusqlite::Result<(i32, JobCounts)> {
    let counts = JobCounts {
        live: row.get(1)?,
        scheduled: row.get(2)?,
        waiting: row.get(3)?,
        done: row.get(4)?,
        failed: row.get(5)?,
        cancelled: row.get(6)?,
    };
    Ok((row.get(0)?, counts))
}

/// Reads the counts of all lanes.
pub(super) fn read_all(tx: &Tx<'_>) -> Result<Vec<(i32, JobCounts)>, Error> {
    tx.query_all(sql::counts::READ, [], read)
}

/// Counts all jobs, and returns the lanes whose counts differ from that.
pub(super) fn find_miscounts(tx: &Tx<'_>) -> Result<Vec<Miscount>, Error> {
    let mut lanes: BTreeMap<i32, (JobCounts, JobCounts)> = BTreeMap::new();
    for (lane, counts) in read_all(tx)? {
        lanes.entry(lane).or_default().0 = counts;
    }
    for (lane, counts) in tx.query_all(sql::counts::RECOUNT, [], read)? {
        lanes.entry(lane).or_default().1 = counts;
    }
    let differing = lanes.into_iter().filter(|(_, (maintained, counted))| maintained != counted);
    differing
        .map(|(lane, (maintained, counted))| Ok(Miscount::new(tx.store.lane(tx, lane)?, maintained, counted)))
        .collect()
}
