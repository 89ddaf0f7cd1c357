//! Workers: built-in kinds, a graceful stop, the doctor, and programs with kinds of their own.

mod common;

use common::{Sandbox, assert_contains, until};
use rustix::process::Signal;

#[test]
fn exec_runs_a_program_and_returns_its_output_or_failure() {
    let sandbox = Sandbox::new();
    let _worker = sandbox.worker(&[]);
    let exec =
        |input: &str, more: &[&str]| sandbox.run(&[&["submit", "exec", input, "--wait"], more].concat());

    let input = r#"{"command": "sh", "args": ["-c", "cat; echo $GREETING; pwd"], "env": {"GREETING": "hi"}, "cwd": "/", "stdin": "in\n"}"#;
    let ended = exec(input, &[]);
    let output: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(
        (ended.code, &output["code"], &output["stdout"]),
        (0, &0.into(), &"in\nhi\n/\n".into()),
        "{ended:?}"
    );

    let ended = exec(
        r#"{"command": "sh", "args": ["-c", "echo broken >&2; exit 3"]}"#,
        &["--attempts", "1", "--json"],
    );
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(
        (ended.code, &answer["reason"], &answer["failure"]["class"]),
        (1, &"exhausted".into(), &"exit".into())
    );
    assert!(
        answer["error"].as_str().is_some_and(|error| error.contains("exit status: 3: broken")),
        "{answer}"
    );

    let ended = exec(r#"{"command": "no-such-program"}"#, &[]);
    assert!(ended.code == 1 && ended.stderr.contains("was not found on this worker"), "{ended:?}");
    let ended = exec(r#"{"command": "true", "cwd": "/no/such/folder"}"#, &[]);
    assert!(ended.code == 1 && ended.stderr.contains("correct `cwd`"), "{ended:?}");
    let ended = exec(r#"{"comand": "true"}"#, &[]);
    assert!(ended.code == 1 && ended.stderr.contains("unknown field `comand`"), "{ended:?}");
}

#[test]
fn exec_does_not_pass_the_secrets_of_its_worker_on() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["worker"]);
    command.env("WINDLASS_STORE", &sandbox.url).env("WINDLASS_TOKEN", "secret").env("OTHER", "other");
    let _worker = sandbox.start_worker(command);
    let script = r#"echo "${WINDLASS_STORE-none} ${WINDLASS_TOKEN-none} $OTHER""#;
    let input = serde_json::json!({ "command": "sh", "args": ["-c", script] });
    let output = sandbox.json(&["submit", "exec", &input.to_string(), "--wait"]);
    assert_eq!(output["stdout"], "none none other\n");
    // A job may say what its program gets.
    let input =
        serde_json::json!({ "command": "sh", "args": ["-c", script], "env": { "WINDLASS_TOKEN": "own" } });
    let output = sandbox.json(&["submit", "exec", &input.to_string(), "--wait"]);
    assert_eq!(output["stdout"], "none own other\n");
}

#[test]
fn what_ended_and_usual_waits_are_shown() {
    let sandbox = Sandbox::new();
    let _worker = sandbox.worker(&[]);
    assert_contains(&sandbox.ok(&["throughput"]), &["nothing ended in the last 15m"]);
    assert_contains(&sandbox.ok(&["signal-waits"]), &["no wait for a signal has ended"]);
    for key in ["one", "two", "three"] {
        sandbox.ok(&["submit", "sleep", r#"{"ms": 20}"#, "--key", key, "--wait"]);
    }
    let approval = sandbox.submit(&["approval", r#"{"Ask": {"what": "release 2"}}"#]);
    sandbox.until_state(&approval, "waiting");
    sandbox.ok(&["signal", &approval, "approve"]);
    sandbox.until_state(&approval, "done");

    let by_minute = sandbox.json(&["throughput", "--kind", "sleep", "--since", "1h", "--json"]);
    let total = &by_minute["total"];
    assert_eq!((&total["done"], &total["run"]["count"]), (&3.into(), &3.into()), "{by_minute}");
    assert!(total["run"]["p50_seconds"].as_f64().is_some_and(|seconds| seconds > 0.015), "{by_minute}");
    let by_kind = sandbox.ok(&["throughput", "--by", "kind"]);
    assert_contains(&by_kind, &["QUEUE", "WAIT p95", "RUN p95", "default", "approval", "sleep", "total"]);
    assert_contains(&sandbox.ok(&["throughput", "--by", "hour"]), &["FROM (UTC)", "DONE"]);
    assert_contains(&sandbox.ok(&["signal-waits", "--kind", "approval"]), &["SIGNAL", "approve", "p95"]);
    assert_contains(&sandbox.fails(&["throughput", "--by", "year"]), &["use minute, hour or kind"]);
    assert_contains(&sandbox.fails(&["throughput", "--since", "2000d"]), &["longer than 366d"]);
}

#[test]
fn a_program_that_exceeds_its_timeout_is_killed_with_its_child_processes() {
    let sandbox = Sandbox::new();
    let _worker = sandbox.worker(&[]);
    let input = r#"{"command": "sh", "args": ["-c", "sleep 60 & echo $! > child; wait"]}"#;
    let ended = sandbox.run(&["submit", "exec", input, "--wait", "--timeout", "300ms", "--attempts", "1"]);
    assert!(ended.code == 1 && ended.stderr.contains("timeout"), "{ended:?}");
    let pid = std::fs::read_to_string(sandbox.path("child")).expect("started");
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
        (!stat.contains(") Z ")).then_some(())
    };
    until("the child is gone", || alive().is_none().then_some(()));
}

#[test]
fn a_stopping_worker_finishes_running_attempts_and_releases_the_rest() {
    let sandbox = Sandbox::new();
    let script = "echo begun > begun; while [ ! -e go ]; do sleep 0.02; done";
    let input = serde_json::json!({ "command": "sh", "args": ["-c", script] }).to_string();
    let running = sandbox.ok(&["submit", "exec", &input, "--priority", "-10"]);
    sandbox.ok(&["submit", "noop", "--count", "20"]);
    let worker = sandbox.worker(&["--queue", "default=1", "--log", "info"]);
    until("it runs", || sandbox.path("begun").exists().then_some(()));
    worker.signal(Signal::TERM);
    // It stays alive and claims nothing until the running attempt has ended.
    until("the rest is released", || (sandbox.count("ready") == 20).then_some(()));
    sandbox.write("go", "");
    let (code, log) = worker.wait();
    assert_eq!(code, 0, "{log}");
    let answer = sandbox.json(&["show", running.trim(), "--json"]);
    assert_eq!((&answer["state"], &answer["worker_deaths"]), (&"done".into(), &0.into()));
    assert_eq!(sandbox.count("ready"), 20);
    assert_eq!(sandbox.json(&["jobs", "--json", "--state", "ready"])["jobs"][0]["attempts"], 0);
}

#[test]
fn a_second_signal_ends_a_worker_at_once_and_the_job_runs_elsewhere() {
    let sandbox = Sandbox::new();
    let input =
        serde_json::json!({ "command": "sh", "args": ["-c", "[ -e begun ] || { echo > begun; sleep 60; }"] });
    let id = sandbox.ok(&["submit", "exec", &input.to_string()]);
    let mut worker = sandbox.worker(&[]);
    until("it runs", || sandbox.path("begun").exists().then_some(()));
    // Repeatedly: signals that arrive before the first is handled count as one.
    let status = until("it stops", || {
        worker.signal(Signal::INT);
        worker.child.try_wait().expect("waited")
    });
    assert_eq!(status.code(), Some(130));
    let _other = sandbox.worker(&[]);
    let answer = until("it is done", || {
        let answer = sandbox.json(&["show", id.trim(), "--json"]);
        (answer["state"] == "done").then_some(answer)
    });
    assert_eq!(answer["worker_deaths"], 1);
}

#[test]
fn the_doctor_reports_the_backlog_and_the_workers() {
    let sandbox = Sandbox::new();
    assert!(sandbox.ok(&["doctor"]).contains("there is none at sqlite://windlass.db yet"));
    sandbox.ok(&["submit", "noop"]);
    let text = sandbox.ok(&["doctor"]);
    assert_contains(
        &text,
        &[
            "ok    store",
            "ok    durability  journal in WAL",
            "ok    write",
            "ok    disk",
            &format!("ok    schema      version {}", windlass::store::SchemaState::CURRENT.version),
            "ok    clock",
        ],
    );
    assert!(text.contains("warn  workers     none is alive, and 1 job waits"), "{text}");
    assert!(text.contains("ok    backlog     1 ready, the oldest for"), "{text}");
    let _worker = sandbox.worker(&["--name", "smith"]);
    until("it is done", || (sandbox.count("done") == 1).then_some(()));
    assert!(sandbox.ok(&["doctor"]).contains("1 alive (smith)"));
    sandbox.write("broken.db", "this is no database, and long enough to be read as one");
    let ended = sandbox.run(&["doctor", "--store", "sqlite://broken.db", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((ended.code, &answer[0]["verdict"]), (1, &"fail".into()));
}

#[test]
fn a_program_with_kinds_of_its_own_has_the_same_commands() {
    let sandbox = Sandbox::new();
    let built = common::example("windlass-cli", "commands");
    let run = |args: &[&str]| sandbox.finish(sandbox.command_of(&built, args));
    let help = run(&["--help"]).stdout;
    assert!(help.contains("Usage: commands ") && help.contains("doctor") && !help.contains("demo"), "{help}");
    let unknown = run(&["submit", "noop"]);
    assert!(unknown.code == 1 && unknown.stderr.contains("only shout"), "{unknown:?}");
    let worker = sandbox.start_worker(sandbox.command_of(&built, &["worker"]));
    assert!(
        worker.greeting.contains("serves sqlite://commands.db · queues voices=4 · kinds shout"),
        "{}",
        worker.greeting
    );
    let ended = run(&["submit", "shout", r#"{"text": "hello"}"#, "--wait"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "\"HELLO\"\n"), "{ended:?}");
    assert!(run(&["jobs"]).stdout.contains("shout  voices"));
    assert!(run(&["doctor"]).stdout.contains("1 alive"));
    drop(worker);
    let id = run(&["submit", "shout", r#"{"text": "hello"}"#, "--delay", "1h"]).stdout;
    let why = run(&["why", id.trim()]).stdout;
    assert!(why.contains(&format!("`commands cancel {}`", id.trim())), "{why}");
    let ended =
        run(&["schedules", "set", "hourly", "@hourly", "--kind", "shout", "--input", r#"{"text": "a"}"#]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(run(&["schedules", "show", "hourly"]).stdout.contains("queue      voices"));
}

#[test]
fn a_queue_that_a_kind_uses_and_nobody_serves_is_a_warning_at_start_and_in_the_doctor() {
    let sandbox = Sandbox::new();
    let built = common::example("windlass-cli", "commands");
    let start = |queue: &str| sandbox.start_worker(sandbox.command_of(&built, &["worker", "--queue", queue]));
    let doctor = || sandbox.finish(sandbox.command_of(&built, &["doctor"])).stdout;
    let log_of = |worker: common::Worker| {
        worker.signal(Signal::TERM);
        worker.wait().1
    };
    let submitted = sandbox.finish(sandbox.command_of(&built, &["submit", "shout", r#"{"text": "a"}"#]));
    assert_eq!(submitted.code, 0, "{submitted:?}");
    let other = start("other");
    let advice =
        "add `.queue(\"voices\", Pool::slots(4))` to the program, or start a worker with `--queue voices=4`";
    let found = "no live worker serves queue voices, which kind shout uses; 1 job waits in it";
    assert_contains(
        &doctor(),
        &[&format!("warn  unserved    {found}; {advice}"), "`commands jobs --queue voices`"],
    );
    assert_contains(&log_of(other), &["WARN", "no live worker serves this queue", "voices", "shout", advice]);
    let voices = start("voices");
    let helper = start("other");
    assert!(!doctor().contains("unserved"), "another worker serves it: {}", doctor());
    for (queue, worker) in [("other", helper), ("voices", voices)] {
        let log = log_of(worker);
        assert!(!log.contains("no live worker serves"), "{queue}: {log}");
    }
}

/// The settings of a program with kinds of its own are above what its code says, and nothing is opened before its arguments are
/// parsed.
#[test]
fn a_program_with_kinds_of_its_own_opens_the_store_that_its_settings_name() {
    let sandbox = Sandbox::new();
    let built = common::example("windlass-cli", "commands");
    let run = |args: &[&str], env: Option<&str>| {
        let mut command = sandbox.command_of(&built, args);
        env.map(|store| command.env("WINDLASS_STORE", store));
        sandbox.finish(command)
    };
    let files = || {
        let names = std::fs::read_dir(sandbox.dir.path()).expect("listed");
        let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    for args in [&["--help"][..], &["-h"], &["submit", "--help"], &["jobs", "-h"]] {
        let help = run(args, None);
        assert_eq!(help.code, 0, "{help:?}");
        let words = help.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("[env: WINDLASS_STORE] [default: sqlite://commands.db]"), "{words}");
    }
    for (args, code) in [(&["--version"][..], 2), (&["sumbit"], 2), (&["jobs"], 1), (&["submit", "noop"], 1)]
    {
        assert_eq!(run(args, None).code, code, "{args:?}");
    }
    assert!(files().is_empty(), "{:?}", files());

    let submit = ["submit", "shout", r#"{"text": "hello"}"#];
    let submitted_to = |store: &str, args: &[&str], env: Option<&str>| {
        let ended = run(&[&submit, args].concat(), env);
        assert_eq!(ended.code, 0, "{ended:?}");
        let count = run(&["jobs", "--json", "--store", store], None).stdout;
        let count: serde_json::Value = serde_json::from_str(&count).expect("JSON");
        assert_eq!(count["jobs"].as_array().map(Vec::len), Some(1), "{store}");
    };
    submitted_to("sqlite://commands.db", &[], None);
    sandbox.write("windlass.toml", "store = 'sqlite://file.db'\n");
    submitted_to("sqlite://file.db", &[], None);
    submitted_to("sqlite://env.db", &[], Some("sqlite://env.db"));
    submitted_to("sqlite://flag.db", &["--store", "sqlite://flag.db"], Some("sqlite://unused.db"));
    assert!(!sandbox.path("unused.db").exists());
    let worker = sandbox.start_worker(sandbox.command_of(&built, &["worker", "--store", "sqlite://flag.db"]));
    assert!(worker.greeting.contains("serves sqlite://flag.db · queues voices=4"), "{}", worker.greeting);
}
