//! Forks: new jobs from part of another's journal.

use super::*;
use crate::{ControlOutcome, Fork, control::outcome};

impl Inner {
    /// Creates a fork.
    pub(super) fn fork(&mut self, now: Time, fork: &Fork, actor: &Actor) -> ControlOutcome {
        let Some(origin) = self.jobs.get(&fork.from) else { return ControlOutcome::Unknown };
        if self.jobs.contains_key(&fork.id) {
            return ControlOutcome::Created(fork.id);
        }
        let last = origin.journal.last_key_value().map(|(seq, _)| *seq);
        if !origin.journal.contains_key(&fork.before) && !fork.is_whole(last) {
            return outcome::fork_nowhere(fork.before);
        }
        if let Some(key) = &fork.key
            && let Some(other) = self.keys.get(&(origin.new.kind.kind.clone(), key.clone()))
        {
            return outcome::fork_key_taken(key, *other);
        }
        let mut journal = origin.journal.clone();
        journal.retain(|seq, _| *seq < fork.before);
        journal.insert(fork.before, fork.entry(now));
        let (has_undo, stage, data) = (origin.has_undo, origin.stage.clone(), origin.data.clone());
        let new = fork.job(&origin.new);
        self.insert_jobs(now, &[new], None);
        let row = self.row_mut(fork.id);
        (row.has_undo, row.stage, row.data, row.rev) = (has_undo, stage, data, Rev(1));
        row.journal = journal;
        self.log(now, &columns::fork_action(fork), &fork.from.to_string(), actor);
        ControlOutcome::Created(fork.id)
    }
}
