//! What attempts write: changes, outcomes, steps.
//!
//! A change says what its attempt did, and nothing of what the job is: its parent, its deadline, its serial key and its branch are known
//! to the server, which makes a [`windlass_model::Change`] of both ([`Change::into_change`]).

use serde::{Deserialize, Serialize};
use windlass_model::{
    BranchMember, BranchNo, BranchUpdate, ClaimNo, ClaimedJob, CommitOutcome, Epoch, FirstAttempt, JobId,
    Outcome, Reason, Retry, Rev, State, StepWrites, Time, UnreadableSignal, Wait, WorkerId,
};

use super::{
    job::Job,
    payload::WirePayload,
    schema::described,
    shared::{is_default, request},
    spans::Millis,
};

described! {
    /// What one attempt, or one step of it, writes.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Change {
        /// The job.
        pub job: JobId,
        /// The worker that ran it, if it is not the worker of the request: one that has registered anew has changes of both.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub worker: Option<WorkerId>,
        /// The number of the claim.
        pub claim: ClaimNo,
        /// The epoch of the claim.
        pub epoch: Epoch,
        /// The revision that the change follows.
        pub rev: Rev,
        /// When the attempt started, by the worker's clock.
        pub started_at: Time,
        /// How it ended.
        pub outcome: End,
        /// What a step writes besides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub step: Option<Box<Step>>,
    }
}

described! {
    /// How an attempt ended: exactly one of the fields, and with `error` possibly a `policy`.
    #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct End {
        /// With an output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub done: Option<WirePayload>,
        /// With an error, of which the server makes another attempt or the end of the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<request::Failure>,
        /// The retry policy of the kind, by which it decides; the job's own comes before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub policy: Option<Vec<request::RetryRule>>,
        /// Cancelled by the attempt itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cancelled: Option<request::Failure>,
        /// Failed, as the worker has decided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub failed: Option<Failed>,
        /// Another attempt follows, as the worker has decided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retry: Option<Again>,
        /// The step is done, and the next one follows under the same claim. Always true.
        #[serde(default, skip_serializing_if = "is_default")]
        pub next: bool,
        /// The step is done, and the job parks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub wait: Option<request::Wait>,
    }
}

described! {
    /// An error that ends the job.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Failed {
        /// Why it ends the job.
        pub reason: Reason,
        /// The error.
        pub error: request::Failure,
    }
}

described! {
    /// Another attempt.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Again {
        /// The delay before it.
        pub after_ms: Millis,
        /// How often each rule of the retry policy has been used now.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub counts: Vec<u32>,
        /// The error, if there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<request::Failure>,
    }
}

described! {
    /// What a step writes besides its outcome; see [`StepWrites`], which says what each field does.
    #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Step {
        /// The stage that ran, for the record of transitions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from_stage: Option<String>,
        /// The stage that the job is in from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub stage: Option<Stage>,
        /// Whether the stage and its data are as before: the step counts as an attempt.
        #[serde(default, skip_serializing_if = "is_default")]
        pub unchanged: bool,
        /// Whether it is only a part of the attempt: waits and attempts stay as they are. With `next`.
        #[serde(default, skip_serializing_if = "is_default")]
        pub partial: bool,
        /// Numbers of the signals that the step saw, deleted if it makes progress.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub consumed: Vec<i64>,
        /// Signals that the code could not decode.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub unreadable: Vec<Unreadable>,
        /// Jobs to submit, whose parent is this one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub children: Vec<Job>,
        /// Whether each end of these children is sent as a signal.
        #[serde(default, skip_serializing_if = "is_default")]
        pub signal_child_ends: bool,
        /// Updates of branches of the job.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub branches: Vec<Branch>,
        /// Of a block: how many items were done.
        #[serde(default, skip_serializing_if = "is_default")]
        pub items: u32,
        /// Of a block: items that become jobs of their own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub promoted: Vec<Job>,
        /// The attempts that failed at them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub first_attempts: Vec<First>,
        /// Entries of the journal.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub entries: Vec<request::Entry>,
        /// Numbers of entries that are no longer needed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub forget_entries: Vec<i32>,
        /// Values of the workflow's context.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub context: Vec<request::ContextValue>,
        /// Whether the workflow starts again, with the stage's data as its input.
        #[serde(default, skip_serializing_if = "is_default")]
        pub continue_as_new: bool,
        /// Whether there is something to undo from now on.
        #[serde(default, skip_serializing_if = "is_default")]
        pub has_undo: bool,
        /// How the job ends once its undos have run, which begins now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unwind: Option<Box<request::UnwindTo>>,
    }
}

described! {
    /// The stage that a job is in, with its data.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Stage {
        /// Its name.
        pub name: String,
        /// Its data.
        pub data: WirePayload,
    }
}

described! {
    /// A signal that the code could not decode.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Unreadable {
        /// Its number in the inbox.
        pub number: i64,
        /// Why not.
        pub why: String,
    }
}

described! {
    /// The first attempt at a promoted item; see [`FirstAttempt`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct First {
        /// The job that the item becomes.
        pub job: JobId,
        /// When the attempt started, by the worker's clock.
        pub started_at: Time,
        /// How it ended: with `failed`, `retry` or `cancelled`.
        pub outcome: End,
    }
}

described! {
    /// An update of a branch of the job; see [`BranchUpdate`], which says what each field does.
    #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Branch {
        /// Its number among those of the job.
        pub number: BranchNo,
        /// Its name, if it is opened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub opened_as: Option<String>,
        /// The names of its spawns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub spawns: Option<Vec<String>>,
        /// How far its sources were read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cursor: Option<WirePayload>,
        /// Whether no more children will be spawned.
        #[serde(default, skip_serializing_if = "is_default")]
        pub seal: bool,
        /// At which counts the job gets a signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub watch: Option<request::Watch>,
        /// How it is merged, as JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub merge_record: Option<String>,
        /// Whether it is merged.
        #[serde(default, skip_serializing_if = "is_default")]
        pub merged: bool,
        /// Whether its live children are cancelled.
        #[serde(default, skip_serializing_if = "is_default")]
        pub cancel_children: bool,
    }
}

/// How often the rules of a job's retry policy were used, and the policies by which an error is decided.
pub struct RetryState<'a> {
    /// The job's own policy.
    pub own: Option<&'a Retry>,
    /// How often each rule was used.
    pub counts: &'a [u32],
    /// A random number from 0 to 1.
    pub random: f64,
}

/// What a server knows of a claimed job, and its change must have: none of it is in a request.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct JobFacts {
    /// The deadline that it was claimed with.
    pub deadline_at: Option<Time>,
    /// Whether it has a serial key.
    pub is_serial: bool,
    /// The parent, if its wait for children counts this job's end.
    pub parent: Option<JobId>,
    /// The branch that counts its end.
    pub branch_member: Option<BranchMember>,
}

impl From<&ClaimedJob> for JobFacts {
    fn from(job: &ClaimedJob) -> JobFacts {
        JobFacts {
            deadline_at: job.deadline_at,
            is_serial: job.settings.is_serial(),
            parent: job.parent,
            branch_member: job.branch_member,
        }
    }
}

impl Change {
    /// Makes the request of a change of the model.
    pub fn of(change: windlass_model::Change) -> Change {
        Change {
            job: change.job,
            worker: None,
            claim: change.claim,
            epoch: change.epoch,
            rev: change.rev,
            started_at: change.started_at,
            outcome: change.outcome.into(),
            step: change.writes.map(|step| Box::new((*step).into())),
        }
    }

    /// Makes the change of the model: what the attempt did is of the request, what the job is of `facts`.
    pub fn into_change(
        self,
        worker: WorkerId,
        facts: &JobFacts,
        retry: &RetryState<'_>,
    ) -> Result<windlass_model::Change, String> {
        let Change { job, worker: _, claim, epoch, rev, started_at, outcome, step } = self;
        let JobFacts { deadline_at, is_serial, parent, branch_member } = *facts;
        let outcome = outcome.into_outcome(retry)?;
        let writes = step.map(|step| StepWrites::try_from(*step)).transpose()?.map(Box::new);
        Ok(windlass_model::Change {
            job,
            epoch,
            rev,
            worker,
            claim,
            started_at,
            deadline_at,
            is_serial,
            parent,
            branch_member,
            writes,
            outcome,
        })
    }
}

impl From<Outcome> for End {
    fn from(outcome: Outcome) -> End {
        let end = End::default();
        match outcome {
            Outcome::Done(output) => End { done: Some(output.into()), ..end },
            Outcome::Failed { reason, failure } => {
                End { failed: Some(Failed { reason, error: failure.into() }), ..end }
            }
            Outcome::Retry { after, retry_counts, failure } => {
                let error = failure.map(Into::into);
                End { retry: Some(Again { after_ms: Millis(after), counts: retry_counts, error }), ..end }
            }
            Outcome::Cancelled(failure) => End { cancelled: Some(failure.into()), ..end },
            Outcome::Next => End { next: true, ..end },
            Outcome::Wait(Wait { condition, timeout }) => {
                let wait = request::Wait { timeout_ms: timeout.map(Millis), ..condition.into() };
                End { wait: Some(wait), ..end }
            }
        }
    }
}

impl End {
    /// The state in which the server's decision about an `error` leaves the job.
    pub fn decided_state(outcome: &Outcome) -> State {
        outcome.final_state().unwrap_or(State::Scheduled)
    }

    /// Makes the outcome of the model; an `error` is decided by the job's policy, that of the kind, or the default.
    pub fn into_outcome(self, retry: &RetryState<'_>) -> Result<Outcome, String> {
        let End { done, error, policy, cancelled, failed, retry: again, next, wait } = self;
        if policy.is_some() && error.is_none() {
            return Err("an outcome with `policy` has an `error`".into());
        }
        let outcomes = [
            done.map(|output| Ok(Outcome::Done(output.into()))),
            error.map(|error| {
                let of_kind = policy.map(request::retry);
                let default = Retry::default();
                let policy = retry.own.or(of_kind.as_ref()).unwrap_or(&default);
                Ok(policy.outcome(error.into(), retry.counts, retry.random))
            }),
            cancelled.map(|failure| Ok(Outcome::Cancelled(failure.into()))),
            failed.map(|Failed { reason, error }| Ok(Outcome::Failed { reason, failure: error.into() })),
            again.map(|Again { after_ms, counts, error }| {
                let failure = error.map(Into::into);
                Ok(Outcome::Retry { after: after_ms.0, retry_counts: counts, failure })
            }),
            next.then_some(Ok(Outcome::Next)),
            wait.map(|wait| {
                let timeout = wait.timeout_ms.map(|timeout| timeout.0);
                let condition = wait.try_into().map_err(str::to_owned)?;
                Ok(Outcome::Wait(Wait { condition, timeout }))
            }),
        ];
        let mut outcomes = outcomes.into_iter().flatten();
        match (outcomes.next(), outcomes.next()) {
            (Some(outcome), None) => outcome,
            (None, _) => Err(
                "an outcome has one of `done`, `error`, `cancelled`, `failed`, `retry`, `next` and `wait`"
                    .into(),
            ),
            (Some(_), Some(_)) => Err("an outcome has one field, besides a `policy` with an `error`".into()),
        }
    }
}

impl From<StepWrites> for Step {
    fn from(step: StepWrites) -> Step {
        let unreadable = |UnreadableSignal { number, why }| Unreadable { number, why };
        let first = |first: FirstAttempt| First {
            job: first.job,
            started_at: first.started_at,
            outcome: first.outcome.into(),
        };
        let value = |(name, value): (String, windlass_model::Payload)| request::ContextValue {
            name,
            value: value.into(),
        };
        Step {
            from_stage: step.from_stage,
            stage: step.stage.map(|(name, data)| Stage { name, data: data.into() }),
            unchanged: step.unchanged,
            partial: step.partial,
            consumed: step.consumed,
            unreadable: step.unreadable.into_iter().map(unreadable).collect(),
            children: step.children.into_iter().map(Into::into).collect(),
            signal_child_ends: step.signal_child_ends,
            branches: step.branches.into_iter().map(Into::into).collect(),
            items: step.items,
            promoted: step.promoted.into_iter().map(Into::into).collect(),
            first_attempts: step.first_attempts.into_iter().map(first).collect(),
            entries: step.entries.into_iter().map(Into::into).collect(),
            forget_entries: step.forget_entries,
            context: step.context.into_iter().map(value).collect(),
            continue_as_new: step.continue_as_new,
            has_undo: step.has_undo,
            unwind: step.unwind.map(|unwind| Box::new((*unwind).into())),
        }
    }
}

impl TryFrom<Step> for StepWrites {
    type Error = String;

    fn try_from(step: Step) -> Result<StepWrites, String> {
        // The first attempts at items are decided by the worker, so that there is nothing to be retried by a policy.
        let undecided = RetryState { own: None, counts: &[], random: 0.0 };
        let first = |first: First| {
            let outcome = first.outcome.into_outcome(&undecided)?;
            Ok::<_, String>(FirstAttempt { job: first.job, started_at: first.started_at, outcome })
        };
        let jobs = |jobs: Vec<Job>| jobs.into_iter().map(TryInto::try_into).collect::<Result<Vec<_>, _>>();
        Ok(StepWrites {
            from_stage: step.from_stage,
            stage: step.stage.map(|stage| (stage.name, stage.data.into())),
            unchanged: step.unchanged,
            partial: step.partial,
            consumed: step.consumed,
            unreadable: step
                .unreadable
                .into_iter()
                .map(|signal| UnreadableSignal::new(signal.number, signal.why))
                .collect(),
            children: jobs(step.children)?,
            signal_child_ends: step.signal_child_ends,
            branches: step.branches.into_iter().map(Into::into).collect(),
            items: step.items,
            promoted: jobs(step.promoted)?,
            first_attempts: step.first_attempts.into_iter().map(first).collect::<Result<_, _>>()?,
            entries: step.entries.into_iter().map(Into::into).collect(),
            forget_entries: step.forget_entries,
            context: step.context.into_iter().map(|value| (value.name, value.value.into())).collect(),
            continue_as_new: step.continue_as_new,
            has_undo: step.has_undo,
            unwind: step.unwind.map(|unwind| Box::new((*unwind).into())),
        })
    }
}

impl From<BranchUpdate> for Branch {
    fn from(update: BranchUpdate) -> Branch {
        Branch {
            number: update.number,
            opened_as: update.opened_as,
            spawns: update.spawns,
            cursor: update.cursor.map(Into::into),
            seal: update.seal,
            watch: update.watch.map(Into::into),
            merge_record: update.merge_record,
            merged: update.merged,
            cancel_children: update.cancel_children,
        }
    }
}

impl From<Branch> for BranchUpdate {
    fn from(update: Branch) -> BranchUpdate {
        BranchUpdate {
            number: update.number,
            opened_as: update.opened_as,
            spawns: update.spawns,
            cursor: update.cursor.map(Into::into),
            seal: update.seal,
            watch: update.watch.map(Into::into),
            merge_record: update.merge_record,
            merged: update.merged,
            cancel_children: update.cancel_children,
        }
    }
}

described! {
    /// The answer to one change. Made from [`CommitOutcome`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct Committed {
        /// What happened to it.
        pub outcome: Verdict,
        /// The state of the job, where the server has decided it: after an `error`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub state: Option<State>,
        /// Why it was refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message: Option<String>,
    }
}

described! {
    /// What happened to a change; see [`CommitOutcome`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[expect(missing_docs, reason = "the variants are those of `CommitOutcome`")]
    pub enum Verdict {
        Committed,
        Halted,
        Fenced,
        Refused,
    }
}

impl From<CommitOutcome> for Committed {
    fn from(outcome: CommitOutcome) -> Committed {
        let (outcome, message) = match outcome {
            CommitOutcome::Committed => (Verdict::Committed, None),
            CommitOutcome::Halted => (Verdict::Halted, None),
            CommitOutcome::Fenced => (Verdict::Fenced, None),
            CommitOutcome::Refused(why) => (Verdict::Refused, Some(why)),
        };
        Committed { outcome, state: None, message }
    }
}

impl From<Committed> for CommitOutcome {
    fn from(committed: Committed) -> CommitOutcome {
        match committed.outcome {
            Verdict::Committed => CommitOutcome::Committed,
            Verdict::Halted => CommitOutcome::Halted,
            Verdict::Fenced => CommitOutcome::Fenced,
            Verdict::Refused => CommitOutcome::Refused(committed.message.unwrap_or_default()),
        }
    }
}
