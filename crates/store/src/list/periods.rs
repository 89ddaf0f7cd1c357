//! Periods of 16 ms, by the times in ids.
//!
//! The store notes in which periods jobs of a lane were submitted: one row for each, however many jobs. A list of a rare kind so reads the
//! few periods in which there are any, and all jobs in these; an index of jobs by lane would cost every submit several percent.

use windlass_model::JobId;

/// A period is this power of two in milliseconds: at 10,000 jobs a second it has 160.
const MILLIS_BITS: u32 = 4;
/// The position of the milliseconds in an id.
const MILLIS_SHIFT: u32 = 80;

/// Ids from the first on, and below the second.
pub(crate) type Range = (JobId, JobId);

/// The period in which an id was made.
pub(crate) fn period_of(id: JobId) -> i64 {
    // 44 bits are left.
    (id.0.as_u128() >> (MILLIS_SHIFT + MILLIS_BITS)) as i64
}

/// The ids of a period.
pub(crate) fn span(period: i64) -> Range {
    let first = |period: i64| {
        let period = u128::try_from(period).unwrap_or(0);
        let bits = period
            .checked_shl(MILLIS_SHIFT + MILLIS_BITS)
            .filter(|bits| bits >> (MILLIS_SHIFT + MILLIS_BITS) == period);
        JobId::from_bytes(bits.unwrap_or(u128::MAX).to_be_bytes())
    };
    (first(period), first(period.saturating_add(1)))
}

/// The ids of some periods, which are sorted, the newest first: adjacent periods make one range. Ranges end at the limits `from` (included)
/// and `before` (excluded), where there are any.
pub(crate) fn ranges(periods: &[i64], from: Option<JobId>, before: Option<JobId>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for period in periods {
        let (low, high) = span(*period);
        let low = from.map_or(low, |from| from.max(low));
        let high = before.map_or(high, |before| before.min(high));
        if low >= high {
            continue;
        }
        match ranges.last_mut() {
            Some(newer) if newer.0 == high => newer.0 = low,
            _ => ranges.push((low, high)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(millis: u64) -> JobId {
        JobId::from_parts(millis, 5, 5)
    }

    #[test]
    fn an_id_is_in_its_period() {
        for millis in [0, 15, 16, 1_700_000_000_123, (1 << 48) - 1] {
            for id in [JobId::from_parts(millis, 0, 0), JobId::from_parts(millis, u32::MAX, u64::MAX)] {
                let (low, high) = span(period_of(id));
                assert!(low <= id && id < high, "{millis}");
            }
        }
        assert_ne!(period_of(id(15)), period_of(id(16)));
    }

    #[test]
    fn adjacent_periods_are_one_range_within_the_limits() {
        let (of, to) = (|period: i64| span(period).0, |period: i64| span(period).1);
        assert_eq!(ranges(&[9, 8, 5, 2, 1], None, None), [(of(8), to(9)), (of(5), to(5)), (of(1), to(2))]);
        let (from, before) = (Some(id(16 + 3)), Some(id(8 * 16 + 3)));
        assert_eq!(
            ranges(&[9, 8, 5, 1, 0], from, before),
            [(of(8), id(8 * 16 + 3)), (of(5), to(5)), (id(19), to(1))]
        );
    }
}
