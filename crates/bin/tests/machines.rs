//! Machines and signals through the binary, on both stores.

mod common;

use common::{Sandbox, UNKNOWN_JOB, assert_commands_exist, assert_contains, until};
use serde_json::{Value, json};
use windlass_testpg::Cluster;

const ASK: &str = r#"{"Ask": {"what": "deploy 17", "seconds": 3600}}"#;

#[test]
fn machines_are_signalled_filtered_shown_and_drawn() {
    operate(&Sandbox::new());
}

#[test]
fn machines_are_signalled_filtered_shown_and_drawn_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    operate(&Sandbox::on_postgres(&cluster));
}

fn operate(sandbox: &Sandbox) {
    // No worker runs yet: the signals arrive before the machine has started.
    let rejected =
        sandbox.submit(&["approval", ASK, "--key", "first", "--signal", r#"reject={"by": "ada"}"#]);
    let foreign = sandbox.submit(&["approval", ASK, "--kind-version", "2", "--any-kind"]);
    let answer = sandbox.json(&["show", &rejected, "--json"]);
    assert_eq!((&answer["stage"], &answer["inbox"][0]["payload"]["by"]), (&"Ask".into(), &"ada".into()));
    let _worker = sandbox.worker(&["--keep-done", "forever"]);
    let answer = sandbox.until_state(&rejected, "failed");
    assert_eq!(answer["failure"]["message"], r#"deploy 17 was rejected: {"by":"ada"}"#);

    let id = sandbox.submit(&["approval", ASK, "--key", "second"]);
    let answer = sandbox.until_state(&id, "waiting");
    assert_eq!((&answer["stage"], &answer["data"]), (&"Asked".into(), &json!({ "what": "deploy 17" })));
    assert_eq!(answer["wait"]["signals"]["names"], json!([{ "name": "approve" }, { "name": "reject" }]));
    assert!(answer["wait_until"].is_string() && answer["pending_children"] == 0, "{answer}");
    filter(sandbox, &id, &foreign);
    signal(sandbox, &id);
    draw(sandbox, &id, &rejected);
    list_children(sandbox, &id);
    drop_and_restore_unreadable_signals(sandbox);
}

fn filter(sandbox: &Sandbox, id: &str, foreign: &str) {
    let ids = |args: &[&str]| -> Vec<String> {
        let answer = sandbox.json(&[&["jobs", "--json"], args].concat());
        let jobs = answer["jobs"].as_array().expect("jobs").clone();
        jobs.iter().map(|job| job["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&["--state", "waiting"]), [id]);
    assert_eq!(ids(&["--stage", "Asked", "--state", "waiting"]), [id]);
    assert_eq!(ids(&["--version", "2"]), [foreign]);
    assert_eq!(ids(&["--stage", "Nowhere"]), Vec::<String>::new());
    let list = sandbox.ok(&["jobs", "--state", "waiting"]);
    assert!(list.starts_with("1 waiting\n"), "{list}");
    assert!(list.contains("STATE    STAGE  KIND") && list.contains("  waiting  Asked  approval"), "{list}");
    assert_eq!(sandbox.json(&["queues", "--json"])[0]["waiting"], 1);
    assert!(sandbox.ok(&["queues"]).contains("RUNNING  WAITING"));
    assert!(
        sandbox.ok(&["doctor"]).contains("ok    parked      1 job, waiting for signals"),
        "{}",
        sandbox.ok(&["doctor"])
    );
    let preview = sandbox.json(&["cancel", "--stage", "Asked", "--version", "1", "--dry-run", "--json"]);
    assert_eq!(preview["matching"], 1, "{preview}");
    assert_eq!(sandbox.json(&["cancel", "--version", "7", "--dry-run", "--json"])["matching"], 0);
    let answer = sandbox.json(&["why", foreign, "--json"]);
    assert_eq!(answer["cause"], "version_unserved", "{answer}");
}

fn signal(sandbox: &Sandbox, id: &str) {
    // A signal of another name does not wake it; the command notes that.
    let ended = sandbox.run(&["signal", "approval/second", "hello", "[1]"]);
    assert_eq!((ended.code, ended.stdout), (0, format!("{id} delivered\n")));
    assert!(ended.stderr.contains("waits for approve, reject and not for hello"), "{}", ended.stderr);
    let once = sandbox.json(&["signal", id, "hello", "-7", "--dedup", "a", "--json"]);
    assert_eq!((&once["delivery"], &once["job"]), (&"delivered".into(), &id.into()));
    let again = sandbox.ok(&["signal", id, "hello", "--dedup", "a"]);
    assert!(again.starts_with(&format!("{id} duplicate: ")), "{again}");
    let answer = sandbox.json(&["show", id, "--json"]);
    let payloads: Vec<&Value> =
        answer["inbox"].as_array().expect("inbox").iter().map(|signal| &signal["payload"]).collect();
    assert_eq!((payloads, &answer["inbox_has_more"]), (vec![&json!([1]), &json!(-7)], &false.into()));
    let page = sandbox.ok(&["show", id]);
    assert_contains(
        &page,
        &[
            "state      waiting\n  stage      Asked\n  waits      for the signal \"approve\" or \"reject\", until ",
            "\ndata of Asked\n",
            "\ninbox\n  hello  ",
            "\nlast transitions\n    1  Ask → Asked  wait  ",
        ],
    );
    let why = sandbox.json(&["why", id, "--json"]);
    assert_eq!(why["cause"], "signal");
    assert_commands_exist(sandbox, why["hint"].as_str().expect("a hint"));
    let task = sandbox.submit(&["noop", "--delay", "1h"]);
    assert!(sandbox.run(&["signal", &task, "hello"]).stderr.contains("note: the job has no stage"));

    let cases: &[(&[&str], &[&str])] = &[
        (&["signal"], &["<JOB>"]),
        (&["signal", id], &["needs a name"]),
        (&["signal", "abc", "go"], &["not a job id"]),
        (&["signal", UNKNOWN_JOB, "go"], &["there is no job", "windlass jobs"]),
        (&["signal", id, "two words"], &["contains ' '"]),
        (&["signal", id, "go", "{"], &["the payload is not JSON"]),
        (&["signal", id, "go", "--dedup", ""], &["dedup id of the signal"]),
        (&["signal", "approval/third", "go"], &["\"approval/third\" is not a job id", "or as kind/key"]),
        (&["submit", "approval", ASK, "--signal", "go={"], &["payload of the signal is not JSON"]),
        (&["diagram"], &["--kind"]),
        (&["diagram", UNKNOWN_JOB], &["there is no job"]),
        (&["diagram", &task], &["it has no stage"]),
        (&["diagram", "--kind", "noop"], &["no machine of kind \"noop\" has made a transition"]),
    ];
    sandbox.refuses(cases);
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

fn drop_and_restore_unreadable_signals(sandbox: &Sandbox) {
    let id = sandbox.submit(&["approval", ASK, "--key", "third"]);
    sandbox.until_state(&id, "waiting");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let send = || {
        runtime.block_on(async {
            let engine = windlass::Engine::builder(&sandbox.url).codec(Foreign).open().await.expect("opened");
            engine.signal(id.parse().expect("an id"), "approve", "yes").await.expect("sent");
        })
    };
    let unreadable = |count: usize| {
        until("the signal is unreadable", || {
            let answer = sandbox.json(&["show", &id, "--json"]);
            let inbox: Vec<Value> = answer["inbox"].as_array().expect("inbox").clone();
            (inbox.len() == count && inbox.iter().all(|signal| signal["unreadable"].is_string()))
                .then_some(inbox)
        })
    };
    send();
    let first = unreadable(1)[0]["number"].to_string();
    let page = sandbox.ok(&["show", &id]);
    let part = format!("number {first}, unreadable: its payload cannot be read: it was written by codec 77");
    assert!(page.contains(&part), "{page}");
    let why = sandbox.ok(&["why", &id]);
    assert!(why.contains(&format!("windlass signal --drop {id} {first}")), "{why}");
    assert_eq!(
        sandbox.ok(&["signal", "--restore", &id, &first, "--note", "again"]),
        format!("{id} signal {first} restored\n")
    );
    unreadable(1);
    send();
    let second = unreadable(2)[1]["number"].to_string();
    assert_eq!(sandbox.ok(&["signal", "--drop", &id, &first]), format!("{id} signal {first} dropped\n"));
    let by_key = ["signal", "--drop", "approval/third", &second, "--json"];
    assert_eq!(sandbox.json(&by_key)["outcome"], "done");
    unreadable(0);
    let log = sandbox.ok(&["audit"]);
    assert!(log.contains(&format!("restore signal {first}")) && log.contains("again"), "{log}");
    assert!(log.contains(&format!("drop signal {second}")), "{log}");
    sandbox.refuses(&[
        (&["signal", "--drop", &id, &first], &["there is no signal"]),
        (&["signal", "--restore", &id, "approve"], &["is not the number of a signal"]),
        (&["signal", "--drop", UNKNOWN_JOB, "1"], &["there is no job"]),
        (&["signal", "--drop", "--restore", &id, "1"], &["cannot be used with"]),
        (&["signal", &id, "approve", "--note", "x"], &["has no note"]),
    ]);
    sandbox.ok(&["cancel", &id]);
}

fn draw(sandbox: &Sandbox, id: &str, rejected: &str) {
    let diagram = sandbox.ok(&["diagram", id]);
    let expected =
        "stateDiagram-v2\n    [*] --> Ask\n    Ask --> Asked: wait\n    note right of Asked: waiting\n";
    assert_eq!(diagram.split_once('\n').expect("a title").1, expected);
    assert!(sandbox.ok(&["diagram", rejected]).ends_with("    Asked --> [*]: failed\n"));

    assert_eq!(sandbox.ok(&["signal", id, "approve", r#"{"by": "bob"}"#]), format!("{id} delivered\n"));
    let answer = sandbox.until_state(id, "done");
    assert_eq!(
        (&answer["output"]["by"], &answer["last_transitions"][1]["outcome"]),
        (&"bob".into(), &"done".into())
    );
    assert!(sandbox.fails(&["signal", id, "approve"]).contains("is done: it takes no more signals"));
    let diagram = sandbox.ok(&["diagram", "--kind", "approval"]);
    let expected = "%% approval version 1\nstateDiagram-v2\n    [*] --> Ask\n    Ask --> Asked: wait ×2\n    \
                    Asked --> [*]: done ×1\n    Asked --> [*]: failed ×1\n";
    assert_eq!(diagram, expected);
    let answer = sandbox.json(&["diagram", "--kind", "approval", "--json"]);
    assert_eq!(
        answer["versions"][0]["edges"][0],
        json!({ "from": "Ask", "to": "Asked", "outcome": "wait", "times": 2 })
    );
    assert_eq!(sandbox.json(&["diagram", id, "--json"])["starts"], json!(["Ask"]));
    assert!(
        sandbox.fails(&["diagram", "--kind", "approval", "--version", "2"]).contains("has made a transition")
    );
}

fn list_children(sandbox: &Sandbox, parent: &str) {
    let first = sandbox.submit(&["noop", "--parent", parent, "--delay", "1h"]);
    let second = sandbox.submit(&["sleep", r#"{"ms": 1}"#, "--parent", parent, "--delay", "1h"]);
    let list = sandbox.ok(&["jobs", "--parent", parent, "--limit", "1"]);
    assert!(list.starts_with("ID ") && list.contains(&first) && !list.contains(&second), "{list}");
    let next = list.lines().last().expect("a hint").strip_prefix("newer jobs: windlass ").expect(&list);
    let args: Vec<&str> = next.split(' ').collect();
    assert!(sandbox.ok(&args).contains(&second), "{next}");
    let answer = sandbox.json(&["jobs", "--parent", parent, "--kind", "sleep", "--json"]);
    assert_eq!((&answer["jobs"][0]["id"], &answer["next_after"]), (&second.as_str().into(), &Value::Null));
    assert!(sandbox.ok(&["jobs", "--parent", &first]).ends_with("has no children\n"));
    assert!(sandbox.fails(&["jobs", "--parent", UNKNOWN_JOB]).contains("there is no job"));
}

#[tokio::test]
async fn a_signal_to_a_full_inbox_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["migrate"]);
    let engine = windlass::Engine::open(&sandbox.url).await.expect("opened");
    let most = engine.store().limits().inbox;
    let submit = engine.submit_json("approval", 1, serde_json::from_str(ASK).expect("JSON"));
    let submit = (0..most).fold(submit, |submit, n| submit.signal("approve", n));
    let id = submit.await.expect("submitted").id().to_string();
    let text = sandbox.fails(&["signal", &id, "approve"]);
    assert!(
        text.contains("is full: 1000 signals") && text.contains(&format!("`windlass why {id}`")),
        "{text}"
    );
    let page = sandbox.ok(&["show", &id]);
    assert!(page.contains("  approve  just now  9\n  … and at least 91 more\n"), "{page}");
    let answer = sandbox.json(&["show", &id, "--json"]);
    assert_eq!(
        (answer["inbox"].as_array().map(Vec::len), &answer["inbox_has_more"]),
        (Some(100), &true.into())
    );
}
