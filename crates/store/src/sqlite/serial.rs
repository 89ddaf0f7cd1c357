//! Making jobs ready: into the ready set, to the jobs that wait for a serial key, or held. One routine for all verbs.
//!
//! Free slots of serial keys are filled at the end of each transaction, when all of the verb's jobs are where it
//! leaves them. Jobs without a key and without a hold cost nothing here but their row in the ready set.

use rusqlite::{Row, params};
use windlass_model::{JobId, Time, rank::rank};

use super::{
    Sqlite, sql,
    tx::{Tx, read_id},
    wait,
};
use crate::{
    Error, Now,
    columns::{TO_HOLD, WAKE},
};

/// What decides where a live job is, and who waits for its end.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) id: JobId,
    pub(super) lane: i32,
    pub(super) priority: i16,
    pub(super) due_at: Time,
    pub(super) suspect: bool,
    pub(super) deadline_at: Option<Time>,
    /// Set while it is paused or being cancelled.
    pub(super) hold: Option<i16>,
    pub(super) serial_key: Option<i64>,
    /// Its position among the jobs that wait for its serial key.
    pub(super) serial_position: Time,
    pub(super) parked: bool,
    /// The parent that waits for its end.
    pub(super) parent: Option<JobId>,
    /// Whether its end is a signal to the parent, instead of being counted.
    pub(super) signals_parent: bool,
    /// Whether it is in a branch or has branches: then its end is counted there.
    pub(super) in_branch: bool,
}

impl Placement {
    /// Reads the twelve columns of the SQL fragment `common.placement`, from this column on.
    pub(super) fn read(id: JobId, row: &Row<'_>, from: usize) -> rusqlite::Result<Placement> {
        Ok(Placement {
            id,
            lane: row.get(from)?,
            priority: row.get(from + 1)?,
            due_at: Time(row.get(from + 2)?),
            suspect: row.get(from + 3)?,
            deadline_at: row.get::<_, Option<i64>>(from + 4)?.map(Time),
            hold: row.get(from + 5)?,
            serial_key: row.get(from + 6)?,
            serial_position: Time(row.get::<_, Option<i64>>(from + 7)?.unwrap_or_default()),
            parked: row.get::<_, Option<i16>>(from + 8)?.is_some(),
            parent: row.get::<_, Option<[u8; 16]>>(from + 9)?.map(JobId::from_bytes),
            signals_parent: row.get::<_, Option<bool>>(from + 10)?.unwrap_or(false),
            in_branch: row.get(from + 11)?,
        })
    }

    /// Its lane in the ready set: suspects are in the negative one.
    pub(super) fn ready_lane(&self) -> i32 {
        if self.suspect { -self.lane } else { self.lane }
    }

    pub(super) fn rank(&self) -> i64 {
        rank(self.due_at, self.priority)
    }
}

impl Tx<'_> {
    /// Makes a job that is due ready, has it wait for its serial key, or holds it.
    pub(super) fn enter(&self, placement: &Placement) -> Result<(), Error> {
        if placement.hold == Some(TO_HOLD) {
            self.execute(sql::control::SET_HELD, [placement.id.as_bytes()])?;
            return self.leave_serial_key(placement);
        }
        let Some(serial_key) = placement.serial_key else { return self.make_ready(placement) };
        let params = params![serial_key, placement.id.as_bytes()];
        if self.query_one(sql::serial::HAS_SLOT, params, |row| row.get(0))?.unwrap_or(false) {
            return self.make_ready(placement);
        }
        let params = params![serial_key, placement.serial_position.micros(), placement.id.as_bytes()];
        self.execute(sql::serial::START_WAITING, params)?;
        self.unsettled.borrow_mut().insert(serial_key);
        Ok(())
    }

    /// Adds a job to the ready set, and moves its queue's gate.
    pub(super) fn make_ready(&self, placement: &Placement) -> Result<(), Error> {
        let params = params![placement.ready_lane(), placement.rank(), placement.id.as_bytes()];
        self.execute(sql::submit::MAKE_READY, params)?;
        self.bump_gate(self.queue_of(placement.lane)?);
        Ok(())
    }

    /// Gives up a job's slot, or its position among those that wait.
    pub(super) fn leave_serial_key(&self, placement: &Placement) -> Result<(), Error> {
        let Some(serial_key) = placement.serial_key else { return Ok(()) };
        let params = params![serial_key, placement.serial_position.micros(), placement.id.as_bytes()];
        self.execute(sql::serial::STOP_WAITING, params)?;
        self.execute(sql::serial::FREE_SLOT, params![serial_key, placement.id.as_bytes()])?;
        self.unsettled.borrow_mut().insert(serial_key);
        Ok(())
    }

    /// Removes a job from the ready set and from the timers, wherever it is.
    pub(super) fn remove_placement(&self, placement: &Placement) -> Result<(), Error> {
        let params = params![placement.ready_lane(), placement.rank(), placement.id.as_bytes()];
        self.execute(sql::timers::REMOVE_READY, params)?;
        self.delete_timer(placement.due_at, placement.id, WAKE)?;
        Ok(())
    }

    /// Gives free slots of all changed keys to the first jobs that wait for them. Returns how many jobs became ready.
    pub(super) fn fill_serial_slots(&self) -> Result<usize, Error> {
        let mut entered = 0;
        for serial_key in self.unsettled.take() {
            let first_waiting = self.query_all(sql::serial::FIRST_WAITING, [serial_key], |row| {
                Placement::read(read_id(row, 0)?, row, 1)
            })?;
            for placement in &first_waiting {
                let params = params![serial_key, placement.serial_position.micros(), placement.id.as_bytes()];
                self.execute(sql::serial::STOP_WAITING, params)?;
                self.execute(sql::serial::TAKE_SLOT, params![serial_key, placement.id.as_bytes()])?;
                self.make_ready(placement)?;
            }
            entered += first_waiting.len();
        }
        Ok(entered)
    }

    /// The number of a serial key, added if it is new. Sets its slots if they are given.
    pub(super) fn serial_key(&self, key: &str, slots: Option<u32>) -> Result<i64, Error> {
        if slots.is_none()
            && let Some(serial_key) = self.query_one(sql::serial::READ, [key], |row| row.get(0))?
        {
            return Ok(serial_key);
        }
        let serial_key = self.query_one(sql::serial::ADD, params![key, slots], |row| row.get(0))?;
        let serial_key = serial_key.ok_or_else(|| Error::Fault("a serial key was not added".into()))?;
        if slots.is_some() {
            self.unsettled.borrow_mut().insert(serial_key);
        }
        Ok(serial_key)
    }
}

/// Fills slots that were left free, and wakes parked jobs that were not woken. Checks without the write lock first:
/// there should be none.
pub(super) async fn repair(store: &Sqlite, now: Now) -> Result<usize, Error> {
    Ok(repair_serial_keys(store).await? + wait::repair(store, now).await?)
}

async fn repair_serial_keys(store: &Sqlite) -> Result<usize, Error> {
    let stale = |tx: &Tx<'_>| {
        tx.query_all(sql::repair::STALE_HOLDERS, [], |row| Ok((row.get::<_, i64>(0)?, read_id(row, 1)?)))
    };
    let free = |tx: &Tx<'_>| tx.query_all(sql::repair::FREE_SERIAL_KEYS, [], |row| row.get::<_, i64>(0));
    if store.read(|tx| Ok(stale(tx)?.is_empty() && free(tx)?.is_empty()))? {
        return Ok(0);
    }
    store
        .write(super::pool::SMALL + 1, |tx| {
            for (serial_key, job) in stale(tx)? {
                tracing::warn!(%job, "a job held a slot of a serial key that it should have given up");
                tx.execute(sql::serial::FREE_SLOT, params![serial_key, job.as_bytes()])?;
            }
            tx.unsettled.borrow_mut().extend(free(tx)?);
            tx.fill_serial_slots()
        })
        .await
}
