//! Putting jobs in.

use std::collections::{HashMap, HashSet};

use rusqlite::{CachedStatement, params};
use windlass_model::{Epoch, JobId, NewJob, Rev, SubmitOutcome, Time, When, rank::rank};

use super::{
    Sqlite,
    claim::read_claim,
    rate::{self, Buckets},
    serial::Placement,
    signal, sql,
    tx::{Tx, id_of, pack},
    unique,
};
use crate::{
    ClaimOnSubmit, Error, Now,
    columns::{self, ALIVE, DEADLINE, Found, WAKE, Wrote},
    intern::Lane,
};

/// Payloads up to this size stay in the job's row, which is written at every step: some eight pages.
pub(super) const NEAR: usize = 32 << 10;
/// Bits of the `far` column, and what the payloads are called in their own table.
pub(super) const INPUT: i16 = 1;
pub(super) const OUTPUT: i16 = 2;
pub(super) const DATA: i16 = 4;

pub(super) async fn submit(
    store: &Sqlite,
    now: Now,
    jobs: &[NewJob],
    born: Option<ClaimOnSubmit>,
) -> Result<Vec<SubmitOutcome>, Error> {
    jobs.iter().try_for_each(|job| store.shared.options.limits.check(job))?;
    let buckets = rate::check(store, jobs.iter())?;
    let names = jobs.iter().map(|job| (job.queue.as_str(), &job.kind, rate::bucket_of(job, &buckets)));
    store.intern(names).await?;
    store.write(jobs.len(), |tx| put(tx, tx.now(now), jobs, &buckets, born)).await
}

/// Puts jobs in whose lanes have numbers, and says of each what became of it.
pub(super) fn put(
    tx: &Tx<'_>,
    now: Time,
    jobs: &[NewJob],
    buckets: &Buckets,
    asked: Option<ClaimOnSubmit>,
) -> Result<Vec<SubmitOutcome>, Error> {
    let born = match asked {
        Some(born) if serves(tx, born, now)? => Some(born),
        _ => None,
    };
    let shut: Vec<i32> = match born {
        Some(_) => tx.all(sql::submit::PAUSED_QUEUES, [], |row| row.get(0))?,
        None => Vec::new(),
    };
    let serials = serials(tx, jobs)?;
    let mut wrote = Vec::with_capacity(jobs.len());
    let mut taken = Vec::new();
    let mut told: HashMap<usize, SubmitOutcome> = HashMap::new();
    {
        let mut insert = tx.prepare(sql::submit::INSERT)?;
        let mut ready = tx.prepare(sql::submit::MAKE_READY)?;
        for (index, job) in jobs.iter().enumerate() {
            let lane = tx.lane_for((&job.queue, &job.kind, rate::bucket_of(job, buckets)))?;
            let special = job.is_special();
            if job.settings.unique.is_some() {
                if is_there(tx, &lane, job)? {
                    wrote.push(None);
                    continue;
                }
                match unique::claim(tx, now, lane.kind_id, job)? {
                    Ok(None) => {}
                    Ok(Some(id)) => _ = told.insert(index, SubmitOutcome::Replaced { id }),
                    Err(answer) => {
                        told.insert(index, answer);
                        wrote.push(None);
                        continue;
                    }
                }
            }
            let row = Row { lane: &lane, due_at: due_at(job, now), serial: serial_of(job, &serials) };
            if !row.insert(tx, &mut insert, now, job)? {
                wrote.push(None);
                continue;
            }
            let claimed = born.is_some() && !special && row.due_at <= now && !shut.contains(&lane.queue_id);
            wrote.push(Some(Wrote { claimed }));
            if let Some(at) = job.deadline_at {
                tx.set_timer(at, job.id, DEADLINE)?;
            }
            if row.due_at > now {
                tx.set_timer(row.due_at, job.id, WAKE)?;
            } else if claimed {
                taken.push((job.id, Epoch(0)));
            } else if special {
                tx.enter(&row.spot(job))?;
            } else {
                ready.execute(params![lane.id, rank(row.due_at, job.priority), job.id.as_bytes()])?;
                tx.move_gate(lane.queue_id);
            }
        }
    }
    if let Some(born) = born.filter(|_| !taken.is_empty()) {
        let params = params![born.worker.0, born.number.0, false, now.micros(), pack(&taken)];
        tx.run(sql::claim::RECORD, params)?;
    }
    let born = jobs.iter().zip(&wrote).filter(|(_, wrote)| wrote.is_some()).map(|(job, _)| job);
    tx.count_new(now, born)?;
    let found = match wrote.iter().all(Option::is_some) {
        true => Found::default(),
        false => find(tx, jobs, buckets, &wrote, asked)?,
    };
    let answers = columns::answers(jobs, &wrote, &found).into_iter().enumerate();
    answers
        .map(|(index, answer)| told.remove(&index).or(answer))
        .map(|answer| answer.ok_or_else(|| Error::Fault("a job was neither inserted nor found".into())))
        .collect()
}

/// Puts jobs in that go into no place yet, and need no more than their rows: what becomes of them is written next.
pub(super) fn put_unplaced(tx: &Tx<'_>, now: Time, jobs: &[NewJob], buckets: &Buckets) -> Result<(), Error> {
    let mut insert = tx.prepare(sql::submit::INSERT)?;
    for job in jobs {
        let lane = tx.lane_for((&job.queue, &job.kind, rate::bucket_of(job, buckets)))?;
        Row { lane: &lane, due_at: now, serial: None }.insert(tx, &mut insert, now, job)?;
    }
    Ok(())
}

/// When a job is due that is submitted now.
pub(super) fn due_at(job: &NewJob, now: Time) -> Time {
    match job.when {
        When::Now => now,
        When::After(delay) => now.plus(delay),
        When::At(at) => at.max(now),
    }
}

/// The numbers of the jobs' serial keys, made with the slots they name, whatever becomes of the jobs.
pub(super) fn serials(tx: &Tx<'_>, jobs: &[NewJob]) -> Result<HashMap<String, i64>, Error> {
    let mut serials = HashMap::new();
    for serial in jobs.iter().filter_map(|job| job.settings.serial.as_ref()) {
        if serial.slots.is_some() || !serials.contains_key(&serial.key) {
            serials.insert(serial.key.clone(), tx.serial(&serial.key, serial.slots)?);
        }
    }
    Ok(serials)
}

pub(super) fn serial_of(job: &NewJob, serials: &HashMap<String, i64>) -> Option<i64> {
    job.settings.serial.as_ref().and_then(|serial| serials.get(&serial.key)).copied()
}

/// A job's row as far as it does not stand in the job itself.
pub(super) struct Row<'a> {
    pub(super) lane: &'a Lane,
    pub(super) due_at: Time,
    pub(super) serial: Option<i64>,
}

impl Row<'_> {
    /// Writes the job, its tags, its signals and its input; answers whether neither its id nor its key was there.
    pub(super) fn insert(
        &self,
        tx: &Tx<'_>,
        insert: &mut CachedStatement<'_>,
        now: Time,
        job: &NewJob,
    ) -> Result<bool, Error> {
        let tags =
            (!job.tags.is_empty()).then(|| serde_json::to_string(&job.tags).expect("text is plain data"));
        let far = job.input.bytes.len() > NEAR;
        let (settings, twig) = (&job.settings, job.branch_position.as_deref());
        let new = insert.execute(params![
            job.id.as_bytes(),
            self.lane.id,
            self.lane.kind_id,
            job.priority,
            now.micros(),
            self.due_at.micros(),
            job.deadline_at.map(Time::micros),
            &job.digest,
            job.input.codec,
            if far { &[] } else { job.input.bytes.as_slice() },
            job.key,
            tags,
            job.options,
            columns::settings_text(settings),
            job.parent.as_ref().map(JobId::as_bytes),
            self.serial,
            self.serial.map(|_| self.due_at.micros()),
            settings.rate.as_ref().map(|charge| charge.weight),
            settings.serial.as_ref().is_some_and(|serial| serial.keeps_slot).then_some(true),
            far.then_some(INPUT),
            job.stage,
            job.parent_rev.map(|round| round.0),
            twig.map(|twig| twig.branch.0),
            twig.map(|twig| twig.spawn),
            twig.map(|twig| twig.item.as_str()),
            twig.map(|twig| twig.items).filter(|items| *items != 1),
        ])?;
        if new == 0 {
            return Ok(false);
        }
        if far {
            let params = params![job.id.as_bytes(), INPUT, job.input.bytes];
            tx.run(sql::submit::ADD_PAYLOAD, params)?;
        }
        for tag in &job.tags {
            tx.run(sql::submit::ADD_TAG, params![tag, job.id.as_bytes()])?;
        }
        for (number, signal) in (1..).zip(&job.signals) {
            signal::record_delivery(tx, now, job.id, number, signal)?;
        }
        Ok(true)
    }

    fn spot(&self, job: &NewJob) -> Placement {
        Placement {
            id: job.id,
            lane: self.lane.id,
            priority: job.priority,
            due_at: self.due_at,
            suspect: false,
            deadline_at: job.deadline_at,
            hold: None,
            serial: self.serial,
            place: self.due_at,
            parked: false,
            parent: job.parent.filter(|_| job.parent_rev.is_some()),
            signals_parent: job.parent_rev == Some(Rev::SIGNALLED),
            in_branch: job.branch_position.is_some(),
        }
    }
}

/// Whether a job's id or key is there: then nobody's unique name is touched for it.
fn is_there(tx: &Tx<'_>, lane: &Lane, job: &NewJob) -> Result<bool, Error> {
    let by_id = tx.one(sql::submit::FIND_BY_ID, [job.id.as_bytes()], |_| Ok(()))?;
    let by_key = match &job.key {
        Some(key) if by_id.is_none() => {
            tx.one(sql::submit::FIND_BY_KEY, params![lane.kind_id, key], |_| Ok(()))?
        }
        _ => None,
    };
    Ok(by_id.or(by_key).is_some())
}

/// Whether the worker may have jobs born claimed.
fn serves(tx: &Tx<'_>, born: ClaimOnSubmit, now: Time) -> Result<bool, Error> {
    let worker = tx.one(sql::claim::READ_WORKER, params![born.worker.0, None::<i32>], |row| {
        Ok((row.get::<_, i16>(0)?, row.get::<_, i64>(1)?))
    })?;
    Ok(worker.is_some_and(|(life, lease_until)| life == ALIVE && lease_until > now.micros()))
}

/// Looks up what stood in the way of those that were not inserted.
fn find(
    tx: &Tx<'_>,
    jobs: &[NewJob],
    buckets: &Buckets,
    wrote: &[Option<Wrote>],
    born: Option<ClaimOnSubmit>,
) -> Result<Found, Error> {
    let mut found = Found::default();
    for (job, _) in jobs.iter().zip(wrote).filter(|(_, wrote)| wrote.is_none()) {
        let digest = |row: &rusqlite::Row<'_>, column| row.get::<_, [u8; 16]>(column);
        let by_id = tx.one(sql::submit::FIND_BY_ID, [job.id.as_bytes().as_slice()], |row| digest(row, 0))?;
        if let Some(digest) = by_id {
            found.ids.insert(job.id, digest);
        } else if let Some(key) = &job.key {
            let lane = tx.lane_for((&job.queue, &job.kind, rate::bucket_of(job, buckets)))?;
            let params = params![lane.kind_id, key];
            let by_key =
                tx.one(sql::submit::FIND_BY_KEY, params, |row| Ok((id_of(row, 0)?, digest(row, 1)?)))?;
            if let Some(found_by_key) = by_key {
                found.keys.insert((job.kind.kind.clone(), key.clone()), found_by_key);
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
