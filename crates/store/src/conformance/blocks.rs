//! Blocks: one job holds many items of a branch and reports them done in parts.

use windlass_model::{
    BranchMember, BranchPosition, ClaimedJob, CommitOutcome, Epoch, FirstAttempt, NewJob, Outcome, Reason,
    Rev, State, StepWrites, WorkerId,
    branch::{BRANCH_SIGNAL, BranchNo},
};

use super::{branch_kit::*, kit::*};
use crate::{ChildStates, ControlOutcome, JobAction};

/// A step of a block that reports items done and promotes others.
fn block_writes(items: u32, promoted: Vec<NewJob>) -> StepWrites {
    StepWrites { items, promoted, ..StepWrites::default() }
}

/// A claimed block as its worker knows it after a step that reported or promoted this many items.
fn after_items(job: &ClaimedJob, items: u32) -> ClaimedJob {
    let member = job.branch_member.map(|member| BranchMember { items: member.items - items, ..member });
    ClaimedJob { branch_member: member, ..after_step(job) }
}

/// Job 1 with a block of ten items in its branch: job 2, which is claimed.
async fn claimed_block(store: &Handle) -> (WorkerId, ClaimedJob) {
    let (me, _) = parent_with_children(store, vec![block(2, 10)]).await;
    let taken = claim_one(store, 2, me, 2).await;
    assert_eq!(taken.branch_member, Some(BranchMember { parent: id(1), branch: BRANCH, items: 10 }));
    (me, taken)
}

/// How many items job 2 has, and how many of them are done.
async fn block_items(store: &Handle) -> (u32, u32) {
    let all = list_children(store, ChildStates::All).await;
    let block = all.into_iter().find(|child| child.summary.id == id(2)).expect("the block exists");
    (block.branch_position.items, block.items_done)
}

pub async fn a_block_reports_its_items_done_in_parts(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    assert_eq!((branch(&store, 1, BRANCH).await.spawned, counts(&store).await), (10, [0; 4]));
    apply(&store, 3, with_step(change(me, &job, Outcome::Next), block_writes(3, vec![]))).await;
    assert_eq!((counts(&store).await, block_items(&store).await), ([10, 3, 0, 0], (10, 3)));
    let job = after_items(&job, 3);
    let step = with_step(change(me, &job, Outcome::Next), block_writes(2, vec![]));
    for _ in 0..2 {
        assert_eq!(commit(&store, 4, step.clone()).await, CommitOutcome::Committed);
    }
    assert_eq!((counts(&store).await, block_items(&store).await), ([10, 5, 0, 0], (10, 5)));
    apply(&store, 5, change(me, &after_items(&job, 2), done("x"))).await;
    assert_eq!((counts(&store).await, block_items(&store).await), ([10, 10, 0, 0], (10, 5)));
}

pub async fn the_next_claim_of_a_block_has_the_number_of_items_left(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    let step = with_step(change(me, &job, retry(secs(0), &[1])), block_writes(4, vec![]));
    apply(&store, 3, step).await;
    let job = claim_one(&store, 4, me, 3).await;
    assert_eq!(job.branch_member.map(|member| member.items), Some(6));
    apply(&store, 5, with_step(change(me, &job, done("x")), block_writes(6, vec![]))).await;
    assert_eq!((counts(&store).await, block_items(&store).await), ([10, 10, 0, 0], (10, 10)));
}

pub async fn promoted_items_stay_in_the_branch(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    let step = block_writes(1, vec![branch_child(20, BRANCH), block(21, 2)]);
    let step = with_step(change(me, &job, Outcome::Next), step);
    for _ in 0..2 {
        assert_eq!(commit(&store, 3, step.clone()).await, CommitOutcome::Committed);
    }
    let seen = branch(&store, 1, BRANCH).await;
    assert_eq!(
        (seen.spawned, counts(&store).await),
        (10, [7, 1, 0, 0]),
        "three items start again in jobs of their own"
    );
    assert_eq!(block_items(&store).await, (7, 1));
    let promoted = claim_all(&store, 4, me, 3).await;
    assert_eq!(ids(&promoted), [20, 21].map(id));
    assert_eq!(promoted[0].branch_member, Some(BranchMember { parent: id(1), branch: BRANCH, items: 1 }));
    assert_eq!(
        view(&store, id(20)).await.parent,
        Some(id(1)),
        "promoted items have the same parent as the block"
    );
    apply(&store, 5, change(me, &promoted[0], failed(Reason::Stopped))).await;
    apply(&store, 5, change(me, &promoted[1], done("x"))).await;
    assert_eq!(counts(&store).await, [10, 3, 1, 0]);
    apply(&store, 6, change(me, &after_items(&job, 4), done("x"))).await;
    assert_eq!(counts(&store).await, [10, 9, 1, 0]);
    let all: Vec<BranchPosition> = list_children(&store, ChildStates::All)
        .await
        .into_iter()
        .map(|child| child.branch_position)
        .collect();
    assert_eq!(all.iter().map(|position| position.items).sum::<u32>(), 10);
}

pub async fn items_may_be_promoted_in_a_sealed_branch(store: Handle) {
    let parent = parent_with_children(&store, vec![block(2, 10)]).await;
    let me = parent.0;
    update_branches(
        &store,
        2,
        &parent,
        vec![windlass_model::BranchUpdate { seal: true, ..windlass_model::BranchUpdate::new(BRANCH) }],
        vec![],
    )
    .await;
    let job = claim_one(&store, 2, me, 2).await;
    let step = block_writes(9, vec![branch_child(20, BRANCH)]);
    assert_eq!(
        commit(&store, 3, with_step(change(me, &job, done("x")), step)).await,
        CommitOutcome::Committed
    );
    assert_eq!(counts(&store).await, [9, 9, 0, 0], "the end of the block counts no further items");
    let child = claim_one(&store, 4, me, 3).await;
    apply(&store, 4, change(me, &child, done("x"))).await;
    assert_eq!(counts(&store).await, [10, 10, 0, 0]);
}

pub async fn a_failed_block_counts_its_remaining_items_as_failed(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    let step = block_writes(4, vec![branch_child(20, BRANCH)]);
    apply(&store, 3, with_step(change(me, &job, failed(Reason::Stopped)), step)).await;
    assert_eq!((counts(&store).await, block_items(&store).await), ([9, 4, 5, 0], (9, 4)));
    assert_eq!(act_on_job(&store, 4, 2, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [9, 4, 0, 0]);
    let taken = claim_all(&store, 4, me, 3).await;
    assert_eq!(ids(&taken), [20, 2].map(id));
    assert_eq!(taken[1].branch_member.map(|member| member.items), Some(5));
    apply(&store, 5, with_step(change(me, &taken[1], done("x")), block_writes(5, vec![]))).await;
    assert_eq!((counts(&store).await, block_items(&store).await), ([9, 9, 0, 0], (9, 9)));
    apply(&store, 5, change(me, &taken[0], cancelled())).await;
    assert_eq!(counts(&store).await, [10, 9, 0, 1]);
}

pub async fn a_cancelled_block_counts_its_remaining_items_as_cancelled(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    apply(&store, 3, with_step(change(me, &job, retry(secs(50), &[1])), block_writes(4, vec![]))).await;
    assert_eq!(act_on_job(&store, 4, 2, cancel(0)).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [10, 4, 0, 6]);
    assert_eq!(act_on_job(&store, 5, 2, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [10, 4, 0, 0]);
}

pub async fn a_block_that_never_ran_counts_all_its_items(store: Handle) {
    parent_with_children(&store, vec![block(2, 10)]).await;
    assert_eq!(act_on_job(&store, 2, 2, cancel(0)).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [10, 0, 0, 10]);
    assert_eq!(act_on_job(&store, 3, 2, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [0, 0, 0, 0]);
}

pub async fn items_of_a_block_meet_a_watch(store: Handle) {
    let parent = parent_with_children(&store, vec![block(2, 10)]).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_done(4)).await;
    let job = claim_one(&store, 2, me, 2).await;
    apply(&store, 3, with_step(change(me, &job, Outcome::Next), block_writes(3, vec![]))).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    apply(&store, 4, with_step(change(me, &after_items(&job, 3), Outcome::Next), block_writes(1, vec![])))
        .await;
    let parent = claim_one(&store, 5, me, 3).await;
    assert_eq!((parent.id, parent.inbox[0].name.as_str(), parent.rev), (id(1), BRANCH_SIGNAL, Rev(2)));
}

pub async fn a_fenced_block_counts_nothing(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    store.release(at(3), &[job_claim(me, &job)]).await.expect("release");
    let late = with_step(change(me, &job, Outcome::Next), block_writes(4, vec![branch_child(20, BRANCH)]));
    assert_eq!(commit(&store, 4, late).await, CommitOutcome::Fenced);
    assert_eq!((counts(&store).await, block_items(&store).await), ([0; 4], (10, 0)));
    assert_eq!(store.inspect().job(id(20)).await.expect("job"), None);
}

pub async fn invalid_items_of_a_block_are_refused(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    let refused = async |job: &ClaimedJob, step: StepWrites| {
        refusal(commit(&store, 3, with_step(change(me, job, Outcome::Next), step)).await)
    };
    assert!(refused(&job, block_writes(11, vec![])).await.contains("more than the 10 left"));
    let why = refused(&job, block_writes(9, vec![block(20, 2)])).await;
    assert!(why.contains("more than the 10 left"), "{why}");
    for stray in [self::job(20), branch_child(20, BranchNo(8))] {
        let why = refused(&job, block_writes(1, vec![stray])).await;
        assert!(why.contains("not in the branch of its block"), "{why}");
    }
    let mut named = branch_child(20, BRANCH);
    named.settings.unique = Some(Box::new(windlass_model::Unique::new("name")));
    assert!(refused(&job, block_writes(1, vec![named])).await.contains("unique name of a promoted item"));
    apply(&store, 4, with_step(change(me, &job, Outcome::Next), block_writes(4, vec![]))).await;
    // A change that reports items again.
    let why = refused(&after_step(&job), block_writes(7, vec![])).await;
    assert!(why.contains("6 are left"), "{why}");
    assert_eq!((counts(&store).await, block_items(&store).await), ([10, 4, 0, 0], (10, 4)));
}

/// A step that promotes items as jobs numbered from 20, with the outcomes of their first attempts in the block.
fn promoted_after(items: u32, outcomes: Vec<Outcome>) -> StepWrites {
    let ids = || (20..).take(outcomes.len());
    let promoted = ids().map(|n| branch_child(n, BRANCH)).collect();
    let attempts = ids().zip(&outcomes);
    let attempts =
        attempts.map(|(n, outcome)| FirstAttempt { job: id(n), started_at: t(2), outcome: outcome.clone() });
    StepWrites { first_attempts: attempts.collect(), ..block_writes(items, promoted) }
}

pub async fn a_promoted_item_keeps_the_attempt_that_failed_in_its_block(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    let outcomes = vec![retry(secs(5), &[1]), failed(Reason::Stopped), cancelled(), retry(secs(0), &[1])];
    let step = with_step(change(me, &job, Outcome::Next), promoted_after(4, outcomes));
    for _ in 0..2 {
        // The second commit repeats the first, whose reply was lost.
        assert_eq!(commit(&store, 3, step.clone()).await, CommitOutcome::Committed);
    }
    let spawned_and_counts = (branch(&store, 1, BRANCH).await.spawned, counts(&store).await);
    assert_eq!(spawned_and_counts, (10, [10, 4, 1, 1]), "all items have started");
    assert_eq!(block_items(&store).await, (6, 4));
    let states = [State::Scheduled, State::Failed, State::Cancelled, State::Ready];
    for ((n, state), (text, attempts)) in (20..).zip(states).zip([
        ("once more", 1),
        ("because stopped", 1),
        ("no longer wanted", 0),
        ("once more", 1),
    ]) {
        let seen = view(&store, id(n)).await;
        assert_eq!((seen.summary.state, seen.summary.attempts), (state, attempts), "{n}");
        let [attempt] = &history(&store, id(n)).await[..] else { panic!("one attempt of {n}") };
        assert_eq!((attempt.epoch, attempt.worker), (Epoch(0), me));
        assert_eq!((attempt.started_at, attempt.ended_at), (t(2), t(3)));
        assert_eq!(attempt.failure.message, text, "{n}");
    }
    // Attempts in the block count against the retries of the promoted jobs.
    assert_eq!(fire_timers(&store, 8, 9).await.woken, 1);
    let again = claim_all(&store, 8, me, 3).await;
    assert_eq!(ids(&again), [23, 20].map(id));
    for child in &again {
        assert_eq!((child.attempts, child.retry_counts.as_slice(), child.rev), (1, &[1][..], Rev(1)));
        apply(&store, 9, change(me, child, done("x"))).await;
    }
    assert_eq!(counts(&store).await, [10, 6, 1, 1]);
    // A promoted job that failed can be retried by hand.
    assert_eq!(act_on_job(&store, 10, 21, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [10, 6, 0, 1]);
    let child = claim_one(&store, 10, me, 4).await;
    assert_eq!(child.id, id(21));
    apply(&store, 11, change(me, &child, done("x"))).await;
    apply(&store, 12, change(me, &after_items(&job, 8), done("x"))).await;
    assert_eq!(counts(&store).await, [10, 9, 0, 1]);
    assert_eq!(store.repair(at(13)).await.expect("repair"), 0);
}

pub async fn an_item_that_failed_in_its_block_meets_a_watch(store: Handle) {
    let parent = parent_with_children(&store, vec![block(2, 10)]).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_unsuccessful(1)).await;
    let job = claim_one(&store, 2, me, 2).await;
    let step = promoted_after(0, vec![failed(Reason::Stopped)]);
    apply(&store, 3, with_step(change(me, &job, Outcome::Next), step)).await;
    assert_eq!(claim_one(&store, 4, me, 3).await.id, id(1));
}

pub async fn a_fenced_block_records_no_attempts(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    store.release(at(3), &[job_claim(me, &job)]).await.expect("release");
    let late = with_step(change(me, &job, Outcome::Next), promoted_after(4, vec![failed(Reason::Stopped)]));
    assert_eq!(commit(&store, 4, late).await, CommitOutcome::Fenced);
    assert_eq!((counts(&store).await, block_items(&store).await), ([0; 4], (10, 0)));
    assert!(history(&store, id(20)).await.is_empty());
}

pub async fn an_invalid_first_attempt_is_refused(store: Handle) {
    let (me, job) = claimed_block(&store).await;
    let refused = async |step: StepWrites| {
        refusal(commit(&store, 3, with_step(change(me, &job, Outcome::Next), step)).await)
    };
    assert!(refused(promoted_after(0, vec![done("x")])).await.contains("did not fail"));
    let mut stray = promoted_after(0, vec![failed(Reason::Stopped)]);
    stray.promoted.clear();
    assert!(refused(stray).await.contains("belongs to no job that was promoted for one item"));
    let mut many = promoted_after(0, vec![failed(Reason::Stopped)]);
    many.promoted = vec![NewJob { id: id(20), ..block(20, 3) }];
    assert!(refused(many).await.contains("belongs to no job that was promoted for one item"));
    let mut twice = promoted_after(0, vec![failed(Reason::Stopped)]);
    twice.first_attempts.push(twice.first_attempts[0].clone());
    assert!(refused(twice).await.contains("is given twice"));
    assert_eq!(counts(&store).await, [0; 4]);
}
