//! What an attempt's end means: from what its code returned to what is committed.
//!
//! Whatever could be refused by the store is refused here first, as a failure of the step that asked for it.

use std::time::Duration;

use windlass_model::{
    BranchMember, Change, Failure, Outcome, Reason, Rev, Step, Time, UnreadableSignal, Wait, WaitCondition,
    branch::BRANCH_SIGNAL, failure::class, limits::MAX_DELAY,
};

use crate::{Attempt, Handler, StepResult, handler::Stage, worker::Core};

/// How often in a row a step may lead to the very state it came from.
const STANDING: u32 = 100;
/// How many steps a machine may make without waiting for anything: more than any does, and few enough that one that runs
/// in circles ends.
const STEPS: u32 = 1_000_000;

/// How the code of an attempt ended.
pub(crate) enum Ended {
    Turn(StepResult),
    Failure(Failure),
    Timeout,
    Panic(String),
}

/// What is needed to say what follows from it.
pub(crate) struct StepJudge<'a> {
    pub(crate) core: &'a Core,
    pub(crate) handler: &'a dyn Handler,
    pub(crate) attempt: &'a Attempt,
    /// The stage that ran.
    pub(crate) stage: Option<String>,
    /// How often in a row steps led to the very state they came from.
    pub(crate) standing: u32,
    /// Whether it is the job's deadline that limits the attempt.
    pub(crate) expiring: bool,
    pub(crate) limit: Option<Duration>,
}

impl StepJudge<'_> {
    /// What is to be committed, or the failure about which nothing is decided yet.
    pub(crate) fn after(&self, ended: Ended) -> Result<Change, Failure> {
        let failure = match ended {
            Ended::Turn(turn) => match self.checked(turn) {
                Ok(change) => return Ok(change),
                Err(failure) => failure,
            },
            Ended::Failure(failure) => failure,
            Ended::Timeout if self.expiring => return Ok(self.end(expired(self.attempt))),
            Ended::Timeout => timed_out(self.limit),
            Ended::Panic(text) => panicked(&text),
        };
        match self.attempt.cancel.actor() {
            // Whatever it says: it is not tried again.
            Some(by) => Ok(self.end(Outcome::Cancelled(by.failure()))),
            None if &*failure.class == class::UNDECODABLE => Ok(self.by_policy(failure)),
            None => Err(failure),
        }
    }

    /// What is to be committed after the code was given its failure and has ended again.
    pub(crate) fn after_rescue(&self, first: Failure, ended: Ended) -> Change {
        match self.after(ended) {
            Ok(change) => change,
            Err(second) => {
                let text = format!("on_error failed ({second}) when it was given the error: {first}");
                let failure = Failure::stop(text).class(second.class.to_string());
                self.end(Outcome::Failed { reason: Reason::Stopped, failure })
            }
        }
    }

    /// What is to be committed if the retry policy decides.
    pub(crate) fn by_policy(&self, failure: Failure) -> Change {
        let retry = self.handler.retry(self.attempt);
        let outcome = self.core.decide(&self.attempt.job, &retry, failure);
        if outcome.ends() { self.end(outcome) } else { change(self.attempt, outcome, None) }
    }

    /// A change that ends the job.
    fn end(&self, outcome: Outcome) -> Change {
        let step = self.stage.clone().map(|ran| Step { from_stage: Some(ran), ..Step::default() });
        change(self.attempt, outcome, step)
    }

    /// A change that sets signals aside which the step could not read. It was woken for nothing, so it waits on, as if they had
    /// not come; if others are there that it waits for, or its time is over, it is ready again at once.
    fn set_aside(&self, aside: Vec<UnreadableSignal>) -> Change {
        if let Some(by) = self.attempt.cancel.actor() {
            return self.end(Outcome::Cancelled(by.failure()));
        }
        let job = &self.attempt.job;
        let what = job.wait.clone().unwrap_or(WaitCondition::Nothing);
        let now = self.attempt.writer.now();
        let timeout = job.wait_until.map(|until| until.since(now).max(Duration::from_micros(1)));
        let step = Step { unreadable: aside, ..Step::default() };
        change(self.attempt, Outcome::Wait(Wait { condition: what, timeout }), Some(step))
    }

    /// The change that the code asks for, or what is wrong with it.
    fn checked(&self, turn: StepResult) -> Result<Change, Failure> {
        let job = &self.attempt.job;
        let (outcome, stage, children) = match turn {
            StepResult::Done(output) => (Outcome::Done(output), None, Vec::new()),
            StepResult::Stop(failure) => {
                return Ok(self.end(Outcome::Failed { reason: Reason::Stopped, failure }));
            }
            StepResult::ByPolicy(failure) => {
                return Ok(match self.attempt.cancel.actor() {
                    Some(by) => self.end(Outcome::Cancelled(by.failure())),
                    None => self.by_policy(failure),
                });
            }
            StepResult::Commit { step, outcome } => {
                let change = change(self.attempt, outcome, step.map(|step| *step));
                self.core.store.limits().check_change(&change).map_err(refused)?;
                return Ok(change);
            }
            StepResult::SetAside(aside) => return Ok(self.set_aside(aside)),
            StepResult::Halted | StepResult::Over => unreachable!("nothing is committed then"),
            StepResult::Next(stage) => (Outcome::Next, Some(stage), Vec::new()),
            StepResult::Wait(stage, wait) => (Outcome::Wait(wait), Some(stage), Vec::new()),
            StepResult::Children { stage, children, timeout } => {
                let what = WaitCondition::Children { rev: Rev(self.attempt.writer.rev().0 + 1) };
                (Outcome::Wait(Wait { condition: what, timeout }), Some(stage), children)
            }
            StepResult::Again { stage, after } => {
                if after > MAX_DELAY {
                    let text =
                        "the time until the step is run again is longer than 100 years; choose a shorter one";
                    return Err(refused(text));
                }
                if self.stage.as_ref().is_some_and(|ran| *ran != stage.name) {
                    let text = format!(
                        "the step is to be run again, but in another state, {:?}; use `Next::sleep` to go on to it later",
                        stage.name
                    );
                    return Err(refused(text));
                }
                (
                    Outcome::Retry { after, retry_counts: job.retry_counts.clone(), failure: None },
                    Some(stage),
                    Vec::new(),
                )
            }
        };
        if let Some(by) = self.attempt.cancel.actor()
            && !outcome.ends()
        {
            return Ok(self.end(Outcome::Cancelled(by.failure())));
        }
        let Some(Stage { name, data, unchanged }) = stage else {
            let change = self.end(outcome);
            self.core.store.limits().check_change(&change).map_err(refused)?;
            return Ok(change);
        };
        let progresses = outcome.progresses();
        let shown = job.visible_signals();
        let consumed: Vec<i64> =
            if progresses { shown.iter().map(|signal| signal.number).collect() } else { Vec::new() };
        let unchanged = unchanged && consumed.is_empty() && outcome == Outcome::Next;
        if unchanged && self.standing + 1 >= STANDING {
            return Ok(self.end(standing(&name)));
        }
        if outcome == Outcome::Next && job.steps_since_wait >= STEPS {
            return Ok(self.end(endless(&name)));
        }
        // Another try at the same step is no transition.
        let ran = self.stage.clone().filter(|_| progresses);
        let step = Step {
            from_stage: ran,
            stage: Some((name, data)),
            unchanged,
            consumed,
            children,
            ..Step::default()
        };
        let change = change(self.attempt, outcome, Some(step));
        self.core.store.limits().check_change(&change).map_err(refused)?;
        Ok(change)
    }
}

/// What a job is to wait for again that was claimed before it had come.
pub(crate) fn unmet(attempt: &Attempt, now: Time) -> Option<Wait> {
    let job = &attempt.job;
    let what = job.wait.clone()?;
    // What was told of branches is for the code to look at, however it was woken.
    if what.wants(BRANCH_SIGNAL).is_some() {
        return None;
    }
    let over = job.wait_until.is_some_and(|until| until <= now);
    (!over && !job.wait_is_met())
        .then(|| Wait { condition: what, timeout: job.wait_until.map(|until| until.since(now)) })
}

/// What an attempt wants written.
pub(crate) fn change(attempt: &Attempt, outcome: Outcome, step: Option<Step>) -> Change {
    let change = Change::new(&attempt.job, attempt.worker, attempt.started_at, outcome);
    let left = |counted: BranchMember| BranchMember {
        items: counted.items.saturating_sub(attempt.writer.items()),
        ..counted
    };
    let counted = change.branch_member.map(left);
    Change { rev: attempt.writer.rev(), branch_member: counted, step: step.map(Box::new), ..change }
}

/// What follows when the deadline passes under an attempt.
pub(crate) fn expired(attempt: &Attempt) -> Outcome {
    let at = attempt.job.deadline_at.unwrap_or_default();
    let text = format!("the deadline {at} passed before the job had ended");
    Outcome::Failed { reason: Reason::Expired, failure: Failure::stop(text).class(class::EXPIRED) }
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

pub(crate) fn panicked(text: &str) -> Failure {
    Failure::retry(text).class(class::PANIC)
}

fn refused(why: impl std::fmt::Display) -> Failure {
    Failure::stop(why).class(class::REFUSED)
}

fn standing(stage: &str) -> Outcome {
    let text = format!(
        "the state {stage:?} led to itself, unchanged, {STANDING} times in a row; to wait for something use \
         `Next::wait`, to look again later `Next::retry_after`"
    );
    Outcome::Failed { reason: Reason::Stopped, failure: Failure::stop(text) }
}

fn endless(stage: &str) -> Outcome {
    let text = format!(
        "the machine made {STEPS} steps without waiting for anything and would go on to {stage:?}: it seems to run in \
         circles; if it does not, let it end and submit the next"
    );
    Outcome::Failed { reason: Reason::Stopped, failure: Failure::stop(text) }
}
