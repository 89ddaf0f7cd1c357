//! Writing what attempts ask for.

use std::{collections::HashSet, pin::Pin};

use windlass_model::{Change, JobId, Outcome, Time, Verdict};

use super::{Postgres, SPAN, conn::Guard, micros, serial, span};
use crate::{
    Error, Now,
    pick::{self, CANCELLED, DEADLINE, FAILED},
};

/// Commits a batch. If the database refuses it for its data, it is halved until the bad change stands alone; the
/// others commit.
pub(super) async fn commit(store: &Postgres, now: Now, changes: &[Change]) -> Result<Vec<Verdict>, Error> {
    let mut verdicts = vec![Verdict::Fenced; changes.len()];
    let mut batch = Vec::with_capacity(changes.len());
    for (place, change) in changes.iter().enumerate() {
        match too_large(store, change) {
            Some(why) => verdicts[place] = Verdict::Refused(why),
            None => batch.push((place, change)),
        }
    }
    batch.sort_by_key(|(_, change)| change.job);
    bisect(store, now, &batch, &mut verdicts).await?;
    Ok(verdicts)
}

fn too_large(store: &Postgres, change: &Change) -> Option<String> {
    let Outcome::Done(output) = &change.outcome else { return None };
    store.shared.options.limits.check_payload("output", &output.bytes).err().map(|e| e.to_string())
}

/// A change and its place among those asked for.
type Placed<'a> = (usize, &'a Change);

fn bisect<'a>(
    store: &'a Postgres,
    now: Now,
    batch: &'a [Placed<'a>],
    verdicts: &'a mut [Verdict],
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
    Box::pin(async move {
        match (whole(store, now, batch).await, batch) {
            (Ok(committed), _) => {
                for (place, change) in batch {
                    if committed.contains(&change.job) {
                        verdicts[*place] = Verdict::Committed;
                    }
                }
                Ok(())
            }
            (Err(Error::Refused(why)), [(place, _)]) => {
                verdicts[*place] = Verdict::Refused(why);
                Ok(())
            }
            (Err(Error::Refused(_)), _) => {
                let (left, right) = batch.split_at(batch.len() / 2);
                bisect(store, now, left, &mut *verdicts).await?;
                bisect(store, now, right, &mut *verdicts).await
            }
            (Err(error), _) => Err(error),
        }
    })
}

/// Commits all of a batch or nothing of it; answers which changes are now, or were before, committed.
async fn whole(store: &Postgres, now: Now, batch: &[Placed<'_>]) -> Result<HashSet<JobId>, Error> {
    let sort = |wanted: fn(&Outcome) -> bool| -> Vec<&Change> {
        batch.iter().map(|(_, change)| *change).filter(|change| wanted(&change.outcome)).collect()
    };
    let done = sort(|outcome| matches!(outcome, Outcome::Done(_)));
    let ended = sort(|outcome| matches!(outcome, Outcome::Failed { .. } | Outcome::Cancelled(_)));
    let again = sort(|outcome| matches!(outcome, Outcome::Retry { .. }));
    let sorts =
        [!done.is_empty(), !ended.is_empty(), !again.is_empty()].into_iter().filter(|there| *there).count();

    let conn = store.conn().await?;
    // A batch of one sort is one statement, which needs no brackets; otherwise they are sent together.
    let tied: Vec<uuid::Uuid> =
        batch.iter().filter(|(_, change)| change.tied).map(|(_, change)| change.job.0).collect();
    let bracketed = sorts > 1 || !tied.is_empty();
    let work = async {
        let begin = async { if bracketed { conn.begin().await } else { Ok(()) } };
        // Polled in this order, so `begin` is sent first and none waits for the answer of another. All answers are
        // looked at: a statement after the one that failed says only that the transaction is over.
        let (begun, a, b, c) = futures_util::future::join4(
            begin,
            write_done(&conn, now, &done),
            write_ended(&conn, now, &ended),
            write_again(&conn, now, &again),
        )
        .await;
        begun?;
        let [a, b, c] = first_cause([a, b, c])?;
        // Slots are handed over in the commit that frees them.
        serial::settle(&conn, &tied).await?;
        if bracketed {
            conn.commit().await?;
        }
        Ok::<_, Error>([a, b, c].concat())
    };
    let wrote = match work.await {
        Ok(wrote) => wrote,
        Err(error) => {
            if bracketed {
                conn.rollback().await;
            }
            return Err(error);
        }
    };
    if !again.is_empty() || !tied.is_empty() {
        store.shared.floors.lowered(i64::MIN);
    }
    let held: Vec<uuid::Uuid> = wrote.iter().filter(|(_, held)| *held).map(|(id, _)| id.0).collect();
    if !held.is_empty() {
        // What a crash leaves of these says nothing of a job that has ended.
        conn.execute(include_str!("sql/act_clear.sql"), &[&held]).await?;
    }
    let mut committed: HashSet<JobId> = wrote.into_iter().map(|(id, _)| id).collect();
    forget_deadlines(&conn, done.iter().chain(&ended).filter(|change| committed.contains(&change.job)))
        .await?;
    if committed.len() < batch.len() {
        committed.extend(seen(&conn, batch, &committed).await?);
    }
    Ok(committed)
}

/// All answers, or the error that came first: one that blames the transaction was caused by another.
fn first_cause<T, const N: usize>(answers: [Result<T, Error>; N]) -> Result<[T; N], Error> {
    let caused = |error: &Error| matches!(error, Error::Fault(text) if text.ends_with("(25P02)"));
    let mut good = Vec::with_capacity(N);
    let mut bad = Vec::new();
    for answer in answers {
        match answer {
            Ok(answer) => good.push(answer),
            Err(error) => bad.push(error),
        }
    }
    let first = bad.iter().position(|error| !caused(error)).unwrap_or(0);
    match bad.into_iter().nth(first) {
        Some(error) => Err(error),
        None => Ok(good.try_into().unwrap_or_else(|_| unreachable!("all were good"))),
    }
}

/// The jobs that a statement wrote, and whether something is kept of a pause or an order.
fn wrote(rows: Vec<tokio_postgres::Row>) -> Vec<Wrote> {
    rows.iter().map(|row| (JobId(row.get(0)), row.get(1))).collect()
}

type Wrote = (JobId, bool);

async fn write_done(conn: &Guard<'_>, now: Now, changes: &[&Change]) -> Result<Vec<Wrote>, Error> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let base = Base::new(changes);
    let output = |change: &Change| match &change.outcome {
        Outcome::Done(output) => (i16::from(output.codec), output.bytes.clone()),
        _ => unreachable!("sorted before"),
    };
    let (codec, bytes): (Vec<i16>, Vec<Vec<u8>>) = changes.iter().map(|change| output(change)).unzip();
    let rows = conn
        .query(
            include_str!("sql/commit_done.sql"),
            &[&micros(now), &base.id, &base.epoch, &base.rev, &base.worker, &base.started_at, &codec, &bytes],
        )
        .await?;
    Ok(wrote(rows))
}

async fn write_ended(conn: &Guard<'_>, now: Now, changes: &[&Change]) -> Result<Vec<Wrote>, Error> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let base = Base::new(changes);
    let mut state: Vec<i16> = Vec::new();
    let mut reasons: Vec<Option<i16>> = Vec::new();
    let mut failures: Vec<String> = Vec::new();
    for change in changes {
        match &change.outcome {
            Outcome::Failed { reason, failure } => {
                state.push(FAILED);
                reasons.push(Some(pick::reason_number(*reason)));
                failures.push(pick::failure_text(failure));
            }
            Outcome::Cancelled(failure) => {
                state.push(CANCELLED);
                reasons.push(None);
                failures.push(pick::failure_text(failure));
            }
            _ => unreachable!("sorted before"),
        }
    }
    let counts: Vec<i32> = changes.iter().map(|change| i32::from(change.outcome.counts())).collect();
    let rows = conn
        .query(
            include_str!("sql/commit_failed.sql"),
            &[
                &micros(now),
                &base.id,
                &base.epoch,
                &base.rev,
                &base.worker,
                &base.started_at,
                &state,
                &reasons,
                &failures,
                &counts,
            ],
        )
        .await?;
    Ok(wrote(rows))
}

async fn write_again(conn: &Guard<'_>, now: Now, changes: &[&Change]) -> Result<Vec<Wrote>, Error> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let base = Base::new(changes);
    let mut afters: Vec<i64> = Vec::new();
    let mut spents: Vec<Option<String>> = Vec::new();
    let mut failures: Vec<String> = Vec::new();
    for change in changes {
        let Outcome::Retry { after, spent, failure } = &change.outcome else { unreachable!("sorted before") };
        afters.push(span(*after));
        spents.push(pick::spent_text(spent));
        failures.push(pick::failure_text(failure));
    }
    let rows = conn
        .query(
            include_str!("sql/commit_retry.sql"),
            &[
                &micros(now),
                &base.id,
                &base.epoch,
                &base.rev,
                &base.worker,
                &base.started_at,
                &afters,
                &spents,
                &failures,
                &Time::MAX.micros(),
                &SPAN,
                &conn.gate_writer,
            ],
        )
        .await?;
    Ok(wrote(rows))
}

/// Those of the changes not written now that had been written before their answer was lost.
async fn seen(
    conn: &Guard<'_>,
    batch: &[Placed<'_>],
    committed: &HashSet<JobId>,
) -> Result<Vec<JobId>, Error> {
    let missing: Vec<&Change> =
        batch.iter().map(|(_, change)| *change).filter(|change| !committed.contains(&change.job)).collect();
    let base = Base::new(&missing);
    let rows = conn.query(include_str!("sql/commit_seen.sql"), &[&base.id, &base.epoch, &base.rev]).await?;
    Ok(rows.iter().map(|row| JobId(row.get(0))).collect())
}

/// Takes the timers of deadlines back that no longer matter. What a crash leaves of them fires later and finds
/// nothing to do.
async fn forget_deadlines<'a>(
    conn: &Guard<'_>,
    ended: impl Iterator<Item = &'a &'a Change>,
) -> Result<(), Error> {
    let (at, ids): (Vec<i64>, Vec<_>) =
        ended.filter_map(|change| Some((change.deadline_at?.micros(), change.job.0))).unzip();
    if !at.is_empty() {
        conn.execute(include_str!("sql/commit_untimer.sql"), &[&at, &ids, &DEADLINE]).await?;
    }
    Ok(())
}

/// What all sorts of changes have in common, as arrays.
struct Base {
    id: Vec<uuid::Uuid>,
    epoch: Vec<i32>,
    rev: Vec<i32>,
    worker: Vec<i64>,
    started_at: Vec<i64>,
}

impl Base {
    fn new(changes: &[&Change]) -> Base {
        Base {
            id: changes.iter().map(|change| change.job.0).collect(),
            epoch: changes.iter().map(|change| change.epoch.0).collect(),
            rev: changes.iter().map(|change| change.rev.0).collect(),
            worker: changes.iter().map(|change| change.worker.0).collect(),
            started_at: changes.iter().map(|change| change.started_at.micros()).collect(),
        }
    }
}
