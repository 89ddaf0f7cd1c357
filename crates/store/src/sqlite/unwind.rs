//! Ending a job, or starting to unwind it first: its holds, serial slot and timers are deleted, and those who wait
//! for its end are notified.

use rusqlite::params;
use windlass_model::{JobId, State, Time, Unwind};

use super::{serial::Placement, signal, sql, tx::Tx, wait::ChildrenOf};
use crate::{
    Actor, Error,
    columns::{self, CANCEL, DEADLINE},
};

impl Tx<'_> {
    /// Deletes the holds and the serial slot of a job that has ended, and notifies its parent and its branches.
    pub(super) fn after_end(&self, now: Time, placement: &Placement) -> Result<(), Error> {
        self.clear_holds_and_slot(placement)?;
        match placement.parent {
            Some(parent) if placement.signals_parent => {
                signal::signal_parent(self, now, parent, placement.id)?
            }
            Some(parent) => self.add_pending_children(now, parent, -1, ChildrenOf::Child(placement.id))?,
            None => {}
        }
        if placement.in_branch { self.branch_job_ended(now, placement.id) } else { Ok(()) }
    }

    /// Starts to unwind a job, which is in state `from`, instead of ending it: it is ready, and nothing holds it or ends it.
    /// `failure` replaces its last error, if given.
    pub(super) fn unwind(
        &self,
        now: Time,
        placement: &Placement,
        from: State,
        unwind: &Unwind,
        failure: Option<&str>,
    ) -> Result<(), Error> {
        self.remove_placement(placement)?;
        self.clear_holds_and_slot(placement)?;
        let params = params![placement.id.as_bytes(), columns::unwind_text(unwind), now.micros(), failure];
        self.execute(sql::control::START_UNWIND, params)?;
        self.count_moved(placement.lane, from, State::Ready);
        self.enter(&Placement { due_at: now, suspect: false, hold: None, parked: false, ..*placement })
    }

    /// Deletes the deadline, pause, cancel request and serial slot of a job.
    fn clear_holds_and_slot(&self, placement: &Placement) -> Result<(), Error> {
        self.delete_holds(placement)?;
        self.leave_serial_key(placement)
    }

    /// Deletes the deadline, pause and cancel request of a job that continues: nothing ends or holds it any more, and
    /// it keeps its slot.
    pub(super) fn release_holds(&self, placement: &Placement) -> Result<(), Error> {
        self.delete_holds(placement)?;
        if placement.hold.is_some() {
            self.execute(sql::control::SET_HOLD, params![placement.id.as_bytes(), None::<i16>])?;
        }
        Ok(())
    }

    /// Deletes the deadline, pause and cancel request of a job.
    fn delete_holds(&self, placement: &Placement) -> Result<(), Error> {
        if let Some(at) = placement.deadline_at {
            self.delete_timer(at, placement.id, DEADLINE)?;
        }
        if placement.hold.is_some() {
            self.execute(sql::control::RESUME, [placement.id.as_bytes()])?;
            self.take_cancel_request(placement.id)?;
        }
        Ok(())
    }

    /// Deletes the cancel request of a job. Returns who made it.
    pub(super) fn take_cancel_request(&self, id: JobId) -> Result<Option<Actor>, Error> {
        let request = self.query_one(sql::control::TAKE_CANCEL_REQUEST, [id.as_bytes()], |row| {
            Ok((Time(row.get(0)?), Actor { author: row.get(1)?, note: row.get(2)? }))
        })?;
        let Some((at, actor)) = request else { return Ok(None) };
        self.delete_timer(at, id, CANCEL)?;
        Ok(Some(actor))
    }
}
