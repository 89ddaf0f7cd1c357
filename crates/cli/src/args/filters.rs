//! The filters of lists and bulk operations.

use windlass::{State, store::Filter};

use crate::out;

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
    /// Only machines in this stage: the name of a variant
    #[arg(long)]
    pub(crate) stage: Option<String>,
    /// Only of this version of their kind
    #[arg(long, value_name = "N")]
    pub(crate) version: Option<i32>,
    /// Only jobs that no other job submitted: no children
    #[arg(long)]
    pub(crate) top: bool,
}

impl Filters {
    /// Whether no filter is given, so that every job matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.is_none()
            && self.version.is_none()
            && !self.top
            && self.texts().iter().all(|(_, value)| value.is_none())
    }

    fn texts(&self) -> [(&'static str, &Option<String>); 5] {
        [
            ("kind", &self.kind),
            ("queue", &self.queue),
            ("tag", &self.tag),
            ("key", &self.key),
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
            stage: self.stage.clone(),
            version: self.version,
            top: self.top,
            ..Filter::default()
        }
    }

    /// The same filters in words, but the state.
    pub(crate) fn to_words(&self) -> String {
        let words =
            |(name, value): (&str, &Option<String>)| Some(format!("{name} {}", out::plain(value.as_ref()?)));
        let mut all: Vec<String> = self.texts().into_iter().filter_map(words).collect();
        all.extend(self.version.map(|version| format!("version {version}")));
        all.extend(self.top.then(|| "without a parent".to_owned()));
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
        flags + if self.top { " --top" } else { "" }
    }
}
