//! How proptest draws random sequences.

use proptest::{collection::vec, option, prelude::*};

use super::ops::{BranchDraft, ChangeDraft, IDS, JobDraft, Op, StepDraft, WorkflowDraft};

/// How many of the ids are used by most ops, so that these concern the same jobs.
const FEW: u8 = 14;

fn job_draft() -> impl Strategy<Value = JobDraft> {
    let delay = prop_oneof![3 => Just(0u8), 1 => 1..40u8];
    let deadline = option::weighted(0.3, 0..60u8);
    let key = option::weighted(0.3, 0..3u8);
    let priority = prop_oneof![3 => Just(0i8), 1 => -3..4i8];
    let flow_control = (
        option::weighted(0.4, 0..3u8),
        option::weighted(0.3, (0..2u8, 0..4u8, 0..4u8)),
        option::weighted(0.2, 1..4u8),
        option::weighted(0.1, 0..FEW),
    );
    let branch = option::weighted(0.6, (0..2u8, prop_oneof![2 => Just(1u8), 1 => 2..6u8]));
    let machine = (option::weighted(0.3, 0..2u8), vec((0..3u8, 0..3u8), 0..3), branch);
    let plain = (0..FEW, 0..2u8, 0..2u8, 0..4u8, key, priority, delay, deadline);
    (plain, flow_control, machine).prop_map(
        |(
            (id, input, queue, kind, key, priority, delay, deadline),
            (serial, unique, weight, parent),
            (stage, signals, branch),
        )| JobDraft {
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
            // Most jobs have none, so that the insert without signals is tested more often.
            signals: if id % 4 == 0 { signals } else { Vec::new() },
            branch,
        },
    )
}

fn change_draft() -> impl Strategy<Value = ChangeDraft> {
    let pick = prop_oneof![4 => 0..4u8, 1 => 0..60u8];
    let after = prop_oneof![Just(0u8), 1..30u8];
    let rev = prop_oneof![12 => Just(0i8), 1 => Just(-1i8), 1 => Just(1i8)];
    let outcome = prop_oneof![8 => 0..8u8, 9 => 8..15u8];
    let lost_claim = prop::bool::weighted(0.05);
    (pick, outcome, after, rev, lost_claim, 0..16u8, option::weighted(0.7, step_draft())).prop_map(
        |(pick, outcome, after, rev, lost_claim, names, step)| ChangeDraft {
            pick,
            outcome,
            after,
            rev,
            lost_claim,
            names,
            step,
        },
    )
}

fn step_draft() -> impl Strategy<Value = StepDraft> {
    let data = prop_oneof![1 => Just(0u8), 24 => 1..4u8];
    let children = prop_oneof![4 => Just(Vec::new()), 1 => vec(job_draft(), 1..4)];
    let stage = option::weighted(0.8, (0..2u8, data));
    let flags =
        (any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.8), prop::bool::weighted(0.2));
    let promoted = prop_oneof![4 => Just(Vec::new()), 1 => vec(job_draft(), 1..3)];
    let branches = (vec(branch_draft(), 0..3), 0..3u8, promoted, prop::bool::weighted(0.04));
    (flags, stage, children, option::weighted(0.6, workflow_draft()), branches).prop_map(
        |(
            (from_stage, unchanged, consumes, unreadable),
            stage,
            children,
            workflow,
            (branches, items, promoted, unchecked),
        )| StepDraft {
            from_stage,
            stage,
            unchanged,
            consumes,
            unreadable,
            children,
            workflow,
            branches,
            items,
            promoted,
            unchecked,
        },
    )
}

fn branch_draft() -> impl Strategy<Value = BranchDraft> {
    let (cursor, watch) = (option::weighted(0.3, 0..9u8), option::weighted(0.5, (0..3u8, 0..5u8)));
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (0..2u8, cursor, watch, flags).prop_map(|(number, cursor, watch, (seal, merged, cancel_children))| {
        BranchDraft { number, cursor, watch, seal, merged, cancel_children }
    })
}

fn workflow_draft() -> impl Strategy<Value = WorkflowDraft> {
    let forget_entry = option::weighted(0.2, 0..3u8);
    let context = option::weighted(0.3, (0..3u8, 0..9u8));
    let unwind = option::weighted(0.05, any::<bool>());
    let (continue_as_new, has_undo) = (prop::bool::weighted(0.1), prop::bool::weighted(0.4));
    (0..3u8, forget_entry, context, continue_as_new, has_undo, unwind, any::<bool>()).prop_map(
        |(entries, forget_entry, context, continue_as_new, has_undo, unwind, signal_child_ends)| {
            WorkflowDraft {
                entries,
                forget_entry,
                context,
                continue_as_new,
                has_undo,
                unwind,
                signal_child_ends,
            }
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let worker = || 0..3u8;
    let earlier = || option::weighted(0.2, 0..4u8);
    let only = || option::weighted(0.2, 0..FEW);
    prop_oneof![
        6 => (vec(job_draft(), 1..5), option::weighted(0.25, worker())).prop_map(|(jobs, claimed_by)| Op::Submit { jobs, claimed_by }),
        1 => (0..4u8).prop_map(|which| Op::RepeatSubmit { which }),
        8 => (worker(), 0..2u8, 1..16u8, 0..5u8, prop::bool::weighted(0.3), only(), earlier()).prop_map(
            |(worker, queue, kinds, limit, solo, only, settled)| Op::Claim {
                worker, queue, kinds, limit, solo, only, settled,
            }
        ),
        2 => (0..4u8).prop_map(|which| Op::RepeatClaim { which }),
        7 => vec(change_draft(), 1..5).prop_map(|changes| Op::Commit { changes }),
        2 => (0..4u8).prop_map(|which| Op::RepeatCommit { which }),
        2 => (worker(), 1..80u8, earlier(), earlier())
            .prop_map(|(worker, lease, settled, solo_ended)| Op::Renew { worker, lease, settled, solo_ended }),
        3 => (option::of(worker()), any::<bool>(), 0..4u8, 0..3u8)
            .prop_map(|(dead, lapsed, limit, crashes)| Op::Reap { dead, lapsed, limit, crashes }),
        2 => vec(0..8u8, 1..4).prop_map(|picks| Op::Release { picks }),
        1 => worker().prop_map(|worker| Op::Retire { worker }),
        3 => (worker(), prop::bool::weighted(0.2)).prop_map(|(worker, again)| Op::Register { worker, again }),
        3 => (0..6u8).prop_map(|limit| Op::FireTimers { limit }),
        4 => (vec(0..FEW, 1..4), 0..5u8, -3..4i8).prop_map(|(ids, action, amount)| Op::Act { ids, action, amount }),
        2 => (0..6u8, 0..5u8).prop_map(|(action, amount)| Op::Administer { action, amount }),
        1 => (0..3u8, 0..60u8).prop_map(|(state, age)| Op::Prune { state, age }),
        4 => vec((0..FEW, 0..3u8, 0..6u8), 1..4).prop_map(|signals| Op::Signal { signals }),
        1 => (0..FEW, 1..4u8, 0..2u8, prop::bool::weighted(0.2))
            .prop_map(|(id, version, stage, outdated)| Op::UpdateStage { id, version, stage, outdated }),
        1 => (0..FEW, 0..FEW, 0..6u8, option::weighted(0.3, 0..3u8))
            .prop_map(|(from, id, before, key)| Op::Fork { from, id, before, key }),
        2 => (0..4u8).prop_map(|limit| Op::Poll { limit }),
        4 => prop_oneof![0..10u16, 10..90u16].prop_map(|seconds| Op::AdvanceClock { seconds }),
    ]
}

/// A job that is soon claimed: of one kind in one queue, with few holds.
fn ready_job() -> impl Strategy<Value = JobDraft> {
    (job_draft(), 0..IDS).prop_map(|(draft, id)| JobDraft {
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

/// A change of a job that was claimed recently, with children in branches.
fn branch_change() -> impl Strategy<Value = ChangeDraft> {
    let children = prop_oneof![1 => Just(Vec::new()), 1 => vec(ready_job(), 1..6)];
    let promoted = prop_oneof![2 => Just(Vec::new()), 1 => vec(ready_job(), 1..3)];
    let names = prop_oneof![1 => 0..16u8, 1 => Just(4u8), 1 => Just(12u8)];
    (change_draft(), 0..6u8, names, children, promoted).prop_map(
        |(change, pick, names, children, promoted)| {
            let step = change.step.map(|step| StepDraft { children, promoted, ..step });
            ChangeDraft { pick, rev: 0, names, step, ..change }
        },
    )
}

/// Ops with many claims and commits of ready jobs, and polls of branches.
fn branch_op() -> impl Strategy<Value = Op> {
    let claim = |(worker, limit, solo)| Op::Claim {
        worker,
        queue: 0,
        kinds: 15,
        limit,
        solo,
        only: None,
        settled: None,
    };
    prop_oneof![
        2 => vec(ready_job(), 1..4).prop_map(|jobs| Op::Submit { jobs, claimed_by: None }),
        6 => (0..2u8, 1..6u8, prop::bool::weighted(0.1)).prop_map(claim),
        10 => vec(branch_change(), 1..5).prop_map(|changes| Op::Commit { changes }),
        1 => (0..4u8).prop_map(|which| Op::RepeatCommit { which }),
        3 => (vec(0..IDS, 1..4), 0..5u8, -3..4i8).prop_map(|(ids, action, amount)| Op::Act { ids, action, amount }),
        2 => (1..6u8).prop_map(|limit| Op::FireTimers { limit }),
        4 => (0..4u8).prop_map(|limit| Op::Poll { limit }),
        4 => (0..7u16).prop_map(|seconds| Op::AdvanceClock { seconds }),
        6 => op(),
    ]
}

/// Sequences of fewer than `most` ops after a submit, most of them about branches.
pub(super) fn branch_sequence(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let first = vec(ready_job(), 3..5).prop_map(|jobs| Op::Submit { jobs, claimed_by: None });
    (first, vec(branch_op(), 1..most)).prop_map(|(first, mut ops)| {
        ops.insert(0, first);
        ops
    })
}

/// Sequences of up to `most` ops.
pub(super) fn sequence(most: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..=most)
}
