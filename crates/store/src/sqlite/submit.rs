//! Submitting jobs.

use std::collections::{HashMap, HashSet};

use rusqlite::{CachedStatement, params};
use windlass_model::{Epoch, JobId, NewJob, Rev, State, SubmitOutcome, Time, rank::rank};

use super::{
    Sqlite,
    claim::read_claim,
    lease,
    open_claims::{ClaimedFrom, ClaimedJobs},
    rate::{self, Buckets},
    serial::Placement,
    signal, sql,
    tx::{Tx, pack, read_id},
    unique,
};
use crate::{
    ClaimOnSubmit, Error, Now,
    columns::{self, DEADLINE, ExistingJobs, Inserted, WAKE},
    intern::Lane,
};

/// Payloads up to this size stay in the job's row, which every step writes: about eight pages.
pub(super) const INLINE_LIMIT: usize = 32 << 10;
/// Bits of the column `external_payloads`, and numbers of the payloads in their own table.
pub(super) const INPUT: i16 = 1;
pub(super) const OUTPUT: i16 = 2;
pub(super) const DATA: i16 = 4;

/// Submits jobs, in one transaction.
pub(super) async fn submit(
    store: &Sqlite,
    now: Now,
    jobs: &[NewJob],
    claim_on_submit: Option<ClaimOnSubmit>,
) -> Result<Vec<SubmitOutcome>, Error> {
    jobs.iter().try_for_each(|job| store.shared.options.limits.check(job))?;
    let buckets = rate::check(store, jobs.iter())?;
    let names = jobs.iter().map(|job| (job.queue.as_str(), &job.kind, rate::bucket_of(job, &buckets)));
    store.intern(names).await?;
    store.write(jobs.len(), |tx| insert_jobs(tx, tx.now(now), jobs, &buckets, claim_on_submit)).await
}

/// Submits jobs whose lanes have numbers, within a transaction. Returns an outcome for each.
pub(super) fn insert_jobs(
    tx: &Tx<'_>,
    now: Time,
    jobs: &[NewJob],
    buckets: &Buckets,
    requested_claim: Option<ClaimOnSubmit>,
) -> Result<Vec<SubmitOutcome>, Error> {
    let claim_on_submit = match requested_claim {
        Some(claim_on_submit) if has_lease(tx, claim_on_submit, now)? => Some(claim_on_submit),
        _ => None,
    };
    let paused_queues: Vec<i32> = match claim_on_submit {
        Some(_) => tx.query_all(sql::submit::PAUSED_QUEUES, [], |row| row.get(0))?,
        None => Vec::new(),
    };
    let serial_keys = intern_serial_keys(tx, jobs)?;
    let mut inserted = Vec::with_capacity(jobs.len());
    let mut claimed_now = Vec::new();
    let mut claimed_jobs = ClaimedJobs::default();
    let mut decided: HashMap<usize, SubmitOutcome> = HashMap::new();
    {
        let mut statement = tx.prepare(sql::submit::INSERT)?;
        let mut make_ready = tx.prepare(sql::submit::MAKE_READY)?;
        for (index, job) in jobs.iter().enumerate() {
            let lane = tx.lane_for((&job.queue, &job.kind, rate::bucket_of(job, buckets)))?;
            let special = job.needs_slow_path();
            if job.settings.unique.is_some() {
                if exists(tx, &lane, job)? {
                    inserted.push(None);
                    continue;
                }
                match unique::take_for(tx, now, lane.kind_id, job)? {
                    Ok(None) => {}
                    Ok(Some(id)) => _ = decided.insert(index, SubmitOutcome::Replaced { id }),
                    Err(outcome) => {
                        decided.insert(index, outcome);
                        inserted.push(None);
                        continue;
                    }
                }
            }
            let row = NewRow {
                lane: &lane,
                due_at: job.when.due_at(now),
                serial_key: serial_key_of(job, &serial_keys),
            };
            if !row.insert(tx, &mut statement, now, job)? {
                inserted.push(None);
                continue;
            }
            let claimed = claim_on_submit.is_some()
                && !special
                && row.due_at <= now
                && !paused_queues.contains(&lane.queue_id);
            inserted.push(Some(Inserted { claimed }));
            if let Some(at) = job.deadline_at {
                tx.set_timer(at, job.id, DEADLINE)?;
            }
            if row.due_at > now {
                tx.set_timer(row.due_at, job.id, WAKE)?;
                tx.count_moved(lane.id, State::Ready, State::Scheduled);
            } else if claimed {
                claimed_now.push((job.id, Epoch(0)));
                claimed_jobs.insert(job.id, ClaimedFrom { lane: lane.id, due_at: row.due_at });
            } else if special {
                tx.enter(&row.placement(job))?;
            } else {
                make_ready.execute(params![lane.id, rank(row.due_at, job.priority), job.id.as_bytes()])?;
                tx.bump_gate(lane.queue_id);
            }
        }
    }
    if let Some(claim_on_submit) = claim_on_submit.filter(|_| !claimed_now.is_empty()) {
        let params = params![
            claim_on_submit.worker.0,
            claim_on_submit.number.0,
            false,
            now.micros(),
            pack(&claimed_now)
        ];
        tx.execute(sql::claim::RECORD, params)?;
        tx.note_made_claim((claim_on_submit.worker, claim_on_submit.number), claimed_jobs);
    }
    let claim_on_submit =
        jobs.iter().zip(&inserted).filter(|(_, inserted)| inserted.is_some()).map(|(job, _)| job);
    tx.count_new_children(now, claim_on_submit)?;
    let existing = match inserted.iter().all(Option::is_some) {
        true => ExistingJobs::default(),
        false => find_existing(tx, jobs, buckets, &inserted, requested_claim)?,
    };
    let outcomes = columns::submit_outcomes(jobs, &inserted, &existing).into_iter().enumerate();
    outcomes
        .map(|(index, outcome)| decided.remove(&index).or(outcome))
        .map(|outcome| outcome.ok_or_else(|| Error::Fault("a job was neither inserted nor found".into())))
        .collect()
}

/// Inserts jobs that need no more than their rows and are nowhere: their first attempts are written next.
pub(super) fn insert_unplaced(
    tx: &Tx<'_>,
    now: Time,
    jobs: &[NewJob],
    buckets: &Buckets,
) -> Result<(), Error> {
    let mut statement = tx.prepare(sql::submit::INSERT)?;
    for job in jobs {
        let lane = tx.lane_for((&job.queue, &job.kind, rate::bucket_of(job, buckets)))?;
        NewRow { lane: &lane, due_at: now, serial_key: None }.insert(tx, &mut statement, now, job)?;
    }
    Ok(())
}

/// The numbers of the jobs' serial keys, added with the slots they name, whatever becomes of the jobs.
pub(super) fn intern_serial_keys(tx: &Tx<'_>, jobs: &[NewJob]) -> Result<HashMap<String, i64>, Error> {
    let mut serial_keys = HashMap::new();
    for serial in jobs.iter().filter_map(|job| job.settings.serial.as_ref()) {
        if serial.slots.is_some() || !serial_keys.contains_key(&serial.key) {
            serial_keys.insert(serial.key.clone(), tx.serial_key(&serial.key, serial.slots)?);
        }
    }
    Ok(serial_keys)
}

/// The number of a job's serial key.
pub(super) fn serial_key_of(job: &NewJob, serial_keys: &HashMap<String, i64>) -> Option<i64> {
    job.settings.serial.as_ref().and_then(|serial| serial_keys.get(&serial.key)).copied()
}

/// The columns of a new job that are not in the job itself.
pub(super) struct NewRow<'a> {
    pub(super) lane: &'a Lane,
    pub(super) due_at: Time,
    pub(super) serial_key: Option<i64>,
}

impl NewRow<'_> {
    /// Inserts the job, its tags, its signals and its input. Returns whether neither its id nor its key existed.
    pub(super) fn insert(
        &self,
        tx: &Tx<'_>,
        statement: &mut CachedStatement<'_>,
        now: Time,
        job: &NewJob,
    ) -> Result<bool, Error> {
        let tags =
            (!job.tags.is_empty()).then(|| serde_json::to_string(&job.tags).expect("text is plain data"));
        let is_external = job.input.bytes.len() > INLINE_LIMIT;
        let (settings, position) = (&job.settings, job.branch_position.as_deref());
        let new = statement.execute(params![
            job.id.as_bytes(),
            self.lane.id,
            self.lane.kind_id,
            job.priority,
            now.micros(),
            self.due_at.micros(),
            job.deadline_at.map(Time::micros),
            &job.digest,
            job.input.codec,
            if is_external { &[] } else { job.input.bytes.as_slice() },
            job.key,
            tags,
            job.options,
            columns::settings_text(settings),
            job.parent.as_ref().map(JobId::as_bytes),
            self.serial_key,
            self.serial_key.map(|_| self.due_at.micros()),
            settings.rate.as_ref().map(|charge| charge.weight),
            settings.serial.as_ref().is_some_and(|serial| serial.keeps_slot).then_some(true),
            is_external.then_some(INPUT),
            job.stage,
            job.parent_rev.map(|parent_rev| parent_rev.0),
            position.map(|position| position.branch.0),
            position.map(|position| position.spawn),
            position.map(|position| position.item.as_str()),
            position.map(|position| position.items).filter(|items| *items != 1),
        ])?;
        if new == 0 {
            return Ok(false);
        }
        tx.count_added(self.lane.id, State::Ready);
        tx.note_period(self.lane.id, job.id);
        if is_external {
            let params = params![job.id.as_bytes(), INPUT, job.input.bytes];
            tx.execute(sql::submit::ADD_PAYLOAD, params)?;
        }
        for tag in &job.tags {
            tx.execute(sql::submit::ADD_TAG, params![tag, job.id.as_bytes()])?;
        }
        for (number, signal) in (1..).zip(&job.signals) {
            signal::record_delivery(tx, now, job.id, number, signal)?;
        }
        Ok(true)
    }

    fn placement(&self, job: &NewJob) -> Placement {
        Placement {
            id: job.id,
            lane: self.lane.id,
            priority: job.priority,
            due_at: self.due_at,
            suspect: false,
            deadline_at: job.deadline_at,
            hold: None,
            serial_key: self.serial_key,
            serial_position: self.due_at,
            parked: false,
            parent: job.parent.filter(|_| job.parent_rev.is_some()),
            signals_parent: job.parent_rev == Some(Rev::SIGNALLED),
            in_branch: job.branch_position.is_some(),
        }
    }
}

/// Whether a job's id or key exists: then no unique name is touched for it.
fn exists(tx: &Tx<'_>, lane: &Lane, job: &NewJob) -> Result<bool, Error> {
    let by_id = tx.query_one(sql::submit::FIND_BY_ID, [job.id.as_bytes()], |_| Ok(()))?;
    let by_key = match &job.key {
        Some(key) if by_id.is_none() => {
            tx.query_one(sql::submit::FIND_BY_KEY, params![lane.kind_id, key], |_| Ok(()))?
        }
        _ => None,
    };
    Ok(by_id.or(by_key).is_some())
}

/// Whether the worker may claim the jobs it submits.
fn has_lease(tx: &Tx<'_>, claim_on_submit: ClaimOnSubmit, now: Time) -> Result<bool, Error> {
    let params = params![claim_on_submit.worker.0, None::<i32>];
    let lease = tx.query_one(sql::claim::READ_WORKER, params, lease::read)?;
    Ok(lease.is_some_and(|lease| lease.is_valid(now)))
}

/// Reads the jobs that have the ids or keys of those that were not inserted.
fn find_existing(
    tx: &Tx<'_>,
    jobs: &[NewJob],
    buckets: &Buckets,
    inserted: &[Option<Inserted>],
    claim_on_submit: Option<ClaimOnSubmit>,
) -> Result<ExistingJobs, Error> {
    let mut existing = ExistingJobs::default();
    for (job, _) in jobs.iter().zip(inserted).filter(|(_, inserted)| inserted.is_none()) {
        let digest = |row: &rusqlite::Row<'_>, column| row.get::<_, [u8; 16]>(column);
        let by_id =
            tx.query_one(sql::submit::FIND_BY_ID, [job.id.as_bytes().as_slice()], |row| digest(row, 0))?;
        if let Some(digest) = by_id {
            existing.ids.insert(job.id, digest);
        } else if let Some(key) = &job.key {
            let lane = tx.lane_for((&job.queue, &job.kind, rate::bucket_of(job, buckets)))?;
            let params = params![lane.kind_id, key];
            let by_key = tx
                .query_one(sql::submit::FIND_BY_KEY, params, |row| Ok((read_id(row, 0)?, digest(row, 1)?)))?;
            if let Some(found_by_key) = by_key {
                existing.keys.insert((job.kind.kind.clone(), key.clone()), found_by_key);
            }
        }
    }
    // Reported whatever the lease: a claim that the worker does not know of would last until its death.
    if let Some(claim_on_submit) = claim_on_submit {
        let pairs = read_claim(tx, claim_on_submit.worker, claim_on_submit.number)?.unwrap_or_default();
        let inserted_now: HashSet<JobId> = jobs
            .iter()
            .zip(inserted)
            .filter(|(_, inserted)| inserted.is_some())
            .map(|(job, _)| job.id)
            .collect();
        existing.claimed_before =
            pairs.into_iter().map(|(id, _)| id).filter(|id| !inserted_now.contains(id)).collect();
    }
    Ok(existing)
}
