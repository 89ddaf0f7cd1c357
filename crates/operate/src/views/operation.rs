//! Operations that servers run on behalf of people: how far each is, and how much longer it takes.

use serde::{Deserialize, Serialize};
use windlass_model::Time;
use windlass_store::{Operation, OperationId, OperationState};
use windlass_workflow::Error;

use crate::Operator;

/// An operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OperationView {
    /// Its record.
    #[serde(flatten)]
    pub operation: Operation,
    /// Which part of it is over, from 0 to 1, if it is known how many jobs match.
    pub share: Option<f64>,
    /// How many seconds it has run.
    pub seconds: f64,
    /// How many more seconds it takes at its rate, while it runs.
    pub eta_seconds: Option<f64>,
    /// Whether it can be stopped.
    pub can_stop: bool,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

impl OperationView {
    /// Reads an operation; `None` if it does not exist.
    pub async fn read(operator: &Operator, id: OperationId) -> Result<Option<OperationView>, Error> {
        let now = operator.inspect().clock().await?;
        let operation = operator.store().operation(None, id).await?;
        Ok(operation.map(|operation| OperationView::new(operation, now)))
    }

    fn new(operation: Operation, now: Time) -> OperationView {
        let runs = operation.state == OperationState::Running;
        let (progress, last) = (&operation.progress, operation.ended_at.unwrap_or(operation.updated_at));
        let share = match (operation.state, progress.matching) {
            (OperationState::Done, _) => Some(1.0),
            (_, Some(0)) | (_, None) => None,
            (_, Some(all)) => Some((progress.handled() as f64 / all as f64).min(1.0)),
        };
        let rate = progress.rate.filter(|rate| runs && *rate > 0.0);
        let eta = rate.zip(progress.left).map(|(rate, left)| left as f64 / rate);
        OperationView {
            share,
            seconds: (last.max(operation.started_at) - operation.started_at).as_secs_f64(),
            // More than were counted may match.
            eta_seconds: eta.filter(|_| !progress.matching_at_least),
            can_stop: runs && !operation.stop_requested,
            now,
            operation,
        }
    }
}

/// Operations, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OperationList {
    /// The operations.
    pub operations: Vec<OperationView>,
    /// The next page has the operations before this one; `None` on the last page.
    pub next_before: Option<OperationId>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

impl OperationList {
    /// Reads a page: at most `limit` operations before `before`.
    pub async fn read(
        operator: &Operator,
        before: Option<OperationId>,
        limit: usize,
    ) -> Result<OperationList, Error> {
        let now = operator.inspect().clock().await?;
        // One more than is wanted, to know whether there is another page.
        let mut operations = operator.store().operations(None, before, limit.saturating_add(1)).await?;
        let more = operations.len() > limit;
        operations.truncate(limit);
        let next_before = operations.last().filter(|_| more).map(|operation| operation.id);
        let operations = operations.into_iter().map(|operation| OperationView::new(operation, now)).collect();
        Ok(OperationList { operations, next_before, now })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windlass_model::JobId;
    use windlass_store::OperationProgress;

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn operation(state: OperationState, progress: OperationProgress) -> Operation {
        Operation {
            id: OperationId(JobId::from_parts(1, 2, 3)),
            action: "bulk retry".into(),
            filter: serde_json::Value::Null,
            parameters: serde_json::Value::Null,
            author: "ada".into(),
            note: None,
            started_at: NOW - Duration::from_secs(30),
            updated_at: NOW - Duration::from_secs(1),
            ended_at: (state != OperationState::Running).then_some(NOW - Duration::from_secs(10)),
            state,
            progress,
            stop_requested: false,
            error: None,
        }
    }

    fn progress(done: u64, matching: Option<u64>) -> OperationProgress {
        let left = matching.map(|matching| matching - done);
        OperationProgress { done, matching, left, rate: Some(2.0), ..OperationProgress::default() }
    }

    #[test]
    fn a_running_operation_says_how_much_longer_it_takes() {
        let view = OperationView::new(operation(OperationState::Running, progress(25, Some(61))), NOW);
        assert_eq!((view.seconds, view.eta_seconds, view.can_stop), (29.0, Some(18.0), true));
        assert!(view.share.is_some_and(|share| (share - 25.0 / 61.0).abs() < 1e-9), "{view:?}");
        let more = OperationProgress { matching_at_least: true, ..progress(25, Some(61)) };
        assert_eq!(OperationView::new(operation(OperationState::Running, more), NOW).eta_seconds, None);
        let unknown = OperationView::new(operation(OperationState::Running, progress(25, None)), NOW);
        assert_eq!((unknown.share, unknown.eta_seconds), (None, None));
        let stopping =
            Operation { stop_requested: true, ..operation(OperationState::Running, progress(25, Some(61))) };
        assert!(!OperationView::new(stopping, NOW).can_stop);
    }

    #[test]
    fn an_ended_operation_takes_no_longer() {
        let view = OperationView::new(operation(OperationState::Done, progress(60, Some(61))), NOW);
        assert_eq!(
            (view.share, view.seconds, view.eta_seconds, view.can_stop),
            (Some(1.0), 20.0, None, false)
        );
    }
}
