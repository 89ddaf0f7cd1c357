//! What people read in a lab: the store, with the clock of the lab.

use windlass_model::{JobId, JournalEntry, Payload, Rev, Signal, Time};
use windlass_store::*;

use super::store::VirtualStore;

/// Reads from the store.
macro_rules! reads {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        impl Inspect for VirtualStore {
            $(fn $name<'a>(&'a self, $($arg: $type),*) -> Fut<'a, $out> {
                self.store.inspect().$name($($arg),*)
            })*

            fn clock(&self) -> Fut<'_, Time> {
                Box::pin(std::future::ready(Ok(self.shared.now())))
            }
        }
    };
}

reads! {
    job(id: JobId) -> Option<Job>;
    jobs(filter: &'a Filter) -> Vec<Summary>;
    history(id: JobId) -> Vec<Attempt>;
    state_counts(cap: u64) -> Vec<StateCount>;
    backlog(cap: u64) -> Vec<Backlog>;
    workers() -> Vec<WorkerView>;
    schema() -> SchemaState;
    holds(id: JobId) -> Option<Holds>;
    queues() -> Vec<QueueView>;
    rate_limits() -> Vec<LimitView>;
    serial_keys(key: Option<&'a str>, limit: usize) -> Vec<SerialView>;
    audit(filter: &'a AuditFilter) -> Vec<AuditEntry>;
    schedules() -> Vec<ScheduleView>;
    firings(schedule: &'a str, limit: usize) -> Vec<Firing>;
    misses(schedule: &'a str, limit: usize) -> Vec<Miss>;
    children(parent: JobId, after: Option<JobId>, limit: usize) -> Vec<Summary>;
    child_ends(parent: JobId, parent_rev: Rev, after: Option<JobId>, limit: usize) -> Vec<ChildEnd>;
    branches(job: JobId) -> Vec<Branch>;
    branch_children(of: &'a BranchChildFilter) -> Vec<BranchChild>;
    source_rows(rows: &'a TableSource, after: Option<&'a str>, limit: usize) -> Vec<SourceRow>;
    inbox(id: JobId, limit: usize) -> Vec<Signal>;
    transitions(id: JobId, after: Option<Rev>, limit: usize) -> Vec<Transition>;
    journal(id: JobId, after: Option<i32>, limit: usize) -> Vec<JournalEntry>;
    journals(ids: &'a [JobId]) -> Vec<Vec<JournalEntry>>;
    context(id: JobId) -> Vec<(String, Payload)>;
    transition_counts(kind: &'a str, limit: usize) -> Vec<TransitionCount>;
    bytes() -> u64;
}
