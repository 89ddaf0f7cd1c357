//! Unique names, as flags of `submit`.

use std::time::Duration;

use windlass::{States, Unique, model::Conflict};

use crate::durations;

#[derive(clap::Args)]
pub(crate) struct UniqueName {
    /// A name that only one job of its kind holds at a time; see --on-conflict
    #[arg(long, value_name = "NAME")]
    unique: Option<String>,
    /// If another job holds the unique name: keep that job, reject this one, replace that job unless it runs, or
    /// cancel-and-replace it even if it runs [default: keep]
    #[arg(long, value_name = "WHAT", requires = "unique", value_parser = conflict)]
    on_conflict: Option<Conflict>,
    /// A job holds its unique name while it is live (has not ended), waiting (has not started) or kept (is not deleted)
    /// [default: live]
    #[arg(long, value_name = "WHEN", requires = "unique", value_parser = states)]
    unique_while: Option<States>,
    /// A job holds its unique name for at most this long after its submit
    #[arg(long, value_name = "DURATION", requires = "unique", value_parser = durations::parse)]
    unique_within: Option<Duration>,
}

impl UniqueName {
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
