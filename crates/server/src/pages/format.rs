//! Numbers, durations and times as the pages show them.
//!
//! Numbers, counts and sizes are as the commands print them ([`windlass::operate::text`]). Durations have at most two units. Times are
//! `<time>` elements, written here in UTC and for a page without the script; `app.js` keeps them up to date and in the zone of the
//! browser by the same rules (`times` there).

use std::{
    fmt::{self, Display},
    time::Duration,
};

use askama::filters::HtmlSafe;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use windlass::Time;
pub(crate) use windlass::operate::text::{bytes, counted, jobs, thousands};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A duration with at most two units: `590 ms`, `2.4 s`, `16 min 13 s`, `2 d 4 h`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span.is_zero() => "0 s".to_owned(),
        0 if span.as_millis() == 0 => format!("{} µs", span.as_micros().max(1)),
        0 => format!("{} ms", span.as_millis()),
        1..10 if span.subsec_millis() >= 100 => format!("{seconds}.{} s", span.subsec_millis() / 100),
        1..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => two(seconds, MINUTE, "min", 1, "s"),
        HOUR..DAY => two(seconds, HOUR, "h", MINUTE, "min"),
        _ if seconds < 10 * DAY => two(seconds, DAY, "d", HOUR, "h"),
        _ => format!("{} d", thousands(seconds / DAY)),
    }
}

/// How long ago something was, in steps that do not change every second: `12 s`, `34 min`, `1 h 2 min`, `2 d 4 h`. The script has
/// the same steps.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        _ if seconds < 10 * HOUR => two(seconds, HOUR, "h", MINUTE, "min"),
        _ if seconds < 2 * DAY => format!("{} h", seconds / HOUR),
        _ if seconds < 10 * DAY => two(seconds, DAY, "d", HOUR, "h"),
        _ => format!("{} d", thousands(seconds / DAY)),
    }
}

/// So many of the greater unit, and what is left in the smaller one, if that is anything.
fn two(seconds: u64, great: u64, great_name: &str, small: u64, small_name: &str) -> String {
    match seconds % great / small {
        0 => format!("{} {great_name}", seconds / great),
        rest => format!("{} {great_name} {rest} {small_name}", seconds / great),
    }
}

/// A share: `99.95 %`, `61.3 %`. Only nothing is `0 %`, and only all is `100 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".to_owned();
    }
    if part >= whole {
        return "100 %".to_owned();
    }
    let hundredths = (u128::from(part) * 10_000 + u128::from(whole) / 2) / u128::from(whole);
    let hundredths = hundredths.clamp(1, 9_999) as u64;
    match (hundredths / 100, hundredths % 100) {
        (ones, 0) => format!("{ones} %"),
        (ones, rest) if rest % 10 == 0 => format!("{ones}.{} %", rest / 10),
        (ones, rest) => format!("{ones}.{rest:02} %"),
    }
}

/// How often something happens: `398/s`, `9.4/s`, `0.4/s`, and in longer units what is slower: `2.4/min`, `3/h`. Only nothing is
/// `0/s`.
pub(crate) fn rate(per_second: f64) -> String {
    if !per_second.is_finite() || per_second <= 0.0 {
        return "0/s".to_owned();
    }
    let (number, unit) = match per_second {
        r if r >= 0.1 => (r, "s"),
        r if r * MINUTE as f64 >= 1.0 => (r * MINUTE as f64, "min"),
        r if r * HOUR as f64 >= 1.0 => (r * HOUR as f64, "h"),
        r if r * DAY as f64 >= 1.0 => (r * DAY as f64, "d"),
        _ => return "less than 1/d".to_owned(),
    };
    format!("{}/{unit}", decimal(number))
}

/// A number with one decimal below ten, unless that is zero.
pub(crate) fn decimal(number: f64) -> String {
    let tenths = (number * 10.0).round();
    match tenths < 100.0 && tenths % 10.0 != 0.0 {
        true => format!("{:.1}", tenths / 10.0),
        false => thousands(number.round() as u64),
    }
}

/// The time by the store's clock, and how the reader wants to see times. A page makes all of its times from one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Clock {
    /// When the page was made.
    pub(crate) now: Time,
    /// Whether times are shown as how long ago they were.
    pub(crate) relative: bool,
}

impl Clock {
    /// How long ago, or in how long: `34 min ago`, `in 5 min`; the time itself if the reader wants that.
    pub(crate) fn ago(self, at: Time) -> When {
        When { at, clock: self, form: Form::Ago }
    }

    /// How long something has lasted since then: `34 min`, whatever the reader wants.
    pub(crate) fn lasts(self, since: Time) -> When {
        When { at: since, clock: self, form: Form::For }
    }

    /// The time of day, with the day if that is another: `14:31:52`, `17 Nov 10:15`.
    pub(crate) fn at(self, at: Time) -> When {
        When { at, clock: self, form: Form::Stamp }
    }

    /// The day: `Thu 26 Nov`.
    pub(crate) fn day(self, at: Time) -> When {
        When { at, clock: self, form: Form::Day }
    }

    /// The time of day in minutes: `14:48`.
    pub(crate) fn minute(self, at: Time) -> When {
        When { at, clock: self, form: Form::Minute }
    }
}

/// How a time is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// How long ago.
    Ago,
    /// How long since.
    For,
    /// The time of day, with the day if that is another.
    Stamp,
    /// Hours and minutes.
    Minute,
    /// Hours, minutes and seconds.
    Second,
    /// The day, with its weekday.
    Day,
}

impl Form {
    /// The attribute that tells the script.
    fn attribute(self) -> &'static str {
        match self {
            Form::Ago => " data-rel=\"ago\"",
            Form::For => " data-rel=\"for\"",
            Form::Stamp => "",
            Form::Minute => " data-form=\"hm\"",
            Form::Second => " data-form=\"hms\"",
            Form::Day => " data-form=\"day\"",
        }
    }

    /// The text, in UTC.
    fn text(self, at: Time, clock: Clock) -> String {
        match self {
            Form::Ago if !clock.relative => Form::Stamp.text(at, clock),
            Form::Ago if at > clock.now => format!("in {}", age(at - clock.now)),
            Form::Ago => format!("{} ago", age(clock.now - at)),
            Form::For => age(clock.now.max(at) - clock.now.min(at)),
            Form::Stamp => {
                let (then, now) = (utc(at), utc(clock.now));
                match (then.date() == now.date(), then.year() == now.year()) {
                    (true, _) => then.strftime("%H:%M:%S").to_string(),
                    (_, true) => then.strftime("%-d %b %H:%M").to_string(),
                    _ => then.strftime("%-d %b %Y").to_string(),
                }
            }
            Form::Minute => utc(at).strftime("%H:%M").to_string(),
            Form::Second => utc(at).strftime("%H:%M:%S").to_string(),
            Form::Day => utc(at).strftime("%a %-d %b").to_string(),
        }
    }
}

/// A time on a page: `<time>` with the exact time as its tooltip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct When {
    at: Time,
    clock: Clock,
    form: Form,
}

impl HtmlSafe for When {}

impl Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let When { at, clock, form } = *self;
        let exact = utc(at).strftime("%a %-d %b %Y %H:%M:%S UTC").to_string();
        let (datetime, attribute, text) = (rfc3339(at), form.attribute(), form.text(at, clock));
        write!(f, "<time datetime=\"{datetime}\"{attribute} title=\"{exact}\">{text}</time>")
    }
}

/// The attributes of an SVG text that shows a time, and what it shows in UTC. The script changes it to the zone of the browser.
pub(crate) fn svg_time(at: Time, form: Form, clock: Clock) -> (String, String) {
    (format!(" data-at=\"{}\"{}", rfc3339(at), form.attribute()), form.text(at, clock))
}

/// The time to the second, as attributes have it.
pub(crate) fn rfc3339(at: Time) -> String {
    utc(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn utc(at: Time) -> Zoned {
    let at = Timestamp::from_microsecond(at.micros()).unwrap_or(if at.micros() < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    });
    at.to_zoned(TimeZone::UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(relative: bool) -> Clock {
        Clock { now: "2026-11-19T14:32:08Z".parse().expect("a time"), relative }
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let micros = [0, 412, 590_000, 2_450_000, 3_040_000, 41_900_000, 300_000_000, 973_000_000];
        assert_eq!(
            micros.map(|micros| span(Duration::from_micros(micros))),
            ["0 s", "412 µs", "590 ms", "2.4 s", "3 s", "41 s", "5 min", "16 min 13 s"]
        );
        let seconds = [3_660, 86_399, 187_200, 12 * DAY + 5, 4_000 * DAY];
        assert_eq!(
            seconds.map(|seconds| span(Duration::from_secs(seconds))),
            ["1 h 1 min", "23 h 59 min", "2 d 4 h", "12 d", "4,000 d"]
        );
        assert_eq!(span(Duration::from_nanos(1)), "1 µs");
    }

    #[test]
    fn ages_change_slowly() {
        let seconds = [0, 59, 61, 3_599, 3_720, 11 * HOUR + 9, 50 * HOUR, 30 * DAY];
        assert_eq!(
            seconds.map(|seconds| age(Duration::from_secs(seconds))),
            ["0 s", "59 s", "1 min", "59 min", "1 h 2 min", "11 h", "2 d 2 h", "30 d"]
        );
    }

    #[test]
    fn shares_are_never_rounded_to_nothing_or_all() {
        assert_eq!(percent(0, 5), "0 %");
        assert_eq!(percent(5, 5), "100 %");
        assert_eq!(percent(999_999_999, 1_000_000_000), "99.99 %");
        assert_eq!(percent(1, u64::MAX), "0.01 %");
        assert_eq!(percent(612_697, 1_000_000), "61.27 %");
        assert_eq!((percent(1, 2), percent(2_995, 3_000)), ("50 %".into(), "99.83 %".into()));
        assert_eq!((percent(3, 0), percent(413, 1_000)), ("0 %".into(), "41.3 %".into()));
    }

    #[test]
    fn slow_rates_are_not_zero() {
        let rates = [398.4, 41.2, 9.44, 3.0, 0.4, 0.04, 0.001, 0.000_02, 1e-9, 0.0, f64::NAN];
        assert_eq!(
            rates.map(rate),
            [
                "398/s",
                "41/s",
                "9.4/s",
                "3/s",
                "0.4/s",
                "2.4/min",
                "3.6/h",
                "1.7/d",
                "less than 1/d",
                "0/s",
                "0/s"
            ]
        );
        assert_eq!(rate(6_120.0), "6,120/s");
    }

    #[test]
    fn times_are_relative_or_absolute() {
        let at: Time = "2026-11-19T13:58:00.5Z".parse().expect("a time");
        assert_eq!(
            clock(true).ago(at).to_string(),
            "<time datetime=\"2026-11-19T13:58:00Z\" data-rel=\"ago\" title=\"Thu 19 Nov 2026 13:58:00 UTC\">34 min ago</time>"
        );
        assert!(clock(false).ago(at).to_string().contains(">13:58:00<"));
        assert!(clock(false).lasts(at).to_string().contains(">34 min<"));
        let text = |at: &str| Form::Stamp.text(at.parse().expect("a time"), clock(true));
        assert_eq!(
            [text("2026-11-17T10:15:00Z"), text("2025-01-02T03:04:05Z")],
            ["17 Nov 10:15", "2 Jan 2025"]
        );
        assert!(clock(true).ago(Time(i64::MAX)).to_string().contains(">in "));
        assert!(clock(true).ago(Time(i64::MIN)).to_string().contains(" ago<"));
    }
}
