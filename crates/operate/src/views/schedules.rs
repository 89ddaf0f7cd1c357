//! Schedules: what they submit, when they fire next, what they fired and missed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_model::Time;
use windlass_store::{Firing, Miss, ScheduleView};

use super::plain_value;
use crate::Operator;
use windlass_workflow::Error;

/// All schedules, by name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedules {
    /// The schedules.
    pub schedules: Vec<ScheduleRow>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

/// A schedule, with its calendar as text and its input, which its own serialisation leaves out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScheduleRow {
    /// The schedule.
    #[serde(flatten)]
    pub view: ScheduleView,
    /// Its calendar as people write it.
    pub calendar_text: String,
    /// The input of its jobs, or its size if it is encoded.
    pub input: Value,
}

impl ScheduleRow {
    fn new(view: ScheduleView) -> ScheduleRow {
        let (calendar_text, input) = (view.schedule.calendar.to_string(), plain_value(&view.schedule.input));
        ScheduleRow { view, calendar_text, input }
    }
}

impl Schedules {
    /// Reads them.
    pub async fn read(operator: &Operator) -> Result<Schedules, Error> {
        let inspect = operator.inspect();
        let schedules = inspect.schedules().await?.into_iter().map(ScheduleRow::new).collect();
        Ok(Schedules { schedules, now: inspect.clock().await? })
    }
}

/// One schedule, with its latest firings and the ticks that it missed, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScheduleDetails {
    /// The schedule.
    #[serde(flatten)]
    pub row: ScheduleRow,
    /// What it fired.
    pub firings: Vec<Firing>,
    /// What it missed, and why.
    pub misses: Vec<Miss>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

impl ScheduleDetails {
    /// Reads the schedule of this name with at most `limit` firings and misses; `None` if there is no such schedule.
    pub async fn read(
        operator: &Operator,
        name: &str,
        limit: usize,
    ) -> Result<Option<ScheduleDetails>, Error> {
        let inspect = operator.inspect();
        let all = inspect.schedules().await?;
        let Some(view) = all.into_iter().find(|view| view.schedule.name == name) else { return Ok(None) };
        Ok(Some(ScheduleDetails {
            row: ScheduleRow::new(view),
            firings: inspect.firings(name, limit).await?,
            misses: inspect.misses(name, limit).await?,
            now: inspect.clock().await?,
        }))
    }
}
