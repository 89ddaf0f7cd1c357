//! What lists say of many jobs at once.

use super::*;
use crate::{
    CancelHold, FailureText, JobDetails, LastCall, ParkedJob, RunningDetails, Unsuccessful,
    UnsuccessfulFilter, UnsuccessfulJob, WaitDetails,
    inspect::details::{DETAILS_MESSAGE, SettingsText, UNSUCCESSFUL_MESSAGE},
};

impl Inner {
    pub(super) fn details(&self, id: JobId) -> Option<JobDetails> {
        let row = self.jobs.get(&id)?;
        let state = self.state(id);
        let claim = (state == State::Running)
            .then(|| self.claims.iter().find(|(_, claim)| claim.jobs.contains(&(id, row.epoch))))
            .flatten();
        let SettingsText { serial_key, rate, max_attempts } = SettingsText::of(&row.new.settings);
        Some(JobDetails {
            state,
            running: claim.map(|((worker, _), claim)| RunningDetails {
                worker: *worker,
                name: self.workers.get(worker).map(|worker| worker.name.clone()),
                since: claim.claimed_at,
            }),
            waiting: (state == State::Waiting).then(|| row.wait_details()),
            failure: row.failure_text(DETAILS_MESSAGE),
            paused: self.pauses.get(&id).cloned(),
            cancel_requested: self.pending_cancels.get(&id).map(|pending| CancelHold {
                deadline_at: pending.request.deadline_at,
                author: pending.request.actor.author.clone(),
                note: pending.request.actor.note.clone(),
            }),
            serial_key,
            waits_for_slot: self.waits_for_serial_key(id),
            rate,
            suspect: row.suspect,
            unwinding: row.unwind.is_some() && row.is_live(),
            max_attempts,
            started_at: row.started_at,
            parent: row.new.parent,
            branch: row.new.branch_position.as_ref().map(|position| position.branch),
            items: row.new.branch_position.as_ref().map_or(1, |position| position.items),
        })
    }

    pub(super) fn unsuccessful(&self, filter: &UnsuccessfulFilter, limit: usize) -> Unsuccessful {
        let is_walked = |row: &&Row| {
            let class = row.failure.as_ref().map(|failure| &*failure.class);
            matches!(row.final_state, Some(State::Failed | State::Cancelled))
                && filter
                    .state
                    .is_none_or(|state| filter.error_class.is_some() || row.final_state == Some(state))
                && filter.error_class.as_deref().is_none_or(|wanted| class == Some(wanted))
                && filter.since.is_none_or(|since| row.new.id >= JobId::lowest_at(since))
                && filter.before.is_none_or(|before| row.new.id < before)
        };
        let walked = self.jobs.values().rev().filter(is_walked).take(limit);
        let job = |row: &Row| UnsuccessfulJob {
            id: row.new.id,
            kind: row.new.kind.kind.clone(),
            version: row.new.kind.version,
            queue: row.new.queue.clone(),
            key: row.new.key.clone(),
            state: row.final_state.unwrap_or(State::Failed),
            reason: row.reason,
            failure: row.failure_text(UNSUCCESSFUL_MESSAGE).unwrap_or_default(),
            attempts: row.attempts,
            finished_at: row.finished_at.unwrap_or(row.submitted_at),
            parent: row.new.parent,
            branch: row.new.branch_position.as_ref().map(|position| position.branch),
        };
        Unsuccessful::select(walked.map(job).collect(), filter, limit)
    }

    pub(super) fn parked_jobs(&self, limit: usize) -> Vec<ParkedJob> {
        let parked = self.jobs.values().filter(|row| row.parked).take(limit);
        let job = |row: &Row| ParkedJob {
            id: row.new.id,
            kind: row.new.kind.kind.clone(),
            version: row.new.kind.version,
            queue: row.new.queue.clone(),
            key: row.new.key.clone(),
            stage: row.stage.clone(),
            wait: row.wait_details(),
        };
        parked.map(job).collect()
    }

    pub(super) fn last_call(&self, id: JobId) -> Option<LastCall> {
        let (_, entry) = self.jobs.get(&id)?.journal.last_key_value()?;
        Some(LastCall::of(entry))
    }
}

impl Row {
    fn wait_details(&self) -> WaitDetails {
        WaitDetails {
            condition: self.wait.clone().unwrap_or(WaitCondition::Nothing),
            since: self.parked_at,
            until: self.wait_until,
            pending_children: self.pending_children,
        }
    }

    fn failure_text(&self, characters: usize) -> Option<FailureText> {
        let failure = self.failure.as_ref()?;
        Some(FailureText::new(&failure.class, &failure.message, characters))
    }
}
