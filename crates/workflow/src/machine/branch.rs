//! Branches of a machine: opened and filled within a step, merged by what follows from it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde::de::DeserializeOwned;
use windlass_model::{
    BranchNo, BranchUpdate, Failure, Merge, Outcome, Payload, Step, Time, Verdict, Wait, WaitCondition,
    branch::{BRANCH_SIGNAL, BranchWatch},
    failure::class,
    merge::{BranchProgress, MergeDecision},
    wait::SignalName,
};
use windlass_runtime::{Attempt, Stage, StepResult, StepWriter};
use windlass_store::Branch as Kept;

use super::{Services, StepCx};
use crate::{
    branch::{
        Chunk, IntoChild, MergeRecord, MergeVerdict as Judgement, Merged, Plan, Results, Source, items_of,
        missing_children, unsuccessful_children, wait_for_room,
    },
    store_retry::retry_unavailable,
    workflow::PartError,
};

/// How long a step waits for room in a branch that it fills, at least, before it is given up.
const LINGER: Duration = Duration::from_millis(200);
/// When it is run again then.
const PAUSE: Duration = Duration::from_secs(1);

/// A branch of a machine that is being described; [`MachineBranch::open`] opens it, spawns its children and seals it.
#[must_use = "a branch is not opened until `open` is awaited"]
pub struct MachineBranch<'a> {
    cx: &'a StepCx,
    plan: Plan,
}

impl StepCx {
    /// Opens a branch: children that are spawned from sources, as many as there are. When the step is run again, a branch that
    /// it had sealed is left as it is, and one that it had begun to fill is filled up. Wait for it with
    /// [`crate::Next::merge`].
    pub fn branch(&self, name: &str) -> MachineBranch<'_> {
        MachineBranch { cx: self, plan: Plan::new(name) }
    }

    /// How the merge of a branch that the step before asked for came out.
    pub async fn merged(&self, name: &str) -> Result<Merged, Failure> {
        let branches = branches(&self.bound, &self.attempt).await?;
        let branch = branches.iter().rev().find(|branch| branch.name == name && branch.merged);
        let goal = branch.and_then(|branch| MergeRecord::read(branch.goal.as_deref()));
        let Some((branch, goal)) = branch.zip(goal) else {
            let text = format!(
                "the branch {name:?} was not merged; ask for it with `Next::merge` in the step before"
            );
            return Err(Failure::stop(text).class(class::REFUSED));
        };
        match goal.verdict {
            Some(Judgement::Met(merged)) => Ok(merged),
            Some(Judgement::Failed(why)) => Err(Failure::stop(why).class("merge")),
            Some(Judgement::Timeout(why)) => Err(Failure::stop(why).class(class::TIMEOUT)),
            None => {
                Ok(Merged::new(self.id(), [(name.to_owned(), branch.number)].into_iter(), progress(branch)))
            }
        }
    }

    /// How the children of merged branches ended, one after the other, read from the store a page at a time.
    pub fn results<T: DeserializeOwned>(&self, merged: &Merged) -> Results<T> {
        merged.results(&self.bound)
    }
}

impl MachineBranch<'_> {
    /// Spawns one child.
    pub fn spawn<C: IntoChild<M>, M>(mut self, name: &str, child: C) -> Self {
        self.plan.spawn(name, child.into_child());
        self
    }

    /// Spawns a child for each item of a source; see [`crate::Branch::spawn_each`].
    pub fn spawn_each<S, F, C, M>(mut self, name: &str, source: S, child: F) -> Self
    where
        S: Source,
        F: FnMut(S::Item) -> C + Send + 'static,
        C: IntoChild<M>,
    {
        self.plan.spawn_each(name, source, child);
        self
    }

    /// How many children are committed at once: 1,000, unless you say otherwise.
    pub fn chunk(mut self, children: usize) -> Self {
        self.plan.chunk = children;
        self
    }

    /// How many children may be there that have not ended. While there are so many the step is given up, and run again a
    /// second later: its code before this call, too.
    pub fn in_flight(mut self, children: u64) -> Self {
        self.plan.in_flight = Some(children);
        self
    }

    /// How many children become due per second.
    pub fn per_second(mut self, children: f64) -> Self {
        self.plan.per_second = Some(children);
        self
    }

    /// Packs the items into blocks; see [`crate::Branch::packed`].
    pub fn packed(mut self) -> Self {
        self.plan.packed = true;
        self
    }

    /// Opens the branch, spawns its children and seals it.
    pub async fn open(self) -> Result<(), Failure> {
        let MachineBranch { cx, plan } = self;
        cx.branches.store(true, Ordering::Relaxed);
        plan.check().map_err(|why| Failure::stop(why).class(class::REFUSED))?;
        let (name, limit) = (plan.name.clone(), plan.in_flight);
        let kept = branches(&cx.bound, &cx.attempt).await?;
        let before = kept.iter().rev().find(|branch| branch.name == name && !branch.merged);
        if before.is_some_and(|branch| branch.sealed) {
            return Ok(());
        }
        let number = before.map_or_else(|| cx.attempt.writer.branch(), |branch| branch.number);
        let mut open = before.is_none().then(|| name.clone());
        let mut producing = plan.start(Arc::clone(&cx.bound), cx.id(), before.map(|branch| branch.number));
        loop {
            let mut grow = BranchUpdate { opened_as: open.take(), ..BranchUpdate::new(number) };
            let produced = match producing.next().await {
                Ok(produced) => produced,
                Err(PartError::Failed(failure) | PartError::Unread(failure)) => return Err(failure),
                Err(PartError::Diverged(failure)) => return cx.diverge(failure).await,
            };
            let children = match produced {
                Chunk::Chunk { mut children, spawns, cursor } => {
                    let more = children.iter().map(|child| u64::from(items_of(child))).sum();
                    wait_or_give_up(cx, number, limit, more, producing.skipped()).await?;
                    for child in &mut children {
                        child.branch_position.iter_mut().for_each(|twig| twig.branch = number);
                    }
                    (grow.spawns, grow.cursor) = (spawns, Some(cursor));
                    children
                }
                Chunk::Sealed => {
                    grow.seal = true;
                    Vec::new()
                }
            };
            let over = grow.seal;
            let step = Step { children, branches: vec![grow], partial: true, ..Step::default() };
            match StepWriter::commit_detached(&cx.attempt, step).await {
                Verdict::Committed if over => return Ok(()),
                Verdict::Committed => {}
                Verdict::Refused(why) => return Err(Failure::stop(why).class(class::REFUSED)),
                Verdict::Halted | Verdict::Fenced => {
                    // The claim is over: whatever follows is not written.
                    return Err(Failure::retry("the claim of the job is over").class(class::LOST));
                }
            }
        }
    }
}

/// Waits until there is room for so many more children. If that takes long the step is given up, to be run again later:
/// otherwise machines could have all slots of a worker, and their children none.
async fn wait_or_give_up(
    cx: &StepCx,
    number: BranchNo,
    limit: Option<u64>,
    more: u64,
    skipped: Duration,
) -> Result<(), Failure> {
    let Some(limit) = limit else { return Ok(()) };
    let linger = skipped.max(LINGER);
    match wait_for_room(&cx.bound, (cx.id(), number), limit, more, linger).await? {
        None => Ok(()),
        Some(_) => {
            cx.paused.notify_one();
            std::future::pending().await
        }
    }
}

/// What follows when a step was given up because a branch that it fills is full.
pub(super) fn pause(attempt: &Attempt) -> StepResult {
    if attempt.cancel_requested_by().is_some() {
        return StepResult::Failed(Failure::retry("the step waited for room in a branch"));
    }
    let spent = attempt.job.retry_counts.clone();
    StepResult::Commit {
        step: None,
        outcome: Outcome::Retry { after: PAUSE, retry_counts: spent, failure: None },
    }
}

async fn branches(bound: &Arc<Services>, attempt: &Attempt) -> Result<Vec<Kept>, Failure> {
    let store = Arc::clone(&bound.store);
    retry_unavailable!(store.inspect().branches(attempt.job.id))
}

fn progress(branch: &Kept) -> BranchProgress {
    BranchProgress { spawned: branch.spawned, counts: branch.counts }
}

/// A branch that nobody merges is a mistake: its children would end unseen.
pub(super) async fn check_all_merged(cx: &StepCx) -> Result<(), Failure> {
    // Most machines have none, and none is asked for in vain.
    if !cx.branches.load(Ordering::Relaxed) {
        return Ok(());
    }
    let kept = branches(&cx.bound, &cx.attempt).await?;
    match kept.iter().find(|branch| !branch.merged) {
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

/// What follows from a step that asks for a merge: the machine goes on in the stage when that is over.
pub(super) async fn request_merge(
    cx: &StepCx,
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
    let kept = branches(&cx.bound, &cx.attempt).await?;
    let mut wanted = Vec::new();
    for name in &names {
        match kept.iter().rev().find(|branch| branch.name == *name) {
            Some(branch) if branch.merged => {
                return Err(refused(format!(
                    "the branch {name:?} was merged before; open another, or keep what it gave"
                )));
            }
            Some(branch) => wanted.push(branch),
            None => {
                let opened: Vec<&str> = kept.iter().map(|branch| branch.name.as_str()).collect();
                let opened = if opened.is_empty() { "none".to_owned() } else { opened.join(", ") };
                return Err(refused(format!("there is no branch {name:?} to be merged; opened: {opened}")));
            }
        }
    }
    if wanted.is_empty() {
        return Err(refused("no branch is named to be merged; name those that were opened".into()));
    }
    let stands: Vec<BranchProgress> = wanted.iter().map(|branch| progress(branch)).collect();
    let watches = match merge.decide(&stands) {
        MergeDecision::Wait(watches) => watches,
        // What is over already is told at once.
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
    let goal = MergeRecord { merge, of: names, verdict: None }.text();
    let grow = |(branch, watch): (&&Kept, Option<BranchWatch>)| BranchUpdate {
        seal: true,
        watch,
        merge_record: Some(goal.clone()),
        ..BranchUpdate::new(branch.number)
    };
    let branches = wanted.iter().zip(watches).map(grow).collect();
    let Stage { name, data, .. } = stage;
    let data = encoded(&cx.bound, data)?;
    let consumed = cx.attempt.job.visible_signals().iter().map(|signal| signal.number).collect();
    let step =
        Step { from_stage: Some(ran), stage: Some((name, data)), consumed, branches, ..Step::default() };
    Ok(StepResult::Commit { step: Some(Box::new(step)), outcome: Outcome::Wait(wait(timeout)) })
}

fn encoded(bound: &Services, data: Payload) -> Result<Payload, Failure> {
    bound.codecs.encode(data.bytes).map_err(|error| Failure::stop(error).class(class::REFUSED))
}

/// Whether a machine was woken by what was told of its branches, or by the end of its time for it.
pub(super) fn is_merging(attempt: &Attempt) -> bool {
    attempt.job.wait.as_ref().is_some_and(|wait| wait.names().any(|name| name == BRANCH_SIGNAL))
}

/// Looks whether the merge is over that a machine waits for. If not, it is parked again; what it returns then is how.
pub(super) async fn poll_merge(
    bound: &Arc<Services>,
    attempt: &Arc<Attempt>,
) -> Result<Option<StepResult>, Failure> {
    let kept = branches(bound, attempt).await?;
    let waited = |branch: &&Kept| !branch.merged && branch.goal.is_some();
    let Some(goal) =
        kept.iter().rev().find(waited).and_then(|branch| MergeRecord::read(branch.goal.as_deref()))
    else {
        return Ok(None);
    };
    let of = |branch: &&Kept| !branch.merged && goal.of.contains(&branch.name);
    let wanted: Vec<&Kept> = kept.iter().filter(of).collect();
    let stands: Vec<BranchProgress> = wanted.iter().map(|branch| progress(branch)).collect();
    let all = BranchProgress::sum(&stands);
    let now: Time = attempt.writer.now();
    let until = attempt.job.wait_until;
    let merged = || {
        let names = wanted.iter().map(|branch| (branch.name.clone(), branch.number));
        Merged::new(attempt.job.id, names, all)
    };
    let missing = retry_unavailable!(missing_children(&*bound.store, &wanted))?;
    let verdict = match goal.merge.decide(&stands) {
        MergeDecision::Met => Judgement::Met(merged()),
        MergeDecision::Failed(why) => {
            let numbers: Vec<BranchNo> = wanted.iter().map(|branch| branch.number).collect();
            let first =
                retry_unavailable!(unsuccessful_children(&*bound.store, attempt.job.id, &numbers, 3))?;
            let first = if first.is_empty() { first } else { format!("; {first}") };
            Judgement::Failed(format!("the merge of {} failed: {why}{first}", goal.of.join(", ")))
        }
        MergeDecision::Wait(_) if missing.is_some() => {
            let why = missing.unwrap_or_default();
            Judgement::Failed(format!("the merge of {} failed: {why}", goal.of.join(", ")))
        }
        MergeDecision::Wait(_) if until.is_some_and(|until| until <= now) => {
            Judgement::Timeout(merged().timeout_text())
        }
        MergeDecision::Wait(watches) => {
            let grow = |(branch, watch): (&&Kept, Option<BranchWatch>)| BranchUpdate {
                watch,
                ..BranchUpdate::new(branch.number)
            };
            let branches = wanted.iter().zip(watches).map(grow).collect();
            let consumed = attempt.job.inbox.iter().map(|signal| signal.number).collect();
            let step = Step { consumed, branches, ..Step::default() };
            let timeout = until.map(|until| until.since(now));
            return Ok(Some(StepResult::Commit {
                step: Some(Box::new(step)),
                outcome: Outcome::Wait(wait(timeout)),
            }));
        }
    };
    let cut = all.counts.ended() < all.spawned && !goal.merge.rest_runs;
    let text = MergeRecord { verdict: Some(verdict), ..goal }.text();
    let grow = |branch: &&Kept| BranchUpdate {
        merged: true,
        cancel_children: cut,
        merge_record: Some(text.clone()),
        ..BranchUpdate::new(branch.number)
    };
    let consumed = attempt.job.inbox.iter().map(|signal| signal.number).collect();
    let branches = wanted.iter().map(grow).collect();
    let step = Step { consumed, branches, partial: true, ..Step::default() };
    match StepWriter::commit_detached(attempt, step).await {
        Verdict::Committed => Ok(None),
        Verdict::Refused(why) => Err(Failure::stop(why).class(class::REFUSED)),
        Verdict::Halted | Verdict::Fenced => Ok(Some(StepResult::ClaimOver)),
    }
}
