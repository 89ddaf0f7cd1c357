//! Unique names. Nothing is written when a job changes state: who asks for a name checks the job that last took it.

use rusqlite::params;
use windlass_model::{JobId, NewJob, State, SubmitOutcome, Time};

use super::{
    job_actions::{JobRow, cancel, read_job},
    sql,
    tx::{Tx, read_id},
};
use crate::{
    Error,
    columns::{self, GRACE},
    control::outcome,
};

/// The job that holds a name now, if it is another than `asking`.
pub(super) fn holder_of(
    tx: &Tx<'_>,
    now: Time,
    kind: i32,
    name: &str,
    asking: JobId,
) -> Result<Option<JobRow>, Error> {
    let last = last_holder(tx, kind, name)?.filter(|last| *last != asking);
    let Some(holder) = last.map(|last| read_job(tx, last)).transpose()?.flatten() else { return Ok(None) };
    let holds_name = |holder: &JobRow| {
        let settings = (&holder.settings, holder.fault.as_deref());
        columns::holds_name(settings, name, holder.state, holder.submitted_at, now)
    };
    Ok(Some(holder).filter(holds_name))
}

/// The job that last took a name.
pub(super) fn last_holder(tx: &Tx<'_>, kind: i32, name: &str) -> Result<Option<JobId>, Error> {
    tx.query_one(sql::unique::HOLDER, params![kind, name], |row| read_id(row, 0))
}

/// Gives a name to a job.
pub(super) fn take(tx: &Tx<'_>, kind: i32, name: &str, job: JobId) -> Result<(), Error> {
    tx.execute(sql::unique::TAKE, params![kind, name, job.as_bytes()])?;
    Ok(())
}

/// Gives a job that is submitted its unique name, or returns the outcome of its submit instead. `Ok(Some)` is the job
/// that it replaces.
pub(super) fn take_for(
    tx: &Tx<'_>,
    now: Time,
    kind: i32,
    job: &NewJob,
) -> Result<Result<Option<JobId>, SubmitOutcome>, Error> {
    let Some(unique) = &job.settings.unique else { return Ok(Ok(None)) };
    let holder = holder_of(tx, now, kind, &unique.key, job.id)?;
    if let Some(holder) = &holder {
        let id = holder.placement.id;
        let (same_input, is_running) = (holder.digest == job.digest, holder.state == State::Running);
        if let Err(outcome) = unique.conflict.resolve(id, same_input, is_running) {
            return Ok(Err(outcome));
        }
        let _ = cancel(tx, now, holder, GRACE, &outcome::replaced(job.id))?;
    }
    take(tx, kind, &unique.key, job.id)?;
    Ok(Ok(holder.map(|holder| holder.placement.id)))
}
