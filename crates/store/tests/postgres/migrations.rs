//! Migrations: concurrent openers, up and down, and schemas that are too old or too new.

use std::sync::Arc;

use windlass_model::State;
use windlass_store::{Error, Migration, SchemaState, conformance::kit::*, postgres::Postgres};

use super::{fresh, named, sql};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_schema_is_migrated_once_by_concurrent_openers() {
    for _ in 0..3 {
        let options = fresh();
        let opening: Vec<_> = (0..8).map(|_| tokio::spawn(Postgres::open(options.clone()))).collect();
        for (n, opened) in opening.into_iter().enumerate() {
            let store: Handle = Arc::new(opened.await.expect("a task").expect("open"));
            assert_eq!(store.inspect().schema().await.expect("schema"), SchemaState::CURRENT);
            submit(&store, &[job(n as u32)]).await;
        }
    }
}

#[tokio::test]
async fn the_schema_goes_down_and_up_again() {
    let options = named("down_and_up");
    drop(Postgres::open(options.clone()).await.expect("open"));
    let down = Postgres::migrate(&options, Some(0)).await.expect("down");
    assert_eq!((down.version, down.latest), (0, SchemaState::CURRENT.latest));
    let left = sql("select count(*) from pg_class where relnamespace = 'down_and_up'::regnamespace");
    assert_eq!(left, "0", "no tables are left");
    let error = Postgres::open(options.clone().migrate(false)).await.err().expect("refused");
    assert!(matches!(error, Error::Schema(_)) && error.to_string().contains("windlass migrate"), "{error}");
    assert_eq!(Postgres::migrate(&options, None).await.expect("up"), SchemaState::CURRENT);
    let store: Handle = Arc::new(Postgres::open(options.migrate(false)).await.expect("open"));
    submit(&store, &[job(1)]).await;
}

/// The migrations of this build and one more, which older binaries support.
fn two_versions(up: &'static str) -> Vec<Migration> {
    let mut all = Postgres::MIGRATIONS.to_vec();
    let last = *all.last().expect("at least one");
    let (version, oldest) = (last.version + 1, last.oldest);
    all.push(Migration {
        version,
        oldest,
        name: "fixture",
        up,
        down: "alter table jobs drop column fixture",
    });
    all
}

#[tokio::test]
async fn jobs_survive_a_migration_and_older_binaries_continue() {
    let (options, current) = (fresh(), SchemaState::CURRENT);
    let store: Handle = Arc::new(Postgres::open(options.clone()).await.expect("open"));
    submit(&store, &jobs(0, 3)).await;
    let me = worker(&store, 1).await;
    let all = two_versions("alter table jobs add column fixture text");
    let newer = Postgres::migrate_with(&options, None, &all).await.expect("up");
    assert_eq!((newer.version, newer.oldest), (current.version + 1, current.oldest));
    let claimed = claim(&store, at(1), &claim_request(me, 1, 2)).await;
    assert_eq!(ids(&claimed), [0, 1].map(id), "the handle that was open uses the newer schema");
    let other: Handle = Arc::new(Postgres::open(options.clone()).await.expect("an older binary may use it"));
    assert_eq!(ids(&claim(&other, at(1), &claim_request(me, 2, 9)).await), [2].map(id));
    let down = Postgres::migrate_with(&options, Some(current.version), &all).await.expect("down");
    assert_eq!((down.version, down.oldest), (current.version, current.oldest));
    assert_eq!(view(&store, id(0)).await.summary.state, State::Running);
}

#[tokio::test]
async fn a_migration_that_fails_changes_nothing() {
    let options = named("half");
    drop(Postgres::open(options.clone()).await.expect("open"));
    let all = two_versions("create table half_done (id int4); create table jobs (id int4)");
    assert!(Postgres::migrate_with(&options, None, &all).await.is_err());
    assert_eq!(sql("select to_regclass('half.half_done') is null"), "t");
    assert_eq!(sql("select version from half.meta"), SchemaState::CURRENT.version.to_string());
}

#[tokio::test]
async fn a_schema_from_before_the_first_release_is_refused() {
    let options = named("early");
    drop(Postgres::open(options.clone()).await.expect("open"));
    sql("update early.meta set version = 6, oldest = 6");
    for error in [Postgres::open(options.clone()).await.err(), Postgres::migrate(&options, None).await.err()]
    {
        let error = error.expect("refused");
        assert!(matches!(&error, Error::Schema(_)), "{error}");
        assert!(error.to_string().contains("before the first release"), "{error}");
    }
}

#[tokio::test]
async fn a_newer_schema_is_used_while_it_supports_this_binary() {
    let options = named("newer");
    drop(Postgres::open(options.clone()).await.expect("open"));
    let latest = SchemaState::CURRENT.latest;
    sql(&format!("update newer.meta set version = {}, oldest = {latest}", latest + 1));
    drop(Postgres::open(options.clone()).await.expect("it supports this binary"));
    sql(&format!("update newer.meta set version = {}, oldest = {}", latest + 2, latest + 1));
    for migrate in [true, false] {
        let error = Postgres::open(options.clone().migrate(migrate)).await.err().expect("refused");
        assert!(
            matches!(error, Error::Schema(_)) && error.to_string().contains("use a newer one"),
            "{error}"
        );
    }
    assert!(matches!(Postgres::migrate(&options, None).await, Err(Error::Schema(_))));
}
