//! Workers at work: built-in kinds, a graceful stop, and the doctor's eye on them.

mod common;

use common::{Place, until};
use rustix::process::Signal;

#[test]
fn programs_are_run_and_their_ends_told() {
    let place = Place::new();
    let _worker = place.worker(&[]);
    let exec = |input: &str, more: &[&str]| place.run(&[&["submit", "exec", input, "--wait"], more].concat());

    let input = r#"{"command": "sh", "args": ["-c", "cat; echo $GREETING; pwd"], "env": {"GREETING": "hi"}, "cwd": "/", "stdin": "in\n"}"#;
    let ended = exec(input, &[]);
    let output: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(
        (ended.code, &output["code"], &output["stdout"]),
        (0, &0.into(), &"in\nhi\n/\n".into()),
        "{ended:?}"
    );

    let ended = exec(
        r#"{"command": "sh", "args": ["-c", "echo broken >&2; exit 3"]}"#,
        &["--attempts", "1", "--json"],
    );
    let told: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(
        (ended.code, &told["reason"], &told["failure"]["class"]),
        (1, &"exhausted".into(), &"exit".into())
    );
    assert!(told["error"].as_str().is_some_and(|error| error.contains("exit status: 3: broken")), "{told}");

    let ended = exec(r#"{"command": "no-such-program"}"#, &[]);
    assert!(ended.code == 1 && ended.err.contains("was not found on this worker"), "{ended:?}");
    let ended = exec(r#"{"command": "true", "cwd": "/no/such/folder"}"#, &[]);
    assert!(ended.code == 1 && ended.err.contains("correct `cwd`"), "{ended:?}");
    let ended = exec(r#"{"comand": "true"}"#, &[]);
    assert!(ended.code == 1 && ended.err.contains("unknown field `comand`"), "{ended:?}");
}

#[test]
fn a_program_that_outlives_its_time_is_killed_with_its_children() {
    let place = Place::new();
    let _worker = place.worker(&[]);
    let input = r#"{"command": "sh", "args": ["-c", "sleep 60 & echo $! > child; wait"]}"#;
    let ended = place.run(&["submit", "exec", input, "--wait", "--timeout", "300ms", "--attempts", "1"]);
    assert!(ended.code == 1 && ended.err.contains("timeout"), "{ended:?}");
    let pid = std::fs::read_to_string(place.path("child")).expect("started");
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
        (!stat.contains(") Z ")).then_some(())
    };
    until("the child is gone", || alive().is_none().then_some(()));
}

#[test]
fn a_stopping_worker_finishes_what_runs_and_hands_back_the_rest() {
    let place = Place::new();
    let script = "echo begun > begun; while [ ! -e go ]; do sleep 0.02; done";
    let input = serde_json::json!({ "command": "sh", "args": ["-c", script] }).to_string();
    let running = place.ok(&["submit", "exec", &input, "--priority", "-10"]);
    place.ok(&["submit", "noop", "--count", "20"]);
    let worker = place.worker(&["--queue", "default=1", "--log", "info"]);
    until("it runs", || place.path("begun").exists().then_some(()));
    worker.signal(Signal::TERM);
    // It is still there, and takes nothing new, until what runs has ended.
    until("the rest is handed back", || (place.count("ready") == 20).then_some(()));
    place.write("go", "");
    let (code, log) = worker.ended();
    assert_eq!(code, 0, "{log}");
    let told = place.json(&["show", running.trim(), "--json"]);
    assert_eq!((&told["state"], &told["deaths"]), (&"done".into(), &0.into()));
    assert_eq!(place.count("ready"), 20);
    assert_eq!(place.json(&["jobs", "--json", "--state", "ready"])["jobs"][0]["attempts"], 0);
}

#[test]
fn a_second_signal_ends_a_worker_at_once_and_the_job_runs_elsewhere() {
    let place = Place::new();
    let input =
        serde_json::json!({ "command": "sh", "args": ["-c", "[ -e begun ] || { echo > begun; sleep 60; }"] });
    let id = place.ok(&["submit", "exec", &input.to_string()]);
    let mut worker = place.worker(&[]);
    until("it runs", || place.path("begun").exists().then_some(()));
    // Again and again: signals that come before the first was noticed count as one.
    let status = until("it stops", || {
        worker.signal(Signal::INT);
        worker.child.try_wait().expect("waited")
    });
    assert_eq!(status.code(), Some(130));
    let _other = place.worker(&[]);
    let told = until("it is done", || {
        let told = place.json(&["show", id.trim(), "--json"]);
        (told["state"] == "done").then_some(told)
    });
    assert_eq!(told["deaths"], 1);
}

#[test]
fn the_doctor_sees_what_waits_and_who_works() {
    let place = Place::new();
    assert!(place.ok(&["doctor"]).contains("there is none at sqlite://windlass.db yet"));
    place.ok(&["submit", "noop"]);
    let said = place.ok(&["doctor"]);
    for part in [
        "ok    store",
        "ok    durability  journal in WAL",
        "ok    write",
        "ok    disk",
        &format!("ok    schema      version {}", windlass::store::SchemaState::CURRENT.version),
        "ok    clock",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(said.contains("warn  workers     none is alive, and 1 jobs wait"), "{said}");
    assert!(said.contains("ok    backlog     1 ready, the oldest since"), "{said}");
    let _worker = place.worker(&["--name", "smith"]);
    until("it is done", || (place.count("done") == 1).then_some(()));
    assert!(place.ok(&["doctor"]).contains("1 alive (smith)"));
    place.write("broken.db", "this is no database, and long enough to be read as one");
    let ended = place.run(&["doctor", "--store", "sqlite://broken.db", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!((ended.code, &told[0]["verdict"]), (1, &"fail".into()));
}

#[test]
fn a_program_with_kinds_of_its_own_has_the_same_commands() {
    let place = Place::new();
    let built = common::example("windlass-cli", "commands");
    let run = |args: &[&str]| place.end(place.command_of(&built, args));
    let help = run(&["--help"]).out;
    assert!(help.contains("Usage: commands ") && help.contains("doctor") && !help.contains("demo"), "{help}");
    let unknown = run(&["submit", "noop"]);
    assert!(unknown.code == 1 && unknown.err.contains("which serves shout"), "{unknown:?}");
    let worker = place.start(place.command_of(&built, &["worker"]));
    assert!(
        worker.line.contains("serves sqlite://commands.db · queues voices=4 · kinds shout"),
        "{}",
        worker.line
    );
    let ended = run(&["submit", "shout", r#"{"text": "hello"}"#, "--wait"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "\"HELLO\"\n"), "{ended:?}");
    assert!(run(&["jobs"]).out.contains("shout  voices"));
    assert!(run(&["doctor"]).out.contains("1 alive"));
    drop(worker);
    let id = run(&["submit", "shout", r#"{"text": "hello"}"#, "--delay", "1h"]).out;
    let why = run(&["why", id.trim()]).out;
    assert!(why.contains(&format!("`commands cancel {}`", id.trim())), "{why}");
    let ended =
        run(&["schedules", "set", "hourly", "@hourly", "--kind", "shout", "--input", r#"{"text": "a"}"#]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(run(&["schedules", "show", "hourly"]).out.contains("queue      voices"));
}
