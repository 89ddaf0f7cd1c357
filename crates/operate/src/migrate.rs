//! Migrates jobs from one version of a machine to another: code that knows both converts their stages.

use std::marker::PhantomData;

use windlass_model::{JobId, State, limits::check_stage};
use windlass_store::{Actor, ControlOutcome, Filter, Job, JobPage, StageUpdate};

use windlass_workflow::{
    Error, Machine,
    engine::stage::{self, decode, encode},
};

use crate::Operator;

/// How many jobs are read and written at a time.
const BATCH: usize = 100;
/// How many jobs that could not be migrated are listed.
const LISTED: usize = 20;

/// A migration to be run. Nothing is done until [`Migrate::run`].
///
/// Running jobs are skipped: run it again for them, or pause their queue first. Done jobs stay as they are;
/// failed and cancelled ones are migrated too, so that they can be retried.
#[must_use = "a migration does nothing until it is run"]
pub struct Migrate<A, B, F> {
    operator: Operator,
    actor: Actor,
    convert: F,
    versions: PhantomData<fn(A) -> B>,
}

/// What a migration has done, or would do.
#[derive(Clone, PartialEq, Debug, Default)]
#[must_use = "jobs may have been refused"]
pub struct MigrateProgress {
    /// Jobs that were read.
    pub seen: usize,
    /// Jobs whose stage was, or could be, converted.
    pub migrated: usize,
    /// Jobs that run, or changed meanwhile: run the migration again for them.
    pub busy: usize,
    /// Jobs whose stage could not be converted.
    pub refused: usize,
    /// The first of those, and why.
    pub refusals: Vec<(JobId, String)>,
    /// Whether it was interrupted before the last job.
    pub interrupted: bool,
}

impl<A, B, F> Migrate<A, B, F>
where
    A: Machine,
    B: Machine,
    F: Fn(A) -> Result<B, String>,
{
    pub(crate) fn new(operator: Operator, actor: Actor, convert: F) -> Migrate<A, B, F> {
        Migrate { operator, actor, convert, versions: PhantomData }
    }

    /// Converts every stage and writes nothing. Returns what a run would do.
    pub async fn dry_run(&self) -> Result<MigrateProgress, Error> {
        self.migrate(false, |_| true).await
    }

    /// Runs it, batch by batch. `on_progress` is called after every batch; it ends the run by returning `false`. Committed batches stay;
    /// another run continues with the rest.
    pub async fn run(
        self,
        on_progress: impl FnMut(&MigrateProgress) -> bool,
    ) -> Result<MigrateProgress, Error> {
        let control = self.operator.store().control();
        let (from, to) = (A::VERSION, B::VERSION);
        let action = format!("migrate from version {from} to {to}");
        control.record_audit(None, &action, A::KIND, &self.actor).await?;
        let progress = self.migrate(true, on_progress).await?;
        let ended = format!(
            "{action} ended: {} migrated, {} busy, {} refused",
            progress.migrated, progress.busy, progress.refused
        );
        control.record_audit(None, &ended, A::KIND, &self.actor).await?;
        self.operator.poke();
        Ok(progress)
    }

    async fn migrate(
        &self,
        write: bool,
        mut on_progress: impl FnMut(&MigrateProgress) -> bool,
    ) -> Result<MigrateProgress, Error> {
        if A::KIND != B::KIND || A::VERSION == B::VERSION {
            return Err(Error::Setup(format!(
                "{:?} version {} cannot be migrated to {:?} version {}; both must be of one kind, in different versions",
                A::KIND,
                A::VERSION,
                B::KIND,
                B::VERSION
            )));
        }
        let (kind, version) = (Some(A::KIND.to_owned()), Some(A::VERSION));
        let mut filter = Filter { kind, version, limit: BATCH, ..Filter::default() };
        let mut progress = MigrateProgress::default();
        loop {
            let JobPage { jobs, next } = self.operator.inspect().jobs(&filter).await?;
            let last = next.is_none();
            filter.before = next;
            let mut batch = Vec::new();
            for summary in jobs.into_iter().filter(|job| job.state != State::Done) {
                progress.seen += 1;
                let Some(job) = self.operator.inspect().job(summary.id).await? else { continue };
                match self.stage_update(&job) {
                    _ if job.summary.state == State::Running => progress.busy += 1,
                    Ok(update) => batch.push(update),
                    Err(why) => progress.refuse(job.summary.id, why),
                }
            }
            if write {
                let outcomes =
                    self.operator.store().control().update_stages(None, &batch, &self.actor).await?;
                for (outcome, update) in outcomes.into_iter().zip(&batch) {
                    match outcome {
                        ControlOutcome::Done => progress.migrated += 1,
                        ControlOutcome::Unknown => {
                            progress.refuse(update.job, "it was pruned meanwhile".into())
                        }
                        _ => progress.busy += 1,
                    }
                }
            } else {
                progress.migrated += batch.len();
            }
            if !on_progress(&progress) && !last {
                progress.interrupted = true;
                return Ok(progress);
            }
            if last {
                return Ok(progress);
            }
        }
    }

    /// The converted stage of a job, or why it cannot be converted.
    fn stage_update(&self, job: &Job) -> Result<StageUpdate, String> {
        let payload = job.data.as_ref().unwrap_or(&job.input);
        let plain = self.operator.codecs().decode(payload).map_err(|error| error.to_string())?;
        let (name, data) = match (&job.summary.stage, &job.data) {
            (Some(name), Some(_)) => (name.clone(), &plain[..]),
            _ => stage::split(&plain).ok_or("its input is not a stage")?,
        };
        let old: A =
            decode(&name, data).map_err(|error| format!("its stage {name:?} does not decode ({error})"))?;
        let new = (self.convert)(old)?;
        let (stage, data) = encode(&new).map_err(|why| format!("its new stage {why}"))?;
        let data = self.operator.codecs().encode(data).map_err(|error| error.to_string())?;
        let limits = self.operator.store().limits();
        check_stage(&stage)
            .and_then(|()| limits.check_payload("data of the new stage", &data.bytes))
            .map_err(|e| e.to_string())?;
        Ok(StageUpdate {
            job: job.summary.id,
            epoch: job.epoch,
            rev: job.rev,
            version: B::VERSION,
            stage,
            data,
        })
    }
}

impl MigrateProgress {
    fn refuse(&mut self, id: JobId, why: String) {
        self.refused += 1;
        if self.refusals.len() < LISTED {
            self.refusals.push((id, why));
        }
    }
}
