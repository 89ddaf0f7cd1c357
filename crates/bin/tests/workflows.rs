//! Workflows through the binary, on both stores, and the examples of them.

mod common;

use common::{Sandbox, UNKNOWN_JOB, assert_contains, until};
use serde_json::{Value, json};
use windlass_testpg::Cluster;

/// Reminds at once, then waits for an answer for an hour.
const SOON: &str = r#"{"what": "the plants", "seconds": 0, "times": 1}"#;
const PATIENT: &str = r#"{"what": "the plants", "seconds": 3600}"#;

#[test]
fn workflows_are_shown_signalled_checked_forked_and_drawn() {
    operate(&Sandbox::new());
}

#[test]
fn workflows_are_shown_signalled_checked_forked_and_drawn_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    operate(&Sandbox::on_postgres(&cluster));
}

fn submit(sandbox: &Sandbox, args: &[&str]) -> String {
    sandbox.submit(&[&["reminder"], args].concat())
}

fn operate(sandbox: &Sandbox) {
    let worker = sandbox.worker(&["--keep-done", "forever"]);
    let unanswered = submit(sandbox, &[SOON, "--key", "first"]);
    sandbox.until_state(&unanswered, "failed");
    let asleep = submit(sandbox, &[PATIENT, "--key", "second"]);
    sandbox.until_state(&asleep, "waiting");
    show(sandbox, &unanswered, &asleep);
    draw(sandbox, &unanswered, &asleep);
    let fork = fork(sandbox, &unanswered);
    drop(worker);
    check(sandbox);
    refuse(sandbox, &unanswered);
    fork_many(sandbox, &unanswered, &fork);
}

fn show(sandbox: &Sandbox, unanswered: &str, asleep: &str) {
    let answer = sandbox.json(&["show", unanswered, "--json"]);
    let calls: Vec<String> = answer["journal"]
        .as_array()
        .expect("a journal")
        .iter()
        .map(|entry| format!("{} {} {}", entry["call_kind"], entry["name"], entry["event"]).replace('"', ""))
        .collect();
    assert_eq!(calls[..2], ["sleep sleep begun", "sleep sleep done"], "{calls:?}");
    assert!(calls.contains(&"step remind done".to_owned()), "{calls:?}");
    let failed = answer["journal"].as_array().expect("a journal").iter();
    let failed: Vec<&Value> = failed.filter(|entry| entry["name"] == "answer").collect();
    assert_eq!(failed[1]["failure"]["class"], "timeout", "{failed:?}");
    assert_eq!(failed[1]["key"], "1");
    assert_eq!(answer["context"], json!({ "reminded": 1 }));
    let page = sandbox.ok(&["show", unanswered]);
    assert_contains(
        &page,
        &[
            "state      failed (stopped): unanswered: the plants was not answered after 1 reminders",
            "\ncontext\n  reminded = 1\n",
            "\njournal\n  SEQ  OP      CALL ",
            "remind[1]",
            "timeout: no signal \"answer\" arrived in time",
            "crates/bin/src/kinds/reminder.rs:",
        ],
    );
    // It sleeps: it waits for a time only.
    let page = sandbox.ok(&["show", asleep]);
    assert!(page.contains("  waits      until 2"), "{page}");
    assert_eq!(sandbox.json(&["why", asleep, "--json"])["cause"], "asleep");
    let ended = sandbox.run(&["signal", asleep, "answer"]);
    assert_eq!(ended.code, 0);
    assert!(ended.stderr.contains("waits for a time and not for answer"), "{}", ended.stderr);
}

fn draw(sandbox: &Sandbox, unanswered: &str, asleep: &str) {
    let diagram = sandbox.ok(&["diagram", unanswered]);
    let expected = "flowchart TD\n    start((start))\n    n0[\"<b>sleep</b><br/>sleep: done\"]:::done\n    \
        n1[\"<b>remind</b><br/>step: done\"]:::done\n    n2[\"<b>answer</b><br/>signal: failed\"]:::failed\n    \
        end_failed((failed))\n    start --> n0\n    n0 --> n1\n    n1 --> n2\n    n2 --> end_failed\n";
    assert!(diagram.split_once('\n').expect("a title").1.starts_with(expected), "{diagram}");
    let diagram = sandbox.ok(&["diagram", "--kind", "reminder"]);
    assert!(diagram.starts_with("%% reminder version 1, 2 jobs\n"), "{diagram}");
    assert!(diagram.contains("start -->|2| n0\n    n0 -->|1| n1\n"), "{diagram}");
    assert!(diagram.contains("sleep: 1 done, 1 waiting"), "{diagram}");
    let answer = sandbox.json(&["diagram", asleep, "--json"]);
    assert_eq!(answer["graph"]["nodes"][0]["fates"], json!({ "waiting": 1 }), "{answer}");
    let answer = sandbox.json(&["diagram", "--kind", "reminder", "--json"]);
    assert_eq!(answer["versions"][0]["graph"]["jobs"], 2, "{answer}");
    let ended = sandbox.run(&["diagram", unanswered, "--svg", "a.svg"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "{ended:?}");
    let picture = std::fs::read_to_string(sandbox.path("a.svg")).expect("written");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert_eq!(sandbox.ok(&["diagram", unanswered, "--svg", "-"]), picture);
}

fn fork(sandbox: &Sandbox, unanswered: &str) -> String {
    let fork =
        sandbox.ok(&["fork", unanswered, "--before", "answer", "--new-key", "again", "--note", "once more"]);
    let fork = fork.trim().to_owned();
    let answer = sandbox.until_state(&fork, "failed");
    assert_eq!((&answer["key"], &answer["context"]["reminded"]), (&"again".into(), &1.into()));
    // The calls before are not run again: their entries have the times of the other job.
    let other = sandbox.json(&["show", unanswered, "--json"]);
    assert_eq!(answer["journal"][2], other["journal"][2]);
    assert_eq!(other["key"], "first");
    let audit = sandbox.ok(&["audit"]);
    assert!(audit.contains("fork") && audit.contains("once more"), "{audit}");
    fork
}

fn check(sandbox: &Sandbox) {
    let answer = sandbox.ok(&["check"]);
    assert!(
        answer.starts_with("1 open workflow replayed, 1 entry in their journals: none would break\n"),
        "{answer}"
    );
    let answer = sandbox.json(&["check", "--kind", "reminder", "--json"]);
    assert_eq!((&answer["jobs"], &answer["broken"]), (&1.into(), &json!([])), "{answer}");
    let help = sandbox.ok(&["check", "--help"]);
    assert!(help.contains("examples/commands.rs") && help.contains("new build"), "{help}");
    // The program must have the workflow.
    assert!(sandbox.fails(&["check", "--kind", "order"]).contains("serves no workflow \"order\""));
    // An input that the code cannot decode would break.
    submit(sandbox, &[r#"{"wat": 1}"#, "--key", "unreadable", "--any-kind"]);
    let ended = sandbox.run(&["check"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert_contains(
        &ended.stdout,
        &["1 would break", "reminder version 1, key unreadable\n  undecodable: the input does not decode"],
    );
    let ended = sandbox.run(&["check", "--json"]);
    let answer: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((ended.code, &answer["broken"][0]["why"]["class"]), (1, &"undecodable".into()));
}

fn refuse(sandbox: &Sandbox, unanswered: &str) {
    let cases: &[(&[&str], &[&str])] = &[
        (&["fork"], &["no job is given"]),
        (&["fork", UNKNOWN_JOB], &["there is no job"]),
        (&["fork", unanswered, "--before", "pay"], &["no call \"pay\"", "it has sleep, remind, answer"]),
        (&["fork", unanswered, "--before", "answer", "--step-key", "9"], &["with key \"9\""]),
        (&["fork", unanswered, "--before-entry", "99"], &["no entry 99"]),
        (&["fork", unanswered, "--before-entry", "1", "--from-beginning"], &["cannot be used with"]),
        (&["fork", unanswered, "--step-key", "1"], &["--before"]),
        (&["fork", unanswered, "--kind", "reminder"], &["use one or the other"]),
        (&["fork", unanswered, "--new-key", "first"], &["first"]),
        (&["fork", "--kind", "reminder", "--new-key", "a"], &["<JOB>"]),
        (&["fork", "--kind", "reminder"], &["--yes"]),
        (&["fork", "--all", "--kind", "reminder"], &["use one or the other"]),
        (&["diagram", unanswered, "--svg", "no/such/folder.svg"], &["cannot be written"]),
        (&["diagram", unanswered, "--svg", "-", "--json"], &["cannot be used with"]),
    ];
    sandbox.refuses(cases);
}

fn fork_many(sandbox: &Sandbox, unanswered: &str, fork: &str) {
    let failed = ["--state", "failed", "--kind", "reminder"];
    let preview = sandbox.json(&[&["fork", "--dry-run", "--json"], &failed[..]].concat());
    assert_eq!(preview["matching"], 2, "{preview}");
    assert!(sandbox.ok(&[&["fork", "--dry-run"], &failed[..]].concat()).starts_with("2 jobs to fork:\n"));
    let answer = sandbox.json(&[&["fork", "--before", "remind", "--yes", "--json"], &failed[..]].concat());
    let from: Vec<&Value> =
        answer["forked"].as_array().expect("pairs").iter().map(|pair| &pair["from"]).collect();
    assert_eq!(from, [fork, unanswered], "{answer}");
    // One that has no such call is refused, and the others are forked.
    let ended = sandbox.run(&["fork", "--before", "remind", "--yes", "--kind", "reminder"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stdout.contains(" → ") && ended.stdout.contains("2 forked, 4 refused\n"), "{ended:?}");
    assert!(ended.stderr.contains("its journal has no call \"remind\""), "{ended:?}");
}

/// A journal with more entries than a page shows, and one that does not match the code.
#[test]
fn long_journals_are_shortened_and_a_diverged_workflow_continues_once_it_is_fixed() {
    let sandbox = Sandbox::new();
    let worker = sandbox.worker(&[]);
    let long = submit(&sandbox, &[r#"{"what": "the plants", "seconds": 0, "times": 30}"#]);
    sandbox.until_state(&long, "failed");
    let page = sandbox.ok(&["show", &long]);
    let entries = sandbox.json(&["show", &long, "--json"])["journal"].as_array().expect("a journal").len();
    assert!(entries > 60, "{entries}");
    assert!(page.contains(&format!("… {} earlier entries; --all shows them", entries - 50)), "{page}");
    assert!(!page.contains("remind[1]") && page.contains("remind[30]"), "{page}");
    assert!(sandbox.ok(&["show", &long, "--all"]).contains("remind[1]"));

    let id = submit(&sandbox, &[r#"{"what": "the plants", "seconds": 1, "times": 1000}"#, "--key", "second"]);
    until("it has reminded", || sandbox.ok(&["show", &id]).contains("remind[1]").then_some(()));
    drop(worker);
    // As if an older build had slept where this one has a step.
    let change = |call_kind: i64| {
        let connection = rusqlite::Connection::open(sandbox.path("windlass.db")).expect("the store");
        connection.busy_timeout(std::time::Duration::from_secs(10)).expect("patience");
        let sql = "update windlass_journal set call_kind = ?1 where name = 'remind' and key = '1'";
        assert!(connection.execute(sql, [call_kind]).expect("changed") > 0);
    };
    // As if an older build had used another name, with an undo: that breaks nothing, but is listed, and fails with --strict.
    let rename = |from: &str, to: &str, event: i64| {
        let connection = rusqlite::Connection::open(sandbox.path("windlass.db")).expect("the store");
        connection.busy_timeout(std::time::Duration::from_secs(10)).expect("patience");
        let sql = "update windlass_journal set name = ?2, event = ?3 where name = ?1 and key = '1'";
        assert!(connection.execute(sql, (from, to, event)).expect("changed") > 0);
    };
    assert_eq!(sandbox.run(&["check", "--strict"]).code, 0, "it is the same build");
    rename("remind", "nag", 7);
    let ended = sandbox.run(&["check"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_contains(
        &ended.stdout,
        &[
            "none would break, 1 would lose an undo\n",
            "step \"nag\" at crates/bin/src/kinds/reminder.rs:",
            ", WITH AN UNDO: reminder version 1, job ",
            "step \"remind\" at crates/bin/src/kinds/reminder.rs:",
            "it would run:\n",
        ],
    );
    let ended = sandbox.run(&["check", "--strict", "--json"]);
    let answer: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let changed = |n: usize, what: &str| answer["changed"][n][what].clone();
    assert_eq!((ended.code, &answer["losing_undo"]), (1, &json!(1)), "{answer}");
    assert_eq!(
        [changed(0, "name"), changed(0, "change"), changed(0, "undo")],
        [json!("nag"), json!("not_reached"), json!(true)]
    );
    let new = answer["changed"].as_array().expect("calls").iter().filter(|call| call["change"] == "new");
    assert_eq!(new.map(|call| &call["name"]).collect::<Vec<_>>(), ["remind"], "{answer}");
    assert!(ended.stderr.contains("--strict: this build differs"), "{ended:?}");
    rename("nag", "remind", 3);
    change(3);
    let ended = sandbox.run(&["check"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert_contains(
        &ended.stdout,
        &[
            "1 would break",
            ", key second\n  diverged: ",
            "    recorded:  sleep at ",
            "    attempted: step at ",
        ],
    );
    let _worker = sandbox.worker(&[]);
    let answer = sandbox.until_state(&id, "failed");
    assert_eq!(answer["reason"], "diverged", "{answer}");
    assert_eq!(sandbox.json(&["why", &id, "--json"])["cause"], "diverged");
    change(1);
    sandbox.ok(&["retry", &id]);
    sandbox.ok(&["signal", &id, "answer", r#""watered""#]);
    assert_eq!(sandbox.until_state(&id, "done")["output"], "watered");
}

fn run_example(sandbox: &Sandbox, name: &str, args: &[&str], parts: &[&str]) {
    let ended = sandbox.finish(sandbox.command_of(&common::example("windlass", name), args));
    assert_eq!(ended.code, 0, "{ended:?}");
    for part in parts {
        assert!(ended.stdout.contains(part), "{part:?} is not in\n{}", ended.stdout);
    }
}

const ORDER: [&str; 4] = [
    "a lamp is on its way as parcel 1",
    "payment 2 is given back",
    "the job failed (stopped): a piano does not fit into the van",
    "step \"pay\": undone",
];

#[test]
fn the_examples_of_workflows_print_what_they_promise() {
    let sandbox = Sandbox::new();
    run_example(&sandbox, "undo", &[], &ORDER);
    let newsletter =
        ["welcome, Ann", "goodbye, Ann", "3 issues were sent", "the last issue, from its context: \"2"];
    run_example(&sandbox, "newsletter", &[], &newsletter);
    run_example(&sandbox, "expense", &[], &["the program approved a train ticket, and it is paid"]);
    let fanout = [
        "1996 thumbnails are made, 4 failed",
        "why does the archive wait? It waits for the merge of its branch \"thumbnails\"",
        "the disk is fixed, and 4 are tried again",
        "7995 bytes of thumbnails, and the checksum of all tiles is 42705",
        "one of the tiles: Some(Number(56))",
    ];
    run_example(&sandbox, "fanout", &[], &fanout);
    let archive = sandbox.json(&["--store", "sqlite://fanout.db", "jobs", "--kind", "archive", "--json"]);
    let archive = archive["jobs"][0]["id"].as_str().expect("an id");
    let branches = sandbox.ok(&["--store", "sqlite://fanout.db", "branches", archive]);
    assert!(branches.contains("tiles  merged\n") && branches.contains("20,000 done"), "{branches}");
    // The commands that they print work.
    let orders = sandbox.json(&["--store", "sqlite://undo.db", "jobs", "--json"]);
    let piano = orders["jobs"][0]["id"].as_str().expect("an id");
    assert!(sandbox.ok(&["--store", "sqlite://undo.db", "diagram", piano]).contains(":::undone"));
}

#[test]
fn an_order_is_booked_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    run_example(&Sandbox::new(), "undo", &[&cluster.url()], &ORDER);
}
