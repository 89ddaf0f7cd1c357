//! Stage updates: people give machines another version, stage and data.

use super::*;
use crate::{ControlOutcome, StageUpdate, control::outcome};

impl Inner {
    pub(super) fn update_stage(&mut self, now: Time, update: &StageUpdate, actor: &Actor) -> ControlOutcome {
        let id = update.job;
        if !self.jobs.contains_key(&id) {
            return ControlOutcome::Unknown;
        }
        match self.state(id) {
            State::Done => return outcome::update_done(),
            State::Running => return outcome::update_running(),
            _ => {}
        }
        let row = self.row(id);
        if (row.epoch, row.rev) != (update.epoch, update.rev) {
            return outcome::update_moved();
        }
        let was_ready = self.ready.remove(&row.ready_key());
        let row = self.row_mut(id);
        row.new.kind.version = update.version;
        row.epoch.0 += 1;
        row.stage = Some(update.stage.clone());
        row.data = Some(update.data.clone());
        if was_ready {
            self.make_ready(id);
        }
        self.log(now, &columns::stage_update_action(update), &id.to_string(), actor);
        ControlOutcome::Done
    }
}
