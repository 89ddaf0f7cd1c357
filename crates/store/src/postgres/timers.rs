//! Due timers, and the gates.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;
use windlass_model::{JobId, Reason, Time, rank::rank};

use super::{Postgres, conn::Guard, micros};
use crate::{
    Due, Error, Now, TIMER_GATE,
    memory::expired,
    pick::{self, DEADLINE, WAKE},
};

/// A timer that was due, with what is needed of its job.
struct Fired {
    at: Time,
    id: JobId,
    what: i16,
    lane: i32,
    priority: i16,
    due_at: Time,
    suspect: bool,
}

impl Fired {
    fn place(&self) -> (i32, i64) {
        (if self.suspect { -self.lane } else { self.lane }, rank(self.due_at, self.priority))
    }
}

/// Fires what is due. Looks first: most calls find nothing to do.
pub(super) async fn due(store: &Postgres, now: Now, limit: usize) -> Result<Due, Error> {
    let conn = store.conn().await?;
    let (now, next_at) = next(&conn, now).await?;
    if next_at.is_none_or(|at| at > now) {
        return Ok(Due { now, next_at, ..Due::default() });
    }
    conn.begin().await?;
    let fired = fire(&conn, now, limit).await;
    match &fired {
        Ok(_) => conn.commit().await?,
        Err(_) => conn.rollback().await,
    }
    store.shared.floors.lowered(i64::MIN);
    let (woken, expired) = fired?;
    let (_, next_at) = next(&conn, Some(now)).await?;
    Ok(Due { woken, expired, next_at, now })
}

async fn next(conn: &Guard<'_>, now: Now) -> Result<(Time, Option<Time>), Error> {
    let rows = conn.query(include_str!("sql/due_next.sql"), &[&micros(now)]).await?;
    let row = rows.first().ok_or_else(|| Error::Fault("the clock answered nothing".into()))?;
    Ok((Time(row.get(0)), row.get::<_, Option<i64>>(1).map(Time)))
}

async fn fire(conn: &Guard<'_>, now: Time, limit: usize) -> Result<(usize, usize), Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = conn.query(include_str!("sql/due.sql"), &[&now.micros(), &limit]).await?;
    let ids: Vec<uuid::Uuid> = rows.iter().map(|row| row.get(1)).collect();
    let live = conn.query(include_str!("sql/due_jobs.sql"), &[&ids]).await?;
    let live: HashMap<JobId, Row> = live.into_iter().map(|row| (JobId(row.get(0)), row)).collect();
    let mut fired: Vec<Fired> = rows
        .iter()
        .filter_map(|timer| {
            let id = JobId(timer.get(1));
            let job = live.get(&id)?;
            Some(Fired {
                at: Time(timer.get(0)),
                id,
                what: timer.get(2),
                lane: job.get(1),
                priority: job.get(2),
                due_at: Time(job.get(3)),
                suspect: job.get(4),
            })
        })
        .collect();
    fired.sort_by_key(|timer| (timer.at, timer.id, timer.what));
    // Once a job has expired, a later wake of it in this batch is void; an earlier one happened, for a moment.
    let mut gone = HashSet::new();
    fired.retain(
        |timer| if timer.what == DEADLINE { gone.insert(timer.id) } else { !gone.contains(&timer.id) },
    );
    let (deadlines, wakes): (Vec<Fired>, Vec<Fired>) =
        fired.into_iter().partition(|timer| timer.what == DEADLINE);
    if !wakes.is_empty() {
        fill(conn, &wakes, &gone).await?;
    }
    if !deadlines.is_empty() {
        expire(conn, now, &deadlines).await?;
    }
    Ok((wakes.len(), deadlines.len()))
}

async fn fill(conn: &Guard<'_>, wakes: &[Fired], gone: &HashSet<JobId>) -> Result<(), Error> {
    let lanes: Vec<i32> = wakes.iter().map(|timer| timer.place().0).collect();
    let ranks: Vec<Option<i64>> =
        wakes.iter().map(|timer| (!gone.contains(&timer.id)).then(|| timer.place().1)).collect();
    let ids: Vec<_> = wakes.iter().map(|timer| timer.id.0).collect();
    let of_lanes: Vec<i32> = wakes.iter().map(|timer| timer.lane).collect();
    conn.execute(include_str!("sql/due_ready.sql"), &[&lanes, &ranks, &ids, &of_lanes, &conn.gate_writer])
        .await?;
    Ok(())
}

async fn expire(conn: &Guard<'_>, now: Time, deadlines: &[Fired]) -> Result<(), Error> {
    let ids: Vec<_> = deadlines.iter().map(|timer| timer.id.0).collect();
    let failures: Vec<String> =
        deadlines.iter().map(|timer| pick::failure_text(&expired(timer.at))).collect();
    let reason = pick::reason_number(Reason::Expired);
    conn.execute(include_str!("sql/due_expire.sql"), &[&ids, &failures, &reason, &now.micros()]).await?;
    let due: Vec<i64> = deadlines.iter().map(|timer| timer.due_at.micros()).collect();
    conn.execute(include_str!("sql/commit_untimer.sql"), &[&due, &ids, &WAKE]).await?;
    let (lanes, ranks): (Vec<i32>, Vec<i64>) = deadlines.iter().map(Fired::place).unzip();
    conn.execute(include_str!("sql/due_unready.sql"), &[&lanes, &ranks, &ids]).await?;
    Ok(())
}

pub(super) async fn gate(store: &Postgres, queues: &[String]) -> Result<Vec<u64>, Error> {
    let conn = store.conn().await?;
    let known = |queue: &String| queue == TIMER_GATE || store.shared.lanes.queue(queue).is_some();
    if !queues.iter().all(known) {
        store.read_lanes(&conn).await?;
    }
    let number = |queue: &String| if queue == TIMER_GATE { Some(0) } else { store.shared.lanes.queue(queue) };
    let ids: Vec<Option<i32>> = queues.iter().map(number).collect();
    let asked: Vec<i32> = ids.iter().flatten().copied().collect();
    let rows = conn.query(include_str!("sql/gate.sql"), &[&asked]).await?;
    let sum = |id: &Option<i32>| {
        let row = rows.iter().find(|row| Some(row.get::<_, i32>(0)) == *id);
        row.map_or(0, |row| row.get::<_, i64>(1) as u64)
    };
    Ok(ids.iter().map(sum).collect())
}
