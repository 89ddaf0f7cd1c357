//! The lab: its clock is the only one that jobs and people see, and waiting takes no real time.

use std::time::Instant;

use windlass::{
    State,
    model::Role,
    prelude::*,
    store::{Actor, NewSession, NewUser, PasswordHash},
    testing::{Lab, LabJob},
};

use crate::{
    common::until,
    flow::{On, on_every_store, ran, times},
};

on_every_store!(
    rate_limited_jobs_run_without_real_waiting,
    a_lab_advances_to_a_time_before_the_next_token,
    jobs_without_a_limit_do_not_wait_for_tokens,
    rate_limited_jobs_survive_a_crash_at_every_commit,
    the_clock_of_a_store_in_a_lab_is_that_of_the_lab,
    a_cancelled_attempt_in_a_lab_ends_after_its_grace_period,
    expired_sessions_of_users_are_pruned,
);

/// Returns its number.
#[derive(Serialize, Deserialize)]
struct Number(u32);

impl Task for Number {
    const KIND: &'static str = "lab_number";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        Ok(self.0)
    }
}

/// Submits jobs under a limit of one start an hour.
async fn submit_limited(lab: &Lab, jobs: u32) -> Vec<LabJob<Number>> {
    let engine = lab.engine().await;
    engine.control("test").set_limit(RateLimit::per("api", 1, hours(1)).burst(1)).await.expect("set");
    let mut submitted = Vec::new();
    for n in 0..jobs {
        let handle = engine.submit(Number(n)).rate("api").await.expect("submitted");
        submitted.push(lab.job(handle.id()));
    }
    submitted
}

async fn done(lab: &Lab, jobs: &[LabJob<Number>]) -> usize {
    let mut done = 0;
    for job in jobs {
        done += usize::from(lab.state(*job).await == State::Done);
    }
    done
}

async fn rate_limited_jobs_run_without_real_waiting(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Number>()).await;
    let (real, began) = (Instant::now(), lab.now());
    let jobs = submit_limited(&lab, 5).await;
    lab.run().await;
    for (n, job) in jobs.iter().enumerate() {
        assert_eq!(lab.result(*job).await.expect("done"), n as u32);
    }
    let took = lab.now() - began;
    assert!(took >= hours(4) && took < hours(5), "four jobs wait for a token: {took:?}");
    assert!(real.elapsed() < seconds(25), "{:?}", real.elapsed());
}

async fn a_lab_advances_to_a_time_before_the_next_token(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Number>()).await;
    let began = lab.now();
    let jobs = submit_limited(&lab, 3).await;
    for (minute, expected) in [(30, 1), (59, 1), (61, 2), (119, 2), (121, 3)] {
        lab.advance(began + minutes(minute) - lab.now()).await;
        assert_eq!(done(&lab, &jobs).await, expected, "after {minute} minutes");
        assert_eq!(lab.now(), began + minutes(minute));
    }
}

async fn jobs_without_a_limit_do_not_wait_for_tokens(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Number>()).await;
    for n in 0..20 {
        let began = lab.now();
        let limited = submit_limited(&lab, 2).await;
        let free = lab.submit(Number(n)).await;
        lab.run().await;
        assert_eq!(done(&lab, &limited).await, 2);
        let job = lab.engine().await.inspect().job(free.id()).await.expect("read").expect("the job exists");
        assert_eq!(job.summary.finished_at, Some(began), "it ran before the clock was set forward");
    }
}

async fn rate_limited_jobs_survive_a_crash_at_every_commit(on: On) {
    let report = on
        .crash(
            |engine| engine.task::<Number>(),
            async |lab| {
                let jobs = submit_limited(&lab, 3).await;
                lab.run().await;
                done(&lab, &jobs).await
            },
        )
        .await;
    assert_eq!((report.outcome, report.crashes), (3, 6));
}

async fn the_clock_of_a_store_in_a_lab_is_that_of_the_lab(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(store.url.clone(), |engine| engine.task::<Number>()).await;
    lab.advance(days(400)).await;
    assert_eq!(lab.engine().await.inspect().clock().await.expect("a clock"), lab.now());
    lab.crash().await;
    assert_eq!(lab.engine().await.inspect().clock().await.expect("a clock"), lab.now());
}

/// Ignores that it is cancelled.
#[derive(Serialize, Deserialize)]
struct Hangs;

impl Task for Hangs {
    const KIND: &'static str = "lab_hangs";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        ran(cx.id());
        std::future::pending().await
    }
}

async fn a_cancelled_attempt_in_a_lab_ends_after_its_grace_period(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Hangs>()).await;
    // The clock of the machine is a year behind from now on.
    lab.advance(days(365)).await;
    let job = lab.submit(Hangs).await;
    until("it runs", async || times(job.id()) > 0).await;
    let engine = lab.engine().await;
    engine
        .control("test")
        .cancel_within(job.id(), Duration::from_millis(50))
        .await
        .expect("requested")
        .accepted()
        .expect("requested");
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Cancelled);
}

async fn expired_sessions_of_users_are_pruned(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Number>()).await;
    let engine = lab.engine().await;
    let password_hash = PasswordHash("$argon2id$".into());
    let user = NewUser { name: "eve".into(), role: Role::Viewer, password_hash: password_hash.clone() };
    let added = engine.store().add_user(None, &user, &Actor::new("test")).await;
    added.expect("answered").accepted().expect("added");
    for (number, lasts) in [(1, hours(1)), (2, days(365))] {
        let (user, password_hash) = ("eve".into(), password_hash.clone());
        let session = NewSession { hash: [number; 32], user, password_hash, lasts };
        assert!(engine.store().add_session(None, &session).await.expect("answered"));
    }
    let exists = async |number| engine.store().session(&[number; 32]).await.expect("read").is_some();
    assert!(exists(1).await);
    // The pruner waits for up to an hour from when it began to, which may be after the first step.
    let pruned = async || {
        lab.advance(hours(1)).await;
        !exists(1).await
    };
    until("the expired one is pruned", pruned).await;
    assert!(exists(2).await);
}
