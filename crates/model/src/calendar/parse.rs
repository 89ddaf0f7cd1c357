//! Parses cron expressions. An error names the field, says what is wrong, and what to write instead.

use crate::{
    Invalid,
    limits::{invalid, quoted},
};

/// The longest expression, in bytes: six fields with every number written out have about 600.
const MAX_BYTES: usize = 1_000;

/// One of the six fields.
pub(super) struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    /// Words for the numbers, from `min` on.
    words: &'static [&'static str],
    example: &'static str,
}

pub(super) const SECOND: Field =
    Field { name: "second", min: 0, max: 59, words: &[], example: "0-59, * or */10" };
pub(super) const MINUTE: Field =
    Field { name: "minute", min: 0, max: 59, words: &[], example: "0-59, * or */15" };
pub(super) const HOUR: Field =
    Field { name: "hour", min: 0, max: 23, words: &[], example: "0-23, * or 8-18/2" };
pub(super) const DAY: Field = Field { name: "day", min: 1, max: 31, words: &[], example: "1-31, L or *" };
pub(super) const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    example: "1-12, jan-dec or *",
};
pub(super) const WEEKDAY: Field = Field {
    name: "weekday",
    min: 0,
    // Sunday is 0 and 7.
    max: 7,
    words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    example: "0-7, mon-fri, fri#2, friL or *",
};

const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A day of the month.
pub(super) enum Day {
    /// By number.
    Number(u8),
    /// The last day.
    Last,
}

/// One element of a list: `*`, `5`, `1-5`, and each with `/step`.
struct Range {
    from: u8,
    to: u8,
    step: u8,
    /// Whether it was written as a single number.
    single: bool,
}

impl Range {
    fn numbers(&self) -> impl Iterator<Item = u8> {
        (self.from..=self.to).step_by(usize::from(self.step))
    }
}

/// Splits an expression into six fields; seconds are `0` if there are five.
pub(super) fn split(text: &str) -> Result<[&str; 6], Invalid> {
    let what = || format!("the cron expression {}", quoted(text));
    if text.len() > MAX_BYTES {
        let why = format!("is {} bytes long, more than the {MAX_BYTES} allowed", text.len());
        return Err(invalid(what(), why, "use ranges and steps, or several schedules"));
    }
    let mut written = text.trim();
    if written.starts_with('@') {
        let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(written));
        let hint = "use @hourly, @daily, @weekly, @monthly or @yearly, or five fields";
        written = known.ok_or_else(|| invalid(what(), "is not a known nickname", hint))?.1;
    }
    let fields: Vec<&str> = written.split_whitespace().collect();
    match fields[..] {
        [minute, hour, day, month, weekday] => Ok(["0", minute, hour, day, month, weekday]),
        [second, minute, hour, day, month, weekday] => Ok([second, minute, hour, day, month, weekday]),
        _ => {
            let why = match fields.len() {
                0 => "is empty".to_owned(),
                1 => "has 1 field".to_owned(),
                n => format!("has {n} fields"),
            };
            let hint = "write five (minute hour day month weekday), as in \"0 3 * * mon-fri\", or six with \
                        seconds first";
            Err(invalid(what(), why, hint))
        }
    }
}

/// Parses a field of plain numbers, as a bit set.
pub(super) fn numbers(text: &str, field: &Field, value: &str) -> Result<u64, Invalid> {
    let mut set = 0;
    for part in value.split(',') {
        set |= bits(&range(text, field, part)?);
    }
    Ok(set)
}

/// Parses the hours: those listed one by one, and those from `*`, ranges and steps.
pub(super) fn hours(text: &str, value: &str) -> Result<(u64, u64), Invalid> {
    let (mut fixed, mut repeating) = (0, 0);
    for part in value.split(',') {
        let range = range(text, &HOUR, part)?;
        *(if range.single { &mut fixed } else { &mut repeating }) |= bits(&range);
    }
    Ok((fixed, repeating))
}

/// Parses the days of the month.
pub(super) fn days(text: &str, value: &str) -> Result<Vec<Day>, Invalid> {
    let mut days = Vec::new();
    for part in value.split(',') {
        if part.eq_ignore_ascii_case("l") {
            days.push(Day::Last);
        } else {
            days.extend(range(text, &DAY, part)?.numbers().map(Day::Number));
        }
    }
    Ok(days)
}

/// Parses the weekdays, from Sunday = 0, each with which one of the month: `None` for every one, 0 for the last.
pub(super) fn weekdays(text: &str, value: &str) -> Result<Vec<(u8, Option<u8>)>, Invalid> {
    let mut days = Vec::new();
    for part in value.split(',') {
        if let Some((day, nth)) = part.split_once('#') {
            let nth = nth.parse().ok().filter(|nth| (1..=5).contains(nth)).ok_or_else(|| {
                let hint =
                    "a month has at most five of a weekday: write fri#1 to fri#5, or friL for the last";
                fault(text, &WEEKDAY, part, "has no number from 1 to 5 after the #", hint)
            })?;
            days.push((number(text, &WEEKDAY, part, day)? % 7, Some(nth)));
        } else if let Some(day) = part.strip_suffix(['l', 'L']).filter(|day| !day.is_empty()) {
            days.push((number(text, &WEEKDAY, part, day)? % 7, Some(0)));
        } else {
            days.extend(range(text, &WEEKDAY, part)?.numbers().map(|day| (day % 7, None)));
        }
    }
    Ok(days)
}

fn bits(range: &Range) -> u64 {
    range.numbers().fold(0, |set, number| set | 1 << number)
}

fn range(text: &str, field: &Field, part: &str) -> Result<Range, Invalid> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, Some(self::step(text, field, part, step)?)),
        None => (part, None),
    };
    let (from, to, single) = if range == "*" || range == "?" {
        // Weekdays are 0-6 here: with Sunday as 0 and 7, a step would count it twice.
        (field.min, if field.max == 7 { 6 } else { field.max }, false)
    } else if let Some((from, to)) = range.split_once('-') {
        let (from, mut to) = (number(text, field, part, from)?, number(text, field, part, to)?);
        if field.max == 7 && to == 0 && from > 0 {
            to = 7;
        }
        if from > to {
            let hint = format!("write {from}-{},{}-{to} to go past the end", field.max, field.min);
            return Err(fault(text, field, part, "runs backwards", &hint));
        }
        (from, to, false)
    } else {
        let from = number(text, field, part, range)?;
        (from, if step.is_some() { field.max } else { from }, step.is_none())
    };
    Ok(Range { from, to, step: step.unwrap_or(1), single })
}

fn step(text: &str, field: &Field, part: &str, step: &str) -> Result<u8, Invalid> {
    let number: u32 = digits_only(step).ok_or_else(|| {
        fault(text, field, part, "has no number after the /", &format!("write {}", field.example))
    })?;
    if number == 0 {
        return Err(fault(text, field, part, "has a step of zero", "leave the step out, or use 1"));
    }
    if number > u32::from(field.max - field.min) {
        let hint = format!("steps start again in each cycle; for longer ones use \"every {number} {}s\"", {
            if field.name == "weekday" { "day" } else { field.name }
        });
        return Err(fault(text, field, part, "has a step longer than the field", &hint));
    }
    Ok(number as u8)
}

/// Parses a number or a word.
fn number(text: &str, field: &Field, part: &str, word: &str) -> Result<u8, Invalid> {
    if let Some(index) = field.words.iter().position(|known| known.eq_ignore_ascii_case(word)) {
        return Ok(field.min + index as u8);
    }
    let hint = format!("write {}", field.example);
    if word.is_empty() {
        return Err(fault(text, field, part, "lacks a number", &hint));
    }
    match digits_only(word) {
        None if word.bytes().all(|b| b.is_ascii_digit()) => {
            Err(fault(text, field, part, "is out of range", &hint))
        }
        None => Err(fault(text, field, part, &format!("has {}, which is not a number", quoted(word)), &hint)),
        Some(number) if number < u32::from(field.min) || number > u32::from(field.max) => {
            Err(fault(text, field, part, "is out of range", &hint))
        }
        Some(number) => Ok(number as u8),
    }
}

/// Parses digits only: no sign, which the standard library would accept.
fn digits_only(digits: &str) -> Option<u32> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

fn fault(text: &str, field: &Field, part: &str, why: &str, hint: &str) -> Invalid {
    invalid(
        format!("the {} field {} of the cron expression {}", field.name, quoted(part), quoted(text)),
        why,
        hint,
    )
}

#[cfg(test)]
mod tests {
    use super::super::fields::Fields;

    #[test]
    fn equivalent_spellings_parse_to_the_same_fields() {
        for (one, other) in [
            ("@hourly", "0 * * * *"),
            ("@Daily", "0 0 * * ?"),
            ("0 3 * * mon-fri", "0 0 3 * * 1-5"),
            ("0 3 * * FRI-sun", "0 3 * * 5,6,0"),
            ("0 3 * * 7", "0 3 * * 0"),
            ("5/15 3 * * *", "5,20,35,50 3 * * *"),
            ("0 8-18/2 * JAN,dec *", "0 8-19/2 * 1,12 *"),
            ("*/20 * * * *", "0,20,40 * * * *"),
        ] {
            assert_eq!(
                Fields::parse(one).expect(one),
                Fields::parse(other).expect(other),
                "{one} and {other}"
            );
        }
        assert_ne!(Fields::parse("0 0-23 * * *"), Fields::parse("0 0,1 * * *"));
    }

    #[test]
    fn each_fault_is_refused_with_the_field_and_what_to_write() {
        for (text, expected) in [
            ("", "is empty; write five"),
            ("0 3 * *", "has 4 fields; write five (minute hour day month weekday)"),
            ("@reboot", "not a known nickname; use @hourly"),
            (
                "60 3 * * *",
                "the minute field \"60\" of the cron expression \"60 3 * * *\" is out of range; write 0-59",
            ),
            ("0 24 * * *", "the hour field \"24\" of the cron expression \"0 24 * * *\" is out of range"),
            ("0 0 0 * *", "the day field \"0\""),
            ("0 0 * 13 *", "the month field \"13\""),
            ("0 0 * * 8", "the weekday field \"8\""),
            ("0 0 * * 99999999999", "is out of range"),
            ("0,,5 3 * * *", "lacks a number; write 0-59"),
            ("0 22-4 * * *", "runs backwards; write 22-23,0-4"),
            ("*/0 * * * *", "has a step of zero"),
            ("*/90 * * * *", "use \"every 90 minutes\""),
            ("*/ * * * *", "no number after the /"),
            ("+5 * * * *", "\"+5\", which is not a number"),
            ("0 0 * * blursday", "\"blursday\", which is not a number; write 0-7, mon-fri"),
            ("0 0 * * fri#6", "fri#1 to fri#5"),
            ("0 0 * * L", "which is not a number"),
            ("- * * * *", "lacks a number"),
            ("é * * * *", "which is not a number"),
        ] {
            let error = Fields::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(error.len() < 300, "{error}");
        }
        assert!(Fields::parse(&"1,".repeat(600)).expect_err("long").why.contains("more than the 1000"));
    }
}
