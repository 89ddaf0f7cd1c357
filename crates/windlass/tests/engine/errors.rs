//! Errors: the conversion of an error type into a failure decides whether it is retried, wherever the code returns it.

use std::{
    error::Error,
    fmt,
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use windlass::{OnError, OnFailure, Reason, Unit, prelude::*, testing::Lab};

use crate::flow::{On, on_every_store};

on_every_store!(
    the_conversion_of_an_error_decides_in_all_code,
    an_error_that_is_worth_a_retry_is_retried_in_all_code,
    errors_of_other_crates_are_retried_or_not_as_the_call_says,
);

/// Counts the tries.
#[derive(Clone, Default)]
struct Tries(Arc<Mutex<u32>>);

/// The user's error: a declined card is final, a busy bank is not.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
enum PayError {
    Declined { limit: u32 },
    Busy,
}

impl fmt::Display for PayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Error for PayError {}

impl From<PayError> for Failure {
    fn from(error: PayError) -> Failure {
        let failure = match &error {
            PayError::Declined { .. } => Failure::stop(&error).class("declined"),
            PayError::Busy => Failure::retry(&error).class("busy"),
        };
        failure.with_detail(&error)
    }
}

/// Code of the user that knows nothing of Windlass.
fn charge(tries: &Tries, busy: bool) -> Result<(), PayError> {
    *tries.0.lock().expect("not poisoned") += 1;
    if busy { Err(PayError::Busy) } else { Err(PayError::Declined { limit: 10 }) }
}

/// Three tries, without long delays.
fn thrice() -> Retry {
    Retry::times(3).backoff(Duration::from_millis(1), Duration::from_millis(1))
}

/// Charges in the code that `place` names.
#[derive(Serialize, Deserialize)]
struct Charge {
    busy: bool,
}

impl Task for Charge {
    const KIND: &'static str = "error_charge";
    type Output = ();
    type Error = PayError;

    async fn run(self, cx: &TaskCx) -> Result<(), PayError> {
        charge(cx.data(), self.busy)
    }

    fn retry() -> Retry {
        thrice()
    }
}

#[derive(Serialize, Deserialize)]
enum ChargeMachine {
    Begin { busy: bool },
}

impl Machine for ChargeMachine {
    const KIND: &'static str = "error_charge_machine";
    type Output = ();
    type Error = PayError;

    async fn step(self, cx: &MachineCx) -> Result<Next<ChargeMachine>, PayError> {
        let ChargeMachine::Begin { busy } = self;
        charge(cx.data(), busy)?;
        Ok(Next::done(()))
    }

    fn retry(&self) -> Retry {
        thrice()
    }
}

#[derive(Serialize, Deserialize)]
struct ChargeFlow {
    place: String,
    busy: bool,
}

impl Workflow for ChargeFlow {
    const KIND: &'static str = "error_charge_flow";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let (tries, busy) = (flow.data::<Tries>().clone(), self.busy);
        match self.place.as_str() {
            "step" => flow.step("charge", async || Ok(charge(&tries, busy)?)).retry(thrice()).await,
            "undo" => {
                let step = flow.step("charge", async || Ok(())).retry(thrice());
                step.undo_with(move |cx, ()| async move { Ok(charge(cx.data(), busy)?) }).await?;
                Err(Failure::stop("no goods"))
            }
            "tick" => {
                let ticks = flow.repeat("charge", Calendar::every(1, Unit::Days)?, async |_, cx| {
                    charge(cx.data(), busy)?;
                    Ok(ControlFlow::<()>::Continue(()))
                });
                ticks.times(1).retry(thrice()).on_error(OnError::Fail).await.map(drop)
            }
            "condition" => {
                let paid = flow.wait_until("charge", async || {
                    charge(&tries, busy)?;
                    Ok(true)
                });
                paid.retry(thrice()).await
            }
            _ => flow.child("charge", Charge { busy }).await,
        }
    }
}

async fn lab(url: &str, tries: &Tries) -> Lab {
    let tries = tries.clone();
    Lab::on(url, move |engine| {
        engine.data(tries.clone()).task::<Charge>().machine::<ChargeMachine>().workflow::<ChargeFlow>()
    })
    .await
}

/// Charges in all places. Returns how each job failed, and how often it charged.
async fn charge_everywhere(on: On, busy: bool) -> Vec<(&'static str, Reason, Failure, u32)> {
    let store = on.fresh().await;
    let tries = Tries::default();
    let lab = lab(&store.url, &tries).await;
    let mut failures = Vec::new();
    let places = ["task", "machine", "step", "undo", "tick", "condition", "child"];
    for place in places {
        let id = match place {
            "task" => lab.submit(Charge { busy }).await.id(),
            "machine" => lab.submit(ChargeMachine::Begin { busy }).await.id(),
            _ => lab.submit(ChargeFlow { place: place.into(), busy }).await.id(),
        };
        lab.run().await;
        let tried = std::mem::take(&mut *tries.0.lock().expect("not poisoned"));
        match lab.result(lab.job::<windlass::AnyKind>(id)).await {
            Err(JobError::Failed { reason, failure, .. }) => failures.push((place, reason, failure, tried)),
            other => panic!("{place}: {other:?}"),
        }
    }
    failures
}

async fn the_conversion_of_an_error_decides_in_all_code(on: On) {
    for (place, reason, failure, tried) in charge_everywhere(on, false).await {
        assert_eq!((reason, tried), (Reason::Stopped, 1), "{place} was tried again");
        if place == "undo" {
            let text = "no goods; not undone: \"charge\" (declined: Declined { limit: 10 })";
            assert_eq!(failure.message, text);
            continue;
        }
        assert_eq!((&*failure.class, failure.then), ("declined", OnFailure::Stop), "{place}");
        if place != "child" {
            assert_eq!(failure.detail(), Some(PayError::Declined { limit: 10 }), "{place}");
        }
    }
}

async fn an_error_that_is_worth_a_retry_is_retried_in_all_code(on: On) {
    for (place, _, failure, tried) in charge_everywhere(on, true).await {
        assert_eq!(tried, 3, "{place}");
        let class = if place == "undo" { "error" } else { "busy" };
        assert_eq!(failure.class, class, "{place}: {failure:?}");
    }
}

/// Fails with errors of other crates.
type Boxed = Box<dyn Error + Send + Sync>;

/// An error whose conversion would stop the job, of a type that is not registered.
#[derive(Debug)]
struct Forgotten;

impl fmt::Display for Forgotten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("forgotten")
    }
}

impl Error for Forgotten {}

impl From<Forgotten> for Failure {
    fn from(error: Forgotten) -> Failure {
        Failure::stop(error)
    }
}

#[derive(Serialize, Deserialize)]
struct Parse {
    how: String,
}

impl Task for Parse {
    const KIND: &'static str = "error_parse";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        *cx.data::<Tries>().0.lock().expect("not poisoned") += 1;
        let wrong = || "five".parse::<std::net::IpAddr>();
        match self.how.as_str() {
            "retry" => drop(wrong().or_retry()?),
            "stop" => drop(wrong().or_stop()?),
            "default" => drop(wrong()?),
            // A box hides the type, and not the decision.
            "boxed" => Err::<(), Boxed>(Failure::stop("no").class("mine").into())?,
            "registered" => Err::<(), Boxed>(PayError::Declined { limit: 2 }.into())?,
            "engine" => Err::<(), Boxed>(windlass::Error::NoSuchJob(cx.id()).into())?,
            "unregistered" => Err::<(), Boxed>(Forgotten.into())?,
            _ => Err(PayError::Declined { limit: 1 })?,
        }
        Ok(())
    }

    fn retry() -> Retry {
        thrice()
    }
}

async fn errors_of_other_crates_are_retried_or_not_as_the_call_says(on: On) {
    let store = on.fresh().await;
    let tries = Tries::default();
    let given = tries.clone();
    let lab =
        Lab::on(&store.url, move |engine| engine.data(given.clone()).error::<PayError>().task::<Parse>())
            .await;
    let cases = [
        ("retry", 3, Reason::Exhausted, "invalid IP address syntax"),
        ("stop", 1, Reason::Stopped, "invalid IP address syntax"),
        ("default", 3, Reason::Exhausted, "invalid IP address syntax"),
        ("boxed", 1, Reason::Stopped, "mine: no"),
        ("registered", 1, Reason::Stopped, "declined: Declined { limit: 2 }"),
        ("unregistered", 3, Reason::Exhausted, "forgotten"),
        ("own", 1, Reason::Stopped, "declined: Declined { limit: 1 }"),
    ];
    for (how, expected_tries, expected, text) in cases {
        let job = lab.submit(Parse { how: how.into() }).await;
        lab.run().await;
        let tried = std::mem::take(&mut *tries.0.lock().expect("not poisoned"));
        match lab.result(job).await {
            Err(JobError::Failed { reason, failure, .. }) => {
                assert_eq!((reason, tried), (expected, expected_tries), "{how}");
                assert_eq!(failure.to_string(), text, "{how}");
            }
            other => panic!("{how}: {other:?}"),
        }
    }
    // Errors of the engine's own calls are registered.
    let job = lab.submit(Parse { how: "engine".into() }).await;
    lab.run().await;
    let error = lab.result(job).await.expect_err("there is no such job");
    assert!(matches!(error, JobError::Failed { reason: Reason::Stopped, .. }), "{error:?}");
}
