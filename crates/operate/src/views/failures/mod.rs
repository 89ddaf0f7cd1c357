//! Unsuccessful jobs in groups by their errors: how many, since when, and whether a retry would help.

mod advice;
mod shape;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use windlass_model::{BranchNo, Ended, JobId, Reason, State, Time};
use windlass_store::{ThroughputBy, ThroughputFilter, Unsuccessful, UnsuccessfulFilter, UnsuccessfulJob};
use windlass_workflow::Error;

use self::shape::shape;
use crate::Operator;

pub use advice::{Advice, Outlook};

/// How many of the newest unsuccessful jobs are read at most.
pub(super) const EXAMINED: usize = 5_000;
/// How many hours the counts of a group cover.
const HOURS: usize = 24;
/// How many jobs of a group are shown.
const SAMPLES: usize = 3;
/// How far back attempts are counted, from the shortest span on. Longer ones would read many sums, and say less about now.
const SPANS: [Duration; 2] = [Duration::from_secs(900), Duration::from_secs(7_200)];

/// Unsuccessful jobs by kind and error.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Failures {
    /// The groups, the one with the newest job first.
    pub groups: Vec<FailureGroup>,
    /// How many jobs they have.
    pub jobs: u64,
    /// Whether there are older jobs that were not examined: then the counts and the first times are those of the newest jobs only.
    pub is_capped: bool,
    /// The store's clock.
    pub now: Time,
}

/// Jobs of one kind whose errors have one class, and messages that differ in numbers, ids and quoted parts alone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FailureGroup {
    /// Their kind.
    pub kind: String,
    /// The class of their errors.
    pub class: String,
    /// What their messages have in common, with `{…}` for what differs.
    pub shape: String,
    /// The message of the newest one, or its beginning.
    pub message: String,
    /// How many there are.
    pub count: u64,
    /// How many of them were cancelled.
    pub cancelled: u64,
    /// When the first of them ended.
    pub first_at: Time,
    /// When the last of them ended.
    pub last_at: Time,
    /// How many ended in each of the last 24 hours, the current one last.
    pub hours: [u32; HOURS],
    /// The versions of the kind, the newest first.
    pub versions: Vec<i32>,
    /// Their queues.
    pub queues: Vec<String>,
    /// The branch in which all of them are, if they are all in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<(JobId, BranchNo)>,
    /// The newest of them.
    pub samples: Vec<FailureSample>,
    /// Whether a retry would help.
    pub advice: Advice,
}

/// A job of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FailureSample {
    /// The job.
    pub id: JobId,
    /// The caller's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether it failed or was cancelled.
    pub state: State,
    /// Attempts that have failed.
    pub attempts: u32,
    /// When it ended.
    pub finished_at: Time,
}

impl Failures {
    /// Reads those that match among the newest `limit` unsuccessful jobs, of which at most 5,000 are examined.
    pub async fn read(
        operator: &Operator,
        filter: &UnsuccessfulFilter,
        limit: usize,
    ) -> Result<Failures, Error> {
        let Unsuccessful { jobs, next, .. } =
            operator.inspect().unsuccessful(filter, limit.min(EXAMINED)).await?;
        read_groups(operator, jobs, next.is_some()).await
    }
}

/// Groups jobs, with how attempts of their kinds end lately.
pub(super) async fn read_groups(
    operator: &Operator,
    jobs: Vec<UnsuccessfulJob>,
    is_capped: bool,
) -> Result<Failures, Error> {
    let now = operator.inspect().clock().await?;
    let mut spans = Vec::with_capacity(SPANS.len());
    if !jobs.is_empty() {
        for span in SPANS {
            spans.push((span, ended_by_kind(operator, now, span).await?));
        }
    }
    let count = jobs.len() as u64;
    Ok(Failures { groups: group(jobs, &spans, now), jobs: count, is_capped, now })
}

/// What has ended of each kind.
type EndedByKind = HashMap<String, Ended>;

/// Reads what has ended in a span up to now.
async fn ended_by_kind(operator: &Operator, now: Time, span: Duration) -> Result<EndedByKind, Error> {
    let (queues, kinds) = (Vec::new(), Vec::new());
    let until = now + Duration::from_micros(1);
    let filter = ThroughputFilter { queues, kinds, from: now - span, until, by: ThroughputBy::Kind };
    let mut by_kind = EndedByKind::new();
    for row in operator.inspect().throughput(&filter).await? {
        if let Some((_, kind)) = row.queue_and_kind {
            by_kind.entry(kind).or_default().merge(&row.ended);
        }
    }
    Ok(by_kind)
}

/// Groups jobs, which come newest first.
fn group(jobs: Vec<UnsuccessfulJob>, spans: &[(Duration, EndedByKind)], now: Time) -> Vec<FailureGroup> {
    let mut groups: BTreeMap<(String, String, String), Members> = BTreeMap::new();
    for job in jobs {
        let shape = shape(&job.failure.message, job.failure.is_cut);
        let key = (job.kind.clone(), job.failure.class.clone(), shape);
        groups.entry(key).or_default().0.push(job);
    }
    let with_key =
        |((kind, class, shape), members): (_, Members)| members.group(kind, class, shape, spans, now);
    let mut groups: Vec<FailureGroup> = groups.into_iter().filter_map(with_key).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.last_at));
    groups
}

/// The jobs of a group, newest first.
#[derive(Default)]
struct Members(Vec<UnsuccessfulJob>);

impl Members {
    fn group(
        self,
        kind: String,
        class: String,
        shape: String,
        spans: &[(Duration, EndedByKind)],
        now: Time,
    ) -> Option<FailureGroup> {
        let Members(jobs) = self;
        let ends = || jobs.iter().map(|job| job.finished_at);
        let (first_at, last_at) = (ends().min()?, ends().max()?);
        let mut hours = [0; HOURS];
        for end in ends() {
            let hour = usize::try_from((now - end).as_secs() / 3_600).unwrap_or(usize::MAX);
            if let Some(count) = HOURS.checked_sub(hour + 1).and_then(|hour| hours.get_mut(hour)) {
                *count += 1;
            }
        }
        let versions: BTreeSet<i32> = jobs.iter().map(|job| job.version).collect();
        let queues: BTreeSet<String> = jobs.iter().map(|job| job.queue.clone()).collect();
        let branches: BTreeSet<Option<(JobId, BranchNo)>> =
            jobs.iter().map(|job| job.parent.zip(job.branch)).collect();
        let outlook = Outlook::choose(spans.iter().map(|(span, kinds)| (*span, kinds.get(&kind))));
        let newest = jobs.iter().max_by_key(|job| job.finished_at)?;
        Some(FailureGroup {
            message: newest.failure.message.clone(),
            count: jobs.len() as u64,
            cancelled: jobs.iter().filter(|job| job.state == State::Cancelled).count() as u64,
            first_at,
            last_at,
            hours,
            versions: versions.into_iter().rev().collect(),
            queues: queues.into_iter().collect(),
            branch: if branches.len() == 1 { branches.into_iter().next().flatten() } else { None },
            samples: samples(&jobs),
            advice: Advice::of(main_reason(&jobs), outlook),
            kind,
            class,
            shape,
        })
    }
}

/// The jobs that ended last.
fn samples(jobs: &[UnsuccessfulJob]) -> Vec<FailureSample> {
    let mut last: Vec<&UnsuccessfulJob> = jobs.iter().collect();
    last.sort_by_key(|job| std::cmp::Reverse(job.finished_at));
    let sample = |job: &UnsuccessfulJob| FailureSample {
        id: job.id,
        key: job.key.clone(),
        state: job.state,
        attempts: job.attempts,
        finished_at: job.finished_at,
    };
    last.into_iter().take(SAMPLES).map(sample).collect()
}

/// Why most of the jobs failed; `None` if most were cancelled.
fn main_reason(jobs: &[UnsuccessfulJob]) -> Option<Reason> {
    let mut counts: BTreeMap<Option<Reason>, usize> = BTreeMap::new();
    for job in jobs {
        let reason = (job.state == State::Failed).then(|| job.reason.unwrap_or(Reason::Stopped));
        *counts.entry(reason).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).and_then(|(reason, _)| reason)
}

#[cfg(test)]
mod tests {
    use windlass_store::FailureText;

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn job(n: u32, kind: &str, class: &str, message: &str) -> UnsuccessfulJob {
        UnsuccessfulJob {
            id: JobId::from_parts(1_800_000_000_000, n, 0),
            kind: kind.into(),
            version: 1 + (n % 2) as i32,
            queue: "main".into(),
            key: Some(format!("order {n}")),
            state: State::Failed,
            reason: Some(Reason::Exhausted),
            failure: FailureText { class: class.into(), message: message.into(), is_cut: false },
            attempts: 6,
            finished_at: NOW - Duration::from_secs(u64::from(n) * 1_800),
            parent: None,
            branch: None,
        }
    }

    #[test]
    fn errors_that_differ_in_numbers_are_one_group() {
        let mut jobs: Vec<_> =
            (0..60).map(|n| job(n, "charge", "down", &format!("503 of order {n}"))).collect();
        jobs.push(job(3, "charge", "down", "connection reset"));
        jobs.push(job(5, "mail", "down", "503 of order 5"));
        let mut kinds = EndedByKind::new();
        kinds.insert("charge".into(), Ended { done: 0, failed: 61, retried: 10, ..Ended::default() });
        let groups = group(jobs, &[(SPANS[0], kinds)], NOW);
        let heads: Vec<_> =
            groups.iter().map(|group| (group.kind.as_str(), group.shape.as_str(), group.count)).collect();
        let shape = "{…} of order {…}";
        assert_eq!(heads, [("charge", shape, 60), ("charge", "connection reset", 1), ("mail", shape, 1)]);
        let first = &groups[0];
        assert_eq!((first.last_at, first.first_at), (NOW, NOW - Duration::from_secs(59 * 1_800)));
        assert_eq!(
            (first.message.as_str(), first.versions.as_slice()),
            ("503 of order 0", [2, 1].as_slice())
        );
        assert_eq!((first.hours[23], first.hours[22], first.hours[0]), (2, 2, 2));
        assert_eq!(first.hours.iter().sum::<u32>(), 48, "the others ended before");
        let samples: Vec<_> = first.samples.iter().map(|sample| sample.key.as_deref()).collect();
        assert_eq!(samples, [Some("order 0"), Some("order 1"), Some("order 2")]);
        let outlook = Outlook { attempts: 71, ended_well: 0, seconds: 900 };
        assert_eq!(first.advice, Advice::Retry { outlook: Some(outlook) });
        assert_eq!(groups[2].advice, Advice::Retry { outlook: None });
    }

    #[test]
    fn a_group_of_one_branch_names_it_and_one_of_cancelled_jobs_says_so() {
        let (parent, branch) = (JobId::from_parts(1, 2, 3), BranchNo(7));
        let child = |n| UnsuccessfulJob {
            parent: Some(parent),
            branch: Some(branch),
            state: State::Cancelled,
            reason: None,
            ..job(n, "tile", "cancelled", "cancelled by ada")
        };
        let groups = group(vec![child(0), child(1)], &[], NOW);
        assert_eq!((groups[0].branch, groups[0].cancelled), (Some((parent, branch)), 2));
        assert_eq!(groups[0].advice, Advice::Cancelled);
        let mixed = group(vec![child(0), job(1, "tile", "cancelled", "cancelled by ada")], &[], NOW);
        assert_eq!(mixed[0].branch, None);
        assert!(group(Vec::new(), &[], NOW).is_empty());
    }
}
