//! What people do to jobs and rules. Every action is in the audit log.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_model::{
    Epoch, Failure, JobId, JournalEntry, NewJob, Payload, RateLimit, Rev, Schedule, State, Time, When,
    failure::class,
    journal::{CallEvent, CallKind},
};

use crate::{Fut, Now};

/// What people change: jobs, queues, limits, schedules. Called by the crate `windlass-operate` for the command line and for
/// programs, and by the branch poller to cancel children.
///
/// Every call is one transaction, and its entry in the audit log is part of it: a crash before the commit leaves neither the
/// change nor the entry, a crash after leaves both. A repeated call finds the change made and returns
/// [`ControlOutcome::Already`], or for a fork the same [`ControlOutcome::Created`]. Nothing here writes what an attempt owns:
/// it may only end an epoch, or keep a job from being claimed.
pub trait Control: Send + Sync + 'static {
    /// Does one action to each of some jobs, and returns the outcome for each, in order. A job that is named twice is
    /// acted on once.
    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        action: JobAction,
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>>;

    /// Changes a rule that holds for many jobs.
    fn administer<'a>(
        &'a self,
        now: Now,
        action: &'a AdminAction,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome>;

    /// Gives machines that do not run another version, stage and data, and returns the outcome for each, in order. The
    /// epoch of an updated machine is raised.
    fn update_stages<'a>(
        &'a self,
        now: Now,
        updates: &'a [StageUpdate],
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>>;

    /// Creates jobs that continue from a position in the journals of others, and returns the outcome for each, in order:
    /// [`ControlOutcome::Created`] with the new job. The original job is not changed.
    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>>;

    /// Adds the caller's own entry to the audit log.
    fn record_audit<'a>(
        &'a self,
        now: Now,
        action: &'a str,
        subject: &'a str,
        actor: &'a Actor,
    ) -> Fut<'a, ()>;

    /// Adds entries of callers' own to the audit log, in order and in one transaction.
    fn record_audits<'a>(&'a self, now: Now, records: &'a [AuditRecord]) -> Fut<'a, ()>;
}

/// An entry that a caller adds to the audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditRecord {
    /// What was done.
    pub action: String,
    /// To what.
    pub subject: String,
    /// By whom, and why.
    pub actor: Actor,
}

/// Who does something, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Actor {
    /// Who.
    pub author: String,
    /// Why.
    pub note: Option<String>,
}

impl Actor {
    /// An actor without a note.
    pub fn new(author: impl Into<String>) -> Actor {
        Actor { author: author.into(), note: None }
    }

    /// Adds a note: why.
    pub fn note(self, note: impl Into<String>) -> Actor {
        Actor { note: Some(note.into()), ..self }
    }
}

/// What is done to a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobAction {
    /// End it as cancelled. A running attempt gets a cancel request, and the store ends the job if it has not ended after `grace`.
    Cancel {
        /// How long a running attempt may take to end.
        grace: Duration,
    },
    /// Block it from being claimed until it is resumed. A running attempt continues.
    Pause,
    /// End its pause.
    Resume,
    /// Run a failed or cancelled job again, with all counters reset. Its deadline is as far from now as it was from its submit.
    Retry,
    /// Change its priority.
    Priority(i16),
    /// Delete the signal with this number from its inbox. Refused for a readable signal while the job runs: the attempt may have
    /// read it.
    DropSignal(i64),
    /// Make the unreadable signal with this number readable again, at its old position. If that ends the job's wait, the job is ready.
    RestoreSignal(i64),
}

impl JobAction {
    /// Its name in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            JobAction::Cancel { .. } => "cancel",
            JobAction::Pause => "pause",
            JobAction::Resume => "resume",
            JobAction::Retry => "retry",
            JobAction::Priority(_) => "priority",
            JobAction::DropSignal(_) => "drop signal",
            JobAction::RestoreSignal(_) => "restore signal",
        }
    }

    /// Whether it applies to jobs in this state.
    pub fn applies_to(self, state: State) -> bool {
        match self {
            JobAction::Retry => matches!(state, State::Failed | State::Cancelled),
            JobAction::Cancel { .. } | JobAction::Pause | JobAction::Resume | JobAction::Priority(_) => {
                !state.is_final()
            }
            JobAction::DropSignal(_) | JobAction::RestoreSignal(_) => true,
        }
    }
}

/// A new version, stage and data for a machine. Refused if the machine has moved since it was read, runs, or is done. Its wait
/// stays as it is.
#[derive(Clone, PartialEq, Debug)]
pub struct StageUpdate {
    /// The job.
    pub job: JobId,
    /// Its epoch when it was read.
    pub epoch: Epoch,
    /// Its revision when it was read.
    pub rev: Rev,
    /// The version of its kind that runs it from now on.
    pub version: i32,
    /// The stage.
    pub stage: String,
    /// The data of the stage.
    pub data: Payload,
}

/// A new job that continues from a position in the journal of another.
///
/// It has the kind, version, queue, priority, tags, options, settings (except the unique name), input, stage and data of the
/// other, and no parent, deadline, inbox or context. Its journal is a copy of the other's entries before the position, and an
/// entry [`Fork::ENTRY`]; its revision is 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fork {
    /// The job whose journal is copied.
    pub from: JobId,
    /// The new job; a repeat carries the same id.
    pub id: JobId,
    /// Entries before this position are copied. It must be the position of an entry, or the one after the last.
    pub before: i32,
    /// The key of the new job.
    pub key: Option<String>,
}

impl Fork {
    /// The name of the entry that names the other job.
    pub const ENTRY: &str = "windlass.fork";

    pub(crate) fn check(&self) -> Result<(), windlass_model::Invalid> {
        self.key.as_ref().map_or(Ok(()), |key| windlass_model::limits::check_key("key", key))
    }

    /// Whether the fork begins after the last entry.
    pub(crate) fn is_whole(&self, last: Option<i32>) -> bool {
        self.before == last.map_or(0, |last| last + 1)
    }

    /// The job as it is submitted.
    pub(crate) fn job(&self, from: &NewJob) -> NewJob {
        let mut new = from.clone();
        (new.id, new.key, new.parent, new.parent_rev) = (self.id, self.key.clone(), None, None);
        (new.deadline_at, new.when) = (None, When::Now);
        (new.signals, new.branch_position) = (Vec::new(), None);
        new.settings.unique = None;
        new.settings.tick = None;
        new
    }

    /// The journal entry that names the other job.
    pub(crate) fn entry(&self, now: Time) -> JournalEntry {
        JournalEntry {
            seq: self.before,
            call_kind: CallKind::Lifecycle,
            event: CallEvent::Begun,
            name: Fork::ENTRY.into(),
            key: None,
            line: None,
            at: now,
            payload: Payload::json(format!("\"{}\"", self.from).into_bytes()),
        }
    }
}

/// A change to a queue, rate limit, serial key or schedule.
#[derive(Clone, PartialEq, Debug)]
pub enum AdminAction {
    /// Claim nothing from a queue until it is resumed.
    PauseQueue(String),
    /// End the pause of a queue.
    ResumeQueue(String),
    /// Create or change a rate limit.
    Limit(RateLimit),
    /// Lift a rate limit: its jobs run without tokens until [`AdminAction::Limit`] sets it again.
    Lift(String),
    /// Set how many jobs of a serial key run at once.
    Slots {
        /// The key.
        key: String,
        /// How many.
        slots: u32,
    },
    /// Create or change a schedule. If its calendar changed, its next tick is the first after now.
    Schedule(Box<Schedule>),
    /// Delete a schedule; its jobs stay.
    DropSchedule(String),
    /// Pause a schedule.
    PauseSchedule(String),
    /// End the pause of a schedule. Ticks during the pause do not fire.
    ResumeSchedule(String),
    /// Submit the job of a schedule now, whatever its calendar says.
    Trigger {
        /// The schedule.
        name: String,
        /// The id of the job, if the caller gives one: a repeat has the same id, and submits nothing if that job exists.
        id: Option<JobId>,
    },
}

/// The outcome of an action.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "why")]
#[must_use = "the action may have been refused"]
pub enum ControlOutcome {
    /// It is done.
    Done,
    /// The job runs, or runs its undos first: it ends soon.
    CancelRequested,
    /// The action created this job.
    Created(JobId),
    /// Nothing had to be changed; the text says why.
    Already(String),
    /// It cannot be done; the text says why and what to do instead.
    Refused(String),
    /// There is no such job, queue, limit or schedule.
    Unknown,
}

impl ControlOutcome {
    /// Makes an error of a refusal: `control.retry(job).await?.accepted()?`. What was so already is accepted.
    pub fn accepted(self) -> Result<(), NotAccepted> {
        match self {
            ControlOutcome::Done | ControlOutcome::CancelRequested => Ok(()),
            ControlOutcome::Created(_) | ControlOutcome::Already(_) => Ok(()),
            ControlOutcome::Refused(why) => Err(NotAccepted(why)),
            ControlOutcome::Unknown => Err(NotAccepted("there is nothing of this name".into())),
        }
    }
}

/// Why an action was not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the action is refused: {0}")]
pub struct NotAccepted(pub String);

impl Actor {
    /// The failure that is stored with a job that this actor cancelled.
    pub fn failure(&self) -> Failure {
        let note = self.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        Failure::cancel(format!("cancelled by {}{note}", self.author)).class(class::CANCELLED)
    }
}

/// Outcomes with their texts, the same for every backend.
pub(crate) mod outcome {
    use windlass_model::{JobId, State};

    use super::{Actor, ControlOutcome};

    pub(crate) fn ended(state: State) -> ControlOutcome {
        ControlOutcome::Already(format!("it is {state} already"))
    }

    pub(crate) fn cancel_requested_before() -> ControlOutcome {
        ControlOutcome::Already("its cancel was requested before, and it has not ended yet".into())
    }

    pub(crate) fn triggered_before() -> ControlOutcome {
        ControlOutcome::Already("its job was submitted by this request before".into())
    }

    pub(crate) fn still_runs(job: JobId) -> ControlOutcome {
        ControlOutcome::Refused(format!(
            "its last job {job} has not ended, and its overlap policy is skip; cancel that one first"
        ))
    }

    pub(crate) fn cannot(verb: &str, state: State) -> ControlOutcome {
        ControlOutcome::Refused(match state {
            State::Failed | State::Cancelled => format!("it is {state}; retry it first to {verb} it"),
            _ => format!("it is {state}, which is final; there is nothing to {verb}"),
        })
    }

    pub(crate) fn being_cancelled() -> ControlOutcome {
        ControlOutcome::Refused("it is being cancelled and ends soon".into())
    }

    pub(crate) fn undecodable(fault: &str) -> ControlOutcome {
        ControlOutcome::Refused(format!("{fault}; repair the row first"))
    }

    pub(crate) fn retry_done() -> ControlOutcome {
        ControlOutcome::Refused("it is done; submit a new job to run it again".into())
    }

    pub(crate) fn retry_live(state: State) -> ControlOutcome {
        ControlOutcome::Already(format!("it is {state} and has not ended"))
    }

    pub(crate) fn name_taken(id: JobId) -> ControlOutcome {
        ControlOutcome::Refused(format!("its unique name now belongs to job {id}; cancel that one first"))
    }

    pub(crate) fn no_signal(number: i64) -> ControlOutcome {
        ControlOutcome::Refused(format!("there is no signal {number} in its inbox; `show` lists them"))
    }

    pub(crate) fn signal_is_readable() -> ControlOutcome {
        ControlOutcome::Already("the signal is readable".into())
    }

    pub(crate) fn signal_in_use() -> ControlOutcome {
        ControlOutcome::Refused(
            "it runs, and may have read the signal; wait until it waits, or cancel it".into(),
        )
    }

    pub(crate) fn update_running() -> ControlOutcome {
        ControlOutcome::Refused("it runs; pause its queue, or wait until it is parked, and try again".into())
    }

    pub(crate) fn update_done() -> ControlOutcome {
        ControlOutcome::Refused("it is done, which is final; there is no stage to update".into())
    }

    pub(crate) fn update_moved() -> ControlOutcome {
        ControlOutcome::Refused("it has moved since it was read; read it again".into())
    }

    pub(crate) fn fork_nowhere(before: i32) -> ControlOutcome {
        ControlOutcome::Refused(format!("there is no entry {before} in its journal; `show` lists them"))
    }

    pub(crate) fn fork_key_taken(key: &str, other: JobId) -> ControlOutcome {
        ControlOutcome::Refused(format!("job {other} has the key {key:?}; choose another, or none"))
    }

    pub(crate) fn next_tick(name: &str) -> Actor {
        Actor::new(format!("the next tick of schedule {name}"))
    }

    pub(crate) fn replaced(by: JobId) -> Actor {
        Actor::new(format!("the submit of job {by}, which replaces it"))
    }
}

/// Checks the author and the note of an actor.
pub(crate) fn check_actor(actor: &Actor) -> Result<(), crate::Error> {
    for (what, text) in [("author", Some(&actor.author)), ("note", actor.note.as_ref())] {
        if let Some(text) = text {
            windlass_model::limits::check_text(what, text, 2_000)?;
        }
    }
    Ok(())
}
