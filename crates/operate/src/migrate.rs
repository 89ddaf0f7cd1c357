//! Moving jobs of one version of a machine to another: their states are converted by code that knows both.

use std::marker::PhantomData;

use windlass_model::{JobId, State, limits::check_stage};
use windlass_store::{Actor, ControlOutcome, Filter, Job, StageUpdate};

use windlass_workflow::{
    Error, Machine,
    engine::stage::{self, decode, encode},
};

use crate::Operator;

/// How many jobs are looked at, and written, at a time.
const BATCH: usize = 100;
/// How many of those that could not be migrated are told one by one.
const LISTED: usize = 20;

/// A migration that is being described. Nothing is done until [`Migrate::run`].
///
/// Jobs that run are passed over: run it again for them, or pause their queue first. Jobs that are done stay as they are;
/// failed and cancelled ones are migrated too, so that they can be retried.
#[must_use = "a migration does nothing until it is run"]
pub struct Migrate<A, B, F> {
    operator: Operator,
    by: Actor,
    convert: F,
    versions: PhantomData<fn(A) -> B>,
}

/// What a migration has done, or would do.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MigrateProgress {
    /// Jobs that were looked at.
    pub seen: usize,
    /// Jobs whose state was, or could be, converted.
    pub migrated: usize,
    /// Jobs that run, or moved meanwhile: to be tried again.
    pub busy: usize,
    /// Jobs whose state could not be converted.
    pub refused: usize,
    /// The first of those, and why.
    pub because: Vec<(JobId, String)>,
    /// Whether it was ended before all were done.
    pub cut_short: bool,
}

impl<A, B, F> Migrate<A, B, F>
where
    A: Machine,
    B: Machine,
    F: Fn(A) -> Result<B, String>,
{
    pub(crate) fn new(operator: Operator, by: Actor, convert: F) -> Migrate<A, B, F> {
        Migrate { operator, by, convert, versions: PhantomData }
    }

    /// Converts every state and writes nothing: what would come of it.
    pub async fn dry_run(&self) -> Result<MigrateProgress, Error> {
        self.go(false, |_| true).await
    }

    /// Does it, batch by batch. `seen` is told how far it is after every batch, and may end it by answering `false`; what
    /// was done stays done. Running it again goes on with the rest.
    pub async fn run(self, seen: impl FnMut(&MigrateProgress) -> bool) -> Result<MigrateProgress, Error> {
        let control = self.operator.store().control();
        let (from, to) = (A::VERSION, B::VERSION);
        let action = format!("migrate from version {from} to {to}");
        control.record_audit(None, &action, A::KIND, &self.by).await?;
        let migrated = self.go(true, seen).await?;
        let ended = format!(
            "{action} ended: {} migrated, {} busy, {} refused",
            migrated.migrated, migrated.busy, migrated.refused
        );
        control.record_audit(None, &ended, A::KIND, &self.by).await?;
        self.operator.poke();
        Ok(migrated)
    }

    async fn go(
        &self,
        write: bool,
        mut seen: impl FnMut(&MigrateProgress) -> bool,
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
        let mut migrated = MigrateProgress::default();
        loop {
            let page = self.operator.inspect().jobs(&filter).await?;
            let last = page.len() < BATCH;
            filter.before = page.last().map(|job| job.id);
            let mut batch = Vec::new();
            for summary in page.into_iter().filter(|job| job.state != State::Done) {
                migrated.seen += 1;
                let Some(job) = self.operator.inspect().job(summary.id).await? else { continue };
                match self.restate(&job) {
                    _ if job.summary.state == State::Running => migrated.busy += 1,
                    Ok(restate) => batch.push(restate),
                    Err(why) => migrated.refuse(job.summary.id, why),
                }
            }
            if write {
                let dids = self.operator.store().control().update_stages(None, &batch, &self.by).await?;
                for (did, restate) in dids.into_iter().zip(&batch) {
                    match did {
                        ControlOutcome::Done => migrated.migrated += 1,
                        ControlOutcome::Unknown => {
                            migrated.refuse(restate.job, "it was pruned meanwhile".into())
                        }
                        _ => migrated.busy += 1,
                    }
                }
            } else {
                migrated.migrated += batch.len();
            }
            if !seen(&migrated) && !last {
                migrated.cut_short = true;
                return Ok(migrated);
            }
            if last {
                return Ok(migrated);
            }
        }
    }

    /// What a job is to be, or why it cannot.
    fn restate(&self, job: &Job) -> Result<StageUpdate, String> {
        let payload = job.data.as_ref().unwrap_or(&job.input);
        let plain = self.operator.codecs().decode(payload).map_err(|error| error.to_string())?;
        let (name, data) = match (&job.summary.stage, &job.data) {
            (Some(name), Some(_)) => (name.clone(), &plain[..]),
            _ => stage::split(&plain).ok_or("its input is not a state")?,
        };
        let old: A =
            decode(&name, data).map_err(|error| format!("its state {name:?} does not decode ({error})"))?;
        let new = (self.convert)(old)?;
        let (stage, data) = encode(&new).map_err(|why| format!("its new state {why}"))?;
        let data = self.operator.codecs().encode(data).map_err(|error| error.to_string())?;
        let limits = self.operator.store().limits();
        check_stage(&stage)
            .and_then(|()| limits.check_payload("new state", &data.bytes))
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
        if self.because.len() < LISTED {
            self.because.push((id, why));
        }
    }
}
