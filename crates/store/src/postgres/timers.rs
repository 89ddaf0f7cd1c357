//! Due timers, and the gates.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{Failure, JobCounts, JobId, Reason, State, Time, rank::rank};

use super::{
    Postgres, arrivals,
    branch::{self, Member},
    conn::Conn,
    counts,
    errors::PgError,
    job_actions, micros, schedule, serial, sql,
    tx::{Executor, Tx},
    unwind,
    wait::children_ended,
};
use crate::{
    Actor, CANCEL_GATE, Error, Now, TIMER_GATE, TimerReport,
    columns::{self, CANCEL, DEADLINE, WAKE},
};

/// Values of the column `parked`: the job is parked, or was woken before its timeout.
const PARKED: i16 = 1;
const WOKEN: i16 = 0;

/// A due timer, with what firing it needs to know about its job.
struct DueTimer {
    at: Time,
    id: JobId,
    purpose: i16,
    lane: i32,
    priority: i16,
    due_at: Time,
    suspect: bool,
    held: bool,
    has_serial_key: bool,
    parked: bool,
    /// Whether its job is due at this time.
    wakes: bool,
    /// Whether this is the deadline of its job.
    expires: bool,
    /// The parent that counts its job, or is notified of its end.
    parent: Option<Uuid>,
    /// Whether its job has something to undo before it ends.
    has_undo: bool,
    has_branches: bool,
    /// The branch that its job is in.
    member: Option<Member>,
}

impl DueTimer {
    fn new(at: Time, purpose: i16, job: &Row) -> DueTimer {
        let (due_at, parked) = (Time(job.get(3)), job.get::<_, Option<i16>>(8));
        DueTimer {
            at,
            id: JobId(job.get(0)),
            purpose,
            lane: job.get(1),
            priority: job.get(2),
            due_at,
            suspect: job.get(4),
            held: job.get::<_, Option<i16>>(5).is_some(),
            has_serial_key: job.get::<_, Option<i64>>(6).is_some(),
            parked: parked == Some(PARKED),
            wakes: at == due_at && parked != Some(WOKEN),
            expires: job.get::<_, Option<i64>>(7) == Some(at.micros()) && !job.get::<_, bool>(11),
            parent: job.get(9),
            has_undo: job.get(10),
            has_branches: job.get(12),
            member: Member::read(job, 13),
        }
    }

    /// Where its job is in the ready set: lane and rank.
    fn ready_key(&self) -> (i32, i64) {
        (if self.suspect { -self.lane } else { self.lane }, rank(self.due_at, self.priority))
    }
}

/// Fires due timers, admits arrivals and fires schedules. Reads first whether there is anything to do: mostly there is not.
pub(super) async fn fire_timers(store: &Postgres, now: Now, limit: usize) -> Result<TimerReport, Error> {
    let mut conn = store.conn().await?;
    let Next { now: at, next_at, arrivals, ticks } = next(&conn, now).await?;
    let idle = TimerReport { now: at, next_at, ..TimerReport::default() };
    let mut report = idle.clone();
    // Three transactions: a failure of one must not block the others.
    let mut failed = None;
    if next_at.is_some_and(|next_at| next_at <= at) {
        let tx = Tx::write(&mut conn).await?;
        match fire(&tx, at, limit, &mut report).await {
            Ok(()) => branch::finish(store, tx, Some(at), Ok(())).await?,
            Err(error) => {
                tx.rollback().await;
                (report, failed) = (idle.clone(), Some(Error::from(error)));
            }
        }
        store.shared.floors.lowered(i64::MIN);
    }
    drop(conn);
    if arrivals {
        match arrivals::admit(store, now, limit).await {
            Ok(admitted) => report.admitted = admitted,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if ticks {
        match schedule::fire(store, now).await {
            Ok(fired) => report.fired = fired,
            Err(error) => failed = failed.or(Some(error.into())),
        }
    }
    if let Some(error) = failed.filter(|_| report == idle) {
        return Err(error);
    }
    if report != idle || ticks {
        report.next_at = next(&*store.conn().await?, Some(at)).await?.next_at;
    }
    Ok(report)
}

/// What there is to do now, and when the next timer is due.
struct Next {
    now: Time,
    next_at: Option<Time>,
    arrivals: bool,
    ticks: bool,
}

async fn next(conn: &Conn, now: Now) -> Result<Next, PgError> {
    let rows = conn.read(sql::timers::NEXT, &[&micros(now)]).await?;
    let row = rows.first().ok_or_else(|| Error::Fault("the clock returned no row".into()))?;
    let next_at = row.get::<_, Option<i64>>(1).map(Time);
    Ok(Next { now: Time(row.get(0)), next_at, arrivals: row.get(2), ticks: row.get(3) })
}

/// A timer that was taken: its time, its job and its purpose.
type TakenTimer = (Time, JobId, i16);

async fn fire(tx: &Tx<'_>, now: Time, limit: usize, report: &mut TimerReport) -> Result<(), PgError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = tx.query(sql::timers::TAKE_DUE, &[&now.micros(), &limit]).await?;
    let mut timers: Vec<TakenTimer> =
        rows.iter().map(|row| (Time(row.get(0)), JobId(row.get(1)), row.get(2))).collect();
    timers.sort_unstable();
    // Mostly one pass. More are needed if the end of a child wakes its parent, and a later timer is the parent's.
    while !timers.is_empty() {
        timers = fire_first(tx, now, timers, report).await?;
        if !timers.is_empty() {
            branch::notify_in(tx, Some(now)).await?;
        }
    }
    Ok(())
}

/// Fires the first of some timers, in order. Returns those that depend on them.
async fn fire_first(
    tx: &Tx<'_>,
    now: Time,
    mut timers: Vec<TakenTimer>,
    report: &mut TimerReport,
) -> Result<Vec<TakenTimer>, PgError> {
    let ids: Vec<Uuid> = timers.iter().map(|(_, id, _)| id.0).collect();
    let live = tx.query(sql::timers::LOCK_JOBS, &[&ids]).await?;
    let live: HashMap<JobId, Row> = live.into_iter().map(|row| (JobId(row.get(0)), row)).collect();
    let requests = cancel_requests(tx, &timers).await?;
    // Once a job has ended, its later timers in this batch are void; an earlier wake has happened before.
    let mut ended = HashSet::new();
    // The parents of jobs that end, and the purpose of the timer that ends them.
    let mut parents: HashMap<Uuid, i16> = HashMap::new();
    // The jobs in whose branches others end.
    let mut branch_parents: HashSet<Uuid> = HashSet::new();
    let mut fired: Vec<DueTimer> = Vec::with_capacity(timers.len());
    let mut handled = 0;
    for (at, id, purpose) in &timers {
        if parents.contains_key(&id.0) || branch_parents.contains(&id.0) {
            break;
        }
        let Some(timer) = live.get(id).map(|job| DueTimer::new(*at, *purpose, job)) else {
            handled += 1;
            continue;
        };
        // How a parent is notified depends on whether it has ended, and on earlier notifications.
        let is_dependent = |parent: Uuid| {
            ended.contains(&JobId(parent)) || parents.get(&parent).is_some_and(|earlier| earlier != purpose)
        };
        if *purpose != WAKE && timer.parent.is_some_and(is_dependent) {
            break;
        }
        handled += 1;
        // A timer that was set before the job was revived is void.
        let is_current = match timer.purpose {
            WAKE => timer.wakes,
            DEADLINE => timer.expires,
            _ => requests.contains_key(&(*id, *at)),
        };
        if !is_current || ended.contains(id) {
            continue;
        }
        if timer.purpose != WAKE {
            ended.insert(*id);
            parents.extend(timer.parent.map(|parent| (parent, *purpose)));
            branch_parents.extend(timer.member.as_ref().map(Member::parent));
        }
        fired.push(timer);
    }
    let (wakes, ends): (Vec<DueTimer>, Vec<DueTimer>) =
        fired.into_iter().partition(|timer| timer.purpose == WAKE);
    count_not_woken(tx, &timers, &wakes, &ends).await?;
    let later = timers.split_off(handled);
    report.woken += wakes.len();
    if ends.iter().chain(&wakes).any(|timer| timer.has_serial_key) {
        let ids: Vec<Uuid> = ends.iter().chain(&wakes).map(|timer| timer.id.0).collect();
        serial::lock_keys(tx, &ids).await?;
    }
    if !wakes.is_empty() {
        wake(tx, now, &wakes).await?;
    }
    if !ends.is_empty() {
        end(tx, now, &ends, &requests, report).await?;
    }
    let serial = ends.iter().chain(&wakes).filter(|timer| timer.has_serial_key);
    let serial: Vec<Uuid> = serial.map(|timer| timer.id.0).collect();
    if !serial.is_empty() {
        serial::leave(tx, &serial).await?;
    }
    Ok(later)
}

/// Counts jobs as no longer scheduled that end before the timer which was to wake them is fired: that timer was taken with those that
/// end them, so the statements that end them do not find it. `timers` are sorted.
async fn count_not_woken(
    tx: &Tx<'_>,
    timers: &[TakenTimer],
    wakes: &[DueTimer],
    ends: &[DueTimer],
) -> Result<(), PgError> {
    let woken: HashSet<JobId> = wakes.iter().map(|timer| timer.id).collect();
    let is_taken = |timer: &&DueTimer| timers.binary_search(&(timer.due_at, timer.id, WAKE)).is_ok();
    let not_woken = ends.iter().filter(|timer| !timer.parked && !woken.contains(&timer.id)).filter(is_taken);
    let moved = |timer: &DueTimer| (timer.lane, JobCounts::moved(State::Scheduled, State::Ready));
    counts::add(tx, not_woken.map(moved)).await
}

/// The cancel requests whose grace period ends with one of some timers, and who made them.
type CancelRequests = HashMap<(JobId, Time), Actor>;

async fn cancel_requests(tx: &Tx<'_>, timers: &[TakenTimer]) -> Result<CancelRequests, PgError> {
    let cancels = timers.iter().filter(|(.., purpose)| *purpose == CANCEL);
    let ids: Vec<Uuid> = cancels.map(|(_, id, _)| id.0).collect();
    if ids.is_empty() {
        return Ok(CancelRequests::new());
    }
    let rows = tx.query(sql::timers::CANCEL_REQUESTS, &[&ids]).await?;
    let request = |row: &Row| {
        let actor = Actor { author: row.get(1), note: row.get(2) };
        ((JobId(row.get(0)), Time(row.get(3))), actor)
    };
    Ok(rows.iter().map(request).collect())
}

/// Wakes jobs: they become ready, wait for their serial key, or are held. Jobs whose deadline has passed too become ready for a
/// moment, and [`end`] takes them out of the ready set.
async fn wake(tx: &Tx<'_>, now: Time, wakes: &[DueTimer]) -> Result<(), PgError> {
    let parked: Vec<Uuid> = wakes.iter().filter(|timer| timer.parked).map(|timer| timer.id.0).collect();
    if !parked.is_empty() {
        tx.execute(sql::timers::END_WAITS, &[&parked, &now.micros()]).await?;
    }
    let moved = |timer: &DueTimer| {
        let from = if timer.parked { State::Waiting } else { State::Scheduled };
        (timer.lane, JobCounts::moved(from, State::Ready))
    };
    counts::add(tx, wakes.iter().map(moved)).await?;
    let held: Vec<Uuid> = wakes.iter().filter(|timer| timer.held).map(|timer| timer.id.0).collect();
    if !held.is_empty() {
        tx.execute(sql::control::SET_HELD, &[&held]).await?;
    }
    let serial = wakes.iter().filter(|timer| timer.has_serial_key && !timer.held);
    serial::enter_unsettled(tx, &serial.map(|timer| timer.id.0).collect::<Vec<_>>()).await?;
    let plain: Vec<&DueTimer> = wakes.iter().filter(|timer| !timer.has_serial_key && !timer.held).collect();
    if plain.is_empty() {
        return Ok(());
    }
    let (ready_lanes, ranks): (Vec<i32>, Vec<i64>) = plain.iter().map(|timer| timer.ready_key()).unzip();
    let ids: Vec<Uuid> = plain.iter().map(|timer| timer.id.0).collect();
    let lanes: Vec<i32> = plain.iter().map(|timer| timer.lane).collect();
    let sql = sql::timers::MAKE_READY;
    tx.execute(sql, &[&ready_lanes, &ranks, &ids, &lanes, &tx.gate_writer]).await.map(drop)
}

/// Ends jobs whose deadline has passed, or whose cancel was requested and whose grace period is over. Starts to unwind those that
/// have something to undo.
async fn end(
    tx: &Tx<'_>,
    now: Time,
    ends: &[DueTimer],
    requests: &CancelRequests,
    report: &mut TimerReport,
) -> Result<(), PgError> {
    let is_deadline = |timer: &&DueTimer| timer.purpose == DEADLINE;
    let deadlines = ends.iter().filter(is_deadline).count();
    report.expired += deadlines;
    report.cancelled += ends.len() - deadlines;
    // A statement of its own, after the serial keys are locked: it must see a row that was being inserted meanwhile.
    let ids: Vec<Uuid> = ends.iter().map(|timer| timer.id.0).collect();
    let (lanes, ranks): (Vec<i32>, Vec<i64>) = ends.iter().map(DueTimer::ready_key).unzip();
    tx.execute(sql::control::REMOVE_READY, &[&lanes, &ranks, &ids]).await?;
    let (to_unwind, to_end): (Vec<&DueTimer>, Vec<&DueTimer>) = ends.iter().partition(|timer| timer.has_undo);
    let (to_expire, to_cancel): (Vec<&DueTimer>, Vec<&DueTimer>) = to_end.into_iter().partition(is_deadline);
    if !to_expire.is_empty() {
        expire(tx, now, &to_expire).await?;
    }
    let actor = |timer: &DueTimer| &requests[&(timer.id, timer.at)];
    if !to_cancel.is_empty() {
        let ids: Vec<Uuid> = to_cancel.iter().map(|timer| timer.id.0).collect();
        let actors: Vec<&Actor> = to_cancel.iter().map(|timer| actor(timer)).collect();
        job_actions::end_cancelled(tx, now, &ids, &actors).await?;
    }
    let unwind = |timer: &&DueTimer| match timer.purpose {
        DEADLINE => unwind::failed(Reason::Expired, Failure::expired(timer.at)),
        _ => unwind::cancelled(actor(timer)),
    };
    let ids: Vec<Uuid> = to_unwind.iter().map(|timer| timer.id.0).collect();
    unwind::start(tx, now, &ids, &to_unwind.iter().map(unwind).collect::<Vec<_>>()).await
}

/// Fails jobs whose deadline has passed.
async fn expire(tx: &Tx<'_>, now: Time, timers: &[&DueTimer]) -> Result<(), PgError> {
    let failures: Vec<String> =
        timers.iter().map(|timer| columns::failure_text(&Failure::expired(timer.at))).collect();
    let reason = columns::reason_number(Reason::Expired);
    let ids: Vec<Uuid> = timers.iter().map(|timer| timer.id.0).collect();
    tx.execute(sql::timers::EXPIRE, &[&ids, &failures, &reason, &now.micros(), &tx.count_writer]).await?;
    tx.execute(sql::control::CLEAR_HOLDS, &[&ids]).await?;
    let at: Vec<i64> = timers.iter().map(|timer| timer.due_at.micros()).collect();
    tx.execute(sql::timers::REMOVE, &[&at, &ids, &WAKE]).await?;
    let with_branches = timers.iter().filter(|timer| timer.has_branches);
    let with_branches: Vec<Uuid> = with_branches.map(|timer| timer.id.0).collect();
    branch::parents_ended(Executor::Tx(tx), Some(now), &with_branches).await?;
    for member in timers.iter().filter_map(|timer| timer.member.as_ref()) {
        tx.count_end(member, State::Failed);
    }
    let children: Vec<Uuid> =
        timers.iter().filter(|timer| timer.parent.is_some()).map(|timer| timer.id.0).collect();
    children_ended(tx, Some(now), &children).await
}

/// Reads the versions of gates.
pub(super) async fn gates(store: &Postgres, queues: &[String]) -> Result<Vec<u64>, Error> {
    let conn = store.conn().await?;
    let gate_id = |queue: &String| match queue.as_str() {
        TIMER_GATE => Some(0),
        CANCEL_GATE => Some(-1),
        queue => store.shared.lanes.queue(queue),
    };
    if queues.iter().any(|queue| gate_id(queue).is_none()) {
        store.read_lanes(&conn).await?;
    }
    let ids: Vec<Option<i32>> = queues.iter().map(gate_id).collect();
    let known: Vec<i32> = ids.iter().flatten().copied().collect();
    let rows = conn.read_autocommit(sql::gates::VERSIONS, &[&known]).await?;
    let version = |id: &Option<i32>| {
        let row = rows.iter().find(|row| Some(row.get::<_, i32>(0)) == *id);
        row.map_or(0, |row| row.get::<_, i64>(1) as u64)
    };
    Ok(ids.iter().map(version).collect())
}
