//! Writing durable code: [`Task`]s, [`Machine`]s, [`Workflow`]s and branches of children.
//!
//! In reading order: a [`Task`] is one async function; a [`Machine`] is an enum whose `step` function moves from stage to
//! stage; a [`Workflow`] is async code on [`Flow`], whose calls are recorded in a journal and answered from it on replay.
//! Machines and workflows open branches, whose children come from a [`Source`]. [`codec`] encrypts or compresses payloads.
//!
//! Authors use all of this through the crate `windlass`. [`engine`] is for the crates that run such code and show it to people.

mod attempt_source;
mod branch;
mod child;
pub mod codec;
mod data;
mod error;
mod heartbeat;
mod machine;
mod output;
mod signal;
pub mod span;
mod spec;
mod store_retry;
mod task;
mod workflow;

pub use branch::{AsChild, AsResult, ChildOf, IntoChild, Merged, Results, Rows, Source, StreamSource};
pub use child::Child;
pub use codec::Codec;
pub use data::{Data, Needs};
pub use error::{Error, JobError};
pub use machine::{
    AsMachine, ChildResult, ChildrenError, Machine, MachineBranch, MachineCx, Next, SignalError, WaitFor,
};
pub use signal::Signal;
pub use task::{AsTask, Kind, Task, TaskCx};
pub use workflow::{
    AsWorkflow, Branch, Cancelled, CatchCancel, ChildWait, Context, ContinueIf, First2, First3, First4,
    First5, First6, Flow, MergeCall, Merging, OnError, Race, Reducing, Repeat, Select, SignalWait, Sleep,
    Step, StepCx, Transaction, UndoCx, WaitUntil, Workflow, failure_of,
};

/// What the engine needs to run tasks, machines and workflows or to test them, and what operators need to show them. Authors need
/// none of it.
pub mod engine {
    pub use crate::{
        attempt_source::TestContext,
        branch::{BLOCKS, SINGLES, block},
        codec::{Codecs, coded},
        data::end_attempt,
        machine::{MachineHandler, Services, stage},
        output::decode_output,
        signal::OutgoingSignal,
        spec::Spec,
        task::TaskHandler,
        workflow::{
            CallDifference, Differences, ENDED, RESUMED, Reader, RepeatProgress, Replayer, Replays,
            WorkflowHandler, voids_of,
        },
    };
}
