//! Parents that spawn, workers, and people who cancel and retry, all at once: every end is counted once, and every watch is notified
//! once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use windlass_model::{
    BranchNo, BranchPosition, BranchUpdate, BranchWatch, Change, ClaimedJob, CommitOutcome, JobId, NewJob,
    Outcome, Reason, StepWrites, WorkerId,
    branch::{BRANCH_SIGNAL, PollInterval},
};
use windlass_store::{ClaimRequest, JobAction, conformance::kit::*, postgres::Postgres};

const PARENTS: u32 = 6;
/// How often each parent spawns children and waits until all have ended.
const SPAWNS: u32 = 5;
const CHILDREN_PER_SPAWN: u32 = 25;

fn queue(n: u32) -> String {
    format!("parents-{n}")
}

fn child(n: u32, branch: BranchNo) -> NewJob {
    NewJob {
        branch_position: Some(Box::new(BranchPosition { branch, spawn: 0, item: n.to_string(), items: 1 })),
        ..job(n)
    }
}

async fn commit_one(store: &Handle, change: Change) {
    assert_eq!(store.commit(None, &[change]).await.expect("commit"), [CommitOutcome::Committed]);
}

/// Claims the parent once it is woken.
async fn claim_woken(store: &Handle, me: WorkerId, n: u32, number: &mut i64) -> ClaimedJob {
    for _ in 0..6_000 {
        *number += 1;
        let request = ClaimRequest { queue: queue(n), ..claim_request(me, *number, 1) };
        if let Some(job) = claim(store, None, &request).await.pop() {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("parent {n} was not notified")
}

/// Opens a branch, and repeatedly spawns children and waits until all have ended.
async fn run_parent(store: Handle, me: WorkerId, n: u32) {
    let (mut number, branch) = (i64::from(n) * 100_000, BranchNo(i64::from(n)));
    for spawn in 0..SPAWNS {
        let job = claim_woken(&store, me, n, &mut number).await;
        let consumed: Vec<i64> = job.inbox.iter().map(|signal| signal.number).collect();
        assert_eq!(consumed.len(), usize::from(spawn > 0), "one signal per watch");
        let open = (spawn == 0).then(|| format!("branch-{n}"));
        let first = n * 10_000 + spawn * CHILDREN_PER_SPAWN;
        let children = (first..first + CHILDREN_PER_SPAWN).map(|n| child(n, branch)).collect();
        let branches = vec![BranchUpdate { opened_as: open, ..BranchUpdate::new(branch) }];
        let step = StepWrites { branches, children, consumed, ..StepWrites::default() };
        commit_one(&store, with_step(change(me, &job, Outcome::Next), step)).await;
        let poll_interval = PollInterval { min: Duration::from_millis(20), max: Duration::from_millis(100) };
        let watch = BranchWatch {
            ended: Some(u64::from((spawn + 1) * CHILDREN_PER_SPAWN)),
            poll_interval,
            ..BranchWatch::default()
        };
        let step = StepWrites {
            branches: vec![BranchUpdate { watch: Some(watch), ..BranchUpdate::new(branch) }],
            ..StepWrites::default()
        };
        commit_one(
            &store,
            with_step(change(me, &after_step(&job), wait_for_signal(BRANCH_SIGNAL, None)), step),
        )
        .await;
    }
    let job = claim_woken(&store, me, n, &mut number).await;
    assert_eq!(job.inbox.len(), 1);
    commit_one(&store, change(me, &job, done("x"))).await;
}

/// Ends children in various ways until all parents have ended.
async fn run_worker(store: Handle, n: i64, left: Arc<AtomicU32>) {
    let me = WorkerId(n);
    assert!(store.register_worker(None, &new_worker(n)).await.expect("register"));
    let mut number = 0;
    while left.load(SeqCst) > 0 {
        number += 1;
        let held = claim(&store, None, &claim_request(me, number, fastrand::usize(1..20))).await;
        let outcome = |job: &ClaimedJob| match fastrand::u8(..10) {
            0 => failed(Reason::Stopped),
            1 => cancelled(),
            2 if job.rev.0 == 0 => retry(Duration::ZERO, &[]),
            3 => Outcome::Next,
            _ => done("x"),
        };
        let changes: Vec<Change> = held.iter().map(|job| change(me, job, outcome(job))).collect();
        let outcomes = store.commit(None, &changes).await.expect("commit");
        let continues = |(change, outcome): &(&Change, &CommitOutcome)| {
            change.outcome == Outcome::Next && **outcome == CommitOutcome::Committed
        };
        let continued: Vec<JobId> =
            changes.iter().zip(&outcomes).filter(continues).map(|(change, _)| change.job).collect();
        let rest = held.iter().filter(|job| continued.contains(&job.id)).map(after_step);
        let ends: Vec<Change> = rest.map(|job| change(me, &job, done("x"))).collect();
        store.commit(None, &ends).await.expect("commit");
        if held.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Cancels and retries children, fires timers and polls branches until all parents have ended.
async fn run_operator(store: Handle, left: Arc<AtomicU32>) {
    let any = || id((1 + fastrand::u32(..PARENTS)) * 10_000 + fastrand::u32(..SPAWNS * CHILDREN_PER_SPAWN));
    for n in 0.. {
        if left.load(SeqCst) == 0 {
            break;
        }
        // Retries stop after a while, so that all children end.
        let action = if n % 2 == 0 && n < 300 { JobAction::Retry } else { cancel(0) };
        let ids: Vec<JobId> = (0..5).map(|_| any()).collect();
        if n < 400 {
            store.control().act_on_jobs(None, &ids, action, &actor()).await.expect("act");
        }
        store.fire_timers(None, 100).await.expect("timers");
        let polled = store.poll_branches(None, 3).await.expect("poll");
        assert_eq!((polled.corrected, polled.redelivered), (0, 0), "nothing to correct");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_is_counted_once_and_every_watch_is_notified_once() {
    let options = super::fresh();
    let store: Handle = Arc::new(Postgres::open(options.clone()).await.expect("open"));
    let me = WorkerId(1);
    assert!(store.register_worker(None, &new_worker(1)).await.expect("register"));
    let parents: Vec<NewJob> = (1..=PARENTS).map(|n| job_in(n, KIND, &queue(n))).collect();
    store.submit(None, &parents, None).await.expect("submit");
    let left = Arc::new(AtomicU32::new(PARENTS));
    let mut tasks = Vec::new();
    for n in 1..=PARENTS {
        let (store, left) = (store.clone(), left.clone());
        tasks.push(tokio::spawn(async move {
            run_parent(store, me, n).await;
            left.fetch_sub(1, SeqCst);
        }));
    }
    for n in 2..5 {
        tasks.push(tokio::spawn(run_worker(store.clone(), n, left.clone())));
    }
    for _ in 0..2 {
        tasks.push(tokio::spawn(run_operator(store.clone(), left.clone())));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    let client = Postgres::client(&options).await.expect("connected");
    let wrong = "select b.number from branches b
         where b.spawned <> (select count(*) from jobs where parent = b.job and branch = b.number)
            or (select (sum(done), sum(failed), sum(cancelled)) from branch_counts where job = b.job and branch = b.number)
               is distinct from
               (select (count(*) filter (where state = 1)::numeric, count(*) filter (where state = 2)::numeric,
                        count(*) filter (where state = 3)::numeric)
                from jobs where parent = b.job and branch = b.number)";
    assert_eq!(client.query(wrong, &[]).await.expect("compared").len(), 0, "sums and rows");
    let count = async |sql: &str| client.query_one(sql, &[]).await.expect("counted").get::<_, i64>(0);
    let notified = count("select count(*) from signals where name = 'windlass.branch'").await;
    assert_eq!(notified, i64::from(PARENTS), "one signal per watch, and all but the last were consumed");
    assert_eq!(count("select count(*) from delivered_signals").await, 0, "notifications are not recorded");
}
