//! Commands on PostgreSQL.

mod common;

use common::{Sandbox, assert_contains};
use windlass_testpg::Cluster;

/// The schema version of this build.
const NEWEST: i32 = windlass::store::SchemaState::CURRENT.version;

#[test]
fn jobs_are_submitted_run_and_shown_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    let sandbox = Sandbox::on_postgres(&cluster);
    assert_eq!(sandbox.run(&["migrate", "--status"]).code, 1);
    sandbox.ok(&["submit", "noop", "--key", "a"]);
    assert_eq!(sandbox.json(&["migrate", "--status", "--json"])["version"], NEWEST);
    let text = sandbox.ok(&["doctor"]);
    assert_contains(
        &text,
        &[
            "durability  fsync on, full_page_writes on, synchronous_commit on",
            "may write",
            "used by schema jobs",
            "1 ready",
        ],
    );
    let _worker = sandbox.worker(&[]);
    let ended = sandbox.run(&["submit", "exec", r#"{"command": "echo", "args": ["hi"]}"#, "--wait"]);
    assert!(ended.code == 0 && ended.stdout.contains(r#""stdout": "hi\n""#), "{ended:?}");
    assert!(sandbox.ok(&["jobs", "--key", "a"]).contains("noop"));
    cluster.sql("windlass", "alter system set synchronous_commit = off").expect("set");
    cluster.sql("windlass", "select pg_reload_conf()").expect("reloaded");
    let text = common::until("the doctor sees it", || {
        let ended = sandbox.run(&["doctor"]);
        (ended.code == 1).then_some(ended.stdout)
    });
    assert!(text.contains("FAIL  durability  synchronous_commit is off"), "{text}");
}

#[test]
fn people_act_on_jobs_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    let sandbox = Sandbox::on_postgres(&cluster);
    sandbox.ok(&["limits", "set", "api", "5", "--per", "1h"]);
    let submit = |args: &[&str]| sandbox.submit(&[&["noop"], args].concat());
    let first = submit(&["--serial", "user 9", "--unique", "u"]);
    let second = submit(&["--serial", "user 9", "--rate", "api", "--parent", &first]);
    assert!(
        sandbox
            .ok(&["why", &second])
            .contains(&format!("one at a time: job {first} has the slot, and it is next"))
    );
    sandbox.ok(&["pause", &first, "--by", "ada", "--note", "db down"]);
    assert!(sandbox.ok(&["why", &first]).starts_with("It was paused by ada at "));
    assert!(sandbox.ok(&["show", &first]).contains("unique     u until it ends"));
    sandbox.ok(&["priority", "-5", &first]);
    sandbox.ok(&["resume", &first]);
    sandbox.ok(&["queues", "pause", "default"]);
    assert!(sandbox.ok(&["queues"]).contains("by "));
    sandbox.ok(&["queues", "resume", "default"]);
    assert!(sandbox.ok(&["limits"]).contains("api"));
    assert_eq!(sandbox.json(&["serial", "--json"])[0]["key"], "user 9");
    sandbox.ok(&["serial", "slots", "user 9", "2"]);
    assert!(sandbox.ok(&["schedules", "set", "s", "@hourly", "--kind", "noop"]).contains("fires next"));
    let fired = sandbox.ok(&["schedules", "trigger", "s"]);
    assert_eq!(sandbox.json(&["schedules", "show", "s", "--json"])["firings"][0]["job"], fired.trim());
    assert_eq!(sandbox.ok(&["cancel", "--kind", "noop", "--yes"]), "3 cancelled\n");
    assert_eq!(sandbox.ok(&["retry", &second]), format!("{second} retried\n"));
    assert!(sandbox.ok(&["doctor"]).contains("schedules   1 known"));
    let prune = ["prune", "--state", "cancelled", "--older-than", "0s", "--yes"];
    assert_eq!(sandbox.ok(&prune), "2 deleted\n");
    assert!(sandbox.ok(&["audit"]).contains("prune 2 jobs"));
}
