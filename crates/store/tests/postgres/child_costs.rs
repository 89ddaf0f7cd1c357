//! Measures what children of branches cost, compared with plain jobs. People read the results, on a quiet machine:
//! `cargo test --release -p windlass-store --test postgres -- --ignored --nocapture child_costs`.

use std::{sync::Arc, time::Instant};

use windlass_model::{
    BranchNo, BranchPosition, BranchUpdate, BranchWatch, Change, ClaimedJob, CommitOutcome, NewJob, Outcome,
    Payload, StepWrites, WorkerId,
};
use windlass_store::{
    conformance::kit::*,
    postgres::{Options, Postgres},
};
use windlass_testpg::Cluster;

/// How many plain jobs and how many children: enough to run for seconds.
const JOBS: u32 = 200_000;
/// The size of a submit, a claim and a commit.
const CHUNK: u32 = 1_000;

const NO: BranchNo = BranchNo(1);

fn new(n: u32) -> NewJob {
    NewJob::new(id(n), KIND, QUEUE, payload("{\"order\":17}"))
}

fn child(n: u32) -> NewJob {
    let position = BranchPosition { branch: NO, spawn: 0, item: n.to_string(), items: 1 };
    NewJob { branch_position: Some(Box::new(position)), ..new(n) }
}

/// The CPU time that the server and this process have used, in seconds.
fn cpu_time(server: u32) -> (f64, f64) {
    let mut times = (0.0, 0.0);
    for process in std::fs::read_dir("/proc").expect("processes").flatten() {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        let Some((pid, (_, rest))) =
            stat.split_once(' ').and_then(|(pid, rest)| Some((pid, rest.rsplit_once(") ")?)))
        else {
            continue;
        };
        let fields: Vec<u64> = rest.split(' ').map(|field| field.parse().unwrap_or(0)).collect();
        // Ticks are hundredths of a second.
        let time = (fields[11] + fields[12]) as f64 / 100.0;
        if pid.parse() == Ok(std::process::id()) {
            times.1 += time;
        } else if fields[1] == u64::from(server) {
            times.0 += time;
        }
    }
    times
}

/// Measures a piece of work.
struct Meter {
    server: u32,
    started: Instant,
    cpu_time: (f64, f64),
}

impl Meter {
    fn start(server: u32) -> Meter {
        Meter { server, started: Instant::now(), cpu_time: cpu_time(server) }
    }

    /// Prints the cost per job.
    fn print(self, what: &str, jobs: u32) {
        let per_job = |seconds: f64| seconds * 1e6 / f64::from(jobs);
        let (took, now) = (per_job(self.started.elapsed().as_secs_f64()), cpu_time(self.server));
        let (server, client) = (per_job(now.0 - self.cpu_time.0), per_job(now.1 - self.cpu_time.1));
        eprintln!(
            "{what:<20} {took:>6.2} µs per job; CPU time: server {server:>6.2} µs, client {client:>6.2} µs"
        );
    }
}

async fn end(store: &Handle, me: WorkerId, jobs: &[ClaimedJob]) {
    let ends: Vec<Change> =
        jobs.iter().map(|job| change(me, job, Outcome::Done(Payload::json(b"null".to_vec())))).collect();
    let outcomes = store.commit(None, &ends).await.expect("commit");
    assert!(outcomes.iter().all(|outcome| *outcome == CommitOutcome::Committed));
}

/// Claims and ends all ready jobs, and prints the cost.
async fn claim_and_end(store: &Handle, server: u32, me: WorkerId, first: i64, what: &str) {
    let meter = Meter::start(server);
    let mut held = Vec::new();
    for number in 0..i64::from(JOBS / CHUNK) {
        let mut next = claim_request(me, first + number, CHUNK as usize);
        next.settled.extend((number > 0).then(|| windlass_model::ClaimNo(first + number - 1)));
        held.push(claim(store, None, &next).await);
    }
    assert_eq!(held.iter().map(Vec::len).sum::<usize>(), JOBS as usize);
    meter.print(&format!("{what}: claim"), JOBS);
    let meter = Meter::start(server);
    for jobs in &held {
        end(store, me, jobs).await;
    }
    meter.print(&format!("{what}: done"), JOBS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, which takes long"]
async fn plain_jobs_and_children() {
    let cluster = Cluster::builder().start().expect("PostgreSQL");
    let server = cluster.pid().expect("it runs");
    let options = Options::parse(&cluster.url()).expect("an address");
    let store: Handle = Arc::new(Postgres::open(options).await.expect("open"));
    let me = WorkerId(1);
    store.register_worker(None, &new_worker(1)).await.expect("register");
    store.submit(None, &[new(1)], None).await.expect("submit");
    let mut parent = claim(&store, None, &claim_request(me, 1, 1)).await.remove(0);

    for run in 0..2 {
        let first = 1_000_000 * (1 + run * 2);
        let batches: Vec<Vec<NewJob>> =
            (0..JOBS / CHUNK).map(|n| (0..CHUNK).map(|m| new(first + n * CHUNK + m)).collect()).collect();
        let meter = Meter::start(server);
        for batch in &batches {
            store.submit(None, batch, None).await.expect("submit");
        }
        meter.print("plain: submit", JOBS);
        claim_and_end(&store, server, me, i64::from(first), "plain").await;

        let first = first + 1_000_000;
        let chunks: Vec<Vec<NewJob>> =
            (0..JOBS / CHUNK).map(|n| (0..CHUNK).map(|m| child(first + n * CHUNK + m)).collect()).collect();
        let meter = Meter::start(server);
        for (n, children) in chunks.into_iter().enumerate() {
            let open = (run == 0 && n == 0).then(|| "all".to_owned());
            let cursor = Some(payload(&n.to_string()));
            let update = BranchUpdate { opened_as: open, cursor, ..BranchUpdate::new(NO) };
            let step = StepWrites { branches: vec![update], children, ..StepWrites::default() };
            let spawn = with_step(change(me, &parent, Outcome::Next), step);
            assert_eq!(store.commit(None, &[spawn]).await.expect("commit"), [CommitOutcome::Committed]);
            parent = after_step(&parent);
        }
        meter.print("children: spawn", JOBS);
        let watch = BranchWatch { ended: Some(u64::from((run + 1) * JOBS)), ..BranchWatch::default() };
        let step = StepWrites {
            branches: vec![BranchUpdate { watch: Some(watch), ..BranchUpdate::new(NO) }],
            ..StepWrites::default()
        };
        let watched = with_step(change(me, &parent, Outcome::Next), step);
        assert_eq!(store.commit(None, &[watched]).await.expect("commit"), [CommitOutcome::Committed]);
        parent = after_step(&parent);
        claim_and_end(&store, server, me, i64::from(first), "children").await;
        let inbox = store.inspect().inbox(id(1), 10).await.expect("inbox");
        assert_eq!(inbox.len(), run as usize + 1, "notified once");
    }
}

/// One process spawns, claims and ends children at the same time; the parent is notified at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, which takes long"]
async fn children_spawned_and_ended_at_once() {
    let cluster = Cluster::builder().start().expect("PostgreSQL");
    let server = cluster.pid().expect("it runs");
    let options = Options::parse(&cluster.url()).expect("an address");
    let store: Handle = Arc::new(Postgres::open(options).await.expect("open"));
    let me = WorkerId(1);
    store.register_worker(None, &new_worker(1)).await.expect("register");
    store.submit(None, &[new(1)], None).await.expect("submit");
    let parent = claim(&store, None, &claim_request(me, 1, 1)).await.remove(0);
    let meter = Meter::start(server);
    let spawner = tokio::spawn(spawn_all(store.clone(), me, parent));
    let (ended, mut ends) = tokio::sync::mpsc::channel::<Vec<ClaimedJob>>(2);
    let claimer = {
        let store = store.clone();
        tokio::spawn(async move {
            let (mut number, mut claimed) = (2, 0);
            while claimed < CONCURRENT_CHILDREN {
                let mut next = claim_request(me, number, CHUNK as usize);
                next.settled.extend((number > 12).then(|| windlass_model::ClaimNo(number - 10)));
                let jobs = claim(&store, None, &next).await;
                (number, claimed) = (number + 1, claimed + jobs.len() as u32);
                if jobs.is_empty() {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                } else {
                    ended.send(jobs).await.expect("the receiver is open");
                }
            }
        })
    };
    while let Some(jobs) = ends.recv().await {
        end(&store, me, &jobs).await;
    }
    claimer.await.expect("claimed");
    spawner.await.expect("spawned");
    meter.print("all", CONCURRENT_CHILDREN);
    assert_eq!(store.inspect().inbox(id(1), 10).await.expect("inbox").len(), 1, "notified once");
}

/// How many children there are when all happens at once.
const CONCURRENT_CHILDREN: u32 = 500_000;

async fn spawn_all(store: Handle, me: WorkerId, mut parent: ClaimedJob) {
    for n in 0..CONCURRENT_CHILDREN / CHUNK {
        let open = (n == 0).then(|| "all".to_owned());
        let update =
            BranchUpdate { opened_as: open, cursor: Some(payload(&n.to_string())), ..BranchUpdate::new(NO) };
        let children = (0..CHUNK).map(|m| child(1_000_000 + n * CHUNK + m)).collect();
        let step = StepWrites { branches: vec![update], children, ..StepWrites::default() };
        let spawn = with_step(change(me, &parent, Outcome::Next), step);
        assert_eq!(store.commit(None, &[spawn]).await.expect("commit"), [CommitOutcome::Committed]);
        parent = after_step(&parent);
    }
    let watch = BranchWatch { ended: Some(u64::from(CONCURRENT_CHILDREN)), ..BranchWatch::default() };
    let step = StepWrites {
        branches: vec![BranchUpdate { seal: true, watch: Some(watch), ..BranchUpdate::new(NO) }],
        ..StepWrites::default()
    };
    let watched = with_step(change(me, &parent, Outcome::Next), step);
    assert_eq!(store.commit(None, &[watched]).await.expect("commit"), [CommitOutcome::Committed]);
}

/// Polls recount a branch of a million unstarted children, and search it for lost ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, which takes long"]
async fn polling_a_million_children() {
    let cluster = Cluster::builder().start().expect("PostgreSQL");
    let server = cluster.pid().expect("it runs");
    let options = Options::parse(&cluster.url()).expect("an address");
    let store: Handle = Arc::new(Postgres::open(options.clone()).await.expect("open"));
    let (me, parent) = running_job(&store, 1).await;
    let watch = Some(BranchWatch { ended: Some(1_000_000), ..BranchWatch::default() });
    let update = BranchUpdate { opened_as: Some("all".into()), watch, ..BranchUpdate::new(NO) };
    let children = vec![child(2)];
    let step = StepWrites { branches: vec![update], children, ..StepWrites::default() };
    apply(&store, 1, with_step(change(me, &parent, wait_for_signal("go", None)), step)).await;
    let client = Postgres::client(&options).await.expect("connected");
    let fill = "insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, parent, branch,
                                  spawn, item)
         select gen_random_uuid(), submitted_at, due_at + n, lane, kind, priority, codec, digest, input, parent, branch,
                spawn, n::text
         from jobs, generate_series(1, 999999) n where branch is not null;
         insert into ready (lane, rank, job) select lane, due_at, id from jobs where branch is not null
         on conflict do nothing;
         update branches set spawned = 1000000; vacuum analyze";
    for part in fill.split(';') {
        client.batch_execute(part).await.expect("filled");
    }
    for n in 0..3 {
        let meter = Meter::start(server);
        let polled = store.poll_branches(at(1_000 * (n + 1)), 10).await.expect("poll");
        assert_eq!((polled.polled, polled.redelivered), (1, 0));
        meter.print(if n == 0 { "first poll" } else { "recount and search" }, 1_000_000);
    }
}
