//! What an attempt asks to be written, and what the store answers.

use std::{collections::HashSet, time::Duration};

use crate::{
    BranchMember, BranchUpdate, ClaimNo, ClaimedJob, Epoch, Event, Failure, JobId, JournalEntry, NewJob,
    Payload, Reason, Rev, State, Time, Unwind, Wait, WaitCondition, WorkerId, wait::UnreadableSignal,
};

/// All that one finished attempt, or one step of it, wants written. It is applied whole or not at all.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The job.
    pub job: JobId,
    /// The epoch of the claim under which the attempt ran; an older one than the job's is fenced.
    pub epoch: Epoch,
    /// The revision this change follows. If the job is one further and this claim took it there, the change
    /// was applied before and its answer lost: it is answered `Committed` and nothing is written.
    pub rev: Rev,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// The number of that worker's claim under which the attempt ran; one that the store does not know is fenced.
    pub claim: ClaimNo,
    /// When the attempt started, by the worker's clock.
    pub started_at: Time,
    /// The job's deadline as it was claimed with it, so that its timer goes when the job ends.
    pub deadline_at: Option<Time>,
    /// Whether other rows hang on what becomes of the job (see [`crate::Settings::ties`]).
    pub is_serial: bool,
    /// The job whose wait for its children this job's end may be the end of.
    pub parent: Option<JobId>,
    /// The branch that its end counts for, and how many children it stands for before this change.
    pub branch_member: Option<BranchMember>,
    /// What the step of a machine or workflow wants written beside its outcome.
    pub step: Option<Box<Step>>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Change {
    /// How many bytes of payload it carries.
    pub fn bytes(&self) -> usize {
        let output = match &self.outcome {
            Outcome::Done(output) => output.bytes.len(),
            _ => 0,
        };
        let step = self.step.as_ref().map_or(0, |step| {
            let data = step.stage.as_ref().map_or(0, |(_, data)| data.bytes.len());
            let jobs = step.children.iter().chain(&step.promoted).map(NewJob::bytes);
            let entries = step.entries.iter().map(|entry| entry.payload.bytes.len());
            let context = step.context.iter().map(|(_, value)| value.bytes.len());
            data + jobs.chain(entries).chain(context).sum::<usize>()
        });
        output + step
    }

    /// What an attempt at a claimed job wants written, if it has no step.
    pub fn new(job: &ClaimedJob, worker: WorkerId, started_at: Time, outcome: Outcome) -> Change {
        Change {
            job: job.id,
            epoch: job.epoch,
            rev: job.rev,
            worker,
            claim: job.claim,
            started_at,
            deadline_at: job.deadline_at,
            is_serial: job.settings.is_serial(),
            parent: job.parent,
            branch_member: job.branch_member,
            step: None,
            outcome,
        }
    }

    /// The changes by which the first attempts at promoted items are written, once the jobs are in: they are the first ones
    /// of these jobs, as if this change's worker had claimed them.
    pub fn first_attempts(&self) -> impl Iterator<Item = Change> {
        let attempts = self.step.iter().flat_map(|step| &step.first_attempts);
        attempts.map(|attempt| Change {
            job: attempt.job,
            epoch: Epoch(0),
            rev: Rev(0),
            worker: self.worker,
            claim: self.claim,
            started_at: attempt.started_at,
            deadline_at: None,
            is_serial: false,
            parent: None,
            branch_member: self.branch_member.map(|counted| BranchMember { items: 1, ..counted }),
            step: None,
            outcome: attempt.outcome.clone(),
        })
    }
}

impl Step {
    /// The promoted jobs that were tried before: they go into no place when they are put in, but where their first attempt leads.
    pub fn attempted_jobs(&self) -> HashSet<JobId> {
        self.first_attempts.iter().map(|attempt| attempt.job).collect()
    }
}

/// What the step of a machine or workflow wants written, beside how it ended.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Step {
    /// The stage that ran, to be recorded as a transition with the stage it led to; `None` records nothing.
    pub from_stage: Option<String>,
    /// The stage the job is in from now on, with its data; `None` leaves both as they are.
    pub stage: Option<(String, Payload)>,
    /// Whether the stage and its data are what they were: then going on counts as an attempt instead of resetting
    /// their count.
    pub unchanged: bool,
    /// Whether it is only a part of what its attempt does: what the job waited for, its attempts and its retry budget stay as
    /// they are. With `Next` alone.
    pub partial: bool,
    /// The signals that the step was shown and that are consumed by its progress.
    pub consumed: Vec<i64>,
    /// The signals that the attempt could not read. They are set aside, whatever the outcome: a wait goes on as if they had
    /// not come.
    pub unreadable: Vec<UnreadableSignal>,
    /// Jobs to be submitted with it. Each has this job as its parent, and its end counts for the wait of this job.
    pub children: Vec<NewJob>,
    /// Whether the end of each of these children is told to this job by a signal ([`crate::wait::CHILD_SIGNAL`]), instead of being
    /// counted for its wait.
    pub signal_child_ends: bool,
    /// What it does to branches of this job. Children with a [`crate::Twig`] are theirs: their ends are counted, and neither
    /// waited for nor told.
    pub branches: Vec<BranchUpdate>,
    /// How many items of this job, which is a block of a packed branch, have ended well with it.
    pub items: u32,
    /// Jobs that take the place of as many items of this block as they stand for: children of the same branch.
    pub promoted: Vec<NewJob>,
    /// How the block's own try at some of these ended, each of which stands for one item: it is the first attempt of that job.
    pub first_attempts: Vec<FirstAttempt>,
    /// What is added to the journal, by place.
    pub entries: Vec<JournalEntry>,
    /// Places in the journal whose entries are needed no longer.
    pub forget_entries: Vec<i32>,
    /// Values of the context that have changed.
    pub context: Vec<(String, Payload)>,
    /// Whether the journal starts anew: what was in it is deleted before `entries` are added. With `stage`, which has the
    /// new input as its data.
    pub continue_as_new: bool,
    /// Whether there is something to undo from now on, should the job not end well: then whoever ends it from outside has
    /// it unwound first.
    pub has_undo: bool,
    /// Says that the job is being unwound from now on, and how it ends after that. Nothing ends it or holds it back
    /// meanwhile: its deadline, a pause and an order to end are forgotten.
    pub unwind: Option<Box<Unwind>>,
}

/// How an item of a block was tried in it, before it became a job of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct FirstAttempt {
    /// The job that it becomes.
    pub job: JobId,
    /// When the attempt started, by the worker's clock.
    pub started_at: Time,
    /// How it ended: with a retry, a failure or a cancel.
    pub outcome: Outcome,
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// With an output.
    Done(Payload),
    /// With an error that ends the job.
    Failed {
        /// Why that ends it.
        reason: Reason,
        /// The error.
        failure: Failure,
    },
    /// With an error after which it is tried again.
    Retry {
        /// The wait before the next attempt, by the store's clock.
        after: Duration,
        /// How much of each retry rule's budget is used now.
        retry_counts: Vec<u32>,
        /// The error; `None` if the attempt asked for another without one.
        failure: Option<Failure>,
    },
    /// By its own wish, without an error.
    Cancelled(Failure),
    /// With a step after which the next follows under the same claim: epoch and claim stay.
    Next,
    /// With a step after which the job is parked until what it waits for has come, which may be at once.
    Wait(Wait),
}

impl Outcome {
    /// The event of the transition table that this outcome is.
    pub fn event(&self) -> Event {
        match self {
            Outcome::Done(_) => Event::Finish,
            Outcome::Failed { .. } => Event::Fail,
            Outcome::Retry { .. } => Event::Retry,
            Outcome::Cancelled(_) => Event::Cancel,
            Outcome::Next => Event::Step,
            Outcome::Wait(Wait { condition: WaitCondition::Nothing, .. }) => Event::Yield,
            Outcome::Wait(_) => Event::Park,
        }
    }

    /// The error, if there was one; each is kept in the job's history.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Done(_) | Outcome::Next | Outcome::Wait(_) => None,
            Outcome::Failed { failure, .. } | Outcome::Cancelled(failure) => Some(failure),
            Outcome::Retry { failure, .. } => failure.as_ref(),
        }
    }

    /// Whether this outcome counts as an attempt of the job's budget: input that does not decode does not.
    pub fn counts_as_attempt(&self) -> bool {
        match self {
            Outcome::Done(_) | Outcome::Cancelled(_) | Outcome::Next | Outcome::Wait(_) => false,
            Outcome::Failed { reason, .. } => *reason != Reason::Undecodable,
            Outcome::Retry { .. } => true,
        }
    }

    /// Whether the job has ended.
    pub fn ends(&self) -> bool {
        self.final_state().is_some()
    }

    /// The state in which the job has ended, if it has.
    pub fn final_state(&self) -> Option<State> {
        match self {
            Outcome::Done(_) => Some(State::Done),
            Outcome::Failed { .. } => Some(State::Failed),
            Outcome::Cancelled(_) => Some(State::Cancelled),
            Outcome::Retry { .. } | Outcome::Next | Outcome::Wait(_) => None,
        }
    }

    /// Whether the job has got further: its counters start anew.
    pub fn progresses(&self) -> bool {
        matches!(self, Outcome::Next | Outcome::Wait(_))
    }

    /// What it is called in the record of transitions.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Done(_) => "done",
            Outcome::Failed { .. } => "failed",
            Outcome::Retry { .. } => "retry",
            Outcome::Cancelled(_) => "cancelled",
            Outcome::Next | Outcome::Wait(Wait { condition: WaitCondition::Nothing, .. }) => "next",
            Outcome::Wait(Wait { condition: WaitCondition::Signals { .. }, .. }) => "wait",
            Outcome::Wait(Wait { condition: WaitCondition::Children { .. }, .. }) => "children",
        }
    }
}

/// The store's answer to one change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is written; or was, before its answer was lost.
    Committed,
    /// It is written, and the claim is over although the change meant to go on: the job was paused, or told to end.
    Halted,
    /// The claim is outdated: the job was reaped, expired or handed back meanwhile, or the store does not know the claim (it
    /// was restored from a backup, or is a standby that lost it). Nothing was written.
    Fenced,
    /// The store will never take this change, for the reason given. Nothing was written; the rest of its
    /// batch was not harmed.
    Refused(String),
}
