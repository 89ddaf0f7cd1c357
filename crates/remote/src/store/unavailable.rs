//! What people and servers do to a store, and a worker of a server cannot: it is an error that says where to do it instead.

use std::{sync::atomic::Ordering, time::Duration};

use windlass_model::{BranchNo, JobId, NewJob, Rev, Time, WorkerId};
use windlass_store::{
    Actor, AdminAction, Alert, AlertChange, AlertMute, Alerts, Attempt, AuditEntry, AuditFilter, AuditRecord,
    Backlog, BranchChildFilter, BranchChildPage, BranchHealth, BranchItems, BranchRanges, BranchTimes,
    ChildBounds, ChildGroup, ChildRange, Control, ControlOutcome, Database, Diagnose, Error, Filter, Firing,
    Fork, Fut, Holds, Inspect, ItemChild, Job, JobAction, JobDetails, JobPage, JournalEnd, LastCall,
    LimitView, MatchCount, Miscount, Miss, NewAlertMute, NewOperation, NewSession, NewToken, NewUser, Now,
    OldestReady, OpenBranch, Operation, OperationEnd, OperationId, OperationProgress, Operations, ParkedJob,
    PayloadsOf, Pulse, QueueView, RangeChild, Registrant, ScheduleView, SchemaState, SerialView, Session,
    SessionUse, SignalWaitFilter, SignalWaits, StageUpdate, StateCount, StoredToken, StoredUser, Summary,
    Throughput, ThroughputFilter, Token, Tokens, Transition, TransitionCount, Unsuccessful,
    UnsuccessfulFilter, User, UserChange, Users, WorkerView,
};

use super::{RemoteStore, test_time};
use crate::protocol::calls;

/// The error of a call that is not for workers.
pub(super) fn refuse<'a, T: Send + 'a>(what: &str) -> Fut<'a, T> {
    let error = Error::Misuse(format!(
        "a worker that runs through a server cannot have {what}; use the server's own API under /v1, or a program with the address of \
         the database"
    ));
    Box::pin(std::future::ready(Err(error)))
}

/// Implements a trait by errors.
macro_rules! unavailable {
    ($($part:ident { $($method:ident($($argument:ident: $type:ty),*) -> $output:ty, $what:literal;)* })*) => {$(
        #[allow(clippy::needless_lifetimes)] // One pattern for all methods.
        impl $part for RemoteStore {
            $(fn $method<'a>(&'a self, $($argument: $type),*) -> Fut<'a, $output> {
                $(let _ = $argument;)*
                refuse($what)
            })*
        }
    )*};
}

unavailable! {
    Inspect {
        pulse(jobs: &'a [JobId]) -> Pulse, "what a dashboard reads";
        summaries(ids: &'a [JobId]) -> Vec<Option<Summary>>, "lists of jobs";
        details(ids: &'a [JobId]) -> Vec<Option<JobDetails>>, "lists of jobs";
        unsuccessful(filter: &'a UnsuccessfulFilter, limit: usize) -> Unsuccessful, "lists of jobs";
        parked(limit: usize) -> Vec<ParkedJob>, "lists of jobs";
        last_calls(ids: &'a [JobId]) -> Vec<Option<LastCall>>, "the journals of other jobs";
        open_branches(limit: usize) -> Vec<OpenBranch>, "lists of branches";
        job(id: JobId) -> Option<Job>, "everything that is known of a job";
        jobs(filter: &'a Filter) -> JobPage, "lists of jobs";
        count_jobs(filter: &'a Filter, cap: usize) -> MatchCount, "counts of jobs";
        history(id: JobId) -> Vec<Attempt>, "the history of a job";
        transitions(id: JobId, after: Option<Rev>, limit: usize) -> Vec<Transition>, "the transitions of a machine";
        children(parent: JobId, after: Option<JobId>, limit: usize) -> Vec<Summary>, "lists of children";
        live_children(parent: JobId, group: ChildGroup, among: usize) -> Vec<Summary>, "lists of children";
        branch_children_page(filter: &'a BranchChildFilter, bounds: ChildBounds) -> BranchChildPage, "lists of children";
        branch_items(of: BranchItems<'a>) -> Vec<ItemChild>, "lists of children";
        payload_sizes(of: PayloadsOf<'a>, limit: usize) -> Vec<u64>, "sizes of payloads";
        journal_end(id: JobId, limit: usize) -> JournalEnd, "the end of a journal";
        branch_ends(job: JobId, branch: BranchNo) -> Option<ChildRange>, "lists of children";
        branch_ranges(of: BranchRanges<'a>) -> Vec<Vec<RangeChild>>, "lists of children";
        holds(id: JobId) -> Option<Holds>, "what keeps a job from running";
        state_counts() -> Vec<StateCount>, "counts of jobs";
        backlog(cap: u64) -> Vec<Backlog>, "counts of jobs";
        transition_counts(kind: &'a str, limit: usize) -> Vec<TransitionCount>, "counts of transitions";
        workers() -> Vec<WorkerView>, "lists of workers";
        queues() -> Vec<QueueView>, "lists of queues";
        rate_limits() -> Vec<LimitView>, "lists of rate limits";
        serial_keys(key: Option<&'a str>, limit: usize) -> Vec<SerialView>, "lists of serial keys";
        schedules() -> Vec<ScheduleView>, "lists of schedules";
        firings(schedule: &'a str, limit: usize) -> Vec<Firing>, "what schedules fired";
        misses(schedule: &'a str, limit: usize) -> Vec<Miss>, "what schedules missed";
        throughput(filter: &'a ThroughputFilter) -> Vec<Throughput>, "sums of what ended";
        signal_waits(filter: &'a SignalWaitFilter) -> Vec<SignalWaits>, "sums of waits for signals";
        branch_times(job: JobId) -> Vec<BranchTimes>, "times of branches";
        audit(filter: &'a AuditFilter) -> Vec<AuditEntry>, "the audit log";
        schema() -> SchemaState, "the version of the schema";
        bytes() -> u64, "the size of the store";
    }
    Diagnose {
        database() -> Database, "the state of the database";
        oldest_ready() -> Vec<OldestReady>, "what the doctor reads";
        suspects(cap: u64) -> u64, "what the doctor reads";
        unhandled_failures(cap: u64) -> u64, "what the doctor reads";
        awaited_branches(limit: usize) -> Vec<BranchHealth>, "what the doctor reads";
        orphaned_branches(limit: usize) -> Vec<BranchHealth>, "what the doctor reads";
        miscounts() -> Vec<Miscount>, "what the doctor reads";
    }
    Tokens {
        add_token(now: Now, token: &'a NewToken, actor: &'a Actor) -> ControlOutcome, "tokens";
        revoke_token(now: Now, token: &'a str, actor: &'a Actor) -> ControlOutcome, "tokens";
        touch_token(now: Now, id: &'a str, unless_since: Time) -> bool, "tokens";
        token(id: &'a str) -> Option<StoredToken>, "tokens";
        tokens() -> Vec<Token>, "tokens";
        registrant(worker: WorkerId) -> Registrant, "tokens";
    }
    Users {
        add_user(now: Now, user: &'a NewUser, actor: &'a Actor) -> ControlOutcome, "users";
        change_user(now: Now, user: &'a str, change: &'a UserChange, actor: &'a Actor) -> ControlOutcome, "users";
        user(name: &'a str) -> Option<StoredUser>, "users";
        users() -> Vec<User>, "users";
        add_session(now: Now, session: &'a NewSession) -> bool, "sessions of users";
        session(hash: &'a [u8; 32]) -> Option<Session>, "sessions of users";
        touch_session(now: Now, used: &'a SessionUse) -> bool, "sessions of users";
        end_session(hash: &'a [u8; 32]) -> bool, "sessions of users";
        end_sessions(now: Now, user: &'a str, actor: &'a Actor) -> ControlOutcome, "sessions of users";
    }
    Alerts {
        write_alerts(now: Now, changes: &'a [AlertChange]) -> Vec<bool>, "alerts";
        open_alerts(limit: usize) -> Vec<Alert>, "alerts";
        resolved_alerts(limit: usize) -> Vec<Alert>, "alerts";
        test_alert(now: Now, rule: &'a str, message: &'a NewJob, actor: &'a Actor) -> ControlOutcome, "alerts";
        mute_alerts(now: Now, mute: &'a NewAlertMute, actor: &'a Actor) -> ControlOutcome, "alerts";
        unmute_alerts(now: Now, rule: &'a str, subject: Option<&'a str>, actor: &'a Actor) -> ControlOutcome, "alerts";
        alert_mutes(now: Now) -> Vec<AlertMute>, "alerts";
        prune_alerts(before: Time, limit: usize) -> usize, "alerts";
        latest_misses() -> Vec<(String, Miss)>, "what schedules missed";
    }
}

impl Control for RemoteStore {
    /// Ends jobs of its own worker that stopped between two steps because they are being cancelled; everything else is an error.
    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        action: JobAction,
        _actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        if action != (JobAction::Cancel { grace: Duration::ZERO }) {
            return refuse("changes of jobs");
        }
        let worker = WorkerId(self.registered.load(Ordering::Acquire));
        Box::pin(async move {
            let call = calls::EndCancelled { worker, jobs: jobs.to_vec() };
            let ended = self.call(test_time(now), &call).await?.ended;
            let outcome = if ended == jobs.len() { ControlOutcome::Done } else { ControlOutcome::Unknown };
            Ok(vec![outcome; jobs.len()])
        })
    }

    fn administer<'a>(
        &'a self,
        _now: Now,
        _action: &'a AdminAction,
        _actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        refuse("changes of queues, limits and schedules")
    }

    fn update_stages<'a>(
        &'a self,
        _now: Now,
        _updates: &'a [StageUpdate],
        _actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        refuse("changes of jobs")
    }

    fn fork<'a>(&'a self, _now: Now, _forks: &'a [Fork], _actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>> {
        refuse("forks of jobs")
    }

    fn record_audit<'a>(
        &'a self,
        _now: Now,
        _action: &'a str,
        _subject: &'a str,
        _actor: &'a Actor,
    ) -> Fut<'a, ()> {
        refuse("entries in the audit log")
    }

    fn record_audits<'a>(&'a self, _now: Now, _records: &'a [AuditRecord]) -> Fut<'a, ()> {
        refuse("entries in the audit log")
    }
}

impl Operations for RemoteStore {
    fn add_operation<'a>(&'a self, _now: Now, _new: &'a NewOperation, _actor: &'a Actor) -> Fut<'a, bool> {
        refuse("records of operations")
    }

    fn update_operation<'a>(
        &'a self,
        _now: Now,
        _id: OperationId,
        _progress: &'a OperationProgress,
        _ended: Option<&'a OperationEnd>,
    ) -> Fut<'a, bool> {
        refuse("records of operations")
    }

    fn request_stop<'a>(&'a self, _now: Now, _id: OperationId, _actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        refuse("records of operations")
    }

    fn operation(&self, _now: Now, _id: OperationId) -> Fut<'_, Option<Operation>> {
        refuse("records of operations")
    }

    fn operations(&self, _now: Now, _before: Option<OperationId>, _limit: usize) -> Fut<'_, Vec<Operation>> {
        refuse("records of operations")
    }

    /// Nothing: the server's own worker prunes, by its own settings.
    fn prune_operations(&self, _before: Time) -> Fut<'_, usize> {
        Box::pin(std::future::ready(Ok(0)))
    }
}
