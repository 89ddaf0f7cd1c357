//! Polls of branches: what they record, how often they happen, and whose children they have cancelled.

use std::time::Duration;

use windlass_model::{
    BranchNo, BranchUpdate, BranchWatch, Epoch, Outcome, Reason, State, branch::PollInterval,
    poll::BranchPoll,
};

use super::{branch_kit::*, kit::*};
use crate::{CANCEL_AGAIN, ControlOutcome, JobAction, PollReport, TIMER_GATE};

/// The report of a poll that found nothing to do.
fn report(now: u64, polled: usize, next: Option<u64>) -> PollReport {
    PollReport { polled, next_at: next.map(t), now: t(now), ..PollReport::default() }
}

/// What the last poll of job 1's branch recorded.
async fn last_poll(store: &Handle) -> BranchPoll {
    branch(store, 1, BRANCH).await.poll
}

/// The report of a poll after which the children of these branches of job 1 are to be cancelled; the branches are polled again after
/// [`CANCEL_AGAIN`].
fn cancels(now: u64, branches: &[BranchNo]) -> PollReport {
    let to_cancel = branches.iter().map(|number| (id(1), *number)).collect::<Vec<_>>();
    let next_at = t(now) + CANCEL_AGAIN;
    PollReport {
        polled: to_cancel.len(),
        to_cancel,
        next_at: Some(next_at),
        now: t(now),
        ..PollReport::default()
    }
}

pub async fn the_poll_interval_follows_the_progress_of_a_branch(store: Handle) {
    let parent = parent_with_children(&store, children(2, 100)).await;
    let me = parent.0;
    assert_eq!(poll_branches(&store, 2).await, report(2, 0, None), "the branch has no watch");
    let poll_interval = PollInterval { min: secs(5), max: secs(60) };
    wait_for_watch(&store, 10, &parent, BranchWatch { poll_interval, ..watch_ended(100) }).await;
    assert_eq!(last_poll(&store).await.next_at, Some(t(15)));
    assert_eq!(poll_branches(&store, 14).await, report(14, 0, Some(15)));
    assert_eq!(poll_branches(&store, 15).await, report(15, 1, Some(20)));
    let first = last_poll(&store).await;
    assert_eq!((first.at, first.next_at, first.interval, first.polls), (Some(t(15)), Some(t(20)), 5.0, 1));
    assert_eq!((first.ended, first.pending, first.never_started), (0, 100, 100));
    assert_eq!(
        poll_branches(&store, 15).await,
        report(15, 0, Some(20)),
        "a branch is polled once per interval"
    );
    // Nothing starts: the interval grows.
    assert_eq!(poll_branches(&store, 20).await, report(20, 1, Some(30)));
    assert_eq!(poll_branches(&store, 30).await, report(30, 1, Some(50)));
    // Twenty children run.
    let taken = claim(&store, at(40), &claim_request(me, 2, 20)).await;
    assert_eq!(poll_branches(&store, 50).await, report(50, 1, Some(55)));
    assert_eq!(last_poll(&store).await.never_started, 80);
    // Ten of them have committed steps, and four have ended within five seconds.
    for child in &taken[..10] {
        apply(&store, 52, change(me, child, Outcome::Next)).await;
    }
    for child in &taken[..4] {
        apply(&store, 53, change(me, &after_step(child), done("x"))).await;
    }
    assert_eq!(poll_branches(&store, 55).await, report(55, 1, Some(115)));
    let last = last_poll(&store).await;
    assert_eq!((last.ended, last.pending, last.never_started), (4, 96, 80));
    assert_eq!((last.rate, last.eta, last.interval, last.polls), (0.8, Some(120.0), 60.0, 5));
    assert_eq!((last.redelivered, last.redelivered_at), (0, None));
}

pub async fn a_poll_takes_no_more_branches_than_its_limit(store: Handle) {
    let mut parent = running_job(&store, 1).await;
    for number in 0..5 {
        let poll_interval = PollInterval { min: Duration::from_secs(10 - number), max: secs(60) };
        let open = BranchUpdate {
            watch: Some(BranchWatch { poll_interval, ..watch_ended(1) }),
            ..open_branch(BranchNo(number as i64), "some")
        };
        parent = update_branches(&store, 1, &parent, vec![open], vec![]).await;
    }
    let first = store.poll_branches(at(20), 2).await.expect("poll");
    assert_eq!((first.polled, first.next_at), (2, Some(t(9))), "the two that are due first; more are due");
    let polls = async || {
        let all = store.inspect().branches(id(1)).await.expect("branches");
        all.iter().map(|branch| branch.poll.polls).collect::<Vec<u32>>()
    };
    assert_eq!(polls().await, [0, 0, 0, 1, 1]);
    assert_eq!(store.poll_branches(at(20), 9).await.expect("poll").polled, 3);
    assert_eq!(polls().await, [1; 5]);
}

pub async fn a_poll_redelivers_no_healthy_child(store: Handle) {
    let mut all = children(2, 6);
    all[5].when = windlass_model::When::After(secs(500));
    all[4].settings.serial = Some(Box::new(windlass_model::Serial::new("key")));
    let parent = parent_with_children(&store, all).await;
    let me = parent.0;
    submit(&store, &[serial_job(50, "key")]).await;
    wait_for_watch(&store, 2, &parent, watch_ended(6)).await;
    let taken = claim(&store, at(3), &claim_request(me, 2, 3)).await;
    apply(&store, 4, change(me, &taken[1], wait_for_signal("go", None))).await;
    must_act(&store, 4, 5, JobAction::Pause).await;
    apply(&store, 4, change(me, &taken[2], failed(Reason::Stopped))).await;
    for now in [10, 40, 80, 160, 320] {
        let polled = poll_branches(&store, now).await;
        assert_eq!((polled.polled, polled.redelivered, polled.corrected, polled.notified), (1, 0, 0, 0));
    }
    for n in [2, 3, 5, 6, 7] {
        let epoch = view(&store, id(n)).await.epoch;
        assert_eq!(epoch, Epoch(i32::from(n == 3)), "job {n} is not redelivered");
    }
}

pub async fn a_branch_is_polled_until_its_watch_is_met(store: Handle) {
    let parent = parent_with_children(&store, children(2, 2)).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_ended(1)).await;
    assert_eq!(poll_branches(&store, 10).await.polled, 1);
    let child = claim_one(&store, 11, me, 2).await;
    apply(&store, 12, change(me, &child, done("x"))).await;
    assert_eq!(poll_branches(&store, 500).await, report(500, 0, None));
    assert_eq!(last_poll(&store).await.polls, 1, "the last poll is kept");
}

pub async fn a_merged_branch_is_not_polled(store: Handle) {
    let parent = parent_with_children(&store, children(2, 2)).await;
    let parent = update_branches(&store, 2, &parent, vec![watch_branch(watch_ended(2))], vec![]).await;
    let merge = BranchUpdate { merged: true, ..BranchUpdate::new(BRANCH) };
    update_branches(&store, 3, &parent, vec![merge], vec![]).await;
    let seen = branch(&store, 1, BRANCH).await;
    assert_eq!((seen.merged, seen.merged_at, seen.watch), (true, Some(t(3)), None));
    assert_eq!(poll_branches(&store, 500).await, report(500, 0, None));
}

pub async fn the_children_of_a_cancelled_parent_are_to_be_cancelled(store: Handle) {
    let parent = parent_with_children(&store, children(2, 3)).await;
    let me = parent.0;
    let merged = BranchUpdate { merged: true, ..open_branch(BranchNo(8), "merged") };
    let parent = update_branches(&store, 2, &parent, vec![merged], vec![branch_child(10, BranchNo(8))]).await;
    let parent = update_branches(&store, 2, &parent, vec![open_branch(BranchNo(9), "empty")], vec![]).await;
    wait_for_watch(&store, 3, &parent, watch_ended(3)).await;
    let before = gates(&store, &[TIMER_GATE]).await;
    assert_eq!(act_on_job(&store, 4, 1, cancel(0)).await, ControlOutcome::Done);
    assert_ne!(gates(&store, &[TIMER_GATE]).await, before);
    let seen = branch(&store, 1, BRANCH).await;
    assert_eq!((seen.cancels_children, seen.watch, seen.poll.next_at), (true, None, Some(t(4))));
    assert!(!branch(&store, 1, BranchNo(8)).await.cancels_children, "the branch was merged");
    let polled = poll_branches(&store, 5).await;
    assert_eq!(
        polled,
        PollReport { polled: 2, ..cancels(5, &[BRANCH]) },
        "the empty branch has no children to cancel"
    );
    assert!(!branch(&store, 1, BranchNo(9)).await.cancels_children);
    assert_eq!(poll_branches(&store, 19).await.polled, 0);
    assert_eq!(act_on_job(&store, 19, 2, cancel(0)).await, ControlOutcome::Done);
    assert_eq!(poll_branches(&store, 20).await, cancels(20, &[BRANCH]), "again, while children are live");
    assert_eq!(act_on_job(&store, 21, 3, cancel(0)).await, ControlOutcome::Done);
    let last = claim(&store, at(22), &claim_request(me, 3, 1)).await.remove(0);
    apply(&store, 23, change(me, &last, done("x"))).await;
    assert_eq!(poll_branches(&store, 35).await, report(35, 1, None), "all children have ended");
    let seen = branch(&store, 1, BRANCH).await;
    assert_eq!((seen.cancels_children, seen.counts.ends()), (false, (1, 0, 2)));
    assert_eq!(poll_branches(&store, 500).await, report(500, 0, None));
    assert_eq!(
        state(&store, id(10)).await,
        State::Ready,
        "the children of the merged branch are not cancelled"
    );
}

pub async fn the_children_of_an_expired_parent_are_to_be_cancelled(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[windlass_model::NewJob { deadline_at: Some(t(50)), ..job(1) }]).await;
    let job = claim_one(&store, 0, me, 1).await;
    let step = branch_writes(vec![open_branch(BRANCH, "all")], children(2, 3));
    apply(&store, 1, with_step(change(me, &job, Outcome::Next), step)).await;
    assert_eq!(fire_timers(&store, 50, 9).await.expired, 1);
    assert_eq!(poll_branches(&store, 51).await, cancels(51, &[BRANCH]));
}

pub async fn a_parent_that_ends_itself_cancels_its_children_only_if_it_is_cancelled(store: Handle) {
    for (n, outcome, cancels_children) in
        [(1, done("x"), false), (20, failed(Reason::Stopped), false), (40, cancelled(), true)]
    {
        let (me, job) = running_job(&store, n).await;
        let step = branch_writes(vec![open_branch(BRANCH, "all")], children(n + 1, 3));
        apply(&store, 1, with_step(change(me, &job, Outcome::Next), step)).await;
        apply(&store, 2, change(me, &after_step(&job), outcome)).await;
        let polled = poll_branches(&store, 3).await;
        assert_eq!(
            (polled.polled, polled.to_cancel.len()),
            (usize::from(cancels_children), usize::from(cancels_children)),
            "{n}"
        );
        claim_all(&store, 3, me, 2).await;
    }
}

pub async fn a_step_may_cancel_the_children_of_a_branch(store: Handle) {
    let parent = parent_with_children(&store, children(2, 3)).await;
    let cancel_children = BranchUpdate { cancel_children: true, merged: true, ..BranchUpdate::new(BRANCH) };
    let before = gates(&store, &[TIMER_GATE]).await;
    let (me, job) = update_branches(&store, 2, &parent, vec![cancel_children], vec![]).await;
    assert_ne!(gates(&store, &[TIMER_GATE]).await, before);
    // The end of the parent changes nothing.
    apply(&store, 3, change(me, &job, done("x"))).await;
    assert_eq!(branch(&store, 1, BRANCH).await.poll.next_at, Some(t(2)));
    assert_eq!(poll_branches(&store, 4).await, cancels(4, &[BRANCH]));
    for n in 2..5 {
        must_act(&store, 5, n, cancel(0)).await;
    }
    assert_eq!(poll_branches(&store, 19).await, report(19, 1, None));
}

pub async fn a_branch_whose_children_are_cancelled_may_be_watched(store: Handle) {
    let parent = parent_with_children(&store, children(2, 3)).await;
    let parent = update_branches(
        &store,
        2,
        &parent,
        vec![BranchUpdate { cancel_children: true, ..BranchUpdate::new(BRANCH) }],
        vec![],
    )
    .await;
    wait_for_watch(&store, 3, &parent, watch_ended(3)).await;
    assert_eq!(
        branch(&store, 1, BRANCH).await.poll.next_at,
        Some(t(2)),
        "the watch does not delay the cancellation"
    );
    assert_eq!(poll_branches(&store, 4).await, cancels(4, &[BRANCH]));
    for n in 2..5 {
        must_act(&store, 5, n, cancel(0)).await;
    }
    assert_eq!((state(&store, id(1)).await, inbox(&store, 1).await), (State::Ready, vec!["7".to_owned()]));
    assert_eq!(poll_branches(&store, 19).await, report(19, 1, None));
    assert_eq!(inbox(&store, 1).await, ["7"]);
}

pub async fn a_poll_counts_the_items_of_blocks(store: Handle) {
    let parent = parent_with_children(&store, vec![block(2, 10), block(3, 20), block(4, 30)]).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_ended(60)).await;
    let taken = claim(&store, at(3), &claim_request(me, 2, 2)).await;
    let step = windlass_model::StepWrites { items: 4, ..Default::default() };
    apply(&store, 4, with_step(change(me, &taken[0], Outcome::Next), step)).await;
    assert_eq!(poll_branches(&store, 7).await.polled, 1);
    let poll = last_poll(&store).await;
    assert_eq!((poll.ended, poll.pending, poll.never_started), (4, 56, 30));
}

pub async fn a_branch_of_parked_children_is_polled_rarely(store: Handle) {
    let parent = parent_with_children(&store, children(2, 3)).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_ended(3)).await;
    for child in claim_all(&store, 3, me, 2).await {
        apply(&store, 4, change(me, &child, wait_for_signal("go", None))).await;
    }
    assert_eq!(
        poll_branches(&store, 10).await,
        report(10, 1, Some(15)),
        "the first poll has nothing to compare with"
    );
    assert_eq!(
        poll_branches(&store, 15).await,
        report(15, 1, Some(315)),
        "parked children do not progress by themselves"
    );
    assert_eq!(poll_branches(&store, 315).await, report(315, 1, Some(615)));
}
