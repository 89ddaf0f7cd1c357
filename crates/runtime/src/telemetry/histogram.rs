//! Histograms: counts of values under fixed bounds.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The most bounds of a histogram, so that a batch can be counted on the stack.
const MAX_BOUNDS: usize = 15;

/// Bounds for calls to a store, in microseconds: from a local commit to a database that hangs.
pub(crate) const CALL_SECONDS: Bounds = Bounds {
    upper: &[
        250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 5_000_000, 10_000_000,
    ],
    per_unit: 1e6,
};
/// Bounds for attempts and waits, in microseconds: from a millisecond to six hours.
pub(crate) const WORK_SECONDS: Bounds = Bounds {
    upper: &[
        1_000,
        5_000,
        25_000,
        100_000,
        500_000,
        1_000_000,
        5_000_000,
        15_000_000,
        60_000_000,
        300_000_000,
        900_000_000,
        3_600_000_000,
        21_600_000_000,
    ],
    per_unit: 1e6,
};
/// Bounds for the size of batches, up to the largest that is sent.
pub(crate) const BATCH_SIZE: Bounds =
    Bounds { upper: &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000], per_unit: 1.0 };

/// The upper bounds of a histogram, and how many of its values make one of the unit that is shown.
pub(crate) struct Bounds {
    upper: &'static [u64],
    per_unit: f64,
}

/// A histogram that many threads write without a lock.
pub(crate) struct Histogram {
    bounds: Bounds,
    /// One more than there are bounds: the last counts values beyond all of them.
    counts: [AtomicU64; MAX_BOUNDS + 1],
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: Bounds) -> Histogram {
        assert!(bounds.upper.len() <= MAX_BOUNDS);
        Histogram { bounds, counts: Default::default(), sum: AtomicU64::new(0) }
    }

    fn bucket(&self, value: u64) -> usize {
        let upper = self.bounds.upper;
        upper.iter().position(|bound| value <= *bound).unwrap_or(upper.len())
    }

    /// Counts one value.
    pub(crate) fn record(&self, value: u64) {
        self.counts[self.bucket(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts one duration.
    pub(crate) fn record_duration(&self, duration: Duration) {
        self.record(micros(duration));
    }

    /// Counts a batch of durations, with few writes to memory that other threads write too.
    pub(crate) fn record_durations(&self, durations: impl Iterator<Item = Duration>) {
        let (mut counts, mut sum) = ([0; MAX_BOUNDS + 1], 0u64);
        for value in durations.map(micros) {
            counts[self.bucket(value)] += 1;
            sum = sum.saturating_add(value);
        }
        for (count, new) in self.counts.iter().zip(counts).filter(|(_, new)| *new > 0) {
            count.fetch_add(new, Ordering::Relaxed);
        }
        self.sum.fetch_add(sum, Ordering::Relaxed);
    }

    /// For each bound, in the unit shown, how many values were at most that; the last bound is infinity.
    pub(crate) fn cumulative(&self) -> Vec<(f64, u64)> {
        let upper = self.bounds.upper.iter().map(|bound| *bound as f64 / self.bounds.per_unit);
        let mut total = 0;
        upper
            .chain([f64::INFINITY])
            .zip(&self.counts)
            .map(|(bound, count)| {
                total += count.load(Ordering::Relaxed);
                (bound, total)
            })
            .collect()
    }

    /// The sum of all values, in the unit shown.
    pub(crate) fn sum(&self) -> f64 {
        self.sum.load(Ordering::Relaxed) as f64 / self.bounds.per_unit
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_under_their_bounds() {
        let sizes = Histogram::new(BATCH_SIZE);
        [1, 2, 3, 1_000, 1_001].into_iter().for_each(|size| sizes.record(size));
        let counts = sizes.cumulative();
        assert_eq!(counts[..3], [(1.0, 1), (2.0, 2), (5.0, 3)]);
        assert_eq!(counts[9..], [(1_000.0, 4), (f64::INFINITY, 5)]);
        assert_eq!(sizes.sum(), 2_007.0);
    }

    #[test]
    fn a_batch_is_counted_like_its_values_one_by_one() {
        let (single, batch) = (Histogram::new(WORK_SECONDS), Histogram::new(WORK_SECONDS));
        let durations = [0, 1, 999, 1_000, 1_001, 70_000_000, u64::MAX / 4].map(Duration::from_micros);
        durations.into_iter().for_each(|duration| single.record_duration(duration));
        batch.record_durations(durations.into_iter());
        assert_eq!((single.cumulative(), single.sum()), (batch.cumulative(), batch.sum()));
        assert_eq!(single.cumulative()[0], (0.001, 4));
    }
}
