//! Histograms of durations, as stores keep them.
//!
//! A histogram counts durations in buckets whose bounds grow by the fourth root of two, from a microsecond to centuries. So it is
//! small, histograms are added by adding their counts, and a percentile of any sum is known within a tenth: the bounds of a bucket
//! are 19 % apart, and a percentile is the middle of the bucket it falls into.

use std::{collections::BTreeMap, time::Duration};

/// Added to microseconds before the logarithm: then no whole number of microseconds is the bound of a bucket, and all programs that
/// compute buckets agree, however they round. PostgreSQL computes them in SQL (`ended.bucket`).
const SHIFT: f64 = 0.6;
/// Buckets per factor of two.
const PER_DOUBLING: f64 = 4.0;
/// The number of the bucket that begins at `1 - SHIFT` microseconds; that of zero is 0.
const FIRST: f64 = 3.0;

/// How many durations fell into which bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    counts: BTreeMap<u8, u64>,
}

impl Histogram {
    /// The bucket of a duration in microseconds; one below zero, which clocks that differ may make, counts as zero.
    pub fn bucket(micros: i64) -> u8 {
        let position = (micros.max(0) as f64 + SHIFT).log2() * PER_DOUBLING;
        // The last bucket, 255, is that of the longest time there is.
        (position.floor() + FIRST) as u8
    }

    /// The middle of a bucket.
    fn middle(bucket: u8) -> Duration {
        let position = (f64::from(bucket) - FIRST + 0.5) / PER_DOUBLING;
        Duration::from_micros((position.exp2() - SHIFT).round().max(0.0) as u64)
    }

    /// Adds durations that fall into one bucket.
    pub fn add(&mut self, bucket: u8, count: u64) {
        *self.counts.entry(bucket).or_default() += count;
    }

    /// Adds all durations of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        other.counts.iter().for_each(|(bucket, count)| self.add(*bucket, *count));
    }

    /// How many durations it counts.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The duration that this share of all, from 0 to 1, does not exceed; `None` if it counts none. It is within 10 % of the exact
    /// one, or within a microsecond.
    pub fn percentile(&self, share: f64) -> Option<Duration> {
        let all = self.count();
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut counted = 0;
        self.counts.iter().find_map(|(bucket, count)| {
            counted += count;
            (counted >= rank).then(|| Histogram::middle(*bucket))
        })
    }

    /// Its bytes in a store: per bucket that is not empty its number, and its count in groups of seven bits, the lowest first.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.counts.len() * 3);
        for (bucket, count) in &self.counts {
            bytes.push(*bucket);
            let mut rest = *count;
            while rest >= 0x80 {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
        }
        bytes
    }

    /// Reads what [`Histogram::encode`] wrote; `None` if the bytes are something else.
    pub fn decode(bytes: &[u8]) -> Option<Histogram> {
        let mut histogram = Histogram::default();
        let mut bytes = bytes.iter();
        while let Some(bucket) = bytes.next() {
            let (mut count, mut shift) = (0u64, 0u32);
            loop {
                let byte = bytes.next()?;
                count |= u64::from(byte & 0x7f).checked_shl(shift)?;
                if byte & 0x80 == 0 {
                    break;
                }
                shift += 7;
            }
            histogram.add(*bucket, count);
        }
        Some(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = i64>) -> Histogram {
        let mut histogram = Histogram::default();
        micros.into_iter().for_each(|micros| histogram.add(Histogram::bucket(micros), 1));
        histogram
    }

    #[test]
    fn a_duration_is_within_a_tenth_of_the_middle_of_its_bucket() {
        let mut micros = 0i64;
        while micros < i64::MAX / 3 {
            let middle = Histogram::middle(Histogram::bucket(micros)).as_micros() as f64;
            let error = (middle - micros as f64).abs();
            assert!(error <= 1.0 || error / micros as f64 <= 0.1, "{micros} is shown as {middle}");
            micros = micros + micros / 7 + 1;
        }
    }

    #[test]
    fn buckets_grow_with_durations_and_the_longest_has_one() {
        assert_eq!((Histogram::bucket(-5), Histogram::bucket(0)), (0, 0));
        assert!((0..62).all(|n| Histogram::bucket(1 << n) < Histogram::bucket(1 << (n + 1))));
        assert_eq!(Histogram::bucket(i64::MAX), 255);
        assert!(Histogram::middle(255) > Duration::from_secs(86_400 * 365 * 100_000));
    }

    #[test]
    fn percentiles_are_those_of_the_durations() {
        let thousand = of((1..=1_000).map(|n| n * 1_000));
        for (share, exact) in [(0.5, 500_000.0), (0.95, 950_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let found = thousand.percentile(share).expect("it counts some").as_micros() as f64;
            assert!((found - exact).abs() / exact <= 0.1, "{share}: {found}");
        }
        assert_eq!(thousand.percentile(0.0), of([1_000]).percentile(1.0), "the shortest");
        assert_eq!(Histogram::default().percentile(0.5), None);
    }

    #[test]
    fn a_sum_is_the_histogram_of_all() {
        let mut sum = of([3, 70, 70]);
        sum.merge(&of([70, 9_000_000]));
        assert_eq!(sum, of([3, 70, 70, 70, 9_000_000]));
        assert_eq!(sum.count(), 5);
    }

    #[test]
    fn bytes_are_read_back() {
        let mut histogram = of([0, 0, 17, i64::MAX]);
        histogram.add(9, u64::MAX - 1);
        assert_eq!(Histogram::decode(&histogram.encode()), Some(histogram));
        assert_eq!(Histogram::decode(&[]), Some(Histogram::default()));
        assert_eq!(Histogram::decode(&[7]), None, "the count is missing");
        assert_eq!(Histogram::decode(&[7, 0xff]), None, "the count goes on");
        assert_eq!(
            Histogram::decode(&[7].into_iter().chain([0xff; 12]).collect::<Vec<_>>()),
            None,
            "no such count"
        );
    }
}
