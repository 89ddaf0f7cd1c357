//! Which jobs are meant: the filters that lists and bulk operations share.

use windlass::{State, store::Filter};

/// Filters; a job must match all that are given.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct Which {
    /// Only in this state: scheduled, ready, running, done, failed or cancelled
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
}

impl Which {
    /// Whether every job matches.
    pub(crate) fn is_all(&self) -> bool {
        self.state.is_none() && self.texts().iter().all(|(_, value)| value.is_none())
    }

    fn texts(&self) -> [(&'static str, &Option<String>); 4] {
        [("kind", &self.kind), ("queue", &self.queue), ("tag", &self.tag), ("key", &self.key)]
    }

    pub(crate) fn filter(&self) -> Filter {
        Filter {
            state: self.state,
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            tag: self.tag.clone(),
            key: self.key.clone(),
            ..Filter::default()
        }
    }

    /// The same filters as flags of a command line.
    pub(crate) fn flags(&self) -> String {
        let mut flags = self.state.map(|state| format!(" --state {state}")).unwrap_or_default();
        for (name, value) in self.texts() {
            if let Some(value) = value {
                let plain = value.chars().all(|c| c.is_alphanumeric() || "-_.:/".contains(c));
                flags += &if plain { format!(" --{name} {value}") } else { format!(" --{name} {value:?}") };
            }
        }
        flags
    }
}
