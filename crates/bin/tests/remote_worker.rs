//! `windlass worker --server`: workers that know only a server, and servers and workers that are killed, as processes on both stores.

mod common;

use common::{Sandbox, Worker, assert_contains, until};
use serde_json::json;
use windlass_testpg::Cluster;

/// Runs a test body on both stores.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                super::$name(&super::sandbox("sqlite://work.db"));
            })*
        }
        mod postgres {
            $(#[test]
            fn $name() {
                let cluster = super::Cluster::start().expect("PostgreSQL is needed for this test");
                super::$name(&super::sandbox(&cluster.url()));
            })*
        }
    };
}

on_both_stores!(
    a_worker_needs_nothing_but_a_server_and_a_token,
    killed_servers_and_workers_lose_and_repeat_nothing,
);

fn sandbox(store: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let leases = "lease = '2s'\nrenew_every = '200ms'\n";
    sandbox.write("windlass.toml", &format!("store = '{store}'\n{leases}"));
    // Of hosts that do not know the store.
    sandbox.write("elsewhere.toml", &format!("store = 'sqlite://nowhere.db'\n{leases}"));
    sandbox
}

/// Starts a server that runs no jobs. Returns it and its address.
fn serve(sandbox: &Sandbox, listen: &str, more: &[&str]) -> (Worker, String) {
    let mut args = vec!["serve", "--listen", listen, "--no-work"];
    args.extend(more);
    let server = sandbox.spawn_worker(sandbox.command(&args));
    let address = server.greeting.rsplit("http://").next().and_then(|rest| rest.split([',', '\n']).next());
    let address = address.unwrap_or_else(|| panic!("no address: {:?}", server.greeting)).to_owned();
    (server, address)
}

fn worker(sandbox: &Sandbox, server: &str, more: &[&str]) -> Worker {
    let mut args = vec!["--config", "elsewhere.toml", "worker", "--exec", "--server", server];
    args.extend(more);
    sandbox.spawn_worker(sandbox.command(&args))
}

fn a_worker_needs_nothing_but_a_server_and_a_token(sandbox: &Sandbox) {
    sandbox.ok(&["tokens", "create", "box", "--role", "worker", "--file", "box.token"]);
    sandbox.ok(&["tokens", "create", "board", "--role", "viewer", "--file", "board.token"]);
    let (_server, address) = serve(sandbox, "127.0.0.1:0", &["--login"]);
    let url = format!("http://{address}");
    let worker = worker(sandbox, &url, &["--token-file", "box.token", "--name", "box-7"]);
    assert_contains(&worker.greeting, &["box-7", &url, "kinds"]);
    let id = sandbox.submit(&["sleep", "{\"ms\": 1}"]);
    sandbox.until_state(&id, "done");
    let approval =
        sandbox.submit(&["approval", r#"{"Ask": {"what": "tea", "seconds": 3600}}"#, "--key", "tea"]);
    sandbox.until_state(&approval, "waiting");
    assert!(!sandbox.path("nowhere.db").exists());
    let (code, said) = {
        worker.signal(rustix::process::Signal::TERM);
        worker.wait()
    };
    assert_eq!(code, 0, "{said}");

    let refused = |args: &[&str], parts: &[&str]| {
        let mut all = vec!["--config", "elsewhere.toml", "worker"];
        all.extend(args);
        assert_contains(&sandbox.fails(&all), parts);
    };
    refused(&["--server", &url], &["no token"]);
    refused(&["--server", &url, "--token-file", "board.token"], &["the role viewer", "worker"]);
    refused(&["--server", &url, "--token-file", "missing.token"], &["missing.token", "cannot be read"]);
    refused(&["--server", "http://10.9.8.7:7077"], &["https://"]);
    refused(&["--server", "postgres://a/b"], &["is not the address of a server", "--store"]);
}

fn killed_servers_and_workers_lose_and_repeat_nothing(sandbox: &Sandbox) {
    let (mut server, address) = serve(sandbox, "127.0.0.1:0", &[]);
    let url = format!("http://{address}");
    let mut worker_process = worker(sandbox, &url, &[]);
    let input = |n: u32| {
        json!({ "command": "sh", "args": ["-c", format!("echo {n} >> runs; sleep 0.02")] }).to_string()
    };
    let ids: Vec<String> =
        (0..60).map(|n| sandbox.submit(&["exec", &input(n), "--attempts", "20"])).collect();
    for turn in 0..3 {
        until("some jobs run", || {
            let runs = std::fs::read_to_string(sandbox.path("runs")).unwrap_or_default();
            (runs.lines().count() > 5 + 10 * turn).then_some(())
        });
        server.kill();
        (server, _) = serve(sandbox, &address, &[]);
        if turn == 1 {
            // Its jobs run again after its lease: the server judges it.
            worker_process.kill();
            worker_process = worker(sandbox, &url, &[]);
        }
    }
    for id in &ids {
        let job = sandbox.until_state(id, "done");
        assert_eq!(job["rev"], 1, "its outcome was committed once: {job}");
    }
    let runs = std::fs::read_to_string(sandbox.path("runs")).expect("they ran");
    for n in 0..60 {
        assert!(runs.lines().any(|line| line == n.to_string()), "job {n} was never run");
    }
    drop((server, worker_process));
}

/// Two servers of one database are two processes, each with an engine of its own: what one is given, workers of the other run.
#[test]
fn jobs_of_a_server_that_dies_run_in_workers_of_another() {
    const JOBS: u32 = 30;
    let cluster = Cluster::start().expect("PostgreSQL is needed for this test");
    let sandbox = sandbox(&cluster.url());
    sandbox.ok(&["migrate"]);
    let (front, front_address) = serve(&sandbox, "127.0.0.1:0", &[]);
    let (back, back_address) = serve(&sandbox, "127.0.0.1:0", &[]);
    let (front_url, back_url) = (format!("http://{front_address}"), format!("http://{back_address}"));
    let _worker = worker(&sandbox, &back_url, &[]);
    let submit = |n: u32, server: &str| {
        let script = format!("echo {n} >> runs; sleep 0.02");
        let input = json!({ "command": "sh", "args": ["-c", script] }).to_string();
        let args = ["submit", "exec", &input, "--key", &n.to_string(), "--attempts", "20"];
        sandbox.run(&[&["--config", "elsewhere.toml"], &args[..], &["--server", server]].concat())
    };
    let runs = || std::fs::read_to_string(sandbox.path("runs")).unwrap_or_default();
    let until_run = |count: usize| until("some jobs run", || (runs().lines().count() >= count).then_some(()));
    let (through_back, _back) = std::thread::scope(|scope| {
        let submitting = scope.spawn(|| {
            let mut through_back = 0;
            for n in 0..JOBS {
                if through_back > 0 || submit(n, &front_url).code != 0 {
                    // The first server may have submitted it and died before it said so: the key tells.
                    through_back += 1;
                    until("the other server has the job", || (submit(n, &back_url).code == 0).then_some(()));
                }
            }
            through_back
        });
        until_run(5);
        front.kill();
        until_run(12);
        back.kill();
        let (back, _) = serve(&sandbox, &back_address, &[]);
        (submitting.join().expect("no panic"), back)
    });
    assert!(through_back > 0, "the first server died before all jobs were submitted");
    for n in 0..JOBS {
        let job = sandbox.until_state(&n.to_string(), "done");
        assert_eq!(job["rev"], 1, "its outcome was committed once: {job}");
        assert!(runs().lines().any(|line| line == n.to_string()), "job {n} was never run");
    }
    assert_eq!(sandbox.count("done"), u64::from(JOBS), "each was submitted once");
}
