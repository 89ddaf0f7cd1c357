//! Makes jobs, outcomes and steps of drafts.

use std::time::Duration;

use windlass_model::{
    BranchMember, BranchNo, BranchPosition, BranchUpdate, BranchWatch, ClaimedJob, Conflict, Failure, JobId,
    JournalEntry, NewJob, NewSignal, Outcome, Payload, RateCharge, RateLimit, Reason, Rev, Serial, State,
    States, StepWrites, Time, Unique, UnreadableSignal, Unwind, Wait, WaitCondition, When,
    branch::{BRANCH_SIGNAL, PollInterval},
    journal::{CallEvent, CallKind},
    wait::{CHILD_SIGNAL, SignalName},
};

use super::{
    super::kit::signal,
    ops::{BranchDraft, ChangeDraft, JobDraft, StepDraft, WorkflowDraft},
};

pub(super) const QUEUES: [&str; 2] = ["main", "bulk"];
pub(super) const STAGES: [&str; 2] = ["First", "Second"];
const NAMES: [&str; 3] = ["go", "stop", "other"];
/// Size of data that SQLite keeps outside the job's row.
const LARGE: usize = 33_000;

/// `n` seconds.
pub(super) fn seconds(n: u8) -> Duration {
    Duration::from_secs(u64::from(n))
}

/// The one rate limit, with this many tokens.
pub(super) fn limit(tokens: u32) -> RateLimit {
    RateLimit::per("api", tokens, Duration::from_secs(20)).burst(tokens + 1)
}

/// A signal. There are few names and dedup ids, so that some are duplicates.
pub(super) fn signal_to(job: JobId, name: u8, dedup: u8) -> NewSignal {
    let dedup = dedup.to_string();
    signal(job, NAMES[usize::from(name)], &dedup, &dedup)
}

/// A job; `id` resolves the numbers of ids.
pub(super) fn job(draft: &JobDraft, now: Time, id: impl Fn(u8) -> JobId) -> NewJob {
    let input = Payload::json(vec![b'0' + draft.input]);
    let name = ["a", "b"][usize::from(draft.kind / 2)];
    let mut job = NewJob::new(id(draft.id), name, QUEUES[usize::from(draft.queue)], input);
    job.kind.version = i32::from(draft.kind % 2) + 1;
    job.key = draft.key.map(|key| format!("key {key}"));
    job.priority = i16::from(draft.priority);
    job.tags = draft.key.iter().map(|key| format!("tag {key}")).collect();
    job.when = match draft.delay {
        0 => When::Now,
        delay if delay % 2 == 0 => When::After(seconds(delay)),
        delay => When::At(now + seconds(delay)),
    };
    job.deadline_at = draft.deadline.map(|wait| now + seconds(wait));
    job.settings.serial = draft.serial.map(|key| {
        let slots = (key == 2).then_some(2);
        Box::new(Serial { key: format!("serial {key}"), slots, keeps_slot: key == 1 })
    });
    job.settings.unique = draft.unique.map(|(key, conflict, scope)| {
        let all = [Conflict::Keep, Conflict::Reject, Conflict::Replace, Conflict::CancelAndReplace];
        let scopes =
            [States::LIVE, States::PENDING, States::KEPT, States::of([State::Running, State::Failed])];
        let within = (key == 1).then_some(Duration::from_secs(40));
        let (scope, conflict) = (scopes[usize::from(scope)], all[usize::from(conflict)]);
        Box::new(Unique { key: format!("name {key}"), scope, within, conflict })
    });
    job.settings.rate =
        draft.weight.map(|weight| Box::new(RateCharge { limit: "api".into(), weight: u32::from(weight) }));
    job.parent = draft.parent.filter(|parent| *parent != draft.id).map(id);
    job.stage = draft.stage.map(|stage| STAGES[usize::from(stage)].to_owned());
    job.signals = draft.signals.iter().map(|(name, dedup)| signal_to(job.id, *name, *dedup)).collect();
    job
}

/// The outcome of a change; `max_output` is the size of the largest output, `rev` the revision that the change follows.
pub(super) fn outcome(change: &ChangeDraft, max_output: usize, rev: Rev) -> Outcome {
    let failure = Failure::retry("went wrong").class("busy");
    let timeout = (change.after > 0).then(|| seconds(change.after));
    match change.outcome {
        0 | 1 => Outcome::Done(Payload { codec: 1, bytes: vec![change.after; 3] }),
        2 => Outcome::Failed { reason: Reason::Stopped, failure: Failure::stop("for good") },
        3 => Outcome::Failed { reason: Reason::Undecodable, failure },
        4 => Outcome::Cancelled(Failure::cancel("enough")),
        5 if change.after % 5 == 1 => Outcome::Done(Payload::json(vec![b'1'; max_output + 1])),
        5..8 => {
            let failure = (change.outcome != 7).then_some(failure);
            Outcome::Retry {
                after: seconds(change.after),
                retry_counts: vec![u32::from(change.after)],
                failure,
            }
        }
        8..11 => Outcome::Next,
        11 => Outcome::Wait(Wait::YIELD),
        12 => Outcome::Wait(Wait { condition: WaitCondition::Children { rev: Rev(rev.0 + 1) }, timeout }),
        _ => Outcome::Wait(Wait { condition: signal_condition(change.names), timeout }),
    }
}

/// A wait for signals. Bits 1 and 2 select which of two names, or none; bit 4 that all of them are needed; bit 8 that the step is
/// given every signal of a name. Without a name it waits for the signal of a child or, with bit 4, of a branch.
fn signal_condition(bits: u8) -> WaitCondition {
    let name = |n: usize| SignalName { name: NAMES[n].to_owned(), every: bits & 8 != 0 };
    let names: Vec<SignalName> = match bits & 3 {
        0 => {
            let name = if bits & 4 == 0 { CHILD_SIGNAL } else { BRANCH_SIGNAL };
            vec![SignalName { name: name.to_owned(), every: bits & 8 != 0 }]
        }
        1 => vec![name(0)],
        2 => vec![name(1)],
        _ => vec![name(0), name(1)],
    };
    let needs = if bits & 4 != 0 { names.len() as u32 } else { 1 };
    WaitCondition::Signals { names, needs }
}

/// The position of a child in a branch.
fn position(draft: &JobDraft, branch: BranchNo) -> Option<Box<BranchPosition>> {
    let (_, items) = draft.branch?;
    Some(Box::new(BranchPosition {
        branch,
        spawn: i16::from(draft.kind),
        item: draft.id.to_string(),
        items: u32::from(items),
    }))
}

/// A child of a step, in a branch if the draft names one. The store sets its parent.
pub(super) fn child(draft: &JobDraft, job: NewJob) -> NewJob {
    let position = draft.branch.and_then(|(branch, _)| position(draft, BranchNo(i64::from(branch))));
    NewJob { parent: None, key: job.key.filter(|_| position.is_none()), branch_position: position, ..job }
}

/// A promoted item of a block.
pub(super) fn promoted(draft: &JobDraft, job: NewJob, block: Option<BranchMember>) -> NewJob {
    let branch = block.map(|member| member.branch).unwrap_or_default();
    let draft = JobDraft { branch: Some((0, 1)), ..draft.clone() };
    let mut job = NewJob { parent: None, key: None, branch_position: position(&draft, branch), ..job };
    job.settings.unique = None;
    job
}

/// The branch updates of a step of a job that has the branches in `known`. The branches of its children are opened too, unless the
/// step is unchecked.
fn branch_updates(step: &StepDraft, known: &[BranchNo], children: &[NewJob]) -> Vec<BranchUpdate> {
    let mut updates: Vec<BranchUpdate> = Vec::new();
    for draft in &step.branches {
        let number = BranchNo(i64::from(draft.number));
        if updates.iter().all(|update| update.number != number) {
            updates.push(branch_update(draft, number, known));
        }
    }
    for position in children.iter().filter_map(|child| child.branch_position.as_ref()) {
        let is_new = !known.contains(&position.branch)
            && updates.iter().all(|update| update.number != position.branch);
        if is_new && !step.unchecked {
            updates.push(open_branch(position.branch));
        }
    }
    updates
}

fn open_branch(number: BranchNo) -> BranchUpdate {
    let spawns = Some(vec!["zero".to_owned(), "one".to_owned()]);
    BranchUpdate { opened_as: Some(format!("branch-{number}")), spawns, ..BranchUpdate::new(number) }
}

fn branch_update(draft: &BranchDraft, number: BranchNo, known: &[BranchNo]) -> BranchUpdate {
    let watch = draft.watch.map(|(which, count)| {
        let count = |of: u8| (which == of).then_some(u64::from(count));
        let poll_interval = PollInterval { min: seconds(3), max: seconds(40) };
        BranchWatch { done: count(0), unsuccessful: count(1), ended: count(2), poll_interval }
    });
    let update = if known.contains(&number) { BranchUpdate::new(number) } else { open_branch(number) };
    BranchUpdate {
        cursor: draft.cursor.map(|n| Payload { codec: n % 2, bytes: vec![n; usize::from(n)] }),
        merge_record: draft.cursor.filter(|n| n % 3 == 0).map(|n| format!("{{\"goal\":{n}}}")),
        watch,
        seal: draft.seal,
        merged: draft.merged,
        cancel_children: draft.cancel_children,
        ..update
    }
}

/// What a step of a claimed job writes.
pub(super) fn step(
    step: &StepDraft,
    job: &ClaimedJob,
    known: &[BranchNo],
    children: Vec<NewJob>,
    promoted: Vec<NewJob>,
) -> StepWrites {
    let wait = job.wait.as_ref().filter(|_| step.consumes || step.unreadable);
    let selected = wait.map(|wait| wait.select_signals(&job.inbox)).unwrap_or_default();
    let mut selected: Vec<i64> = selected.into_iter().map(|index| job.inbox[index].number).collect();
    let unreadable = selected.drain(..usize::from(step.unreadable && !selected.is_empty()));
    let unreadable = unreadable.map(|number| UnreadableSignal::new(number, "it cannot be read")).collect();
    let data = |data: u8| match data {
        0 => Payload { codec: 3, bytes: vec![b'd'; LARGE] },
        data => Payload::json(vec![data; usize::from(data)]),
    };
    let left = job.branch_member.map_or(0, |member| member.items);
    let is_valid = u32::from(step.items) + promoted.len() as u32 <= left || step.unchecked;
    StepWrites {
        branches: branch_updates(step, known, &children),
        items: if is_valid { u32::from(step.items) } else { 0 },
        promoted: if is_valid { promoted } else { Vec::new() },
        from_stage: step.from_stage.then(|| job.stage.clone().unwrap_or_else(|| "Begin".into())),
        stage: step.stage.map(|(stage, text)| (STAGES[usize::from(stage)].to_owned(), data(text))),
        unchanged: step.unchanged,
        consumed: if step.consumes { selected } else { Vec::new() },
        unreadable,
        children,
        ..step.workflow.as_ref().map(|draft| workflow_writes(draft, job.rev)).unwrap_or_default()
    }
}

/// What the step of a workflow writes in addition. Positions in the journal are made of the revision, so that no two steps use the same.
fn workflow_writes(draft: &WorkflowDraft, rev: Rev) -> StepWrites {
    let value = |n: u8| Payload { codec: n % 2, bytes: vec![n; usize::from(n)] };
    let entry = |n: u8| JournalEntry {
        seq: rev.0 * 4 + i32::from(n),
        call_kind: CallKind::ALL[usize::from(n) % CallKind::ALL.len()],
        event: CallEvent::ALL[usize::from(n) % CallEvent::ALL.len()],
        name: format!("call {n}"),
        key: (n == 1).then(|| "key".to_owned()),
        line: (n == 0).then(|| "main.rs:7".to_owned()),
        at: Time(1_000 + i64::from(rev.0)),
        payload: value(n),
    };
    let unwind = |fails: bool| Unwind {
        reason: fails.then_some(Reason::Exhausted),
        failure: Failure::stop("to be undone").class("undo"),
    };
    StepWrites {
        signal_child_ends: draft.signal_child_ends,
        entries: (0..draft.entries).map(entry).collect(),
        forget_entries: draft
            .forget_entry
            .map(|back| (rev.0 - 1 - i32::from(back)) * 4)
            .into_iter()
            .collect(),
        context: draft.context.map(|(name, n)| (format!("name {name}"), value(n))).into_iter().collect(),
        continue_as_new: draft.continue_as_new,
        has_undo: draft.has_undo,
        unwind: draft.unwind.map(|fails| Box::new(unwind(fails))),
        ..StepWrites::default()
    }
}
