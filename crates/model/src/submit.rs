//! How the store answers a submit.

use crate::{Epoch, JobId, NewJob};

/// The store's answer to one submitted job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the job may not have been submitted"]
pub enum SubmitOutcome {
    /// The job was inserted.
    New {
        /// The epoch under which the submitting worker claimed it, if it was claimed in the submit itself.
        claimed: Option<Epoch>,
    },
    /// The same submit was made before: same id, same input. Nothing was written.
    Repeated,
    /// A job of this kind with this key, or with its unique name, exists already. Nothing was written.
    Existing {
        /// That job.
        id: JobId,
        /// Whether its input is the same.
        same_input: bool,
    },
    /// The job was inserted, and the job that held its unique name was cancelled.
    Replaced {
        /// The cancelled job.
        id: JobId,
    },
    /// A job holds its unique name, and the submit asked to be rejected then, or to replace that job only if it is not
    /// running. Nothing was written.
    Rejected {
        /// The job that holds the name.
        id: JobId,
    },
    /// Another job has this id. Nothing was written; make a new id and submit again.
    IdTaken,
}

impl SubmitOutcome {
    /// Whether the submit inserted the job.
    pub fn is_inserted(&self) -> bool {
        matches!(self, SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. })
    }

    /// Returns the outcome for a job whose id exists, with a job of this digest. `was_claimed`: an earlier send of this submit
    /// inserted that job and claimed it, and the answer was lost; its worker must learn of the claim.
    pub fn of_same_id(job: &NewJob, digest: &[u8; 16], was_claimed: bool) -> SubmitOutcome {
        match *digest == job.digest {
            true if was_claimed => SubmitOutcome::New { claimed: Some(Epoch(0)) },
            true => SubmitOutcome::Repeated,
            false => SubmitOutcome::IdTaken,
        }
    }

    /// Returns the outcome for a job whose key belongs to another job, which has this digest.
    pub fn of_same_key(job: &NewJob, id: JobId, digest: &[u8; 16]) -> SubmitOutcome {
        SubmitOutcome::Existing { id, same_input: *digest == job.digest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Payload;

    fn job(number: u32) -> NewJob {
        let input = Payload::json(number.to_string().into_bytes());
        NewJob::new(JobId::from_parts(1, number, 1), "k", "q", input)
    }

    #[test]
    fn a_submit_with_an_existing_id_is_a_repeat_only_with_the_same_input() {
        let (one, other) = (job(1), job(2));
        assert_eq!(SubmitOutcome::of_same_id(&one, &one.digest, false), SubmitOutcome::Repeated);
        let claimed = SubmitOutcome::New { claimed: Some(Epoch(0)) };
        assert_eq!(SubmitOutcome::of_same_id(&one, &one.digest, true), claimed);
        for was_claimed in [false, true] {
            let outcome = SubmitOutcome::of_same_id(&one, &other.digest, was_claimed);
            assert_eq!(outcome, SubmitOutcome::IdTaken);
        }
    }

    #[test]
    fn a_submit_with_an_existing_key_returns_that_job() {
        let (one, other) = (job(1), job(2));
        let outcome = |digest| SubmitOutcome::of_same_key(&one, other.id, digest);
        assert_eq!(outcome(&one.digest), SubmitOutcome::Existing { id: other.id, same_input: true });
        assert_eq!(outcome(&other.digest), SubmitOutcome::Existing { id: other.id, same_input: false });
    }

    #[test]
    fn only_new_and_replacing_jobs_are_inserted() {
        let id = job(1).id;
        let inserted = [SubmitOutcome::New { claimed: None }, SubmitOutcome::Replaced { id }];
        assert!(inserted.iter().all(SubmitOutcome::is_inserted));
        let existing = SubmitOutcome::Existing { id, same_input: true };
        let others =
            [SubmitOutcome::Repeated, existing, SubmitOutcome::Rejected { id }, SubmitOutcome::IdTaken];
        assert!(!others.iter().any(SubmitOutcome::is_inserted));
    }
}
