//! Signals: delivered to inboxes, each once.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures_util::future::join5;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{JobId, NewSignal, Payload, Signal, State, Time};

use super::{
    Postgres,
    conn::{Conn, retry_deadlock},
    errors::PgError,
    job_actions, micros, serial, sql,
    tx::Tx,
    wait::{self, LOCK_JOBS, WAKE, Woken},
};
use crate::{ControlOutcome, Error, Now, SignalOutcome, UnreadableSignalView, columns, control::outcome};

pub(super) async fn signal(
    store: &Postgres,
    now: Now,
    signals: &[NewSignal],
) -> Result<Vec<SignalOutcome>, Error> {
    let limits = &store.shared.options.limits;
    signals.iter().try_for_each(|signal| limits.check_signal(signal))?;
    if signals.is_empty() {
        return Ok(Vec::new());
    }
    // Of equal signals only the first is sent; its outcome decides that of the others.
    let mut sent: Vec<(JobId, &NewSignal)> = Vec::with_capacity(signals.len());
    let mut indexes: HashMap<(JobId, &str, &str), usize> = HashMap::with_capacity(signals.len());
    let mut sent_as: Vec<(usize, bool)> = Vec::with_capacity(signals.len());
    for signal in signals {
        let index = *indexes.entry((signal.job, &signal.name, &signal.dedup)).or_insert(sent.len());
        let is_first = index == sent.len();
        sent.extend(is_first.then_some((signal.job, signal)));
        sent_as.push((index, is_first));
    }
    let outcomes = retry_deadlock!(deliver(store, now, &sent))?;
    let outcome = |(index, is_first): &(usize, bool)| match outcomes[*index] {
        SignalOutcome::Delivered { .. } if !is_first => SignalOutcome::Duplicate,
        outcome => outcome,
    };
    Ok(sent_as.iter().map(outcome).collect())
}

/// Delivers signals of which no two are equal, in one round trip: locks the jobs, adds to their inboxes, and wakes those whose wait is
/// met. Each statement sees what earlier holders of the locks wrote.
async fn deliver(
    store: &Postgres,
    now: Now,
    signals: &[(JobId, &NewSignal)],
) -> Result<Vec<SignalOutcome>, PgError> {
    let ids: BTreeSet<Uuid> = signals.iter().map(|(job, _)| job.0).collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    let mut conn = store.conn().await?;
    for sql in [LOCK_JOBS, sql::signals::DELIVER, WAKE] {
        conn.prepare(sql).await?;
    }
    let tx = Tx::pipelined(&mut conn);
    // Polled, and so sent, in this order. If one fails, those after it do nothing, and the last one rolls back.
    let (begun, locked, rows, woken, committed) = join5(
        tx.begin(),
        wait::lock_jobs(&tx, &ids),
        add(&tx, now, signals, store.shared.options.limits.inbox),
        wait::wake(&tx, now, &ids),
        tx.commit(),
    )
    .await;
    begun?;
    locked?;
    let (rows, woken) = (rows?, woken?);
    committed?;
    if !woken.ids.is_empty() {
        // A crash before this leaves waiting jobs with a free serial slot, which `repair` fills.
        if let Err(error) = serial::settle_alone(&mut conn, &woken.unsettled).await {
            tracing::debug!(%error, "serial slots of woken jobs were not filled; the next repair fills them");
        }
        store.shared.floors.lowered(i64::MIN);
    }
    Ok(outcomes(signals, &rows, &woken))
}

/// Adds signals, of which no two are equal, to inboxes of at most `inbox_limit` signals each.
pub(super) async fn add(
    tx: &Tx<'_>,
    now: Now,
    signals: &[(JobId, &NewSignal)],
    inbox_limit: usize,
) -> Result<Vec<Row>, PgError> {
    let ids: Vec<Uuid> = signals.iter().map(|(job, _)| job.0).collect();
    let names: Vec<&str> = signals.iter().map(|(_, signal)| signal.name.as_str()).collect();
    let dedups: Vec<&str> = signals.iter().map(|(_, signal)| signal.dedup.as_str()).collect();
    let codecs: Vec<i16> = signals.iter().map(|(_, signal)| i16::from(signal.payload.codec)).collect();
    let payloads: Vec<&[u8]> = signals.iter().map(|(_, signal)| signal.payload.bytes.as_slice()).collect();
    // The statement doubles it.
    let limit = i64::try_from(inbox_limit).unwrap_or(i64::MAX).min(i64::MAX / 4);
    let sql = sql::signals::DELIVER;
    tx.query(sql, &[&micros(now), &ids, &names, &dedups, &codecs, &payloads, &limit]).await
}

/// The outcome of each signal. Of several signals that woke a job, the one that met its wait is reported as the one that did.
fn outcomes(signals: &[(JobId, &NewSignal)], rows: &[Row], woken: &Woken) -> Vec<SignalOutcome> {
    let mut arrived: HashMap<JobId, HashSet<String>> = HashMap::new();
    let mut reported: HashSet<JobId> = HashSet::new();
    let mut outcome = |((job, signal), row): (&(JobId, &NewSignal), &Row)| {
        let Some(state) = row.get::<_, Option<i16>>(0) else { return SignalOutcome::Unknown };
        if let Some(state) = columns::final_state(state) {
            return SignalOutcome::Ended(state);
        }
        match (row.get(1), row.get(2)) {
            (false, _) => return SignalOutcome::Duplicate,
            (true, false) => return SignalOutcome::Full,
            (true, true) => {}
        }
        if !woken.ids.contains(&job.0) || reported.contains(job) {
            return SignalOutcome::Delivered { woke: false };
        }
        let arrived = arrived.entry(*job).or_default();
        arrived.extend(row.get::<_, Option<Vec<String>>>(5).unwrap_or_default());
        let (waits, needs) = (row.get::<_, Option<Vec<&str>>>(3), row.get::<_, Option<i32>>(4));
        if waits.is_some_and(|waits| waits.contains(&signal.name.as_str())) {
            arrived.insert(signal.name.clone());
        }
        let woke = arrived.len() >= needs.unwrap_or(0) as usize;
        if woke {
            reported.insert(*job);
        }
        SignalOutcome::Delivered { woke }
    };
    signals.iter().zip(rows).map(&mut outcome).collect()
}

/// Reads the unreadable signals of a job, as many as people are shown.
pub(super) async fn unreadable_signals(conn: &Conn, id: JobId) -> Result<Vec<UnreadableSignalView>, PgError> {
    let rows = conn.query(sql::inspect::UNREADABLE_SIGNALS, &[&id.0, &columns::UNREADABLE_SHOWN]).await?;
    let signal = |row: &Row| UnreadableSignalView {
        number: row.get(0),
        name: row.get(1),
        at: Time(row.get(2)),
        why: row.get(3),
    };
    Ok(rows.iter().map(signal).collect())
}

/// Deletes a signal from the inboxes of jobs. Returns an outcome for each. The jobs are out of the ready set meanwhile: a claim must
/// not read the signal that is dropped.
pub(super) async fn drop_from(
    tx: &Tx<'_>,
    ids: &[Uuid],
    number: i64,
) -> Result<Vec<ControlOutcome>, PgError> {
    let jobs = job_actions::lock(tx, ids, |_| true).await?;
    let mut outcomes = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(job) = jobs.get(id) else {
            outcomes.push(ControlOutcome::Unknown);
            continue;
        };
        outcomes.push(match find_signal(tx, *id, number).await? {
            None => outcome::no_signal(number),
            Some(false)
                if job.ended.is_none()
                    && !job.was_ready
                    && job_actions::live_state(tx, job).await? == State::Running =>
            {
                outcome::signal_in_use()
            }
            Some(_) => {
                tx.execute(sql::signals::DROP, &[id, &number]).await?;
                ControlOutcome::Done
            }
        });
    }
    let were_ready: Vec<Uuid> = jobs.values().filter(|job| job.was_ready).map(|job| job.id).collect();
    serial::enter(tx, &were_ready).await?;
    Ok(outcomes)
}

/// Returns an unreadable signal to the inboxes of jobs, and wakes those whose wait is met by it.
pub(super) async fn restore(
    tx: &Tx<'_>,
    now: Time,
    ids: &[Uuid],
    number: i64,
) -> Result<Vec<ControlOutcome>, PgError> {
    let jobs = job_actions::lock(tx, ids, |_| false).await?;
    let mut outcomes = Vec::with_capacity(ids.len());
    for id in ids {
        if !jobs.contains_key(id) {
            outcomes.push(ControlOutcome::Unknown);
            continue;
        }
        outcomes.push(match find_signal(tx, *id, number).await? {
            None => outcome::no_signal(number),
            Some(false) => outcome::signal_is_readable(),
            Some(true) => {
                tx.execute(sql::signals::RESTORE, &[id, &number]).await?;
                ControlOutcome::Done
            }
        });
    }
    let restored = ids.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == ControlOutcome::Done);
    let restored: Vec<Uuid> = restored.map(|(id, _)| *id).collect();
    let woken = wait::wake(tx, Some(now), &restored).await?;
    serial::settle(tx, &woken.unsettled).await?;
    Ok(outcomes)
}

/// Whether a signal in an inbox is unreadable; `None` if the inbox has no signal with this number.
async fn find_signal(tx: &Tx<'_>, id: Uuid, number: i64) -> Result<Option<bool>, PgError> {
    let rows = tx.query(sql::signals::READ, &[&id, &number]).await?;
    Ok(rows.first().map(|row| row.get(1)))
}

/// Reads a signal from five columns, and from a sixth, if there is one, why it is unreadable.
pub(super) fn read(row: &Row, from: usize) -> Signal {
    Signal {
        number: row.get(from),
        name: row.get(from + 1),
        at: Time(row.get(from + 2)),
        payload: Payload { codec: row.get::<_, i16>(from + 3) as u8, bytes: row.get(from + 4) },
        unreadable: if row.len() > from + 5 { row.get(from + 5) } else { None },
    }
}
