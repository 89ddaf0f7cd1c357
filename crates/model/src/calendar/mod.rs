//! When the ticks of a schedule are.
//!
//! A [`Calendar`] is a set of moments, its ticks: by the clock on the wall ([`cron`]) or at even steps
//! ([`every`]). It is asked for the tick after a moment and for the last one before it, and answers without
//! walking from one to the other. Ticks strictly increase, also where clocks are changed. What becomes of ticks
//! for which nobody was there is decided in [`catch_up`].
//!
//! A calendar can be written in one line: `every 15 minutes`, `every month in Europe/Berlin from
//! 2027-01-31T08:00:00Z`, `0 3 * * mon-fri in Europe/Berlin`. It is shown and read back in that form.

pub mod catch_up;
pub mod cron;
pub mod every;
mod fields;
mod form;
#[cfg(test)]
mod oracle;
mod read;
mod text;
mod zone;

pub use catch_up::{CatchUp, Missed, Overlap, Plan, plan};
pub use cron::Cron;
pub use every::{Every, Unit};
pub use zone::Zone;

use serde::{Deserialize, Serialize};

use crate::{Invalid, Time, limits::invalid};

/// When a schedule ticks. Every value of this type has been checked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calendar {
    /// By the clock on the wall.
    Cron(Cron),
    /// At even steps.
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

    /// The same in another time zone.
    pub fn zone(self, name: &str) -> Result<Calendar, Invalid> {
        let zone = Zone::named(name)?;
        Ok(match self {
            Calendar::Cron(cron) => Calendar::Cron(Cron::new(cron.expression(), zone)?),
            Calendar::Every(e) => Calendar::Every(Every::new(e.count(), e.unit(), zone, e.anchor())?),
        })
    }

    /// The same steps, counted from `anchor`, which is the first tick.
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

    /// The time zone.
    pub fn in_zone(&self) -> &Zone {
        match self {
            Calendar::Cron(cron) => cron.zone(),
            Calendar::Every(every) => every.zone(),
        }
    }

    /// The first tick after `t`; `None` if there is none before the end of the year 9999.
    pub fn next_after(&self, t: Time) -> Option<Time> {
        match self {
            Calendar::Cron(cron) => cron.next_after(t),
            Calendar::Every(every) => every.next_after(t),
        }
    }

    /// The last tick that is not after `t`; `None` if the first one is later.
    pub fn last_at_or_before(&self, t: Time) -> Option<Time> {
        match self {
            Calendar::Cron(cron) => cron.last_at_or_before(t),
            Calendar::Every(every) => every.last_at_or_before(t),
        }
    }

    /// The first tick that is not before `t`.
    pub fn first_at_or_after(&self, t: Time) -> Option<Time> {
        self.next_after(Time(t.0.saturating_sub(1)))
    }

    /// All ticks after `t`, one by one.
    pub fn ticks_after(&self, t: Time) -> impl Iterator<Item = Time> {
        std::iter::successors(self.next_after(t), |tick| self.next_after(*tick))
    }
}
