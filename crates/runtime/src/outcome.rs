//! Turns the end of an attempt into the change that is committed.
//!
//! Whatever the store could refuse is refused here first, as a failure of the step that asked for it.

use std::time::Duration;

use windlass_model::{
    BranchMember, Change, Failure, NewJob, Outcome, Reason, Rev, StepWrites, Time, UnreadableSignal, Wait,
    WaitCondition, branch::BRANCH_SIGNAL, failure::class, limits::MAX_DELAY,
};

use crate::{Attempt, Handler, StepResult, core::Core, handler::Stage};

/// How often in a row a step may lead to the same stage, unchanged: a machine that does so loops without progress.
const MAX_UNCHANGED_STEPS: u32 = 100;
/// How many steps a machine may make without waiting: more than any useful one does, and few enough that one that loops
/// for ever is stopped.
const MAX_STEPS_WITHOUT_WAIT: u32 = 1_000_000;

/// How the code of an attempt ended.
pub(crate) enum AttemptEnd {
    Returned(StepResult),
    Failure(Failure),
    Timeout,
    Panic(Failure),
}

/// Builds the change that follows from the end of an attempt.
pub(crate) struct ChangeBuilder<'a> {
    pub(crate) core: &'a Core,
    pub(crate) handler: &'a dyn Handler,
    pub(crate) attempt: &'a Attempt,
    /// The stage that ran.
    pub(crate) stage: Option<String>,
    /// The number of steps in a row that left the stage unchanged.
    pub(crate) unchanged_steps: u32,
    /// Whether it is the job's deadline that limits the attempt.
    pub(crate) is_deadline: bool,
    /// How long the attempt may run.
    pub(crate) limit: Option<Duration>,
}

impl ChangeBuilder<'_> {
    /// The change to commit, or a failure that the code may still handle.
    pub(crate) fn after(&self, end: AttemptEnd) -> Result<Change, Failure> {
        let failure = match end {
            AttemptEnd::Returned(result) => match self.after_result(result) {
                Ok(change) => return Ok(change),
                Err(failure) => failure,
            },
            AttemptEnd::Failure(failure) => failure,
            AttemptEnd::Timeout if self.is_deadline => return Ok(self.end(expired(self.attempt))),
            AttemptEnd::Timeout => timed_out(self.limit),
            AttemptEnd::Panic(failure) => failure,
        };
        match self.attempt.cancel.actor() {
            // A cancelled job is not retried, whatever the failure says.
            Some(actor) => Ok(self.end(Outcome::Cancelled(actor.failure()))),
            None if &*failure.class == class::UNDECODABLE => Ok(self.by_policy(failure)),
            None => Err(failure),
        }
    }

    /// The change to commit after the code was given its first failure and has ended again.
    pub(crate) fn after_rescue(&self, first: Failure, end: AttemptEnd) -> Change {
        match self.after(end) {
            Ok(change) => change,
            Err(second) => {
                let text = format!("on_error failed ({second}) when it was given the error: {first}");
                let failure = Failure::stop(text).class(second.class.to_string());
                self.end(Outcome::Failed { reason: Reason::Stopped, failure })
            }
        }
    }

    /// The change that the retry policy makes of a failure.
    pub(crate) fn by_policy(&self, failure: Failure) -> Change {
        let outcome = self.core.outcome_of_failure(self.attempt, Some(self.handler), failure);
        if outcome.ends() { self.end(outcome) } else { change(self.attempt, outcome, None) }
    }

    /// A change that ends the job.
    fn end(&self, outcome: Outcome) -> Change {
        let step =
            self.stage.clone().map(|ran| StepWrites { from_stage: Some(ran), ..StepWrites::default() });
        change(self.attempt, outcome, step)
    }

    /// A change that cancels the job, if that was requested.
    fn cancelled(&self) -> Option<Change> {
        self.attempt.cancel.actor().map(|actor| self.end(Outcome::Cancelled(actor.failure())))
    }

    /// The change that the code asks for, or the failure that refuses it.
    fn after_result(&self, result: StepResult) -> Result<Change, Failure> {
        let (outcome, stage, children) = match result {
            StepResult::Done(output) => return self.continue_or_end(Outcome::Done(output), None, Vec::new()),
            StepResult::Stop(failure) => {
                return Ok(self.end(Outcome::Failed { reason: Reason::Stopped, failure }));
            }
            StepResult::Failed(failure) => {
                return Ok(self.cancelled().unwrap_or_else(|| self.by_policy(failure)));
            }
            StepResult::Commit { step, outcome } => {
                return self.checked(change(self.attempt, outcome, step.map(|step| *step)));
            }
            StepResult::MarkUnreadable(signals) => return Ok(self.mark_unreadable(signals)),
            StepResult::Halted | StepResult::ClaimOver => unreachable!("nothing is committed then"),
            StepResult::Next(stage) => (Outcome::Next, stage, Vec::new()),
            StepResult::Wait(stage, wait) => (Outcome::Wait(wait), stage, Vec::new()),
            StepResult::Children { stage, children, timeout } => {
                let condition = WaitCondition::Children { rev: Rev(self.attempt.writer.rev().0 + 1) };
                (Outcome::Wait(Wait { condition, timeout }), stage, children)
            }
            StepResult::Again { stage, after } => (self.again(&stage, after)?, stage, Vec::new()),
        };
        self.continue_or_end(outcome, Some(stage), children)
    }

    /// The outcome of a step that is to run again later.
    fn again(&self, stage: &Stage, after: Duration) -> Result<Outcome, Failure> {
        if after > MAX_DELAY {
            return Err(refused(
                "the time until the step is run again is longer than 100 years; choose a shorter one",
            ));
        }
        if self.stage.as_ref().is_some_and(|ran| *ran != stage.name) {
            return Err(refused(format!(
                "the step is to be run again, but in another stage, {:?}; use `Next::sleep` to continue in it later",
                stage.name
            )));
        }
        Ok(Outcome::Retry { after, retry_counts: self.attempt.job.retry_counts.clone(), failure: None })
    }

    /// The change of a step that leads to `stage`, or of one that ends the job.
    fn continue_or_end(
        &self,
        outcome: Outcome,
        stage: Option<Stage>,
        children: Vec<NewJob>,
    ) -> Result<Change, Failure> {
        if !outcome.ends()
            && let Some(cancelled) = self.cancelled()
        {
            return Ok(cancelled);
        }
        let Some(Stage { name, data, unchanged }) = stage else { return self.checked(self.end(outcome)) };
        let job = &self.attempt.job;
        let progresses = outcome.progresses();
        let visible = job.visible_signals();
        let consumed: Vec<i64> =
            if progresses { visible.iter().map(|signal| signal.number).collect() } else { Vec::new() };
        let unchanged = unchanged && consumed.is_empty() && outcome == Outcome::Next;
        if unchanged && self.unchanged_steps + 1 >= MAX_UNCHANGED_STEPS {
            return Ok(self.end(too_many_unchanged_steps(&name)));
        }
        if outcome == Outcome::Next && job.steps_since_wait >= MAX_STEPS_WITHOUT_WAIT {
            return Ok(self.end(too_many_steps(&name)));
        }
        let step = StepWrites {
            // Another attempt at the same step is no transition.
            from_stage: self.stage.clone().filter(|_| progresses),
            stage: Some((name, data)),
            unchanged,
            consumed,
            children,
            ..StepWrites::default()
        };
        self.checked(change(self.attempt, outcome, Some(step)))
    }

    /// A change that marks signals unreadable which the step could not decode. The wait continues as if they had not come;
    /// if other signals satisfy it, or its timeout has passed, the job is ready again at once.
    fn mark_unreadable(&self, unreadable: Vec<UnreadableSignal>) -> Change {
        if let Some(cancelled) = self.cancelled() {
            return cancelled;
        }
        let job = &self.attempt.job;
        let condition = job.wait.clone().unwrap_or(WaitCondition::Nothing);
        let now = self.attempt.writer.now();
        let timeout = job.wait_until.map(|until| (until - now).max(Duration::from_micros(1)));
        let step = StepWrites { unreadable, ..StepWrites::default() };
        change(self.attempt, Outcome::Wait(Wait { condition, timeout }), Some(step))
    }

    /// The change, unless it breaks a limit of the store.
    fn checked(&self, change: Change) -> Result<Change, Failure> {
        self.core.store.limits().check_change(&change).map_err(refused)?;
        Ok(change)
    }
}

/// The wait of a job that was claimed although its wait is not over: it is parked again.
pub(crate) fn unmet_wait(attempt: &Attempt, now: Time) -> Option<Wait> {
    let job = &attempt.job;
    let condition = job.wait.clone()?;
    // The code itself checks its branches, whatever woke the job.
    if condition.wants(BRANCH_SIGNAL).is_some() {
        return None;
    }
    let timed_out = job.wait_until.is_some_and(|until| until <= now);
    (!timed_out && !job.wait_is_met())
        .then(|| Wait { condition, timeout: job.wait_until.map(|until| until - now) })
}

/// The change that writes an outcome and a step, following the last change that the attempt committed.
pub(crate) fn change(attempt: &Attempt, outcome: Outcome, step: Option<StepWrites>) -> Change {
    let change = Change::new(&attempt.job, attempt.worker, attempt.started_at, outcome);
    let remaining = |member: BranchMember| BranchMember {
        items: member.items.saturating_sub(attempt.writer.items()),
        ..member
    };
    let branch_member = change.branch_member.map(remaining);
    Change { rev: attempt.writer.rev(), branch_member, writes: step.map(Box::new), ..change }
}

/// The outcome when the job's deadline passes during an attempt.
pub(crate) fn expired(attempt: &Attempt) -> Outcome {
    let at = attempt.job.deadline_at.unwrap_or_default();
    let text = format!("the deadline {at} passed before the job had ended");
    Outcome::Failed { reason: Reason::Expired, failure: Failure::stop(text).class(class::EXPIRED) }
}

/// The outcome of a job whose row cannot be decoded: it would run without its own settings, its wait or its end.
pub(crate) fn undecodable_row(fault: &str) -> Outcome {
    let text = format!("{fault}; it was changed by hand, or written by a newer version");
    Outcome::Failed { reason: Reason::Undecodable, failure: Failure::stop(text).class(class::UNDECODABLE) }
}

pub(crate) fn timed_out(limit: Option<Duration>) -> Failure {
    Failure::retry(format!("the attempt ran longer than {:?}", limit.unwrap_or_default()))
        .class(class::TIMEOUT)
}

pub(crate) fn stuck() -> Failure {
    let text =
        "the code of the workflow ran on and on between two durable calls, without giving its thread back";
    Failure::retry(text).class(class::TIMEOUT)
}

fn refused(why: impl std::fmt::Display) -> Failure {
    Failure::stop(why).class(class::REFUSED)
}

fn too_many_unchanged_steps(stage: &str) -> Outcome {
    let text = format!(
        "the stage {stage:?} led to itself, unchanged, {MAX_UNCHANGED_STEPS} times in a row; to wait for something use \
         `Next::wait`, to check again later use `Next::retry_after`"
    );
    Outcome::Failed { reason: Reason::Stopped, failure: Failure::stop(text) }
}

fn too_many_steps(stage: &str) -> Outcome {
    let text = format!(
        "the machine made {MAX_STEPS_WITHOUT_WAIT} steps without waiting for anything and would continue in {stage:?}: it \
         seems to run in circles; if it does not, let it end and submit the next"
    );
    Outcome::Failed { reason: Reason::Stopped, failure: Failure::stop(text) }
}
