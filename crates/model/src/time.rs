//! Points in time.
//!
//! A [`Time`] counts microseconds since 1970 in UTC, the finest resolution that both databases keep. Spans are [`Duration`]s:
//! `time + span` and `time - span` are times, `later - earlier` is a span. All of them saturate: a delay of a century moves a job
//! into the far future, never into the past, and the span since a later time is zero.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub, SubAssign},
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A point in time, in microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

impl Time {
    /// The latest time: 26 hours before the end of the year 9999, so that RFC 3339 can express it in every time zone. A submit
    /// refuses later ones.
    pub const MAX: Time = Time(253_402_207_200_000_000 - 1);

    /// Returns the microseconds since 1970.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Converts a reading of the system clock. Times before 1970 become 1970.
    pub fn from_system(at: std::time::SystemTime) -> Time {
        let since = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// The time `span` later, at most [`Time::MAX`].
    fn add(self, span: Duration) -> Time {
        let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Time(self.0.saturating_add(micros).min(Time::MAX.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    /// The time `span` earlier.
    fn sub(self, span: Duration) -> Time {
        let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Time(self.0.saturating_sub(micros))
    }
}

impl SubAssign<Duration> for Time {
    fn sub_assign(&mut self, span: Duration) {
        *self = *self - span;
    }
}

impl Sub for Time {
    type Output = Duration;

    /// The span since `earlier`, or zero if `earlier` is later.
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

impl fmt::Display for Time {
    /// RFC 3339 with microseconds, in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        // As a time is shown that no calendar has.
        if let Some(micros) = text.strip_suffix("us").and_then(|micros| micros.parse().ok()) {
            return Ok(Time(micros));
        }
        let at: jiff::Timestamp = text
            .parse()
            .map_err(|e| format!("{text:?} is not a time ({e}); write one as 2026-11-15T08:00:00Z"))?;
        Ok(Time(at.as_microsecond()))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn adding_a_century_does_not_overflow() {
        let day = Duration::from_secs(86_400);
        let now = Time(1_800_000_000_000_000);
        assert_eq!((now + day * 30) - now, day * 30);
        assert_eq!((now + day * 36_525) - now, day * 36_525);
        assert_eq!(now + Duration::MAX, Time::MAX);
        assert_eq!(now - (now + day), Duration::ZERO);
        assert_eq!(now - Duration::MAX, Time(now.0.saturating_sub(i64::MAX)));
        let mut moved = now;
        moved += day;
        moved -= day * 2;
        assert_eq!(now - moved, day);
    }

    #[test]
    fn times_print_and_parse_as_rfc_3339() {
        let at: Time = "2026-11-15T08:00:00.000001Z".parse().expect("a time");
        assert_eq!(at.to_string(), "2026-11-15T08:00:00.000001Z");
        assert_eq!(Time::MAX.to_string().parse::<Time>(), Ok(Time::MAX));
        for beyond in [Time(i64::MIN), Time(i64::MAX)] {
            assert_eq!(beyond.to_string().parse(), Ok(beyond), "{beyond}");
        }
        assert!("tomorrow".parse::<Time>().unwrap_err().contains("2026-11-15T08:00:00Z"));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser_of_times(text in "([0-9]{1,5}-[0-9]{1,2}-[0-9]{1,2}[Tt ]?[0-9:.]{0,16}(Z|[+-][0-9:]{0,5}|\\[[A-Za-z/]{0,12}\\]|)|-?[0-9]{0,22}us|\\PC{0,30})") {
            if let Ok(time) = text.parse::<Time>() {
                prop_assert_eq!(time.to_string().parse::<Time>(), Ok(time), "{}", text);
            }
        }

        #[test]
        fn every_time_is_read_as_it_was_written_and_nothing_overflows(micros in any::<i64>(), span in any::<u64>()) {
            let time = Time(micros);
            prop_assert_eq!(time.to_string().parse::<Time>(), Ok(time));
            let span = Duration::from_micros(span);
            prop_assert!(time - span <= time && time.min(Time::MAX) <= time + span);
        }
    }
}
