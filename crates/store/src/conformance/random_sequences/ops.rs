//! Random sequences of calls: what they are made of, and how proptest draws them.
//!
//! An op names jobs, workers and earlier calls by small numbers; [the parent module](super) makes real calls of them.
//! Few ids, keys, queues and kinds, so that they meet often. Only what a worker could honestly know is used:
//! epochs and revisions come from claims that were answered, some of them long outdated.

use proptest::{collection::vec, option, prelude::*};

/// How many ids of jobs there are.
pub const IDS: u8 = 28;
/// How many of them are used where many are to meet.
const FEW: u8 = 14;

/// One call, or a step of the clock.
#[derive(Clone, Debug)]
pub enum Op {
    /// Submits jobs, born claimed by a worker or not.
    Submit { jobs: Vec<Draft>, born: Option<u8> },
    /// Sends an earlier submit again.
    SubmitAgain { which: u8 },
    /// Claims; the bits of `kinds` say which of the four lanes are served, `settle` which claim to forget.
    Claim { worker: u8, queue: u8, kinds: u8, limit: u8, alone: bool, settle: Option<u8> },
    /// Sends an earlier claim again.
    ClaimAgain { which: u8 },
    /// Commits changes to jobs handed out before.
    Commit { changes: Vec<Edit> },
    /// Sends an earlier commit again.
    CommitAgain { which: u8 },
    /// Renews a lease; forgets a claim, ends the aloneness of another.
    Renew { worker: u8, lease: u8, settle: Option<u8>, join: Option<u8> },
    /// Declares workers dead and walks their claims.
    Reap { dead: Option<u8>, lapsed: bool, limit: u8, crashes: u8 },
    /// Hands back jobs handed out before.
    Release { picks: Vec<u8> },
    /// Ends a worker's service.
    Retire { worker: u8 },
    /// Takes a worker on in place of the last of that number, or tries to under its old name.
    Enlist { worker: u8, again: bool },
    /// Fires timers.
    Due { limit: u8 },
    /// Does something to jobs.
    Act { ids: Vec<u8>, act: u8, amount: i8 },
    /// Changes a rule.
    Rule { rule: u8, amount: u8 },
    /// Deletes ended jobs.
    Prune { state: u8, age: u8 },
    /// Sends signals: to which job, of which name, with which dedup id.
    Signal { signals: Vec<(u8, u8, u8)> },
    /// Gives a machine another version and stage, as it is or as it was.
    Restate { id: u8, version: u8, stage: u8, outdated: bool },
    /// Forks a job into another id, before one of its entries (or after the last, or nowhere), with a key or none.
    Fork { from: u8, id: u8, before: u8, key: Option<u8> },
    /// Looks at branches.
    Poll { limit: u8 },
    /// Lets time pass, in seconds.
    Pass { seconds: u16 },
}

/// A job to be submitted.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Which id.
    pub id: u8,
    /// Which input.
    pub input: u8,
    /// Which of two queues.
    pub queue: u8,
    /// Which of four kinds and versions.
    pub kind: u8,
    /// Which key.
    pub key: Option<u8>,
    /// Its priority.
    pub priority: i8,
    /// How long it waits, in seconds.
    pub delay: u8,
    /// When its deadline is, in seconds from now.
    pub deadline: Option<u8>,
    /// Which serial key; odd ones are held while backing off, the highest names its slots.
    pub serial: Option<u8>,
    /// Which unique name, what becomes of a conflict, and which scope.
    pub unique: Option<(u8, u8, u8)>,
    /// What it weighs under the one rate limit.
    pub weight: Option<u8>,
    /// Which job submitted it.
    pub parent: Option<u8>,
    /// In which stage it starts, if it is a machine.
    pub stage: Option<u8>,
    /// Which signals it has from the start: name and dedup id.
    pub signals: Vec<(u8, u8)>,
    /// Which branch of its parent it is in if a step submits it, and how many children it stands for.
    pub twig: Option<(u8, u8)>,
}

/// A change to be committed.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// Which of the jobs handed out so far, counted from the newest.
    pub pick: u8,
    /// Which outcome.
    pub outcome: u8,
    /// Seconds to wait before a retry.
    pub after: u8,
    /// What is added to the revision: 0 but for mistakes.
    pub rev: i8,
    /// Whether it was made under a claim that the store has lost.
    pub lost: bool,
    /// Which signals a wait is for.
    pub names: u8,
    /// What the step of a machine wants written beside its outcome.
    pub step: Option<Move>,
}

/// What the step of a machine wants written.
#[derive(Clone, Debug, Default)]
pub struct Move {
    /// Whether the transition is recorded.
    pub ran: bool,
    /// Which stage it leads to, with how much data; 0 is more than a row holds.
    pub stage: Option<(u8, u8)>,
    /// Whether it says that nothing has changed.
    pub unchanged: bool,
    /// Whether it consumes the signals it was shown.
    pub consumes: bool,
    /// Whether it could not read the first of them.
    pub misread: bool,
    /// Jobs to be submitted with it.
    pub children: Vec<Draft>,
    /// What the step of a workflow wants written too.
    pub log: Option<Log>,
    /// What it does to branches.
    pub sprouts: Vec<Sprout>,
    /// How many items of a block it accounts for, if the job is one with so many left.
    pub items: u8,
    /// Jobs that take the place of as many items, likewise.
    pub promoted: Vec<Draft>,
    /// Whether it minds nothing of what it knows of its branches and items.
    pub careless: bool,
}

/// What a step does to a branch, which it opens if there is none of that number.
#[derive(Clone, Debug, Default)]
pub struct Sprout {
    /// Which branch.
    pub number: u8,
    /// Which cursor it has from now on.
    pub cursor: Option<u8>,
    /// Which ends are watched for (well, badly, or any), and how many.
    pub watch: Option<(u8, u8)>,
    /// Whether it is sealed.
    pub seal: bool,
    /// Whether it is merged.
    pub merge: bool,
    /// Whether it is cut.
    pub cut: bool,
}

/// What the step of a workflow wants written.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// How many entries it adds.
    pub entries: u8,
    /// How many steps back an entry is that it forgets.
    pub forget: Option<u8>,
    /// Which name of the context gets which value.
    pub context: Option<(u8, u8)>,
    /// Whether the journal starts anew.
    pub anew: bool,
    /// Whether there is something to undo from now on.
    pub undo: bool,
    /// Whether it is being unwound from now on, and fails then or is cancelled.
    pub unwind: Option<bool>,
    /// Whether it is told of the ends of the children.
    pub told: bool,
}

fn draft() -> impl Strategy<Value = Draft> {
    let delay = prop_oneof![3 => Just(0u8), 1 => 1..40u8];
    let deadline = option::weighted(0.3, 0..60u8);
    let key = option::weighted(0.3, 0..3u8);
    let priority = prop_oneof![3 => Just(0i8), 1 => -3..4i8];
    let flow = (
        option::weighted(0.4, 0..3u8),
        option::weighted(0.3, (0..2u8, 0..4u8, 0..4u8)),
        option::weighted(0.2, 1..4u8),
        option::weighted(0.1, 0..FEW),
    );
    let twig = option::weighted(0.6, (0..2u8, prop_oneof![2 => Just(1u8), 1 => 2..6u8]));
    let machine = (option::weighted(0.3, 0..2u8), vec((0..3u8, 0..3u8), 0..3), twig);
    let plain = (0..FEW, 0..2u8, 0..2u8, 0..4u8, key, priority, delay, deadline);
    (plain, flow, machine).prop_map(
        |(
            (id, input, queue, kind, key, priority, delay, deadline),
            (serial, unique, weight, parent),
            (stage, signals, twig),
        )| Draft {
            id,
            input,
            queue,
            kind,
            key,
            priority,
            delay,
            deadline,
            serial,
            unique,
            weight,
            parent,
            stage,
            // Most jobs have none, so that most are put in by the short way.
            signals: if id % 4 == 0 { signals } else { Vec::new() },
            twig,
        },
    )
}

fn edit() -> impl Strategy<Value = Edit> {
    let pick = prop_oneof![4 => 0..4u8, 1 => 0..60u8];
    let after = prop_oneof![Just(0u8), 1..30u8];
    let rev = prop_oneof![12 => Just(0i8), 1 => Just(-1i8), 1 => Just(1i8)];
    let outcome = prop_oneof![8 => 0..8u8, 9 => 8..15u8];
    let lost = prop::bool::weighted(0.05);
    (pick, outcome, after, rev, lost, 0..16u8, option::weighted(0.7, step())).prop_map(
        |(pick, outcome, after, rev, lost, names, step)| Edit {
            pick,
            outcome,
            after,
            rev,
            lost,
            names,
            step,
        },
    )
}

fn step() -> impl Strategy<Value = Move> {
    let data = prop_oneof![1 => Just(0u8), 24 => 1..4u8];
    let children = prop_oneof![4 => Just(Vec::new()), 1 => vec(draft(), 1..4)];
    let stage = option::weighted(0.8, (0..2u8, data));
    let flags =
        (any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.8), prop::bool::weighted(0.2));
    let promoted = prop_oneof![4 => Just(Vec::new()), 1 => vec(draft(), 1..3)];
    let branches = (vec(sprout(), 0..3), 0..3u8, promoted, prop::bool::weighted(0.04));
    (flags, stage, children, option::weighted(0.6, log()), branches).prop_map(
        |(
            (ran, unchanged, consumes, misread),
            stage,
            children,
            log,
            (sprouts, items, promoted, careless),
        )| Move {
            ran,
            stage,
            unchanged,
            consumes,
            misread,
            children,
            log,
            sprouts,
            items,
            promoted,
            careless,
        },
    )
}

fn sprout() -> impl Strategy<Value = Sprout> {
    let (cursor, watch) = (option::weighted(0.3, 0..9u8), option::weighted(0.5, (0..3u8, 0..5u8)));
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (0..2u8, cursor, watch, flags).prop_map(|(number, cursor, watch, (seal, merge, cut))| Sprout {
        number,
        cursor,
        watch,
        seal,
        merge,
        cut,
    })
}

fn log() -> impl Strategy<Value = Log> {
    let forget = option::weighted(0.2, 0..3u8);
    let context = option::weighted(0.3, (0..3u8, 0..9u8));
    let unwind = option::weighted(0.05, any::<bool>());
    let (anew, undo) = (prop::bool::weighted(0.1), prop::bool::weighted(0.4));
    (0..3u8, forget, context, anew, undo, unwind, any::<bool>()).prop_map(
        |(entries, forget, context, anew, undo, unwind, told)| Log {
            entries,
            forget,
            context,
            anew,
            undo,
            unwind,
            told,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let worker = || 0..3u8;
    let earlier = || option::weighted(0.2, 0..4u8);
    prop_oneof![
        6 => (vec(draft(), 1..5), option::weighted(0.25, worker())).prop_map(|(jobs, born)| Op::Submit { jobs, born }),
        1 => (0..4u8).prop_map(|which| Op::SubmitAgain { which }),
        8 => (worker(), 0..2u8, 1..16u8, 0..5u8, prop::bool::weighted(0.3), earlier()).prop_map(
            |(worker, queue, kinds, limit, alone, settle)| Op::Claim { worker, queue, kinds, limit, alone, settle }
        ),
        2 => (0..4u8).prop_map(|which| Op::ClaimAgain { which }),
        7 => vec(edit(), 1..5).prop_map(|changes| Op::Commit { changes }),
        2 => (0..4u8).prop_map(|which| Op::CommitAgain { which }),
        2 => (worker(), 1..80u8, earlier(), earlier())
            .prop_map(|(worker, lease, settle, join)| Op::Renew { worker, lease, settle, join }),
        3 => (option::of(worker()), any::<bool>(), 0..4u8, 0..3u8)
            .prop_map(|(dead, lapsed, limit, crashes)| Op::Reap { dead, lapsed, limit, crashes }),
        2 => vec(0..8u8, 1..4).prop_map(|picks| Op::Release { picks }),
        1 => worker().prop_map(|worker| Op::Retire { worker }),
        3 => (worker(), prop::bool::weighted(0.2)).prop_map(|(worker, again)| Op::Enlist { worker, again }),
        3 => (0..6u8).prop_map(|limit| Op::Due { limit }),
        4 => (vec(0..FEW, 1..4), 0..5u8, -3..4i8).prop_map(|(ids, act, amount)| Op::Act { ids, act, amount }),
        2 => (0..6u8, 0..5u8).prop_map(|(rule, amount)| Op::Rule { rule, amount }),
        1 => (0..3u8, 0..60u8).prop_map(|(state, age)| Op::Prune { state, age }),
        4 => vec((0..FEW, 0..3u8, 0..6u8), 1..4).prop_map(|signals| Op::Signal { signals }),
        1 => (0..FEW, 1..4u8, 0..2u8, prop::bool::weighted(0.2))
            .prop_map(|(id, version, stage, outdated)| Op::Restate { id, version, stage, outdated }),
        1 => (0..FEW, 0..FEW, 0..6u8, option::weighted(0.3, 0..3u8))
            .prop_map(|(from, id, before, key)| Op::Fork { from, id, before, key }),
        2 => (0..4u8).prop_map(|limit| Op::Poll { limit }),
        4 => prop_oneof![0..10u16, 10..90u16].prop_map(|seconds| Op::Pass { seconds }),
    ]
}

/// A job that is soon claimed: one lane, and few things that keep it.
fn ready() -> impl Strategy<Value = Draft> {
    (draft(), 0..IDS).prop_map(|(draft, id)| Draft {
        id,
        queue: 0,
        kind: 0,
        key: None,
        delay: if id % 5 == 1 { draft.delay } else { 0 },
        deadline: draft.deadline.filter(|_| id % 3 == 0),
        serial: draft.serial.filter(|_| id % 4 == 3),
        unique: draft.unique.filter(|_| id % 6 == 5),
        weight: draft.weight.filter(|_| id % 7 == 6),
        parent: None,
        ..draft
    })
}

/// A change of a job that was claimed not long ago, with children in branches.
fn growth() -> impl Strategy<Value = Edit> {
    let children = prop_oneof![1 => Just(Vec::new()), 1 => vec(ready(), 1..6)];
    let promoted = prop_oneof![2 => Just(Vec::new()), 1 => vec(ready(), 1..3)];
    let names = prop_oneof![1 => 0..16u8, 1 => Just(4u8), 1 => Just(12u8)];
    (edit(), 0..6u8, names, children, promoted).prop_map(|(edit, pick, names, children, promoted)| {
        let step = edit.step.map(|step| Move { children, promoted, ..step });
        Edit { pick, rev: 0, names, step, ..edit }
    })
}

/// What happens to branches: jobs are claimed and committed as they come, and branches looked at.
fn lively() -> impl Strategy<Value = Op> {
    let take = |(worker, limit, alone)| Op::Claim { worker, queue: 0, kinds: 15, limit, alone, settle: None };
    prop_oneof![
        2 => vec(ready(), 1..4).prop_map(|jobs| Op::Submit { jobs, born: None }),
        6 => (0..2u8, 1..6u8, prop::bool::weighted(0.1)).prop_map(take),
        10 => vec(growth(), 1..5).prop_map(|changes| Op::Commit { changes }),
        1 => (0..4u8).prop_map(|which| Op::CommitAgain { which }),
        3 => (vec(0..IDS, 1..4), 0..5u8, -3..4i8).prop_map(|(ids, act, amount)| Op::Act { ids, act, amount }),
        2 => (1..6u8).prop_map(|limit| Op::Due { limit }),
        4 => (0..4u8).prop_map(|limit| Op::Poll { limit }),
        4 => (0..7u16).prop_map(|seconds| Op::Pass { seconds }),
        6 => op(),
    ]
}

/// Sequences of up to `most` ops in which branches grow.
pub fn growing(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let first = vec(ready(), 3..5).prop_map(|jobs| Op::Submit { jobs, born: None });
    (first, vec(lively(), 1..most)).prop_map(|(first, mut ops)| {
        ops.insert(0, first);
        ops
    })
}

/// Sequences of up to `most` ops, after three workers were taken on.
pub fn sequence(most: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..=most)
}
