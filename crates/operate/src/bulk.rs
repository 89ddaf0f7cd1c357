//! One thing done to every job that matches a filter: with a preview first, at a bounded rate, and with an account.

use std::time::{Duration, Instant};

use windlass_env::Env;
use windlass_model::JobId;
use windlass_store::{Actor, ControlOutcome, Filter, JobAction, Summary};

use windlass_workflow::Error;

use crate::Operator;

/// How many jobs are done in one transaction.
pub(crate) const BATCH: usize = 100;
/// Up to how many matching jobs a preview counts.
const COUNTED: usize = 100_000;
/// How many of them it shows.
const SHOWN: usize = 10;
/// How often is asked whether to go on while the next batch waits for its time.
const ASKED: Duration = Duration::from_millis(100);

/// Something to be done to many jobs. Nothing is done until [`Bulk::run`].
///
/// Jobs that are submitted after it was made are left alone, and so are those in a state in which it cannot be done.
#[must_use = "a bulk operation does nothing until it is run"]
pub struct Bulk {
    operator: Operator,
    filter: Filter,
    act: JobAction,
    by: Actor,
    per_second: Option<u32>,
}

/// What a bulk operation would do.
#[derive(Clone, PartialEq, Debug)]
pub struct Preview {
    /// How many jobs match and are in a state in which it can be done.
    pub matching: usize,
    /// Whether there may be more than were counted.
    pub at_least: bool,
    /// Some of them, newest first.
    pub sample: Vec<Summary>,
}

/// What a bulk operation has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BulkProgress {
    /// Jobs that it was tried on.
    pub seen: usize,
    /// Jobs to which it was done.
    pub done: usize,
    /// Running jobs that were told to end.
    pub cancel_requested: usize,
    /// Jobs for which it was so already.
    pub already: usize,
    /// Jobs to which it cannot be done, or that are gone.
    pub refused: usize,
    /// Whether it was ended before all were done.
    pub cut_short: bool,
}

impl Bulk {
    pub(crate) fn new(operator: Operator, filter: Filter, act: JobAction, by: Actor) -> Bulk {
        let newest = operator.new_id();
        let before = Some(filter.before.map_or(newest, |before| before.min(newest)));
        Bulk { operator, filter: Filter { before, ..filter }, act, by, per_second: None }
    }

    /// At most so many jobs a second.
    pub fn per_second(mut self, jobs: u32) -> Bulk {
        self.per_second = Some(jobs.max(1));
        self
    }

    /// Counts what matches, and shows some of it. Does nothing.
    pub async fn preview(&self) -> Result<Preview, Error> {
        let mut filter = Filter { limit: 1_000, ..self.filter.clone() };
        let mut preview = Preview { matching: 0, at_least: false, sample: Vec::new() };
        loop {
            let mut page = self.operator.inspect().jobs(&filter).await?;
            filter.before = page.last().map(|job| job.id);
            let last = page.len() < filter.limit;
            page.retain(|job| self.act.applies_to(job.state));
            preview.matching += page.len();
            page.truncate(SHOWN - preview.sample.len());
            preview.sample.append(&mut page);
            preview.at_least = !last;
            if last || preview.matching >= COUNTED {
                return Ok(preview);
            }
        }
    }

    /// Does it, batch by batch. `seen` is told how far it is after every batch and while the next one waits for its time,
    /// and may end it by answering `false`; what was done stays done.
    pub async fn run(self, mut seen: impl FnMut(&BulkProgress) -> bool) -> Result<BulkProgress, Error> {
        let control = self.operator.store().control();
        let (action, subject) = (format!("bulk {}", self.act.name()), describe(&self.filter));
        control.record_audit(None, &action, &subject, &self.by).await?;
        let batch = self.per_second.map_or(BATCH, |rate| BATCH.min(rate as usize));
        let mut filter = Filter { limit: batch, ..self.filter.clone() };
        let mut counts = BulkProgress::default();
        let started = self.operator.env().instant();
        loop {
            let page = self.operator.inspect().jobs(&filter).await?;
            filter.before = page.last().map(|job| job.id);
            let ids: Vec<JobId> =
                page.iter().filter(|job| self.act.applies_to(job.state)).map(|job| job.id).collect();
            if !ids.is_empty() {
                counts.add(&control.act_on_jobs(None, &ids, self.act, &self.by).await?);
                self.operator.poke();
            }
            if page.len() < batch {
                seen(&counts);
                break;
            }
            let due = match self.per_second {
                Some(rate) => started + Duration::from_secs_f64(counts.seen as f64 / f64::from(rate)),
                None => started,
            };
            if !wait(self.operator.env(), due, || seen(&counts)).await {
                counts.cut_short = true;
                break;
            }
        }
        let ended = format!(
            "{action} ended: {} done, {} told, {} not",
            counts.done, counts.cancel_requested, counts.refused
        );
        control.record_audit(None, &ended, &subject, &self.by).await?;
        Ok(counts)
    }
}

/// Waits until it is time to go on, as long as that is wanted; answers whether it still is.
pub(crate) async fn wait(env: &Env, due: Instant, mut wanted: impl FnMut() -> bool) -> bool {
    while wanted() {
        if env.instant() >= due {
            return true;
        }
        env.sleep_until(due.min(env.instant() + ASKED)).await;
    }
    false
}

impl BulkProgress {
    fn add(&mut self, dids: &[ControlOutcome]) {
        self.seen += dids.len();
        for did in dids {
            match did {
                ControlOutcome::Done | ControlOutcome::Created(_) => self.done += 1,
                ControlOutcome::CancelRequested => self.cancel_requested += 1,
                ControlOutcome::Already(_) => self.already += 1,
                ControlOutcome::Refused(_) | ControlOutcome::Unknown => self.refused += 1,
            }
        }
    }
}

/// A filter in words, for the audit log.
pub fn describe(filter: &Filter) -> String {
    let mut words = Vec::new();
    let mut say = |what: &str, value: &Option<String>| {
        if let Some(value) = value {
            words.push(format!("{what}={value}"));
        }
    };
    say("state", &filter.state.map(|state| state.to_string()));
    say("kind", &filter.kind);
    say("queue", &filter.queue);
    say("tag", &filter.tag);
    say("key", &filter.key);
    say("stage", &filter.stage);
    say("version", &filter.version.map(|version| version.to_string()));
    if words.is_empty() { "all jobs".into() } else { words.join(" ") }
}
