//! Which claims still have jobs with this worker.
//!
//! A claim is settled when the last of its jobs is committed, fenced or released. The next claim or renewal then makes
//! the store forget it.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use windlass_model::ClaimNo;

use crate::sync::lock;

#[derive(Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last number that was given out.
    last: i64,
    /// Claims that the store has not answered yet.
    unanswered: HashSet<ClaimNo>,
    /// Claims with jobs here, and how many.
    open: HashMap<ClaimNo, usize>,
    /// Claims that the store listed and this worker did not know at the last renewal.
    unknown: HashSet<ClaimNo>,
    /// Settled claims that the store still has to forget.
    settled: Vec<ClaimNo>,
    /// Claims that no longer run alone, until the store has confirmed it.
    solo_ended: Vec<ClaimNo>,
}

impl Ledger {
    /// A number for a new claim.
    pub(crate) fn next_number(&self) -> ClaimNo {
        let mut state = lock(&self.state);
        state.last += 1;
        let number = ClaimNo(state.last);
        state.unanswered.insert(number);
        number
    }

    /// The last number that was given out.
    pub(crate) fn last_number(&self) -> ClaimNo {
        ClaimNo(lock(&self.state).last)
    }

    /// The oldest claim that has jobs here, or whose answer may bring some.
    pub(crate) fn oldest(&self) -> Option<ClaimNo> {
        let state = lock(&self.state);
        state.unanswered.iter().chain(state.open.keys()).min().copied()
    }

    /// Records that the store has answered a claim with this number of jobs.
    pub(crate) fn open(&self, number: ClaimNo, jobs: usize) {
        let mut state = lock(&self.state);
        state.unanswered.remove(&number);
        if jobs > 0 {
            state.open.insert(number, jobs);
        }
    }

    /// Compares the claims that the store has recorded with those known here, and returns orphans. A claim that is unknown
    /// twice in a row was recorded by a call whose answer never came: nobody will run its jobs, so they must be released.
    pub(crate) fn orphans(&self, recorded: &[ClaimNo]) -> Vec<ClaimNo> {
        let mut state = lock(&self.state);
        let is_unknown = |number: &&ClaimNo| {
            !state.unanswered.contains(number)
                && !state.open.contains_key(number)
                && !state.settled.contains(number)
        };
        let unknown: HashSet<ClaimNo> = recorded.iter().filter(is_unknown).copied().collect();
        let orphans = unknown.intersection(&state.unknown).copied().collect();
        state.unknown = unknown;
        orphans
    }

    /// Claims that have jobs here. Read before a renewal, and passed to [`Ledger::take_lost`] after it.
    pub(crate) fn open_claims(&self) -> Vec<ClaimNo> {
        lock(&self.state).open.keys().copied().collect()
    }

    /// Removes and returns the claims that were open before a renewal, still are, and are not recorded in the store: the
    /// store has lost them.
    pub(crate) fn take_lost(&self, open_before: &[ClaimNo], recorded: &[ClaimNo]) -> Vec<ClaimNo> {
        let recorded: HashSet<&ClaimNo> = recorded.iter().collect();
        let mut state = lock(&self.state);
        let missing = open_before.iter().filter(|number| !recorded.contains(number));
        missing.filter(|number| state.open.remove(number).is_some()).copied().collect()
    }

    /// Records that one job of each of these claims is no longer with this worker.
    pub(crate) fn settle(&self, numbers: impl Iterator<Item = ClaimNo>) {
        let mut state = lock(&self.state);
        for number in numbers {
            if let Some(left) = state.open.get_mut(&number) {
                *left -= 1;
                if *left == 0 {
                    state.open.remove(&number);
                    state.settled.push(number);
                }
            }
        }
    }

    /// Takes the settled claims that the store still has to forget. If the call to the store fails, return them with
    /// [`Ledger::put_back_settled`].
    pub(crate) fn take_settled(&self) -> Vec<ClaimNo> {
        std::mem::take(&mut lock(&self.state).settled)
    }

    pub(crate) fn put_back_settled(&self, numbers: Vec<ClaimNo>) {
        lock(&self.state).settled.extend(numbers);
    }

    /// Records that a claim no longer runs alone. The next renewal reports it to the store.
    pub(crate) fn end_solo(&self, number: ClaimNo) {
        lock(&self.state).solo_ended.push(number);
    }

    /// Claims that no longer run alone and for which the store has not confirmed that.
    pub(crate) fn unconfirmed(&self) -> Vec<ClaimNo> {
        lock(&self.state).solo_ended.clone()
    }

    pub(crate) fn is_unconfirmed(&self, number: ClaimNo) -> bool {
        lock(&self.state).solo_ended.contains(&number)
    }

    /// Records the store's confirmation.
    pub(crate) fn confirm(&self, numbers: &[ClaimNo]) {
        lock(&self.state).solo_ended.retain(|number| !numbers.contains(number));
    }

    /// Forgets everything, because this worker was declared dead. Numbers are not used again.
    pub(crate) fn clear(&self) {
        let mut state = lock(&self.state);
        *state = State { last: state.last, ..State::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_claim_that_stays_unknown_is_an_orphan() {
        let ledger = Ledger::default();
        let (unanswered, open, unknown) = (ledger.next_number(), ledger.next_number(), ledger.next_number());
        ledger.open(open, 1);
        ledger.open(unknown, 0);
        assert!(ledger.orphans(&[unanswered, open, unknown]).is_empty(), "its answer may be on its way");
        assert_eq!(ledger.orphans(&[unanswered, open, unknown]), [unknown]);
        ledger.open(unanswered, 0);
        assert!(ledger.orphans(&[unanswered]).is_empty());
    }

    #[test]
    fn a_claim_that_the_store_does_not_list_is_lost() {
        let ledger = Ledger::default();
        let (kept, lost, settled) = (ledger.next_number(), ledger.next_number(), ledger.next_number());
        [kept, lost, settled].into_iter().for_each(|number| ledger.open(number, 1));
        let open_before = ledger.open_claims();
        ledger.settle([settled].into_iter());
        let later = ledger.next_number();
        ledger.open(later, 1);
        assert_eq!(ledger.take_lost(&open_before, &[kept]), [lost], "neither a settled nor a later claim");
        assert!(ledger.take_lost(&open_before, &[kept]).is_empty(), "it is forgotten");
        ledger.settle([lost].into_iter());
        assert_eq!(ledger.take_settled(), [settled], "the store need not forget a lost claim");
    }

    #[test]
    fn a_claim_is_settled_by_its_last_job() {
        let ledger = Ledger::default();
        let (a, b) = (ledger.next_number(), ledger.next_number());
        ledger.open(a, 2);
        ledger.open(b, 1);
        ledger.settle([a].into_iter());
        assert!(ledger.take_settled().is_empty());
        ledger.settle([b, a].into_iter());
        assert_eq!(ledger.take_settled(), [b, a]);
        assert!(ledger.take_settled().is_empty());
    }
}
