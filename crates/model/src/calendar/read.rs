//! Reading the text of a cron expression, and saying what is wrong with it.

use crate::{
    Invalid,
    limits::{invalid, quoted},
};

/// The longest expression, in bytes: six fields with every number written out have some 600.
const LONGEST: usize = 1_000;

/// One of the six fields.
pub(super) struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    /// Words for the numbers from `least` on.
    words: &'static [&'static str],
    example: &'static str,
}

pub(super) const SECOND: Field =
    Field { name: "second", least: 0, most: 59, words: &[], example: "0-59, * or */10" };
pub(super) const MINUTE: Field =
    Field { name: "minute", least: 0, most: 59, words: &[], example: "0-59, * or */15" };
pub(super) const HOUR: Field =
    Field { name: "hour", least: 0, most: 23, words: &[], example: "0-23, * or 8-18/2" };
pub(super) const DAY: Field = Field { name: "day", least: 1, most: 31, words: &[], example: "1-31, L or *" };
pub(super) const MONTH: Field = Field {
    name: "month",
    least: 1,
    most: 12,
    words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    example: "1-12, jan-dec or *",
};
pub(super) const WEEKDAY: Field = Field {
    name: "weekday",
    least: 0,
    // Sunday is both ends of the week.
    most: 7,
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
    /// Whichever is the last.
    Last,
}

/// What one member of a list stands for.
struct Item {
    from: u8,
    to: u8,
    step: u8,
    /// Whether it was a single number.
    single: bool,
}

impl Item {
    fn numbers(&self) -> impl Iterator<Item = u8> {
        (self.from..=self.to).step_by(usize::from(self.step))
    }
}

/// The six fields of an expression; seconds are `0` where there are five.
pub(super) fn split(text: &str) -> Result<[&str; 6], Invalid> {
    let whole = || format!("the cron expression {}", quoted(text));
    if text.len() > LONGEST {
        let why = format!("is {} bytes long, more than the {LONGEST} allowed", text.len());
        return Err(invalid(whole(), why, "use ranges and steps, or several schedules"));
    }
    let mut written = text.trim();
    if written.starts_with('@') {
        let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(written));
        let hint = "use @hourly, @daily, @weekly, @monthly or @yearly, or five fields";
        written = known.ok_or_else(|| invalid(whole(), "is not a known nickname", hint))?.1;
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
            Err(invalid(whole(), why, hint))
        }
    }
}

/// A field of plain numbers, as a set of bits.
pub(super) fn numbers(text: &str, field: &Field, value: &str) -> Result<u64, Invalid> {
    let mut set = 0;
    for part in value.split(',') {
        set |= bits(&item(text, field, part)?);
    }
    Ok(set)
}

/// The hours: those named one by one, and those out of `*`, ranges and steps.
pub(super) fn hours(text: &str, value: &str) -> Result<(u64, u64), Invalid> {
    let (mut fixed, mut flowing) = (0, 0);
    for part in value.split(',') {
        let item = item(text, &HOUR, part)?;
        *(if item.single { &mut fixed } else { &mut flowing }) |= bits(&item);
    }
    Ok((fixed, flowing))
}

/// The days of the month.
pub(super) fn days(text: &str, value: &str) -> Result<Vec<Day>, Invalid> {
    let mut days = Vec::new();
    for part in value.split(',') {
        if part.eq_ignore_ascii_case("l") {
            days.push(Day::Last);
        } else {
            days.extend(item(text, &DAY, part)?.numbers().map(Day::Number));
        }
    }
    Ok(days)
}

/// The weekdays, from Sunday = 0, each with which one of the month: `None` for all, 0 for the last.
pub(super) fn weekdays(text: &str, value: &str) -> Result<Vec<(u8, Option<u8>)>, Invalid> {
    let mut days = Vec::new();
    for part in value.split(',') {
        if let Some((day, nth)) = part.split_once('#') {
            let nth = nth.parse().ok().filter(|nth| (1..=5).contains(nth)).ok_or_else(|| {
                let hint =
                    "a month has at most five of a weekday: write fri#1 to fri#5, or friL for the last";
                wrong(text, &WEEKDAY, part, "has no number from 1 to 5 after the #", hint)
            })?;
            days.push((number(text, &WEEKDAY, part, day)? % 7, Some(nth)));
        } else if let Some(day) = part.strip_suffix(['l', 'L']).filter(|day| !day.is_empty()) {
            days.push((number(text, &WEEKDAY, part, day)? % 7, Some(0)));
        } else {
            days.extend(item(text, &WEEKDAY, part)?.numbers().map(|day| (day % 7, None)));
        }
    }
    Ok(days)
}

fn bits(item: &Item) -> u64 {
    item.numbers().fold(0, |set, number| set | 1 << number)
}

/// One member of a list: `*`, `5`, `1-5`, and each with `/step`.
fn item(text: &str, field: &Field, part: &str) -> Result<Item, Invalid> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, Some(self::step(text, field, part, step)?)),
        None => (part, None),
    };
    let (from, to, single) = if range == "*" || range == "?" {
        // For weekdays 0-6: a Sunday at both ends would be out of step.
        (field.least, if field.most == 7 { 6 } else { field.most }, false)
    } else if let Some((from, to)) = range.split_once('-') {
        let (from, mut to) = (number(text, field, part, from)?, number(text, field, part, to)?);
        if field.most == 7 && to == 0 && from > 0 {
            to = 7;
        }
        if from > to {
            let hint = format!("write {from}-{},{}-{to} to go past the end", field.most, field.least);
            return Err(wrong(text, field, part, "runs backwards", &hint));
        }
        (from, to, false)
    } else {
        let from = number(text, field, part, range)?;
        (from, if step.is_some() { field.most } else { from }, step.is_none())
    };
    Ok(Item { from, to, step: step.unwrap_or(1), single })
}

fn step(text: &str, field: &Field, part: &str, step: &str) -> Result<u8, Invalid> {
    let number: u32 = plain(step).ok_or_else(|| {
        wrong(text, field, part, "has no number after the /", &format!("write {}", field.example))
    })?;
    if number == 0 {
        return Err(wrong(text, field, part, "has a step of zero", "leave the step out, or use 1"));
    }
    if number > u32::from(field.most - field.least) {
        let hint = format!("steps start afresh in each cycle; for longer ones use \"every {number} {}s\"", {
            if field.name == "weekday" { "day" } else { field.name }
        });
        return Err(wrong(text, field, part, "has a step longer than the field", &hint));
    }
    Ok(number as u8)
}

/// A number or a word.
fn number(text: &str, field: &Field, part: &str, word: &str) -> Result<u8, Invalid> {
    if let Some(index) = field.words.iter().position(|known| known.eq_ignore_ascii_case(word)) {
        return Ok(field.least + index as u8);
    }
    let hint = format!("write {}", field.example);
    if word.is_empty() {
        return Err(wrong(text, field, part, "lacks a number", &hint));
    }
    match plain(word) {
        None if word.bytes().all(|b| b.is_ascii_digit()) => {
            Err(wrong(text, field, part, "is out of range", &hint))
        }
        None => Err(wrong(text, field, part, &format!("has {}, which is not a number", quoted(word)), &hint)),
        Some(number) if number < u32::from(field.least) || number > u32::from(field.most) => {
            Err(wrong(text, field, part, "is out of range", &hint))
        }
        Some(number) => Ok(number as u8),
    }
}

/// Digits only: no sign, unlike what the standard library reads.
fn plain(digits: &str) -> Option<u32> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

fn wrong(text: &str, field: &Field, part: &str, why: &str, hint: &str) -> Invalid {
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
    fn spellings_that_mean_the_same_are_the_same() {
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
            assert_eq!(Fields::read(one).expect(one), Fields::read(other).expect(other), "{one} and {other}");
        }
        assert_ne!(Fields::read("0 0-23 * * *"), Fields::read("0 0,1 * * *"));
    }

    #[test]
    fn each_fault_names_the_field_and_what_to_write() {
        for (text, said) in [
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
            let error = Fields::read(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
            assert!(error.len() < 300, "{error}");
        }
        assert!(Fields::read(&"1,".repeat(600)).expect_err("long").why.contains("more than the 1000"));
    }
}
