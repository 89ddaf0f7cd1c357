//! Schedules as people see them.

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, Schedule, Time, calendar::Missed};

use super::Pause;

/// A schedule as people see it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScheduleView {
    /// The schedule.
    #[serde(flatten)]
    pub schedule: Schedule,
    /// When it fires next, unless it is paused.
    pub next_at: Option<Time>,
    /// Whether it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The job it submitted last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_job: Option<JobId>,
}

/// A job that a schedule submitted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Firing {
    /// The tick, or when it was triggered.
    pub tick: Time,
    /// The job.
    pub job: JobId,
}

/// Ticks that a schedule missed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Miss {
    /// When this was recorded.
    pub at: Time,
    /// The ticks.
    #[serde(flatten)]
    pub missed: Missed,
    /// Why.
    pub why: String,
}
