//! What ends a job, or has it unwound first: its holds, its slot and its timers go, and those who wait for its end are served.

use rusqlite::params;
use windlass_model::{JobId, Time, Unwind};

use super::{serial::Placement, signal, sql, tx::Tx, wait::ChildrenOf};
use crate::{
    Actor, Error,
    columns::{self, CANCEL, DEADLINE},
};

impl Tx<'_> {
    /// Forgets all that hangs on a job while it lives, but for its place: it has ended. Its parent may have waited for
    /// that.
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

    /// Has a job unwound instead of ended: it is ready, with nothing that keeps it or would end it. `failure` is its last
    /// error from now on, if it is a new one.
    pub(super) fn unwind(
        &self,
        now: Time,
        placement: &Placement,
        unwind: &Unwind,
        failure: Option<&str>,
    ) -> Result<(), Error> {
        self.remove_placement(placement)?;
        self.clear_holds_and_slot(placement)?;
        let params = params![placement.id.as_bytes(), columns::unwind_text(unwind), now.micros(), failure];
        self.execute(sql::control::START_UNWIND, params)?;
        self.enter(&Placement { due_at: now, suspect: false, hold: None, parked: false, ..*placement })
    }

    /// Forgets the deadline, pause, order and slot of a job.
    fn clear_holds_and_slot(&self, placement: &Placement) -> Result<(), Error> {
        self.delete_holds(placement)?;
        self.leave_serial_key(placement)
    }

    /// The same of a job that goes on: nothing ends it or holds it back any more, and it keeps its slot.
    pub(super) fn release_holds(&self, placement: &Placement) -> Result<(), Error> {
        self.delete_holds(placement)?;
        if placement.hold.is_some() {
            self.execute(sql::control::SET_HOLD, params![placement.id.as_bytes(), None::<i16>])?;
        }
        Ok(())
    }

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

    /// Forgets that a job was told to end; answers who told it.
    pub(super) fn take_cancel_request(&self, id: JobId) -> Result<Option<Actor>, Error> {
        let request = self.query_one(sql::control::TAKE_CANCEL_REQUEST, [id.as_bytes()], |row| {
            Ok((Time(row.get(0)?), Actor { author: row.get(1)?, note: row.get(2)? }))
        })?;
        let Some((at, actor)) = request else { return Ok(None) };
        self.delete_timer(at, id, CANCEL)?;
        Ok(Some(actor))
    }
}
