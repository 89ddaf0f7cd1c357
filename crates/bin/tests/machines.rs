//! Machines and signals through the binary, on both stores.

mod common;

use common::{Place, until};
use serde_json::{Value, json};
use windlass_testpg::Cluster;

const NOBODY: &str = "0199f0c2-6f7a-7000-8000-000000000000";
const ASK: &str = r#"{"Ask": {"what": "deploy 17", "seconds": 3600}}"#;

#[test]
fn machines_are_signalled_filtered_shown_and_drawn() {
    let place = Place::new();
    let url = format!("sqlite://{}", place.path("windlass.db").display());
    operated(&place, &url);
}

#[test]
fn machines_are_signalled_filtered_shown_and_drawn_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    let place = Place::new();
    let url = format!("{}?schema=jobs", cluster.url());
    place.write("windlass.toml", &format!("store = '{url}'\n"));
    operated(&place, &url);
}

fn submit(place: &Place, args: &[&str]) -> String {
    place.ok(&[&["submit"], args].concat()).trim().to_owned()
}

fn reaches(place: &Place, id: &str, state: &str) -> Value {
    until(&format!("{id} is {state}"), || {
        let told = place.json(&["show", id, "--json"]);
        (told["state"] == state).then_some(told)
    })
}

fn operated(place: &Place, url: &str) {
    // Nobody works yet: the signals come before the machine has begun.
    let rejected = submit(place, &["approval", ASK, "--key", "first", "--signal", r#"reject={"by": "ada"}"#]);
    let foreign = submit(place, &["approval", ASK, "--kind-version", "2", "--any-kind"]);
    let told = place.json(&["show", &rejected, "--json"]);
    assert_eq!((&told["stage"], &told["inbox"][0]["payload"]["by"]), (&"Ask".into(), &"ada".into()));
    let _worker = place.worker(&["--keep-done", "forever"]);
    let told = reaches(place, &rejected, "failed");
    assert_eq!(told["failure"]["message"], r#"deploy 17 was rejected: {"by":"ada"}"#);

    let id = submit(place, &["approval", ASK, "--key", "second"]);
    let told = reaches(place, &id, "waiting");
    assert_eq!((&told["stage"], &told["data"]), (&"Asked".into(), &json!({ "what": "deploy 17" })));
    assert_eq!(told["wait"]["signals"]["names"], json!([{ "name": "approve" }, { "name": "reject" }]));
    assert!(told["until"].is_string() && told["pending"] == 0, "{told}");
    filtered(place, &id, &foreign);
    signalled(place, &id);
    drawn(place, &id, &rejected);
    children(place, &id);
    set_aside(place, url);
}

fn filtered(place: &Place, id: &str, foreign: &str) {
    let ids = |args: &[&str]| -> Vec<String> {
        let told = place.json(&[&["jobs", "--json"], args].concat());
        let jobs = told["jobs"].as_array().expect("jobs").clone();
        jobs.iter().map(|job| job["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&["--state", "waiting"]), [id]);
    assert_eq!(ids(&["--stage", "Asked", "--state", "waiting"]), [id]);
    assert_eq!(ids(&["--version", "2"]), [foreign]);
    assert_eq!(ids(&["--stage", "Nowhere"]), Vec::<String>::new());
    let list = place.ok(&["jobs", "--state", "waiting"]);
    assert!(list.starts_with("1 ready · 1 waiting · 1 failed\n"), "{list}");
    assert!(list.contains("STATE    STAGE  KIND") && list.contains("  waiting  Asked  approval"), "{list}");
    assert_eq!(place.json(&["queues", "--json"])[0]["waiting"], 1);
    assert!(place.ok(&["queues"]).contains("RUNNING  WAITING"));
    assert!(
        place.ok(&["doctor"]).contains("ok    parked      1 job until signals come"),
        "{}",
        place.ok(&["doctor"])
    );
    let preview = place.json(&["cancel", "--stage", "Asked", "--version", "1", "--dry-run", "--json"]);
    assert_eq!(preview["matching"], 1, "{preview}");
    assert_eq!(place.json(&["cancel", "--version", "7", "--dry-run", "--json"])["matching"], 0);
    let told = place.json(&["why", foreign, "--json"]);
    assert_eq!(told["cause"], "version_unserved", "{told}");
}

fn signalled(place: &Place, id: &str) {
    let by_key = ["--kind", "approval", "--key", "second"];
    // Another name wakes nobody, and says so.
    let ended = place.run(&[&["signal", "hello", "[1]"], &by_key[..]].concat());
    assert_eq!((ended.code, ended.out), (0, format!("{id} delivered\n")));
    assert!(ended.err.contains("waits for approve, reject and not for hello"), "{}", ended.err);
    let once = place.json(&["signal", id, "hello", "-7", "--dedup", "a", "--json"]);
    assert_eq!((&once["delivery"], &once["job"]), (&"delivered".into(), &id.into()));
    let again = place.ok(&["signal", id, "hello", "--dedup", "a"]);
    assert!(again.starts_with(&format!("{id} duplicate: ")), "{again}");
    let told = place.json(&["show", id, "--json"]);
    let said: Vec<&Value> =
        told["inbox"].as_array().expect("inbox").iter().map(|signal| &signal["payload"]).collect();
    assert_eq!((said, &told["inbox_has_more"]), (vec![&json!([1]), &json!(-7)], &false.into()));
    let page = place.ok(&["show", id]);
    for part in [
        "state      waiting\n  stage      Asked\n  waits      for the signal \"approve\" or \"reject\", until ",
        "\ndata of Asked\n",
        "\ninbox\n  hello  ",
        "\nlast transitions\n    1  Ask → Asked  wait  ",
    ] {
        assert!(page.contains(part), "{part:?} is not in\n{page}");
    }
    let why = place.json(&["why", id, "--json"]);
    assert_eq!(why["cause"], "signal");
    for command in why["hint"].as_str().expect("a hint").split('`').skip(1).step_by(2) {
        let args: Vec<&str> = command.strip_prefix("windlass ").expect(command).split(' ').collect();
        place.ok(&[&args[..], &["--help"]].concat());
    }
    let task = submit(place, &["noop", "--delay", "1h"]);
    assert!(place.run(&["signal", &task, "hello"]).err.contains("note: the job has no stage"));

    let cases: &[(&[&str], &[&str])] = &[
        (&["signal"], &["<JOB>"]),
        (&["signal", id], &["has no name"]),
        (&["signal", "abc", "go"], &["not a job id"]),
        (&["signal", NOBODY, "go"], &["there is no job", "windlass jobs"]),
        (&["signal", id, "two words"], &["contains ' '"]),
        (&["signal", id, "go", "{"], &["the payload is not JSON"]),
        (&["signal", id, "go", "--dedup", ""], &["dedup id of the signal"]),
        (&["signal", "go", "--key", "second"], &["--kind"]),
        (&["signal", id, "go", "1", "--kind", "approval", "--key", "second"], &["both a job and --key"]),
        (
            &["signal", "go", "--kind", "approval", "--key", "third"],
            &["no \"approval\" job has the key \"third\""],
        ),
        (&["submit", "approval", ASK, "--signal", "go={"], &["payload of the signal is not JSON"]),
        (&["diagram"], &["--kind"]),
        (&["diagram", NOBODY], &["there is no job"]),
        (&["diagram", &task], &["it has no stage"]),
        (&["diagram", "--kind", "noop"], &["no machine of kind \"noop\" has made a transition"]),
    ];
    for (args, parts) in cases {
        let said = place.bad(args);
        for part in *parts {
            assert!(said.contains(part), "{args:?} said {said:?}, which lacks {part:?}");
        }
    }
}

/// A codec that the stock binary does not have.
struct Foreign;

impl windlass::Codec for Foreign {
    fn id(&self) -> u8 {
        77
    }

    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(plain.to_vec()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.to_vec())
    }
}

fn set_aside(place: &Place, url: &str) {
    let id = submit(place, &["approval", ASK, "--key", "third"]);
    reaches(place, &id, "waiting");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let send = || {
        runtime.block_on(async {
            let engine = windlass::Engine::open(url).await.expect("opened").codec(Foreign);
            engine.signal(id.parse().expect("an id"), "approve", "yes").await.expect("sent");
        })
    };
    let aside = |count: usize| {
        until("the signal is set aside", || {
            let told = place.json(&["show", &id, "--json"]);
            let aside: Vec<Value> = told["inbox"].as_array().expect("inbox").clone();
            (aside.len() == count && aside.iter().all(|signal| signal["set_aside"].is_string()))
                .then_some(aside)
        })
    };
    send();
    let first = aside(1)[0]["number"].to_string();
    let page = place.ok(&["show", &id]);
    let part = format!("number {first}, set aside: its payload cannot be read: it was written by codec 77");
    assert!(page.contains(&part), "{page}");
    let why = place.ok(&["why", &id]);
    assert!(why.contains(&format!("windlass signal --drop {id} {first}")), "{why}");
    assert_eq!(
        place.ok(&["signal", "--restore", &id, &first, "--note", "again"]),
        format!("{id} signal {first} restored\n")
    );
    aside(1);
    send();
    let second = aside(2)[1]["number"].to_string();
    assert_eq!(place.ok(&["signal", "--drop", &id, &first]), format!("{id} signal {first} dropped\n"));
    let by_key = ["signal", "--drop", "--kind", "approval", "--key", "third", &second, "--json"];
    assert_eq!(place.json(&by_key)["did"], "done");
    aside(0);
    let log = place.ok(&["audit"]);
    assert!(log.contains(&format!("restore signal {first}")) && log.contains("again"), "{log}");
    assert!(log.contains(&format!("drop signal {second}")), "{log}");
    let cases: &[(&[&str], &str)] = &[
        (&["signal", "--drop", &id, &first], "there is no signal"),
        (&["signal", "--restore", &id, "approve"], "is not the number of a signal"),
        (&["signal", "--drop", NOBODY, "1"], "there is no job"),
        (&["signal", "--drop", "--restore", &id, "1"], "cannot be used with"),
        (&["signal", &id, "approve", "--note", "x"], "not in the audit log"),
    ];
    for (args, part) in cases {
        let said = place.bad(args);
        assert!(said.contains(part), "{args:?} said {said:?}, which lacks {part:?}");
    }
    place.ok(&["cancel", &id]);
}

fn drawn(place: &Place, id: &str, rejected: &str) {
    let diagram = place.ok(&["diagram", id]);
    let expected =
        "stateDiagram-v2\n    [*] --> Ask\n    Ask --> Asked: wait\n    note right of Asked: waiting\n";
    assert_eq!(diagram.split_once('\n').expect("a title").1, expected);
    assert!(place.ok(&["diagram", rejected]).ends_with("    Asked --> [*]: failed\n"));

    assert_eq!(place.ok(&["signal", id, "approve", r#"{"by": "bob"}"#]), format!("{id} delivered\n"));
    let told = reaches(place, id, "done");
    assert_eq!((&told["output"]["by"], &told["last_steps"][1]["how"]), (&"bob".into(), &"done".into()));
    assert!(place.bad(&["signal", id, "approve"]).contains("is done: it takes no more signals"));
    let diagram = place.ok(&["diagram", "--kind", "approval"]);
    let expected = "%% approval version 1\nstateDiagram-v2\n    [*] --> Ask\n    Ask --> Asked: wait ×2\n    \
                    Asked --> [*]: done ×1\n    Asked --> [*]: failed ×1\n";
    assert_eq!(diagram, expected);
    let told = place.json(&["diagram", "--kind", "approval", "--json"]);
    assert_eq!(
        told["versions"][0]["edges"][0],
        json!({ "from": "Ask", "to": "Asked", "how": "wait", "times": 2 })
    );
    assert_eq!(place.json(&["diagram", id, "--json"])["starts"], json!(["Ask"]));
    assert!(
        place.bad(&["diagram", "--kind", "approval", "--version", "2"]).contains("has made a transition")
    );
}

fn children(place: &Place, parent: &str) {
    let first = submit(place, &["noop", "--parent", parent, "--delay", "1h"]);
    let second = submit(place, &["sleep", r#"{"ms": 1}"#, "--parent", parent, "--delay", "1h"]);
    let list = place.ok(&["jobs", "--parent", parent, "--limit", "1"]);
    assert!(list.starts_with("ID ") && list.contains(&first) && !list.contains(&second), "{list}");
    let next = list.lines().last().expect("a hint").strip_prefix("younger ones: windlass ").expect(&list);
    let args: Vec<&str> = next.split(' ').collect();
    assert!(place.ok(&args).contains(&second), "{next}");
    let told = place.json(&["jobs", "--parent", parent, "--kind", "sleep", "--json"]);
    assert_eq!((&told["jobs"][0]["id"], &told["next_after"]), (&second.as_str().into(), &Value::Null));
    assert!(place.ok(&["jobs", "--parent", &first]).ends_with("has no children\n"));
    assert!(place.bad(&["jobs", "--parent", NOBODY]).contains("there is no job"));
}

#[tokio::test]
async fn a_full_inbox_says_so() {
    let place = Place::new();
    place.ok(&["migrate"]);
    let url = format!("sqlite://{}", place.path("windlass.db").display());
    let engine = windlass::Engine::open(&url).await.expect("opened");
    let most = engine.store().limits().inbox;
    let submit = engine.submit_json("approval", 1, serde_json::from_str(ASK).expect("JSON"));
    let submit = (0..most).fold(submit, |submit, n| submit.signal("approve", n));
    let id = submit.await.expect("submitted").id().to_string();
    let said = place.bad(&["signal", &id, "approve"]);
    assert!(
        said.contains("is full: 1000 signals") && said.contains(&format!("`windlass why {id}`")),
        "{said}"
    );
    let page = place.ok(&["show", &id]);
    assert!(page.contains("  approve  just now  9\n  … and at least 91 more\n"), "{page}");
    let told = place.json(&["show", &id, "--json"]);
    assert_eq!((told["inbox"].as_array().map(Vec::len), &told["inbox_has_more"]), (Some(100), &true.into()));
}
