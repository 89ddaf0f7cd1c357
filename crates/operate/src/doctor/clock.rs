//! Compares the store's clock, which leases use, with this machine's, which records when attempts start.

use std::time::Duration;

use windlass_model::Time;
use windlass_store::Error;

use super::Finding;
use crate::{Operator, text};

/// A difference below this matters to nobody: attempts are recorded to the microsecond, but compared by people.
const NEGLIGIBLE: Duration = Duration::from_secs(1);

/// The store's time, and this machine's before and after it was read.
pub(super) struct Clocks {
    before: Time,
    store: Time,
    after: Time,
}

pub(super) async fn read(operator: &Operator) -> Result<Clocks, Error> {
    let before = operator.env().now();
    let store = operator.inspect().clock().await?;
    Ok(Clocks { before, store, after: operator.env().now() })
}

impl Clocks {
    pub(super) fn judge(&self) -> Finding {
        let skew = match self.store < self.before {
            true => self.before - self.store,
            false => self.store - self.after,
        };
        let found = format!("{} from this machine's clock", text::duration(skew));
        let finding = match skew < NEGLIGIBLE {
            true => Finding::ok("clock", found),
            false => Finding::warn("clock", found)
                .advice("recorded times of attempts are off by that; synchronize the clocks with NTP"),
        };
        finding.number("skew_ms", u64::try_from(skew.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn clocks_that_differ_by_a_second_are_a_warning() {
        let at = |seconds: i64| Time(seconds * 1_000_000);
        let verdict = |store| Clocks { before: at(100), store, after: at(101) }.judge().verdict;
        assert_eq!(verdict(at(100)), Verdict::Ok);
        assert_eq!(verdict(at(101)), Verdict::Ok);
        assert_eq!(verdict(at(99)), Verdict::Warn);
        assert_eq!(verdict(at(103)), Verdict::Warn);
    }
}
