//! What ends a job, or has it unwound first: its holds, its slot and its timers go, and those who wait for its end are served.

use rusqlite::params;
use windlass_model::{JobId, Time, Unwind};

use super::{serial::Placement, signal, sql, tx::Tx, wait::Of};
use crate::{
    Actor, Error,
    columns::{self, CANCEL, DEADLINE},
};

impl Tx<'_> {
    /// Forgets all that hangs on a job while it lives, but for its place: it has ended. Its parent may have waited for
    /// that.
    pub(super) fn clear(&self, now: Time, spot: &Placement) -> Result<(), Error> {
        self.shed(spot)?;
        match spot.parent {
            Some(parent) if spot.signals_parent => signal::signal_parent(self, now, parent, spot.id)?,
            Some(parent) => self.count_children(now, parent, -1, Of::Child(spot.id))?,
            None => {}
        }
        if spot.in_branch { self.child_ended(now, spot.id) } else { Ok(()) }
    }

    /// Has a job unwound instead of ended: it is ready, with nothing that keeps it or would end it. `failure` is its last
    /// error from now on, if it is a new one.
    pub(super) fn unwind(
        &self,
        now: Time,
        spot: &Placement,
        unwind: &Unwind,
        failure: Option<&str>,
    ) -> Result<(), Error> {
        self.unplace(spot)?;
        self.shed(spot)?;
        let params = params![spot.id.as_bytes(), columns::unwind_text(unwind), now.micros(), failure];
        self.run(sql::control::START_UNWIND, params)?;
        self.enter(&Placement { due_at: now, suspect: false, hold: None, parked: false, ..*spot })
    }

    /// Forgets the deadline, pause, order and slot of a job.
    fn shed(&self, spot: &Placement) -> Result<(), Error> {
        self.forget_holds(spot)?;
        self.leave(spot)
    }

    /// The same of a job that goes on: nothing ends it or holds it back any more, and it keeps its slot.
    pub(super) fn release_holds(&self, spot: &Placement) -> Result<(), Error> {
        self.forget_holds(spot)?;
        if spot.hold.is_some() {
            self.run(sql::control::SET_HOLD, params![spot.id.as_bytes(), None::<i16>])?;
        }
        Ok(())
    }

    fn forget_holds(&self, spot: &Placement) -> Result<(), Error> {
        if let Some(at) = spot.deadline_at {
            self.unset_timer(at, spot.id, DEADLINE)?;
        }
        if spot.hold.is_some() {
            self.run(sql::control::RESUME, [spot.id.as_bytes()])?;
            self.take_cancel_request(spot.id)?;
        }
        Ok(())
    }

    /// Forgets that a job was told to end; answers who told it.
    pub(super) fn take_cancel_request(&self, id: JobId) -> Result<Option<Actor>, Error> {
        let order = self.one(sql::control::TAKE_CANCEL_REQUEST, [id.as_bytes()], |row| {
            Ok((Time(row.get(0)?), Actor { author: row.get(1)?, note: row.get(2)? }))
        })?;
        let Some((at, by)) = order else { return Ok(None) };
        self.unset_timer(at, id, CANCEL)?;
        Ok(Some(by))
    }
}
