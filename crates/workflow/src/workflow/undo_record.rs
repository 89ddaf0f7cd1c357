//! What a journal records of undoing steps: which were undone, how often, and which could not be.

use std::collections::{HashMap, HashSet};

use windlass_model::Failure;

use super::journal::Ident;

/// The prefix of the names of entries for attempts at undoing steps. No step has such a name, because it contains a blank.
const UNDO: &str = "undo ";

/// The name and key of the entries for attempts at undoing a step.
pub(super) fn undo_of(ident: &Ident) -> Ident {
    (format!("{UNDO}{}", ident.0).into(), ident.1.clone())
}

/// Whether entries of this name are for attempts at undoing a step.
pub(super) fn is_undo_try(name: &str) -> bool {
    name.starts_with(UNDO)
}

/// What a journal records of undoing steps.
#[derive(Default)]
pub(super) struct UndoRecord {
    /// Steps that were undone, or that the current unwinding could not undo: it tries neither again.
    settled: HashSet<Ident>,
    /// Steps that the current unwinding could not undo, and why, in the order of the journal.
    failed: Vec<(Ident, Failure)>,
    /// How often each step was undone.
    counts: HashMap<Ident, u32>,
}

impl UndoRecord {
    pub(super) fn is_empty(&self) -> bool {
        self.settled.is_empty()
    }

    /// Records that a step was undone.
    pub(super) fn undone(&mut self, ident: Ident) {
        *self.counts.entry(ident.clone()).or_default() += 1;
        self.settled.insert(ident);
    }

    /// Records that the current unwinding could not undo a step.
    pub(super) fn not_undone(&mut self, ident: Ident, why: Failure) {
        self.settled.insert(ident.clone());
        self.failed.push((ident, why));
    }

    /// Ends the current unwinding: the next one tries again what this one could not undo, whether or not the job continues
    /// before.
    pub(super) fn close(&mut self) {
        for (ident, _) in self.failed.drain(..) {
            self.settled.remove(&ident);
        }
    }

    /// The job continues: steps that succeed from now on are to be undone. Returns what was undone.
    pub(super) fn reopen(&mut self) -> Vec<Ident> {
        self.close();
        self.settled.drain().collect()
    }

    /// Whether the current unwinding is finished with a step.
    pub(super) fn is_settled(&self, ident: &Ident) -> bool {
        self.settled.contains(ident)
    }

    /// What the current unwinding could not undo, and why.
    pub(super) fn failed(&self) -> &[(Ident, Failure)] {
        &self.failed
    }

    /// How often a step was undone. After each undo it is a new action with a new id.
    pub(super) fn count(&self, ident: &Ident) -> u32 {
        if self.counts.is_empty() { 0 } else { self.counts.get(ident).copied().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_unwinding_tries_again_what_the_last_could_not_undo() {
        let ident = |name: &str| -> Ident { (name.into(), None) };
        let mut record = UndoRecord::default();
        record.undone(ident("hotel"));
        record.not_undone(ident("flight"), Failure::stop("nobody answers"));
        assert!(record.is_settled(&ident("hotel")) && record.is_settled(&ident("flight")));
        assert_eq!(record.failed().len(), 1);
        record.close();
        assert!(record.is_settled(&ident("hotel")) && !record.is_settled(&ident("flight")));
        assert!(record.failed().is_empty());
        assert_eq!(record.reopen(), [ident("hotel")]);
        assert!(record.is_empty() && !record.is_settled(&ident("hotel")));
        record.undone(ident("hotel"));
        assert_eq!((record.count(&ident("hotel")), record.count(&ident("flight"))), (2, 0));
    }
}
