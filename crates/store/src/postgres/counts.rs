//! The number of jobs in each state, per lane.
//!
//! Statements that add, move or delete jobs count them, each in one row per lane that belongs to the connection. What is moved by
//! several statements is counted by [`add`].

use std::collections::BTreeMap;

use tokio_postgres::Row;
use windlass_model::JobCounts;

use super::{Postgres, change_params::Param, errors::PgError, sql, tx::Tx};
use crate::{Error, Miscount, columns::LaneCounts, intern::Lane};

/// Adds to the counts of lanes, in the rows of the connection.
pub(super) async fn add(tx: &Tx<'_>, moved: impl Iterator<Item = (i32, JobCounts)>) -> Result<(), PgError> {
    let mut lanes: BTreeMap<i32, JobCounts> = BTreeMap::new();
    for (lane, counts) in moved {
        let sum = lanes.entry(lane).or_default();
        *sum = sum.plus(counts);
    }
    lanes.retain(|_, counts| *counts != JobCounts::default());
    if lanes.is_empty() {
        return Ok(());
    }
    let ids: Vec<i32> = lanes.keys().copied().collect();
    let column = |of: fn(&JobCounts) -> i64| -> Vec<i64> { lanes.values().map(of).collect() };
    let (live, scheduled) = (column(|counts| counts.live), column(|counts| counts.scheduled));
    let (waiting, done) = (column(|counts| counts.waiting), column(|counts| counts.done));
    let (failed, cancelled) = (column(|counts| counts.failed), column(|counts| counts.cancelled));
    let params: [Param<'_>; 8] =
        [&tx.count_writer, &ids, &live, &scheduled, &waiting, &done, &failed, &cancelled];
    tx.execute(sql::counts::ADD_DIFFERENCES, &params).await.map(drop)
}

/// Reads counts, from this column on.
pub(super) fn read(row: &Row, from: usize) -> JobCounts {
    let column = |n: usize| row.get::<_, i64>(from + n);
    JobCounts {
        live: column(0),
        scheduled: column(1),
        waiting: column(2),
        done: column(3),
        failed: column(4),
        cancelled: column(5),
    }
}

impl Postgres {
    /// Reads how many jobs of each lane are in which state, from the counts that are maintained.
    pub(super) async fn lane_counts(&self) -> Result<Vec<(Lane, LaneCounts)>, Error> {
        let conn = self.conn().await?;
        let rows = conn.read(sql::counts::READ, &[]).await?;
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(0))).await?;
        let count = |row: &Row| {
            let running = u64::try_from(row.get::<_, i64>(7)).unwrap_or(0);
            Ok((self.lane(row.get(0))?, read(row, 1).by_state(running)))
        };
        rows.iter().map(count).collect()
    }

    /// Counts all jobs, and returns the lanes whose counts differ from that.
    pub(super) async fn find_miscounts(&self) -> Result<Vec<Miscount>, Error> {
        let conn = self.conn().await?;
        let rows = conn.read(sql::counts::RECOUNT, &[]).await?;
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(0))).await?;
        let miscount = |row: &Row| Ok(Miscount::new(self.lane(row.get(0))?, read(row, 1), read(row, 7)));
        rows.iter().map(miscount).collect()
    }
}
