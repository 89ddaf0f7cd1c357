//! When a failed attempt is repeated, if the failure or the kind says so instead of the retry policy.

use windlass::{JobError, MachineCx, Reason, prelude::*, testing::Lab};

use crate::flow::{On, on_every_store, ran};

on_every_store!(
    a_failure_says_when_and_the_policy_how_often,
    a_kind_has_a_backoff_of_its_own,
    a_stage_of_a_machine_has_a_backoff_of_its_own,
    a_step_of_a_workflow_has_a_backoff_of_its_own_and_so_has_its_undo,
    a_workflow_has_a_backoff_for_steps_that_say_nothing,
    an_item_of_a_packed_branch_waits_as_its_failure_says,
);

/// A policy whose own delays are hours: a shorter wait comes from the error.
fn hourly(times: u32) -> Retry {
    Retry::times(times).backoff(hours(5), hours(5)).jitter(0.0)
}

/// How long after each failed attempt the next one began.
async fn delays(lab: &Lab, id: JobId) -> Vec<Duration> {
    let attempts = lab.engine().await.inspect().history(id).await.expect("read");
    let pairs = attempts.iter().zip(attempts.iter().skip(1));
    pairs.map(|(one, next)| next.started_at - one.ended_at).collect()
}

/// A service that refuses every request.
#[derive(Serialize, Deserialize)]
struct Refused {
    class: String,
    /// What its `Retry-After` says, in seconds.
    retry_after: Option<u64>,
}

fn refused(class: &str, retry_after: Option<u64>) -> Refused {
    Refused { class: class.to_owned(), retry_after }
}

impl Refused {
    fn failure(self) -> Failure {
        let failure = Failure::retry("no").class(self.class);
        match self.retry_after {
            Some(after) => failure.retry_after(seconds(after)),
            None => failure,
        }
    }
}

impl Task for Refused {
    const KIND: &'static str = "refused";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Err(self.failure())
    }

    fn retry() -> Retry {
        Retry::rules().on("none", 1).otherwise(3).backoff(hours(5), hours(5)).jitter(0.0)
    }

    fn backoff(failure: &Failure, nth: u32) -> Option<Duration> {
        match &*failure.class {
            "linear" => Some(minutes(u64::from(nth))),
            "broken" => panic!("in a backoff"),
            _ => None,
        }
    }
}

async fn a_failure_says_when_and_the_policy_how_often(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Refused>()).await;
    let limited = lab.submit(refused("busy", Some(90))).await;
    let hopeless = lab.submit(refused("none", Some(90))).await;
    lab.run().await;
    for (job, attempts) in [(limited, 3), (hopeless, 1)] {
        match lab.result(job).await {
            Err(JobError::Failed { reason, failure, .. }) => {
                assert_eq!((reason, failure.after), (Reason::Exhausted, Some(seconds(90))));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(delays(&lab, job.id()).await, vec![seconds(90); attempts - 1]);
    }
}

async fn a_kind_has_a_backoff_of_its_own(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Refused>()).await;
    let linear = lab.submit(refused("linear", None)).await.id();
    let said = lab.submit(refused("linear", Some(7))).await.id();
    let other = lab.submit(refused("other", None)).await.id();
    let broken = lab.submit(refused("broken", None)).await.id();
    let engine = lab.engine().await;
    let own = engine.submit(refused("linear", None)).retry(hourly(2)).await.expect("submitted").id();
    lab.run().await;
    assert_eq!(delays(&lab, linear).await, [minutes(1), minutes(2)]);
    assert_eq!(delays(&lab, said).await, [seconds(7); 2], "the failure knows better");
    assert_eq!(delays(&lab, other).await, [hours(5); 2], "it is left to the policy");
    assert_eq!(delays(&lab, broken).await, [hours(5); 2], "a backoff that panics leaves it to the policy");
    assert_eq!(delays(&lab, own).await, [hours(5)], "the job has a policy of its own");
}

/// Each stage fails twice, then goes on.
#[derive(Serialize, Deserialize)]
enum Stubborn {
    First,
    Second { minutes: u64 },
}

impl Machine for Stubborn {
    const KIND: &'static str = "stubborn";
    type Output = ();
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Self>, Failure> {
        match self {
            Stubborn::First if cx.attempt() < 3 => Err(Failure::retry("no").retry_after(seconds(30))),
            Stubborn::First => Ok(Next::to(Stubborn::Second { minutes: 10 })),
            Stubborn::Second { .. } if cx.attempt() < 3 => Err(Failure::retry("no")),
            Stubborn::Second { .. } => Ok(Next::done(())),
        }
    }

    fn retry(&self) -> Retry {
        hourly(3)
    }

    fn backoff(&self, _failure: &Failure, nth: u32) -> Option<Duration> {
        match self {
            Stubborn::First => None,
            Stubborn::Second { minutes: base } => Some(minutes(base * u64::from(nth))),
        }
    }
}

async fn a_stage_of_a_machine_has_a_backoff_of_its_own(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.machine::<Stubborn>()).await;
    let began = lab.now();
    let job = lab.submit(Stubborn::First).await;
    lab.run().await;
    lab.result(job).await.expect("done");
    assert_eq!(lab.now() - began, 2 * seconds(30) + minutes(10 + 20));
}

/// Steps that fail twice, and an undo that does.
#[derive(Serialize, Deserialize)]
struct Steps;

impl Workflow for Steps {
    const KIND: &'static str = "steps_with_delays";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        let fails_twice = move |name: &str, failure: Failure| match ran(format!("{id}/{name}")) {
            1 | 2 => Err(failure),
            _ => Ok(()),
        };
        let said = Failure::retry("429").retry_after(seconds(30));
        flow.step("said", || async { fails_twice("said", said.clone()) }).retry(hourly(3)).await?;
        let step = flow.step("linear", || async { fails_twice("linear", Failure::retry("no")) });
        let step = step.retry(hourly(3)).backoff(|_, nth| Some(minutes(10 * u64::from(nth))));
        step.undo(move |()| async move { fails_twice("undo", Failure::retry("no")) }).await?;
        flow.step("last", || async { Err::<(), _>(Failure::stop("no")) }).await
    }
}

async fn a_step_of_a_workflow_has_a_backoff_of_its_own_and_so_has_its_undo(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Steps>()).await;
    let began = lab.now();
    let job = lab.submit(Steps).await;
    lab.run().await;
    assert_eq!(
        lab.result(job).await.expect_err("the last step fails").to_string(),
        "the job failed (stopped): no"
    );
    assert_eq!(lab.now() - began, 2 * seconds(30) + 2 * minutes(10 + 20));
}

/// A backoff of the kind; one step has a retry policy of its own.
#[derive(Serialize, Deserialize)]
struct Patient;

impl Workflow for Patient {
    const KIND: &'static str = "workflow_with_backoff";
    type Output = ();
    type Error = Failure;

    fn backoff(failure: &Failure, nth: u32) -> Option<Duration> {
        (failure.class == "busy").then(|| minutes(3 * u64::from(nth)))
    }

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        let fails_twice = move |name: &str| match ran(format!("{id}/{name}")) {
            1 | 2 => Err(Failure::retry("no").class("busy")),
            _ => Ok(()),
        };
        let step = flow.step("of_the_kind", || async { fails_twice("of_the_kind") });
        step.undo(move |()| async move { fails_twice("undo") }).await?;
        flow.step("own_policy", || async { fails_twice("own_policy") }).retry(hourly(3)).await?;
        flow.step("last", || async { Err::<(), _>(Failure::stop("no")) }).await
    }
}

async fn a_workflow_has_a_backoff_for_steps_that_say_nothing(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Patient>()).await;
    let began = lab.now();
    let job = lab.submit(Patient).await;
    lab.run().await;
    lab.result(job).await.expect_err("the last step fails");
    assert_eq!(lab.now() - began, 2 * minutes(3 + 6) + 2 * hours(5));
}

/// An item that fails once.
#[derive(Serialize, Deserialize)]
struct Part {
    n: u64,
    run: String,
}

impl Task for Part {
    const KIND: &'static str = "part_with_delays";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        match (self.n, ran(format!("{} {}", self.run, self.n))) {
            (3, 1) => Err(Failure::retry("429").retry_after(seconds(90))),
            (4, 1) => Err(Failure::retry("no")),
            _ => Ok(self.n),
        }
    }

    fn retry() -> Retry {
        hourly(3)
    }

    fn backoff(_failure: &Failure, nth: u32) -> Option<Duration> {
        Some(seconds(60 * u64::from(nth)))
    }
}

#[derive(Serialize, Deserialize)]
struct Parts {
    run: String,
}

impl Workflow for Parts {
    const KIND: &'static str = "parts_with_delays";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let run = self.run;
        let branch = flow.branch("parts").packed();
        let branch = branch.spawn_each("n", 0..10u64, move |n| Part { n, run: run.clone() });
        Ok(branch.merge(Merge::all()).await?.done)
    }
}

async fn an_item_of_a_packed_branch_waits_as_its_failure_says(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Part>().workflow::<Parts>()).await;
    let job = lab.submit(Parts { run: format!("parts {on:?}") }).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 10);
    let engine = lab.engine().await;
    let children = engine.inspect().children(job.id(), None, 9).await.expect("read");
    let mut waits = Vec::new();
    for child in children.iter().filter(|child| child.attempts > 0) {
        let first = engine.inspect().history(child.id).await.expect("read").remove(0);
        (waits.push(child.due_at - first.ended_at));
    }
    waits.sort();
    assert_eq!(waits, [seconds(60), seconds(90)]);
}
