//! Whether anything may have changed that people see.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;
use windlass_model::{Epoch, Invalid, JobId, Rev, State};

use crate::Error;

/// How many jobs a pulse may be asked for: so many that a page of jobs fits, so few that the read stays short.
pub const MAX_PULSE_JOBS: usize = 1_000;

/// What one light read says of changes. Two pulses of one handle that are equal mean that nothing has changed that they cover.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pulse {
    /// Differs from that of another read if jobs, rules, workers or the audit log have changed between the two; see
    /// [`crate::Inspect::pulse`]. The number has no other meaning, and another store, backend or version has others.
    pub store: u64,
    /// The jobs that were asked for, in their order; `None` for one that does not exist, or was not admitted yet.
    pub jobs: Vec<Option<JobPulse>>,
}

/// Where one job is: commits, people, timers and signals change one of these. Reports of progress do not, and neither do the ends of its children
/// before the one that wakes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct JobPulse {
    /// How many changes were committed.
    pub rev: Rev,
    /// Raised whenever a claim of it ends without a commit, and by people who end or change it.
    pub epoch: Epoch,
    /// Its state.
    pub state: State,
    /// The number of the newest signal in its inbox; 0 if that is empty.
    pub newest_signal: i64,
}

/// The digest of what a store has read for a pulse.
pub(crate) fn digest(parts: &[i64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Refuses a request for too many jobs.
pub(crate) fn check(jobs: &[JobId]) -> Result<(), Error> {
    if jobs.len() <= MAX_PULSE_JOBS {
        return Ok(());
    }
    Err(Error::Invalid(Invalid {
        what: format!("a pulse of {} jobs", jobs.len()),
        why: format!("is more than the {MAX_PULSE_JOBS} allowed"),
        hint: "ask for the jobs of one page".into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_depends_on_every_part_and_on_their_order() {
        let all = [[1, 2, 3], [1, 2, 4], [0, 2, 3], [2, 1, 3]].map(|parts| digest(&parts));
        for (n, one) in all.iter().enumerate() {
            assert!(!all[..n].contains(one));
        }
        assert_eq!(digest(&[1, 2, 3]), all[0]);
    }

    #[test]
    fn too_many_jobs_are_refused() {
        let jobs = vec![JobId::from_parts(0, 0, 0); MAX_PULSE_JOBS + 1];
        assert!(check(&jobs[1..]).is_ok() && check(&jobs).is_err());
    }
}
