//! Sums of what ended and of waits for signals: recorded at the end of a transaction, summed up by roll-ups, and read for people.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Row, params};
use windlass_model::{BranchNo, Ended, Histogram, JobId, State, Time};

use super::{
    Sqlite,
    branch::{BranchKey, read_member},
    serial::Placement,
    sql,
    tx::{Tx, read_id},
    views::row_limit,
};
use crate::{
    BranchTimes, Error, RollUpReport, RollUpRequest, SignalWaitFilter, SignalWaits, Throughput,
    ThroughputFilter, columns,
    rollup::{
        EndedBatch, EndedSums, SignalWaitSum, SumKey, ThroughputSum, WaitKey, WaitLengths, day_of, hour_of,
        kept_name, minute_from, minute_of, times_from_bytes,
    },
};

/// What a transaction ends.
#[derive(Default)]
pub(super) struct Recorded {
    ended: Vec<EndedBatch>,
    /// By number of the kind.
    waits: BTreeMap<WaitKey<i32>, WaitLengths>,
}

impl Tx<'_> {
    fn record(&self, now: Time, lane: i32, branch: Option<BranchKey>, add: impl FnOnce(&mut EndedBatch)) {
        let ended = &mut self.recorded.borrow_mut().ended;
        let minute = minute_of(now);
        // Jobs of one lane and branch mostly come together, and both are few.
        let known = |batch: &EndedBatch| (batch.lane, batch.minute, batch.branch) == (lane, minute, branch);
        match ended.iter_mut().rev().find(|batch| known(batch)) {
            Some(batch) => add(batch),
            None => {
                let mut batch = EndedBatch::new(lane, minute, branch);
                add(&mut batch);
                ended.push(batch);
            }
        }
    }

    /// Records that a job has ended; `attempt` is when the attempt that ended it was due and started.
    pub(super) fn record_end(
        &self,
        now: Time,
        lane: i32,
        state: State,
        branch: Option<BranchKey>,
        attempt: Option<(Time, Time)>,
    ) {
        self.record(now, lane, branch, |batch| batch.add(state, now, attempt));
    }

    /// Records that a job was ended from outside of an attempt.
    pub(super) fn record_end_outside(
        &self,
        now: Time,
        placement: &Placement,
        state: State,
    ) -> Result<(), Error> {
        let member = if placement.in_branch { read_member(self, placement.id)? } else { None };
        let branch = member.and_then(|member| member.branch_member);
        let branch = branch.map(|member| (member.parent, member.branch));
        self.record_end(now, placement.lane, state, branch, None);
        Ok(())
    }

    /// Records that an attempt failed and another one follows.
    pub(super) fn record_retry(&self, now: Time, lane: i32) {
        self.record(now, lane, None, |batch| batch.counts.retried += 1);
    }

    /// Records how long a parked job has waited for signals, whose wait ends now: because it is met, or because its time is over.
    pub(super) fn record_wait(&self, now: Time, placement: &Placement, timed_out: bool) -> Result<(), Error> {
        let id = placement.id.as_bytes();
        let found = self.query_one(sql::inspect::WAIT, [id], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<i64>>(3)?.map(Time)))
        })?;
        let Some((wait, parked_at)) = found else { return Ok(()) };
        let Some(wait) = columns::Decoder::default().wait(wait.as_deref()) else { return Ok(()) };
        if wait.names().next().is_none() {
            return Ok(());
        }
        let inbox: Vec<String> = self.query_all(sql::signals::INBOX_NAMES, [id], |row| row.get(0))?;
        let names = wait.names_of_ended(inbox.iter().map(String::as_str), timed_out);
        self.record_wait_for(now, placement.lane, parked_at, &names, timed_out)
    }

    /// The same for a job of this lane and for signals of these names.
    pub(super) fn record_wait_for(
        &self,
        now: Time,
        lane: i32,
        parked_at: Option<Time>,
        names: &[&str],
        timed_out: bool,
    ) -> Result<(), Error> {
        let Some(parked_at) = parked_at.filter(|_| !names.is_empty()) else { return Ok(()) };
        let kind = self.store.lane(self, lane)?.kind_id;
        let waits = &mut self.recorded.borrow_mut().waits;
        for name in names {
            let key = (kind, (*name).to_owned(), day_of(now));
            waits.entry(key).or_default().add(now - parked_at, timed_out);
        }
        Ok(())
    }

    /// Appends what was recorded.
    pub(super) fn append_recorded(&self) -> Result<(), Error> {
        let Recorded { ended, waits } = self.recorded.take();
        for batch in ended {
            let Ended { done, failed, cancelled, retried, .. } = batch.counts;
            let params = params![
                batch.lane,
                batch.minute,
                batch.branch.map(|(parent, _)| *parent.as_bytes()),
                batch.branch.map(|(_, number)| number.0),
                done as i64,
                failed as i64,
                cancelled as i64,
                retried as i64,
                batch.first_start_at.map(Time::micros),
                batch.last_end_at.map(Time::micros),
                batch.times_bytes(),
            ];
            self.execute(sql::rollups::APPEND_ENDED, params)?;
        }
        for ((kind, signal, day), WaitLengths { arrived, timed_out }) in waits {
            let params = params![kind, signal, day, arrived.encode(), timed_out.encode()];
            self.execute(sql::rollups::APPEND_WAITS, params)?;
        }
        Ok(())
    }
}

/// Sums up what was recorded: see [`crate::Maintenance::roll_up`]. Checks without the write lock first. If a loss of power undoes it,
/// the rows are there again.
pub(super) async fn roll_up(store: &Sqlite, request: &RollUpRequest) -> Result<RollUpReport, Error> {
    // Only whole hours, so that none is summed up in two parts.
    let hour = |at: Option<Time>| at.map_or(i32::MIN, |at| hour_of(minute_of(at)));
    let (hours_before, minute) = (hour(request.hours_before), hour(request.delete_before));
    let day = request.delete_before.map_or(i32::MIN, day_of);
    let params = [hours_before, minute, day];
    if !store.read(|tx| tx.query_one(sql::rollups::HAS_ROWS, params, |row| row.get(0)))?.unwrap_or(false) {
        return Ok(RollUpReport::default());
    }
    let limit = request.limit.max(1);
    store
        .write_unsynced(limit, |tx| {
            let mut sums = EndedSums::default();
            let batches = take_ended(tx, &mut sums, limit)?;
            let minutes = take_minutes(tx, &mut sums, hours_before, limit)?;
            write_ended(tx, sums)?;
            let waits = roll_up_waits(tx, limit)?;
            let deleted = tx.execute(sql::rollups::DELETE_HOURS, [minute])?
                + tx.execute(sql::rollups::DELETE_WAITS, [day])?;
            let more = [batches, minutes, waits].iter().any(|rows| *rows >= limit);
            Ok(RollUpReport { rows: batches + waits, minutes, deleted, more })
        })
        .await
}

/// Reads recorded ends, with their row numbers.
fn read_recorded(
    tx: &Tx<'_>,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<(i64, EndedBatch)>, Error> {
    tx.query_all(sql, params, |row| {
        let branch = match row.get::<_, Option<i64>>(4)? {
            Some(number) => Some((read_id(row, 3)?, BranchNo(number))),
            None => None,
        };
        let count = |column: usize| row.get::<_, i64>(column).map(|count| count as u64);
        let (done, failed, cancelled, retried) = (count(5)?, count(6)?, count(7)?, count(8)?);
        let batch = EndedBatch {
            counts: Ended { done, failed, cancelled, retried, ..Ended::default() },
            first_start_at: row.get::<_, Option<i64>>(9)?.map(Time),
            last_end_at: row.get::<_, Option<i64>>(10)?.map(Time),
            times: times_from_bytes(&row.get::<_, Vec<u8>>(11)?),
            ..EndedBatch::new(row.get(1)?, row.get(2)?, branch)
        };
        Ok((row.get(0)?, batch))
    })
}

/// Takes recorded ends. Returns how many rows.
fn take_ended(tx: &Tx<'_>, sums: &mut EndedSums, limit: usize) -> Result<usize, Error> {
    let recorded = read_recorded(tx, sql::rollups::READ_ENDED, [row_limit(limit)])?;
    if let Some((last, _)) = recorded.last() {
        tx.execute(sql::rollups::DELETE_ENDED, [last])?;
    }
    recorded.iter().for_each(|(_, batch)| sums.add_batch(batch));
    Ok(recorded.len())
}

/// Takes sums of minutes before a minute, and adds them to their hours. Returns how many.
fn take_minutes(tx: &Tx<'_>, sums: &mut EndedSums, before: i32, limit: usize) -> Result<usize, Error> {
    let found = read_sums(tx, sql::rollups::READ_MINUTES, params![before, row_limit(limit)])?;
    for (key, ended) in &found {
        tx.execute(sql::rollups::DELETE_SUM, params![key.0, key.1, key.2])?;
        sums.add_to_hour(*key, ended);
    }
    Ok(found.len())
}

/// Reads minutes, start, lane, four counts and two histograms of each row.
fn read_sums(tx: &Tx<'_>, sql: &str, params: impl rusqlite::Params) -> Result<Vec<(SumKey, Ended)>, Error> {
    let rows = tx.query_all(sql, params, |row| {
        let key = (row.get(0)?, row.get(1)?, row.get(2)?);
        let counts = [row.get::<_, i64>(3)?, row.get(4)?, row.get(5)?, row.get(6)?];
        Ok((key, counts.map(|count| count as u64), row.get::<_, Vec<u8>>(7)?, row.get::<_, Vec<u8>>(8)?))
    })?;
    let sum =
        |(key, [done, failed, cancelled, retried], waits, runs): (SumKey, [u64; 4], Vec<u8>, Vec<u8>)| {
            let (wait_times, run_times) = (histogram(&waits)?, histogram(&runs)?);
            Ok((key, Ended { done, failed, cancelled, retried, wait_times, run_times }))
        };
    rows.into_iter().map(sum).collect()
}

/// Adds to the sums of periods and branches.
fn write_ended(tx: &Tx<'_>, mut sums: EndedSums) -> Result<(), Error> {
    let keys: Vec<SumKey> = sums.periods.keys().copied().collect();
    for key in keys {
        for (key, ended) in read_sums(tx, sql::rollups::READ_SUM, params![key.0, key.1, key.2])? {
            sums.add_period(key, &ended);
        }
    }
    for ((minutes, starts, lane), ended) in &sums.periods {
        let params = params![
            minutes,
            starts,
            lane,
            ended.done as i64,
            ended.failed as i64,
            ended.cancelled as i64,
            ended.retried as i64,
            ended.wait_times.encode(),
            ended.run_times.encode(),
        ];
        tx.execute(sql::rollups::WRITE_SUM, params)?;
    }
    let keys: Vec<BranchKey> = sums.branches.keys().copied().collect();
    for (job, number) in keys {
        let params = params![job.as_bytes(), number.0];
        for times in read_branch_times(tx, sql::rollups::READ_BRANCH_TIMES, params)? {
            sums.add_branch((job, number), &times);
        }
    }
    for ((job, number), times) in &sums.branches {
        let params = params![
            job.as_bytes(),
            number.0,
            times.first_start_at.map(Time::micros),
            times.last_end_at.map(Time::micros),
            times.wait_times.encode(),
            times.run_times.encode(),
        ];
        tx.execute(sql::rollups::WRITE_BRANCH_TIMES, params)?;
    }
    Ok(())
}

/// Reads number, first start, last end and two histograms of each row.
fn read_branch_times(
    tx: &Tx<'_>,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<BranchTimes>, Error> {
    let rows = tx.query_all(sql, params, |row| {
        let times = BranchTimes {
            branch: BranchNo(row.get(0)?),
            first_start_at: row.get::<_, Option<i64>>(1)?.map(Time),
            last_end_at: row.get::<_, Option<i64>>(2)?.map(Time),
            ..BranchTimes::default()
        };
        Ok((times, row.get::<_, Vec<u8>>(3)?, row.get::<_, Vec<u8>>(4)?))
    })?;
    let with_histograms = |(times, waits, runs): (BranchTimes, Vec<u8>, Vec<u8>)| {
        Ok(BranchTimes { wait_times: histogram(&waits)?, run_times: histogram(&runs)?, ..times })
    };
    rows.into_iter().map(with_histograms).collect()
}

/// Sums up recorded waits. Returns how many rows it took.
fn roll_up_waits(tx: &Tx<'_>, limit: usize) -> Result<usize, Error> {
    let rows = tx.query_all(sql::rollups::READ_RECORDED_WAITS, [row_limit(limit)], |row| {
        let key: WaitKey<i32> = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok((row.get::<_, i64>(0)?, key, row.get::<_, Vec<u8>>(4)?, row.get::<_, Vec<u8>>(5)?))
    })?;
    let Some((last, ..)) = rows.last() else { return Ok(0) };
    tx.execute(sql::rollups::DELETE_RECORDED_WAITS, [last])?;
    let mut kept: BTreeMap<i32, BTreeSet<String>> = BTreeMap::new();
    let mut sums: BTreeMap<WaitKey<i32>, WaitLengths> = BTreeMap::new();
    for (_, (kind, signal, day), arrived, timed_out) in &rows {
        if !kept.contains_key(kind) {
            let names = tx.query_all(sql::rollups::KEPT_SIGNALS, [kind], |row| row.get(0))?;
            kept.insert(*kind, names.into_iter().collect());
        }
        let signal = kept_name(kept.entry(*kind).or_default(), signal).to_owned();
        sums.entry((*kind, signal, *day)).or_default().merge(&lengths(arrived, timed_out)?);
    }
    for ((kind, signal, day), sum) in &mut sums {
        let before = tx.query_one(sql::rollups::READ_WAITS, params![kind, signal, day], |row| {
            Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?))
        })?;
        if let Some((arrived, timed_out)) = before {
            sum.merge(&lengths(&arrived, &timed_out)?);
        }
        let params = params![kind, signal, day, sum.arrived.encode(), sum.timed_out.encode()];
        tx.execute(sql::rollups::WRITE_WAITS, params)?;
    }
    Ok(rows.len())
}

pub(super) fn histogram(bytes: &[u8]) -> Result<Histogram, Error> {
    Histogram::decode(bytes).ok_or_else(|| Error::Fault("a histogram of the store cannot be decoded".into()))
}

fn lengths(arrived: &[u8], timed_out: &[u8]) -> Result<WaitLengths, Error> {
    Ok(WaitLengths { arrived: histogram(arrived)?, timed_out: histogram(timed_out)? })
}

/// Reads what ended.
pub(super) fn throughput(tx: &Tx<'_>, filter: &ThroughputFilter) -> Result<Vec<Throughput>, Error> {
    let params = params![minute_from(filter.from), minute_from(filter.until)];
    let mut sum = ThroughputSum::new(filter);
    for ((minutes, starts, lane), ended) in read_sums(tx, sql::rollups::THROUGHPUT, params)? {
        let lane = tx.store.lane(tx, lane)?;
        sum.add(minutes, starts, &lane.queue, &lane.kind.kind, &ended);
    }
    for (_, batch) in read_recorded(tx, sql::rollups::READ_ENDED, [i64::MAX])? {
        let lane = tx.store.lane(tx, batch.lane)?;
        sum.add_batch(&batch, &lane.queue, &lane.kind.kind);
    }
    Ok(sum.rows())
}

/// Reads the times of the branches of a job.
pub(super) fn branch_times(tx: &Tx<'_>, job: JobId) -> Result<Vec<BranchTimes>, Error> {
    let mut sums = EndedSums::default();
    let recorded = read_recorded(tx, sql::rollups::RECORDED_OF_JOB, [job.as_bytes()])?;
    recorded.iter().for_each(|(_, batch)| sums.add_batch(batch));
    for times in read_branch_times(tx, sql::rollups::BRANCH_TIMES, [job.as_bytes()])? {
        sums.add_branch((job, times.branch), &times);
    }
    Ok(sums.branches.into_values().collect())
}

/// Reads how long waits for signals took.
pub(super) fn signal_waits(tx: &Tx<'_>, filter: &SignalWaitFilter) -> Result<Vec<SignalWaits>, Error> {
    type Columns = (String, String, i32, Vec<u8>, Vec<u8>);
    let columns = |row: &Row<'_>| -> rusqlite::Result<Columns> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
    };
    let mut rows = match filter.kinds.as_slice() {
        [] => tx.query_all(sql::rollups::SIGNAL_WAITS, [], columns)?,
        kinds => {
            let mut rows = Vec::new();
            for kind in kinds {
                rows.extend(tx.query_all(sql::rollups::SIGNAL_WAITS_OF, [kind], columns)?);
            }
            rows
        }
    };
    rows.extend(tx.query_all(sql::rollups::RECORDED_WAITS, [], columns)?);
    let mut sum = SignalWaitSum::new(filter);
    for (kind, signal, day, arrived, timed_out) in rows {
        sum.add(&kind, &signal, day, &lengths(&arrived, &timed_out)?);
    }
    Ok(sum.rows())
}
