//! What becomes of a job whose worker died under it.
//!
//! Nobody knows which of a dead worker's jobs killed it, so all that it had claimed and not committed become
//! suspects. A suspect runs alone in its worker, and only a death while it runs alone is counted against it:
//! neighbours never pay. Running alone must not stall a worker for ever either, so both the wait for an empty
//! worker and the time alone are bounded, and both bounds double with each death: a job that keeps killing is
//! alone long enough in the end.

use std::time::Duration;

/// How many deaths while running alone make a job fail as poison.
///
/// Three: one may be the machine's fault and two bad luck.
pub const DEFAULT_MAX_CRASHES: u16 = 3;

/// The time a suspect waits for company to leave, and afterwards may run alone, at its first death.
///
/// A second covers most jobs whole and costs a busy worker little.
pub const SOLO_BASE: Duration = Duration::from_secs(1);

/// What follows from one more death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterDeath {
    /// The job goes back as a suspect with these counts.
    Suspect {
        /// Deaths of a worker that had it claimed.
        deaths: u16,
        /// Deaths of a worker that ran it alone.
        crashes: u16,
    },
    /// The job has failed with [`crate::Reason::Poison`].
    Poison {
        /// Deaths of a worker that had it claimed.
        deaths: u16,
        /// Deaths of a worker that ran it alone.
        crashes: u16,
    },
}

/// Decides about a job claimed by a worker that died; `alone` says whether it ran alone at that time.
pub fn after_death(deaths: u16, crashes: u16, alone: bool, cap: u16) -> AfterDeath {
    let deaths = deaths.saturating_add(1);
    let crashes = crashes.saturating_add(u16::from(alone));
    if alone && crashes >= cap.max(1) {
        AfterDeath::Poison { deaths, crashes }
    } else {
        AfterDeath::Suspect { deaths, crashes }
    }
}

/// How long a job with so many deaths waits to be alone at most, and how long it then is alone at most.
pub fn solo_time(deaths: u16) -> Duration {
    // Fifteen doublings of a second are nine hours.
    SOLO_BASE * (1 << deaths.saturating_sub(1).min(15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deaths_alone_count_and_the_cap_ends_it() {
        assert_eq!(after_death(0, 0, false, 3), AfterDeath::Suspect { deaths: 1, crashes: 0 });
        assert_eq!(after_death(500, 2, false, 3), AfterDeath::Suspect { deaths: 501, crashes: 2 });
        assert_eq!(after_death(1, 1, true, 3), AfterDeath::Suspect { deaths: 2, crashes: 2 });
        assert_eq!(after_death(2, 2, true, 3), AfterDeath::Poison { deaths: 3, crashes: 3 });
        assert_eq!(after_death(0, 0, true, 0), AfterDeath::Poison { deaths: 1, crashes: 1 });
    }

    #[test]
    fn the_time_alone_doubles_and_stays_finite() {
        assert_eq!(solo_time(1), SOLO_BASE);
        assert_eq!(solo_time(3), SOLO_BASE * 4);
        assert_eq!(solo_time(u16::MAX), SOLO_BASE * 32_768);
    }
}
