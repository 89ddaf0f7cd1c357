//! What people do to single jobs.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{Epoch, JobId, Location, Rev, State, Time, rank::rank};

use super::{
    Postgres, SPAN,
    branch::{self, Member},
    change_params::Param,
    conn::retry_deadlock,
    control::{log, transaction},
    errors::PgError,
    serial, signal, sql,
    tx::{Executor, Tx},
    unique, unwind, wait,
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
    action: JobAction,
    actor: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    check_actor(actor)?;
    columns::check_act(action)?;
    let mut outcomes: Vec<Option<ControlOutcome>> = vec![None; jobs.len()];
    let mut rest: Vec<usize> = (0..jobs.len()).collect();
    // A job that is named twice is acted on twice, the second time in a later transaction.
    while !rest.is_empty() {
        let mut seen = HashSet::new();
        let (wave, later): (Vec<usize>, Vec<usize>) =
            rest.into_iter().partition(|index| seen.insert(jobs[*index]));
        let ids: Vec<JobId> = wave.iter().map(|index| jobs[*index]).collect();
        let results = retry_deadlock!(act_once(store, now, &ids, action, actor))?;
        for (index, outcome) in wave.into_iter().zip(results) {
            outcomes[index] = Some(outcome);
        }
        rest = later;
    }
    Ok(outcomes.into_iter().flatten().collect())
}

async fn act_once(
    store: &Postgres,
    now: Now,
    jobs: &[JobId],
    action: JobAction,
    actor: &Actor,
) -> Result<Vec<ControlOutcome>, PgError> {
    let ids: Vec<Uuid> = jobs.iter().map(|id| id.0).collect();
    transaction(store, now, async |tx, now| {
        let outcomes = match action {
            JobAction::Cancel { grace } => cancel(store, tx, now, jobs, grace, actor).await?,
            JobAction::Pause => pause(tx, now, &ids, actor).await?,
            JobAction::Resume => resume(tx, &ids).await?,
            JobAction::Retry => revive(tx, now, &ids).await?,
            JobAction::Priority(priority) => set_priority(tx, &ids, priority).await?,
            JobAction::DropSignal(number) => signal::drop_from(tx, &ids, number).await?,
            JobAction::RestoreSignal(number) => signal::restore(tx, now, &ids, number).await?,
        };
        let is_done = |(_, outcome): &(&JobId, &ControlOutcome)| {
            matches!(outcome, ControlOutcome::Done | ControlOutcome::CancelRequested)
        };
        let subjects: Vec<String> =
            jobs.iter().zip(&outcomes).filter(is_done).map(|(id, _)| id.to_string()).collect();
        log(tx, now, &columns::action(action), &subjects, actor).await?;
        Ok(outcomes)
    })
    .await
}

/// A job that is locked.
pub(super) struct LockedJob {
    pub(super) id: Uuid,
    pub(super) lane: i32,
    priority: i16,
    pub(super) ended: Option<State>,
    due_at: Time,
    suspect: bool,
    has_serial_key: bool,
    /// Whether it is held, and so neither ready nor waiting for its serial key.
    is_held: bool,
    parked: bool,
    pub(super) epoch: Epoch,
    pub(super) rev: Rev,
    /// Whether its parent's wait counts it, or its parent is notified of its end.
    is_counted_child: bool,
    /// The branch that it is in.
    member: Option<Member>,
    /// Whether it has something to undo before it ends.
    has_undo: bool,
    settings: windlass_model::Settings,
    /// See [`columns::Decoder`].
    fault: Option<Box<str>>,
    kind: i32,
    waits_for_serial_key: bool,
    is_scheduled: bool,
    paused_by: Option<String>,
    cancel_requested: bool,
    /// Whether this transaction has taken it out of the ready set.
    pub(super) was_ready: bool,
}

impl LockedJob {
    pub(super) fn state(&self) -> State {
        let location = Location {
            is_parked: self.parked,
            is_ready: self.was_ready || self.is_held || self.waits_for_serial_key,
            is_scheduled: self.is_scheduled,
        };
        self.ended.unwrap_or_else(|| location.state())
    }
}

/// Locks jobs, and the parents that count them, and reads where they are. Takes those live jobs for which `take_out` returns true
/// out of the ready set, so that they are not claimed meanwhile.
pub(super) async fn lock(
    tx: &Tx<'_>,
    ids: &[Uuid],
    take_out: impl Fn(&LockedJob) -> bool,
) -> Result<HashMap<Uuid, LockedJob>, PgError> {
    let rows = tx.query(sql::control::LOCK_JOBS, &[&ids]).await?;
    let job = |row: &Row| {
        let mut decoder = columns::Decoder::default();
        LockedJob {
            id: row.get(0),
            lane: row.get(1),
            priority: row.get(2),
            ended: columns::final_state(row.get(3)),
            due_at: Time(row.get(4)),
            suspect: row.get(5),
            has_serial_key: row.get::<_, Option<i64>>(6).is_some(),
            is_held: row.get::<_, Option<i16>>(7) == Some(HELD),
            epoch: Epoch(row.get(8)),
            settings: decoder.settings(row.get(9)),
            fault: decoder.fault(),
            kind: row.get(10),
            parked: row.get(11),
            rev: Rev(row.get(12)),
            is_counted_child: row.get(13),
            has_undo: row.get(15),
            member: Member::read(row, 16),
            waits_for_serial_key: false,
            is_scheduled: false,
            paused_by: None,
            cancel_requested: false,
            was_ready: false,
        }
    };
    let named = rows.iter().filter(|row| row.get(14));
    let mut jobs: HashMap<Uuid, LockedJob> = named.map(|row| (row.get(0), job(row))).collect();
    if jobs.values().any(|job| job.has_serial_key) {
        serial::lock_keys(tx, ids).await?;
    }
    let live: Vec<&LockedJob> = jobs.values().filter(|job| job.ended.is_none() && take_out(job)).collect();
    if !live.is_empty() {
        let lanes: Vec<i32> = live.iter().map(|job| if job.suspect { -job.lane } else { job.lane }).collect();
        let ranks: Vec<i64> = live.iter().map(|job| rank(job.due_at, job.priority)).collect();
        let live: Vec<Uuid> = live.iter().map(|job| job.id).collect();
        for row in tx.query(sql::control::REMOVE_READY, &[&lanes, &ranks, &live]).await? {
            jobs.get_mut(&row.get(0)).expect("one of the live jobs").was_ready = true;
        }
    }
    for row in tx.query(sql::control::READ_PLACEMENTS, &[&ids]).await? {
        let Some(job) = jobs.get_mut(&row.get(0)) else { continue };
        (job.waits_for_serial_key, job.is_scheduled) = (row.get(1), row.get(2));
        (job.paused_by, job.cancel_requested) = (row.get(3), row.get(4));
    }
    Ok(jobs)
}

/// Cancels jobs in a transaction. Returns an outcome for each, in order.
pub(super) async fn cancel(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Time,
    jobs: &[JobId],
    grace: Duration,
    actor: &Actor,
) -> Result<Vec<ControlOutcome>, PgError> {
    let ids: Vec<Uuid> = jobs.iter().map(|id| id.0).collect();
    let locked = lock(tx, &ids, |_| true).await?;
    let mut to_end: Vec<Uuid> = Vec::new();
    let mut to_unwind: Vec<Uuid> = Vec::new();
    let mut to_request: Vec<Uuid> = Vec::new();
    let outcomes = ids.iter().map(|id| match locked.get(id) {
        None => ControlOutcome::Unknown,
        Some(job) => match job.state() {
            state if state.is_final() => outcome::ended(state),
            State::Running if job.cancel_requested => outcome::cancel_requested_before(),
            State::Running => {
                to_request.push(*id);
                ControlOutcome::CancelRequested
            }
            _ if job.has_undo => {
                to_unwind.push(*id);
                ControlOutcome::CancelRequested
            }
            _ => {
                to_end.push(*id);
                ControlOutcome::Done
            }
        },
    });
    let outcomes: Vec<ControlOutcome> = outcomes.collect();
    end_cancelled(tx, now, &to_end, &vec![actor; to_end.len()]).await?;
    unwind::start(tx, now, &to_unwind, &vec![unwind::cancelled(actor); to_unwind.len()]).await?;
    if !to_request.is_empty() {
        let deadline = (now + grace).micros();
        let params: [Param<'_>; 5] = [&to_request, &deadline, &actor.author, &actor.note, &tx.gate_writer];
        tx.execute(sql::control::REQUEST_CANCEL, &params).await?;
    }
    store.shared.floors.lowered(i64::MIN);
    Ok(outcomes)
}

/// Cancels a job unless it runs, or starts to unwind it. Returns whether it does not run. A job that has ended is left as it is.
pub(super) async fn cancel_unless_running(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Time,
    id: JobId,
    actor: &Actor,
) -> Result<bool, PgError> {
    let locked = lock(tx, &[id.0], |_| true).await?;
    store.shared.floors.lowered(i64::MIN);
    let Some(job) = locked.get(&id.0) else { return Ok(true) };
    match job.state() {
        State::Running => return Ok(false),
        state if state.is_final() => {}
        _ if job.has_undo => unwind::start(tx, now, &[id.0], &[unwind::cancelled(actor)]).await?,
        _ => end_cancelled(tx, now, &[id.0], &[actor]).await?,
    }
    Ok(true)
}

/// Ends live jobs, which are locked and not in the ready set, as cancelled: frees their serial slots, wakes parents that waited
/// only for them, and cancels the children in their branches.
pub(super) async fn end_cancelled(
    tx: &Tx<'_>,
    now: Time,
    ids: &[Uuid],
    actors: &[&Actor],
) -> Result<(), PgError> {
    if ids.is_empty() {
        return Ok(());
    }
    let failures: Vec<String> = actors.iter().map(|actor| columns::failure_text(&actor.failure())).collect();
    let rows = tx.query(sql::control::CANCEL, &[&ids, &failures, &now.micros(), &tx.count_writer]).await?;
    serial::leave(tx, ids).await?;
    let of = |column: usize| rows.iter().filter(move |row| row.get(column)).map(|row| row.get::<_, Uuid>(0));
    branch::parents_ended(Executor::Tx(tx), Some(now), &of(2).collect::<Vec<_>>()).await?;
    for member in rows.iter().filter_map(|row| Member::read(row, 3)) {
        tx.count_end(&member, State::Cancelled);
    }
    let children: HashSet<Uuid> = of(1).collect();
    let children: Vec<Uuid> = ids.iter().copied().filter(|id| children.contains(id)).collect();
    wait::children_ended(tx, Some(now), &children).await
}

async fn pause(tx: &Tx<'_>, now: Time, ids: &[Uuid], actor: &Actor) -> Result<Vec<ControlOutcome>, PgError> {
    let locked = lock(tx, ids, |_| true).await?;
    let (mut put_back, mut paused, mut holds): (Vec<Uuid>, Vec<Uuid>, Vec<i16>) = Default::default();
    let mut outcomes = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(job) = locked.get(id) else {
            outcomes.push(ControlOutcome::Unknown);
            continue;
        };
        let state = job.state();
        let outcome = if state.is_final() {
            outcome::cannot("pause", state)
        } else if job.cancel_requested {
            outcome::being_cancelled()
        } else if let Some(author) = &job.paused_by {
            ControlOutcome::Already(format!("it was paused by {author} before"))
        } else {
            paused.push(*id);
            holds.push(if state == State::Ready { HELD } else { TO_HOLD });
            ControlOutcome::Done
        };
        if outcome != ControlOutcome::Done && job.was_ready {
            put_back.push(*id);
        }
        outcomes.push(outcome);
    }
    let params: [Param<'_>; 5] = [&paused, &holds, &now.micros(), &actor.author, &actor.note];
    tx.execute(sql::control::PAUSE, &params).await?;
    serial::enter(tx, &put_back).await?;
    serial::leave(tx, &paused).await?;
    Ok(outcomes)
}

async fn resume(tx: &Tx<'_>, ids: &[Uuid]) -> Result<Vec<ControlOutcome>, PgError> {
    let locked = lock(tx, ids, |_| false).await?;
    let is_paused =
        |id: &Uuid| locked.get(id).is_some_and(|job| job.paused_by.is_some() && job.ended.is_none());
    let paused: Vec<Uuid> = ids.iter().copied().filter(is_paused).collect();
    tx.execute(sql::control::RESUME, &[&paused]).await?;
    let enters = |id: &Uuid| locked[id].is_held && !locked[id].cancel_requested;
    serial::enter(tx, &paused.iter().copied().filter(enters).collect::<Vec<_>>()).await?;
    let outcome = |id: &Uuid| match locked.get(id) {
        None => ControlOutcome::Unknown,
        Some(_) if is_paused(id) => ControlOutcome::Done,
        Some(_) => ControlOutcome::Already("it is not paused".into()),
    };
    Ok(ids.iter().map(outcome).collect())
}

async fn revive(tx: &Tx<'_>, now: Time, ids: &[Uuid]) -> Result<Vec<ControlOutcome>, PgError> {
    let locked = lock(tx, ids, |_| false).await?;
    let mut revived: Vec<Uuid> = Vec::new();
    let mut outcomes = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(job) = locked.get(id) else {
            outcomes.push(ControlOutcome::Unknown);
            continue;
        };
        outcomes.push(match job.ended {
            Some(State::Done) => outcome::retry_done(),
            // It may be in the ready set, from which it was not taken.
            None => outcome::retry_live(live_state(tx, job).await?),
            Some(_) => match (&job.fault, &job.settings.unique) {
                (Some(fault), _) => outcome::undecodable(fault),
                (None, None) => {
                    revived.push(*id);
                    ControlOutcome::Done
                }
                // One by one: two of them may want the same unique name.
                (None, Some(unique)) => match unique::retake(tx, now, job.kind, unique, JobId(*id)).await? {
                    Some(other) => outcome::name_taken(other),
                    None => {
                        make_live(tx, now, &[*id]).await?;
                        revived.push(*id);
                        ControlOutcome::Done
                    }
                },
            },
        });
    }
    let plain: Vec<Uuid> =
        revived.iter().copied().filter(|id| locked[id].settings.unique.is_none()).collect();
    make_live(tx, now, &plain).await?;
    let children: Vec<Uuid> = revived.iter().copied().filter(|id| locked[id].is_counted_child).collect();
    wait::count_revivals(tx, &children).await?;
    for job in revived.iter().map(|id| &locked[id]) {
        if let (Some(member), Some(was)) = (&job.member, job.ended) {
            tx.count_revival(member, was);
        }
    }
    serial::settle(tx, &revived).await?;
    Ok(outcomes)
}

/// Makes ended jobs live again, and ready; [`serial::settle`] must follow.
async fn make_live(tx: &Tx<'_>, now: Time, ids: &[Uuid]) -> Result<(), PgError> {
    let (at, last) = (now.micros(), Time::MAX.micros());
    tx.execute(sql::control::REVIVE, &[&ids, &at, &last, &tx.gate_writer, &tx.count_writer]).await?;
    serial::enter_unsettled(tx, ids).await.map(drop)
}

/// Reads the state of a live job, which may be in the ready set.
pub(super) async fn live_state(tx: &Tx<'_>, job: &LockedJob) -> Result<State, PgError> {
    let rows = tx.query(sql::control::READ_STATE, &[&SPAN, &job.id]).await?;
    Ok(rows.first().map_or(State::Running, read_state))
}

/// Reads a row of [`sql::control::READ_STATE`].
pub(super) fn read_state(row: &Row) -> State {
    let location = Location { is_parked: row.get(7), is_ready: row.get(2), is_scheduled: row.get(3) };
    columns::final_state(row.get(1)).unwrap_or_else(|| location.state())
}

async fn set_priority(tx: &Tx<'_>, ids: &[Uuid], priority: i16) -> Result<Vec<ControlOutcome>, PgError> {
    let locked = lock(tx, ids, |job| job.priority != priority).await?;
    let outcome = |id: &Uuid| match locked.get(id) {
        None => ControlOutcome::Unknown,
        Some(job) if job.ended.is_some() => outcome::cannot("reorder", job.state()),
        Some(job) if job.priority == priority => {
            ControlOutcome::Already(format!("its priority is {priority}"))
        }
        Some(_) => ControlOutcome::Done,
    };
    let outcomes: Vec<ControlOutcome> = ids.iter().map(outcome).collect();
    let changed: Vec<Uuid> = ids
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| **outcome == ControlOutcome::Done)
        .map(|(id, _)| *id)
        .collect();
    tx.execute(sql::control::SET_PRIORITY, &[&changed, &priority]).await?;
    let were_ready: Vec<Uuid> = locked.values().filter(|job| job.was_ready).map(|job| job.id).collect();
    serial::enter(tx, &were_ready).await?;
    Ok(outcomes)
}
