//! What people do to work that is there. Everything done here is in the audit log, under the name of whoever did it.

use std::time::Duration;

use windlass_model::{JobId, RateLimit, Schedule, State};
use windlass_store::{Actor, AdminAction, ControlOutcome, JobAction, Prune, Pruned};

use windlass_workflow::{Error, Machine};

use crate::{Bulk, Fork, Migrate, Operator, Redrive};

/// How long a running attempt is given to end when nothing else is said.
pub const GRACE: Duration = Duration::from_secs(10);

/// Acts in someone's name; made by [`Operator::control`].
#[derive(Clone)]
pub struct Control {
    operator: Operator,
    by: Actor,
}

impl Control {
    pub(crate) fn new(operator: Operator, author: String) -> Control {
        Control { operator, by: Actor::new(author) }
    }

    /// The same with a reason, kept in the audit log and shown by `why`.
    pub fn note(mut self, note: impl Into<String>) -> Control {
        self.by.note = Some(note.into());
        self
    }

    /// Ends a job as cancelled. One that runs is told (its context says so), and is ended from outside if it has not
    /// ended after ten seconds.
    pub async fn cancel(&self, job: JobId) -> Result<ControlOutcome, Error> {
        self.cancel_within(job, GRACE).await
    }

    /// The same with another time for a running attempt to end.
    pub async fn cancel_within(&self, job: JobId, grace: Duration) -> Result<ControlOutcome, Error> {
        self.act(job, JobAction::Cancel { grace }).await
    }

    /// Cancels a job and everything that it, and its children, submitted. Answers how many jobs were cancelled or told.
    pub async fn cancel_with_children(&self, job: JobId, grace: Duration) -> Result<usize, Error> {
        let mut cancelled = 0;
        let mut parents = vec![job];
        let act = JobAction::Cancel { grace };
        cancelled += usize::from(matches!(
            self.act(job, act).await?,
            ControlOutcome::Done | ControlOutcome::CancelRequested
        ));
        while let Some(parent) = parents.pop() {
            let mut after = None;
            loop {
                let page = self.operator.inspect().children(parent, after, 500).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.id);
                parents.extend(page.iter().map(|child| child.id));
                let live: Vec<JobId> =
                    page.iter().filter(|child| !child.state.is_final()).map(|child| child.id).collect();
                let dids = self.act_on(&live, act).await?;
                cancelled += dids
                    .iter()
                    .filter(|did| matches!(did, ControlOutcome::Done | ControlOutcome::CancelRequested))
                    .count();
            }
        }
        Ok(cancelled)
    }

    /// Keeps a job from being claimed until it is resumed. One that runs runs on.
    pub async fn pause(&self, job: JobId) -> Result<ControlOutcome, Error> {
        self.act(job, JobAction::Pause).await
    }

    /// Takes a pause back.
    pub async fn resume(&self, job: JobId) -> Result<ControlOutcome, Error> {
        self.act(job, JobAction::Resume).await
    }

    /// Tries a failed or cancelled job again, with its counters reset.
    pub async fn retry(&self, job: JobId) -> Result<ControlOutcome, Error> {
        self.act(job, JobAction::Retry).await
    }

    /// Gives a job another priority.
    pub async fn priority(&self, job: JobId, priority: i16) -> Result<ControlOutcome, Error> {
        self.act(job, JobAction::Priority(priority)).await
    }

    /// Takes a signal out of a job's inbox for good, by its number there. One that was not set aside stays while the job runs.
    pub async fn drop_signal(&self, job: JobId, number: i64) -> Result<ControlOutcome, Error> {
        self.act(job, JobAction::DropSignal(number)).await
    }

    /// Puts a signal back that a job could not read, by its number in the inbox: it stands where it stood, and the job is
    /// ready if that ends its wait.
    pub async fn restore_signal(&self, job: JobId, number: i64) -> Result<ControlOutcome, Error> {
        self.act(job, JobAction::RestoreSignal(number)).await
    }

    /// Does one thing to one job.
    pub async fn act(&self, job: JobId, act: JobAction) -> Result<ControlOutcome, Error> {
        Ok(self.act_on(&[job], act).await?.remove(0))
    }

    /// Does one thing to some jobs, in one transaction.
    pub async fn act_on(&self, jobs: &[JobId], act: JobAction) -> Result<Vec<ControlOutcome>, Error> {
        let dids = self.operator.store().control().act_on_jobs(None, jobs, act, &self.by).await?;
        self.operator.poke();
        Ok(dids)
    }

    /// Does one thing to every job that matches a filter; see [`Bulk`].
    pub fn bulk(&self, filter: windlass_store::Filter, act: JobAction) -> Bulk {
        Bulk::new(self.operator.clone(), filter, act, self.by.clone())
    }

    /// Retries all failed and cancelled children of a job's branches, or of the one with this name; see [`Redrive`].
    pub fn redrive(&self, job: JobId, branch: Option<&str>) -> Redrive {
        Redrive::new(self.operator.clone(), self.by.clone(), job, branch)
    }

    /// Moves jobs of one version of a machine to another, their states converted by `convert`; see [`Migrate`].
    pub fn migrate<A, B, F>(&self, convert: F) -> Migrate<A, B, F>
    where
        A: Machine,
        B: Machine,
        F: Fn(A) -> Result<B, String>,
    {
        Migrate::new(self.operator.clone(), self.by.clone(), convert)
    }

    /// Makes a job that goes on from somewhere in the journal of another; see [`Fork`].
    pub fn fork(&self) -> Fork {
        Fork::new(self.operator.clone(), self.by.clone())
    }

    /// Claims nothing from a queue until it is resumed.
    pub async fn pause_queue(&self, queue: &str) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::PauseQueue(queue.to_owned())).await
    }

    /// Takes that back.
    pub async fn resume_queue(&self, queue: &str) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::ResumeQueue(queue.to_owned())).await
    }

    /// Makes a rate limit, or changes one while jobs wait for it.
    pub async fn set_limit(&self, limit: RateLimit) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::Limit(limit)).await
    }

    /// Lets the jobs under a rate limit pass.
    pub async fn lift_limit(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::Lift(name.to_owned())).await
    }

    /// How many jobs of a serial key run at once.
    pub async fn set_slots(&self, key: &str, slots: u32) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::Slots { key: key.to_owned(), slots }).await
    }

    /// Makes or changes a schedule; `Engine::schedule` makes one from a task.
    pub async fn set_schedule(&self, schedule: Schedule) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::Schedule(Box::new(schedule))).await
    }

    /// Forgets a schedule; its jobs stay.
    pub async fn drop_schedule(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::DropSchedule(name.to_owned())).await
    }

    /// Lets a schedule rest.
    pub async fn pause_schedule(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::PauseSchedule(name.to_owned())).await
    }

    /// Takes that back; what would have fired meanwhile does not.
    pub async fn resume_schedule(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::ResumeSchedule(name.to_owned())).await
    }

    /// Submits the job of a schedule now, whatever its calendar says.
    pub async fn trigger(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.rule(&AdminAction::Trigger(name.to_owned())).await
    }

    /// Changes a rule that holds for many jobs.
    pub async fn rule(&self, rule: &AdminAction) -> Result<ControlOutcome, Error> {
        let did = self.operator.store().control().administer(None, rule, &self.by).await?;
        self.operator.poke();
        Ok(did)
    }

    /// Deletes jobs that ended in `state` longer than `age` ago. `seen` is told how far it is after every batch, and
    /// may end it by answering `false`.
    pub async fn prune(
        &self,
        state: State,
        age: Duration,
        kind: Option<&str>,
        mut seen: impl FnMut(&Pruned) -> bool,
    ) -> Result<Pruned, Error> {
        let now = self.operator.inspect().clock().await?;
        let kind = kind.map(str::to_owned);
        let mut prune = Prune { state, before: now.minus(age), kind, after: None, limit: 1_000 };
        let mut total = Pruned::default();
        loop {
            let done = self.operator.store().prune(None, &prune).await?;
            total.jobs += done.jobs;
            total.kept += done.kept;
            total.after = done.after;
            if !seen(&total) || done.after.is_none() {
                break;
            }
            prune.after = done.after;
        }
        if total.jobs > 0 {
            let action = format!("prune {} jobs that were {state} for {age:?}", total.jobs);
            self.operator.store().control().record_audit(None, &action, "jobs", &self.by).await?;
        }
        Ok(total)
    }
}
