//! Submitting in transactions of the caller: by the library, by the SQL function, and by hand.

use std::time::Duration;

use windlass_model::{JobId, Limits, NewJob, Payload, Reason, State};
use windlass_store::{
    Execution, JobEnd, Maintenance, Store,
    conformance::kit::{self, job},
    postgres::{Options, Postgres, submit_in},
};

async fn open() -> (Options, Postgres, tokio_postgres::Client) {
    let options = super::fresh();
    let store = Postgres::open(options.clone()).await.expect("open");
    let client = Postgres::client(&options).await.expect("connect");
    (options, store, client)
}

async fn state(store: &Postgres, id: JobId) -> Option<State> {
    use windlass_store::Inspect;
    store.job(id).await.expect("job").map(|job| job.summary.state)
}

async fn admit(store: &Postgres) -> usize {
    store.fire_timers(None, 100).await.expect("due").admitted
}

#[tokio::test]
async fn a_job_exists_if_and_only_if_the_callers_transaction_commits() {
    let (options, store, mut client) = open().await;
    let limits = Limits::default();
    client.batch_execute("create table user_orders_table (id int4)").await.expect("made");
    let tx = client.transaction().await.expect("begin");
    tx.execute("insert into user_orders_table values (1)", &[]).await.expect("inserted");
    submit_in(&tx, options.schema_name(), &limits, &job(1)).await.expect("submitted");
    assert_eq!(admit(&store).await, 0, "not visible before the commit");
    tx.rollback().await.expect("rolled back");
    assert_eq!(admit(&store).await, 0);
    assert_eq!(
        store.job_ends(&[kit::id(1)]).await.expect("ended"),
        [Some(JobEnd::Gone)],
        "nothing was submitted"
    );

    let tx = client.transaction().await.expect("begin");
    let signals = vec![kit::signal(kit::id(3), "go", "1", "x")];
    let early = submit_in(&tx, options.schema_name(), &limits, &NewJob { signals, ..job(3) }).await;
    assert!(early.expect_err("arrivals have no signals").to_string().contains("after the transaction"));
    submit_in(&tx, options.schema_name(), &limits, &job(2)).await.expect("submitted");
    tx.commit().await.expect("committed");
    assert_eq!(store.job_ends(&[kit::id(2)]).await.expect("ended"), [None], "it has not ended");
    assert!(store.inspect().holds(kit::id(2)).await.expect("holds").expect("exists").arriving);
    assert_eq!(admit(&store).await, 1);
    assert_eq!(state(&store, kit::id(2)).await, Some(State::Ready));
    assert_eq!(admit(&store).await, 0, "once");
}

#[tokio::test]
async fn a_long_transaction_blocks_no_other_verb() {
    let (options, store, mut client) = open().await;
    let tx = client.transaction().await.expect("begin");
    let mut keyed = job(1);
    keyed.key = Some("k".into());
    submit_in(&tx, options.schema_name(), &Limits::default(), &keyed).await.expect("submitted");
    // Submits with the same key and queue, claims and timers continue while it is open.
    let other = NewJob { key: Some("k".into()), ..job(2) };
    let submitted = tokio::time::timeout(Duration::from_secs(5), store.submit(None, &[other], None)).await;
    assert!(submitted.expect("not blocked").is_ok());
    let handle: std::sync::Arc<dyn Store> = std::sync::Arc::new(store.clone());
    let new = windlass_store::NewWorker { lease: Duration::from_secs(60), ..kit::new_worker(1) };
    assert!(store.register_worker(None, &new).await.expect("registered"));
    assert_eq!(kit::claim(&handle, None, &kit::claim_request(new.id, 1, 10)).await.len(), 1);
    assert_eq!(admit(&store).await, 0);
    tx.commit().await.expect("committed");
    assert_eq!(admit(&store).await, 1);
    use windlass_store::Inspect;
    let late = store.job(kit::id(1)).await.expect("job").expect("exists");
    assert_eq!(late.summary.state, State::Cancelled, "the key was taken meanwhile");
    let failure = late.failure.expect("a reason");
    assert_eq!((&*failure.class, failure.message.contains(&kit::id(2).to_string())), ("duplicate", true));
}

#[tokio::test]
async fn the_sql_function_submits_valid_jobs_and_refuses_others() {
    let (options, store, client) = open().await;
    // With another search path, like an application.
    client.batch_execute("set search_path = public").await.expect("set");
    let schema = options.schema_name();
    let call = format!(
        "select \"{schema}\".submit('resize', '{{\"image\": 7}}', queue => 'images', key => 'k', priority => 5, \
         tags => array['a','b'], serial => 's', unique_key => 'u', delay => interval '0 seconds')"
    );
    let id = JobId(client.query_one(&call, &[]).await.expect("submitted").get(0));
    assert_eq!(admit(&store).await, 1);
    use windlass_store::Inspect;
    let job = store.job(id).await.expect("job").expect("exists");
    assert_eq!((job.summary.kind.as_str(), job.summary.queue.as_str()), ("resize", "images"));
    assert_eq!((job.summary.state, job.summary.priority), (State::Ready, 5));
    assert_eq!(job.input, Payload::json(br#"{"image": 7}"#.to_vec()));
    assert_eq!(job.tags, ["a", "b"]);
    assert_eq!(job.settings.serial.expect("serial").key, "s");
    let unique = job.settings.unique.expect("unique");
    assert_eq!((unique.key.as_str(), unique.scope), ("u", windlass_model::States::LIVE));
    assert_eq!(id.0.get_version_num(), 7, "ids sort by time");
    for (arguments, text) in [
        ("''", "the kind is empty"),
        ("'windlass.poll'", "reserved for the engine"),
        ("'a b'", "contains a space"),
        ("'a', queue => 'x$y'", "control character or $"),
        ("'a', priority => 101", "out of range"),
        ("'a', version => 0", "not positive"),
        ("'a', key => ''", "key is empty"),
        ("'a', delay => interval '-1 second'", "negative"),
        ("'a', rate => 'r', weight => 0", "not positive"),
    ] {
        let error = client.query_one(&format!("select \"{schema}\".submit({arguments})"), &[]).await;
        let error = error.expect_err(text);
        let message = error.as_db_error().expect("from the server").message().to_owned();
        assert!(message.contains(text), "{message:?} lacks {text:?}");
    }
}

#[tokio::test]
async fn rows_written_by_hand_are_checked_and_block_no_others() {
    let (options, store, client) = open().await;
    let schema = options.schema_name();
    let insert = |columns: &str, values: &str| {
        format!(
            "insert into \"{schema}\".arrivals (id, kind, input{columns}) values (gen_random_uuid(), {values})"
        )
    };
    for (columns, values) in [
        ("", "'windlass.x', '1'"),
        (", settings", "'a', '1', '{'"),
        (", settings", "'a', '1', '{\"rate\": {\"limit\": \"none\"}}'"),
        (", tags", "'a', '1', '7'"),
        (", digest", "'a', '1', 'short'"),
        (", delay", "'a', '1', -5"),
        (", codec", "'a', '1', 300"),
    ] {
        client.execute(&insert(columns, values), &[]).await.unwrap_or_else(|e| panic!("{values}: {e:?}"));
    }
    client.execute(&insert("", "'good', '1'"), &[]).await.expect("inserted");
    assert_eq!(admit(&store).await, 8);
    use windlass_store::{Filter, Inspect};
    let jobs = store.jobs(&Filter { limit: 100, ..Filter::default() }).await.expect("jobs").jobs;
    assert_eq!(jobs.len(), 8);
    for job in jobs {
        match job.kind.as_str() {
            "good" => assert_eq!(job.state, State::Ready),
            _ => assert_eq!((job.state, job.reason), (State::Failed, Some(Reason::Refused)), "{}", job.kind),
        }
    }
    assert_eq!(admit(&store).await, 0);
}
