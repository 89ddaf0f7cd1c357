//! How a job ends: results, errors, panics, timeouts, deadlines.

use windlass::{OnFailure, Reason, State, Time, prelude::*};

use super::{Act, Do, TaskError, engine, started, view};
use crate::common::until;

crate::on_both_stores!(
    a_result_is_typed_and_reaches_every_process,
    errors_are_retried_and_recorded,
    each_way_to_fail_has_its_reason,
    a_panic_fails_only_its_own_job,
    a_timeout_ends_the_attempt,
    an_attempt_that_blocks_its_thread_is_given_up,
    an_attempt_that_is_given_up_has_one_outcome,
    an_output_that_is_too_large_fails_only_its_own_job,
    a_job_that_has_not_ended_at_its_deadline_fails,
    a_job_past_its_deadline_is_not_started,
);

async fn a_result_is_typed_and_reaches_every_process(url: &str) {
    let worker = started(url).await;
    let elsewhere = Engine::open(url).await.expect("opened");
    let here = worker.submit(Do(Act::Return(7))).await.expect("submitted");
    assert_eq!(here.result().await.expect("done"), 7);
    let there = elsewhere.submit(Do(Act::Return(8))).await.expect("submitted");
    assert_eq!(there.result().await.expect("done"), 8);
    assert_eq!(elsewhere.result::<u64>(here.id()).await.expect("done"), 7);
    let gone = elsewhere.result::<u64>(elsewhere.new_id()).await.expect_err("never submitted");
    assert!(gone.to_string().contains("pruned, or never submitted"), "{gone}");
    worker.stop().await;
}

async fn errors_are_retried_and_recorded(url: &str) {
    let engine = started(url).await;
    let job =
        engine.submit(Do(Act::FailFirst { times: 2, padding: String::new() })).await.expect("submitted");
    assert_eq!(job.result().await.expect("done at last"), 3);
    let seen = view(&engine, job.id()).await;
    assert_eq!((seen.summary.attempts, seen.summary.state, seen.rev.0), (2, State::Done, 3));
    let tried = engine.inspect().history(job.id()).await.expect("read");
    assert_eq!(tried.iter().map(|a| &*a.failure.class).collect::<Vec<_>>(), ["busy", "busy"]);
    assert_eq!(tried[0].failure.detail::<TaskError>(), Some(TaskError::Busy { try_again: true }));

    let first_try = engine.submit(Do(Act::Return(1))).await.expect("submitted");
    first_try.result().await.expect("done");
    assert!(engine.inspect().history(first_try.id()).await.expect("read").is_empty());
    engine.stop().await;
}

async fn each_way_to_fail_has_its_reason(url: &str) {
    let engine = started(url).await;
    let fails = |act: Act, retry: Retry| {
        let engine = engine.clone();
        async move {
            let job = engine.submit(Do(act)).retry(retry).await.expect("submitted");
            job.result().await.expect_err("failed")
        }
    };
    let quick = |retry: Retry| retry.backoff(Duration::from_millis(1), Duration::from_millis(2));
    let many = Act::FailFirst { times: 99, padding: String::new() };
    let reason = |error: &JobError| match error {
        JobError::Failed { reason, .. } => Some(*reason),
        _ => None,
    };
    assert_eq!(reason(&fails(many.clone(), quick(Retry::times(2))).await), Some(Reason::Exhausted));
    assert_eq!(reason(&fails(many, Retry::rules().on("other", 9)).await), Some(Reason::Stopped));
    let broken = fails(Act::Stop, Retry::times(9)).await;
    assert_eq!(reason(&broken), Some(Reason::Stopped));
    assert!(
        matches!(broken, JobError::Failed { failure, .. } if failure.detail() == Some(TaskError::Broken))
    );
    let cancelled = fails(Act::Cancel, Retry::times(9)).await;
    assert!(matches!(cancelled, JobError::Cancelled(failure) if failure.then == OnFailure::Cancel));

    let odd = || engine.submit_json("do", 1, serde_json::json!({"no": "such act"}));
    let refused = odd().await.expect_err("refused").to_string();
    assert!(refused.contains("\"do\" job does not decode (unknown variant `no`"), "{refused}");
    let odd = odd().unchecked().await.expect("submitted");
    assert_eq!(reason(&odd.result().await.expect_err("failed")), Some(Reason::Undecodable));
    assert_eq!(view(&engine, odd.id()).await.summary.attempts, 0, "no attempt is counted");
    engine.stop().await;
}

async fn a_panic_fails_only_its_own_job(url: &str) {
    let engine = started(url).await;
    let bad = engine.submit(Do(Act::Panic)).retry(Retry::never()).await.expect("submitted");
    let jobs: Vec<_> = engine.submit_all((0..50).map(|n| Do(Act::Return(n)))).await.expect("submitted");
    for job in jobs {
        engine.result::<u64>(job.id().expect("submitted")).await.expect("the others are done");
    }
    let error = bad.result().await.expect_err("failed");
    assert!(
        matches!(error, JobError::Failed { failure, .. } if failure.class == "panic" && failure.message == "on purpose")
    );
    engine.stop().await;
}

async fn a_timeout_ends_the_attempt(url: &str) {
    let engine = started(url).await;
    let job = engine.submit(Do(Act::Hang)).timeout(Duration::from_millis(30)).retry(Retry::never());
    let job = job.await.expect("submitted");
    let error = job.result().await.expect_err("failed");
    assert!(matches!(error, JobError::Failed { reason: Reason::Timeout, .. }), "{error}");
    engine.stop().await;
}

async fn an_attempt_that_blocks_its_thread_is_given_up(url: &str) {
    let engine = started(url).await;
    let job = engine.submit(Do(Act::Block(6_000))).timeout(Duration::from_millis(50)).retry(Retry::never());
    let job = job.await.expect("submitted");
    let lost = until("the slot is lost", async || engine.counts().lost_slots == 1);
    let (error, ()) = tokio::join!(job.result(), lost);
    let error = error.expect_err("given up");
    assert!(
        matches!(&error, JobError::Failed { reason: Reason::Timeout, failure, .. } if failure.message.contains("blocks its thread")),
        "{error}"
    );
    until("the slot is back", async || engine.counts().lost_slots == 0).await;
    assert_eq!(view(&engine, job.id()).await.rev.0, 1, "what it returned later was not written");
    engine.stop().await;
}

/// The watchdog and the attempt end at about the same time, repeatedly: the first decides, and callers receive the outcome
/// that is in the store.
async fn an_attempt_that_is_given_up_has_one_outcome(url: &str) {
    let engine = started(url).await;
    for n in 0..6 {
        let blocked = 900 + n * 60;
        let job =
            engine.submit(Do(Act::Block(blocked))).timeout(Duration::from_millis(20)).retry(Retry::never());
        let job = job.await.expect("submitted");
        let result = job.result().await;
        let seen = view(&engine, job.id()).await;
        assert_eq!(seen.rev.0, 1);
        assert_eq!(result.is_ok(), seen.summary.state == State::Done, "{result:?} {seen:?}");
    }
    until("all slots are back", async || engine.counts().lost_slots == 0).await;
    engine.stop().await;
}

#[derive(Serialize, Deserialize)]
struct Big(usize);

impl Task for Big {
    const KIND: &'static str = "big";
    type Output = String;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        Ok("x".repeat(self.0))
    }
}

async fn an_output_that_is_too_large_fails_only_its_own_job(url: &str) {
    let engine = Engine::builder(url).task::<Big>().open().await.expect("opened");
    let jobs = engine.submit_all([Big(10), Big(2 << 20), Big(20)]).await.expect("submitted");
    engine.start().await.expect("started");
    assert_eq!(engine.result::<String>(jobs[0].id().expect("submitted")).await.expect("done").len(), 10);
    assert_eq!(engine.result::<String>(jobs[2].id().expect("submitted")).await.expect("done").len(), 20);
    let error = engine.result::<String>(jobs[1].id().expect("submitted")).await.expect_err("failed");
    assert!(
        matches!(&error, JobError::Failed { reason: Reason::Refused, failure, .. } if failure.message.contains("WINDLASS_LIMIT_PAYLOAD")),
        "{error}"
    );
    engine.stop().await;
}

async fn a_job_that_has_not_ended_at_its_deadline_fails(url: &str) {
    let engine = started(url).await;
    let soon = Time::from_system(std::time::SystemTime::now()) + Duration::from_millis(150);
    let running = engine.submit(Do(Act::Hang)).deadline(soon).await.expect("submitted");
    let waiting =
        engine.submit(Do(Act::Return(1))).queue("unserved").deadline(soon).await.expect("submitted");
    for job in [running, waiting] {
        let error = job.result().await.expect_err("failed");
        assert!(matches!(error, JobError::Failed { reason: Reason::Expired, .. }), "{error}");
    }
    engine.stop().await;
}

async fn a_job_past_its_deadline_is_not_started(url: &str) {
    let engine = engine(url).queue("default", Pool::slots(1)).open().await.expect("opened");
    let past = Time::from_system(std::time::SystemTime::now()) - Duration::from_secs(1);
    let job = engine.submit(Do(Act::Return(1))).deadline(past).await.expect("submitted");
    engine.start().await.expect("started");
    let error = job.result().await.expect_err("failed");
    assert!(matches!(error, JobError::Failed { reason: Reason::Expired, .. }), "{error}");
    engine.stop().await;
}
