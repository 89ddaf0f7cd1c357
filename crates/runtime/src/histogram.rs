//! How values are spread: counts under fixed bounds.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The most bounds of a histogram; a batch is counted on the stack.
const MOST: usize = 15;

/// Bounds for what a store is asked, in microseconds: from a local commit to a database that hangs.
pub(crate) const CALL: Bounds = Bounds {
    upper: &[
        250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 5_000_000, 10_000_000,
    ],
    per: 1e6,
};
/// Bounds for attempts and waits, in microseconds: from a millisecond to six hours.
pub(crate) const WORK: Bounds = Bounds {
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
    per: 1e6,
};
/// Bounds for the size of batches, up to the largest that is sent.
pub(crate) const SIZE: Bounds = Bounds { upper: &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000], per: 1.0 };

/// The upper bounds of a histogram, and how many of its values make one of the unit that is shown.
pub(crate) struct Bounds {
    upper: &'static [u64],
    per: f64,
}

/// Written by whoever has something to count, without a lock.
pub(crate) struct Histogram {
    bounds: Bounds,
    /// One more than there are bounds: the last is for what is beyond all of them.
    counts: [AtomicU64; MOST + 1],
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: Bounds) -> Histogram {
        assert!(bounds.upper.len() <= MOST);
        Histogram { bounds, counts: Default::default(), sum: AtomicU64::new(0) }
    }

    fn place(&self, value: u64) -> usize {
        let upper = self.bounds.upper;
        upper.iter().position(|bound| value <= *bound).unwrap_or(upper.len())
    }

    /// Counts one value.
    pub(crate) fn note(&self, value: u64) {
        self.counts[self.place(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts one span of time.
    pub(crate) fn note_span(&self, span: Duration) {
        self.note(micros(span));
    }

    /// Counts a batch of spans, with few writes to what others write too.
    pub(crate) fn note_spans(&self, spans: impl Iterator<Item = Duration>) {
        let (mut counts, mut sum) = ([0; MOST + 1], 0u64);
        for span in spans.map(micros) {
            counts[self.place(span)] += 1;
            sum = sum.saturating_add(span);
        }
        for (count, new) in self.counts.iter().zip(counts).filter(|(_, new)| *new > 0) {
            count.fetch_add(new, Ordering::Relaxed);
        }
        self.sum.fetch_add(sum, Ordering::Relaxed);
    }

    /// How many values were at most each bound, in the unit shown; the last bound is infinity.
    pub(crate) fn cumulative(&self) -> Vec<(f64, u64)> {
        let upper = self.bounds.upper.iter().map(|bound| *bound as f64 / self.bounds.per);
        let mut below = 0;
        upper
            .chain([f64::INFINITY])
            .zip(&self.counts)
            .map(|(bound, count)| {
                below += count.load(Ordering::Relaxed);
                (bound, below)
            })
            .collect()
    }

    /// All values together, in the unit shown.
    pub(crate) fn sum(&self) -> f64 {
        self.sum.load(Ordering::Relaxed) as f64 / self.bounds.per
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_under_their_bounds() {
        let sizes = Histogram::new(SIZE);
        [1, 2, 3, 1_000, 1_001].into_iter().for_each(|size| sizes.note(size));
        let counts = sizes.cumulative();
        assert_eq!(counts[..3], [(1.0, 1), (2.0, 2), (5.0, 3)]);
        assert_eq!(counts[9..], [(1_000.0, 4), (f64::INFINITY, 5)]);
        assert_eq!(sizes.sum(), 2_007.0);
    }

    #[test]
    fn a_batch_counts_like_its_values_one_by_one() {
        let (one, all) = (Histogram::new(WORK), Histogram::new(WORK));
        let spans = [0, 1, 999, 1_000, 1_001, 70_000_000, u64::MAX / 4].map(Duration::from_micros);
        spans.into_iter().for_each(|span| one.note_span(span));
        all.note_spans(spans.into_iter());
        assert_eq!((one.cumulative(), one.sum()), (all.cumulative(), all.sum()));
        assert_eq!(one.cumulative()[0], (0.001, 4));
    }
}
