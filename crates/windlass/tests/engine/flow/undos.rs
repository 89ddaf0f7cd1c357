//! Undos when a job fails, expires or is cancelled: each runs once, the last step first.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use windlass::{
    JobError, Reason, State, Time,
    model::journal::CallEvent,
    prelude::*,
    store::{ControlOutcome, JobAction, ReapRequest},
    testing::{Lab, LabJob},
};

use super::{On, on_every_store, ran, times};
use crate::common::until;

on_every_store!(
    a_job_that_expires_is_undone,
    a_job_that_fails_as_poison_is_undone,
    a_job_that_is_cancelled_during_a_step_is_undone,
    an_undo_that_fails_does_not_prevent_the_others,
    a_second_cancel_skips_the_undos,
    a_retried_job_repeats_steps_that_were_undone,
    a_job_that_succeeds_undoes_nothing,
    a_step_whose_result_was_not_awaited_is_undone_too,
    a_step_that_was_repeated_is_undone_again,
    an_unwind_continues_after_the_deadline,
    a_renamed_step_is_named_as_not_undone_when_the_job_is_cancelled,
    a_renamed_step_is_named_as_not_undone_when_the_job_fails,
    a_step_behind_a_new_call_is_named_as_not_undone,
    a_step_that_lost_its_undo_is_named_as_not_undone,
    a_step_that_was_not_undone_is_named_after_several_attempts_to_unwind,
    the_next_unwind_repeats_an_undo_that_failed,
    a_step_that_was_undone_runs_again_under_another_id,
);

/// Makes two bookings with undos, and ends according to `ends`.
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
                    Ok(part.to_owned())
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
            "done" => {}
            "slow" => {
                flow.step_with("slow", |cx| async move {
                    ran(format!("{}/slow", cx.id()));
                    cx.cancelled().await;
                    Ok(())
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

async fn lab(on: On) -> (crate::common::TestStore, Lab) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Booking>()).await;
    (store, lab)
}

/// The keys of the steps that were undone, in order.
async fn undone(lab: &Lab, job: LabJob<Booking>) -> Vec<String> {
    let journal = lab.journal(job).await;
    let undone = journal.into_iter().filter(|entry| entry.event == CallEvent::Undone);
    undone.map(|entry| entry.key.unwrap_or_default()).collect()
}

async fn each_once_in_reverse(lab: &Lab, job: LabJob<Booking>) {
    assert_eq!(undone(lab, job).await, ["flight", "hotel"]);
    for part in ["hotel", "flight"] {
        assert_eq!(times(format!("{}/undo/{part}", job.id())), 1, "{part}");
        assert_eq!(times(format!("{}/book/{part}", job.id())), 1, "{part}");
    }
}

async fn a_job_that_expires_is_undone(on: On) {
    let (_store, lab) = lab(on).await;
    let engine = lab.engine().await;
    let deadline = lab.now() + hours(2);
    let handle = engine.submit(Booking { ends: "waits".into() }).deadline(deadline).await.expect("submitted");
    let job = lab.job::<Booking>(handle.id());
    lab.run_past_timeouts().await;
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Expired, .. }) => {}
        other => panic!("{other:?}"),
    }
    each_once_in_reverse(&lab, job).await;
}

async fn a_job_that_fails_as_poison_is_undone(on: On) {
    let (_store, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "slow".into() }).await;
    until("it is in its slow step", async || times(format!("{}/slow", job.id())) > 0).await;
    // Its worker dies: it is a suspect. When the next worker dies too, it fails as poison.
    lab.crash().await;
    until("it is there again", async || times(format!("{}/slow", job.id())) == 2).await;
    let worker = lab.engine().await.worker().await.expect("it works");
    let request = ReapRequest { dead: vec![worker], lapsed: false, limit: 99, max_crashes: 1 };
    let reaped = lab.engine().await.store().reap(None, &request).await.expect("reaped");
    assert_eq!(reaped.poisoned, 1);
    lab.crash().await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Poison, .. }) => {}
        other => panic!("{other:?}"),
    }
    each_once_in_reverse(&lab, job).await;
}

async fn a_job_that_is_cancelled_during_a_step_is_undone(on: On) {
    let (_store, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "slow".into() }).await;
    until("it is in its slow step", async || times(format!("{}/slow", job.id())) > 0).await;
    lab.cancel(job).await.accepted().expect("accepted");
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Cancelled(failure)) => {
            assert!(failure.message.contains("cancelled by lab"), "{failure}")
        }
        other => panic!("{other:?}"),
    }
    each_once_in_reverse(&lab, job).await;
}

async fn an_undo_that_fails_does_not_prevent_the_others(on: On) {
    let (_store, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "stuck".into() }).await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Stopped, failure, .. }) => {
            let text = "no money; not undone: \"book\" with key \"flight\" (nobody answers)";
            assert_eq!(failure.message, text);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(undone(&lab, job).await, ["hotel"]);
    assert_eq!(
        times(format!("{}/undo/flight", job.id())),
        2,
        "it was tried as often as the policy of the step says"
    );
}

async fn a_second_cancel_skips_the_undos(on: On) {
    let (_store, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "waits".into() }).await;
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Waiting);
    let engine = lab.engine().await;
    engine.control("test").pause_queue("default").await.expect("paused");
    let cancel = async || {
        let act = JobAction::Cancel { grace: Duration::ZERO };
        engine.control("test").act_on_job(job.id(), act).await.expect("acted")
    };
    assert_eq!(cancel().await, ControlOutcome::CancelRequested, "its undos run first");
    assert_eq!(cancel().await, ControlOutcome::Done, "a second cancel does not wait for them");
    assert_eq!(lab.state(job).await, State::Cancelled);
    engine.control("test").resume_queue("default").await.expect("resumed");
    lab.run().await;
    assert_eq!(undone(&lab, job).await, Vec::<String>::new());
}

async fn a_retried_job_repeats_steps_that_were_undone(on: On) {
    let (_store, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "once".into() }).await;
    lab.run().await;
    assert_eq!(undone(&lab, job).await, ["flight", "hotel"]);
    lab.engine().await.control("test").retry(job.id()).await.expect("retried").accepted().expect("retried");
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), ["hotel", "flight"]);
    for part in ["hotel", "flight"] {
        assert_eq!(times(format!("{}/book/{part}", job.id())), 2, "{part} was undone, and is booked again");
        assert_eq!(times(format!("{}/undo/{part}", job.id())), 1, "{part}");
    }
}

async fn a_job_that_succeeds_undoes_nothing(on: On) {
    let (_store, lab) = lab(on).await;
    let job = lab.submit(Booking { ends: "done".into() }).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), ["hotel", "flight"]);
    assert_eq!(undone(&lab, job).await, Vec::<String>::new());
    assert_eq!(times(format!("{}/undo/hotel", job.id())), 0);
    assert!(lab.now() > Time(0));
}

/// Two concurrent steps, of which one fails when the other is done.
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
        let charge = flow.step("charge", async || Ok(7)).undo(move |amount: u32| async move {
            ran(format!("{id}/refund/{amount}"));
            Ok(())
        });
        futures_util::future::try_join(fails, charge).await?;
        Ok(())
    }
}

async fn a_step_whose_result_was_not_awaited_is_undone_too(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Pair>()).await;
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
        flow.step("charge", async || Ok(()))
            .undo(move |()| async move {
                ran(format!("{id}/refund"));
                Ok(())
            })
            .await?;
        Err(Failure::stop("no"))
    }
}

async fn a_step_that_was_repeated_is_undone_again(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Twice>()).await;
    let job = lab.submit(Twice).await;
    lab.run().await;
    lab.engine().await.control("test").retry(job.id()).await.expect("retried").accepted().expect("retried");
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Failed);
    assert_eq!(times(format!("{}/refund", job.id())), 2);
}

/// An undo that needs a second attempt, after the deadline.
#[derive(Serialize, Deserialize)]
struct Late;

impl Workflow for Late {
    const KIND: &'static str = "late";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        flow.step("charge", async || Ok(()))
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

async fn an_unwind_continues_after_the_deadline(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Late>()).await;
    let deadline = lab.now() + hours(1);
    let handle = lab.engine().await.submit(Late).deadline(deadline).await.expect("submitted");
    let job = lab.job::<Late>(handle.id());
    lab.run().await;
    assert_eq!(lab.result(job).await.expect_err("it fails").to_string(), "the job failed (stopped): no");
    assert_eq!(times(format!("{}/refund", job.id())), 2, "it was undone, although its deadline had passed");
}

/// The edition of the code that a job runs; a deploy raises it.
fn edition(job: JobId) -> u32 {
    times(format!("{job}/deployed"))
}

/// Books a hotel and takes money. The next edition of the code renames that step, has another step before it, or has no
/// undo for it.
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
                Ok(name.to_owned())
            });
            let undo = move |name: String| async move {
                ran(format!("{id}/undo {name}"));
                Ok(())
            };
            let has_no_undo = changed && self.changed == "undo removed" && name == "charge";
            if has_no_undo { step.await } else { step.undo(undo).await }
        };
        let hotel = paid("hotel").await?;
        if changed && self.changed == "before" {
            flow.step("ask", async || Ok(())).await?;
        }
        let money = paid(if changed && self.changed == "renamed" { "pay" } else { "charge" }).await?;
        flow.signal::<()>("go").await?;
        Err::<Vec<String>, _>(Failure::stop(format!("no seats for {hotel} and {money}")))
    }
}

/// A job that has booked and paid, and whose code changes now.
async fn redeployed(lab: &Lab, changed: &str) -> LabJob<Trip> {
    let job = lab.submit(Trip { changed: changed.into() }).await;
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Waiting);
    ran(format!("{}/deployed", job.id()));
    job
}

/// Checks that the failure of the job, its journal and `why` name the step that was not undone.
async fn names_step_not_undone(lab: &Lab, job: LabJob<Trip>, message: &str) {
    assert!(message.contains("not undone: \"charge\" ("), "{message:?}");
    let journal = lab.journal(job).await;
    let left: Vec<&str> = journal
        .iter()
        .filter(|entry| entry.event == CallEvent::NotUndone)
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(left, ["charge"]);
    let why = lab.engine().await.why(job.id()).await.expect("why").expect("the job exists");
    assert!(why.because.contains("not undone: \"charge\""), "{why:?}");
}

async fn a_renamed_step_is_named_as_not_undone_when_the_job_is_cancelled(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Trip>()).await;
    let job = redeployed(&lab, "renamed").await;
    lab.cancel(job).await.accepted().expect("accepted");
    lab.run().await;
    let id = job.id();
    match lab.result(job).await {
        Err(JobError::Cancelled(failure)) => names_step_not_undone(&lab, job, &failure.message).await,
        other => panic!("{other:?}"),
    }
    assert_eq!(times(format!("{id}/undo hotel")), 1, "the others are undone");
    assert_eq!((times(format!("{id}/pay")), times(format!("{id}/undo charge"))), (0, 0));
}

async fn a_renamed_step_is_named_as_not_undone_when_the_job_fails(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Trip>()).await;
    let job = redeployed(&lab, "renamed").await;
    lab.signal(job, "go", ()).await;
    lab.run().await;
    let id = job.id();
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Stopped, failure, .. }) => {
            assert!(failure.message.starts_with("no seats for hotel and pay; "), "{failure}");
            names_step_not_undone(&lab, job, &failure.message).await;
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((times(format!("{id}/undo hotel")), times(format!("{id}/undo pay"))), (1, 1));
}

async fn a_step_behind_a_new_call_is_named_as_not_undone(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Trip>()).await;
    let job = redeployed(&lab, "before").await;
    lab.cancel(job).await.accepted().expect("accepted");
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Cancelled(failure)) => names_step_not_undone(&lab, job, &failure.message).await,
        other => panic!("{other:?}"),
    }
    // Once the code has reached the step again, it can be undone.
    let job = redeployed(&lab, "before").await;
    lab.signal(job, "go", ()).await;
    lab.run().await;
    let failed = lab.result(job).await.expect_err("it fails").to_string();
    assert_eq!(failed, "the job failed (stopped): no seats for hotel and charge");
    assert_eq!(times(format!("{}/undo charge", job.id())), 1);
}

async fn a_step_that_lost_its_undo_is_named_as_not_undone(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Trip>()).await;
    let job = redeployed(&lab, "undo removed").await;
    lab.cancel(job).await.accepted().expect("accepted");
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Cancelled(failure)) => names_step_not_undone(&lab, job, &failure.message).await,
        other => panic!("{other:?}"),
    }
    assert_eq!(times(format!("{}/undo hotel", job.id())), 1, "the others are undone");
    let job = redeployed(&lab, "undo removed").await;
    lab.signal(job, "go", ()).await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Stopped, failure, .. }) => {
            assert!(failure.message.starts_with("no seats for hotel and charge; "), "{failure}");
            names_step_not_undone(&lab, job, &failure.message).await;
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(times(format!("{}/undo hotel", job.id())), 1);
}

/// Two steps. The first undo of the second one fails for good; that of the first one fails once.
#[derive(Serialize, Deserialize)]
struct HardToUndo;

impl Workflow for HardToUndo {
    const KIND: &'static str = "hard_to_undo";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        for name in ["slow", "stuck"] {
            flow.step(name, move || async move {
                ran(format!("{id}/{name}"));
                Ok(())
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

async fn a_step_that_was_not_undone_is_named_after_several_attempts_to_unwind(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<HardToUndo>()).await;
    let job = lab.submit(HardToUndo).await;
    lab.run().await;
    let failed = lab.result(job).await.expect_err("it fails").to_string();
    assert_eq!(failed, "the job failed (stopped): no; not undone: \"stuck\" (nobody answers)");
}

async fn the_next_unwind_repeats_an_undo_that_failed(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<HardToUndo>()).await;
    let job = lab.submit(HardToUndo).await;
    lab.run().await;
    let id = job.id();
    assert_eq!(times(format!("{id}/undo stuck")), 1);
    lab.engine().await.control("test").retry(id).await.expect("retried").accepted().expect("retried");
    lab.run().await;
    let failed = lab.result(job).await.expect_err("it fails").to_string();
    assert_eq!(failed, "the job failed (stopped): no", "the second undo succeeds");
    assert_eq!(times(format!("{id}/undo stuck")), 2);
    let runs = (times(format!("{id}/slow")), times(format!("{id}/stuck")));
    assert_eq!(runs, (2, 1), "only the step that was undone ran again");
}

/// The ids of steps and undos that ran, in order, without repeats in a row and without the id of the job.
static IDS: Mutex<BTreeMap<JobId, Vec<String>>> = Mutex::new(BTreeMap::new());

fn note_id(job: JobId, what: &str, id: &str) {
    let line = format!("{what} {}", id.strip_prefix(&job.to_string()).expect("the job comes first"));
    let mut ids = IDS.lock().unwrap_or_else(|e| e.into_inner());
    let ids = ids.entry(job).or_default();
    if ids.last() != Some(&line) {
        ids.push(line);
    }
}

/// Charges, which needs two attempts, and fails until it was retried twice.
#[derive(Serialize, Deserialize)]
struct Keyed;

impl Workflow for Keyed {
    const KIND: &'static str = "keyed";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        flow.step_with("plain", move |cx| async move {
            note_id(id, "plain", cx.step_id());
            Ok(())
        })
        .await?;
        flow.step_with("charge", move |cx| async move {
            note_id(id, "charge", cx.step_id());
            if cx.attempt() == 1 { Err(Failure::retry("busy")) } else { Ok(()) }
        })
        .key("card")
        .undo_with(move |cx, ()| async move {
            note_id(id, "refund", cx.step_id());
            assert_eq!(cx.undo_id(), format!("undo:{}", cx.step_id()));
            if cx.attempt() == 1 { Err(Failure::retry("busy")) } else { Ok(()) }
        })
        .await?;
        if edition(id) < 2 { Err(Failure::stop("no goods")) } else { Ok(()) }
    }
}

async fn a_step_that_was_undone_runs_again_under_another_id(on: On) {
    let setup = |engine: windlass::Builder| engine.workflow::<Keyed>();
    let report = on
        .crash(setup, async |lab: std::sync::Arc<Lab>| {
            let job = lab.submit(Keyed).await;
            for _ in 0..2 {
                lab.run().await;
                ran(format!("{}/deployed", job.id()));
                lab.engine()
                    .await
                    .control("test")
                    .retry(job.id())
                    .await
                    .expect("retried")
                    .accepted()
                    .expect("retried");
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
