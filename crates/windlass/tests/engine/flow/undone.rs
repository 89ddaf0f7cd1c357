//! Undos after every bad end: each once, the last one first.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use windlass::{
    JobError, Reason, State, Time,
    model::journal::CallEvent,
    prelude::*,
    store::{ControlOutcome, JobAction, ReapRequest},
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
    a_renamed_step_is_named_as_not_undone_when_the_job_is_cancelled,
    a_renamed_step_is_named_as_not_undone_when_the_job_fails,
    a_call_put_before_a_step_does_not_hide_that_it_is_not_undone,
    a_step_that_lost_its_undo_is_named_as_not_undone,
    what_was_not_undone_is_named_however_many_attempts_the_undoing_takes,
    what_was_not_undone_is_tried_again_by_the_next_unwinding,
    a_step_that_was_undone_runs_again_under_another_id,
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
    let undone = journal.into_iter().filter(|entry| entry.mark == CallEvent::Undone);
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
    let sweep = ReapRequest { dead: vec![worker], lapsed: false, limit: 99, crashes: 1 };
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
        let act = JobAction::Cancel { grace: Duration::ZERO };
        engine.control("test").act(job.id(), act).await.expect("acted")
    };
    assert_eq!(cancel().await, ControlOutcome::CancelRequested, "its undos run first");
    assert_eq!(cancel().await, ControlOutcome::Done, "whoever asks again does not want to wait for them");
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

/// Which edition of its code a job runs: what a deploy changes.
fn edition(job: JobId) -> u32 {
    times(format!("{job}/deployed"))
}

/// Books a hotel and takes money; later editions of the code take it under another name, ask something first, or do not
/// know how to give it back.
#[derive(Serialize, Deserialize)]
struct Trip {
    changed: String,
}

impl Workflow for Trip {
    const KIND: &'static str = "trip";
    type Output = Vec<String>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<String>, Failure> {
        let id = flow.id();
        let changed = edition(id) > 0;
        let paid = async |name: &'static str| {
            let step = flow.step(name, move || async move {
                ran(format!("{id}/{name}"));
                Ok::<_, Failure>(name.to_owned())
            });
            let undo = move |name: String| async move {
                ran(format!("{id}/undo {name}"));
                Ok::<_, Failure>(())
            };
            let keeps = changed && self.changed == "kept" && name == "charge";
            if keeps { step.await } else { step.undo(undo).await }
        };
        let hotel = paid("hotel").await?;
        if changed && self.changed == "before" {
            flow.step("ask", || async { Ok::<_, Failure>(()) }).await?;
        }
        let money = paid(if changed && self.changed == "renamed" { "pay" } else { "charge" }).await?;
        flow.signal::<()>("go").await?;
        Err::<Vec<String>, _>(Failure::stop(format!("no seats for {hotel} and {money}")))
    }
}

/// A job that has booked and paid, whose code is another one from now on.
async fn redeployed(lab: &Lab, changed: &str) -> windlass::testing::LabJob<Vec<String>> {
    let job = lab.submit(Trip { changed: changed.into() }).await;
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Waiting);
    ran(format!("{}/deployed", job.id()));
    job
}

/// That a step is known, by the job's end, its journal and `why`, to be done still.
async fn is_said_to_be_not_undone(lab: &Lab, job: windlass::testing::LabJob<Vec<String>>, message: &str) {
    let said = message.contains("not undone: \"charge\" (");
    assert!(said, "the end of the job says {message:?}");
    let journal = lab.journal(job).await;
    let left: Vec<&str> = journal
        .iter()
        .filter(|entry| entry.mark == CallEvent::NotUndone)
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(left, ["charge"]);
    let why = lab.engine().await.why(job.id()).await.expect("asked").expect("there");
    assert!(why.because.contains("not undone: \"charge\""), "{why:?}");
}

async fn a_renamed_step_is_named_as_not_undone_when_the_job_is_cancelled(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Trip>()).await;
    let job = redeployed(&lab, "renamed").await;
    lab.cancel(job).await;
    lab.run().await;
    let id = job.id();
    match lab.result(job).await {
        Err(JobError::Cancelled(failure)) => is_said_to_be_not_undone(&lab, job, &failure.message).await,
        other => panic!("{other:?}"),
    }
    assert_eq!(times(format!("{id}/undo hotel")), 1, "the others are undone all the same");
    assert_eq!((times(format!("{id}/pay")), times(format!("{id}/undo charge"))), (0, 0));
}

async fn a_renamed_step_is_named_as_not_undone_when_the_job_fails(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Trip>()).await;
    let job = redeployed(&lab, "renamed").await;
    lab.signal(job, "go", ()).await;
    lab.run().await;
    let id = job.id();
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Stopped, failure }) => {
            assert!(failure.message.starts_with("no seats for hotel and pay; "), "{failure}");
            is_said_to_be_not_undone(&lab, job, &failure.message).await;
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((times(format!("{id}/undo hotel")), times(format!("{id}/undo pay"))), (1, 1));
}

async fn a_call_put_before_a_step_does_not_hide_that_it_is_not_undone(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Trip>()).await;
    let job = redeployed(&lab, "before").await;
    lab.cancel(job).await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Cancelled(failure)) => is_said_to_be_not_undone(&lab, job, &failure.message).await,
        other => panic!("{other:?}"),
    }
    // Once the code has come to it again, it can be undone.
    let job = redeployed(&lab, "before").await;
    lab.signal(job, "go", ()).await;
    lab.run().await;
    let failed = lab.result(job).await.expect_err("it fails").to_string();
    assert_eq!(failed, "the job failed (stopped): no seats for hotel and charge");
    assert_eq!(times(format!("{}/undo charge", job.id())), 1);
}

async fn a_step_that_lost_its_undo_is_named_as_not_undone(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Trip>()).await;
    let job = redeployed(&lab, "kept").await;
    lab.cancel(job).await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Cancelled(failure)) => is_said_to_be_not_undone(&lab, job, &failure.message).await,
        other => panic!("{other:?}"),
    }
    assert_eq!(times(format!("{}/undo hotel", job.id())), 1, "the others are undone all the same");
    let job = redeployed(&lab, "kept").await;
    lab.signal(job, "go", ()).await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Stopped, failure }) => {
            assert!(failure.message.starts_with("no seats for hotel and charge; "), "{failure}");
            is_said_to_be_not_undone(&lab, job, &failure.message).await;
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(times(format!("{}/undo hotel", job.id())), 1);
}

/// Two steps, of which the second cannot be undone at first, and the first one only at the second try.
#[derive(Serialize, Deserialize)]
struct Stubborn;

impl Workflow for Stubborn {
    const KIND: &'static str = "stubborn";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        for name in ["slow", "stuck"] {
            flow.step(name, move || async move {
                ran(format!("{id}/{name}"));
                Ok::<_, Failure>(())
            })
            .retry(Retry::times(2).backoff(hours(1), hours(1)))
            .undo(move |()| async move {
                match (name, ran(format!("{id}/undo {name}"))) {
                    ("slow", 1) => Err(Failure::retry("not now")),
                    ("stuck", 1) => Err(Failure::stop("nobody answers")),
                    _ => Ok(()),
                }
            })
            .await?;
        }
        Err(Failure::stop("no"))
    }
}

async fn what_was_not_undone_is_named_however_many_attempts_the_undoing_takes(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Stubborn>()).await;
    let job = lab.submit(Stubborn).await;
    lab.run().await;
    let failed = lab.result(job).await.expect_err("it fails").to_string();
    assert_eq!(failed, "the job failed (stopped): no; not undone: \"stuck\" (nobody answers)");
}

async fn what_was_not_undone_is_tried_again_by_the_next_unwinding(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Stubborn>()).await;
    let job = lab.submit(Stubborn).await;
    lab.run().await;
    let id = job.id();
    assert_eq!(times(format!("{id}/undo stuck")), 1);
    lab.engine().await.control("test").retry(id).await.expect("retried");
    lab.run().await;
    let failed = lab.result(job).await.expect_err("it fails").to_string();
    assert_eq!(failed, "the job failed (stopped): no", "by now somebody answers");
    assert_eq!(times(format!("{id}/undo stuck")), 2);
    let did = (times(format!("{id}/slow")), times(format!("{id}/stuck")));
    assert_eq!(did, (2, 1), "what was undone was done again, and what was not stayed done");
}

/// The ids under which something happened, in order and each once in a row, without the job's.
static IDS: Mutex<BTreeMap<JobId, Vec<String>>> = Mutex::new(BTreeMap::new());

fn under(job: JobId, what: &str, id: &str) {
    let told = format!("{what} {}", id.strip_prefix(&job.to_string()).expect("the job comes first"));
    let mut ids = IDS.lock().unwrap_or_else(|e| e.into_inner());
    let ids = ids.entry(job).or_default();
    if ids.last() != Some(&told) {
        ids.push(told);
    }
}

/// Charges, which needs two tries, and fails until it was retried twice.
#[derive(Serialize, Deserialize)]
struct Keyed;

impl Workflow for Keyed {
    const KIND: &'static str = "keyed";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        flow.step_with("plain", move |cx| async move {
            under(id, "plain", cx.step_id());
            Ok::<_, Failure>(())
        })
        .await?;
        flow.step_with("charge", move |cx| async move {
            under(id, "charge", cx.step_id());
            if cx.attempt() == 1 { Err(Failure::retry("busy")) } else { Ok(()) }
        })
        .key("card")
        .undo_with(move |cx, ()| async move {
            under(id, "refund", cx.step_id());
            assert_eq!(cx.undo_id(), format!("undo:{}", cx.step_id()));
            if cx.attempt() == 1 { Err(Failure::retry("busy")) } else { Ok(()) }
        })
        .await?;
        if edition(id) < 2 { Err(Failure::stop("no goods")) } else { Ok(()) }
    }
}

async fn a_step_that_was_undone_runs_again_under_another_id(on: On) {
    let setup = |engine: Engine| engine.workflow::<Keyed>();
    let report = on
        .crash(setup, async |lab: std::sync::Arc<Lab>| {
            let job = lab.submit(Keyed).await;
            for _ in 0..2 {
                lab.run().await;
                ran(format!("{}/deployed", job.id()));
                lab.engine().await.control("test").retry(job.id()).await.expect("retried");
            }
            lab.run().await;
            assert!(lab.result(job).await.is_ok());
            IDS.lock().unwrap_or_else(|e| e.into_inner()).remove(&job.id()).unwrap_or_default()
        })
        .await;
    assert!(report.crashes > 4, "{report:?}");
    let expected = [
        "plain /plain",
        "charge /charge/card",
        "refund /charge/card",
        "charge ~1/charge/card",
        "refund ~1/charge/card",
        "charge ~2/charge/card",
    ];
    assert_eq!(report.outcome, expected);
}
