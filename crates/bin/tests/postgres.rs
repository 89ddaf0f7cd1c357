//! The same commands on PostgreSQL.

mod common;

use common::Place;
use windlass_testpg::Cluster;

/// The schema version of this build.
const NEWEST: i32 = windlass::store::SchemaState::CURRENT.version;

#[test]
fn submit_work_and_look_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    let place = Place::new();
    place.write("windlass.toml", &format!("store = '{}?schema=jobs'\n", cluster.url()));
    assert_eq!(place.run(&["migrate", "--status"]).code, 1);
    place.ok(&["submit", "noop", "--key", "a"]);
    assert_eq!(place.json(&["migrate", "--status", "--json"])["version"], NEWEST);
    let said = place.ok(&["doctor"]);
    for part in [
        "durability  fsync on, full_page_writes on, synchronous_commit on",
        "may write",
        "used by schema jobs",
        "1 ready",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let _worker = place.worker(&[]);
    let ended = place.run(&["submit", "exec", r#"{"command": "echo", "args": ["hi"]}"#, "--wait"]);
    assert!(ended.code == 0 && ended.out.contains(r#""stdout": "hi\n""#), "{ended:?}");
    assert!(place.ok(&["jobs", "--key", "a"]).contains("noop"));
    cluster.sql("windlass", "alter system set synchronous_commit = off").expect("set");
    cluster.sql("windlass", "select pg_reload_conf()").expect("told");
    let said = common::until("the doctor sees it", || {
        let ended = place.run(&["doctor"]);
        (ended.code == 1).then_some(ended.out)
    });
    assert!(said.contains("FAIL  durability  synchronous_commit is off"), "{said}");
}

#[test]
fn people_act_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    let place = Place::new();
    place.write("windlass.toml", &format!("store = '{}?schema=jobs'\n", cluster.url()));
    place.ok(&["limits", "set", "api", "5", "--per", "1h"]);
    let submit = |args: &[&str]| place.ok(&[&["submit", "noop"], args].concat()).trim().to_owned();
    let first = submit(&["--serial", "user 9", "--unique", "u"]);
    let second = submit(&["--serial", "user 9", "--rate", "api", "--parent", &first]);
    assert!(
        place
            .ok(&["why", &second])
            .contains(&format!("one at a time: job {first} has the turn, and it is next"))
    );
    place.ok(&["pause", &first, "--by", "ada", "--note", "db down"]);
    assert!(place.ok(&["why", &first]).starts_with("It was paused by ada at "));
    assert!(place.ok(&["show", &first]).contains("unique     u until it ends"));
    place.ok(&["priority", "-5", &first]);
    place.ok(&["resume", &first]);
    place.ok(&["queues", "pause", "default"]);
    assert!(place.ok(&["queues"]).contains("by "));
    place.ok(&["queues", "resume", "default"]);
    assert!(place.ok(&["limits"]).contains("api"));
    assert_eq!(place.json(&["serial", "--json"])[0]["key"], "user 9");
    place.ok(&["serial", "slots", "user 9", "2"]);
    assert!(place.ok(&["schedules", "set", "s", "@hourly", "--kind", "noop"]).contains("fires next"));
    let fired = place.ok(&["schedules", "trigger", "s"]);
    assert_eq!(place.json(&["schedules", "show", "s", "--json"])["firings"][0]["job"], fired.trim());
    assert_eq!(place.ok(&["cancel", "--kind", "noop", "--yes"]), "3 cancelled\n");
    assert_eq!(place.ok(&["retry", &second]), format!("{second} retried\n"));
    assert!(place.ok(&["doctor"]).contains("schedules   1 known"));
    let prune = ["prune", "--state", "cancelled", "--older-than", "0s", "--yes"];
    assert_eq!(place.ok(&prune), "2 deleted\n");
    assert!(place.ok(&["audit"]).contains("prune 2 jobs"));
}
