//! How far a lab moves its clock: not past a timeout that a signal could prevent. And outcomes with ids of jobs.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicUsize, Ordering},
};

use windlass::{
    First2, State, Unit,
    prelude::*,
    testing::{self, Lab},
};

use crate::flow::{On, on_every_store, ran};

on_every_store!(
    a_run_stops_before_the_timeout_of_a_wait_for_a_signal,
    a_run_stops_before_a_sleep_that_races_a_signal,
    a_run_stops_before_the_timeout_of_a_wait_for_a_child_that_waits_for_a_signal,
    a_run_stops_before_the_deadline_of_a_job_that_waits_for_a_signal,
    retries_and_ticks_during_a_wait_for_a_signal_run,
    a_lab_on_a_store_with_waiting_jobs_stops_before_their_timeouts,
    a_run_until_waiting_does_not_move_the_clock,
    outcomes_with_ids_are_the_same_whenever_the_worker_dies,
);

/// Waits for a signal in one of several ways.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
enum Asks {
    /// With a timeout, after a sleep.
    Timeout,
    /// With a sleep that may be first.
    Race,
    /// While a step is retried.
    Retry,
    /// While something is repeated.
    Repeat,
    /// Without a timeout.
    Forever,
    /// Through a child, with a sleep that may be first.
    Child,
}

impl Workflow for Asks {
    const KIND: &'static str = "timeouts_asks";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let signal = || flow.signal::<String>("answer");
        match self {
            Asks::Timeout => {
                flow.sleep(days(1)).await;
                signal().timeout(days(14)).await
            }
            Asks::Race => match flow.select("first", (signal(), flow.sleep(days(14)))).await {
                First2::A(answer) => answer,
                First2::B(()) => Ok("nobody".to_owned()),
            },
            Asks::Retry => {
                let id = flow.id();
                let step = flow.step("third_time", async || match ran(id) {
                    3 => Ok("worked".to_owned()),
                    _ => Err(Failure::retry("not yet")),
                });
                match flow.select("first", (signal().timeout(days(14)), step)).await {
                    First2::A(answer) | First2::B(answer) => answer,
                }
            }
            Asks::Repeat => {
                let tick = async |_, _| Ok(ControlFlow::<()>::Continue(()));
                let daily = Calendar::every(1, Unit::Days).map_err(Failure::stop)?;
                let ticks = std::pin::pin!(flow.repeat("daily", daily, tick).times(3));
                tokio::select! {
                    biased;
                    _ = ticks => Ok("three days".to_owned()),
                    answer = signal() => answer,
                }
            }
            Asks::Forever => signal().await,
            Asks::Child => {
                let child = flow.child("child", Asks::Forever);
                match flow.select("first", (child, flow.sleep(days(14)))).await {
                    First2::A(answer) => answer,
                    First2::B(()) => Ok("nobody".to_owned()),
                }
            }
        }
    }
}

/// The same as a machine: waits for a signal, or for a child that does.
#[derive(Serialize, Deserialize)]
enum Waits {
    Signal,
    Child,
    Answered,
    Ended,
}

impl Machine for Waits {
    const KIND: &'static str = "timeouts_waits";
    type Output = bool;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Waits>, Failure> {
        Ok(match self {
            Waits::Signal => Next::wait(Waits::Answered, "answer").timeout(days(14)),
            Waits::Child => Next::children(Waits::Ended, [Child::new(Asks::Forever)]).timeout(days(14)),
            Waits::Answered | Waits::Ended => Next::done(cx.timed_out()),
        })
    }
}

fn kinds(engine: windlass::Builder) -> windlass::Builder {
    engine.workflow::<Asks>().machine::<Waits>()
}

/// The child of a job.
async fn child_of(lab: &Lab, job: JobId) -> JobId {
    let children = lab.engine().await.inspect().children(job, None, 2).await.expect("read");
    assert_eq!(children.len(), 1);
    children[0].id
}

async fn a_run_stops_before_the_timeout_of_a_wait_for_a_signal(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, kinds).await;
    let (began, job, late) = (lab.now(), lab.submit(Asks::Timeout).await, lab.submit(Asks::Timeout).await);
    assert_eq!(lab.run().await, Some(began + days(15)));
    assert_eq!(lab.now(), began + days(1), "the sleep has passed");
    lab.signal(job, "answer", "yes").await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), "yes");
    assert_eq!(lab.state(late).await, State::Waiting);
    lab.advance(days(14)).await;
    assert!(lab.result(late).await.expect_err("timed out").to_string().contains("no signal"));
    let (answered, late) = (lab.submit(Waits::Signal).await, lab.submit(Waits::Signal).await);
    assert_eq!(lab.run().await, Some(lab.now() + days(14)));
    lab.signal(answered, "answer", ()).await;
    lab.run_past_timeouts().await;
    assert!(!lab.result(answered).await.expect("done"));
    assert!(lab.result(late).await.expect("done"), "it timed out");
    assert_eq!(lab.run().await, None);
}

async fn a_run_stops_before_a_sleep_that_races_a_signal(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, kinds).await;
    let (answered, late) = (lab.submit(Asks::Race).await, lab.submit(Asks::Race).await);
    assert_eq!(lab.run().await, Some(lab.now() + days(14)));
    lab.signal(answered, "answer", "yes").await;
    lab.run_past_timeouts().await;
    assert_eq!(lab.result(answered).await.expect("done"), "yes");
    assert_eq!(lab.result(late).await.expect("done"), "nobody");
}

async fn a_run_stops_before_the_timeout_of_a_wait_for_a_child_that_waits_for_a_signal(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, kinds).await;
    let (flow, machine) = (lab.submit(Asks::Child).await, lab.submit(Waits::Child).await);
    assert_eq!(lab.run().await, Some(lab.now() + days(14)));
    for parent in [flow.id(), machine.id()] {
        let child = lab.job::<Asks>(child_of(&lab, parent).await);
        lab.signal(child, "answer", "yes").await;
    }
    lab.run().await;
    assert_eq!(lab.result(flow).await.expect("done"), "yes");
    assert!(!lab.result(machine).await.expect("done"), "its child has ended in time");
}

async fn a_run_stops_before_the_deadline_of_a_job_that_waits_for_a_signal(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, kinds).await;
    let deadline = lab.now() + days(3);
    let job = lab.engine().await.submit(Asks::Forever).deadline(deadline).await.expect("submitted");
    let job = lab.job::<Asks>(job.id());
    assert_eq!(lab.run().await, Some(deadline));
    assert_eq!(lab.state(job).await, State::Waiting);
    lab.run_past_timeouts().await;
    assert_eq!(lab.state(job).await, State::Failed);
}

async fn retries_and_ticks_during_a_wait_for_a_signal_run(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, kinds).await;
    let (retries, repeats) = (lab.submit(Asks::Retry).await, lab.submit(Asks::Repeat).await);
    assert_eq!(lab.run().await, None);
    assert_eq!(lab.result(retries).await.expect("done"), "worked");
    assert_eq!(lab.result(repeats).await.expect("done"), "three days");
}

async fn a_lab_on_a_store_with_waiting_jobs_stops_before_their_timeouts(on: On) {
    if on == On::Memory {
        return;
    }
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, kinds).await;
    let job = lab.submit(Asks::Race).await;
    lab.run_until_waiting().await;
    drop(lab);
    let lab = Lab::on(&store.url, kinds).await;
    assert!(lab.run().await.is_some());
    lab.signal(job, "answer", "yes").await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), "yes");
}

async fn a_run_until_waiting_does_not_move_the_clock(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, kinds).await;
    let began = lab.now();
    let (sleeps, waits) = (lab.submit(Asks::Timeout).await, lab.submit(Asks::Forever).await);
    lab.run_until_waiting().await;
    assert_eq!((lab.state(sleeps).await, lab.state(waits).await), (State::Waiting, State::Waiting));
    lab.signal(waits, "answer", "yes").await;
    lab.run_until_waiting().await;
    assert_eq!(lab.result(waits).await.expect("done"), "yes");
    assert_eq!((lab.state(sleeps).await, lab.now()), (State::Waiting, began));
}

/// Returns the id of a step, of its own and of its child.
#[derive(Serialize, Deserialize)]
struct Ids {
    has_child: bool,
}

impl Workflow for Ids {
    const KIND: &'static str = "timeouts_ids";
    type Output = Vec<String>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<String>, Failure> {
        let mut ids = vec![flow.step_with("first", async |cx: StepCx| Ok(cx.step_id().to_owned())).await?];
        if self.has_child {
            ids.extend(flow.child("child", Ids { has_child: false }).await?);
        }
        ids.push(flow.step_with("last", async |cx: StepCx| Ok(cx.step_id().to_owned())).await?);
        Ok(ids)
    }
}

async fn outcomes_with_ids_are_the_same_whenever_the_worker_dies(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Ids>(),
            async |lab| {
                let job = lab.submit(Ids { has_child: true }).await;
                lab.run().await;
                (job.id(), lab.now(), lab.result(job).await.map_err(|error| error.to_string()))
            },
        )
        .await;
    let (id, _, ids) = report.outcome;
    let ids = ids.expect("done");
    assert_eq!((&ids[0], &ids[3]), (&format!("{id}/first"), &format!("{id}/last")));
    assert!(report.crashes > 6, "{} crashes", report.crashes);
}

/// Ids are compared by where they appear: an outcome that names another job is another outcome.
#[tokio::test]
#[should_panic(expected = "changes the outcome")]
async fn an_outcome_with_another_id_is_another_outcome() {
    let runs = AtomicUsize::new(0);
    testing::crash_at_every_commit(
        |engine| engine.workflow::<Asks>(),
        async |lab| {
            let (one, other) = (lab.submit(Asks::Forever).await, lab.submit(Asks::Forever).await);
            lab.signal(one, "answer", "yes").await;
            lab.run().await;
            // The first run has no crash.
            let named = if runs.fetch_add(1, Ordering::Relaxed) == 0 { one } else { other };
            vec![one.id(), named.id()]
        },
    )
    .await;
}
