//! When a branch is looked at next, and whether lost children are to be looked for.
//!
//! Parents are woken by the commit that ends the last child. Looking at branches from time to time is the backstop for what a
//! crash between two commits, or a hand in the database, may leave; and what people see of a branch's progress.

use serde::{Deserialize, Serialize};

use crate::{Time, branch::BranchTally, branch::PollInterval};

/// What was seen when a branch was last looked at, and what follows from it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BranchPoll {
    /// When that was.
    pub at: Option<Time>,
    /// When it is looked at next.
    pub next_at: Option<Time>,
    /// How long that is from then, in seconds.
    pub interval: f64,
    /// How often it was looked at.
    pub polls: u32,
    /// How many children had ended.
    pub ended: i64,
    /// How many had not.
    pub pending: i64,
    /// How many of these nobody had begun with.
    pub never_started: i64,
    /// How many of these workers had claimed.
    #[serde(default)]
    pub running: i64,
    /// How many had not ended and were not in the store any more, when its children were last counted anew: they never end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: i64,
    /// How many ended per second since the time before.
    pub rate: f64,
    /// How long the rest takes at that rate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<f64>,
    /// When its children were last counted anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_at: Option<Time>,
    /// When lost ones were last looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched_at: Option<Time>,
    /// How many children were found lost and put back.
    pub redelivered: u64,
    /// When one last was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redelivered_at: Option<Time>,
}

fn is_zero(count: &i64) -> bool {
    *count == 0
}

/// What the rows of a branch's children say when they are counted anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChildRows {
    /// How many children ended how; nothing is said of those that started.
    pub ends: BranchTally,
    /// How many children have not ended.
    pub live: i64,
}

/// What follows from counting children anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recount {
    /// What is to be added to the counts.
    pub difference: BranchTally,
    /// How many children were neither counted as ended nor have a row: they never end.
    pub missing: i64,
}

impl ChildRows {
    /// Compares rows with the counts of the same moment.
    ///
    /// As long as every child has its row, the rows are right. If rows are missing, nobody knows how those children ended, so no
    /// count is lowered: what was counted stays counted, and whoever reads the results finds that there are fewer.
    pub fn recount(&self, spawned: i64, counted: &BranchTally) -> Recount {
        let lowest = if self.ends.ended() + self.live < spawned { 0 } else { i64::MIN };
        let difference = BranchTally {
            started: 0,
            done: (self.ends.done - counted.done).max(lowest),
            failed: (self.ends.failed - counted.failed).max(lowest),
            cancelled: (self.ends.cancelled - counted.cancelled).max(lowest),
        };
        let ended = counted.ended() + difference.ended();
        Recount { difference, missing: (spawned - self.live - ended).max(0) }
    }
}

/// What is seen of a branch.
#[derive(Clone, Copy, Debug)]
pub struct PollSample {
    /// When.
    pub now: Time,
    /// How many children were spawned.
    pub spawned: i64,
    /// How they ended so far.
    pub tally: BranchTally,
    /// How many of them workers have claimed.
    pub claimed: i64,
    /// How many of these have written nothing yet.
    pub claimed_unstarted: i64,
}

/// How many lost children one look puts back.
pub const MAX_REDELIVERED: usize = 200;

impl BranchPoll {
    /// What follows from looking again.
    pub fn next(&self, seen: &PollSample, pace: PollInterval) -> BranchPoll {
        let ended = seen.tally.ended();
        let pending = (seen.spawned - ended).max(0);
        let never_started = (seen.spawned - seen.tally.started - seen.claimed_unstarted).clamp(0, pending);
        let passed = self.at.map(|at| seen.now.since(at).as_secs_f64());
        let rate = match passed {
            Some(passed) if passed > 0.0 => ((ended - self.ended) as f64 / passed).max(0.0),
            _ => 0.0,
        };
        let eta = (rate > 0.0).then(|| pending as f64 / rate);
        let (min, max) = (pace.min.as_secs_f64(), pace.max.as_secs_f64());
        let wanted = match eta {
            Some(eta) => eta / 2.0,
            // Nothing has been seen to move yet.
            None if self.at.is_none() => min,
            None if seen.claimed > 0 => min,
            None if never_started > 0 => 2.0 * self.interval.max(min),
            // What is left is parked, or waits for another try: it says so itself when it ends.
            None => max,
        };
        let interval = wanted.max(min).min(max.max(min));
        let still = self.at.is_some() && ended <= self.ended;
        // Both walk all children, so neither is done again soon.
        let over = |last: Option<Time>| last.is_none_or(|last| seen.now.since(last) >= pace.max);
        // Children that end now and then say nothing of one that never starts.
        let stuck = self.at.is_some() && never_started > 0 && never_started >= self.never_started;
        BranchPoll {
            at: Some(seen.now),
            next_at: Some(seen.now.plus(std::time::Duration::from_secs_f64(interval))),
            interval,
            polls: self.polls.saturating_add(1),
            ended,
            pending,
            never_started,
            running: seen.claimed,
            missing: self.missing,
            rate,
            eta,
            counted_at: if still && over(self.counted_at) { Some(seen.now) } else { self.counted_at },
            searched_at: if stuck && over(self.searched_at) { Some(seen.now) } else { self.searched_at },
            redelivered: self.redelivered,
            redelivered_at: self.redelivered_at,
        }
    }

    /// Whether, by a look that followed this one, its children are to be counted anew: none has ended meanwhile, and that was
    /// not done lately.
    pub fn recount_due(&self, after: &BranchPoll) -> bool {
        after.counted_at.is_some() && after.counted_at == after.at && after.counted_at != self.counted_at
    }

    /// Whether this look counted children anew and found that some that have not ended are not there any more: whoever waits for
    /// them waits in vain, and is to be told.
    pub fn found_missing(&self) -> bool {
        self.missing > 0 && self.at.is_some() && self.counted_at == self.at
    }

    /// So many lost children were found and put back by this look.
    pub fn add_redelivered(&mut self, lost: usize) {
        if lost > 0 {
            self.redelivered += lost as u64;
            self.redelivered_at = self.at;
        }
        // There may be more of them.
        if lost >= MAX_REDELIVERED {
            (self.counted_at, self.searched_at) = (None, None);
        }
    }

    /// Whether, by a look that followed this one, lost children are to be looked for: there are some that nobody has begun
    /// with, they have not become fewer, and that was not done lately.
    pub fn search_due(&self, after: &BranchPoll) -> bool {
        after.searched_at.is_some() && after.searched_at == after.at && after.searched_at != self.searched_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: PollInterval =
        PollInterval { min: std::time::Duration::from_secs(5), max: std::time::Duration::from_secs(300) };

    fn seen(at: i64, done: i64, started: i64, claimed: i64) -> PollSample {
        let tally = BranchTally { started, done, ..BranchTally::default() };
        PollSample { now: Time(at * 1_000_000), spawned: 100_000, tally, claimed, claimed_unstarted: claimed }
    }

    #[test]
    fn the_next_look_comes_when_half_of_the_rest_is_done() {
        let first = BranchPoll::default().next(&seen(0, 0, 0, 100), PACE);
        assert_eq!((first.interval, first.polls, first.never_started), (5.0, 1, 99_900));
        let second = first.next(&seen(5, 1_000, 1_000, 100), PACE);
        assert_eq!((second.rate, second.eta, second.interval), (200.0, Some(495.0), 247.5));
        let third = second.next(&seen(250, 99_000, 99_000, 100), PACE);
        assert_eq!(third.interval, 5.0, "never below the floor");
    }

    #[test]
    fn what_does_not_move_is_looked_at_less_often() {
        let looked = |claimed| {
            BranchPoll::default().next(&seen(0, 10, 10, 0), PACE).next(&seen(5, 10, 10, claimed), PACE)
        };
        assert_eq!(looked(3).interval, 5.0, "something runs");
        let once = looked(0);
        assert_eq!(once.interval, 10.0, "nobody begins");
        let often = (0..10).fold(once, |poll, n| poll.next(&seen(100 + n, 10, 10, 0), PACE));
        assert_eq!(often.interval, 300.0, "never above the ceiling");
        let over = PollSample { spawned: 10, ..seen(9, 10, 10, 0) };
        assert_eq!(looked(0).next(&over, PACE).interval, 300.0, "all have ended, and that was not enough");
    }

    #[test]
    fn lost_children_are_searched_unless_fewer_have_never_started() {
        let first = BranchPoll::default().next(&seen(0, 10, 10, 0), PACE);
        assert!(!BranchPoll::default().search_due(&first), "nothing to compare with");
        assert!(first.search_due(&first.next(&seen(5, 10, 10, 0), PACE)));
        assert!(!first.search_due(&first.next(&seen(5, 11, 11, 0), PACE)), "one that had not started ended");
        assert!(!first.search_due(&first.next(&seen(5, 10, 10, 7), PACE)), "some were begun with");
        let mut searched = first.next(&seen(5, 10, 10, 0), PACE);
        assert!(searched.recount_due(&searched.next(&seen(400, 10, 10, 0), PACE)));
        assert!(!searched.search_due(&searched.next(&seen(10, 10, 10, 0), PACE)), "it was looked for lately");
        searched.add_redelivered(MAX_REDELIVERED);
        assert!(searched.search_due(&searched.next(&seen(10, 10, 10, 0), PACE)), "there may be more of them");
    }

    /// Of 100,000 children 10 have not ended, of which one never starts; the others end one by one, between all polls.
    #[test]
    fn ends_of_others_do_not_hide_a_lost_child() {
        let mut poll = BranchPoll::default().next(&seen(0, 99_990, 99_999, 0), PACE);
        let mut searched = Vec::new();
        for n in 1..=9 {
            let next = poll.next(&seen(n * 100, 99_990 + n, 99_999, 0), PACE);
            if poll.search_due(&next) {
                searched.push(n);
            }
            assert!(!poll.recount_due(&next), "something ended");
            poll = next;
        }
        assert_eq!(searched, [1, 4, 7], "once per window");
    }

    #[test]
    fn what_is_parked_is_left_alone_and_what_never_started_is_not() {
        let interval = |started| {
            let before = BranchPoll::default().next(&seen(0, 10, started, 0), PACE);
            before.next(&seen(5, 10, started, 0), PACE).interval
        };
        assert_eq!(interval(99_999), 10.0, "one has never started");
        assert_eq!(interval(100_000), 300.0, "all have started, and none of them runs");
    }

    #[test]
    fn counts_follow_the_rows_as_long_as_there_is_one_for_each_child() {
        let tally = |done, failed, cancelled| BranchTally { started: 0, done, failed, cancelled };
        let recount = |rows: BranchTally, live, counted: BranchTally| {
            let Recount { difference, missing } = ChildRows { ends: rows, live }.recount(10, &counted);
            (difference.ends(), missing)
        };
        assert_eq!(recount(tally(4, 1, 0), 5, tally(4, 1, 0)), ((0, 0, 0), 0));
        assert_eq!(recount(tally(4, 1, 0), 5, tally(6, 0, 2)), ((-2, 1, -2), 0), "up and down");
        assert_eq!(recount(tally(2, 1, 0), 5, tally(4, 1, 0)), ((0, 0, 0), 0), "two that ended were deleted");
        assert_eq!(recount(tally(4, 1, 0), 3, tally(4, 1, 0)), ((0, 0, 0), 2), "two that had not were");
        assert_eq!(
            recount(tally(4, 1, 0), 3, tally(2, 2, 0)),
            ((2, 0, 0), 1),
            "what ended counts all the same"
        );
        assert_eq!(recount(tally(0, 0, 0), 0, tally(0, 0, 0)), ((0, 0, 0), 10));
    }
}
