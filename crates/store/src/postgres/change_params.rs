//! The arrays that a commit sends for its changes.

use tokio_postgres::types::ToSql;
use uuid::Uuid;
use windlass_model::{Change, Outcome, Payload, StepWrites, Wait, WaitCondition};

use super::span;
use crate::columns::{self, CANCELLED, DONE, FAILED};

/// A parameter of a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// What all kinds of changes have, as arrays.
pub(super) struct Base {
    pub(super) id: Vec<Uuid>,
    pub(super) epoch: Vec<i32>,
    pub(super) rev: Vec<i32>,
    pub(super) worker: Vec<i64>,
    started_at: Vec<i64>,
    pub(super) claim: Vec<i64>,
    /// The claims, each once: workers and numbers.
    claims: (Vec<i64>, Vec<i64>),
}

impl Base {
    pub(super) fn new(changes: &[&Change]) -> Base {
        Base {
            id: changes.iter().map(|change| change.job.0).collect(),
            epoch: changes.iter().map(|change| change.epoch.0).collect(),
            rev: changes.iter().map(|change| change.rev.0).collect(),
            worker: changes.iter().map(|change| change.worker.0).collect(),
            started_at: changes.iter().map(|change| change.started_at.micros()).collect(),
            claim: changes.iter().map(|change| change.claim.0).collect(),
            claims: distinct_claims(changes).into_iter().unzip(),
        }
    }

    /// The parameters that all statements which write changes take after the time.
    pub(super) fn params(&self) -> [Param<'_>; 8] {
        [
            &self.id,
            &self.epoch,
            &self.rev,
            &self.worker,
            &self.started_at,
            &self.claim,
            &self.claims.0,
            &self.claims.1,
        ]
    }
}

/// The claims of changes, each once: a batch mostly has few.
fn distinct_claims(changes: &[&Change]) -> Vec<(i64, i64)> {
    let mut claims: Vec<(i64, i64)> =
        changes.iter().map(|change| (change.worker.0, change.claim.0)).collect();
    claims.sort_unstable();
    claims.dedup();
    claims
}

/// What steps write besides their outcomes, as arrays.
#[derive(Default)]
pub(super) struct Steps<'a> {
    from_stage: Vec<Option<&'a str>>,
    stage: Vec<Option<&'a str>>,
    codec: Vec<Option<i16>>,
    data: Vec<Option<&'a [u8]>>,
    /// `None` for steps that are only a part of an attempt.
    pub(super) unchanged: Vec<Option<bool>>,
    undo: Vec<bool>,
    pub(super) how: Vec<&'static str>,
    /// The consumed signals, with their jobs.
    consumed_job: Vec<Uuid>,
    consumed: Vec<i64>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(changes: &[&'a Change]) -> Steps<'a> {
        let step = |change: &&'a Change| -> Option<&'a StepWrites> { change.writes.as_deref() };
        let data = |change: &&'a Change| -> Option<&'a Payload> {
            step(change)?.stage.as_ref().map(|(_, data)| data)
        };
        let consumed = changes.iter().flat_map(|change| {
            step(change)
                .into_iter()
                .flat_map(|step| step.consumed.iter().map(|number| (change.job.0, *number)))
        });
        let (consumed_job, consumed) = consumed.unzip();
        Steps {
            from_stage: changes.iter().map(|change| step(change)?.from_stage.as_deref()).collect(),
            stage: changes.iter().map(|change| Some(step(change)?.stage.as_ref()?.0.as_str())).collect(),
            codec: changes.iter().map(|change| Some(i16::from(data(change)?.codec))).collect(),
            data: changes.iter().map(|change| Some(data(change)?.bytes.as_slice())).collect(),
            unchanged: changes.iter().map(|change| change.stage_unchanged()).collect(),
            undo: changes.iter().map(|change| step(change).is_some_and(|step| step.has_undo)).collect(),
            how: changes.iter().map(|change| change.outcome.name()).collect(),
            consumed_job,
            consumed,
        }
    }

    /// Stages and data, the consumed signals with their jobs, and whether the job has something to undo.
    pub(super) fn params(&self) -> [Param<'_>; 7] {
        [
            &self.from_stage,
            &self.stage,
            &self.codec,
            &self.data,
            &self.consumed_job,
            &self.consumed,
            &self.undo,
        ]
    }
}

/// The ends of jobs, as arrays.
#[derive(Default)]
pub(super) struct Ends<'a> {
    state: Vec<i16>,
    reason: Vec<Option<i16>>,
    failure: Vec<Option<String>>,
    counts: Vec<i32>,
    output_codec: Vec<Option<i16>>,
    output: Vec<Option<&'a [u8]>>,
}

impl<'a> Ends<'a> {
    pub(super) fn new(changes: &[&'a Change]) -> Ends<'a> {
        let mut ends = Ends::default();
        for change in changes {
            let (state, reason, output) = match &change.outcome {
                Outcome::Done(output) => (DONE, None, Some(output)),
                Outcome::Failed { reason, .. } => (FAILED, Some(columns::reason_number(*reason)), None),
                Outcome::Cancelled(_) => (CANCELLED, None, None),
                _ => unreachable!("changes are split by kind"),
            };
            ends.state.push(state);
            ends.reason.push(reason);
            ends.failure.push(change.outcome.failure().map(columns::failure_text));
            ends.counts.push(i32::from(change.outcome.counts_as_attempt()));
            ends.output_codec.push(output.map(|output| i16::from(output.codec)));
            ends.output.push(output.map(|output| output.bytes.as_slice()));
        }
        ends
    }

    /// The states, and why.
    pub(super) fn params(&self) -> [Param<'_>; 4] {
        [&self.state, &self.reason, &self.failure, &self.counts]
    }

    /// The outputs.
    pub(super) fn output(&self) -> [Param<'_>; 2] {
        [&self.output_codec, &self.output]
    }
}

/// The retries of jobs, as arrays.
#[derive(Default)]
pub(super) struct Retries {
    after: Vec<i64>,
    retry_counts: Vec<Option<String>>,
    failure: Vec<Option<String>>,
}

impl Retries {
    pub(super) fn new(changes: &[&Change]) -> Retries {
        let mut retries = Retries::default();
        for change in changes {
            let Outcome::Retry { after, retry_counts, failure } = &change.outcome else {
                unreachable!("changes are split by kind")
            };
            retries.after.push(span(*after));
            retries.retry_counts.push(columns::retry_counts_text(retry_counts));
            retries.failure.push(failure.as_ref().map(columns::failure_text));
        }
        retries
    }

    pub(super) fn params(&self) -> [Param<'_>; 3] {
        [&self.after, &self.retry_counts, &self.failure]
    }
}

/// What jobs wait for, as arrays; nulls for jobs that only return to the ready set.
#[derive(Default)]
pub(super) struct Waits {
    condition: Vec<Option<String>>,
    /// The names of signals, joined with blanks, which no name contains.
    names: Vec<Option<String>>,
    needs: Vec<Option<i32>>,
    timeout: Vec<Option<i64>>,
}

impl Waits {
    pub(super) fn new(changes: &[&Change]) -> Waits {
        let mut waits = Waits::default();
        for change in changes {
            let Outcome::Wait(wait @ Wait { condition, timeout }) = &change.outcome else {
                unreachable!("changes are split by kind")
            };
            let (names, needs) = match condition {
                WaitCondition::Signals { needs, .. } => {
                    (Some(condition.names().collect::<Vec<_>>().join(" ")), Some(*needs as i32))
                }
                _ => (None, None),
            };
            waits.condition.push(wait.parks().then(|| columns::wait_text(condition)));
            waits.names.push(names);
            waits.needs.push(needs);
            waits.timeout.push(timeout.filter(|_| wait.parks()).map(span));
        }
        waits
    }

    pub(super) fn params(&self) -> [Param<'_>; 4] {
        [&self.condition, &self.names, &self.needs, &self.timeout]
    }
}
