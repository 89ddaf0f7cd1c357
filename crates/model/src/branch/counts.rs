//! What a child adds to the counts of its branch when it starts, completes items, ends, and is retried by hand.
//!
//! A child is one item, or a block of many. `items` is always the number of items that it represents and that are not counted as
//! ended yet. An item is counted as started with the first change of its job, or with the job's end if the job never committed
//! anything. A promoted item leaves its block and starts again as a job of its own: the number of spawned items stays the same.

use super::BranchCounts;
use crate::{Change, Rev, State, StepWrites};

impl BranchCounts {
    /// Returns what the end of a child in this state adds. `is_unstarted`: it has committed nothing, and its end starts it.
    pub fn of_end(state: State, items: i64, is_unstarted: bool) -> BranchCounts {
        BranchCounts { started: if is_unstarted { items } else { 0 }, ..BranchCounts::of(state, items) }
    }

    /// Returns what a child adds that had ended in this state and is live again: it takes back what its end added.
    pub fn of_revival(was: State, items: i64, is_unstarted: bool) -> BranchCounts {
        BranchCounts::of_end(was, -items, is_unstarted)
    }
}

impl Change {
    /// Whether the branch of the job must count this change: it is the first change of a child, or ends it, or accounts for items
    /// of a block.
    pub fn is_counted(&self) -> bool {
        let accounts_for_items = || self.writes.as_ref().is_some_and(|step| step.accounts_for_items());
        self.branch_member.is_some() && (self.rev == Rev(0) || self.outcome.ends() || accounts_for_items())
    }

    /// Returns what this change of a child adds, its end included; `items` is the number before the change.
    pub fn counts(&self, items: i64) -> BranchCounts {
        let mut counts = self.counts_before_end(items);
        if let Some(state) = self.outcome.final_state() {
            let promoted = self.writes.as_ref().map_or(0, |step| i64::from(step.promoted_items()));
            counts.add(BranchCounts::of_end(state, items - counts.done - promoted, false));
        }
        counts
    }

    /// Returns what this change of a child adds without its end, for stores that count the end of a job separately.
    pub fn counts_before_end(&self, items: i64) -> BranchCounts {
        let (done, promoted) = self
            .writes
            .as_ref()
            .map_or((0, 0), |step| (i64::from(step.items), i64::from(step.promoted_items())));
        let first = if self.rev == Rev(0) { items } else { 0 };
        BranchCounts { started: first - promoted, done, ..BranchCounts::default() }
    }
}

impl StepWrites {
    /// Whether it accounts for items of a block: some are done, or are promoted.
    pub fn accounts_for_items(&self) -> bool {
        self.items > 0 || !self.promoted.is_empty()
    }

    /// Returns how many items of a block its promoted jobs represent.
    pub fn promoted_items(&self) -> u32 {
        self.promoted.iter().filter_map(|job| Some(job.branch_position.as_ref()?.items)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BranchMember, BranchNo, BranchPosition, ClaimNo, Epoch, JobId, NewJob, Outcome, Payload, Time, Wait,
        WorkerId,
    };

    fn counts(started: i64, done: i64, failed: i64, cancelled: i64) -> BranchCounts {
        BranchCounts { started, done, failed, cancelled }
    }

    /// A change of a block that has ten items left.
    fn change(rev: i32, outcome: Outcome, step: Option<StepWrites>) -> Change {
        let job = NewJob::new(JobId::from_parts(1, 1, 1), "k", "q", Payload::default());
        let claimed = job.claimed_at_submit(ClaimNo(1), Epoch(0), Time(0));
        let member = BranchMember { parent: JobId::from_parts(1, 2, 2), branch: BranchNo(1), items: 10 };
        Change {
            rev: Rev(rev),
            branch_member: Some(member),
            writes: step.map(Box::new),
            ..Change::new(&claimed, WorkerId(1), Time(0), outcome)
        }
    }

    fn done() -> Outcome {
        Outcome::Done(Payload::default())
    }

    /// A step with items that are done and promoted jobs of so many items each.
    fn step(items: u32, promoted: &[u32]) -> StepWrites {
        let job = |items: &u32| NewJob {
            branch_position: Some(Box::new(BranchPosition {
                branch: BranchNo(1),
                spawn: 0,
                item: String::new(),
                items: *items,
            })),
            ..NewJob::new(JobId::from_parts(1, 3, 3), "k", "q", Payload::default())
        };
        StepWrites { items, promoted: promoted.iter().map(job).collect(), ..StepWrites::default() }
    }

    #[test]
    fn an_end_is_counted_in_its_state_and_starts_a_child_that_never_started() {
        assert_eq!(BranchCounts::of_end(State::Done, 3, false), counts(0, 3, 0, 0));
        assert_eq!(BranchCounts::of_end(State::Failed, 3, false), counts(0, 0, 3, 0));
        assert_eq!(BranchCounts::of_end(State::Cancelled, 1, true), counts(1, 0, 0, 1));
    }

    #[test]
    fn a_revival_takes_back_what_the_end_added() {
        for state in [State::Failed, State::Cancelled] {
            for is_unstarted in [false, true] {
                let mut sum = BranchCounts::of_end(state, 4, is_unstarted);
                sum.add(BranchCounts::of_revival(state, 4, is_unstarted));
                assert_eq!(sum, BranchCounts::default(), "{state} {is_unstarted}");
            }
        }
    }

    #[test]
    fn the_first_change_of_a_child_starts_all_its_items() {
        assert_eq!(change(0, Outcome::Next, None).counts(10), counts(10, 0, 0, 0));
        assert_eq!(change(1, Outcome::Next, None).counts(10), counts(0, 0, 0, 0));
        assert_eq!(change(0, done(), None).counts(10), counts(10, 10, 0, 0));
        assert_eq!(change(4, done(), None).counts(10), counts(0, 10, 0, 0));
    }

    #[test]
    fn items_that_are_done_are_counted_once() {
        assert_eq!(change(1, Outcome::Next, Some(step(4, &[]))).counts(10), counts(0, 4, 0, 0));
        assert_eq!(change(0, done(), Some(step(4, &[]))).counts(10), counts(10, 10, 0, 0));
    }

    #[test]
    fn promoted_items_start_again_and_do_not_end_with_their_block() {
        let promotes = |rev, outcome| change(rev, outcome, Some(step(2, &[1, 2])));
        assert_eq!(promotes(1, Outcome::Next).counts(10), counts(-3, 2, 0, 0));
        assert_eq!(promotes(0, Outcome::Next).counts(10), counts(7, 2, 0, 0));
        assert_eq!(promotes(0, done()).counts(10), counts(7, 7, 0, 0), "three of ten are jobs of their own");
    }

    #[test]
    fn a_store_may_count_the_end_of_a_job_separately() {
        let last = change(0, done(), Some(step(2, &[1, 2])));
        let mut sum = last.counts_before_end(10);
        sum.add(BranchCounts::of_end(State::Done, 10 - 2 - 3, false));
        assert_eq!(sum, last.counts(10));
    }

    #[test]
    fn only_changes_that_add_something_are_counted() {
        assert!(change(0, Outcome::Next, None).is_counted(), "the first");
        assert!(change(1, done(), None).is_counted(), "the last");
        assert!(change(1, Outcome::Next, Some(step(1, &[]))).is_counted());
        assert!(change(1, Outcome::Next, Some(step(0, &[1]))).is_counted());
        assert!(!change(1, Outcome::Wait(Wait::YIELD), Some(step(0, &[]))).is_counted());
        let alone = Change { branch_member: None, ..change(0, done(), None) };
        assert!(!alone.is_counted(), "a job in no branch");
    }
}
