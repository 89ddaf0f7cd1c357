//! A calendar as one line of text: `<cron or every> [in <zone>] [from <time>]`.

use std::{fmt, str::FromStr};

use super::{Calendar, Unit, Zone};
use crate::{
    Invalid, Time,
    limits::{invalid, quoted},
};

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Calendar::Cron(cron) => f.write_str(cron.expression())?,
            Calendar::Every(every) => write!(f, "{every}")?,
        }
        if *self.in_zone() != Zone::UTC {
            write!(f, " in {}", self.in_zone())?;
        }
        match self {
            Calendar::Every(every) if every.anchor().is_some() => {
                write!(f, " from {}", every.anchor().unwrap_or_default())
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Calendar {
    type Err = Invalid;

    /// Parses `every 15 minutes`, `every 90s`, `every month in Europe/Berlin from 2027-01-31T08:00:00Z` or a cron expression,
    /// with or without a zone.
    fn from_str(text: &str) -> Result<Calendar, Invalid> {
        let (rest, anchor) = split_clause(text.trim(), "from");
        let (rule, zone) = split_clause(rest, "in");
        let mut calendar = match rule.split_once(char::is_whitespace) {
            Some((every, step)) if every.eq_ignore_ascii_case("every") => parse_step(text, step)?,
            _ => Calendar::cron(rule, "UTC")?,
        };
        if let Some(zone) = zone {
            calendar = calendar.zone(zone)?;
        }
        if let Some(anchor) = anchor {
            let time = anchor.parse::<Time>().map_err(|_| {
                let what = format!("the anchor {}", quoted(anchor));
                invalid(what, "is not a time", "write one as 2027-01-31T08:00:00Z")
            })?;
            calendar = calendar.from(time)?;
        }
        Ok(calendar)
    }
}

/// Splits the text at the last ` word `, if it has one.
fn split_clause<'a>(text: &'a str, word: &str) -> (&'a str, Option<&'a str>) {
    match text.rsplit_once(&format!(" {word} ")) {
        Some((before, after)) => (before.trim_end(), Some(after.trim())),
        None => (text, None),
    }
}

/// Parses what follows `every`: `15 minutes`, `90s`, `month`.
fn parse_step(text: &str, step: &str) -> Result<Calendar, Invalid> {
    let step = step.trim();
    let digits = step.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = (&step[..digits], step[digits..].trim_start());
    let matches = |(_, one, many, short): &&(Unit, &str, &str, &str)| {
        let is = |word: &str| word.eq_ignore_ascii_case(unit);
        is(one) || is(many) || (is(short) && !count.is_empty())
    };
    let what = || format!("the calendar {}", quoted(text));
    let Some((unit, ..)) = Unit::WORDS.iter().find(matches) else {
        let hint = match unit {
            "ms" | "milliseconds" | "us" => "a second is the shortest step: write \"every 1 second\"",
            _ => "write \"every 15 minutes\", \"every 90s\", \"every day\" or \"every 3 months\"",
        };
        return Err(invalid(what(), format!("has the unit {}", quoted(unit)), hint));
    };
    let count = if count.is_empty() { "1" } else { count };
    let too_long = |_| invalid(what(), "has a step longer than 100 years", "choose a shorter one");
    Calendar::every(count.parse().map_err(too_long)?, *unit)
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, string::string_regex};

    use super::*;

    #[test]
    fn calendars_parse_and_print_the_same() {
        for (text, shown) in [
            ("every 15 minutes", "every 15 minutes"),
            ("every 90s", "every 90 seconds"),
            ("Every 1 month", "every month"),
            ("every day in asia/kolkata", "every day in Asia/Kolkata"),
            ("every 2w", "every 2 weeks"),
            ("every 3mo in UTC", "every 3 months"),
            ("0  3 * * mon-fri in Europe/Berlin", "0 3 * * mon-fri in Europe/Berlin"),
            ("@daily", "@daily"),
            (
                "every month in Europe/Berlin from 2027-01-31T08:00:00Z",
                "every month in Europe/Berlin from 2027-01-31T08:00:00.000000Z",
            ),
        ] {
            let calendar: Calendar = text.parse().expect(text);
            assert_eq!(calendar.to_string(), shown);
            assert_eq!(shown.parse::<Calendar>(), Ok(calendar));
        }
    }

    #[test]
    fn faults_are_refused_with_what_to_write() {
        for (text, expected) in [
            ("every fortnight", "has the unit \"fortnight\"; write \"every 15 minutes\""),
            ("every 500ms", "a second is the shortest step"),
            ("every 5", "has the unit \"\""),
            ("every s", "has the unit \"s\""),
            ("every 0 days", "count from 1"),
            ("every 99999999999 days", "longer than 100 years"),
            ("every day in Berlin", "did you mean Europe/Berlin?"),
            ("every day from tomorrow", "the anchor \"tomorrow\" is not a time"),
            ("@daily from 2027-01-31T08:00:00Z", "has no anchor"),
            ("every", "has 1 field"),
            ("", "is empty"),
            ("daily", "has 1 field"),
        ] {
            let error = text.parse::<Calendar>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    /// Texts that look like calendars, and any others.
    fn calendar_text() -> impl Strategy<Value = String> {
        let field =
            "([0-9]{1,3}|\\*|[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}/[0-9]{1,2}|mon|L|[0-9]L|15W|[a-z#,/-]{1,4})";
        let cron = format!("{field}( {field}){{0,5}}( in (Europe/Berlin|UTC|[A-Za-z/]{{0,10}}))?");
        prop_oneof![
            string_regex(&cron).expect("a pattern"),
            "[eE]very ([0-9]{0,12} ?)?(s|m|h|days?|weeks?|months?|years?|[a-z]{0,6})( in (Europe/Berlin|Asia/Kathmandu|[A-Z]{0,4}))?( from [0-9]{1,5}-[0-9]{2}-[0-9]{2}T[0-9:]{0,8}Z)?",
            "@[a-z]{0,8}( in [A-Za-z/]{0,8})?",
            "\\PC{0,40}",
        ]
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser_of_calendars(text in calendar_text(), from in any::<i64>()) {
            if let Ok(calendar) = text.parse::<Calendar>() {
                prop_assert_eq!(calendar.to_string().parse::<Calendar>(), Ok(calendar.clone()), "{}", text);
                for from in [Time(from), Time(from % 4_102_444_800_000_000)] {
                    if let Some(tick) = calendar.first_at_or_after(from) {
                        prop_assert!(tick >= from, "{text}: {tick} is before {from}");
                    }
                }
            }
        }
    }
}
