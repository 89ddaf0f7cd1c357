//! One action on every job that matches a filter: with a preview, at a bounded rate, batch by batch.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use windlass_env::Env;
use windlass_model::{JobId, Time};
use windlass_store::{Actor, ControlOutcome, Filter, JobAction, JobPage, MAX_REFUSALS, Refusal, Summary};

use windlass_workflow::Error;

use crate::{Operator, views::block_items};

/// How many jobs one transaction changes.
pub(crate) const BATCH: usize = 100;
/// Up to how many matching jobs a preview counts.
const COUNTED: usize = 100_000;
/// How many of them it shows.
const SHOWN: usize = 10;
/// How often `on_progress` is called while the next batch waits for its time, so that an interrupt is noticed at once.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// An action on many jobs. Nothing is done until [`Bulk::run`].
///
/// Jobs that are submitted after it was created are left alone, and so are those in a state to which the action does not apply.
#[must_use = "a bulk operation does nothing until it is run"]
pub struct Bulk {
    operator: Operator,
    filter: Filter,
    action: JobAction,
    actor: Actor,
    per_second: Option<u32>,
    most: Option<usize>,
}

/// The jobs that a bulk operation would change.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Preview {
    /// How many jobs match and are in a state to which the action applies.
    pub matching: usize,
    /// Whether there may be more than were counted.
    pub at_least: bool,
    /// Only jobs before this one were counted. An operation on the jobs before it leaves those alone that are submitted later.
    pub before: Option<JobId>,
    /// Some of them, newest first.
    pub sample: Vec<Summary>,
    /// How many items the blocks among these have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub block_items: BTreeMap<JobId, u32>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

impl Preview {
    /// Counts the jobs that match and are wanted, a page at a time, and returns some of them.
    pub(crate) async fn read(
        operator: &Operator,
        filter: &Filter,
        is_wanted: impl Fn(&Summary) -> bool,
    ) -> Result<Preview, Error> {
        let mut filter = Filter { limit: 1_000, ..filter.clone() };
        let mut preview = Preview { before: filter.before, ..Preview::default() };
        loop {
            let JobPage { mut jobs, next } = operator.inspect().jobs(&filter).await?;
            jobs.retain(|job| is_wanted(job));
            preview.matching += jobs.len();
            jobs.truncate(SHOWN - preview.sample.len());
            preview.sample.append(&mut jobs);
            preview.at_least = next.is_some();
            if next.is_none() || preview.matching >= COUNTED {
                break;
            }
            filter.before = next;
        }
        preview.block_items = block_items(operator, &preview.sample).await?;
        preview.now = operator.inspect().clock().await?;
        Ok(preview)
    }
}

/// What a bulk operation has done so far.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[must_use = "jobs may have been refused"]
pub struct BulkProgress {
    /// Jobs that it has tried to change.
    pub seen: usize,
    /// Jobs that were changed.
    pub done: usize,
    /// Running jobs that were requested to end.
    pub cancel_requested: usize,
    /// Jobs that needed no change.
    #[serde(rename = "unchanged")]
    pub already: usize,
    /// Jobs that refused the action, or that no longer exist.
    pub refused: usize,
    /// Whether it was interrupted before the last job.
    pub interrupted: bool,
    /// If it was interrupted: the rest are the matching jobs before this one. See [`Filter::before`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_before: Option<JobId>,
    /// The first jobs that refused the action, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
}

impl Bulk {
    pub(crate) fn new(operator: Operator, filter: Filter, action: JobAction, actor: Actor) -> Bulk {
        let newest = operator.new_id();
        let before = Some(filter.before.map_or(newest, |before| before.min(newest)));
        Bulk { operator, filter: Filter { before, ..filter }, action, actor, per_second: None, most: None }
    }

    /// Limits it to this many jobs per second.
    pub fn per_second(mut self, jobs: u32) -> Bulk {
        self.per_second = Some(jobs.max(1));
        self
    }

    /// Limits it to the first so many jobs, newest first: to see what the action does before it is applied to all.
    pub fn first(mut self, jobs: usize) -> Bulk {
        self.most = Some(jobs);
        self
    }

    pub(crate) fn operator(&self) -> &Operator {
        &self.operator
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    pub(crate) fn action(&self) -> JobAction {
        self.action
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.actor
    }

    pub(crate) fn rate(&self) -> Option<u32> {
        self.per_second
    }

    pub(crate) fn most(&self) -> Option<usize> {
        self.most
    }

    /// Counts the matching jobs, and returns some of them. Changes nothing.
    pub async fn preview(&self) -> Result<Preview, Error> {
        Preview::read(&self.operator, &self.filter, |job| self.action.applies_to(job.state)).await
    }

    /// Runs it, batch by batch. `on_progress` is called after every batch and while the next one waits for its time; it ends the run by
    /// returning `false`. Committed batches stay.
    pub async fn run(
        self,
        mut on_progress: impl FnMut(&BulkProgress) -> bool,
    ) -> Result<BulkProgress, Error> {
        let control = self.operator.store().control();
        let (action, subject) = (format!("bulk {}", self.action.name()), describe(&self.filter));
        control.record_audit(None, &action, &subject, &self.actor).await?;
        let batch = self.per_second.map_or(BATCH, |rate| BATCH.min(rate as usize));
        let mut filter = Filter { limit: batch, ..self.filter.clone() };
        let mut counts = BulkProgress::default();
        let started = self.operator.env().instant();
        loop {
            let JobPage { jobs, next } = self.operator.inspect().jobs(&filter).await?;
            let left = self.most.map_or(usize::MAX, |most| most.saturating_sub(counts.seen));
            let applicable = jobs.iter().filter(|job| self.action.applies_to(job.state));
            let ids: Vec<JobId> = applicable.map(|job| job.id).take(left).collect();
            if !ids.is_empty() {
                counts.add(&ids, control.act_on_jobs(None, &ids, self.action, &self.actor).await?);
                self.operator.poke();
            }
            if next.is_none() || self.most.is_some_and(|most| counts.seen >= most) {
                on_progress(&counts);
                break;
            }
            filter.before = next;
            let next_at = match self.per_second {
                Some(rate) => started + Duration::from_secs_f64(counts.seen as f64 / f64::from(rate)),
                None => started,
            };
            if !wait(self.operator.env(), next_at, || on_progress(&counts)).await {
                (counts.interrupted, counts.next_before) = (true, filter.before);
                break;
            }
        }
        let ended = format!(
            "{action} ended: {} done, {} requested to end, {} refused",
            counts.done, counts.cancel_requested, counts.refused
        );
        control.record_audit(None, &ended, &subject, &self.actor).await?;
        Ok(counts)
    }
}

/// Waits until `next_at` while `proceed` returns true. Returns whether to proceed.
pub(crate) async fn wait(env: &Env, next_at: Instant, mut proceed: impl FnMut() -> bool) -> bool {
    while proceed() {
        if env.instant() >= next_at {
            return true;
        }
        env.sleep_until(next_at.min(env.instant() + PROGRESS_INTERVAL)).await;
    }
    false
}

impl BulkProgress {
    fn add(&mut self, jobs: &[JobId], outcomes: Vec<ControlOutcome>) {
        self.seen += outcomes.len();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            match outcome {
                ControlOutcome::Done | ControlOutcome::Created(_) => self.done += 1,
                ControlOutcome::CancelRequested => self.cancel_requested += 1,
                ControlOutcome::Already(_) => self.already += 1,
                ControlOutcome::Refused(why) => self.refuse(*job, why),
                ControlOutcome::Unknown => self.refuse(*job, "it was pruned meanwhile".to_owned()),
            }
        }
    }

    fn refuse(&mut self, job: JobId, why: String) {
        self.refused += 1;
        if self.refusals.len() < MAX_REFUSALS {
            self.refusals.push(Refusal { job, why });
        }
    }
}

/// A filter as text, for the audit log.
pub fn describe(filter: &Filter) -> String {
    let mut conditions = Vec::new();
    let mut add = |what: &str, value: &Option<String>| {
        if let Some(value) = value {
            conditions.push(format!("{what}={value}"));
        }
    };
    add("state", &filter.state.map(|state| state.to_string()));
    add("kind", &filter.kind);
    add("queue", &filter.queue);
    add("tag", &filter.tag);
    add("key", &filter.key);
    add("key prefix", &filter.key_prefix);
    add("error class", &filter.error_class);
    add("stage", &filter.stage);
    add("version", &filter.version.map(|version| version.to_string()));
    add("top", &filter.top.then(|| "true".to_owned()));
    add("since", &filter.since.map(|at| at.to_string()));
    add("until", &filter.until.map(|at| at.to_string()));
    if conditions.is_empty() { "all jobs".into() } else { conditions.join(" ") }
}
