//! `windlass alerts` and the messages of a server, as processes: a server that is killed between an alert and its message.

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    sync::mpsc,
};

use common::{Sandbox, Worker, assert_contains, until};
use serde_json::Value;

/// A message that was received, and what it was answered with.
struct Received {
    body: Value,
    headers: String,
    status: u16,
}

/// Receives messages on a port of this machine: refuses the first one, and accepts all others.
fn receive() -> (String, mpsc::Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let (mut headers, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).expect("a header");
                if line.trim().is_empty() {
                    break;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                headers += &line.to_lowercase();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).expect("a body");
            let status = if number == 0 { 500 } else { 200 };
            let answer = format!(
                "HTTP/1.1 {status} X\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            stream.get_mut().write_all(answer.as_bytes()).expect("answered");
            let body = serde_json::from_slice(&body).expect("JSON");
            if sender.send(Received { body, headers, status }).is_err() {
                return;
            }
        }
    });
    (url, received)
}

/// Writes settings with a rule that fires when a job fails, and a webhook.
fn configure(sandbox: &Sandbox, url: &str) {
    let secret = sandbox.path("ops.secret");
    std::fs::write(&secret, "a secret\n").expect("written");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("changed");
    sandbox.write(
        "alerts.toml",
        &format!(
            "[[alerts]]\nname = 'failed'\nwhen = 'failures'\nabove = 0\nwithin = '1h'\nseverity = 'bad'\nwebhook = 'ops'\n\
             [webhooks.ops]\nurl = '{url}'\nsecret_file = 'ops.secret'\n"
        ),
    );
}

/// Starts a server with these settings. Returns it and its address.
fn serve(sandbox: &Sandbox, args: &[&str]) -> (Worker, String) {
    let command = ["serve", "--listen", "127.0.0.1:0", "--config", "alerts.toml"];
    let server = sandbox.spawn_worker(sandbox.command(&[&command, args].concat()));
    let address = server.greeting.split("://").nth(2).and_then(|rest| rest.split([',', '\n']).next());
    let address = address.unwrap_or_else(|| panic!("no address: {:?}", server.greeting)).to_owned();
    (server, address)
}

/// Runs a job that fails.
fn fail(sandbox: &Sandbox) {
    let worker = sandbox.worker(&[]);
    let failing = ["submit", "exec", r#"{"command": "false"}"#, "--attempts", "1", "--wait"];
    assert_eq!(sandbox.run(&failing).code, 1);
    worker.kill();
}

fn messages(sandbox: &Sandbox) -> Vec<Value> {
    let list = sandbox.json(&["jobs", "--kind", "windlass.alert", "--json"]);
    list["jobs"].as_array().expect("a list").clone()
}

#[test]
fn a_message_of_a_server_that_was_killed_is_posted_once() {
    let sandbox = Sandbox::new();
    let (url, received) = receive();
    configure(&sandbox, &url);
    fail(&sandbox);
    // This server records the alert and submits the message. It runs no jobs, and is killed before anybody does.
    let (server, _) = serve(&sandbox, &["--no-work"]);
    let alerts = until("the rule fires", || {
        let alerts = sandbox.json(&["alerts", "--json"]);
        (alerts["alerts"][0]["state"] == "firing").then_some(alerts)
    });
    server.kill();
    assert_eq!(alerts["alerts"][0]["posted"], true, "the message is recorded with the change");
    assert_eq!(messages(&sandbox).len(), 1);
    assert_contains(&sandbox.ok(&["doctor"]), &["windlass.alerts", "[webhooks]"]);
    assert!(received.try_recv().is_err());
    let (_server, _) = serve(&sandbox, &[]);
    let first = received.recv_timeout(std::time::Duration::from_secs(60)).expect("a message");
    let again = received.recv_timeout(std::time::Duration::from_secs(60)).expect("the same again");
    assert_eq!((first.status, again.status), (500, 200));
    assert_eq!(first.body, again.body);
    assert_eq!((&again.body["rule"], &again.body["subject"]), (&Value::from("failed"), &Value::from("exec")));
    assert_contains(
        &again.headers,
        &["windlass-signature: t=", ",v1=", "windlass-delivery: ", "content-type: application/json"],
    );
    let message = until("the message is delivered", || {
        let messages = messages(&sandbox);
        assert_eq!(messages.len(), 1, "{messages:?}");
        (messages[0]["state"] == "done").then(|| messages[0].clone())
    });
    let shown = sandbox.ok(&["show", message["id"].as_str().expect("an id")]);
    assert_contains(&shown, &["500", "127.0.0.1"]);
    assert!(!shown.contains("a secret") && !shown.contains("/hook"), "{shown}");
    assert!(received.try_recv().is_err(), "exactly one was accepted");
}

#[test]
fn a_worker_on_another_host_posts_messages_too() {
    let sandbox = Sandbox::new();
    let (url, received) = receive();
    configure(&sandbox, &url);
    fail(&sandbox);
    let (_server, address) = serve(&sandbox, &["--no-work"]);
    let server = format!("http://{address}");
    let _worker = sandbox.worker(&["--server", &server, "--config", "alerts.toml"]);
    let statuses = [(); 2]
        .map(|()| received.recv_timeout(std::time::Duration::from_secs(60)).expect("a message").status);
    assert_eq!(statuses, [500, 200]);
}

#[test]
fn alerts_are_listed_muted_and_tested() {
    let sandbox = Sandbox::new();
    let (url, received) = receive();
    configure(&sandbox, &url);
    let ok = |args: &[&str]| sandbox.ok(&[args, &["--config", "alerts.toml"]].concat());
    fail(&sandbox);
    assert_contains(&ok(&["alerts"]), &["no alerts, and none lately"]);
    assert_contains(
        &ok(&["alerts", "rules"]),
        &["failed", "bad", "ops", "more than 0 jobs of a kind fail within 1h"],
    );
    assert_contains(
        &sandbox.ok(&["alerts", "rules"]),
        &["queue-behind", "worker-lost", "any schedule missed a tick"],
    );
    assert_contains(
        &ok(&["alerts", "mute", "failed", "exec", "--for", "2h", "--note", "known"]),
        &["failed about exec", "muted for 2h"],
    );
    assert_contains(
        &sandbox.fails(&["alerts", "mute", "nothing"]),
        &["there is no alert rule nothing", "windlass alerts rules"],
    );
    let (_server, address) = serve(&sandbox, &[]);
    until("the rule fires", || ok(&["alerts"]).contains("firing, muted").then_some(()));
    assert_contains(
        &ok(&["alerts", "--open"]),
        &["bad", "failed", "exec", "1 job of kind exec failed", "muted for", "known"],
    );
    assert!(received.try_recv().is_err());
    // The receiver refuses the first message, and the test waits for the second.
    assert_contains(&ok(&["alerts", "test", "failed"]), &["delivered (status 200)"]);
    let states = [received.recv().expect("a message"), received.recv().expect("again")]
        .map(|message| message.body["state"].clone());
    assert_eq!(states, ["test", "test"]);
    assert_contains(
        &sandbox.fails(&["alerts", "test", "queue-behind"]),
        &["names no webhook", "[webhooks.default]"],
    );
    let server = format!("http://{address}");
    let by_server = |args: &[&str]| sandbox.ok(&[args, &["--server", &server]].concat());
    assert_eq!(by_server(&["alerts", "rules", "--json"]), ok(&["alerts", "rules", "--json"]));
    assert_contains(&by_server(&["alerts"]), &["firing, muted", "1 job of kind exec failed"]);
    assert_contains(&by_server(&["alerts", "unmute", "failed", "exec"]), &["unmuted"]);
    assert_contains(&by_server(&["alerts", "unmute", "failed", "exec"]), &["unchanged, it is not muted"]);
    assert_contains(&by_server(&["alerts", "test", "failed"]), &["delivered (status 200)"]);
    assert_contains(&sandbox.ok(&["audit"]), &["mute alert", "unmute alert", "test alert", "failed/exec"]);
}

#[test]
fn settings_that_cannot_be_meant_are_refused_at_the_start() {
    let sandbox = Sandbox::new();
    sandbox.write("alerts.toml", "[[alerts]]\nname = 'r'\nwhen = 'failure'\n");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--config", "alerts.toml"];
    assert_contains(&sandbox.fails(&serve), &["alerts.toml", "did you mean \"failures\"?"]);
    sandbox
        .write("alerts.toml", "[webhooks.ops]\nurl = 'https://hooks.example/x'\nsecret_file = 'nothing'\n");
    assert_contains(&sandbox.fails(&serve), &["webhooks.ops", "nothing cannot be read"]);
    sandbox.write("open.secret", "known");
    let path = sandbox.path("open.secret");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).expect("changed");
    sandbox.write(
        "alerts.toml",
        "[webhooks.ops]\nurl = 'https://hooks.example/x'\nsecret_file = 'open.secret'\n",
    );
    assert_contains(&sandbox.fails(&serve), &["may be read by others", "chmod 600"]);
    assert_contains(&sandbox.fails(&["worker", "--config", "alerts.toml"]), &["may be read by others"]);
}
