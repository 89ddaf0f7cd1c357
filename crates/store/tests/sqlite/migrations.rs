//! The migrations, up and down, with jobs in every place.

use std::{path::Path, sync::Arc};

use rusqlite::Connection;
use windlass_model::{Charge, Limit, NewJob, Outcome, Payload, State, Step, Verdict};
use windlass_store::{
    Act, Ask, Did, Error, Rule, SchemaState,
    conformance::kit::*,
    sqlite::{Options, Sqlite, submit_in},
};

fn open(path: &Path) -> Handle {
    Arc::new(Sqlite::open(Options::new(path)).expect("open"))
}

fn number(path: &Path, sql: &str) -> i64 {
    let conn = Connection::open(path).expect("open");
    conn.query_row(sql, [], |row| row.get(0)).expect(sql)
}

/// What the schema is made of, in a fixed order.
fn schema(path: &Path) -> Vec<String> {
    let conn = Connection::open(path).expect("open");
    let mut tables = conn
        .prepare(
            "select s.type || ' ' || s.name || ' ' || coalesce(group_concat(c.name || ' ' || c.type || ' ' || c.\"notnull\"), '')
             from sqlite_schema s left join pragma_table_info(s.name) c
             where s.name not like 'sqlite_%' group by s.type, s.name order by 1",
        )
        .expect("prepare");
    let rows = tables.query_map([], |row| row.get(0)).expect("query");
    rows.collect::<Result<_, _>>().expect("rows")
}

#[test]
fn up_and_down_lead_back_to_where_they_began() {
    let (_folder, path) = super::path();
    let latest = SchemaState::CURRENT.version;
    let mut schemas = vec![schema(&path)];
    for version in 1..=latest {
        Sqlite::migrate(&path, Some(version)).expect("up");
        schemas.push(schema(&path));
        assert_ne!(
            schemas[version as usize - 1],
            schemas[version as usize],
            "version {version} changes something"
        );
    }
    for version in (1..latest).rev() {
        let down = Sqlite::migrate(&path, Some(version)).expect("down");
        assert_eq!(
            (down.version, down.oldest),
            (version, version),
            "binaries of version {version} may use it again"
        );
        assert_eq!(schema(&path), schemas[version as usize]);
    }
    assert_eq!(Sqlite::migrate(&path, None).expect("up"), SchemaState::CURRENT);
    assert_eq!(schema(&path), schemas[latest as usize]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_the_first_version_go_on_in_the_second() {
    let (_folder, path) = super::path();
    Sqlite::migrate(&path, Some(1)).expect("up");
    let conn = Connection::open(&path).expect("open");
    conn.execute_batch(
        "insert into windlass_queues (name) values ('main');
         insert into windlass_kinds (name) values ('work');
         insert into windlass_lanes (queue, kind, version) values (1, 1, 1);",
    )
    .expect("names");
    for n in 0..3u32 {
        let sql =
            "insert into windlass_jobs (id, lane, kind, priority, submitted_at, due_at, digest, codec, input)
                   values (?1, 1, 1, 0, ?2, ?2, ?3, 0, x'31')";
        conn.execute(sql, rusqlite::params![id(n).as_bytes(), t(0).micros(), [0u8; 16]]).expect("insert");
        let sql = "insert into windlass_ready (lane, rank, job) values (1, ?1, ?2)";
        conn.execute(sql, rusqlite::params![t(0).micros(), id(n).as_bytes()]).expect("insert");
    }
    let store = open(&path);
    let me = worker(&store, 1).await;
    let taken = claim(&store, at(1), &ask(me, 1, 9)).await;
    assert_eq!(ids(&taken), [0, 1, 2].map(id));
    assert_eq!(commit(&store, 1, change(me, &taken[0], done("x"))).await, Verdict::Committed);
    assert_eq!(act(&store, 2, 1, Act::Pause).await, Did::Done);
    assert_eq!(commit(&store, 3, change(me, &taken[1], retry(secs(0), &[]))).await, Verdict::Committed);
    assert!(claim(&store, at(3), &ask(me, 2, 9)).await.is_empty());
}

/// Jobs in line, aside, throttled, told, with large payloads, and in the old places.
async fn in_every_place(store: &Handle) {
    let me = worker(store, 1).await;
    rule(store, 0, Rule::Limit(Limit::per("api", 1, secs(10)))).await;
    let charged = |n| {
        let mut new = job(n);
        new.settings.rate = Some(Box::new(Charge { limit: "api".into(), weight: 1 }));
        new
    };
    let large = NewJob { input: Payload::json(vec![b'1'; 50_000]), ..job(20) };
    submit(store, &[job(1), keyed(2, "k"), charged(3), large]).await;
    let taken = claim(store, at(0), &ask(me, 1, 9)).await;
    assert_eq!(taken.len(), 4, "these run");
    let output = Outcome::Done(Payload::json(vec![b'2'; 60_000]));
    commit(store, 0, change(me, &taken[3], output)).await;
    assert_eq!(act(store, 0, 1, cancel(100)).await, Did::Told);
    let large = NewJob { input: Payload::json(vec![b'3'; 50_000]), ..job(21) };
    submit(store, &[keyed(4, "k"), keyed(5, "k"), charged(6), charged(7), job(8), large]).await;
    assert_eq!(act(store, 0, 8, Act::Pause).await, Did::Done);
    assert_eq!(act(store, 0, 7, Act::Pause).await, Did::Done);
    reap(store, 1, me).await;
    let later = NewJob { when: windlass_model::When::At(t(100)), ..charged(9) };
    submit(store, &[later]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn going_down_makes_ready_what_waits_for_what_is_gone() {
    let (_folder, path) = super::path();
    let store = open(&path);
    in_every_place(&store).await;
    let before = count(&store, State::Ready).await;
    assert_eq!(before, 9, "1 told, 2 with the key, 3 throttled, 4, 5 in line, 6 throttled, 7, 8 paused, 21");
    drop(store);
    Sqlite::migrate(&path, Some(1)).expect("down");
    assert_eq!(number(&path, "select count(*) from windlass_ready"), 9);
    assert_eq!(
        number(&path, "select count(*) from windlass_ready where lane < 0"),
        3,
        "suspects are suspects"
    );
    assert_eq!(
        number(&path, "select count(*) from windlass_ready r join windlass_lanes l on l.id = abs(r.lane)"),
        9
    );
    assert_eq!(
        number(&path, "select count(*) from windlass_jobs j join windlass_lanes l on l.id = j.lane"),
        11
    );
    assert_eq!(number(&path, "select count(*) from windlass_lanes"), 1);
    assert_eq!(number(&path, "select count(*) from windlass_timers"), 1, "the wake alone");
    assert_eq!(number(&path, "select count(*) from windlass_jobs where length(input) = 50000"), 2);
    assert_eq!(number(&path, "select count(*) from windlass_jobs where length(output) = 60000"), 1);
    let store = open(&path);
    let me = worker(&store, 2).await;
    let mut taken = claim(&store, at(2), &ask(me, 1, 99)).await;
    for number in 2..=4 {
        taken.extend(claim(&store, at(2), &Ask { alone: true, ..ask(me, number, 1) }).await);
    }
    let mut all = ids(&taken);
    all.sort();
    assert_eq!(all, [1, 2, 3, 4, 5, 6, 7, 8, 21].map(id), "each may be claimed, once");
    assert_eq!(taken.iter().find(|job| job.id == id(21)).expect("taken").input.bytes.len(), 50_000);
    assert_eq!(view(&store, id(20)).await.output.expect("kept").bytes.len(), 60_000);
    assert_eq!(due(&store, 100, 9).await.woken, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn going_down_makes_ready_what_is_parked() {
    let (_folder, path) = super::path();
    let store = open(&path);
    let me = worker(&store, 1).await;
    let mut holds = keyed(4, "h");
    holds.settings.serial = Some(Box::new(windlass_model::Serial::new("h").hold()));
    submit(&store, &[job(1), job(2), keyed(3, "k"), holds, job(5), keyed(6, "k"), keyed(7, "h")]).await;
    for job in claim(&store, at(0), &ask(me, 1, 9)).await {
        let timeout = (job.id == id(2)).then(|| secs(600));
        let large =
            Step { stage: Some(("Big".into(), Payload::json(vec![b'1'; 50_000]))), ..Step::default() };
        commit(&store, 1, with(change(me, &job, wait_for("go", timeout)), large)).await;
    }
    assert_eq!(act(&store, 2, 5, Act::Pause).await, Did::Done);
    assert_eq!(count(&store, State::Waiting).await, 5);
    drop(store);
    Sqlite::migrate(&path, Some(2)).expect("down");
    assert_eq!(number(&path, "select count(*) from windlass_payloads"), 0);
    assert_eq!(number(&path, "select count(*) from windlass_jobs where far is not null"), 0);
    assert_eq!(number(&path, "select count(*) from windlass_timers"), 0);
    let store = open(&path);
    assert_eq!(count(&store, State::Ready).await, 7);
    let me = worker(&store, 2).await;
    let taken = claim(&store, at(3), &ask(me, 1, 9)).await;
    let mut first = ids(&taken);
    first.sort();
    assert_eq!(first, [1, 2, 4, 6].map(id), "6 has the key that 3 gave up, 4 kept its own, 5 is paused");
    assert!(taken.iter().all(|job| job.stage.is_none() && job.data.is_none()), "they begin anew");
    commit(&store, 4, change(me, taken.iter().find(|job| job.id == id(6)).expect("taken"), done("x"))).await;
    assert_eq!(claim_one(&store, 4, me, 2).await.id, id(3));
    assert_eq!(act(&store, 5, 5, Act::Resume).await, Did::Done);
    assert_eq!(claim_one(&store, 5, me, 3).await.id, id(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn going_down_forgets_what_workflows_have_done() {
    let (_folder, path) = super::path();
    let store = open(&path);
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 3)).await;
    let taken = claim(&store, at(0), &ask(me, 1, 9)).await;
    let step = || Step {
        undo: true,
        told: true,
        context: vec![("name".into(), payload("x"))],
        ..noted(vec![entry(0, "a", "x")])
    };
    let bears = Step { children: vec![job(10)], ..step() };
    commit(&store, 1, with(change(me, &taken[0], wait_for("windlass.child", None)), bears)).await;
    commit(&store, 1, with(change(me, &taken[1], wait_for("go", None)), step())).await;
    commit(&store, 1, with(change(me, &taken[2], failed(windlass_model::Reason::Diverged)), step())).await;
    assert_eq!(act(&store, 2, 2, cancel(0)).await, Did::Told, "it is being unwound");
    drop(store);
    Sqlite::migrate(&path, Some(3)).expect("down");
    assert_eq!(
        number(&path, "select reason from windlass_jobs where state = 2"),
        1,
        "which binaries of then know"
    );
    assert_eq!(number(&path, "select count(*) from windlass_ready"), 2);
    let store = open(&path);
    assert_eq!((journal(&store, 1).await, context(&store, 1).await), (vec![], vec![]));
    let taken = claim(&store, at(3), &ask(me, 2, 9)).await;
    assert_eq!(ids(&taken), [10, 2].map(id));
    assert_eq!(taken[1].unwind, None, "it begins anew");
    commit(&store, 4, change(me, &taken[0], done("x"))).await;
    assert_eq!(state(&store, id(1)).await, State::Ready, "who was to be told is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn going_down_waits_for_what_has_arrived() {
    let (_folder, path) = super::path();
    let store = open(&path);
    let conn = Connection::open(&path).expect("open");
    submit_in(&conn, &job(1), store.limits()).expect("append");
    let error = Sqlite::migrate(&path, Some(1)).expect_err("refused");
    assert!(
        matches!(&error, Error::Refused(_)) && error.to_string().contains("start a worker first"),
        "{error}"
    );
    assert_eq!(store.inspect().schema().await.expect("schema"), SchemaState::CURRENT, "nothing was changed");
    assert_eq!(store.due(at(0), 9).await.expect("due").admitted, 1);
    drop(store);
    Sqlite::migrate(&path, Some(1)).expect("down");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_a_programs_own_may_have_any_name() {
    let (_folder, path) = super::path();
    let conn = Connection::open(&path).expect("open");
    conn.execute_batch(
        "create table orders (id integer); create table jobs (id integer); create table meta (key text, value text);
         create table audit (what text); create table queues (name text); create index jobs_key on jobs (id);",
    )
    .expect("a program's own");
    let store = open(&path);
    submit(&store, &[keyed(1, "k")]).await;
    let me = worker(&store, 1).await;
    assert_eq!(claim(&store, at(0), &ask(me, 1, 9)).await.len(), 1);
    drop(store);
    Sqlite::migrate(&path, Some(0)).expect("down");
    assert_eq!(
        number(&path, "select count(*) from sqlite_schema where type = 'table'"),
        5,
        "its own are untouched"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_an_early_build_is_taken_over() {
    let (_folder, path) = super::path();
    // As such a build left it: the same tables, without the prefix.
    let conn = Connection::open(&path).expect("open");
    let early = include_str!("../../src/sqlite/migrations/0001_core.up.sql").replace("windlass_", "");
    conn.execute_batch(&early).expect("as it was");
    conn.execute_batch(
        "insert into meta (one, version, oldest) values (1, 1, 1);
         insert into queues (name) values ('main'); insert into kinds (name) values ('work');
         insert into lanes (queue, kind, version) values (1, 1, 1);",
    )
    .expect("filled");
    let store = open(&path);
    submit(&store, &[job(1)]).await;
    let me = worker(&store, 1).await;
    assert_eq!(claim(&store, at(0), &ask(me, 1, 9)).await.len(), 1);
    assert_eq!(
        number(
            &path,
            "select count(*) from sqlite_schema where name not like 'windlass%' and sql is not null"
        ),
        0
    );
}
