//! When a merge is over: a pure function from the counts of sealed branches.
//!
//! A merge that is not over watches its branches. The counts of several branches are never summed when a child ends, so a
//! threshold over all of them is divided among the open ones: a merge cannot become over before some branch reaches its part of
//! the threshold. Then the store wakes the parent, which decides again with all counts.

use serde::{Deserialize, Serialize};

use super::{Merge, Rule, Share};
use crate::{BranchCounts, BranchWatch};

/// How far a branch has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BranchProgress {
    /// How many children were spawned.
    pub spawned: i64,
    /// How many of them have ended in which state.
    pub counts: BranchCounts,
}

impl BranchProgress {
    /// Returns the sum of several branches.
    pub fn sum(branches: &[BranchProgress]) -> BranchProgress {
        branches.iter().fold(BranchProgress::default(), |mut sum, branch| {
            sum.spawned += branch.spawned;
            sum.counts.add(branch.counts);
            sum
        })
    }

    /// Describes the unsuccessful children, as in "of 5 children 3 failed".
    fn unsuccessful_in_words(&self) -> String {
        let ended = match (self.counts.failed, self.counts.cancelled) {
            (failed, 0) => format!("{failed} failed"),
            (0, cancelled) => format!("{cancelled} were cancelled"),
            (failed, cancelled) => format!("{failed} failed and {cancelled} were cancelled"),
        };
        format!("of {} children {ended}", self.spawned)
    }
}

/// What a merge decides.
#[derive(Clone, PartialEq, Debug)]
pub enum MergeDecision {
    /// It is over and succeeded.
    Met,
    /// It is over and failed, for this reason.
    Failed(String),
    /// It is not over. These are the watches, one for each branch; `None` for a branch that needs none.
    Wait(Vec<Option<BranchWatch>>),
}

impl Merge {
    /// Decides whether the merge of these sealed branches is over.
    pub fn decide(&self, branches: &[BranchProgress]) -> MergeDecision {
        let all = BranchProgress::sum(branches);
        let (done, unsuccessful, ended) = (all.counts.done, all.counts.unsuccessful(), all.counts.ended());
        let open = OpenBranches::new(self, branches);
        match &self.rule {
            Rule::All if done >= all.spawned => MergeDecision::Met,
            Rule::All => open
                .watch(|branch| BranchWatch { done: Some(branch.spawned as u64), ..BranchWatch::default() }),
            Rule::FailFast if unsuccessful > 0 => MergeDecision::Failed(all.unsuccessful_in_words()),
            Rule::FailFast if ended >= all.spawned => MergeDecision::Met,
            Rule::FailFast => open.watch(|branch| BranchWatch {
                done: Some(branch.spawned as u64),
                unsuccessful: open.part(branch.counts.unsuccessful(), 1),
                ..BranchWatch::default()
            }),
            Rule::Tolerate(share) => {
                let tolerated = share.of(all.spawned);
                if unsuccessful > tolerated {
                    let why = format!("{}, and {tolerated} are tolerated", all.unsuccessful_in_words());
                    return MergeDecision::Failed(why);
                }
                if ended >= all.spawned {
                    return MergeDecision::Met;
                }
                open.watch(|branch| BranchWatch {
                    unsuccessful: open.part(branch.counts.unsuccessful(), tolerated + 1 - unsuccessful),
                    ended: Some(branch.spawned as u64),
                    ..BranchWatch::default()
                })
            }
            Rule::Quorum(quorum) => {
                let quorum = *quorum as i64;
                if done >= quorum {
                    return MergeDecision::Met;
                }
                if all.spawned - unsuccessful < quorum {
                    let why = format!("{}, so {quorum} can no longer be done", all.unsuccessful_in_words());
                    return MergeDecision::Failed(why);
                }
                let until_impossible = all.spawned - quorum + 1 - unsuccessful;
                open.watch(|branch| BranchWatch {
                    done: open.part(branch.counts.done, quorum - done),
                    unsuccessful: open.part(branch.counts.unsuccessful(), until_impossible),
                    ..BranchWatch::default()
                })
            }
        }
    }
}

impl Share {
    /// Returns the number of children that this share is of `spawned`.
    fn of(self, spawned: i64) -> i64 {
        match self {
            Share::Count(count) => count as i64,
            Share::Percent(percent) => (spawned as f64 * percent / 100.0).floor() as i64,
        }
    }
}

/// The branches of a merge that is not over, among which thresholds are divided.
struct OpenBranches<'a> {
    merge: &'a Merge,
    branches: &'a [BranchProgress],
    /// How many branches have children that have not ended; at least 1.
    open: i64,
}

impl<'a> OpenBranches<'a> {
    fn new(merge: &'a Merge, branches: &'a [BranchProgress]) -> OpenBranches<'a> {
        let open = branches.iter().filter(|branch| branch.counts.ended() < branch.spawned).count().max(1);
        OpenBranches { merge, branches, open: open as i64 }
    }

    /// Returns the count at which a branch wakes the parent, if it has `count` now and all branches together may still gain
    /// `left`: one of them must gain its part, rounded up, before all together gain `left`.
    fn part(&self, count: i64, left: i64) -> Option<u64> {
        Some((count + ((left + self.open - 1) / self.open).max(1)) as u64)
    }

    /// Watches every branch whose counts can still change the decision.
    fn watch(&self, watch: impl Fn(&BranchProgress) -> BranchWatch) -> MergeDecision {
        let can_change = |branch: &BranchProgress| match self.merge.waits_for_unsuccessful() {
            true => branch.counts.done < branch.spawned,
            false => branch.counts.ended() < branch.spawned,
        };
        let poll_interval = self.merge.poll_interval;
        let watch = |branch: &BranchProgress| {
            can_change(branch).then(|| BranchWatch { poll_interval, ..watch(branch) })
        };
        MergeDecision::Wait(self.branches.iter().map(watch).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::percent, *};

    fn branch(spawned: i64, done: i64, failed: i64, cancelled: i64) -> BranchProgress {
        BranchProgress { spawned, counts: BranchCounts { started: 0, done, failed, cancelled } }
    }

    /// The watched counts (done, unsuccessful, ended) of the branches that are watched.
    fn watched(merge: &Merge, branches: &[BranchProgress]) -> Vec<(Option<u64>, Option<u64>, Option<u64>)> {
        match merge.decide(branches) {
            MergeDecision::Wait(watches) => watches
                .into_iter()
                .flatten()
                .map(|watch| (watch.done, watch.unsuccessful, watch.ended))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_waits_for_failed_children() {
        let all = Merge::all();
        assert_eq!(all.decide(&[branch(0, 0, 0, 0)]), MergeDecision::Met, "an empty branch");
        assert_eq!(all.decide(&[branch(3, 3, 0, 0), branch(1, 1, 0, 0)]), MergeDecision::Met);
        assert_eq!(watched(&all, &[branch(3, 2, 1, 0)]), [(Some(3), None, None)]);
        assert_eq!(watched(&all, &[branch(3, 3, 0, 0), branch(9, 1, 0, 0)]), [(Some(9), None, None)]);
    }

    #[test]
    fn fail_fast_fails_with_the_first_unsuccessful_child() {
        let fast = Merge::fail_fast();
        assert_eq!(watched(&fast, &[branch(3, 2, 0, 0)]), [(Some(3), Some(1), None)]);
        let failed = |why: &str| MergeDecision::Failed(why.into());
        assert_eq!(fast.decide(&[branch(3, 0, 1, 0)]), failed("of 3 children 1 failed"));
        assert_eq!(fast.decide(&[branch(3, 0, 0, 1)]), failed("of 3 children 1 were cancelled"));
        assert_eq!(fast.decide(&[branch(3, 3, 0, 0)]), MergeDecision::Met);
    }

    #[test]
    fn tolerated_failures_are_divided_among_the_branches() {
        let five = Merge::tolerate(5);
        // Six are too many, so one of two branches must reach three first.
        assert_eq!(
            watched(&five, &[branch(100, 0, 0, 0), branch(100, 0, 0, 0)]),
            [(None, Some(3), Some(100)), (None, Some(3), Some(100))]
        );
        assert_eq!(
            watched(&five, &[branch(100, 0, 3, 0), branch(100, 0, 0, 2)]),
            [(None, Some(4), Some(100)), (None, Some(3), Some(100))]
        );
        let why = "of 200 children 3 failed and 3 were cancelled, and 5 are tolerated";
        assert_eq!(
            five.decide(&[branch(100, 0, 3, 0), branch(100, 0, 0, 3)]),
            MergeDecision::Failed(why.into())
        );
        assert_eq!(five.decide(&[branch(10, 5, 5, 0)]), MergeDecision::Met);
        let half_percent = Merge::tolerate(percent(0.5));
        assert_eq!(half_percent.decide(&[branch(1_000, 995, 5, 0)]), MergeDecision::Met);
        assert!(matches!(half_percent.decide(&[branch(1_000, 0, 6, 0)]), MergeDecision::Failed(_)));
        assert_eq!(Merge::settled().decide(&[branch(2, 0, 1, 1)]), MergeDecision::Met);
    }

    #[test]
    fn a_quorum_is_met_or_fails_when_it_is_impossible() {
        let three = Merge::quorum(3);
        assert_eq!(watched(&three, &[branch(5, 1, 1, 0)]), [(Some(3), Some(3), None)]);
        assert_eq!(three.decide(&[branch(5, 3, 0, 0)]), MergeDecision::Met);
        let why = "of 5 children 3 failed, so 3 can no longer be done";
        assert_eq!(three.decide(&[branch(5, 0, 3, 0)]), MergeDecision::Failed(why.into()));
        assert!(matches!(Merge::quorum(1).decide(&[branch(0, 0, 0, 0)]), MergeDecision::Failed(_)));
    }

    /// Ends children in random order and checks that a merge never becomes over without a watch being met, and that no watch is
    /// met when it is set.
    #[test]
    fn a_merge_is_never_over_before_a_watch_is_met() {
        let merges =
            [Merge::all(), Merge::fail_fast(), Merge::tolerate(2), Merge::quorum(4), Merge::settled()];
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let is_met = |watches: &[Option<BranchWatch>], branches: &[BranchProgress]| {
            let mut pairs = watches.iter().zip(branches);
            pairs.any(|(watch, branch)| watch.as_ref().is_some_and(|watch| watch.is_met(&branch.counts)))
        };
        for case in 0..2_000 {
            let merge = &merges[case % merges.len()];
            let mut branches: Vec<BranchProgress> =
                (0..1 + random(3)).map(|_| branch(random(6) as i64, 0, 0, 0)).collect();
            let mut decision = merge.decide(&branches);
            let mut is_new = true;
            while let MergeDecision::Wait(watches) = &decision {
                assert!(!is_new || !is_met(watches, &branches), "{merge:?} is woken at once: {branches:?}");
                is_new = false;
                let has_open = |index: &usize| branches[*index].counts.ended() < branches[*index].spawned;
                let open: Vec<usize> = (0..branches.len()).filter(has_open).collect();
                let Some(index) = open.get(random(open.len().max(1) as u64) as usize) else { break };
                match random(4) {
                    0 => branches[*index].counts.failed += 1,
                    _ => branches[*index].counts.done += 1,
                }
                let woken = is_met(watches, &branches);
                let now = merge.decide(&branches);
                let is_over = !matches!(now, MergeDecision::Wait(_));
                assert!(woken || !is_over, "{merge:?} is over and nobody is woken: {branches:?}");
                if woken {
                    (decision, is_new) = (now, true);
                }
            }
        }
    }
}
