//! Taking ready jobs.

use rusqlite::{Row, params};
use windlass_model::{
    BranchMember, BranchNo, ClaimNo, ClaimedJob, Epoch, JobId, KindVersion, Payload, Rev, Time, WorkerId,
};

use super::{
    lease,
    rate::{self, Shares},
    signal, sql,
    tx::{Tx, job_id, pack, unpack},
};
use crate::{
    ClaimBatch, ClaimRequest, Error, Now,
    columns::{self, ALIVE},
    intern::Lane,
    memory::lease_ran_out,
};

/// Claims. `None` if that would charge a rate limit and the transaction is not on disk once it is committed (`lasts`): what is
/// charged must not be forgotten, or the limit would be exceeded. Nothing is taken then.
pub(super) fn claim(
    tx: &Tx<'_>,
    now: Now,
    ask: &ClaimRequest,
    lasts: bool,
) -> Result<Option<ClaimBatch>, Error> {
    let now = tx.now(now);
    let queue = tx.store.shared.lanes.queue(&ask.queue);
    let found = tx.one(sql::claim::READ_WORKER, params![ask.worker.0, queue], |row| {
        let worker = (row.get::<_, i16>(0)?, row.get::<_, i64>(1)?);
        Ok((worker, row.get::<_, i32>(2)?, row.get::<_, bool>(3)?))
    })?;
    let Some((worker, newest, paused)) = found else { return Err(Error::Dead) };
    match worker {
        (ALIVE, lease_until) if lease_until > now.micros() => {}
        (ALIVE, _) => return Err(lease_ran_out()),
        _ => return Err(Error::Dead),
    }
    if newest > tx.store.shared.lanes.newest() {
        tx.learn_lanes()?;
    }
    lease::settle(tx, ask.worker, &ask.settled)?;
    let lanes = lanes(tx, ask);
    let mut haul = ClaimBatch { now, ..ClaimBatch::default() };
    match read_claim(tx, ask.worker, ask.number)? {
        Some(pairs) => haul.jobs = repeated(tx, ask.number, &pairs)?,
        None if paused => {}
        None => {
            let shares = shares(tx, now, ask, &lanes)?;
            if shares.charges() && !lasts {
                return Ok(None);
            }
            haul.jobs = take(tx, now, ask, &lanes, &shares)?;
            haul.refill_at = shares.refill_at;
        }
    }
    for lane in lanes.iter().filter(|_| !paused) {
        haul.suspects =
            haul.suspects || tx.one(sql::claim::HAS_SUSPECTS, [-lane.id], |row| row.get(0))?.unwrap_or(false);
    }
    let limit = if ask.solo { 1 } else { ask.limit };
    haul.more = limit > 0 && haul.jobs.len() >= limit;
    Ok(Some(haul))
}

/// The lanes that are asked for: those without a rate limit, then those with one.
fn lanes(tx: &Tx<'_>, ask: &ClaimRequest) -> Vec<Lane> {
    let known = &tx.store.shared.lanes;
    let mut lanes: Vec<Lane> = ask.kinds.iter().filter_map(|kind| known.get(&ask.queue, kind)).collect();
    lanes.extend(known.throttled(&ask.queue, &ask.kinds));
    lanes
}

/// Looks, without the write lock, whether a claim would find anything; most looks into an idle queue do not. Answers
/// what such a claim answers.
pub(super) fn idle(tx: &Tx<'_>, now: Now, ask: &ClaimRequest) -> Result<Option<ClaimBatch>, Error> {
    if !ask.settled.is_empty() {
        return Ok(None);
    }
    let now = tx.now(now);
    let lanes = lanes(tx, ask);
    // Of lanes with a rate limit only the suspects: whether the others can be paid for is seen below.
    let numbers =
        lanes.iter().flat_map(|lane| [lane.id, -lane.id].into_iter().skip((lane.bucket != 0).into()));
    let numbers = serde_json::to_string(&numbers.collect::<Vec<_>>()).expect("numbers are plain data");
    let queue = tx.store.shared.lanes.queue(&ask.queue);
    let params = params![ask.worker.0, ask.number.0, numbers, now.micros(), queue];
    let found = tx.one(sql::claim::IS_IDLE, params, |row| {
        Ok((row.get::<_, bool>(0)?, row.get::<_, bool>(1)?, row.get::<_, bool>(2)?, row.get::<_, i32>(3)?))
    })?;
    let Some((fit, paused, empty, newest)) = found else { return Ok(None) };
    let nothing = ClaimBatch { now, ..ClaimBatch::default() };
    if !fit || paused {
        return Ok(fit.then_some(nothing));
    }
    if !empty || newest > tx.store.shared.lanes.newest() {
        return Ok(None);
    }
    if ask.solo || lanes.iter().all(|lane| lane.bucket == 0) {
        return Ok(Some(nothing));
    }
    let shares = rate::shares(tx, now, &lanes, |lane| lane.id, ask.limit)?;
    Ok(shares.is_empty().then_some(ClaimBatch { refill_at: shares.refill_at, ..nothing }))
}

impl Tx<'_> {
    /// Whether a claim is recorded. One that is not was lost with what came after a backup, or is settled.
    pub(super) fn knows(&self, worker: WorkerId, number: ClaimNo) -> Result<bool, Error> {
        let claim = (worker, number);
        // Changes of a batch are mostly of few claims, and those of one come together.
        match self.last_claim.get() {
            Some((last, known)) if last == claim => return Ok(known),
            _ => {}
        }
        let mut claims = self.claims.borrow_mut();
        let known = match claims.get(&claim) {
            Some(known) => *known,
            None => {
                let sql = sql::claim::IS_RECORDED;
                let known = self.one(sql, [worker.0, number.0], |row| row.get(0))?.unwrap_or(false);
                claims.insert(claim, known);
                known
            }
        };
        self.last_claim.set(Some((claim, known)));
        Ok(known)
    }
}

/// What an earlier send of the same claim took, if there was one.
pub(super) fn read_claim(
    tx: &Tx<'_>,
    worker: WorkerId,
    number: ClaimNo,
) -> Result<Option<Vec<(JobId, Epoch)>>, Error> {
    let bytes = tx.one(sql::claim::READ_CLAIM, [worker.0, number.0], |row| row.get::<_, Vec<u8>>(0))?;
    bytes.map(|bytes| unpack(&bytes)).transpose()
}

fn repeated(tx: &Tx<'_>, number: ClaimNo, pairs: &[(JobId, Epoch)]) -> Result<Vec<ClaimedJob>, Error> {
    let mut jobs = Vec::new();
    for (id, epoch) in pairs {
        let found = tx.one(sql::claim::CLAIMED_AGAIN, params![id.as_bytes(), epoch.0], |row| {
            Ok((read(row)?, row.get::<_, i32>(11)?))
        })?;
        if let Some((raw, lane)) = found {
            jobs.push(raw.claimed(tx, number, &tx.store.lane(tx, lane)?.kind)?);
        }
    }
    Ok(jobs)
}

/// The number of a lane as it is asked for: that of its suspects, if these are.
fn number(ask: &ClaimRequest, lane: &Lane) -> i32 {
    if ask.solo { -lane.id } else { lane.id }
}

/// How many are to be taken of each lane.
fn shares(tx: &Tx<'_>, now: Time, ask: &ClaimRequest, lanes: &[Lane]) -> Result<Shares, Error> {
    let limit = if ask.solo { 1 } else { ask.limit };
    match lanes {
        [Lane { bucket: 0, .. }] => Ok(Shares::one_lane(limit)),
        lanes => rate::shares(tx, now, lanes, |lane| number(ask, lane), limit),
    }
}

fn take(
    tx: &Tx<'_>,
    now: Time,
    ask: &ClaimRequest,
    lanes: &[Lane],
    shares: &Shares,
) -> Result<Vec<ClaimedJob>, Error> {
    let limit = if ask.solo { 1 } else { ask.limit };
    let mut taken: Vec<(i64, ClaimedJob)> = Vec::with_capacity(limit.min(1024));
    for (lane, share) in lanes.iter().zip(&shares.each).filter(|(_, share)| **share > 0) {
        let mut statement = tx.prepare(sql::claim::READY_JOBS)?;
        let mut rows = statement.query([number(ask, lane)])?;
        let mut last = None;
        for _ in 0..*share {
            let Some(row) = rows.next()? else { break };
            let (raw, rank) = (read(row)?, row.get::<_, i64>(11)?);
            last = Some((rank, raw.id));
            taken.push((rank, raw.claimed(tx, ask.number, &lane.kind)?));
        }
        drop(rows);
        if let Some((rank, id)) = last {
            tx.run(sql::claim::TAKE_READY, params![number(ask, lane), rank, id])?;
        }
    }
    if lanes.len() > 1 {
        taken.sort_by_key(|(rank, job)| (*rank, job.id));
    }
    shares.charge(tx)?;
    if !taken.is_empty() {
        let pairs: Vec<_> = taken.iter().map(|(_, job)| (job.id, job.epoch)).collect();
        let params = params![ask.worker.0, ask.number.0, ask.solo, now.micros(), pack(&pairs)];
        tx.run(sql::claim::RECORD, params)?;
    }
    Ok(taken.into_iter().map(|(_, job)| job).collect())
}

/// A job's columns as they come.
struct Raw {
    id: [u8; 16],
    epoch: i32,
    rev: i32,
    attempts: u32,
    deaths: u16,
    key: Option<String>,
    due_at: i64,
    deadline_at: Option<i64>,
    spent: Option<String>,
    settings: Option<String>,
    input: Payload,
    stage: Option<String>,
    data: Option<Payload>,
    wait: Option<String>,
    until: Option<i64>,
    pending: u32,
    parent: Option<[u8; 16]>,
    since: i32,
    run: u32,
    unwind: Option<String>,
    counted: Option<BranchMember>,
}

fn read(row: &Row<'_>) -> rusqlite::Result<Raw> {
    let data = row.get::<_, Option<u8>>(14)?;
    Ok(Raw {
        id: row.get(0)?,
        epoch: row.get(1)?,
        rev: row.get(2)?,
        attempts: row.get(3)?,
        deaths: row.get(4)?,
        key: row.get(5)?,
        due_at: row.get(12)?,
        deadline_at: row.get(6)?,
        spent: row.get(7)?,
        settings: row.get(8)?,
        input: Payload { codec: row.get(9)?, bytes: row.get(10)? },
        stage: row.get(13)?,
        data: data.map(|codec| row.get(15).map(|bytes| Payload { codec, bytes })).transpose()?,
        wait: row.get(16)?,
        until: row.get(17)?,
        pending: row.get(18)?,
        parent: row.get(19)?,
        since: row.get(20)?,
        run: row.get(21)?,
        unwind: row.get(22)?,
        counted: counted(row)?,
    })
}

/// The branch that a job's end counts for.
fn counted(row: &Row<'_>) -> rusqlite::Result<Option<BranchMember>> {
    let Some(branch) = row.get::<_, Option<i64>>(23)? else { return Ok(None) };
    let parent = JobId::from_bytes(row.get(24)?);
    Ok(Some(BranchMember { parent, branch: BranchNo(branch), items: row.get(25)? }))
}

impl Raw {
    fn claimed(self, tx: &Tx<'_>, claim: ClaimNo, kind: &KindVersion) -> Result<ClaimedJob, Error> {
        let id = job_id(&self.id)?;
        let wait = columns::wait(self.wait.as_deref());
        Ok(ClaimedJob {
            id,
            kind: kind.clone(),
            claim,
            epoch: Epoch(self.epoch),
            rev: Rev(self.rev),
            attempts: self.attempts,
            retry_counts: columns::retry_counts(self.spent.as_deref()),
            deaths: self.deaths,
            key: self.key,
            due_at: Time(self.due_at),
            deadline_at: self.deadline_at.map(Time),
            settings: columns::settings(self.settings.as_deref()),
            input: self.input,
            parent: self.parent.map(JobId::from_bytes),
            branch_member: self.counted,
            stage: self.stage,
            stage_rev: Rev(self.since),
            steps_since_wait: self.run,
            data: self.data,
            inbox: signal::shown(tx, id, wait.as_ref())?,
            wait,
            wait_until: self.until.map(Time),
            pending_children: self.pending,
            unwind: columns::unwind(self.unwind.as_deref()),
        })
    }
}
