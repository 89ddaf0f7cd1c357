//! Applying one change, with all that depends on it: children, branches, serial slots, waiting parents.

use rusqlite::params;
use windlass_model::{Change, CommitOutcome, NewJob, Outcome, Time, Wait};

use super::{
    branch_update,
    commit::Checked,
    rate::Buckets,
    serial::Placement,
    sql,
    step::{wait, write},
    submit::insert_jobs,
    tx::Tx,
};
use crate::Error;

/// Why the update of a change changed no row.
pub(super) struct Unapplied {
    /// Whether the change was written before.
    is_repeated: bool,
    /// Whether epoch and revision are those of the change.
    pub(super) is_open: bool,
    /// Whether the job is claimed under the epoch of the change.
    is_claimed: bool,
    placement: Placement,
}

impl Unapplied {
    /// The outcome of a change that was written before its answer was lost; `None` if it was not.
    fn repeated_outcome(&self, change: &Change) -> Option<CommitOutcome> {
        self.is_repeated.then(|| change.outcome.repeated(self.is_claimed))
    }
}

/// Reads why a change was not, or will not be, written; `None` if the job does not exist.
pub(super) fn explain_unapplied(tx: &Tx<'_>, change: &Change) -> Result<Option<Unapplied>, Error> {
    let (worker, claim) = (change.worker.0, change.claim.0);
    let params = params![change.job.as_bytes(), change.epoch.0, change.rev.0, worker, claim];
    tx.query_one(sql::commit::EXPLAIN_UNAPPLIED, params, |row| {
        let (is_repeated, is_open, is_claimed) = (row.get::<_, Option<bool>>(0)?, row.get(1)?, row.get(2)?);
        Ok(Unapplied {
            is_repeated: is_repeated == Some(true),
            is_open,
            is_claimed,
            placement: Placement::read(change.job, row, 3)?,
        })
    })
}

/// Applies one change. On most jobs nothing depends: the updates skip jobs that are held, have a serial key, a
/// waiting parent or external data to delete, and only if nothing was written is the reason looked up.
pub(super) fn apply(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    checked: &Checked,
) -> Result<CommitOutcome, Error> {
    let buckets = match checked {
        Ok(buckets) => buckets,
        Err(why) => return Ok(CommitOutcome::Refused(why.clone())),
    };
    if !tx.is_recorded(change.worker, change.claim)? {
        let unapplied = explain_unapplied(tx, change)?;
        return Ok(unapplied
            .and_then(|unapplied| unapplied.repeated_outcome(change))
            .unwrap_or(CommitOutcome::Fenced));
    }
    let has_dependents = change.outcome.ends() && (change.is_serial || change.parent.is_some());
    let step = change.writes.as_deref();
    let submits_jobs =
        step.is_some_and(|step| !step.children.is_empty() || branch_update::updates_branches(step));
    let starts_unwind = step.is_some_and(|step| step.unwind.is_some());
    if let Some(step) = step.filter(|_| submits_jobs || starts_unwind)
        && let Some(unapplied) = explain_unapplied(tx, change)?.filter(|unapplied| unapplied.is_open)
    {
        if let Some(why) = branch_update::refusal(tx, change, step)? {
            return Ok(CommitOutcome::Refused(why));
        }
        if starts_unwind {
            tx.release_holds(&unapplied.placement)?;
        }
    }
    if !has_dependents && !submits_jobs && write(tx, now, change, false)? {
        change
            .branch_member
            .map_or(Ok(()), |branch_member| tx.count_member_change(now, change, branch_member))?;
        if change.outcome != Outcome::Next {
            tx.note_left_claim((change.worker, change.claim));
        }
        return Ok(CommitOutcome::Committed);
    }
    let Some(unapplied) = explain_unapplied(tx, change)? else { return Ok(CommitOutcome::Fenced) };
    if let Some(outcome) = unapplied.repeated_outcome(change) {
        return Ok(outcome);
    }
    if !unapplied.is_open {
        return Ok(CommitOutcome::Fenced);
    }
    let is_halted = change.outcome.halts(unapplied.placement.hold.is_some());
    let mut placement = unapplied.placement;
    let ends = change.outcome.ends();
    if let Some(step) = step {
        tx.update_branches(now, change, step)?;
    }
    if placement.in_branch {
        tx.write_member_items(now, change, buckets)?;
    }
    if submits_jobs && !ends {
        spawn_children(tx, now, change, buckets)?;
    }
    if submits_jobs {
        // A child that replaces the holder of its unique name may have requested this very job to end; and the job
        // may have branches now.
        placement = explain_unapplied(tx, change)?.map_or(placement, |unapplied| unapplied.placement);
    }
    if is_halted {
        wait(tx, now, change, &Wait::YIELD, true)?;
    } else {
        write(tx, now, change, true)?;
    }
    if ends {
        tx.after_end(now, &placement)?;
        // The unique names of a job that ends are free for its children.
        if submits_jobs {
            spawn_children(tx, now, change, buckets)?;
        }
    }
    if is_halted || change.outcome != Outcome::Next {
        tx.note_left_claim((change.worker, change.claim));
    }
    Ok(if is_halted { CommitOutcome::Halted } else { CommitOutcome::Committed })
}

/// Submits the children of a step, and counts those of branches.
fn spawn_children(tx: &Tx<'_>, now: Time, change: &Change, buckets: &Buckets) -> Result<(), Error> {
    let Some(step) = &change.writes else { return Ok(()) };
    let children: Vec<NewJob> = step.children.iter().map(|job| change.child(job)).collect();
    if change.outcome.progresses() && step.stage.is_some() {
        let params = params![change.job.as_bytes(), change.rev.0 + 1];
        tx.execute(sql::commit::RESET_PENDING_CHILDREN, params)?;
    }
    let outcomes = insert_jobs(tx, now, &children, buckets, None)?;
    tx.count_spawned(now, change, step, &outcomes)
}

/// Writes how the first attempt at a promoted item ended. The item has just become a job, on which nothing but its
/// branch depends.
pub(super) fn write_first_attempt(tx: &Tx<'_>, now: Time, change: &Change) -> Result<(), Error> {
    if !write(tx, now, change, false)? {
        return Err(Error::Refused(format!(
            "job {} exists already, before its first attempt was written",
            change.job
        )));
    }
    change.branch_member.map_or(Ok(()), |branch_member| tx.count_member_change(now, change, branch_member))
}
