//! Returning the jobs of lost workers.

use std::collections::HashMap;

use windlass_model::{
    Epoch, JobId, Reason, State, Time, WorkerId,
    crash::{AfterDeath, after_death},
};

use super::{
    Postgres, SPAN,
    branch::{self, Child},
    control::clock,
    micros,
    pool::Guard,
    serial, sql, unwind, wait,
};
use crate::{
    Error, Now, ReapReport, ReapRequest,
    columns::{self, DEADLINE, FAILED},
    memory::lost,
};

pub(super) async fn reap(store: &Postgres, now: Now, sweep: &ReapRequest) -> Result<ReapReport, Error> {
    let conn = store.conn().await?;
    conn.begin().await?;
    let reaped = walk(&conn, now, sweep).await;
    match &reaped {
        Ok(_) => branch::commit(store, &conn, now).await?,
        Err(_) => conn.rollback().await,
    }
    store.shared.floors.lowered(i64::MIN);
    reaped
}

/// What is known of a claim of a dead worker.
#[derive(Clone, Copy)]
struct Claim {
    worker: WorkerId,
    alone: bool,
    claimed_at: Time,
}

async fn walk(conn: &Guard<'_>, now: Now, sweep: &ReapRequest) -> Result<ReapReport, Error> {
    let named: Vec<i64> = sweep.dead.iter().map(|worker| worker.0).collect();
    let dead = conn.query(sql::reap::DECLARE_DEAD, &[&micros(now), &named, &sweep.lapsed]).await?;
    let mut reaped = ReapReport {
        workers: dead.iter().map(|row| WorkerId(row.get(0))).collect(),
        ..ReapReport::default()
    };
    reaped.workers.sort_unstable();

    let limit = i64::try_from(sweep.limit).unwrap_or(i64::MAX);
    let mut claims: HashMap<(JobId, Epoch), Claim> = HashMap::new();
    for row in conn.query(sql::reap::TAKE_CLAIMS, &[&limit]).await? {
        let claim = Claim { worker: WorkerId(row.get(0)), alone: row.get(2), claimed_at: Time(row.get(3)) };
        let (ids, epochs): (Vec<uuid::Uuid>, Vec<i32>) = (row.get(4), row.get(5));
        for pair in ids.into_iter().map(JobId).zip(epochs.into_iter().map(Epoch)) {
            claims.insert(pair, claim);
        }
    }
    if !claims.is_empty() {
        return_jobs(conn, now, &claims, sweep.crashes, &mut reaped).await?;
    }
    let rows = conn.query(sql::reap::RETIRE_DEAD, &[]).await?;
    reaped.more = rows.first().is_some_and(|row| row.get(0));
    Ok(reaped)
}

async fn return_jobs(
    conn: &Guard<'_>,
    now: Now,
    claims: &HashMap<(JobId, Epoch), Claim>,
    cap: u16,
    reaped: &mut ReapReport,
) -> Result<(), Error> {
    let ids: Vec<_> = claims.keys().map(|(id, _)| id.0).collect();
    let (mut fates, mut undoing) = (Fates::default(), Fates::default());
    for row in conn.query(sql::reap::LOCK_JOBS, &[&ids]).await? {
        let pair = (JobId(row.get(0)), Epoch(row.get(1)));
        if let Some(claim) = claims.get(&pair) {
            let (deaths, crashes) = (row.get::<_, i16>(2) as u16, row.get::<_, i16>(3) as u16);
            let fate = after_death(deaths, crashes, claim.alone, cap);
            let undoes = row.get(4) && matches!(fate, AfterDeath::Poison { .. });
            let fates = if undoes { &mut undoing } else { &mut fates };
            fates.push(pair, claim, fate);
            if matches!(fate, AfterDeath::Poison { .. }) && !undoes {
                fates.branched.extend(row.get::<_, bool>(5).then_some(pair.0.0));
                fates.twigs.extend(Child::read(&row, 6));
            }
        }
    }
    // All keys that are left or entered, in one order.
    if !undoing.id.is_empty() {
        let ids: Vec<_> = fates.id.iter().chain(&undoing.id).copied().collect();
        serial::lock(conn, &ids).await?;
    }
    if !fates.id.is_empty() {
        write(conn, now, &fates, reaped).await?;
    }
    if !undoing.id.is_empty() {
        have_unwound(conn, now, &undoing, reaped).await?;
    }
    Ok(())
}

/// Has jobs unwound that would fail as poison.
async fn have_unwound(
    conn: &Guard<'_>,
    now: Now,
    fates: &Fates,
    reaped: &mut ReapReport,
) -> Result<(), Error> {
    reaped.poisoned += fates.id.len();
    let now = clock(conn, now).await?;
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&now.micros(), &fates.id, &fates.epoch, &fates.worker, &fates.claimed_at, &fates.failure];
    conn.execute(sql::reap::ADD_LOST_ATTEMPTS, &params).await?;
    let how = |failure: &String| {
        unwind::failed(Reason::Poison, columns::failure(Some(failure)).expect("there is text"))
    };
    unwind::begin(conn, now, &fates.id, &fates.failure.iter().map(how).collect::<Vec<_>>()).await
}

async fn write(conn: &Guard<'_>, now: Now, fates: &Fates, reaped: &mut ReapReport) -> Result<(), Error> {
    let rows = conn
        .query(
            sql::reap::RETURN_JOBS,
            &[
                &micros(now),
                &fates.id,
                &fates.epoch,
                &fates.deaths,
                &fates.crashes,
                &fates.poison,
                &fates.worker,
                &fates.claimed_at,
                &fates.failure,
                &columns::reason_number(Reason::Poison),
                &SPAN,
                &conn.gate_writer,
            ],
        )
        .await?;
    let mut left: Vec<uuid::Uuid> = Vec::new();
    let mut children: Vec<uuid::Uuid> = Vec::new();
    for row in rows {
        let count = row.get::<_, i64>(1) as usize;
        left.extend(row.get::<_, Option<Vec<uuid::Uuid>>>(4).unwrap_or_default());
        children.extend(row.get::<_, Option<Vec<uuid::Uuid>>>(6).unwrap_or_default());
        if let Some(ended) = row.get::<_, Option<Vec<uuid::Uuid>>>(5) {
            conn.execute(sql::control::CLEAR_HOLDS, &[&ended]).await?;
        }
        if row.get::<_, i16>(0) == FAILED {
            reaped.poisoned += count;
            let (at, jobs): (Option<Vec<i64>>, Option<Vec<uuid::Uuid>>) = (row.get(2), row.get(3));
            if let (Some(at), Some(jobs)) = (at, jobs) {
                conn.execute(sql::timers::REMOVE, &[&at, &jobs, &DEADLINE]).await?;
            }
        } else {
            reaped.returned += count;
        }
    }
    branch::orphan(conn, now, &fates.branched).await?;
    fates.twigs.iter().for_each(|twig| conn.count_end(twig, State::Failed));
    serial::settle(conn, &left).await?;
    wait::children_ended(conn, now, &children).await
}

/// Decisions, as arrays.
#[derive(Default)]
struct Fates {
    id: Vec<uuid::Uuid>,
    epoch: Vec<i32>,
    deaths: Vec<i16>,
    crashes: Vec<i16>,
    poison: Vec<bool>,
    worker: Vec<i64>,
    claimed_at: Vec<i64>,
    failure: Vec<String>,
    /// Those that fail and have branches.
    branched: Vec<uuid::Uuid>,
    /// The branches for which those that fail count.
    twigs: Vec<Child>,
}

impl Fates {
    fn push(&mut self, (id, epoch): (JobId, Epoch), claim: &Claim, fate: AfterDeath) {
        let (deaths, crashes, poison) = match fate {
            AfterDeath::Suspect { worker_deaths: deaths, solo_crashes: crashes } => (deaths, crashes, false),
            AfterDeath::Poison { worker_deaths: deaths, solo_crashes: crashes } => (deaths, crashes, true),
        };
        self.id.push(id.0);
        self.epoch.push(epoch.0);
        self.deaths.push(i16::try_from(deaths).unwrap_or(i16::MAX));
        self.crashes.push(i16::try_from(crashes).unwrap_or(i16::MAX));
        self.poison.push(poison);
        self.worker.push(claim.worker.0);
        self.claimed_at.push(claim.claimed_at.micros());
        self.failure.push(columns::failure_text(&lost(claim.worker, claim.alone)));
    }
}
