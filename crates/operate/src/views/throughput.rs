//! What ended per minute, hour, or queue and kind, and how long jobs waited and ran; how long waits for signals take.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_model::{Ended, Histogram, Time};
use windlass_store::{SignalWaitFilter, ThroughputBy, ThroughputFilter};
use windlass_workflow::Error;

use crate::Operator;

/// The longest span that is shown: sums of an hour of a year are as many rows as a page can take.
pub const MAX_SPAN: Duration = Duration::from_secs(366 * 86_400);

/// Percentiles of durations, in seconds; `None` if there are no durations. Each is within 10 % of the exact value.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many durations there are.
    pub count: u64,
    /// Half of the durations are at most this long.
    pub p50_seconds: Option<f64>,
    /// 95 % are at most this long.
    pub p95_seconds: Option<f64>,
    /// 99 % are at most this long.
    pub p99_seconds: Option<f64>,
}

impl Percentiles {
    /// Those of a histogram.
    pub fn of(histogram: &Histogram) -> Percentiles {
        let seconds = |share| histogram.percentile(share).map(|duration| duration.as_secs_f64());
        Percentiles {
            count: histogram.count(),
            p50_seconds: seconds(0.5),
            p95_seconds: seconds(0.95),
            p99_seconds: seconds(0.99),
        }
    }
}

/// Which throughput is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThroughputRequest {
    /// Only of these queues; empty for all.
    pub queues: Vec<String>,
    /// Only of these kinds; empty for all.
    pub kinds: Vec<String>,
    /// The length of the span, which ends now; at most [`MAX_SPAN`] of it are shown.
    pub since: Duration,
    /// What a row sums up.
    pub by: ThroughputBy,
}

/// What ended in a span of time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ThroughputView {
    /// When the span begins: the beginning of a minute or hour.
    pub from: Time,
    /// When it ends: the store's clock.
    pub until: Time,
    /// The rows, in order. A minute, an hour or a kind in which nothing ended has none.
    pub rows: Vec<ThroughputRow>,
    /// Everything together.
    pub total: EndedView,
}

/// What ended in a minute or an hour, or of a queue and kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ThroughputRow {
    /// When the minute or hour began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Time>,
    /// How many minutes it sums up: 60 also where single minutes are no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u32>,
    /// The queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What ended.
    #[serde(flatten)]
    pub ended: EndedView,
}

/// Ends of jobs, and their times.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct EndedView {
    /// How many jobs are done.
    pub done: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// How many attempts failed and were followed by another one.
    pub retried: u64,
    /// How long jobs waited from when they were due until the attempt started that ended them.
    pub wait: Percentiles,
    /// How long that attempt ran.
    pub run: Percentiles,
}

impl EndedView {
    fn of(ended: &Ended) -> EndedView {
        EndedView {
            done: ended.done,
            failed: ended.failed,
            cancelled: ended.cancelled,
            retried: ended.retried,
            wait: Percentiles::of(&ended.wait_times),
            run: Percentiles::of(&ended.run_times),
        }
    }
}

impl ThroughputView {
    /// Reads it.
    pub async fn read(operator: &Operator, request: &ThroughputRequest) -> Result<ThroughputView, Error> {
        let inspect = operator.inspect();
        let until = inspect.clock().await?;
        let period = match request.by {
            ThroughputBy::Hour => 3_600_000_000,
            ThroughputBy::Minute | ThroughputBy::Kind => 60_000_000,
        };
        let since = until - request.since.min(MAX_SPAN);
        let from = Time(since.micros().div_euclid(period) * period);
        let filter = ThroughputFilter {
            queues: request.queues.clone(),
            kinds: request.kinds.clone(),
            from,
            // The minute that has begun too.
            until: until + Duration::from_micros(1),
            by: request.by,
        };
        let mut total = Ended::default();
        let mut rows = Vec::new();
        for row in inspect.throughput(&filter).await? {
            total.merge(&row.ended);
            let (queue, kind) = row.queue_and_kind.unzip();
            rows.push(ThroughputRow {
                starts_at: row.starts_at,
                minutes: row.starts_at.map(|_| row.minutes),
                queue,
                kind,
                ended: EndedView::of(&row.ended),
            });
        }
        Ok(ThroughputView { from, until, rows, total: EndedView::of(&total) })
    }
}

/// How long waits for signals take.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SignalWaitsView {
    /// By kind and signal.
    pub waits: Vec<SignalWaitsRow>,
}

/// How long jobs of a kind wait for a signal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SignalWaitsRow {
    /// The kind of the jobs.
    pub kind: String,
    /// The signal.
    pub signal: String,
    /// The waits that the signal ended.
    pub arrived: Percentiles,
    /// How many waits timed out without it.
    pub timed_out: u64,
}

impl SignalWaitsView {
    /// Reads it. Waits that ended in the last `since` are shown, to the day.
    pub async fn read(
        operator: &Operator,
        kinds: Vec<String>,
        signal: Option<String>,
        since: Duration,
    ) -> Result<SignalWaitsView, Error> {
        let inspect = operator.inspect();
        let from = inspect.clock().await? - since.min(MAX_SPAN);
        let waits = inspect.signal_waits(&SignalWaitFilter { kinds, signal, from }).await?;
        let row = |waits: windlass_store::SignalWaits| SignalWaitsRow {
            kind: waits.kind,
            signal: waits.signal,
            arrived: Percentiles::of(&waits.arrived),
            timed_out: waits.timed_out.count(),
        };
        Ok(SignalWaitsView { waits: waits.into_iter().map(row).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_nothing_are_none() {
        let none = Percentiles::of(&Histogram::default());
        assert_eq!((none.count, none.p50_seconds, none.p99_seconds), (0, None, None));
    }

    #[test]
    fn percentiles_are_in_seconds() {
        let mut histogram = Histogram::default();
        histogram.add(Histogram::bucket(2_000_000), 98);
        histogram.add(Histogram::bucket(60_000_000), 2);
        let seen = Percentiles::of(&histogram);
        let near =
            |found: Option<f64>, exact: f64| found.is_some_and(|found| (found - exact).abs() <= exact / 10.0);
        assert!(
            near(seen.p50_seconds, 2.0) && near(seen.p95_seconds, 2.0) && near(seen.p99_seconds, 60.0),
            "{seen:?}"
        );
    }
}
