//! The verbs that keep the store in order: leases, lost workers, timers, branches, old jobs.

use std::time::Duration;

use windlass_model::{BranchNo, ClaimNo, JobId, ProgressReport, State, Time, WorkerId};

use crate::{Fut, Now};

/// The verbs that every worker calls on a clock of its own, whatever it runs: renewer, reaper, timekeeper, branch poller and
/// pruner of the crate `windlass-runtime`. [`Maintenance::prune`] is also called for people.
///
/// Each call is a bounded number of transactions, each complete in itself: a crash between two of them leaves the rest for
/// the next call of any worker. All verbs may be repeated blindly, and called from many processes at once.
pub trait Maintenance: Send + Sync + 'static {
    /// Extends a worker's lease to `request.lease` from now, and returns whether other workers' leases have run out.
    ///
    /// One transaction. A worker that was declared dead stays dead: after [`Renewal::Lost`] all its claims are void.
    /// Forgets settled claims, marks the claims in `request.solo_ended` as no longer running alone, and keeps `request.progress`.
    fn renew<'a>(&'a self, now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal>;

    /// Declares workers dead (those named, and with `request.lapsed` those whose lease has run out) and returns the jobs in
    /// their claims to the ready set as suspects, or fails them as poison, at most `request.limit` claims a call. The epoch
    /// of every returned job is raised. Call again while `more`.
    ///
    /// A crash after a worker was declared dead leaves its claims for the next reap, whoever calls it.
    ///
    /// After an outage of the database every lease looks expired. A caller must judge leases only after it has itself
    /// renewed without a gap for one full lease.
    fn reap<'a>(&'a self, now: Now, request: &'a ReapRequest) -> Fut<'a, ReapReport>;

    /// Fires up to `limit` due timers: scheduled jobs become ready, jobs past their deadline fail, jobs whose cancel request
    /// has run out of grace are ended. Also admits up to `limit` arrivals (jobs that were submitted in transactions of
    /// the caller's own), and fires schedules: a tick's job is submitted, and the schedule advanced, in one transaction.
    ///
    /// A timer is deleted in the transaction that does its work, so a crash loses none and fires none twice.
    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport>;

    /// Finds serial keys with a free slot and jobs in line, and hands the slots over; finds parked jobs whose wait is over,
    /// and wakes them. Normally it finds nothing: it repairs what a crash between two transactions, or a manual change of
    /// the database, may leave. Returns the number of jobs that entered the ready set.
    fn repair(&self, now: Now) -> Fut<'_, usize>;

    /// Polls up to `limit` branches that are due: signals parents whose watch is met and who were not signalled, counts
    /// children again where nothing moves, and returns lost children to the ready set: those that are live, but neither ready, scheduled, parked, held nor claimed. One caller
    /// polls a branch at a time. [`PollReport::to_cancel`] names branches whose live children the caller must cancel; a
    /// branch that still has some is named again after [`CANCEL_AGAIN`], so a crash of the caller loses no cancel.
    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport>;

    /// Deletes ended jobs, with everything that is kept of them; see [`Prune`]. Reads a bounded number of jobs a call: call
    /// again with the returned `after` until it is `None`.
    fn prune<'a>(&'a self, now: Now, prune: &'a Prune) -> Fut<'a, Pruned>;

    /// Adds up to `request.limit` rows of what transactions have recorded about ends of jobs and waits for signals to the sums per
    /// minute, day and branch that [`crate::Inspect`] shows; adds old minutes to their hours, and deletes old sums. Call again
    /// while the report says that there is more.
    ///
    /// One transaction: whoever reads meanwhile sees each row once, recorded or summed up. While one caller sums up, another does
    /// nothing.
    fn roll_up<'a>(&'a self, request: &'a RollUpRequest) -> Fut<'a, RollUpReport>;

    /// Deletes up to `limit` sessions of users that have expired, and returns how many. Call again while that is as many as the limit.
    fn prune_sessions(&self, now: Now, limit: usize) -> Fut<'_, usize>;
}

/// A renewal.
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// The worker that renews.
    pub worker: WorkerId,
    /// The length of the lease from now.
    pub lease: Duration,
    /// Claims of this worker with nothing left in them.
    pub settled: Vec<ClaimNo>,
    /// Claims that ran alone and no longer do.
    pub solo_ended: Vec<ClaimNo>,
    /// What the worker's attempts have reported, in place of all that it reported before; `None` if nothing has changed.
    pub progress: Option<Vec<ProgressReport>>,
}

/// The answer to a renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The lease was extended.
    Held {
        /// Whether other workers' leases have run out.
        lapsed: bool,
        /// The claims that are recorded for this worker, so that it finds those it does not know, and those
        /// of its own that the store has lost.
        claims: Vec<ClaimNo>,
    },
    /// The worker was declared dead: all its claims are void, and it must register under a new id.
    Lost,
}

/// What to reap.
#[derive(Clone, Debug)]
pub struct ReapRequest {
    /// Workers known to be dead, whatever their lease says.
    pub dead: Vec<WorkerId>,
    /// Whether to declare those dead whose lease has run out.
    pub lapsed: bool,
    /// The most claims to walk.
    pub limit: usize,
    /// The number of workers that a job may kill while it runs alone; then it fails as poison.
    pub max_crashes: u16,
}

/// The result of a reap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReapReport {
    /// Workers declared dead by this call.
    pub workers: Vec<WorkerId>,
    /// Jobs that returned to the ready set.
    pub returned: usize,
    /// Jobs that failed as poison.
    pub poisoned: usize,
    /// Whether claims of dead workers are left.
    pub more: bool,
}

/// The result of [`Maintenance::fire_timers`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimerReport {
    /// Jobs that became ready.
    pub woken: usize,
    /// Jobs that failed because their deadline passed.
    pub expired: usize,
    /// Jobs that had a cancel request, did not end in time, and were ended.
    pub cancelled: usize,
    /// Arrivals that were admitted.
    pub admitted: usize,
    /// Jobs submitted by schedules.
    pub fired: usize,
    /// When the next timer is due; in the past if this call reached its limit.
    pub next_at: Option<Time>,
    /// The store's clock at this call.
    pub now: Time,
}

/// How long until a branch whose children are being cancelled is named again while it has live children: longer than the
/// grace that a cancel usually gives.
pub const CANCEL_AGAIN: Duration = Duration::from_secs(15);

/// The result of [`Maintenance::poll_branches`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollReport {
    /// Branches that were polled.
    pub polled: usize,
    /// Those whose parent got a signal.
    pub notified: usize,
    /// Those whose counts were corrected.
    pub corrected: usize,
    /// Children that were returned to the ready set.
    pub redelivered: usize,
    /// Branches whose live children are to be cancelled.
    pub to_cancel: Vec<(JobId, BranchNo)>,
    /// When the next one is due; in the past if this call reached its limit.
    pub next_at: Option<Time>,
    /// The store's clock at this call.
    pub now: Time,
}

/// Which jobs to delete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prune {
    /// Ended in this state.
    pub state: State,
    /// Before this time.
    pub before: Time,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only after this one, in the order of ids: what the previous call returned.
    pub after: Option<JobId>,
    /// The most jobs to read.
    pub limit: usize,
}

/// What to sum up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RollUpRequest {
    /// The most rows of each sort to take.
    pub limit: usize,
    /// Minutes that began before this time are added to their hours; `None` keeps all.
    pub hours_before: Option<Time>,
    /// Sums of hours and days that began before this time are deleted; `None` keeps all.
    pub delete_before: Option<Time>,
}

/// The result of [`Maintenance::roll_up`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RollUpReport {
    /// Recorded rows that were summed up.
    pub rows: usize,
    /// Minutes that were added to their hours.
    pub minutes: usize,
    /// Sums that were deleted.
    pub deleted: usize,
    /// Whether there may be more to do.
    pub more: bool,
}

/// The result of [`Maintenance::prune`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pruned {
    /// Jobs deleted.
    pub jobs: usize,
    /// Jobs that are old enough and stay: their parent existed before the call and is not done, or they still hold a unique name.
    pub kept: usize,
    /// Where to continue; `None` after the last job.
    pub after: Option<JobId>,
}
