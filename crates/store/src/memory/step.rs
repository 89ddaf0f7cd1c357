//! What a step writes to its job, besides its outcome.

use windlass_model::{Outcome, StepWrites};

use super::*;

impl Row {
    /// A sequence number that a step would add to the journal although there is such an entry.
    pub(super) fn duplicate_entry(&self, step: &StepWrites) -> Option<i32> {
        let is_kept = |seq: &i32| !step.continue_as_new && !step.forget_entries.contains(seq);
        let mut kept: BTreeSet<i32> = self.journal.keys().copied().filter(is_kept).collect();
        step.entries.iter().map(|entry| entry.seq).find(|seq| !kept.insert(*seq))
    }

    /// Writes the stage, the transition, the inbox, the journal and the context. The revision is that of the change.
    pub(super) fn write_step(&mut self, now: Time, change: &Change, step: &StepWrites) {
        if let Some((stage, data)) = &step.stage {
            self.stage = Some(stage.clone());
            self.data = Some(data.clone());
            if change.outcome.progresses() {
                // Children of the stage before are no longer waited for.
                (self.stage_rev, self.pending_children) = (self.rev, 0);
            }
        }
        if let Some(stage) = step.from_stage.clone() {
            let next = self.stage.clone().filter(|_| !change.outcome.ends());
            let how = change.outcome.name().to_owned();
            let transition =
                Transition { rev: self.rev, stage, next, outcome: how, at: now, worker: change.worker };
            self.transitions.push(transition);
        }
        self.inbox.retain(|signal| !step.consumed.contains(&signal.number));
        for unreadable in &step.unreadable {
            if let Some(signal) = self.inbox.iter_mut().find(|signal| signal.number == unreadable.number) {
                signal.unreadable.get_or_insert_with(|| unreadable.why.clone());
            }
        }
        if step.continue_as_new {
            self.journal.clear();
        }
        self.journal.retain(|seq, _| !step.forget_entries.contains(seq));
        self.journal.extend(step.entries.iter().map(|entry| (entry.seq, entry.clone())));
        self.context.extend(step.context.iter().cloned());
        self.has_undo |= step.has_undo;
        if let Some(unwind) = &step.unwind {
            self.start_unwind(unwind);
        }
    }

    /// Resets the counters of a job that has made progress, unless it is in the same stage as before.
    pub(super) fn record_progress(&mut self, change: &Change) {
        (self.worker_deaths, self.solo_crashes, self.suspect) = (0, 0, false);
        // A halted job yields to others, and that is no step.
        let continues = change.outcome == Outcome::Next && self.hold != Hold::Pending;
        let step = change.writes.as_deref();
        let Some(unchanged) = change.stage_unchanged() else {
            self.steps_since_wait += u32::from(continues);
            return;
        };
        self.attempts = if unchanged { self.attempts + 1 } else { 0 };
        self.retry_counts = Vec::new();
        (self.wait, self.wait_until) = (None, None);
        let parks = change.outcome.event() == Event::Park;
        let is_step = continues || step.is_some_and(|step| step.stage.is_some());
        self.steps_since_wait = match (is_step, parks) {
            (false, _) => self.steps_since_wait,
            (true, true) => 0,
            (true, false) => self.steps_since_wait + 1,
        };
    }
}
