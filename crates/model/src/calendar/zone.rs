//! Time zones: how a clock on the wall is read, and where it jumps.
//!
//! The zones are compiled in, so that every host which runs the same program agrees on them, whatever its
//! system has installed. A new ruling about summer time therefore comes with a new build.

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

/// A stretch of time in which the clock runs evenly, in seconds since 1970.
///
/// What the clock shows is written as seconds too: the moment plus the offset.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Stretch {
    /// The first moment, when the clock was last changed; `None` if it never was.
    pub(super) from: Option<i64>,
    /// The first moment that is no longer in it; `None` if the clock is never changed again.
    pub(super) until: Option<i64>,
    /// How far the clock is ahead of UTC.
    pub(super) offset: i64,
    /// How far it was ahead just before `from`.
    pub(super) before: i64,
}

impl Zone {
    /// Coordinated universal time: no summer, no jumps.
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// The zone of this name, as in `Europe/Berlin`. Capitals do not matter.
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

    /// The zone's name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// What the clock shows at a moment.
    pub(super) fn clock(&self, at: Time) -> Option<DateTime> {
        Some(self.0.to_datetime(Timestamp::from_microsecond(at.0).ok()?))
    }

    /// The first moment at which the clock shows `clock` or has jumped over it. It never goes back as
    /// `clock` goes forward. `None` after the year 9999.
    pub(super) fn reached(&self, clock: DateTime) -> Option<Time> {
        let at = match self.0.to_ambiguous_timestamp(clock).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(clock).ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(clock).ok()?,
            // Read with the offset after the jump, it is a moment before the jump.
            AmbiguousOffset::Gap { after, .. } => {
                self.0.following(after.to_timestamp(clock).ok()?).next()?.timestamp()
            }
        };
        Some(Time(at.as_microsecond()))
    }

    /// The stretch that the moment `at` is in.
    pub(super) fn stretch(&self, at: i64) -> Option<Stretch> {
        let seconds = |at: Timestamp| i64::from(self.0.to_offset(at).seconds());
        let now = Timestamp::from_second(at).ok()?;
        let offset = seconds(now);
        let changed = Timestamp::from_second(at + 1).ok().and_then(|next| self.0.preceding(next).next());
        let from = changed.map(|change| change.timestamp().as_second());
        let before = from.and_then(|from| Timestamp::from_second(from - 1).ok()).map_or(offset, seconds);
        let until = self.0.following(now).next().map(|change| change.timestamp().as_second());
        Some(Stretch { from, until, offset, before })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The zone that was most likely meant: the one that begins and ends most alike.
fn nearest(name: &str) -> Option<String> {
    let word = name.trim().replace(' ', "_").to_lowercase();
    let alike = |zone: &str| {
        let zone = zone.to_lowercase();
        let front = word.bytes().zip(zone.bytes()).take_while(|(a, b)| a == b).count();
        let back = word.bytes().rev().zip(zone.bytes().rev()).take_while(|(a, b)| a == b).count();
        (front + back).min(word.len())
    };
    let zones = ZONES.available().map(|zone| zone.as_str().to_owned());
    let (alike, zone) = zones.map(|zone| (alike(&zone), zone)).max_by_key(|(alike, _)| *alike)?;
    // Three quarters must agree: less is another place.
    (word.len() >= 4 && alike * 4 >= word.len() * 3).then_some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::named(name).expect(name)
    }

    fn reached(zone: &Zone, clock: &str) -> String {
        zone.reached(clock.parse().expect("a date and time")).expect("within 9999").to_string()
    }

    #[test]
    fn unknown_zones_are_refused_with_the_likely_one() {
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
    fn a_jump_is_its_end_and_a_repeat_is_its_first_pass() {
        let berlin = zone("Europe/Berlin");
        assert_eq!(reached(&berlin, "2026-03-29T02:30:00"), "2026-03-29T01:00:00.000000Z");
        assert_eq!(reached(&berlin, "2026-10-25T02:30:00"), "2026-10-25T00:30:00.000000Z");
        let howe = zone("Australia/Lord_Howe");
        assert_eq!(reached(&howe, "2026-10-04T02:15:00"), "2026-10-03T15:30:00.000000Z");
        let apia = zone("Pacific/Apia");
        assert_eq!(reached(&apia, "2011-12-30T12:00:00"), "2011-12-30T10:00:00.000000Z");
        assert_eq!(reached(&apia, "2011-12-31T00:00:00"), "2011-12-30T10:00:00.000000Z");
    }

    #[test]
    fn stretches_meet_at_the_changes() {
        let berlin = zone("Europe/Berlin");
        let spring = "2026-03-29T01:00:00Z".parse::<Time>().expect("a time").0 / 1_000_000;
        let winter = berlin.stretch(spring - 1).expect("a stretch");
        let summer = berlin.stretch(spring).expect("a stretch");
        assert_eq!((winter.until, winter.offset), (Some(spring), 3_600));
        assert_eq!((summer.from, summer.offset, summer.before), (Some(spring), 7_200, 3_600));
        let utc = Stretch { from: None, until: None, offset: 0, before: 0 };
        assert_eq!(Zone::UTC.stretch(spring), Some(utc));
    }
}
