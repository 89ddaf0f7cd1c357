//! How ends of jobs and waits for signals are recorded and summed up: what all backends share.
//!
//! A transaction that ends jobs appends one row per lane, minute and branch, in which the times of attempts are a list of buckets;
//! one that ends waits appends one row per kind and signal. Nothing is updated, so transactions do not wait for each other, and a
//! crash before the commit leaves nothing. `Maintenance::roll_up` replaces the rows by sums. Readers add both.

use std::collections::{BTreeMap, BTreeSet};

use windlass_model::{AttemptTimes, BranchNo, Ended, Histogram, JobId, State, Time};

use crate::{
    BranchTimes, MAX_SIGNAL_NAMES, OTHER_SIGNALS, SignalWaitFilter, SignalWaits, Throughput, ThroughputBy,
    ThroughputFilter,
};

/// A minute and a day in microseconds.
const MINUTE: i64 = 60_000_000;
const DAY: i64 = 86_400_000_000;

/// The lengths of the periods that are summed up, in minutes.
pub(crate) const ONE_MINUTE: i16 = 1;
pub(crate) const ONE_HOUR: i16 = 60;

/// The number of a minute since 1970.
pub(crate) fn minute_of(at: Time) -> i32 {
    i32::try_from(at.micros().div_euclid(MINUTE)).unwrap_or(i32::MAX)
}

/// The number of the first minute that begins at a time or later.
pub(crate) fn minute_from(at: Time) -> i32 {
    let later = at.micros().rem_euclid(MINUTE) > 0;
    minute_of(at).saturating_add(i32::from(later))
}

/// The number of the day of a time since 1970.
pub(crate) fn day_of(at: Time) -> i32 {
    i32::try_from(at.micros().div_euclid(DAY)).unwrap_or(i32::MAX)
}

fn time_of_minute(minute: i32) -> Time {
    Time(i64::from(minute) * MINUTE)
}

/// The first minute of the hour of a minute.
pub(crate) fn hour_of(minute: i32) -> i32 {
    minute - minute.rem_euclid(i32::from(ONE_HOUR))
}

/// A branch: its job, and its number there.
pub(crate) type BranchKey = (JobId, BranchNo);

/// What one transaction has ended in one lane, minute and branch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EndedBatch {
    pub(crate) lane: i32,
    pub(crate) minute: i32,
    /// The branch of the jobs, if they are children of one.
    pub(crate) branch: Option<BranchKey>,
    /// The counts; the times are in `times`.
    pub(crate) counts: Ended,
    pub(crate) first_start_at: Option<Time>,
    pub(crate) last_end_at: Option<Time>,
    /// The times of each attempt that ended a job.
    pub(crate) times: Vec<AttemptTimes>,
}

impl EndedBatch {
    pub(crate) fn new(lane: i32, minute: i32, branch: Option<BranchKey>) -> EndedBatch {
        let (first_start_at, last_end_at) = (None, None);
        EndedBatch {
            lane,
            minute,
            branch,
            counts: Ended::default(),
            first_start_at,
            last_end_at,
            times: Vec::new(),
        }
    }

    /// Adds a job that ended in this state; `attempt` is when the attempt that ended it was due and started.
    pub(crate) fn add(&mut self, state: State, ended_at: Time, attempt: Option<(Time, Time)>) {
        self.counts.add_job(state);
        if self.branch.is_some() {
            self.last_end_at = self.last_end_at.max(Some(ended_at));
        }
        let Some((due_at, started_at)) = attempt else { return };
        self.times.push(AttemptTimes::new(due_at, started_at, ended_at));
        if self.branch.is_some() {
            self.first_start_at = Some(self.first_start_at.map_or(started_at, |first| first.min(started_at)));
        }
    }

    /// What it ended, with histograms.
    fn ended(&self) -> Ended {
        let mut ended = self.counts.clone();
        self.times.iter().for_each(|times| ended.add_times(*times));
        ended
    }

    /// The times as bytes: wait and run of each attempt.
    pub(crate) fn times_bytes(&self) -> Vec<u8> {
        self.times.iter().flat_map(|times| [times.wait, times.run]).collect()
    }
}

/// Reads what [`EndedBatch::times_bytes`] wrote.
pub(crate) fn times_from_bytes(bytes: &[u8]) -> Vec<AttemptTimes> {
    bytes.chunks_exact(2).map(|pair| AttemptTimes { wait: pair[0], run: pair[1] }).collect()
}

/// Reads what the fragment `rollups.times` of PostgreSQL makes of the times of an attempt.
pub(crate) fn times_from_number(number: i16) -> AttemptTimes {
    let both = i32::from(number) + 0x8000;
    AttemptTimes { wait: (both & 0xff) as u8, run: (both >> 8) as u8 }
}

/// Which sum of ends a row is: the length of the period, its first minute, and a lane.
pub(crate) type SumKey = (i16, i32, i32);

/// Sums of ends that are added up in memory before they are written.
#[derive(Default)]
pub(crate) struct EndedSums {
    pub(crate) periods: BTreeMap<SumKey, Ended>,
    pub(crate) branches: BTreeMap<BranchKey, BranchTimes>,
}

impl EndedSums {
    /// Adds what a transaction has recorded.
    pub(crate) fn add_batch(&mut self, batch: &EndedBatch) {
        let ended = batch.ended();
        if let Some(branch) = batch.branch {
            let times = BranchTimes {
                branch: branch.1,
                first_start_at: batch.first_start_at,
                last_end_at: batch.last_end_at,
                wait_times: ended.wait_times.clone(),
                run_times: ended.run_times.clone(),
            };
            self.add_branch(branch, &times);
        }
        self.add_period((ONE_MINUTE, batch.minute, batch.lane), &ended);
    }

    /// Adds a minute to its hour.
    pub(crate) fn add_to_hour(&mut self, (_, minute, lane): SumKey, ended: &Ended) {
        self.add_period((ONE_HOUR, hour_of(minute), lane), ended);
    }

    pub(crate) fn add_period(&mut self, key: SumKey, ended: &Ended) {
        self.periods.entry(key).or_default().merge(ended);
    }

    pub(crate) fn add_branch(&mut self, key: BranchKey, times: &BranchTimes) {
        let sum = self.branches.entry(key).or_default();
        sum.branch = key.1;
        sum.merge(times);
    }
}

/// Adds up what a reader asked for.
pub(crate) struct ThroughputSum<'f> {
    filter: &'f ThroughputFilter,
    /// By time.
    periods: BTreeMap<(i32, i16), Ended>,
    /// By queue and kind.
    kinds: BTreeMap<(String, String), Ended>,
}

impl<'f> ThroughputSum<'f> {
    pub(crate) fn new(filter: &'f ThroughputFilter) -> ThroughputSum<'f> {
        ThroughputSum { filter, periods: BTreeMap::new(), kinds: BTreeMap::new() }
    }

    /// Adds what ended in a period, in a queue and of a kind, if it is wanted.
    pub(crate) fn add(&mut self, period: i16, starts: i32, queue: &str, kind: &str, ended: &Ended) {
        let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|wanted| wanted == name);
        let in_span = starts >= minute_from(self.filter.from) && starts < minute_from(self.filter.until);
        if !in_span || !has(&self.filter.queues, queue) || !has(&self.filter.kinds, kind) {
            return;
        }
        let sum = match self.filter.by {
            ThroughputBy::Minute => self.periods.entry((starts, period)).or_default(),
            ThroughputBy::Hour => self.periods.entry((hour_of(starts), ONE_HOUR)).or_default(),
            ThroughputBy::Kind => self.kinds.entry((queue.to_owned(), kind.to_owned())).or_default(),
        };
        sum.merge(ended);
    }

    /// Adds what a transaction has recorded.
    pub(crate) fn add_batch(&mut self, batch: &EndedBatch, queue: &str, kind: &str) {
        self.add(ONE_MINUTE, batch.minute, queue, kind, &batch.ended());
    }

    pub(crate) fn rows(self) -> Vec<Throughput> {
        let periods = self.periods.into_iter().map(|((starts, minutes), ended)| Throughput {
            starts_at: Some(time_of_minute(starts)),
            minutes: minutes as u32,
            queue_and_kind: None,
            ended,
        });
        let kinds = self.kinds.into_iter().map(|(queue_and_kind, ended)| Throughput {
            starts_at: None,
            minutes: 0,
            queue_and_kind: Some(queue_and_kind),
            ended,
        });
        periods.chain(kinds).collect()
    }
}

/// The lengths of waits for one signal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct WaitLengths {
    pub(crate) arrived: Histogram,
    pub(crate) timed_out: Histogram,
}

impl WaitLengths {
    /// Adds a wait.
    pub(crate) fn add(&mut self, waited: std::time::Duration, timed_out: bool) {
        let micros = i64::try_from(waited.as_micros()).unwrap_or(i64::MAX);
        let histogram = if timed_out { &mut self.timed_out } else { &mut self.arrived };
        histogram.add(Histogram::bucket(micros), 1);
    }

    pub(crate) fn merge(&mut self, other: &WaitLengths) {
        self.arrived.merge(&other.arrived);
        self.timed_out.merge(&other.timed_out);
    }
}

/// Which waits a sum is of: the kind, the signal and the day. Databases name kinds by number.
pub(crate) type WaitKey<K> = (K, String, i32);

/// The name under which waits for a signal of a kind are kept, given the names that are kept already: the name itself, or that of
/// all others once there are too many.
pub(crate) fn kept_name<'a>(kept: &mut BTreeSet<String>, name: &'a str) -> &'a str {
    if kept.contains(name) {
        return name;
    }
    let kept_apart = kept.len() - usize::from(kept.contains(OTHER_SIGNALS));
    let name = if kept_apart < MAX_SIGNAL_NAMES { name } else { OTHER_SIGNALS };
    kept.insert(name.to_owned());
    name
}

/// Adds up the waits that a reader asked for. Sums must be added before rows that are recorded and not summed up yet.
pub(crate) struct SignalWaitSum<'f> {
    filter: &'f SignalWaitFilter,
    kept: BTreeMap<String, BTreeSet<String>>,
    sums: BTreeMap<(String, String), WaitLengths>,
}

impl<'f> SignalWaitSum<'f> {
    pub(crate) fn new(filter: &'f SignalWaitFilter) -> SignalWaitSum<'f> {
        SignalWaitSum { filter, kept: BTreeMap::new(), sums: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, kind: &str, signal: &str, day: i32, lengths: &WaitLengths) {
        let kept = self.kept.entry(kind.to_owned()).or_default();
        let signal = kept_name(kept, signal);
        let filter = self.filter;
        let wanted = (filter.kinds.is_empty() || filter.kinds.iter().any(|wanted| wanted == kind))
            && filter.signal.as_ref().is_none_or(|wanted| wanted == signal)
            && day >= day_of(filter.from);
        if wanted {
            self.sums.entry((kind.to_owned(), signal.to_owned())).or_default().merge(lengths);
        }
    }

    pub(crate) fn rows(self) -> Vec<SignalWaits> {
        let row = |((kind, signal), WaitLengths { arrived, timed_out })| SignalWaits {
            kind,
            signal,
            arrived,
            timed_out,
        };
        self.sums.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_back_from_numbers_and_bytes() {
        for (wait, run) in [(0, 0), (255, 255), (0, 255), (255, 0), (17, 128)] {
            let times = AttemptTimes { wait, run };
            let number = i16::try_from(i32::from(run) * 256 + i32::from(wait) - 32_768).expect("it fits");
            assert_eq!(times_from_number(number), times);
            let batch = EndedBatch { times: vec![times; 2], ..EndedBatch::new(1, 1, None) };
            assert_eq!(times_from_bytes(&batch.times_bytes()), [times; 2]);
        }
    }

    #[test]
    fn a_minute_belongs_to_the_span_in_which_it_began() {
        let filter = ThroughputFilter {
            queues: Vec::new(),
            kinds: Vec::new(),
            from: Time(2 * MINUTE - 1),
            until: Time(3 * MINUTE + 1),
            by: ThroughputBy::Minute,
        };
        let mut sum = ThroughputSum::new(&filter);
        let one = Ended { done: 1, ..Ended::default() };
        (0..6).for_each(|minute| sum.add(ONE_MINUTE, minute, "q", "k", &one));
        let starts: Vec<_> = sum.rows().into_iter().filter_map(|row| row.starts_at).collect();
        assert_eq!(starts, [Time(2 * MINUTE), Time(3 * MINUTE)]);
    }

    #[test]
    fn names_beyond_the_limit_are_kept_together() {
        let mut kept = BTreeSet::new();
        for n in 0..MAX_SIGNAL_NAMES {
            let name = format!("s{n}");
            assert_eq!(kept_name(&mut kept, &name), name);
        }
        assert_eq!(kept_name(&mut kept, "order-1"), OTHER_SIGNALS);
        assert_eq!(kept_name(&mut kept, "order-2"), OTHER_SIGNALS);
        assert_eq!(kept_name(&mut kept, "s7"), "s7");
        assert_eq!(kept.len(), MAX_SIGNAL_NAMES + 1);
    }
}
