//! Putting jobs in.

use std::{
    borrow::Borrow,
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use windlass_model::{JobId, NewJob, NewSignal, SubmitOutcome, Time, rank::rank};

use super::{
    Postgres, SPAN, branch,
    change_params::Param,
    job_params::{BranchColumns, Rows},
    micros,
    names::Names,
    pool::Guard,
    serial, signal, sql, unique,
    unique::NameOutcome,
    wait,
};
use crate::{
    ClaimOnSubmit, Error, Now,
    columns::{self, ExistingJobs, Inserted},
    intern::Lane,
};

/// How often a submit is sent again because what stood in its way was pruned between two statements.
const TRIES: usize = 5;

pub(super) async fn submit(
    store: &Postgres,
    now: Now,
    jobs: &[NewJob],
    born: Option<ClaimOnSubmit>,
) -> Result<Vec<SubmitOutcome>, Error> {
    jobs.iter().try_for_each(|job| store.shared.options.limits.check(job))?;
    let names = Names::of(store, jobs).await?;
    for _ in 0..TRIES {
        let conn = store.conn().await?;
        let before = Instant::now();
        let batch = Batch { store, conn: &conn, now, jobs, names: &names, claim_on_submit: born, runs: &[] };
        let answers: Option<Vec<SubmitOutcome>> = batch.put().await?.into_iter().collect();
        if let Some(answers) = answers {
            if let Some(born) = born {
                store.shared.open_claims.made(born.worker, born.number, before);
            }
            return Ok(answers);
        }
    }
    Err(Error::Unavailable("jobs with these keys are being pruned; submit again".into()))
}

/// Jobs to be put in over one connection.
pub(super) struct Batch<'a> {
    pub(super) store: &'a Postgres,
    pub(super) conn: &'a Guard<'a>,
    pub(super) now: Now,
    pub(super) jobs: &'a [NewJob],
    pub(super) names: &'a Names,
    pub(super) claim_on_submit: Option<ClaimOnSubmit>,
    /// Live jobs that are taken for running, wherever the transaction has put them by now: their changes submit these jobs.
    pub(super) runs: &'a [JobId],
}

impl Batch<'_> {
    /// Puts the batch in, in a transaction of its own if it needs one. `None` for a job that must be sent again.
    async fn put(&self) -> Result<Vec<Option<SubmitOutcome>>, Error> {
        lower_floors(self.store, self.now, self.jobs);
        let waves = waves(self.jobs);
        let plain = !self.jobs.iter().any(NewJob::needs_slow_path);
        let mut wrote = vec![None; self.jobs.len()];
        if let ([wave], true) = (waves.as_slice(), plain) {
            self.insert(wave, &mut wrote).await?;
            return self.answers(&wrote, HashMap::new()).await;
        }
        self.conn.begin().await?;
        let told = self.put_in(&waves, &mut wrote).await;
        match &told {
            Ok(_) => branch::commit(self.store, self.conn, self.now).await?,
            Err(_) => self.conn.rollback().await,
        }
        self.answers(&wrote, told?).await
    }

    /// Puts the batch in within the transaction that is open.
    pub(super) async fn put_within(&self) -> Result<Vec<Option<SubmitOutcome>>, Error> {
        lower_floors(self.store, self.now, self.jobs);
        let mut wrote = vec![None; self.jobs.len()];
        let told = self.put_in(&waves(self.jobs), &mut wrote).await?;
        self.answers(&wrote, told).await
    }

    /// Writes all waves, and answers what is to be said of jobs whose unique name another job had.
    async fn put_in(
        &self,
        waves: &[Vec<usize>],
        wrote: &mut [Option<Inserted>],
    ) -> Result<HashMap<usize, SubmitOutcome>, Error> {
        let mut told = HashMap::new();
        let mut entering = Vec::new();
        let mut in_line = false;
        for wave in waves {
            let (special, plain): (Vec<usize>, Vec<usize>) = wave.iter().partition(|place| {
                self.jobs[**place].parent.is_some() || self.jobs[**place].needs_slow_path()
            });
            if !plain.is_empty() {
                self.insert(&plain, wrote).await?;
            }
            if !special.is_empty() {
                let first = entering.len();
                self.insert_special(&special, wrote, &mut told, &mut entering).await?;
                in_line |= serial::enter_unsettled(self.conn, &entering[first..]).await?;
            }
        }
        // Slots are handed over once all stand in line.
        if in_line {
            serial::settle(self.conn, &entering).await?;
        }
        Ok(told)
    }

    async fn answers(
        &self,
        wrote: &[Option<Inserted>],
        mut told: HashMap<usize, SubmitOutcome>,
    ) -> Result<Vec<Option<SubmitOutcome>>, Error> {
        let found = match wrote.iter().enumerate().all(|(n, wrote)| wrote.is_some() || told.contains_key(&n))
        {
            true => ExistingJobs::default(),
            false => self.find(wrote).await?,
        };
        let answers = columns::submit_outcomes(self.jobs, wrote, &found);
        Ok(answers.into_iter().enumerate().map(|(n, answer)| told.remove(&n).or(answer)).collect())
    }

    /// Sends plain jobs, and notes which were written.
    async fn insert(&self, wave: &[usize], wrote: &mut [Option<Inserted>]) -> Result<(), Error> {
        let rows = Rows::of(self, wave)?;
        let (worker, number) =
            (self.claim_on_submit.map(|b| b.worker.0), self.claim_on_submit.map(|b| b.number.0));
        let (now, last) = (micros(self.now), Time::MAX.micros());
        let mut params: Vec<Param<'_>> = vec![&now, &last];
        params.extend(rows.params());
        params.extend::<[Param<'_>; 5]>([&rows.key, &SPAN, &self.conn.gate_writer, &worker, &number]);
        let written = self.conn.query(sql::submit::INSERT, &params).await?;
        for row in written {
            wrote[rows.place_of[&JobId(row.get(0))]] = Some(Inserted { claimed: row.get(1) });
        }
        Ok(())
    }

    /// Sends jobs with more to them: their unique names are taken, or they are taken back; those that are due are to
    /// enter.
    async fn insert_special(
        &self,
        wave: &[usize],
        wrote: &mut [Option<Inserted>],
        told: &mut HashMap<usize, SubmitOutcome>,
        entering: &mut Vec<uuid::Uuid>,
    ) -> Result<(), Error> {
        let rows = Rows::of(self, wave)?;
        let jobs: Vec<&NewJob> = rows.places.iter().map(|place| &self.jobs[*place]).collect();
        let parent: Vec<Option<uuid::Uuid>> = jobs.iter().map(|job| job.parent.map(|id| id.0)).collect();
        let serial = |job: &&NewJob| Some(self.names.serials[&job.settings.serial.as_ref()?.key]);
        let serials: Vec<Option<i64>> = jobs.iter().map(serial).collect();
        let weight: Vec<Option<i32>> =
            jobs.iter().map(|job| Some(job.settings.rate.as_ref()?.weight as i32)).collect();
        let keeps: Vec<Option<bool>> =
            jobs.iter().map(|job| Some(job.settings.serial.as_ref()?.keeps_slot)).collect();
        let round: Vec<Option<i32>> = jobs.iter().map(|job| job.parent_rev.map(|round| round.0)).collect();
        let twigs = BranchColumns::of(&jobs);
        let (now, last) = (micros(self.now), Time::MAX.micros());
        let mut params: Vec<Param<'_>> = vec![&now, &last];
        params.extend(rows.params());
        params.extend::<[Param<'_>; 6]>([&rows.key, &parent, &serials, &weight, &keeps, &round]);
        params.extend(twigs.params());
        let written = self.conn.query(sql::submit::INSERT_SPECIAL, &params).await?;
        let written: HashMap<JobId, (bool, Time, bool)> = written
            .iter()
            .map(|row| (JobId(row.get(0)), (row.get(1), Time(row.get(2)), row.get(3))))
            .collect();
        let in_now: Vec<&NewJob> = jobs.into_iter().filter(|job| written.contains_key(&job.id)).collect();
        // Before anything that ends another child of the same parent.
        wait::count_new_children(self.conn, &in_now, 1).await?;
        let mut timed = false;
        let mut undone: Vec<&NewJob> = Vec::new();
        let mut signals: Vec<(JobId, &NewSignal)> = Vec::new();
        let mut in_order: Vec<(usize, usize)> = rows.places.iter().copied().enumerate().collect();
        in_order.sort_unstable_by_key(|(_, place)| *place);
        for (n, place) in in_order {
            let job = &self.jobs[place];
            let Some((due, now, timer)) = written.get(&job.id) else { continue };
            match unique::take(self.store, self.conn, *now, job, rows.kind[n], self.runs).await? {
                NameOutcome::It(replaced) => {
                    wrote[place] = Some(Inserted { claimed: false });
                    told.extend(replaced.map(|id| (place, SubmitOutcome::Replaced { id })));
                    entering.extend(due.then_some(job.id.0));
                    timed |= timer;
                    signals.extend(distinct(&job.signals).map(|signal| (job.id, signal)));
                }
                NameOutcome::Not(answer) => {
                    self.conn.execute(sql::submit::REMOVE, &[&job.id.0]).await?;
                    told.insert(place, answer);
                    undone.push(job);
                }
            }
        }
        wait::count_new_children(self.conn, &undone, -1).await?;
        if !signals.is_empty() {
            signal::put(self.conn, self.now, &signals, self.store.shared.options.limits.inbox).await?;
        }
        if timed {
            let sql = sql::gates::BUMP;
            self.conn.execute(sql, &[&vec![0i32], &self.conn.gate_writer]).await?;
        }
        Ok(())
    }

    /// Looks up what stood in the way of those that were not inserted.
    async fn find(&self, wrote: &[Option<Inserted>]) -> Result<ExistingJobs, Error> {
        let (mine, missing): (Vec<_>, Vec<_>) =
            self.jobs.iter().zip(wrote).partition(|(_, wrote)| wrote.is_some());
        let mine: HashSet<JobId> = mine.into_iter().map(|(job, _)| job.id).collect();
        let missing: Vec<&NewJob> = missing.into_iter().map(|(job, _)| job).collect();
        let ids: Vec<_> = missing.iter().map(|job| job.id.0).collect();
        let keyed: Vec<(i32, &NewJob, &str)> = missing
            .iter()
            .filter_map(|job| Some((*job, job.key.as_deref()?)))
            .map(|(job, key)| Ok((self.lane(job)?.kind_id, job, key)))
            .collect::<Result<_, Error>>()?;
        let kinds: Vec<i32> = keyed.iter().map(|(kind, ..)| *kind).collect();
        let keys: Vec<&str> = keyed.iter().map(|(.., key)| *key).collect();
        let (worker, number) =
            (self.claim_on_submit.map(|b| b.worker.0), self.claim_on_submit.map(|b| b.number.0));
        let sql = sql::submit::FIND_EXISTING;
        let rows = self.conn.query(sql, &[&worker, &number, &ids, &kinds, &keys]).await?;
        let mut found = ExistingJobs::default();
        for row in rows {
            let id = JobId(row.get(0));
            let digest: [u8; 16] = row.get::<_, &[u8]>(1).try_into().unwrap_or_default();
            match row.get::<_, Option<i32>>(2) {
                None => {
                    found.ids.insert(id, digest);
                    if row.get(4) && !mine.contains(&id) {
                        found.claimed_before.insert(id);
                    }
                }
                Some(kind) => {
                    let name =
                        keyed.iter().find(|(k, ..)| *k == kind).map(|(_, job, _)| job.kind.kind.clone());
                    found.keys.insert((name.unwrap_or_default(), row.get(3)), (id, digest));
                }
            }
        }
        Ok(found)
    }

    pub(super) fn lane(&self, job: &NewJob) -> Result<Lane, Error> {
        self.names.lane(self.store, job)
    }
}

/// Notes that jobs come into the ready set.
pub(super) fn lower_floors(store: &Postgres, now: Now, jobs: &[impl Borrow<NewJob>]) {
    let urgent = jobs.iter().map(|job| job.borrow().priority).min().unwrap_or(0);
    let now_here = now.unwrap_or_else(|| Time::from_system(std::time::SystemTime::now()));
    // The server's clock may be a little behind this one.
    store.shared.floors.lowered(rank(now_here.minus(Duration::from_secs(1)), urgent));
}

/// Signals of which no two are equal: the second of two was delivered before.
fn distinct(signals: &[NewSignal]) -> impl Iterator<Item = &NewSignal> {
    let mut seen = HashSet::new();
    signals.iter().filter(move |signal| seen.insert((&signal.name, &signal.dedup)))
}

/// Parts a batch so that no id, key or unique name stands twice in a part: of two equal ones the first in the call is to win,
/// and within a statement it would be the one that sorts first. Jobs with unique names stay in the order given: one may cancel
/// the job before it, and with that change what the next one finds. All but odd batches are one part.
fn waves(jobs: &[NewJob]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut rest: Vec<usize> = (0..jobs.len()).collect();
    while !rest.is_empty() {
        let mut ids = HashSet::with_capacity(rest.len());
        let mut keys = HashSet::new();
        let mut names = HashSet::new();
        let mut put_off = false;
        let alone = |place: &usize| {
            let job = &jobs[*place];
            let new_id = ids.insert(job.id);
            let new_key = job.key.as_ref().is_none_or(|key| keys.insert((&job.kind.kind, key)));
            let unique = job.settings.unique.as_ref();
            let new_name = unique.is_none_or(|unique| names.insert((&job.kind.kind, &unique.key)));
            let now = new_id && new_key && new_name && !(put_off && unique.is_some());
            put_off |= !now && unique.is_some();
            now
        };
        let (wave, later) = rest.into_iter().partition(alone);
        waves.push(wave);
        rest = later;
    }
    waves
}
