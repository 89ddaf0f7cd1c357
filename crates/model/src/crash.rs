//! What happens to a job whose worker died.
//!
//! Nobody knows which of a dead worker's jobs killed it, so every job that it had claimed and not committed becomes a suspect. A
//! suspect runs alone in its worker, and only a death while it runs alone counts against it: its neighbours are never blamed.
//!
//! Running alone must not stall a worker for ever. So the time that a suspect waits for its worker to become empty, and the time
//! it then runs alone, are bounded. Both bounds double with each death, until a job that kills its workers is alone long enough
//! to be found.

use std::time::Duration;

use crate::{Failure, WorkerId, failure::class};

/// After how many deaths while running alone a job fails as poison.
///
/// Three: one may be the machine's fault and two bad luck.
pub const DEFAULT_MAX_CRASHES: u16 = 3;

/// After its first death, how long a suspect waits for its worker to become empty, and how long it then runs alone.
///
/// Most jobs end within a second, and a second costs a busy worker little.
pub const SOLO_BASE: Duration = Duration::from_secs(1);

/// What follows from one more death of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterDeath {
    /// The job is ready again as a suspect.
    Suspect {
        /// How many workers died while they had it claimed.
        worker_deaths: u16,
        /// How many of them ran it alone.
        solo_crashes: u16,
    },
    /// The job fails with [`crate::Reason::Poison`].
    Poison {
        /// How many workers died while they had it claimed.
        worker_deaths: u16,
        /// How many of them ran it alone.
        solo_crashes: u16,
    },
}

/// Decides about a job whose worker died. The counts are those before this death; `alone` is whether the job ran alone, and `cap`
/// is the number of solo crashes that make it poison.
pub fn after_death(worker_deaths: u16, solo_crashes: u16, alone: bool, cap: u16) -> AfterDeath {
    let worker_deaths = worker_deaths.saturating_add(1);
    let solo_crashes = solo_crashes.saturating_add(u16::from(alone));
    if alone && solo_crashes >= cap.max(1) {
        AfterDeath::Poison { worker_deaths, solo_crashes }
    } else {
        AfterDeath::Suspect { worker_deaths, solo_crashes }
    }
}

/// Returns the failure that is kept in the history of a job whose worker died; `alone` is whether the job ran alone.
pub fn lost(worker: WorkerId, alone: bool) -> Failure {
    let message = match alone {
        true => format!("worker {worker} was lost while it ran this job alone"),
        false => format!("worker {worker} was lost with this job among its claims"),
    };
    Failure::retry(message).class(class::LOST)
}

/// Returns how long a job waits to run alone at most, and how long it then runs alone at most.
pub fn solo_time(worker_deaths: u16) -> Duration {
    // Fifteen doublings of a second are nine hours.
    SOLO_BASE * (1 << worker_deaths.saturating_sub(1).min(15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deaths_while_running_alone_make_a_job_poison() {
        let suspect = |worker_deaths, solo_crashes| AfterDeath::Suspect { worker_deaths, solo_crashes };
        let poison = |worker_deaths, solo_crashes| AfterDeath::Poison { worker_deaths, solo_crashes };
        assert_eq!(after_death(0, 0, false, 3), suspect(1, 0));
        assert_eq!(after_death(500, 2, false, 3), suspect(501, 2));
        assert_eq!(after_death(1, 1, true, 3), suspect(2, 2));
        assert_eq!(after_death(2, 2, true, 3), poison(3, 3));
        assert_eq!(after_death(0, 0, true, 0), poison(1, 1));
    }

    #[test]
    fn the_failure_of_a_lost_worker_says_whether_the_job_ran_alone() {
        let (alone, among) = (lost(WorkerId(7), true), lost(WorkerId(7), false));
        assert!(alone.message.contains("alone") && among.message.contains("among its claims"));
        assert_eq!((&*alone.class, &*among.class), (class::LOST, class::LOST));
    }

    #[test]
    fn the_time_alone_doubles_and_is_bounded() {
        assert_eq!(solo_time(1), SOLO_BASE);
        assert_eq!(solo_time(3), SOLO_BASE * 4);
        assert_eq!(solo_time(u16::MAX), SOLO_BASE * 32_768);
    }
}
