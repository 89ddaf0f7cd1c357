//! How long a job has waited for its signals, and how long such waits usually take.

use std::time::Duration;

use windlass_model::{Time, limits::RESERVED_PREFIX};
use windlass_store::{Inspect, SignalWaitFilter, SignalWaits, Waiting};
use windlass_workflow::Error;

use super::span;
use crate::text;

/// The usual wait is shown from this many waits on: fewer say nothing.
const ENOUGH: u64 = 10;
/// The usual waits of at most this many signals are shown: the explanation stays short.
const MAX_SIGNALS: usize = 3;
/// Waits that ended longer ago say nothing about those of today.
const RECENT: Duration = Duration::from_secs(30 * 86_400);

/// Reads how long waits for the missing signals of a job of this kind usually take, and says it in a sentence or two.
pub(super) async fn sentence(
    inspect: &dyn Inspect,
    kind: &str,
    waiting: &Waiting,
    now: Time,
) -> Result<Option<String>, Error> {
    let missing: Vec<&str> = missing(waiting).take(MAX_SIGNALS).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let filter = SignalWaitFilter { kinds: vec![kind.to_owned()], signal: None, from: now - RECENT };
    let waits = inspect.signal_waits(&filter).await?;
    let waits: Vec<&SignalWaits> =
        waits.iter().filter(|waits| missing.contains(&waits.signal.as_str())).collect();
    Ok(describe(waiting.since.map(|since| now - since), &waits))
}

/// The signals that it waits for and that have not arrived.
fn missing(waiting: &Waiting) -> impl Iterator<Item = &str> {
    let has_arrived = |name: &str| waiting.arrived.iter().any(|arrived| arrived == name);
    let is_own = |name: &str| name.starts_with(RESERVED_PREFIX);
    waiting.condition.names().filter(move |name| !is_own(name) && !has_arrived(name))
}

fn describe(waited: Option<Duration>, waits: &[&SignalWaits]) -> Option<String> {
    let mut sentences: Vec<String> =
        waited.map(|waited| format!("It has waited for {}.", span(waited))).into_iter().collect();
    for SignalWaits { signal, arrived, timed_out, .. } in waits {
        let (Some(most), Some(half)) = (arrived.percentile(0.95), arrived.percentile(0.5)) else { continue };
        if arrived.count() < ENOUGH {
            continue;
        }
        let late = match timed_out.count() {
            0 => String::new(),
            late => format!("; {} timed out without it", text::counted(late, "wait", "waits")),
        };
        sentences.push(format!(
            "Of the last {} that {signal:?} ended for this kind, 95 % took up to {} and half up to {}{late}.",
            text::counted(arrived.count(), "wait", "waits"),
            span(most),
            span(half),
        ));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

#[cfg(test)]
mod tests {
    use windlass_model::{
        Histogram, WaitCondition,
        wait::{CHILD_SIGNAL, SignalName},
    };

    use super::*;

    fn histogram(seconds: u64, count: u64) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.add(Histogram::bucket(Duration::from_secs(seconds).as_micros() as i64), count);
        histogram
    }

    #[test]
    fn the_usual_wait_is_shown_once_enough_are_known() {
        let waits = |count| SignalWaits {
            kind: "k".into(),
            signal: "paid".into(),
            arrived: histogram(7_200, count),
            timed_out: histogram(9_000, 2),
        };
        let waited = Some(Duration::from_secs(90));
        let few = describe(waited, &[&waits(3)]).expect("it has waited");
        assert!(few.starts_with("It has waited for ") && !few.contains("95 %"), "{few}");
        let enough = describe(waited, &[&waits(1_200)]).expect("it has waited");
        assert!(
            enough.contains("1,200 waits that \"paid\" ended") && enough.contains("2 waits timed out"),
            "{enough}"
        );
        assert_eq!(describe(None, &[&waits(3)]), None);
    }

    #[test]
    fn only_missing_signals_of_others_count() {
        let name = |name: &str| SignalName { name: name.into(), every: false };
        let names = vec![name("a"), name("b"), name(CHILD_SIGNAL)];
        let waiting = Waiting {
            condition: WaitCondition::Signals { names, needs: 2 },
            since: None,
            wait_until: None,
            arrived: vec!["a".into()],
            pending_children: 0,
            unreadable: Vec::new(),
        };
        assert_eq!(missing(&waiting).collect::<Vec<_>>(), ["b"]);
    }
}
