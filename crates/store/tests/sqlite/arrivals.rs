//! Submitting in transactions of the caller: by the library, and by hand.

use std::{path::Path, sync::Arc};

use rusqlite::{Connection, params};
use tempfile::TempDir;
use windlass_model::{
    Conflict, Limits, NewJob, Payload, RateCharge, RateLimit, Reason, State, States, Time, Unique, When,
};
use windlass_store::{
    AdminAction, ControlOutcome, Error, JobAction, JobEnd, TIMER_GATE,
    conformance::kit::*,
    sqlite::{Options, Sqlite, submit_in},
};

fn open() -> (TempDir, Handle, Connection) {
    let (folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let conn = connect(&path);
    (folder, store, conn)
}

fn connect(path: &Path) -> Connection {
    let conn = Connection::open(path).expect("open");
    conn.busy_timeout(secs(5)).expect("a timeout");
    conn
}

/// Appends jobs, each in a transaction of its own.
fn append(conn: &Connection, jobs: &[NewJob]) {
    jobs.iter().for_each(|job| submit_in(conn, job, &Limits::default()).expect("append"));
}

/// A job with every setting that an arrival may have.
fn full(n: u32) -> NewJob {
    let mut new = NewJob {
        key: Some("k".into()),
        priority: -7,
        when: When::After(secs(5)),
        deadline_at: Some(t(500)),
        parent: Some(id(77)),
        tags: vec!["red".into(), "ü \"".into()],
        options: Some("{\"a\":1}".into()),
        input: Payload { codec: 3, bytes: vec![0, 1, 255] },
        stage: Some("Begin".into()),
        ..job_in(n, "other", "bulk")
    };
    new.kind.version = 4;
    new.digest = [7; 16];
    new.settings.timeout = Some(secs(9));
    new.settings.serial = serial_job(n, "serial").settings.serial;
    new
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_exists_if_and_only_if_the_callers_transaction_commits() {
    let (_folder, store, mut conn) = open();
    conn.execute_batch("create table orders_of_shop (n integer)").expect("a table");
    let tx = conn.transaction().expect("begin");
    tx.execute("insert into orders_of_shop values (1)", []).expect("insert");
    submit_in(&tx, &full(1), &Limits::default()).expect("append");
    tx.rollback().expect("rollback");
    assert_eq!(store.fire_timers(at(1), 9).await.expect("due").admitted, 0);
    assert_eq!(store.job_ends(&[id(1)]).await.expect("ended"), [Some(JobEnd::Gone)]);

    let before = gates(&store, &[TIMER_GATE]).await;
    let tx = conn.transaction().expect("begin");
    tx.execute("insert into orders_of_shop values (2)", []).expect("insert");
    submit_in(&tx, &full(1), &Limits::default()).expect("append");
    assert_eq!(store.inspect().holds(id(1)).await.expect("holds"), None, "not visible before the commit");
    tx.commit().expect("commit");
    assert_ne!(gates(&store, &[TIMER_GATE]).await, before);
    assert!(holds(&store, 1).await.arriving);
    assert_eq!(store.job_ends(&[id(1), id(2)]).await.expect("ended"), [None, Some(JobEnd::Gone)]);
    assert_eq!(store.inspect().job(id(1)).await.expect("job"), None);

    let fired = store.fire_timers(at(10), 9).await.expect("due");
    assert_eq!((fired.admitted, fired.woken, fired.next_at), (1, 0, Some(t(15))));
    assert!(!holds(&store, 1).await.arriving);
    let kept = view(&store, id(1)).await;
    let (new, summary) = (full(1), &kept.summary);
    assert_eq!((summary.kind.as_str(), summary.version, summary.queue.as_str()), ("other", 4, "bulk"));
    assert_eq!((summary.key.as_deref(), summary.priority, summary.state), (Some("k"), -7, State::Scheduled));
    assert_eq!((summary.submitted_at, summary.due_at, kept.deadline_at), (t(10), t(15), new.deadline_at));
    assert_eq!((kept.parent, kept.tags, kept.options), (new.parent, new.tags, new.options));
    assert_eq!((kept.settings, kept.input), (new.settings, new.input));
    assert_eq!(summary.stage, new.stage);
    assert_eq!(store.fire_timers(at(10), 9).await.expect("due").admitted, 0, "once");
    let repeated = store.submit(at(11), &[full(1)], None).await.expect("submit");
    assert_eq!(repeated, [windlass_model::SubmitOutcome::Repeated], "its digest was kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrivals_follow_the_same_flow_control_as_submits() {
    let (_folder, store, conn) = open();
    administer(&store, 0, AdminAction::Limit(RateLimit::per("api", 1, secs(10)))).await;
    let mut charged = job_in(3, "new", "fresh");
    charged.settings.rate = Some(Box::new(RateCharge { limit: "api".into(), weight: 1 }));
    let unique = Unique { key: "u".into(), scope: States::LIVE, within: None, conflict: Conflict::Replace };
    let mut named = job(4);
    named.settings.unique = Some(Box::new(unique.clone()));
    let mut replaces = job(5);
    replaces.settings.unique = Some(Box::new(unique));
    let large = NewJob { input: Payload::json(vec![b'1'; 100_000]), ..job(6) };
    append(&conn, &[serial_job(1, "k"), serial_job(2, "k"), charged, named, replaces, large.clone()]);
    assert_eq!(store.fire_timers(at(0), 99).await.expect("due").admitted, 6);
    let me = worker(&store, 1).await;
    let claimed = claim(&store, at(1), &claim_request(me, 1, 9)).await;
    assert_eq!(
        ids(&claimed),
        [1, 5, 6].map(id),
        "one job of the serial key, and the job that replaced the other"
    );
    assert_eq!(claimed[2].input, large.input);
    assert_eq!(state(&store, id(4)).await, State::Cancelled);
    let fresh = windlass_store::ClaimRequest {
        queue: "fresh".into(),
        kinds: [kind("new", 1)].into(),
        ..claim_request(me, 2, 9)
    };
    assert_eq!(ids(&claim(&store, at(1), &fresh).await), [id(3)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_arrival_becomes_a_failed_job_and_blocks_no_others() {
    let (_folder, store, conn) = open();
    let (long, nul) = ("q".repeat(200), "a\0b");
    let columns: [(&str, &dyn rusqlite::ToSql, &str); 18] = [
        ("kind", &"", "the kind is empty"),
        ("kind", &[1u8, 2], "column kind"),
        ("queue", &long, "200 bytes long"),
        ("version", &0, "not positive"),
        ("version", &(1i64 << 40), "column version"),
        ("priority", &101, "out of range"),
        ("priority", &70_000, "column priority"),
        ("key", &nul, "NUL"),
        ("delay", &-1, "negative"),
        ("at", &i64::MAX, "9999"),
        ("tags", &"not json", "column tags"),
        ("tags", &"[1]", "column tags"),
        ("options", &"{", "not JSON"),
        ("settings", &"{\"serial\":7}", "column settings"),
        ("settings", &"{\"rate\":{\"limit\":\"nobody\"}}", "does not exist"),
        ("parent", &[1u8, 2, 3], "column parent"),
        ("digest", &[1u8, 2, 3], "16 bytes"),
        ("codec", &256, "column codec"),
    ];
    for (n, (column, value, _)) in columns.iter().enumerate() {
        // Valid arrivals between them, which must be admitted.
        append(&conn, &[job(1_000 + n as u32)]);
        let sql = format!(
            "insert into windlass_arrivals (id, {}) values (?1, ?2{})",
            match *column {
                "kind" => "kind, input".to_owned(),
                column => format!("{column}, kind, input"),
            },
            if *column == "kind" { ", '1'" } else { ", 'work', '1'" }
        );
        conn.execute(&sql, params![id(n as u32).as_bytes(), value]).expect("insert");
    }
    conn.execute(
        "insert into windlass_arrivals (id, kind, input) values (?1, 'work', 7)",
        [id(90).as_bytes()],
    )
    .expect("insert");
    conn.execute("insert into windlass_arrivals (id, kind, input) values (x'01', 'work', '1')", [])
        .expect("insert");
    let huge = vec![b'1'; Limits::default().payload + 1];
    conn.execute(
        "insert into windlass_arrivals (id, kind, input) values (?1, 'work', ?2)",
        params![id(91).as_bytes(), huge],
    )
    .expect("insert");
    let fired = store.fire_timers(at(1), 1_000).await.expect("due");
    assert_eq!((fired.admitted, fired.next_at), (columns.len() * 2 + 2, None));
    for (n, (column, _, text)) in columns.iter().enumerate() {
        let kept = view(&store, id(n as u32)).await;
        let message = kept.failure.expect("it has a failure").message;
        assert_eq!(
            (kept.summary.state, kept.summary.reason),
            (State::Failed, Some(Reason::Refused)),
            "{column}"
        );
        assert!(message.contains(text), "{column}: {message}");
        assert_eq!(state(&store, id(1_000 + n as u32)).await, State::Ready);
    }
    for (n, text) in [(90, "neither bytes nor text"), (91, "more than the 1048576")] {
        let failure = view(&store, id(n)).await.failure.expect("it has a failure");
        assert!(failure.message.contains(text) && failure.class == "refused", "{failure}");
    }
    let mut bad = job(95);
    bad.priority = 101;
    let error = submit_in(&conn, &bad, &Limits::default()).expect_err("refused");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    let signalled = NewJob { signals: vec![signal(id(1), "go", "1", "x")], ..job(1) };
    let error = submit_in(&conn, &signalled, &Limits::default()).expect_err("arrivals have no signals");
    assert!(error.to_string().contains("send them after"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_arrival_that_the_database_refuses_becomes_a_failed_job() {
    let (_folder, store, conn) = open();
    conn.execute_batch(
        "create trigger poison before insert on windlass_jobs when new.options = '\"poison\"'
         begin select raise(abort, 'poison'); end;",
    )
    .expect("a trigger");
    append(&conn, &[job(1), NewJob { options: Some("\"poison\"".into()), ..job(2) }, job(3)]);
    assert_eq!(store.fire_timers(at(1), 9).await.expect("due").admitted, 3);
    let kept = view(&store, id(2)).await;
    assert_eq!((kept.summary.state, kept.summary.reason), (State::Failed, Some(Reason::Refused)));
    assert!(kept.failure.expect("it has a failure").message.contains("poison"));
    assert_eq!(count(&store, State::Ready).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_arrival_with_a_taken_key_or_unique_name_becomes_a_cancelled_job_that_names_the_holder() {
    let (_folder, store, conn) = open();
    let with_key = |n| NewJob { key: Some("k".into()), tags: vec!["red".into()], ..job(n) };
    let with_name = |n, conflict| {
        let mut new = job(n);
        let unique = Unique { key: "u".into(), scope: States::LIVE, within: None, conflict };
        new.settings.unique = Some(Box::new(unique));
        new
    };
    submit(&store, &[with_key(1), with_name(2, Conflict::Keep)]).await;
    append(&conn, &[with_key(3), with_name(4, Conflict::Keep), with_name(5, Conflict::Reject)]);
    assert_eq!(store.fire_timers(at(1), 9).await.expect("due").admitted, 3);
    for (n, owner, what) in [(3, 1, "its key"), (4, 2, "its unique name"), (5, 2, "its unique name")] {
        let kept = view(&store, id(n)).await;
        let failure = kept.failure.expect("it has a failure");
        assert_eq!(
            (kept.summary.state, kept.summary.key, failure.class.as_ref()),
            (State::Cancelled, None, "duplicate")
        );
        assert!(
            failure.message.contains(&id(owner).to_string()) && failure.message.contains(what),
            "{failure}"
        );
    }
    let by_key = windlass_store::Filter { key: Some("k".into()), ..all_jobs() };
    assert_eq!(list(&store, by_key).await, [id(1)]);
    assert!(
        matches!(act_on_job(&store, 2, 4, JobAction::Retry).await, ControlOutcome::Refused(_)),
        "its unique name is still taken"
    );
    assert_eq!(
        act_on_job(&store, 2, 3, JobAction::Retry).await,
        ControlOutcome::Done,
        "it was kept without its key"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrivals_with_an_existing_id_are_dropped() {
    let (_folder, store, conn) = open();
    submit(&store, &[job(1), job(2)]).await;
    let before = (view(&store, id(1)).await, view(&store, id(2)).await);
    append(&conn, &[job(1), NewJob { digest: [9; 16], ..job(2) }, job(3), job(3)]);
    let fired = store.fire_timers(at(1), 9).await.expect("due");
    assert_eq!((fired.admitted, fired.next_at), (1, None));
    assert_eq!((view(&store, id(1)).await, view(&store, id(2)).await), before);
    assert_eq!(list(&store, all_jobs()).await, [3, 2, 1].map(id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrivals_are_admitted_in_order_in_bounded_batches_and_each_moves_the_gate() {
    let (_folder, store, conn) = open();
    append(&conn, &jobs(1, 5));
    let none = store.fire_timers(at(1), 0).await.expect("due");
    assert_eq!((none.admitted, none.next_at), (0, Some(t(1))), "a limit of 0 admits none");
    let first = store.fire_timers(at(1), 3).await.expect("due");
    assert_eq!((first.admitted, first.next_at), (3, Some(t(1))), "there are more");
    assert_eq!(list(&store, all_jobs()).await, [3, 2, 1].map(id));
    assert_eq!(store.fire_timers(at(1), 3).await.expect("due").next_at, None);
    // The numbers of arrivals start again once the table is empty; the gate must move all the same.
    let mut seen = vec![gates(&store, &[TIMER_GATE]).await[0]];
    for n in 10..20 {
        append(&conn, &[job(n)]);
        let gate = gates(&store, &[TIMER_GATE]).await[0];
        assert!(!seen.contains(&gate), "arrival {n}");
        seen.push(gate);
        assert_eq!(store.fire_timers(at(2), 9).await.expect("due").admitted, 1);
        seen.push(gates(&store, &[TIMER_GATE]).await[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_written_by_hand_needs_only_an_id_a_kind_and_an_input() {
    let (_folder, store, conn) = open();
    conn.execute(
        "insert into windlass_arrivals (id, kind, input) values (?1, 'work', '{\"a\":1}')",
        [id(1).to_string()],
    )
    .expect("insert");
    conn.execute(
        "insert into windlass_arrivals (id, kind, input, at) values (?1, 'work', x'31', ?2)",
        params![id(2).as_bytes(), t(60).micros()],
    )
    .expect("insert");
    assert!(holds(&store, 1).await.arriving && holds(&store, 2).await.arriving);
    assert_eq!(store.fire_timers(at(1), 9).await.expect("due").admitted, 2);
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.queue.as_str(), kept.summary.version), ("default", 1));
    assert_eq!(kept.input, payload("{\"a\":1}"));
    let later = view(&store, id(2)).await.summary;
    assert_eq!((later.state, later.due_at), (State::Scheduled, Time(t(60).micros())));
}
