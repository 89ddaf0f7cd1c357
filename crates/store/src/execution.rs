//! The verbs of a worker: how jobs enter the store, are claimed, and are written.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use windlass_model::{
    Change, ClaimNo, ClaimedJob, CommitOutcome, Epoch, Failure, JobClaim, JobId, KindVersion, NewJob,
    NewSignal, Outcome, Payload, Reason, State, SubmitOutcome, Time, WorkerId,
};

use crate::{Actor, Fut, Now, Tx, columns};

/// The pseudo-queue whose gate changes when a timer is set, and at every read while there are arrivals to admit.
pub const TIMER_GATE: &str = "";

/// The pseudo-queue whose gate changes when a worker gets a cancel request; see [`Execution::cancel_requests`].
pub const CANCEL_GATE: &str = "\u{1}";

/// The verbs by which jobs are submitted, claimed and written. Called by workers (claimer, submitter, committer, releaser, signaller,
/// waiters of the crate `windlass-runtime`) and by programs that submit and signal.
///
/// Each verb is one transaction unless its documentation says otherwise. A crash before the commit leaves nothing of it,
/// a crash after leaves all of it, and what a verb has returned is durable. All verbs but [`Execution::transact`] may be
/// repeated blindly after [`crate::Error::Unavailable`]: a repeat finds what the lost call did. All of them are safe to
/// call from many processes at once.
///
/// Jobs and changes of one call are processed in the order given, and each finds what those before it left. Free slots of
/// serial keys are handed over at the end of the call, after all of its jobs were processed. The jobs
/// that a change submits find its own job running, unless the change ends it.
pub trait Execution: Send + Sync + 'static {
    /// Registers a worker, with a lease of `worker.lease` from now.
    ///
    /// After it returns `true`, the worker may claim. `false`: the id is taken, draw another. A crash before leaves
    /// nothing. A crash after: the lease runs out and the worker is reaped, with nothing to return.
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool>;

    /// Submits jobs, all of them in one transaction, and returns what happened to each, in order.
    ///
    /// Jobs due now are in the ready set afterwards (or, with `claim_on_submit`, claimed by that worker under that claim
    /// number, if its lease is valid and they are `New`); later ones are among the timers. An id that exists with the same
    /// digest is `Repeated`; a key that exists is `Existing`; the second of two equal ids or keys in one call is answered
    /// likewise. One invalid job refuses the call with [`crate::Error::Invalid`] and nothing is written.
    ///
    /// A job with a serial key enters the key's line when it is due, and the ready set when it has one of the key's slots.
    /// A job with a unique name that another job has in its scope is answered as its [`windlass_model::Conflict`] says.
    /// Jobs with a serial key are never claimed at submit.
    ///
    /// A crash after the commit leaves the jobs submitted, and those claimed at submit to the reaper; the repeat of the
    /// call returns the same answers.
    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        claim_on_submit: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>>;

    /// Claims up to `request.limit` ready jobs of one queue, of the kinds named, by rank, in one transaction; jobs that
    /// another claim takes at the same moment are skipped.
    ///
    /// Cost is proportional to the batch, however many jobs there are. The claim is recorded under `request.number`; the
    /// same number again returns those jobs of it that are still claimed under it, and takes no more. Fails with
    /// [`crate::Error::Dead`] once the worker has been declared dead, and with [`crate::Error::Unavailable`] while its
    /// lease has run out (renew first). Claims named in `request.settled` are forgotten: the worker asserts that it has
    /// none of their jobs any more.
    ///
    /// What it charges to rate limits survives a loss of power once it has returned. The claim itself may be lost with the
    /// power: its worker is gone then too. After any other crash of the worker the reaper returns the jobs.
    fn claim<'a>(&'a self, now: Now, request: &'a ClaimRequest) -> Fut<'a, ClaimBatch>;

    /// The jobs that are still claimed under a claim, as the claim returned them, with the revision that they have now. Reads
    /// only, and claims nothing: a server that did not make the claim learns what its worker may write.
    fn claimed_jobs(&self, worker: WorkerId, number: ClaimNo) -> Fut<'_, Vec<ClaimedJob>>;

    /// Which of these claims of a worker still have a job, in any order. Reads only, and no payload: all of them cost one call.
    fn claims_with_jobs<'a>(&'a self, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, Vec<ClaimNo>>;

    /// Writes the changes of attempts: the only way an attempt writes. One transaction; each change is applied or refused
    /// on its own, and the outcomes are in order.
    ///
    /// A change is applied if its claim is recorded, the job's epoch and revision are those it names and the job has not
    /// ended; then the job's revision is one higher, and either everything that the change holds is written or nothing.
    /// If the revision is one higher already and this claim wrote it under this epoch, the outcome is `Committed` and
    /// nothing is written, whether the claim is still recorded or was settled. Otherwise the outcome is `Fenced`: a claim
    /// that the store does not know was lost by a restore or a standby, and another worker may have its jobs. A change
    /// that the database refuses for its data is found by bisection and is `Refused`; the rest of the batch commits. There
    /// is at most one change per job in a call.
    ///
    /// A change with a step moves the job's stage with its revision, records the transition, and consumes the signals it
    /// names. `Next` leaves the job claimed under the same epoch; if the job was paused or got a cancel request meanwhile,
    /// it is held instead and the outcome is `Halted`. `Wait` parks the job, or returns it to the ready set if its wait is
    /// over already: a signal that was delivered before is seen here, a later one sees the parked job. Children are
    /// submitted as by [`Execution::submit`]; the job waits for those that were (or, with `signal_child_ends`, gets a signal
    /// [`windlass_model::wait::CHILD_SIGNAL`] for each end of each child). The
    /// transaction that ends the last child, by whatever verb, wakes the parent.
    ///
    /// Children with a [`windlass_model::BranchPosition`] belong to a branch of the job, which the same or an earlier
    /// change opened. Their ends are counted there; the commit that brings the count to what the job watches for puts a
    /// signal [`windlass_model::branch::BRANCH_SIGNAL`] into its inbox, once for each watch. The order of that signal among
    /// others of the same moment is not promised.
    ///
    /// A crash before the commit leaves the jobs claimed with their old revision, for the reaper. A crash after leaves the
    /// changes applied. The signal to a branch's parent may follow in a transaction of its own; a crash before that one leaves
    /// it to [`crate::Maintenance::poll_branches`].
    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>>;

    /// Runs the caller's own writes and one change in one transaction: afterwards both are committed, or neither.
    ///
    /// The work returns the change that is to be committed with its writes, or `None` to roll them back; then the answer is
    /// `None` too. Otherwise the answer is the outcome as of [`Execution::commit`]: after `Committed` and `Halted`
    /// everything is written, after anything else nothing is. A change whose revision exists already is `Fenced` here, not
    /// `Committed`: the writes would be made twice.
    ///
    /// Unlike all other verbs it must not be repeated blindly. After [`crate::Error::Unavailable`] nobody knows whether it
    /// was committed. Commit another change under the same revision: if that is fenced, the first one was written. Then read the
    /// journal.
    ///
    /// On SQLite the work holds the only writer of the file, for a limited time, and on PostgreSQL a connection of its own. If
    /// the call is dropped, everything is rolled back.
    fn transact<'a>(&'a self, now: Now, work: Work<'a>) -> Fut<'a, Option<CommitOutcome>>;

    /// Delivers signals, all of them in one transaction, and returns what happened to each, in order.
    ///
    /// A signal is in the job's inbox afterwards, and stays there until a step that was shown it makes progress. If the
    /// job is parked and this completes its wait, the job is in the ready set. One that was delivered before (same job,
    /// name and dedup id) is not delivered again, whether it was consumed or not; so the repeat after a crash delivers
    /// nothing twice.
    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>>;

    /// Releases claimed jobs, without counting an attempt: their epoch is raised and they are ready again at their old
    /// rank. Those whose epoch is not the job's, or whose claim is not recorded, are skipped: another worker may have
    /// them. Returns the number of released jobs. A crash before leaves them to the reaper.
    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize>;

    /// Releases all jobs in these claims of a worker, as by [`Execution::release`], and forgets the claims. For claims that
    /// were recorded and whose answer was lost for good. Returns the number of released jobs.
    fn release_claims<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize>;

    /// Ends a worker's service: all jobs that are still in its claims are released as by [`Execution::release`]. Returns
    /// their number. After it the worker cannot claim any more.
    fn retire_worker<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize>;

    /// The cancel requests for attempts of a worker. Reads only.
    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>>;

    /// One number per queue (and [`TIMER_GATE`], [`CANCEL_GATE`]), which changes whenever the queue gains ready jobs (or a
    /// timer is set, or a cancel is requested). Read it before the claim it guards. Compare for equality only. Reads only.
    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>>;

    /// Returns the gates when one of them differs from what is `known` of it, or after this time. It may also return earlier,
    /// without a change: a store without [`crate::Backend::gate_wait`] answers at once. Other calls do not wait for it, and it can be
    /// dropped at any time. Reads only.
    fn wait_for_gates<'a>(
        &'a self,
        queues: &'a [String],
        _known: &'a [u64],
        _wait: Duration,
    ) -> Fut<'a, Vec<u64>> {
        self.gates(queues)
    }

    /// How jobs ended, in order: `None` for those that have not ended, and `Some(Gone)` for unknown ones. Reads only.
    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>>;
}

/// The caller's own writes, to be committed with a change; see [`Execution::transact`].
///
/// What a work is given, it owns and must have dropped when it returns: otherwise the transaction is rolled back, with
/// [`crate::Error::Misuse`].
pub enum Work<'a> {
    /// On either database, with the same statements.
    Tx(TxWork<'a>),
    /// On PostgreSQL: within a transaction on the store's database, with the search path of the URL's user.
    #[cfg(feature = "postgres")]
    Postgres(PostgresWork<'a>),
    /// On SQLite: within a transaction on the store's file.
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteWork<'a>),
}

/// See [`Work::Tx`].
pub type TxWork<'a> = AsyncWork<'a, Tx>;

/// See [`Work::Postgres`].
#[cfg(feature = "postgres")]
pub type PostgresWork<'a> = AsyncWork<'a, crate::postgres::PostgresTx>;

/// An async function from a `T` to the change that is to be committed.
pub struct AsyncWork<'a, T> {
    // Not the function itself: the lifetime of what it returns would then be fixed.
    run: Pin<Box<dyn Future<Output = Option<Change>> + Send + 'a>>,
    given: Arc<Mutex<Option<T>>>,
}

impl<'a, T: Send + 'a> AsyncWork<'a, T> {
    /// A work that calls this function.
    pub fn new<F, Fut>(run: F) -> AsyncWork<'a, T>
    where
        F: FnOnce(T) -> Fut + Send + 'a,
        Fut: Future<Output = Option<Change>> + Send + 'a,
    {
        let given = Arc::new(Mutex::new(None));
        let taken = Arc::clone(&given);
        let run = Box::pin(async move {
            let argument = taken.lock().unwrap_or_else(|e| e.into_inner()).take();
            run(argument.expect("`AsyncWork::run` gives it")).await
        });
        AsyncWork { run, given }
    }

    /// Calls the function.
    pub fn run(self, argument: T) -> impl Future<Output = Option<Change>> + Send + 'a {
        *self.given.lock().unwrap_or_else(|e| e.into_inner()) = Some(argument);
        self.run
    }
}

/// See [`Work::Sqlite`].
#[cfg(feature = "sqlite")]
pub type SqliteWork<'a> = Box<dyn FnOnce(&rusqlite::Connection) -> Option<Change> + Send + 'a>;

/// A worker to register.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// A fresh id.
    pub id: WorkerId,
    /// Its name for people, e.g. host and process number.
    pub name: String,
    /// The lock file that the worker's process holds while it lives; see [`crate::Backend::liveness_dir`].
    pub liveness_file: Option<String>,
    /// How long it may go without renewing.
    pub lease: Duration,
    /// What it serves, so that people can see why a job does not run.
    pub serves: Vec<Serves>,
    /// Who registered it, if a server did for a worker on another host: the id of the token. See [`crate::Tokens::registrant`].
    pub token: Option<String>,
}

/// A queue that a worker serves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Serves {
    /// The queue.
    pub queue: String,
    /// The number of its jobs that the worker runs at once.
    pub slots: usize,
    /// The kinds and versions.
    pub kinds: Vec<KindVersion>,
}

/// The claim under which jobs are inserted by a submit.
#[derive(Clone, Copy, Debug)]
pub struct ClaimOnSubmit {
    /// The worker.
    pub worker: WorkerId,
    /// Its number for this claim.
    pub number: ClaimNo,
}

/// A worker's request for jobs.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The worker.
    pub worker: WorkerId,
    /// The worker's number for this claim.
    pub number: ClaimNo,
    /// The queue to claim from.
    pub queue: String,
    /// The kinds and versions it serves.
    pub kinds: Arc<[KindVersion]>,
    /// The most jobs to claim.
    pub limit: usize,
    /// Whether to claim a suspect (see [`windlass_model::crash`]) instead of ordinary jobs; then `limit` is 1.
    pub solo: bool,
    /// If set, only this job is claimed, ahead of the jobs that rank before it. It must be ready, in this queue and of these
    /// kinds; suspects, which run alone, and jobs under a rate limit, which are paid for by rank, are not claimed this way.
    /// Then `limit` is 1. Not with `solo`.
    pub only: Option<JobId>,
    /// Claims of this worker with nothing left in them.
    pub settled: Vec<ClaimNo>,
}

/// The result of a claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimBatch {
    /// The jobs, by rank.
    pub jobs: Vec<ClaimedJob>,
    /// Whether there may be more such jobs to claim at once.
    pub more: bool,
    /// Whether suspects of these kinds wait in this queue.
    pub suspects: bool,
    /// When to claim again for jobs that wait for their rate limit.
    pub refill_at: Option<Time>,
    /// The store's clock at this claim.
    pub now: Time,
}

/// What happened to one signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the signal may not have been delivered"]
pub enum SignalOutcome {
    /// It is in the inbox.
    Delivered {
        /// Whether it woke the job.
        woke: bool,
    },
    /// It was delivered before. Nothing was written.
    Duplicate,
    /// The job has ended, in this state. Nothing was written.
    Ended(State),
    /// The inbox is full. Nothing was written.
    Full,
    /// No such job exists. Nothing was written.
    Unknown,
}

/// A request to an attempt to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelRequest {
    /// The job.
    pub job: JobId,
    /// The epoch of the attempt.
    pub epoch: Epoch,
    /// When the store ends the job without it.
    pub deadline_at: Time,
    /// Who cancelled the job.
    pub actor: Actor,
}

/// How a job ended.
#[derive(Clone, PartialEq, Debug)]
pub enum JobEnd {
    /// With an output.
    Done(Payload),
    /// It failed.
    Failed {
        /// Why.
        reason: Reason,
        /// The last error.
        failure: Failure,
    },
    /// It was cancelled.
    Cancelled(Failure),
    /// No such job exists; it was pruned or never submitted.
    Gone,
}

impl JobEnd {
    /// Returns the end of a job whose change with this outcome is committed, as [`Execution::job_ends`] would; `None` if the
    /// outcome does not end the job.
    pub fn of_committed(outcome: Outcome) -> Option<JobEnd> {
        match outcome {
            Outcome::Done(output) => Some(JobEnd::Done(output)),
            Outcome::Failed { reason, failure } => {
                Some(JobEnd::Failed { reason, failure: columns::kept_failure(&failure) })
            }
            Outcome::Cancelled(failure) => Some(JobEnd::Cancelled(columns::kept_failure(&failure))),
            Outcome::Retry { .. } | Outcome::Next | Outcome::Wait(_) => None,
        }
    }

    /// How many bytes its output has.
    pub(crate) fn output_bytes(&self) -> u64 {
        match self {
            JobEnd::Done(output) => output.bytes.len() as u64,
            JobEnd::Failed { .. } | JobEnd::Cancelled(_) | JobEnd::Gone => 0,
        }
    }

    /// Builds it from the columns of a job; `None` for a job that has not ended.
    pub(crate) fn from_parts(
        state: State,
        reason: Option<Reason>,
        failure: Option<Failure>,
        output: Option<Payload>,
    ) -> Option<JobEnd> {
        let failure = || failure.unwrap_or_else(|| Failure::stop("no error was kept"));
        match state {
            State::Done => Some(JobEnd::Done(output.unwrap_or_default())),
            State::Failed => {
                Some(JobEnd::Failed { reason: reason.unwrap_or(Reason::Stopped), failure: failure() })
            }
            State::Cancelled => Some(JobEnd::Cancelled(failure())),
            State::Scheduled | State::Ready | State::Running | State::Waiting => None,
        }
    }
}
