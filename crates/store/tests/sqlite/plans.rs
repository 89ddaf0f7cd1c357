//! The query plans of statements: hot ones search an index or a primary key, and none sorts.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_store::{
    Store,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

use super::path;

/// The query plan of a statement, one step per line.
fn plan(conn: &Connection, sql: &str) -> String {
    let mut statement = conn.prepare(&format!("explain query plan {sql}")).expect("prepare");
    let count = statement.parameter_count();
    let nulls = vec![rusqlite::types::Null; count];
    let rows = statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get::<_, String>(3));
    rows.expect("plan").collect::<Result<Vec<_>, _>>().expect("plan").join("\n")
}

/// The text of statements, which are named by file and name.
fn sql<const N: usize>(paths: [&'static str; N]) -> [(&'static str, &'static str); N] {
    paths.map(|path| {
        let all = Sqlite::STATEMENTS.iter();
        let mut found = all.filter(|(file, name, _)| path.split_once('.') == Some((*file, *name)));
        (path, found.next().unwrap_or_else(|| panic!("there is no statement {path}")).2)
    })
}

#[tokio::test]
async fn hot_statements_search_a_key_and_sort_nothing() {
    let (_folder, path) = path();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    submit(&store, &jobs(0, 1_000)).await;
    let conn = Connection::open(&path).expect("open");
    let claim = sql([
        "claim.first_ready",
        "claim.ready_jobs",
        "claim.take_ready",
        "claim.has_suspects",
        "rate.first_ready",
    ]);
    for (name, sql) in claim {
        let plan = plan(&conn, sql);
        let searched = plan.contains("SEARCH r USING PRIMARY KEY (lane=?")
            || plan.contains("SEARCH windlass_ready USING PRIMARY KEY (lane=?");
        assert!(searched, "{name}:\n{plan}");
    }
    let others = sql([
        "control.cancel",
        "fork.read_job",
        "fork.copy_data",
        "fork.copy_stage",
        "fork.copy_journal",
        "control.hold_reasons",
        "control.set_hold",
        "control.read_job",
        "control.set_priority",
        "control.update_stage",
        "control.revive",
        "control.start_unwind",
        "arrivals.remove",
        "rate.read",
        "rate.charge",
        "claim.ready_job",
        "claim.claimed_again",
        "claim.read_claim",
        "claim.remove",
        "claim.read_worker",
        "journal.clear",
        "commit.add_pending_children",
        "signals.consume",
        "branches.write_counts",
        "branches.cancel_children",
        "commit.done",
        "commit.failed",
        "journal.forget_entries",
        "branches.update",
        "branches.count_items",
        "branches.end_watch",
        "commit.drop_external_data",
        "commit.next",
        "branches.mark_has_branches",
        "commit.retry",
        "branches.read_sealed",
        "commit.explain_unapplied",
        "branches.add_spawned",
        "commit.set_stage",
        "branches.read_counts",
        "branches.read_member",
        "timers.remove",
        "branches.end_watches",
        "waits.park",
        "timers.read_due",
        "timers.expire",
        "timers.remove_ready",
        "inspect.job_ends",
        "reap.read_job",
        "reap.return_job",
        "reap.poison",
        "workers.release",
        "submit.find_by_id",
        "submit.find_by_key",
        "views.jobs_ahead",
        "children.unsuccessful_children",
        "children.branches",
        "children.children",
        "inspect.context",
        "inspect.history",
        "views.serial_holders",
        "views.holds",
        "inspect.inbox",
        "children.child_ends",
        "inspect.journal",
        "children.branch_children",
        "children.branch_children_page",
        "children.branch_item",
        "children.child_output_sizes",
        "inspect.journal_sizes",
        "inspect.journal_end",
        "inspect.output_sizes",
        "children.branch_ends",
        "children.branch_range",
        "children.child_place",
        "views.serial_hold",
        "inspect.transitions",
        "inspect.wait",
        "workers.cancel_requests",
        "control.take_cancel_request",
        "poll.read_branch",
        "poll.read_claimed",
        "poll.count_children",
        "poll.find_lost",
        "poll.next",
        "poll.write",
        "prune.attempts",
        "prune.branches",
        "prune.context",
        "prune.delivered_signals",
        "prune.job",
        "prune.candidates",
        "prune.journal",
        "prune.payloads",
        "prune.signals",
        "prune.transitions",
        "prune.tag",
        "prune.unsuccessful_candidates",
        "users.read",
        "users.write",
        "users.log_in",
        "users.add_session",
        "users.read_session",
        "users.touch_session",
        "users.end_session",
        "users.end_sessions",
        "users.prune_sessions",
        "unique.release",
        "unique.holder",
        "serial.read",
        "serial.first_waiting",
        "serial.free_slot",
        "serial.has_slot",
        "serial.stop_waiting",
        "rollups.read_minutes",
        "rollups.read_sum",
        "rollups.delete_sum",
        "rollups.delete_hours",
        "rollups.throughput",
        "rollups.read_branch_times",
        "rollups.branch_times",
        "rollups.kept_signals",
        "rollups.read_waits",
        "rollups.signal_waits_of",
        "signals.count",
        "signals.recipient",
        "signals.inbox_names",
        "waits.wake",
    ]);
    for (name, sql) in claim.iter().chain(&others) {
        let plan = plan(&conn, sql);
        assert!(!plan.contains("TEMP B-TREE"), "{name} sorts:\n{plan}");
        assert!(
            !plan.contains("SCAN windlass_jobs") && !plan.contains("SCAN j"),
            "{name} scans all jobs:\n{plan}"
        );
        let scans = plan.lines().any(|line| {
            line.starts_with("SCAN ") && !line.contains("CONSTANT ROW") && !line.contains("(subquery")
        });
        assert!(!scans, "{name} scans a table:\n{plan}");
    }
}

#[tokio::test]
async fn children_are_found_by_the_index_of_their_parent_and_branch() {
    let (_folder, path) = path();
    let _store = Sqlite::open(Options::new(&path)).expect("open");
    let conn = Connection::open(&path).expect("open");
    for (name, sql) in sql([
        "children.children",
        "children.live_children",
        "children.child_ends",
        "children.branch_children",
        "children.branch_children_page",
        "children.examined_children",
        "children.child_output_sizes",
        "poll.count_children",
        "poll.find_lost",
    ]) {
        let plan = plan(&conn, sql);
        assert!(plan.contains("INDEX windlass_jobs_parent (parent=? AND branch=?"), "{name}:\n{plan}");
    }
    let [(_, unsuccessful), (_, numbers), (_, due)] =
        sql(["children.unsuccessful_children", "children.branch_numbers", "poll.read_due"]);
    let plans = [plan(&conn, unsuccessful), plan(&conn, numbers), plan(&conn, due)];
    assert!(
        plans[0].contains("SEARCH j USING INDEX windlass_jobs_unsuccessful (unsuccessful_state=? AND id>?)"),
        "{}",
        plans[0]
    );
    let searches =
        plans[1].contains("SEARCH j USING COVERING INDEX windlass_jobs_parent (parent=? AND branch>?)");
    assert!(searches && !plans[1].contains("SCAN windlass_jobs"), "{}", plans[1]);
    assert!(plans[2].contains("USING INDEX windlass_branches_poll (poll_at<?)"), "{}", plans[2]);
    let [(_, item)] = sql(["children.branch_item"]);
    let item = plan(&conn, item);
    let searches = "USING INDEX windlass_jobs_item (branch=? AND parent=? AND spawn=? AND item=?)";
    assert!(item.contains(searches), "{item}");
}

#[tokio::test]
async fn lists_walk_one_index_in_its_order() {
    let (_folder, path) = path();
    let _store = Sqlite::open(Options::new(&path)).expect("open");
    let conn = Connection::open(&path).expect("open");
    let ordered = [
        ("lists.all", "SEARCH j USING PRIMARY KEY (id>? AND id<?)"),
        ("lists.periods", "SEARCH p USING PRIMARY KEY (lane=? AND period>? AND period<?)"),
        ("lists.tag", "SEARCH t USING PRIMARY KEY (tag=? AND job>? AND job<?)"),
        (
            "lists.unsuccessful",
            "SEARCH j USING COVERING INDEX windlass_jobs_unsuccessful (unsuccessful_state=? AND id>? AND id<?)",
        ),
        (
            "lists.error_class",
            "SEARCH j USING COVERING INDEX windlass_jobs_error_class (error_class=? AND id>? AND id<?)",
        ),
        (
            "lists.unsuccessful_stage",
            "SEARCH j USING COVERING INDEX windlass_jobs_unsuccessful_stage (stage=? AND id>? AND id<?)",
        ),
        (
            "lists.parked_stage",
            "SEARCH j USING COVERING INDEX windlass_jobs_parked (stage=? AND id>? AND id<?)",
        ),
        ("lists.matching", "SEARCH j USING PRIMARY KEY (id=?)"),
        ("lists.state_if_matching", "SEARCH j USING PRIMARY KEY (id=?)"),
        ("prune.lanes_of_period", "SEARCH j USING PRIMARY KEY (id>? AND id<?)"),
        ("prune.period", "SEARCH windlass_lane_periods USING PRIMARY KEY (lane=? AND period=?)"),
    ];
    for (path, search) in ordered {
        let [(_, text)] = sql([path]);
        let plan = plan(&conn, text);
        assert!(plan.contains(search) && !plan.contains("TEMP B-TREE"), "{path}:\n{plan}");
        assert!(!plan.contains("SCAN"), "{path}:\n{plan}");
    }
    let sorted = [
        ("lists.key", "SEARCH j USING COVERING INDEX windlass_jobs_key (kind=? AND key=?"),
        ("lists.key_prefix", "SEARCH j USING COVERING INDEX windlass_jobs_key (kind=? AND key>? AND key<?)"),
        (
            "lists.size_of_key_prefix",
            "SEARCH j USING COVERING INDEX windlass_jobs_key (kind=? AND key>? AND key<?)",
        ),
        ("lists.parked", "USING COVERING INDEX windlass_jobs_parked"),
    ];
    for (path, search) in sorted {
        let [(_, text)] = sql([path]);
        let plan = plan(&conn, text);
        assert!(plan.contains(search), "{path}:\n{plan}");
    }
}

#[tokio::test]
async fn what_the_doctor_and_the_list_of_queues_read_is_found_by_indexes() {
    let (_folder, path) = path();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    submit(&store, &jobs(0, 1_000)).await;
    let conn = Connection::open(&path).expect("open");
    for (name, sql) in sql([
        "diagnose.oldest_ready",
        "diagnose.suspects",
        "diagnose.unhandled_failures",
        "diagnose.awaited_branches",
        "diagnose.orphaned_branches",
        "views.queues",
    ]) {
        let plan = plan(&conn, sql);
        // Queues, kinds and lanes are few; branches are read up to a limit, in the order of their key.
        let scans_jobs = ["SCAN j", "SCAN f", "SCAN r", "SCAN windlass_jobs", "SCAN windlass_ready"];
        assert!(
            !scans_jobs.iter().any(|scan| plan.lines().any(|line| line.starts_with(scan))),
            "{name}:\n{plan}"
        );
    }
}

#[tokio::test]
async fn what_a_dashboard_reads_is_found_by_keys() {
    let (_folder, path) = path();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    submit(&store, &jobs(0, 1_000)).await;
    let conn = Connection::open(&path).expect("open");
    let searches = [
        ("pulse.pulse", "SEARCH j USING PRIMARY KEY (id=?)"),
        ("details.summaries", "SEARCH j USING PRIMARY KEY (id=?)"),
        ("details.details", "SEARCH j USING PRIMARY KEY (id=?)"),
        (
            "details.unsuccessful",
            "SEARCH j USING INDEX windlass_jobs_unsuccessful (unsuccessful_state=? AND id>? AND id<?)",
        ),
        (
            "details.unsuccessful_of_class",
            "SEARCH j USING INDEX windlass_jobs_error_class (error_class=? AND id>? AND id<?)",
        ),
        ("details.parked_stages", "SEARCH j USING COVERING INDEX windlass_jobs_parked (stage>?)"),
        ("details.parked_ids", "SEARCH j USING COVERING INDEX windlass_jobs_parked (stage=?)"),
        ("details.parked", "SEARCH j USING PRIMARY KEY (id=?)"),
        ("details.last_calls", "SEARCH e USING PRIMARY KEY (job=? AND seq=?)"),
        ("children.open_branches", "SCAN b USING INDEX windlass_branches_open"),
        ("children.open_branches", "SEARCH j USING PRIMARY KEY (id=?)"),
    ];
    // The pulse reads tables that are short however many jobs there are.
    let short = ["gates", "job_counts", "schedules", "claims", "workers"]
        .map(|table| format!("SCAN windlass_{table}"));
    for (path, search) in searches {
        let [(_, text)] = sql([path]);
        let plan = plan(&conn, text);
        assert!(plan.contains(search) && !plan.contains("TEMP B-TREE"), "{path}:\n{plan}");
        let scans = plan
            .lines()
            .map(|line| line.trim_start_matches(['|', '-', '`', ' ']))
            .filter(|line| line.starts_with("SCAN "));
        for scan in scans {
            let is_bounded = scan.contains("VIRTUAL TABLE")
                || scan.contains("CONSTANT ROW")
                || [
                    "SCAN b USING INDEX windlass_branches_open",
                    "SCAN s",
                    "SCAN stages",
                    "SCAN d",
                    "SCAN c",
                    "SCAN w",
                    "SCAN (subquery",
                ]
                .contains(&scan)
                || scan.contains("windlass_operations_running")
                || short.iter().any(|table| scan.starts_with(table.as_str()));
            assert!(is_bounded, "{path} scans: {scan}\n{plan}");
        }
    }
}

#[tokio::test]
async fn reading_the_backlog_searches_keys_and_no_ended_jobs() {
    let (_folder, path) = path();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    submit(&store, &jobs(0, 1_000)).await;
    let conn = Connection::open(&path).expect("open");
    for (name, sql) in sql(["inspect.backlog", "inspect.running_lane"]) {
        let plan = plan(&conn, sql);
        assert!(
            !plan.contains("SCAN j") && !plan.contains("SCAN r") && !plan.contains("SCAN w"),
            "{name} scans a table:\n{plan}"
        );
    }
}

#[tokio::test]
async fn a_repair_reads_only_inboxes_and_stuck_jobs() {
    let (_folder, path) = path();
    let _store = Sqlite::open(Options::new(&path)).expect("open");
    let conn = Connection::open(&path).expect("open");
    let [(_, sql)] = sql(["repair.met_waits"]);
    let plan = plan(&conn, sql);
    assert!(!plan.contains("SCAN windlass_jobs"), "{plan}");
    assert!(plan.contains("windlass_jobs_stuck"), "{plan}");
    let jobs: Vec<&str> = plan
        .lines()
        .filter(|line| line.contains("SCAN j") && !line.contains("windlass_jobs_stuck"))
        .collect();
    assert!(jobs.is_empty(), "it scans all jobs:\n{plan}");
}
