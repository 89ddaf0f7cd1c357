//! The filters of lists and bulk operations.

use std::time::SystemTime;

use windlass::{State, Time, store::Filter};

use crate::{durations, out};

/// Filters; a job must match all that are given.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct Filters {
    /// Only in this state: scheduled, ready, running, waiting, done, failed or
    /// cancelled
    #[arg(long)]
    pub(crate) state: Option<State>,
    /// Only of this kind
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Only in this queue
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Only with this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Only with this key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only with a key that begins with this
    #[arg(long, value_name = "TEXT", conflicts_with = "key")]
    pub(crate) key_prefix: Option<String>,
    /// Only failed and cancelled jobs whose error has this class, for example
    /// timeout
    #[arg(long, value_name = "CLASS")]
    pub(crate) error_class: Option<String>,
    /// Only machines in this stage: the name of a variant
    #[arg(long)]
    pub(crate) stage: Option<String>,
    /// Only of this version of their kind
    #[arg(long, value_name = "N")]
    pub(crate) version: Option<i32>,
    /// Only jobs that no other job submitted: no children
    #[arg(long)]
    pub(crate) top: bool,
    /// Only jobs submitted at this time or later: a time such as
    /// 2027-01-31T09:00:00Z, or a span before now such as 90m or 7d
    #[arg(long, value_name = "WHEN", value_parser = parse_time)]
    pub(crate) since: Option<Time>,
    /// Only jobs submitted before this time, given likewise
    #[arg(long, value_name = "WHEN", value_parser = parse_time)]
    pub(crate) until: Option<Time>,
}

impl Filters {
    /// Whether no filter is given, so that every job matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.is_none()
            && self.version.is_none()
            && !self.top
            && self.since.is_none()
            && self.until.is_none()
            && self.texts().iter().all(|(_, value)| value.is_none())
    }

    fn texts(&self) -> [(&'static str, &Option<String>); 7] {
        [
            ("kind", &self.kind),
            ("queue", &self.queue),
            ("tag", &self.tag),
            ("key", &self.key),
            ("key-prefix", &self.key_prefix),
            ("error-class", &self.error_class),
            ("stage", &self.stage),
        ]
    }

    pub(crate) fn to_filter(&self) -> Filter {
        Filter {
            state: self.state,
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            tag: self.tag.clone(),
            key: self.key.clone(),
            key_prefix: self.key_prefix.clone(),
            error_class: self.error_class.clone(),
            stage: self.stage.clone(),
            version: self.version,
            top: self.top,
            since: self.since,
            until: self.until,
            ..Filter::default()
        }
    }

    /// The same filters in words, but the state.
    pub(crate) fn to_words(&self) -> String {
        let words = |(name, value): (&str, &Option<String>)| {
            Some(format!("{} {}", name.replace('-', " "), out::plain(value.as_ref()?)))
        };
        let mut all: Vec<String> = self.texts().into_iter().filter_map(words).collect();
        all.extend(self.version.map(|version| format!("version {version}")));
        all.extend(self.top.then(|| "without a parent".to_owned()));
        all.extend(self.since.map(|at| format!("since {at}")));
        all.extend(self.until.map(|at| format!("until {at}")));
        all.join(", ")
    }

    /// The same filters as flags of a command line.
    pub(crate) fn to_flags(&self) -> String {
        let mut flags = self.state.map(|state| format!(" --state {state}")).unwrap_or_default();
        for (name, value) in self.texts() {
            if let Some(value) = value {
                let plain = value.chars().all(|c| c.is_alphanumeric() || "-_.:/".contains(c));
                flags += &if plain { format!(" --{name} {value}") } else { format!(" --{name} {value:?}") };
            }
        }
        flags += &self.version.map(|version| format!(" --version {version}")).unwrap_or_default();
        flags += if self.top { " --top" } else { "" };
        // As absolute times: a span would mean another time by then.
        flags += &self.since.map(|at| format!(" --since {at}")).unwrap_or_default();
        flags + &self.until.map(|at| format!(" --until {at}")).unwrap_or_default()
    }
}

/// A time, or the time a span ago.
fn parse_time(text: &str) -> Result<Time, String> {
    match (text.parse(), durations::parse(text)) {
        (Ok(at), _) => Ok(at),
        (_, Ok(ago)) => Ok(Time::from_system(SystemTime::now()) - ago),
        (Err(why), Err(_)) => Err(format!("{why}, or a span before now as 90m or 7d")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_given_as_such_or_as_a_span_before_now() {
        assert_eq!(parse_time("2027-01-31T09:00:00Z"), "2027-01-31T09:00:00Z".parse());
        let (hour_ago, now) = (parse_time("1h").expect("a span"), Time::from_system(SystemTime::now()));
        assert!(hour_ago < now && now - hour_ago >= std::time::Duration::from_secs(3_600));
        let refused = parse_time("yesterday").unwrap_err();
        assert!(refused.contains("2026-11-15T08:00:00Z") && refused.contains("90m"), "{refused}");
    }

    #[test]
    fn flags_repeat_the_filters() {
        let since = Some("2027-01-31T09:00:00Z".parse().expect("a time"));
        let text = |text: &str| Some(text.to_owned());
        let filters = Filters {
            key_prefix: text("order-"),
            error_class: text("card declined"),
            since,
            ..Filters::default()
        };
        let flags =
            r#" --key-prefix order- --error-class "card declined" --since 2027-01-31T09:00:00.000000Z"#;
        assert_eq!(filters.to_flags(), flags);
        assert!(!filters.is_empty());
    }
}
