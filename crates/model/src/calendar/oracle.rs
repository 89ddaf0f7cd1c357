//! Calendars against slow ones: every minute is looked at, and nothing is clever.

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};
use proptest::prelude::*;

use super::{Calendar, Unit};
use crate::Time;

/// Zones with a day or two before something happens to their clocks.
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

/// A field as it was made up: its text, what it matches, and whether it is a list of single numbers.
#[derive(Clone, Debug)]
struct Made {
    text: String,
    set: Vec<i8>,
    single: bool,
    open: bool,
}

fn field(least: i8, most: i8) -> impl Strategy<Value = Made> {
    let all = move || (least..=most).collect::<Vec<_>>();
    let star = Just(Made { text: "*".into(), set: all(), single: false, open: true });
    let step = (2..=(most - least)).prop_map(move |step| Made {
        text: format!("*/{step}"),
        set: all().into_iter().filter(|n| (n - least) % step == 0).collect(),
        single: false,
        open: true,
    });
    let range = (least..=most, least..=most).prop_map(|(a, b)| Made {
        text: format!("{}-{}", a.min(b), a.max(b)),
        set: (a.min(b)..=a.max(b)).collect(),
        single: false,
        open: false,
    });
    let list = prop::collection::vec(least..=most, 1..4).prop_map(|set| Made {
        text: set.iter().map(i8::to_string).collect::<Vec<_>>().join(","),
        set,
        single: true,
        open: false,
    });
    prop_oneof![2 => star, 1 => step, 1 => range, 3 => list]
}

/// Minute, hour, day, weekday, all of a month.
fn expression() -> impl Strategy<Value = [Made; 4]> {
    // Small hours, where clocks are changed, are tried more often.
    let early = (0..4i8, 0..4i8).prop_map(|(a, b)| Made {
        text: format!("{a},{b}"),
        set: vec![a, b],
        single: true,
        open: false,
    });
    let hour = prop_oneof![field(0, 23), early];
    let days = prop::option::weighted(0.25, field(1, 31));
    let weekdays = prop::option::weighted(0.25, field(0, 6));
    let open =
        |least, most| Made { text: "*".into(), set: (least..=most).collect(), single: false, open: true };
    (field(0, 59), hour, days, weekdays).prop_map(move |(minute, hour, day, weekday)| {
        [minute, hour, day.unwrap_or_else(|| open(1, 31)), weekday.unwrap_or_else(|| open(0, 6))]
    })
}

fn matches([minute, hour, day, weekday]: &[Made; 4], at: DateTime) -> bool {
    let (by_day, by_week) =
        (day.set.contains(&at.day()), weekday.set.contains(&at.weekday().to_sunday_zero_offset()));
    let days = if !day.open && !weekday.open { by_day || by_week } else { by_day && by_week };
    days && minute.set.contains(&at.minute()) && hour.set.contains(&at.hour())
}

/// All ticks of four days, found by looking at each minute.
fn walk(fields: &[Made; 4], zone: &TimeZone, from: Timestamp) -> Vec<Time> {
    let minute = SignedDuration::from_mins(1);
    let mut found = Vec::new();
    let mut shown = zone.to_datetime(from - minute);
    for step in 0..4 * 1_440 {
        let at = from + minute * step;
        let now = zone.to_datetime(at);
        let mut tick = matches(fields, now) && (!fields[1].single || now > shown);
        let mut jumped = shown + minute;
        while fields[1].single && jumped < now {
            tick |= matches(fields, jumped);
            jumped += minute;
        }
        if tick {
            found.push(Time(at.as_microsecond()));
        }
        shown = shown.max(now);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn cron_ticks_are_those_of_the_slow_walk(fields in expression(), place in 0..PLACES.len()) {
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
    fn every_calendar_moves_on(
        calendar in calendar(),
        at in prop_oneof![0..4_000_000_000_000_000i64, 0..253_000_000_000_000_000i64],
    ) {
        let t = Time(at);
        let next = calendar.next_after(t).expect("before 9999");
        prop_assert!(next > t);
        prop_assert_eq!(calendar.last_at_or_before(next), Some(next));
        let last = calendar.last_at_or_before(t);
        prop_assert_eq!(calendar.last_at_or_before(Time(next.0 - 1)), last, "nothing is between");
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
