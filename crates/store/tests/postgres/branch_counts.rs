//! Branches on a server: how many statements they send, notifications while many children end at once, and what a poll corrects.

use tokio_postgres::Client;
use windlass_model::{
    BranchCounts, BranchNo, BranchPosition, BranchUpdate, BranchWatch, Change, ClaimedJob, CommitOutcome,
    JobId, JournalEntry, NewJob, Outcome, Reason, State, StepWrites, WorkerId, branch::BRANCH_SIGNAL,
};
use windlass_store::{
    Branch, BranchChildFilter, ChildStates, PostgresWork, Work,
    conformance::{self, kit::*},
};

use super::{fresh, open_fresh, open_with_client};

const NO: BranchNo = BranchNo(7);

/// Children of the branch, numbered from `from`.
fn children(from: u32, count: u32) -> Vec<NewJob> {
    let position = |n: u32| BranchPosition { branch: NO, spawn: 0, item: n.to_string(), items: 1 };
    (from..from + count).map(|n| NewJob { branch_position: Some(Box::new(position(n))), ..job(n) }).collect()
}

/// A step that spawns children in the branch, and opens it if `open`.
fn spawning(open: bool, children: Vec<NewJob>) -> StepWrites {
    let open = open.then(|| "all".to_owned());
    StepWrites {
        branches: vec![BranchUpdate { opened_as: open, ..BranchUpdate::new(NO) }],
        children,
        ..StepWrites::default()
    }
}

/// A step that seals the branch and watches it for this many ends.
fn watching(ended: u64) -> StepWrites {
    let watch = Some(BranchWatch { ended: Some(ended), ..BranchWatch::default() });
    StepWrites {
        branches: vec![BranchUpdate { seal: true, watch, ..BranchUpdate::new(NO) }],
        ..StepWrites::default()
    }
}

/// Spawns children of job 1, parks it until `ended` of them have ended, and claims them.
async fn spawned(store: &Handle, ended: u64, children: Vec<NewJob>) -> (WorkerId, Vec<ClaimedJob>) {
    let (me, parent) = running_job(store, 1).await;
    let count = children.len();
    let spawn = with_step(change(me, &parent, Outcome::Next), spawning(true, children));
    assert_eq!(commit(store, 1, spawn).await, CommitOutcome::Committed);
    let parked =
        with_step(change(me, &after_step(&parent), wait_for_signal(BRANCH_SIGNAL, None)), watching(ended));
    assert_eq!(commit(store, 1, parked).await, CommitOutcome::Committed);
    let held = claim(store, at(2), &claim_request(me, 2, 2_000)).await;
    assert_eq!((held.len(), state(store, id(1)).await), (count, State::Waiting));
    (me, held)
}

fn ends(me: WorkerId, jobs: &[ClaimedJob]) -> Vec<Change> {
    jobs.iter().map(|job| change(me, job, done("x"))).collect()
}

async fn branch(store: &Handle) -> Branch {
    store.inspect().branches(id(1)).await.expect("branches").remove(0)
}

#[tokio::test]
async fn chunks_and_ends_send_few_statements() {
    let store = open_fresh().await;
    let (me, parent) = running_job(&store, 1).await;
    let spawn = |job: &ClaimedJob, open: bool, from: u32| {
        [with_step(change(me, job, Outcome::Next), spawning(open, children(from, 1_000)))]
    };
    let (_, sent) = count_statements!(store, store.commit(at(1), &spawn(&parent, true, 1_000)));
    assert_eq!(sent, 7, "begin, step, read, open, update, children, commit");
    let parent = after_step(&parent);
    let (_, sent) = count_statements!(store, store.commit(at(1), &spawn(&parent, false, 2_000)));
    assert_eq!(sent, 6, "begin, step, read, update, children, commit");
    assert_eq!(branch(&store).await.spawned, 2_000);
    let parent = after_step(&parent);
    let parks = [with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), watching(2_000))];
    let (_, sent) = count_statements!(store, store.commit(at(1), &parks));
    assert_eq!(sent, 7, "begin, park, read, update, wake, commit, check");
    let (batch, sent) = count_statements!(store, store.claim(at(2), &claim_request(me, 2, 2_000)));
    assert_eq!((batch.jobs.len(), sent), (2_000, 1));
    let held = batch.jobs;
    let (outcomes, sent) = count_statements!(store, store.commit(at(3), &ends(me, &held[..1_000])));
    assert_eq!(outcomes, vec![CommitOutcome::Committed; 1_000]);
    assert_eq!(sent, 2, "the ends, which the statement counts, and a check of the watch");
    let with_entry = |job: &ClaimedJob, outcome: Outcome| {
        with_step(
            change(me, job, outcome),
            StepWrites { entries: vec![entry(1, "a", "1")], ..StepWrites::default() },
        )
    };
    let ends_with_entries: Vec<Change> =
        held[1_000..1_100].iter().map(|job| with_entry(job, done("x"))).collect();
    let (_, sent) = count_statements!(store, store.commit(at(3), &ends_with_entries));
    assert_eq!(sent, 2, "the same with entries of a journal");
    let mut mixed = ends(me, &held[1_100..1_200]);
    mixed.extend(held[1_200..1_300].iter().map(|job| change(me, job, failed(Reason::Stopped))));
    let (_, sent) = count_statements!(store, store.commit(at(3), &mixed));
    assert_eq!(sent, 7, "begin, lock, two kinds, counts, commit, check");
    let steps: Vec<Change> = held[1_300..1_400].iter().map(|job| with_entry(job, Outcome::Next)).collect();
    let (_, sent) = count_statements!(store, store.commit(at(3), &steps));
    assert_eq!(sent, 4, "begin, step, counts, commit: their start is counted");
    let further: Vec<ClaimedJob> = held[1_300..1_400].iter().map(after_step).collect();
    let steps: Vec<Change> = further.iter().map(|job| change(me, job, Outcome::Next)).collect();
    let (_, sent) = count_statements!(store, store.commit(at(3), &steps));
    assert_eq!(sent, 1, "later steps are not counted");
    let counts = BranchCounts { started: 1_400, done: 1_200, failed: 100, cancelled: 0 };
    assert_eq!(branch(&store).await.counts, counts);
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    let ids: Vec<JobId> = held[1_300..].iter().map(|job| job.id).collect();
    let outcomes = store.control().act_on_jobs(at(4), &ids, cancel(0), &actor()).await.expect("act");
    assert_eq!(outcomes.len(), 700);
    fire_timers(&store, 5, 1_000).await;
    assert_eq!(branch(&store).await.counts, BranchCounts { started: 2_000, cancelled: 700, ..counts });
    assert_eq!((state(&store, id(1)).await, inbox(&store, 1).await), (State::Ready, vec!["7".to_owned()]));
}

#[tokio::test]
async fn jobs_without_branches_send_no_statements_for_them() {
    let store = open_fresh().await;
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 100)).await;
    let held = claim(&store, at(0), &claim_request(me, 1, 100)).await;
    let (_, sent) = count_statements!(store, store.commit(at(1), &ends(me, &held[..50])));
    assert_eq!(sent, 1);
    let cancels: Vec<Change> = held[50..].iter().map(|job| change(me, job, cancelled())).collect();
    let (_, sent) = count_statements!(store, store.commit(at(1), &cancels));
    assert_eq!(sent, 1);
    let (polled, sent) = count_statements!(store, store.poll_branches(at(2), 100));
    assert_eq!((polled.polled, polled.next_at, sent), (0, None, 1));
}

/// Neither sees the other while both commit, but the later one sees what both have counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_is_notified_once_when_its_last_children_end_at_once() {
    for run in 0..40 {
        let store = open_fresh().await;
        let (me, held) = spawned(&store, 4, children(10, 4)).await;
        let tasks: Vec<_> = held
            .into_iter()
            .enumerate()
            .map(|(n, job)| {
                let store = store.clone();
                let outcome = if n == run % 4 { failed(Reason::Stopped) } else { done("x") };
                tokio::spawn(async move {
                    let ended = [change(me, &job, outcome)];
                    assert_eq!(
                        store.commit(at(3), &ended).await.expect("commit"),
                        [CommitOutcome::Committed]
                    );
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a task");
        }
        assert_eq!(inbox(&store, 1).await, ["7"], "run {run}");
        assert_eq!(claim(&store, at(4), &claim_request(me, 3, 10)).await.len(), 1, "woken once");
        assert_eq!(claim(&store, at(4), &claim_request(me, 4, 10)).await.len(), 0);
        let seen = branch(&store).await;
        assert_eq!((seen.watch, seen.poll.next_at), (None, None));
    }
}

/// Commits, cancels and deadlines end children at once: each is counted once, and the parent is notified when the last has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_that_end_at_once_are_counted_once_each() {
    let store = open_fresh().await;
    let mut all = children(10, 200);
    all.iter_mut().step_by(3).for_each(|job| job.deadline_at = Some(t(50)));
    let (me, mut claimed) = spawned(&store, 200, all).await;
    let released: Vec<_> = claimed.split_off(150).iter().map(|job| job_claim(me, job)).collect();
    assert_eq!(store.release(at(2), &released).await.expect("released"), 50);
    let mut tasks = Vec::new();
    for part in claimed.chunks(10) {
        let (store, changes) = (store.clone(), ends(me, part));
        tasks.push(tokio::spawn(async move {
            store.commit(at(3), &changes).await.expect("commit");
        }));
    }
    for part in released.chunks(5) {
        let (store, ids) = (store.clone(), part.iter().map(|claim| claim.job).collect::<Vec<JobId>>());
        tasks.push(tokio::spawn(async move {
            store.control().act_on_jobs(at(3), &ids, cancel(0), &actor()).await.expect("act");
            store.fire_timers(at(60), 50).await.expect("timers");
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    let seen = branch(&store).await;
    assert_eq!((seen.counts.started, seen.counts.ended()), (200, 200));
    let filter = BranchChildFilter {
        job: id(1),
        branch: NO,
        states: ChildStates::Unsuccessful,
        after: None,
        limit: 1_000,
    };
    let unsuccessful = store.inspect().branch_children(&filter).await.expect("children");
    assert_eq!(seen.counts.unsuccessful(), unsuccessful.len() as i64);
    assert_eq!(inbox(&store, 1).await, ["7"]);
    assert_eq!(claim(&store, at(61), &claim_request(me, 3, 200)).await.len(), 1, "woken once");
}

/// One child is deleted from the ready set by hand: it is redelivered once, and the others are left as they are.
#[tokio::test]
async fn a_lost_child_is_redelivered_once() {
    let (store, client) = open_with_client(&fresh()).await;
    let (me, parent) = running_job(&store, 1).await;
    let spawn = with_step(change(me, &parent, Outcome::Next), spawning(true, children(10, 300)));
    apply(&store, 1, spawn).await;
    apply(
        &store,
        1,
        with_step(change(me, &after_step(&parent), wait_for_signal(BRANCH_SIGNAL, None)), watching(300)),
    )
    .await;
    assert_eq!(client.execute("delete from ready where job = $1", &[&id(200).0]).await.expect("deleted"), 1);
    let first = store.poll_branches(at(10), 10).await.expect("poll");
    assert_eq!((first.polled, first.redelivered), (1, 0), "nothing to compare with");
    let (one, other) = (store.clone(), store.clone());
    let (one, other) = tokio::join!(one.poll_branches(at(20), 10), other.poll_branches(at(20), 10));
    let (one, other) = (one.expect("poll"), other.expect("poll"));
    assert_eq!((one.polled + other.polled, one.redelivered + other.redelivered), (1, 1), "by one of them");
    let lost = view(&store, id(200)).await;
    assert_eq!((lost.summary.state, lost.epoch.0), (State::Ready, 1));
    let kept = view(&store, id(201)).await;
    assert_eq!((kept.summary.state, kept.epoch.0), (State::Ready, 0));
    for n in 1..10 {
        assert_eq!(store.poll_branches(at(20 + n * 400), 10).await.expect("poll").redelivered, 0);
    }
    assert_eq!(view(&store, id(200)).await.epoch.0, 1);
    let seen = branch(&store).await.poll;
    assert_eq!((seen.redelivered, seen.redelivered_at, seen.never_started), (1, at(20), 300));
    let held = claim(&store, at(60), &claim_request(me, 2, 1_000)).await;
    assert_eq!(held.len(), 300);
    store.commit(at(61), &ends(me, &held)).await.expect("commit");
    assert_eq!((inbox(&store, 1).await.len(), state(&store, id(1)).await), (1, State::Ready));
}

#[tokio::test]
async fn a_lost_child_is_found_although_others_end() {
    let (store, client) = open_with_client(&fresh()).await;
    conformance::lost_children::a_lost_child_is_found_although_others_end(store, async |worker, claim| {
        let forget = "delete from claims where worker = $1 and number = $2";
        assert_eq!(client.execute(forget, &[&worker.0, &claim.0]).await.expect("deleted"), 1);
    })
    .await;
}

async fn count_rows(client: &Client) -> i64 {
    client.query_one("select count(*) from branch_counts", &[]).await.expect("counted").get(0)
}

/// Wrong counts are corrected once, while other transactions count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_counts_are_corrected() {
    let (store, client) = open_with_client(&fresh()).await;
    let (me, held) = spawned(&store, 100, children(10, 100)).await;
    store.commit(at(3), &ends(me, &held[..40])).await.expect("commit");
    assert_eq!(count_rows(&client).await, 1);
    client
        .execute("update branch_counts set done = done - 10, failed = 5, cancelled = -3", &[])
        .await
        .expect("set");
    assert_eq!(store.poll_branches(at(10), 10).await.expect("poll").corrected, 0, "nothing to compare with");
    let rest: Vec<_> = held[40..].chunks(5).map(|part| ends(me, part)).collect();
    let polls = {
        let store = store.clone();
        tokio::spawn(async move {
            let mut corrected = 0;
            for n in 0..20 {
                corrected += store.poll_branches(at(1_000 * (n + 1)), 10).await.expect("poll").corrected;
            }
            corrected
        })
    };
    for changes in rest {
        store.commit(at(20), &changes).await.expect("commit");
    }
    let corrected = polls.await.expect("a task");
    let mut more = 0;
    for n in 0..3 {
        more += store.poll_branches(at(100_000 * (n + 1)), 10).await.expect("poll").corrected;
    }
    let seen = branch(&store).await;
    assert_eq!((seen.counts.ends(), corrected + more), ((100, 0, 0), 1), "once, and right");
    assert_eq!(inbox(&store, 1).await, ["7"]);
    assert_eq!(state(&store, id(1)).await, State::Ready);
}

/// After a crash between the count and the notification, the next poll notifies the parent.
#[tokio::test]
async fn a_poll_notifies_a_parent_whose_watch_is_met() {
    let (store, client) = open_with_client(&fresh()).await;
    let (_, held) = spawned(&store, 2, children(10, 2)).await;
    let by_hand = "update jobs set state = 1, finished_at = 0 where branch is not null;
         insert into branch_counts (job, branch, writer, started, done, failed, cancelled)
         select parent, branch, 99, 2, 2, 0, 0 from jobs where branch is not null limit 1";
    client.batch_execute(by_hand).await.expect("ended");
    assert_eq!((held.len(), inbox(&store, 1).await.len()), (2, 0));
    let polled = store.poll_branches(at(10), 10).await.expect("poll");
    assert_eq!((polled.polled, polled.notified, polled.next_at), (1, 1, None));
    assert_eq!((inbox(&store, 1).await, state(&store, id(1)).await), (vec!["7".to_owned()], State::Ready));
}

#[tokio::test]
async fn a_recount_lowers_no_counts_for_deleted_rows() {
    let (store, client) = open_with_client(&fresh()).await;
    let (me, held) = spawned(&store, 4, children(10, 4)).await;
    store.commit(at(3), &ends(me, &held[..3])).await.expect("commit");
    client.execute("delete from jobs where id = $1", &[&held[0].id.0]).await.expect("deleted");
    store.poll_branches(at(10), 10).await.expect("poll");
    let polled = store.poll_branches(at(400), 10).await.expect("poll");
    assert_eq!((polled.polled, polled.corrected, polled.notified), (1, 0, 0));
    let seen = branch(&store).await;
    assert_eq!((seen.counts.done, seen.poll.missing), (3, 0), "it was counted when it ended");
    store.commit(at(401), &ends(me, &held[3..])).await.expect("commit");
    assert_eq!(claim_one(&store, 402, me, 3).await.id, id(1), "so its parent continues");
}

#[tokio::test]
async fn a_parent_is_notified_of_deleted_children() {
    let (store, client) = open_with_client(&fresh()).await;
    let (me, held) = spawned(&store, 4, children(10, 4)).await;
    store.commit(at(3), &ends(me, &held[..2])).await.expect("commit");
    for job in &held[2..] {
        client.execute("delete from jobs where id = $1", &[&job.id.0]).await.expect("deleted");
    }
    assert_eq!(store.poll_branches(at(10), 10).await.expect("poll").notified, 0, "nothing to compare with");
    let polled = store.poll_branches(at(400), 10).await.expect("poll");
    assert_eq!((polled.corrected, polled.notified, polled.next_at), (0, 1, None));
    let seen = branch(&store).await;
    assert_eq!((seen.counts.ends(), seen.poll.missing, seen.watch), ((2, 0, 0), 2, None));
    assert_eq!(claim_one(&store, 401, me, 3).await.id, id(1), "it does not wait forever");
}

/// Pruning a job deletes its branches and their counts, and its children add none later.
#[tokio::test]
async fn a_pruned_job_leaves_no_branches_and_no_counts() {
    let (store, client) = open_with_client(&fresh()).await;
    let (me, held) = spawned(&store, 3, children(10, 3)).await;
    store.commit(at(3), &ends(me, &held[..1])).await.expect("commit");
    must_act(&store, 4, 1, cancel(0)).await;
    let prune = windlass_store::Prune {
        state: State::Cancelled,
        before: t(100),
        kind: None,
        after: None,
        limit: 100,
    };
    assert_eq!(store.prune(at(101), &prune).await.expect("pruned").jobs, 1);
    store.commit(at(102), &ends(me, &held[1..2])).await.expect("commit");
    store.commit(at(102), &[change(me, &held[2], failed(Reason::Stopped))]).await.expect("commit");
    let left = "select (select count(*) from branches) + (select count(*) from branch_counts)";
    assert_eq!(client.query_one(left, &[]).await.expect("counted").get::<_, i64>(0), 0);
    assert_eq!(count(&store, State::Failed).await, 1);
}

/// The steps of a long chain are written one by one: an entry of a child that has started is one statement.
#[tokio::test]
async fn entries_of_children_send_as_few_statements_as_those_of_others() {
    let store = open_fresh().await;
    let (me, held) = spawned(&store, 1, children(10, 1)).await;
    let step = |job: &ClaimedJob, seq: i32| {
        let entries: Vec<JournalEntry> = vec![entry(seq, "a", "1")];
        [with_step(change(me, job, Outcome::Next), StepWrites { entries, ..StepWrites::default() })]
    };
    let (_, sent) = count_statements!(store, store.commit(at(3), &step(&held[0], 1)));
    assert_eq!(sent, 4);
    let (_, sent) = count_statements!(store, store.commit(at(3), &step(&after_step(&held[0]), 2)));
    assert_eq!(sent, 1);
}

/// Matching children may come after many others: they are searched for page by page.
#[tokio::test]
async fn live_children_are_found_after_many_that_ended() {
    let store = open_fresh().await;
    let (me, held) = spawned(&store, 2_000, children(10, 2_000)).await;
    store.commit(at(3), &ends(me, &held[..1_950])).await.expect("commit");
    let filter = |states, after| BranchChildFilter { job: id(1), branch: NO, states, after, limit: 20 };
    let (live, sent) =
        count_statements!(store, store.inspect().branch_children(&filter(ChildStates::Live, None)));
    let ids = |from: u32, count: u32| (from..from + count).map(id).collect::<Vec<_>>();
    let ids_of = |children: &[windlass_store::BranchChild]| {
        children.iter().map(|child| child.summary.id).collect::<Vec<_>>()
    };
    assert_eq!((ids_of(&live), sent), (ids(1_960, 20), 3), "pages of 20, of 1,000 and of 4,000");
    let (live, sent) = count_statements!(
        store,
        store.inspect().branch_children(&filter(ChildStates::Live, Some(id(2_000))))
    );
    assert_eq!((ids_of(&live), sent), (ids(2_001, 9), 1));
    let (ended, sent) =
        count_statements!(store, store.inspect().branch_children(&filter(ChildStates::Ended, None)));
    assert_eq!((ids_of(&ended), sent), (ids(10, 20), 1));
    store.commit(at(4), &[change(me, &held[1_999], failed(Reason::Stopped))]).await.expect("commit");
    let (unsuccessful, sent) =
        count_statements!(store, store.inspect().branch_children(&filter(ChildStates::Unsuccessful, None)));
    assert_eq!((ids_of(&unsuccessful), sent), (ids(2_009, 1), 1));
}

/// A transaction of the caller may end a child, and may open a branch and spawn children in it.
#[tokio::test]
async fn transactions_of_callers_update_and_count_branches() {
    let store = open_fresh().await;
    let (me, parent) = running_job(&store, 1).await;
    let spawn = with_step(change(me, &parent, Outcome::Next), spawning(true, children(10, 2)));
    let outcome = transact(&store, 1, spawn).await;
    assert_eq!(outcome, CommitOutcome::Committed);
    assert_eq!(branch(&store).await.spawned, 2);
    let again = with_step(change(me, &after_step(&parent), Outcome::Next), spawning(true, Vec::new()));
    assert!(matches!(transact(&store, 1, again).await, CommitOutcome::Refused(_)), "it is open already");
    let parked =
        with_step(change(me, &after_step(&parent), wait_for_signal(BRANCH_SIGNAL, None)), watching(2));
    assert_eq!(transact(&store, 1, parked).await, CommitOutcome::Committed);
    for job in claim(&store, at(2), &claim_request(me, 2, 10)).await {
        assert_eq!(transact(&store, 3, change(me, &job, done("x"))).await, CommitOutcome::Committed);
    }
    let counts = BranchCounts { started: 2, done: 2, ..BranchCounts::default() };
    assert_eq!((branch(&store).await.counts, inbox(&store, 1).await), (counts, vec!["7".to_owned()]));
    assert_eq!(state(&store, id(1)).await, State::Ready);
}

async fn transact(store: &Handle, now: u64, change: Change) -> CommitOutcome {
    let work = PostgresWork::new(async move |_| Some(change));
    store.transact(at(now), Work::Postgres(work)).await.expect("transact").expect("an outcome")
}
