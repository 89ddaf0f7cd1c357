//! Taking ready jobs.

use std::{collections::HashMap, time::Instant};

use tokio_postgres::{
    Row,
    types::{FromSql, ToSql, Type},
};
use uuid::Uuid;
use windlass_model::{
    BranchMember, BranchNo, ClaimNo, ClaimedJob, Epoch, JobId, Payload, Rev, Signal, Time, WaitCondition,
};

use super::{
    Postgres,
    inspect::payload,
    micros,
    pool::Guard,
    rate::{Dry, charged, dry},
    signal, sql,
};
use crate::{ClaimBatch, ClaimRequest, Error, Now, columns, memory::lease_ran_out};

pub(super) async fn claim(store: &Postgres, now: Now, ask: &ClaimRequest) -> Result<ClaimBatch, Error> {
    match once(store, now, ask).await {
        // The same claim, sent twice at once: the other one has recorded it, and this one is a repeat.
        Err(Error::Refused(_)) => once(store, now, ask).await,
        answer => answer,
    }
}

async fn once(store: &Postgres, now: Now, ask: &ClaimRequest) -> Result<ClaimBatch, Error> {
    store.intern(ask.kinds.iter().map(|kind| (ask.queue.as_str(), kind, 0))).await?;
    let all = store.shared.lanes.all(&ask.queue, &ask.kinds);
    let queue = store.shared.lanes.queue(&ask.queue);
    let buckets: Vec<i32> = all.iter().map(|lane| lane.bucket).collect();
    let limited = buckets.iter().any(|bucket| *bucket != 0);
    let served: Vec<i32> = all.into_iter().map(|lane| lane.id).collect();
    let suspects: Vec<i32> = served.iter().map(|lane| -lane).collect();
    let lanes = if ask.solo { &suspects } else { &served };
    let limit = if ask.solo { 1 } else { i64::try_from(ask.limit).unwrap_or(i64::MAX) };
    let settled: Vec<i64> = ask.settled.iter().map(|number| number.0).collect();
    let sql = match lanes.as_slice() {
        _ if limited => sql::claim::RATE_LIMITED_LANES,
        [_] => sql::claim::ONE_LANE,
        _ => sql::claim::SEVERAL_LANES,
    };
    let (floors, raised) = store.shared.floors.of(lanes);
    let (now, worker, number) = (micros(now), ask.worker.0, ask.number.0);
    let mut params: Vec<&(dyn ToSql + Sync)> =
        vec![&now, &worker, &number, lanes, &suspects, &limit, &settled, &ask.solo, &floors, &queue];
    let conn = store.conn().await?;
    let is_same_server = store.shared.open_claims.are_since(conn.opened_at, ask.worker, &ask.settled);
    let before = Instant::now();
    // While there is nothing to do, a claim is sent often, and costs the least without settings; one of several lanes needs them
    // for its plan.
    let mut rows = if limited {
        params.extend::<[&(dyn ToSql + Sync); 2]>([&is_same_server, &buckets]);
        charged(&conn, &buckets, sql, &params).await?
    } else {
        params.push(&is_same_server);
        match lanes.len() == 1 && store.shared.floors.are_idle(lanes) {
            true => conn.query_autocommit(sql, &params).await?,
            false => conn.query(sql, &params).await?,
        }
    };
    let first = rows.first().ok_or_else(|| Error::Fault("a claim answered nothing".into()))?;
    if !first.get::<_, bool>(0) {
        return Err(Error::Dead);
    }
    if !first.get::<_, bool>(1) {
        return Err(lease_ran_out());
    }
    let (repeat, suspects, passed_over) = (first.get(2), first.get(3), first.get::<_, bool>(18));
    let now = Time(first.get(17));
    let (there, dry) = (first.get::<_, Option<i32>>(20), dry(first.get(21))?);
    store.shared.open_claims.settled(ask.worker, &ask.settled);
    if repeat {
        // It may have been made before this session was opened.
        rows = conn.query(sql::claim::REPEAT, &[&ask.worker.0, &ask.number.0]).await?;
    } else {
        store.shared.open_claims.made(ask.worker, ask.number, before);
    }
    rows.retain(|row| row.get::<_, Option<i32>>(5).is_some());
    let full = limit > 0 && rows.len() as i64 >= limit;
    store.shared.floors.set_idle(lanes, rows.is_empty());
    if !repeat {
        let last = rows.iter().map(|row| (row.get(5), row.get(16)));
        store.shared.floors.reached(lanes, raised, full && !ask.solo, last);
    }
    store.know_lanes(&conn, rows.iter().map(|row| row.get(5))).await?;
    let mut jobs = rows.iter().map(|row| claimed(store, ask.number, row)).collect::<Result<Vec<_>, _>>()?;
    show_inboxes(&conn, &mut jobs, repeat).await?;
    let last = rows.last().map(|row| (row.get::<_, i64>(16), row.get::<_, Uuid>(4)));
    // What stands behind the last job of a full claim was not asked for.
    let asked = |dry: &&Dry| !full || last.is_some_and(|last| (dry.rank, dry.job) < last);
    let refill_at = dry.iter().filter(asked).map(Dry::next_claim_at).min();
    let unknown = there.is_some_and(|there| there > store.shared.lanes.count());
    if unknown {
        store.read_lanes(&conn).await?;
        if jobs.is_empty() && !repeat {
            // Nothing was recorded, so the same claim may be made again, with the lanes that it did not know.
            drop(conn);
            return Box::pin(once(store, Some(now), ask)).await;
        }
    }
    // A claim that began behind the beginning and came back short, found places locked, or did not know of a lane, has
    // passed something over.
    let more = full || passed_over || (raised && !repeat) || unknown;
    Ok(ClaimBatch { jobs, more, suspects, refill_at, now })
}

/// Hands those of some claimed jobs that waited for signals what came of them: those that did not wait for one of each name, and
/// all of a claim that is repeated. The others have it already.
async fn show_inboxes(conn: &Guard<'_>, jobs: &mut [ClaimedJob], repeat: bool) -> Result<(), Error> {
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
        let job = waited.get_mut(&row.get::<_, Uuid>(0)).expect("asked for");
        job.inbox.push(signal::read(&row, 1));
    }
    Ok(())
}

fn claimed(store: &Postgres, claim: ClaimNo, row: &Row) -> Result<ClaimedJob, Error> {
    let parent = row.get::<_, Option<Uuid>>(28).map(JobId);
    let branch = row.get::<_, Option<i64>>(32).map(BranchNo);
    let items = row.get::<_, i32>(33).max(0) as u32;
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
        retry_counts: columns::retry_counts(row.get(12)),
        settings: columns::settings(row.get(13)),
        input: Payload { codec: row.get::<_, i16>(14) as u8, bytes: row.get(15) },
        stage: row.get(22),
        data: payload(row.get(23), row.get(24)),
        wait: columns::wait(row.get(25)),
        wait_until: row.get::<_, Option<i64>>(26).map(Time),
        pending_children: row.get::<_, i32>(27).max(0) as u32,
        parent: parent.filter(|_| branch.is_none()),
        branch_member: parent.zip(branch).map(|(parent, branch)| BranchMember { parent, branch, items }),
        stage_rev: Rev(row.get::<_, Option<i32>>(29).unwrap_or_default()),
        steps_since_wait: row.get::<_, Option<i32>>(30).unwrap_or_default() as u32,
        inbox: row.get::<_, Option<Inbox>>(34).map_or_else(Vec::new, |inbox| inbox.0),
        unwind: columns::unwind(row.get(31)),
    })
}

/// An inbox out of an array of records: of each signal the same five columns.
struct Inbox(Vec<Signal>);

impl<'a> FromSql<'a> for Inbox {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Inbox, Box<dyn std::error::Error + Sync + Send>> {
        // How many dimensions, whether some are null, their type; unless it is empty, its length and its first index.
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

/// What is left of values that the server sent one behind the other, none of them null.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        self.0.split_off(..length).ok_or("a record ends too early")
    }

    /// One behind its length.
    fn value(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.take(4)?;
        self.take(u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize)
    }

    /// One behind its type and its length.
    fn field(&mut self) -> Result<&'a [u8], &'static str> {
        self.take(4)?;
        self.value()
    }
}
