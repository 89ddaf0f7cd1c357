//! Ticks at equal steps: every 15 minutes, every 2 months.
//!
//! Seconds, minutes and hours are real time from the anchor; a clock change does not move them. Days, weeks, months and years are
//! steps in the calendar of the zone and keep the local time. Where the clock skips that local time, the tick is at the first time
//! after the jump; where the clock repeats it, the tick is at the first of the two.
//!
//! Tick k is the anchor plus k steps, computed from the anchor each time. So nothing drifts: monthly from 31 January ticks on 28
//! February and then on 31 March.

use std::fmt;

use jiff::{Span, civil, civil::DateTime};
use serde::{Deserialize, Serialize};

use super::zone::Zone;
use crate::{Invalid, Time, limits::invalid};

/// The longest step: a hundred years, as long as the longest delay.
const MAX_YEARS: u64 = 100;

/// The unit of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds of real time.
    Seconds,
    /// Minutes of real time.
    Minutes,
    /// Hours of real time.
    Hours,
    /// Days of the calendar, which have 23 to 25 hours where clocks change.
    Days,
    /// Seven days.
    Weeks,
    /// Months of the calendar; a day that a month lacks is replaced by its last day.
    Months,
    /// Twelve months.
    Years,
}

/// The length of one step.
enum Step {
    Micros(i64),
    Days(i64),
    Months(i64),
}

/// Equal steps from an anchor, which is the first tick. No tick is after 9999.
#[derive(Clone, PartialEq, Debug)]
pub struct Every {
    count: u32,
    unit: Unit,
    zone: Zone,
    /// As given; `None` is the beginning of 1970 in the zone.
    anchor: Option<Time>,
    first: Time,
    /// The local time at `first`.
    first_local: DateTime,
}

impl Unit {
    /// All units, with the singular, the plural and the abbreviation.
    pub(super) const WORDS: [(Unit, &str, &str, &str); 7] = [
        (Unit::Seconds, "second", "seconds", "s"),
        (Unit::Minutes, "minute", "minutes", "m"),
        (Unit::Hours, "hour", "hours", "h"),
        (Unit::Days, "day", "days", "d"),
        (Unit::Weeks, "week", "weeks", "w"),
        (Unit::Months, "month", "months", "mo"),
        (Unit::Years, "year", "years", "y"),
    ];

    /// Returns how many fit into the longest step.
    fn max_count(self) -> u64 {
        MAX_YEARS
            * match self {
                Unit::Seconds => 365 * 86_400,
                Unit::Minutes => 365 * 1_440,
                Unit::Hours => 365 * 24,
                Unit::Days => 365,
                Unit::Weeks => 52,
                Unit::Months => 12,
                Unit::Years => 1,
            }
    }
}

impl Every {
    pub(super) fn new(count: u32, unit: Unit, zone: Zone, anchor: Option<Time>) -> Result<Every, Invalid> {
        let what = || format!("the step of {count} {}", Unit::WORDS[unit as usize].2);
        if count == 0 {
            return Err(invalid(what(), "is not a step", "count from 1"));
        }
        if u64::from(count) > unit.max_count() {
            return Err(invalid(what(), "is longer than 100 years", "choose a shorter one"));
        }
        let outside = || {
            let what = format!("the anchor {}", anchor.unwrap_or_default());
            invalid(what, "is not between 1970 and 9999", "choose a time that is")
        };
        // A week begins on Monday, and 1970 began on a Thursday.
        let monday = if unit == Unit::Weeks { 5 } else { 1 };
        let begin = civil::date(1970, 1, monday).at(0, 0, 0, 0);
        let (first, first_local) = match anchor {
            Some(at) if at.0 < 0 || at > Time::MAX => return Err(outside()),
            Some(at) => (at, zone.local(at).ok_or_else(outside)?),
            None => (zone.first_time_at(begin).ok_or_else(outside)?, begin),
        };
        Ok(Every { count, unit, zone, anchor, first, first_local })
    }

    /// Returns how many units a step has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the unit of a step.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the time zone.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Returns the first tick, if one was set.
    pub fn anchor(&self) -> Option<Time> {
        self.anchor
    }

    /// Returns the first tick after `t`.
    pub(super) fn next_after(&self, t: Time) -> Option<Time> {
        self.tick(self.index(t).map_or(0, |k| k + 1))
    }

    /// Returns the last tick that is not after `t`.
    pub(super) fn last_at_or_before(&self, t: Time) -> Option<Time> {
        self.tick(self.index(t)?)
    }

    /// Returns how many ticks are in `from..=to`. Two ticks at the same time, because a zone skipped a day, count twice.
    pub(super) fn count_between(&self, from: Time, to: Time) -> u64 {
        let count_to = |t| self.index(t).map_or(0, |k| k + 1);
        (count_to(to) - count_to(Time(from.0.saturating_sub(1)))).max(0) as u64
    }

    /// Returns the index of the last tick that is not after `t`, from 0.
    fn index(&self, t: Time) -> Option<i64> {
        let t = t.min(Time::MAX);
        if t < self.first {
            return None;
        }
        let k = match self.step() {
            Step::Micros(step) => return Some((t.0 - self.first.0) / step),
            Step::Days(step) => {
                let days = self.zone.local(t)?.date().since(self.first_local.date()).ok()?.get_days();
                i64::from(days) / step
            }
            Step::Months(step) => {
                let local = self.zone.local(t)?;
                let years = i64::from(local.year()) - i64::from(self.first_local.year());
                (years * 12 + i64::from(local.month()) - i64::from(self.first_local.month())) / step
            }
        };
        // From the date alone it may be one too many, or a few too few where a clock change was large.
        let mut k = k.max(0);
        while k > 0 && self.tick(k).is_none_or(|at| at > t) {
            k -= 1;
        }
        while self.tick(k + 1).is_some_and(|at| at <= t) {
            k += 1;
        }
        Some(k)
    }

    /// Returns tick `k`, from 0; `None` after the year 9999.
    fn tick(&self, k: i64) -> Option<Time> {
        if k == 0 {
            return Some(self.first);
        }
        let span = match self.step() {
            Step::Micros(step) => {
                let at = Time(self.first.0.checked_add(k.checked_mul(step)?)?);
                return (at <= Time::MAX).then_some(at);
            }
            Step::Days(step) => Span::new().try_days(k.checked_mul(step)?).ok()?,
            Step::Months(step) => Span::new().try_months(k.checked_mul(step)?).ok()?,
        };
        self.zone.first_time_at(self.first_local.checked_add(span).ok()?)
    }

    fn step(&self) -> Step {
        let count = i64::from(self.count);
        match self.unit {
            Unit::Seconds => Step::Micros(count * 1_000_000),
            Unit::Minutes => Step::Micros(count * 60_000_000),
            Unit::Hours => Step::Micros(count * 3_600_000_000),
            Unit::Days => Step::Days(count),
            Unit::Weeks => Step::Days(count * 7),
            Unit::Months => Step::Months(count),
            Unit::Years => Step::Months(count * 12),
        }
    }
}

impl fmt::Display for Every {
    /// `every 15 minutes`, `every month`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, one, many, _) = Unit::WORDS[self.unit as usize];
        match self.count {
            1 => write!(f, "every {one}"),
            count => write!(f, "every {count} {many}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        text.parse().expect(text)
    }

    fn every(count: u32, unit: Unit, zone: &str, anchor: Option<&str>) -> Every {
        Every::new(count, unit, Zone::named(zone).expect(zone), anchor.map(at)).expect("valid")
    }

    fn ticks(every: &Every, after: &str, n: usize) -> Vec<String> {
        let mut t = at(after);
        let mut found = Vec::new();
        for _ in 0..n {
            let next = every.next_after(t).expect("a tick");
            assert!(next > t);
            assert_eq!(every.last_at_or_before(next), Some(next));
            assert!(
                every.last_at_or_before(Time(next.0 - 1)).is_none_or(|last| last <= t || found.is_empty())
            );
            found.push(next.to_string().replace(":00.000000Z", "Z"));
            t = next;
        }
        found
    }

    #[test]
    fn monthly_steps_return_to_the_end_of_the_month() {
        let monthly = every(1, Unit::Months, "UTC", Some("2027-01-31T09:00:00Z"));
        let expected = ["2027-01-31T09:00Z", "2027-02-28T09:00Z", "2027-03-31T09:00Z", "2027-04-30T09:00Z"];
        assert_eq!(ticks(&monthly, "2020-01-01T00:00:00Z", 4), expected);
        let leap = every(1, Unit::Years, "UTC", Some("2024-02-29T00:00:00Z"));
        assert_eq!(ticks(&leap, "2027-03-01T00:00:00Z", 2), ["2028-02-29T00:00Z", "2029-02-28T00:00Z"]);
    }

    #[test]
    fn hours_are_real_time_and_days_keep_the_local_time() {
        let hours = every(24, Unit::Hours, "Europe/Berlin", Some("2026-03-28T07:00:00Z"));
        assert_eq!(ticks(&hours, "2026-03-28T12:00:00Z", 2), ["2026-03-29T07:00Z", "2026-03-30T07:00Z"]);
        let days = every(1, Unit::Days, "Europe/Berlin", Some("2026-03-28T07:00:00Z"));
        assert_eq!(ticks(&days, "2026-03-28T12:00:00Z", 2), ["2026-03-29T06:00Z", "2026-03-30T06:00Z"]);
        let gap = every(1, Unit::Days, "Europe/Berlin", Some("2026-03-28T01:30:00Z"));
        assert_eq!(ticks(&gap, "2026-03-28T12:00:00Z", 2), ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]);
    }

    #[test]
    fn weeks_begin_on_monday_and_days_at_midnight_of_the_zone() {
        let weeks = every(2, Unit::Weeks, "Asia/Kolkata", None);
        assert_eq!(ticks(&weeks, "2026-11-15T00:00:00Z", 2), ["2026-11-22T18:30Z", "2026-12-06T18:30Z"]);
        let minutes = every(15, Unit::Minutes, "UTC", None);
        assert_eq!(ticks(&minutes, "2026-11-15T08:07:00Z", 2), ["2026-11-15T08:15Z", "2026-11-15T08:30Z"]);
    }

    #[test]
    fn a_skipped_day_makes_no_second_tick() {
        let days = every(1, Unit::Days, "Pacific/Apia", None);
        let expected = ["2011-12-29T10:00Z", "2011-12-30T10:00Z", "2011-12-31T10:00Z"];
        assert_eq!(ticks(&days, "2011-12-29T00:00:00Z", 3), expected);
    }

    #[test]
    fn an_anchor_in_a_repeated_hour_is_kept() {
        let second = "2026-10-25T01:30:00Z";
        let days = every(1, Unit::Days, "Europe/Berlin", Some(second));
        assert_eq!(ticks(&days, "2026-10-01T00:00:00Z", 2), ["2026-10-25T01:30Z", "2026-10-26T01:30Z"]);
        assert_eq!(days.last_at_or_before(at("2026-10-25T01:00:00Z")), None);
    }

    #[test]
    fn ticks_are_found_centuries_away() {
        for unit in [Unit::Seconds, Unit::Hours, Unit::Days, Unit::Weeks, Unit::Months, Unit::Years] {
            let every = every(1, unit, "America/New_York", None);
            let far = at("9876-05-04T03:02:01.5Z");
            let next = every.next_after(far).expect("a tick");
            assert!(every.last_at_or_before(far).expect("one") < next && next > far);
            assert_eq!(every.next_after(Time::MAX), None);
            assert_eq!(every.next_after(Time(i64::MAX)), None);
            assert_eq!(every.next_after(Time(i64::MIN)), Some(every.first));
            assert!(every.last_at_or_before(Time(i64::MAX)).is_some());
        }
        let seconds = every(1, Unit::Seconds, "UTC", None);
        assert_eq!(seconds.count_between(Time(0), Time(86_400_000_000 * 365)), 86_400 * 365 + 1);
        assert_eq!(seconds.count_between(Time(1), Time(2)), 0);
    }

    #[test]
    fn steps_and_anchors_out_of_range_are_refused() {
        let error = |count, unit, anchor| Every::new(count, unit, Zone::UTC, anchor).expect_err("refused");
        assert!(error(0, Unit::Days, None).to_string().contains("0 days is not a step; count from 1"));
        assert!(error(u32::MAX, Unit::Years, None).to_string().contains("longer than 100 years"));
        assert!(error(1, Unit::Days, Some(Time(-1))).to_string().contains("not between 1970 and 9999"));
    }
}
