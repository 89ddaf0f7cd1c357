//! Calendars: when a schedule ticks.
//!
//! A [`Calendar`] is a set of times, its ticks: local times of a time zone ([`cron`]), or equal steps ([`every`]). It finds the
//! first tick after a time and the last tick before it directly, without walking over those between. Ticks strictly increase, also
//! where clocks change. [`catch_up`] decides what happens to ticks that passed while no worker was running.
//!
//! A calendar is written in one line: `every 15 minutes`, `every month in Europe/Berlin from 2027-01-31T08:00:00Z`,
//! `0 3 * * mon-fri in Europe/Berlin`. It prints and parses in that form.

pub mod catch_up;
pub mod cron;
pub mod every;
mod fields;
mod json;
#[cfg(test)]
mod oracle;
mod parse;
mod text;
mod zone;

pub use catch_up::{CatchUp, Missed, Overlap, Plan, plan};
pub use cron::Cron;
pub use every::{Every, Unit};
pub use zone::Zone;

use serde::{Deserialize, Serialize};

use crate::{Invalid, Time, limits::invalid};

/// When a schedule ticks. Every value of this type is valid.
///
/// ```
/// # use windlass_model::{Calendar, Time, calendar::Unit};
/// let reports = Calendar::cron("30 2 * * mon-fri", "Europe/Berlin")?;
/// let polls = Calendar::every(15, Unit::Minutes)?;
/// // The same as text, as in the command line.
/// assert_eq!("30 2 * * mon-fri in Europe/Berlin".parse::<Calendar>()?, reports);
/// assert_eq!("every 15 minutes".parse::<Calendar>()?, polls);
/// let midnight: Time = "2026-11-15T00:00:00Z".parse()?;
/// assert_eq!(polls.next_after(midnight), Some("2026-11-15T00:15:00Z".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calendar {
    /// At local times of a time zone.
    Cron(Cron),
    /// At equal steps.
    Every(Every),
}

impl Calendar {
    /// Ticks by a cron expression, as in `Calendar::cron("0 3 * * mon-fri", "Europe/Berlin")`.
    pub fn cron(expression: &str, zone: &str) -> Result<Calendar, Invalid> {
        Ok(Calendar::Cron(Cron::new(expression, Zone::named(zone)?)?))
    }

    /// Ticks every `count` units, from the beginning of 1970 (weeks: its first Monday) in UTC.
    pub fn every(count: u32, unit: Unit) -> Result<Calendar, Invalid> {
        Ok(Calendar::Every(Every::new(count, unit, Zone::UTC, None)?))
    }

    /// Sets the time zone.
    pub fn zone(self, name: &str) -> Result<Calendar, Invalid> {
        let zone = Zone::named(name)?;
        Ok(match self {
            Calendar::Cron(cron) => Calendar::Cron(Cron::new(cron.expression(), zone)?),
            Calendar::Every(e) => Calendar::Every(Every::new(e.count(), e.unit(), zone, e.anchor())?),
        })
    }

    /// Counts the steps from `anchor`, which is the first tick.
    pub fn from(self, anchor: Time) -> Result<Calendar, Invalid> {
        match self {
            Calendar::Every(e) => {
                let every = Every::new(e.count(), e.unit(), e.zone().clone(), Some(anchor))?;
                Ok(Calendar::Every(every))
            }
            Calendar::Cron(cron) => {
                let what = format!("the cron expression {:?}", cron.expression());
                Err(invalid(what, "has no anchor to count from", "leave the anchor out, or use \"every\""))
            }
        }
    }

    /// Returns the time zone.
    pub fn in_zone(&self) -> &Zone {
        match self {
            Calendar::Cron(cron) => cron.zone(),
            Calendar::Every(every) => every.zone(),
        }
    }

    /// Returns the first tick after `t`; `None` if there is none before the end of the year 9999.
    pub fn next_after(&self, t: Time) -> Option<Time> {
        match self {
            Calendar::Cron(cron) => cron.next_after(t),
            Calendar::Every(every) => every.next_after(t),
        }
    }

    /// Returns the last tick that is not after `t`; `None` if the first tick is later.
    pub fn last_at_or_before(&self, t: Time) -> Option<Time> {
        match self {
            Calendar::Cron(cron) => cron.last_at_or_before(t),
            Calendar::Every(every) => every.last_at_or_before(t),
        }
    }

    /// Returns the first tick that is not before `t`.
    pub fn first_at_or_after(&self, t: Time) -> Option<Time> {
        self.next_after(Time(t.0.saturating_sub(1)))
    }

    /// Returns all ticks after `t`, in order.
    pub fn ticks_after(&self, t: Time) -> impl Iterator<Item = Time> {
        std::iter::successors(self.next_after(t), |tick| self.next_after(*tick))
    }
}
