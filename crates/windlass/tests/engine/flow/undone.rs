//! Undos after every bad end: each once, the last one first.

use std::time::Duration;

use windlass::{
    JobError, Reason, State, Time,
    model::journal::Mark,
    prelude::*,
    store::{Act, Did, Sweep},
    testing::Lab,
};

use super::{On, on_every_store, ran, times};

on_every_store!(
    undone_after_expiry,
    undone_after_poison,
    undone_after_a_cancel_in_the_middle_of_a_step,
    what_cannot_be_undone_does_not_keep_the_others_from_it,
    a_second_cancel_ends_it_at_once,
    a_retried_job_does_again_what_was_undone,
    a_sound_end_undoes_nothing,
    what_is_done_and_not_waited_for_is_undone_too,
    what_was_done_again_is_undone_again,
    an_unwinding_outlives_its_deadline,
);

/// Books and can undo; how it ends is up to the test.
#[derive(Serialize, Deserialize)]
struct Booking {
    ends: String,
}

impl Workflow for Booking {
    const KIND: &'static str = "booking";
    type Output = Vec<String>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<String>, Failure> {
        let id = flow.id();
        let mut booked = Vec::new();
        for part in ["hotel", "flight"] {
            let stuck = self.ends == "stuck" && part == "flight";
            let book = flow
                .step("book", move || async move {
                    ran(format!("{id}/book/{part}"));
                    Ok::<_, Failure>(part.to_owned())
                })
                .key(part)
                .retry(Retry::times(2))
                .undo(move |part: String| async move {
                    ran(format!("{id}/undo/{part}"));
                    if stuck { Err(Failure::retry("nobody answers")) } else { Ok(()) }
                });
            booked.push(book.await?);
        }
        match self.ends.as_str() {
            "well" => {}
            "slow" => {
                flow.step_with("slow", |cx| async move {
                    ran(format!("{}/slow", cx.id()));
                    cx.cancelled().await;
                    Ok::<_, Failure>(())
                })
                .await?;
            }
            "stuck" => return Err(Failure::stop("no money")),
            "once" if ran(format!("{id}/once")) == 1 => return Err(Failure::stop("no money, once")),
            "once" => {}
            _ => flow.signal::<()>("never").await?,
        }
        Ok(booked)
    }
}

async fn lab(on: On) -> (crate::common::Place, Lab) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Booking>()).await;
    (place, lab)
}

/// The keys of the steps that were undone, in order.
async fn undone(lab: &Lab, job: windlass::testing::LabJob<Vec<String>>) -> Vec<String> {
    let journal = lab.journal(job).await;
    let undone = journal.into_iter().filter(|entry| entry.mark == Mark::Undone);
    undone.map(|entry| entry.key.unwrap_or_default()).collect()
}

async fn each_once_in_reverse(lab: &Lab, job: windlass::testing::LabJob<Vec<String>>) {
    assert_eq!(undone(lab, job).await, ["flight", "hotel"]);
    for part in ["hotel", "flight"] {
        assert_eq!(times(format!("{}/undo/{part}", job.id())), 1, "{part}");
        assert_eq!(times(format!("{}/book/{part}", job.id())), 1, "{part}");
    }
}

async fn undone_after_expiry(on: On) {
    let (_place, lab) = lab(on).await;
    let engine = lab.engine().await;
    let deadline = lab.now().plus(hours(2));
    let handle = engine.submit(Booking { ends: "waits".into() }).deadline(deadline).await.expect("submitted");
    let job = lab.job::<Vec<String>>(handle.id());
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Expired, .. }) => {}
        other => panic!("{other:?}"),
    }
    each_once_in_reverse(&lab, job).await;
}

async fn undone_after_poison(on: On) {
    let (_place, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "slow".into() }).await;
    while times(format!("{}/slow", job.id())) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Its worker dies: it is a suspect. The next one dies under it too, and that is once too often.
    lab.crash().await;
    while times(format!("{}/slow", job.id())) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let worker = lab.engine().await.worker().await.expect("it works");
    let sweep = Sweep { dead: vec![worker], lapsed: false, limit: 99, crashes: 1 };
    let reaped = lab.engine().await.store().reap(None, &sweep).await.expect("reaped");
    assert_eq!(reaped.poisoned, 1);
    lab.crash().await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Poison, .. }) => {}
        other => panic!("{other:?}"),
    }
    each_once_in_reverse(&lab, job).await;
}

async fn undone_after_a_cancel_in_the_middle_of_a_step(on: On) {
    let (_place, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "slow".into() }).await;
    while times(format!("{}/slow", job.id())) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    lab.cancel(job).await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Cancelled(failure)) => {
            assert!(failure.message.contains("cancelled by lab"), "{failure}")
        }
        other => panic!("{other:?}"),
    }
    each_once_in_reverse(&lab, job).await;
}

async fn what_cannot_be_undone_does_not_keep_the_others_from_it(on: On) {
    let (_place, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "stuck".into() }).await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Stopped, failure }) => {
            let text = "no money; not undone: \"book\" with key \"flight\" (nobody answers)";
            assert_eq!(failure.message, text);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(undone(&lab, job).await, ["hotel"]);
    assert_eq!(times(format!("{}/undo/flight", job.id())), 2, "it was tried as often as the step says");
}

async fn a_second_cancel_ends_it_at_once(on: On) {
    let (_place, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "waits".into() }).await;
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Waiting);
    let engine = lab.engine().await;
    engine.control("test").pause_queue("default").await.expect("paused");
    let cancel = async || {
        let act = Act::Cancel { grace: Duration::ZERO };
        engine.control("test").act(job.id(), act).await.expect("acted")
    };
    assert_eq!(cancel().await, Did::Told, "its undos run first");
    assert_eq!(cancel().await, Did::Done, "whoever asks again does not want to wait for them");
    assert_eq!(lab.state(job).await, State::Cancelled);
    engine.control("test").resume_queue("default").await.expect("resumed");
    lab.run().await;
    assert_eq!(undone(&lab, job).await, Vec::<String>::new());
}

async fn a_retried_job_does_again_what_was_undone(on: On) {
    let (_place, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "once".into() }).await;
    lab.run().await;
    assert_eq!(undone(&lab, job).await, ["flight", "hotel"]);
    lab.engine().await.control("test").retry(job.id()).await.expect("retried");
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), ["hotel", "flight"]);
    for part in ["hotel", "flight"] {
        assert_eq!(times(format!("{}/book/{part}", job.id())), 2, "{part} was undone, and is booked again");
        assert_eq!(times(format!("{}/undo/{part}", job.id())), 1, "{part}");
    }
}

async fn a_sound_end_undoes_nothing(on: On) {
    let (_place, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "well".into() }).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), ["hotel", "flight"]);
    assert_eq!(undone(&lab, job).await, Vec::<String>::new());
    assert_eq!(times(format!("{}/undo/hotel", job.id())), 0);
    assert!(lab.now() > Time(0));
}

/// Two steps at once, of which one fails when the other is done.
#[derive(Serialize, Deserialize)]
struct Pair;

impl Workflow for Pair {
    const KIND: &'static str = "pair";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        // Both end in the same commit, the failure first.
        let fails = flow.step("fails", || async { Err::<(), _>(Failure::stop("no")) });
        let charge =
            flow.step("charge", || async { Ok::<_, Failure>(7) }).undo(move |amount: u32| async move {
                ran(format!("{id}/refund/{amount}"));
                Ok::<_, Failure>(())
            });
        futures_util::future::try_join(fails, charge).await?;
        Ok(())
    }
}

async fn what_is_done_and_not_waited_for_is_undone_too(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Pair>()).await;
    let job = lab.submit(Pair).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect_err("it fails").to_string(), "the job failed (stopped): no");
    assert_eq!(times(format!("{}/refund/7", job.id())), 1);
}

/// Fails twice, and is retried in between.
#[derive(Serialize, Deserialize)]
struct Twice;

impl Workflow for Twice {
    const KIND: &'static str = "twice";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        flow.step("charge", || async { Ok::<_, Failure>(()) })
            .undo(move |()| async move {
                ran(format!("{id}/refund"));
                Ok::<_, Failure>(())
            })
            .await?;
        Err(Failure::stop("no"))
    }
}

async fn what_was_done_again_is_undone_again(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Twice>()).await;
    let job = lab.submit(Twice).await;
    lab.run().await;
    lab.engine().await.control("test").retry(job.id()).await.expect("retried");
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Failed);
    assert_eq!(times(format!("{}/refund", job.id())), 2);
}

/// An undo that needs another try, after the deadline.
#[derive(Serialize, Deserialize)]
struct Late;

impl Workflow for Late {
    const KIND: &'static str = "late";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        flow.step("charge", || async { Ok::<_, Failure>(()) })
            .retry(Retry::times(3).backoff(days(1), days(1)))
            .undo(move |()| async move {
                match ran(format!("{id}/refund")) {
                    1 => Err(Failure::retry("nobody answers")),
                    _ => Ok(()),
                }
            })
            .await?;
        Err(Failure::stop("no"))
    }
}

async fn an_unwinding_outlives_its_deadline(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Late>()).await;
    let deadline = lab.now().plus(hours(1));
    let handle = lab.engine().await.submit(Late).deadline(deadline).await.expect("submitted");
    let job = lab.job::<()>(handle.id());
    lab.run().await;
    assert_eq!(lab.result(job).await.expect_err("it fails").to_string(), "the job failed (stopped): no");
    assert_eq!(times(format!("{}/refund", job.id())), 2, "it was undone, although its deadline had passed");
}
