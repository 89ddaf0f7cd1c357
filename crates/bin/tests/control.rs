//! What people do to jobs, queues, limits and schedules, through the binary.

mod common;

use common::{Sandbox, UNKNOWN_JOB, assert_commands_exist, assert_contains, until};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn why_names_the_cause_and_hints_at_commands_that_exist() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["limits", "set", "api", "1", "--per", "1h"]);
    let first = sandbox.submit(&["noop", "--serial", "user 9"]);
    let second = sandbox.submit(&["noop", "--serial", "user 9", "--rate", "api"]);
    let later = sandbox.submit(&["noop", "--delay", "1h", "--queue", "slow"]);
    let gone = sandbox.submit(&["noop"]);
    sandbox.ok(&["cancel", &gone, "--note", "not needed", "--by", "ada"]);
    sandbox.ok(&["pause", &first, "--by", "ada", "--note", "db down"]);
    sandbox.ok(&["queues", "pause", "slow", "--by", "bob"]);
    let expected = [
        (&first, "paused", "It was paused by ada at "),
        (&second, "no_worker", "No worker is running"),
        (&later, "scheduled", "It is due at "),
        (&gone, "cancelled", "It was cancelled at "),
    ];
    for (id, cause, because) in expected {
        let answer = sandbox.json(&["why", id, "--json"]);
        assert_eq!(answer["cause"], cause, "{answer}");
        assert!(answer["because"].as_str().is_some_and(|text| text.starts_with(because)), "{answer}");
        let page = sandbox.ok(&["why", id]);
        let also = answer["also"].as_array().map_or(0, Vec::len);
        assert_eq!(page.lines().count(), 2 + also, "{page}");
        assert_commands_exist(&sandbox, answer["hint"].as_str().expect("a hint"));
    }
    assert!(sandbox.ok(&["why", &later]).contains("Also: Its queue \"slow\" was paused by bob at "));
    assert!(sandbox.ok(&["why", &gone]).contains(" by ada: not needed.\n"));
    // It got the slot when the other was paused; another waits now.
    let third = sandbox.submit(&["noop", "--serial", "user 9"]);
    let answer = sandbox.json(&["why", &third, "--json"]);
    assert!(answer["also"].to_string().contains("run one at a time: job"), "{answer}");
    assert!(sandbox.fails(&["why", UNKNOWN_JOB]).contains("there is no job"));
}

#[tokio::test]
async fn an_arrival_is_known_before_it_is_admitted() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["migrate"]);
    let path = sandbox.path("windlass.db");
    let engine = windlass::Engine::open(&format!("sqlite://{}", path.display())).await.expect("opened");
    let mut file = windlass::store::rusqlite::Connection::open(&path).expect("opened");
    let tx = file.transaction().expect("begun");
    let job = engine.submit_json("noop", 1, Value::Null).in_sqlite(&tx).expect("appended");
    tx.commit().expect("committed");
    let id = job.id().to_string();
    let answer = sandbox.json(&["why", &id, "--json"]);
    assert_eq!((&answer["cause"], &answer["state"]), (&"arriving".into(), &Value::Null));
    assert!(sandbox.fails(&["show", &id]).contains("no worker has admitted it yet"));
    let _worker = sandbox.worker(&[]);
    until("it is done", || (sandbox.count("done") == 1).then_some(()));
    assert_eq!(sandbox.json(&["why", &id, "--json"])["cause"], "done");
}

#[test]
fn jobs_are_paused_resumed_reordered_cancelled_and_retried() {
    let sandbox = Sandbox::new();
    let (one, two) = (sandbox.submit(&["noop"]), sandbox.submit(&["noop"]));
    let ids = [one.as_str(), two.as_str()];
    assert_eq!(
        sandbox.ok(&[&["pause"], &ids[..], &["--by", "ada"]].concat()),
        format!("{one} paused\n{two} paused\n")
    );
    let again = sandbox.ok(&["pause", &one, &one]);
    assert_eq!(again, format!("{one} unchanged: it was paused by ada before\n"));
    assert!(sandbox.ok(&["show", &one]).contains("paused     by ada "));
    sandbox.ok(&["resume", &one, &two]);
    assert!(sandbox.ok(&["resume", &one]).contains("it is not paused"));
    assert_eq!(sandbox.ok(&["priority", "-7", &one]), format!("{one} reordered\n"));
    assert!(sandbox.ok(&["show", &one]).contains("priority -7"));

    assert_eq!(sandbox.ok(&["cancel", &one]), format!("{one} cancelled\n"));
    assert!(sandbox.ok(&["cancel", &one]).contains("unchanged: it is cancelled already"), "it is as wanted");
    assert!(sandbox.ok(&["show", &one]).contains("state      cancelled: cancelled by "));
    assert_eq!(sandbox.ok(&["retry", &one]), format!("{one} retried\n"));
    assert_eq!(sandbox.state(&one), "ready");
    assert!(sandbox.ok(&["retry", &one]).contains("it is ready and has not ended"));

    let answer = sandbox.run(&["cancel", &one, UNKNOWN_JOB, "--json"]);
    let answer: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    assert_eq!(
        (&answer[0]["outcome"], &answer[1]["outcome"], &answer[1]["job"]),
        (&"done".into(), &"unknown".into(), &UNKNOWN_JOB.into())
    );
    sandbox.refuses(&[
        (&["cancel", UNKNOWN_JOB], &["is not in sqlite://windlass.db", "`windlass jobs`"]),
        (&["cancel", "abc"], &["not a job id"]),
        (&["pause", &one], &["cannot be paused: it is cancelled; retry it first"]),
        (&["priority", "500", &two], &["from -100"]),
        (&["cancel"], &["no jobs are given", "--all"]),
        (&["cancel", &one, "--kind", "noop"], &["both jobs and filters"]),
        (&["cancel", &one, "--dry-run"], &["--dry-run", "work with filters only"]),
        (&["cancel", &one, "--grace", "soon"], &["15s, 500ms"]),
        (&["cancel", "--kind", "noop", "--children"], &["--children needs named jobs"]),
        (&["cancel", &one, "--store", "sqlite://elsewhere.db"], &["there is no store"]),
    ]);
}

#[test]
fn a_job_is_retried_here_and_nothing_else_runs() {
    let sandbox = Sandbox::new();
    let (one, two) = (sandbox.submit(&["noop"]), sandbox.submit(&["noop"]));
    let fails = sandbox.submit(&["exec", r#"{"command": "false"}"#, "--attempts", "1"]);
    sandbox.ok(&["cancel", &one, &fails]);
    assert_eq!(sandbox.ok(&["retry", &one, "--here", "--by", "ada", "--note", "again"]), "null\n");
    assert_eq!((sandbox.state(&one).as_str(), sandbox.state(&two).as_str()), ("done", "ready"));
    let audit = sandbox.ok(&["audit", "--json"]);
    assert!(audit.contains("\"ada\"") && audit.contains("\"again\""), "{audit}");
    let failed = sandbox.run(&["retry", &fails, "--here", "--json"]);
    let answer: Value = serde_json::from_str(&failed.stdout).expect("JSON");
    assert_eq!((failed.code, &answer["id"]), (1, &fails.as_str().into()), "{answer}");
    assert!(answer["failure"].is_object() && sandbox.state(&fails) == "failed", "{answer}");
    let mut command = sandbox.command(&["retry", &fails, "--here"]);
    command.env_remove("WINDLASS_EXEC");
    let refused = sandbox.finish(command);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert_contains(&refused.stderr, &["exec jobs are not run here", "--exec"]);
    sandbox.refuses(&[
        (&["retry", "--here"], &["--here", "it runs one job"]),
        (&["retry", &one, &two, "--here"], &["it runs one job"]),
        (&["retry", &one, "--here", "--kind", "noop"], &["leave them out"]),
        (&["retry", &one, "--here"], &["cannot be retried", "it is done"]),
        (&["retry", UNKNOWN_JOB, "--here"], &["there is no job"]),
    ]);
}

#[test]
fn a_running_job_is_cancelled_and_a_done_one_stays_done() {
    let sandbox = Sandbox::new();
    let _worker = sandbox.worker(&["--keep-done", "forever"]);
    let long = sandbox.submit(&["sleep", r#"{"ms": 60000}"#]);
    until("it runs", || (sandbox.state(&long) == "running").then_some(()));
    assert!(sandbox.ok(&["why", &long]).starts_with("It has been running on worker "));
    let text = sandbox.ok(&["cancel", &long, "--grace", "50ms", "--by", "ada"]);
    assert_eq!(text, format!("{long} is running; its cancel is requested\n"));
    until("it ends", || (sandbox.state(&long) == "cancelled").then_some(()));
    let done = sandbox.submit(&["noop"]);
    until("it is done", || (sandbox.state(&done) == "done").then_some(()));
    sandbox.refuses(&[
        (&["retry", &done], &["cannot be retried: it is done; submit a new job"]),
        (&["pause", &done], &["which is final"]),
        (&["retry", "--state", "done", "--yes"], &["done jobs cannot be retried", "failed, cancelled"]),
    ]);
    // It has ended, but not as wanted.
    let ended = sandbox.run(&["cancel", &done]);
    assert_eq!((ended.code, ended.stdout), (1, format!("{done} unchanged: it is done already\n")));
}

#[test]
fn a_bulk_operation_has_a_preview_and_a_report() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["submit", "noop", "--count", "13", "--tag", "red"]);
    sandbox.ok(&["submit", "noop", "--count", "2", "--queue", "mail"]);
    let preview = sandbox.ok(&["cancel", "--tag", "red", "--dry-run"]);
    assert!(preview.starts_with("13 jobs to cancel:\n\nID "), "{preview}");
    assert!(preview.ends_with("… and 3 more\n") && preview.matches("  ready  ").count() == 10, "{preview}");
    let answer = sandbox.json(&["cancel", "--tag", "red", "--dry-run", "--json"]);
    assert_eq!((&answer["matching"], answer["sample"].as_array().map(Vec::len)), (&13.into(), Some(10)));

    sandbox.refuses(&[
        (&["cancel", "--tag", "red"], &["13 jobs to cancel", "needs a confirmation", "--yes"]),
        (&["cancel", "--yes"], &["no jobs are given", "--all for every job"]),
        (&["cancel", "--all", "--tag", "red", "--yes"], &["use one or the other"]),
        (&["cancel", "--tag", "red", "--rate", "0"], &["1.."]),
    ]);
    assert_eq!(sandbox.count("ready"), 15, "nothing was done");

    let ended = sandbox.run(&["cancel", "--tag", "red", "--yes", "--note", "all of them"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "13 cancelled\n"), "{ended:?}");
    assert!(ended.stderr.starts_with("13 jobs to cancel:"), "{ended:?}");
    let ended = sandbox.run(&["cancel", "--tag", "red", "--yes"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "0 cancelled\n"));
    assert!(ended.stderr.contains("no scheduled, ready, running, waiting job matches"), "{ended:?}");
    let answer = sandbox.json(&["pause", "--all", "--yes", "--json"]);
    assert_eq!(
        (&answer["done"], &answer["matching"], &answer["interrupted"]),
        (&2.into(), &2.into(), &false.into())
    );
    assert_eq!(sandbox.ok(&["resume", "--queue", "mail", "--yes"]), "2 resumed\n");
    assert_eq!(sandbox.ok(&["retry", "--state", "cancelled", "--yes", "--rate", "1000"]), "13 retried\n");
    let log = sandbox.ok(&["audit", "--subject", "tag=red"]);
    assert!(log.contains("bulk cancel ended: 13 done") && log.contains("all of them"), "{log}");
}

#[test]
fn a_bulk_operation_can_be_interrupted_and_reports_what_it_did() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["submit", "noop", "--count", "50"]);
    let mut command = sandbox.command(&["cancel", "--all", "--yes", "--rate", "2"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("started");
    until("it has begun", || (sandbox.count("cancelled") >= 2).then_some(()));
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a pid");
    rustix::process::kill_process(pid, Signal::INT).expect("signalled");
    let output = child.wait_with_output().expect("ended");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{err}");
    let done: u64 = out.strip_suffix(" cancelled\n").expect(&out).parse().expect(&out);
    assert!((2..50).contains(&done) && err.contains("interrupted with about"), "{out} {err}");
    assert_eq!(sandbox.count("cancelled"), done);
}

#[test]
fn children_are_cancelled_with_their_parent() {
    let sandbox = Sandbox::new();
    let parent = sandbox.submit(&["noop"]);
    let child = sandbox.submit(&["noop", "--parent", &parent]);
    let grandchild = sandbox.submit(&["noop", "--parent", &child]);
    assert!(sandbox.ok(&["show", &child]).contains(&format!("parent     job {parent}")));
    let text = sandbox.ok(&["cancel", &parent, "--children"]);
    assert_eq!(text, format!("{parent} cancelled, and 2 descendants\n"));
    assert_eq!(sandbox.state(&grandchild), "cancelled");
}

#[test]
fn queues_are_listed_paused_and_resumed() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["queues", "pause", "mail", "--by", "ada", "--note", "provider down"]);
    sandbox.submit(&["noop", "--queue", "mail"]);
    sandbox.submit(&["noop", "--queue", "mail", "--delay", "1h"]);
    sandbox.submit(&["noop"]);
    let list = sandbox.ok(&["queues"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[0], "QUEUE    READY  SCHEDULED  RUNNING  OLDEST    PAUSED");
    assert!(lines[1].starts_with("default      1          0        0  just now"), "{list}");
    assert!(lines[2].starts_with("mail         1          1        0  just now  by ada "), "{list}");
    assert!(lines[2].ends_with(": provider down"), "{list}");
    let answer = sandbox.json(&["queues", "--json"]);
    assert_eq!((&answer[1]["name"], &answer[1]["scheduled"]), (&"mail".into(), &1.into()));
    assert_eq!(answer[1]["paused"]["author"], "ada");
    assert!(sandbox.ok(&["queues", "pause", "mail"]).contains("it was paused by ada before"));
    assert!(sandbox.ok(&["doctor"]).contains("warn  queue       mail was paused by ada "));
    assert_eq!(sandbox.ok(&["queues", "resume", "mail"]), "queue mail: resumed\n");
    assert!(sandbox.ok(&["queues", "resume", "mail"]).contains("it is not paused"));
    sandbox.refuses(&[
        (&["queues", "pause", "a b"], &["contains ' '"]),
        (&["queues", "stop", "mail"], &["stop"]),
    ]);
}

#[test]
fn limits_are_set_listed_and_lifted() {
    let sandbox = Sandbox::new();
    assert_eq!(
        sandbox.ok(&["limits", "set", "api", "5", "--per", "1h", "--burst", "3"]),
        "limit api: 5 per 60m, burst 3\n"
    );
    let id = sandbox.submit(&["noop", "--rate", "api", "--weight", "3"]);
    assert!(sandbox.ok(&["show", &id]).contains("rate       api, weight 3"));
    let list = sandbox.ok(&["limits"]);
    assert!(
        list.starts_with("LIMIT  RATE  PER  BURST  TOKENS NOW  WAITING\napi       5  60m      3"),
        "{list}"
    );
    sandbox.refuses(&[
        (
            &["submit", "noop", "--rate", "api", "--weight", "4"],
            &["more than its burst of 3", "raise the burst"],
        ),
        (&["submit", "noop", "--rate", "nope"], &["\"nope\" does not exist", "limits set"]),
        (&["submit", "noop", "--weight", "4"], &["--rate"]),
        (&["limits", "set", "api", "0"], &["is 0; use 1 to"]),
        (&["limits", "set", "api", "5", "--burst", "0"], &["the burst of limit"]),
        (&["limits", "set", "api", "-5"], &["-5"]),
        (&["limits", "set", "api", "5", "--per", "0s"], &["1 ms to 31 days"]),
        (&["limits", "lift", "nope"], &["there is no limit nope", "`windlass limits`"]),
    ]);
    assert!(sandbox.ok(&["limits", "lift", "api"]).contains("lifted"));
    assert!(sandbox.ok(&["limits", "lift", "api"]).contains("it is lifted"));
    let answer = sandbox.json(&["limits", "--json"]);
    assert_eq!((&answer[0]["name"], &answer[0]["lifted"]), (&"api".into(), &true.into()));
    sandbox.ok(&["limits", "set", "api", "7"]);
    assert_eq!(sandbox.json(&["limits", "--json"])[0]["lifted"], false);
    assert!(!Sandbox::new().run(&["limits", "set", "x", "0"]).stderr.is_empty());
}

#[test]
fn serial_keys_are_listed_and_given_slots_whatever_they_look_like() {
    let sandbox = Sandbox::new();
    let odd = "user 9/\t'\"%_é\u{1b}[31m\\";
    let first = sandbox.submit(&["noop", "--serial", odd, "--hold"]);
    let second = sandbox.submit(&["noop", "--serial", odd]);
    let answer = sandbox.json(&["serial", "--json", "--key", odd]);
    assert_eq!(
        (&answer[0]["key"], &answer[0]["held"], &answer[0]["waiting"]),
        (&odd.into(), &1.into(), &1.into())
    );
    let list = sandbox.ok(&["serial"]);
    assert!(list.starts_with("KEY ") && !list.contains('\u{1b}') && !list.contains('\t'), "{list:?}");
    assert!(sandbox.ok(&["show", &first]).contains("it holds a slot, one at a time"));
    assert!(sandbox.ok(&["show", &second]).contains("it is next in line"));
    assert!(sandbox.ok(&["serial", "slots", odd, "2"]).ends_with(": 2 jobs at a time\n"));
    let answer = sandbox.json(&["serial", "--json"]);
    assert_eq!((&answer[0]["slots"], &answer[0]["held"]), (&2.into(), &2.into()));
    assert!(sandbox.ok(&["serial", "--key", "none"]).contains("no job holds this serial key"));
    sandbox.refuses(&[
        (&["serial", "slots", "k", "0"], &["use 1 to 10000", "pause them"]),
        (&["serial", "slots", "windlass.x", "1"], &["reserved"]),
        (&["serial", "slots", "", "1"], &["is empty"]),
        (&["submit", "noop", "--slots", "2"], &["--serial"]),
    ]);
}

#[test]
fn schedules_are_created_tried_shown_and_dropped() {
    let sandbox = Sandbox::new();
    let ticks = sandbox.ok(&[
        "schedules",
        "next",
        "30 2 * * * in Europe/Berlin",
        "--after",
        "2027-03-27T12:00:00Z",
        "--count",
        "2",
    ]);
    assert_eq!(
        ticks.lines().map(|line| &line[..27]).collect::<Vec<&str>>(),
        ["Sun 2027-03-28 03:00:00 CEST", "Mon 2027-03-29 02:30:00 CEST"].map(|line| &line[..27]),
        "{ticks}"
    );
    let answer = sandbox.json(&["schedules", "next", "every 15 minutes", "--json"]);
    assert_eq!(answer["ticks"].as_array().map(Vec::len), Some(5));
    assert!(!sandbox.path("windlass.db").exists(), "trying a calendar creates no store");

    sandbox.write("input.json", r#"{"ms": 1}"#);
    let set = [
        "schedules",
        "set",
        "nightly",
        "0 3 * * * in Europe/Berlin",
        "--kind",
        "sleep",
        "--input",
        "@input.json",
        "--catch-up",
        "all:6h",
        "--overlap",
        "cancel_previous",
        "--tag",
        "night",
        "--by",
        "ada",
        "--timeout",
        "1m",
    ];
    let text = sandbox.ok(&set);
    assert!(text.starts_with("schedule nightly: fires next ") && text.contains(" 03:00:00 CE"), "{text}");
    assert!(sandbox.ok(&set).contains("unchanged, it is so already"));
    let list = sandbox.ok(&["schedules"]);
    assert!(list.contains("nightly   0 3 * * * in Europe/Berlin  sleep  in "), "{list}");
    let job = sandbox.ok(&["schedules", "trigger", "nightly"]);
    assert_eq!(sandbox.json(&["show", job.trim(), "--json"])["input"]["ms"], 1);
    assert!(sandbox.ok(&["show", job.trim()]).contains("tick       2"));
    let page = sandbox.ok(&["schedules", "show", "nightly"]);
    assert_contains(
        &page,
        &["overlap    cancel_previous", "catch-up   all:21600s", "timeout    60s", "\"ms\": 1", job.trim()],
    );
    let answer = sandbox.json(&["schedules", "show", "nightly", "--json"]);
    assert_eq!((&answer["firings"][0]["job"], &answer["input"]["ms"]), (&job.trim().into(), &1.into()));
    sandbox.ok(&["schedules", "pause", "nightly", "--by", "bob"]);
    assert!(sandbox.ok(&["schedules"]).contains("paused"));
    assert!(sandbox.ok(&["doctor"]).contains("schedule    nightly was paused by bob"));
    sandbox.ok(&["schedules", "resume", "nightly"]);
    assert!(sandbox.ok(&["schedules", "resume", "nightly"]).contains("unchanged"));
    sandbox.refuses(&[
        (&["schedules", "next", "0 3 * * * in Berlin"], &["did you mean Europe/Berlin?"]),
        (&["schedules", "next", "0 0 30 2 *"], &["never fires"]),
        (&["schedules", "next", "soon"], &["soon"]),
        (&["schedules", "set", "a b", "@daily", "--kind", "noop"], &["contains ' '"]),
        (&["schedules", "set", "s", "@daily"], &["--kind"]),
        (
            &["schedules", "set", "s", "@daily", "--kind", "resize"],
            &["does not serve the kind", "--any-kind"],
        ),
        (&["schedules", "set", "s", "@daily", "--kind", "noop", "--input", "{"], &["not JSON"]),
        (
            &["schedules", "set", "s", "@daily", "--kind", "noop", "--input", "@nope"],
            &["nope cannot be read"],
        ),
        (&["schedules", "set", "s", "@daily", "--kind", "noop", "--overlap", "both"], &["cancel_previous"]),
        (&["schedules", "set", "s", "@daily", "--kind", "noop", "--catch-up", "some"], &["all:6h"]),
        (
            &["schedules", "set", "s", "@daily", "--kind", "noop", "--overlap", "queue", "--serial", "k"],
            &["serial key of its own"],
        ),
        (&["schedules", "set", "s", "@daily", "--kind", "noop", "--rate", "nope"], &["does not exist"]),
        (&["schedules", "show", "nope"], &["there is no schedule nope", "`windlass schedules`"]),
        (&["schedules", "drop", "nope"], &["there is no schedule nope"]),
    ]);
    assert!(sandbox.ok(&["schedules", "drop", "nightly"]).contains("dropped"));
    assert_eq!(sandbox.json(&["schedules", "--json"]), serde_json::json!([]));
}

#[test]
fn every_action_is_in_the_audit_log_with_its_actor() {
    let sandbox = Sandbox::new();
    let id = sandbox.submit(&["noop"]);
    let mut command = sandbox.command(&["pause", &id]);
    command.env("USER", "grace");
    assert_eq!(sandbox.finish(command).code, 0);
    let mut command = sandbox.command(&["resume", &id]);
    command.env_remove("USER").env_remove("LOGNAME");
    assert_eq!(sandbox.finish(command).code, 0);
    sandbox.ok(&["limits", "set", "api", "5", "--by", "ada", "--note", "contract"]);
    let answer = sandbox.json(&["audit", "--json"]);
    assert_eq!(answer["entries"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        (&answer["entries"][0]["author"], &answer["entries"][0]["note"]),
        (&"ada".into(), &"contract".into())
    );
    let of_job = sandbox.json(&["audit", "--subject", &id, "--limit", "1", "--json"]);
    assert_eq!(of_job["entries"][0]["action"], "resume");
    let before = of_job["next_before"].to_string();
    let older = sandbox.json(&["audit", "--subject", &id, "--before", &before, "--json"]);
    assert_eq!((&older["entries"][0]["author"], &older["next_before"]), (&"grace".into(), &Value::Null));
    let page = sandbox.ok(&["audit", "--limit", "1"]);
    assert!(page.contains("older entries: windlass audit --limit 1 --before "), "{page}");
    assert!(sandbox.fails(&["pause", &id, "--by", &"x".repeat(3_000)]).contains("more than the 2000"));
}

#[test]
fn a_conflict_over_a_unique_name_keeps_rejects_or_replaces() {
    let sandbox = Sandbox::new();
    let unique = |more: &[&str]| sandbox.run(&[&["submit", "noop", "--unique", "u"], more].concat());
    let first = unique(&[]).stdout.trim().to_owned();
    assert_eq!(unique(&[]).stdout, format!("{first} existing\n"));
    let ended = unique(&["--on-conflict", "reject"]);
    assert!(
        ended.code == 1 && ended.stderr.contains(&format!("job {first} has this unique name")),
        "{ended:?}"
    );
    let ended = unique(&["--on-conflict", "replace", "--json"]);
    let answer: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((&answer["new"], &answer["replaced"]), (&true.into(), &first.as_str().into()));
    assert_eq!(sandbox.state(&first), "cancelled");
    let second = answer["id"].as_str().expect("an id");
    let ended =
        unique(&["--on-conflict", "cancel-and-replace", "--unique-while", "kept", "--unique-within", "1h"]);
    assert!(ended.stdout.ends_with(&format!(" replaces {second}\n")), "{ended:?}");
    let page = sandbox.ok(&["show", &ended.stdout[..36]]);
    assert!(page.contains("unique     u until it is deleted, for 60m at most"), "{page}");
    let text = sandbox.fails(&["retry", second]);
    assert!(text.contains("its unique name now belongs to job"), "{text}");
    sandbox.refuses(&[
        (&["submit", "noop", "--on-conflict", "keep"], &["--unique"]),
        (&["submit", "noop", "--unique", "u", "--on-conflict", "both"], &["cancel-and-replace"]),
        (&["submit", "noop", "--unique", "u", "--unique-while", "asleep"], &["live, waiting or kept"]),
        (&["submit", "noop", "--unique", ""], &["is empty"]),
    ]);
}

#[test]
fn ended_jobs_are_pruned_unless_they_are_needed() {
    let sandbox = Sandbox::new();
    let parent = sandbox.submit(&["noop"]);
    let child = sandbox.submit(&["noop", "--parent", &parent]);
    let other = sandbox.submit(&["noop"]);
    sandbox.ok(&["cancel", &child, &other]);
    let prune = ["prune", "--state", "cancelled", "--older-than", "0s"];
    sandbox.refuses(&[
        (&prune, &["needs a confirmation", "--yes"]),
        (&["prune", "--state", "ready", "--older-than", "1d", "--yes"], &["have not ended", "cancel"]),
        (&["prune", "--state", "done"], &["--older-than"]),
    ]);
    let text = sandbox.ok(&["prune", "--state", "cancelled", "--older-than", "1d", "--yes"]);
    assert_eq!(text, "0 deleted\n");
    let text = sandbox.ok(&[&prune[..], &["--yes"]].concat());
    assert!(text.starts_with("1 deleted, 1 kept: their parent is not done"), "{text}");
    assert!(sandbox.fails(&["show", &other]).contains("there is no job"));
    sandbox.ok(&["cancel", &parent]);
    let answer = sandbox.json(&[&prune[..], &["--yes", "--json", "--kind", "noop"]].concat());
    assert_eq!(
        (&answer["pruned"], &answer["kept"], &answer["interrupted"]),
        (&1.into(), &1.into(), &false.into())
    );
    // The child was kept for its parent, which could have been retried; now the parent is deleted.
    let answer = sandbox.json(&[&prune[..], &["--yes", "--json"]].concat());
    assert_eq!((&answer["pruned"], &answer["kept"]), (&1.into(), &0.into()));
    assert!(sandbox.ok(&["audit", "--subject", "jobs"]).contains("prune 1 jobs"));
}

#[test]
fn the_doctor_warns_of_unserved_kinds_and_of_serial_keys_that_dead_workers_hold() {
    let sandbox = Sandbox::new();
    sandbox.submit(&["mail", "1", "--any-kind", "--kind-version", "3"]);
    let worker = sandbox.worker(&["--lease", "400ms", "--renew-every", "100ms"]);
    let text = sandbox.ok(&["doctor"]);
    assert!(text.contains("unserved    no live worker serves kind mail v3 in queue default"), "{text}");
    let long = sandbox.submit(&["sleep", r#"{"ms": 60000}"#, "--serial", "k"]);
    until("it runs", || (sandbox.state(&long) == "running").then_some(()));
    worker.kill();
    let text = until("its lease is over", || {
        let text = sandbox.ok(&["doctor"]);
        text.contains("warn  serial").then_some(text)
    });
    assert!(text.contains(&format!("key \"k\" is held by job {long}, whose worker is dead")), "{text}");
    assert_eq!(sandbox.json(&["why", &long, "--json"])["cause"], "worker_lost");
}

#[test]
fn retention_is_read_from_the_file_and_from_flags() {
    let sandbox = Sandbox::new();
    sandbox.write("windlass.toml", "[retention]\ndone = '7d'\nfailed = 'forever'\n");
    drop(sandbox.worker(&["--keep-cancelled", "1h"]));
    sandbox.refuses(&[
        (&["worker", "--keep-done", "ages"], &["15s, 500ms", "\"forever\""]),
        (&["worker", "--keep-done", "0s"], &["keeps nothing"]),
    ]);
    sandbox.write("windlass.toml", "[retention]\ndon = '7d'\n");
    assert!(sandbox.fails(&["jobs"]).contains("`retention.don` is not a setting; did you mean `done`?"));
}
