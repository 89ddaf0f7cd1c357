//! `anyhow::Error` as the error of tasks, machines, workflows and steps.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use anyhow::Context;
use windlass::{Reason, prelude::*, testing::Lab};

use crate::flow::{On, on_every_store};

on_every_store!(
    what_is_inside_of_an_error_decides_in_all_code,
    an_error_of_a_step_keeps_its_decision_through_the_workflow,
);

/// Counts the tries.
#[derive(Clone, Default)]
struct Tries(Arc<Mutex<u32>>);

/// An error of the user that no retry can fix. Its type is registered.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Declined {
    limit: u32,
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the card was declined above {}", self.limit)
    }
}

impl std::error::Error for Declined {}

impl From<Declined> for Failure {
    fn from(error: Declined) -> Failure {
        Failure::stop(&error).class("declined").with_detail(&error)
    }
}

/// The same, of a type that is not registered.
#[derive(Debug)]
struct Forgotten;

impl fmt::Display for Forgotten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("forgotten")
    }
}

impl std::error::Error for Forgotten {}

/// Code of the user, which uses `anyhow` throughout.
fn charge(tries: &Tries, inside: &str) -> anyhow::Result<()> {
    *tries.0.lock().expect("not poisoned") += 1;
    match inside {
        "failure" => Err(Failure::stop("closed").class("bank")).context("calling the bank"),
        "registered" => Err(Declined { limit: 10 }).context("calling the bank").context("paying"),
        "unregistered" => Err(Forgotten).context("calling the bank"),
        "text" => anyhow::bail!("no answer from the {}", "bank"),
        _ => std::fs::read("/nowhere/at/all").map(drop).context("reading the card"),
    }
}

fn thrice() -> Retry {
    Retry::times(3).backoff(Duration::from_millis(1), Duration::from_millis(1))
}

#[derive(Serialize, Deserialize)]
struct Charge(String);

impl Task for Charge {
    const KIND: &'static str = "anyhow_charge";
    type Output = ();
    type Error = anyhow::Error;

    async fn run(self, cx: &TaskCx) -> anyhow::Result<()> {
        charge(cx.data(), &self.0)
    }

    fn retry() -> Retry {
        thrice()
    }
}

#[derive(Serialize, Deserialize)]
enum ChargeMachine {
    Begin(String),
}

impl Machine for ChargeMachine {
    const KIND: &'static str = "anyhow_charge_machine";
    type Output = ();
    type Error = anyhow::Error;

    async fn step(self, cx: &MachineCx) -> anyhow::Result<Next<ChargeMachine>> {
        let ChargeMachine::Begin(inside) = self;
        charge(cx.data(), &inside)?;
        Ok(Next::done(()))
    }

    fn retry(&self) -> Retry {
        thrice()
    }
}

#[derive(Serialize, Deserialize)]
struct ChargeFlow {
    inside: String,
    with_context: bool,
}

impl Workflow for ChargeFlow {
    const KIND: &'static str = "anyhow_charge_flow";
    type Output = ();
    type Error = anyhow::Error;

    async fn run(self, flow: Flow) -> anyhow::Result<()> {
        let tries = flow.data::<Tries>().clone();
        let step = flow.step("charge", async || Ok(charge(&tries, &self.inside)?)).retry(thrice());
        if self.with_context {
            step.await.context("order 7")?;
        } else {
            step.await?;
        }
        Ok(())
    }
}

async fn lab(url: &str, tries: &Tries) -> Lab {
    let tries = tries.clone();
    Lab::on(url, move |engine| {
        let engine = engine.data(tries.clone()).error::<Declined>();
        engine.task::<Charge>().machine::<ChargeMachine>().workflow::<ChargeFlow>()
    })
    .await
}

/// What is inside of the error, the class and the message of the job's failure, and how often it was tried.
const CASES: [(&str, &str, &str, u32); 5] = [
    ("failure", "bank", "calling the bank: closed", 1),
    ("registered", "declined", "paying: calling the bank: the card was declined above 10", 1),
    ("unregistered", "error", "calling the bank: forgotten", 3),
    ("text", "error", "no answer from the bank", 3),
    ("io", "io", "reading the card: No such file or directory (os error 2)", 3),
];

async fn what_is_inside_of_an_error_decides_in_all_code(on: On) {
    let store = on.fresh().await;
    let tries = Tries::default();
    let lab = lab(&store.url, &tries).await;
    for (inside, class, message, times) in CASES {
        for place in ["task", "machine", "step"] {
            let inside = inside.to_owned();
            let id = match place {
                "task" => lab.submit(Charge(inside)).await.id(),
                "machine" => lab.submit(ChargeMachine::Begin(inside)).await.id(),
                _ => lab.submit(ChargeFlow { inside, with_context: false }).await.id(),
            };
            lab.run().await;
            let tried = std::mem::take(&mut *tries.0.lock().expect("not poisoned"));
            match lab.result(lab.job::<windlass::AnyKind>(id)).await {
                Err(JobError::Failed { failure, .. }) => {
                    assert_eq!((&*failure.class, &*failure.message), (class, message), "{place}");
                    assert_eq!(tried, times, "{place}: {failure}");
                    let detail = (class == "declined").then_some(Declined { limit: 10 });
                    assert_eq!(failure.detail(), detail, "{place}");
                }
                other => panic!("{place}: {other:?}"),
            }
        }
    }
}

async fn an_error_of_a_step_keeps_its_decision_through_the_workflow(on: On) {
    let store = on.fresh().await;
    let tries = Tries::default();
    let lab = lab(&store.url, &tries).await;
    let job = lab.submit(ChargeFlow { inside: "registered".into(), with_context: true }).await;
    lab.run().await;
    match lab.result(job).await {
        Err(JobError::Failed { reason: Reason::Stopped, failure, .. }) => {
            assert_eq!(failure.class, "declined");
            assert_eq!(failure.detail(), Some(Declined { limit: 10 }));
            let text = "order 7: paying: calling the bank: the card was declined above 10";
            assert_eq!(failure.message, text);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(*tries.0.lock().expect("not poisoned"), 1);
}
