//! Whether a retry would help: decided from why the jobs failed and how attempts of their kind end lately.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_model::{Ended, Reason};

use crate::text;

/// From this many attempts on, their share of success says something.
const ENOUGH: u64 = 20;

/// Whether a retry would help the jobs of a group.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "advice", rename_all = "snake_case")]
pub enum Advice {
    /// A retry alone changes nothing: this is why they failed.
    Fix {
        /// Why.
        reason: Reason,
    },
    /// It depends on what attempts meet: this is how those of their kind end lately.
    Retry {
        /// How they end; `None` if there were none lately.
        outlook: Option<Outlook>,
    },
    /// Somebody cancelled them, or their own code did.
    Cancelled,
}

/// How the attempts of a kind end lately.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outlook {
    /// How many attempts there were.
    pub attempts: u64,
    /// How many of them ended well.
    pub ended_well: u64,
    /// In how many seconds, up to now.
    pub seconds: u64,
}

impl Outlook {
    /// That of the shortest span with enough attempts, or else of the longest with any. Spans are given from the shortest on.
    pub(super) fn choose<'a>(
        spans: impl IntoIterator<Item = (Duration, Option<&'a Ended>)>,
    ) -> Option<Outlook> {
        let outlook = |(span, ended): (Duration, Option<&'a Ended>)| {
            let ended = ended?;
            let attempts = ended.done + ended.failed + ended.retried;
            Some(Outlook { attempts, ended_well: ended.done, seconds: span.as_secs() })
        };
        let mut last = None;
        for found in spans.into_iter().filter_map(outlook).filter(|found| found.attempts > 0) {
            if found.attempts >= ENOUGH {
                return Some(found);
            }
            last = Some(found);
        }
        last
    }

    /// Whether a retry will probably succeed; `None` if that cannot be said.
    pub fn is_good(&self) -> Option<bool> {
        match (self.ended_well, self.attempts) {
            (0, 1..) => Some(false),
            (well, all) if well * 2 >= all && all >= ENOUGH => Some(true),
            (well, all) if well * 10 <= all && all >= ENOUGH => Some(false),
            _ => None,
        }
    }
}

impl Advice {
    /// The advice for jobs of which most failed for this reason; `None` if most were cancelled.
    pub(super) fn of(reason: Option<Reason>, outlook: Option<Outlook>) -> Advice {
        match reason {
            None => Advice::Cancelled,
            Some(Reason::Exhausted | Reason::Timeout) => Advice::Retry { outlook },
            Some(reason) => Advice::Fix { reason },
        }
    }

    /// Whether a retry will probably help; `None` if that cannot be said.
    pub fn retry_helps(&self) -> Option<bool> {
        match self {
            Advice::Fix { .. } => Some(false),
            Advice::Retry { outlook } => outlook.and_then(|outlook| outlook.is_good()),
            Advice::Cancelled => None,
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fix = match self {
            Advice::Cancelled => {
                return f.write_str("They were cancelled. Retry those that are still wanted.");
            }
            Advice::Retry { outlook: None } => {
                return f.write_str("No attempt of this kind has ended lately. Retry one first.");
            }
            Advice::Retry { outlook: Some(outlook) } => return outlook.fmt(f),
            Advice::Fix { reason } => match reason {
                Reason::Stopped => "Their error says that a retry cannot help. Fix the cause first.",
                Reason::Refused => "The engine or the store refused what they did. Fix the cause first.",
                Reason::Undecodable => {
                    "Their input or state does not decode. Serve them with code that decodes it, then retry them."
                }
                Reason::Diverged => {
                    "Their code no longer matches their journals. Serve them with code that matches, or fork them."
                }
                Reason::Poison => {
                    "Workers died while they ran alone. Check what they do to their process (memory, aborts) first."
                }
                Reason::Expired => "Their deadline passed. Retry those that are still wanted.",
                Reason::Exhausted | Reason::Timeout => "Their attempts are used up.",
            },
        };
        f.write_str(fix)
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = text::duration(Duration::from_secs(self.seconds));
        let attempts = text::counted(self.attempts, "attempt", "attempts");
        let well = text::thousands(self.ended_well);
        write!(f, "Of the last {attempts} of this kind, in {span}, {well} ended well. ")?;
        f.write_str(match self.is_good() {
            Some(true) => "A retry probably helps.",
            Some(false) => "They will probably fail again.",
            None => "Retry one first.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(done: u64, failed: u64, retried: u64) -> Ended {
        Ended { done, failed, retried, cancelled: 5, ..Ended::default() }
    }

    #[test]
    fn the_shortest_span_with_enough_attempts_decides() {
        let (short, long) = (Duration::from_secs(900), Duration::from_secs(7_200));
        let (few, many) = (ended(3, 1, 0), ended(60, 10, 30));
        let outlook = Outlook::choose([(short, Some(&few)), (long, Some(&many))]).expect("attempts");
        assert_eq!(outlook, Outlook { attempts: 100, ended_well: 60, seconds: 7_200 });
        let outlook = Outlook::choose([(short, Some(&many)), (long, Some(&many))]).expect("attempts");
        assert_eq!(outlook.seconds, 900);
        let outlook = Outlook::choose([(short, None), (long, Some(&few))]).expect("attempts");
        assert_eq!((outlook.attempts, outlook.is_good()), (4, None), "too few to say");
        assert_eq!(Outlook::choose([(short, None), (long, Some(&ended(0, 0, 0)))]), None);
    }

    #[test]
    fn advice_depends_on_the_reason_and_on_how_attempts_end() {
        let outlook = |ended_well, attempts| Some(Outlook { attempts, ended_well, seconds: 900 });
        let of = |reason, outlook| {
            let advice = Advice::of(Some(reason), outlook);
            (advice.retry_helps(), advice.to_string())
        };
        let (helps, text) = of(Reason::Exhausted, outlook(0, 71));
        assert_eq!(helps, Some(false));
        assert_eq!(
            text,
            "Of the last 71 attempts of this kind, in 15m, 0 ended well. They will probably fail again."
        );
        assert_eq!(of(Reason::Exhausted, outlook(60, 71)).0, Some(true));
        assert_eq!(of(Reason::Timeout, outlook(5, 71)).0, Some(false));
        assert_eq!(of(Reason::Exhausted, outlook(20, 71)).0, None);
        assert_eq!(of(Reason::Exhausted, None).0, None);
        for reason in Reason::ALL {
            assert!(of(reason, None).1.ends_with('.'), "{reason}");
        }
        assert_eq!(of(Reason::Stopped, outlook(70, 71)).0, Some(false), "its error says so");
        assert_eq!(Advice::of(None, None), Advice::Cancelled);
    }
}
