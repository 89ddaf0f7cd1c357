//! Polling: when a branch is checked next, and when its children are recounted or searched for lost ones.
//!
//! The commit that ends the last child wakes the parent. Polling is the backstop for what a crash between two commits, or somebody
//! editing the database, may leave; it also measures the progress that people see. A poll samples a branch ([`PollSample`]), and
//! [`BranchPoll::next`] decides from that and from the previous poll.
//!
//! Two checks read every child, so each runs at most once per `max` of the poll interval: a recount, when no child has ended since
//! the previous poll, and a search for lost children, when as many as before have never started.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{BranchCounts, Time, branch::PollInterval};

/// The latest poll of a branch, which the store keeps with the branch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BranchPoll {
    /// When the branch was polled; `None` before the first poll.
    pub at: Option<Time>,
    /// When it is polled next.
    pub next_at: Option<Time>,
    /// The seconds between the two.
    pub interval: f64,
    /// How many polls there were.
    pub polls: u32,
    /// How many children had ended.
    pub ended: i64,
    /// How many children had not ended.
    pub pending: i64,
    /// How many of these had never been started.
    pub never_started: i64,
    /// How many of these were claimed by workers.
    #[serde(default)]
    pub running: i64,
    /// How many children had neither ended nor a row when children were last recounted: they can never end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: i64,
    /// How many children ended per second since the previous poll.
    pub rate: f64,
    /// In how many seconds the rest ends at that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<f64>,
    /// When children were last recounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_at: Option<Time>,
    /// When lost children were last searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched_at: Option<Time>,
    /// How many lost children were found and put back into the ready set.
    pub redelivered: u64,
    /// When the last of them was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redelivered_at: Option<Time>,
}

fn is_zero(count: &i64) -> bool {
    *count == 0
}

/// The state of a branch when it is polled.
#[derive(Clone, Copy, Debug)]
pub struct PollSample {
    /// The time of the poll.
    pub now: Time,
    /// How many children were spawned.
    pub spawned: i64,
    /// How many of them have started and ended.
    pub counts: BranchCounts,
    /// How many of them are claimed by workers.
    pub claimed: i64,
    /// How many of the claimed ones have committed nothing yet.
    pub claimed_unstarted: i64,
}

/// The most lost children that one poll puts back.
pub const MAX_REDELIVERED: usize = 200;

impl BranchPoll {
    /// Returns the poll that follows this one, from a new sample.
    pub fn next(&self, sample: &PollSample, bounds: PollInterval) -> BranchPoll {
        let ended = sample.counts.ended();
        let pending = (sample.spawned - ended).max(0);
        let never_started =
            (sample.spawned - sample.counts.started - sample.claimed_unstarted).clamp(0, pending);
        let elapsed = self.at.map(|at| (sample.now - at).as_secs_f64());
        let rate = match elapsed {
            Some(elapsed) if elapsed > 0.0 => ((ended - self.ended) as f64 / elapsed).max(0.0),
            _ => 0.0,
        };
        let eta = (rate > 0.0).then(|| pending as f64 / rate);
        let interval = self.next_interval(eta, sample.claimed, never_started, bounds);
        let none_ended = self.at.is_some() && ended <= self.ended;
        // Other children that end do not hide one that never starts.
        let none_started = self.at.is_some() && never_started > 0 && never_started >= self.never_started;
        let long_ago = |last: Option<Time>| last.is_none_or(|last| sample.now - last >= bounds.max);
        let again =
            |due: bool, last: Option<Time>| if due && long_ago(last) { Some(sample.now) } else { last };
        BranchPoll {
            at: Some(sample.now),
            next_at: Some(sample.now + Duration::from_secs_f64(interval)),
            interval,
            polls: self.polls.saturating_add(1),
            ended,
            pending,
            never_started,
            running: sample.claimed,
            missing: self.missing,
            rate,
            eta,
            counted_at: again(none_ended, self.counted_at),
            searched_at: again(none_started, self.searched_at),
            redelivered: self.redelivered,
            redelivered_at: self.redelivered_at,
        }
    }

    /// Returns the seconds until the next poll, within the bounds: half of the estimated rest, or a guess if none has ended.
    fn next_interval(&self, eta: Option<f64>, claimed: i64, never_started: i64, bounds: PollInterval) -> f64 {
        let (min, max) = (bounds.min.as_secs_f64(), bounds.max.as_secs_f64());
        let wanted = match eta {
            Some(eta) => eta / 2.0,
            None if self.at.is_none() => min,
            None if claimed > 0 => min,
            None if never_started > 0 => 2.0 * self.interval.max(min),
            // The rest is parked or waits for a retry; its commits wake the parent.
            None => max,
        };
        wanted.max(min).min(max.max(min))
    }

    /// Whether `next`, the poll that followed this one, must recount the children: none has ended since this poll, and the last
    /// recount was long ago.
    pub fn recount_due(&self, next: &BranchPoll) -> bool {
        next.counted_at.is_some() && next.counted_at == next.at && next.counted_at != self.counted_at
    }

    /// Whether `next`, the poll that followed this one, must search for lost children: as many as before have never started, and
    /// the last search was long ago.
    pub fn search_due(&self, next: &BranchPoll) -> bool {
        next.searched_at.is_some() && next.searched_at == next.at && next.searched_at != self.searched_at
    }

    /// Whether this poll recounted the children and found some missing. Then the store must wake the parent, which would wait for
    /// them for ever.
    pub fn found_missing(&self) -> bool {
        self.missing > 0 && self.at.is_some() && self.counted_at == self.at
    }

    /// Returns when the branch is polled next. `to_cancel`: its live children are being cancelled, and the caller is reminded of that
    /// after `cancel_again`. Otherwise it is polled while its parent watches it.
    pub fn next_poll_at(&self, to_cancel: bool, is_watched: bool, cancel_again: Duration) -> Option<Time> {
        match (to_cancel, is_watched) {
            (true, _) => self.at.map(|at| at + cancel_again),
            (false, true) => self.next_at,
            (false, false) => None,
        }
    }

    /// Records that this poll put back `lost` children. If there may be more, the next poll searches again.
    pub fn add_redelivered(&mut self, lost: usize) {
        if lost > 0 {
            self.redelivered += lost as u64;
            self.redelivered_at = self.at;
        }
        if lost >= MAX_REDELIVERED {
            (self.counted_at, self.searched_at) = (None, None);
        }
    }
}

/// The children of a branch, counted from their own rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChildRows {
    /// How many have ended in which state; `started` is not set.
    pub ends: BranchCounts,
    /// How many have not ended.
    pub live: i64,
}

/// What follows from a recount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recount {
    /// What to add to the counts of the branch.
    pub difference: BranchCounts,
    /// How many children were neither counted as ended nor have a row: they can never end.
    pub missing: i64,
}

impl ChildRows {
    /// Compares the rows with the branch's counts of the same time.
    ///
    /// While every child has a row, the rows are right. If rows are missing, nobody knows how those children ended, so no count is
    /// lowered: what was counted stays counted, and a reader of the results finds fewer than were counted.
    pub fn recount(&self, spawned: i64, counted: &BranchCounts) -> Recount {
        let lowest = if self.ends.ended() + self.live < spawned { 0 } else { i64::MIN };
        let difference = BranchCounts {
            started: 0,
            done: (self.ends.done - counted.done).max(lowest),
            failed: (self.ends.failed - counted.failed).max(lowest),
            cancelled: (self.ends.cancelled - counted.cancelled).max(lowest),
        };
        let ended = counted.ended() + difference.ended();
        Recount { difference, missing: (spawned - self.live - ended).max(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: PollInterval = PollInterval { min: Duration::from_secs(5), max: Duration::from_secs(300) };

    /// A sample of a branch with 100,000 children, some seconds after 1970.
    fn sample(seconds: i64, done: i64, started: i64, claimed: i64) -> PollSample {
        let counts = BranchCounts { started, done, ..BranchCounts::default() };
        let now = Time(seconds * 1_000_000);
        PollSample { now, spawned: 100_000, counts, claimed, claimed_unstarted: claimed }
    }

    #[test]
    fn the_next_poll_is_when_half_of_the_rest_should_have_ended() {
        let first = BranchPoll::default().next(&sample(0, 0, 0, 100), BOUNDS);
        assert_eq!((first.interval, first.polls, first.never_started), (5.0, 1, 99_900));
        let second = first.next(&sample(5, 1_000, 1_000, 100), BOUNDS);
        assert_eq!((second.rate, second.eta, second.interval), (200.0, Some(495.0), 247.5));
        let third = second.next(&sample(250, 99_000, 99_000, 100), BOUNDS);
        assert_eq!(third.interval, 5.0, "never below the minimum");
    }

    #[test]
    fn a_branch_without_progress_is_polled_less_often() {
        let polled = |claimed| {
            let first = BranchPoll::default().next(&sample(0, 10, 10, 0), BOUNDS);
            first.next(&sample(5, 10, 10, claimed), BOUNDS)
        };
        assert_eq!(polled(3).interval, 5.0, "some are claimed");
        let idle = polled(0);
        assert_eq!(idle.interval, 10.0, "none is claimed");
        let last = (0..10).fold(idle, |poll, n| poll.next(&sample(100 + n, 10, 10, 0), BOUNDS));
        assert_eq!(last.interval, 300.0, "never above the maximum");
        let all_ended = PollSample { spawned: 10, ..sample(9, 10, 10, 0) };
        assert_eq!(
            polled(0).next(&all_ended, BOUNDS).interval,
            300.0,
            "all have ended, and the merge is not over"
        );
    }

    #[test]
    fn lost_children_are_searched_unless_fewer_have_never_started() {
        let first = BranchPoll::default().next(&sample(0, 10, 10, 0), BOUNDS);
        assert!(!BranchPoll::default().search_due(&first), "no poll to compare with");
        assert!(first.search_due(&first.next(&sample(5, 10, 10, 0), BOUNDS)));
        assert!(
            !first.search_due(&first.next(&sample(5, 11, 11, 0), BOUNDS)),
            "one of them started and ended"
        );
        assert!(!first.search_due(&first.next(&sample(5, 10, 10, 7), BOUNDS)), "some of them were claimed");
        let mut searched = first.next(&sample(5, 10, 10, 0), BOUNDS);
        assert!(searched.recount_due(&searched.next(&sample(400, 10, 10, 0), BOUNDS)));
        assert!(
            !searched.search_due(&searched.next(&sample(10, 10, 10, 0), BOUNDS)),
            "searched a moment ago"
        );
        searched.add_redelivered(MAX_REDELIVERED);
        assert!(searched.search_due(&searched.next(&sample(10, 10, 10, 0), BOUNDS)), "there may be more");
    }

    /// Of 100,000 children 10 have not ended, of which one never starts; the others end one by one, between polls.
    #[test]
    fn ends_of_others_do_not_hide_a_lost_child() {
        let mut poll = BranchPoll::default().next(&sample(0, 99_990, 99_999, 0), BOUNDS);
        let mut searched = Vec::new();
        for n in 1..=9 {
            let next = poll.next(&sample(n * 100, 99_990 + n, 99_999, 0), BOUNDS);
            if poll.search_due(&next) {
                searched.push(n);
            }
            assert!(!poll.recount_due(&next), "a child ended");
            poll = next;
        }
        assert_eq!(searched, [1, 4, 7], "once per 300 seconds");
    }

    #[test]
    fn a_branch_whose_rest_is_parked_is_polled_rarely() {
        let interval = |started| {
            let first = BranchPoll::default().next(&sample(0, 10, started, 0), BOUNDS);
            first.next(&sample(5, 10, started, 0), BOUNDS).interval
        };
        assert_eq!(interval(99_999), 10.0, "one has never started");
        assert_eq!(interval(100_000), 300.0, "all have started, and none is claimed");
    }

    #[test]
    fn a_branch_is_polled_while_children_are_cancelled_or_it_is_watched() {
        let poll = BranchPoll::default().next(&sample(10, 0, 0, 0), BOUNDS);
        let next_at =
            |to_cancel, is_watched| poll.next_poll_at(to_cancel, is_watched, Duration::from_secs(15));
        assert_eq!(next_at(true, false), Some(Time(25_000_000)));
        assert_eq!(next_at(true, true), Some(Time(25_000_000)), "however long the interval is");
        assert_eq!(next_at(false, true), Some(Time(15_000_000)));
        assert_eq!(next_at(false, false), None);
    }

    #[test]
    fn a_recount_follows_the_rows_and_lowers_no_count_if_rows_are_missing() {
        let counts = |done, failed, cancelled| BranchCounts { started: 0, done, failed, cancelled };
        let recount = |rows: BranchCounts, live, counted: BranchCounts| {
            let Recount { difference, missing } = ChildRows { ends: rows, live }.recount(10, &counted);
            (difference.ends(), missing)
        };
        assert_eq!(recount(counts(4, 1, 0), 5, counts(4, 1, 0)), ((0, 0, 0), 0));
        assert_eq!(recount(counts(4, 1, 0), 5, counts(6, 0, 2)), ((-2, 1, -2), 0), "up and down");
        assert_eq!(
            recount(counts(2, 1, 0), 5, counts(4, 1, 0)),
            ((0, 0, 0), 0),
            "two ended ones were deleted"
        );
        assert_eq!(
            recount(counts(4, 1, 0), 3, counts(4, 1, 0)),
            ((0, 0, 0), 2),
            "two live ones were deleted"
        );
        assert_eq!(recount(counts(4, 1, 0), 3, counts(2, 2, 0)), ((2, 0, 0), 1), "uncounted ends are added");
        assert_eq!(recount(counts(0, 0, 0), 0, counts(0, 0, 0)), ((0, 0, 0), 10));
    }
}
