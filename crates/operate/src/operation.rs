//! Runs bulk actions and redrives with a record of their progress in the store, so that people see how far they are and can stop them, whichever
//! server runs them.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{Either, select};
use serde_json::{Map, Value};
use windlass_store::{ControlOutcome, Filter, NewOperation, OperationEnd, OperationId, OperationProgress};
use windlass_workflow::Error;

use crate::{Bulk, BulkProgress, Control, Operator, Redrive, RedriveProgress};

/// How often progress is recorded, and how late a request to stop is noticed.
const INTERVAL: Duration = Duration::from_secs(1);
/// How much of the recorded rate is that of the last interval: the rest is that of those before.
const WEIGHT: f64 = 0.3;

/// Runs a bulk action with a record of its progress: [`begin_bulk`] and [`RecordedBulk::run`] in one.
pub async fn run_bulk(bulk: Bulk, matching: Option<(u64, bool)>) -> Result<BulkProgress, Error> {
    begin_bulk(bulk, matching).await?.run().await
}

/// Runs a redrive with a record of its progress: [`begin_redrive`] and [`RecordedRedrive::run`] in one.
pub async fn run_redrive(redrive: Redrive) -> Result<RedriveProgress, Error> {
    begin_redrive(redrive).await?.run().await
}

/// Adds the record of a bulk action. `matching` is how many jobs match, and whether there may be more, if that was counted.
pub async fn begin_bulk(bulk: Bulk, matching: Option<(u64, bool)>) -> Result<RecordedBulk, Error> {
    let count = matching.map(|(count, _)| bulk.most().map_or(count, |most| count.min(most as u64)));
    let progress = OperationProgress {
        matching: count,
        matching_at_least: matching.is_some_and(|(_, at_least)| at_least) && bulk.most().is_none(),
        left: count,
        ..OperationProgress::default()
    };
    let new = NewOperation {
        id: OperationId(bulk.operator().new_id()),
        action: format!("bulk {}", bulk.action().name()),
        filter: filter_json(bulk.filter()),
        parameters: object([("per_second", bulk.rate().into()), ("first", bulk.most().into())]),
        progress,
    };
    bulk.operator().store().add_operation(None, &new, bulk.actor()).await?;
    Ok(RecordedBulk { id: new.id, bulk, progress: new.progress })
}

/// Adds the record of a redrive.
pub async fn begin_redrive(redrive: Redrive) -> Result<RecordedRedrive, Error> {
    let (job, branch) = redrive.target();
    let new = NewOperation {
        id: OperationId(redrive.operator().new_id()),
        action: "redrive".to_owned(),
        filter: object([("job", job.to_string().into()), ("branch", branch.into())]),
        parameters: object([("per_second", redrive.rate().into())]),
        progress: OperationProgress::default(),
    };
    redrive.operator().store().add_operation(None, &new, redrive.actor()).await?;
    Ok(RecordedRedrive { id: new.id, redrive })
}

impl Control {
    /// Requests a recorded operation to stop. What it has done stays.
    pub async fn stop_operation(&self, id: OperationId) -> Result<ControlOutcome, Error> {
        Ok(self.operator().store().request_stop(None, id, self.actor()).await?)
    }
}

/// A bulk action that has a record and does not run yet.
#[must_use = "nothing is done until it is run"]
pub struct RecordedBulk {
    id: OperationId,
    bulk: Bulk,
    progress: OperationProgress,
}

impl RecordedBulk {
    /// The id of its record.
    pub fn id(&self) -> OperationId {
        self.id
    }

    /// Runs it until it is done or somebody stops it. The record says how it ended, also if that is an error.
    pub async fn run(self) -> Result<BulkProgress, Error> {
        self.run_while(|| true).await
    }

    /// The same; if `go_on` returns `false`, because the server stops, it ends as interrupted.
    pub async fn run_while(self, go_on: impl Fn() -> bool + Send) -> Result<BulkProgress, Error> {
        let RecordedBulk { id, bulk, progress } = self;
        let recorder = Recorder::new(bulk.operator().clone(), id, progress);
        let seen = Arc::clone(&recorder.shared);
        let run = bulk.run(move |progress| seen.show(|shown| show_bulk(shown, progress)) && go_on());
        recorder.record(run, |ended| ended.interrupted).await
    }
}

/// A redrive that has a record and does not run yet.
#[must_use = "nothing is done until it is run"]
pub struct RecordedRedrive {
    id: OperationId,
    redrive: Redrive,
}

impl RecordedRedrive {
    /// The id of its record.
    pub fn id(&self) -> OperationId {
        self.id
    }

    /// Runs it until it is done or somebody stops it. The record says how it ended, also if that is an error.
    pub async fn run(self) -> Result<RedriveProgress, Error> {
        self.run_while(|| true).await
    }

    /// The same; if `go_on` returns `false`, because the server stops, it ends as interrupted.
    pub async fn run_while(self, go_on: impl Fn() -> bool + Send) -> Result<RedriveProgress, Error> {
        let RecordedRedrive { id, redrive } = self;
        let recorder = Recorder::new(redrive.operator().clone(), id, OperationProgress::default());
        let seen = Arc::clone(&recorder.shared);
        let run = redrive.run(move |progress| seen.show(|shown| show_redrive(shown, progress)) && go_on());
        recorder.record(run, |ended| ended.interrupted).await
    }
}

fn show_bulk(shown: &mut OperationProgress, progress: &BulkProgress) {
    let BulkProgress { done, cancel_requested, already, refused, next_before, refusals, .. } = progress;
    shown.done = (*done + *cancel_requested) as u64;
    (shown.already, shown.refused) = (*already as u64, *refused as u64);
    shown.next_before = *next_before;
    shown.refusals.clone_from(refusals);
    // Others may have changed some of the jobs since they were counted.
    shown.left = shown.matching.map(|matching| matching.saturating_sub(shown.handled()));
}

fn show_redrive(shown: &mut OperationProgress, progress: &RedriveProgress) {
    let RedriveProgress { unsuccessful, retried, already, refused, refusals, .. } = progress;
    (shown.matching, shown.done, shown.already, shown.refused) =
        (Some(*unsuccessful), *retried, *already, *refused);
    shown.refusals.clone_from(refusals);
    shown.left = Some(unsuccessful.saturating_sub(shown.handled()));
}

/// What an operation and the recorder of its progress share.
struct Shared {
    progress: Mutex<OperationProgress>,
    stop: AtomicBool,
}

impl Shared {
    /// Takes over the progress of the operation. Returns whether it goes on.
    fn show(&self, update: impl FnOnce(&mut OperationProgress)) -> bool {
        update(&mut self.progress.lock().unwrap_or_else(|e| e.into_inner()));
        !self.stop.load(Ordering::Relaxed)
    }

    fn progress(&self) -> OperationProgress {
        self.progress.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

/// Records the progress of an operation while it runs.
struct Recorder {
    operator: Operator,
    id: OperationId,
    shared: Arc<Shared>,
}

impl Recorder {
    fn new(operator: Operator, id: OperationId, progress: OperationProgress) -> Recorder {
        let shared = Shared { progress: Mutex::new(progress), stop: AtomicBool::new(false) };
        Recorder { operator, id, shared: Arc::new(shared) }
    }

    /// Runs an operation, and records its progress until it has ended and how it did. A record that cannot be written is written later, and
    /// stops nothing.
    async fn record<P>(
        &self,
        run: impl Future<Output = Result<P, Error>>,
        was_interrupted: impl FnOnce(&P) -> bool,
    ) -> Result<P, Error> {
        let ended = match select(pin!(run), pin!(self.record_progress())).await {
            Either::Left((ended, _)) => ended,
            Either::Right((never, _)) => match never {},
        };
        let end = match &ended {
            Ok(progress) if !was_interrupted(progress) => OperationEnd::Done,
            Ok(_) if self.shared.stop.load(Ordering::Relaxed) => OperationEnd::Stopped,
            Ok(_) => OperationEnd::Interrupted,
            Err(error) => OperationEnd::Failed(error.to_string()),
        };
        let mut progress = self.shared.progress();
        if end == OperationEnd::Done {
            progress.left = progress.left.map(|_| 0);
        }
        let store = self.operator.store();
        if let Err(error) = store.update_operation(None, self.id, &progress, Some(&end)).await {
            tracing::warn!(%error, operation = %self.id, "the end of an operation could not be recorded; it will read as interrupted");
        }
        ended
    }

    /// Records the progress every second, for ever.
    async fn record_progress(&self) -> std::convert::Infallible {
        let env = self.operator.env();
        let (mut at, mut handled, mut rate) = (env.instant(), 0, None);
        loop {
            env.sleep(INTERVAL).await;
            let mut progress = self.shared.progress();
            let (now, seconds) = (env.instant(), env.since(at).as_secs_f64());
            rate = next_rate(rate, progress.handled() - handled, seconds);
            (at, handled, progress.rate) = (now, progress.handled(), rate);
            self.shared.show(|shown| shown.rate = rate);
            match self.operator.store().update_operation(None, self.id, &progress, None).await {
                Ok(stop) => self.shared.stop.store(stop, Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, operation = %self.id, "progress was not recorded"),
            }
        }
    }
}

/// How many jobs are handled per second, after so many in so many seconds.
fn next_rate(before: Option<f64>, handled: u64, seconds: f64) -> Option<f64> {
    if seconds <= 0.0 {
        return before;
    }
    let now = handled as f64 / seconds;
    Some(before.map_or(now, |before| before + WEIGHT * (now - before)))
}

/// The conditions of a filter as JSON, without those that say which page is read.
pub(crate) fn filter_json(filter: &Filter) -> Value {
    let Filter {
        state,
        kind,
        queue,
        tag,
        key,
        key_prefix,
        error_class,
        stage,
        version,
        top,
        since,
        until,
        ..
    } = filter;
    let text = |text: &Option<String>| Value::from(text.clone());
    object([
        ("state", state.map(|state| state.to_string()).into()),
        ("kind", text(kind)),
        ("queue", text(queue)),
        ("tag", text(tag)),
        ("key", text(key)),
        ("key_prefix", text(key_prefix)),
        ("error_class", text(error_class)),
        ("stage", text(stage)),
        ("version", (*version).into()),
        ("top", top.then_some(true).into()),
        ("since", since.map(|at| at.to_string()).into()),
        ("until", until.map(|at| at.to_string()).into()),
    ])
}

/// An object of those values that are not null.
fn object<const N: usize>(values: [(&str, Value); N]) -> Value {
    let values = values.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(values.map(|(name, value)| (name.to_owned(), value)).collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_model::State;

    use super::*;

    #[test]
    fn a_filter_is_recorded_by_its_conditions() {
        let filter =
            Filter { state: Some(State::Failed), kind: Some("mail".into()), top: true, ..Filter::default() };
        assert_eq!(filter_json(&filter), json!({ "state": "failed", "kind": "mail", "top": true }));
        assert_eq!(filter_json(&Filter::default()), json!({}));
    }

    #[test]
    fn a_rate_follows_the_last_seconds() {
        assert_eq!(next_rate(None, 200, 2.0), Some(100.0));
        let slower = next_rate(Some(100.0), 0, 1.0).expect("a rate");
        assert!((slower - 70.0).abs() < 1e-9, "{slower}");
        assert_eq!(next_rate(Some(7.0), 5, 0.0), Some(7.0));
    }
}
