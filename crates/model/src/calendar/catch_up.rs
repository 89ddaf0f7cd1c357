//! Catching up: what happens to ticks that passed while no worker was running, and to ticks while the previous job has not ended.
//!
//! A store keeps the first tick of a schedule that was not handled yet. When a worker fires timers, [`plan`] divides the ticks from
//! there up to now into those to fire and those missed. A gap of ten years takes as long as a gap of a minute.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::Calendar;
use crate::Time;

/// How late a tick may fire and still be on time: long enough for a restart or a failover.
pub const MAX_LATENESS: Duration = Duration::from_secs(60);
/// The default window of `all`.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(86_400);
/// Up to how many missed ticks of a cron expression are counted, which takes a step for each. More are reported as "at least".
pub const MAX_COUNTED: u64 = 10_000;

/// What happens to ticks that passed while no worker was running.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// All fire, oldest first, except those older than `window` (which is at least [`MAX_LATENESS`]).
    All {
        /// How old a tick may be.
        window: Duration,
    },
    /// Only the newest fires, however old it is.
    #[default]
    One,
    /// Every tick that is on time fires; the others are missed.
    Skip,
}

/// What happens to a tick while the job of the previous tick has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// Its job runs when the previous job has ended.
    Queue,
    /// The previous job is cancelled.
    CancelPrevious,
    /// Both jobs run.
    Allow,
}

/// What to do with the ticks up to now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The ticks to fire, oldest first.
    pub fire: Vec<Time>,
    /// The ticks that never fire.
    pub missed: Option<Missed>,
    /// The first tick that this plan does not handle. If it is not after now, the plan reached `max` and must be followed by
    /// another. `None` if there is none before the end of the year 9999.
    pub next_at: Option<Time>,
}

/// A summary of missed ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Missed {
    /// The first of them.
    pub from: Time,
    /// The last of them.
    pub to: Time,
    /// How many.
    pub count: u64,
    /// Whether there may be more, because counting stopped at [`MAX_COUNTED`].
    pub at_least: bool,
}

/// Divides the ticks from `next_at`, the first that was not handled yet, up to `now`. At most `max` fire; if `max` is 0, nothing is
/// handled.
pub fn plan(calendar: &Calendar, catch_up: CatchUp, next_at: Time, now: Time, max: usize) -> Plan {
    let first = calendar.first_at_or_after(next_at);
    let Some(begin) = first.filter(|first| *first <= now && max > 0) else {
        return Plan { next_at: first, ..Plan::default() };
    };
    // Ticks before `from` are missed.
    let from = match catch_up {
        CatchUp::All { window } => now - window.max(MAX_LATENESS),
        CatchUp::Skip => now - MAX_LATENESS,
        CatchUp::One => calendar.last_at_or_before(now).unwrap_or(begin),
    };
    let missed = Missed::between(calendar, begin, Time(from.0.saturating_sub(1)));
    let from = from.max(begin);
    let ticks = std::iter::successors(calendar.first_at_or_after(from), |tick| calendar.next_after(*tick));
    let fire: Vec<Time> = ticks.take_while(|tick| *tick <= now).take(max).collect();
    let next_at = match fire.last() {
        Some(last) => calendar.next_after(*last),
        None => calendar.first_at_or_after(from),
    };
    Plan { fire, missed, next_at }
}

impl Missed {
    /// Summarises the ticks from `first`, which is one, up to `until`; `None` if there are none.
    pub fn between(calendar: &Calendar, first: Time, until: Time) -> Option<Missed> {
        let to = calendar.last_at_or_before(until).filter(|last| *last >= first)?;
        let count = match calendar {
            Calendar::Every(every) => every.count_between(first, to),
            Calendar::Cron(_) => {
                let rest = calendar.ticks_after(first).take_while(|tick| *tick <= to);
                1 + rest.take(MAX_COUNTED as usize).count() as u64
            }
        };
        let at_least = matches!(calendar, Calendar::Cron(_)) && count > MAX_COUNTED;
        Some(Missed { from: first, to, count: if at_least { MAX_COUNTED } else { count }, at_least })
    }
}

impl fmt::Display for CatchUp {
    /// Writes `one`, `skip` or `all:3600s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatchUp::All { window } => write!(f, "all:{}s", window.as_secs()),
            CatchUp::One => f.write_str("one"),
            CatchUp::Skip => f.write_str("skip"),
        }
    }
}

impl FromStr for CatchUp {
    type Err = String;

    /// Parses `one`, `skip`, `all` (of the last day) or `all:6h`, with `s`, `m`, `h` or `d`.
    fn from_str(text: &str) -> Result<CatchUp, String> {
        let fault =
            || format!("{text:?} is not a way to catch up; use one, skip, all or all:<span>, as in all:6h");
        match text {
            "one" => Ok(CatchUp::One),
            "skip" => Ok(CatchUp::Skip),
            "all" => Ok(CatchUp::All { window: DEFAULT_WINDOW }),
            _ => {
                let span = text.strip_prefix("all:").ok_or_else(fault)?;
                let unit = match span.bytes().last() {
                    Some(b's') => 1,
                    Some(b'm') => 60,
                    Some(b'h') => 3_600,
                    Some(b'd') => 86_400,
                    _ => return Err(fault()),
                };
                let count: u32 = span[..span.len() - 1].parse().map_err(|_| fault())?;
                Ok(CatchUp::All { window: Duration::from_secs(u64::from(count) * unit) })
            }
        }
    }
}

impl Overlap {
    const NAMES: [(Overlap, &str); 4] = [
        (Overlap::Skip, "skip"),
        (Overlap::Queue, "queue"),
        (Overlap::CancelPrevious, "cancel_previous"),
        (Overlap::Allow, "allow"),
    ];
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Overlap::NAMES[*self as usize].1)
    }
}

impl FromStr for Overlap {
    type Err = String;

    fn from_str(text: &str) -> Result<Overlap, String> {
        let word = text.replace('-', "_");
        let known = Overlap::NAMES.iter().find(|(_, name)| *name == word);
        known.map(|(overlap, _)| *overlap).ok_or_else(|| {
            format!("{text:?} is not a way to treat overlaps; use skip, queue, cancel_previous or allow")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-15T12:00:30Z";

    fn at(text: &str) -> Time {
        text.parse().expect(text)
    }

    /// The plan at [`NOW`] for a calendar whose ticks were handled up to `ago` seconds before.
    fn planned(calendar: &str, catch_up: &str, ago: u64, max: usize) -> Plan {
        let calendar: Calendar = calendar.parse().expect(calendar);
        let next_at = at(NOW) - Duration::from_secs(ago);
        plan(&calendar, catch_up.parse().expect(catch_up), next_at, at(NOW), max)
    }

    fn missed(from: &str, to: &str, count: u64) -> Option<Missed> {
        Some(Missed { from: at(from), to: at(to), count, at_least: false })
    }

    #[test]
    fn all_fires_the_ticks_in_the_window() {
        for calendar in ["every 10 minutes", "*/10 * * * *"] {
            let plan = planned(calendar, "all:25m", 3_600, 100);
            let fire = [at("2026-11-15T11:40:00Z"), at("2026-11-15T11:50:00Z"), at("2026-11-15T12:00:00Z")];
            assert_eq!(plan.fire, fire);
            assert_eq!(plan.missed, missed("2026-11-15T11:10:00Z", "2026-11-15T11:30:00Z", 3));
            assert_eq!(plan.next_at, Some(at("2026-11-15T12:10:00Z")));
        }
        let plan = planned("every minute", "all:0s", 3_600, 100);
        assert_eq!(plan.fire, [at("2026-11-15T12:00:00Z")], "the window is at least a minute");
    }

    #[test]
    fn one_fires_the_newest_tick_however_old() {
        let plan = planned("every 10 minutes", "one", 3_600, 100);
        assert_eq!(plan.fire, [at("2026-11-15T12:00:00Z")]);
        assert_eq!(plan.missed, missed("2026-11-15T11:10:00Z", "2026-11-15T11:50:00Z", 5));
        assert_eq!(plan.next_at, Some(at("2026-11-15T12:10:00Z")));
        let plan = planned("@daily", "one", 86_400, 100);
        assert_eq!((plan.fire, plan.missed), (vec![at("2026-11-15T00:00:00Z")], None));
    }

    #[test]
    fn skip_fires_the_ticks_that_are_on_time() {
        let plan = planned("every 20 seconds", "skip", 120, 100);
        let fire = [at("2026-11-15T11:59:40Z"), at("2026-11-15T12:00:00Z"), at("2026-11-15T12:00:20Z")];
        assert_eq!(plan.fire, fire);
        assert_eq!(plan.missed, missed("2026-11-15T11:58:40Z", "2026-11-15T11:59:20Z", 3));
        let plan = planned("@daily", "skip", 86_400, 100);
        assert_eq!(plan.fire, []);
        assert_eq!(plan.missed, missed("2026-11-15T00:00:00Z", "2026-11-15T00:00:00Z", 1));
        assert_eq!(plan.next_at, Some(at("2026-11-16T00:00:00Z")));
    }

    #[test]
    fn a_tick_exactly_at_the_edge_is_still_on_time() {
        let hourly: Calendar = "@hourly".parse().expect("a calendar");
        let noon = at("2026-11-15T12:00:00Z");
        let late = noon + MAX_LATENESS;
        assert_eq!(plan(&hourly, CatchUp::Skip, noon, late, 9).fire, [noon]);
        assert_eq!(plan(&hourly, CatchUp::Skip, noon, Time(late.0 + 1), 9).fire, []);
        assert_eq!(plan(&hourly, CatchUp::Skip, noon, noon, 9).fire, [noon], "due at once");
    }

    #[test]
    fn a_plan_stops_at_max_and_the_next_plan_continues() {
        let plan = planned("every minute", "all:1h", 600, 3);
        assert_eq!(plan.fire.len(), 3);
        assert_eq!(plan.next_at, Some(at("2026-11-15T11:54:00Z")));
        let next = plan.next_at.expect("more");
        let calendar = Calendar::every(1, super::super::Unit::Minutes).expect("valid");
        let rest = super::plan(&calendar, "all:1h".parse().expect("valid"), next, at(NOW), 100);
        assert_eq!((rest.fire.len(), rest.missed), (7, None));
        let none = planned("every minute", "all:1h", 600, 0);
        assert_eq!(none, Plan { next_at: Some(at("2026-11-15T11:51:00Z")), ..Plan::default() });
    }

    #[test]
    fn a_gap_of_years_is_planned_at_once() {
        let years = 10 * 365 * 86_400;
        for catch_up in ["one", "skip", "all:1m"] {
            let plan = planned("every second", catch_up, years, 1_000);
            let missed = plan.missed.expect("missed");
            assert_eq!(missed.count + plan.fire.len() as u64, years + 1);
            assert!(!missed.at_least);
            let plan = planned("* * * * * *", catch_up, years, 1_000);
            let missed = plan.missed.expect("missed");
            assert_eq!((missed.count, missed.at_least), (MAX_COUNTED, true));
            assert_eq!(missed.to, Time(plan.fire[0].0 - 1_000_000));
        }
        let year = planned("0 3 * * *", "one", 365 * 86_400, 1).missed.expect("missed");
        assert_eq!((year.count, year.at_least), (364, false));
    }

    #[test]
    fn before_the_next_tick_nothing_fires() {
        let daily: Calendar = "@daily".parse().expect("a calendar");
        let next = at("2026-11-16T00:00:00Z");
        let plan = plan(&daily, CatchUp::One, next, at(NOW), 10);
        assert_eq!(plan, Plan { next_at: Some(next), ..Plan::default() });
    }

    #[test]
    fn policies_parse_and_print_the_same() {
        for text in ["one", "skip", "all:3600s"] {
            assert_eq!(text.parse::<CatchUp>().expect(text).to_string(), text);
        }
        assert_eq!("all".parse(), Ok(CatchUp::All { window: DEFAULT_WINDOW }));
        for wrong in ["some", "all:", "all:h", "all:6y", "all:é", ""] {
            assert!(wrong.parse::<CatchUp>().expect_err(wrong).contains("use one, skip, all or all:<span>"));
        }
        for (overlap, name) in Overlap::NAMES {
            assert_eq!((name.parse(), overlap.to_string()), (Ok(overlap), name.to_owned()));
            assert_eq!(serde_json::to_value(overlap).expect("JSON"), name);
        }
        assert_eq!("cancel-previous".parse(), Ok(Overlap::CancelPrevious));
        assert!("both".parse::<Overlap>().expect_err("wrong").contains("queue, cancel_previous or allow"));
    }
}
