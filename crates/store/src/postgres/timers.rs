//! Due timers, and the gates.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{JobId, Reason, State, Time, rank::rank};

use super::{
    Postgres, arrivals,
    branch::{self, Child},
    conn::Conn,
    job_actions, micros,
    pool::Guard,
    schedule, serial, sql, unwind,
    wait::children_ended,
};
use crate::{
    Actor, CANCEL_GATE, Error, Now, TIMER_GATE, TimerReport,
    columns::{self, CANCEL, DEADLINE, WAKE},
    memory::expired,
};

/// Numbers in the `parked` column: that a job is parked, and that it was woken before its time was over.
const PARKED: i16 = 1;
const WOKEN: i16 = 0;

/// A timer that was due, with what is needed of its job.
struct Fired {
    at: Time,
    id: JobId,
    what: i16,
    lane: i32,
    priority: i16,
    due_at: Time,
    suspect: bool,
    held: bool,
    serial: bool,
    parked: bool,
    /// Whether this is the moment that its job is due at.
    wakes: bool,
    /// Whether this is the deadline of its job.
    expires: bool,
    /// The job whose wait for its children counts it.
    parent: Option<Uuid>,
    /// Whether its job has something to undo before it ends.
    undoes: bool,
    /// Whether its job has branches.
    branched: bool,
    /// The branch that its job's end counts for.
    twig: Option<Child>,
}

impl Fired {
    fn new(at: Time, what: i16, job: &Row) -> Fired {
        let (due_at, parked) = (Time(job.get(3)), job.get::<_, Option<i16>>(8));
        Fired {
            at,
            id: JobId(job.get(0)),
            what,
            lane: job.get(1),
            priority: job.get(2),
            due_at,
            suspect: job.get(4),
            held: job.get::<_, Option<i16>>(5).is_some(),
            serial: job.get::<_, Option<i64>>(6).is_some(),
            parked: parked == Some(PARKED),
            wakes: at == due_at && parked != Some(WOKEN),
            expires: job.get::<_, Option<i64>>(7) == Some(at.micros()) && !job.get::<_, bool>(11),
            parent: job.get(9),
            undoes: job.get(10),
            branched: job.get(12),
            twig: Child::read(job, 13),
        }
    }

    fn place(&self) -> (i32, i64) {
        (if self.suspect { -self.lane } else { self.lane }, rank(self.due_at, self.priority))
    }
}

/// Fires what is due, and puts in what waits. Looks first: most calls find nothing to do.
pub(super) async fn due(store: &Postgres, now: Now, limit: usize) -> Result<TimerReport, Error> {
    let conn = store.conn().await?;
    let Next { now: at, next_at, arrivals, ticks } = next(&conn, now).await?;
    let mut due = TimerReport { now: at, next_at, ..TimerReport::default() };
    // Three transactions: what is wrong with one must not hold up the others.
    let mut failed = None;
    if next_at.is_some_and(|next_at| next_at <= at) {
        conn.begin().await?;
        let fired = fire(&conn, at, limit, &mut due).await;
        match fired {
            Ok(()) => branch::commit(store, &conn, Some(at)).await?,
            Err(error) => {
                conn.rollback().await;
                (due, failed) = (TimerReport { now: at, next_at, ..TimerReport::default() }, Some(error));
            }
        }
        store.shared.floors.lowered(i64::MIN);
    }
    drop(conn);
    if arrivals {
        match arrivals::admit(store, now, limit).await {
            Ok(admitted) => due.admitted = admitted,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if ticks {
        match schedule::fire(store, now).await {
            Ok(fired) => due.fired = fired,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let idle = due == (TimerReport { now: at, next_at, ..TimerReport::default() });
    if let Some(error) = failed.filter(|_| idle) {
        return Err(error);
    }
    if due != (TimerReport { now: at, next_at, ..TimerReport::default() }) || ticks {
        due.next_at = next(&*store.conn().await?, Some(at)).await?.next_at;
    }
    Ok(due)
}

/// What there is to do, and when there is more.
struct Next {
    now: Time,
    next_at: Option<Time>,
    arrivals: bool,
    ticks: bool,
}

async fn next(conn: &Conn, now: Now) -> Result<Next, Error> {
    let rows = conn.read(sql::timers::NEXT, &[&micros(now)]).await?;
    let row = rows.first().ok_or_else(|| Error::Fault("the clock answered nothing".into()))?;
    let next_at = row.get::<_, Option<i64>>(1).map(Time);
    Ok(Next { now: Time(row.get(0)), next_at, arrivals: row.get(2), ticks: row.get(3) })
}

/// A timer that was taken: when it was due, whose it is, what it does.
type Timer = (Time, JobId, i16);

async fn fire(conn: &Guard<'_>, now: Time, limit: usize, due: &mut TimerReport) -> Result<(), Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = conn.query(sql::timers::TAKE_DUE, &[&now.micros(), &limit]).await?;
    let mut timers: Vec<Timer> =
        rows.iter().map(|row| (Time(row.get(0)), JobId(row.get(1)), row.get(2))).collect();
    timers.sort_unstable();
    // Mostly once: what comes after the end of a child may be another timer of the parent which that has woken.
    while !timers.is_empty() {
        timers = fire_first(conn, now, timers, due).await?;
        if !timers.is_empty() {
            branch::notify_in_transaction(conn, Some(now)).await?;
        }
    }
    Ok(())
}

/// Fires the first of some timers, in order; answers those that must be looked at again.
async fn fire_first(
    conn: &Guard<'_>,
    now: Time,
    mut timers: Vec<Timer>,
    due: &mut TimerReport,
) -> Result<Vec<Timer>, Error> {
    let ids: Vec<Uuid> = timers.iter().map(|(_, id, _)| id.0).collect();
    let live = conn.query(sql::timers::LOCK_JOBS, &[&ids]).await?;
    let live: HashMap<JobId, Row> = live.into_iter().map(|row| (JobId(row.get(0)), row)).collect();
    let told: Vec<Uuid> = timers.iter().filter(|(.., what)| *what == CANCEL).map(|(_, id, _)| id.0).collect();
    let mut orders: HashMap<(JobId, Time), Actor> = HashMap::new();
    if !told.is_empty() {
        for row in conn.query(sql::timers::CANCEL_REQUESTS, &[&told]).await? {
            let by = Actor { author: row.get(1), note: row.get(2) };
            orders.insert((JobId(row.get(0)), Time(row.get(3))), by);
        }
    }
    // Once a job has ended, a later timer of it in this batch is void; an earlier wake happened, for a moment.
    let mut gone = HashSet::new();
    // The parents of those that end, and by which timer they do.
    let mut parents: HashMap<Uuid, i16> = HashMap::new();
    // Those that have branches for which these count.
    let mut parted: HashSet<Uuid> = HashSet::new();
    let mut fired: Vec<Fired> = Vec::with_capacity(timers.len());
    let mut looked = 0;
    for (at, id, what) in &timers {
        if parents.contains_key(&id.0) || parted.contains(&id.0) {
            break;
        }
        let Some(timer) = live.get(id).map(|job| Fired::new(*at, *what, job)) else {
            looked += 1;
            continue;
        };
        // What a parent is told hangs on whether it has ended, and on what it was told before.
        let waits = |parent: Uuid| {
            gone.contains(&JobId(parent)) || parents.get(&parent).is_some_and(|before| before != what)
        };
        if *what != WAKE && timer.parent.is_some_and(waits) {
            break;
        }
        looked += 1;
        // What an earlier life of the job left behind is void.
        let meant = match timer.what {
            WAKE => timer.wakes,
            DEADLINE => timer.expires,
            _ => orders.contains_key(&(*id, *at)),
        };
        if !meant || gone.contains(id) {
            continue;
        }
        if timer.what != WAKE {
            gone.insert(*id);
            parents.extend(timer.parent.map(|parent| (parent, *what)));
            parted.extend(timer.twig.as_ref().map(Child::parent));
        }
        fired.push(timer);
    }
    let later = timers.split_off(looked);
    let (wakes, ends): (Vec<Fired>, Vec<Fired>) = fired.into_iter().partition(|timer| timer.what == WAKE);
    due.woken += wakes.len();
    if ends.iter().chain(&wakes).any(|timer| timer.serial) {
        let ids: Vec<Uuid> = ends.iter().chain(&wakes).map(|timer| timer.id.0).collect();
        serial::lock(conn, &ids).await?;
    }
    if !wakes.is_empty() {
        wake(conn, &wakes).await?;
    }
    if !ends.is_empty() {
        end(conn, now, &ends, &orders, due).await?;
    }
    let serials = ends.iter().chain(&wakes).filter(|timer| timer.serial);
    let serials: Vec<Uuid> = serials.map(|timer| timer.id.0).collect();
    if !serials.is_empty() {
        serial::leave(conn, &serials).await?;
    }
    Ok(later)
}

/// Lets woken jobs enter: the ready set, a line, or they are set aside. Those whose deadline is over too enter for a moment, and
/// are taken out by [`end`].
async fn wake(conn: &Guard<'_>, wakes: &[Fired]) -> Result<(), Error> {
    let parked: Vec<Uuid> = wakes.iter().filter(|timer| timer.parked).map(|timer| timer.id.0).collect();
    if !parked.is_empty() {
        conn.execute(sql::timers::END_WAITS, &[&parked]).await?;
    }
    let aside: Vec<Uuid> = wakes.iter().filter(|timer| timer.held).map(|timer| timer.id.0).collect();
    if !aside.is_empty() {
        conn.execute(sql::control::SET_HELD, &[&aside]).await?;
    }
    let lined: Vec<Uuid> =
        wakes.iter().filter(|timer| timer.serial && !timer.held).map(|timer| timer.id.0).collect();
    serial::enter_unsettled(conn, &lined).await?;
    let plain: Vec<&Fired> = wakes.iter().filter(|timer| !timer.serial && !timer.held).collect();
    if plain.is_empty() {
        return Ok(());
    }
    let lanes: Vec<i32> = plain.iter().map(|timer| timer.place().0).collect();
    let ranks: Vec<i64> = plain.iter().map(|timer| timer.place().1).collect();
    let ids: Vec<Uuid> = plain.iter().map(|timer| timer.id.0).collect();
    let of_lanes: Vec<i32> = plain.iter().map(|timer| timer.lane).collect();
    let sql = sql::timers::MAKE_READY;
    conn.execute(sql, &[&lanes, &ranks, &ids, &of_lanes, &conn.gate_writer]).await.map(drop)
}

/// Ends jobs whose deadline passed, or that were told to end and did not; those that have something to undo are unwound.
async fn end(
    conn: &Guard<'_>,
    now: Time,
    ends: &[Fired],
    orders: &HashMap<(JobId, Time), Actor>,
    due: &mut TimerReport,
) -> Result<(), Error> {
    let expires = |timer: &&Fired| timer.what == DEADLINE;
    let expired_ones = ends.iter().filter(expires).count();
    due.expired += expired_ones;
    due.cancelled += ends.len() - expired_ones;
    // A statement of its own, after the serial keys are locked: it must see a place that was being filled meanwhile.
    let ids: Vec<Uuid> = ends.iter().map(|timer| timer.id.0).collect();
    let (lanes, ranks): (Vec<i32>, Vec<i64>) = ends.iter().map(Fired::place).unzip();
    conn.execute(sql::control::REMOVE_READY, &[&lanes, &ranks, &ids]).await?;
    let (undoing, over): (Vec<&Fired>, Vec<&Fired>) = ends.iter().partition(|timer| timer.undoes);
    let (expired_ones, told): (Vec<&Fired>, Vec<&Fired>) = over.into_iter().partition(expires);
    if !expired_ones.is_empty() {
        expire(conn, now, &expired_ones).await?;
    }
    if !told.is_empty() {
        let ids: Vec<Uuid> = told.iter().map(|timer| timer.id.0).collect();
        let by: Vec<&Actor> = told.iter().map(|timer| &orders[&(timer.id, timer.at)]).collect();
        job_actions::finish(conn, now, &ids, &by).await?;
    }
    let how = |timer: &&Fired| match timer.what {
        DEADLINE => unwind::failed(Reason::Expired, expired(timer.at)),
        _ => unwind::cancelled(&orders[&(timer.id, timer.at)]),
    };
    let ids: Vec<Uuid> = undoing.iter().map(|timer| timer.id.0).collect();
    unwind::begin(conn, now, &ids, &undoing.iter().map(how).collect::<Vec<_>>()).await
}

/// Fails jobs whose deadline passed.
async fn expire(conn: &Guard<'_>, now: Time, timers: &[&Fired]) -> Result<(), Error> {
    let failures: Vec<String> =
        timers.iter().map(|timer| columns::failure_text(&expired(timer.at))).collect();
    let reason = columns::reason_number(Reason::Expired);
    let ids: Vec<Uuid> = timers.iter().map(|timer| timer.id.0).collect();
    let sql = sql::timers::EXPIRE;
    conn.execute(sql, &[&ids, &failures, &reason, &now.micros()]).await?;
    conn.execute(sql::control::CLEAR_HOLDS, &[&ids]).await?;
    let at: Vec<i64> = timers.iter().map(|timer| timer.due_at.micros()).collect();
    conn.execute(sql::timers::REMOVE, &[&at, &ids, &WAKE]).await?;
    let branched: Vec<Uuid> = timers.iter().filter(|timer| timer.branched).map(|timer| timer.id.0).collect();
    branch::orphan(conn, Some(now), &branched).await?;
    for twig in timers.iter().filter_map(|timer| timer.twig.as_ref()) {
        conn.count_end(twig, State::Failed);
    }
    let children: Vec<Uuid> =
        timers.iter().filter(|timer| timer.parent.is_some()).map(|timer| timer.id.0).collect();
    children_ended(conn, Some(now), &children).await
}

pub(super) async fn gate(store: &Postgres, queues: &[String]) -> Result<Vec<u64>, Error> {
    let conn = store.conn().await?;
    let number = |queue: &String| match queue.as_str() {
        TIMER_GATE => Some(0),
        CANCEL_GATE => Some(-1),
        queue => store.shared.lanes.queue(queue),
    };
    if queues.iter().any(|queue| number(queue).is_none()) {
        store.read_lanes(&conn).await?;
    }
    let ids: Vec<Option<i32>> = queues.iter().map(number).collect();
    let asked: Vec<i32> = ids.iter().flatten().copied().collect();
    let rows = conn.read_autocommit(sql::gates::VERSIONS, &[&asked]).await?;
    let sum = |id: &Option<i32>| {
        let row = rows.iter().find(|row| Some(row.get::<_, i32>(0)) == *id);
        row.map_or(0, |row| row.get::<_, i64>(1) as u64)
    };
    Ok(ids.iter().map(sum).collect())
}
