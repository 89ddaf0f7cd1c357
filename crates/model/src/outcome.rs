//! How an attempt ended, and how the store answers its change.

use std::time::Duration;

use crate::{Event, Failure, Payload, Reason, State, Wait, WaitCondition, branch::cancels_children};

/// How an attempt, or one step of it, ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// With an output.
    Done(Payload),
    /// With an error that ends the job.
    Failed {
        /// Why the error ends it.
        reason: Reason,
        /// The error.
        failure: Failure,
    },
    /// With another attempt to follow.
    Retry {
        /// The delay before the next attempt, by the store's clock.
        after: Duration,
        /// How often each rule of the retry policy has been used now.
        retry_counts: Vec<u32>,
        /// The error; `None` if the attempt asked for another one without an error.
        failure: Option<Failure>,
    },
    /// The job is cancelled, because the attempt asked for it. The failure says why, and is no error.
    Cancelled(Failure),
    /// A step is committed. The next step follows under the same claim and epoch.
    Next,
    /// A step is committed, and the job parks until its wait is over, which may be at once.
    Wait(Wait),
}

impl Outcome {
    /// Returns the event of the [table of transitions](crate::state::TRANSITIONS).
    pub fn event(&self) -> Event {
        match self {
            Outcome::Done(_) => Event::Finish,
            Outcome::Failed { .. } => Event::Fail,
            Outcome::Retry { .. } => Event::Retry,
            Outcome::Cancelled(_) => Event::Cancel,
            Outcome::Next => Event::Step,
            Outcome::Wait(wait) if wait.parks() => Event::Park,
            Outcome::Wait(_) => Event::Yield,
        }
    }

    /// Returns the failure, which the store keeps in the job's history.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Done(_) | Outcome::Next | Outcome::Wait(_) => None,
            Outcome::Failed { failure, .. } | Outcome::Cancelled(failure) => Some(failure),
            Outcome::Retry { failure, .. } => failure.as_ref(),
        }
    }

    /// Whether it counts as a failed attempt. Input that cannot be decoded does not: the code never ran.
    pub fn counts_as_attempt(&self) -> bool {
        match self {
            Outcome::Done(_) | Outcome::Cancelled(_) | Outcome::Next | Outcome::Wait(_) => false,
            Outcome::Failed { reason, .. } => *reason != Reason::Undecodable,
            Outcome::Retry { .. } => true,
        }
    }

    /// Whether it ends the job.
    pub fn ends(&self) -> bool {
        self.final_state().is_some()
    }

    /// Returns the state in which it ends the job; `None` if the job does not end.
    pub fn final_state(&self) -> Option<State> {
        match self {
            Outcome::Done(_) => Some(State::Done),
            Outcome::Failed { .. } => Some(State::Failed),
            Outcome::Cancelled(_) => Some(State::Cancelled),
            Outcome::Retry { .. } | Outcome::Next | Outcome::Wait(_) => None,
        }
    }

    /// Whether the commit ends the claim although the attempt wanted to run the next step: `to_hold` says that the job is paused or
    /// being cancelled. Then the commit's outcome is [`CommitOutcome::Halted`].
    pub fn halts(&self, to_hold: bool) -> bool {
        to_hold && *self == Outcome::Next
    }

    /// Returns the outcome of a change whose revision the same claim has already written. `is_claimed`: the job is
    /// still claimed under the epoch of the change.
    ///
    /// Then this change was committed before and its answer was lost. But if it would have ended the claim and the claim is open,
    /// the claim wrote another change, and this one is fenced.
    pub fn repeated(&self, is_claimed: bool) -> CommitOutcome {
        match (self == &Outcome::Next, is_claimed) {
            (true, false) => CommitOutcome::Halted,
            (false, true) => CommitOutcome::Fenced,
            _ => CommitOutcome::Committed,
        }
    }

    /// Whether the children in branches of the job are cancelled with it; see [`crate::branch::cancels_children`].
    pub fn cancels_children(&self) -> bool {
        let reason = match self {
            Outcome::Failed { reason, .. } => Some(*reason),
            _ => None,
        };
        self.final_state().is_some_and(|state| cancels_children(state, reason))
    }

    /// Whether the job has made progress. Progress consumes signals and resets the counts of attempts and retries.
    pub fn progresses(&self) -> bool {
        matches!(self, Outcome::Next | Outcome::Wait(_))
    }

    /// Returns its name in the record of transitions.
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
#[must_use = "the change may not have been written"]
pub enum CommitOutcome {
    /// It is written, now or by an earlier call whose answer was lost.
    Committed,
    /// It is written, but the claim is over although the change wanted the next step: the job is paused or being cancelled.
    Halted,
    /// The claim has ended: the job was reaped, released, cancelled or expired meanwhile, or the store does not know the claim
    /// (it was restored from a backup, or is a standby that lost it). Nothing was written.
    Fenced,
    /// The store can never write this change, for the reason given. Nothing of it was written; the other changes of its batch
    /// are not affected.
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_that_wants_to_continue_is_halted() {
        let done = Outcome::Done(Payload::default());
        assert!(Outcome::Next.halts(true) && !Outcome::Next.halts(false));
        assert!(!done.halts(true) && !Outcome::Wait(Wait::YIELD).halts(true));
    }

    #[test]
    fn a_repeated_change_was_committed_unless_its_claim_wrote_another() {
        let done = Outcome::Done(Payload::default());
        assert_eq!(done.repeated(false), CommitOutcome::Committed);
        assert_eq!(done.repeated(true), CommitOutcome::Fenced, "it would have ended the claim");
        assert_eq!(Outcome::Next.repeated(true), CommitOutcome::Committed);
        assert_eq!(Outcome::Next.repeated(false), CommitOutcome::Halted);
    }

    #[test]
    fn a_job_that_ends_by_itself_leaves_its_children_alone() {
        let failed = |reason| Outcome::Failed { reason, failure: Failure::stop("x") };
        assert!(Outcome::Cancelled(Failure::cancel("x")).cancels_children());
        assert!(failed(Reason::Expired).cancels_children());
        assert!(!failed(Reason::Exhausted).cancels_children());
        assert!(!Outcome::Done(Payload::default()).cancels_children() && !Outcome::Next.cancels_children());
    }
}
