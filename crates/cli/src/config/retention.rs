//! How long ended jobs and sums of what ended are kept.

use std::{str::FromStr, time::Duration};

use windlass::Retention;

use crate::durations;

/// How long jobs that ended in one state, or sums, are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    For(Duration),
    Forever,
}

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Keep, String> {
        if text.eq_ignore_ascii_case("forever") {
            return Ok(Keep::Forever);
        }
        match durations::parse(text) {
            Ok(duration) if duration.is_zero() => Err(format!(
                "{text:?} keeps nothing, not even until a waiting caller has read the result; keep jobs for a minute or longer"
            )),
            Ok(duration) => Ok(Keep::For(duration)),
            Err(why) => Err(format!("{why}, or \"forever\"")),
        }
    }
}

/// The retention settings of one layer.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct RetentionSettings {
    pub(crate) done: Option<Keep>,
    pub(crate) failed: Option<Keep>,
    pub(crate) cancelled: Option<Keep>,
    pub(crate) throughput: Option<Keep>,
}

impl RetentionSettings {
    pub(super) fn over(self, below: RetentionSettings) -> RetentionSettings {
        RetentionSettings {
            done: self.done.or(below.done),
            failed: self.failed.or(below.failed),
            cancelled: self.cancelled.or(below.cancelled),
            throughput: self.throughput.or(below.throughput),
        }
    }

    pub(super) fn apply(self, given: Retention) -> Retention {
        let kept = |setting: Option<Keep>, given: Option<Duration>| match setting {
            Some(Keep::For(duration)) => Some(duration),
            Some(Keep::Forever) => None,
            None => given,
        };
        Retention {
            done: kept(self.done, given.done),
            failed: kept(self.failed, given.failed),
            cancelled: kept(self.cancelled, given.cancelled),
            throughput: kept(self.throughput, given.throughput),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_stays_unchanged() {
        let settings = RetentionSettings {
            done: "7d".parse().ok(),
            failed: "forever".parse().ok(),
            ..Default::default()
        };
        let given = Retention::default();
        let kept = settings.apply(given);
        assert_eq!(kept.done, Some(Duration::from_secs(7 * 86_400)));
        assert_eq!((kept.failed, kept.cancelled), (None, given.cancelled));
        assert!("0s".parse::<Keep>().unwrap_err().contains("keeps nothing"));
        assert!("ages".parse::<Keep>().unwrap_err().ends_with("or \"forever\""));
    }
}
