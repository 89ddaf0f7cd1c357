//! Tests calendars against a slow and simple implementation that checks every minute.

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};
use proptest::prelude::*;

use super::{Calendar, Unit};
use crate::Time;

/// Zones, each with a time a day or two before its clock changes.
const PLACES: [(&str, &str); 12] = [
    ("Europe/Berlin", "2026-03-28T06:00:00Z"),
    ("Europe/Berlin", "2026-10-24T06:00:00Z"),
    ("America/New_York", "2026-03-07T06:00:00Z"),
    ("America/New_York", "2026-10-31T06:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T00:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T00:00:00Z"),
    ("Pacific/Apia", "2011-12-29T00:00:00Z"),
    ("America/Sao_Paulo", "2018-11-03T12:00:00Z"),
    ("Africa/Casablanca", "2026-02-14T12:00:00Z"),
    ("Asia/Kolkata", "2026-02-27T12:00:00Z"),
    ("Asia/Pyongyang", "2018-05-03T12:00:00Z"),
    ("UTC", "2028-02-28T12:00:00Z"),
];

/// A generated field.
#[derive(Clone, Debug)]
struct TestField {
    text: String,
    /// What it matches.
    set: Vec<i8>,
    /// Whether it is a list of single numbers.
    single: bool,
    /// Whether it begins with `*`, so that it restricts nothing.
    open: bool,
}

fn field(min: i8, max: i8) -> impl Strategy<Value = TestField> {
    let all = move || (min..=max).collect::<Vec<_>>();
    let star = Just(TestField { text: "*".into(), set: all(), single: false, open: true });
    let step = (2..=(max - min)).prop_map(move |step| TestField {
        text: format!("*/{step}"),
        set: all().into_iter().filter(|n| (n - min) % step == 0).collect(),
        single: false,
        open: true,
    });
    let range = (min..=max, min..=max).prop_map(|(a, b)| TestField {
        text: format!("{}-{}", a.min(b), a.max(b)),
        set: (a.min(b)..=a.max(b)).collect(),
        single: false,
        open: false,
    });
    let list = prop::collection::vec(min..=max, 1..4).prop_map(|set| TestField {
        text: set.iter().map(i8::to_string).collect::<Vec<_>>().join(","),
        set,
        single: true,
        open: false,
    });
    prop_oneof![2 => star, 1 => step, 1 => range, 3 => list]
}

/// Generates minute, hour, day and weekday.
fn expression() -> impl Strategy<Value = [TestField; 4]> {
    // Small hours, in which clocks change, are tried more often.
    let early = (0..4i8, 0..4i8).prop_map(|(a, b)| TestField {
        text: format!("{a},{b}"),
        set: vec![a, b],
        single: true,
        open: false,
    });
    let hour = prop_oneof![field(0, 23), early];
    let days = prop::option::weighted(0.25, field(1, 31));
    let weekdays = prop::option::weighted(0.25, field(0, 6));
    let open =
        |min, max| TestField { text: "*".into(), set: (min..=max).collect(), single: false, open: true };
    (field(0, 59), hour, days, weekdays).prop_map(move |(minute, hour, day, weekday)| {
        [minute, hour, day.unwrap_or_else(|| open(1, 31)), weekday.unwrap_or_else(|| open(0, 6))]
    })
}

fn matches([minute, hour, day, weekday]: &[TestField; 4], at: DateTime) -> bool {
    let (by_day, by_week) =
        (day.set.contains(&at.day()), weekday.set.contains(&at.weekday().to_sunday_zero_offset()));
    let days = if !day.open && !weekday.open { by_day || by_week } else { by_day && by_week };
    days && minute.set.contains(&at.minute()) && hour.set.contains(&at.hour())
}

/// All ticks of four days, found by checking each minute.
fn walk(fields: &[TestField; 4], zone: &TimeZone, from: Timestamp) -> Vec<Time> {
    let minute = SignedDuration::from_mins(1);
    let mut found = Vec::new();
    let mut latest = zone.to_datetime(from - minute);
    for step in 0..4 * 1_440 {
        let at = from + minute * step;
        let now = zone.to_datetime(at);
        let mut tick = matches(fields, now) && (!fields[1].single || now > latest);
        let mut skipped = latest + minute;
        while fields[1].single && skipped < now {
            tick |= matches(fields, skipped);
            skipped += minute;
        }
        if tick {
            found.push(Time(at.as_microsecond()));
        }
        latest = latest.max(now);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn cron_ticks_match_the_slow_implementation(fields in expression(), place in 0..PLACES.len()) {
        let (name, from) = PLACES[place];
        let [minute, hour, day, weekday] = &fields;
        let text = format!("{} {} {} * {}", minute.text, hour.text, day.text, weekday.text);
        let calendar = Calendar::cron(&text, name).expect("valid");
        let zone = TimeZone::get(name).expect("a zone");
        let from: Timestamp = from.parse().expect("a time");
        let slow = walk(&fields, &zone, from);
        let begin = from.as_microsecond();
        let end = begin + 4 * 86_400_000_000;
        let quick: Vec<Time> = calendar.ticks_after(Time(begin - 1)).take_while(|t| t.0 < end).collect();
        prop_assert_eq!(&quick, &slow, "{} in {}", text, name);
        let mut back = Vec::new();
        let mut last = calendar.last_at_or_before(Time(end - 1));
        while let Some(at) = last.filter(|at| at.0 >= begin) {
            back.push(at);
            last = calendar.last_at_or_before(Time(at.0 - 1));
        }
        back.reverse();
        prop_assert_eq!(&back, &slow, "{} in {}, backwards", text, name);
    }

    #[test]
    fn ticks_increase_and_both_directions_agree(
        calendar in calendar(),
        at in prop_oneof![0..4_000_000_000_000_000i64, 0..253_000_000_000_000_000i64],
    ) {
        let t = Time(at);
        let next = calendar.next_after(t).expect("before 9999");
        prop_assert!(next > t);
        prop_assert_eq!(calendar.last_at_or_before(next), Some(next));
        let last = calendar.last_at_or_before(t);
        prop_assert_eq!(calendar.last_at_or_before(Time(next.0 - 1)), last, "none between");
        if let Some(last) = last {
            prop_assert!(last <= t);
            prop_assert_eq!(calendar.next_after(last), Some(next));
            prop_assert_eq!(calendar.first_at_or_after(last), Some(last));
        }
        prop_assert!(calendar.next_after(next).is_none_or(|after| after > next));
        prop_assert_eq!(calendar.to_string().parse::<Calendar>(), Ok(calendar));
    }
}

fn calendar() -> impl Strategy<Value = Calendar> {
    let units =
        [Unit::Seconds, Unit::Minutes, Unit::Hours, Unit::Days, Unit::Weeks, Unit::Months, Unit::Years];
    let every = (1..50u32, 0..units.len(), 0..PLACES.len(), prop::option::of(0..2_000_000_000_000_000i64))
        .prop_map(move |(count, unit, place, anchor)| {
            let every =
                Calendar::every(count, units[unit]).expect("valid").zone(PLACES[place].0).expect("known");
            anchor.map_or(every.clone(), |at| every.from(Time(at)).expect("in range"))
        });
    let cron = (expression(), 0..PLACES.len()).prop_map(|([minute, hour, day, weekday], place)| {
        let text = format!("{} {} {} * {}", minute.text, hour.text, day.text, weekday.text);
        Calendar::cron(&text, PLACES[place].0).expect("valid")
    });
    prop_oneof![every, cron]
}
