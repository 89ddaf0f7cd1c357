//! Machines: durable state machines as Rust enums.
//!
//! A variant is a stage, its fields are the stage's data. `step` consumes a stage and returns what follows; that is committed
//! before the next step runs. The name of the variant and its data are kept apart, so that people can search for jobs by their
//! stage and read the data.

mod branch;
mod cx;
mod handler;
mod next;
pub mod stage;

use std::{future::Future, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{Failure, Retry};
use windlass_runtime::Policy;

pub use branch::MachineBranch;
pub use cx::{ChildResult, ChildrenError, MachineCx, SignalError};
pub use handler::{MachineHandler, Services};
pub use next::{Next, WaitFor};

use crate::{Kind, Needs};

/// A durable state machine: an enum whose variants are its stages. A job starts in the stage that it is submitted with.
///
/// ```
/// # use std::time::Duration;
/// # use serde::{Deserialize, Serialize};
/// # use windlass_model::Failure;
/// # use windlass_workflow::{Machine, MachineCx, Next};
/// # async fn send_offer(_: u32, _: &str) -> Result<(), Failure> { Ok(()) }
/// #[derive(Serialize, Deserialize)]
/// enum Offer {
///     Send { customer: u32 },
///     AwaitAnswer { customer: u32 },
/// }
///
/// impl Machine for Offer {
///     const KIND: &'static str = "offer";
///     type Output = String;
///     type Error = Failure;
///
///     async fn step(self, cx: &MachineCx) -> Result<Next<Offer>, Failure> {
///         Ok(match self {
///             Offer::Send { customer } => {
///                 send_offer(customer, &cx.step_id()).await?;
///                 Next::wait(Offer::AwaitAnswer { customer }, "answer").timeout(Duration::from_secs(86_400))
///             }
///             Offer::AwaitAnswer { customer } => match cx.signal::<String>("answer")? {
///                 Some(answer) => Next::done(format!("customer {customer} answered {answer}")),
///                 None => Next::stop("no answer within a day"),
///             },
///         })
///     }
/// }
/// ```
///
/// A step runs at least once, and its transition is recorded exactly once: if the worker dies in the middle, the step runs
/// again. Its effects on the outside world may then happen twice; [`MachineCx::step_id`] is a good idempotency key, and
/// [`MachineCx::fence`] a fencing token for systems that take one.
///
/// The enum is kept as serde writes it by default, `{"Variant": data}`. Attributes that write it another way (`tag`,
/// `untagged`) are refused when the engine starts. Variants and fields may be added while jobs exist; for other changes see
/// `docs/machines.md`.
pub trait Machine: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The kind's name in the store; it outlives the type's name.
    const KIND: &'static str;
    /// Which version of the kind this code runs. Jobs finish on the version they were submitted with.
    const VERSION: i32 = 1;
    /// The queue of its jobs, unless the submit names another.
    const QUEUE: &'static str = "default";
    /// What it returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// The error of a step. The conversion says, by type, whether a retry can help.
    type Error: Into<Failure> + Send;

    /// Does the work of a stage, and returns what follows.
    fn step(self, cx: &MachineCx) -> impl Future<Output = Result<Next<Self>, Self::Error>> + Send;

    /// Decides what follows when a step returned an error, panicked, timed out, or returned something that is refused. It is
    /// called on the stage as it was before the step. By default the retry policy of the stage decides. If it fails itself, the
    /// job fails.
    fn on_error(
        self,
        failure: Failure,
        _cx: &MachineCx,
    ) -> impl Future<Output = Result<Next<Self>, Self::Error>> + Send {
        async { Ok(Next::by_policy(failure)) }
    }

    /// When to retry the step of this stage: by default 20 attempts with growing delays.
    fn retry(&self) -> Retry {
        Policy::default().retry
    }

    /// How long to wait before the next attempt at the step of this stage after `failure`, the `nth` failure that the rule of the
    /// retry policy has counted; `None`, the default, leaves it to the policy. Not asked if the failure says when
    /// ([`Failure::retry_after`]), nor for a job that was submitted with a retry policy of its own.
    fn backoff(&self, _failure: &Failure, _nth: u32) -> Option<Duration> {
        None
    }

    /// How long the step of this stage may run: by default an hour; `None` is no limit.
    fn timeout(&self) -> Option<Duration> {
        Policy::default().timeout
    }

    /// How long the step of this stage may run without a call of [`MachineCx::progress`]; then it ends like one that has reached its
    /// timeout. By default it need not report.
    fn heartbeat_timeout(&self) -> Option<Duration> {
        None
    }

    /// The data that it cannot run without: the engine does not start if its builder was given none of these types. By default
    /// nothing is required.
    fn needs() -> Needs {
        Needs::new()
    }
}

/// Marks [`Kind`]s that are [`Machine`]s.
pub struct AsMachine;

impl<M: Machine> Kind<AsMachine> for M {
    const KIND: &'static str = M::KIND;
    const VERSION: i32 = M::VERSION;
    const QUEUE: &'static str = M::QUEUE;
    type Output = M::Output;
    type Error = M::Error;

    fn stage(input: &[u8]) -> Option<String> {
        stage::split(input).map(|(name, _)| name)
    }
}
