//! Workers that are killed, frozen, or killed by their own jobs: real processes on both stores.

mod common;

use std::time::{Duration, Instant};

use common::{Sandbox, Worker, until};
use rustix::process::Signal;
use windlass_testpg::Cluster;

/// Runs a test body on both stores, with leases that a test can wait for.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                let sandbox = super::with_short_lease("sqlite://work.db");
                super::$name(&sandbox);
            })*
        }
        mod postgres {
            $(#[test]
            fn $name() {
                let cluster = super::Cluster::start().expect("PostgreSQL is needed for this test");
                let sandbox = super::with_short_lease(&cluster.url());
                super::$name(&sandbox);
            })*
        }
    };
}

on_both_stores!(
    a_killed_workers_job_runs_again_at_once,
    a_killed_workers_job_runs_again_after_its_lease,
    a_frozen_worker_is_fenced_when_it_wakes_and_works_again,
    a_job_that_kills_its_workers_is_poison_and_its_neighbours_are_not,
);

fn with_short_lease(store: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(
        "windlass.toml",
        &format!("store = '{store}'\nlease = '5s'\nrenew_every = '500ms'\nmax_crashes = 2\n"),
    );
    sandbox
}

/// Submits a job that appends to a file at each run and ends once the file `go` exists. Returns its id.
fn submit_waiting(sandbox: &Sandbox) -> String {
    let script =
        "echo run >> runs; while [ ! -e go ] && [ -e windlass.toml ]; do sleep 0.02; done; echo went";
    let input = serde_json::json!({"command": "sh", "args": ["-c", script]}).to_string();
    sandbox.submit(&["exec", &input])
}

fn runs(sandbox: &Sandbox) -> usize {
    std::fs::read_to_string(sandbox.path("runs")).map_or(0, |text| text.lines().count())
}

fn until_runs(sandbox: &Sandbox, count: usize) {
    until(&format!("{count} runs"), || (runs(sandbox) >= count).then_some(()));
}

/// On one machine the lock file shows at once that the worker is dead.
fn a_killed_workers_job_runs_again_at_once(sandbox: &Sandbox) {
    sandbox.write(
        "windlass.toml",
        &std::fs::read_to_string(sandbox.path("windlass.toml")).expect("there").replace("'5s'", "'10m'"),
    );
    let first = sandbox.worker(&[]);
    let id = submit_waiting(sandbox);
    until_runs(sandbox, 1);
    first.kill();
    let _second = sandbox.worker(&[]);
    until_runs(sandbox, 2);
    sandbox.write("go", "");
    let job = sandbox.until_state(&id, "done");
    assert_eq!(
        (&job["worker_deaths"], &job["attempts"], &job["rev"]),
        (&1.into(), &0.into(), &1.into()),
        "{job}"
    );
}

/// From another machine only the end of the lease shows it.
fn a_killed_workers_job_runs_again_after_its_lease(sandbox: &Sandbox) {
    let first = sandbox.worker(&[]);
    let id = submit_waiting(sandbox);
    until_runs(sandbox, 1);
    let second = sandbox.worker(&["--queue", "other"]);
    first.kill();
    // As if the file were on another machine.
    remove_lock_files_of_dead_workers(sandbox.dir.path());
    until("the job is ready again", || (sandbox.show(&id)["state"] == "ready").then_some(()));
    drop(second);
    let _third = sandbox.worker(&[]);
    until_runs(sandbox, 2);
    sandbox.write("go", "");
    let job = sandbox.until_state(&id, "done");
    assert_eq!((&job["worker_deaths"], &job["rev"]), (&1.into(), &1.into()), "{job}");
    assert!(job.to_string().contains("was lost"), "{job}");
}

/// Removes lock files that no process holds, in a folder and its subfolders.
fn remove_lock_files_of_dead_workers(folder: &std::path::Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            remove_lock_files_of_dead_workers(&path);
        } else if path.extension().is_some_and(|end| end == "lock")
            && std::fs::File::open(&path).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Freezes a worker, but not inside a write, which would block every other process on a SQLite file.
fn freeze(sandbox: &Sandbox, worker: &Worker) {
    loop {
        worker.signal(Signal::STOP);
        let submit = || sandbox.run(&["submit", "noop", "--queue", "unserved"]);
        let started = Instant::now();
        let ended = submit();
        if ended.code == 0 && started.elapsed() < Duration::from_secs(3) {
            return;
        }
        worker.signal(Signal::CONT);
    }
}

fn a_frozen_worker_is_fenced_when_it_wakes_and_works_again(sandbox: &Sandbox) {
    let zombie = sandbox.worker(&[]);
    let id = submit_waiting(sandbox);
    until_runs(sandbox, 1);
    freeze(sandbox, &zombie);
    let other = sandbox.worker(&[]);
    until_runs(sandbox, 2);
    sandbox.write("go", "");
    sandbox.until_state(&id, "done");
    // Read again: what `show` combines is not from one point in time while the job changes.
    let done = sandbox.show(&id);
    assert_eq!((&done["worker_deaths"], &done["rev"]), (&1.into(), &1.into()), "{done}");
    other.kill();

    zombie.signal(Signal::CONT);
    // It registers as a new worker, and runs new jobs.
    let ended = sandbox.run(&["submit", "noop", "--wait"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(sandbox.show(&id), done, "the zombie wrote nothing");
    zombie.signal(Signal::TERM);
    let (code, log) = zombie.wait();
    assert!(code == 0 && log.contains("fenced"), "{code} {log}");
}

fn a_job_that_kills_its_workers_is_poison_and_its_neighbours_are_not(sandbox: &Sandbox) {
    let killer = serde_json::json!({"command": "sh", "args": ["-c", "kill -9 $PPID"]}).to_string();
    let killer = sandbox.submit(&["exec", &killer]);
    let neighbours: Vec<String> = (0..6).map(|_| sandbox.submit(&["sleep", r#"{"ms": 300}"#])).collect();
    let mut worker = sandbox.spawn_worker(sandbox.command(&["worker"]));
    let mut starts = 1;
    let job = until("the killer is poison", || {
        if worker.child.try_wait().expect("known").is_some() {
            worker = sandbox.spawn_worker(sandbox.command(&["worker"]));
            starts += 1;
        }
        let job = sandbox.show(&killer);
        (job["state"] == "failed").then_some(job)
    });
    assert_eq!((&job["reason"], &job["solo_crashes"]), (&"poison".into(), &2.into()), "{job}");
    assert!((3..10).contains(&starts), "{starts} workers");
    for id in neighbours {
        let job = until("the neighbour is done", || {
            if worker.child.try_wait().expect("known").is_some() {
                worker = sandbox.spawn_worker(sandbox.command(&["worker"]));
            }
            let job = sandbox.show(&id);
            (job["state"] == "done").then_some(job)
        });
        assert_eq!(job["solo_crashes"], 0, "{job}");
    }
}
