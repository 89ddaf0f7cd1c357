//! Branches in a file: what a poll redelivers and corrects, how many statements children take, and a measurement of what they cost.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_model::{
    BranchCounts, BranchNo, BranchPosition, BranchUpdate, BranchWatch, ClaimedJob, CommitOutcome, Epoch,
    NewJob, Outcome, StepWrites, WorkerId, branch::BRANCH_SIGNAL,
};
use windlass_store::{
    Branch, PollReport,
    conformance::{self, kit::*},
    sqlite::{Options, Sqlite},
};

const NO: BranchNo = BranchNo(1);

/// The `n`th job as a child of the branch.
fn child(n: u32) -> NewJob {
    let position = BranchPosition { branch: NO, spawn: 0, item: n.to_string(), items: 1 };
    NewJob { branch_position: Some(Box::new(position)), ..job(n) }
}

fn opening() -> BranchUpdate {
    BranchUpdate { opened_as: Some("all".into()), spawns: Some(vec!["each".into()]), ..BranchUpdate::new(NO) }
}

/// The first job, parked until all children of its branch have ended, and a connection to its file.
async fn parked(count: u32) -> (TempDir, Handle, Connection, WorkerId) {
    let (folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let (me, parent) = running_job(&store, 1).await;
    let watch = Some(BranchWatch { ended: Some(u64::from(count)), ..BranchWatch::default() });
    let branches = vec![BranchUpdate { watch, seal: true, ..opening() }];
    let children = (2..count + 2).map(child).collect();
    let step = StepWrites { branches, children, ..StepWrites::default() };
    let parks = with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), step);
    assert_eq!(commit(&store, 0, parks).await, CommitOutcome::Committed);
    let conn = Connection::open(&path).expect("open");
    (folder, store, conn, me)
}

async fn branch(store: &Handle) -> Branch {
    store.inspect().branches(id(1)).await.expect("branches").remove(0)
}

async fn poll(store: &Handle, now: u64) -> PollReport {
    store.poll_branches(at(now), 9).await.expect("poll")
}

async fn epoch(store: &Handle, n: u32) -> Epoch {
    view(store, id(n)).await.epoch
}

async fn end_all(store: &Handle, now: u64, me: WorkerId, claimed: &[ClaimedJob]) {
    let batch: Vec<_> = claimed.iter().map(|job| change(me, job, done("x"))).collect();
    let outcomes = store.commit(at(now), &batch).await.expect("commit");
    assert!(outcomes.iter().all(|outcome| *outcome == CommitOutcome::Committed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_child_is_redelivered_once() {
    let (_folder, store, conn, me) = parked(20).await;
    let lost = conn.execute("delete from windlass_ready where job = ?1", [id(9).as_bytes()]);
    assert_eq!(lost.expect("delete"), 1);
    let running = claim(&store, at(1), &claim_request(me, 2, 3)).await;
    assert_eq!(poll(&store, 10).await.redelivered, 0, "nothing to compare with");
    let polled = poll(&store, 20).await;
    assert_eq!((polled.polled, polled.redelivered, polled.corrected), (1, 1, 0));
    assert_eq!(
        (epoch(&store, 9).await, epoch(&store, 10).await),
        (Epoch(1), Epoch(0)),
        "the others were not redelivered"
    );
    assert_eq!(epoch(&store, 2).await, Epoch(0), "nor those that run");
    for now in [60, 120, 240, 480, 960] {
        assert_eq!(poll(&store, now).await.redelivered, 0);
    }
    let seen = branch(&store).await.poll;
    assert_eq!((seen.redelivered, seen.redelivered_at), (1, Some(t(20))));
    end_all(&store, 961, me, &running).await;
    let rest = claim(&store, at(961), &claim_request(me, 3, 99)).await;
    assert_eq!(rest.len(), 17, "each exists once");
    end_all(&store, 962, me, &rest).await;
    assert_eq!(claim_one(&store, 963, me, 4).await.id, id(1), "and its parent continues");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_redelivers_at_most_one_batch() {
    let (_folder, store, conn, me) = parked(500).await;
    conn.execute("delete from windlass_ready", []).expect("delete");
    let mut redelivered = Vec::new();
    for now in [10, 20, 40, 80, 160] {
        redelivered.push(poll(&store, now).await.redelivered);
    }
    assert_eq!(redelivered, [0, 200, 200, 100, 0]);
    assert_eq!(claim(&store, at(161), &claim_request(me, 2, 999)).await.len(), 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_counts_are_corrected() {
    let (_folder, store, conn, me) = parked(10).await;
    let claimed = claim(&store, at(1), &claim_request(me, 2, 99)).await;
    end_all(&store, 2, me, &claimed[..9]).await;
    conn.execute("update windlass_branches set done = done - 4, failed = failed + 1", []).expect("update");
    end_all(&store, 3, me, &claimed[9..]).await;
    let wrong = BranchCounts { started: 10, done: 6, failed: 1, cancelled: 0 };
    assert_eq!(branch(&store).await.counts, wrong, "so its parent is not woken");
    assert_eq!(poll(&store, 10).await.corrected, 0, "nothing to compare with");
    let polled = poll(&store, 20).await;
    assert_eq!((polled.corrected, polled.notified, polled.next_at), (1, 1, None));
    let right = BranchCounts { started: 10, done: 10, failed: 0, cancelled: 0 };
    assert_eq!(branch(&store).await.counts, right);
    let parent = claim_one(&store, 21, me, 3).await;
    assert_eq!((parent.id, texts(&parent.inbox)), (id(1), vec!["1".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recount_lowers_no_counts_for_deleted_rows() {
    let (_folder, store, conn, me) = parked(4).await;
    let claimed = claim(&store, at(1), &claim_request(me, 2, 99)).await;
    end_all(&store, 2, me, &claimed[..3]).await;
    conn.execute("delete from windlass_jobs where id = ?1", [id(2).as_bytes()]).expect("delete");
    poll(&store, 10).await;
    let polled = poll(&store, 400).await;
    assert_eq!((polled.corrected, polled.notified), (0, 0));
    let seen = branch(&store).await;
    assert_eq!((seen.counts.done, seen.poll.missing), (3, 0), "it was counted when it ended");
    end_all(&store, 401, me, &claimed[3..]).await;
    assert_eq!(claim_one(&store, 402, me, 3).await.id, id(1), "so its parent continues");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_is_notified_of_deleted_children() {
    let (_folder, store, conn, me) = parked(4).await;
    let claimed = claim(&store, at(1), &claim_request(me, 2, 2)).await;
    end_all(&store, 2, me, &claimed).await;
    for n in [4, 5] {
        conn.execute("delete from windlass_ready where job = ?1", [id(n).as_bytes()]).expect("delete");
        conn.execute("delete from windlass_jobs where id = ?1", [id(n).as_bytes()]).expect("delete");
    }
    assert_eq!(poll(&store, 10).await.notified, 0, "nothing to compare with");
    let polled = poll(&store, 400).await;
    assert_eq!((polled.corrected, polled.notified, polled.next_at), (0, 1, None));
    let seen = branch(&store).await;
    assert_eq!((seen.counts.ends(), seen.poll.missing, seen.watch), ((2, 0, 0), 2, None));
    assert_eq!(claim_one(&store, 401, me, 3).await.id, id(1), "it does not wait forever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_notifies_a_parent_whose_watch_is_met() {
    let (_folder, store, conn, me) = parked(2).await;
    let claimed = claim(&store, at(1), &claim_request(me, 2, 99)).await;
    let watch: String =
        conn.query_row("select watch from windlass_branches", [], |row| row.get(0)).expect("watch");
    conn.execute("update windlass_branches set watch = null", []).expect("update");
    end_all(&store, 2, me, &claimed).await;
    conn.execute("update windlass_branches set watch = ?1", [watch]).expect("update");
    assert_eq!(poll(&store, 10).await.notified, 1);
    assert_eq!(claim_one(&store, 11, me, 3).await.id, id(1));
}

/// How many statements a commit that spawns `count` children takes, and the commit that ends them.
async fn child_statements(count: u32) -> [u64; 2] {
    let (_folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let (me, parent) = running_job(&store, 1).await;
    let open = StepWrites { branches: vec![opening()], ..StepWrites::default() };
    apply(&store, 0, with_step(change(me, &parent, Outcome::Next), open)).await;
    let mut last = store.statements();
    let mut statements_sent = || {
        let before = std::mem::replace(&mut last, store.statements());
        last - before
    };
    let step = StepWrites { children: (2..count + 2).map(child).collect(), ..StepWrites::default() };
    apply(&store, 1, with_step(change(me, &after_step(&parent), Outcome::Next), step)).await;
    let spawned = statements_sent();
    let claimed = claim(&store, at(1), &claim_request(me, 2, 2_000)).await;
    statements_sent();
    end_all(&store, 2, me, &claimed).await;
    [spawned, statements_sent()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_a_branch_take_as_few_statements_as_other_jobs() {
    let (one, thousand) = (child_statements(1).await, child_statements(1_000).await);
    assert_eq!(one[0], thousand[0], "however many are spawned");
    assert_eq!(
        one[1], 8,
        "begin, claim, update, read the branch, counts of branch and jobs, what ended, commit"
    );
    assert_eq!(thousand[1], 8 + 999, "one more for each that ends");
}

fn open(path: &Path) -> Handle {
    Arc::new(Sqlite::open(Options::new(path)).expect("open"))
}

/// Prints what a child costs, in microseconds: to spawn, claim and end. On a disk, not in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, which takes long; run it alone, in a release build"]
async fn the_cost_of_a_child() {
    let count: u32 = std::env::var("CHILDREN").map_or(200_000, |count| count.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder.path().join("work.db"));
    let (me, mut parent) = running_job(&store, 1).await;
    let mut spent = [Duration::ZERO; 3];
    for first in (0..count).step_by(1_000) {
        let branches = (first == 0).then(opening).into_iter().collect();
        let children = (first + 2..first + 1_002).map(child).collect();
        let spawning = with_step(
            change(me, &parent, Outcome::Next),
            StepWrites { branches, children, ..StepWrites::default() },
        );
        parent = after_step(&parent);
        let started = Instant::now();
        assert_eq!(commit(&store, 1, spawning).await, CommitOutcome::Committed);
        spent[0] += started.elapsed();
    }
    for number in 2.. {
        let started = Instant::now();
        let claimed = claim(&store, at(2), &claim_request(me, number, 500)).await;
        spent[1] += started.elapsed();
        if claimed.is_empty() {
            break;
        }
        let started = Instant::now();
        end_all(&store, 3, me, &claimed).await;
        spent[2] += started.elapsed();
    }
    assert_eq!(branch(&store).await.counts.done, i64::from(count));
    let [spawn, claim, done] = spent.map(|spent| spent.as_secs_f64() * 1e6 / f64::from(count));
    println!("µs per child: spawn {spawn:.2}, claim {claim:.2}, done {done:.2}");
}

#[tokio::test]
async fn a_lost_child_is_found_although_others_end() {
    let (_folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let conn = Connection::open(&path).expect("open");
    conformance::lost_children::a_lost_child_is_found_although_others_end(store, async |worker, claim| {
        let forget = "delete from windlass_claims where worker = ?1 and number = ?2";
        assert_eq!(conn.execute(forget, [worker.0, claim.0]).expect("deleted"), 1);
    })
    .await;
}
