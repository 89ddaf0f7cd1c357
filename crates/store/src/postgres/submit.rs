//! Submitting jobs.

use std::{
    borrow::Borrow,
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use windlass_model::{JobId, NewJob, NewSignal, SubmitOutcome, Time, rank::rank};

use super::{
    Postgres, SPAN, branch,
    change_params::Param,
    conn::Conn,
    errors::PgError,
    job_params::{BranchColumns, Rows},
    micros,
    names::Names,
    serial, signal, sql,
    tx::{Executor, Tx},
    unique,
    unique::NameOutcome,
    wait,
};
use crate::{
    ClaimOnSubmit, Error, Now,
    columns::{self, ExistingJobs, Inserted},
    intern::Lane,
};

/// How often a submit is sent because a job with the same key was pruned between two of its statements.
const TRIES: usize = 5;

pub(super) async fn submit(
    store: &Postgres,
    now: Now,
    jobs: &[NewJob],
    claim_on_submit: Option<ClaimOnSubmit>,
) -> Result<Vec<SubmitOutcome>, Error> {
    jobs.iter().try_for_each(|job| store.shared.options.limits.check(job))?;
    let names = Names::of(store, jobs).await?;
    for _ in 0..TRIES {
        let mut conn = store.conn().await?;
        let before = Instant::now();
        let batch = Batch { store, now, jobs, names: &names, claim_on_submit, running: &[] };
        let outcomes: Option<Vec<SubmitOutcome>> = batch.insert(&mut conn).await?.into_iter().collect();
        if let Some(outcomes) = outcomes {
            if let Some(claim) = claim_on_submit {
                store.shared.open_claims.made(claim.worker, claim.number, before);
            }
            return Ok(outcomes);
        }
    }
    Err(Error::Unavailable("jobs with these keys are being pruned; submit again".into()))
}

/// Jobs to be inserted together.
pub(super) struct Batch<'a> {
    pub(super) store: &'a Postgres,
    pub(super) now: Now,
    pub(super) jobs: &'a [NewJob],
    pub(super) names: &'a Names,
    pub(super) claim_on_submit: Option<ClaimOnSubmit>,
    /// Live jobs that count as running, wherever the transaction has put them since: their changes submit these jobs.
    pub(super) running: &'a [JobId],
}

impl Batch<'_> {
    /// Inserts the jobs, by a single statement or in a transaction. `None` for a job that must be submitted again.
    async fn insert(&self, conn: &mut Conn) -> Result<Vec<Option<SubmitOutcome>>, PgError> {
        lower_floors(self.store, self.now, self.jobs);
        let waves = waves(self.jobs);
        let plain = !self.jobs.iter().any(NewJob::needs_slow_path);
        let mut inserted = vec![None; self.jobs.len()];
        if let ([wave], true) = (waves.as_slice(), plain) {
            self.insert_plain(Executor::Conn(conn), wave, &mut inserted).await?;
            return self.outcomes(Executor::Conn(conn), &inserted, HashMap::new()).await;
        }
        let tx = Tx::write(conn).await?;
        let taken = self.insert_waves(&tx, &waves, &mut inserted).await;
        let taken = branch::finish(self.store, tx, self.now, taken).await?;
        self.outcomes(Executor::Conn(conn), &inserted, taken).await
    }

    /// Inserts the jobs in a transaction.
    pub(super) async fn insert_in(&self, tx: &Tx<'_>) -> Result<Vec<Option<SubmitOutcome>>, PgError> {
        lower_floors(self.store, self.now, self.jobs);
        let mut inserted = vec![None; self.jobs.len()];
        let taken = self.insert_waves(tx, &waves(self.jobs), &mut inserted).await?;
        self.outcomes(Executor::Tx(tx), &inserted, taken).await
    }

    /// Inserts all waves. Returns the outcomes of jobs whose unique name another job held.
    async fn insert_waves(
        &self,
        tx: &Tx<'_>,
        waves: &[Vec<usize>],
        inserted: &mut [Option<Inserted>],
    ) -> Result<HashMap<usize, SubmitOutcome>, PgError> {
        let mut taken = HashMap::new();
        let mut entering = Vec::new();
        let mut some_wait = false;
        for wave in waves {
            let (special, plain): (Vec<usize>, Vec<usize>) = wave.iter().partition(|index| {
                self.jobs[**index].parent.is_some() || self.jobs[**index].needs_slow_path()
            });
            if !plain.is_empty() {
                self.insert_plain(Executor::Tx(tx), &plain, inserted).await?;
            }
            if !special.is_empty() {
                let first = entering.len();
                self.insert_special(tx, &special, inserted, &mut taken, &mut entering).await?;
                some_wait |= serial::enter_unsettled(tx, &entering[first..]).await?;
            }
        }
        // Slots are filled once all jobs wait for their keys.
        if some_wait {
            serial::settle(tx, &entering).await?;
        }
        Ok(taken)
    }

    async fn outcomes(
        &self,
        executor: Executor<'_>,
        inserted: &[Option<Inserted>],
        mut taken: HashMap<usize, SubmitOutcome>,
    ) -> Result<Vec<Option<SubmitOutcome>>, PgError> {
        let is_known =
            |(n, inserted): (usize, &Option<Inserted>)| inserted.is_some() || taken.contains_key(&n);
        let found = match inserted.iter().enumerate().all(is_known) {
            true => ExistingJobs::default(),
            false => self.find_existing(executor, inserted).await?,
        };
        let outcomes = columns::submit_outcomes(self.jobs, inserted, &found);
        Ok(outcomes.into_iter().enumerate().map(|(n, outcome)| taken.remove(&n).or(outcome)).collect())
    }

    /// Inserts plain jobs, and notes which were inserted.
    async fn insert_plain(
        &self,
        executor: Executor<'_>,
        wave: &[usize],
        inserted: &mut [Option<Inserted>],
    ) -> Result<(), PgError> {
        let rows = Rows::of(self, wave)?;
        let (worker, number) = self.claim();
        let (now, last, writer) = (micros(self.now), Time::MAX.micros(), executor.gate_writer());
        let mut params: Vec<Param<'_>> = vec![&now, &last];
        params.extend(rows.params());
        let count_writer = executor.count_writer();
        params.extend::<[Param<'_>; 6]>([&rows.key, &SPAN, &writer, &worker, &number, &count_writer]);
        params.extend::<[Param<'_>; 2]>([&rows.periods.lane, &rows.periods.period]);
        for row in executor.query(sql::submit::INSERT, &params).await? {
            inserted[rows.index_of[&JobId(row.get(0))]] = Some(Inserted { claimed: row.get(1) });
        }
        Ok(())
    }

    /// The claim under which the jobs are inserted, if any: worker and number.
    fn claim(&self) -> (Option<i64>, Option<i64>) {
        (self.claim_on_submit.map(|claim| claim.worker.0), self.claim_on_submit.map(|claim| claim.number.0))
    }

    /// Inserts jobs that have a parent, a unique name, a serial key, a rate limit or signals. A job whose unique name another job
    /// holds is deleted again. Adds the jobs that are due to `entering`.
    async fn insert_special(
        &self,
        tx: &Tx<'_>,
        wave: &[usize],
        inserted: &mut [Option<Inserted>],
        taken: &mut HashMap<usize, SubmitOutcome>,
        entering: &mut Vec<uuid::Uuid>,
    ) -> Result<(), PgError> {
        let rows = Rows::of(self, wave)?;
        let jobs: Vec<&NewJob> = rows.indexes.iter().map(|index| &self.jobs[*index]).collect();
        let parent: Vec<Option<uuid::Uuid>> = jobs.iter().map(|job| job.parent.map(|id| id.0)).collect();
        let serial = |job: &&NewJob| Some(self.names.serial_keys[&job.settings.serial.as_ref()?.key]);
        let serials: Vec<Option<i64>> = jobs.iter().map(serial).collect();
        let weight: Vec<Option<i32>> =
            jobs.iter().map(|job| Some(job.settings.rate.as_ref()?.weight as i32)).collect();
        let keeps: Vec<Option<bool>> =
            jobs.iter().map(|job| Some(job.settings.serial.as_ref()?.keeps_slot)).collect();
        let parent_rev: Vec<Option<i32>> = jobs.iter().map(|job| job.parent_rev.map(|rev| rev.0)).collect();
        let positions = BranchColumns::of(&jobs);
        let (now, last) = (micros(self.now), Time::MAX.micros());
        let mut params: Vec<Param<'_>> = vec![&now, &last];
        params.extend(rows.params());
        params.extend::<[Param<'_>; 6]>([&rows.key, &parent, &serials, &weight, &keeps, &parent_rev]);
        params.extend(positions.params());
        params.extend::<[Param<'_>; 3]>([&tx.count_writer, &rows.periods.lane, &rows.periods.period]);
        let written = tx.query(sql::submit::INSERT_SPECIAL, &params).await?;
        let written: HashMap<JobId, (bool, Time, bool)> = written
            .iter()
            .map(|row| (JobId(row.get(0)), (row.get(1), Time(row.get(2)), row.get(3))))
            .collect();
        let new: Vec<&NewJob> = jobs.into_iter().filter(|job| written.contains_key(&job.id)).collect();
        // Before anything that ends another child of the same parent.
        wait::count_new_children(tx, &new, 1).await?;
        let mut has_timers = false;
        let mut deleted: Vec<&NewJob> = Vec::new();
        let mut signals: Vec<(JobId, &NewSignal)> = Vec::new();
        let mut in_order: Vec<(usize, usize)> = rows.indexes.iter().copied().enumerate().collect();
        in_order.sort_unstable_by_key(|(_, index)| *index);
        for (n, index) in in_order {
            let job = &self.jobs[index];
            let Some((due, now, timer)) = written.get(&job.id) else { continue };
            match unique::take(self.store, tx, *now, job, rows.kind[n], self.running).await? {
                NameOutcome::Taken { replaced } => {
                    inserted[index] = Some(Inserted { claimed: false });
                    taken.extend(replaced.map(|id| (index, SubmitOutcome::Replaced { id })));
                    entering.extend(due.then_some(job.id.0));
                    has_timers |= timer;
                    signals.extend(distinct(&job.signals).map(|signal| (job.id, signal)));
                }
                NameOutcome::Held(outcome) => {
                    tx.execute(sql::submit::REMOVE, &[&job.id.0, &tx.count_writer]).await?;
                    taken.insert(index, outcome);
                    deleted.push(job);
                }
            }
        }
        wait::count_new_children(tx, &deleted, -1).await?;
        if !signals.is_empty() {
            signal::add(tx, self.now, &signals, self.store.shared.options.limits.inbox).await?;
        }
        if has_timers {
            tx.execute(sql::gates::BUMP, &[&vec![0i32], &tx.gate_writer]).await?;
        }
        Ok(())
    }

    /// Finds the jobs that exist already with the ids or keys of those that were not inserted.
    async fn find_existing(
        &self,
        executor: Executor<'_>,
        inserted: &[Option<Inserted>],
    ) -> Result<ExistingJobs, PgError> {
        let (new, missing): (Vec<_>, Vec<_>) =
            self.jobs.iter().zip(inserted).partition(|(_, inserted)| inserted.is_some());
        let new: HashSet<JobId> = new.into_iter().map(|(job, _)| job.id).collect();
        let missing: Vec<&NewJob> = missing.into_iter().map(|(job, _)| job).collect();
        let ids: Vec<_> = missing.iter().map(|job| job.id.0).collect();
        let keyed: Vec<(i32, &NewJob, &str)> = missing
            .iter()
            .filter_map(|job| Some((*job, job.key.as_deref()?)))
            .map(|(job, key)| Ok((self.lane(job)?.kind_id, job, key)))
            .collect::<Result<_, PgError>>()?;
        let kinds: Vec<i32> = keyed.iter().map(|(kind, ..)| *kind).collect();
        let keys: Vec<&str> = keyed.iter().map(|(.., key)| *key).collect();
        let (worker, number) = self.claim();
        let sql = sql::submit::FIND_EXISTING;
        let rows = executor.query(sql, &[&worker, &number, &ids, &kinds, &keys]).await?;
        let mut found = ExistingJobs::default();
        for row in rows {
            let id = JobId(row.get(0));
            let digest: [u8; 16] = row.get::<_, &[u8]>(1).try_into().unwrap_or_default();
            match row.get::<_, Option<i32>>(2) {
                None => {
                    found.ids.insert(id, digest);
                    if row.get(4) && !new.contains(&id) {
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

/// Notes that jobs are added to the ready set.
pub(super) fn lower_floors(store: &Postgres, now: Now, jobs: &[impl Borrow<NewJob>]) {
    let urgent = jobs.iter().map(|job| job.borrow().priority).min().unwrap_or(0);
    let now_here = now.unwrap_or_else(|| Time::from_system(std::time::SystemTime::now()));
    // The server's clock may be a little behind this one.
    store.shared.floors.lowered(rank(now_here - Duration::from_secs(1), urgent));
}

/// Signals without duplicates: the second of two equal ones counts as delivered before.
fn distinct(signals: &[NewSignal]) -> impl Iterator<Item = &NewSignal> {
    let mut seen = HashSet::new();
    signals.iter().filter(move |signal| seen.insert((&signal.name, &signal.dedup)))
}

/// Splits a batch so that no id, key or unique name occurs twice in a wave: of two equal ones the first in the call must win,
/// and within a statement it would be the one that sorts first. Jobs with unique names keep their order: one may cancel the job
/// before it, which changes what the next one finds. Most batches are one wave.
fn waves(jobs: &[NewJob]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut rest: Vec<usize> = (0..jobs.len()).collect();
    while !rest.is_empty() {
        let mut ids = HashSet::with_capacity(rest.len());
        let mut keys = HashSet::new();
        let mut names = HashSet::new();
        let mut deferred = false;
        let is_first = |index: &usize| {
            let job = &jobs[*index];
            let new_id = ids.insert(job.id);
            let new_key = job.key.as_ref().is_none_or(|key| keys.insert((&job.kind.kind, key)));
            let unique = job.settings.unique.as_ref();
            let new_name = unique.is_none_or(|unique| names.insert((&job.kind.kind, &unique.key)));
            let now = new_id && new_key && new_name && !(deferred && unique.is_some());
            deferred |= !now && unique.is_some();
            now
        };
        let (wave, later) = rest.into_iter().partition(is_first);
        waves.push(wave);
        rest = later;
    }
    waves
}
