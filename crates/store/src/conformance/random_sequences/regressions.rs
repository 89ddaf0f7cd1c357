//! Sequences of calls on which a store once disagreed with the memory store. Every store runs them before the random ones.
//!
//! A run that finds another one prints it as Rust source: add it below, with a name that says what happens in it. Fields with
//! default values may be left to `..Default::default()`.

use super::ops::{
    BranchDraft, ChangeDraft, JobDraft,
    Op::{self, *},
    StepDraft, WorkflowDraft,
};

/// A sequence as Rust source.
pub(super) fn source(ops: &[Op]) -> String {
    format!("{ops:?}").replace('[', "vec![")
}

/// All sequences, by name.
pub(super) fn sequences() -> Vec<(String, Vec<Op>)> {
    let named = |(name, ops): (&str, Vec<Op>)| (name.to_owned(), ops);
    let mut sequences: Vec<(String, Vec<Op>)> = found().into_iter().map(named).collect();
    // Next step, yield, wait, retry at once, retry later, done.
    for (outcome, after) in [(8, 0), (11, 0), (13, 9), (5, 0), (5, 5), (0, 0)] {
        for (scope, conflict) in (0..4).flat_map(|scope| [(scope, 2), (scope, 3)]) {
            let name = format!(
                "a child with the unique name of its parent: {outcome}, {after}, {scope}, {conflict}"
            );
            sequences.push((name, unique_name_of_parent(outcome, after, scope, conflict)));
        }
    }
    sequences
}

/// Sequences that random runs have found.
fn found() -> Vec<(&'static str, Vec<Op>)> {
    vec![
        (
            "a freed slot goes to the first in line after all jobs of the call have joined the line",
            freed_slot(),
        ),
        ("an end is counted by what the row says, whatever the change says", counted_end()),
        ("a job replaces its parent, which is submitted by the same call", parent_replaced()),
        ("a job that wakes and expires in one call moves its gate", woken_and_expired()),
        ("one commit sends a job the signals of its branch and of its child", branch_and_child()),
        ("a child stays while its parent goes in the same call", pruned_parent()),
    ]
}

fn claim(limit: u8) -> Op {
    Claim { worker: 0, queue: 0, kinds: 15, limit, solo: false, only: None, settled: None }
}

fn freed_slot() -> Vec<Op> {
    let first = vec![
        JobDraft { id: 5, serial: Some(1), ..Default::default() },
        JobDraft { id: 0, serial: Some(1), unique: Some((0, 0, 0)), ..Default::default() },
    ];
    let second = vec![
        JobDraft { id: 1, unique: Some((0, 2, 0)), ..Default::default() },
        JobDraft { id: 2, serial: Some(1), ..Default::default() },
    ];
    vec![Submit { jobs: first, claimed_by: None }, Submit { jobs: second, claimed_by: None }]
}

fn counted_end() -> Vec<Op> {
    let jobs = (0..3).map(|id| JobDraft { id, ..Default::default() }).collect();
    let children = vec![
        JobDraft { id: 3, branch: Some((0, 1)), ..Default::default() },
        JobDraft { id: 4, ..Default::default() },
    ];
    let spawns = Some(StepDraft { children, ..Default::default() });
    let reports_item = Some(StepDraft { items: 1, ..Default::default() });
    vec![
        Submit { jobs, claimed_by: None },
        claim(3),
        Commit { changes: vec![ChangeDraft { step: spawns, ..Default::default() }] },
        RepeatCommit { which: 0 },
        claim(2),
        Commit { changes: vec![ChangeDraft { pick: 1, outcome: 8, ..Default::default() }] },
        Commit {
            changes: vec![ChangeDraft { pick: 2, outcome: 8, step: reports_item, ..Default::default() }],
        },
        Commit { changes: vec![ChangeDraft::default()] },
    ]
}

fn parent_replaced() -> Vec<Op> {
    let jobs = vec![
        JobDraft { id: 9, kind: 2, unique: Some((0, 0, 0)), ..Default::default() },
        JobDraft { id: 0, kind: 2, unique: Some((0, 2, 0)), parent: Some(9), ..Default::default() },
    ];
    vec![Submit { jobs, claimed_by: None }]
}

fn woken_and_expired() -> Vec<Op> {
    vec![
        Submit {
            jobs: vec![JobDraft { deadline: Some(26), serial: Some(1), ..Default::default() }],
            claimed_by: None,
        },
        claim(1),
        Commit { changes: vec![ChangeDraft { outcome: 13, after: 1, ..Default::default() }] },
        AdvanceClock { seconds: 26 },
        FireTimers { limit: 2 },
    ]
}

fn branch_and_child() -> Vec<Op> {
    let job = |id| JobDraft { id, ..Default::default() };
    let retry = |pick, child, signal_child_ends| {
        let workflow = Some(WorkflowDraft { signal_child_ends, ..Default::default() });
        let step = Some(StepDraft { children: vec![job(child)], workflow, ..Default::default() });
        Commit { changes: vec![ChangeDraft { pick, outcome: 5, step, ..Default::default() }] }
    };
    let branch = BranchDraft { watch: Some((0, 0)), ..Default::default() };
    let opens = Some(StepDraft { branches: vec![branch], ..Default::default() });
    vec![
        Submit { jobs: vec![job(10), job(8), job(6)], claimed_by: None },
        claim(3),
        retry(2, 7, true),
        retry(0, 0, false),
        claim(1),
        claim(3),
        Commit {
            changes: vec![
                ChangeDraft { pick: 2, outcome: 8, step: opens, ..Default::default() },
                ChangeDraft { pick: 1, ..Default::default() },
            ],
        },
    ]
}

fn pruned_parent() -> Vec<Op> {
    let child = JobDraft { id: 9, parent: Some(8), ..Default::default() };
    let parent = JobDraft { id: 8, ..Default::default() };
    vec![
        Submit { jobs: vec![child], claimed_by: None },
        Submit { jobs: vec![parent], claimed_by: None },
        Act { ids: vec![9, 8], action: 0, amount: 0 },
        AdvanceClock { seconds: 11 },
        Prune { state: 2, age: 0 },
    ]
}

/// A job spawns a child with its own unique name, this scope, and this resolution of the conflict.
fn unique_name_of_parent(outcome: u8, after: u8, scope: u8, conflict: u8) -> Vec<Op> {
    let named = |id, conflict| JobDraft {
        id,
        serial: Some(1),
        unique: Some((0, conflict, scope)),
        ..Default::default()
    };
    let step = Some(StepDraft { children: vec![named(1, conflict)], ..Default::default() });
    vec![
        Submit { jobs: vec![named(0, 0)], claimed_by: None },
        claim(1),
        Commit { changes: vec![ChangeDraft { outcome, after, step, ..Default::default() }] },
        AdvanceClock { seconds: 20 },
        FireTimers { limit: 9 },
    ]
}
