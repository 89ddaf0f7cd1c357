//! The fields of a cron expression, which find the next and the last match.
//!
//! A local time is a count of seconds since 1970 as if the clock were in UTC. [`super::cron`] decides which time that is, and what
//! happens when the clock jumps.

use jiff::{Timestamp, civil::Date, civil::Weekday, tz::Offset};

use super::parse::{self, Day};
use crate::Invalid;

const DAY: i64 = 86_400;

/// Which local times match, as bit sets.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Fields {
    seconds: u64,
    minutes: u64,
    /// Hours that are listed one by one.
    fixed: u64,
    /// Hours from `*`, a range or a step.
    repeating: u64,
    months: u64,
    days: Days,
}

/// Which days match.
#[derive(Clone, PartialEq, Debug)]
struct Days {
    /// Days of the month.
    month: u64,
    /// Whether the last day of the month matches.
    last: bool,
    /// For each weekday from Sunday, which of those in a month match: bits 1 to 5, and bit 6 for the last.
    week: [u8; 7],
    /// Whether a day that matches by month or by week is enough; otherwise it must match by both.
    either: bool,
}

/// Every such weekday of a month.
const EVERY: u8 = 0b11_1110;
/// The last such weekday of a month.
const LAST: u8 = 0b100_0000;

/// Which hours to match.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Hours {
    /// Hours that are listed one by one.
    Fixed,
    /// Hours from `*`, a range or a step.
    Repeating,
    /// Both.
    All,
}

impl Fields {
    /// Parses five fields, or six with seconds first.
    pub(super) fn parse(text: &str) -> Result<Fields, Invalid> {
        let [second, minute, hour, day, month, weekday] = parse::split(text)?;
        let (fixed, repeating) = parse::hours(text, hour)?;
        let (mut days, mut last) = (0, false);
        for day in parse::days(text, day)? {
            match day {
                Day::Number(number) => days |= 1 << number,
                Day::Last => last = true,
            }
        }
        let mut week = [0; 7];
        for (weekday, which) in parse::weekdays(text, weekday)? {
            week[usize::from(weekday)] |= which.map_or(EVERY, |nth| if nth == 0 { LAST } else { 1 << nth });
        }
        let open = |field: &str| field.starts_with(['*', '?']);
        Ok(Fields {
            seconds: parse::numbers(text, &parse::SECOND, second)?,
            minutes: parse::numbers(text, &parse::MINUTE, minute)?,
            fixed: fixed & !repeating,
            repeating,
            months: parse::numbers(text, &parse::MONTH, month)?,
            days: Days { month: days, last, week, either: !open(day) && !open(weekday) },
        })
    }

    /// Returns the first match in `from..to`.
    pub(super) fn first(&self, hours: Hours, from: i64, to: i64) -> Option<i64> {
        let hours = self.hours(hours);
        let (mut day, mut second) = (from.div_euclid(DAY), from.rem_euclid(DAY));
        while hours != 0 && day * DAY < to {
            let date = date(day)?;
            if self.months & 1 << date.month() == 0 {
                day += i64::from(date.days_in_month() - date.day());
            } else if self.days.contain(date)
                && let Some(second) = self.first_of_day(hours, second)
            {
                return Some(day * DAY + second).filter(|at| *at < to);
            }
            (day, second) = (day + 1, 0);
        }
        None
    }

    /// Returns the last match in `from..to`.
    pub(super) fn last(&self, hours: Hours, from: i64, to: i64) -> Option<i64> {
        let hours = self.hours(hours);
        let (mut day, mut second) = ((to - 1).div_euclid(DAY), (to - 1).rem_euclid(DAY));
        while hours != 0 && (day + 1) * DAY > from {
            let date = date(day)?;
            if self.months & 1 << date.month() == 0 {
                day -= i64::from(date.day() - 1);
            } else if self.days.contain(date)
                && let Some(second) = self.last_of_day(hours, second)
            {
                return Some(day * DAY + second).filter(|at| *at >= from);
            }
            (day, second) = (day - 1, DAY - 1);
        }
        None
    }

    fn hours(&self, hours: Hours) -> u64 {
        match hours {
            Hours::Fixed => self.fixed,
            Hours::Repeating => self.repeating,
            Hours::All => self.fixed | self.repeating,
        }
    }

    /// Returns the first match of a day that is not before `from`, in seconds of the day.
    fn first_of_day(&self, hours: u64, from: i64) -> Option<i64> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        if has(hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = at_least(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = at_least(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + at_least(self.seconds, 0)?);
            }
        }
        let hour = at_least(hours, hour + 1)?;
        Some(hour * 3_600 + at_least(self.minutes, 0)? * 60 + at_least(self.seconds, 0)?)
    }

    /// Returns the last match of a day that is not after `to`, in seconds of the day.
    fn last_of_day(&self, hours: u64, to: i64) -> Option<i64> {
        let (hour, minute, second) = (to / 3_600, to / 60 % 60, to % 60);
        if has(hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = at_most(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = at_most(self.minutes, minute - 1) {
                return Some(hour * 3_600 + minute * 60 + at_most(self.seconds, 59)?);
            }
        }
        let hour = at_most(hours, hour - 1)?;
        Some(hour * 3_600 + at_most(self.minutes, 59)? * 60 + at_most(self.seconds, 59)?)
    }
}

impl Days {
    fn contain(&self, date: Date) -> bool {
        let last = date.days_in_month();
        let by_month = self.month & 1 << date.day() != 0 || self.last && date.day() == last;
        let which = self.week[weekday(date.weekday())];
        let nth = 1 << ((date.day() - 1) / 7 + 1);
        let by_week = which & nth != 0 || which & LAST != 0 && date.day() + 7 > last;
        if self.either { by_month || by_week } else { by_month && by_week }
    }
}

fn weekday(day: Weekday) -> usize {
    day.to_sunday_zero_offset() as usize
}

/// Returns the date this many days after 1970-01-01.
fn date(day: i64) -> Option<Date> {
    Some(Offset::UTC.to_datetime(Timestamp::from_second(day * DAY).ok()?).date())
}

fn has(set: u64, bit: i64) -> bool {
    set & 1 << bit != 0
}

/// Returns the lowest member of `set` that is at least `bit`.
fn at_least(set: u64, bit: i64) -> Option<i64> {
    let rest = set & u64::MAX << bit;
    (rest != 0).then(|| i64::from(rest.trailing_zeros()))
}

/// Returns the highest member of `set` that is at most `bit`.
fn at_most(set: u64, bit: i64) -> Option<i64> {
    let rest = if bit < 0 { 0 } else { set & u64::MAX >> (63 - bit) };
    (rest != 0).then(|| 63 - i64::from(rest.leading_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first `n` matching dates after 2025.
    fn dates(text: &str, n: usize) -> Vec<String> {
        let fields = Fields::parse(text).expect(text);
        let mut from = 1_767_225_600;
        let mut found = Vec::new();
        while found.len() < n {
            let at = fields.first(Hours::All, from, i64::MAX / 2).expect("a match");
            assert_eq!(fields.last(Hours::All, from, at + 1), Some(at), "both directions agree");
            assert_eq!(fields.last(Hours::All, from, at), None, "none between");
            found.push(date(at.div_euclid(DAY)).expect("a date").to_string());
            from = at + 1;
        }
        found
    }

    #[test]
    fn days_match_by_month_by_week_or_by_either() {
        let cases: [(&str, &[&str]); 9] = [
            ("0 0 29 2 *", &["2028-02-29", "2032-02-29"]),
            ("0 0 L * *", &["2026-01-31", "2026-02-28", "2026-03-31"]),
            ("0 0 15,L 2 *", &["2026-02-15", "2026-02-28", "2027-02-15"]),
            ("0 0 * * 5#2", &["2026-01-09", "2026-02-13"]),
            ("0 0 ? * friL", &["2026-01-30", "2026-02-27"]),
            ("0 0 * * 0,6", &["2026-01-03", "2026-01-04", "2026-01-10"]),
            ("0 0 * jan-mar 7", &["2026-01-04", "2026-01-11"]),
            ("0 0 13 * fri", &["2026-01-02", "2026-01-09", "2026-01-13"]),
            ("0 0 */10 * mon", &["2026-05-11", "2026-06-01", "2026-08-31"]),
        ];
        for (text, expected) in cases {
            assert_eq!(dates(text, expected.len()), expected, "{text}");
        }
    }

    #[test]
    fn a_fifth_friday_of_february_is_found_decades_away() {
        assert_eq!(dates("0 0 * 2 5#5", 2), ["2036-02-29", "2064-02-29"]);
    }

    #[test]
    fn the_lowest_and_highest_members_of_a_set_are_found() {
        assert_eq!((at_least(1, 0), at_least(1, 1), at_least(1 << 59, 59)), (Some(0), None, Some(59)));
        assert_eq!((at_most(1, 0), at_most(2, 0), at_most(1 << 59, 59)), (Some(0), None, Some(59)));
        assert_eq!((at_least(1, 60), at_most(1, -1)), (None, None));
    }
}
