//! `windlass serve` and `windlass tokens`, as processes.

mod common;

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use common::{Sandbox, Worker, assert_contains};
use serde_json::{Value, json};

/// Starts a server on a free port. Returns it and its address.
fn start(sandbox: &Sandbox, args: &[&str]) -> (Worker, String) {
    let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
    all.extend(args);
    let server = sandbox.spawn_worker(sandbox.command(&all));
    let address = server.greeting.split("://").nth(2).and_then(|rest| rest.split([',', '\n']).next());
    let address = address.unwrap_or_else(|| panic!("no address: {:?}", server.greeting)).to_owned();
    (server, address)
}

/// Sends a request. Returns the status and the body.
fn send(address: &str, method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let body = body.map(ToString::to_string).unwrap_or_default();
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{token}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn a_job_is_submitted_over_http_and_run_by_the_server() {
    let sandbox = Sandbox::new();
    let (mut server, address) = start(&sandbox, &[]);
    let job = json!({ "kind": "sleep", "input": { "ms": 1 }, "key": "nap" });
    let (status, submitted) = send(&address, "POST", "/v1/jobs", None, Some(&job));
    assert_eq!(status, 201, "{submitted}");
    let (status, result) = send(&address, "GET", "/v1/jobs/nap/result?wait=60s", None, None);
    assert_eq!((status, &result["state"]), (200, &json!("done")), "{result}");
    let shown = sandbox.json(&["show", "nap", "--json"]);
    assert_eq!(shown["id"], submitted["id"], "the command line has the same job");
    assert_eq!(send(&address, "POST", "/v1/queues/default/pause", None, None).0, 200);
    assert_contains(&sandbox.ok(&["audit"]), &["loopback", "pause"]);
    server.signal(rustix::process::Signal::TERM);
    assert!(server.child.wait().expect("it ends").success());
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn others_need_a_token_and_the_secret_is_shown_once() {
    let sandbox = Sandbox::new();
    let error = sandbox.fails(&["serve", "--listen", "0.0.0.0:0"]);
    assert_contains(&error, &["no token", "windlass tokens create NAME --role admin"]);
    let token =
        sandbox.ok(&["tokens", "create", "deploy", "--role", "operator", "--kind", "noop", "--by", "ada"]);
    let token = token.trim();
    assert!(token.starts_with("windlass_"), "{token}");
    let file = sandbox.path("board.token");
    let path = file.to_str().expect("a path");
    assert_eq!(sandbox.ok(&["tokens", "create", "board", "--file", path, "--expires-in", "90d"]), "");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let board = std::fs::read_to_string(&file).expect("a token");
    assert_contains(&sandbox.fails(&["tokens", "create", "other", "--file", path]), &["cannot be created"]);
    let (_server, address) = start(&sandbox, &["--login", "--no-work"]);
    let submit = json!({ "kind": "noop" });
    let post = |token: Option<&str>, job: &Value| send(&address, "POST", "/v1/jobs", token, Some(job)).0;
    assert_eq!(post(None, &submit), 401);
    assert_eq!(post(Some(token), &submit), 201);
    assert_eq!(post(Some(board.trim()), &submit), 403);
    assert_eq!(post(Some(token), &json!({ "kind": "exec" })), 403);
    let listed = sandbox.ok(&["tokens", "list", "--json"]);
    assert!(!listed.contains(token.rsplit('_').next().expect("a secret")), "{listed}");
    assert_contains(
        &sandbox.ok(&["tokens", "list"]),
        &["deploy", "operator", "kinds noop", "board", "by ada"],
    );
    assert_contains(&sandbox.ok(&["tokens", "revoke", "deploy"]), &["revoked"]);
    assert_eq!(post(Some(token), &submit), 401);
    assert_contains(
        &sandbox.fails(&["tokens", "revoke", "nobody"]),
        &["there is no token nobody", "tokens list"],
    );
    assert_contains(&sandbox.fails(&["tokens", "create", "deploy"]), &["choose another name"]);
    assert_contains(&sandbox.ok(&["audit", "--subject", "deploy"]), &["create token", "revoke token", "ada"]);
}

#[test]
fn programs_run_only_where_that_is_allowed() {
    let sandbox = Sandbox::new();
    let marker = sandbox.path("marker");
    let input = json!({ "command": "touch", "args": [marker] }).to_string();
    sandbox.ok(&["submit", "exec", &input, "--key", "one"]);
    sandbox.ok(&["submit", "noop", "--key", "two"]);
    let mut command = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env_remove("WINDLASS_EXEC");
    let mut server = sandbox.spawn_worker(command);
    // The later job runs, and the earlier one does not.
    let address = server.greeting.split("://").nth(2).expect("an address").trim().to_owned();
    assert_eq!(send(&address, "GET", "/v1/jobs/two/result?wait=60s", None, None).1["state"], "done");
    assert_eq!(send(&address, "GET", "/v1/jobs/one/result", None, None).1["state"], "ready");
    assert!(!marker.exists());
    assert_contains(&sandbox.ok(&["why", "one"]), &["knows the kind \"exec\"", "--exec"]);
    server.signal(rustix::process::Signal::TERM);
    server.child.wait().expect("it ends");
    let mut said = String::new();
    server.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_contains(&said, &["start with --exec"]);
    let mut command = sandbox.command(&["worker", "--exec"]);
    command.env_remove("WINDLASS_EXEC");
    let _worker = sandbox.start_worker(command);
    sandbox.ok(&["submit", "exec", &input, "--key", "one", "--wait"]);
    assert!(marker.exists());
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let sandbox = Sandbox::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    sandbox.write("cert.pem", &made.cert.pem());
    sandbox.write("key.pem", &made.signing_key.serialize_pem());
    let error = sandbox.fails(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        "cert.pem",
        "--tls-key",
        "key.pem",
    ]);
    assert_contains(&error, &["key.pem may be read by others", "chmod 600 key.pem"]);
}

#[test]
fn a_server_runs_jobs_with_the_arguments_of_a_worker() {
    let sandbox = Sandbox::new();
    let args = ["--name", "front", "--lease", "9s", "--keep-done", "7d", "--queue", "default=3"];
    let server =
        sandbox.spawn_worker(sandbox.command(&[&["serve", "--listen", "127.0.0.1:0"], &args[..]].concat()));
    let address = server.greeting.split("://").nth(2).expect("an address").trim().to_owned();
    let workers = send(&address, "GET", "/v1/workers", None, None).1;
    assert_eq!(
        (&workers[0]["name"], &workers[0]["serves"][0]["slots"]),
        (&"front".into(), &3.into()),
        "{workers}"
    );
    sandbox.refuses(&[
        (&["serve", "--lease", "1s", "--renew-every", "1s"], &["renew_every"]),
        (&["serve", "--no-work", "--queue", "default"], &["cannot be used with"]),
    ]);
}

#[test]
fn the_address_of_the_store_can_come_from_a_file() {
    let sandbox = Sandbox::new();
    sandbox.write("store.txt", "sqlite://other.db\n");
    assert_contains(
        &sandbox.fails(&["jobs", "--store-file", "store.txt"]),
        &["may be read by others", "chmod 600"],
    );
    sandbox.write_secret("store.txt", "sqlite://other.db\n");
    sandbox.ok(&["submit", "noop", "--store-file", "store.txt"]);
    assert!(sandbox.path("other.db").exists());
    let mut command = sandbox.command(&["jobs"]);
    command.env("WINDLASS_STORE_FILE", "store.txt");
    assert_contains(&sandbox.finish(command).stdout, &["noop"]);
    assert_contains(
        &sandbox.fails(&["jobs", "--store", "sqlite://a.db", "--store-file", "store.txt"]),
        &["both", "use one"],
    );
    assert_contains(&sandbox.fails(&["jobs", "--store-file", "nothing.txt"]), &["nothing.txt"]);
}
