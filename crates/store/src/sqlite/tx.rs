//! One transaction on a connection: counts statements, and collects what is written at the end of every verb.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use rusqlite::{CachedStatement, Connection, params};
use windlass_model::{ClaimNo, Epoch, JobCounts, JobId, Time, WorkerId};

use super::{
    Sqlite,
    branch::Counts,
    open_claims::{ClaimKey, ClaimedJobs},
    rollups::Recorded,
    sql,
};
use crate::{Error, Now, list::period_of};

/// The numbers of the gates of timers and of cancel requests.
pub(super) const TIMER_GATE_ID: i32 = 0;
pub(super) const CANCEL_GATE_ID: i32 = -1;

/// One transaction. Collects the gates to move, the serial keys whose slots to fill, the counts of branches and jobs, and what it
/// ends, which [`Tx::finish`] writes.
pub(super) struct Tx<'a> {
    pub(super) conn: &'a Connection,
    pub(super) store: &'a Sqlite,
    pub(super) statements: Cell<u64>,
    pub(super) gates: RefCell<BTreeSet<i32>>,
    /// Serial keys whose slots or waiting jobs have changed.
    pub(super) unsettled: RefCell<BTreeSet<i64>>,
    /// Counts of branches that have changed.
    pub(super) counts: RefCell<Counts>,
    /// How it moves jobs, per lane.
    pub(super) job_counts: RefCell<Vec<(i32, JobCounts)>>,
    /// Lanes and periods in which it adds jobs.
    pub(super) periods: RefCell<Vec<(i32, i64)>>,
    /// What it ends, to be recorded.
    pub(super) recorded: RefCell<Recorded>,
    /// Claims that were looked up, and whether they are recorded.
    pub(super) claims: RefCell<BTreeMap<(WorkerId, ClaimNo), bool>>,
    /// The last of them.
    pub(super) last_claim: Cell<Option<((WorkerId, ClaimNo), bool)>>,
    /// How many jobs have left which claims.
    pub(super) left: RefCell<Vec<(ClaimKey, usize)>>,
    /// The claim that it has made, and its jobs.
    pub(super) made_claim: RefCell<Option<(ClaimKey, ClaimedJobs)>>,
}

impl<'a> Tx<'a> {
    pub(super) fn new(conn: &'a Connection, store: &'a Sqlite) -> Tx<'a> {
        let (gates, unsettled, counts) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (claims, last_claim, left) = (RefCell::default(), Cell::default(), RefCell::default());
        let (statements, job_counts, made_claim) = (Cell::default(), RefCell::default(), RefCell::default());
        let periods = RefCell::default();
        Tx {
            conn,
            store,
            statements,
            gates,
            unsettled,
            counts,
            job_counts,
            periods,
            recorded: RefCell::default(),
            claims,
            last_claim,
            left,
            made_claim,
        }
    }

    /// The time of the verb.
    pub(super) fn now(&self, now: Now) -> Time {
        // All processes that share the file are on one machine, so its clock is the store's clock.
        now.unwrap_or_else(|| Time::from_system(SystemTime::now()))
    }

    /// A prepared statement, counted as sent once.
    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'a>, Error> {
        self.statements.set(self.statements.get() + 1);
        Ok(self.conn.prepare_cached(sql)?)
    }

    /// Runs a statement that returns no rows. Returns how many rows it changed.
    pub(super) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, Error> {
        Ok(self.prepare(sql)?.execute(params)?)
    }

    /// Runs a statement that returns at most one row.
    pub(super) fn query_one<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        let answer = rows.next()?.map(read).transpose()?;
        // A statement that writes and returns rows writes while it is stepped: step to the end.
        while rows.next()?.is_some() {}
        Ok(answer)
    }

    /// Runs a statement and reads all its rows.
    pub(super) fn query_all<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let mut statement = self.prepare(sql)?;
        let rows = statement.query_map(params, read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Notes that a job has left its claim.
    pub(super) fn note_left_claim(&self, claim: (WorkerId, ClaimNo)) {
        let mut left = self.left.borrow_mut();
        match left.last_mut() {
            // Jobs of one claim mostly come together.
            Some((last, count)) if *last == claim => *count += 1,
            _ => left.push((claim, 1)),
        }
    }

    /// Notes that a job was added to a lane: lists find the jobs of a lane by the periods of their ids.
    pub(super) fn note_period(&self, lane: i32, job: JobId) {
        let period = (lane, period_of(job));
        let mut periods = self.periods.borrow_mut();
        // Jobs of one period mostly come together.
        if periods.last() != Some(&period) {
            periods.push(period);
        }
    }

    /// Moves a gate when the transaction commits.
    pub(super) fn bump_gate(&self, queue: i32) {
        self.gates.borrow_mut().insert(queue);
    }

    /// Sets a timer, and moves the gate of timers.
    pub(super) fn set_timer(&self, at: Time, job: JobId, purpose: i16) -> Result<(), Error> {
        self.execute(sql::timers::ADD, params![at.micros(), job.as_bytes(), purpose])?;
        self.bump_gate(TIMER_GATE_ID);
        Ok(())
    }

    /// Deletes a timer. Returns whether it existed.
    pub(super) fn delete_timer(&self, at: Time, job: JobId, purpose: i16) -> Result<bool, Error> {
        let params = params![at.micros(), job.as_bytes(), purpose];
        Ok(self.execute(sql::timers::REMOVE, params)? == 1)
    }

    /// The end of every verb: fills free serial slots, writes the counts of branches and jobs and the periods of lanes, records what
    /// has ended, then moves the gates.
    pub(super) fn finish(&self) -> Result<(), Error> {
        self.fill_serial_slots()?;
        self.settle_counts()?;
        self.write_job_counts()?;
        for (lane, period) in self.periods.take().into_iter().collect::<BTreeSet<_>>() {
            self.execute(sql::submit::ADD_PERIOD, params![lane, period])?;
        }
        self.append_recorded()?;
        for queue in self.gates.take() {
            let params = params![queue, self.store.shared.gate_writer, fastrand::i64(1..1 << 40)];
            self.execute(sql::gates::BUMP, params)?;
        }
        Ok(())
    }
}

/// Decodes a job id.
pub(super) fn job_id(bytes: &[u8]) -> Result<JobId, Error> {
    let bytes = bytes.try_into().map_err(|_| Error::Fault(format!("a job id of {} bytes", bytes.len())))?;
    Ok(JobId::from_bytes(bytes))
}

/// Reads a job id from a column.
pub(super) fn read_id(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<JobId> {
    Ok(JobId::from_bytes(row.get(column)?))
}

/// The size of a job in a packed claim: its id and its epoch.
pub(super) const PAIR_BYTES: usize = 20;

/// Packs the jobs of a claim, as the table `claims` describes.
pub(super) fn pack(pairs: &[(JobId, Epoch)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pairs.len() * PAIR_BYTES);
    for (id, epoch) in pairs {
        bytes.extend_from_slice(id.as_bytes());
        bytes.extend_from_slice(&epoch.0.to_be_bytes());
    }
    bytes
}

/// Unpacks the jobs of a claim.
pub(super) fn unpack(bytes: &[u8]) -> Result<Vec<(JobId, Epoch)>, Error> {
    if !bytes.len().is_multiple_of(PAIR_BYTES) {
        return Err(Error::Fault(format!("a claim of {} bytes", bytes.len())));
    }
    let pair = |chunk: &[u8]| {
        let epoch = i32::from_be_bytes(chunk[16..].try_into().expect("chunks are 20 bytes"));
        Ok((job_id(&chunk[..16])?, Epoch(epoch)))
    };
    bytes.chunks_exact(PAIR_BYTES).map(pair).collect()
}
