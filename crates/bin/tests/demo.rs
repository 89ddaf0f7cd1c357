//! A small demo: its account must be right, and what it serves must be there.

mod common;

use std::{
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Stdio},
};

use common::{Sandbox, assert_contains, until};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

#[test]
fn a_small_demo_loses_and_duplicates_nothing() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["demo", "--tasks", "600", "--workers", "3", "--exit", "--dir", "files"]);
    let lines: Vec<&str> = ended.stdout.lines().map(str::trim).collect();
    assert_eq!(ended.code, 0, "{}\n{}", ended.stderr, ended.stdout);
    for line in ["600  submitted", "597  done", "3  failed as planned", "0  lost", "0  committed twice"] {
        assert!(lines.contains(&line), "{line:?} is not in\n{}", ended.stdout);
    }
    assert!(ended.stdout.contains("1  zombies fenced"), "{}", ended.stdout);
    assert!(ended.stdout.contains("It adds up: 600 = 597 done + 3 failed as planned"), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("killed (SIGKILL)") && ended.stderr.contains("woken (SIGCONT)"),
        "{}",
        ended.stderr
    );

    // The files stay in the given folder, and are not overwritten.
    assert!(sandbox.path("files/worker-1.record").exists());
    assert!(sandbox.fails(&["demo", "--tasks", "600", "--dir", "files"]).contains("from an earlier demo"));
}

/// A demo that stays, killed at the end of the test.
struct Demo {
    child: Child,
    address: String,
}

impl Demo {
    /// Starts a small one. Returns when it has printed its address.
    fn start(sandbox: &Sandbox, args: &[&str]) -> Demo {
        let small = ["demo", "--tasks", "600", "--workers", "2", "--statements", "3000"];
        let mut command = sandbox.command(&[&small[..], args].concat());
        let file = |name| File::create(sandbox.path(name)).expect("a file");
        command.stdin(Stdio::null()).stdout(file("printed")).stderr(file("noted"));
        let mut child = command.spawn().expect("started");
        let address = until("the demo prints its address", || {
            let printed = printed(sandbox);
            let line = printed.split_inclusive('\n').next().filter(|line| line.ends_with('\n'));
            assert!(line.is_some() || child.try_wait().expect("waited").is_none(), "{}", noted(sandbox));
            Some(line?.strip_prefix("open http://").expect("an address").trim_end().to_owned())
        });
        Demo { child, address }
    }

    /// Asks the server. Returns the status and the body.
    fn get(&self, path: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    fn jobs(&self, conditions: &str) -> Vec<Value> {
        self.get(&format!("/v1/jobs?{conditions}")).1["jobs"].as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What it printed on standard output, and on standard error.
fn printed(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path("printed")).expect("text")
}

fn noted(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path("noted")).expect("text")
}

fn pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("a pid")
}

#[test]
fn a_demo_that_stays_serves_a_bakery_and_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    // If somebody else has this port, it is taken all the same.
    let _taken = TcpListener::bind("127.0.0.1:7077");
    let mut demo = Demo::start(&sandbox, &[]);
    let port: u16 = demo.address.strip_prefix("127.0.0.1:").expect("loopback").parse().expect("a port");
    assert!((7078..7097).contains(&port), "{port}");
    assert_eq!(demo.get("/healthz").0, 200);

    until("there are jobs in every state", || {
        let (status, list) = demo.get("/v1/jobs?limit=1");
        assert_eq!(status, 200, "{list}");
        let states = ["scheduled", "ready", "running", "waiting", "done", "failed", "cancelled"];
        states.iter().all(|state| list["counts"][state].as_u64() > Some(0)).then_some(())
    });
    until("a label of a faulty recipe failed", || {
        Some(()).filter(|()| !demo.jobs("state=failed&kind=print_label").is_empty())
    });
    let (_, queues) = demo.get("/v1/queues");
    let queues = queues["queues"].as_array().or(queues.as_array()).expect("queues");
    let letters = queues.iter().find(|queue| queue["queue"] == "letters" || queue["name"] == "letters");
    assert_contains(&letters.expect("a queue").to_string(), &["tomas", "the printer in the office"]);
    let run = demo.jobs("kind=statement_run").remove(0)["id"].as_str().expect("an id").to_owned();
    until("a branch has spawned more than 1,000 children", || {
        let (_, branches) = demo.get(&format!("/v1/jobs/{run}/branches"));
        Some(()).filter(|()| branches["branches"][0]["spawned"].as_u64() > Some(1_000))
    });
    for stage in ["AwaitPhoto", "AwaitDecision", "Laboratory", "Transfer"] {
        until(&format!("a complaint is in {stage}"), || {
            Some(()).filter(|()| !demo.jobs(&format!("state=waiting&stage={stage}")).is_empty())
        });
    }
    until("a tick was missed because no worker was running", || {
        let (_, schedule) = demo.get("/v1/schedules/oven-temperatures");
        Some(()).filter(|()| schedule.to_string().contains("no worker was running"))
    });
    until("the account is printed", || {
        Some(()).filter(|()| noted(&sandbox).contains("The company works on"))
    });
    assert_contains(&printed(&sandbox), &["It adds up: 600 = 597 done + 3 failed as planned"]);

    let (_, workers) = demo.get("/v1/workers");
    let text = workers.to_string();
    let hosts = ["bakery-a:", "bakery-b:", "office:"];
    let pids: Vec<u32> = hosts
        .iter()
        .map(|host| text.split_once(host).unwrap_or_else(|| panic!("no {host} in {text}")).1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().expect("digits").parse().expect("a pid"))
        .collect();
    kill_process(pid(demo.child.id()), Signal::TERM).expect("signalled");
    let status = until("the demo ends", || demo.child.try_wait().expect("waited"));
    assert!(status.success(), "{status}: {}", noted(&sandbox));
    for worker in pids {
        assert!(test_kill_process(pid(worker)).is_err(), "worker {worker} is left");
    }
    assert!(TcpStream::connect(&demo.address).is_err());
    let left: Vec<String> = std::fs::read_dir(sandbox.dir.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("windlass-demo-"))
        .collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_demo_that_stays_refuses_what_would_reach_others() {
    let sandbox = Sandbox::new();
    sandbox.refuses(&[
        (&["demo", "--listen", "0.0.0.0:7077"], &["others could reach it", "127.0.0.1:7077"]),
        (&["demo", "--listen", "here"], &["write it as 127.0.0.1:7077"]),
        (&["demo", "--exit", "--listen", "127.0.0.1:0"], &["cannot be used with"]),
    ]);
    sandbox.submit(&["noop", "--queue", "mail"]);
    let error = sandbox.fails(&["demo", "--store", &sandbox.url]);
    assert_contains(&error, &["has jobs of the kind \"noop\" in the queue \"mail\"", "a store of its own"]);
}
