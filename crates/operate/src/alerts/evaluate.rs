//! What rules find wrong in a snapshot. Pure: the same rules and the same snapshot find the same.

use std::{collections::BTreeMap, time::Duration};

use windlass_model::{Time, limits::RESERVED_PREFIX};
use windlass_store::{AlertTarget, BranchHealth};

use super::{
    Rule,
    rule::{Condition, JobSelection, RateUnit},
    snapshot::{EndedOfKind, ObservedBranch, ObservedSchedule, Snapshot},
};
use crate::{
    doctor::{is_blocked, pending},
    text,
};

/// How late a tick may fire before its schedule is late: longer than a worker takes to start after the last one has died.
const LATE: Duration = Duration::from_secs(5 * 60);

/// What a rule has found wrong with one subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The name of the rule.
    pub rule: String,
    /// What it is about, unique within the rule.
    pub subject: String,
    /// The number or the span that the rule compares, as text.
    pub value: String,
    /// What is wrong, as a sentence.
    pub text: String,
    /// Where to look.
    pub link: AlertTarget,
}

/// Finds what is wrong: at most one finding per rule and subject, in the order of the rules.
pub fn evaluate(rules: &[Rule], snapshot: &Snapshot) -> Vec<Finding> {
    rules.iter().flat_map(|rule| findings(rule, snapshot)).collect()
}

fn findings(rule: &Rule, snapshot: &Snapshot) -> Vec<Finding> {
    match &rule.when {
        Condition::OldestReady { queue, above } => oldest_ready(rule, snapshot, queue.as_deref(), *above),
        Condition::Failures { of, above, within } => failures(rule, snapshot, of, *above, *within),
        Condition::ErrorRate { of, count, percent, at_least, within } => {
            let by_kind = ended(snapshot, of, *within);
            let rate = |(kind, sum)| error_rate(rule, kind, &sum, of, *count, (*percent, *at_least, *within));
            by_kind.into_iter().filter_map(rate).collect()
        }
        Condition::StuckBranch { above } => {
            snapshot.branches.iter().filter_map(|seen| stuck(rule, seen, *above, snapshot.now)).collect()
        }
        Condition::ScheduleMissed { schedule, within } => {
            let is_meant = |seen: &&ObservedSchedule| schedule.as_ref().is_none_or(|name| *name == seen.name);
            let schedules = snapshot.schedules.iter().filter(is_meant);
            schedules.filter_map(|seen| missed(rule, seen, *within, snapshot.now)).collect()
        }
        Condition::WorkerLost { within } => worker_lost(rule, snapshot, *within),
        Condition::QueuePaused { queue, above } => queue_paused(rule, snapshot, queue.as_deref(), *above),
    }
}

impl Finding {
    fn new(
        rule: &Rule,
        subject: impl Into<String>,
        value: String,
        text: String,
        link: AlertTarget,
    ) -> Finding {
        Finding { rule: rule.name.clone(), subject: subject.into(), value, text, link }
    }
}

/// Whether a name is one of the engine's own.
fn is_own(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

fn oldest_ready(rule: &Rule, snapshot: &Snapshot, only: Option<&str>, above: Duration) -> Vec<Finding> {
    let queues = snapshot.queues.iter().filter(|queue| {
        queue.paused.is_none() && !is_own(&queue.name) && only.is_none_or(|name| name == queue.name)
    });
    let finding = |queue: &windlass_store::QueueView| {
        let waits = snapshot.now - queue.oldest_ready?;
        (waits > above).then(|| {
            let (name, waits) = (&queue.name, text::duration(waits));
            let text = format!(
                "the oldest ready job of queue {name} has waited for {waits}, longer than {}",
                text::span(above)
            );
            Finding::new(rule, name, waits, text, AlertTarget::Queue { queue: name.clone() })
        })
    };
    queues.filter_map(finding).collect()
}

/// What ended per kind within a span, of the ends that count.
fn ended<'a>(snapshot: &'a Snapshot, of: &JobSelection, within: Duration) -> BTreeMap<&'a str, EndedOfKind> {
    let mut by_kind: BTreeMap<&str, EndedOfKind> = BTreeMap::new();
    let rows = snapshot.ended.iter().filter(|(span, _)| *span == within).flat_map(|(_, rows)| rows);
    for row in rows {
        let is_meant = of.kind.as_ref().is_none_or(|kind| *kind == row.kind)
            && of.queue.as_ref().is_none_or(|queue| *queue == row.queue);
        if is_meant && !is_own(&row.kind) {
            let sum = by_kind.entry(&row.kind).or_default();
            (sum.done, sum.failed, sum.retried) =
                (sum.done + row.done, sum.failed + row.failed, sum.retried + row.retried);
        }
    }
    by_kind
}

/// The jobs of a kind in words, and where to look at them.
fn of_kind(kind: &str, of: &JobSelection) -> (String, AlertTarget) {
    let named = JobSelection { kind: Some(kind.to_owned()), queue: of.queue.clone() };
    (named.to_string(), AlertTarget::Kind { kind: kind.to_owned() })
}

fn failures(
    rule: &Rule,
    snapshot: &Snapshot,
    of: &JobSelection,
    above: u64,
    within: Duration,
) -> Vec<Finding> {
    let finding = |(kind, sum): (&str, EndedOfKind)| {
        (sum.failed > above).then(|| {
            let (jobs, link) = of_kind(kind, of);
            let text = format!(
                "{} of {jobs} failed within {}, more than {}",
                text::jobs(sum.failed),
                text::span(within),
                text::thousands(above)
            );
            Finding::new(rule, kind, format!("{} failed", text::thousands(sum.failed)), text, link)
        })
    };
    ended(snapshot, of, within).into_iter().filter_map(finding).collect()
}

fn error_rate(
    rule: &Rule,
    kind: &str,
    sum: &EndedOfKind,
    of: &JobSelection,
    count: RateUnit,
    (percent, at_least, within): (u32, u64, Duration),
) -> Option<Finding> {
    let failed = match count {
        RateUnit::Attempts => sum.failed + sum.retried,
        RateUnit::Jobs => sum.failed,
    };
    let all = sum.done + failed;
    if all < at_least || failed * 100 <= all * u64::from(percent) {
        return None;
    }
    let rate = format!("{} %", failed * 100 / all);
    let (jobs, link) = of_kind(kind, of);
    let text = format!(
        "{rate} of {} {} of {jobs} failed within {}, more than {percent} %",
        text::thousands(all),
        count.name(),
        text::span(within)
    );
    Some(Finding::new(rule, kind, rate, text, link))
}

fn stuck(rule: &Rule, seen: &ObservedBranch, above: Duration, now: Time) -> Option<Finding> {
    let BranchHealth { job, name, spawned, counts, .. } = &seen.branch;
    let (idle, left) = (now - seen.idle_since, pending(&seen.branch));
    let (value, text) = if is_blocked(&seen.branch) {
        let unsuccessful = counts.unsuccessful().unsigned_abs();
        let waited = text::counted(unsuccessful, "unsuccessful child", "unsuccessful children");
        let text = format!(
            "branch {name} of job {job} waits for {waited}; `windlass redrive {job} --branch {name}` retries them"
        );
        (waited, text)
    } else if left > 0 && idle > above {
        let spawned = text::thousands(spawned.unsigned_abs());
        let text = format!(
            "no child of branch {name} of job {job} has ended for {}, and {} of {spawned} have not ended",
            text::duration(idle),
            text::thousands(left)
        );
        (text::duration(idle), text)
    } else {
        return None;
    };
    let link = AlertTarget::Branch { job: *job, branch: name.clone() };
    Some(Finding::new(rule, branch_subject(&seen.branch), value, text, link))
}

/// The subject of a branch.
pub(super) fn branch_subject(branch: &BranchHealth) -> String {
    format!("{}/{}", branch.job, branch.name)
}

fn missed(rule: &Rule, seen: &ObservedSchedule, within: Duration, now: Time) -> Option<Finding> {
    let name = &seen.name;
    let finding = |value: String, text: String| {
        let link = AlertTarget::Schedule { schedule: name.clone() };
        Some(Finding::new(rule, name, value, text, link))
    };
    if let Some(late) = seen.next_at.map(|next_at| now - next_at).filter(|late| *late > LATE) {
        let late = text::duration(late);
        return finding(
            format!("{late} late"),
            format!("the tick of schedule {name} is {late} late; no worker fires it"),
        );
    }
    let miss = seen.missed.as_ref().filter(|miss| now - miss.at.max(miss.missed.to) <= within)?;
    let more = if miss.missed.at_least { " or more" } else { "" };
    let ticks = text::counted(miss.missed.count, "tick", "ticks") + more;
    finding(ticks.clone(), format!("schedule {name} missed {ticks}: {}", miss.why))
}

fn worker_lost(rule: &Rule, snapshot: &Snapshot, within: Duration) -> Vec<Finding> {
    let lost = snapshot
        .workers
        .iter()
        .filter(|worker| worker.lost_at.is_some_and(|lost_at| snapshot.now - lost_at <= within));
    let finding = |worker: &windlass_store::WorkerView| {
        let text =
            format!("worker {} was lost: it stopped renewing its lease, or its process is gone", worker.name);
        let link = AlertTarget::Worker { worker: worker.id };
        Finding::new(rule, worker.id.to_string(), worker.name.clone(), text, link)
    };
    lost.map(finding).collect()
}

fn queue_paused(rule: &Rule, snapshot: &Snapshot, only: Option<&str>, above: Duration) -> Vec<Finding> {
    let queues = snapshot.queues.iter().filter(|queue| only.is_none_or(|name| name == queue.name));
    let finding = |queue: &windlass_store::QueueView| {
        let (name, paused) = (&queue.name, queue.paused.as_ref()?);
        let since = snapshot.now - paused.at;
        (since > above).then(|| {
            let note = paused.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            let since = text::duration(since);
            let text = format!("queue {name} has been paused by {} for {since}{note}", paused.author);
            Finding::new(rule, name, since, text, AlertTarget::Queue { queue: name.clone() })
        })
    };
    queues.filter_map(finding).collect()
}

#[cfg(test)]
mod tests;
