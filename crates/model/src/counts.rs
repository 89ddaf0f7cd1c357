//! How many jobs are in which state, as a store maintains it.
//!
//! A store keeps one sum per lane and adds to it in the transaction that moves a job. Claims and releases add nothing: a job that is
//! ready and one that is running are both live, and how many of these are running is read from the claims, which are few.

use serde::Serialize;

use crate::State;

/// Numbers of jobs, or differences of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct JobCounts {
    /// Jobs that have not ended.
    pub live: i64,
    /// Those of them that are scheduled.
    pub scheduled: i64,
    /// Those of them that are waiting.
    pub waiting: i64,
    /// Jobs that are done.
    pub done: i64,
    /// Jobs that have failed.
    pub failed: i64,
    /// Jobs that were cancelled.
    pub cancelled: i64,
}

impl JobCounts {
    /// One job in a state.
    pub const fn of(state: State) -> JobCounts {
        let none = JobCounts { live: 0, scheduled: 0, waiting: 0, done: 0, failed: 0, cancelled: 0 };
        match state {
            State::Ready | State::Running => JobCounts { live: 1, ..none },
            State::Scheduled => JobCounts { live: 1, scheduled: 1, ..none },
            State::Waiting => JobCounts { live: 1, waiting: 1, ..none },
            State::Done => JobCounts { done: 1, ..none },
            State::Failed => JobCounts { failed: 1, ..none },
            State::Cancelled => JobCounts { cancelled: 1, ..none },
        }
    }

    /// The difference that a job makes which moves from one state to another.
    pub const fn moved(from: State, to: State) -> JobCounts {
        JobCounts::of(to).minus(JobCounts::of(from))
    }

    /// Both together.
    pub const fn plus(self, other: JobCounts) -> JobCounts {
        JobCounts {
            live: self.live + other.live,
            scheduled: self.scheduled + other.scheduled,
            waiting: self.waiting + other.waiting,
            done: self.done + other.done,
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
        }
    }

    /// The difference between the two.
    pub const fn minus(self, other: JobCounts) -> JobCounts {
        JobCounts {
            live: self.live - other.live,
            scheduled: self.scheduled - other.scheduled,
            waiting: self.waiting - other.waiting,
            done: self.done - other.done,
            failed: self.failed - other.failed,
            cancelled: self.cancelled - other.cancelled,
        }
    }

    /// The number of jobs in each state, given how many are claimed. The two are read at about the same time: a difference between
    /// them is never shown as a negative number.
    pub fn by_state(self, running: u64) -> [(State, u64); 7] {
        let at_least_zero = |count: i64| u64::try_from(count).unwrap_or(0);
        let claimable = at_least_zero(self.live - self.scheduled - self.waiting);
        let running = running.min(claimable);
        [
            (State::Scheduled, at_least_zero(self.scheduled)),
            (State::Ready, claimable - running),
            (State::Running, running),
            (State::Waiting, at_least_zero(self.waiting)),
            (State::Done, at_least_zero(self.done)),
            (State::Failed, at_least_zero(self.failed)),
            (State::Cancelled, at_least_zero(self.cancelled)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::TRANSITIONS;

    #[test]
    fn every_transition_moves_one_job() {
        for (from, event, to) in TRANSITIONS {
            let after = JobCounts::of(*from).plus(JobCounts::moved(*from, *to));
            assert_eq!(after, JobCounts::of(*to), "{event:?}");
        }
    }

    #[test]
    fn a_job_is_in_the_state_it_was_counted_for() {
        for state in State::ALL {
            let running = u64::from(state == State::Running);
            let counted = JobCounts::of(state).by_state(running).map(|(counted, jobs)| (counted, jobs == 1));
            assert!(
                counted.iter().all(|(counted, is_one)| *is_one == (*counted == state)),
                "{state}: {counted:?}"
            );
        }
    }

    #[test]
    fn no_count_is_negative() {
        let ended = JobCounts { live: -1, done: 1, ..JobCounts::default() };
        assert!(ended.by_state(3).iter().all(|(state, jobs)| *jobs == u64::from(*state == State::Done)));
    }
}
