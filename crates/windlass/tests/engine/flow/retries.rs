//! What a retried job does again: undos that failed, and selects whose calls are void.

use std::time::Duration;

use windlass::{
    JobError, State,
    prelude::*,
    store::{ControlOutcome, JobAction},
    testing::Lab,
};

use super::{On, on_every_store, ran, times};

on_every_store!(
    a_cancel_right_after_a_retry_repeats_the_undos_that_failed,
    a_select_is_decided_again_if_one_of_its_calls_is_void,
    a_select_is_decided_again_if_its_winner_was_undone,
);

/// Makes two bookings; the first attempt to undo the second one fails. With `asks` it has a failing step in between.
#[derive(Serialize, Deserialize)]
struct Books {
    asks: bool,
}

impl Workflow for Books {
    const KIND: &'static str = "retried_books";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        let book = async |name: &'static str| {
            let step = flow.step(name, move || async move {
                ran(format!("{id}/{name}"));
                Ok(())
            });
            let undo = move |()| async move {
                match (name, ran(format!("{id}/undo {name}"))) {
                    ("flight", 1) => Err(Failure::stop("nobody answers")),
                    _ => Ok(()),
                }
            };
            step.undo(undo).await
        };
        book("hotel").await?;
        let asked = match self.asks {
            true => flow.step("ask", || async { Err::<(), _>(Failure::stop("no")) }).await,
            false => Err(Failure::stop("no")),
        };
        book("flight").await?;
        asked
    }
}

async fn a_cancel_right_after_a_retry_repeats_the_undos_that_failed(on: On) {
    for asks in [false, true] {
        let store = on.fresh().await;
        let lab = Lab::on(&store.url, |engine| engine.workflow::<Books>()).await;
        let job = lab.submit(Books { asks }).await;
        lab.run().await;
        let failed = lab.result(job).await.expect_err("it fails").to_string();
        assert_eq!(failed, "the job failed (stopped): no; not undone: \"flight\" (nobody answers)");
        let (engine, id) = (lab.engine().await, job.id());
        let control = engine.control("test");
        control.pause_queue("default").await.expect("paused");
        control.retry(id).await.expect("retried").accepted().expect("retried");
        let outcome =
            control.act_on_job(id, JobAction::Cancel { grace: Duration::ZERO }).await.expect("acted");
        assert_eq!(outcome, ControlOutcome::CancelRequested, "there is something to undo");
        control.resume_queue("default").await.expect("resumed");
        lab.run().await;
        assert_eq!(times(format!("{id}/undo flight")), 2, "asks: {asks}");
        assert_eq!(times(format!("{id}/undo hotel")), 1, "it was undone");
        assert_eq!((times(format!("{id}/hotel")), times(format!("{id}/flight"))), (1, 1));
        match lab.result(job).await {
            Err(JobError::Cancelled(failure)) => {
                assert!(!failure.message.contains("not undone"), "{failure}");
            }
            other => panic!("{other:?}"),
        }
        let why = engine.why(id).await.expect("why").expect("the job exists");
        assert!(!why.because.contains("not undone"), "{why:?}");
    }
}

/// Pays within an hour, or not. The first payment fails; the next one takes 300 ms.
#[derive(Serialize, Deserialize)]
struct Paid;

impl Workflow for Paid {
    const KIND: &'static str = "retried_paid";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let id = flow.id();
        let pay = flow.step("pay", move || async move {
            if ran(format!("{id}/pay")) == 1 {
                return Err(Failure::stop("no such account"));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok("paid".to_owned())
        });
        match flow.select("paid_or_late", (pay, flow.sleep(hours(1)))).await {
            First2::A(paid) => paid,
            First2::B(()) => Ok("late".into()),
        }
    }
}

async fn a_select_is_decided_again_if_one_of_its_calls_is_void(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Paid>()).await;
    let job = lab.submit(Paid).await;
    lab.run().await;
    let failed = lab.result(job).await.expect_err("it fails").to_string();
    assert_eq!(failed, "the job failed (stopped): no such account");
    lab.advance(days(1)).await;
    lab.engine().await.control("test").retry(job.id()).await.expect("retried").accepted().expect("retried");
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("it was paid for too late"), "late");
    assert_eq!(times(format!("{}/pay", job.id())), 2);
}

/// Asks two services: the first answers before the job is retried, the second after. Each undo needs two attempts.
#[derive(Serialize, Deserialize)]
struct Asks;

impl Workflow for Asks {
    const KIND: &'static str = "retried_asks";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        let ask = |name: &'static str, answers: u32| {
            let step = flow.step(name, move || async move {
                if ran(format!("{id}/{name}")) != answers {
                    std::future::pending::<()>().await;
                }
                Ok(())
            });
            let undo = move |()| async move {
                match ran(format!("{id}/undo {name}")) {
                    1 => Err(Failure::retry("not now")),
                    _ => Ok(()),
                }
            };
            step.retry(Retry::times(2).backoff(hours(1), hours(1))).undo(undo)
        };
        match flow.select("answered", (ask("left", 1), ask("right", 2))).await {
            First2::A(answer) | First2::B(answer) => answer?,
        }
        Err(Failure::stop("not good enough"))
    }
}

async fn a_select_is_decided_again_if_its_winner_was_undone(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Asks>()).await;
    let job = lab.submit(Asks).await;
    for name in ["left", "right"] {
        lab.run().await;
        assert_eq!(lab.state(job).await, State::Failed);
        let failed = lab.result(job).await.expect_err("it fails").to_string();
        assert_eq!(failed, "the job failed (stopped): not good enough");
        assert_eq!(times(format!("{}/undo {name}", job.id())), 2, "{name} is undone, at the second attempt");
        if name == "left" {
            lab.engine()
                .await
                .control("test")
                .retry(job.id())
                .await
                .expect("retried")
                .accepted()
                .expect("retried");
        }
    }
    assert_eq!(times(format!("{}/undo left", job.id())), 2, "once");
}
