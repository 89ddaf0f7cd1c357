//! Time zones: the local time at a time, and where local clocks jump.
//!
//! The zones are compiled in, so that all hosts that run the same program agree on them, whatever is installed there. A change of
//! the rules of summer time therefore needs a new build.

use std::{fmt, sync::LazyLock};

use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};

use crate::{
    Invalid, Time,
    limits::{invalid, quoted},
};

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone, by its name in the IANA database.
#[derive(Clone, PartialEq, Debug)]
pub struct Zone(TimeZone);

/// A period in which the offset from UTC does not change, in seconds since 1970. A local time is in seconds too: the time plus the
/// offset.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct OffsetPeriod {
    /// When the clock was last changed, which is in the period; `None` if it never was.
    pub(super) from: Option<i64>,
    /// When the clock is changed next, which is no longer in the period; `None` if it never is.
    pub(super) until: Option<i64>,
    /// How many seconds the clock is ahead of UTC.
    pub(super) offset: i64,
    /// How many it was ahead just before `from`.
    pub(super) previous_offset: i64,
}

impl Zone {
    /// Coordinated universal time, which never changes its clock.
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// Returns the zone with this name, for example `Europe/Berlin`. Case does not matter.
    pub fn named(name: &str) -> Result<Zone, Invalid> {
        match ZONES.get(name) {
            Ok(zone) if zone.iana_name().is_some() => Ok(Zone(zone)),
            _ => {
                let hint = match nearest(name) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "write one as Europe/Berlin, America/New_York or UTC".to_owned(),
                };
                Err(invalid(format!("the time zone {}", quoted(name)), "is not known", hint))
            }
        }
    }

    /// Returns the zone's name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Returns the local time at a time.
    pub(super) fn local(&self, at: Time) -> Option<DateTime> {
        Some(self.0.to_datetime(Timestamp::from_microsecond(at.0).ok()?))
    }

    /// Returns the first time at which the clock shows `local` or has jumped over it. It never goes back as `local` goes forward.
    /// `None` after the year 9999.
    pub(super) fn first_time_at(&self, local: DateTime) -> Option<Time> {
        let at = match self.0.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok()?,
            // With the offset after the jump, it is a time before the jump.
            AmbiguousOffset::Gap { after, .. } => {
                self.0.following(after.to_timestamp(local).ok()?).next()?.timestamp()
            }
        };
        Some(Time(at.as_microsecond()))
    }

    /// Returns the period that contains `at`.
    pub(super) fn offset_period(&self, at: i64) -> Option<OffsetPeriod> {
        let seconds = |at: Timestamp| i64::from(self.0.to_offset(at).seconds());
        let now = Timestamp::from_second(at).ok()?;
        let offset = seconds(now);
        let changed = Timestamp::from_second(at + 1).ok().and_then(|next| self.0.preceding(next).next());
        let from = changed.map(|change| change.timestamp().as_second());
        let before = from.and_then(|from| Timestamp::from_second(from - 1).ok());
        let previous_offset = before.map_or(offset, seconds);
        let until = self.0.following(now).next().map(|change| change.timestamp().as_second());
        Some(OffsetPeriod { from, until, offset, previous_offset })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the zone that was most likely meant: the one whose beginning and end agree most.
fn nearest(name: &str) -> Option<String> {
    let word = name.trim().replace(' ', "_").to_lowercase();
    let similarity = |zone: &str| {
        let zone = zone.to_lowercase();
        let front = word.bytes().zip(zone.bytes()).take_while(|(a, b)| a == b).count();
        let back = word.bytes().rev().zip(zone.bytes().rev()).take_while(|(a, b)| a == b).count();
        (front + back).min(word.len())
    };
    let zones = ZONES.available().map(|zone| zone.as_str().to_owned());
    let (similarity, zone) = zones.map(|zone| (similarity(&zone), zone)).max_by_key(|(score, _)| *score)?;
    // Three quarters must agree: less is another place.
    (word.len() >= 4 && similarity * 4 >= word.len() * 3).then_some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::named(name).expect(name)
    }

    fn first_time_at(zone: &Zone, local: &str) -> String {
        zone.first_time_at(local.parse().expect("a date and time")).expect("before 9999").to_string()
    }

    #[test]
    fn an_unknown_zone_is_refused_with_a_suggestion() {
        for (wrong, meant) in [
            ("Berlin", "did you mean Europe/Berlin?"),
            ("Europe/Berln", "did you mean Europe/Berlin?"),
            ("new york", "did you mean America/New_York?"),
            ("Etc/Unknown", "write one as"),
            ("", "write one as"),
            ("the moon", "write one as"),
        ] {
            let error = Zone::named(wrong).expect_err(wrong).to_string();
            assert!(error.contains(meant), "{error}");
        }
        assert_eq!(zone("europe/berlin").name(), "Europe/Berlin");
        assert_eq!(zone("UTC"), Zone::UTC);
    }

    #[test]
    fn a_skipped_local_time_is_the_end_of_the_jump_and_a_repeated_one_is_the_first() {
        let berlin = zone("Europe/Berlin");
        assert_eq!(first_time_at(&berlin, "2026-03-29T02:30:00"), "2026-03-29T01:00:00.000000Z");
        assert_eq!(first_time_at(&berlin, "2026-10-25T02:30:00"), "2026-10-25T00:30:00.000000Z");
        let howe = zone("Australia/Lord_Howe");
        assert_eq!(first_time_at(&howe, "2026-10-04T02:15:00"), "2026-10-03T15:30:00.000000Z");
        let apia = zone("Pacific/Apia");
        assert_eq!(first_time_at(&apia, "2011-12-30T12:00:00"), "2011-12-30T10:00:00.000000Z");
        assert_eq!(first_time_at(&apia, "2011-12-31T00:00:00"), "2011-12-30T10:00:00.000000Z");
    }

    #[test]
    fn offset_periods_meet_at_clock_changes() {
        let berlin = zone("Europe/Berlin");
        let spring = "2026-03-29T01:00:00Z".parse::<Time>().expect("a time").0 / 1_000_000;
        let winter = berlin.offset_period(spring - 1).expect("a period");
        let summer = berlin.offset_period(spring).expect("a period");
        assert_eq!((winter.until, winter.offset), (Some(spring), 3_600));
        assert_eq!((summer.from, summer.offset, summer.previous_offset), (Some(spring), 7_200, 3_600));
        let utc = OffsetPeriod { from: None, until: None, offset: 0, previous_offset: 0 };
        assert_eq!(Zone::UTC.offset_period(spring), Some(utc));
    }
}
