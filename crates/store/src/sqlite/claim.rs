//! Claiming ready jobs.

use rusqlite::{Row, params};
use windlass_model::{
    BranchMember, BranchNo, ClaimNo, ClaimedJob, Epoch, JobId, KindVersion, LeaseState, Payload, Rev, Time,
    WorkerId,
};

use super::{
    inspect::SPAN,
    lease,
    open_claims::{ClaimKey, ClaimedFrom, ClaimedJobs},
    rate::{self, Shares},
    signal, sql,
    tx::{Tx, job_id, pack, unpack},
};
use crate::{ClaimBatch, ClaimRequest, Error, Now, columns, intern::Lane};

/// Claims jobs. Returns `None`, and takes nothing, if the claim would charge a rate limit and its commit would not be
/// on disk when it returns (`is_synced`): a charge that is lost would let the limit be exceeded.
pub(super) fn claim(
    tx: &Tx<'_>,
    now: Now,
    request: &ClaimRequest,
    is_synced: bool,
) -> Result<Option<ClaimBatch>, Error> {
    let now = tx.now(now);
    let queue = tx.store.shared.lanes.queue(&request.queue);
    let found = tx.query_one(sql::claim::READ_WORKER, params![request.worker.0, queue], |row| {
        Ok((lease::read(row)?, row.get::<_, i32>(2)?, row.get::<_, bool>(3)?))
    })?;
    let Some((lease, newest, paused)) = found else { return Err(Error::Dead) };
    match lease.state(now) {
        LeaseState::Valid => {}
        LeaseState::Lapsed => return Err(Error::lease_lapsed()),
        LeaseState::Ended => return Err(Error::Dead),
    }
    if newest > tx.store.shared.lanes.newest() {
        tx.refresh_lanes()?;
    }
    lease::settle_claims(tx, request.worker, &request.settled)?;
    let lanes = lanes(tx, request);
    let mut batch = ClaimBatch { now, ..ClaimBatch::default() };
    match read_claim(tx, request.worker, request.number)? {
        Some(pairs) => batch.jobs = repeated_jobs(tx, request.number, &pairs)?,
        None if paused => {}
        None if request.only.is_some() => batch.jobs = take_one(tx, now, request, &lanes)?,
        None => {
            let shares = shares(tx, now, request, &lanes)?;
            if shares.charges() && !is_synced {
                return Ok(None);
            }
            batch.jobs = take(tx, now, request, &lanes, &shares)?;
            batch.refill_at = shares.refill_at;
        }
    }
    for lane in lanes.iter().filter(|_| !paused) {
        batch.suspects = batch.suspects
            || tx.query_one(sql::claim::HAS_SUSPECTS, [-lane.id], |row| row.get(0))?.unwrap_or(false);
    }
    let limit = if request.solo { 1 } else { request.limit };
    batch.more = request.only.is_none() && limit > 0 && batch.jobs.len() >= limit;
    Ok(Some(batch))
}

/// The lanes of a request: those without a rate limit, then those with one. A claim of one job takes it from the former only.
fn lanes(tx: &Tx<'_>, request: &ClaimRequest) -> Vec<Lane> {
    let known = &tx.store.shared.lanes;
    let mut lanes: Vec<Lane> =
        request.kinds.iter().filter_map(|kind| known.get(&request.queue, kind)).collect();
    if request.only.is_none() {
        lanes.extend(known.throttled(&request.queue, &request.kinds));
    }
    lanes
}

/// Checks, without the write lock, whether a claim would find anything; most claims of an idle queue do not. Returns
/// the result of such a claim, or `None` if a claim must be made.
pub(super) fn find_idle(tx: &Tx<'_>, now: Now, request: &ClaimRequest) -> Result<Option<ClaimBatch>, Error> {
    if !request.settled.is_empty() {
        return Ok(None);
    }
    let now = tx.now(now);
    let lanes = lanes(tx, request);
    // Of lanes with a rate limit only the suspects: whether the others can be paid for is checked below.
    let ready_lanes =
        lanes.iter().flat_map(|lane| [lane.id, -lane.id].into_iter().skip((lane.bucket != 0).into()));
    let ready_lanes =
        serde_json::to_string(&ready_lanes.collect::<Vec<_>>()).expect("numbers are plain data");
    let queue = tx.store.shared.lanes.queue(&request.queue);
    let params = params![request.worker.0, request.number.0, ready_lanes, now.micros(), queue];
    let found = tx.query_one(sql::claim::IS_IDLE, params, |row| {
        Ok((row.get::<_, bool>(0)?, row.get::<_, bool>(1)?, row.get::<_, bool>(2)?, row.get::<_, i32>(3)?))
    })?;
    let Some((may_claim, paused, is_empty, newest)) = found else { return Ok(None) };
    let empty = ClaimBatch { now, ..ClaimBatch::default() };
    if !may_claim || paused {
        return Ok(may_claim.then_some(empty));
    }
    if !is_empty || newest > tx.store.shared.lanes.newest() {
        return Ok(None);
    }
    if request.solo || lanes.iter().all(|lane| lane.bucket == 0) {
        return Ok(Some(empty));
    }
    let shares = rate::shares(tx, now, &lanes, |lane| lane.id, request.limit)?;
    Ok(shares.is_empty().then_some(ClaimBatch { refill_at: shares.refill_at, ..empty }))
}

impl Tx<'_> {
    /// Notes the claim that the transaction has recorded, and its jobs.
    pub(super) fn note_made_claim(&self, claim: ClaimKey, jobs: ClaimedJobs) {
        *self.made_claim.borrow_mut() = Some((claim, jobs));
    }

    /// The lane and due time of a job that is claimed, or has just ended; also of one that is no job of the claim, but is written as if
    /// it were.
    pub(super) fn claimed_from(&self, claim: ClaimKey, job: JobId) -> Result<ClaimedFrom, Error> {
        if let Some(from) = self.store.shared.open_claims.job(claim, job) {
            return Ok(from);
        }
        let from = self.query_one(sql::counts::CLAIMED_FROM, [job.as_bytes()], |row| {
            Ok(ClaimedFrom { lane: row.get(0)?, due_at: Time(row.get(1)?) })
        })?;
        from.ok_or_else(|| Error::Fault(format!("job {job} is gone")))
    }

    /// Whether a claim is recorded. One that is not is settled, or was lost by a restore.
    pub(super) fn is_recorded(&self, worker: WorkerId, number: ClaimNo) -> Result<bool, Error> {
        let claim = (worker, number);
        // Changes of a batch are mostly of few claims, and those of one claim come together.
        match self.last_claim.get() {
            Some((last, known)) if last == claim => return Ok(known),
            _ => {}
        }
        let mut claims = self.claims.borrow_mut();
        let known = match claims.get(&claim) {
            Some(known) => *known,
            None => {
                let sql = sql::claim::IS_RECORDED;
                let known = self.query_one(sql, [worker.0, number.0], |row| row.get(0))?.unwrap_or(false);
                claims.insert(claim, known);
                known
            }
        };
        self.last_claim.set(Some((claim, known)));
        Ok(known)
    }
}

/// Reads the jobs of a recorded claim.
pub(super) fn read_claim(
    tx: &Tx<'_>,
    worker: WorkerId,
    number: ClaimNo,
) -> Result<Option<Vec<(JobId, Epoch)>>, Error> {
    let bytes = tx.query_one(sql::claim::READ_CLAIM, [worker.0, number.0], |row| row.get::<_, Vec<u8>>(0))?;
    bytes.map(|bytes| unpack(&bytes)).transpose()
}

/// The jobs that are still claimed under a claim.
pub(super) fn claimed_jobs(tx: &Tx<'_>, worker: WorkerId, number: ClaimNo) -> Result<Vec<ClaimedJob>, Error> {
    repeated_jobs(tx, number, &read_claim(tx, worker, number)?.unwrap_or_default())
}

/// Which claims of a worker still have a job.
pub(super) fn claims_with_jobs(
    tx: &Tx<'_>,
    worker: WorkerId,
    numbers: &[ClaimNo],
) -> Result<Vec<ClaimNo>, Error> {
    let mut found = Vec::new();
    for number in numbers {
        for (id, epoch) in read_claim(tx, worker, *number)?.unwrap_or_default() {
            let params = params![id.as_bytes(), epoch.0];
            if tx.query_one(sql::claim::IS_CLAIMED, params, |_| Ok(()))?.is_some() {
                found.push(*number);
                break;
            }
        }
    }
    Ok(found)
}

/// The jobs of a repeated claim that are still claimed under it.
fn repeated_jobs(tx: &Tx<'_>, number: ClaimNo, pairs: &[(JobId, Epoch)]) -> Result<Vec<ClaimedJob>, Error> {
    let mut jobs = Vec::new();
    for (id, epoch) in pairs {
        let found = tx.query_one(sql::claim::CLAIMED_AGAIN, params![id.as_bytes(), epoch.0], |row| {
            Ok((read(row)?, row.get::<_, i32>(11)?))
        })?;
        if let Some((claimed, lane)) = found {
            jobs.push(claimed.claimed(tx, number, &tx.store.lane(tx, lane)?.kind)?);
        }
    }
    Ok(jobs)
}

/// The lane in the ready set: that of the suspects for a solo claim.
fn ready_lane(request: &ClaimRequest, lane: &Lane) -> i32 {
    if request.solo { -lane.id } else { lane.id }
}

/// How many jobs to take from each lane.
fn shares(tx: &Tx<'_>, now: Time, request: &ClaimRequest, lanes: &[Lane]) -> Result<Shares, Error> {
    let limit = if request.solo { 1 } else { request.limit };
    match lanes {
        [Lane { bucket: 0, .. }] => Ok(Shares::one_lane(limit)),
        lanes => rate::shares(tx, now, lanes, |lane| ready_lane(request, lane), limit),
    }
}

/// Takes jobs from the ready set, charges the buckets and records the claim.
fn take(
    tx: &Tx<'_>,
    now: Time,
    request: &ClaimRequest,
    lanes: &[Lane],
    shares: &Shares,
) -> Result<Vec<ClaimedJob>, Error> {
    let limit = if request.solo { 1 } else { request.limit };
    let mut taken: Vec<(i64, ClaimedJob)> = Vec::with_capacity(limit.min(1024));
    let mut claimed_jobs = ClaimedJobs::with_capacity_and_hasher(limit.min(1024), Default::default());
    for (lane, share) in lanes.iter().zip(&shares.per_lane).filter(|(_, share)| **share > 0) {
        let mut statement = tx.prepare(sql::claim::READY_JOBS)?;
        let mut rows = statement.query([ready_lane(request, lane)])?;
        let mut last = None;
        for _ in 0..*share {
            let Some(row) = rows.next()? else { break };
            let (claimed, rank) = (read(row)?, row.get::<_, i64>(11)?);
            last = Some((rank, claimed.id));
            let job = claimed.claimed(tx, request.number, &lane.kind)?;
            claimed_jobs.insert(job.id, ClaimedFrom { lane: lane.id, due_at: job.due_at });
            taken.push((rank, job));
        }
        drop(rows);
        if let Some((rank, id)) = last {
            tx.execute(sql::claim::TAKE_READY, params![ready_lane(request, lane), rank, id])?;
        }
    }
    if lanes.len() > 1 {
        taken.sort_by_key(|(rank, job)| (*rank, job.id));
    }
    shares.charge(tx)?;
    let jobs: Vec<ClaimedJob> = taken.into_iter().map(|(_, job)| job).collect();
    record(tx, now, request, &jobs)?;
    tx.note_made_claim((request.worker, request.number), claimed_jobs);
    Ok(jobs)
}

/// Takes the one job that the request names, if it is ready in one of these lanes, and records the claim.
fn take_one(
    tx: &Tx<'_>,
    now: Time,
    request: &ClaimRequest,
    lanes: &[Lane],
) -> Result<Vec<ClaimedJob>, Error> {
    let Some(only) = request.only else { return Ok(Vec::new()) };
    for lane in lanes {
        let params = params![lane.id, only.as_bytes(), SPAN];
        let found =
            tx.query_one(sql::claim::READY_JOB, params, |row| Ok((read(row)?, row.get::<_, i64>(11)?)))?;
        if let Some((claimed, rank)) = found {
            tx.execute(sql::timers::REMOVE_READY, params![lane.id, rank, only.as_bytes()])?;
            let jobs = vec![claimed.claimed(tx, request.number, &lane.kind)?];
            record(tx, now, request, &jobs)?;
            let from = ClaimedFrom { lane: lane.id, due_at: jobs[0].due_at };
            tx.note_made_claim((request.worker, request.number), ClaimedJobs::from_iter([(only, from)]));
            return Ok(jobs);
        }
    }
    Ok(Vec::new())
}

/// Records a claim of these jobs; nothing if there are none.
fn record(tx: &Tx<'_>, now: Time, request: &ClaimRequest, jobs: &[ClaimedJob]) -> Result<(), Error> {
    if jobs.is_empty() {
        return Ok(());
    }
    let pairs: Vec<_> = jobs.iter().map(|job| (job.id, job.epoch)).collect();
    let params = params![request.worker.0, request.number.0, request.solo, now.micros(), pack(&pairs)];
    tx.execute(sql::claim::RECORD, params)?;
    Ok(())
}

/// The columns of the SQL fragment `claim.claimed_job`.
struct ClaimedRow {
    id: [u8; 16],
    epoch: i32,
    rev: i32,
    attempts: u32,
    worker_deaths: u16,
    key: Option<String>,
    due_at: i64,
    deadline_at: Option<i64>,
    retry_counts: Option<String>,
    settings: Option<String>,
    input: Payload,
    stage: Option<String>,
    data: Option<Payload>,
    wait: Option<String>,
    wait_until: Option<i64>,
    pending_children: u32,
    parent: Option<[u8; 16]>,
    stage_rev: i32,
    steps_since_wait: u32,
    unwind: Option<String>,
    branch_member: Option<BranchMember>,
}

fn read(row: &Row<'_>) -> rusqlite::Result<ClaimedRow> {
    let data = row.get::<_, Option<u8>>(14)?;
    Ok(ClaimedRow {
        id: row.get(0)?,
        epoch: row.get(1)?,
        rev: row.get(2)?,
        attempts: row.get(3)?,
        worker_deaths: row.get(4)?,
        key: row.get(5)?,
        due_at: row.get(12)?,
        deadline_at: row.get(6)?,
        retry_counts: row.get(7)?,
        settings: row.get(8)?,
        input: Payload { codec: row.get(9)?, bytes: row.get(10)? },
        stage: row.get(13)?,
        data: data.map(|codec| row.get(15).map(|bytes| Payload { codec, bytes })).transpose()?,
        wait: row.get(16)?,
        wait_until: row.get(17)?,
        pending_children: row.get(18)?,
        parent: row.get(19)?,
        stage_rev: row.get(20)?,
        steps_since_wait: row.get(21)?,
        unwind: row.get(22)?,
        branch_member: branch_member(row)?,
    })
}

/// The branch that the end of a job is counted in.
fn branch_member(row: &Row<'_>) -> rusqlite::Result<Option<BranchMember>> {
    let Some(branch) = row.get::<_, Option<i64>>(23)? else { return Ok(None) };
    let parent = JobId::from_bytes(row.get(24)?);
    Ok(Some(BranchMember { parent, branch: BranchNo(branch), items: row.get(25)? }))
}

impl ClaimedRow {
    fn claimed(self, tx: &Tx<'_>, claim: ClaimNo, kind: &KindVersion) -> Result<ClaimedJob, Error> {
        let id = job_id(&self.id)?;
        let mut decoder = columns::Decoder::default();
        let wait = decoder.wait(self.wait.as_deref());
        Ok(ClaimedJob {
            id,
            kind: kind.clone(),
            claim,
            epoch: Epoch(self.epoch),
            rev: Rev(self.rev),
            attempts: self.attempts,
            retry_counts: decoder.retry_counts(self.retry_counts.as_deref()),
            worker_deaths: self.worker_deaths,
            key: self.key,
            due_at: Time(self.due_at),
            deadline_at: self.deadline_at.map(Time),
            settings: decoder.settings(self.settings.as_deref()),
            input: self.input,
            parent: self.parent.map(JobId::from_bytes),
            branch_member: self.branch_member,
            stage: self.stage,
            stage_rev: Rev(self.stage_rev),
            steps_since_wait: self.steps_since_wait,
            data: self.data,
            inbox: signal::awaited_signals(tx, id, wait.as_ref())?,
            wait,
            wait_until: self.wait_until.map(Time),
            pending_children: self.pending_children,
            unwind: decoder.unwind(self.unwind.as_deref()),
            fault: decoder.fault(),
        })
    }
}
