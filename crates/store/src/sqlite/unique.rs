//! Unique names. Nothing is written when a job moves: whoever asks for a name looks at the job that last took it.

use rusqlite::params;
use windlass_model::{Conflict, JobId, NewJob, State, SubmitOutcome, Time};

use super::{
    job_actions::{JobRow, cancel, read_job},
    sql,
    tx::{Tx, id_of},
};
use crate::{Error, columns::GRACE, control::outcome};

/// The job that has a unique name now, if one other than `mine` has.
pub(super) fn namesake(
    tx: &Tx<'_>,
    now: Time,
    kind: i32,
    key: &str,
    mine: JobId,
) -> Result<Option<JobRow>, Error> {
    let last = owner(tx, kind, key)?.filter(|last| *last != mine);
    let Some(seen) = last.map(|last| read_job(tx, last)).transpose()?.flatten() else { return Ok(None) };
    let has_it = |seen: &JobRow| {
        let unique = seen.settings.unique.as_ref();
        unique.is_some_and(|unique| unique.holds(seen.state, seen.submitted_at, now))
    };
    Ok(Some(seen).filter(has_it))
}

/// The job that last took a name.
pub(super) fn owner(tx: &Tx<'_>, kind: i32, key: &str) -> Result<Option<JobId>, Error> {
    tx.one(sql::unique::HOLDER, params![kind, key], |row| id_of(row, 0))
}

/// Gives a name to a job.
pub(super) fn take(tx: &Tx<'_>, kind: i32, key: &str, job: JobId) -> Result<(), Error> {
    tx.run(sql::unique::TAKE, params![kind, key, job.as_bytes()])?;
    Ok(())
}

/// Gives a job that is submitted its unique name, or says what is to be answered instead. `Ok(Some)` is the job whose
/// place it takes.
pub(super) fn claim(
    tx: &Tx<'_>,
    now: Time,
    kind: i32,
    job: &NewJob,
) -> Result<Result<Option<JobId>, SubmitOutcome>, Error> {
    let Some(unique) = &job.settings.unique else { return Ok(Ok(None)) };
    let there = namesake(tx, now, kind, &unique.key, job.id)?;
    if let Some(seen) = &there {
        let id = seen.spot.id;
        match unique.conflict {
            Conflict::Keep => {
                let same_input = seen.digest == job.digest;
                return Ok(Err(SubmitOutcome::Existing { id, same_input }));
            }
            Conflict::Reject => return Ok(Err(SubmitOutcome::Rejected { id })),
            Conflict::Replace if seen.state == State::Running => {
                return Ok(Err(SubmitOutcome::Rejected { id }));
            }
            Conflict::Replace | Conflict::CancelAndReplace => {
                cancel(tx, now, seen, GRACE, &outcome::replaced(job.id))?;
            }
        }
    }
    take(tx, kind, &unique.key, job.id)?;
    Ok(Ok(there.map(|seen| seen.spot.id)))
}
