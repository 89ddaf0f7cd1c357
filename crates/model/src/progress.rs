//! Progress: what a running attempt reports of itself.
//!
//! Reports are for people and for heartbeat timeouts, not for the job: an attempt that runs again starts without one. They are
//! kept with the worker, not with the job, and written when the worker renews its lease.

use serde::{Deserialize, Serialize};

use crate::{Epoch, JobId, Time};

/// The longest note of a report that is kept, in characters: a line on a screen.
pub const MAX_NOTE: usize = 200;

/// The most reports of one worker that are kept: its row is written as a whole, every few seconds.
pub const MAX_REPORTS: usize = 1_000;

/// How far an attempt has come, as it reported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// How much is done, in the attempt's own unit.
    pub done: u64,
    /// Out of how much, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What it is doing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The step of a workflow that reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// When it was reported, by the worker's clock.
    pub at: Time,
}

impl Progress {
    /// A report at a time. The note is cut after [`MAX_NOTE`] characters.
    pub fn new(done: u64, total: Option<u64>, note: &str, at: Time) -> Progress {
        Progress { done, total, note: note.chars().take(MAX_NOTE).collect(), step: None, at }
    }

    /// The share that is done, from 0 to 100; `None` without a total.
    pub fn percent(&self) -> Option<f64> {
        let total = self.total.filter(|total| *total > 0)?;
        Some((self.done.min(total) as f64) * 100.0 / total as f64)
    }
}

/// The latest report of the attempt under one claim of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProgressReport {
    /// The job.
    pub job: JobId,
    /// The epoch of the claim: the report of an older claim says nothing about the job any more.
    pub epoch: Epoch,
    /// The report.
    #[serde(flatten)]
    pub progress: Progress,
}

/// The newest [`MAX_REPORTS`] of a worker's reports, ordered by job.
pub fn newest(mut reports: Vec<ProgressReport>) -> Vec<ProgressReport> {
    if reports.len() > MAX_REPORTS {
        reports.sort_unstable_by_key(|report| std::cmp::Reverse(report.progress.at));
        reports.truncate(MAX_REPORTS);
    }
    reports.sort_unstable_by_key(|report| report.job);
    reports
}

/// The progress of a job's current claim, among the reports of the worker that has it.
pub fn of_claim(reports: &[ProgressReport], job: JobId, epoch: Epoch) -> Option<Progress> {
    let report = reports.iter().find(|report| report.job == job && report.epoch == epoch)?;
    Some(report.progress.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(job: u32, epoch: i32, at: i64) -> ProgressReport {
        let progress = Progress::new(1, None, "", Time(at));
        ProgressReport { job: JobId::from_parts(1, 1, job.into()), epoch: Epoch(epoch), progress }
    }

    #[test]
    fn a_note_is_cut_by_characters() {
        let progress = Progress::new(3, Some(4), &"ä".repeat(MAX_NOTE + 1), Time(0));
        assert_eq!(progress.note.chars().count(), MAX_NOTE);
        assert_eq!(progress.percent(), Some(75.0));
    }

    #[test]
    fn a_share_needs_a_total_and_is_never_more_than_all() {
        assert_eq!(Progress::new(3, None, "", Time(0)).percent(), None);
        assert_eq!(Progress::new(3, Some(0), "", Time(0)).percent(), None);
        assert_eq!(Progress::new(9, Some(4), "", Time(0)).percent(), Some(100.0));
    }

    #[test]
    fn the_oldest_reports_are_left_out() {
        let many = (0..=MAX_REPORTS as u32).map(|n| report(n, 0, i64::from(n))).collect();
        let kept = newest(many);
        assert_eq!((kept.len(), kept[0].progress.at), (MAX_REPORTS, Time(1)));
        assert!(kept.is_sorted_by_key(|report| report.job));
    }

    #[test]
    fn a_report_of_an_older_claim_is_not_shown() {
        let reports = [report(1, 4, 0)];
        assert!(of_claim(&reports, reports[0].job, Epoch(4)).is_some());
        assert!(of_claim(&reports, reports[0].job, Epoch(5)).is_none());
    }
}
