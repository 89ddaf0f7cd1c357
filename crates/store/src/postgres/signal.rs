//! Signals: delivered into inboxes, each one once.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures_util::future::join5;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{JobId, NewSignal, Payload, Signal, State, Time};

use super::{
    Postgres,
    conn::retry_deadlock,
    job_actions::{hold, live_state},
    micros,
    pool::Guard,
    serial, sql,
    wait::{self, LOCK, WAKE, Woken},
};
use crate::{AsideSignal, ControlOutcome, Error, Now, SignalOutcome, columns, control::outcome};

/// The statement that fills inboxes, for those who prepare it.
const PUT: &str = sql::signals::DELIVER;

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
    // Of equal ones the first is sent, and what becomes of it says what becomes of the others.
    let mut sent: Vec<(JobId, &NewSignal)> = Vec::with_capacity(signals.len());
    let mut places: HashMap<(JobId, &str, &str), usize> = HashMap::with_capacity(signals.len());
    let mut first_of: Vec<(usize, bool)> = Vec::with_capacity(signals.len());
    for signal in signals {
        let place = *places.entry((signal.job, &signal.name, &signal.dedup)).or_insert(sent.len());
        let first = place == sent.len();
        sent.extend(first.then_some((signal.job, signal)));
        first_of.push((place, first));
    }
    let answers = retry_deadlock!(deliver(store, now, &sent))?;
    let answer = |(place, first): &(usize, bool)| match answers[*place] {
        SignalOutcome::Delivered { .. } if !first => SignalOutcome::Duplicate,
        answer => answer,
    };
    Ok(first_of.iter().map(answer).collect())
}

/// Delivers signals of which no two are equal. One round trip: the jobs are locked, their inboxes filled, and those that
/// have what they wait for are woken, each by a statement that sees all that was done by whoever had the locks before.
async fn deliver(
    store: &Postgres,
    now: Now,
    signals: &[(JobId, &NewSignal)],
) -> Result<Vec<SignalOutcome>, Error> {
    let ids: BTreeSet<Uuid> = signals.iter().map(|(job, _)| job.0).collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    let conn = store.conn().await?;
    // One that is still being prepared would be overtaken by the next.
    for sql in [LOCK, PUT, WAKE] {
        conn.prepare(sql).await?;
    }
    // Polled, and so sent, in this order. After one that fails, the others do nothing, and the last one rolls back.
    let (begun, locked, rows, woken, committed) = join5(
        conn.begin(),
        wait::lock(&conn, &ids),
        put(&conn, now, signals, store.shared.options.limits.inbox),
        wait::wake(&conn, now, &ids),
        conn.commit(),
    )
    .await;
    begun?;
    locked?;
    let (rows, woken) = (rows?, woken?);
    committed?;
    if !woken.ids.is_empty() {
        // A crash before this leaves jobs in a line with a free slot, which a sweep finds.
        if let Err(error) = serial::settle_alone(&conn, &woken.unsettled).await {
            tracing::debug!(%error, "slots for woken jobs are left to the sweep");
        }
        store.shared.floors.lowered(i64::MIN);
    }
    Ok(answers(signals, &rows, &woken))
}

/// Fills inboxes, of at most `most` signals each, with signals of which no two are equal.
pub(super) async fn put(
    conn: &Guard<'_>,
    now: Now,
    signals: &[(JobId, &NewSignal)],
    most: usize,
) -> Result<Vec<Row>, Error> {
    let ids: Vec<Uuid> = signals.iter().map(|(job, _)| job.0).collect();
    let names: Vec<&str> = signals.iter().map(|(_, signal)| signal.name.as_str()).collect();
    let dedups: Vec<&str> = signals.iter().map(|(_, signal)| signal.dedup.as_str()).collect();
    let codecs: Vec<i16> = signals.iter().map(|(_, signal)| i16::from(signal.payload.codec)).collect();
    let payloads: Vec<&[u8]> = signals.iter().map(|(_, signal)| signal.payload.bytes.as_slice()).collect();
    // The statement looks at twice as many.
    let most = i64::try_from(most).unwrap_or(i64::MAX).min(i64::MAX / 4);
    conn.query(PUT, &[&micros(now), &ids, &names, &dedups, &codecs, &payloads, &most]).await
}

/// What is to be said of each signal. The one that completed what its job waits for is the one that woke it.
fn answers(signals: &[(JobId, &NewSignal)], rows: &[Row], woken: &Woken) -> Vec<SignalOutcome> {
    let mut there: HashMap<JobId, HashSet<String>> = HashMap::new();
    let mut told: HashSet<JobId> = HashSet::new();
    let mut answer = |((job, signal), row): (&(JobId, &NewSignal), &Row)| {
        let Some(state) = row.get::<_, Option<i16>>(0) else { return SignalOutcome::Unknown };
        if let Some(state) = columns::final_state(state) {
            return SignalOutcome::Ended(state);
        }
        match (row.get(1), row.get(2)) {
            (false, _) => return SignalOutcome::Duplicate,
            (true, false) => return SignalOutcome::Full,
            (true, true) => {}
        }
        if !woken.ids.contains(&job.0) || told.contains(job) {
            return SignalOutcome::Delivered { woke: false };
        }
        let there = there.entry(*job).or_default();
        there.extend(row.get::<_, Option<Vec<String>>>(5).unwrap_or_default());
        let (waits, needs) = (row.get::<_, Option<Vec<&str>>>(3), row.get::<_, Option<i32>>(4));
        if waits.is_some_and(|waits| waits.contains(&signal.name.as_str())) {
            there.insert(signal.name.clone());
        }
        let woke = there.len() >= needs.unwrap_or(0) as usize;
        if woke {
            told.insert(*job);
        }
        SignalOutcome::Delivered { woke }
    };
    signals.iter().zip(rows).map(&mut answer).collect()
}

/// The signals of a job that were set aside, as many as people are shown.
pub(super) async fn aside(conn: &Guard<'_>, id: JobId) -> Result<Vec<AsideSignal>, Error> {
    let rows = conn.query(sql::inspect::UNREADABLE_SIGNALS, &[&id.0, &columns::UNREADABLE_SHOWN]).await?;
    let aside = |row: &Row| AsideSignal {
        number: row.get(0),
        name: row.get(1),
        at: Time(row.get(2)),
        why: row.get(3),
    };
    Ok(rows.iter().map(aside).collect())
}

/// Takes a signal out of the inboxes of jobs for good, and says of each what came of it. Jobs are out of the ready set meanwhile:
/// a claim must not read the signal that is dropped.
pub(super) async fn drop_from(
    conn: &Guard<'_>,
    ids: &[Uuid],
    number: i64,
) -> Result<Vec<ControlOutcome>, Error> {
    let jobs = hold(conn, ids, |_| true).await?;
    let mut dids = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(job) = jobs.get(id) else {
            dids.push(ControlOutcome::Unknown);
            continue;
        };
        dids.push(match find(conn, *id, number).await? {
            None => outcome::no_signal(number),
            Some(false)
                if job.ended.is_none()
                    && !job.was_ready
                    && live_state(conn, job).await? == State::Running =>
            {
                outcome::signal_in_use()
            }
            Some(_) => {
                conn.execute(sql::signals::DROP, &[id, &number]).await?;
                ControlOutcome::Done
            }
        });
    }
    let back: Vec<Uuid> = jobs.values().filter(|job| job.was_ready).map(|job| job.id).collect();
    serial::enter(conn, &back).await?;
    Ok(dids)
}

/// Puts a signal back that was set aside, and wakes those jobs that have what they wait for by that.
pub(super) async fn restore(
    conn: &Guard<'_>,
    now: Time,
    ids: &[Uuid],
    number: i64,
) -> Result<Vec<ControlOutcome>, Error> {
    let jobs = hold(conn, ids, |_| false).await?;
    let mut dids = Vec::with_capacity(ids.len());
    for id in ids {
        if !jobs.contains_key(id) {
            dids.push(ControlOutcome::Unknown);
            continue;
        }
        dids.push(match find(conn, *id, number).await? {
            None => outcome::no_signal(number),
            Some(false) => outcome::not_aside(),
            Some(true) => {
                conn.execute(sql::signals::RESTORE, &[id, &number]).await?;
                ControlOutcome::Done
            }
        });
    }
    let restored: Vec<Uuid> =
        ids.iter().zip(&dids).filter(|(_, did)| **did == ControlOutcome::Done).map(|(id, _)| *id).collect();
    let woken = wait::wake(conn, Some(now), &restored).await?;
    serial::settle(conn, &woken.unsettled).await?;
    Ok(dids)
}

/// Whether a signal in an inbox was set aside; `None` if there is none of this number.
async fn find(conn: &Guard<'_>, id: Uuid, number: i64) -> Result<Option<bool>, Error> {
    let rows = conn.query(sql::signals::READ, &[&id, &number]).await?;
    Ok(rows.first().map(|row| row.get(1)))
}

/// A signal in an inbox, out of five columns, or six with why it was set aside.
pub(super) fn read(row: &Row, first: usize) -> Signal {
    Signal {
        number: row.get(first),
        name: row.get(first + 1),
        at: Time(row.get(first + 2)),
        payload: Payload { codec: row.get::<_, i16>(first + 3) as u8, bytes: row.get(first + 4) },
        unreadable: if row.len() > first + 5 { row.get(first + 5) } else { None },
    }
}
