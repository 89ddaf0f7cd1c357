//! What the store keeps: its maps, their rows, and where a job is.

use std::collections::HashMap;

use windlass_model::{
    BranchNo, JournalEntry, Location, ProgressReport, RateLimit, rank::rank, rate::BucketLevel, state,
};

use super::{branch::StoredBranch, rollups::Rollups, schedule::StoredSchedule, users::StoredSession, *};
use crate::Serves;

/// All that is kept.
#[derive(Default)]
pub(super) struct Inner {
    pub(super) jobs: BTreeMap<JobId, Row>,
    /// Jobs by kind and key.
    pub(super) keys: HashMap<(String, String), JobId>,
    /// The ready set, by lane and rank.
    pub(super) ready: BTreeSet<ReadyKey>,
    pub(super) timers: BTreeSet<(Time, JobId, Timer)>,
    pub(super) claims: BTreeMap<(WorkerId, ClaimNo), Claim>,
    pub(super) workers: BTreeMap<WorkerId, Worker>,
    /// The versions of gates, by queue.
    pub(super) gates: HashMap<String, u64>,
    /// Every queue that was ever named.
    pub(super) queues: BTreeSet<String>,
    /// How many jobs of each serial key run at once.
    pub(super) serial_slots: BTreeMap<String, u32>,
    /// The jobs that have a slot of a serial key.
    pub(super) slot_holders: BTreeSet<(String, JobId)>,
    /// The jobs that wait for one, by key and position.
    pub(super) serial_waiting: BTreeSet<(String, Time, JobId)>,
    /// Serial keys whose slots or waiting jobs this verb has changed.
    pub(super) unsettled: BTreeSet<String>,
    /// The job that last took a unique name, by kind and name. Whether it still holds the name is decided when another
    /// job wants it.
    pub(super) unique_names: HashMap<(String, String), JobId>,
    /// Rate limits by name.
    pub(super) buckets: BTreeMap<String, Bucket>,
    pub(super) pauses: BTreeMap<JobId, Pause>,
    pub(super) queue_pauses: BTreeMap<String, Pause>,
    /// The cancel requests of running jobs.
    pub(super) pending_cancels: BTreeMap<JobId, PendingCancel>,
    pub(super) audit: Vec<AuditEntry>,
    pub(super) tokens: Vec<crate::StoredToken>,
    /// By name.
    pub(super) users: BTreeMap<String, crate::StoredUser>,
    /// By the hash of the secret.
    pub(super) sessions: BTreeMap<[u8; 32], StoredSession>,
    pub(super) operations: BTreeMap<crate::OperationId, crate::Operation>,
    /// Alerts, and mutes of them, by rule and subject.
    pub(super) alerts: BTreeMap<(String, String), crate::Alert>,
    pub(super) alert_mutes: BTreeMap<(String, Option<String>), crate::AlertMute>,
    pub(super) schedules: BTreeMap<String, StoredSchedule>,
    pub(super) branches: BTreeMap<(JobId, BranchNo), StoredBranch>,
    pub(super) rollups: Rollups,
}

/// A job.
pub(super) struct Row {
    /// The job as it was submitted. People change its priority and version, a revival its deadline, and a promotion
    /// how many items it represents.
    pub(super) new: NewJob,
    /// `None` while it is live: then where it is decides its state.
    pub(super) final_state: Option<State>,
    pub(super) reason: Option<Reason>,
    pub(super) failure: Option<Failure>,
    pub(super) output: Option<Payload>,
    pub(super) epoch: Epoch,
    pub(super) rev: Rev,
    /// The epoch under which `rev` was written.
    pub(super) rev_epoch: Epoch,
    /// The claim under which it was; the worker is `worker`.
    pub(super) rev_claim: ClaimNo,
    pub(super) attempts: u32,
    pub(super) retry_counts: Vec<u32>,
    pub(super) worker_deaths: u16,
    pub(super) solo_crashes: u16,
    /// Set by a reap, cleared by a commit.
    pub(super) suspect: bool,
    pub(super) hold: Hold,
    /// Its position among the jobs that wait for its serial key: when it was first due.
    pub(super) serial_position: Time,
    pub(super) worker: Option<WorkerId>,
    pub(super) submitted_at: Time,
    pub(super) due_at: Time,
    pub(super) started_at: Option<Time>,
    pub(super) finished_at: Option<Time>,
    pub(super) history: Vec<Attempt>,
    pub(super) stage: Option<String>,
    /// The revision that led to the stage.
    pub(super) stage_rev: Rev,
    pub(super) steps_since_wait: u32,
    pub(super) data: Option<Payload>,
    /// What it waits for, or waited for when it last made progress.
    pub(super) wait: Option<WaitCondition>,
    pub(super) wait_until: Option<Time>,
    pub(super) parked: bool,
    /// When it was parked last.
    pub(super) parked_at: Option<Time>,
    /// How many children of the revision `stage_rev` have not ended.
    pub(super) pending_children: u32,
    pub(super) transitions: Vec<Transition>,
    pub(super) inbox: Vec<Signal>,
    /// The names and dedup ids of all signals that were ever delivered.
    pub(super) delivered_signals: BTreeSet<(String, String)>,
    /// Entries by sequence number.
    pub(super) journal: BTreeMap<i32, JournalEntry>,
    pub(super) context: BTreeMap<String, Payload>,
    /// Whether it has something to undo.
    pub(super) has_undo: bool,
    /// How it ends once its undos have run, if it is being unwound.
    pub(super) unwind: Option<Box<Unwind>>,
    /// How many items of a block are done and counted.
    pub(super) items_done: u32,
}

/// A lane of the ready set.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Lane {
    pub(super) queue: String,
    pub(super) kind: String,
    pub(super) version: i32,
    /// The rate limit that pays for its jobs.
    pub(super) limit: Option<String>,
    /// Whether it holds suspects.
    pub(super) suspect: bool,
}

/// Where a job is in the ready set: lane, rank and id.
pub(super) type ReadyKey = (Lane, i64, JobId);

/// What a timer is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    /// Makes a job ready.
    Wake,
    /// Fails a job whose deadline has passed.
    Deadline,
    /// Ends a job whose cancel was requested and that has not ended.
    Cancel,
}

/// Whether a pause or a cancel request keeps a job from being claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    None,
    /// It is held as soon as it would enter the ready set.
    Pending,
    /// It is held: otherwise it would be in the ready set, or would wait for its serial key.
    Held,
}

/// A cancel request to a running job.
pub(super) struct PendingCancel {
    pub(super) request: CancelRequest,
    /// The worker that runs the job.
    pub(super) worker: WorkerId,
}

/// A rate limit and its level.
pub(super) struct Bucket {
    pub(super) limit: RateLimit,
    pub(super) lifted: bool,
    pub(super) level: BucketLevel,
}

/// The jobs that one claim took.
pub(super) struct Claim {
    pub(super) jobs: Vec<(JobId, Epoch)>,
    /// Whether its job runs alone.
    pub(super) solo: bool,
    pub(super) claimed_at: Time,
}

pub(super) struct Worker {
    pub(super) name: String,
    pub(super) liveness_file: Option<String>,
    pub(super) lease: Lease,
    pub(super) serves: Vec<Serves>,
    pub(super) progress: Vec<ProgressReport>,
    pub(super) token: Option<String>,
    /// When it was declared dead.
    pub(super) lost_at: Option<Time>,
}

impl Row {
    /// A job that was just submitted.
    pub(super) fn new(new: NewJob, now: Time, due_at: Time) -> Row {
        Row {
            final_state: None,
            reason: None,
            failure: None,
            output: None,
            epoch: Epoch(0),
            rev: Rev(0),
            rev_epoch: Epoch(-1),
            rev_claim: ClaimNo(0),
            attempts: 0,
            retry_counts: Vec::new(),
            worker_deaths: 0,
            solo_crashes: 0,
            suspect: false,
            hold: Hold::None,
            serial_position: due_at,
            worker: None,
            submitted_at: now,
            due_at,
            started_at: None,
            finished_at: None,
            history: Vec::new(),
            stage: new.stage.clone(),
            stage_rev: Rev(0),
            steps_since_wait: 0,
            data: None,
            wait: None,
            wait_until: None,
            parked: false,
            parked_at: None,
            pending_children: 0,
            transitions: Vec::new(),
            inbox: Vec::new(),
            delivered_signals: BTreeSet::new(),
            journal: BTreeMap::new(),
            context: BTreeMap::new(),
            has_undo: false,
            unwind: None,
            items_done: 0,
            new,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.final_state.is_none()
    }

    fn lane(&self) -> Lane {
        Lane {
            queue: self.new.queue.clone(),
            kind: self.new.kind.kind.clone(),
            version: self.new.kind.version,
            limit: self.new.settings.rate.as_ref().map(|charge| charge.limit.clone()),
            suspect: self.suspect,
        }
    }

    pub(super) fn ready_key(&self) -> ReadyKey {
        (self.lane(), rank(self.due_at, self.new.priority), self.new.id)
    }

    pub(super) fn serial_key(&self) -> Option<&str> {
        self.new.settings.serial.as_ref().map(|serial| serial.key.as_str())
    }

    /// Whether it keeps its serial slot while it waits.
    pub(super) fn keeps_slot(&self) -> bool {
        self.new.settings.serial.as_ref().is_some_and(|serial| serial.keeps_slot)
    }

    /// The signals in its inbox that are not marked unreadable.
    pub(super) fn readable_signals(&self) -> impl Iterator<Item = &Signal> {
        self.inbox.iter().filter(|signal| signal.unreadable.is_none())
    }
}

impl Inner {
    /// A job that exists.
    pub(super) fn row(&self, id: JobId) -> &Row {
        self.jobs.get(&id).expect("the job exists")
    }

    /// A job that exists.
    pub(super) fn row_mut(&mut self, id: JobId) -> &mut Row {
        self.jobs.get_mut(&id).expect("the job exists")
    }

    pub(super) fn is_ready(&self, id: JobId) -> bool {
        self.ready.contains(&self.row(id).ready_key())
    }

    pub(super) fn state(&self, id: JobId) -> State {
        let row = self.row(id);
        let location = Location {
            is_parked: row.parked,
            is_ready: row.hold == Hold::Held || self.is_ready(id) || self.waits_for_serial_key(id),
            is_scheduled: self.timers.contains(&(row.due_at, id, Timer::Wake)),
        };
        row.final_state.unwrap_or_else(|| location.state())
    }

    /// The state that an event leads to. Every move of a job is checked here: one that the table of moves does not have is
    /// a bug.
    pub(super) fn next_state(&self, id: JobId, event: Event) -> State {
        let from = self.state(id);
        state::next(from, event).unwrap_or_else(|| panic!("{id}: {from} has no {event:?}"))
    }

    /// Whether a job is claimed under this epoch.
    pub(super) fn is_claimed(&self, (id, epoch): (JobId, Epoch)) -> bool {
        self.jobs.get(&id).is_some_and(|row| row.is_live() && row.epoch == epoch)
            && self.state(id) == State::Running
    }

    pub(super) fn bump_gate(&mut self, queue: &str) {
        *self.gates.entry(queue.to_owned()).or_default() += 1;
    }

    pub(super) fn set_timer(&mut self, at: Time, id: JobId, purpose: Timer) {
        self.bump_gate(TIMER_GATE);
        self.timers.insert((at, id, purpose));
    }

    /// Adds a failed attempt to the history of a job.
    pub(super) fn add_attempt(
        &mut self,
        id: JobId,
        worker: WorkerId,
        epoch: Epoch,
        started_at: Time,
        now: Time,
        failure: &Failure,
    ) {
        // Cleaned as the databases clean it.
        let failure =
            columns::failure(Some(&columns::failure_text(failure))).expect("the text was just written");
        let row = self.row_mut(id);
        row.history.push(Attempt { epoch, worker, started_at, ended_at: now, failure: failure.clone() });
        row.failure = Some(failure);
    }
}
