//! Branches: children are spawned in them and counted, however they end.

use windlass_model::{
    BranchCounts, BranchMember, BranchNo, BranchUpdate, ClaimedJob, CommitOutcome, NewJob, Outcome, Reason,
    StepWrites, SubmitOutcome, Unique, When, branch::MAX_BLOCK_ITEMS,
};

use super::{branch_kit::*, kit::*};
use crate::{ControlOutcome, Error, JobAction, ReapRequest};

pub async fn one_change_opens_a_branch_spawns_its_children_and_seals_it(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let seal = BranchUpdate {
        seal: true,
        cursor: Some(payload("end")),
        merge_record: Some("{\"all\":true}".into()),
        ..open_branch(BRANCH, "all")
    };
    let spawn = with_step(change(me, &job, Outcome::Next), branch_writes(vec![seal], children(2, 1_000)));
    assert_eq!(commit(&store, 1, spawn).await, CommitOutcome::Committed);
    let seen = branch(&store, 1, BRANCH).await;
    assert_eq!((seen.job, seen.number, seen.name.as_str()), (id(1), BRANCH, "all"));
    assert_eq!((seen.spawns, seen.cursor), (vec!["each".to_owned()], Some(payload("end"))));
    assert_eq!((seen.sealed, seen.merged, seen.cancels_children, seen.spawned), (true, false, false, 1_000));
    assert_eq!(
        (seen.counts, seen.watch, seen.merge_record.as_deref()),
        (BranchCounts::default(), None, Some("{\"all\":true}"))
    );
    assert_eq!((seen.opened_at, seen.sealed_at, seen.merged_at), (t(1), Some(t(1)), None));
    assert_eq!(seen.poll, Default::default());
    let taken = claim_all(&store, 2, me, 2).await;
    assert_eq!(taken.len(), 1_000);
    let member = BranchMember { parent: id(1), branch: BRANCH, items: 1 };
    assert!(taken.iter().all(|child| child.branch_member == Some(member) && child.parent.is_none()));
    assert_eq!(taken[0].input, payload("2"));
    assert_eq!(
        view(&store, id(1)).await.pending_children,
        0,
        "children in a branch are not counted as pending"
    );
}

pub async fn many_changes_spawn_children_in_one_branch(store: Handle) {
    let mut parent = parent_with_children(&store, Vec::new()).await;
    for n in 0..3 {
        let cursor = BranchUpdate { cursor: Some(payload(&n.to_string())), ..BranchUpdate::new(BRANCH) };
        parent =
            update_branches(&store, 2 + u64::from(n), &parent, vec![cursor], children(10 * n + 10, 4)).await;
        let seen = branch(&store, 1, BRANCH).await;
        assert_eq!((seen.spawned, seen.cursor), (i64::from(n + 1) * 4, Some(payload(&n.to_string()))));
    }
    // Children may be spawned without an update of the branch.
    parent = update_branches(&store, 5, &parent, Vec::new(), children(50, 1)).await;
    let names = vec!["each".to_owned(), "more".to_owned()];
    let last = BranchUpdate { seal: true, spawns: Some(names.clone()), ..BranchUpdate::new(BRANCH) };
    update_branches(&store, 6, &parent, vec![last], children(60, 2)).await;
    let seen = branch(&store, 1, BRANCH).await;
    assert_eq!((seen.spawned, seen.sealed, seen.spawns), (15, true, names));
    assert_eq!(
        (seen.opened_at, seen.cursor),
        (t(1), Some(payload("2"))),
        "an update keeps what it does not set"
    );
    let listed = store.inspect().children(id(1), None, 99).await.expect("children");
    assert_eq!(listed.len(), 15);
}

pub async fn a_branch_counts_its_children_however_they_end(store: Handle) {
    let mut all = children(2, 8);
    all[3].deadline_at = Some(t(5));
    all[4].when = When::At(t(500));
    let named = |mut job: NewJob| {
        job.settings.unique = Some(Box::new(Unique::new("name").or_replace()));
        job
    };
    all[6] = named(all[6].clone());
    let (me, _) = parent_with_children(&store, all).await;
    // The last child is claimed by a worker of its own, whose death makes it a suspect.
    let (two, three) = (worker(&store, 2).await, worker(&store, 3).await);
    must_act(&store, 2, 9, JobAction::Priority(-50)).await;
    assert_eq!(claim_one(&store, 2, two, 1).await.id, id(9));
    let taken = claim_all(&store, 2, me, 2).await;
    assert_eq!(ids(&taken), [2, 3, 4, 5, 7, 8].map(id));
    assert_eq!(counts(&store).await, [0, 0, 0, 0], "no attempt has committed yet");
    apply(&store, 3, change(me, &taken[0], done("x"))).await;
    assert_eq!(counts(&store).await, [1, 1, 0, 0], "done");
    apply(&store, 3, change(me, &taken[1], failed(Reason::Stopped))).await;
    assert_eq!(counts(&store).await, [2, 1, 1, 0], "failed");
    apply(&store, 3, change(me, &taken[2], cancelled())).await;
    assert_eq!(counts(&store).await, [3, 1, 1, 1], "cancelled by its own attempt");
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    assert_eq!(counts(&store).await, [4, 1, 2, 1], "expired while it ran");
    assert_eq!(act_on_job(&store, 6, 6, cancel(9)).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [5, 1, 2, 2], "cancelled while scheduled");
    assert_eq!(act_on_job(&store, 6, 7, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!(counts(&store).await, [5, 1, 2, 2], "a cancel was requested");
    assert_eq!(fire_timers(&store, 6, 9).await.cancelled, 1);
    assert_eq!(counts(&store).await, [6, 1, 2, 3], "cancelled when the grace period was over");
    store.release(at(7), &[job_claim(me, &taken[5])]).await.expect("release");
    let outcomes = store.submit(at(7), &[named(job(50))], None).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::Replaced { id: id(8) }]);
    assert_eq!(counts(&store).await, [7, 1, 2, 4], "replaced");
    reap(&store, 8, two).await;
    assert_eq!(counts(&store).await, [7, 1, 2, 4], "reaped, and ready again");
    assert_eq!(claim(&store, at(8), &solo_claim_request(three, 1)).await[0].id, id(9));
    let request = ReapRequest { dead: vec![three], lapsed: false, limit: 9, max_crashes: 1 };
    assert_eq!(store.reap(at(9), &request).await.expect("reap").poisoned, 1);
    assert_eq!(counts(&store).await, [8, 1, 3, 4], "poisoned");
    assert_eq!(inbox(&store, 1).await, [] as [&str; 0], "the branch has no watch");
}

pub async fn the_ends_of_a_batch_are_counted_per_branch(store: Handle) {
    let parent = parent_with_children(&store, children(10, 40)).await;
    let other = BranchNo(-3);
    let more = (100..120).map(|n| branch_child(n, other)).collect();
    let (me, _) = update_branches(&store, 2, &parent, vec![open_branch(other, "others")], more).await;
    let taken = claim_all(&store, 3, me, 2).await;
    assert_eq!(taken.len(), 60);
    let outcome = |n: usize| [done("x"), failed(Reason::Stopped), cancelled(), done("y")][n % 4].clone();
    let batch: Vec<_> = taken.iter().enumerate().map(|(n, job)| change(me, job, outcome(n))).collect();
    let outcomes = store.commit(at(4), &batch).await.expect("commit");
    assert_eq!(outcomes, vec![CommitOutcome::Committed; 60]);
    assert_eq!(counts(&store).await, [40, 20, 10, 10]);
    let counts = branch(&store, 1, other).await.counts;
    assert_eq!(counts, BranchCounts { started: 20, done: 10, failed: 5, cancelled: 5 });
    let all = store.inspect().branches(id(1)).await.expect("branches");
    assert_eq!(
        all.iter().map(|branch| branch.number).collect::<Vec<_>>(),
        [other, BRANCH],
        "sorted by number"
    );
}

pub async fn a_child_that_retries_waits_or_steps_counts_as_started_and_not_ended(store: Handle) {
    let (me, _) = parent_with_children(&store, children(2, 4)).await;
    let taken = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &taken[0], retry(secs(5), &[1]))).await;
    apply(&store, 3, change(me, &taken[1], wait_for_signal("go", None))).await;
    apply(&store, 3, with_step(change(me, &taken[2], Outcome::Next), step("A", "B", "x"))).await;
    store.release(at(3), &[job_claim(me, &taken[3])]).await.expect("release");
    assert_eq!(counts(&store).await, [3, 0, 0, 0]);
    apply(&store, 4, change(me, &after_step(&taken[2]), done("x"))).await;
    assert_eq!(counts(&store).await, [3, 1, 0, 0], "its start is counted once");
    assert_eq!(act_on_job(&store, 5, 3, cancel(0)).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [3, 1, 0, 1]);
}

pub async fn a_retry_takes_a_child_out_of_the_counts(store: Handle) {
    let (me, _) = parent_with_children(&store, children(2, 3)).await;
    let taken = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &taken[0], failed(Reason::Stopped))).await;
    apply(&store, 3, change(me, &taken[1], cancelled())).await;
    store.release(at(3), &[job_claim(me, &taken[2])]).await.expect("release");
    assert_eq!(act_on_job(&store, 3, 4, cancel(0)).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [3, 0, 1, 2]);
    assert_eq!(act_on_job(&store, 4, 2, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [3, 0, 0, 2], "a retried child has started and is no longer failed");
    assert_eq!(act_on_job(&store, 4, 4, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(counts(&store).await, [2, 0, 0, 1], "a child that never started is not counted as started");
    assert_eq!(act_on_job(&store, 4, 3, JobAction::Retry).await, ControlOutcome::Done);
    for child in claim_all(&store, 5, me, 3).await {
        apply(&store, 6, change(me, &child, done("x"))).await;
    }
    assert_eq!(counts(&store).await, [3, 3, 0, 0]);
}

pub async fn a_repeated_commit_counts_nothing_twice(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let spawn = with_step(
        change(me, &job, Outcome::Next),
        branch_writes(vec![open_branch(BRANCH, "all")], children(2, 3)),
    );
    for _ in 0..2 {
        assert_eq!(commit(&store, 1, spawn.clone()).await, CommitOutcome::Committed);
    }
    assert_eq!(branch(&store, 1, BRANCH).await.spawned, 3);
    let taken = claim_all(&store, 2, me, 2).await;
    let batch: Vec<_> = taken.iter().map(|child| change(me, child, done("x"))).collect();
    for _ in 0..2 {
        let outcomes = store.commit(at(3), &batch).await.expect("commit");
        assert_eq!(outcomes, vec![CommitOutcome::Committed; 3]);
    }
    assert_eq!(counts(&store).await, [3, 3, 0, 0]);
}

pub async fn a_fenced_change_counts_nothing(store: Handle) {
    let (me, job) = parent_with_children(&store, children(2, 2)).await;
    let taken = claim_all(&store, 2, me, 2).await;
    store.release(at(3), &[job_claim(me, &taken[0])]).await.expect("release");
    let old = taken.iter().map(|child| change(me, child, done("x"))).collect::<Vec<_>>();
    let outcomes = store.commit(at(4), &old).await.expect("commit");
    assert_eq!(outcomes, [CommitOutcome::Fenced, CommitOutcome::Committed]);
    assert_eq!(counts(&store).await, [1, 1, 0, 0]);
    store.release(at(5), &[job_claim(me, &job)]).await.expect("release");
    let late = with_step(
        change(me, &job, Outcome::Next),
        branch_writes(vec![open_branch(BranchNo(8), "more")], children(10, 3)),
    );
    assert_eq!(commit(&store, 6, late).await, CommitOutcome::Fenced);
    assert_eq!(store.inspect().branches(id(1)).await.expect("branches").len(), 1);
    assert_eq!(branch(&store, 1, BRANCH).await.spawned, 2);
    assert_eq!(store.inspect().job(id(10)).await.expect("job"), None);
}

pub async fn a_refused_change_of_a_batch_counts_nothing(store: Handle) {
    let (me, _) = parent_with_children(&store, children(2, 3)).await;
    let taken = claim_all(&store, 2, me, 2).await;
    let writes_entry = |job: &ClaimedJob, outcome| {
        with_step(change(me, job, outcome), journal_writes(vec![entry(0, "a", "x")]))
    };
    apply(&store, 3, writes_entry(&taken[1], Outcome::Next)).await;
    let twice = writes_entry(&after_step(&taken[1]), done("x"));
    let batch = [change(me, &taken[0], done("x")), twice, change(me, &taken[2], cancelled())];
    let outcomes = store.commit(at(4), &batch).await.expect("commit");
    assert!(
        matches!(outcomes[1], CommitOutcome::Refused(_)),
        "the position in the journal is taken: {outcomes:?}"
    );
    assert_eq!((&outcomes[0], &outcomes[2]), (&CommitOutcome::Committed, &CommitOutcome::Committed));
    assert_eq!(counts(&store).await, [3, 1, 0, 1]);
}

pub async fn an_invalid_branch_update_is_refused_alone(store: Handle) {
    let parent = parent_with_children(&store, children(2, 1)).await;
    let other = running_job(&store, 40).await;
    let refused = async |now: u64, branches: Vec<BranchUpdate>, children: Vec<NewJob>| {
        let (me, job) = &parent;
        let bad = with_step(change(*me, job, Outcome::Next), branch_writes(branches, children));
        refusal(commit(&store, now, bad).await)
    };
    assert!(refused(2, vec![BranchUpdate::new(BranchNo(9))], Vec::new()).await.contains("no branch 9"));
    assert!(refused(2, vec![open_branch(BRANCH, "again")], Vec::new()).await.contains("a branch 7 already"));
    assert!(refused(2, Vec::new(), vec![branch_child(50, BranchNo(9))]).await.contains("no open branch 9"));
    let bad = with_step(
        change(parent.0, &parent.1, Outcome::Next),
        branch_writes(vec![], vec![branch_child(50, BranchNo(9))]),
    );
    let (me, job) = &other;
    let good = with_step(
        change(*me, job, Outcome::Next),
        branch_writes(vec![open_branch(BRANCH, "mine")], children(60, 2)),
    );
    let child = claim(&store, at(2), &claim_request(parent.0, 9, 1)).await.remove(0);
    let batch = [bad, good, change(parent.0, &child, done("x"))];
    let outcomes = store.commit(at(3), &batch).await.expect("commit");
    assert!(matches!(outcomes[0], CommitOutcome::Refused(_)), "{outcomes:?}");
    assert_eq!(outcomes[1..], [CommitOutcome::Committed, CommitOutcome::Committed]);
    assert_eq!((branch(&store, 40, BRANCH).await.spawned, branch(&store, 1, BRANCH).await.spawned), (2, 1));
    assert_eq!(counts(&store).await, [1, 1, 0, 0]);
    let parent = update_branches(
        &store,
        4,
        &parent,
        vec![BranchUpdate { seal: true, ..BranchUpdate::new(BRANCH) }],
        Vec::new(),
    )
    .await;
    let late = with_step(change(parent.0, &parent.1, Outcome::Next), branch_writes(vec![], children(50, 1)));
    assert!(refusal(commit(&store, 5, late).await).contains("no open branch 7"));
    assert_eq!(branch(&store, 1, BRANCH).await.spawned, 1);
}

pub async fn an_invalid_branch_child_is_refused(store: Handle) {
    let (me, job) = parent_with_children(&store, vec![block(2, 5)]).await;
    let submitted = store.submit(at(1), &children(50, 1), None).await;
    assert!(
        matches!(&submitted, Err(Error::Invalid(why)) if why.to_string().contains("branch")),
        "{submitted:?}"
    );
    let refused = async |step: StepWrites| {
        refusal(commit(&store, 2, with_step(change(me, &job, Outcome::Next), step)).await)
    };
    let keyed = NewJob { key: Some("k".into()), ..branch_child(50, BRANCH) };
    assert!(refused(branch_writes(vec![], vec![keyed])).await.contains("key of a child of a branch"));
    for items in [0, MAX_BLOCK_ITEMS as u32 + 1] {
        let why = refused(branch_writes(vec![], vec![block(50, items)])).await;
        assert!(why.contains(&format!("has {items} items")), "{why}");
    }
    let long = (0..1_001).map(|n| n.to_string()).collect();
    let many = BranchUpdate { spawns: Some(long), ..BranchUpdate::new(BRANCH) };
    assert!(refused(branch_writes(vec![many], vec![])).await.contains("names of a branch's spawns"));
    assert!(refused(branch_writes(vec![open_branch(BranchNo(8), "a,b")], vec![])).await.contains("','"));
    assert!(refused(StepWrites { items: 1, ..StepWrites::default() }).await.contains("more than the 0 left"));
    assert_eq!(branch(&store, 1, BRANCH).await.spawned, 5);
    update_branches(&store, 3, &(me, job), vec![], vec![block(60, MAX_BLOCK_ITEMS as u32)]).await;
    assert_eq!(branch(&store, 1, BRANCH).await.spawned, 5 + MAX_BLOCK_ITEMS as i64);
}
