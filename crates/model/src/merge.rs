//! How branches are merged: what their parent waits for, and when it has waited in vain.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    BranchTally, BranchWatch, Invalid,
    branch::PollInterval,
    limits::{MAX_DELAY, invalid},
};

/// How branches are merged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Merge {
    rule: Rule,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// How often the branches are looked at meanwhile.
    #[serde(default)]
    pub poll_interval: PollInterval,
    /// Whether children that have not ended when it is over go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rest_runs: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rule {
    All,
    FailFast,
    Tolerate(Share),
    Quorum(u64),
}

/// How many of the children.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// So many.
    Count(u64),
    /// So many of a hundred that were spawned.
    Percent(f64),
}

impl From<u64> for Share {
    fn from(count: u64) -> Share {
        Share::Count(count)
    }
}

/// So many of a hundred children.
pub fn percent(percent: f64) -> Share {
    Share::Percent(percent)
}

impl Merge {
    fn new(rule: Rule) -> Merge {
        Merge { rule, timeout: None, poll_interval: PollInterval::default(), rest_runs: false }
    }

    /// When all children have ended well. One that fails is waited for: the parent stays parked until it was retried and
    /// ended well.
    pub fn all() -> Merge {
        Merge::new(Rule::All)
    }

    /// When all children have ended well; fails as soon as one has not.
    pub fn fail_fast() -> Merge {
        Merge::new(Rule::FailFast)
    }

    /// When all children have ended; fails as soon as more than so many have not ended well.
    pub fn tolerate(share: impl Into<Share>) -> Merge {
        Merge::new(Rule::Tolerate(share.into()))
    }

    /// When all children have ended, however they did.
    pub fn settled() -> Merge {
        Merge::tolerate(percent(100.0))
    }

    /// When so many children have ended well; fails as soon as that cannot be any more.
    pub fn quorum(count: u64) -> Merge {
        Merge::new(Rule::Quorum(count))
    }

    /// Fails if it takes longer than this, from when the workflow first came to it.
    pub fn timeout(mut self, timeout: Duration) -> Merge {
        self.timeout = Some(timeout);
        self
    }

    /// Has the branches looked at no more often, and no less often, than this while they are waited for: every 5 seconds to 5
    /// minutes, unless you say otherwise. It is the backstop: a parent is woken by the end of its last child.
    pub fn poll_interval(mut self, min: Duration, max: Duration) -> Merge {
        self.poll_interval = PollInterval { min, max };
        self
    }

    /// Lets children go on that have not ended when the merge is over, well or badly. Unless you say so they are cancelled.
    pub fn let_rest_run(mut self) -> Merge {
        self.rest_runs = true;
        self
    }

    /// Checks what was asked for.
    pub fn check(&self) -> Result<(), Invalid> {
        let pace = self.poll_interval;
        if pace.min > pace.max || pace.min.is_zero() {
            let why = format!("is from {:?} to {:?}", pace.min, pace.max);
            let hint = "give the shorter time first, and let it be longer than nothing";
            return Err(invalid("the pace of the merge", why, hint));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero() || timeout > MAX_DELAY) {
            let hint = "leave it out to wait for ever, or choose one of up to 100 years";
            return Err(invalid("the timeout of the merge", "is zero, or longer than 100 years", hint));
        }
        match self.rule {
            Rule::Tolerate(Share::Percent(percent)) if !(0.0..=100.0).contains(&percent) => {
                let why = format!("is {percent} per cent of the children");
                Err(invalid("what the merge tolerates", why, "use 0 to 100"))
            }
            Rule::Quorum(0) => {
                let hint = "ask for one at least, or do not merge by quorum";
                Err(invalid("the quorum of the merge", "is zero", hint))
            }
            _ => Ok(()),
        }
    }

    /// Whether children that failed or were cancelled are waited for, until somebody retries them.
    pub fn waits_for_unsuccessful(&self) -> bool {
        matches!(self.rule, Rule::All)
    }

    /// What follows from how branches stand that were sealed.
    pub fn decide(&self, branches: &[BranchProgress]) -> MergeDecision {
        let all = BranchProgress::sum(branches);
        let (done, bad, ended) = (all.tally.done, all.tally.unsuccessful(), all.tally.ended());
        let open = branches.iter().filter(|stand| stand.tally.ended() < stand.spawned).count().max(1) as i64;
        // If a threshold is shared out, none is passed unnoticed: each branch tells of its share.
        let share = |count: i64, left: i64| Some((count + ((left + open - 1) / open).max(1)) as u64);
        // One whose children have all ended has nothing more to tell, unless those that did not end well are waited for.
        let watches = |watch: &dyn Fn(&BranchProgress) -> BranchWatch| {
            let ended = |stand: &BranchProgress| match self.rule {
                Rule::All => stand.tally.done >= stand.spawned,
                _ => stand.tally.ended() >= stand.spawned,
            };
            let watch = |stand: &BranchProgress| (!ended(stand)).then(|| watch(stand));
            MergeDecision::Wait(branches.iter().map(watch).collect())
        };
        let pace = self.poll_interval;
        match &self.rule {
            Rule::All if done >= all.spawned => MergeDecision::Met,
            Rule::All => watches(&|stand| BranchWatch {
                done: Some(stand.spawned as u64),
                poll_interval: pace,
                ..BranchWatch::default()
            }),
            Rule::FailFast if bad > 0 => MergeDecision::Failed(bad_of(&all)),
            Rule::FailFast if ended >= all.spawned => MergeDecision::Met,
            Rule::FailFast => watches(&|stand| {
                let done = Some(stand.spawned as u64);
                BranchWatch {
                    done,
                    unsuccessful: share(stand.tally.unsuccessful(), 1),
                    ended: None,
                    poll_interval: pace,
                }
            }),
            Rule::Tolerate(tolerated) => {
                let allowed = match *tolerated {
                    Share::Count(count) => count as i64,
                    Share::Percent(percent) => (all.spawned as f64 * percent / 100.0).floor() as i64,
                };
                if bad > allowed {
                    return MergeDecision::Failed(format!("{}, and {allowed} are tolerated", bad_of(&all)));
                }
                if ended >= all.spawned {
                    return MergeDecision::Met;
                }
                watches(&|stand| {
                    let ended = Some(stand.spawned as u64);
                    BranchWatch {
                        done: None,
                        unsuccessful: share(stand.tally.unsuccessful(), allowed + 1 - bad),
                        ended,
                        poll_interval: pace,
                    }
                })
            }
            Rule::Quorum(quorum) => {
                let quorum = *quorum as i64;
                if done >= quorum {
                    return MergeDecision::Met;
                }
                if all.spawned - bad < quorum {
                    return MergeDecision::Failed(format!(
                        "{}, so {quorum} cannot end well any more",
                        bad_of(&all)
                    ));
                }
                let hopeless = all.spawned - quorum + 1 - bad;
                watches(&|stand| {
                    let (done, bad) =
                        (share(stand.tally.done, quorum - done), share(stand.tally.unsuccessful(), hopeless));
                    BranchWatch { done, unsuccessful: bad, ended: None, poll_interval: pace }
                })
            }
        }
    }
}

impl std::fmt::Display for Merge {
    /// The rule in words, as it follows "merged".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.rule {
            Rule::All => f.write_str("when all children have ended well; one that has not is waited for")?,
            Rule::FailFast => {
                f.write_str("when all children have ended well; fails as soon as one has not")?
            }
            Rule::Tolerate(Share::Percent(100.0)) => {
                f.write_str("when all children have ended, however they did")?
            }
            Rule::Tolerate(share) => {
                let most = match share {
                    Share::Count(count) => count.to_string(),
                    Share::Percent(percent) => format!("{percent} %"),
                };
                write!(f, "when all children have ended; fails if more than {most} have not ended well")?
            }
            Rule::Quorum(count) => {
                write!(f, "when {count} children have ended well; fails as soon as that cannot be")?
            }
        }
        if let Some(timeout) = self.timeout {
            write!(f, "; fails after {}", span(timeout))?;
        }
        if self.rest_runs {
            f.write_str("; what has not ended then runs on")?;
        }
        Ok(())
    }
}

/// A span of time in its largest unit.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [("days", 86_400), ("h", 3_600), ("min", 60)];
    match units.into_iter().find(|(_, unit)| seconds >= 2 * unit && seconds.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", seconds / unit),
        None => format!("{} s", span.as_secs_f64()),
    }
}

fn bad_of(all: &BranchProgress) -> String {
    let BranchTally { failed, cancelled, .. } = all.tally;
    let ended = match (failed, cancelled) {
        (failed, 0) => format!("{failed} failed"),
        (0, cancelled) => format!("{cancelled} were cancelled"),
        (failed, cancelled) => format!("{failed} failed and {cancelled} were cancelled"),
    };
    format!("of {} children {ended}", all.spawned)
}

/// How a branch stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BranchProgress {
    /// How many children were spawned.
    pub spawned: i64,
    /// How they ended so far.
    pub tally: BranchTally,
}

impl BranchProgress {
    /// How several stand together.
    pub fn sum(branches: &[BranchProgress]) -> BranchProgress {
        branches.iter().fold(BranchProgress::default(), |mut sum, stand| {
            sum.spawned += stand.spawned;
            sum.tally.add(stand.tally);
            sum
        })
    }
}

/// What follows for a merge from how its branches stand.
#[derive(Clone, PartialEq, Debug)]
pub enum MergeDecision {
    /// It is over, and well.
    Met,
    /// It is over, and why not well.
    Failed(String),
    /// It goes on when one of these is told, one for each branch; `None` for one that has nothing more to tell.
    Wait(Vec<Option<BranchWatch>>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand(spawned: i64, done: i64, failed: i64, cancelled: i64) -> BranchProgress {
        BranchProgress { spawned, tally: BranchTally { started: 0, done, failed, cancelled } }
    }

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
    fn all_waits_for_what_failed() {
        let all = Merge::all();
        assert_eq!(all.decide(&[stand(0, 0, 0, 0)]), MergeDecision::Met, "an empty branch");
        assert_eq!(all.decide(&[stand(3, 3, 0, 0), stand(1, 1, 0, 0)]), MergeDecision::Met);
        assert_eq!(watched(&all, &[stand(3, 2, 1, 0)]), [(Some(3), None, None)]);
        assert_eq!(watched(&all, &[stand(3, 3, 0, 0), stand(9, 1, 0, 0)]), [(Some(9), None, None)]);
    }

    #[test]
    fn one_is_enough_to_fail_fast() {
        let fast = Merge::fail_fast();
        assert_eq!(watched(&fast, &[stand(3, 2, 0, 0)]), [(Some(3), Some(1), None)]);
        assert_eq!(fast.decide(&[stand(3, 0, 1, 0)]), MergeDecision::Failed("of 3 children 1 failed".into()));
        assert_eq!(
            fast.decide(&[stand(3, 0, 0, 1)]),
            MergeDecision::Failed("of 3 children 1 were cancelled".into())
        );
        assert_eq!(fast.decide(&[stand(3, 3, 0, 0)]), MergeDecision::Met);
    }

    #[test]
    fn what_is_tolerated_is_shared_out() {
        let some = Merge::tolerate(5);
        // Of six that would be too many, none of two branches can have three unnoticed.
        assert_eq!(
            watched(&some, &[stand(100, 0, 0, 0), stand(100, 0, 0, 0)]),
            [(None, Some(3), Some(100)), (None, Some(3), Some(100))]
        );
        assert_eq!(
            watched(&some, &[stand(100, 0, 3, 0), stand(100, 0, 0, 2)]),
            [(None, Some(4), Some(100)), (None, Some(3), Some(100))]
        );
        let why = "of 200 children 3 failed and 3 were cancelled, and 5 are tolerated";
        assert_eq!(
            some.decide(&[stand(100, 0, 3, 0), stand(100, 0, 0, 3)]),
            MergeDecision::Failed(why.into())
        );
        assert_eq!(some.decide(&[stand(10, 5, 5, 0)]), MergeDecision::Met);
        let half = Merge::tolerate(percent(0.5));
        assert_eq!(half.decide(&[stand(1_000, 995, 5, 0)]), MergeDecision::Met);
        assert!(matches!(half.decide(&[stand(1_000, 0, 6, 0)]), MergeDecision::Failed(_)));
        assert_eq!(Merge::settled().decide(&[stand(2, 0, 1, 1)]), MergeDecision::Met);
    }

    #[test]
    fn a_quorum_is_met_or_hopeless() {
        let three = Merge::quorum(3);
        assert_eq!(watched(&three, &[stand(5, 1, 1, 0)]), [(Some(3), Some(3), None)]);
        assert_eq!(three.decide(&[stand(5, 3, 0, 0)]), MergeDecision::Met);
        let why = "of 5 children 3 failed, so 3 cannot end well any more";
        assert_eq!(three.decide(&[stand(5, 0, 3, 0)]), MergeDecision::Failed(why.into()));
        assert!(matches!(Merge::quorum(1).decide(&[stand(0, 0, 0, 0)]), MergeDecision::Failed(_)));
    }

    /// Whatever branches do, nobody misses the moment at which a merge is over: as long as no watch is met, it is not.
    #[test]
    fn no_end_is_missed() {
        let merges =
            [Merge::all(), Merge::fail_fast(), Merge::tolerate(2), Merge::quorum(4), Merge::settled()];
        let mut seed = 7_u64;
        let mut draw = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for round in 0..2_000 {
            let merge = &merges[round % merges.len()];
            let mut stands: Vec<BranchProgress> =
                (0..1 + draw(3)).map(|_| stand(draw(6) as i64, 0, 0, 0)).collect();
            let mut judged = merge.decide(&stands);
            let mut fresh = true;
            while let MergeDecision::Wait(watches) = &judged {
                let met = |(watch, stand): (&Option<BranchWatch>, &BranchProgress)| {
                    watch.as_ref().is_some_and(|watch| watch.is_met(&stand.tally))
                };
                let known = fresh && watches.iter().zip(&stands).any(met);
                assert!(!known, "{merge:?} would be told what it knows: {stands:?}");
                fresh = false;
                let open: Vec<usize> =
                    (0..stands.len()).filter(|n| stands[*n].tally.ended() < stands[*n].spawned).collect();
                let Some(n) = open.get(draw(open.len().max(1) as u64) as usize) else { break };
                match draw(4) {
                    0 => stands[*n].tally.failed += 1,
                    _ => stands[*n].tally.done += 1,
                }
                let told = watches
                    .iter()
                    .zip(&stands)
                    .any(|(watch, stand)| watch.as_ref().is_some_and(|watch| watch.is_met(&stand.tally)));
                let now = merge.decide(&stands);
                assert!(
                    told || matches!(now, MergeDecision::Wait(_)),
                    "{merge:?} is over unnoticed: {stands:?}"
                );
                if told {
                    (judged, fresh) = (now, true);
                }
            }
        }
    }

    #[test]
    fn rules_are_told_in_words() {
        for (merge, words) in [
            (Merge::all(), "when all children have ended well; one that has not is waited for"),
            (Merge::settled(), "when all children have ended, however they did"),
            (
                Merge::tolerate(percent(0.5)).timeout(Duration::from_secs(90)),
                "when all children have ended; fails if more than 0.5 % have not ended well; fails after 90 s",
            ),
            (
                Merge::quorum(3).timeout(Duration::from_secs(7_200)).let_rest_run(),
                "when 3 children have ended well; fails as soon as that cannot be; fails after 2 h; what has not ended then \
                 runs on",
            ),
        ] {
            assert_eq!(merge.to_string(), words);
            assert_eq!(merge.waits_for_unsuccessful(), merge == Merge::all());
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (merge, text) in [
            (Merge::all().poll_interval(Duration::from_secs(9), Duration::from_secs(3)), "the pace"),
            (Merge::all().timeout(Duration::ZERO), "the timeout"),
            (Merge::tolerate(percent(101.0)), "per cent"),
            (Merge::quorum(0), "the quorum"),
        ] {
            assert!(merge.check().expect_err(text).to_string().contains(text));
        }
    }
}
