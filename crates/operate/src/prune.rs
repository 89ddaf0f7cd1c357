//! What a prune has done, as people see it.

use serde::{Deserialize, Serialize};
use windlass_store::Pruned;

/// What [`crate::Control::prune`] has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PruneProgress {
    /// How many jobs were deleted.
    #[serde(rename = "pruned")]
    pub jobs: usize,
    /// How many are old enough and stay: their parent is not done, or they hold a unique name.
    pub kept: usize,
    /// Whether there are more.
    pub interrupted: bool,
}

impl From<&Pruned> for PruneProgress {
    fn from(pruned: &Pruned) -> PruneProgress {
        PruneProgress { jobs: pruned.jobs, kept: pruned.kept, interrupted: pruned.after.is_some() }
    }
}
