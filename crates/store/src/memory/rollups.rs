//! Sums of what ended and of waits for signals: added to at once, so that a roll-up only makes hours of minutes.

use windlass_model::{AttemptTimes, Ended};

use super::*;
use crate::{
    BranchTimes, SignalWaitFilter, SignalWaits, Throughput, ThroughputFilter,
    rollup::{
        BranchKey, ONE_HOUR, ONE_MINUTE, SignalWaitSum, ThroughputSum, WaitKey, WaitLengths, day_of, hour_of,
        minute_of,
    },
};

/// The sums.
#[derive(Default)]
pub(super) struct Rollups {
    /// By length of the period, first minute, queue and kind.
    ended: BTreeMap<(i16, i32, String, String), Ended>,
    branches: BTreeMap<BranchKey, BranchTimes>,
    /// By kind, signal and day.
    waits: BTreeMap<WaitKey<String>, WaitLengths>,
}

impl Inner {
    /// Records the end of a job; `started_at` is when the attempt started that ended it.
    pub(super) fn record_end(&mut self, id: JobId, state: State, now: Time, started_at: Option<Time>) {
        let row = self.row(id);
        let (due_at, branch) = (row.due_at, row.branch_member());
        let times = started_at.map(|started_at| AttemptTimes::new(due_at, started_at, now));
        let ended = self.ended_in_minute(id, now);
        ended.add_job(state);
        if let Some(times) = times {
            ended.add_times(times);
        }
        let Some(member) = branch else { return };
        let sum = self.rollups.branches.entry((member.parent, member.branch)).or_default();
        let mut child = BranchTimes {
            branch: member.branch,
            first_start_at: started_at,
            last_end_at: Some(now),
            ..BranchTimes::default()
        };
        if let Some(times) = times {
            child.wait_times.add(times.wait, 1);
            child.run_times.add(times.run, 1);
        }
        sum.branch = member.branch;
        sum.merge(&child);
    }

    /// Records that an attempt failed and another one follows.
    pub(super) fn record_retry(&mut self, id: JobId, now: Time) {
        self.ended_in_minute(id, now).retried += 1;
    }

    fn ended_in_minute(&mut self, id: JobId, now: Time) -> &mut Ended {
        let new = &self.row(id).new;
        let key = (ONE_MINUTE, minute_of(now), new.queue.clone(), new.kind.kind.clone());
        self.rollups.ended.entry(key).or_default()
    }

    /// Records how long a parked job has waited for signals, whose wait ends now.
    pub(super) fn record_wait(&mut self, now: Time, id: JobId, timed_out: bool) {
        let row = self.row(id);
        let (Some(wait), Some(parked_at)) = (&row.wait, row.parked_at) else { return };
        let inbox = row.readable_signals().map(|signal| signal.name.as_str());
        let names: Vec<String> =
            wait.names_of_ended(inbox, timed_out).into_iter().map(str::to_owned).collect();
        let kind = row.new.kind.kind.clone();
        for name in names {
            let sum = self.rollups.waits.entry((kind.clone(), name, day_of(now))).or_default();
            sum.add(now - parked_at, timed_out);
        }
    }

    /// The times of the branches that a job has.
    pub(super) fn branch_times(&self, job: JobId) -> Vec<BranchTimes> {
        let all = self.rollups.branches.iter();
        let of_job = all.filter(|(key, _)| key.0 == job && self.branches.contains_key(key));
        of_job.map(|(_, times)| times.clone()).collect()
    }
}

impl Rollups {
    pub(super) fn roll_up(&mut self, request: &RollUpRequest) -> RollUpReport {
        let mut report = RollUpReport::default();
        if let Some(before) = request.hours_before.map(|at| hour_of(minute_of(at))) {
            let is_old = |(minutes, starts, ..): &(i16, i32, String, String)| {
                *minutes == ONE_MINUTE && *starts < before
            };
            let old: Vec<_> = self.ended.keys().filter(|key| is_old(key)).cloned().collect();
            for key in old.into_iter().take(request.limit) {
                let Some(ended) = self.ended.remove(&key) else { continue };
                let (_, starts, queue, kind) = key;
                self.ended.entry((ONE_HOUR, hour_of(starts), queue, kind)).or_default().merge(&ended);
                report.minutes += 1;
            }
        }
        if let Some(before) = request.delete_before {
            let sums = self.ended.len() + self.waits.len();
            let hour = hour_of(minute_of(before));
            self.ended.retain(|(minutes, starts, ..), _| *minutes == ONE_MINUTE || *starts >= hour);
            self.waits.retain(|(.., day), _| *day >= day_of(before));
            report.deleted = sums - self.ended.len() - self.waits.len();
        }
        report.more = report.minutes >= request.limit.max(1);
        report
    }

    pub(super) fn forget_branches(&mut self, id: JobId) {
        self.branches.retain(|(job, _), _| *job != id);
    }

    pub(super) fn throughput(&self, filter: &ThroughputFilter) -> Vec<Throughput> {
        let mut sum = ThroughputSum::new(filter);
        for ((minutes, starts, queue, kind), ended) in &self.ended {
            sum.add(*minutes, *starts, queue, kind, ended);
        }
        sum.rows()
    }

    pub(super) fn signal_waits(&self, filter: &SignalWaitFilter) -> Vec<SignalWaits> {
        let mut sum = SignalWaitSum::new(filter);
        for ((kind, signal, day), lengths) in &self.waits {
            sum.add(kind, signal, *day, lengths);
        }
        sum.rows()
    }
}
