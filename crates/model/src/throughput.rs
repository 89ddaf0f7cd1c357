//! How much work ended in a span of time: how many jobs, how many failed attempts, and how long jobs waited and ran.
//!
//! A job waits from when it is due until an attempt starts, and runs from then until its commit. Both are those of the last attempt,
//! which ended the job; an attempt of a machine or workflow begins when it is claimed. A job that was ended from outside of an
//! attempt (cancelled while nobody ran it, expired, failed because its workers died) is counted, but has no times.

use crate::{Histogram, State, Time};

/// What ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Jobs that are done.
    pub done: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Attempts that failed and were followed by another one.
    pub retried: u64,
    /// How long jobs waited between being due and starting.
    pub wait_times: Histogram,
    /// How long their last attempt ran.
    pub run_times: Histogram,
}

impl Ended {
    /// How many jobs ended.
    pub fn jobs(&self) -> u64 {
        self.done + self.failed + self.cancelled
    }

    /// Counts a job that ended in this state. A state that is not final counts nothing.
    pub fn add_job(&mut self, state: State) {
        match state {
            State::Done => self.done += 1,
            State::Failed => self.failed += 1,
            State::Cancelled => self.cancelled += 1,
            _ => {}
        }
    }

    /// Counts the times of an attempt that ended a job.
    pub fn add_times(&mut self, times: AttemptTimes) {
        self.wait_times.add(times.wait, 1);
        self.run_times.add(times.run, 1);
    }

    /// Adds other counts.
    pub fn merge(&mut self, other: &Ended) {
        self.done += other.done;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.retried += other.retried;
        self.wait_times.merge(&other.wait_times);
        self.run_times.merge(&other.run_times);
    }
}

/// How long a job waited for an attempt and how long that ran, as buckets of a [`Histogram`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttemptTimes {
    /// The bucket of the time between being due and starting.
    pub wait: u8,
    /// The bucket of the time between starting and ending.
    pub run: u8,
}

impl AttemptTimes {
    /// The times of an attempt.
    pub fn new(due_at: Time, started_at: Time, ended_at: Time) -> AttemptTimes {
        let bucket = |from: Time, to: Time| Histogram::bucket(to.micros().saturating_sub(from.micros()));
        AttemptTimes { wait: bucket(due_at, started_at), run: bucket(started_at, ended_at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_state_and_sums_add_up() {
        let mut ended = Ended { retried: 2, ..Ended::default() };
        for state in [State::Done, State::Done, State::Failed, State::Cancelled, State::Ready] {
            ended.add_job(state);
        }
        ended.add_times(AttemptTimes::new(Time(0), Time(5_000), Time(6_000)));
        ended.merge(&ended.clone());
        assert_eq!((ended.done, ended.failed, ended.cancelled, ended.retried), (4, 2, 2, 4));
        assert_eq!(ended.jobs(), 8);
        assert_eq!((ended.wait_times.count(), ended.run_times.count()), (2, 2));
    }

    #[test]
    fn a_worker_whose_clock_is_behind_makes_no_negative_wait() {
        let times = AttemptTimes::new(Time(1_000_000), Time(0), Time(1_000_000));
        assert_eq!((times.wait, times.run), (Histogram::bucket(0), Histogram::bucket(1_000_000)));
    }
}
