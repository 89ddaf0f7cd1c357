//! Rules: what is wrong, for how long it must be so, how bad that is, and who gets a message.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_model::{Invalid, limits::check_name};
use windlass_store::Severity;

use crate::text;

/// The longest span over which ends of jobs are counted: longer ones would read too many sums at every evaluation.
pub const MAX_WITHIN: Duration = Duration::from_secs(86_400);
/// The shortest one: sums are kept per minute.
pub const MIN_WITHIN: Duration = Duration::from_secs(60);
/// For how long a condition must not hold, by default, before an alert is resolved.
pub const CLEAR_FOR: Duration = Duration::from_secs(5 * 60);
/// The most rules.
pub const MAX_RULES: usize = 100;

/// A rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// What it finds wrong.
    pub when: Condition,
    /// For how long that must be so before the alert fires.
    pub fire_after: Duration,
    /// For how long it must no longer be so before the alert is resolved.
    pub clear_for: Duration,
    /// How bad it is.
    pub severity: Severity,
    /// The webhook that gets a message when the alert fires, and when it is resolved.
    pub webhook: Option<String>,
    /// Whether it posts no messages.
    pub is_muted: bool,
}

/// What a rule finds wrong. Each subject of a condition (a queue, a kind, a branch, a schedule, a worker) is an alert of its own. The
/// engine's own kinds and queues, whose names begin with `windlass.`, are subjects of none: a message that fails must not be the cause of the
/// next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The oldest ready job of a queue has waited for longer. A paused queue does not count.
    OldestReady {
        /// Only of this queue.
        queue: Option<String>,
        /// Longer than this.
        above: Duration,
    },
    /// More jobs of a kind have failed.
    Failures {
        /// Which jobs count.
        of: JobSelection,
        /// More than these.
        above: u64,
        /// Within this span.
        within: Duration,
    },
    /// A larger part of the attempts, or of the jobs, of a kind has failed.
    ErrorRate {
        /// Which jobs count.
        of: JobSelection,
        /// What is counted.
        count: RateUnit,
        /// More than these percent.
        percent: u32,
        /// If at least so many have ended.
        at_least: u64,
        /// Within this span.
        within: Duration,
    },
    /// A branch that its job waits for does not progress: none of its children has ended for longer, or the merge waits for unsuccessful
    /// children.
    StuckBranch {
        /// Longer than this.
        above: Duration,
    },
    /// A schedule has missed ticks because no worker was running, or the tick that is due has not fired for some minutes. Ticks that were
    /// skipped because the job before had not ended do not count.
    ScheduleMissed {
        /// Only this one.
        schedule: Option<String>,
        /// Within this span.
        within: Duration,
    },
    /// A worker was declared dead.
    WorkerLost {
        /// Within this span.
        within: Duration,
    },
    /// A queue has been paused for longer.
    QueuePaused {
        /// Only this queue.
        queue: Option<String>,
        /// Longer than this.
        above: Duration,
    },
}

/// Which ends of jobs count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobSelection {
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only in this queue.
    pub queue: Option<String>,
}

/// What an error rate is counted of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RateUnit {
    /// Attempts: one that fails and is retried counts as failed.
    #[default]
    Attempts,
    /// Jobs: only those that failed for good count as failed.
    Jobs,
}

impl RateUnit {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            RateUnit::Attempts => "attempts",
            RateUnit::Jobs => "jobs",
        }
    }
}

impl Condition {
    /// Its name, as rules in the settings name it.
    pub fn name(&self) -> &'static str {
        match self {
            Condition::OldestReady { .. } => "oldest_ready",
            Condition::Failures { .. } => "failures",
            Condition::ErrorRate { .. } => "error_rate",
            Condition::StuckBranch { .. } => "stuck_branch",
            Condition::ScheduleMissed { .. } => "schedule_missed",
            Condition::WorkerLost { .. } => "worker_lost",
            Condition::QueuePaused { .. } => "queue_paused",
        }
    }

    /// The span over which it counts ends of jobs.
    pub(super) fn counts_within(&self) -> Option<Duration> {
        match self {
            Condition::Failures { within, .. } | Condition::ErrorRate { within, .. } => Some(*within),
            _ => None,
        }
    }
}

impl fmt::Display for Condition {
    /// Writes it in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |span: &Duration| text::span(*span);
        let queue = |queue: &Option<String>| match queue {
            Some(queue) => format!("queue {queue}"),
            None => "any queue".to_owned(),
        };
        match self {
            Condition::OldestReady { queue: of, above } => {
                write!(f, "the oldest ready job of {} waits longer than {}", queue(of), span(above))
            }
            Condition::Failures { of, above, within } => {
                let jobs = text::jobs(*above);
                write!(
                    f,
                    "more than {jobs} of {of} {} within {}",
                    if *above == 1 { "fails" } else { "fail" },
                    span(within)
                )
            }
            Condition::ErrorRate { of, count, percent, at_least, within } => write!(
                f,
                "more than {percent} % of the {} of {of} fail within {}, if at least {} end",
                count.name(),
                span(within),
                text::thousands(*at_least)
            ),
            Condition::StuckBranch { above } => write!(
                f,
                "no child of an awaited branch ends for {}, or its merge waits for unsuccessful children",
                span(above)
            ),
            Condition::ScheduleMissed { schedule, within } => {
                let schedule =
                    schedule.as_ref().map_or("any schedule".to_owned(), |name| format!("schedule {name}"));
                write!(f, "{schedule} missed a tick within {}", span(within))
            }
            Condition::WorkerLost { within } => write!(f, "a worker was lost within {}", span(within)),
            Condition::QueuePaused { queue: of, above } => {
                write!(f, "{} is paused for longer than {}", queue(of), span(above))
            }
        }
    }
}

impl fmt::Display for JobSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Some(kind) => write!(f, "kind {kind}")?,
            None => f.write_str("a kind")?,
        }
        match &self.queue {
            Some(queue) => write!(f, " in queue {queue}"),
            None => Ok(()),
        }
    }
}

impl Rule {
    /// A rule that fires at once and is resolved after [`CLEAR_FOR`], with the severity `warn` and no webhook.
    pub fn new(name: impl Into<String>, when: Condition) -> Rule {
        Rule {
            name: name.into(),
            when,
            fire_after: Duration::ZERO,
            clear_for: CLEAR_FOR,
            severity: Severity::Warn,
            webhook: None,
            is_muted: false,
        }
    }

    /// The rules of a server whose settings have none.
    pub fn built_in() -> Vec<Rule> {
        let (minutes, hours) =
            (|n: u64| Duration::from_secs(n * 60), |n: u64| Duration::from_secs(n * 3_600));
        let of = JobSelection::default;
        let (count, within) = (RateUnit::Attempts, minutes(10));
        vec![
            Rule {
                fire_after: minutes(1),
                ..Rule::new("queue-behind", Condition::OldestReady { queue: None, above: minutes(10) })
            },
            Rule::new("failed-jobs", Condition::Failures { of: of(), above: 10, within }),
            Rule {
                severity: Severity::Bad,
                ..Rule::new(
                    "error-rate",
                    Condition::ErrorRate { of: of(), count, percent: 50, at_least: 20, within },
                )
            },
            Rule::new("stuck-branch", Condition::StuckBranch { above: hours(1) }),
            Rule::new("schedule-missed", Condition::ScheduleMissed { schedule: None, within: hours(1) }),
            Rule::new("worker-lost", Condition::WorkerLost { within }),
            Rule::new("queue-paused", Condition::QueuePaused { queue: None, above: hours(24) }),
        ]
    }

    /// Checks its name and its numbers.
    pub fn check(&self) -> Result<(), Invalid> {
        check_name("alert rule", &self.name)?;
        let wrong = |why: String, hint: &str| {
            let what = format!("the alert rule {:?}", self.name);
            Err(Invalid { what, why, hint: hint.into() })
        };
        if let Some(within) = self.when.counts_within()
            && !(MIN_WITHIN..=MAX_WITHIN).contains(&within)
        {
            let why = format!("counts within {}", text::span(within));
            return wrong(why, "use a span from 1m to 24h, because what ended is summed up per minute");
        }
        match &self.when {
            Condition::ErrorRate { percent: 100.., .. } => {
                wrong("wants more than 100 % to fail".into(), "use a percentage below 100")
            }
            Condition::ErrorRate { at_least: 0, .. } => {
                wrong("counts if at least 0 have ended".into(), "use at least 1")
            }
            Condition::WorkerLost { within } | Condition::ScheduleMissed { within, .. }
                if within.is_zero() =>
            {
                wrong("looks back no time at all".into(), "use a span like \"10m\"")
            }
            Condition::StuckBranch { above } if above.is_zero() => {
                wrong("gives children no time at all".into(), "use a span like \"1h\"")
            }
            _ => Ok(()),
        }
    }

    /// Checks rules that are evaluated together: each by itself, and that no two have the same name.
    pub fn check_all(rules: &[Rule]) -> Result<(), Invalid> {
        rules.iter().try_for_each(Rule::check)?;
        let what = || "the alert rules".to_owned();
        if rules.len() > MAX_RULES {
            let why = format!("are {}", rules.len());
            return Err(Invalid { what: what(), why, hint: format!("use at most {MAX_RULES}") });
        }
        let twice = rules
            .iter()
            .enumerate()
            .find(|(n, rule)| rules[..*n].iter().any(|known| known.name == rule.name));
        match twice {
            Some((_, rule)) => Err(Invalid {
                what: what(),
                why: format!("have the name {:?} twice", rule.name),
                hint: "rename one".into(),
            }),
            None => Ok(()),
        }
    }
}

/// A rule as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// The name of its condition.
    pub when: String,
    /// The condition in words.
    pub text: String,
    /// For how long it must hold, in seconds.
    pub for_seconds: u64,
    /// For how long it must not hold before an alert is resolved, in seconds.
    pub clear_for_seconds: u64,
    /// How bad it is.
    pub severity: Severity,
    /// The webhook that gets messages.
    pub webhook: Option<String>,
    /// Whether the settings mute it.
    pub muted: bool,
}

impl From<&Rule> for RuleView {
    fn from(rule: &Rule) -> RuleView {
        RuleView {
            name: rule.name.clone(),
            when: rule.when.name().into(),
            text: rule.when.to_string(),
            for_seconds: rule.fire_after.as_secs(),
            clear_for_seconds: rule.clear_for.as_secs(),
            severity: rule.severity,
            webhook: rule.webhook.clone(),
            muted: rule.is_muted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_rules_are_valid_and_say_what_they_mean() {
        let rules = Rule::built_in();
        Rule::check_all(&rules).expect("valid");
        let texts: Vec<String> = rules.iter().map(|rule| rule.when.to_string()).collect();
        assert_eq!(texts[0], "the oldest ready job of any queue waits longer than 10m");
        assert_eq!(texts[1], "more than 10 jobs of a kind fail within 10m");
        assert_eq!(texts[2], "more than 50 % of the attempts of a kind fail within 10m, if at least 20 end");
    }

    #[test]
    fn rules_that_cannot_be_meant_are_refused() {
        let of = JobSelection::default;
        let within = Duration::from_secs(600);
        let (count, zero) = (RateUnit::Jobs, Duration::ZERO);
        for when in [
            Condition::Failures { of: of(), above: 1, within: Duration::from_secs(59) },
            Condition::Failures { of: of(), above: 1, within: Duration::from_secs(86_401) },
            Condition::ErrorRate { of: of(), count, percent: 100, at_least: 1, within },
            Condition::ErrorRate { of: of(), count, percent: 5, at_least: 0, within },
            Condition::WorkerLost { within: zero },
            Condition::StuckBranch { above: zero },
        ] {
            assert!(Rule::new("r", when.clone()).check().is_err(), "{when:?}");
        }
        let fine = Condition::WorkerLost { within };
        assert!(Rule::new("two words", fine.clone()).check().is_err());
        assert!(Rule::new("windlass.own", fine.clone()).check().is_err());
        let twice = [Rule::new("a", fine.clone()), Rule::new("b", fine.clone()), Rule::new("a", fine)];
        assert!(Rule::check_all(&twice[..2]).is_ok());
        assert!(Rule::check_all(&twice).expect_err("twice").to_string().contains("\"a\" twice"));
    }
}
