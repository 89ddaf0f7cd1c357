//! Cron: ticks at local times of a time zone.
//!
//! An expression has five fields (minute hour day month weekday), or six with seconds first. If both day and weekday are
//! restricted, a day that matches either is enough; a field that begins with `*` restricts nothing in this sense.
//!
//! # When the clock is changed
//! An hour that is listed by itself, as in `30 2 * * *` or `0 2,14 * * *`, is **fixed**: the author means a time of the day. Hours
//! from `*`, a range or a step are **repeating**: the author means an interval.
//!
//! | the clock | fixed hours | repeating hours |
//! |---|---|---|
//! | skips a local time | tick once, at the first time after the jump | do not tick |
//! | repeats a local time | tick once, the first time | tick both times |
//!
//! So `30 2 * * *` ticks once on every day of the year, and `*/15 * * * *` every 15 minutes of real time.

use super::{
    fields::{Fields, Hours},
    zone::{OffsetPeriod, Zone},
};
use crate::{
    Invalid, Time,
    limits::{invalid, quoted},
};

const MICROS: i64 = 1_000_000;
/// The beginning of 2026. An expression that never ticks after it, by the current rules of its zone, never will.
const TODAY: Time = Time(1_767_225_600 * MICROS);

/// A cron expression in a time zone. No tick is before 1970 or after 9999.
#[derive(Clone, Debug)]
pub struct Cron {
    expression: String,
    zone: Zone,
    fields: Fields,
}

impl PartialEq for Cron {
    /// Compares the text: `@daily` and `0 0 * * *` are different calendars with the same ticks.
    fn eq(&self, other: &Cron) -> bool {
        self.expression == other.expression && self.zone == other.zone
    }
}

impl Cron {
    pub(super) fn new(expression: &str, zone: Zone) -> Result<Cron, Invalid> {
        let fields = Fields::parse(expression)?;
        let expression = expression.split_whitespace().collect::<Vec<_>>().join(" ");
        let cron = Cron { expression, zone, fields };
        if cron.next_after(TODAY).is_none() {
            let what = format!("the cron expression {}", quoted(&cron.expression));
            let hint = "choose a day that the month has, and an hour that the clock shows on it";
            return Err(invalid(what, "never fires", hint));
        }
        Ok(cron)
    }

    /// Returns the expression, with single spaces.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Returns the time zone.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Returns the first tick after `t`.
    pub(super) fn next_after(&self, t: Time) -> Option<Time> {
        let mut from = t.0.div_euclid(MICROS).saturating_add(1).max(0);
        loop {
            let period = self.zone.offset_period(from)?;
            if let Some(at) = self.first_in(&period, from) {
                return Some(Time(at * MICROS));
            }
            from = period.until?;
        }
    }

    /// Returns the last tick that is not after `t`.
    pub(super) fn last_at_or_before(&self, t: Time) -> Option<Time> {
        let mut to = t.0.min(Time::MAX.0).div_euclid(MICROS) + 1;
        while to > 0 {
            let period = self.zone.offset_period(to - 1)?;
            if let Some(at) = self.last_in(&period, to) {
                return (at >= 0).then_some(Time(at * MICROS));
            }
            to = period.from?;
        }
        None
    }

    /// Returns the first tick in the period that is not before `from`.
    fn first_in(&self, period: &OffsetPeriod, from: i64) -> Option<i64> {
        if period.from == Some(from) && self.skips_fixed_tick(period, from) {
            return Some(from);
        }
        let until = period.until.unwrap_or(Time::MAX.0 / MICROS + 1);
        let (from, until) = (from + period.offset, until + period.offset);
        let repeat_end = period.repeat_end(from, until);
        let repeated = self.fields.first(Hours::Repeating, from, repeat_end);
        Some(repeated.or_else(|| self.fields.first(Hours::All, repeat_end, until))? - period.offset)
    }

    /// Returns the last tick in the period that is before `to`.
    fn last_in(&self, period: &OffsetPeriod, to: i64) -> Option<i64> {
        let begin = period.from.unwrap_or(0);
        let (from, until) = (begin + period.offset, to + period.offset);
        let repeat_end = period.repeat_end(from, until);
        let last = self.fields.last(Hours::All, repeat_end, until);
        let last = last.or_else(|| self.fields.last(Hours::Repeating, from, repeat_end));
        let jump = || period.from.filter(|begin| self.skips_fixed_tick(period, *begin));
        last.map(|at| at - period.offset).or_else(jump)
    }

    /// Whether the jump at the beginning of the period skips a local time with a fixed hour.
    fn skips_fixed_tick(&self, period: &OffsetPeriod, begin: i64) -> bool {
        self.fields.first(Hours::Fixed, begin + period.previous_offset, begin + period.offset).is_some()
    }
}

impl OffsetPeriod {
    /// Returns the local time, within `from..=until`, up to which the clock repeats what it showed before the period. That is
    /// `from` if it was not put back.
    fn repeat_end(&self, from: i64, until: i64) -> i64 {
        let put_back = self.from.filter(|_| self.previous_offset > self.offset);
        put_back.map_or(from, |begin| (begin + self.previous_offset).clamp(from, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(text: &str, zone: &str) -> Cron {
        Cron::new(text, Zone::named(zone).expect(zone)).expect(text)
    }

    /// The ticks after a time, as local times with their offset.
    fn ticks(text: &str, zone: &str, after: &str, n: usize) -> Vec<String> {
        let cron = cron(text, zone);
        let tz = jiff::tz::TimeZone::get(zone).expect(zone);
        let mut at: Time = after.parse().expect(after);
        let mut found = Vec::new();
        for _ in 0..n {
            let next = cron.next_after(at).expect("a tick");
            assert_eq!(cron.last_at_or_before(next), Some(next));
            let before = cron.last_at_or_before(Time(next.0 - 1));
            assert!(before.is_none_or(|before| before <= at || found.is_empty()), "none between");
            at = next;
            let zoned = jiff::Timestamp::from_microsecond(at.0).expect("a time").to_zoned(tz.clone());
            found.push(zoned.strftime("%m-%dT%H:%M%:z").to_string());
        }
        found
    }

    #[test]
    fn a_fixed_hour_ticks_once_a_day_all_year() {
        let spring = ticks("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3);
        assert_eq!(spring, ["03-28T02:30+01:00", "03-29T03:00+02:00", "03-30T02:30+02:00"]);
        let autumn = ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(autumn, ["10-25T02:30+02:00", "10-26T02:30+01:00"]);
        let spring = ticks("0,15,30,45 2 * * *", "America/New_York", "2026-03-08T00:00:00Z", 2);
        assert_eq!(spring, ["03-08T03:00-04:00", "03-09T02:00-04:00"], "four skipped ticks are one");
        let autumn = ticks("30 1 * * *", "America/New_York", "2026-11-01T00:00:00Z", 2);
        assert_eq!(autumn, ["11-01T01:30-04:00", "11-02T01:30-05:00"]);
    }

    #[test]
    fn repeating_hours_tick_in_real_time() {
        let spring = ticks("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 3);
        assert_eq!(spring, ["03-29T01:30+01:00", "03-29T03:00+02:00", "03-29T03:30+02:00"]);
        let autumn = ticks("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:59:00Z", 5);
        let both = [
            "10-25T02:00+02:00",
            "10-25T02:30+02:00",
            "10-25T02:00+01:00",
            "10-25T02:30+01:00",
            "10-25T03:00+01:00",
        ];
        assert_eq!(autumn, both);
        let spring = ticks("30 1-3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 3);
        assert_eq!(spring, ["03-29T01:30+01:00", "03-29T03:30+02:00", "03-30T01:30+02:00"]);
    }

    #[test]
    fn a_clock_change_of_half_an_hour_is_handled_too() {
        let zone = "Australia/Lord_Howe";
        let spring = ticks("15 2 * * *", zone, "2026-10-03T00:00:00Z", 2);
        assert_eq!(spring, ["10-04T02:30+11:00", "10-05T02:15+11:00"]);
        let autumn = ticks("45 1 * * *", zone, "2026-04-04T00:00:00Z", 2);
        assert_eq!(autumn, ["04-05T01:45+11:00", "04-06T01:45+10:30"]);
        let repeating = ticks("*/15 * * * *", zone, "2026-04-04T14:44:00Z", 4);
        assert_eq!(
            repeating,
            ["04-05T01:45+11:00", "04-05T01:30+10:30", "04-05T01:45+10:30", "04-05T02:00+10:30"]
        );
    }

    #[test]
    fn a_zone_without_changes_and_a_zone_that_skipped_a_day() {
        let kolkata = ticks("0 9 * * mon", "Asia/Kolkata", "2026-03-28T00:00:00Z", 2);
        assert_eq!(kolkata, ["03-30T09:00+05:30", "04-06T09:00+05:30"]);
        let apia = ticks("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3);
        assert_eq!(apia, ["12-29T12:00-10:00", "12-31T00:00+14:00", "12-31T12:00+14:00"]);
        let midnight = ticks("@daily", "Pacific/Apia", "2011-12-29T11:00:00Z", 2);
        assert_eq!(midnight, ["12-31T00:00+14:00", "01-01T00:00+14:00"], "two midnights at the same time");
    }

    #[test]
    fn an_expression_that_never_ticks_is_refused() {
        for (text, zone) in [
            ("0 0 30 2 *", "UTC"),
            ("0 0 31 4,6,9,11 *", "Europe/Berlin"),
            // From a range, so it is not moved, and skipped every year.
            ("30 2-2 * 3 sunL", "Europe/Berlin"),
        ] {
            let zone = Zone::named(zone).expect(zone);
            let error = Cron::new(text, zone).expect_err(text).to_string();
            assert!(error.contains("never fires; choose a day that the month has"), "{error}");
        }
    }

    #[test]
    fn no_tick_is_before_1970_or_after_9999() {
        let cron = cron("0 0 1 1 *", "UTC");
        assert_eq!(cron.next_after(Time(i64::MIN)), Some(Time(0)));
        assert_eq!(cron.last_at_or_before(Time(0)), Some(Time(0)));
        assert_eq!(cron.last_at_or_before(Time(-1)), None);
        assert_eq!(cron.next_after(Time(i64::MAX)), None);
        let last: Time = "9999-01-01T00:00:00Z".parse().expect("a time");
        assert_eq!(cron.last_at_or_before(Time(i64::MAX)), Some(last));
        assert_eq!(cron.next_after(last), None);
    }
}
