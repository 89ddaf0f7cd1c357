//! What a journal says of undoing steps: which were undone, how often, and which could not be.

use std::collections::{HashMap, HashSet};

use windlass_model::Failure;

use super::journal::Ident;

/// Under what the tries at undoing a step are kept: no step has such a name, since it has a blank in it.
pub(super) fn undo_of(ident: &Ident) -> Ident {
    (format!("undo {}", ident.0).into(), ident.1.clone())
}

/// What a journal says of undoing steps.
#[derive(Default)]
pub(super) struct UndoRecord {
    /// Steps that were undone, or that the current unwinding could not undo: neither is tried again by it.
    settled: HashSet<Ident>,
    /// Steps that the current unwinding could not undo, and why, in the order of the journal.
    failed: Vec<(Ident, Failure)>,
    /// How often each step was undone.
    counts: HashMap<Ident, u32>,
    /// Whether an earlier unwinding has left something, and nothing says yet that the job goes on after it.
    resumes: bool,
}

impl UndoRecord {
    pub(super) fn is_empty(&self) -> bool {
        self.settled.is_empty()
    }

    /// A step was undone.
    pub(super) fn undone(&mut self, ident: Ident) {
        *self.counts.entry(ident.clone()).or_default() += 1;
        self.settled.insert(ident);
    }

    /// The current unwinding could not undo a step.
    pub(super) fn not_undone(&mut self, ident: Ident, why: Failure) {
        self.settled.insert(ident.clone());
        self.failed.push((ident, why));
    }

    /// An unwinding that is over could not undo a step, and the job goes on: the step is done, and the next unwinding
    /// undoes it.
    pub(super) fn left(&mut self, ident: Ident) {
        self.settled.remove(&ident);
        self.resumes = true;
    }

    /// The job went on after an unwinding: what that could not undo is undone by the next one. Answers what that was.
    pub(super) fn resume(&mut self) -> Vec<Ident> {
        self.resumes = false;
        let failed: Vec<Ident> =
            std::mem::take(&mut self.failed).into_iter().map(|(ident, _)| ident).collect();
        failed.iter().for_each(|ident| _ = self.settled.remove(ident));
        failed
    }

    /// Whether it is to be written that the job goes on after an unwinding.
    pub(super) fn resumes(&self) -> bool {
        self.resumes
    }

    /// A step was done again. Whether it had been undone.
    pub(super) fn redone(&mut self, ident: &Ident) -> bool {
        self.settled.remove(ident)
    }

    /// Whether the current unwinding has nothing more to do with a step.
    pub(super) fn is_settled(&self, ident: &Ident) -> bool {
        self.settled.contains(ident)
    }

    /// What the current unwinding could not undo, and why.
    pub(super) fn failed(&self) -> &[(Ident, Failure)] {
        &self.failed
    }

    /// How often a step was undone: what it does after that is another deed than what was undone, and has another id.
    pub(super) fn count(&self, ident: &Ident) -> u32 {
        if self.counts.is_empty() { 0 } else { self.counts.get(ident).copied().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_unwinding_left_is_for_the_next_one() {
        let ident = |name: &str| -> Ident { (name.into(), None) };
        let mut record = UndoRecord::default();
        record.undone(ident("hotel"));
        record.not_undone(ident("flight"), Failure::stop("nobody answers"));
        assert!(record.is_settled(&ident("hotel")) && record.is_settled(&ident("flight")));
        assert_eq!(record.failed().len(), 1);
        assert_eq!(record.resume(), [ident("flight")]);
        assert!(record.is_settled(&ident("hotel")) && !record.is_settled(&ident("flight")));
        assert!(record.failed().is_empty());
        assert!(record.redone(&ident("hotel")) && !record.redone(&ident("hotel")));
        record.undone(ident("hotel"));
        assert_eq!((record.count(&ident("hotel")), record.count(&ident("flight"))), (2, 0));
    }
}
