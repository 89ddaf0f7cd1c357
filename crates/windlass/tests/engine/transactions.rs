//! Submits in a transaction of the caller: with the library on both stores, with the documented insert, and with the SQL
//! function.

use std::time::Instant;

use windlass::{
    Calendar, State, Time,
    prelude::*,
    store::{postgres, rusqlite, tokio_postgres},
};

use crate::common::{self, TestStore};

#[derive(Serialize, Deserialize)]
struct Confirm {
    order: i64,
}

impl Task for Confirm {
    const KIND: &'static str = "confirm";
    type Output = i64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<i64, Failure> {
        Ok(self.order)
    }
}

async fn start(url: &str) -> Engine {
    Engine::builder(url).task::<Confirm>().start().await.expect("started")
}

/// A SQLite store with an engine, and another connection to its file.
async fn sqlite() -> (TestStore, Engine, rusqlite::Connection) {
    let store = common::sqlite();
    let engine = start(&store.url).await;
    let path = store.url.strip_prefix("sqlite://").expect("a SQLite store");
    let connection = rusqlite::Connection::open(path).expect("open");
    connection.busy_timeout(Duration::from_secs(10)).expect("set");
    connection.execute_batch("create table shop_orders (id integer primary key)").expect("created");
    (store, engine, connection)
}

/// A PostgreSQL store with an engine, and another connection to its database.
async fn postgres() -> (TestStore, Engine, tokio_postgres::Client) {
    let store = tokio::task::spawn_blocking(common::postgres).await.expect("a server");
    let engine = start(&store.url).await;
    let options = postgres::Options::parse(&store.url).expect("an address");
    let client = postgres::Postgres::client(&options).await.expect("connected");
    client.batch_execute("create table shop_orders (id int8 primary key)").await.expect("created");
    (store, engine, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_submitted_in_a_sqlite_transaction_commits_with_it() {
    let (_store, engine, mut connection) = sqlite().await;
    let immediate = rusqlite::TransactionBehavior::Immediate;

    let tx = connection.transaction_with_behavior(immediate).expect("begin");
    tx.execute("insert into shop_orders (id) values (1)", []).expect("inserted");
    let never = engine.submit(Confirm { order: 1 }).in_sqlite(&tx).expect("submitted");
    tx.rollback().expect("rolled back");

    let tx = connection.transaction_with_behavior(immediate).expect("begin");
    tx.execute("insert into shop_orders (id) values (2)", []).expect("inserted");
    let job = engine.submit(Confirm { order: 2 }).key("order-2").in_sqlite(&tx).expect("submitted");
    let json = engine.submit_json("confirm", 1, serde_json::json!({"order": 3}));
    let json = json.in_sqlite(&tx).expect("submitted");
    tx.commit().expect("committed");
    engine.poke();

    assert_eq!(job.result().await.expect("done"), 2);
    assert_eq!(json.result().await.expect("done"), 3);
    assert!(matches!(never.result().await, Err(JobError::Gone(_))));
    let orders: i64 =
        connection.query_row("select sum(id) from shop_orders", [], |row| row.get(0)).expect("counted");
    assert_eq!(orders, 2);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_submitted_in_a_postgres_transaction_commits_with_it() {
    let (_store, engine, mut client) = postgres().await;

    let tx = client.transaction().await.expect("begin");
    tx.execute("insert into shop_orders values (1)", &[]).await.expect("inserted");
    let never = engine.submit(Confirm { order: 1 }).in_postgres(&tx).await.expect("submitted");
    tx.rollback().await.expect("rolled back");

    let tx = client.transaction().await.expect("begin");
    tx.execute("insert into shop_orders values (2)", &[]).await.expect("inserted");
    let job = engine.submit(Confirm { order: 2 }).key("order-2").in_postgres(&tx).await.expect("submitted");
    let json = engine.submit_json("confirm", 1, serde_json::json!({"order": 3}));
    let json = json.in_postgres(&tx).await.expect("submitted");
    tx.commit().await.expect("committed");
    engine.poke();

    assert_eq!(job.result().await.expect("done"), 2);
    assert_eq!(json.result().await.expect("done"), 3);
    assert!(matches!(never.result().await, Err(JobError::Gone(_))));
    let row = client.query_one("select sum(id)::int8 from shop_orders", &[]).await.expect("counted");
    assert_eq!(row.get::<_, i64>(0), 2);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_postgres_transaction_delays_no_other_submit() {
    let (_store, engine, mut client) = postgres().await;
    let tx = client.transaction().await.expect("begin");
    let late = engine.submit(Confirm { order: 1 }).key("k").unique("u").serial("s").in_postgres(&tx).await;
    let late = late.expect("submitted");

    // The same key, unique name and serial key, in the same queue: none waits for the open transaction.
    let began = Instant::now();
    let other =
        engine.submit(Confirm { order: 2 }).key("k").unique("u").serial("s").await.expect("submitted");
    assert_eq!(other.result().await.expect("done"), 2);
    let next = engine.submit(Confirm { order: 3 }).serial("s").await.expect("submitted");
    assert_eq!(next.result().await.expect("done"), 3);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());

    tx.commit().await.expect("committed");
    engine.poke();
    // Another job has the key by now.
    match late.result().await {
        Err(JobError::Cancelled(failure)) => {
            assert_eq!(failure.class, "duplicate");
            assert!(failure.message.contains(&other.id().to_string()), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    engine.stop().await;
}

/// From docs/transactions.md, word for word: programs in other languages use this.
const INSERT: &str = "insert into windlass_arrivals (id, kind, input) values (?1, ?2, ?3)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_insert_submits_a_job() {
    let (_store, engine, mut connection) = sqlite().await;
    let tx = connection.transaction().expect("begin");
    tx.execute("insert into shop_orders (id) values (7)", []).expect("inserted");
    // The id as text, as most languages have it, and as 16 bytes.
    let (text, bytes) = (engine.new_id(), engine.new_id());
    tx.execute(INSERT, (text.to_string(), "confirm", r#"{"order": 7}"#)).expect("inserted");
    tx.execute(INSERT, (bytes.as_bytes(), "confirm", br#"{"order": 8}"#)).expect("inserted");
    tx.commit().expect("committed");
    // Without `poke`: the worker notices the row by itself.
    assert_eq!(engine.result::<i64>(text).await.expect("done"), 7);
    assert_eq!(engine.result::<i64>(bytes).await.expect("done"), 8);

    let all = "insert into windlass_arrivals (id, kind, queue, key, priority, at, deadline_at, tags, options, settings, input)
               values (?1, 'confirm', 'default', 'order-9', -5, ?2, ?3, '[\"shop\"]', '{\"from\": \"web\"}',
                       '{\"serial\": {\"key\": \"customer-1\"}}', '{\"order\": 9}')";
    let (id, now) = (engine.new_id(), engine.inspect().clock().await.expect("the clock"));
    let deadline = now + Duration::from_secs(60);
    connection.execute(all, (id.to_string(), now.micros(), deadline.micros())).expect("inserted");
    engine.poke();
    assert_eq!(engine.result::<i64>(id).await.expect("done"), 9);
    let job = engine.inspect().job(id).await.expect("read").expect("the job exists");
    assert_eq!((job.summary.key.as_deref(), job.summary.priority), (Some("order-9"), -5));
    assert_eq!((job.tags, job.deadline_at), (vec!["shop".to_owned()], Some(deadline)));
    assert_eq!(job.settings.serial.expect("a serial key").key, "customer-1");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_admitted_fails_with_the_reason() {
    let (_store, engine, connection) = sqlite().await;
    let first = engine.submit(Confirm { order: 1 }).key("order-1").await.expect("submitted");
    let (twice, unlimited, tag) = (engine.new_id(), engine.new_id(), engine.new_id());
    let insert = |id: JobId, column: &str, value: &str| {
        let sql = format!(
            "insert into windlass_arrivals (id, kind, input, {column}) values (?1, 'confirm', '{{}}', ?2)"
        );
        connection.execute(&sql, (id.to_string(), value)).expect("inserted");
    };
    insert(twice, "key", "order-1");
    insert(unlimited, "settings", r#"{"rate": {"limit": "nowhere"}}"#);
    insert(tag, "tags", "shop");
    engine.poke();
    let error = |result: Result<i64, JobError>| result.expect_err("it cannot be admitted").to_string();
    assert!(error(engine.result(twice).await).contains(&first.id().to_string()));
    assert!(error(engine.result(unlimited).await).contains("\"nowhere\" does not exist"));
    assert!(error(engine.result(tag).await).contains("tags"));
    let job = engine.inspect().job(twice).await.expect("read").expect("the job exists");
    assert_eq!(job.summary.state, State::Cancelled);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sql_function_takes_all_its_arguments_from_a_role_that_may_do_nothing_else() {
    let (store, engine, client) = postgres().await;
    let schema = store.url.split_once("schema=").expect("a schema").1;
    let role = format!("app_{schema}");
    client
        .batch_execute(&format!(
            "create role {role}; grant usage on schema {schema} to {role}; \
             grant execute on function {schema}.submit to {role}; \
             set search_path = public; set role {role}"
        ))
        .await
        .expect("granted");
    let call = format!(
        "select {schema}.submit('confirm', '{{\"order\": 4}}', queue => 'default', key => 'order-4', priority => 5, \
         at => now(), delay => interval '1 second', deadline => now() + interval '1 hour', tags => array['shop'], \
         options => '{{\"from\": \"web\"}}', serial => 'customer-4', unique_key => 'order-4', rate => null, weight => 1, \
         version => 1, settings => '{{\"timeout\": {{\"secs\": 30, \"nanos\": 0}}}}', id => $1)::text"
    );
    let id = engine.new_id();
    // Repeated, as after a lost answer.
    for _ in 0..2 {
        let row = client.query_one(&call.replace("$1", &format!("'{id}'")), &[]).await.expect("submitted");
        assert_eq!(row.get::<_, String>(0), id.to_string());
    }
    engine.poke();
    assert_eq!(engine.result::<i64>(id).await.expect("done"), 4);
    let job = engine.inspect().job(id).await.expect("read").expect("the job exists");
    assert_eq!(job.settings.timeout, Some(Duration::from_secs(30)));
    assert_eq!((job.summary.priority, job.tags), (5, vec!["shop".to_owned()]));
    assert!(client.query("select 1 from jobs", &[]).await.is_err(), "it may do nothing else");
    engine.stop().await;
}

#[test]
fn the_calendars_in_the_documentation_of_schedules_parse() {
    for text in ["0 3 * * mon-fri in Europe/Berlin", "every 15 minutes", "0 9 * * fri#2", "0 0 L * *"] {
        let calendar: Calendar = text.parse().expect(text);
        assert!(calendar.next_after(Time(0)).is_some());
    }
}
