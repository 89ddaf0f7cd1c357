//! Parents that grow, workers, and people who cancel and retry, all at once: every end is counted once, and every watch is told
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
/// How often each parent adds children and waits until all have ended.
const ROUNDS: u32 = 5;
const EACH: u32 = 25;

fn queue(n: u32) -> String {
    format!("parents-{n}")
}

fn child(n: u32, branch: BranchNo) -> NewJob {
    NewJob {
        branch_position: Some(Box::new(BranchPosition { branch, spawn: 0, item: n.to_string(), items: 1 })),
        ..job(n)
    }
}

async fn put(store: &Handle, change: Change) {
    assert_eq!(store.commit(None, &[change]).await.expect("commit"), [CommitOutcome::Committed]);
}

/// Claims the parent, once it is woken.
async fn woken(store: &Handle, me: WorkerId, n: u32, number: &mut i64) -> ClaimedJob {
    for _ in 0..6_000 {
        *number += 1;
        let ask = ClaimRequest { queue: queue(n), ..ask(me, *number, 1) };
        if let Some(job) = claim(store, None, &ask).await.pop() {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("parent {n} was not told")
}

/// Opens a branch and then, round by round, adds children and waits until all that were spawned have ended.
async fn parent(store: Handle, me: WorkerId, n: u32) {
    let (mut number, branch) = (i64::from(n) * 100_000, BranchNo(i64::from(n)));
    for round in 0..ROUNDS {
        let job = woken(&store, me, n, &mut number).await;
        let consumed: Vec<i64> = job.inbox.iter().map(|signal| signal.number).collect();
        assert_eq!(consumed.len(), usize::from(round > 0), "one signal for each watch");
        let open = (round == 0).then(|| format!("branch-{n}"));
        let first = n * 10_000 + round * EACH;
        let children = (first..first + EACH).map(|n| child(n, branch)).collect();
        let branches = vec![BranchUpdate { opened_as: open, ..BranchUpdate::new(branch) }];
        let step = StepWrites { branches, children, consumed, ..StepWrites::default() };
        put(&store, with(change(me, &job, Outcome::Next), step)).await;
        let pace = PollInterval { min: Duration::from_millis(20), max: Duration::from_millis(100) };
        let watch = BranchWatch {
            ended: Some(u64::from((round + 1) * EACH)),
            poll_interval: pace,
            ..BranchWatch::default()
        };
        let step = StepWrites {
            branches: vec![BranchUpdate { watch: Some(watch), ..BranchUpdate::new(branch) }],
            ..StepWrites::default()
        };
        put(&store, with(change(me, &further(&job), wait_for(BRANCH_SIGNAL, None)), step)).await;
    }
    let job = woken(&store, me, n, &mut number).await;
    assert_eq!(job.inbox.len(), 1);
    put(&store, change(me, &job, done("x"))).await;
}

/// Ends children, one way or another, until all parents have ended.
async fn work(store: Handle, n: i64, left: Arc<AtomicU32>) {
    let me = WorkerId(n);
    assert!(store.register_worker(None, &new_worker(n)).await.expect("enlist"));
    let mut number = 0;
    while left.load(SeqCst) > 0 {
        number += 1;
        let held = claim(&store, None, &ask(me, number, fastrand::usize(1..20))).await;
        let outcome = |job: &ClaimedJob| match fastrand::u8(..10) {
            0 => failed(Reason::Stopped),
            1 => cancelled(),
            2 if job.rev.0 == 0 => retry(Duration::ZERO, &[]),
            3 => Outcome::Next,
            _ => done("x"),
        };
        let changes: Vec<Change> = held.iter().map(|job| change(me, job, outcome(job))).collect();
        let verdicts = store.commit(None, &changes).await.expect("commit");
        let goes_on = |(change, verdict): &(&Change, &CommitOutcome)| {
            change.outcome == Outcome::Next && **verdict == CommitOutcome::Committed
        };
        let going: Vec<JobId> =
            changes.iter().zip(&verdicts).filter(goes_on).map(|(change, _)| change.job).collect();
        let rest = held.iter().filter(|job| going.contains(&job.id)).map(further);
        let ends: Vec<Change> = rest.map(|job| change(me, &job, done("x"))).collect();
        store.commit(None, &ends).await.expect("commit");
        if held.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Cancels and retries children, fires timers and looks at branches, until all parents have ended.
async fn meddle(store: Handle, left: Arc<AtomicU32>) {
    let any = || id((1 + fastrand::u32(..PARENTS)) * 10_000 + fastrand::u32(..ROUNDS * EACH));
    for n in 0.. {
        if left.load(SeqCst) == 0 {
            break;
        }
        // After a while nobody brings children back, so that all come to an end.
        let act = if n % 2 == 0 && n < 300 { JobAction::Retry } else { cancel(0) };
        let ids: Vec<JobId> = (0..5).map(|_| any()).collect();
        if n < 400 {
            store.control().act_on_jobs(None, &ids, act, &someone()).await.expect("act");
        }
        store.fire_timers(None, 100).await.expect("due");
        let polled = store.poll_branches(None, 3).await.expect("poll");
        assert_eq!((polled.corrected, polled.redelivered), (0, 0), "nothing to mend");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_is_counted_once_and_every_watch_told_once() {
    let options = super::fresh();
    let store: Handle = Arc::new(Postgres::open(options.clone()).await.expect("open"));
    let me = WorkerId(1);
    assert!(store.register_worker(None, &new_worker(1)).await.expect("enlist"));
    let parents: Vec<NewJob> = (1..=PARENTS).map(|n| job_in(n, KIND, &queue(n))).collect();
    store.submit(None, &parents, None).await.expect("submit");
    let left = Arc::new(AtomicU32::new(PARENTS));
    let mut tasks = Vec::new();
    for n in 1..=PARENTS {
        let (store, left) = (store.clone(), left.clone());
        tasks.push(tokio::spawn(async move {
            parent(store, me, n).await;
            left.fetch_sub(1, SeqCst);
        }));
    }
    for n in 2..5 {
        tasks.push(tokio::spawn(work(store.clone(), n, left.clone())));
    }
    for _ in 0..2 {
        tasks.push(tokio::spawn(meddle(store.clone(), left.clone())));
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
    let told = count("select count(*) from signals where name = 'windlass.branch'").await;
    assert_eq!(told, i64::from(PARENTS), "each watch was told once, and all but the last were consumed");
    assert_eq!(count("select count(*) from delivered_signals").await, 0, "nothing is kept of what was told");
}
