//! Applying one change, with all that follows from it.

use rusqlite::params;
use windlass_model::{Change, NewJob, Outcome, Rev, Time, Verdict, Wait};

use super::{
    branch_update,
    commit::Checked,
    rate::Buckets,
    serial::Placement,
    sql,
    step::{wait, write},
    submit::put,
    tx::Tx,
};
use crate::Error;

/// A job whose change was not written at once.
pub(super) struct Found {
    /// Whether it was written before.
    repeated: bool,
    /// Whether epoch and rev are those of the change.
    pub(super) open: bool,
    /// Whether it is claimed under the epoch of the change.
    claimed: bool,
    spot: Placement,
}

impl Found {
    /// What is to be said of a change that was written before its answer was lost; `None` if it was not.
    fn repeated(&self, change: &Change) -> Option<Verdict> {
        let next = change.outcome == Outcome::Next;
        match (self.repeated, next, self.claimed) {
            (false, ..) => None,
            (true, true, false) => Some(Verdict::Halted),
            // What its claim wrote was another change: this one would have ended the claim.
            (true, false, true) => None,
            _ => Some(Verdict::Committed),
        }
    }
}

pub(super) fn find(tx: &Tx<'_>, change: &Change) -> Result<Option<Found>, Error> {
    let (worker, claim) = (change.worker.0, change.claim.0);
    let params = params![change.job.as_bytes(), change.epoch.0, change.rev.0, worker, claim];
    tx.one(sql::commit::EXPLAIN_UNAPPLIED, params, |row| {
        let (repeated, open, claimed) = (row.get::<_, Option<bool>>(0)?, row.get(1)?, row.get(2)?);
        Ok(Found {
            repeated: repeated == Some(true),
            open,
            claimed,
            spot: Placement::read(change.job, row, 3)?,
        })
    })
}

/// Applies one change. Most jobs have nothing hanging on them: the statements pass over those that are held, have a
/// serial key or a parent that waits, or large data to be forgotten, and only when nothing was written is it looked why.
pub(super) fn apply(tx: &Tx<'_>, now: Time, change: &Change, checked: &Checked) -> Result<Verdict, Error> {
    let buckets = match checked {
        Ok(buckets) => buckets,
        Err(why) => return Ok(Verdict::Refused(why.clone())),
    };
    if !tx.knows(change.worker, change.claim)? {
        let found = find(tx, change)?;
        return Ok(found.and_then(|found| found.repeated(change)).unwrap_or(Verdict::Fenced));
    }
    let ties = change.outcome.ends() && (change.is_serial || change.parent.is_some());
    let step = change.step.as_deref();
    let bears = step.is_some_and(|step| !step.children.is_empty() || branch_update::concerns(step));
    let unwinds = step.is_some_and(|step| step.unwind.is_some());
    if let Some(step) = step.filter(|_| bears || unwinds)
        && let Some(found) = find(tx, change)?.filter(|found| found.open)
    {
        if let Some(why) = branch_update::refusal(tx, change, step)? {
            return Ok(Verdict::Refused(why));
        }
        if unwinds {
            tx.release_holds(&found.spot)?;
        }
    }
    if !ties && !bears && write(tx, now, change, false)? {
        change.branch_member.map_or(Ok(()), |counted| tx.member_wrote(now, change, counted))?;
        if change.outcome != Outcome::Next {
            tx.leaves((change.worker, change.claim));
        }
        return Ok(Verdict::Committed);
    }
    let Some(found) = find(tx, change)? else { return Ok(Verdict::Fenced) };
    if let Some(verdict) = found.repeated(change) {
        return Ok(verdict);
    }
    if !found.open {
        return Ok(Verdict::Fenced);
    }
    let halts = change.outcome == Outcome::Next && found.spot.hold.is_some();
    let mut spot = found.spot;
    let ends = change.outcome.ends();
    if let Some(step) = step {
        tx.update(now, change, step)?;
    }
    if spot.in_branch {
        tx.member_writes(now, change, buckets)?;
    }
    if bears && !ends {
        spawn_children(tx, now, change, buckets)?;
    }
    if bears {
        // A child that takes the place of another job may have told this very one to end, and it may have branches now.
        spot = find(tx, change)?.map_or(spot, |found| found.spot);
    }
    if halts {
        wait(tx, now, change, &Wait::YIELD, true)?;
    } else {
        write(tx, now, change, true)?;
    }
    if ends {
        tx.clear(now, &spot)?;
        // The names of a job that ends are free for its children.
        if bears {
            spawn_children(tx, now, change, buckets)?;
        }
    }
    if halts || change.outcome != Outcome::Next {
        tx.leaves((change.worker, change.claim));
    }
    Ok(if halts { Verdict::Halted } else { Verdict::Committed })
}

/// Puts the children of a step in, as by a submit, and counts those of branches.
fn spawn_children(tx: &Tx<'_>, now: Time, change: &Change, buckets: &Buckets) -> Result<(), Error> {
    let Some(step) = &change.step else { return Ok(()) };
    let round = if step.signal_child_ends { Rev::SIGNALLED } else { Rev(change.rev.0 + 1) };
    let parent = Some(change.job);
    let child = |child: &NewJob| {
        let round = Some(round).filter(|_| child.branch_position.is_none());
        NewJob { parent, parent_rev: round, ..child.clone() }
    };
    let children: Vec<NewJob> = step.children.iter().map(child).collect();
    if change.outcome.progresses() && step.stage.is_some() {
        let params = params![change.job.as_bytes(), change.rev.0 + 1];
        tx.run(sql::commit::RESET_PENDING_CHILDREN, params)?;
    }
    let put = put(tx, now, &children, buckets, None)?;
    tx.spawned(now, change, step, &put)
}

/// Writes how the first attempt at an item of a block ended, which has just become a job: it has nothing hanging on it but its
/// branch.
pub(super) fn first(tx: &Tx<'_>, now: Time, change: &Change) -> Result<(), Error> {
    if !write(tx, now, change, false)? {
        return Err(Error::Refused(format!("the job {} was there before its first attempt", change.job)));
    }
    change.branch_member.map_or(Ok(()), |counted| tx.member_wrote(now, change, counted))
}
