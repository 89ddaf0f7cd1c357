//! Unique names: a submit or a retry takes them. Whether the last taker still holds a name is checked when another job wants it.

use windlass_model::{Change, Conflict, JobId, NewJob, State, SubmitOutcome, Time, Unique};

use super::{
    Postgres, SPAN, change_params::Param, control, errors::PgError, job_actions, names::Names, sql, tx::Tx,
    wait,
};
use crate::{Error, Now, columns, control::outcome};

/// The job that holds a unique name.
struct Holder {
    id: JobId,
    digest: Vec<u8>,
    /// Its state, or its state when its change submitted the job that wants the name.
    state: State,
    /// Whether that change was written since, and has ended its claim. Then its cancel was requested before.
    has_ended_claim: bool,
}

/// What came of taking a unique name for a job.
pub(super) enum NameOutcome {
    /// The job holds it, and `replaced` was cancelled for it.
    Taken { replaced: Option<JobId> },
    /// Another job holds it, and this is the outcome of the submit.
    Held(SubmitOutcome),
}

/// Takes a job's unique name, in the transaction that inserted the job. Live jobs in `running` count as running, wherever they are
/// by now.
pub(super) async fn take(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Time,
    job: &NewJob,
    kind: i32,
    running: &[JobId],
) -> Result<NameOutcome, PgError> {
    let Some(unique) = &job.settings.unique else { return Ok(NameOutcome::Taken { replaced: None }) };
    let Some(holder) = take_or_find_holder(tx, now, kind, unique, job.id, running).await? else {
        return Ok(NameOutcome::Taken { replaced: None });
    };
    let id = holder.id;
    let same_input = holder.digest == job.digest;
    let is_running = running.contains(&id) && holder.state == State::Running;
    if let Err(outcome) = unique.conflict.resolve(id, same_input, is_running) {
        return Ok(NameOutcome::Held(outcome));
    }
    let actor = outcome::replaced(job.id);
    if unique.conflict == Conflict::Replace {
        // It may have been claimed since it was read: its state decides once it is locked.
        if !job_actions::cancel_unless_running(store, tx, now, id, &actor).await? {
            return Ok(NameOutcome::Held(SubmitOutcome::Rejected { id }));
        }
    } else if !holder.has_ended_claim {
        job_actions::cancel(store, tx, now, &[id], columns::GRACE, &actor).await?;
    }
    set_holder(tx, kind, unique, job.id).await?;
    Ok(NameOutcome::Taken { replaced: Some(id) })
}

/// Requests the cancel of a job whose change submits a job that takes its unique name: while it runs, before the change is written.
/// The change then finds the request, whatever its outcome.
pub(super) async fn cancel_replaced_parent(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Now,
    change: &Change,
    names: &Names,
) -> Result<(), PgError> {
    let Some(step) = change.writes.as_deref() else { return Ok(()) };
    for job in step.promoted.iter().chain(&step.children) {
        let Some(Unique { key, conflict: Conflict::CancelAndReplace, .. }) = job.settings.unique.as_deref()
        else {
            continue;
        };
        let kind = names.lane(store, job)?.kind_id;
        wait::lock_jobs(tx, &[change.job.0]).await?;
        tx.query(sql::unique::LOCK, &[&kind, key]).await?;
        let params: [Param<'_>; 9] = [
            &kind,
            key,
            &change.job.0,
            &change.epoch.0,
            &change.rev.0,
            &change.worker.0,
            &change.claim.0,
            &job.id.0,
            &job.key,
        ];
        let rows = tx.query(sql::unique::HELD_BY_PARENT, &params).await?;
        let Some(row) = rows.first() else { continue };
        let now = control::clock(tx, now).await?;
        if holds_name(row.get(1), key, State::Running, Time(row.get(0)), now) {
            let actor = outcome::replaced(job.id);
            job_actions::cancel(store, tx, now, &[change.job], columns::GRACE, &actor).await?;
            break;
        }
    }
    Ok(())
}

/// Takes the unique name of a job that is revived. Returns the holder if another job holds it.
pub(super) async fn retake(
    tx: &Tx<'_>,
    now: Time,
    kind: i32,
    unique: &Unique,
    id: JobId,
) -> Result<Option<JobId>, PgError> {
    Ok(take_or_find_holder(tx, now, kind, unique, id, &[]).await?.map(|holder| holder.id))
}

/// Takes a unique name if no job holds it; otherwise locks it and returns its holder.
async fn take_or_find_holder(
    tx: &Tx<'_>,
    now: Time,
    kind: i32,
    unique: &Unique,
    id: JobId,
    running: &[JobId],
) -> Result<Option<Holder>, PgError> {
    if tx.execute(sql::unique::TAKE, &[&kind, &unique.key, &id.0]).await? == 1 {
        return Ok(None);
    }
    // Statements of their own: the first did not see what was committed while it waited for the lock.
    let rows = tx.query(sql::unique::LOCK, &[&kind, &unique.key]).await?;
    let last_taker = rows.first().map(|row| row.get::<_, uuid::Uuid>(0));
    if let Some(taker) = last_taker.filter(|taker| *taker != id.0) {
        let rows = tx.query(sql::control::READ_STATE, &[&SPAN, &taker]).await?;
        for row in rows {
            let current = job_actions::read_state(&row);
            let has_ended_claim =
                running.contains(&JobId(taker)) && !current.is_final() && current != State::Running;
            let state = if has_ended_claim { State::Running } else { current };
            if holds_name(row.get(5), &unique.key, state, Time(row.get(4)), now) {
                let (id, digest) = (JobId(row.get(0)), row.get(6));
                return Ok(Some(Holder { id, digest, state, has_ended_claim }));
            }
        }
    }
    if last_taker.is_none() {
        // Pruned between the two statements.
        let why = "the job with this unique name is being pruned; try again";
        return Err(Error::Unavailable(why.into()).into());
    }
    set_holder(tx, kind, unique, id).await?;
    Ok(None)
}

/// Whether a job with these settings, which took a unique name, holds it.
fn holds_name(settings: Option<&str>, name: &str, state: State, submitted_at: Time, now: Time) -> bool {
    let mut decoder = columns::Decoder::default();
    let settings = decoder.settings(settings);
    columns::holds_name((&settings, decoder.fault().as_deref()), name, state, submitted_at, now)
}

async fn set_holder(tx: &Tx<'_>, kind: i32, unique: &Unique, id: JobId) -> Result<(), PgError> {
    tx.execute(sql::unique::SET, &[&kind, &unique.key, &id.0]).await.map(drop)
}
