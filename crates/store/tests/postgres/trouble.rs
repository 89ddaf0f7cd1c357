//! Trouble that only a server brings: openers at once, schemas too old and too new, refused changes, no server.

use std::sync::Arc;

use windlass_model::{CommitOutcome, Failure, Outcome, Reason, State};
use windlass_store::{
    ClaimRequest, Error, Migration, SchemaState,
    conformance::kit::*,
    postgres::{Options, Postgres},
};

use super::{cluster, fresh};

/// A fresh schema, and its name.
fn named(name: &str) -> Options {
    Options::parse(&cluster().url()).and_then(|options| options.schema(name)).expect("an address")
}

fn sql(statements: &str) -> String {
    cluster().sql("windlass", statements).expect("sql")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_schema_is_migrated_once_by_many() {
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
    assert_eq!(left, "0", "nothing is left behind");
    let error = Postgres::open(options.clone().migrate(false)).await.err().expect("refused");
    assert!(matches!(error, Error::Schema(_)) && error.to_string().contains("windlass migrate"), "{error}");
    assert_eq!(Postgres::migrate(&options, None).await.expect("up"), SchemaState::CURRENT);
    let store: Handle = Arc::new(Postgres::open(options.migrate(false)).await.expect("open"));
    submit(&store, &[job(1)]).await;
}

/// The migrations of this build and one more, which old binaries can live with.
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
async fn jobs_stay_through_a_migration_and_older_binaries_go_on() {
    let (options, current) = (fresh(), SchemaState::CURRENT);
    let store: Handle = Arc::new(Postgres::open(options.clone()).await.expect("open"));
    submit(&store, &jobs(0, 3)).await;
    let me = worker(&store, 1).await;
    let all = two_versions("alter table jobs add column fixture text");
    let newer = Postgres::migrate_with(&options, None, &all).await.expect("up");
    assert_eq!((newer.version, newer.oldest), (current.version + 1, current.oldest));
    let taken = claim(&store, at(1), &ask(me, 1, 2)).await;
    assert_eq!(ids(&taken), [0, 1].map(id), "the handle that was open uses the newer schema");
    let other: Handle = Arc::new(Postgres::open(options.clone()).await.expect("an older binary may use it"));
    assert_eq!(ids(&claim(&other, at(1), &ask(me, 2, 9)).await), [2].map(id));
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
async fn a_newer_schema_serves_until_it_says_otherwise() {
    let options = named("newer");
    drop(Postgres::open(options.clone()).await.expect("open"));
    let latest = SchemaState::CURRENT.latest;
    sql(&format!("update newer.meta set version = {}, oldest = {latest}", latest + 1));
    drop(Postgres::open(options.clone()).await.expect("it serves this binary still"));
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

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let nobody = "postgres://windlass@127.0.0.1:1/windlass?connect_timeout=2";
    let error = Postgres::open(Options::parse(nobody).expect("valid")).await.err().expect("refused");
    assert!(error.is_retryable(), "{error:?}");
    let missing = cluster().url_for("no_such_database");
    let error = Postgres::open(Options::parse(&missing).expect("valid")).await.err().expect("refused");
    assert!(matches!(error, Error::Config(_)) && error.to_string().contains("no_such_database"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_the_database_refuses_fails_alone() {
    let store: Handle = Arc::new(Postgres::open(named("poison")).await.expect("open"));
    sql("create function poison.no() returns trigger language plpgsql as
         $$ begin raise check_violation using message = 'poison'; end $$;
         create trigger no before update on poison.jobs for each row
         when (new.output = 'poison'::bytea) execute function poison.no();
         create trigger no before insert on poison.attempts for each row
         when (new.failure::text like '%poison%') execute function poison.no();");
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(0, 500)).await;
    let taken = claim(&store, at(0), &ask(worker, 1, 500)).await;
    let outcome = |n: usize| match n {
        // The first is refused at once, the second only after its row was updated: both leave nothing.
        123 => done("poison"),
        321 => {
            Outcome::Retry { after: secs(0), retry_counts: vec![], failure: Some(Failure::retry("poison")) }
        }
        _ if n.is_multiple_of(2) => retry(secs(0), &[]),
        _ => done("x"),
    };
    let batch: Vec<_> = taken.iter().enumerate().map(|(n, job)| change(worker, job, outcome(n))).collect();
    let verdicts = store.commit(at(1), &batch).await.expect("commit");
    for (n, verdict) in verdicts.iter().enumerate() {
        if n == 123 || n == 321 {
            assert!(
                matches!(verdict, CommitOutcome::Refused(why) if why.contains("poison")),
                "{n}: {verdict:?}"
            );
            let kept = view(&store, id(n as u32)).await;
            assert_eq!((kept.summary.state, kept.rev.0, kept.epoch.0), (State::Running, 0, 0), "{n}");
        } else {
            assert_eq!(*verdict, CommitOutcome::Committed, "{n}");
        }
    }
    assert_eq!((count(&store, State::Ready).await, count(&store, State::Done).await), (250, 248));
    assert_eq!(store.commit(at(2), &batch).await.expect("commit"), verdicts, "and the same again");
    let minimal = change(worker, &taken[123], failed(Reason::Refused));
    assert_eq!(commit(&store, 3, minimal).await, CommitOutcome::Committed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_the_same_few_statements_however_many_jobs_there_are() {
    let mut counts = Vec::new();
    for ready in [400, 20_000] {
        let store: Handle = Arc::new(Postgres::open(fresh()).await.expect("open"));
        for chunk in jobs(0, ready).chunks(5_000) {
            submit(&store, chunk).await;
        }
        let worker = worker(&store, 1).await;
        let kinds = [kind(KIND, 1), kind("other", 1)];
        let wanted = |number| ClaimRequest { kinds: kinds.clone().into(), ..ask(worker, number, 100) };
        // The first claim also learns the lanes.
        claim(&store, at(0), &wanted(1)).await;
        let before = store.statements();
        assert_eq!(claim(&store, at(0), &wanted(2)).await.len(), 100);
        counts.push(store.statements() - before);
    }
    assert_eq!(counts[0], counts[1]);
    assert!(counts[0] <= 6, "{counts:?}");
}

/// A full disk blames no change: the whole batch is refused as a passing trouble and commits when there is room again.
#[tokio::test]
async fn a_full_disk_is_waited_for() {
    // A schema may have any name, a word of the language too.
    let store: Handle = Arc::new(Postgres::open(named("full")).await.expect("open"));
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 20)).await;
    let claimed = claim(&store, at(0), &ask(worker, 1, 20)).await;
    let changes: Vec<_> = claimed.iter().map(|job| change(worker, job, done("x"))).collect();
    sql("create function \"full\".no_room() returns trigger language plpgsql as \
         $$ begin raise exception 'could not extend file' using errcode = '53100'; end $$; \
         create trigger no_room before update on \"full\".jobs for each row execute function \"full\".no_room()");
    let error = store.commit(at(1), &changes).await.expect_err("no room");
    assert!(error.is_retryable() && error.to_string().contains("could not extend file"), "{error}");
    assert_eq!(count(&store, State::Running).await, 20);
    sql("drop trigger no_room on \"full\".jobs");
    let verdicts = store.commit(at(2), &changes).await.expect("room");
    assert!(verdicts.iter().all(|verdict| *verdict == CommitOutcome::Committed));
}

/// A peer that takes the connection and says nothing is not waited for.
#[tokio::test]
async fn a_silent_peer_is_unavailable() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = silent.local_addr().expect("an address").port();
    let options = Options::parse(&format!("postgres://x@127.0.0.1:{port}/x")).expect("an address");
    let opened = Postgres::open(options.patience(std::time::Duration::from_millis(200))).await;
    assert!(opened.err().expect("nobody answers").is_retryable());
}

/// A crash between a commit and what is cleared after it leaves orders, pauses and timers of a job that has ended. None of
/// them may touch the job once it is brought back.
#[tokio::test]
async fn what_an_earlier_life_left_behind_is_void() {
    use windlass_model::State;
    use windlass_store::{
        Actor, JobAction, Store,
        conformance::kit::{self, at, id, job, t},
    };
    let options = super::fresh();
    let store: std::sync::Arc<dyn Store> =
        std::sync::Arc::new(Postgres::open(options.clone()).await.expect("open"));
    let client = Postgres::client(&options).await.expect("connected");
    let mut new = job(1);
    new.deadline_at = Some(t(500));
    kit::submit(&store, &[new]).await;
    let holder = kit::worker(&store, 1).await;
    let claimed = kit::claim_one(&store, 1, holder, 1).await;
    let failed = kit::failed(windlass_model::Reason::Stopped);
    kit::commit(&store, 2, kit::change(holder, &claimed, failed)).await;
    let left = format!(
        "insert into cancel_requests (job, worker, epoch, deadline_at, author) values ('{0}', 1, 0, {1}, 'before');
         insert into paused_jobs (job, at, author) values ('{0}', 0, 'before');
         insert into timers (due_at, job, purpose) values ({1}, '{0}', 2), ({2}, '{0}', 1), ({3}, '{0}', 0)",
        id(1),
        t(100).micros(),
        t(500).micros(),
        t(50).micros(),
    );
    client.batch_execute(&left).await.expect("left behind");
    let by = Actor::new("someone");
    let did = store.control().act_on_jobs(at(10), &[id(1)], JobAction::Retry, &by).await.expect("retry");
    assert_eq!(did, [windlass_store::ControlOutcome::Done]);
    let due = store.fire_timers(at(505), 100).await.expect("due");
    assert_eq!((due.woken, due.expired, due.cancelled), (0, 0, 0), "all of it is void");
    assert_eq!(kit::state(&store, id(1)).await, State::Ready);
    assert_eq!(
        store.control().act_on_jobs(at(506), &[id(1)], JobAction::Pause, &by).await.expect("pause"),
        [windlass_store::ControlOutcome::Done]
    );
    assert_eq!(
        store.control().act_on_jobs(at(507), &[id(1)], JobAction::Resume, &by).await.expect("resume"),
        [windlass_store::ControlOutcome::Done]
    );
    assert_eq!(
        store.fire_timers(at(510), 100).await.expect("due").expired,
        1,
        "its new deadline is as far away as at first"
    );
}
