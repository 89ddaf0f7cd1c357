//! What people do to work that is there, through the binary.

mod common;

use common::{Place, until};
use rustix::process::Signal;
use serde_json::Value;

const NOBODY: &str = "0199f0c2-6f7a-7000-8000-000000000000";

fn submit(place: &Place, args: &[&str]) -> String {
    place.ok(&[&["submit"], args].concat()).trim().to_owned()
}

fn state(place: &Place, id: &str) -> String {
    place.json(&["show", id, "--json"])["state"].as_str().expect("a state").to_owned()
}

/// Runs commands that must fail, and checks what each says.
fn refused(place: &Place, cases: &[(&[&str], &[&str])]) {
    for (args, parts) in cases {
        let said = place.bad(args);
        for part in *parts {
            assert!(said.contains(part), "{args:?} said {said:?}, which lacks {part:?}");
        }
    }
}

#[test]
fn why_says_the_cause_and_its_hints_are_commands() {
    let place = Place::new();
    place.ok(&["limits", "set", "api", "1", "--per", "1h"]);
    let first = submit(&place, &["noop", "--serial", "user 9"]);
    let second = submit(&place, &["noop", "--serial", "user 9", "--rate", "api"]);
    let later = submit(&place, &["noop", "--delay", "1h", "--queue", "slow"]);
    let gone = submit(&place, &["noop"]);
    place.ok(&["cancel", &gone, "--note", "not needed", "--by", "ada"]);
    place.ok(&["pause", &first, "--by", "ada", "--note", "db down"]);
    place.ok(&["queues", "pause", "slow", "--by", "bob"]);
    let expected = [
        (&first, "paused", "It was paused by ada at "),
        (&second, "no_worker", "No worker is running"),
        (&later, "scheduled", "It is due at "),
        (&gone, "cancelled", "It was cancelled at "),
    ];
    for (id, cause, because) in expected {
        let told = place.json(&["why", id, "--json"]);
        assert_eq!(told["cause"], cause, "{told}");
        assert!(told["because"].as_str().is_some_and(|text| text.starts_with(because)), "{told}");
        let page = place.ok(&["why", id]);
        let also = told["also"].as_array().map_or(0, Vec::len);
        assert_eq!(page.lines().count(), 2 + also, "{page}");
        for command in told["hint"].as_str().expect("a hint").split('`').skip(1).step_by(2) {
            let args: Vec<&str> = command.strip_prefix("windlass ").expect(command).split(' ').collect();
            place.ok(&[&args[..], &["--help"]].concat());
        }
    }
    assert!(place.ok(&["why", &later]).contains("Also: Its queue \"slow\" was paused by bob at "));
    assert!(place.ok(&["why", &gone]).contains(" by ada: not needed.\n"));
    // Its turn came when the other was paused; now another has it.
    let third = submit(&place, &["noop", "--serial", "user 9"]);
    let told = place.json(&["why", &third, "--json"]);
    assert!(told["also"].to_string().contains("run one at a time: job"), "{told}");
    assert!(place.bad(&["why", NOBODY]).contains("there is no job"));
}

#[tokio::test]
async fn what_was_submitted_in_a_transaction_is_known_before_it_is_taken_in() {
    let place = Place::new();
    place.ok(&["migrate"]);
    let path = place.path("windlass.db");
    let engine = windlass::Engine::open(&format!("sqlite://{}", path.display())).await.expect("opened");
    let mut file = windlass::store::rusqlite::Connection::open(&path).expect("opened");
    let tx = file.transaction().expect("begun");
    let job = engine.submit_json("noop", 1, Value::Null).in_sqlite(&tx).expect("appended");
    tx.commit().expect("committed");
    let id = job.id().to_string();
    let told = place.json(&["why", &id, "--json"]);
    assert_eq!((&told["cause"], &told["state"]), (&"arriving".into(), &Value::Null));
    assert!(place.bad(&["show", &id]).contains("waits to be taken in"));
    let _worker = place.worker(&[]);
    until("it is done", || (place.count("done") == 1).then_some(()));
    assert_eq!(place.json(&["why", &id, "--json"])["cause"], "done");
}

#[test]
fn jobs_are_paused_resumed_reordered_cancelled_and_retried() {
    let place = Place::new();
    let (one, two) = (submit(&place, &["noop"]), submit(&place, &["noop"]));
    let ids = [one.as_str(), two.as_str()];
    assert_eq!(
        place.ok(&[&["pause"], &ids[..], &["--by", "ada"]].concat()),
        format!("{one} paused\n{two} paused\n")
    );
    let again = place.ok(&["pause", &one, &one]);
    assert_eq!(again, format!("{one} left as it is: it was paused by ada before\n"));
    assert!(place.ok(&["show", &one]).contains("paused     by ada "));
    place.ok(&["resume", &one, &two]);
    assert!(place.ok(&["resume", &one]).contains("it is not paused"));
    assert_eq!(place.ok(&["priority", "-7", &one]), format!("{one} reordered\n"));
    assert!(place.ok(&["show", &one]).contains("priority -7"));

    assert_eq!(place.ok(&["cancel", &one]), format!("{one} cancelled\n"));
    assert!(place.ok(&["cancel", &one]).contains("left as it is: it is cancelled already"), "it is as asked");
    assert!(place.ok(&["show", &one]).contains("state      cancelled: cancelled by "));
    assert_eq!(place.ok(&["retry", &one]), format!("{one} retried\n"));
    assert_eq!(state(&place, &one), "ready");
    assert!(place.ok(&["retry", &one]).contains("it is ready and has not ended"));

    let told = place.run(&["cancel", &one, NOBODY, "--json"]);
    let told: Value = serde_json::from_str(&told.out).expect("JSON");
    assert_eq!(
        (&told[0]["did"], &told[1]["did"], &told[1]["job"]),
        (&"done".into(), &"unknown".into(), &NOBODY.into())
    );
    refused(
        &place,
        &[
            (&["cancel", NOBODY], &["is not in sqlite://windlass.db", "`windlass jobs`"]),
            (&["cancel", "abc"], &["not a job id"]),
            (&["pause", &one], &["cannot be paused: it is cancelled; retry it first"]),
            (&["priority", "500", &two], &["from -100"]),
            (&["cancel"], &["no jobs are given", "--all"]),
            (&["cancel", &one, "--kind", "noop"], &["both jobs and filters"]),
            (&["cancel", &one, "--dry-run"], &["--dry-run", "are for filters"]),
            (&["cancel", &one, "--grace", "soon"], &["15s, 500ms"]),
            (&["cancel", "--kind", "noop", "--children"], &["--children goes with jobs that are named"]),
            (&["cancel", &one, "--store", "sqlite://elsewhere.db"], &["there is no store"]),
        ],
    );
}

#[test]
fn what_runs_is_told_and_ends_and_what_is_done_stays_done() {
    let place = Place::new();
    let _worker = place.worker(&["--keep-done", "forever"]);
    let long = submit(&place, &["sleep", r#"{"ms": 60000}"#]);
    until("it runs", || (state(&place, &long) == "running").then_some(()));
    assert!(place.ok(&["why", &long]).starts_with("It has been running on worker "));
    let said = place.ok(&["cancel", &long, "--grace", "50ms", "--by", "ada"]);
    assert_eq!(said, format!("{long} runs and was told to end\n"));
    until("it ends", || (state(&place, &long) == "cancelled").then_some(()));
    let done = submit(&place, &["noop"]);
    until("it is done", || (state(&place, &done) == "done").then_some(()));
    refused(
        &place,
        &[
            (&["retry", &done], &["cannot be retried: it is done; submit it anew"]),
            (&["pause", &done], &["for good"]),
            (
                &["retry", "--state", "done", "--yes"],
                &["jobs that are done cannot be retried", "failed, cancelled"],
            ),
        ],
    );
    // It is over, but not as asked.
    let ended = place.run(&["cancel", &done]);
    assert_eq!((ended.code, ended.out), (1, format!("{done} left as it is: it is done already\n")));
}

#[test]
fn many_are_done_after_a_preview_and_with_an_account() {
    let place = Place::new();
    place.ok(&["submit", "noop", "--count", "13", "--tag", "red"]);
    place.ok(&["submit", "noop", "--count", "2", "--queue", "mail"]);
    let preview = place.ok(&["cancel", "--tag", "red", "--dry-run"]);
    assert!(preview.starts_with("13 jobs to cancel:\n\nID "), "{preview}");
    assert!(preview.ends_with("… and 3 more\n") && preview.matches("  ready  ").count() == 10, "{preview}");
    let told = place.json(&["cancel", "--tag", "red", "--dry-run", "--json"]);
    assert_eq!((&told["matching"], told["sample"].as_array().map(Vec::len)), (&13.into(), Some(10)));

    refused(
        &place,
        &[
            (&["cancel", "--tag", "red"], &["13 jobs to cancel", "nobody is at the terminal", "--yes"]),
            (&["cancel", "--yes"], &["no jobs are given", "--all for every job"]),
            (&["cancel", "--all", "--tag", "red", "--yes"], &["leave one of them out"]),
            (&["cancel", "--tag", "red", "--rate", "0"], &["1.."]),
        ],
    );
    assert_eq!(place.count("ready"), 15, "nothing was done");

    let ended = place.run(&["cancel", "--tag", "red", "--yes", "--note", "all of them"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "13 cancelled\n"), "{ended:?}");
    assert!(ended.err.starts_with("13 jobs to cancel:"), "{ended:?}");
    let ended = place.run(&["cancel", "--tag", "red", "--yes"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "0 cancelled\n"));
    assert!(ended.err.contains("no job that is scheduled, ready, running, waiting matches"), "{ended:?}");
    let told = place.json(&["pause", "--all", "--yes", "--json"]);
    assert_eq!((&told["done"], &told["matching"], &told["cut_short"]), (&2.into(), &2.into(), &false.into()));
    assert_eq!(place.ok(&["resume", "--queue", "mail", "--yes"]), "2 resumed\n");
    assert_eq!(place.ok(&["retry", "--state", "cancelled", "--yes", "--rate", "1000"]), "13 retried\n");
    let log = place.ok(&["audit", "--subject", "tag=red"]);
    assert!(log.contains("bulk cancel ended: 13 done") && log.contains("all of them"), "{log}");
}

#[test]
fn a_bulk_operation_ends_when_told_and_says_how_far_it_came() {
    let place = Place::new();
    place.ok(&["submit", "noop", "--count", "50"]);
    let mut command = place.command(&["cancel", "--all", "--yes", "--rate", "2"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("started");
    until("it has begun", || (place.count("cancelled") >= 2).then_some(()));
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a pid");
    rustix::process::kill_process(pid, Signal::INT).expect("told");
    let output = child.wait_with_output().expect("ended");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{err}");
    let done: u64 = out.strip_suffix(" cancelled\n").expect(&out).parse().expect(&out);
    assert!((2..50).contains(&done) && err.contains("ended on the way"), "{out} {err}");
    assert_eq!(place.count("cancelled"), done);
}

#[test]
fn children_are_cancelled_with_their_parent() {
    let place = Place::new();
    let parent = submit(&place, &["noop"]);
    let child = submit(&place, &["noop", "--parent", &parent]);
    let grandchild = submit(&place, &["noop", "--parent", &child]);
    assert!(place.ok(&["show", &child]).contains(&format!("parent     job {parent}")));
    let said = place.ok(&["cancel", &parent, "--children"]);
    assert_eq!(said, format!("{parent} cancelled, and 2 jobs that came of it\n"));
    assert_eq!(state(&place, &grandchild), "cancelled");
}

#[test]
fn queues_are_listed_paused_and_resumed() {
    let place = Place::new();
    place.ok(&["queues", "pause", "mail", "--by", "ada", "--note", "provider down"]);
    submit(&place, &["noop", "--queue", "mail"]);
    submit(&place, &["noop", "--queue", "mail", "--delay", "1h"]);
    submit(&place, &["noop"]);
    let list = place.ok(&["queues"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[0], "QUEUE    READY  SCHEDULED  RUNNING  OLDEST    PAUSED");
    assert!(lines[1].starts_with("default      1          0        0  just now"), "{list}");
    assert!(lines[2].starts_with("mail         1          1        0  just now  by ada "), "{list}");
    assert!(lines[2].ends_with(": provider down"), "{list}");
    let told = place.json(&["queues", "--json"]);
    assert_eq!((&told[1]["name"], &told[1]["scheduled"]), (&"mail".into(), &1.into()));
    assert_eq!(told[1]["paused"]["author"], "ada");
    assert!(place.ok(&["queues", "pause", "mail"]).contains("it was paused by ada before"));
    assert!(place.ok(&["doctor"]).contains("warn  queue       mail was paused by ada "));
    assert_eq!(place.ok(&["queues", "resume", "mail"]), "queue mail: resumed\n");
    assert!(place.ok(&["queues", "resume", "mail"]).contains("it is not paused"));
    refused(
        &place,
        &[(&["queues", "pause", "a b"], &["contains ' '"]), (&["queues", "stop", "mail"], &["stop"])],
    );
}

#[test]
fn limits_are_set_listed_and_lifted() {
    let place = Place::new();
    assert_eq!(
        place.ok(&["limits", "set", "api", "5", "--per", "1h", "--burst", "3"]),
        "limit api: 5 per 60m, burst 3\n"
    );
    let id = submit(&place, &["noop", "--rate", "api", "--weight", "3"]);
    assert!(place.ok(&["show", &id]).contains("rate       api, weight 3"));
    let list = place.ok(&["limits"]);
    assert!(
        list.starts_with("LIMIT  RATE  PER  BURST  TOKENS NOW  WAITING\napi       5  60m      3"),
        "{list}"
    );
    refused(
        &place,
        &[
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
        ],
    );
    assert!(place.ok(&["limits", "lift", "api"]).contains("lifted"));
    assert!(place.ok(&["limits", "lift", "api"]).contains("it is lifted"));
    let told = place.json(&["limits", "--json"]);
    assert_eq!((&told[0]["name"], &told[0]["lifted"]), (&"api".into(), &true.into()));
    place.ok(&["limits", "set", "api", "7"]);
    assert_eq!(place.json(&["limits", "--json"])[0]["lifted"], false);
    assert!(!Place::new().run(&["limits", "set", "x", "0"]).err.is_empty());
}

#[test]
fn serial_keys_are_listed_and_given_slots_whatever_they_look_like() {
    let place = Place::new();
    let odd = "user 9/\t'\"%_é\u{1b}[31m\\";
    let first = submit(&place, &["noop", "--serial", odd, "--hold"]);
    let second = submit(&place, &["noop", "--serial", odd]);
    let told = place.json(&["serial", "--json", "--key", odd]);
    assert_eq!((&told[0]["key"], &told[0]["held"], &told[0]["waiting"]), (&odd.into(), &1.into(), &1.into()));
    let list = place.ok(&["serial"]);
    assert!(list.starts_with("KEY ") && !list.contains('\u{1b}') && !list.contains('\t'), "{list:?}");
    assert!(place.ok(&["show", &first]).contains("it has its turn, one at a time"));
    assert!(place.ok(&["show", &second]).contains("it is next in line"));
    assert!(place.ok(&["serial", "slots", odd, "2"]).ends_with(": 2 jobs at a time\n"));
    let told = place.json(&["serial", "--json"]);
    assert_eq!((&told[0]["slots"], &told[0]["held"]), (&2.into(), &2.into()));
    assert!(place.ok(&["serial", "--key", "none"]).contains("nobody holds this serial key"));
    refused(
        &place,
        &[
            (&["serial", "slots", "k", "0"], &["use 1 to 10000", "pause them"]),
            (&["serial", "slots", "windlass.x", "1"], &["reserved"]),
            (&["serial", "slots", "", "1"], &["is empty"]),
            (&["submit", "noop", "--slots", "2"], &["--serial"]),
        ],
    );
}

#[test]
fn schedules_are_made_tried_shown_and_dropped() {
    let place = Place::new();
    let ticks = place.ok(&[
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
    let told = place.json(&["schedules", "next", "every 15 minutes", "--json"]);
    assert_eq!(told["ticks"].as_array().map(Vec::len), Some(5));
    assert!(!place.path("windlass.db").exists(), "a try makes no store");

    place.write("input.json", r#"{"ms": 1}"#);
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
    let said = place.ok(&set);
    assert!(said.starts_with("schedule nightly: fires next ") && said.contains(" 03:00:00 CE"), "{said}");
    assert!(place.ok(&set).contains("left as it is, it is so already"));
    let list = place.ok(&["schedules"]);
    assert!(list.contains("nightly   0 3 * * * in Europe/Berlin  sleep  in "), "{list}");
    let job = place.ok(&["schedules", "trigger", "nightly"]);
    assert_eq!(place.json(&["show", job.trim(), "--json"])["input"]["ms"], 1);
    assert!(place.ok(&["show", job.trim()]).contains("tick       2"));
    let page = place.ok(&["schedules", "show", "nightly"]);
    for part in
        ["overlap    cancel_previous", "catch-up   all:21600s", "timeout    60s", "\"ms\": 1", job.trim()]
    {
        assert!(page.contains(part), "{part:?} is not in\n{page}");
    }
    let told = place.json(&["schedules", "show", "nightly", "--json"]);
    assert_eq!((&told["firings"][0]["job"], &told["input"]["ms"]), (&job.trim().into(), &1.into()));
    place.ok(&["schedules", "pause", "nightly", "--by", "bob"]);
    assert!(place.ok(&["schedules"]).contains("paused"));
    assert!(place.ok(&["doctor"]).contains("schedule    nightly was paused by bob"));
    place.ok(&["schedules", "resume", "nightly"]);
    assert!(place.ok(&["schedules", "resume", "nightly"]).contains("left as it is"));
    refused(
        &place,
        &[
            (&["schedules", "next", "0 3 * * * in Berlin"], &["did you mean Europe/Berlin?"]),
            (&["schedules", "next", "0 0 30 2 *"], &["never fires"]),
            (&["schedules", "next", "soon"], &["soon"]),
            (&["schedules", "set", "a b", "@daily", "--kind", "noop"], &["contains ' '"]),
            (&["schedules", "set", "s", "@daily"], &["--kind"]),
            (&["schedules", "set", "s", "@daily", "--kind", "resize"], &["not known", "--any-kind"]),
            (&["schedules", "set", "s", "@daily", "--kind", "noop", "--input", "{"], &["not JSON"]),
            (
                &["schedules", "set", "s", "@daily", "--kind", "noop", "--input", "@nope"],
                &["nope cannot be read"],
            ),
            (
                &["schedules", "set", "s", "@daily", "--kind", "noop", "--overlap", "both"],
                &["cancel_previous"],
            ),
            (&["schedules", "set", "s", "@daily", "--kind", "noop", "--catch-up", "some"], &["all:6h"]),
            (
                &["schedules", "set", "s", "@daily", "--kind", "noop", "--overlap", "queue", "--serial", "k"],
                &["serial key of its own"],
            ),
            (&["schedules", "set", "s", "@daily", "--kind", "noop", "--rate", "nope"], &["does not exist"]),
            (&["schedules", "show", "nope"], &["there is no schedule nope", "`windlass schedules`"]),
            (&["schedules", "drop", "nope"], &["there is no schedule nope"]),
        ],
    );
    assert!(place.ok(&["schedules", "drop", "nightly"]).contains("dropped"));
    assert_eq!(place.json(&["schedules", "--json"]), serde_json::json!([]));
}

#[test]
fn everything_done_is_in_the_audit_log_under_a_name() {
    let place = Place::new();
    let id = submit(&place, &["noop"]);
    let mut command = place.command(&["pause", &id]);
    command.env("USER", "grace");
    assert_eq!(place.end(command).code, 0);
    let mut command = place.command(&["resume", &id]);
    command.env_remove("USER").env_remove("LOGNAME");
    assert_eq!(place.end(command).code, 0);
    place.ok(&["limits", "set", "api", "5", "--by", "ada", "--note", "contract"]);
    let told = place.json(&["audit", "--json"]);
    assert_eq!(told["entries"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        (&told["entries"][0]["author"], &told["entries"][0]["note"]),
        (&"ada".into(), &"contract".into())
    );
    let of_job = place.json(&["audit", "--subject", &id, "--limit", "1", "--json"]);
    assert_eq!(of_job["entries"][0]["action"], "resume");
    let before = of_job["next_before"].to_string();
    let older = place.json(&["audit", "--subject", &id, "--before", &before, "--json"]);
    assert_eq!((&older["entries"][0]["author"], &older["next_before"]), (&"grace".into(), &Value::Null));
    let page = place.ok(&["audit", "--limit", "1"]);
    assert!(page.contains("older ones: windlass audit --limit 1 --before "), "{page}");
    assert!(place.bad(&["pause", &id, "--by", &"x".repeat(3_000)]).contains("more than the 2000"));
}

#[test]
fn unique_names_are_kept_rejected_replaced() {
    let place = Place::new();
    let unique = |more: &[&str]| place.run(&[&["submit", "noop", "--unique", "u"], more].concat());
    let first = unique(&[]).out.trim().to_owned();
    assert_eq!(unique(&[]).out, format!("{first} existing\n"));
    let ended = unique(&["--on-conflict", "reject"]);
    assert!(ended.code == 1 && ended.err.contains(&format!("job {first} has this unique name")), "{ended:?}");
    let ended = unique(&["--on-conflict", "replace", "--json"]);
    let told: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!((&told["new"], &told["replaced"]), (&true.into(), &first.as_str().into()));
    assert_eq!(state(&place, &first), "cancelled");
    let second = told["id"].as_str().expect("an id");
    let ended =
        unique(&["--on-conflict", "cancel-and-replace", "--unique-while", "kept", "--unique-within", "1h"]);
    assert!(ended.out.ends_with(&format!(" in place of {second}\n")), "{ended:?}");
    let page = place.ok(&["show", &ended.out[..36]]);
    assert!(page.contains("unique     u until it is deleted, for 60m at most"), "{page}");
    let said = place.bad(&["retry", second]);
    assert!(said.contains("its unique name now belongs to job"), "{said}");
    refused(
        &place,
        &[
            (&["submit", "noop", "--on-conflict", "keep"], &["--unique"]),
            (&["submit", "noop", "--unique", "u", "--on-conflict", "both"], &["cancel-and-replace"]),
            (&["submit", "noop", "--unique", "u", "--unique-while", "asleep"], &["live, waiting or kept"]),
            (&["submit", "noop", "--unique", ""], &["is empty"]),
        ],
    );
}

#[test]
fn what_ended_is_pruned_and_what_is_needed_stays() {
    let place = Place::new();
    let parent = submit(&place, &["noop"]);
    let child = submit(&place, &["noop", "--parent", &parent]);
    let other = submit(&place, &["noop"]);
    place.ok(&["cancel", &child, &other]);
    let prune = ["prune", "--state", "cancelled", "--older-than", "0s"];
    refused(
        &place,
        &[
            (&prune, &["nobody is at the terminal", "--yes"]),
            (&["prune", "--state", "ready", "--older-than", "1d", "--yes"], &["have not ended", "cancel"]),
            (&["prune", "--state", "done"], &["--older-than"]),
        ],
    );
    let said = place.ok(&["prune", "--state", "cancelled", "--older-than", "1d", "--yes"]);
    assert_eq!(said, "0 deleted\n");
    let said = place.ok(&[&prune[..], &["--yes"]].concat());
    assert!(said.starts_with("1 deleted, 1 kept: their parent may still need them"), "{said}");
    assert!(place.bad(&["show", &other]).contains("there is no job"));
    place.ok(&["cancel", &parent]);
    let told = place.json(&[&prune[..], &["--yes", "--json", "--kind", "noop"]].concat());
    assert_eq!((&told["pruned"], &told["kept"], &told["cut_short"]), (&1.into(), &1.into(), &false.into()));
    // The child was kept for its parent, which might have been retried; now that is gone.
    let told = place.json(&[&prune[..], &["--yes", "--json"]].concat());
    assert_eq!((&told["pruned"], &told["kept"]), (&1.into(), &0.into()));
    assert!(place.ok(&["audit", "--subject", "jobs"]).contains("prune 1 jobs"));
}

#[test]
fn the_doctor_sees_what_nobody_serves_and_turns_that_dead_workers_have() {
    let place = Place::new();
    submit(&place, &["mail", "1", "--any-kind", "--kind-version", "3"]);
    let mut worker = place.worker(&["--lease", "400ms", "--beat", "100ms"]);
    let said = place.ok(&["doctor"]);
    assert!(said.contains("unserved    no live worker serves kind mail v3 in queue default"), "{said}");
    let long = submit(&place, &["sleep", r#"{"ms": 60000}"#, "--serial", "k"]);
    until("it runs", || (state(&place, &long) == "running").then_some(()));
    worker.child.kill().expect("killed");
    worker.child.wait().expect("gone");
    let said = until("its lease is over", || {
        let said = place.ok(&["doctor"]);
        said.contains("warn  serial").then_some(said)
    });
    assert!(
        said.contains(&format!("key \"k\" is held by job {long}, whose worker stopped renewing")),
        "{said}"
    );
    assert_eq!(place.json(&["why", &long, "--json"])["cause"], "worker_lost");
}

#[test]
fn retention_is_read_from_everywhere() {
    let place = Place::new();
    place.write("windlass.toml", "[retention]\ndone = '7d'\nfailed = 'forever'\n");
    drop(place.worker(&["--keep-cancelled", "1h"]));
    refused(
        &place,
        &[
            (&["worker", "--keep-done", "ages"], &["15s, 500ms", "\"forever\""]),
            (&["worker", "--keep-done", "0s"], &["keeps nothing"]),
        ],
    );
    place.write("windlass.toml", "[retention]\ndon = '7d'\n");
    assert!(place.bad(&["jobs"]).contains("`retention.don` is not a setting; did you mean `done`?"));
}
