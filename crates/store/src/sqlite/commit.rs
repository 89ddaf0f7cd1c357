//! Commits: writing the changes of attempts.
//!
//! The step of a job's journey in which its attempt's outcome becomes durable. Each change is applied or refused by
//! itself; see [`super::consequences`].

use windlass_model::{Change, CommitOutcome, Time};

use super::{
    Sqlite,
    consequences::{apply, explain_unapplied},
    names::Name,
    rate::{self, Buckets},
    tx::Tx,
};
use crate::{Error, Now};

/// What was checked of a change before the transaction: the rate limits of the jobs it submits, or why it is refused.
pub(super) type Checked = Result<Buckets, String>;

/// Commits a batch in one transaction. Each change gets a savepoint only if the batch failed without: refusals are
/// rare, and a savepoint around every change would cost more than the change.
pub(super) async fn commit(
    store: &Sqlite,
    now: Now,
    changes: &[Change],
) -> Result<Vec<CommitOutcome>, Error> {
    let checked =
        changes.iter().map(|change| check(store, change, || rate::check(store, change.submitted_jobs())));
    let checked = checked.collect::<Result<Vec<_>, _>>()?;
    let batch: Vec<_> = changes.iter().zip(&checked).collect();
    store.intern(lanes(&batch).into_iter()).await?;
    let size = changes.iter().map(|change| 1 + change.submitted_jobs().count()).sum();
    let together = store
        .write(size, |tx| {
            batch.iter().map(|(change, checked)| apply(tx, tx.now(now), change, checked)).collect()
        })
        .await;
    match together {
        Err(Error::Refused(_)) => store.write(size, |tx| one_by_one(tx, now, &batch)).await,
        result => result,
    }
}

/// The lanes of the jobs that a batch submits.
fn lanes<'a>(batch: &[(&'a Change, &'a Checked)]) -> Vec<Name<'a>> {
    let mut lanes = Vec::new();
    for (change, checked) in batch {
        if let Ok(buckets) = checked {
            lanes.extend(
                change
                    .submitted_jobs()
                    .map(|job| (job.queue.as_str(), &job.kind, rate::bucket_of(job, buckets))),
            );
        }
    }
    lanes
}

/// Commits one change within an open transaction, unless it was committed before. Sets `added_lanes` if lanes were
/// added that must be read after the commit.
pub(super) fn commit_in(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    added_lanes: &mut bool,
) -> Result<CommitOutcome, Error> {
    let checked = check(tx.store, change, || rate::check_in(tx, change.submitted_jobs()))?;
    let known = &tx.store.shared.lanes;
    for name in lanes(&[(change, &checked)]) {
        if known.get_in(name.0, name.1, name.2).is_none() {
            tx.intern(name)?;
            *added_lanes = true;
        }
    }
    if checked.is_ok() && !explain_unapplied(tx, change)?.is_some_and(|unapplied| unapplied.is_open) {
        return Ok(CommitOutcome::Fenced);
    }
    apply(tx, now, change, &checked)
}

/// Checks a change; `rates` checks the rate limits of the jobs it submits.
fn check(
    store: &Sqlite,
    change: &Change,
    rates: impl FnOnce() -> Result<Buckets, Error>,
) -> Result<Checked, Error> {
    if let Err(invalid) = store.shared.options.limits.check_change(change) {
        return Ok(Err(invalid.to_string()));
    }
    match rates() {
        Err(Error::Invalid(invalid)) => Ok(Err(invalid.to_string())),
        buckets => buckets.map(Ok),
    }
}

/// Applies the changes with a savepoint around each: what the database refuses for its data fails alone.
fn one_by_one(tx: &Tx<'_>, now: Now, batch: &[(&Change, &Checked)]) -> Result<Vec<CommitOutcome>, Error> {
    let mut outcomes = Vec::with_capacity(batch.len());
    for (change, checked) in batch {
        tx.execute("savepoint change", [])?;
        let outcome = match apply(tx, tx.now(now), change, checked) {
            Err(Error::Refused(why)) => {
                tx.execute("rollback to change", [])?;
                tx.counts.take();
                tx.job_counts.take();
                tx.recorded.take();
                CommitOutcome::Refused(why)
            }
            result => result?,
        };
        // Counts are part of the change.
        tx.settle_counts()?;
        tx.write_job_counts()?;
        tx.append_recorded()?;
        tx.execute("release change", [])?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
