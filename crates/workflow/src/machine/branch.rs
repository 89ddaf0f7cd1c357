//! Branches of a machine: a step opens and fills them, and what it returns merges them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde::de::DeserializeOwned;
use windlass_model::{
    BranchNo, BranchUpdate, CommitOutcome, Failure, Merge, Outcome, Payload, StepWrites, Time, Wait,
    WaitCondition,
    branch::{BRANCH_SIGNAL, BranchWatch},
    failure::class,
    merge::{BranchProgress, MergeDecision},
    wait::SignalName,
};
use windlass_runtime::{Attempt, Stage, StepResult, StepWriter};
use windlass_store::Branch;

use super::{MachineCx, Services};
use crate::{
    attempt_source::LiveAttempt,
    branch::{
        Chunk, MergeRecord, MergeVerdict, Merged, Plan, Results, branch_settings, items_of, missing_children,
        unsuccessful_children, wait_for_room,
    },
    store_retry::retry_unavailable,
    workflow::PartError,
};

/// How long a step waits at least for room in a branch before it gives up its slot.
const MIN_WAIT: Duration = Duration::from_millis(200);
/// When the step runs again after that.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A branch of a machine that is being described; [`MachineBranch::open`] opens it, spawns its children and seals it.
#[must_use = "a branch is not opened until `open` is awaited"]
pub struct MachineBranch<'a> {
    cx: &'a MachineCx,
    plan: Plan,
}

impl MachineCx {
    /// Opens a branch of children that are spawned from sources. When the step runs again, a branch that it had sealed stays as
    /// it is, and one that was partly filled is filled up. Wait for it with [`crate::Next::merge`].
    pub fn branch(&self, name: &str) -> MachineBranch<'_> {
        MachineBranch { cx: self, plan: Plan::new(name) }
    }

    /// Returns the result of the merge that the step before requested.
    pub async fn merged(&self, name: &str) -> Result<Merged, Failure> {
        let live = self.source.require_live("merged")?;
        let branches = branches(live).await?;
        let branch = branches.iter().rev().find(|branch| branch.name == name && branch.merged);
        let record = branch.and_then(|branch| MergeRecord::read(branch.merge_record.as_deref()));
        let Some((branch, record)) = branch.zip(record) else {
            let text = format!(
                "the branch {name:?} was not merged; request it with `Next::merge` in the step before"
            );
            return Err(Failure::stop(text).class(class::REFUSED));
        };
        match record.verdict {
            Some(MergeVerdict::Met(merged)) => Ok(merged),
            Some(MergeVerdict::Failed(why)) => Err(Failure::stop(why).class(class::MERGE)),
            Some(MergeVerdict::Timeout(why)) => Err(Failure::stop(why).class(class::TIMEOUT)),
            None => Ok(Merged::new(
                self.id(),
                [(name.to_owned(), branch.number)].into_iter(),
                progress_of(branch),
            )),
        }
    }

    /// Returns how the children of merged branches ended, read from the store a page at a time.
    pub fn results<T: DeserializeOwned>(&self, merged: &Merged) -> Results<T> {
        merged.results(self.source.require_live("results").map(|live| &live.services))
    }
}

impl MachineBranch<'_> {
    branch_settings!(
        "While the branch is full, the step ends and runs again a second later, including its code before this call."
    );

    /// Opens the branch, spawns its children and seals it.
    pub async fn open(self) -> Result<(), Failure> {
        let MachineBranch { cx, plan } = self;
        let live = cx.source.require_live("branch")?;
        cx.branches.store(true, Ordering::Relaxed);
        plan.check().map_err(|why| Failure::stop(why).class(class::REFUSED))?;
        let (name, limit) = (plan.name.clone(), plan.in_flight);
        let branches = branches(live).await?;
        let before = branches.iter().rev().find(|branch| branch.name == name && !branch.merged);
        if before.is_some_and(|branch| branch.sealed) {
            return Ok(());
        }
        let number = before.map_or_else(|| live.attempt.writer.branch(), |branch| branch.number);
        let mut open = before.is_none().then(|| name.clone());
        let mut chunks = plan.start(Arc::clone(&live.services), cx.id(), before.map(|branch| branch.number));
        loop {
            let mut update = BranchUpdate { opened_as: open.take(), ..BranchUpdate::new(number) };
            let chunk = match chunks.next().await {
                Ok(chunk) => chunk,
                Err(PartError::Failed(failure) | PartError::Unread(failure)) => return Err(failure),
                Err(PartError::Diverged(failure)) => return cx.diverge(failure).await,
            };
            let children = match chunk {
                Chunk::Chunk { mut children, spawns, cursor } => {
                    let count = children.iter().map(|child| u64::from(items_of(child))).sum();
                    wait_or_interrupt(cx, live, (number, limit), count, chunks.skipped()).await?;
                    for child in &mut children {
                        child.branch_position.iter_mut().for_each(|position| position.branch = number);
                    }
                    (update.spawns, update.cursor) = (spawns, Some(cursor));
                    children
                }
                Chunk::Sealed => {
                    update.seal = true;
                    Vec::new()
                }
            };
            let sealed = update.seal;
            let step =
                StepWrites { children, branches: vec![update], partial: true, ..StepWrites::default() };
            match StepWriter::commit_detached(&live.attempt, step).await {
                CommitOutcome::Committed if sealed => return Ok(()),
                CommitOutcome::Committed => {}
                CommitOutcome::Refused(why) => return Err(Failure::stop(why).class(class::REFUSED)),
                CommitOutcome::Halted | CommitOutcome::Fenced => {
                    // The claim is over: nothing that follows is written.
                    return Err(Failure::retry("the claim of the job is over").class(class::LOST));
                }
            }
        }
    }
}

/// Waits until there is room for `more` children. If that takes long, the step ends, to run again later: otherwise machines
/// could hold all slots of a worker and leave none for their children.
async fn wait_or_interrupt(
    cx: &MachineCx,
    live: &LiveAttempt,
    (number, limit): (BranchNo, Option<u64>),
    more: u64,
    skipped: Duration,
) -> Result<(), Failure> {
    let Some(limit) = limit else { return Ok(()) };
    let max_wait = skipped.max(MIN_WAIT);
    match wait_for_room(&live.services, (cx.id(), number), limit, more, max_wait).await? {
        None => Ok(()),
        Some(_) => {
            cx.interrupted.notify_one();
            std::future::pending().await
        }
    }
}

/// The result of a step that ended because its branch is full: it runs again after a pause.
pub(super) fn retry_later(attempt: &Attempt) -> StepResult {
    if attempt.cancel_requested_by().is_some() {
        return StepResult::Failed(Failure::retry("the step waited for room in a branch"));
    }
    let retry_counts = attempt.job.retry_counts.clone();
    StepResult::Commit {
        step: None,
        outcome: Outcome::Retry { after: RETRY_AFTER, retry_counts, failure: None },
    }
}

async fn branches(live: &LiveAttempt) -> Result<Vec<Branch>, Failure> {
    let store = Arc::clone(&live.services.store);
    retry_unavailable!(store.inspect().branches(live.attempt.job.id))
}

fn progress_of(branch: &Branch) -> BranchProgress {
    BranchProgress { spawned: branch.spawned, counts: branch.counts }
}

/// Refuses to end a machine with a branch that was not merged: nobody would know how its children end.
pub(super) async fn check_all_merged(cx: &MachineCx, live: &LiveAttempt) -> Result<(), Failure> {
    // Most machines have no branches, so the store is not asked.
    if !cx.branches.load(Ordering::Relaxed) {
        return Ok(());
    }
    let branches = branches(live).await?;
    match branches.iter().find(|branch| !branch.merged) {
        None => Ok(()),
        Some(branch) => Err(Failure::stop(format!(
            "the machine is done, and its branch {:?} was not merged: nobody would know how its children end. Merge it with \
             `Next::merge`, by `Merge::settled()` if that does not matter",
            branch.name
        ))
        .class(class::REFUSED)),
    }
}

/// The wait for branches.
fn wait(timeout: Option<Duration>) -> Wait {
    let names = vec![SignalName { name: BRANCH_SIGNAL.into(), every: true }];
    Wait { condition: WaitCondition::Signals { names, needs: 1 }, timeout }
}

/// The result of a step that requests a merge: the machine continues in the stage when the merge is over.
pub(super) async fn request_merge(
    live: &LiveAttempt,
    ran: String,
    stage: Stage,
    names: Vec<String>,
    merge: Merge,
) -> Result<StepResult, Failure> {
    let mut names = names;
    names.sort();
    names.dedup();
    let refused = |why: String| Failure::stop(why).class(class::REFUSED);
    merge.check().map_err(|error| refused(error.to_string()))?;
    let branches = branches(live).await?;
    let mut wanted = Vec::new();
    for name in &names {
        match branches.iter().rev().find(|branch| branch.name == *name) {
            Some(branch) if branch.merged => {
                return Err(refused(format!(
                    "the branch {name:?} was merged before; open another, or keep what it gave"
                )));
            }
            Some(branch) => wanted.push(branch),
            None => {
                let opened: Vec<&str> = branches.iter().map(|branch| branch.name.as_str()).collect();
                let opened = if opened.is_empty() { "none".to_owned() } else { opened.join(", ") };
                return Err(refused(format!("there is no branch {name:?} to be merged; opened: {opened}")));
            }
        }
    }
    if wanted.is_empty() {
        return Err(refused("no branch is named to be merged; name those that were opened".into()));
    }
    let progress: Vec<BranchProgress> = wanted.iter().map(|branch| progress_of(branch)).collect();
    let watches = match merge.decide(&progress) {
        MergeDecision::Wait(watches) => watches,
        // A merge that is over already wakes the machine at once.
        _ => vec![
            Some(BranchWatch {
                ended: Some(0),
                poll_interval: merge.poll_interval,
                ..BranchWatch::default()
            });
            wanted.len()
        ],
    };
    let timeout = merge.timeout;
    let record = MergeRecord { merge, of: names, verdict: None }.text();
    let update = |(branch, watch): (&&Branch, Option<BranchWatch>)| BranchUpdate {
        seal: true,
        watch,
        merge_record: Some(record.clone()),
        ..BranchUpdate::new(branch.number)
    };
    let branches = wanted.iter().zip(watches).map(update).collect();
    let Stage { name, data, .. } = stage;
    let data = encoded(&live.services, data)?;
    let consumed = live.attempt.job.visible_signals().iter().map(|signal| signal.number).collect();
    let step = StepWrites {
        from_stage: Some(ran),
        stage: Some((name, data)),
        consumed,
        branches,
        ..StepWrites::default()
    };
    Ok(StepResult::Commit { step: Some(Box::new(step)), outcome: Outcome::Wait(wait(timeout)) })
}

fn encoded(services: &Services, data: Payload) -> Result<Payload, Failure> {
    services.codecs.encode(data.bytes).map_err(|error| Failure::stop(error).class(class::REFUSED))
}

/// Whether the machine waits for a merge: its branches, or the timeout of the merge, woke it.
pub(super) fn is_merging(attempt: &Attempt) -> bool {
    attempt.job.wait.as_ref().is_some_and(|wait| wait.names().any(|name| name == BRANCH_SIGNAL))
}

/// Checks whether the merge is over that a machine waits for. If not, returns how it parks again.
pub(super) async fn poll_merge(live: &LiveAttempt) -> Result<Option<StepResult>, Failure> {
    let LiveAttempt { attempt, services, .. } = live;
    let branches = branches(live).await?;
    let is_waited_for = |branch: &&Branch| !branch.merged && branch.merge_record.is_some();
    let Some(record) = branches
        .iter()
        .rev()
        .find(is_waited_for)
        .and_then(|branch| MergeRecord::read(branch.merge_record.as_deref()))
    else {
        return Ok(None);
    };
    let is_merged_with = |branch: &&Branch| !branch.merged && record.of.contains(&branch.name);
    let wanted: Vec<&Branch> = branches.iter().filter(is_merged_with).collect();
    let progress: Vec<BranchProgress> = wanted.iter().map(|branch| progress_of(branch)).collect();
    let all = BranchProgress::sum(&progress);
    let now: Time = attempt.writer.now();
    let until = attempt.job.wait_until;
    let merged = || {
        let names = wanted.iter().map(|branch| (branch.name.clone(), branch.number));
        Merged::new(attempt.job.id, names, all)
    };
    let missing = retry_unavailable!(missing_children(&*services.store, &wanted))?;
    let verdict = match record.merge.decide(&progress) {
        MergeDecision::Met => MergeVerdict::Met(merged()),
        MergeDecision::Failed(why) => {
            let numbers: Vec<BranchNo> = wanted.iter().map(|branch| branch.number).collect();
            let first =
                retry_unavailable!(unsuccessful_children(&*services.store, attempt.job.id, &numbers, 3))?;
            let first = if first.is_empty() { first } else { format!("; {first}") };
            MergeVerdict::Failed(format!("the merge of {} failed: {why}{first}", record.of.join(", ")))
        }
        MergeDecision::Wait(_) if missing.is_some() => {
            let why = missing.unwrap_or_default();
            MergeVerdict::Failed(format!("the merge of {} failed: {why}", record.of.join(", ")))
        }
        MergeDecision::Wait(_) if until.is_some_and(|until| until <= now) => {
            MergeVerdict::Timeout(merged().timeout_text())
        }
        MergeDecision::Wait(watches) => {
            let update = |(branch, watch): (&&Branch, Option<BranchWatch>)| BranchUpdate {
                watch,
                ..BranchUpdate::new(branch.number)
            };
            let branches = wanted.iter().zip(watches).map(update).collect();
            let consumed = attempt.job.inbox.iter().map(|signal| signal.number).collect();
            let step = StepWrites { consumed, branches, ..StepWrites::default() };
            let timeout = until.map(|until| until - now);
            return Ok(Some(StepResult::Commit {
                step: Some(Box::new(step)),
                outcome: Outcome::Wait(wait(timeout)),
            }));
        }
    };
    let cancel_children = all.counts.ended() < all.spawned && !record.merge.rest_runs;
    let text = MergeRecord { verdict: Some(verdict), ..record }.text();
    let update = |branch: &&Branch| BranchUpdate {
        merged: true,
        cancel_children,
        merge_record: Some(text.clone()),
        ..BranchUpdate::new(branch.number)
    };
    let consumed = attempt.job.inbox.iter().map(|signal| signal.number).collect();
    let branches = wanted.iter().map(update).collect();
    let step = StepWrites { consumed, branches, partial: true, ..StepWrites::default() };
    match StepWriter::commit_detached(attempt, step).await {
        CommitOutcome::Committed => Ok(None),
        CommitOutcome::Refused(why) => Err(Failure::stop(why).class(class::REFUSED)),
        CommitOutcome::Halted | CommitOutcome::Fenced => Ok(Some(StepResult::ClaimOver)),
    }
}
