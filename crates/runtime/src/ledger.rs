//! Which claims still have jobs with this worker.
//!
//! A claim is settled when the last of its jobs is committed, fenced or handed back; then the store is told, with the
//! next claim or renewal, that it may forget it.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use windlass_model::ClaimNo;

#[derive(Default)]
pub(crate) struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: i64,
    /// Numbers whose claim was not answered yet.
    asked: HashSet<ClaimNo>,
    open: HashMap<ClaimNo, usize>,
    /// Claims in the store that this worker did not know of when it last looked.
    unknown: HashSet<ClaimNo>,
    settled: Vec<ClaimNo>,
    joined: Vec<ClaimNo>,
}

impl Ledger {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A number for a new claim.
    pub(crate) fn number(&self) -> ClaimNo {
        let mut inner = self.lock();
        inner.last += 1;
        let number = ClaimNo(inner.last);
        inner.asked.insert(number);
        number
    }

    /// The last number that was given out.
    pub(crate) fn last(&self) -> ClaimNo {
        ClaimNo(self.lock().last)
    }

    /// The oldest claim that has jobs with this worker, or may yet.
    pub(crate) fn oldest(&self) -> Option<ClaimNo> {
        let inner = self.lock();
        inner.asked.iter().chain(inner.open.keys()).min().copied()
    }

    /// A claim was answered, with so many jobs.
    pub(crate) fn open(&self, number: ClaimNo, jobs: usize) {
        let mut inner = self.lock();
        inner.asked.remove(&number);
        if jobs > 0 {
            inner.open.insert(number, jobs);
        }
    }

    /// Compares what the store has recorded with what is known here. A claim that is unknown twice in a row was
    /// recorded by a call whose answer never came: nobody will ever work on it, so it is to be handed back.
    pub(crate) fn orphans(&self, recorded: &[ClaimNo]) -> Vec<ClaimNo> {
        let mut inner = self.lock();
        let known = |number: &&ClaimNo| {
            !inner.asked.contains(number)
                && !inner.open.contains_key(number)
                && !inner.settled.contains(number)
        };
        let unknown: HashSet<ClaimNo> = recorded.iter().filter(known).copied().collect();
        let orphans = unknown.intersection(&inner.unknown).copied().collect();
        inner.unknown = unknown;
        orphans
    }

    /// Claims that have jobs with this worker. Ask before a renewal, and compare afterwards with [`Ledger::lost`].
    pub(crate) fn opened(&self) -> Vec<ClaimNo> {
        self.lock().open.keys().copied().collect()
    }

    /// Those of the claims that were open before a renewal and still are which the store does not know: it has lost them. They
    /// are forgotten here.
    pub(crate) fn lost(&self, opened: &[ClaimNo], recorded: &[ClaimNo]) -> Vec<ClaimNo> {
        let recorded: HashSet<&ClaimNo> = recorded.iter().collect();
        let mut inner = self.lock();
        let gone = opened.iter().filter(|number| !recorded.contains(number));
        gone.filter(|number| inner.open.remove(number).is_some()).copied().collect()
    }

    /// Jobs of these claims are no longer with this worker.
    pub(crate) fn settle(&self, numbers: impl Iterator<Item = ClaimNo>) {
        let mut inner = self.lock();
        for number in numbers {
            if let Some(left) = inner.open.get_mut(&number) {
                *left -= 1;
                if *left == 0 {
                    inner.open.remove(&number);
                    inner.settled.push(number);
                }
            }
        }
    }

    /// A claim that ran alone has company now.
    pub(crate) fn joined(&self, number: ClaimNo) {
        self.lock().joined.push(number);
    }

    /// Settled claims that the store has not been told of. Give them back with [`Ledger::untold`] if telling failed.
    pub(crate) fn take_settled(&self) -> Vec<ClaimNo> {
        std::mem::take(&mut self.lock().settled)
    }

    pub(crate) fn put_back_settled(&self, numbers: Vec<ClaimNo>) {
        self.lock().settled.extend(numbers);
    }

    /// Claims that have company now, until the store has heard of it.
    pub(crate) fn unconfirmed(&self) -> Vec<ClaimNo> {
        self.lock().joined.clone()
    }

    pub(crate) fn confirmed(&self, numbers: &[ClaimNo]) {
        self.lock().joined.retain(|number| !numbers.contains(number));
    }

    pub(crate) fn is_joining(&self, number: ClaimNo) -> bool {
        self.lock().joined.contains(&number)
    }

    /// Forgets everything: this worker was declared dead. Numbers go on.
    pub(crate) fn forget(&self) {
        let mut inner = self.lock();
        *inner = Inner { last: inner.last, ..Inner::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_stays_unknown_is_an_orphan() {
        let ledger = Ledger::default();
        let (asked, open, lost) = (ledger.number(), ledger.number(), ledger.number());
        ledger.open(open, 1);
        ledger.open(lost, 0);
        assert!(ledger.orphans(&[asked, open, lost]).is_empty(), "its answer may be on its way");
        assert_eq!(ledger.orphans(&[asked, open, lost]), [lost]);
        ledger.open(asked, 0);
        assert!(ledger.orphans(&[asked]).is_empty());
    }

    #[test]
    fn a_claim_that_the_store_does_not_list_is_lost() {
        let ledger = Ledger::default();
        let (kept, lost, over) = (ledger.number(), ledger.number(), ledger.number());
        [kept, lost, over].into_iter().for_each(|number| ledger.open(number, 1));
        let opened = ledger.opened();
        ledger.settle([over].into_iter());
        let late = ledger.number();
        ledger.open(late, 1);
        assert_eq!(ledger.lost(&opened, &[kept]), [lost], "neither one that is over nor one that came later");
        assert!(ledger.lost(&opened, &[kept]).is_empty(), "it is forgotten");
        ledger.settle([lost].into_iter());
        assert_eq!(ledger.take_settled(), [over], "there is nothing to tell of it");
    }

    #[test]
    fn a_claim_is_settled_by_its_last_job() {
        let ledger = Ledger::default();
        let (a, b) = (ledger.number(), ledger.number());
        ledger.open(a, 2);
        ledger.open(b, 1);
        ledger.settle([a].into_iter());
        assert!(ledger.take_settled().is_empty());
        ledger.settle([b, a].into_iter());
        assert_eq!(ledger.take_settled(), [b, a]);
        assert!(ledger.take_settled().is_empty());
    }
}
