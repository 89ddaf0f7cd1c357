//! Sums of what ended and of waits for signals: summed up from the rows that other statements append, and read for people.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{BranchNo, Ended, Histogram, JobId, Time};

use super::{Postgres, change_params::Param, errors::PgError, sql, tx::Tx};
use crate::{
    BranchTimes, Error, RollUpReport, RollUpRequest, SignalWaitFilter, SignalWaits, Throughput,
    ThroughputFilter,
    rollup::{
        BranchKey, EndedBatch, EndedSums, ONE_MINUTE, SignalWaitSum, SumKey, ThroughputSum, WaitKey,
        WaitLengths, day_of, hour_of, kept_name, minute_from, minute_of, times_from_number,
    },
};

/// Before which minutes and days sums are merged or deleted; [`i32::MIN`] keeps all.
struct Bounds {
    /// Minutes before this one are added to their hours.
    hours: i32,
    /// Hours before this minute are deleted.
    minute: i32,
    /// Days before this one are deleted.
    day: i32,
}

impl Bounds {
    fn of(request: &RollUpRequest) -> Bounds {
        // Only whole hours, so that none is summed up in two parts.
        let hour = |at: Option<Time>| at.map_or(i32::MIN, |at| hour_of(minute_of(at)));
        Bounds {
            hours: hour(request.hours_before),
            minute: hour(request.delete_before),
            day: request.delete_before.map_or(i32::MIN, day_of),
        }
    }
}

/// Sums up what was recorded: see [`crate::Maintenance::roll_up`]. Reads first whether there is anything to do.
pub(super) async fn roll_up(store: &Postgres, request: &RollUpRequest) -> Result<RollUpReport, PgError> {
    let mut conn = store.conn().await?;
    let bounds = Bounds::of(request);
    let found = conn.read(sql::rollups::HAS_ROWS, &[&bounds.hours, &bounds.minute, &bounds.day]).await?;
    if !found.first().is_some_and(|row| row.get::<_, bool>(0)) {
        return Ok(RollUpReport::default());
    }
    let tx = Tx::write(&mut conn).await?;
    let report = roll_up_in(&tx, store, &bounds, request.limit).await;
    tx.finish(report).await
}

async fn roll_up_in(
    tx: &Tx<'_>,
    store: &Postgres,
    bounds: &Bounds,
    limit: usize,
) -> Result<RollUpReport, PgError> {
    let lock = format!("windlass roll-up of {}", store.shared.options.schema);
    let locked = tx.query(sql::rollups::TRY_LOCK, &[&lock]).await?;
    if !locked.first().is_some_and(|row| row.get::<_, bool>(0)) {
        return Ok(RollUpReport::default());
    }
    let limit = i64::try_from(limit.max(1)).unwrap_or(i64::MAX);
    let mut sums = EndedSums::default();
    let batches = tx.query(sql::rollups::TAKE_ENDED, &[&limit]).await?;
    batches.iter().for_each(|row| sums.add_batch(&read_batch(row)));
    let minutes = tx.query(sql::rollups::TAKE_MINUTES, &[&bounds.hours, &limit]).await?;
    for row in &minutes {
        let (key, ended) = read_sum(row)?;
        sums.add_to_hour(key, &ended);
    }
    write_ended(tx, sums).await?;
    let waits = roll_up_waits(tx, limit).await?;
    let hours = tx.execute(sql::rollups::DELETE_SUMS, &[&bounds.minute, &limit]).await? as usize;
    let days = tx.execute(sql::rollups::DELETE_WAITS, &[&bounds.day, &limit]).await? as usize;
    let more = [batches.len(), waits, minutes.len(), hours, days].iter().any(|rows| *rows as i64 >= limit);
    Ok(RollUpReport { rows: batches.len() + waits, minutes: minutes.len(), deleted: hours + days, more })
}

/// Adds to the sums of periods and branches, which nobody else writes meanwhile.
async fn write_ended(tx: &Tx<'_>, mut sums: EndedSums) -> Result<(), PgError> {
    if !sums.periods.is_empty() {
        let (minutes, starts, lanes) = period_columns(&sums);
        for row in tx.query(sql::rollups::READ_SUMS, &[&minutes, &starts, &lanes]).await? {
            let (key, ended) = read_sum(&row)?;
            sums.add_period(key, &ended);
        }
        let count =
            |of: fn(&Ended) -> u64| -> Vec<i64> { sums.periods.values().map(|sum| of(sum) as i64).collect() };
        let (done, failed) = (count(|sum| sum.done), count(|sum| sum.failed));
        let (cancelled, retried) = (count(|sum| sum.cancelled), count(|sum| sum.retried));
        let waits: Vec<Vec<u8>> = sums.periods.values().map(|sum| sum.wait_times.encode()).collect();
        let runs: Vec<Vec<u8>> = sums.periods.values().map(|sum| sum.run_times.encode()).collect();
        let params: [Param<'_>; 9] =
            [&minutes, &starts, &lanes, &done, &failed, &cancelled, &retried, &waits, &runs];
        tx.execute(sql::rollups::WRITE_SUMS, &params).await?;
    }
    if !sums.branches.is_empty() {
        let (jobs, numbers) = branch_columns(&sums);
        for row in tx.query(sql::rollups::READ_BRANCH_TIMES, &[&jobs, &numbers]).await? {
            let key: BranchKey = (JobId(row.get(0)), BranchNo(row.get(1)));
            sums.add_branch(key, &read_branch(&row, 1)?);
        }
        let (first, last): (Vec<Option<i64>>, Vec<Option<i64>>) = sums
            .branches
            .values()
            .map(|times| (times.first_start_at.map(Time::micros), times.last_end_at.map(Time::micros)))
            .unzip();
        let waits: Vec<Vec<u8>> = sums.branches.values().map(|times| times.wait_times.encode()).collect();
        let runs: Vec<Vec<u8>> = sums.branches.values().map(|times| times.run_times.encode()).collect();
        let params: [Param<'_>; 6] = [&jobs, &numbers, &first, &last, &waits, &runs];
        tx.execute(sql::rollups::WRITE_BRANCH_TIMES, &params).await?;
    }
    Ok(())
}

fn period_columns(sums: &EndedSums) -> (Vec<i16>, Vec<i32>, Vec<i32>) {
    let keys: Vec<SumKey> = sums.periods.keys().copied().collect();
    let starts = keys.iter().map(|(_, starts, _)| *starts).collect();
    (
        keys.iter().map(|(minutes, ..)| *minutes).collect(),
        starts,
        keys.iter().map(|(.., lane)| *lane).collect(),
    )
}

fn branch_columns(sums: &EndedSums) -> (Vec<Uuid>, Vec<i64>) {
    sums.branches.keys().map(|(job, number)| (job.0, number.0)).unzip()
}

/// Sums up recorded waits. Returns how many rows it took.
async fn roll_up_waits(tx: &Tx<'_>, limit: i64) -> Result<usize, PgError> {
    let rows = tx.query(sql::rollups::TAKE_WAITS, &[&limit]).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    let kinds: BTreeSet<i32> = rows.iter().map(|row| row.get(0)).collect();
    let kinds: Vec<i32> = kinds.into_iter().collect();
    let mut kept: BTreeMap<i32, BTreeSet<String>> = BTreeMap::new();
    for row in tx.query(sql::rollups::KEPT_SIGNALS, &[&kinds]).await? {
        kept.entry(row.get(0)).or_default().insert(row.get(1));
    }
    let mut sums: BTreeMap<WaitKey<i32>, WaitLengths> = BTreeMap::new();
    for row in &rows {
        let kind = row.get(0);
        let signal = kept_name(kept.entry(kind).or_default(), row.get(1)).to_owned();
        sums.entry((kind, signal, row.get(2))).or_default().merge(&recorded_lengths(row, 3));
    }
    let kinds: Vec<i32> = sums.keys().map(|(kind, ..)| *kind).collect();
    let signals: Vec<String> = sums.keys().map(|(_, signal, _)| signal.clone()).collect();
    let days: Vec<i32> = sums.keys().map(|(.., day)| *day).collect();
    for row in tx.query(sql::rollups::READ_WAITS, &[&kinds, &signals, &days]).await? {
        sums.entry((row.get(0), row.get(1), row.get(2))).or_default().merge(&summed_lengths(&row, 3)?);
    }
    let arrived: Vec<Vec<u8>> = sums.values().map(|sum| sum.arrived.encode()).collect();
    let timed_out: Vec<Vec<u8>> = sums.values().map(|sum| sum.timed_out.encode()).collect();
    tx.execute(sql::rollups::WRITE_WAITS, &[&kinds, &signals, &days, &arrived, &timed_out]).await?;
    Ok(rows.len())
}

pub(super) fn histogram(bytes: &[u8]) -> Result<Histogram, Error> {
    Histogram::decode(bytes).ok_or_else(|| Error::Fault("a histogram of the store cannot be decoded".into()))
}

/// Reads minutes, start, lane, four counts and two histograms.
fn read_sum(row: &Row) -> Result<(SumKey, Ended), Error> {
    let count = |column: usize| row.get::<_, i64>(column) as u64;
    let ended = Ended {
        done: count(3),
        failed: count(4),
        cancelled: count(5),
        retried: count(6),
        wait_times: histogram(row.get(7))?,
        run_times: histogram(row.get(8))?,
    };
    Ok(((row.get(0), row.get(1), row.get(2)), ended))
}

/// Reads the times of attempts that a row has recorded.
fn read_times(row: &Row, column: usize) -> Vec<windlass_model::AttemptTimes> {
    let numbers = row.get::<_, Option<Vec<i16>>>(column).unwrap_or_default();
    numbers.into_iter().map(times_from_number).collect()
}

/// Reads what a transaction has recorded, in the columns of `rollups.take_ended`.
fn read_batch(row: &Row) -> EndedBatch {
    let branch = row.get::<_, Option<Uuid>>(2).zip(row.get::<_, Option<i64>>(3));
    let count = |column: usize| row.get::<_, i32>(column) as u64;
    let (done, failed, cancelled, retried) = (count(4), count(5), count(6), count(7));
    EndedBatch {
        counts: Ended { done, failed, cancelled, retried, ..Ended::default() },
        first_start_at: row.get::<_, Option<i64>>(8).map(Time),
        last_end_at: row.get::<_, Option<i64>>(9).map(Time),
        times: read_times(row, 10),
        ..EndedBatch::new(row.get(0), row.get(1), branch.map(|(job, number)| (JobId(job), BranchNo(number))))
    }
}

/// Reads number, first start, last end and two histograms.
fn read_branch(row: &Row, from: usize) -> Result<BranchTimes, Error> {
    Ok(BranchTimes {
        branch: BranchNo(row.get(from)),
        first_start_at: row.get::<_, Option<i64>>(from + 1).map(Time),
        last_end_at: row.get::<_, Option<i64>>(from + 2).map(Time),
        wait_times: histogram(row.get(from + 3))?,
        run_times: histogram(row.get(from + 4))?,
    })
}

/// Reads two histograms of lengths of waits.
fn summed_lengths(row: &Row, from: usize) -> Result<WaitLengths, Error> {
    Ok(WaitLengths { arrived: histogram(row.get(from))?, timed_out: histogram(row.get(from + 1))? })
}

/// Reads two lists of buckets of lengths of waits.
fn recorded_lengths(row: &Row, from: usize) -> WaitLengths {
    let of = |column: usize| {
        let mut histogram = Histogram::default();
        row.get::<_, Vec<i16>>(column).into_iter().for_each(|bucket| histogram.add(bucket as u8, 1));
        histogram
    };
    WaitLengths { arrived: of(from), timed_out: of(from + 1) }
}

impl Postgres {
    pub(super) async fn read_throughput(&self, filter: &ThroughputFilter) -> Result<Vec<Throughput>, Error> {
        let conn = self.conn().await?;
        let (from, until) = (minute_from(filter.from), minute_from(filter.until));
        let rows = conn.read(sql::rollups::THROUGHPUT, &[&from, &until]).await?;
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(2))).await?;
        let mut sum = ThroughputSum::new(filter);
        for row in &rows {
            let lane = self.lane(row.get(2))?;
            if row.get::<_, Option<&[u8]>>(7).is_some() {
                let ((minutes, starts, _), ended) = read_sum(row)?;
                sum.add(minutes, starts, &lane.queue, &lane.kind.kind, &ended);
                continue;
            }
            let count = |column: usize| row.get::<_, i64>(column) as u64;
            let (done, failed, cancelled, retried) = (count(3), count(4), count(5), count(6));
            let mut ended = Ended { done, failed, cancelled, retried, ..Ended::default() };
            read_times(row, 9).into_iter().for_each(|times| ended.add_times(times));
            sum.add(ONE_MINUTE, row.get(1), &lane.queue, &lane.kind.kind, &ended);
        }
        Ok(sum.rows())
    }

    pub(super) async fn read_signal_waits(
        &self,
        filter: &SignalWaitFilter,
    ) -> Result<Vec<SignalWaits>, Error> {
        let kinds = (!filter.kinds.is_empty()).then_some(&filter.kinds);
        let rows = self.conn().await?.read(sql::rollups::SIGNAL_WAITS, &[&kinds]).await?;
        let mut sum = SignalWaitSum::new(filter);
        for row in &rows {
            let lengths = match row.get::<_, Option<&[u8]>>(3) {
                Some(_) => summed_lengths(row, 3)?,
                None => recorded_lengths(row, 5),
            };
            sum.add(row.get(0), row.get(1), row.get(2), &lengths);
        }
        Ok(sum.rows())
    }

    pub(super) async fn read_branch_times(&self, job: JobId) -> Result<Vec<BranchTimes>, Error> {
        let rows = self.conn().await?.read(sql::rollups::BRANCH_TIMES, &[&job.0]).await?;
        let mut sums = EndedSums::default();
        for row in &rows {
            let times = match row.get::<_, Option<&[u8]>>(3) {
                Some(_) => read_branch(row, 0)?,
                None => {
                    let mut ended = Ended::default();
                    read_times(row, 5).into_iter().for_each(|times| ended.add_times(times));
                    BranchTimes {
                        branch: BranchNo(row.get(0)),
                        first_start_at: row.get::<_, Option<i64>>(1).map(Time),
                        last_end_at: row.get::<_, Option<i64>>(2).map(Time),
                        wait_times: ended.wait_times,
                        run_times: ended.run_times,
                    }
                }
            };
            sums.add_branch((job, times.branch), &times);
        }
        Ok(sums.branches.into_values().collect())
    }
}
