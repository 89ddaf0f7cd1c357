//! The first door: the verbs by which work moves.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_model::{
    BranchNo, Change, ClaimNo, ClaimedJob, CommitOutcome, Epoch, Failure, JobClaim, JobId, KindVersion,
    Limits, NewJob, NewSignal, Payload, Reason, State, SubmitOutcome, Time, WorkerId,
};

use crate::{Actor, Control, Error, Inspect};

/// A verb under way.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The moment a verb takes place: `None` is the database's own clock, which is what everything but a test
/// passes.
pub type Now = Option<Time>;

/// The pseudo-queue whose gate moves when a timer is set, and which is different while there is something to admit.
pub const TIMER_GATE: &str = "";

/// The pseudo-queue whose gate moves when a worker is to be told something; see [`Store::cancel_requests`].
pub const CANCEL_GATE: &str = "\u{1}";

/// The verbs by which work moves. All of them are safe to call from many processes at once, and all may be
/// repeated blindly after [`Error::Unavailable`]: a repeat finds what the lost call did.
///
/// Jobs and changes of one call are taken one after the other in the order given, and each finds what those before it left.
/// Free slots of serial keys are handed over at the end of the call, when all of its jobs stand where it leaves them. The jobs
/// that a change submits find its own job running, unless the change ends it.
pub trait Store: Send + Sync + 'static {
    /// Takes a worker on, with a lease of `worker.lease` from now.
    ///
    /// After it returns `true`, the worker may claim. `false`: the name is taken, draw another. A crash
    /// before: nothing is there. A crash after: the lease runs out and the worker is reaped, with nothing
    /// to return.
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool>;

    /// Puts jobs in, all of them in one transaction, and says of each what became of it, in order.
    ///
    /// Jobs due now are in the ready set afterwards (or, with `born`, claimed by that worker under that
    /// claim number, if its lease is good and they are `New`); later ones are among the timers. An id that
    /// is there with the same digest is `Repeated`; a key that is there is `Existing`; the second of two
    /// equal ids or keys in one call is answered likewise. One invalid job refuses the call with
    /// [`Error::Invalid`] and nothing is written.
    ///
    /// A job with a serial key takes its place in the key's line when it is due, and enters the ready set when it has
    /// one of the key's slots. A job with a unique name that another job has in its scope is answered as its
    /// [`windlass_model::Conflict`] says. Jobs with a serial key are never born claimed.
    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        born: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>>;

    /// Takes up to `ask.limit` ready jobs of one queue, of the kinds named, by rank, in one transaction;
    /// jobs that another claim is taking at the same moment are skipped.
    ///
    /// Cost is proportional to the batch, however many jobs there are. The claim is recorded under
    /// `ask.number`; the same number again is answered with those jobs of it that are still claimed under
    /// it, and takes no more. Fails with [`Error::Dead`] once the worker has been declared dead, and
    /// with [`Error::Unavailable`] while its lease has run out (renew first). Claims named in
    /// `ask.settled` are forgotten: the worker says that none of their jobs is still with it.
    ///
    /// What it charges to rate limits outlives a loss of power once it has returned; what it takes need not, since the worker
    /// does not outlive it either.
    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch>;

    /// Writes what attempts ask for: the only way an attempt writes. One transaction; each change is
    /// applied or refused on its own, answers in order.
    ///
    /// A change is applied if its claim is recorded, the job's epoch and revision are those it names and the job has not ended;
    /// then the job's revision is one higher, and of everything the change asks either all or nothing is
    /// there. If the revision is one higher already and this claim wrote it under this epoch, the answer is `Committed` and
    /// nothing is written, whether the claim is recorded still or was settled. Otherwise `Fenced`: a claim that the store
    /// does not know was lost by a restore or a standby, and another worker may have its jobs. A change that the database refuses for its data is found
    /// by bisection and answered `Refused`; its batch-mates commit. There is at most one change per job in
    /// a call.
    ///
    /// A change with a step moves the job's stage with its revision, records the transition, and consumes the signals it
    /// names. `Next` leaves the job claimed under the same epoch; if the job was paused or told to end meanwhile, it is
    /// set aside instead and the answer is `Halted`. `Wait` parks the job, or puts it back into the ready set if what it
    /// waits for is there: a signal that was delivered before is seen here, a later one sees the parked job. Children
    /// are put in as by [`Store::submit`]; the job waits for those that were (or, with `told`, finds a signal
    /// [`windlass_model::wait::CHILD_SIGNAL`] in its inbox for each that has ended, however often it does). Whoever ends a child, here or at another
    /// door, wakes the parent if it was the last.
    ///
    /// Children with a [`windlass_model::BranchPosition`] belong to a branch of the job, which the same or an earlier change opened.
    /// Their ends are counted there; whoever's commit brings the count to what the job watches for puts a signal
    /// [`windlass_model::branch::BRANCH_SIGNAL`] into its inbox, once for each watch. Where it stands there among signals of the same
    /// moment is not promised.
    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>>;

    /// Runs writes of the caller's own and one change in one transaction: both are there afterwards, or neither.
    ///
    /// The work answers the change that is to be committed with its writes, or `None` to undo them; that is the answer
    /// then. Otherwise the answer is that of [`Store::commit`]: after `Committed` and `Halted` everything is there, after
    /// anything else nothing is. A change whose revision is there already is `Fenced` here, not `Committed`: the writes
    /// would be made twice.
    ///
    /// Unlike all other verbs it must not be repeated blindly. After [`Error::Unavailable`] nobody knows whether it was
    /// committed: commit something else under the same revision, which settles it, and read the journal.
    ///
    /// On SQLite the work holds the only writer of the file, and on PostgreSQL a connection of its own.
    fn transact<'a>(&'a self, now: Now, work: Work<'a>) -> Fut<'a, Option<CommitOutcome>>;

    /// Delivers signals, all of them in one transaction, and says of each what became of it, in order.
    ///
    /// A signal is in the job's inbox afterwards, and stays there until a step that was shown it makes progress. If the
    /// job is parked and this completes what it waits for, it is in the ready set. One that was delivered before (same
    /// job, name and dedup id) is not delivered again, whether it was consumed or not.
    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>>;

    /// Lengthens a worker's lease to `beat.lease` from now, and says whether other workers' leases have run
    /// out. A worker declared dead stays dead. Forgets settled claims and the aloneness of `beat.joined`
    /// (claims that ran alone and no longer do).
    fn renew<'a>(&'a self, now: Now, beat: &'a RenewRequest) -> Fut<'a, Renewal>;

    /// Declares workers dead (those named, and with `sweep.lapsed` those whose lease has run out) and
    /// returns the jobs in their claims to the ready set as suspects, or fails them as poison, at most
    /// `sweep.limit` claims a call. Every returned job's epoch is raised. Call again while `more`.
    ///
    /// After an outage of the database every lease looks run out: whoever calls judges leases only after
    /// having renewed without a gap for one full lease itself.
    fn reap<'a>(&'a self, now: Now, sweep: &'a ReapRequest) -> Fut<'a, ReapReport>;

    /// Hands claimed jobs back, without counting an attempt: their epoch is raised and they are ready
    /// again where they stood in line. Those whose epoch is not the job's, or whose claim is not recorded, are passed
    /// over: somebody else may hold them. Answers how many were handed back.
    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize>;

    /// Hands back whatever is in these claims of a worker, as by [`Store::release`], and forgets them. For claims that
    /// were recorded and whose answer was lost for good. Answers how many jobs were handed back.
    fn release_claims<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize>;

    /// Ends a worker's service: whatever is in its claims still is handed back as by [`Store::release`].
    fn retire_worker<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize>;

    /// Fires up to `limit` due timers: scheduled jobs become ready, jobs past their deadline fail, jobs that were told
    /// to end and did not are ended. Also puts in up to `limit` jobs that were submitted in transactions of others, and
    /// fires schedules: a tick's job is submitted, and the schedule moved on, in one transaction.
    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport>;

    /// Which of a worker's attempts were told to end.
    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>>;

    /// Looks for serial keys with a free slot and jobs in line, and hands the slots over; and for parked jobs that have
    /// what they wait for, and wakes them. Nothing should be found: this is the backstop for what a crash between two
    /// transactions, or a hand in the database, may leave. Answers how many jobs entered the ready set.
    fn repair(&self, now: Now) -> Fut<'_, usize>;

    /// Looks at up to `limit` branches that are due to be looked at: parents that were not told what they wait for are told,
    /// children are counted anew where nothing moves, and those that are in no place at all are put back. Each branch is
    /// looked at by one caller. Says which ones are to be cut: whoever is told cancels their live children, and is asked
    /// again if there are some left after [`CANCEL_AGAIN`].
    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport>;

    /// One number per queue (and [`TIMER_GATE`]), which changes whenever the queue gained ready jobs (or a
    /// timer was set). Read it before the claim it guards. Compare for equality only.
    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>>;

    /// How those of the jobs that have ended did end; `None` for the others and `Some(Gone)` for unknown
    /// ones, in order.
    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>>;

    /// The same store through connections of its own, for use from another thread and runtime; what one
    /// thread blocks does not hold up the other.
    fn sibling(&self) -> Fut<'_, Arc<dyn Store>>;

    /// The second door.
    fn inspect(&self) -> &dyn Inspect;

    /// The third door.
    fn control(&self) -> &dyn Control;

    /// What may be submitted.
    fn limits(&self) -> &Limits;

    /// Where a worker on this machine may keep a lock file by which others here see at once that it died;
    /// the text names the place so that only processes that mean the same file compare it.
    fn liveness_dir(&self) -> Option<std::path::PathBuf>;

    /// Statements sent to the database by this handle since it was opened, transaction brackets included.
    fn statements(&self) -> u64;
}

/// Writes of the caller's own, to be committed with a change; see [`Store::transact`].
pub enum Work<'a> {
    /// On PostgreSQL: within a transaction on the store's database, with the search path of the URL's user.
    #[cfg(feature = "postgres")]
    Postgres(PostgresWork<'a>),
    /// On SQLite: within a transaction on the store's file.
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteWork<'a>),
}

/// See [`Work::Postgres`].
#[cfg(feature = "postgres")]
pub type PostgresWork<'a> = Box<
    dyn for<'t> FnOnce(
            &'t tokio_postgres::Transaction<'t>,
        ) -> Pin<Box<dyn Future<Output = Option<Change>> + Send + 't>>
        + Send
        + 'a,
>;

/// See [`Work::Sqlite`].
#[cfg(feature = "sqlite")]
pub type SqliteWork<'a> = Box<dyn FnOnce(&rusqlite::Connection) -> Option<Change> + Send + 'a>;

/// A worker that enlists.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// A fresh name.
    pub id: WorkerId,
    /// What people know it by, e.g. host and process number.
    pub name: String,
    /// The lock file that the worker's process holds while it lives; see [`Store::liveness_dir`].
    pub liveness_file: Option<String>,
    /// How long it may go without renewing.
    pub lease: Duration,
    /// What it serves, so that people can be told why a job does not run.
    pub serves: Vec<Serves>,
}

/// A queue that a worker serves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Serves {
    /// The queue.
    pub queue: String,
    /// How many of its jobs the worker runs at once.
    pub slots: usize,
    /// Which kinds and versions.
    pub kinds: Vec<KindVersion>,
}

/// By whom jobs are claimed as they are submitted.
#[derive(Clone, Copy, Debug)]
pub struct ClaimOnSubmit {
    /// The worker.
    pub worker: WorkerId,
    /// Its number for this claim.
    pub number: ClaimNo,
}

/// What a worker wants to claim.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who asks.
    pub worker: WorkerId,
    /// The worker's number for this claim.
    pub number: ClaimNo,
    /// From which queue.
    pub queue: String,
    /// Which kinds and versions it serves.
    pub kinds: Arc<[KindVersion]>,
    /// How many at most.
    pub limit: usize,
    /// Whether to take a suspect (see [`windlass_model::crash`]) instead of ordinary jobs; then `limit` is 1.
    pub solo: bool,
    /// Claims of this worker with nothing left in them.
    pub settled: Vec<ClaimNo>,
}

/// What a claim brought.
#[derive(Clone, Debug, Default)]
pub struct ClaimBatch {
    /// The jobs, by rank.
    pub jobs: Vec<ClaimedJob>,
    /// Whether there may be more of the same to claim at once.
    pub more: bool,
    /// Whether suspects of these kinds wait in this queue.
    pub suspects: bool,
    /// When to ask again for jobs that wait for their rate limit.
    pub refill_at: Option<Time>,
    /// The store's clock at this claim.
    pub now: Time,
}

/// What became of one signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// There are as many signals in the inbox as there may be. Nothing was written.
    Full,
    /// There is no such job. Nothing was written.
    Unknown,
}

/// An attempt that was told to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelRequest {
    /// The job.
    pub job: JobId,
    /// The epoch of the attempt.
    pub epoch: Epoch,
    /// When it is ended from outside.
    pub deadline_at: Time,
    /// Who wants it to end.
    pub actor: Actor,
}

/// A renewal.
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// Who renews.
    pub worker: WorkerId,
    /// How long from now the lease is to run.
    pub lease: Duration,
    /// Claims of this worker with nothing left in them.
    pub settled: Vec<ClaimNo>,
    /// Claims that ran alone and do so no longer.
    pub solo_ended: Vec<ClaimNo>,
}

/// The answer to a renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The lease runs on.
    Held {
        /// Whether there are workers to reap.
        lapsed: bool,
        /// The claims that are recorded for this worker, so that it can find those it does not know of, and
        /// those of its own that the store has lost.
        claims: Vec<ClaimNo>,
    },
    /// The worker was declared dead: all its claims are void, and it must enlist anew.
    Lost,
}

/// What a reaper asks for.
#[derive(Clone, Debug)]
pub struct ReapRequest {
    /// Workers known to be dead, whatever their lease says.
    pub dead: Vec<WorkerId>,
    /// Whether those whose lease has run out are dead.
    pub lapsed: bool,
    /// How many claims to walk at most.
    pub limit: usize,
    /// How many deaths alone make a job poison.
    pub crashes: u16,
}

/// What a reaper did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReapReport {
    /// Workers declared dead by this call.
    pub workers: Vec<WorkerId>,
    /// Jobs that went back to the ready set.
    pub returned: usize,
    /// Jobs that failed as poison.
    pub poisoned: usize,
    /// Whether claims of dead workers are left.
    pub more: bool,
}

/// What [`Store::fire_timers`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimerReport {
    /// Jobs that became ready.
    pub woken: usize,
    /// Jobs that failed because their deadline passed.
    pub expired: usize,
    /// Jobs that were told to end, did not in time, and were ended.
    pub cancelled: usize,
    /// Jobs put in that were submitted in transactions of others.
    pub admitted: usize,
    /// Jobs submitted by schedules.
    pub fired: usize,
    /// When the next timer is due; in the past if the limit cut this call short.
    pub next_at: Option<Time>,
    /// The store's clock at this call.
    pub now: Time,
}

/// After what time a branch that is cut and has live children is cut again.
pub const CANCEL_AGAIN: Duration = Duration::from_secs(15);

/// What [`Store::poll_branches`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollReport {
    /// Branches that were looked at.
    pub polled: usize,
    /// Those whose parent was told something.
    pub notified: usize,
    /// Those that were counted wrong.
    pub corrected: usize,
    /// Children that were put back.
    pub redelivered: usize,
    /// Branches whose live children are to be cancelled.
    pub to_cancel: Vec<(JobId, BranchNo)>,
    /// When the next one is due; in the past if the limit cut this call short.
    pub next_at: Option<Time>,
    /// The store's clock at this call.
    pub now: Time,
}

/// How a job ended.
#[derive(Clone, PartialEq, Debug)]
pub enum JobEnd {
    /// With an output.
    Done(Payload),
    /// Badly.
    Failed {
        /// Why.
        reason: Reason,
        /// The last error.
        failure: Failure,
    },
    /// By request.
    Cancelled(Failure),
    /// There is no such job; it was pruned or never submitted.
    Gone,
}

impl JobEnd {
    /// Puts together what a backend stores; `None` for a job that has not ended.
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
