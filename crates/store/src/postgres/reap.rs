//! Reaping: returning the jobs of dead workers.

use std::collections::HashMap;

use uuid::Uuid;
use windlass_model::{
    Epoch, JobId, Reason, State, Time, WorkerId,
    crash::{AfterDeath, after_death, lost},
};

use super::{
    Postgres, SPAN,
    branch::{self, Member},
    change_params::Param,
    control::clock,
    errors::PgError,
    micros, serial, sql,
    tx::{Executor, Tx},
    unwind, wait,
};
use crate::{
    Error, Now, ReapReport, ReapRequest,
    columns::{self, DEADLINE, FAILED},
};

pub(super) async fn reap(store: &Postgres, now: Now, request: &ReapRequest) -> Result<ReapReport, Error> {
    let mut conn = store.conn().await?;
    let tx = Tx::write(&mut conn).await?;
    let reaped = reap_in(&tx, now, request).await;
    let reaped = branch::finish(store, tx, now, reaped).await;
    store.shared.floors.lowered(i64::MIN);
    Ok(reaped?)
}

/// A claim of a dead worker.
#[derive(Clone, Copy)]
struct Claim {
    worker: WorkerId,
    is_solo: bool,
    claimed_at: Time,
}

async fn reap_in(tx: &Tx<'_>, now: Now, request: &ReapRequest) -> Result<ReapReport, PgError> {
    let named: Vec<i64> = request.dead.iter().map(|worker| worker.0).collect();
    let dead = tx.query(sql::reap::DECLARE_DEAD, &[&micros(now), &named, &request.lapsed]).await?;
    let mut report = ReapReport {
        workers: dead.iter().map(|row| WorkerId(row.get(0))).collect(),
        ..ReapReport::default()
    };
    report.workers.sort_unstable();

    let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
    let mut claims: HashMap<(JobId, Epoch), Claim> = HashMap::new();
    for row in tx.query(sql::reap::TAKE_CLAIMS, &[&limit]).await? {
        let claim = Claim { worker: WorkerId(row.get(0)), is_solo: row.get(2), claimed_at: Time(row.get(3)) };
        let (ids, epochs): (Vec<Uuid>, Vec<i32>) = (row.get(4), row.get(5));
        for pair in ids.into_iter().map(JobId).zip(epochs.into_iter().map(Epoch)) {
            claims.insert(pair, claim);
        }
    }
    if !claims.is_empty() {
        return_jobs(tx, now, &claims, request.max_crashes, &mut report).await?;
    }
    let rows = tx.query(sql::reap::RETIRE_DEAD, &[]).await?;
    report.more = rows.first().is_some_and(|row| row.get(0));
    Ok(report)
}

async fn return_jobs(
    tx: &Tx<'_>,
    now: Now,
    claims: &HashMap<(JobId, Epoch), Claim>,
    max_crashes: u16,
    report: &mut ReapReport,
) -> Result<(), PgError> {
    let ids: Vec<_> = claims.keys().map(|(id, _)| id.0).collect();
    let (mut returned, mut to_unwind) = (Decisions::default(), Decisions::default());
    for row in tx.query(sql::reap::LOCK_JOBS, &[&ids]).await? {
        let pair = (JobId(row.get(0)), Epoch(row.get(1)));
        if let Some(claim) = claims.get(&pair) {
            let (deaths, crashes) = (row.get::<_, i16>(2) as u16, row.get::<_, i16>(3) as u16);
            let decision = after_death(deaths, crashes, claim.is_solo, max_crashes);
            let has_undo = row.get(4) && matches!(decision, AfterDeath::Poison { .. });
            let decisions = if has_undo { &mut to_unwind } else { &mut returned };
            decisions.push(pair, claim, decision);
            if matches!(decision, AfterDeath::Poison { .. }) && !has_undo {
                decisions.with_branches.extend(row.get::<_, bool>(5).then_some(pair.0.0));
                decisions.members.extend(Member::read(&row, 6));
            }
        }
    }
    // All serial keys are locked at once, in one order.
    if !to_unwind.id.is_empty() {
        let ids: Vec<_> = returned.id.iter().chain(&to_unwind.id).copied().collect();
        serial::lock_keys(tx, &ids).await?;
    }
    if !returned.id.is_empty() {
        write(tx, now, &returned, report).await?;
    }
    if !to_unwind.id.is_empty() {
        start_unwinds(tx, now, &to_unwind, report).await?;
    }
    Ok(())
}

/// Starts to unwind jobs that would fail as poison.
async fn start_unwinds(
    tx: &Tx<'_>,
    now: Now,
    decisions: &Decisions,
    report: &mut ReapReport,
) -> Result<(), PgError> {
    report.poisoned += decisions.id.len();
    let now = clock(tx, now).await?;
    let params: [Param<'_>; 6] = [
        &now.micros(),
        &decisions.id,
        &decisions.epoch,
        &decisions.worker,
        &decisions.claimed_at,
        &decisions.failure,
    ];
    tx.execute(sql::reap::ADD_LOST_ATTEMPTS, &params).await?;
    let unwind = |failure: &String| {
        unwind::failed(Reason::Poison, columns::failure(Some(failure)).expect("the text was written above"))
    };
    unwind::start(tx, now, &decisions.id, &decisions.failure.iter().map(unwind).collect::<Vec<_>>()).await
}

async fn write(tx: &Tx<'_>, now: Now, decisions: &Decisions, report: &mut ReapReport) -> Result<(), PgError> {
    let rows = tx
        .query(
            sql::reap::RETURN_JOBS,
            &[
                &micros(now),
                &decisions.id,
                &decisions.epoch,
                &decisions.deaths,
                &decisions.crashes,
                &decisions.poison,
                &decisions.worker,
                &decisions.claimed_at,
                &decisions.failure,
                &columns::reason_number(Reason::Poison),
                &SPAN,
                &tx.gate_writer,
                &tx.count_writer,
            ],
        )
        .await?;
    let mut left: Vec<Uuid> = Vec::new();
    let mut children: Vec<Uuid> = Vec::new();
    for row in rows {
        let count = row.get::<_, i64>(1) as usize;
        left.extend(row.get::<_, Option<Vec<Uuid>>>(4).unwrap_or_default());
        children.extend(row.get::<_, Option<Vec<Uuid>>>(6).unwrap_or_default());
        if let Some(ended) = row.get::<_, Option<Vec<Uuid>>>(5) {
            tx.execute(sql::control::CLEAR_HOLDS, &[&ended]).await?;
        }
        if row.get::<_, i16>(0) == FAILED {
            report.poisoned += count;
            let (at, jobs): (Option<Vec<i64>>, Option<Vec<Uuid>>) = (row.get(2), row.get(3));
            if let (Some(at), Some(jobs)) = (at, jobs) {
                tx.execute(sql::timers::REMOVE, &[&at, &jobs, &DEADLINE]).await?;
            }
        } else {
            report.returned += count;
        }
    }
    branch::parents_ended(Executor::Tx(tx), now, &decisions.with_branches).await?;
    decisions.members.iter().for_each(|member| tx.count_end(member, State::Failed));
    serial::settle(tx, &left).await?;
    wait::children_ended(tx, now, &children).await
}

/// What is done to jobs, as arrays.
#[derive(Default)]
struct Decisions {
    id: Vec<Uuid>,
    epoch: Vec<i32>,
    deaths: Vec<i16>,
    crashes: Vec<i16>,
    poison: Vec<bool>,
    worker: Vec<i64>,
    claimed_at: Vec<i64>,
    failure: Vec<String>,
    /// Jobs that fail and have branches.
    with_branches: Vec<Uuid>,
    /// The branches in which jobs fail.
    members: Vec<Member>,
}

impl Decisions {
    fn push(&mut self, (id, epoch): (JobId, Epoch), claim: &Claim, decision: AfterDeath) {
        let (deaths, crashes, poison) = match decision {
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
        self.failure.push(columns::failure_text(&lost(claim.worker, claim.is_solo)));
    }
}
