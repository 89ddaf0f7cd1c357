//! Workflows through the binary, on both stores, and the examples of them.

mod common;

use common::{Place, until};
use serde_json::{Value, json};
use windlass_testpg::Cluster;

const NOBODY: &str = "0199f0c2-6f7a-7000-8000-000000000000";
/// Reminds at once, then waits for an answer for an hour.
const SOON: &str = r#"{"what": "the plants", "seconds": 0, "times": 1}"#;
const PATIENT: &str = r#"{"what": "the plants", "seconds": 3600}"#;

#[test]
fn workflows_are_shown_signalled_checked_forked_and_drawn() {
    operated(&Place::new());
}

#[test]
fn workflows_are_shown_signalled_checked_forked_and_drawn_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    let place = Place::new();
    place.write("windlass.toml", &format!("store = '{}?schema=jobs'\n", cluster.url()));
    operated(&place);
}

fn submit(place: &Place, args: &[&str]) -> String {
    place.ok(&[&["submit", "reminder"], args].concat()).trim().to_owned()
}

fn reaches(place: &Place, id: &str, state: &str) -> Value {
    until(&format!("{id} is {state}"), || {
        let told = place.json(&["show", id, "--json"]);
        (told["state"] == state).then_some(told)
    })
}

fn operated(place: &Place) {
    let worker = place.worker(&["--keep-done", "forever"]);
    let unanswered = submit(place, &[SOON, "--key", "first"]);
    reaches(place, &unanswered, "failed");
    let asleep = submit(place, &[PATIENT, "--key", "second"]);
    reaches(place, &asleep, "waiting");
    shown(place, &unanswered, &asleep);
    drawn(place, &unanswered, &asleep);
    let fork = forked(place, &unanswered);
    drop(worker);
    checked(place);
    wrong(place, &unanswered);
    many(place, &unanswered, &fork);
}

fn shown(place: &Place, unanswered: &str, asleep: &str) {
    let told = place.json(&["show", unanswered, "--json"]);
    let calls: Vec<String> = told["journal"]
        .as_array()
        .expect("a journal")
        .iter()
        .map(|entry| format!("{} {} {}", entry["op"], entry["name"], entry["mark"]).replace('"', ""))
        .collect();
    assert_eq!(calls[..2], ["sleep sleep begun", "sleep sleep done"], "{calls:?}");
    assert!(calls.contains(&"step remind done".to_owned()), "{calls:?}");
    let failed = told["journal"].as_array().expect("a journal").iter();
    let failed: Vec<&Value> = failed.filter(|entry| entry["name"] == "answer").collect();
    assert_eq!(failed[1]["failure"]["class"], "timeout", "{failed:?}");
    assert_eq!(failed[1]["key"], "1");
    assert_eq!(told["context"], json!({ "reminded": 1 }));
    let page = place.ok(&["show", unanswered]);
    for part in [
        "state      failed (stopped): unanswered: the plants is not answered after 1 reminders",
        "\ncontext\n  reminded = 1\n",
        "\njournal\n  SEQ  OP      CALL ",
        "remind[1]",
        "timeout: no signal \"answer\" came in time",
        "crates/bin/src/kinds/reminder.rs:",
    ] {
        assert!(page.contains(part), "{part:?} is not in\n{page}");
    }
    // It sleeps: nothing but its time is waited for.
    let page = place.ok(&["show", asleep]);
    assert!(page.contains("  waits      until 2"), "{page}");
    assert_eq!(place.json(&["why", asleep, "--json"])["cause"], "asleep");
    let ended = place.run(&["signal", asleep, "answer"]);
    assert_eq!(ended.code, 0);
    assert!(ended.err.contains("waits for its time and not for answer"), "{}", ended.err);
}

fn drawn(place: &Place, unanswered: &str, asleep: &str) {
    let diagram = place.ok(&["diagram", unanswered]);
    let expected = "flowchart TD\n    start((start))\n    n0[\"<b>sleep</b><br/>sleep: done\"]:::done\n    \
        n1[\"<b>remind</b><br/>step: done\"]:::done\n    n2[\"<b>answer</b><br/>signal: failed\"]:::failed\n    \
        end_failed((failed))\n    start --> n0\n    n0 --> n1\n    n1 --> n2\n    n2 --> end_failed\n";
    assert!(diagram.split_once('\n').expect("a title").1.starts_with(expected), "{diagram}");
    let diagram = place.ok(&["diagram", "--kind", "reminder"]);
    assert!(diagram.starts_with("%% reminder version 1, 2 jobs\n"), "{diagram}");
    assert!(diagram.contains("start -->|2| n0\n    n0 -->|1| n1\n"), "{diagram}");
    assert!(diagram.contains("sleep: 1 done, 1 waiting"), "{diagram}");
    let told = place.json(&["diagram", asleep, "--json"]);
    assert_eq!(told["graph"]["nodes"][0]["fates"], json!({ "waiting": 1 }), "{told}");
    let told = place.json(&["diagram", "--kind", "reminder", "--json"]);
    assert_eq!(told["versions"][0]["graph"]["jobs"], 2, "{told}");
    let ended = place.run(&["diagram", unanswered, "--svg", "a.svg"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{ended:?}");
    let picture = std::fs::read_to_string(place.path("a.svg")).expect("written");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert_eq!(place.ok(&["diagram", unanswered, "--svg", "-"]), picture);
}

fn forked(place: &Place, unanswered: &str) -> String {
    let fork =
        place.ok(&["fork", unanswered, "--before", "answer", "--new-key", "again", "--note", "once more"]);
    let fork = fork.trim().to_owned();
    let told = reaches(place, &fork, "failed");
    assert_eq!((&told["key"], &told["context"]["reminded"]), (&"again".into(), &1.into()));
    // What was before is not run again: it has the times of the other.
    let other = place.json(&["show", unanswered, "--json"]);
    assert_eq!(told["journal"][2], other["journal"][2]);
    assert_eq!(other["key"], "first");
    let audit = place.ok(&["audit"]);
    assert!(audit.contains("fork") && audit.contains("once more"), "{audit}");
    fork
}

fn checked(place: &Place) {
    let told = place.ok(&["check"]);
    assert!(
        told.starts_with("1 open workflow replayed, 1 entries in their journals: none would break\n"),
        "{told}"
    );
    let told = place.json(&["check", "--kind", "reminder", "--json"]);
    assert_eq!((&told["jobs"], &told["broken"]), (&1.into(), &json!([])), "{told}");
    let help = place.ok(&["check", "--help"]);
    assert!(help.contains("examples/commands.rs") && help.contains("new build"), "{help}");
    // A program that lacks the workflow says so.
    assert!(place.bad(&["check", "--kind", "order"]).contains("serves no workflow \"order\""));
    // An input that the code cannot read would break.
    submit(place, &[r#"{"wat": 1}"#, "--key", "unreadable"]);
    let ended = place.run(&["check"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    for part in
        ["1 would break", "reminder version 1, key unreadable\n  undecodable: the input does not decode"]
    {
        assert!(ended.out.contains(part), "{part:?} is not in\n{}", ended.out);
    }
    let ended = place.run(&["check", "--json"]);
    let told: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!((ended.code, &told["broken"][0]["why"]["class"]), (1, &"undecodable".into()));
}

fn wrong(place: &Place, unanswered: &str) {
    let cases: &[(&[&str], &[&str])] = &[
        (&["fork"], &["no job is given"]),
        (&["fork", NOBODY], &["there is no job"]),
        (&["fork", unanswered, "--before", "pay"], &["no call \"pay\"", "it has sleep, remind, answer"]),
        (&["fork", unanswered, "--before", "answer", "--step-key", "9"], &["with key \"9\""]),
        (&["fork", unanswered, "--before-entry", "99"], &["no entry 99"]),
        (&["fork", unanswered, "--before-entry", "1", "--from-beginning"], &["cannot be used with"]),
        (&["fork", unanswered, "--step-key", "1"], &["--before"]),
        (&["fork", unanswered, "--kind", "reminder"], &["not both"]),
        (&["fork", unanswered, "--new-key", "first"], &["first"]),
        (&["fork", "--kind", "reminder", "--new-key", "a"], &["<JOB>"]),
        (&["fork", "--kind", "reminder"], &["--yes"]),
        (&["fork", "--all", "--kind", "reminder"], &["leave one of them out"]),
        (&["diagram", unanswered, "--svg", "no/such/folder.svg"], &["cannot be written"]),
        (&["diagram", unanswered, "--svg", "-", "--json"], &["cannot be used with"]),
    ];
    for (args, parts) in cases {
        let said = place.bad(args);
        for part in *parts {
            assert!(said.contains(part), "{args:?} said {said:?}, which lacks {part:?}");
        }
    }
}

fn many(place: &Place, unanswered: &str, fork: &str) {
    let failed = ["--state", "failed", "--kind", "reminder"];
    let preview = place.json(&[&["fork", "--dry-run", "--json"], &failed[..]].concat());
    assert_eq!(preview["matching"], 2, "{preview}");
    assert!(place.ok(&[&["fork", "--dry-run"], &failed[..]].concat()).starts_with("2 jobs to fork:\n"));
    let told = place.json(&[&["fork", "--before", "remind", "--yes", "--json"], &failed[..]].concat());
    let from: Vec<&Value> =
        told["made"].as_array().expect("pairs").iter().map(|pair| &pair["from"]).collect();
    assert_eq!(from, [fork, unanswered], "{told}");
    // One that has no such call is refused, and the others are forked.
    let ended = place.run(&["fork", "--before", "remind", "--yes", "--kind", "reminder"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.out.contains(" → ") && ended.out.contains("2 forked, 4 refused\n"), "{ended:?}");
    assert!(ended.err.contains("its journal has no call \"remind\""), "{ended:?}");
}

/// A journal of more entries than a page shows, and one that the code does not fit.
#[test]
fn long_journals_are_cut_and_what_diverges_is_told_and_goes_on_when_mended() {
    let place = Place::new();
    let worker = place.worker(&[]);
    let long = submit(&place, &[r#"{"what": "the plants", "seconds": 0, "times": 30}"#]);
    reaches(&place, &long, "failed");
    let page = place.ok(&["show", &long]);
    let entries = place.json(&["show", &long, "--json"])["journal"].as_array().expect("a journal").len();
    assert!(entries > 60, "{entries}");
    assert!(
        page.contains(&format!("… {} entries before these; --all shows them too", entries - 50)),
        "{page}"
    );
    assert!(!page.contains("remind[1]") && page.contains("remind[30]"), "{page}");
    assert!(place.ok(&["show", &long, "--all"]).contains("remind[1]"));

    let id = submit(&place, &[r#"{"what": "the plants", "seconds": 1, "times": 1000}"#, "--key", "second"]);
    until("it has reminded", || place.ok(&["show", &id]).contains("remind[1]").then_some(()));
    drop(worker);
    // As if an older build had slept where this one has a step.
    let change = |op: i64| {
        let connection = rusqlite::Connection::open(place.path("windlass.db")).expect("the store");
        connection.busy_timeout(std::time::Duration::from_secs(10)).expect("patience");
        let sql = "update windlass_journal set op = ?1 where name = 'remind' and key = '1'";
        assert!(connection.execute(sql, [op]).expect("changed") > 0);
    };
    // As if an older build had called it otherwise, with an undo: that breaks nothing, but is told, and refused if asked to.
    let rename = |from: &str, to: &str, mark: i64| {
        let connection = rusqlite::Connection::open(place.path("windlass.db")).expect("the store");
        connection.busy_timeout(std::time::Duration::from_secs(10)).expect("patience");
        let sql = "update windlass_journal set name = ?2, mark = ?3 where name = ?1 and key = '1'";
        assert!(connection.execute(sql, (from, to, mark)).expect("changed") > 0);
    };
    assert_eq!(place.run(&["check", "--strict"]).code, 0, "it is the same build");
    rename("remind", "nag", 7);
    let ended = place.run(&["check"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for part in [
        "none would break, 1 would lose an undo\n",
        "step \"nag\" at crates/bin/src/kinds/reminder.rs:",
        ", WITH AN UNDO: reminder version 1, job ",
        "step \"remind\" at crates/bin/src/kinds/reminder.rs:",
        "it would be run:\n",
    ] {
        assert!(ended.out.contains(part), "{part:?} is not in\n{}", ended.out);
    }
    let ended = place.run(&["check", "--strict", "--json"]);
    let told: Value = serde_json::from_str(&ended.out).expect("JSON");
    let changed = |n: usize, what: &str| told["changed"][n][what].clone();
    assert_eq!((ended.code, &told["losing_undo"]), (1, &json!(1)), "{told}");
    assert_eq!(
        [changed(0, "name"), changed(0, "how"), changed(0, "undo")],
        [json!("nag"), json!("not_reached"), json!(true)]
    );
    let new = told["changed"].as_array().expect("calls").iter().filter(|call| call["how"] == "new");
    assert_eq!(new.map(|call| &call["name"]).collect::<Vec<_>>(), ["remind"], "{told}");
    assert!(ended.err.contains("--strict: this build differs"), "{ended:?}");
    rename("nag", "remind", 3);
    change(3);
    let ended = place.run(&["check"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    for part in
        ["1 would break", ", key second\n  diverged: ", "    recorded:  sleep at ", "    attempted: step at "]
    {
        assert!(ended.out.contains(part), "{part:?} is not in\n{}", ended.out);
    }
    let _worker = place.worker(&[]);
    let told = reaches(&place, &id, "failed");
    assert_eq!(told["reason"], "diverged", "{told}");
    assert_eq!(place.json(&["why", &id, "--json"])["cause"], "diverged");
    change(1);
    place.ok(&["retry", &id]);
    place.ok(&["signal", &id, "answer", r#""watered""#]);
    assert_eq!(reaches(&place, &id, "done")["output"], "watered");
}

fn plays(place: &Place, name: &str, args: &[&str], parts: &[&str]) {
    let ended = place.end(place.command_of(&common::example("windlass", name), args));
    assert_eq!(ended.code, 0, "{ended:?}");
    for part in parts {
        assert!(ended.out.contains(part), "{part:?} is not in\n{}", ended.out);
    }
}

const ORDER: [&str; 4] = [
    "a lamp is on its way as parcel 1",
    "payment 2 is given back",
    "the job failed (stopped): a piano does not fit into the van",
    "step \"pay\": undone",
];

#[test]
fn the_examples_of_workflows_do_what_they_say() {
    let place = Place::new();
    plays(&place, "order", &[], &ORDER);
    let newsletter =
        ["welcome, Ann", "goodbye, Ann", "3 issues were sent", "the last issue, from its context: \"2"];
    plays(&place, "newsletter", &[], &newsletter);
    plays(&place, "expense", &[], &["the program approved a train ticket, and it is paid"]);
    let fanout = [
        "1996 thumbnails are made, 4 failed",
        "why does the archive wait? It waits for the merge of its branch \"thumbnails\"",
        "the disk is mended, and 4 are tried again",
        "7995 bytes of thumbnails, and the checksum of all tiles is 42705",
        "one of the tiles: Some(Number(56))",
    ];
    plays(&place, "fanout", &[], &fanout);
    let archive = place.json(&["--store", "sqlite://fanout.db", "jobs", "--kind", "archive", "--json"]);
    let archive = archive["jobs"][0]["id"].as_str().expect("an id");
    let branches = place.ok(&["--store", "sqlite://fanout.db", "branches", archive]);
    assert!(branches.contains("tiles  merged\n") && branches.contains("20,000 done"), "{branches}");
    // What they print to look at them with works.
    let orders = place.json(&["--store", "sqlite://order.db", "jobs", "--json"]);
    let piano = orders["jobs"][0]["id"].as_str().expect("an id");
    assert!(place.ok(&["--store", "sqlite://order.db", "diagram", piano]).contains(":::undone"));
}

#[test]
fn an_order_is_booked_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    plays(&Place::new(), "order", &[&cluster.url()], &ORDER);
}
