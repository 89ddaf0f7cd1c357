//! The same commands on PostgreSQL.

mod common;

use common::Place;
use windlass_cluster::Cluster;

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
