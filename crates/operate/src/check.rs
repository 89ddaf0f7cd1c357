//! Check: replays open workflows against this build before it is deployed, and reports which of them would diverge, and why.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use serde::Serialize;
use windlass_model::{ClaimedJob, Failure, JobId, KindVersion, State, failure::class, journal::CallKind};
use windlass_store::{Filter, Job, JobPage};

use windlass_workflow::{
    Error,
    engine::{CallDifference, Differences},
};

use crate::Operator;

/// How many jobs are read at a time.
const PAGE: usize = 500;
/// How long the replay of one job may take: code that loops for ever must not hold up the check.
const LIMIT: Duration = Duration::from_secs(30);

/// A check to be run by [`Check::run`]. It writes nothing.
#[must_use = "a check does nothing until it is run"]
pub struct Check {
    operator: Operator,
    kind: Option<String>,
}

/// What a check has found so far.
#[derive(Clone, PartialEq, Debug, Default)]
#[must_use = "workflows may break"]
pub struct Checked {
    /// Open workflows that were replayed.
    pub jobs: usize,
    /// How many entries their journals have.
    pub calls: usize,
    /// Those that this build would break.
    pub broken: Vec<Broken>,
    /// How many have recorded calls that this build does not reach.
    pub skipping: usize,
    /// How many would lose an undo: this build does not reach a step with an undo, or has none for it.
    pub losing_undo: usize,
    /// The calls in which this build differs from the journals, summed over all jobs by kind, change and name.
    pub changed: Vec<ChangedCall>,
    /// Open workflows of these kinds in versions that this build does not serve.
    pub unserved: usize,
    /// Whether it was interrupted before the last job.
    pub interrupted: bool,
}

/// An open workflow that this build would break.
#[derive(Clone, PartialEq, Debug)]
pub struct Broken {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: KindVersion,
    /// Its key.
    pub key: Option<String>,
    /// The failure it would end with.
    pub why: Failure,
}

/// A call in which this build differs from the journals of open workflows. That alone breaks nothing: a removed call is skipped, and an
/// added one runs. A renamed call is both, and runs again.
#[derive(Clone, PartialEq, Debug)]
pub struct ChangedCall {
    /// The kind of the workflows.
    pub kind: KindVersion,
    /// How it differs.
    pub change: CallChange,
    /// What is called.
    pub call_kind: CallKind,
    /// The name of the call.
    pub name: String,
    /// Where in the source it is, or was when it was recorded.
    pub line: Option<String>,
    /// Whether it was recorded with an undo, which can only run if the code reaches the call and defines one.
    pub undo: bool,
    /// How many jobs are affected.
    pub jobs: usize,
    /// One of these jobs.
    pub example: JobId,
}

/// How a call differs from the journal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallChange {
    /// It is recorded, and this build does not reach it: it was removed or renamed, or a new call comes before it.
    NotReached,
    /// It was recorded with an undo, and this build has none for it.
    UndoRemoved,
    /// It is not recorded, and this build reaches it before recorded calls: it was added or renamed, and would run.
    New,
}

impl Checked {
    /// Adds the differences of one job.
    fn add(&mut self, kind: &KindVersion, job: JobId, differences: Differences) {
        let Differences { not_reached, undo_removed, new } = differences;
        self.skipping += usize::from(!not_reached.is_empty());
        self.losing_undo += usize::from(not_reached.iter().chain(&undo_removed).any(|call| call.undo));
        let of = |change| move |call: CallDifference| (change, call);
        let all = not_reached
            .into_iter()
            .map(of(CallChange::NotReached))
            .chain(undo_removed.into_iter().map(of(CallChange::UndoRemoved)))
            .chain(new.into_iter().map(of(CallChange::New)));
        // Calls that differ only in their keys count as one.
        let mut named: Vec<(CallChange, CallDifference)> = Vec::new();
        for (change, call) in all {
            match named.iter_mut().find(|(other, seen)| {
                *other == change && (seen.call_kind, &seen.name) == (call.call_kind, &call.name)
            }) {
                Some((_, seen)) => seen.undo |= call.undo,
                None => named.push((change, call)),
            }
        }
        for (change, CallDifference { call_kind, name, line, undo, .. }) in named {
            let same = |seen: &&mut ChangedCall| {
                seen.change == change
                    && seen.call_kind == call_kind
                    && seen.name == name
                    && seen.kind == *kind
            };
            match self.changed.iter_mut().find(same) {
                Some(seen) => (seen.jobs, seen.undo) = (seen.jobs + 1, seen.undo | undo),
                None => {
                    let (kind, example) = (kind.clone(), job);
                    self.changed.push(ChangedCall {
                        kind,
                        change,
                        call_kind,
                        name,
                        line,
                        undo,
                        jobs: 1,
                        example,
                    });
                }
            }
        }
    }
}

impl Check {
    pub(crate) fn new(operator: Operator) -> Check {
        Check { operator, kind: None }
    }

    /// Only jobs of this kind.
    pub fn kind(mut self, kind: impl Into<String>) -> Check {
        self.kind = Some(kind.into());
        self
    }

    /// Replays every open workflow of the kinds that this engine serves. `on_progress` is called after every page; it ends the check by
    /// returning `false`.
    pub async fn run(self, mut on_progress: impl FnMut(&Checked) -> bool) -> Result<Checked, Error> {
        let mut checked = Checked::default();
        let mut kinds: Vec<String> = self.operator.replayers().keys().map(|kind| kind.kind.clone()).collect();
        kinds.sort();
        kinds.dedup();
        if let Some(kind) = &self.kind {
            if !kinds.contains(kind) {
                return Err(Error::Setup(format!(
                    "this program serves no workflow {kind:?}; it serves {}",
                    if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
                )));
            }
            kinds = vec![kind.clone()];
        }
        for kind in kinds {
            let mut filter = Filter { kind: Some(kind), limit: PAGE, ..Filter::default() };
            loop {
                let JobPage { jobs, next } = self.operator.inspect().jobs(&filter).await?;
                for summary in jobs.iter().filter(|job| !job.state.is_final()) {
                    self.check_job(summary.id, &mut checked).await?;
                }
                if !on_progress(&checked) && next.is_some() {
                    checked.interrupted = true;
                    return Ok(checked);
                }
                if next.is_none() {
                    break;
                }
                filter.before = next;
            }
        }
        Ok(checked)
    }

    async fn check_job(&self, id: JobId, checked: &mut Checked) -> Result<(), Error> {
        let Some(job) = self.operator.inspect().job(id).await? else { return Ok(()) };
        let kind = KindVersion { kind: job.summary.kind.clone(), version: job.summary.version };
        let Some(replayer) = self.operator.replayers().get(&kind).cloned() else {
            checked.unserved += 1;
            return Ok(());
        };
        let entries = self.operator.inspect().journal(id, None, usize::MAX).await?;
        if job.summary.state == State::Done {
            return Ok(());
        }
        checked.jobs += 1;
        checked.calls += entries.len();
        let key = job.summary.key.clone();
        let claimed = match self.claimed(job) {
            Ok(claimed) => claimed,
            Err(why) => {
                checked.broken.push(Broken { job: id, kind, key, why });
                return Ok(());
            }
        };
        let replay = replayer.replay(claimed, entries, Arc::clone(self.operator.services()));
        // In a task of its own: code that never returns must not hold up the others.
        let replay = self.operator.env().spawn(AssertUnwindSafe(replay).catch_unwind());
        let why = match self.operator.env().timeout(LIMIT, replay).await {
            Ok(Ok(Ok(Ok(mut differences)))) => {
                if !differences.new.is_empty() {
                    let holds = self.operator.inspect().holds(id).await?;
                    let waiting = holds.and_then(|holds| holds.waiting).map(|waiting| waiting.condition);
                    differences.ignore_current_position(waiting.as_ref());
                }
                checked.add(&kind, id, differences);
                return Ok(());
            }
            Ok(Ok(Ok(Err(failure)))) => failure,
            Ok(Ok(Err(panic))) => Failure::of_panic(&*panic),
            Ok(Err(error)) => Failure::retry(error).class(class::PANIC),
            Err(_) => {
                Failure::retry(format!("its code did not return within {LIMIT:?}")).class(class::TIMEOUT)
            }
        };
        checked.broken.push(Broken { job: id, kind, key, why });
        Ok(())
    }

    /// The job as a worker would claim it, decoded.
    fn claimed(&self, job: Job) -> Result<ClaimedJob, Failure> {
        if let Some(fault) = job.fault {
            return Err(Failure::stop(fault.into_string()).class(class::UNDECODABLE));
        }
        let decode = |payload: &windlass_model::Payload| {
            let plain = self.operator.codecs().decode(payload).map_err(|error| {
                Failure::stop(format!("the input cannot be read: {error}")).class(class::UNDECODABLE)
            })?;
            Ok::<_, Failure>(windlass_model::Payload::json(plain.into_owned()))
        };
        let (input, data) = (decode(&job.input)?, job.data.as_ref().map(decode).transpose()?);
        let kind = KindVersion { kind: job.summary.kind, version: job.summary.version };
        let mut new = windlass_model::NewJob::new(job.summary.id, &kind.kind, &job.summary.queue, input);
        (new.kind, new.key, new.settings, new.stage) =
            (kind, job.summary.key, job.settings, job.summary.stage);
        let claimed = new.claimed_at_submit(windlass_model::ClaimNo(0), job.epoch, job.summary.due_at);
        Ok(ClaimedJob { rev: job.rev, data, unwind: job.unwind, ..claimed })
    }
}
