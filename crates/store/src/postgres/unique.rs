//! Unique names: taken by a submit or a retry; whether the last taker has one still is seen when someone asks.

use windlass_model::{Change, Conflict, JobId, NewJob, State, SubmitOutcome, Time, Unique};

use super::{
    Postgres, SPAN, change_params::Param, control, job_actions, names::Names, pool::Guard, sql, wait,
};
use crate::{Error, Now, columns, control::outcome};

/// The job that has a unique name, and where it stands.
struct Namesake {
    id: JobId,
    digest: Vec<u8>,
    /// Where it stands, or stood when its change submitted the one that asks.
    state: State,
    /// Whether its change has been written since, and has ended its claim.
    has_gone_on: bool,
}

/// What came of taking a name for a job.
pub(super) enum NameOutcome {
    /// It has it; `Some` is the job that was cancelled for it.
    It(Option<JobId>),
    /// It has not, and this is the answer.
    Not(SubmitOutcome),
}

/// Takes a job's unique name, within the transaction that put the job in. Live jobs in
/// `runs` are taken for running, wherever they are by now.
pub(super) async fn take(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Time,
    job: &NewJob,
    kind: i32,
    runs: &[JobId],
) -> Result<NameOutcome, Error> {
    let Some(unique) = &job.settings.unique else { return Ok(NameOutcome::It(None)) };
    let Some(namesake) = ask(conn, now, kind, unique, job.id, runs).await? else {
        return Ok(NameOutcome::It(None));
    };
    let id = namesake.id;
    let same_input = namesake.digest == job.digest;
    match unique.conflict {
        Conflict::Keep => return Ok(NameOutcome::Not(SubmitOutcome::Existing { id, same_input })),
        Conflict::Reject => return Ok(NameOutcome::Not(SubmitOutcome::Rejected { id })),
        Conflict::Replace if runs.contains(&id) && namesake.state == State::Running => {
            return Ok(NameOutcome::Not(SubmitOutcome::Rejected { id }));
        }
        // It may have been claimed since it was looked at: what decides is what it is once it is locked.
        Conflict::Replace => {
            let by = outcome::replaced(job.id);
            if !job_actions::cancel_waiting(store, conn, now, id, &by).await? {
                return Ok(NameOutcome::Not(SubmitOutcome::Rejected { id }));
            }
        }
        // It was told before its change was written.
        Conflict::CancelAndReplace if namesake.has_gone_on => {}
        Conflict::CancelAndReplace => {
            job_actions::cancel(store, conn, now, &[id], columns::GRACE, &outcome::replaced(job.id)).await?;
        }
    }
    give(conn, kind, unique, job.id).await?;
    Ok(NameOutcome::It(Some(id)))
}

/// Tells a job to end whose change submits one that is to take its name: before the change is written, as it runs. The change then
/// finds that, whatever it does next.
pub(super) async fn signal_parent(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    change: &Change,
    names: &Names,
) -> Result<(), Error> {
    let Some(step) = change.step.as_deref() else { return Ok(()) };
    for job in step.promoted.iter().chain(&step.children) {
        let Some(Unique { key, conflict: Conflict::CancelAndReplace, .. }) = job.settings.unique.as_deref()
        else {
            continue;
        };
        let kind = names.lane(store, job)?.kind_id;
        wait::lock(conn, &[change.job.0]).await?;
        conn.query(sql::unique::LOCK, &[&kind, key]).await?;
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
        let rows = conn.query(sql::unique::HELD_BY_PARENT, &params).await?;
        let Some(row) = rows.first() else { continue };
        let now = control::clock(conn, now).await?;
        let mine = columns::settings(row.get(1)).unique;
        if mine.is_some_and(|mine| mine.holds(State::Running, Time(row.get(0)), now)) {
            let by = outcome::replaced(job.id);
            job_actions::cancel(store, conn, now, &[change.job], columns::GRACE, &by).await?;
            break;
        }
    }
    Ok(())
}

/// Takes the name of a job that comes back to life; answers who has it if another job has.
pub(super) async fn retake(
    conn: &Guard<'_>,
    now: Time,
    kind: i32,
    unique: &Unique,
    id: JobId,
) -> Result<Option<JobId>, Error> {
    Ok(ask(conn, now, kind, unique, id, &[]).await?.map(|namesake| namesake.id))
}

/// Takes the name if nobody has it; otherwise locks it and answers who has.
async fn ask(
    conn: &Guard<'_>,
    now: Time,
    kind: i32,
    unique: &Unique,
    id: JobId,
    runs: &[JobId],
) -> Result<Option<Namesake>, Error> {
    if conn.execute(sql::unique::TAKE, &[&kind, &unique.key, &id.0]).await? == 1 {
        return Ok(None);
    }
    // In statements of their own: the one before could not see what it waited for.
    let rows = conn.query(sql::unique::LOCK, &[&kind, &unique.key]).await?;
    let holder = rows.first().map(|row| row.get::<_, uuid::Uuid>(0));
    if let Some(holder) = holder.filter(|holder| *holder != id.0) {
        let rows = conn.query(sql::control::READ_STATE, &[&SPAN, &holder]).await?;
        for row in rows {
            let now_in = match columns::final_state(row.get(1)) {
                Some(state) => state,
                None if row.get(7) => State::Waiting,
                None if row.get(2) => State::Ready,
                None if row.get(3) => State::Scheduled,
                None => State::Running,
            };
            let has_gone_on = runs.contains(&JobId(holder)) && !now_in.is_final() && now_in != State::Running;
            let state = if has_gone_on { State::Running } else { now_in };
            let theirs = columns::settings(row.get(5)).unique;
            if theirs.is_some_and(|theirs| theirs.holds(state, Time(row.get(4)), now)) {
                return Ok(Some(Namesake { id: JobId(row.get(0)), digest: row.get(6), state, has_gone_on }));
            }
        }
    }
    if holder.is_none() {
        // Pruned between the two statements.
        return Err(Error::Unavailable("the job with this unique name is being pruned; try again".into()));
    }
    give(conn, kind, unique, id).await?;
    Ok(None)
}

async fn give(conn: &Guard<'_>, kind: i32, unique: &Unique, id: JobId) -> Result<(), Error> {
    conn.execute(sql::unique::SET, &[&kind, &unique.key, &id.0]).await.map(drop)
}
