//! Claiming ready jobs.

use std::{collections::HashMap, time::Instant};

use tokio_postgres::{
    Row,
    types::{FromSql, Type},
};
use uuid::Uuid;
use windlass_model::{
    BranchMember, BranchNo, ClaimNo, ClaimedJob, Epoch, JobId, Payload, Rev, Signal, Time, WaitCondition,
    WorkerId,
};

use super::{
    Postgres, SPAN,
    change_params::Param,
    conn::Conn,
    inspect::payload,
    micros,
    rate::{Unaffordable, claim_charged, unaffordable},
    signal, sql,
};
use crate::{ClaimBatch, ClaimRequest, Error, Now, columns};

pub(super) async fn claim(store: &Postgres, now: Now, request: &ClaimRequest) -> Result<ClaimBatch, Error> {
    match claim_once(store, now, request).await {
        // The same claim was sent twice at once: the other one has recorded it, and this one is a repeat.
        Err(Error::Refused(_)) => claim_once(store, now, request).await,
        result => result,
    }
}

async fn claim_once(store: &Postgres, now: Now, request: &ClaimRequest) -> Result<ClaimBatch, Error> {
    store.intern_lanes(request.kinds.iter().map(|kind| (request.queue.as_str(), kind, 0))).await?;
    let mut all = store.shared.lanes.all(&request.queue, &request.kinds);
    if request.only.is_some() {
        all.retain(|lane| lane.bucket == 0);
    }
    let queue = store.shared.lanes.queue(&request.queue);
    let buckets: Vec<i32> = all.iter().map(|lane| lane.bucket).collect();
    let limited = buckets.iter().any(|bucket| *bucket != 0);
    let served: Vec<i32> = all.into_iter().map(|lane| lane.id).collect();
    let suspects: Vec<i32> = served.iter().map(|lane| -lane).collect();
    let lanes = if request.solo { &suspects } else { &served };
    let limit = if request.solo || request.only.is_some() {
        1
    } else {
        i64::try_from(request.limit).unwrap_or(i64::MAX)
    };
    let settled: Vec<i64> = request.settled.iter().map(|number| number.0).collect();
    let only = request.only.map(|job| job.0);
    let sql = match lanes.as_slice() {
        _ if only.is_some() => sql::claim::ONE_JOB,
        _ if limited => sql::claim::RATE_LIMITED_LANES,
        [_] => sql::claim::ONE_LANE,
        _ => sql::claim::SEVERAL_LANES,
    };
    let (floors, raised) = match only {
        // It may rank before what the last claim reached.
        Some(_) => (vec![i64::MIN], false),
        None => store.shared.floors.of(lanes),
    };
    let (now, worker, number) = (micros(now), request.worker.0, request.number.0);
    let mut params: Vec<Param<'_>> =
        vec![&now, &worker, &number, lanes, &suspects, &limit, &settled, &request.solo, &floors, &queue];
    let mut conn = store.conn().await?;
    let is_same_server =
        store.shared.open_claims.are_all_after(conn.opened_at, request.worker, &request.settled);
    let before = Instant::now();
    // An idle worker sends claims often, and without settings they cost the least. A claim of several lanes needs the settings for
    // its plan.
    let mut rows = if limited {
        params.extend::<[Param<'_>; 2]>([&is_same_server, &buckets]);
        claim_charged(&mut conn, &buckets, sql, &params).await?
    } else {
        params.push(&is_same_server);
        if let Some(job) = &only {
            params.extend::<[Param<'_>; 2]>([job, &SPAN]);
        }
        match only.is_none() && lanes.len() == 1 && store.shared.floors.are_idle(lanes) {
            true => conn.query_autocommit(sql, &params).await?,
            false => conn.query(sql, &params).await?,
        }
    };
    let first = rows.first().ok_or_else(|| Error::Fault("a claim returned no row".into()))?;
    if !first.get::<_, bool>(0) {
        return Err(Error::Dead);
    }
    if !first.get::<_, bool>(1) {
        return Err(Error::lease_lapsed());
    }
    let (repeat, suspects, skipped) = (first.get(2), first.get(3), first.get::<_, bool>(18));
    let now = Time(first.get(17));
    let (lane_count, unaffordable) = (first.get::<_, Option<i32>>(20), unaffordable(first.get(21))?);
    store.shared.open_claims.settled(request.worker, &request.settled);
    if repeat {
        // It may have been made before this connection was opened.
        rows = conn.query(sql::claim::REPEAT, &[&request.worker.0, &request.number.0]).await?;
    } else {
        store.shared.open_claims.made(request.worker, request.number, before);
    }
    rows.retain(|row| row.get::<_, Option<i32>>(5).is_some());
    let full = limit > 0 && rows.len() as i64 >= limit;
    if only.is_none() {
        store.shared.floors.set_idle(lanes, rows.is_empty());
    }
    if !repeat && only.is_none() {
        let last = rows.iter().map(|row| (row.get(5), row.get(16)));
        store.shared.floors.reached(lanes, raised, full && !request.solo, last);
    }
    store.ensure_lanes(&conn, rows.iter().map(|row| row.get(5))).await?;
    let mut jobs =
        rows.iter().map(|row| claimed(store, request.number, row)).collect::<Result<Vec<_>, _>>()?;
    read_inboxes(&conn, &mut jobs, repeat).await?;
    let last = rows.last().map(|row| (row.get::<_, i64>(16), row.get::<_, Uuid>(4)));
    // Jobs that rank after the last job of a full claim were not requested.
    let is_requested = |job: &&Unaffordable| !full || last.is_some_and(|last| (job.rank, job.job) < last);
    let refill_at = unaffordable.iter().filter(is_requested).map(Unaffordable::next_claim_at).min();
    let has_new_lanes = lane_count.is_some_and(|count| count > store.shared.lanes.count());
    if has_new_lanes {
        store.read_lanes(&conn).await?;
        if jobs.is_empty() && !repeat {
            // Nothing was recorded, so the same claim may be made again, with the new lanes.
            drop(conn);
            return Box::pin(claim_once(store, Some(now), request)).await;
        }
    }
    // A claim that started at a floor and is not full, that skipped locked rows, or that lacked a lane, may have missed jobs.
    let more = only.is_none() && (full || skipped || (raised && !repeat) || has_new_lanes);
    Ok(ClaimBatch { jobs, more, suspects, refill_at, now })
}

/// The jobs that are still claimed under a claim.
pub(super) async fn claimed_jobs(
    store: &Postgres,
    worker: WorkerId,
    number: ClaimNo,
) -> Result<Vec<ClaimedJob>, Error> {
    let conn = store.conn().await?;
    let rows = conn.query(sql::claim::REPEAT, &[&worker.0, &number.0]).await?;
    store.ensure_lanes(&conn, rows.iter().map(|row| row.get(5))).await?;
    let mut jobs = rows.iter().map(|row| claimed(store, number, row)).collect::<Result<Vec<_>, _>>()?;
    read_inboxes(&conn, &mut jobs, true).await?;
    Ok(jobs)
}

/// Which claims of a worker still have a job.
pub(super) async fn claims_with_jobs(
    store: &Postgres,
    worker: WorkerId,
    numbers: &[ClaimNo],
) -> Result<Vec<ClaimNo>, Error> {
    let numbers: Vec<i64> = numbers.iter().map(|number| number.0).collect();
    let rows = store.conn().await?.query(sql::claim::WITH_JOBS, &[&worker.0, &numbers]).await?;
    Ok(rows.iter().map(|row| ClaimNo(row.get(0))).collect())
}

/// Reads the inboxes of claimed jobs that waited for every signal of a name, or for signals in a claim that is repeated. For all other
/// jobs the claim has read them.
async fn read_inboxes(conn: &Conn, jobs: &mut [ClaimedJob], repeat: bool) -> Result<(), Error> {
    let waited = |job: &&mut ClaimedJob| match &job.wait {
        Some(WaitCondition::Signals { names, .. }) => repeat || names.iter().any(|name| name.every),
        _ => false,
    };
    let mut waited: HashMap<Uuid, &mut ClaimedJob> =
        jobs.iter_mut().filter(waited).map(|job| (job.id.0, job)).collect();
    if waited.is_empty() {
        return Ok(());
    }
    let mut wanted: Vec<(Uuid, (&str, bool))> = Vec::new();
    for (id, job) in &waited {
        if let Some(WaitCondition::Signals { names, .. }) = &job.wait {
            wanted.extend(names.iter().map(|name| (*id, (name.name.as_str(), name.every))));
        }
    }
    let (ids, (names, every)): (Vec<Uuid>, (Vec<&str>, Vec<bool>)) = wanted.into_iter().unzip();
    let rows = conn.read_autocommit(sql::claim::INBOX, &[&ids, &every, &names]).await?;
    waited.values_mut().for_each(|job| job.inbox.clear());
    for row in rows {
        let job = waited.get_mut(&row.get::<_, Uuid>(0)).expect("one of the jobs");
        job.inbox.push(signal::read(&row, 1));
    }
    Ok(())
}

fn claimed(store: &Postgres, claim: ClaimNo, row: &Row) -> Result<ClaimedJob, Error> {
    let parent = row.get::<_, Option<Uuid>>(28).map(JobId);
    let branch = row.get::<_, Option<i64>>(32).map(BranchNo);
    let items = row.get::<_, i32>(33).max(0) as u32;
    let mut decoder = columns::Decoder::default();
    Ok(ClaimedJob {
        id: JobId(row.get(4)),
        kind: store.lane(row.get(5))?.kind,
        claim,
        epoch: Epoch(row.get(6)),
        rev: Rev(row.get(7)),
        attempts: row.get::<_, i32>(8) as u32,
        worker_deaths: row.get::<_, i16>(9) as u16,
        key: row.get(10),
        due_at: Time(row.get(19)),
        deadline_at: row.get::<_, Option<i64>>(11).map(Time),
        retry_counts: decoder.retry_counts(row.get(12)),
        settings: decoder.settings(row.get(13)),
        input: Payload { codec: row.get::<_, i16>(14) as u8, bytes: row.get(15) },
        stage: row.get(22),
        data: payload(row.get(23), row.get(24)),
        wait: decoder.wait(row.get(25)),
        wait_until: row.get::<_, Option<i64>>(26).map(Time),
        pending_children: row.get::<_, i32>(27).max(0) as u32,
        parent: parent.filter(|_| branch.is_none()),
        branch_member: parent.zip(branch).map(|(parent, branch)| BranchMember { parent, branch, items }),
        stage_rev: Rev(row.get::<_, Option<i32>>(29).unwrap_or_default()),
        steps_since_wait: row.get::<_, Option<i32>>(30).unwrap_or_default() as u32,
        inbox: row.get::<_, Option<Inbox>>(34).map_or_else(Vec::new, |inbox| inbox.0),
        unwind: decoder.unwind(row.get(31)),
        fault: decoder.fault(),
    })
}

/// An inbox, decoded from an array of records of five columns.
struct Inbox(Vec<Signal>);

impl<'a> FromSql<'a> for Inbox {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Inbox, Box<dyn std::error::Error + Sync + Send>> {
        // The header: dimensions, whether some are null, type; unless it is empty, also length and first index.
        let (mut array, mut inbox) = (Fields(raw), Vec::new());
        array.take(if raw.len() > 12 { 20 } else { 12 })?;
        while !array.0.is_empty() {
            let mut record = Fields(array.value()?);
            record.take(4)?;
            inbox.push(Signal {
                number: i64::from_sql(&Type::INT8, record.field()?)?,
                name: String::from_sql(&Type::TEXT, record.field()?)?,
                at: Time(i64::from_sql(&Type::INT8, record.field()?)?),
                payload: Payload {
                    codec: i16::from_sql(&Type::INT2, record.field()?)? as u8,
                    bytes: record.field()?.to_vec(),
                },
                unreadable: None,
            });
        }
        Ok(Inbox(inbox))
    }

    tokio_postgres::types::accepts!(RECORD_ARRAY);
}

/// The rest of some values that the server sent one after the other; none is null.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        self.0.split_off(..length).ok_or("a record ends too early")
    }

    /// A value after its length.
    fn value(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.take(4)?;
        self.take(u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize)
    }

    /// A value after its type and its length.
    fn field(&mut self) -> Result<&'a [u8], &'static str> {
        self.take(4)?;
        self.value()
    }
}
