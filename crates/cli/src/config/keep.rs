//! How long ended jobs are kept.

use std::{str::FromStr, time::Duration};

use windlass::Retention;

use crate::span;

/// A time to keep something.
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
        match span::parse(text) {
            Ok(span) if span.is_zero() => Err(format!(
                "{text:?} keeps nothing, not even for those who wait for the result; keep jobs for a minute or longer"
            )),
            Ok(span) => Ok(Keep::For(span)),
            Err(why) => Err(format!("{why}, or \"forever\"")),
        }
    }
}

/// What one layer says of each way to end.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct RetentionSettings {
    pub(crate) done: Option<Keep>,
    pub(crate) failed: Option<Keep>,
    pub(crate) cancelled: Option<Keep>,
}

impl RetentionSettings {
    pub(super) fn over(self, below: RetentionSettings) -> RetentionSettings {
        RetentionSettings {
            done: self.done.or(below.done),
            failed: self.failed.or(below.failed),
            cancelled: self.cancelled.or(below.cancelled),
        }
    }

    pub(super) fn apply(self, given: Retention) -> Retention {
        let kept = |said: Option<Keep>, given: Option<Duration>| match said {
            Some(Keep::For(span)) => Some(span),
            Some(Keep::Forever) => None,
            None => given,
        };
        Retention {
            done: kept(self.done, given.done),
            failed: kept(self.failed, given.failed),
            cancelled: kept(self.cancelled, given.cancelled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_left_as_it_was() {
        let said =
            RetentionSettings { done: "7d".parse().ok(), failed: "forever".parse().ok(), cancelled: None };
        let given = Retention::default();
        let kept = said.apply(given);
        assert_eq!(kept.done, Some(Duration::from_secs(7 * 86_400)));
        assert_eq!((kept.failed, kept.cancelled), (None, given.cancelled));
        assert!("0s".parse::<Keep>().unwrap_err().contains("keeps nothing"));
        assert!("ages".parse::<Keep>().unwrap_err().ends_with("or \"forever\""));
    }
}
