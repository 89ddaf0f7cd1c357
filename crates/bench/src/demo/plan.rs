//! What is to become of each task of the demo, known beforehand by its number alone.

use windlass::{Reason, State};

/// How many attempts a task has.
pub(super) const BUDGET: u32 = 3;

/// What is to become of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    /// It succeeds.
    Done,
    /// It fails so often, and then succeeds.
    Flaky(u32),
    /// It fails with an error that no retry can fix.
    Stop,
    /// It fails as often as it may.
    Exhaust,
    /// It is held until its worker has been frozen, and succeeds elsewhere.
    Hold,
}

/// The number of the task that is held.
pub(super) const HELD: u32 = 0;

/// The plan of a task: one in twenty fails once or twice, one in two hundred for good.
pub(super) fn of(number: u32) -> Plan {
    match number {
        HELD => Plan::Hold,
        n if n % 200 == 7 && (n / 200) % 2 == 0 => Plan::Stop,
        n if n % 200 == 7 => Plan::Exhaust,
        n if n % 20 == 3 => Plan::Flaky(1 + (n / 20) % 2),
        _ => Plan::Done,
    }
}

impl Plan {
    /// How many of its attempts fail.
    pub(super) fn failures(self) -> u32 {
        match self {
            Plan::Done | Plan::Hold => 0,
            Plan::Flaky(failures) => failures,
            Plan::Stop => 1,
            Plan::Exhaust => BUDGET,
        }
    }

    /// How many outcomes are committed for it in all, whatever happens to workers: the death of one commits nothing.
    pub(super) fn outcomes(self) -> u32 {
        self.failures() + u32::from(self.end() == (State::Done, None))
    }

    /// How it ends.
    pub(super) fn end(self) -> (State, Option<Reason>) {
        match self {
            Plan::Done | Plan::Flaky(_) | Plan::Hold => (State::Done, None),
            Plan::Stop => (State::Failed, Some(Reason::Stopped)),
            Plan::Exhaust => (State::Failed, Some(Reason::Exhausted)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_as_documented() {
        let count = |wanted: fn(Plan) -> bool| (0..20_000).filter(|number| wanted(of(*number))).count();
        assert_eq!(count(|plan| matches!(plan, Plan::Flaky(_))), 1_000);
        assert_eq!(count(|plan| matches!(plan, Plan::Stop | Plan::Exhaust)), 100);
        assert_eq!(count(|plan| plan == Plan::Hold), 1);
        assert_eq!([Plan::Done, Plan::Flaky(2), Plan::Stop, Plan::Exhaust].map(Plan::outcomes), [1, 3, 1, 3]);
    }
}
