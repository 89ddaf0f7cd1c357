//! What people do to single jobs.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{Epoch, JobId, Rev, State, Time, rank::rank};

use super::{
    Postgres, SPAN,
    branch::{self, Child},
    conn::retry_deadlock,
    control::{log, transaction},
    pool::Guard,
    serial, signal, sql, unique, unwind, wait,
};
use crate::{
    Actor, ControlOutcome, Error, JobAction, Now,
    columns::{self, HELD, TO_HOLD},
    control::{check_actor, outcome},
};

pub(super) async fn act(
    store: &Postgres,
    now: Now,
    jobs: &[JobId],
    act: JobAction,
    by: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    check_actor(by)?;
    columns::check_act(act)?;
    let mut dids: Vec<Option<ControlOutcome>> = vec![None; jobs.len()];
    let mut rest: Vec<usize> = (0..jobs.len()).collect();
    // A job that is named twice has its second turn after its first.
    while !rest.is_empty() {
        let mut seen = HashSet::new();
        let (wave, later): (Vec<usize>, Vec<usize>) =
            rest.into_iter().partition(|place| seen.insert(jobs[*place]));
        let ids: Vec<JobId> = wave.iter().map(|place| jobs[*place]).collect();
        for (place, did) in wave.into_iter().zip(retry_deadlock!(once(store, now, &ids, act, by))?) {
            dids[place] = Some(did);
        }
        rest = later;
    }
    Ok(dids.into_iter().flatten().collect())
}

async fn once(
    store: &Postgres,
    now: Now,
    jobs: &[JobId],
    act: JobAction,
    by: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    let ids: Vec<Uuid> = jobs.iter().map(|id| id.0).collect();
    transaction(store, now, async |conn, now| {
        let dids = match act {
            JobAction::Cancel { grace } => cancel(store, conn, now, jobs, grace, by).await?,
            JobAction::Pause => pause(conn, now, &ids, by).await?,
            JobAction::Resume => resume(conn, &ids).await?,
            JobAction::Retry => revive(conn, now, &ids).await?,
            JobAction::Priority(priority) => reprioritise(conn, &ids, priority).await?,
            JobAction::DropSignal(number) => signal::drop_from(conn, &ids, number).await?,
            JobAction::RestoreSignal(number) => signal::restore(conn, now, &ids, number).await?,
        };
        let done = |(_, did): &(&JobId, &ControlOutcome)| {
            matches!(did, ControlOutcome::Done | ControlOutcome::CancelRequested)
        };
        let subjects: Vec<String> =
            jobs.iter().zip(&dids).filter(done).map(|(id, _)| id.to_string()).collect();
        log(conn, now, &columns::action(act), &subjects, by).await?;
        Ok(dids)
    })
    .await
}

/// A job that is locked to be acted on.
pub(super) struct Held {
    pub(super) id: Uuid,
    pub(super) lane: i32,
    priority: i16,
    pub(super) ended: Option<State>,
    due_at: Time,
    suspect: bool,
    serial: bool,
    aside: bool,
    parked: bool,
    pub(super) epoch: Epoch,
    pub(super) rev: Rev,
    /// Whether its parent's wait counts it, or its parent is told of its end.
    child: bool,
    /// The branch that its end counts for.
    twig: Option<Child>,
    /// Whether it has something to undo before it ends.
    undoes: bool,
    settings: windlass_model::Settings,
    kind: i32,
    in_line: bool,
    asleep: bool,
    paused_by: Option<String>,
    told: bool,
    /// Taken out of the ready set by this transaction.
    pub(super) was_ready: bool,
}

impl Held {
    pub(super) fn state(&self) -> State {
        match self.ended {
            Some(state) => state,
            None if self.parked => State::Waiting,
            None if self.was_ready || self.aside || self.in_line => State::Ready,
            None if self.asleep => State::Scheduled,
            None => State::Running,
        }
    }
}

/// Locks jobs, and the parents that count them, and finds out where they are. Live ones that are meant and in the ready set
/// are taken out of it: then nobody claims them meanwhile.
pub(super) async fn hold(
    conn: &Guard<'_>,
    ids: &[Uuid],
    out: impl Fn(&Held) -> bool,
) -> Result<HashMap<Uuid, Held>, Error> {
    let rows = conn.query(sql::control::LOCK_JOBS, &[&ids]).await?;
    let held = |row: &Row| Held {
        id: row.get(0),
        lane: row.get(1),
        priority: row.get(2),
        ended: columns::final_state(row.get(3)),
        due_at: Time(row.get(4)),
        suspect: row.get(5),
        serial: row.get::<_, Option<i64>>(6).is_some(),
        aside: row.get::<_, Option<i16>>(7) == Some(HELD),
        epoch: Epoch(row.get(8)),
        settings: columns::settings(row.get(9)),
        kind: row.get(10),
        parked: row.get(11),
        rev: Rev(row.get(12)),
        child: row.get(13),
        undoes: row.get(15),
        twig: Child::read(row, 16),
        in_line: false,
        asleep: false,
        paused_by: None,
        told: false,
        was_ready: false,
    };
    let asked = rows.iter().filter(|row| row.get(14));
    let mut jobs: HashMap<Uuid, Held> = asked.map(|row| (row.get(0), held(row))).collect();
    if jobs.values().any(|job| job.serial) {
        serial::lock(conn, ids).await?;
    }
    let live: Vec<&Held> = jobs.values().filter(|job| job.ended.is_none() && out(job)).collect();
    if !live.is_empty() {
        let lanes: Vec<i32> = live.iter().map(|job| if job.suspect { -job.lane } else { job.lane }).collect();
        let ranks: Vec<i64> = live.iter().map(|job| rank(job.due_at, job.priority)).collect();
        let live: Vec<Uuid> = live.iter().map(|job| job.id).collect();
        for row in conn.query(sql::control::REMOVE_READY, &[&lanes, &ranks, &live]).await? {
            jobs.get_mut(&row.get(0)).expect("asked for").was_ready = true;
        }
    }
    for row in conn.query(sql::control::READ_PLACEMENTS, &[&ids]).await? {
        let Some(job) = jobs.get_mut(&row.get(0)) else { continue };
        (job.in_line, job.asleep) = (row.get(1), row.get(2));
        (job.paused_by, job.told) = (row.get(3), row.get(4));
    }
    Ok(jobs)
}

/// Cancels jobs within a transaction, and says of each what came of it, in order.
pub(super) async fn cancel(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Time,
    jobs: &[JobId],
    grace: Duration,
    by: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    let ids: Vec<Uuid> = jobs.iter().map(|id| id.0).collect();
    let held = hold(conn, &ids, |_| true).await?;
    let mut end: Vec<Uuid> = Vec::new();
    let mut undo: Vec<Uuid> = Vec::new();
    let mut tell: Vec<Uuid> = Vec::new();
    let dids = ids.iter().map(|id| match held.get(id) {
        None => ControlOutcome::Unknown,
        Some(job) => match job.state() {
            state if state.is_final() => outcome::ended(state),
            State::Running if job.told => outcome::cancel_requested_before(),
            State::Running => {
                tell.push(*id);
                ControlOutcome::CancelRequested
            }
            _ if job.undoes => {
                undo.push(*id);
                ControlOutcome::CancelRequested
            }
            _ => {
                end.push(*id);
                ControlOutcome::Done
            }
        },
    });
    let dids: Vec<ControlOutcome> = dids.collect();
    finish(conn, now, &end, &vec![by; end.len()]).await?;
    unwind::begin(conn, now, &undo, &vec![unwind::cancelled(by); undo.len()]).await?;
    if !tell.is_empty() {
        let deadline = now.plus(grace).micros();
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&tell, &deadline, &by.author, &by.note, &conn.gate_writer];
        conn.execute(sql::control::REQUEST_CANCEL, &params).await?;
    }
    store.shared.floors.lowered(i64::MIN);
    Ok(dids)
}

/// Cancels one job unless it runs, or has it unwound; answers whether it does not run. One that has ended meanwhile is left
/// as it is.
pub(super) async fn cancel_waiting(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Time,
    id: JobId,
    by: &Actor,
) -> Result<bool, Error> {
    let held = hold(conn, &[id.0], |_| true).await?;
    store.shared.floors.lowered(i64::MIN);
    let Some(job) = held.get(&id.0) else { return Ok(true) };
    match job.state() {
        State::Running => return Ok(false),
        state if state.is_final() => {}
        _ if job.undoes => unwind::begin(conn, now, &[id.0], &[unwind::cancelled(by)]).await?,
        _ => finish(conn, now, &[id.0], &[by]).await?,
    }
    Ok(true)
}

/// Ends live jobs as cancelled that are locked and in no ready set: their slots are handed over, their parents woken if they
/// were the last they waited for, and their own branches cut.
pub(super) async fn finish(conn: &Guard<'_>, now: Time, ids: &[Uuid], by: &[&Actor]) -> Result<(), Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let failures: Vec<String> = by.iter().map(|by| columns::failure_text(&by.failure())).collect();
    let rows = conn.query(sql::control::CANCEL, &[&ids, &failures, &now.micros()]).await?;
    serial::leave(conn, ids).await?;
    let of = |column: usize| rows.iter().filter(move |row| row.get(column)).map(|row| row.get::<_, Uuid>(0));
    branch::orphan(conn, Some(now), &of(2).collect::<Vec<_>>()).await?;
    for child in rows.iter().filter_map(|row| Child::read(row, 3)) {
        conn.count_end(&child, State::Cancelled);
    }
    let children: HashSet<Uuid> = of(1).collect();
    let children: Vec<Uuid> = ids.iter().copied().filter(|id| children.contains(id)).collect();
    wait::children_ended(conn, Some(now), &children).await
}

async fn pause(conn: &Guard<'_>, now: Time, ids: &[Uuid], by: &Actor) -> Result<Vec<ControlOutcome>, Error> {
    let held = hold(conn, ids, |_| true).await?;
    let (mut put_back, mut paused, mut holds): (Vec<Uuid>, Vec<Uuid>, Vec<i16>) = Default::default();
    let mut dids = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(job) = held.get(id) else {
            dids.push(ControlOutcome::Unknown);
            continue;
        };
        let state = job.state();
        let did = if state.is_final() {
            outcome::cannot("pause", state)
        } else if job.told {
            outcome::being_cancelled()
        } else if let Some(author) = &job.paused_by {
            ControlOutcome::Already(format!("it was paused by {author} before"))
        } else {
            paused.push(*id);
            holds.push(if state == State::Ready { HELD } else { TO_HOLD });
            ControlOutcome::Done
        };
        if did != ControlOutcome::Done && job.was_ready {
            put_back.push(*id);
        }
        dids.push(did);
    }
    conn.execute(sql::control::PAUSE, &[&paused, &holds, &now.micros(), &by.author, &by.note]).await?;
    serial::enter(conn, &put_back).await?;
    serial::leave(conn, &paused).await?;
    Ok(dids)
}

async fn resume(conn: &Guard<'_>, ids: &[Uuid]) -> Result<Vec<ControlOutcome>, Error> {
    let held = hold(conn, ids, |_| false).await?;
    let paused = |id: &Uuid| held.get(id).is_some_and(|job| job.paused_by.is_some() && job.ended.is_none());
    let mine: Vec<Uuid> = ids.iter().copied().filter(paused).collect();
    conn.execute(sql::control::RESUME, &[&mine]).await?;
    let back: Vec<Uuid> = mine.iter().copied().filter(|id| held[id].aside && !held[id].told).collect();
    serial::enter(conn, &back).await?;
    let did = |id: &Uuid| match held.get(id) {
        None => ControlOutcome::Unknown,
        Some(_) if paused(id) => ControlOutcome::Done,
        Some(_) => ControlOutcome::Already("it is not paused".into()),
    };
    Ok(ids.iter().map(did).collect())
}

async fn revive(conn: &Guard<'_>, now: Time, ids: &[Uuid]) -> Result<Vec<ControlOutcome>, Error> {
    let held = hold(conn, ids, |_| false).await?;
    let mut back: Vec<Uuid> = Vec::new();
    let mut dids = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(job) = held.get(id) else {
            dids.push(ControlOutcome::Unknown);
            continue;
        };
        dids.push(match job.ended {
            Some(State::Done) => outcome::retry_done(),
            // Its place may be the ready set, which was left alone.
            None => outcome::retry_live(live_state(conn, job).await?),
            Some(_) => match &job.settings.unique {
                None => {
                    back.push(*id);
                    ControlOutcome::Done
                }
                // One by one: two of them may want the same name.
                Some(unique) => match unique::retake(conn, now, job.kind, unique, JobId(*id)).await? {
                    Some(other) => outcome::name_taken(other),
                    None => {
                        bring_back(conn, now, &[*id]).await?;
                        back.push(*id);
                        ControlOutcome::Done
                    }
                },
            },
        });
    }
    let plain: Vec<Uuid> = back.iter().copied().filter(|id| held[id].settings.unique.is_none()).collect();
    bring_back(conn, now, &plain).await?;
    let children: Vec<Uuid> = back.iter().copied().filter(|id| held[id].child).collect();
    wait::count_revivals(conn, &children).await?;
    for job in back.iter().map(|id| &held[id]) {
        if let (Some(twig), Some(was)) = (&job.twig, job.ended) {
            conn.count_life(twig, was);
        }
    }
    serial::settle(conn, &back).await?;
    Ok(dids)
}

/// Makes ended jobs live and lets them enter; slots are handed over later.
async fn bring_back(conn: &Guard<'_>, now: Time, ids: &[Uuid]) -> Result<(), Error> {
    let (at, end) = (now.micros(), Time::MAX.micros());
    conn.execute(sql::control::REVIVE, &[&ids, &at, &end, &conn.gate_writer]).await?;
    serial::enter_unsettled(conn, ids).await.map(drop)
}

/// Where a live job stands, without moving it.
pub(super) async fn live_state(conn: &Guard<'_>, job: &Held) -> Result<State, Error> {
    let rows = conn.query(sql::control::READ_STATE, &[&SPAN, &job.id]).await?;
    Ok(match rows.first() {
        Some(row) if row.get(7) => State::Waiting,
        Some(row) if row.get(2) => State::Ready,
        Some(row) if row.get(3) => State::Scheduled,
        _ => State::Running,
    })
}

async fn reprioritise(conn: &Guard<'_>, ids: &[Uuid], priority: i16) -> Result<Vec<ControlOutcome>, Error> {
    let held = hold(conn, ids, |job| job.priority != priority).await?;
    let did = |id: &Uuid| match held.get(id) {
        None => ControlOutcome::Unknown,
        Some(job) if job.ended.is_some() => outcome::cannot("reorder", job.state()),
        Some(job) if job.priority == priority => {
            ControlOutcome::Already(format!("its priority is {priority}"))
        }
        Some(_) => ControlOutcome::Done,
    };
    let dids: Vec<ControlOutcome> = ids.iter().map(did).collect();
    let changed: Vec<Uuid> =
        ids.iter().zip(&dids).filter(|(_, did)| **did == ControlOutcome::Done).map(|(id, _)| *id).collect();
    conn.execute(sql::control::SET_PRIORITY, &[&changed, &priority]).await?;
    let back: Vec<Uuid> = held.values().filter(|job| job.was_ready).map(|job| job.id).collect();
    serial::enter(conn, &back).await?;
    Ok(dids)
}
