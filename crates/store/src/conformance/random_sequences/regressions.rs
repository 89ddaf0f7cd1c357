//! Sequences of calls on which a store once disagreed with the memory store. Every store runs them before the random ones.
//!
//! A run that finds another one prints it as `text` does: paste it below as a sequence of its own, with a name that says
//! what happens in it. Fields that say nothing may be left to `..Default::default()`.

use super::ops::{
    Draft, Edit, Log, Move,
    Op::{self, *},
    Sprout,
};

/// A sequence as source text.
pub(super) fn text(ops: &[Op]) -> String {
    format!("{ops:?}").replace('[', "vec![")
}

/// All of them, by name.
pub(super) fn sequences() -> Vec<(String, Vec<Op>)> {
    let named = |(name, ops): (&str, Vec<Op>)| (name.to_owned(), ops);
    let mut sequences: Vec<(String, Vec<Op>)> = found().into_iter().map(named).collect();
    // Goes on, lets others pass, waits, is tried again at once and later, ends.
    for (outcome, after) in [(8, 0), (11, 0), (13, 9), (5, 0), (5, 5), (0, 0)] {
        for (scope, conflict) in (0..4).flat_map(|scope| [(scope, 2), (scope, 3)]) {
            let name = format!("a child asks for its parent's name: {outcome}, {after}, {scope}, {conflict}");
            sequences.push((name, name_of_parent(outcome, after, scope, conflict)));
        }
    }
    sequences
}

/// Those that random runs have found.
fn found() -> Vec<(&'static str, Vec<Op>)> {
    vec![
        ("a freed slot goes to the first in line once all jobs of the call stand in it", freed_slot()),
        ("an end is counted by what the row says, whatever the change does", counted_end()),
        ("a job replaces the one before it in its batch, which is its parent", parent_replaced()),
        ("a job that wakes and expires in one call moves its gate", woken_and_expired()),
        ("a job hears of its branch and of its child by one call", branch_and_child()),
    ]
}

fn take(limit: u8) -> Op {
    Claim { worker: 0, queue: 0, kinds: 15, limit, alone: false, settle: None }
}

fn freed_slot() -> Vec<Op> {
    let first = vec![
        Draft { id: 5, serial: Some(1), ..Default::default() },
        Draft { id: 0, serial: Some(1), unique: Some((0, 0, 0)), ..Default::default() },
    ];
    let second = vec![
        Draft { id: 1, unique: Some((0, 2, 0)), ..Default::default() },
        Draft { id: 2, serial: Some(1), ..Default::default() },
    ];
    vec![Submit { jobs: first, born: None }, Submit { jobs: second, born: None }]
}

fn counted_end() -> Vec<Op> {
    let jobs = (0..3).map(|id| Draft { id, ..Default::default() }).collect();
    let children = vec![
        Draft { id: 3, twig: Some((0, 1)), ..Default::default() },
        Draft { id: 4, ..Default::default() },
    ];
    let bearing = Some(Move { children, ..Default::default() });
    let accounting = Some(Move { items: 1, ..Default::default() });
    vec![
        Submit { jobs, born: None },
        take(3),
        Commit { changes: vec![Edit { step: bearing, ..Default::default() }] },
        CommitAgain { which: 0 },
        take(2),
        Commit { changes: vec![Edit { pick: 1, outcome: 8, ..Default::default() }] },
        Commit { changes: vec![Edit { pick: 2, outcome: 8, step: accounting, ..Default::default() }] },
        Commit { changes: vec![Edit::default()] },
    ]
}

fn parent_replaced() -> Vec<Op> {
    let jobs = vec![
        Draft { id: 9, kind: 2, unique: Some((0, 0, 0)), ..Default::default() },
        Draft { id: 0, kind: 2, unique: Some((0, 2, 0)), parent: Some(9), ..Default::default() },
    ];
    vec![Submit { jobs, born: None }]
}

fn woken_and_expired() -> Vec<Op> {
    vec![
        Submit {
            jobs: vec![Draft { deadline: Some(26), serial: Some(1), ..Default::default() }],
            born: None,
        },
        take(1),
        Commit { changes: vec![Edit { outcome: 13, after: 1, ..Default::default() }] },
        Pass { seconds: 26 },
        Due { limit: 2 },
    ]
}

fn branch_and_child() -> Vec<Op> {
    let of = |id| Draft { id, ..Default::default() };
    let again = |pick, child, told| {
        let log = Some(Log { told, ..Default::default() });
        let step = Some(Move { children: vec![of(child)], log, ..Default::default() });
        Commit { changes: vec![Edit { pick, outcome: 5, step, ..Default::default() }] }
    };
    let sprout = Sprout { watch: Some((0, 0)), ..Default::default() };
    let opens = Some(Move { sprouts: vec![sprout], ..Default::default() });
    vec![
        Submit { jobs: vec![of(10), of(8), of(6)], born: None },
        take(3),
        again(2, 7, true),
        again(0, 0, false),
        take(1),
        take(3),
        Commit {
            changes: vec![
                Edit { pick: 2, outcome: 8, step: opens, ..Default::default() },
                Edit { pick: 1, ..Default::default() },
            ],
        },
    ]
}

/// A job submits a child under its own unique name, with this scope and this answer to the conflict.
fn name_of_parent(outcome: u8, after: u8, scope: u8, conflict: u8) -> Vec<Op> {
    let of = |id, conflict| Draft {
        id,
        serial: Some(1),
        unique: Some((0, conflict, scope)),
        ..Default::default()
    };
    let step = Some(Move { children: vec![of(1, conflict)], ..Default::default() });
    vec![
        Submit { jobs: vec![of(0, 0)], born: None },
        take(1),
        Commit { changes: vec![Edit { outcome, after, step, ..Default::default() }] },
        Pass { seconds: 20 },
        Due { limit: 9 },
    ]
}
