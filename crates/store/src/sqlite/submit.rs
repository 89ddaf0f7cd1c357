//! Putting jobs in.

use std::collections::HashSet;

use rusqlite::params;
use windlass_model::{JobId, NewJob, Submitted, Time, When, rank::rank};

use super::{Tx, claim::read_claim, job_id, pack};
use crate::{
    Born, Error, Now,
    pick::{self, ALIVE, DEADLINE, Found, WAKE, Wrote},
};

pub(super) fn submit(
    tx: &Tx<'_>,
    now: Now,
    jobs: &[NewJob],
    born: Option<Born>,
) -> Result<Vec<Submitted>, Error> {
    let now = tx.now(now);
    let asked = born;
    let born = match born {
        Some(born) if serves(tx, born, now)? => Some(born),
        _ => None,
    };
    let mut wrote = Vec::with_capacity(jobs.len());
    let mut taken = Vec::new();
    {
        let mut insert = tx.prepare(include_str!("sql/submit.sql"))?;
        let mut ready = tx.prepare(include_str!("sql/submit_ready.sql"))?;
        for job in jobs {
            let lane = tx.store.shared.lanes.get(&job.queue, &job.kind).expect("interned before");
            let due_at = match job.when {
                When::Now => now,
                When::After(delay) => now.plus(delay),
                When::At(at) => at.max(now),
            };
            let settings = pick::settings_text(&job.settings);
            let tags =
                (!job.tags.is_empty()).then(|| serde_json::to_string(&job.tags).expect("text is plain data"));
            let new = insert.execute(params![
                job.id.as_bytes(),
                lane.id,
                lane.kind_id,
                job.priority,
                now.micros(),
                due_at.micros(),
                job.deadline_at.map(Time::micros),
                &job.digest,
                job.input.codec,
                &job.input.bytes,
                job.key,
                tags,
                job.options,
                settings,
            ])?;
            if new == 0 {
                wrote.push(None);
                continue;
            }
            wrote.push(Some(Wrote { claimed: born.is_some() && due_at <= now }));
            for tag in &job.tags {
                tx.run(include_str!("sql/submit_tag.sql"), params![tag, job.id.as_bytes()])?;
            }
            if let Some(at) = job.deadline_at {
                tx.set_timer(at, job.id, DEADLINE)?;
            }
            if due_at > now {
                tx.set_timer(due_at, job.id, WAKE)?;
            } else if born.is_some() {
                taken.push((job.id, windlass_model::Epoch(0)));
            } else {
                ready.execute(params![lane.id, rank(due_at, job.priority), job.id.as_bytes()])?;
                tx.gates.borrow_mut().insert(lane.queue_id, ());
            }
        }
    }
    if let Some(born) = born.filter(|_| !taken.is_empty()) {
        let params = params![born.worker.0, born.number.0, false, now.micros(), pack(&taken)];
        tx.run(include_str!("sql/claim_record.sql"), params)?;
    }
    let found = match wrote.iter().all(Option::is_some) {
        true => Found::default(),
        false => find(tx, jobs, &wrote, asked)?,
    };
    let answers = pick::answers(jobs, &wrote, &found);
    answers
        .into_iter()
        .map(|answer| answer.ok_or_else(|| Error::Fault("a job was neither inserted nor found".into())))
        .collect()
}

/// Whether the worker may have jobs born claimed.
fn serves(tx: &Tx<'_>, born: Born, now: Time) -> Result<bool, Error> {
    let worker = tx.one(include_str!("sql/claim_worker.sql"), [born.worker.0], |row| {
        Ok((row.get::<_, i16>(0)?, row.get::<_, i64>(1)?))
    })?;
    Ok(worker.is_some_and(|(life, lease_until)| life == ALIVE && lease_until > now.micros()))
}

/// Looks up what stood in the way of those that were not inserted.
fn find(tx: &Tx<'_>, jobs: &[NewJob], wrote: &[Option<Wrote>], born: Option<Born>) -> Result<Found, Error> {
    let mut found = Found::default();
    for (job, _) in jobs.iter().zip(wrote).filter(|(_, wrote)| wrote.is_none()) {
        let digest = |row: &rusqlite::Row<'_>, column| row.get::<_, [u8; 16]>(column);
        let by_id = tx.one(include_str!("sql/submit_by_id.sql"), [job.id.as_bytes().as_slice()], |row| {
            digest(row, 0)
        })?;
        if let Some(digest) = by_id {
            found.ids.insert(job.id, digest);
        } else if let Some(key) = &job.key {
            let kind = tx.store.shared.lanes.get(&job.queue, &job.kind).expect("interned before").kind_id;
            let by_key = tx.one(include_str!("sql/submit_by_key.sql"), params![kind, key], |row| {
                Ok((row.get::<_, [u8; 16]>(0)?, digest(row, 1)?))
            })?;
            if let Some((id, digest)) = by_key {
                found.keys.insert((job.kind.kind.clone(), key.clone()), (job_id(&id)?, digest));
            }
        }
    }
    // Told whatever the lease: a claim that the worker does not know of would wait for its death.
    if let Some(born) = born {
        let pairs = read_claim(tx, born.worker, born.number)?.unwrap_or_default();
        let mine: HashSet<JobId> =
            jobs.iter().zip(wrote).filter(|(_, wrote)| wrote.is_some()).map(|(job, _)| job.id).collect();
        found.claimed_before = pairs.into_iter().map(|(id, _)| id).filter(|id| !mine.contains(id)).collect();
    }
    Ok(found)
}
