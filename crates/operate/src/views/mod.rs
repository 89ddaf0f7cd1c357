//! What people see of a store, as serialisable data: the command line prints it, and an API answers with it.
//!
//! Each view has one constructor, `read`, which reads through an [`Operator`](crate::Operator) and changes nothing. In reading
//! order: [`JobList`] and [`ChildList`] list jobs, [`JobRows`] with why each is in its state, [`JobView`] has everything about one;
//! [`Failures`] groups unsuccessful jobs by their errors, [`WaitingView`] parked ones by what they wait for, [`OpenBranches`] lists branches of all
//! jobs, [`OperationView`] shows how far a bulk action is; [`BranchesView`] shows how far the branches
//! of a job are, [`BranchDetails`] one of them with its children, [`ItemList`] lists these; [`Queues`], [`RateLimits`], [`SerialKeys`], [`Schedules`] and [`ScheduleDetails`]
//! show what the jobs are subject to, [`AuditPage`] what people did; [`ThroughputView`] and [`SignalWaitsView`] sum up what has ended. Notes
//! and hints name commands as the stock binary has them, between backticks.

mod audit;
mod branch;
mod branch_details;
mod branches;
mod failures;
mod family;
mod items;
mod job;
mod jobs;
mod journal;
mod machine;
mod open_branches;
mod operation;
mod queues;
mod rows;
mod rules;
mod schedules;
mod situation;
mod throughput;
mod waiting;

pub use audit::AuditPage;
pub use branch::{BranchTimesView, BranchView, MergeState, Totals};
pub use branch_details::{BranchDetails, BranchFailures, BranchPage, ChildCell};
pub use branches::{BranchesView, RateMeter};
pub use failures::{Advice, FailureGroup, FailureSample, Failures, Outlook};
pub use family::{Ancestor, Ancestors, ChildLevel};
pub use items::{ItemFilter, ItemList};
pub use job::JobView;
pub(crate) use jobs::block_items;
pub use jobs::{ChildList, JobList, is_block};
pub use journal::{EntryResult, EntryView, Journal, JournalPage};
pub use machine::{InboxSignal, MachineView};
pub use open_branches::{OpenBranchRow, OpenBranches};
pub use operation::{OperationList, OperationView};
pub use queues::{QueueRow, Queues};
pub use rows::{JobRow, JobRows, RowReason};
pub use rules::{RateLimits, SerialKeys};
pub use schedules::{ScheduleDetails, ScheduleRow, Schedules};
pub use situation::Situation;
pub use throughput::{
    EndedView, MAX_SPAN, Percentiles, SignalWaitsRow, SignalWaitsView, ThroughputRequest, ThroughputRow,
    ThroughputView,
};
pub use waiting::{RepeatRow, SleepRow, UsualWait, WaitGroup, WaitRow, WaitingView, WaitsFor};

use serde_json::Value;
use windlass_model::Payload;

/// How many bytes of payloads a page of a view has at most. One row is in it however large it is.
pub const PAGE_BYTES: u64 = 16 << 20;

/// Counts in views stop here: exact numbers would cost a scan, and an overview does not need them.
pub const CAP: u64 = 10_000;

/// How many of the next rows, whose payloads have these sizes, a page of `most` bytes has: at least one, if there is one.
pub fn rows_within(sizes: &[u64], most: u64) -> usize {
    let mut bytes = 0;
    let fits = |size: &&u64| {
        bytes += **size;
        bytes <= most
    };
    sizes.iter().take_while(fits).count().max(sizes.len().min(1))
}

/// The JSON of a payload, or its size if it is encoded.
fn plain_value(payload: &Payload) -> Value {
    match (payload.codec, serde_json::from_slice(&payload.bytes)) {
        (0, Ok(value)) => value,
        _ => size(payload),
    }
}

/// The size of a payload that cannot be shown, as text.
fn size(payload: &Payload) -> Value {
    format!("<{} bytes, codec {}>", payload.bytes.len(), payload.codec).into()
}
