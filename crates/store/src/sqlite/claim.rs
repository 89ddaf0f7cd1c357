//! Taking ready jobs.

use rusqlite::{Row, params};
use windlass_model::{ClaimNo, Claimed, Epoch, JobId, KindVersion, Payload, Rev, Time, WorkerId};

use super::{Tx, job_id, pack, unpack};
use crate::{
    Ask, Error, Haul, Now,
    intern::Lane,
    memory::lease_ran_out,
    pick::{self, ALIVE},
};

pub(super) fn claim(tx: &Tx<'_>, now: Now, ask: &Ask) -> Result<Haul, Error> {
    let now = tx.now(now);
    let worker = tx.one(include_str!("sql/claim_worker.sql"), [ask.worker.0], |row| {
        Ok((row.get::<_, i16>(0)?, row.get::<_, i64>(1)?))
    })?;
    match worker {
        Some((ALIVE, lease_until)) if lease_until > now.micros() => {}
        Some((ALIVE, _)) => return Err(lease_ran_out()),
        _ => return Err(Error::Dead),
    }
    for number in &ask.settled {
        tx.run(include_str!("sql/claim_settle.sql"), [ask.worker.0, number.0])?;
    }
    let lanes: Vec<Lane> =
        ask.kinds.iter().filter_map(|kind| tx.store.shared.lanes.get(&ask.queue, kind)).collect();
    let jobs = match read_claim(tx, ask.worker, ask.number)? {
        Some(pairs) => repeated(tx, &pairs)?,
        None => take(tx, now, ask, &lanes)?,
    };
    let mut suspects = false;
    for lane in &lanes {
        suspects = suspects
            || tx.one(include_str!("sql/claim_suspects.sql"), [-lane.id], |row| row.get(0))?.unwrap_or(false);
    }
    let limit = if ask.alone { 1 } else { ask.limit };
    Ok(Haul { more: limit > 0 && jobs.len() >= limit, jobs, suspects, refill_at: None, now })
}

/// Looks, without the write lock, whether a claim would find anything; most looks into an idle queue do not.
pub(super) fn is_empty(tx: &Tx<'_>, now: Now, ask: &Ask) -> Result<bool, Error> {
    let known = ask.kinds.iter().filter_map(|kind| tx.store.shared.lanes.get(&ask.queue, kind));
    let lanes: Vec<i32> = known.flat_map(|lane| [lane.id, -lane.id]).collect();
    let lanes = serde_json::to_string(&lanes).expect("numbers are plain data");
    let params = params![ask.worker.0, ask.number.0, lanes, tx.now(now).micros()];
    let empty = tx.one(include_str!("sql/claim_peek.sql"), params, |row| row.get(0))?;
    Ok(empty.unwrap_or(false) && ask.settled.is_empty())
}

/// What an earlier send of the same claim took, if there was one.
pub(super) fn read_claim(
    tx: &Tx<'_>,
    worker: WorkerId,
    number: ClaimNo,
) -> Result<Option<Vec<(JobId, Epoch)>>, Error> {
    let bytes =
        tx.one(include_str!("sql/claim_repeat.sql"), [worker.0, number.0], |row| row.get::<_, Vec<u8>>(0))?;
    bytes.map(|bytes| unpack(&bytes)).transpose()
}

fn repeated(tx: &Tx<'_>, pairs: &[(JobId, Epoch)]) -> Result<Vec<Claimed>, Error> {
    let mut jobs = Vec::new();
    for (id, epoch) in pairs {
        let found = tx.one(include_str!("sql/claim_job.sql"), params![id.as_bytes(), epoch.0], |row| {
            Ok((read(row)?, row.get::<_, i32>(11)?))
        })?;
        if let Some((raw, lane)) = found {
            jobs.push(raw.claimed(&tx.store.lane(tx, lane)?.kind)?);
        }
    }
    Ok(jobs)
}

fn take(tx: &Tx<'_>, now: Time, ask: &Ask, lanes: &[Lane]) -> Result<Vec<Claimed>, Error> {
    let limit = if ask.alone { 1 } else { ask.limit };
    let number = |lane: &Lane| if ask.alone { -lane.id } else { lane.id };
    let shares = match lanes {
        [_] => vec![limit],
        lanes => shares(tx, lanes.iter().map(number), limit)?,
    };
    let mut taken: Vec<(i64, Claimed)> = Vec::with_capacity(limit.min(1024));
    for (lane, share) in lanes.iter().zip(shares).filter(|(_, share)| *share > 0) {
        let mut statement = tx.prepare(include_str!("sql/claim_jobs.sql"))?;
        let mut rows = statement.query(params![number(lane), share as i64])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let (raw, rank) = (read(row)?, row.get::<_, i64>(11)?);
            last = Some((rank, raw.id));
            taken.push((rank, raw.claimed(&lane.kind)?));
        }
        drop(rows);
        if let Some((rank, id)) = last {
            tx.run(include_str!("sql/claim_take.sql"), params![number(lane), rank, id])?;
        }
    }
    if lanes.len() > 1 {
        taken.sort_by_key(|(rank, job)| (*rank, job.id));
    }
    if !taken.is_empty() {
        let pairs: Vec<_> = taken.iter().map(|(_, job)| (job.id, job.epoch)).collect();
        let params = params![ask.worker.0, ask.number.0, ask.alone, now.micros(), pack(&pairs)];
        tx.run(include_str!("sql/claim_record.sql"), params)?;
    }
    Ok(taken.into_iter().map(|(_, job)| job).collect())
}

/// How many of the first `limit` places, by rank over all lanes, each lane has.
fn shares(tx: &Tx<'_>, lanes: impl Iterator<Item = i32>, limit: usize) -> Result<Vec<usize>, Error> {
    let mut heads = Vec::new();
    let mut count = 0;
    for (index, lane) in lanes.enumerate() {
        let mut statement = tx.prepare(include_str!("sql/claim_heads.sql"))?;
        let mut rows = statement.query(params![lane, limit as i64])?;
        while let Some(row) = rows.next()? {
            heads.push((row.get::<_, i64>(0)?, row.get::<_, [u8; 16]>(1)?, index));
        }
        count = index + 1;
    }
    heads.sort_unstable();
    let mut shares = vec![0; count];
    for (.., index) in heads.into_iter().take(limit) {
        shares[index] += 1;
    }
    Ok(shares)
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
}

fn read(row: &Row<'_>) -> rusqlite::Result<Raw> {
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
    })
}

impl Raw {
    fn claimed(self, kind: &KindVersion) -> Result<Claimed, Error> {
        Ok(Claimed {
            id: job_id(&self.id)?,
            kind: kind.clone(),
            epoch: Epoch(self.epoch),
            rev: Rev(self.rev),
            attempts: self.attempts,
            spent: pick::spent(self.spent.as_deref()),
            deaths: self.deaths,
            key: self.key,
            due_at: Time(self.due_at),
            deadline_at: self.deadline_at.map(Time),
            settings: pick::settings(self.settings.as_deref()),
            input: self.input,
        })
    }
}
