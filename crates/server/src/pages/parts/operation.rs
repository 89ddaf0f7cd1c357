//! What an operation on many jobs will do, and how far it is.

use askama::{Template, filters::HtmlSafe};

use super::{Action, Pill, Tone};
use crate::pages::{
    bars::{Band, Slice},
    format::{percent, thousands},
    html::Html,
};

/// A few numbers beside each other: how many match, are refused, how long it takes.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/tally.html")]
pub(crate) struct Tally {
    /// Each number and what it is.
    pub(crate) numbers: Vec<(String, String)>,
}

impl HtmlSafe for Tally {}

impl Tally {
    pub(crate) fn new(numbers: &[(&str, &str)]) -> Tally {
        Tally {
            numbers: numbers.iter().map(|(number, name)| (number.to_string(), name.to_string())).collect(),
        }
    }
}

/// How far an operation on many jobs is. Its id is `operation`.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/operation.html")]
pub(crate) struct Operation {
    pub(crate) pill: Pill,
    /// What it does: "Retry 1,204 failed jobs of charge".
    pub(crate) title: String,
    /// How many jobs it changed.
    pub(crate) done: u64,
    /// How many were as it wants them already.
    pub(crate) already: u64,
    /// How many refused it.
    pub(crate) refused: u64,
    /// How many are left.
    pub(crate) left: u64,
    /// Its rate and the time that is left, or when it ended.
    pub(crate) pace: Html,
    /// Stopping it, while it runs.
    pub(crate) stop: Option<Action>,
}

impl HtmlSafe for Operation {}

impl Operation {
    fn total(&self) -> u64 {
        self.done + self.already + self.refused + self.left
    }

    fn share(&self) -> String {
        percent(self.total() - self.left, self.total())
    }

    fn band(&self) -> Band {
        let total = self.total();
        Band::new(
            &format!("{} of {} jobs", thousands(total - self.left), thousands(total)),
            vec![
                Slice::new(Tone::Ok, self.done, "changed"),
                Slice::new(Tone::Idle, self.already, "already so"),
                Slice::new(Tone::Bad, self.refused, "refused").hatched(),
                Slice::rest(self.left, "left"),
            ],
        )
    }
}
