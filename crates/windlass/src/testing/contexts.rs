//! Contexts for unit tests: the code of a task, a step or an undo is called directly, without an engine and without a store.

use std::collections::BTreeMap;

use tokio::sync::watch;
use windlass_workflow::{MachineCx, StepCx, TaskCx, UndoCx, engine::TestContext};

use super::cx_builder::CxBuilder;

/// Describes the context of a task, to call its code in a unit test.
///
/// ```
/// use windlass::{prelude::*, testing};
///
/// struct Prices(Vec<u64>);
///
/// #[derive(Serialize, Deserialize)]
/// struct Total;
///
/// impl Task for Total {
///     const KIND: &'static str = "total";
///     type Output = u64;
///     type Error = Failure;
///
///     async fn run(self, cx: &TaskCx) -> Result<u64, Failure> {
///         if cx.attempt() > 2 {
///             return Err(Failure::stop("the prices do not become better"));
///         }
///         Ok(cx.data::<Prices>().0.iter().sum())
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let cx = testing::task_cx().data(Prices(vec![3, 4])).build();
/// assert_eq!(Total.run(&cx).await.unwrap(), 7);
///
/// let third = testing::task_cx().attempt(3).build();
/// assert!(Total.run(&third).await.is_err());
/// # }
/// ```
pub fn task_cx() -> CxBuilder<TaskCx> {
    CxBuilder::new()
}

/// Describes the context of a step of a machine, to call [`Machine::step`](crate::Machine::step) in a unit test. What the step
/// returns can be examined: [`Next::stage`](crate::Next::stage), [`Next::output`](crate::Next::output) and the like.
///
/// ```
/// use windlass::{prelude::*, testing};
///
/// #[derive(Serialize, Deserialize, PartialEq, Debug)]
/// enum Checkout {
///     Start,
///     AwaitPayment,
///     Ship { cents: u64 },
/// }
///
/// impl Machine for Checkout {
///     const KIND: &'static str = "checkout";
///     type Output = u64;
///     type Error = Failure;
///
///     async fn step(self, cx: &MachineCx) -> Result<Next<Self>, Failure> {
///         Ok(match self {
///             Checkout::Start => Next::wait(Checkout::AwaitPayment, "payment").timeout(days(2)),
///             Checkout::AwaitPayment => match cx.signal("payment")? {
///                 Some(cents) => Next::to(Checkout::Ship { cents }),
///                 None => Next::stop("not paid in time"),
///             },
///             Checkout::Ship { cents } => Next::done(cents),
///         })
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let paid = testing::machine_cx().signal("payment", 1_200).build();
/// let next = Checkout::AwaitPayment.step(&paid).await.unwrap();
/// assert_eq!(next.stage(), Some(&Checkout::Ship { cents: 1_200 }));
///
/// let late = testing::machine_cx().waited_for("payment").build();
/// assert!(late.timed_out());
/// let next = Checkout::AwaitPayment.step(&late).await.unwrap();
/// assert_eq!(next.failure().unwrap().message, "not paid in time");
/// # }
/// ```
pub fn machine_cx() -> CxBuilder<MachineCx> {
    CxBuilder::new()
}

/// Describes the context of a step of a workflow ([`Flow::step_with`](crate::Flow::step_with)), to call its code in a unit test.
///
/// ```
/// use windlass::{prelude::*, testing};
///
/// async fn charge(cx: &StepCx, cents: u64) -> Result<String, Failure> {
///     cx.set("charged", cents)?;
///     Ok(format!("charge {cents} with the idempotency key {}", cx.step_id()))
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let cx = testing::step_cx().step_id("order-7/charge").build();
/// assert_eq!(charge(&cx, 5).await.unwrap(), "charge 5 with the idempotency key order-7/charge");
/// assert_eq!(testing::values_set(&cx)["charged"], 5);
/// # }
/// ```
pub fn step_cx() -> CxBuilder<StepCx> {
    CxBuilder::new()
}

/// Describes the context of an undo ([`Step::undo_with`](crate::Step::undo_with)), to call its code in a unit test.
///
/// ```
/// use windlass::{prelude::*, testing};
///
/// async fn refund(cx: UndoCx, charge: String) -> Result<String, Failure> {
///     Ok(format!("refund {charge} as {}", cx.undo_id()))
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let cx = testing::undo_cx().step_id("order-7/charge").build();
/// assert_eq!(refund(cx, "c1".into()).await.unwrap(), "refund c1 as undo:order-7/charge");
/// # }
/// ```
pub fn undo_cx() -> CxBuilder<UndoCx> {
    CxBuilder::new()
}

/// The values of the workflow's context that code has set through a context of [`step_cx`].
///
/// # Panics
///
/// If it is the context of a running workflow; `Lab::context` reads its values.
pub fn values_set(cx: &StepCx) -> BTreeMap<String, serde_json::Value> {
    match TestContext::values_set(cx) {
        Some(values) => values,
        None => {
            panic!("this step runs in an engine: read its values with `Lab::context` or `Engine::context`")
        }
    }
}

/// Cancels the attempts of contexts in unit tests, while their code runs.
///
/// ```
/// use windlass::testing::{self, CancelSwitch};
///
/// # #[tokio::main]
/// # async fn main() {
/// let switch = CancelSwitch::new();
/// let cx = testing::task_cx().cancelled_by(&switch).build();
/// assert!(!cx.is_cancelled());
/// switch.cancel();
/// cx.cancelled().await;
/// # }
/// ```
pub struct CancelSwitch {
    cancelled: watch::Sender<bool>,
}

impl CancelSwitch {
    /// A switch that has not been used.
    pub fn new() -> CancelSwitch {
        CancelSwitch { cancelled: watch::Sender::new(false) }
    }

    /// Cancels the attempts.
    pub fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<bool> {
        self.cancelled.subscribe()
    }
}

impl Default for CancelSwitch {
    fn default() -> CancelSwitch {
        CancelSwitch::new()
    }
}
