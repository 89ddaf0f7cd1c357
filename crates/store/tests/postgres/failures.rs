//! Failures that only a server has: no server, refused changes, a full disk, a silent peer.

use std::sync::Arc;

use windlass_model::{CommitOutcome, Failure, Outcome, Reason, State};
use windlass_store::{
    ControlOutcome, Error, JobAction,
    conformance::kit::*,
    postgres::{Options, Postgres},
};

use super::{cluster, fresh, named, open_with_client, sql};

#[tokio::test]
async fn a_server_that_does_not_run_is_unavailable() {
    let no_server = "postgres://windlass@127.0.0.1:1/windlass?connect_timeout=2";
    let error = Postgres::open(Options::parse(no_server).expect("valid")).await.err().expect("refused");
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
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 500)).await;
    let outcome = |n: usize| match n {
        // The first is refused at once, the second only after its row was updated: neither writes anything.
        123 => done("poison"),
        321 => {
            Outcome::Retry { after: secs(0), retry_counts: vec![], failure: Some(Failure::retry("poison")) }
        }
        _ if n.is_multiple_of(2) => retry(secs(0), &[]),
        _ => done("x"),
    };
    let batch: Vec<_> = claimed.iter().enumerate().map(|(n, job)| change(worker, job, outcome(n))).collect();
    let outcomes = store.commit(at(1), &batch).await.expect("commit");
    for (n, outcome) in outcomes.iter().enumerate() {
        if n == 123 || n == 321 {
            assert!(
                matches!(outcome, CommitOutcome::Refused(why) if why.contains("poison")),
                "{n}: {outcome:?}"
            );
            let kept = view(&store, id(n as u32)).await;
            assert_eq!((kept.summary.state, kept.rev.0, kept.epoch.0), (State::Running, 0, 0), "{n}");
        } else {
            assert_eq!(*outcome, CommitOutcome::Committed, "{n}");
        }
    }
    assert_eq!((count(&store, State::Ready).await, count(&store, State::Done).await), (250, 248));
    assert_eq!(store.commit(at(2), &batch).await.expect("commit"), outcomes, "the same when repeated");
    let minimal = change(worker, &claimed[123], failed(Reason::Refused));
    assert_eq!(commit(&store, 3, minimal).await, CommitOutcome::Committed);
}

/// A full disk refuses no change: the batch fails as unavailable, and commits once there is space.
#[tokio::test]
async fn a_full_disk_is_unavailable() {
    // A schema may be named by a keyword.
    let store: Handle = Arc::new(Postgres::open(named("full")).await.expect("open"));
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 20)).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 20)).await;
    let changes: Vec<_> = claimed.iter().map(|job| change(worker, job, done("x"))).collect();
    sql("create function \"full\".no_space() returns trigger language plpgsql as \
         $$ begin raise exception 'could not extend file' using errcode = '53100'; end $$; \
         create trigger no_space before update on \"full\".jobs for each row execute function \"full\".no_space()");
    let error = store.commit(at(1), &changes).await.expect_err("no space");
    assert!(error.is_retryable() && error.to_string().contains("could not extend file"), "{error}");
    assert_eq!(count(&store, State::Running).await, 20);
    sql("drop trigger no_space on \"full\".jobs");
    let outcomes = store.commit(at(2), &changes).await.expect("space");
    assert!(outcomes.iter().all(|outcome| *outcome == CommitOutcome::Committed));
}

/// A peer that accepts the connection and never answers is given up.
#[tokio::test]
async fn a_silent_peer_is_unavailable() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = silent.local_addr().expect("an address").port();
    let options = Options::parse(&format!("postgres://x@127.0.0.1:{port}/x")).expect("an address");
    let opened = Postgres::open(options.patience(std::time::Duration::from_millis(200))).await;
    assert!(opened.err().expect("no answer").is_retryable());
}

/// A crash between a commit and the deletes after it leaves cancel requests, pauses and timers of a job that has ended. They must not
/// affect the job once it is retried.
#[tokio::test]
async fn leftovers_of_an_ended_job_are_void_after_a_retry() {
    let (store, client) = open_with_client(&fresh()).await;
    let mut new = job(1);
    new.deadline_at = Some(t(500));
    submit(&store, &[new]).await;
    let holder = worker(&store, 1).await;
    let claimed = claim_one(&store, 1, holder, 1).await;
    apply(&store, 2, change(holder, &claimed, failed(Reason::Stopped))).await;
    let leftovers = format!(
        "insert into cancel_requests (job, worker, epoch, deadline_at, author) values ('{0}', 1, 0, {1}, 'before');
         insert into paused_jobs (job, at, author) values ('{0}', 0, 'before');
         insert into timers (due_at, job, purpose) values ({1}, '{0}', 2), ({2}, '{0}', 1), ({3}, '{0}', 0)",
        id(1),
        t(100).micros(),
        t(500).micros(),
        t(50).micros(),
    );
    client.batch_execute(&leftovers).await.expect("inserted");
    assert_eq!(act_on_job(&store, 10, 1, JobAction::Retry).await, ControlOutcome::Done);
    let report = store.fire_timers(at(505), 100).await.expect("timers");
    assert_eq!((report.woken, report.expired, report.cancelled), (0, 0, 0), "all of them are void");
    assert_eq!(state(&store, id(1)).await, State::Ready);
    assert_eq!(act_on_job(&store, 506, 1, JobAction::Pause).await, ControlOutcome::Done);
    assert_eq!(act_on_job(&store, 507, 1, JobAction::Resume).await, ControlOutcome::Done);
    let report = store.fire_timers(at(510), 100).await.expect("timers");
    assert_eq!(
        report.expired, 1,
        "its new deadline is as long after the retry as the first was after the submit"
    );
}
