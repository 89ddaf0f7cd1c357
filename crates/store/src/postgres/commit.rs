//! Writing the changes of attempts.
//!
//! A batch of one kind is one statement, which needs no transaction around it. Otherwise all statements are pipelined in one
//! transaction, unless later ones depend on what was written: see [`super::consequences`].

use std::{collections::HashMap, pin::Pin};

use futures_util::future::{join, join5};
use uuid::Uuid;
use windlass_model::{Change, CommitOutcome, JobId};

use super::{
    Postgres, branch,
    change_params::{Base, Param},
    conn::{Conn, retry_deadlock},
    consequences::{Group, has_consequences, makes_ready, parks, write_groups},
    errors::PgError,
    journal::JournalWrites,
    names::Names,
    serial, sql,
    step::{ChangeBatches, ChangeKind, Written},
    tx::{Executor, Tx},
    wait::{self, LOCK_JOBS, WAKE},
};
use crate::{Error, Now, columns::DEADLINE};

/// Commits a batch. If the database refuses its data, it is halved until the bad change is alone; the others commit.
pub(super) async fn commit(
    store: &Postgres,
    now: Now,
    changes: &[Change],
) -> Result<Vec<CommitOutcome>, Error> {
    let mut outcomes = vec![CommitOutcome::Fenced; changes.len()];
    let mut names = Names::default();
    let mut batch: Vec<Indexed> = Vec::with_capacity(changes.len());
    for (index, change) in changes.iter().enumerate() {
        match refusal(store, change, &mut names).await? {
            Some(why) => outcomes[index] = CommitOutcome::Refused(why),
            None => batch.push((index, change)),
        }
    }
    if !batch.is_empty() {
        bisect(store, now, &batch, &names, &mut outcomes).await?;
    }
    Ok(outcomes)
}

/// Returns why a change can never be written, if so; otherwise adds the names of its children to `names`.
pub(super) async fn refusal(
    store: &Postgres,
    change: &Change,
    names: &mut Names,
) -> Result<Option<String>, Error> {
    if let Err(invalid) = store.shared.options.limits.check_change(change) {
        return Ok(Some(invalid.to_string()));
    }
    let Some(step) = &change.writes else { return Ok(None) };
    for jobs in [&step.children, &step.promoted].into_iter().filter(|jobs| !jobs.is_empty()) {
        match Names::of(store, jobs).await.map_err(Error::from) {
            Ok(known) => names.extend(known),
            Err(Error::Invalid(invalid)) => return Ok(Some(invalid.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A change, with its index in the call.
pub(super) type Indexed<'a> = (usize, &'a Change);

fn bisect<'a>(
    store: &'a Postgres,
    now: Now,
    batch: &'a [Indexed<'a>],
    names: &'a Names,
    outcomes: &'a mut [CommitOutcome],
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
    Box::pin(async move {
        match (retry_deadlock!(commit_batch(store, now, batch, names)), batch) {
            (Ok(applied), _) => {
                for (index, change) in batch {
                    if let Some(outcome) = applied.get(&change.job) {
                        outcomes[*index] = outcome.clone();
                    }
                }
                Ok(())
            }
            (Err(Error::Refused(why)), [(index, _)]) => {
                outcomes[*index] = CommitOutcome::Refused(why);
                Ok(())
            }
            (Err(Error::Refused(_)), _) => {
                let (left, right) = batch.split_at(batch.len() / 2);
                bisect(store, now, left, names, &mut *outcomes).await?;
                bisect(store, now, right, names, &mut *outcomes).await
            }
            (Err(error), _) => Err(error),
        }
    })
}

/// Commits all of a batch or nothing of it. Returns the outcomes of the changes that are committed, now or before.
async fn commit_batch(
    store: &Postgres,
    now: Now,
    batch: &[Indexed<'_>],
    names: &Names,
) -> Result<HashMap<JobId, CommitOutcome>, PgError> {
    let changes = || batch.iter().map(|(_, change)| *change);
    let mut groups = Group::split(batch);
    let Group { batches, journal_writes, .. } = groups.first_mut().expect("the batch has changes");
    let parked: Vec<Uuid> = changes().filter(|change| parks(change)).map(|change| change.job.0).collect();
    let counts = changes().any(Change::is_counted);
    // Ends of children of branches are counted by the statement that writes them, if it is the only one.
    let has_consequences =
        changes().any(has_consequences) || (counts && !(journal_writes.is_empty() && batches.count_ends()));

    let mut conn = store.conn().await?;
    let written = if has_consequences {
        write_groups(store, &mut conn, now, &groups, names).await?
    } else if counts {
        write_counted(store, &mut conn, now, batches, &branch::branches_of_ends(changes())).await?
    } else {
        let written = match batches.kinds() > 1 || !parked.is_empty() || !journal_writes.is_empty() {
            true => write_pipelined(&mut conn, now, batches, journal_writes, &parked).await?,
            false => batches.write(Executor::Conn(&conn), now).await?,
        };
        // Few steps find their job paused: its serial slot is filled afterwards. After a crash, `repair` fills it.
        let unsettled: Vec<Uuid> = written.iter().filter(|one| one.frees_slot).map(|one| one.id.0).collect();
        serial::settle_alone(&mut conn, &unsettled).await?;
        written
    };
    let returns =
        |group: &Group<'_>| group.batches.has(ChangeKind::Retry) || group.batches.has(ChangeKind::Park);
    if groups.iter().any(returns) || changes().any(makes_ready) {
        store.shared.floors.lowered(i64::MIN);
    }
    let written: HashMap<JobId, Written> = written.into_iter().map(|one| (one.id, one)).collect();
    clean_up(Executor::Conn(&conn), now, &written, batch, !has_consequences).await?;
    let mut outcomes: HashMap<JobId, CommitOutcome> = HashMap::with_capacity(batch.len());
    for (_, change) in batch {
        if let Some(written) = written.get(&change.job) {
            outcomes.insert(change.job, outcome_of(change, written));
        }
    }
    if outcomes.len() < batch.len() {
        explain_unapplied(&conn, batch, &mut outcomes).await?;
    }
    Ok(outcomes)
}

/// Writes ends of children of branches by one statement, which also counts them, and checks the watches of the branches after
/// its commit: one round trip.
async fn write_counted(
    store: &Postgres,
    conn: &mut Conn,
    now: Now,
    batches: &ChangeBatches<'_>,
    branches: &[branch::BranchKey],
) -> Result<Vec<Written>, PgError> {
    let alone = Executor::Conn(conn);
    batches.prepare(alone).await?;
    alone.prepare(sql::branches::READ_COUNTS).await?;
    let (written, met) = join(batches.write(alone, now), branch::find_met(alone, branches)).await;
    let written = written?;
    branch::notify_met(store, conn, now, met).await;
    Ok(written)
}

/// Writes a batch of which no statement depends on the answer of another: one round trip.
async fn write_pipelined(
    conn: &mut Conn,
    now: Now,
    batches: &ChangeBatches<'_>,
    journal_writes: &JournalWrites<'_>,
    parked: &[Uuid],
) -> Result<Vec<Written>, PgError> {
    batches.prepare(Executor::Conn(conn)).await?;
    journal_writes.prepare(Executor::Conn(conn)).await?;
    for sql in [LOCK_JOBS, WAKE] {
        conn.prepare(sql).await?;
    }
    // Each statement locks jobs by id. With several statements, all jobs are locked first.
    let ids = if batches.kinds() > 1 || !journal_writes.is_empty() { batches.ids() } else { Vec::new() };
    let tx = Tx::pipelined(conn);
    // Polled, and so sent, in this order. If one fails, those after it do nothing, and the last one rolls back.
    let (begun, locked, written, woken, committed) = join5(
        tx.begin(),
        wait::lock_jobs(&tx, &ids),
        join(journal_writes.write(&tx), batches.write(Executor::Tx(&tx), now)),
        wait::wake(&tx, now, parked),
        tx.commit(),
    )
    .await;
    begun?;
    locked?;
    written.0?;
    let written = written.1?;
    woken?;
    committed?;
    Ok(written)
}

/// Writes one change, with all its consequences, in a transaction. `None` if its claim is outdated, or if it was written before.
pub(super) async fn commit_in(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Now,
    change: &Change,
    names: &Names,
) -> Result<Option<CommitOutcome>, PgError> {
    let group = Group::of(vec![(0, change)]);
    group.prepare(Executor::Tx(tx)).await?;
    let written = group.write(store, tx, now, names).await?;
    let Some(one) = written.first() else { return Ok(None) };
    clean_up(Executor::Tx(tx), now, &HashMap::from([(one.id, *one)]), &group.changes, false).await?;
    Ok(Some(outcome_of(change, one)))
}

/// The outcome of a change that was written.
fn outcome_of(change: &Change, written: &Written) -> CommitOutcome {
    if change.outcome.halts(written.held) { CommitOutcome::Halted } else { CommitOutcome::Committed }
}

/// Deletes the holds and deadlines of jobs that have ended; with `end_watches`, also ends the watches of their branches. It may
/// follow the commit: on jobs that have ended, what a crash leaves of them has no effect.
async fn clean_up(
    executor: Executor<'_>,
    now: Now,
    written: &HashMap<JobId, Written>,
    batch: &[Indexed<'_>],
    end_watches: bool,
) -> Result<(), PgError> {
    let ends = batch.iter().map(|(_, change)| *change).filter(|change| change.outcome.ends());
    let ends: Vec<(&Change, &Written)> =
        ends.filter_map(|change| Some((change, written.get(&change.job)?))).collect();
    let held: Vec<Uuid> =
        ends.iter().filter(|(_, written)| written.held).map(|(change, _)| change.job.0).collect();
    if !held.is_empty() {
        executor.execute(sql::control::CLEAR_HOLDS, &[&held]).await?;
        if end_watches {
            branch::parents_ended(executor, now, &held).await?;
        }
    }
    let deadline = |(change, _): &(&Change, &Written)| Some((change.deadline_at?.micros(), change.job.0));
    let (at, ids): (Vec<i64>, Vec<Uuid>) = ends.iter().filter_map(deadline).unzip();
    if !at.is_empty() {
        executor.execute(sql::timers::REMOVE, &[&at, &ids, &DEADLINE]).await?;
    }
    Ok(())
}

/// Finds the outcomes of changes that were not written now because they were written before and the answer was lost.
async fn explain_unapplied(
    conn: &Conn,
    batch: &[Indexed<'_>],
    outcomes: &mut HashMap<JobId, CommitOutcome>,
) -> Result<(), PgError> {
    let missing: HashMap<JobId, &Change> = batch
        .iter()
        .map(|(_, change)| (change.job, *change))
        .filter(|(job, _)| !outcomes.contains_key(job))
        .collect();
    let base = Base::new(&missing.values().copied().collect::<Vec<_>>());
    let params: [Param<'_>; 5] = [&base.id, &base.epoch, &base.rev, &base.worker, &base.claim];
    let rows = conn.query(sql::commit::EXPLAIN_UNAPPLIED, &params).await?;
    for row in rows {
        let (id, claimed) = (JobId(row.get(0)), row.get::<_, bool>(1));
        outcomes.insert(id, missing[&id].outcome.repeated(claimed));
    }
    Ok(())
}
