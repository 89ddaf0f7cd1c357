//! Commands through a server: the same flags and the same output as on the store, and clear errors where there is no answer.

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    process::Command,
};

use common::{Finished, Sandbox, UNKNOWN_JOB, Worker, assert_contains, until};
use windlass::prelude::*;

/// Starts a server on a free port of this machine. Returns it and its address.
fn serve(sandbox: &Sandbox, args: &[&str]) -> (Worker, String) {
    let mut all = vec!["serve", "--listen", "127.0.0.1:0", "--exec"];
    all.extend(args);
    let server = sandbox.spawn_worker(sandbox.command(&all));
    let address = server.greeting.split("://").nth(2).and_then(|rest| rest.split([',', '\n']).next());
    let address = address.unwrap_or_else(|| panic!("no address: {:?}", server.greeting)).to_owned();
    (server, address)
}

/// Writes the files `password` and `short`, which nobody else may read.
fn write_password(sandbox: &Sandbox) {
    for (name, text) in [("password", "correct horse\n"), ("short", "horse\n")] {
        sandbox.write(name, text);
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(sandbox.path(name), mode).expect("changed");
    }
}

/// A sandbox with a server in front of its store.
struct Pair {
    sandbox: Sandbox,
    url: String,
    _server: Worker,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(Sandbox::new())
    }

    fn with(sandbox: Sandbox) -> Pair {
        let (server, address) = serve(&sandbox, &["--no-work"]);
        Pair { sandbox, url: format!("http://{address}"), _server: server }
    }

    fn local(&self, args: &[&str]) -> Finished {
        self.sandbox.run(args)
    }

    fn remote_command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command(args);
        command.env("WINDLASS_SERVER", &self.url);
        command
    }

    /// Through the server. What names the store, or the server, is the same text.
    fn remote(&self, args: &[&str]) -> Finished {
        let mut finished = self.sandbox.finish(self.remote_command(args));
        for text in [&mut finished.stdout, &mut finished.stderr] {
            *text = text
                .replace(&self.url, "sqlite://windlass.db")
                .replace("the server does", "this program does");
        }
        finished
    }

    /// Runs a command that changes nothing in both ways, and compares what it prints byte by byte, and how it ends.
    #[track_caller]
    fn same(&self, args: &[&str]) -> Finished {
        // Views of branches have the time at which they were read, and other programs write to the disk.
        let changes = ["\"now\": ", "\"free_bytes\": "];
        let is_fixed = |line: &&str| !changes.iter().any(|name| line.trim_start().starts_with(name));
        let line = |finished: &Finished| {
            let lines: Vec<String> = finished.stdout.lines().filter(is_fixed).map(in_seconds).collect();
            (finished.code, lines.join("\n"), finished.stderr.clone())
        };
        let mut last = None;
        // "3s ago" is "4s ago" a moment later: only what is the same before and after can be compared.
        for _ in 0..20 {
            let before = self.local(args);
            let remote = self.remote(args);
            if line(&before) == line(&self.local(args)) {
                assert_eq!(line(&remote), line(&before), "{args:?}");
                return before;
            }
            last = Some((before, remote));
        }
        panic!("{args:?} prints something else each time: {last:?}")
    }
}

/// A line without fractions of seconds, and without the time until the next poll: two commands are never that close together.
fn in_seconds(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    for at in 0..words.len() {
        let digits = words[at].find(|c: char| !c.is_ascii_digit()).unwrap_or(words[at].len());
        let is_fraction = digits > 0 && words[at][digits..].starts_with('.') && words[at].contains('s');
        let is_next_poll = at >= 3 && words[at - 3..at] == ["next", "poll", "in"];
        if is_next_poll {
            words[at] = "";
        } else if is_fraction {
            words[at] = &words[at][..digits];
        }
    }
    words.join(" ")
}

#[test]
fn what_is_read_is_the_same() {
    let pair = Pair::new();
    let sandbox = &pair.sandbox;
    for nothing in [
        &["jobs"][..],
        &["queues"],
        &["limits"],
        &["serial"],
        &["schedules"],
        &["audit"],
        &["tokens", "list"],
        &["users", "list"],
        &["alerts"],
        &["alerts", "rules"],
        &["alerts", "rules", "--json"],
    ] {
        pair.same(nothing);
    }
    sandbox.ok(&["limits", "set", "r", "10", "--per", "1m", "--note", "why not"]);
    let a = sandbox.submit(&[
        "sleep",
        r#"{"ms": 1}"#,
        "--key",
        "a",
        "--tag",
        "red",
        "--options",
        r#"{"x": [1, 0.1]}"#,
    ]);
    let b = sandbox.submit(&["noop", "--delay", "2h", "--queue", "slow", "--unique", "u", "--attempts", "3"]);
    sandbox.submit(&["approval", r#"{"Ask": {"what": "tea", "seconds": 3600}}"#, "--key", "tea"]);
    sandbox.submit(&["noop", "--serial", "s", "--rate", "r", "--parent", "a", "--timeout", "90s"]);
    sandbox.submit(&["noop", "--serial", "s", "--deadline", "9h", "--priority", "-3"]);
    sandbox.ok(&["queues", "pause", "slow", "--by", "ada", "--note", "a rest"]);
    sandbox.ok(&["pause", &b, "--by", "ada"]);
    let set = ["schedules", "set", "nightly", "0 3 * * mon-fri in Europe/Berlin", "--kind", "sleep"];
    sandbox.ok(&[&set[..], &["--input", r#"{"ms": 5}"#, "--serial", "n", "--overlap", "allow"]].concat());
    sandbox.ok(&["schedules", "trigger", "nightly"]);
    sandbox.ok(&[
        "tokens",
        "create",
        "deploy",
        "--role",
        "operator",
        "--kind",
        "noop",
        "--expires-in",
        "90d",
    ]);
    sandbox.ok(&["tokens", "revoke", "deploy"]);
    write_password(sandbox);
    sandbox.ok(&["users", "create", "eve", "--role", "admin", "--password-file", "password"]);
    sandbox.ok(&["users", "create", "bob", "--password-file", "password"]);
    sandbox.ok(&["users", "disable", "bob"]);
    sandbox.ok(&["signal", "tea", "approve", r#"{"by": "ada"}"#]);
    let lists: &[&[&str]] = &[
        &["jobs"],
        &["jobs", "--tag", "red"],
        &["jobs", "--limit", "2", "--kind", "noop"],
        &["jobs", "--state", "scheduled", "--top"],
        &["jobs", "--parent", "a"],
        &["jobs", "--parent", "a", "--kind", "sleep"],
        &["jobs", "--before", UNKNOWN_JOB],
        &["show", "a"],
        &["show", &b],
        &["show", "tea"],
        &["show", "tea", "--all"],
        &["why", "a"],
        &["why", &b],
        &["why", "sleep/a"],
        &["branches", "a"],
        &["branches", "a", "--children"],
        &["queues"],
        &["limits"],
        &["serial"],
        &["serial", "--key", "s"],
        &["serial", "--limit", "1"],
        &["schedules"],
        &["schedules", "show", "nightly"],
        &["audit"],
        &["audit", "--limit", "2"],
        &["audit", "--subject", "slow"],
        &["audit", "--subject", &b],
        &["audit", "--subject", "a"],
        &["tokens", "list"],
        &["users", "list"],
        &["doctor"],
        &["cancel", "--kind", "noop", "--dry-run"],
        &["retry", "--all", "--dry-run"],
        &["fork", "--all", "--dry-run"],
    ];
    for list in lists {
        let ended = pair.same(list);
        assert_eq!(ended.code, 0, "{list:?}: {ended:?}");
        pair.same(&[list, &["--json"][..]].concat());
    }
    pair.same(&["schedules", "next", "@daily", "--after", "2027-01-01T00:00:00Z"]);
    assert_eq!(sandbox.show(&a)["options"], r#"{"x":[1,0.1]}"#);
}

#[test]
fn what_machines_and_workflows_did_is_the_same() {
    let pair = Pair::new();
    let sandbox = &pair.sandbox;
    let worker = sandbox.worker(&["--keep-done", "forever"]);
    let failed = sandbox.submit(&[
        "reminder",
        r#"{"what": "the plants", "seconds": 0, "times": 60}"#,
        "--key",
        "plants",
    ]);
    let machine = sandbox.submit(&["approval", r#"{"Ask": {"what": "tea", "seconds": 3600}}"#]);
    let done = sandbox.submit(&["sleep", r#"{"ms": 1}"#]);
    let broken = sandbox.submit(&["exec", r#"{"command": "false"}"#, "--attempts", "2"]);
    sandbox.until_state(&failed, "failed");
    sandbox.until_state(&machine, "waiting");
    sandbox.ok(&["signal", &machine, "reject", "7"]);
    sandbox.until_state(&machine, "failed");
    sandbox.until_state(&done, "done");
    sandbox.until_state(&broken, "failed");
    // Its ends are reports of a worker too, which change by themselves.
    drop(worker);
    for job in [&failed, &machine, &done, &broken] {
        for command in ["show", "why"] {
            pair.same(&[command, job]);
            pair.same(&[command, job, "--json"]);
        }
    }
    pair.same(&["show", "plants", "--all"]);
    for diagram in [
        &["diagram", "plants"][..],
        &["diagram", &machine],
        &["diagram", "--kind", "reminder"],
        &["diagram", "--kind", "approval"],
    ] {
        assert_eq!(pair.same(diagram).code, 0, "{diagram:?}");
        pair.same(&[diagram, &["--json"][..]].concat());
    }
    pair.same(&["diagram", "plants", "--svg", "-"]);
    pair.same(&["diagram", &machine, "--svg", "-"]);
    pair.same(&["diagram", &done]);
    pair.same(&["diagram", "--kind", "nothing"]);
    let output = pair.remote(&["show", &done]);
    assert_contains(&output.stdout, &["\noutput\n  null\n"]);
}

#[derive(Serialize, Deserialize)]
struct Piece(u64);

impl Task for Piece {
    const KIND: &'static str = "piece";
    type Output = Option<u64>;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<Option<u64>, Failure> {
        match self.0 {
            5 => Err(Failure::stop("piece 5 is broken")),
            7 => Ok(None),
            n => Ok(Some(n)),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Pieces;

impl Workflow for Pieces {
    const KIND: &'static str = "pieces";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.branch("single").spawn_each("piece", 0..10, Piece).await?;
        flow.branch("packed").packed().spawn_each("piece", 0..30, Piece).await?;
        flow.merge(["single", "packed"]).await?;
        Ok(())
    }
}

#[test]
fn branches_and_their_children_are_the_same() {
    let sandbox = Sandbox::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let engine = Engine::builder(&sandbox.url).task::<Piece>().workflow::<Pieces>();
        let engine = engine.queue("default", Pool::slots(8)).start().await.expect("started");
        engine.submit(Pieces).key("orders").await.expect("submitted");
        until("it is blocked", || {
            let branches = sandbox.json(&["branches", "orders", "--json"]);
            let ended = |branch: &serde_json::Value| branch["sealed"] == true && branch["pending"] == 0;
            branches["branches"]
                .as_array()
                .is_some_and(|all| all.len() == 2 && all.iter().all(ended))
                .then_some(())
        });
        engine.stop().await;
    });
    let pair = Pair::with(sandbox);
    for command in [
        &["branches", "orders"][..],
        &["branches", "orders", "--branch", "packed"],
        &["branches", "orders", "--children"],
        &["branches", "orders", "--children", "--only", "failed", "--limit", "1"],
        &["branches", "orders", "--children", "--only", "done", "--branch", "packed", "--limit", "3"],
        &["jobs"],
        &["jobs", "--parent", "orders"],
        &["jobs", "--parent", "orders", "--branch", "packed"],
        &["show", "orders"],
        &["show", "orders$single$piece_5"],
        &["show", "orders$packed$piece_7"],
        &["why", "orders"],
        &["why", "orders$packed$piece_3"],
        &["diagram", "orders"],
        &["doctor"],
    ] {
        assert_eq!(pair.same(command).code, 0, "{command:?}");
        pair.same(&[command, &["--json"][..]].concat());
    }
    for refused in [
        &["show", "orders$packed$piece_99"][..],
        &["show", "orders$other$piece_1"],
        &["branches", "orders", "--branch", "other"],
        &["cancel", "orders$packed$piece_3"],
        &["branches", "orders", "--children", "--after", "x"],
    ] {
        assert_eq!(pair.same(refused).code, 1, "{refused:?}");
    }
    let redriven = pair.remote(&["redrive", "orders", "--json"]);
    assert_contains(&redriven.stdout, &["\"retried\": 2", "\"interrupted\": false"]);
}

/// Replaces ids by their order, and ages by one word, so that what two stores print can be compared.
fn anonymous(finished: &Finished, ids: &mut Vec<String>) -> (i32, String, String) {
    let mut text = |text: &str| {
        let words = text.split_inclusive([' ', '\n', '"', '`', ',']).map(|piece| {
            let word = piece.trim_end_matches([' ', '\n', '"', '`', ',', ':']);
            let rest = &piece[word.len()..];
            if word.len() == 36 && word.matches('-').count() == 4 {
                let place = ids.iter().position(|id| id == word).unwrap_or_else(|| {
                    ids.push(word.to_owned());
                    ids.len() - 1
                });
                return format!("JOB-{place}{rest}");
            }
            if word.starts_with("windlass_") {
                return format!("TOKEN{rest}");
            }
            if word.len() == 27 && word.ends_with('Z') && word.contains("T") && word.contains('.') {
                return format!("TIME{rest}");
            }
            let digits = word.trim_end_matches(char::is_alphabetic);
            let is_age = digits.len() < word.len() && digits.parse::<f64>().is_ok();
            if is_age { format!("AGE{rest}") } else { piece.to_owned() }
        });
        let text: String = words.collect::<String>().replace("just now", "AGE ago");
        // A shorter age makes a narrower column.
        text.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
            .collect::<String>()
    };
    (finished.code, text(&finished.stdout), text(&finished.stderr))
}

#[test]
fn what_is_done_is_the_same() {
    let (local, remote) = (Sandbox::new(), Pair::new());
    local.ok(&["migrate"]);
    for sandbox in [&local, &remote.sandbox] {
        write_password(sandbox);
    }
    let (mut local_ids, mut remote_ids) = (Vec::new(), Vec::new());
    let commands: &[&[&str]] = &[
        &["submit", "noop", "--key", "a"],
        &["submit", "noop", "--key", "a"],
        &["submit", "noop", "7", "--key", "a"],
        &["submit", "sleep", r#"{"ms": 1}"#, "--key", "b", "--json", "--delay", "1h"],
        &["submit", "noop", "--count", "3", "--queue", "bulk", "--tag", "t"],
        &["submit", "noop", "--count", "2", "--json", "--queue", "bulk"],
        &["submit", "noop", "--unique", "u", "--delay", "1h"],
        &["submit", "noop", "--unique", "u", "--delay", "1h"],
        &["submit", "noop", "--unique", "u", "--delay", "1h", "--on-conflict", "replace"],
        &["submit", "noop", "--unique", "u", "--on-conflict", "reject"],
        &[
            "submit",
            "approval",
            r#"{"Ask": {"what": "tea", "seconds": 9}}"#,
            "--key",
            "tea",
            "--signal",
            "approve=1",
        ],
        &["submit", "resize", "{}", "--any-kind", "--kind-version", "3", "--key", "r"],
        &["submit", "sleep", r#"{"ms": "a"}"#],
        &["submit", "sleep", r#"{"ms": "a"}"#, "--any-kind"],
        &["submit", "resize", "{}"],
        &["submit", "noop", "--kind-version", "7"],
        &["submit", "noop", "--queue", "a b"],
        &["submit", "noop", "--priority", "500"],
        &["submit", "noop", "--parent", "nobody"],
        &["submit", "noop", "--options", "{"],
        &["show", "r", "--json"],
        &["signal", "tea", "go", r#"{"x": 1}"#, "--dedup", "d"],
        &["signal", "tea", "go", "--dedup", "d", "--json"],
        &["signal", "nobody", "go"],
        &["signal", UNKNOWN_JOB, "go"],
        &["signal", "--drop", "tea", "1", "--note", "wrong"],
        &["signal", "--drop", "tea", "99", "--json"],
        &["signal", "--restore", "tea", "2"],
        &["signal", "--drop", UNKNOWN_JOB, "2"],
        &["pause", "a", "b"],
        &["pause", "a", "--json"],
        &["resume", "a"],
        &["resume", "a"],
        &["priority", "-5", "a"],
        &["priority", "500", "a"],
        &["retry", "a"],
        &["cancel", "a", "--note", "no more"],
        &["cancel", "a", "--json"],
        &["cancel", UNKNOWN_JOB, "b"],
        &["cancel", "nobody"],
        &["retry", "a", "b", "--json"],
        &["submit", "noop", "--parent", "a", "--key", "child", "--delay", "1h"],
        &["cancel", "a", "--children"],
        &["cancel", UNKNOWN_JOB, "--children", "--json"],
        &["cancel", "--queue", "bulk"],
        &["cancel", "--queue", "bulk", "--yes"],
        &["cancel", "--queue", "bulk", "--yes"],
        &["retry", "--queue", "bulk", "--yes", "--json", "--rate", "1000"],
        &["priority", "7", "--queue", "bulk", "--yes"],
        &["pause", "--all", "--yes"],
        &["resume", "--all", "--yes", "--json"],
        &["cancel", "--state", "done", "--yes"],
        &["cancel", "--all", "--kind", "noop"],
        &["cancel"],
        &["cancel", "--all", "--yes", "--note", "the end"],
        &["fork", "tea", "--from-beginning", "--new-key", "tea2"],
        &["fork", "tea", "--before", "nothing"],
        &["fork", UNKNOWN_JOB],
        &["fork", "--kind", "approval", "--yes"],
        &["fork", "--kind", "approval", "--yes", "--json"],
        &["fork", "--kind", "approval", "--before-entry", "9", "--yes"],
        &["redrive", "tea"],
        &["redrive", UNKNOWN_JOB],
        &["queues", "pause", "bulk", "--note", "a rest"],
        &["queues", "pause", "bulk"],
        &["queues", "resume", "bulk"],
        &["queues", "resume", "bulk"],
        &["queues", "pause", "a b"],
        &["limits", "set", "api", "10", "--per", "1m", "--burst", "3"],
        &["limits", "set", "api", "10", "--per", "1m", "--burst", "3"],
        &["limits", "set", "api", "0"],
        &["limits", "lift", "api"],
        &["limits", "lift", "nothing"],
        &["serial", "slots", "k", "3"],
        &["serial", "slots", "k", "3"],
        &["serial", "slots", "k", "0"],
        &[
            "schedules",
            "set",
            "s",
            "0 3 1 1 * in Europe/Berlin",
            "--kind",
            "noop",
            "--tag",
            "x",
            "--rate",
            "api",
        ],
        &[
            "schedules",
            "set",
            "s",
            "0 3 1 1 * in Europe/Berlin",
            "--kind",
            "noop",
            "--tag",
            "x",
            "--rate",
            "api",
        ],
        &["schedules", "set", "s", "@daily", "--kind", "sleep"],
        &["schedules", "pause", "s"],
        &["schedules", "resume", "s"],
        &["schedules", "trigger", "s"],
        &["schedules", "trigger", "s"],
        &["schedules", "trigger", "nothing"],
        &["schedules", "show", "nothing"],
        &["schedules", "drop", "s"],
        &["schedules", "drop", "s"],
        &["tokens", "create", "ci", "--role", "operator", "--queue", "bulk"],
        &["tokens", "create", "ci"],
        &["tokens", "create", "boss", "--role", "admin", "--kind", "noop"],
        &["tokens", "revoke", "ci"],
        &["tokens", "revoke", "ci"],
        &["tokens", "revoke", "nobody"],
        &["users", "create", "eve", "--role", "operator", "--password-file", "password", "--note", "new"],
        &["users", "create", "eve", "--password-file", "password"],
        &["users", "create", "bob", "--json", "--password-file", "password"],
        &["users", "create", "two words", "--password-file", "password"],
        &["users", "password", "eve", "--password-file", "password"],
        &["users", "password", "eve", "--password-file", "short"],
        &["users", "role", "eve", "admin"],
        &["users", "role", "eve", "admin"],
        &["users", "log-out", "eve"],
        &["users", "disable", "eve", "--note", "left"],
        &["users", "disable", "eve"],
        &["users", "enable", "eve"],
        &["users", "enable", "nobody"],
        &["alerts", "mute", "failed-jobs", "--for", "2h"],
        &["alerts", "mute", "failed-jobs", "mail", "--note", "known"],
        &["alerts", "mute", "nothing"],
        &["alerts", "mute", "failed-jobs", "--for", "soon"],
        &["alerts", "unmute", "failed-jobs"],
        &["alerts", "unmute", "failed-jobs"],
        &["alerts", "test", "nothing"],
        &["alerts", "test", "failed-jobs"],
        &["prune", "--state", "cancelled", "--older-than", "0s", "--yes"],
        &["prune", "--state", "ready", "--older-than", "1s", "--yes"],
        &["prune", "--state", "failed", "--older-than", "1d", "--yes", "--json"],
        &["show", "nobody"],
        &["show", UNKNOWN_JOB],
        &["why", UNKNOWN_JOB],
        &["branches", UNKNOWN_JOB],
        &["diagram", UNKNOWN_JOB],
        &["jobs", "--parent", UNKNOWN_JOB],
        &["jobs", "--limit", "0"],
        &["jobs", "--state", "asleep"],
        &["check", "--kind", "nothing", "--help"],
    ];
    for command in commands {
        let mut here = local.command(command);
        // The author of what is done through a server without a login.
        here.env("USER", "loopback");
        let here = anonymous(&local.finish(here), &mut local_ids);
        let there = anonymous(&remote.remote(command), &mut remote_ids);
        assert_eq!(there, here, "{command:?}");
    }
    assert!(local_ids.len() > 20, "{local_ids:?}");
}

#[test]
fn a_result_is_waited_for() {
    let pair = Pair::new();
    let _worker = pair.sandbox.worker(&[]);
    let done = pair.remote(&["submit", "exec", r#"{"command": "echo", "args": ["hi"]}"#, "--wait", "--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_contains(&done.stdout, &["\"output\"", "hi", "\"new\": true"]);
    let failed = pair.remote(&["submit", "exec", r#"{"command": "false"}"#, "--attempts", "1", "--wait"]);
    assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{failed:?}");
    assert_contains(&failed.stderr, &["error: the job failed (exhausted)", "windlass show"]);
}

#[test]
fn a_bulk_operation_by_a_server_is_interrupted_by_a_signal() {
    let pair = Pair::new();
    pair.sandbox.ok(&["submit", "noop", "--count", "300", "--delay", "1h"]);
    let mut command = pair.remote_command(&["cancel", "--all", "--yes", "--rate", "10"]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("started");
    until("some are cancelled", || (pair.sandbox.count("cancelled") >= 10).then_some(()));
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signalled");
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    until("the server has stopped too", || {
        pair.sandbox.ok(&["audit"]).contains("bulk cancel ended").then_some(())
    });
    assert!(pair.sandbox.count("scheduled") > 0, "the rest is left alone");
}

#[test]
fn tokens_are_read_from_files_of_ones_own_and_from_the_environment() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["tokens", "create", "ops", "--role", "operator", "--file", "ops.token"]);
    let board = sandbox.ok(&["tokens", "create", "board", "--role", "viewer"]);
    let (_server, address) = serve(&sandbox, &["--no-work", "--login"]);
    let url = format!("http://{address}");
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = sandbox.command(&[args, &["--server", &url]].concat());
        command.envs(variables.iter().copied());
        sandbox.finish(command)
    };
    let refused = |args: &[&str], variables: &[(&str, &str)], parts: &[&str]| {
        let ended = run(args, variables);
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{ended:?}");
        assert_contains(&ended.stderr, parts);
        assert!(!ended.stderr.contains(board.trim()), "{ended:?}");
    };
    refused(&["jobs"], &[], &["asks for a token", "--token-file", "WINDLASS_TOKEN"]);
    assert_eq!(run(&["submit", "noop", "--token-file", "ops.token"], &[]).code, 0);
    let by_name =
        run(&["queues", "pause", "default", "--note", "x"], &[("WINDLASS_TOKEN_FILE", "ops.token")]);
    assert_eq!(by_name.code, 0, "{by_name:?}");
    assert_contains(&sandbox.ok(&["audit"]), &["ops@127.0.0.1"]);
    refused(
        &["queues", "resume", "default", "--by", "ada", "--token-file", "ops.token"],
        &[],
        &["--by", "the name of the token"],
    );
    let viewer = [("WINDLASS_TOKEN", board.trim())];
    assert_eq!(run(&["jobs"], &viewer).code, 0);
    refused(
        &["cancel", "--all", "--yes"],
        &viewer,
        &["the role viewer may not do this; use a token with the role operator or admin"],
    );
    refused(&["tokens", "list"], &viewer, &["the role viewer may not do this"]);
    refused(
        &["jobs"],
        &[("WINDLASS_TOKEN", "windlass_0a_ff")],
        &["does not accept the token: the token is not known here"],
    );
    sandbox.ok(&["tokens", "revoke", "board"]);
    refused(
        &["jobs"],
        &viewer,
        &["does not accept the token: the token was revoked", "windlass tokens create"],
    );
    std::fs::set_permissions(sandbox.path("ops.token"), std::fs::Permissions::from_mode(0o644))
        .expect("changed");
    refused(&["jobs", "--token-file", "ops.token"], &[], &["mode is 0644", "`chmod 600 ops.token`"]);
    let both = [("WINDLASS_TOKEN", "x"), ("WINDLASS_TOKEN_FILE", "ops.token")];
    refused(&["jobs"], &both, &["both", "use one"]);
}

#[test]
fn a_server_is_reached_over_tls_with_its_own_authority() {
    let sandbox = Sandbox::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    sandbox.write("cert.pem", &made.cert.pem());
    sandbox.write_secret("key.pem", &made.signing_key.serialize_pem());
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    sandbox.write("other.pem", &other.cert.pem());
    let (_server, address) =
        serve(&sandbox, &["--no-work", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let port = address.rsplit(':').next().expect("a port");
    let url = format!("https://localhost:{port}");
    let jobs = |ca: &[&str]| sandbox.run(&[&["jobs", "--server", &url], ca].concat());
    assert_eq!(jobs(&["--ca-file", "cert.pem"]).code, 0, "{:?}", jobs(&["--ca-file", "cert.pem"]));
    for (ca, part) in
        [("other.pem", "signed by nobody that is trusted here"), ("key.pem", "no usable certificate")]
    {
        let ended = jobs(&["--ca-file", ca]);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert_contains(&ended.stderr, &[part]);
    }
    let plain = sandbox.fails(&["jobs", "--server", &format!("http://localhost:{port}")]);
    assert_contains(&plain, &["error: "]);
}

/// Answers every request with the same bytes.
fn answers(bytes: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let _ = stream.write_all(bytes.as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn errors_say_what_is_no_server_and_what_is_another_version() {
    let sandbox = Sandbox::new();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a listener").local_addr().expect("an address");
    let page = answers(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\n<p/>",
    );
    let proxy = answers(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    let newer = answers(
        "HTTP/1.1 404 Not Found\r\nWindlass-Version: 9.9.9\r\nContent-Type: application/json\r\nContent-Length: 82\r\n\
         Connection: close\r\n\r\n{\"code\":\"not_found\",\"message\":\"there is no such path\",\"hint\":\"\",\"subject\":\"path\"} ",
    );
    let strange = answers(
        "HTTP/1.1 200 OK\r\nWindlass-Version: 9.9.9\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    );
    let no_http = answers("SSH-2.0-OpenSSH_9.9\r\n\r\n");
    let cases: &[(&str, &[&str])] = &[
        (&format!("http://{closed}"), &["cannot be reached", "check the address, and that the server runs"]),
        (&page, &["is not a Windlass server", "status 200, text/html", "--server"]),
        (&proxy, &["is not a Windlass server", "status 502"]),
        (&newer, &["does not know /v1/jobs", "the server is version 9.9.9", "use one version for both"]),
        (&strange, &["not what this program expects", "9.9.9"]),
        (&no_http, &["does not answer as a web server does"]),
        ("jobs.example", &["no scheme", "https://HOST:PORT"]),
        ("http://jobs.example", &["not encrypted", "allow_http = true", "WINDLASS_ALLOW_HTTP"]),
        ("https://ada:secret@jobs.example", &["a user or a password"]),
    ];
    for (url, parts) in cases {
        let ended = sandbox.run(&["jobs", "--server", url]);
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{url}: {ended:?}");
        assert_contains(&ended.stderr, parts);
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
    let finding = sandbox.run(&["doctor", "--server", &page]);
    assert_eq!(finding.code, 1, "{finding:?}");
    assert_contains(&finding.stdout, &["FAIL  server", "is not a Windlass server"]);
}

#[test]
fn a_server_and_a_store_are_not_used_together() {
    let sandbox = Sandbox::new();
    sandbox.refuses(&[
        (
            &["jobs", "--store", "sqlite://a.db", "--server", "http://localhost:1"],
            &["sqlite://a.db", "http://localhost:1", "use one"],
        ),
        (
            &["migrate", "--server", "http://localhost:1"],
            &["`windlass migrate` works on a store", "give --store"],
        ),
        (&["serve", "--server", "http://localhost:1"], &["`windlass serve` works on a store"]),
        (&["check", "--server", "http://localhost:1"], &["`windlass check` works on a store"]),
        (
            &["retry", "a", "--here", "--server", "http://localhost:1"],
            &["`windlass retry --here` works on a store"],
        ),
        (&["jobs", "--store", "postgres://ada:secret@db/jobs"], &["--store-file", "WINDLASS_STORE"]),
    ]);
    // A flag is above the environment.
    let mut command = sandbox.command(&["submit", "noop", "--store", "sqlite://windlass.db"]);
    command.env("WINDLASS_SERVER", "http://localhost:1");
    assert_eq!(sandbox.finish(command).code, 0);
    sandbox.write("windlass.toml", "server = 'http://localhost:1'\n");
    assert_contains(&sandbox.fails(&["jobs"]), &["http://localhost:1 cannot be reached"]);
}
