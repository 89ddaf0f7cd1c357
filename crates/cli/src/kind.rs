//! Which kind of job is meant, and with what input: for the commands that describe jobs to come.

use std::io::Read;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use windlass::Engine;

/// Which version of a kind; one that nobody here knows is most likely a slip.
#[derive(clap::Args)]
pub(crate) struct Version {
    /// Which version of the kind [default: the newest that this program serves]
    #[arg(long, value_name = "N")]
    kind_version: Option<i32>,
    /// Take it though this program does not serve the kind: workers elsewhere do
    #[arg(long)]
    any_kind: bool,
}

impl Version {
    pub(crate) fn of(&self, engine: &Engine, kind: &str) -> anyhow::Result<i32> {
        let kinds = engine.kinds();
        let mine: Vec<i32> =
            kinds.iter().filter(|known| known.kind == kind).map(|known| known.version).collect();
        match (self.kind_version, mine.iter().max()) {
            (Some(version), _) if self.any_kind || mine.contains(&version) => Ok(version),
            (None, Some(newest)) => Ok(*newest),
            (None, None) if self.any_kind => Ok(1),
            (Some(version), Some(newest)) => bail!(
                "version {version} of {kind:?} is not served by this program, which serves up to {newest}; leave \
                 --kind-version out, or add --any-kind to submit it for workers elsewhere"
            ),
            _ => {
                let mut names: Vec<&str> = kinds.iter().map(|kind| kind.kind.as_str()).collect();
                names.dedup();
                bail!(
                    "the kind {kind:?} is not known to this program, which serves {}; add --any-kind to submit it for \
                     workers elsewhere that serve it",
                    names.join(", ")
                )
            }
        }
    }
}

/// Reads an input: JSON itself, `-` for standard input, or `@FILE`.
pub(crate) fn input(text: &str) -> anyhow::Result<Value> {
    json("input", text)
}

/// The same for something else that is called `what`.
pub(crate) fn json(what: &str, text: &str) -> anyhow::Result<Value> {
    let mut read = String::new();
    let text = match text.strip_prefix('@') {
        Some(path) => {
            read = std::fs::read_to_string(path)
                .with_context(|| format!("the {what} file {path} cannot be read"))?;
            &read
        }
        None if text == "-" => {
            std::io::stdin()
                .read_to_string(&mut read)
                .with_context(|| format!("the {what} cannot be read from standard input"))?;
            &read
        }
        None => text,
    };
    serde_json::from_str(text).map_err(|error| {
        let hint = if text.contains('"') { "" } else { "; text needs quotes of its own: '\"text\"'" };
        anyhow!("the {what} is not JSON ({error}); pass it in quotes, like '{{\"ms\": 100}}'{hint}")
    })
}
