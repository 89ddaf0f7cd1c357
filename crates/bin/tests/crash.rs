//! Workers that are killed, frozen, or killed by their own jobs, as real processes on both stores.

mod common;

use std::time::{Duration, Instant};

use common::{Place, Worker, until};
use rustix::process::Signal;
use windlass_testpg::Cluster;

/// Runs a test body on both stores, with leases short enough to wait for.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                let place = super::place("sqlite://work.db");
                super::$name(&place);
            })*
        }
        mod postgres {
            $(#[test]
            fn $name() {
                let cluster = super::Cluster::start().expect("PostgreSQL is needed for this test");
                let place = super::place(&cluster.url());
                super::$name(&place);
            })*
        }
    };
}

on_both_stores!(
    a_killed_workers_job_runs_again_at_once,
    a_killed_workers_job_runs_again_after_its_lease,
    a_frozen_worker_wakes_fenced_and_goes_on,
    a_job_that_kills_its_workers_is_poison_and_its_neighbours_are_not,
);

fn place(store: &str) -> Place {
    let place = Place::new();
    place.write("windlass.toml", &format!("store = '{store}'\nlease = '5s'\nbeat = '500ms'\ncrashes = 2\n"));
    place
}

/// Submits a job that notes each of its runs in a file and ends once the file `go` is there; answers its id.
fn submit_waiting(place: &Place) -> String {
    let script =
        "echo run >> runs; while [ ! -e go ] && [ -e windlass.toml ]; do sleep 0.02; done; echo went";
    let input = serde_json::json!({"command": "sh", "args": ["-c", script]}).to_string();
    place.ok(&["submit", "exec", &input]).split_whitespace().next().expect("an id").to_owned()
}

fn runs(place: &Place) -> usize {
    std::fs::read_to_string(place.path("runs")).map_or(0, |text| text.lines().count())
}

fn until_runs(place: &Place, count: usize) {
    until(&format!("{count} runs"), || (runs(place) >= count).then_some(()));
}

fn show(place: &Place, id: &str) -> serde_json::Value {
    place.json(&["show", id, "--json"])
}

fn until_state(place: &Place, id: &str, state: &str) -> serde_json::Value {
    until(&format!("{id} is {state}"), || {
        let job = show(place, id);
        (job["state"] == state).then_some(job)
    })
}

fn kill(mut worker: Worker) {
    worker.child.kill().expect("killed");
    worker.child.wait().expect("dead");
}

/// On one machine nobody waits for the lease: the dead worker's lock file tells.
fn a_killed_workers_job_runs_again_at_once(place: &Place) {
    place.write(
        "windlass.toml",
        &std::fs::read_to_string(place.path("windlass.toml")).expect("there").replace("'5s'", "'10m'"),
    );
    let first = place.worker(&[]);
    let id = submit_waiting(place);
    until_runs(place, 1);
    kill(first);
    let _second = place.worker(&[]);
    until_runs(place, 2);
    place.write("go", "");
    let job = until_state(place, &id, "done");
    assert_eq!((&job["deaths"], &job["attempts"], &job["rev"]), (&1.into(), &0.into(), &1.into()), "{job}");
}

/// From another machine only the lease tells.
fn a_killed_workers_job_runs_again_after_its_lease(place: &Place) {
    let first = place.worker(&[]);
    let id = submit_waiting(place);
    until_runs(place, 1);
    let second = place.worker(&["--queue", "other"]);
    kill(first);
    // As if the file were on another machine.
    forget_dead_beacons(place.dir.path());
    until("the job is handed back", || (show(place, &id)["state"] == "ready").then_some(()));
    drop(second);
    let _third = place.worker(&[]);
    until_runs(place, 2);
    place.write("go", "");
    let job = until_state(place, &id, "done");
    assert_eq!((&job["deaths"], &job["rev"]), (&1.into(), &1.into()), "{job}");
    assert!(job.to_string().contains("was lost"), "{job}");
}

/// Removes lock files that nobody holds, in a folder and the folders in it.
fn forget_dead_beacons(folder: &std::path::Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            forget_dead_beacons(&path);
        } else if path.extension().is_some_and(|end| end == "lock")
            && std::fs::File::open(&path).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Freezes a worker, but not inside a write, which would hold up every other process on a SQLite file.
fn freeze(place: &Place, worker: &Worker) {
    loop {
        worker.signal(Signal::STOP);
        let submit = || place.run(&["submit", "noop", "--queue", "unserved"]);
        let started = Instant::now();
        let ended = submit();
        if ended.code == 0 && started.elapsed() < Duration::from_secs(3) {
            return;
        }
        worker.signal(Signal::CONT);
    }
}

fn a_frozen_worker_wakes_fenced_and_goes_on(place: &Place) {
    let zombie = place.worker(&[]);
    let id = submit_waiting(place);
    until_runs(place, 1);
    freeze(place, &zombie);
    let other = place.worker(&[]);
    until_runs(place, 2);
    place.write("go", "");
    until_state(place, &id, "done");
    // Read anew: what `show` puts together is not of one moment while the job still moves.
    let done = show(place, &id);
    assert_eq!((&done["deaths"], &done["rev"]), (&1.into(), &1.into()), "{done}");
    kill(other);

    zombie.signal(Signal::CONT);
    // It goes on under a new name, and does new work.
    let ended = place.run(&["submit", "noop", "--wait"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(show(place, &id), done, "the zombie wrote nothing");
    zombie.signal(Signal::TERM);
    let (code, said) = zombie.ended();
    assert!(code == 0 && said.contains("fenced"), "{code} {said}");
}

fn a_job_that_kills_its_workers_is_poison_and_its_neighbours_are_not(place: &Place) {
    let killer = serde_json::json!({"command": "sh", "args": ["-c", "kill -9 $PPID"]}).to_string();
    let killer = place.ok(&["submit", "exec", &killer]).split_whitespace().next().expect("an id").to_owned();
    let neighbours: Vec<String> = (0..6)
        .map(|_| {
            place
                .ok(&["submit", "sleep", r#"{"ms": 300}"#])
                .split_whitespace()
                .next()
                .expect("an id")
                .to_owned()
        })
        .collect();
    let mut worker = place.worker(&[]);
    let mut starts = 1;
    let job = until("the killer is poison", || {
        if worker.child.try_wait().expect("known").is_some() {
            worker = place.worker(&[]);
            starts += 1;
        }
        let job = show(place, &killer);
        (job["state"] == "failed").then_some(job)
    });
    assert_eq!((&job["reason"], &job["crashes"]), (&"poison".into(), &2.into()), "{job}");
    assert!((3..10).contains(&starts), "{starts} workers");
    for id in neighbours {
        let job = until("the neighbour is done", || {
            if worker.child.try_wait().expect("known").is_some() {
                worker = place.worker(&[]);
            }
            let job = show(place, &id);
            (job["state"] == "done").then_some(job)
        });
        assert_eq!(job["crashes"], 0, "{job}");
    }
}
