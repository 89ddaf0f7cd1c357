//! Real jobs and changes of random ones: what [`ops`](super::ops) draws, [the parent module](super) calls the stores with.

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
    ops::{Draft, Edit, Log, Move, Sprout},
};

pub(super) const QUEUES: [&str; 2] = ["main", "aside"];
pub(super) const STAGES: [&str; 2] = ["First", "Second"];
const NAMES: [&str; 3] = ["go", "stop", "other"];
/// Data that SQLite keeps apart from the job's row.
const LARGE: usize = 33_000;

/// So many seconds.
pub(super) fn seconds(n: u8) -> Duration {
    Duration::from_secs(u64::from(n))
}

/// The one rate limit, with so many tokens.
pub(super) fn limit(tokens: u32) -> RateLimit {
    RateLimit::per("api", tokens, Duration::from_secs(20)).burst(tokens + 1)
}

/// A signal; there are few names and ids, so that some come twice.
pub(super) fn signal_to(job: JobId, name: u8, dedup: u8) -> NewSignal {
    let dedup = dedup.to_string();
    signal(job, NAMES[usize::from(name)], &dedup, &dedup)
}

/// A job; `id` says which id a number stands for.
pub(super) fn job(draft: &Draft, now: Time, id: impl Fn(u8) -> JobId) -> NewJob {
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
        delay => When::At(now.plus(seconds(delay))),
    };
    job.deadline_at = draft.deadline.map(|wait| now.plus(seconds(wait)));
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

/// How an attempt ends; `most` is the longest output, `rev` the revision it follows.
pub(super) fn outcome(edit: &Edit, most: usize, rev: Rev) -> Outcome {
    let failure = Failure::retry("went wrong").class("busy");
    let timeout = (edit.after > 0).then(|| seconds(edit.after));
    match edit.outcome {
        0 | 1 => Outcome::Done(Payload { codec: 1, bytes: vec![edit.after; 3] }),
        2 => Outcome::Failed { reason: Reason::Stopped, failure: Failure::stop("for good") },
        3 => Outcome::Failed { reason: Reason::Undecodable, failure },
        4 => Outcome::Cancelled(Failure::cancel("enough")),
        5 if edit.after % 5 == 1 => Outcome::Done(Payload::json(vec![b'1'; most + 1])),
        5..8 => {
            let failure = (edit.outcome != 7).then_some(failure);
            Outcome::Retry { after: seconds(edit.after), retry_counts: vec![u32::from(edit.after)], failure }
        }
        8..11 => Outcome::Next,
        11 => Outcome::Wait(Wait::YIELD),
        12 => Outcome::Wait(Wait { condition: WaitCondition::Children { rev: Rev(rev.0 + 1) }, timeout }),
        _ => Outcome::Wait(Wait { condition: awaited(edit.names), timeout }),
    }
}

/// A wait for the end of a child or what is watched of a branch, or for one or both of two signals, by bits: which, whether all of them, whether every
/// one of a name.
fn awaited(bits: u8) -> WaitCondition {
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

/// The place in a branch of a child of a step.
pub(super) fn twig(draft: &Draft, branch: BranchNo) -> Option<Box<BranchPosition>> {
    let (_, items) = draft.twig?;
    Some(Box::new(BranchPosition {
        branch,
        spawn: i16::from(draft.kind),
        item: draft.id.to_string(),
        items: u32::from(items),
    }))
}

/// A child of a step, in a branch if the draft says so; the parent is for the store to name.
pub(super) fn child(draft: &Draft, job: NewJob) -> NewJob {
    let twig = draft.twig.and_then(|(branch, _)| twig(draft, BranchNo(i64::from(branch))));
    NewJob { parent: None, key: job.key.filter(|_| twig.is_none()), branch_position: twig, ..job }
}

/// A job that takes the place of items of a block.
pub(super) fn promoted(draft: &Draft, job: NewJob, block: Option<BranchMember>) -> NewJob {
    let branch = block.map(|counted| counted.branch).unwrap_or_default();
    let draft = Draft { twig: Some((0, 1)), ..draft.clone() };
    let mut job = NewJob { parent: None, key: None, branch_position: twig(&draft, branch), ..job };
    job.settings.unique = None;
    job
}

/// What a step does to branches, if there are those in `known`; those of its children are opened too, unless it is careless.
pub(super) fn grow(step: &Move, known: &[BranchNo], children: &[NewJob]) -> Vec<BranchUpdate> {
    let mut grows: Vec<BranchUpdate> = Vec::new();
    for sprout in &step.sprouts {
        let number = BranchNo(i64::from(sprout.number));
        if grows.iter().all(|grow| grow.number != number) {
            grows.push(sprouted(sprout, number, known));
        }
    }
    for twig in children.iter().filter_map(|child| child.branch_position.as_ref()) {
        let is_new = !known.contains(&twig.branch) && grows.iter().all(|grow| grow.number != twig.branch);
        if is_new && !step.careless {
            grows.push(opening(twig.branch));
        }
    }
    grows
}

fn opening(number: BranchNo) -> BranchUpdate {
    let spawns = Some(vec!["zero".to_owned(), "one".to_owned()]);
    BranchUpdate { opened_as: Some(format!("branch-{number}")), spawns, ..BranchUpdate::new(number) }
}

fn sprouted(sprout: &Sprout, number: BranchNo, known: &[BranchNo]) -> BranchUpdate {
    let watch = sprout.watch.map(|(which, count)| {
        let count = |of: u8| (which == of).then_some(u64::from(count));
        let pace = PollInterval { min: seconds(3), max: seconds(40) };
        BranchWatch { done: count(0), unsuccessful: count(1), ended: count(2), poll_interval: pace }
    });
    let grow = if known.contains(&number) { BranchUpdate::new(number) } else { opening(number) };
    BranchUpdate {
        cursor: sprout.cursor.map(|n| Payload { codec: n % 2, bytes: vec![n; usize::from(n)] }),
        merge_record: sprout.cursor.filter(|n| n % 3 == 0).map(|n| format!("{{\"goal\":{n}}}")),
        watch,
        seal: sprout.seal,
        merged: sprout.merge,
        cancel_children: sprout.cut,
        ..grow
    }
}

/// What a step wants written beside its outcome, if the job was claimed like this.
pub(super) fn step(
    step: &Move,
    job: &ClaimedJob,
    known: &[BranchNo],
    children: Vec<NewJob>,
    promoted: Vec<NewJob>,
) -> StepWrites {
    let wait = job.wait.as_ref().filter(|_| step.consumes || step.misread);
    let shown = wait.map(|wait| wait.select_signals(&job.inbox)).unwrap_or_default();
    let mut shown: Vec<i64> = shown.into_iter().map(|place| job.inbox[place].number).collect();
    let misread = shown.drain(..usize::from(step.misread && !shown.is_empty()));
    let aside = misread.map(|number| UnreadableSignal::new(number, "it cannot be read")).collect();
    let data = |data: u8| match data {
        0 => Payload { codec: 3, bytes: vec![b'd'; LARGE] },
        data => Payload::json(vec![data; usize::from(data)]),
    };
    let left = job.branch_member.map_or(0, |counted| counted.items);
    let sound = u32::from(step.items) + promoted.len() as u32 <= left || step.careless;
    StepWrites {
        branches: grow(step, known, &children),
        items: if sound { u32::from(step.items) } else { 0 },
        promoted: if sound { promoted } else { Vec::new() },
        from_stage: step.ran.then(|| job.stage.clone().unwrap_or_else(|| "Begin".into())),
        stage: step.stage.map(|(stage, text)| (STAGES[usize::from(stage)].to_owned(), data(text))),
        unchanged: step.unchanged,
        consumed: if step.consumes { shown } else { Vec::new() },
        unreadable: aside,
        children,
        ..step.log.as_ref().map(|log| noted(log, job.rev)).unwrap_or_default()
    }
}

/// What the step of a workflow writes into its journal and beside it. Revisions tell steps apart, so places come from them.
fn noted(log: &Log, rev: Rev) -> StepWrites {
    let value = |n: u8| Payload { codec: n % 2, bytes: vec![n; usize::from(n)] };
    let entry = |n: u8| JournalEntry {
        seq: rev.0 * 4 + i32::from(n),
        op: CallKind::ALL[usize::from(n) % CallKind::ALL.len()],
        mark: CallEvent::ALL[usize::from(n) % CallEvent::ALL.len()],
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
        signal_child_ends: log.told,
        entries: (0..log.entries).map(entry).collect(),
        forget_entries: log.forget.map(|back| (rev.0 - 1 - i32::from(back)) * 4).into_iter().collect(),
        context: log.context.map(|(name, n)| (format!("name {name}"), value(n))).into_iter().collect(),
        continue_as_new: log.anew,
        has_undo: log.undo,
        unwind: log.unwind.map(|fails| Box::new(unwind(fails))),
        ..StepWrites::default()
    }
}
