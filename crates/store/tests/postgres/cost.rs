//! What children of branches cost, beside plain jobs. To be read by people, on a quiet machine and with optimisations:
//! `cargo test --release -p windlass-store --test postgres -- --ignored --nocapture what_children_cost`.

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

/// How many of each.
const JOBS: u32 = 200_000;
/// How many go in, are claimed and end at once.
const CHUNK: u32 = 1_000;

const NO: BranchNo = BranchNo(1);

fn new(n: u32) -> NewJob {
    NewJob::new(id(n), KIND, QUEUE, payload("{\"order\":17}"))
}

fn child(n: u32) -> NewJob {
    let twig = BranchPosition { branch: NO, spawn: 0, item: n.to_string(), items: 1 };
    NewJob { branch_position: Some(Box::new(twig)), ..new(n) }
}

/// The processor time that the server and this process have used, in seconds.
fn used(server: u32) -> (f64, f64) {
    let mut used = (0.0, 0.0);
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
            used.1 += time;
        } else if fields[1] == u64::from(server) {
            used.0 += time;
        }
    }
    used
}

/// A stretch of work whose cost is to be said.
struct Stretch {
    server: u32,
    began: Instant,
    used: (f64, f64),
}

impl Stretch {
    fn begin(server: u32) -> Stretch {
        Stretch { server, began: Instant::now(), used: used(server) }
    }

    /// Says what it took for each job.
    fn say(self, what: &str, jobs: u32) {
        let each = |seconds: f64| seconds * 1e6 / f64::from(jobs);
        let (took, now) = (each(self.began.elapsed().as_secs_f64()), used(self.server));
        let (server, client) = (each(now.0 - self.used.0), each(now.1 - self.used.1));
        eprintln!(
            "{what:<20} {took:>6.2} µs each; of the processors {server:>6.2} µs there, {client:>6.2} µs here"
        );
    }
}

async fn end(store: &Handle, me: WorkerId, jobs: &[ClaimedJob]) {
    let ends: Vec<Change> =
        jobs.iter().map(|job| change(me, job, Outcome::Done(Payload::json(b"null".to_vec())))).collect();
    let verdicts = store.commit(None, &ends).await.expect("commit");
    assert!(verdicts.iter().all(|verdict| *verdict == CommitOutcome::Committed));
}

/// Claims and ends all that is ready, and says what that costs.
async fn work(store: &Handle, server: u32, me: WorkerId, first: i64, what: &str) {
    let began = Stretch::begin(server);
    let mut held = Vec::new();
    for number in 0..i64::from(JOBS / CHUNK) {
        let mut next = ask(me, first + number, CHUNK as usize);
        next.settled.extend((number > 0).then(|| windlass_model::ClaimNo(first + number - 1)));
        held.push(claim(store, None, &next).await);
    }
    assert_eq!(held.iter().map(Vec::len).sum::<usize>(), JOBS as usize);
    began.say(&format!("{what}: claim"), JOBS);
    let began = Stretch::begin(server);
    for jobs in &held {
        end(store, me, jobs).await;
    }
    began.say(&format!("{what}: done"), JOBS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long, and is to be read"]
async fn what_children_cost() {
    let cluster = Cluster::builder().start().expect("PostgreSQL");
    let server = cluster.pid().expect("it runs");
    let options = Options::parse(&cluster.url()).expect("an address");
    let store: Handle = Arc::new(Postgres::open(options).await.expect("open"));
    let me = WorkerId(1);
    store.register_worker(None, &new_worker(1)).await.expect("enlist");
    store.submit(None, &[new(1)], None).await.expect("submit");
    let mut parent = claim(&store, None, &ask(me, 1, 1)).await.remove(0);

    for round in 0..2 {
        let first = 1_000_000 * (1 + round * 2);
        let batches: Vec<Vec<NewJob>> =
            (0..JOBS / CHUNK).map(|n| (0..CHUNK).map(|m| new(first + n * CHUNK + m)).collect()).collect();
        let began = Stretch::begin(server);
        for batch in &batches {
            store.submit(None, batch, None).await.expect("submit");
        }
        began.say("plain: submit", JOBS);
        work(&store, server, me, i64::from(first), "plain").await;

        let first = first + 1_000_000;
        let chunks: Vec<Vec<NewJob>> =
            (0..JOBS / CHUNK).map(|n| (0..CHUNK).map(|m| child(first + n * CHUNK + m)).collect()).collect();
        let began = Stretch::begin(server);
        for (n, children) in chunks.into_iter().enumerate() {
            let open = (round == 0 && n == 0).then(|| "all".to_owned());
            let cursor = Some(payload(&n.to_string()));
            let grow = BranchUpdate { opened_as: open, cursor, ..BranchUpdate::new(NO) };
            let step = StepWrites { branches: vec![grow], children, ..StepWrites::default() };
            let grown = with(change(me, &parent, Outcome::Next), step);
            assert_eq!(store.commit(None, &[grown]).await.expect("commit"), [CommitOutcome::Committed]);
            parent = further(&parent);
        }
        began.say("children: spawn", JOBS);
        let watch = BranchWatch { ended: Some(u64::from((round + 1) * JOBS)), ..BranchWatch::default() };
        let step = StepWrites {
            branches: vec![BranchUpdate { watch: Some(watch), ..BranchUpdate::new(NO) }],
            ..StepWrites::default()
        };
        let watched = with(change(me, &parent, Outcome::Next), step);
        assert_eq!(store.commit(None, &[watched]).await.expect("commit"), [CommitOutcome::Committed]);
        parent = further(&parent);
        work(&store, server, me, i64::from(first), "children").await;
        let told = store.inspect().inbox(id(1), 10).await.expect("inbox");
        assert_eq!(told.len(), round as usize + 1, "told once");
    }
}

/// Spawned, claimed and ended at the same time, by one process, and the parent told at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long, and is to be read"]
async fn what_children_cost_together() {
    let cluster = Cluster::builder().start().expect("PostgreSQL");
    let server = cluster.pid().expect("it runs");
    let options = Options::parse(&cluster.url()).expect("an address");
    let store: Handle = Arc::new(Postgres::open(options).await.expect("open"));
    let me = WorkerId(1);
    store.register_worker(None, &new_worker(1)).await.expect("enlist");
    store.submit(None, &[new(1)], None).await.expect("submit");
    let parent = claim(&store, None, &ask(me, 1, 1)).await.remove(0);
    let began = Stretch::begin(server);
    let spawner = tokio::spawn(spawn_all(store.clone(), me, parent));
    let (ended, mut ends) = tokio::sync::mpsc::channel::<Vec<ClaimedJob>>(2);
    let claimer = {
        let store = store.clone();
        tokio::spawn(async move {
            let (mut number, mut claimed) = (2, 0);
            while claimed < TOGETHER {
                let mut next = ask(me, number, CHUNK as usize);
                next.settled.extend((number > 12).then(|| windlass_model::ClaimNo(number - 10)));
                let jobs = claim(&store, None, &next).await;
                (number, claimed) = (number + 1, claimed + jobs.len() as u32);
                if jobs.is_empty() {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                } else {
                    ended.send(jobs).await.expect("someone ends them");
                }
            }
        })
    };
    while let Some(jobs) = ends.recv().await {
        end(&store, me, &jobs).await;
    }
    claimer.await.expect("claimed");
    spawner.await.expect("spawned");
    began.say("all", TOGETHER);
    assert_eq!(store.inspect().inbox(id(1), 10).await.expect("inbox").len(), 1, "told once");
}

/// How many when all is done at once.
const TOGETHER: u32 = 500_000;

async fn spawn_all(store: Handle, me: WorkerId, mut parent: ClaimedJob) {
    for n in 0..TOGETHER / CHUNK {
        let open = (n == 0).then(|| "all".to_owned());
        let grow =
            BranchUpdate { opened_as: open, cursor: Some(payload(&n.to_string())), ..BranchUpdate::new(NO) };
        let children = (0..CHUNK).map(|m| child(1_000_000 + n * CHUNK + m)).collect();
        let step = StepWrites { branches: vec![grow], children, ..StepWrites::default() };
        let grown = with(change(me, &parent, Outcome::Next), step);
        assert_eq!(store.commit(None, &[grown]).await.expect("commit"), [CommitOutcome::Committed]);
        parent = further(&parent);
    }
    let watch = BranchWatch { ended: Some(u64::from(TOGETHER)), ..BranchWatch::default() };
    let step = StepWrites {
        branches: vec![BranchUpdate { seal: true, watch: Some(watch), ..BranchUpdate::new(NO) }],
        ..StepWrites::default()
    };
    let watched = with(change(me, &parent, Outcome::Next), step);
    assert_eq!(store.commit(None, &[watched]).await.expect("commit"), [CommitOutcome::Committed]);
}

/// A branch of a million children that nobody has begun with is counted anew and searched for lost ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long, and is to be read"]
async fn what_a_look_at_many_children_costs() {
    let cluster = Cluster::builder().start().expect("PostgreSQL");
    let server = cluster.pid().expect("it runs");
    let options = Options::parse(&cluster.url()).expect("an address");
    let store: Handle = Arc::new(Postgres::open(options.clone()).await.expect("open"));
    let (me, parent) = running(&store, 1).await;
    let watch = Some(BranchWatch { ended: Some(1_000_000), ..BranchWatch::default() });
    let grow = BranchUpdate { opened_as: Some("all".into()), watch, ..BranchUpdate::new(NO) };
    let children = vec![child(2)];
    let step = StepWrites { branches: vec![grow], children, ..StepWrites::default() };
    commit(&store, 1, with(change(me, &parent, wait_for("go", None)), step)).await;
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
        let began = Stretch::begin(server);
        let polled = store.poll_branches(at(1_000 * (n + 1)), 10).await.expect("poll");
        assert_eq!((polled.polled, polled.redelivered), (1, 0));
        began.say(if n == 0 { "first look" } else { "counted and searched" }, 1_000_000);
    }
}
