//! Stores that change a few verbs of another store: virtual clocks, injected faults, measurements.

use std::{path::PathBuf, sync::Arc, time::Duration};

use windlass_model::{
    BranchNo, Change, ClaimNo, ClaimedJob, CommitOutcome, JobClaim, JobId, JournalEntry, Limits, NewJob,
    NewSignal, Payload, Rev, Signal, SubmitOutcome, Time, WorkerId,
};

use crate::{
    Actor, AdminAction, Alert, AlertChange, AlertMute, Alerts, Attempt, AuditEntry, AuditFilter, AuditRecord,
    Backend, Backlog, Branch, BranchChild, BranchChildFilter, BranchChildPage, BranchHealth, BranchItems,
    BranchRanges, BranchTimes, CancelRequest, ChildBounds, ChildEnd, ChildGroup, ChildRange, ClaimBatch,
    ClaimOnSubmit, ClaimRequest, Control, ControlOutcome, Database, Diagnose, Execution, Filter, Firing,
    Fork, Fut, Holds, Inspect, ItemChild, Job, JobAction, JobDetails, JobEnd, JobPage, JournalEnd, LastCall,
    LimitView, Maintenance, MatchCount, Miscount, Miss, NewAlertMute, NewOperation, NewSession, NewToken,
    NewUser, NewWorker, Now, OldestReady, OpenBranch, Operation, OperationEnd, OperationId,
    OperationProgress, Operations, ParkedJob, PayloadsOf, PollReport, Prune, Pruned, Pulse, QueueView,
    RangeChild, ReapReport, ReapRequest, Registrant, RenewRequest, Renewal, Replay, RollUpReport,
    RollUpRequest, ScheduleView, SchemaState, SerialView, Session, SessionUse, SignalOutcome,
    SignalWaitFilter, SignalWaits, SourceRow, StageUpdate, StateCount, Store, StoredToken, StoredUser,
    Summary, TableSource, Throughput, ThroughputFilter, TimerReport, Token, Tokens, Transition,
    TransitionCount, Unsuccessful, UnsuccessfulFilter, User, UserChange, Users, Work, WorkerView,
};

/// Declares [`Wrapper`] with every method of the traits, and implements the traits for every wrapper.
macro_rules! wrapper {
    ($($part:ident { $($method:ident($($argument:ident: $type:ty),*) -> $output:ty;)* })*) => {
        /// A store that changes a few verbs of another one. Implement [`Wrapper::inner`] and the verbs that differ, each as
        /// its trait declares it; all others call the inner store. Every wrapper is a [`Store`].
        ///
        /// [`Wrapper::sibling`] calls the inner store too: override it if the siblings must be wrapped as well.
        #[allow(clippy::needless_lifetimes)] // One pattern for all methods.
        pub trait Wrapper: Send + Sync + 'static {
            /// The wrapped store.
            fn inner(&self) -> &dyn Store;

            $($(
                #[doc = concat!("See [`", stringify!($part), "::", stringify!($method), "`].")]
                fn $method<'a>(&'a self, $($argument: $type),*) -> $output {
                    self.inner().$method($($argument),*)
                }
            )*)*
        }

        $(#[allow(clippy::needless_lifetimes)]
        impl<W: Wrapper> $part for W {
            $(fn $method<'a>(&'a self, $($argument: $type),*) -> $output {
                Wrapper::$method(self, $($argument),*)
            })*
        })*
    };
}

wrapper! {
    Execution {
        register_worker(now: Now, worker: &'a NewWorker) -> Fut<'a, bool>;
        submit(now: Now, jobs: &'a [NewJob], claim_on_submit: Option<ClaimOnSubmit>) -> Fut<'a, Vec<SubmitOutcome>>;
        claim(now: Now, request: &'a ClaimRequest) -> Fut<'a, ClaimBatch>;
        claimed_jobs(worker: WorkerId, number: ClaimNo) -> Fut<'a, Vec<ClaimedJob>>;
        claims_with_jobs(worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, Vec<ClaimNo>>;
        commit(now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>>;
        transact(now: Now, work: Work<'a>) -> Fut<'a, Option<CommitOutcome>>;
        signal(now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>>;
        release(now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize>;
        release_claims(now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize>;
        retire_worker(now: Now, worker: WorkerId) -> Fut<'a, usize>;
        cancel_requests(worker: WorkerId) -> Fut<'a, Vec<CancelRequest>>;
        gates(queues: &'a [String]) -> Fut<'a, Vec<u64>>;
        wait_for_gates(queues: &'a [String], known: &'a [u64], wait: Duration) -> Fut<'a, Vec<u64>>;
        job_ends(ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>>;
    }
    Maintenance {
        renew(now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal>;
        reap(now: Now, request: &'a ReapRequest) -> Fut<'a, ReapReport>;
        fire_timers(now: Now, limit: usize) -> Fut<'a, TimerReport>;
        repair(now: Now) -> Fut<'a, usize>;
        poll_branches(now: Now, limit: usize) -> Fut<'a, PollReport>;
        prune(now: Now, prune: &'a Prune) -> Fut<'a, Pruned>;
        roll_up(request: &'a RollUpRequest) -> Fut<'a, RollUpReport>;
        prune_sessions(now: Now, limit: usize) -> Fut<'a, usize>;
    }
    Replay {
        journal(id: JobId, after: Option<i32>, limit: usize) -> Fut<'a, Vec<JournalEntry>>;
        journals(ids: &'a [JobId]) -> Fut<'a, Vec<Vec<JournalEntry>>>;
        context(id: JobId) -> Fut<'a, Vec<(String, Payload)>>;
        inbox(id: JobId, limit: usize) -> Fut<'a, Vec<Signal>>;
        child_ends(parent: JobId, parent_rev: Rev, after: Option<JobId>, limit: usize) -> Fut<'a, Vec<ChildEnd>>;
        branches(job: JobId) -> Fut<'a, Vec<Branch>>;
        branch_children(filter: &'a BranchChildFilter) -> Fut<'a, Vec<BranchChild>>;
        source_rows(source: &'a TableSource, after: Option<&'a str>, limit: usize) -> Fut<'a, Vec<SourceRow>>;
        clock() -> Fut<'a, Time>;
    }
    Inspect {
        pulse(jobs: &'a [JobId]) -> Fut<'a, Pulse>;
        summaries(ids: &'a [JobId]) -> Fut<'a, Vec<Option<Summary>>>;
        details(ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobDetails>>>;
        unsuccessful(filter: &'a UnsuccessfulFilter, limit: usize) -> Fut<'a, Unsuccessful>;
        parked(limit: usize) -> Fut<'a, Vec<ParkedJob>>;
        last_calls(ids: &'a [JobId]) -> Fut<'a, Vec<Option<LastCall>>>;
        open_branches(limit: usize) -> Fut<'a, Vec<OpenBranch>>;
        job(id: JobId) -> Fut<'a, Option<Job>>;
        jobs(filter: &'a Filter) -> Fut<'a, JobPage>;
        count_jobs(filter: &'a Filter, most: usize) -> Fut<'a, MatchCount>;
        history(id: JobId) -> Fut<'a, Vec<Attempt>>;
        transitions(id: JobId, after: Option<Rev>, limit: usize) -> Fut<'a, Vec<Transition>>;
        children(parent: JobId, after: Option<JobId>, limit: usize) -> Fut<'a, Vec<Summary>>;
        live_children(parent: JobId, group: ChildGroup, among: usize) -> Fut<'a, Vec<Summary>>;
        branch_children_page(filter: &'a BranchChildFilter, bounds: ChildBounds) -> Fut<'a, BranchChildPage>;
        branch_items(of: BranchItems<'a>) -> Fut<'a, Vec<ItemChild>>;
        payload_sizes(of: PayloadsOf<'a>, limit: usize) -> Fut<'a, Vec<u64>>;
        journal_end(id: JobId, limit: usize) -> Fut<'a, JournalEnd>;
        branch_ends(job: JobId, branch: BranchNo) -> Fut<'a, Option<ChildRange>>;
        branch_ranges(of: BranchRanges<'a>) -> Fut<'a, Vec<Vec<RangeChild>>>;
        holds(id: JobId) -> Fut<'a, Option<Holds>>;
        state_counts() -> Fut<'a, Vec<StateCount>>;
        throughput(filter: &'a ThroughputFilter) -> Fut<'a, Vec<Throughput>>;
        signal_waits(filter: &'a SignalWaitFilter) -> Fut<'a, Vec<SignalWaits>>;
        branch_times(job: JobId) -> Fut<'a, Vec<BranchTimes>>;
        backlog(cap: u64) -> Fut<'a, Vec<Backlog>>;
        transition_counts(kind: &'a str, limit: usize) -> Fut<'a, Vec<TransitionCount>>;
        workers() -> Fut<'a, Vec<WorkerView>>;
        queues() -> Fut<'a, Vec<QueueView>>;
        rate_limits() -> Fut<'a, Vec<LimitView>>;
        serial_keys(key: Option<&'a str>, limit: usize) -> Fut<'a, Vec<SerialView>>;
        schedules() -> Fut<'a, Vec<ScheduleView>>;
        firings(schedule: &'a str, limit: usize) -> Fut<'a, Vec<Firing>>;
        misses(schedule: &'a str, limit: usize) -> Fut<'a, Vec<Miss>>;
        audit(filter: &'a AuditFilter) -> Fut<'a, Vec<AuditEntry>>;
        schema() -> Fut<'a, SchemaState>;
        bytes() -> Fut<'a, u64>;
    }
    Control {
        act_on_jobs(now: Now, jobs: &'a [JobId], action: JobAction, actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>>;
        administer(now: Now, action: &'a AdminAction, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
        update_stages(now: Now, updates: &'a [StageUpdate], actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>>;
        fork(now: Now, forks: &'a [Fork], actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>>;
        record_audit(now: Now, action: &'a str, subject: &'a str, actor: &'a Actor) -> Fut<'a, ()>;
        record_audits(now: Now, records: &'a [AuditRecord]) -> Fut<'a, ()>;
    }
    Diagnose {
        database() -> Fut<'a, Database>;
        oldest_ready() -> Fut<'a, Vec<OldestReady>>;
        suspects(cap: u64) -> Fut<'a, u64>;
        unhandled_failures(cap: u64) -> Fut<'a, u64>;
        awaited_branches(limit: usize) -> Fut<'a, Vec<BranchHealth>>;
        orphaned_branches(limit: usize) -> Fut<'a, Vec<BranchHealth>>;
        miscounts() -> Fut<'a, Vec<Miscount>>;
    }
    Tokens {
        add_token(now: Now, token: &'a NewToken, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
        revoke_token(now: Now, token: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
        touch_token(now: Now, id: &'a str, unless_since: Time) -> Fut<'a, bool>;
        token(id: &'a str) -> Fut<'a, Option<StoredToken>>;
        tokens() -> Fut<'a, Vec<Token>>;
        registrant(worker: WorkerId) -> Fut<'a, Registrant>;
    }
    Users {
        add_user(now: Now, user: &'a NewUser, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
        change_user(now: Now, user: &'a str, change: &'a UserChange, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
        user(name: &'a str) -> Fut<'a, Option<StoredUser>>;
        users() -> Fut<'a, Vec<User>>;
        add_session(now: Now, session: &'a NewSession) -> Fut<'a, bool>;
        session(hash: &'a [u8; 32]) -> Fut<'a, Option<Session>>;
        touch_session(now: Now, used: &'a SessionUse) -> Fut<'a, bool>;
        end_session(hash: &'a [u8; 32]) -> Fut<'a, bool>;
        end_sessions(now: Now, user: &'a str, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
    }
    Operations {
        add_operation(now: Now, operation: &'a NewOperation, actor: &'a Actor) -> Fut<'a, bool>;
        update_operation(now: Now, id: OperationId, progress: &'a OperationProgress, ended: Option<&'a OperationEnd>) -> Fut<'a, bool>;
        request_stop(now: Now, id: OperationId, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
        operation(now: Now, id: OperationId) -> Fut<'a, Option<Operation>>;
        operations(now: Now, before: Option<OperationId>, limit: usize) -> Fut<'a, Vec<Operation>>;
        prune_operations(before: Time) -> Fut<'a, usize>;
    }
    Alerts {
        write_alerts(now: Now, changes: &'a [AlertChange]) -> Fut<'a, Vec<bool>>;
        open_alerts(limit: usize) -> Fut<'a, Vec<Alert>>;
        resolved_alerts(limit: usize) -> Fut<'a, Vec<Alert>>;
        test_alert(now: Now, rule: &'a str, message: &'a NewJob, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
        mute_alerts(now: Now, mute: &'a NewAlertMute, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
        unmute_alerts(now: Now, rule: &'a str, subject: Option<&'a str>, actor: &'a Actor) -> Fut<'a, ControlOutcome>;
        alert_mutes(now: Now) -> Fut<'a, Vec<AlertMute>>;
        prune_alerts(before: Time, limit: usize) -> Fut<'a, usize>;
        latest_misses() -> Fut<'a, Vec<(String, Miss)>>;
    }
    Backend {
        sibling() -> Fut<'a, Arc<dyn Store>>;
        limits() -> &'a Limits;
        concurrent_commits() -> usize;
        writes_in_turn() -> bool;
        schema_name() -> Option<&'a str>;
        runs_transactions() -> bool;
        gate_wait() -> Option<Duration>;
        liveness_dir() -> Option<PathBuf>;
        statements() -> u64;
    }
}
