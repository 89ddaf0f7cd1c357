//! `windlass serve`, `windlass tokens` and `windlass users`, as processes.

mod common;

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Stdio},
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
    assert_contains(
        &error,
        &[
            "no user or token",
            "windlass users create NAME --role admin",
            "windlass tokens create NAME --role admin",
        ],
    );
    let token =
        sandbox.ok(&["tokens", "create", "deploy", "--role", "operator", "--kind", "noop", "--by", "ada"]);
    let token = token.trim();
    assert!(token.starts_with("windlass_"), "{token}");
    let file = sandbox.path("board.token");
    let path = file.to_str().expect("a path");
    assert_eq!(sandbox.ok(&["tokens", "create", "board", "--file", path, "--expires-in", "90d"]), "");
    let mode = file.metadata().expect("a file").permissions().mode();
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

/// Writes a password into a file that nobody else may read.
fn write_password(sandbox: &Sandbox, name: &str, password: &str) {
    sandbox.write(name, &format!("{password}\n"));
    set_mode(&sandbox.path(name), 0o600);
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
}

#[test]
fn users_are_created_and_changed() {
    let sandbox = Sandbox::new();
    write_password(&sandbox, "first", "correct horse");
    let create = ["users", "create", "eve", "--role", "operator", "--password-file", "first", "--by", "ada"];
    assert_eq!(sandbox.ok(&create), "user eve: created with the role operator\n");
    assert_contains(&sandbox.fails(&create), &["there is a user or a token \"eve\"", "choose another name"]);
    assert_contains(&sandbox.fails(&["tokens", "create", "eve"]), &["choose another name"]);
    let list = sandbox.ok(&["users", "list"]);
    assert_contains(&list, &["NAME", "LAST LOG-IN", "eve", "operator", "enabled", "never", "by ada"]);
    let json = sandbox.json(&["users", "list", "--json"]);
    assert_eq!((&json[0]["name"], &json[0]["role"]), (&json!("eve"), &json!("operator")));
    assert!(!json.to_string().contains("argon2"), "{json}");
    write_password(&sandbox, "second", "battery staple");
    for (change, answer) in [
        (&["password", "eve", "--password-file", "second"][..], "user eve: has another password"),
        (&["role", "eve", "admin"], "user eve: is admin now"),
        (&["role", "eve", "admin"], "user eve: unchanged, the role is admin already"),
        (&["log-out", "eve"], "user eve: unchanged, the user has no session"),
        (&["disable", "eve", "--note", "left"], "user eve: disabled"),
        (&["disable", "eve"], "user eve: unchanged, the user was disabled before"),
        (&["enable", "eve"], "user eve: enabled"),
    ] {
        assert_eq!(sandbox.ok(&[&["users"], change].concat()), format!("{answer}\n"));
    }
    assert_contains(&sandbox.fails(&["users", "disable", "nobody"]), &["no user nobody", "users list"]);
    assert_contains(&sandbox.fails(&["users", "role", "eve", "worker"]), &["viewer, operator or admin"]);
    let audit = sandbox.ok(&["audit", "--subject", "eve"]);
    assert_contains(&audit, &["create user", "set password", "set role admin", "disable user", "left"]);
    // A user is enough to serve others; nobody needs a token.
    let _server = sandbox.spawn_worker(sandbox.command(&["serve", "--listen", "0.0.0.0:0", "--no-work"]));
}

#[test]
fn a_password_comes_from_a_file_of_ones_own_or_from_standard_input() {
    let sandbox = Sandbox::new();
    let from = |file: &str| {
        vec!["users", "create", "eve", "--password-file"]
            .into_iter()
            .map(String::from)
            .chain([file.to_owned()])
            .collect::<Vec<_>>()
    };
    let fails = |file: &str| {
        let args = from(file);
        sandbox.fails(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_contains(&sandbox.fails(&["users", "create", "eve"]), &["no terminal", "--password-file"]);
    assert_contains(&sandbox.fails(&["users", "create", "eve", "--password", "x"]), &["unexpected argument"]);
    assert_contains(&fails("missing"), &["password file missing cannot be read"]);
    for (content, parts) in [
        ("short", ["9 characters", "at least 10"]),
        ("", ["no password", "--password-file"]),
        ("two\nlines", ["several lines", "alone"]),
    ] {
        let content = if content == "short" { "123456789" } else { content };
        write_password(&sandbox, "bad", content);
        let error = fails("bad");
        assert_contains(&error, &parts);
        assert!(content.is_empty() || !error.contains(content), "{error}");
    }
    write_password(&sandbox, "open", "correct horse");
    set_mode(&sandbox.path("open"), 0o644);
    assert_contains(&fails("open"), &["may be read by others", "chmod 600 open"]);
    assert_eq!(sandbox.json(&["users", "list", "--json"]), json!([]));
    let args = from("-");
    let mut command = sandbox.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
    child.stdin.take().expect("piped").write_all("correct horse\n".as_bytes()).expect("written");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(sandbox.json(&["users", "list", "--json"])[0]["role"], "viewer");
}

/// A shell command on a terminal, by `script`.
struct Terminal {
    child: Child,
    seen: String,
}

impl Terminal {
    fn run(sandbox: &Sandbox, shell: &str) -> Terminal {
        let mut command = sandbox.command_of(Path::new("script"), &["-qec", shell, "/dev/null"]);
        let command = command.env("WINDLASS", env!("CARGO_BIN_EXE_windlass")).env("SHELL", "/bin/sh");
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is installed");
        Terminal { child, seen: String::new() }
    }

    /// Reads until the terminal has shown a text, and then types another.
    fn answer(&mut self, question: &str, answer: &str) {
        let shown = self.seen.len();
        let out = self.child.stdout.as_mut().expect("piped");
        while !self.seen[shown..].contains(question) {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).expect("read"), 1, "it ended: {}", self.seen);
            self.seen.push(char::from(byte[0]));
        }
        self.child.stdin.as_mut().expect("piped").write_all(answer.as_bytes()).expect("written");
    }

    /// Waits for the end. Returns the exit code and all that was shown.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut rest).expect("text");
        (self.child.wait().expect("it ends").code(), self.seen + &rest)
    }
}

#[test]
fn a_password_is_asked_for_twice_and_not_shown() {
    let sandbox = Sandbox::new();
    let create = "\"$WINDLASS\" users create eve";
    let mut terminal = Terminal::run(&sandbox, create);
    terminal.answer("password of eve: ", "correct horse\n");
    terminal.answer("the same again: ", "correct hoarse\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(1), "{shown}");
    assert_contains(&shown, &["the two passwords differ; nothing was done"]);
    let mut terminal = Terminal::run(&sandbox, create);
    terminal.answer("password of eve: ", "correct horse\n");
    terminal.answer("the same again: ", "correct horse\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["user eve: created with the role viewer"]);
    assert!(!shown.contains("horse"), "{shown}");
    // Whoever gives up has a terminal that shows what is typed.
    let mut terminal =
        Terminal::run(&sandbox, "trap : INT; \"$WINDLASS\" users password eve; echo code $?; stty -a");
    terminal.answer("password of eve: ", "\u{3}");
    let (_, shown) = terminal.end();
    assert_contains(&shown, &["code 130", " echo "]);
}

#[test]
fn the_address_of_the_dashboard_and_of_a_job_is_printed() {
    let sandbox = Sandbox::new();
    let id = sandbox.submit(&["noop", "--key", "a/b c"]);
    let (_server, address) = start(&sandbox, &["--no-work"]);
    let server = format!("http://{address}");
    assert_eq!(sandbox.ok(&["ui", "--server", &server]), format!("{server}/\n"));
    for name in [id.as_str(), "a/b c", "noop/a/b c"] {
        assert_eq!(sandbox.ok(&["ui", name, "--server", &server]), format!("{server}/jobs/{id}\n"), "{name}");
    }
    let mut by_environment = sandbox.command(&["ui"]);
    by_environment.env("WINDLASS_SERVER", &server);
    assert_eq!(sandbox.finish(by_environment).stdout, format!("{server}/\n"));
    assert_contains(&sandbox.fails(&["ui", "none", "--server", &server]), &["is not a job id", &server]);
}

#[test]
fn a_dashboard_that_does_not_answer_or_asks_for_a_login_is_named() {
    let sandbox = Sandbox::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let error = sandbox.fails(&["ui", "--server", &format!("http://{free}")]);
    assert_contains(&error, &["no dashboard answers", "windlass serve", "windlass demo", "--server"]);
    sandbox.ok(&["tokens", "create", "first", "--role", "admin"]);
    let (_server, address) = start(&sandbox, &["--login", "--no-work"]);
    let server = format!("http://{address}");
    assert_eq!(
        sandbox.ok(&["ui", "noop/a b", "--server", &server]),
        format!("{server}/find?q=noop%2Fa%20b\n"),
        "the browser logs in"
    );
}
