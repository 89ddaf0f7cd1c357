//! Unique names, as flags of `submit`.

use std::time::Duration;

use windlass::{States, Unique, model::Conflict};

use crate::span;

#[derive(clap::Args)]
pub(crate) struct Name {
    /// A name that only one job of its kind has at a time; while one has it, a submit is answered as --on-conflict says
    #[arg(long, value_name = "NAME")]
    unique: Option<String>,
    /// If another job has the unique name: keep that one, reject this one, replace that one unless it runs, or
    /// cancel-and-replace it even if it runs [default: keep]
    #[arg(long, value_name = "WHAT", requires = "unique", value_parser = conflict)]
    on_conflict: Option<Conflict>,
    /// A job has its unique name while it is live (has not ended), waiting (has not started) or kept (is not deleted)
    /// [default: live]
    #[arg(long, value_name = "WHEN", requires = "unique", value_parser = states)]
    unique_while: Option<States>,
    /// A job has its unique name for so long after its submit at most
    #[arg(long, value_name = "SPAN", requires = "unique", value_parser = span::parse)]
    unique_within: Option<Duration>,
}

impl Name {
    pub(crate) fn unique(&self) -> Option<Unique> {
        let unique = Unique::new(self.unique.clone()?);
        Some(Unique {
            conflict: self.on_conflict.unwrap_or_default(),
            scope: self.unique_while.unwrap_or(unique.scope),
            within: self.unique_within,
            ..unique
        })
    }
}

fn conflict(text: &str) -> Result<Conflict, String> {
    Ok(match text.replace('_', "-").as_str() {
        "keep" => Conflict::Keep,
        "reject" => Conflict::Reject,
        "replace" => Conflict::Replace,
        "cancel-and-replace" => Conflict::CancelAndReplace,
        _ => return Err("use keep, reject, replace or cancel-and-replace".to_owned()),
    })
}

fn states(text: &str) -> Result<States, String> {
    Ok(match text {
        "live" => States::LIVE,
        "waiting" => States::PENDING,
        "kept" => States::KEPT,
        _ => return Err("use live, waiting or kept".to_owned()),
    })
}
