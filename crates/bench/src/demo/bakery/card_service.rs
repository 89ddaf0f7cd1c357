//! The card service: a service of others, which is down for some minutes now and then.

use std::{
    ops::Range,
    time::{Duration, SystemTime},
};

use windlass::Time;

/// After how long everything repeats.
const PERIOD: Duration = Duration::from_secs(20 * 60);
/// When it is down in each period. Payments that begin to fail early in it have no attempts left at its end; later ones succeed.
const DOWN: Range<Duration> = Duration::from_secs(70)..Duration::from_secs(240);

/// Whether the card service answers, which follows from the time since the demo began, in every process alike.
#[derive(Clone, Copy)]
pub(crate) struct CardService {
    began: Time,
}

impl CardService {
    /// It is new, and the demo begins.
    pub(crate) fn new() -> CardService {
        CardService { began: Time::from_system(SystemTime::now()) }
    }

    /// The same in a demo that began at this time.
    pub(super) fn since(began_micros: i64) -> CardService {
        CardService { began: Time(began_micros) }
    }

    pub(super) fn began_micros(&self) -> i64 {
        self.began.0
    }

    pub(super) fn is_down(&self) -> bool {
        let now = Time::from_system(SystemTime::now());
        is_down_after(Duration::from_micros(u64::try_from(now.0 - self.began.0).unwrap_or(0)))
    }
}

fn is_down_after(elapsed: Duration) -> bool {
    DOWN.contains(&Duration::from_nanos((elapsed.as_nanos() % PERIOD.as_nanos()) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_down_in_every_period() {
        for (second, is_down) in [(0, false), (69, false), (70, true), (239, true), (240, false)] {
            assert_eq!(is_down_after(Duration::from_secs(second)), is_down, "{second} s");
            assert_eq!(is_down_after(Duration::from_secs(second) + 3 * PERIOD), is_down, "{second} s, later");
        }
    }
}
