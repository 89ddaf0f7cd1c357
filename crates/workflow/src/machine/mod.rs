//! Machines: durable state machines as Rust enums.
//!
//! A variant is a state, its fields the state's data. `step` consumes a state and says what follows; that is committed
//! before the next step runs. The name of the variant and its data are kept apart, so that people can look for jobs by
//! their state and read the data.

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
pub use cx::{ChildResult, ChildrenError, SignalError, StepCx};
pub use handler::{MachineHandler, Services};
pub use next::{Next, WaitFor, all, any, signal, signals};

use crate::Kind;

/// A durable state machine: an enum whose variants are its states.
///
/// A step runs at least once and its transition is recorded exactly once: if the worker dies in the middle, the step
/// runs again. Whatever it does to the outside world may happen twice then; [`StepCx::step_id`] is a good idempotency
/// key, and [`StepCx::fence`] a fencing token for systems that take one.
///
/// The enum is kept as serde writes it by default, `{"Variant": data}`. Attributes that write it another way (`tag`,
/// `untagged`) are refused when the engine starts. Variants and fields may be added while jobs are there; for other
/// changes see `docs/machines.md`.
pub trait Machine: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The kind's name in the store; it outlives the type's name.
    const KIND: &'static str;
    /// Which version of the kind this code runs. Jobs finish on the version they were submitted with.
    const VERSION: i32 = 1;
    /// The queue that jobs go to unless the submit says otherwise.
    const QUEUE: &'static str = "default";
    /// What it returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// How a step fails. The conversion says, by type, whether a retry can help.
    type Error: Into<Failure> + Send;

    /// Does the work of a state, and says what follows.
    fn step(self, cx: &StepCx) -> impl Future<Output = Result<Next<Self>, Self::Error>> + Send;

    /// Says what follows when a step returned an error, panicked, ran too long, or asked for something that cannot be.
    /// It is given the state as it was before the step. Unless you say otherwise, the retry policy of the state decides.
    /// If it fails itself, the job fails.
    fn on_error(
        self,
        failure: Failure,
        _cx: &StepCx,
    ) -> impl Future<Output = Result<Next<Self>, Self::Error>> + Send {
        async { Ok(Next::by_policy(failure)) }
    }

    /// When to try the step of this state again: 20 attempts with growing waits, unless you say otherwise.
    fn retry(&self) -> Retry {
        Policy::default().retry
    }

    /// How long the step of this state may run: an hour, unless you say otherwise; `None` for as long as it likes.
    fn timeout(&self) -> Option<Duration> {
        Policy::default().timeout
    }
}

/// Marks [`Kind`]s that are [`Machine`]s.
pub struct AsMachine;

impl<M: Machine> Kind<AsMachine> for M {
    const KIND: &'static str = M::KIND;
    const VERSION: i32 = M::VERSION;
    const QUEUE: &'static str = M::QUEUE;
    type Output = M::Output;

    fn stage(input: &[u8]) -> Option<String> {
        stage::split(input).map(|(name, _)| name)
    }
}
