//! Changes to jobs, queues, limits, serial keys and schedules. Each is recorded in the audit log with its author.

use std::time::Duration;

use windlass_model::{JobId, RateLimit, Schedule, State};
use windlass_store::{Actor, AdminAction, ControlOutcome, JobAction, Prune, Pruned};

use windlass_workflow::{Error, Machine};

use crate::{Bulk, Fork, Migrate, Operator, Redrive};

/// How long a cancelled attempt may take to end by default.
pub const GRACE: Duration = Duration::from_secs(10);

/// Acts in someone's name; made by [`Operator::control`].
///
/// An action on one job that does not exist is [`Error::NoSuchJob`]. Everything else that keeps an action from being done is a
/// [`ControlOutcome`], of which [`ControlOutcome::accepted`] makes an error. What cannot be refused, such as setting a limit, returns
/// whether it changed anything.
///
/// ```
/// # use windlass_model::{JobId, RateLimit};
/// # use windlass_operate::Control;
/// # use windlass_store::ControlOutcome;
/// # async fn example(control: Control, job: JobId) -> Result<(), Box<dyn std::error::Error>> {
/// // In a program: `engine.control("ada")`.
/// let control = control.note("the bank is back");
/// control.retry(job).await?.accepted()?;
/// if let ControlOutcome::Refused(why) = control.pause(job).await? {
///     println!("it is not paused: {why}");
/// }
/// let changed = control.set_limit(RateLimit::per_second("bank", 5)).await?;
/// # let _ = changed;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Control {
    operator: Operator,
    actor: Actor,
}

impl Control {
    pub(crate) fn new(operator: Operator, author: String) -> Control {
        Control { operator, actor: Actor::new(author) }
    }

    pub(crate) fn operator(&self) -> &Operator {
        &self.operator
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Adds a reason, which the audit log keeps and `why` shows.
    pub fn note(mut self, note: impl Into<String>) -> Control {
        self.actor.note = Some(note.into());
        self
    }

    /// Cancels a job. A running attempt is requested to end (its context shows that); if it has not ended after [`GRACE`], the store
    /// ends the job without it.
    pub async fn cancel(&self, job: JobId) -> Result<ControlOutcome, Error> {
        self.cancel_within(job, GRACE).await
    }

    /// Cancels a job with another grace period.
    pub async fn cancel_within(&self, job: JobId, grace: Duration) -> Result<ControlOutcome, Error> {
        self.act_on_job(job, JobAction::Cancel { grace }).await
    }

    /// Cancels a job and all its descendants. Returns how many jobs were cancelled or requested to end. If the job itself was pruned
    /// and left descendants, those are cancelled.
    pub async fn cancel_with_children(&self, job: JobId, grace: Duration) -> Result<usize, Error> {
        let action = JobAction::Cancel { grace };
        let outcomes = self.act_on(&[job], action).await?;
        let mut exists = outcomes != [ControlOutcome::Unknown];
        let mut cancelled = ended(&outcomes);
        let mut parents = vec![job];
        while let Some(parent) = parents.pop() {
            let mut after = None;
            loop {
                let page = self.operator.inspect().children(parent, after, 500).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.id);
                exists = true;
                parents.extend(page.iter().map(|child| child.id));
                let live: Vec<JobId> =
                    page.iter().filter(|child| !child.state.is_final()).map(|child| child.id).collect();
                cancelled += ended(&self.act_on(&live, action).await?);
            }
        }
        if exists { Ok(cancelled) } else { Err(Error::NoSuchJob(job)) }
    }

    /// Pauses a job: it is not claimed until it is resumed. A running attempt continues.
    pub async fn pause(&self, job: JobId) -> Result<ControlOutcome, Error> {
        self.act_on_job(job, JobAction::Pause).await
    }

    /// Resumes a paused job.
    pub async fn resume(&self, job: JobId) -> Result<ControlOutcome, Error> {
        self.act_on_job(job, JobAction::Resume).await
    }

    /// Retries a failed or cancelled job, with its counters reset.
    pub async fn retry(&self, job: JobId) -> Result<ControlOutcome, Error> {
        self.act_on_job(job, JobAction::Retry).await
    }

    /// Changes the priority of a job.
    pub async fn priority(&self, job: JobId, priority: i16) -> Result<ControlOutcome, Error> {
        self.act_on_job(job, JobAction::Priority(priority)).await
    }

    /// Deletes a signal from a job's inbox, by its number there. While the job runs, only an unreadable one is deleted.
    pub async fn drop_signal(&self, job: JobId, number: i64) -> Result<ControlOutcome, Error> {
        self.act_on_job(job, JobAction::DropSignal(number)).await
    }

    /// Restores an unreadable signal, by its number in the inbox: it keeps its position, and the job becomes ready if that ends its
    /// wait.
    pub async fn restore_signal(&self, job: JobId, number: i64) -> Result<ControlOutcome, Error> {
        self.act_on_job(job, JobAction::RestoreSignal(number)).await
    }

    /// Applies an action to one job.
    pub async fn act_on_job(&self, job: JobId, action: JobAction) -> Result<ControlOutcome, Error> {
        match self.act_on(&[job], action).await?.remove(0) {
            ControlOutcome::Unknown => Err(Error::NoSuchJob(job)),
            outcome => Ok(outcome),
        }
    }

    /// Applies an action to some jobs, in one transaction. Returns an outcome for each, in order: [`ControlOutcome::Unknown`] for one
    /// that does not exist.
    pub async fn act_on(&self, jobs: &[JobId], action: JobAction) -> Result<Vec<ControlOutcome>, Error> {
        let outcomes = self.operator.store().control().act_on_jobs(None, jobs, action, &self.actor).await?;
        self.operator.poke();
        Ok(outcomes)
    }

    /// Applies an action to every job that matches a filter; see [`Bulk`].
    pub fn bulk(&self, filter: windlass_store::Filter, action: JobAction) -> Bulk {
        Bulk::new(self.operator.clone(), filter, action, self.actor.clone())
    }

    /// Retries all failed and cancelled children of a job's branches, or of the one with this name; see [`Redrive`].
    pub fn redrive(&self, job: JobId, branch: Option<&str>) -> Redrive {
        Redrive::new(self.operator.clone(), self.actor.clone(), job, branch)
    }

    /// Moves jobs of one version of a machine to another and converts their stages with `convert`; see [`Migrate`].
    pub fn migrate<A, B, F>(&self, convert: F) -> Migrate<A, B, F>
    where
        A: Machine,
        B: Machine,
        F: Fn(A) -> Result<B, String>,
    {
        Migrate::new(self.operator.clone(), self.actor.clone(), convert)
    }

    /// Starts a new job from part of another's journal; see [`Fork`].
    pub fn fork(&self) -> Fork {
        Fork::new(self.operator.clone(), self.actor.clone())
    }

    /// Pauses a queue: none of its jobs is claimed until it is resumed. Returns whether that changed anything.
    pub async fn pause_queue(&self, queue: &str) -> Result<bool, Error> {
        self.set(&AdminAction::PauseQueue(queue.to_owned())).await
    }

    /// Resumes a paused queue. Returns whether that changed anything.
    pub async fn resume_queue(&self, queue: &str) -> Result<bool, Error> {
        self.set(&AdminAction::ResumeQueue(queue.to_owned())).await
    }

    /// Creates a rate limit, or changes one while jobs wait for it. Returns whether that changed anything.
    pub async fn set_limit(&self, limit: RateLimit) -> Result<bool, Error> {
        self.set(&AdminAction::Limit(limit)).await
    }

    /// Lifts a rate limit: its jobs start without paying until it is set again.
    pub async fn lift_limit(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.administer(&AdminAction::Lift(name.to_owned())).await
    }

    /// Sets how many jobs of a serial key run at once. Returns whether that changed anything.
    pub async fn set_slots(&self, key: &str, slots: u32) -> Result<bool, Error> {
        self.set(&AdminAction::Slots { key: key.to_owned(), slots }).await
    }

    /// Creates or changes a schedule; `Engine::schedule` creates one from a task. Returns whether that changed anything.
    pub async fn set_schedule(&self, schedule: Schedule) -> Result<bool, Error> {
        self.set(&AdminAction::Schedule(Box::new(schedule))).await
    }

    /// Deletes a schedule; its jobs stay.
    pub async fn drop_schedule(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.administer(&AdminAction::DropSchedule(name.to_owned())).await
    }

    /// Pauses a schedule.
    pub async fn pause_schedule(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.administer(&AdminAction::PauseSchedule(name.to_owned())).await
    }

    /// Resumes a paused schedule. Ticks that it missed meanwhile do not fire.
    pub async fn resume_schedule(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.administer(&AdminAction::ResumeSchedule(name.to_owned())).await
    }

    /// Submits the job of a schedule now, regardless of its calendar.
    pub async fn trigger(&self, name: &str) -> Result<ControlOutcome, Error> {
        self.administer(&AdminAction::Trigger { name: name.to_owned(), id: None }).await
    }

    /// The same, once for all calls with the same id, which the caller has drawn: a repeat returns the same job. The id of the job is made of
    /// this one.
    pub async fn trigger_once(&self, name: &str, request: JobId) -> Result<ControlOutcome, Error> {
        let id = JobId::of_request(request, "trigger", name);
        let action = AdminAction::Trigger { name: name.to_owned(), id: Some(id) };
        Ok(match self.administer(&action).await? {
            ControlOutcome::Already(_) => ControlOutcome::Created(id),
            outcome => outcome,
        })
    }

    /// Makes a change that is never refused. Returns whether anything was changed.
    async fn set(&self, action: &AdminAction) -> Result<bool, Error> {
        Ok(self.administer(action).await? == ControlOutcome::Done)
    }

    /// Changes a queue, a rate limit, a serial key or a schedule, and returns what happened.
    pub async fn administer(&self, action: &AdminAction) -> Result<ControlOutcome, Error> {
        let outcome = self.operator.store().control().administer(None, action, &self.actor).await?;
        self.operator.poke();
        Ok(outcome)
    }

    /// Deletes jobs that ended in `state` longer than `age` ago. `on_progress` is called after every batch; it ends the prune by
    /// returning `false`.
    pub async fn prune(
        &self,
        state: State,
        age: Duration,
        kind: Option<&str>,
        mut on_progress: impl FnMut(&Pruned) -> bool,
    ) -> Result<Pruned, Error> {
        let now = self.operator.inspect().clock().await?;
        let kind = kind.map(str::to_owned);
        let mut prune = Prune { state, before: now - age, kind, after: None, limit: 1_000 };
        let mut total = Pruned::default();
        loop {
            let done = self.operator.store().prune(None, &prune).await?;
            total.jobs += done.jobs;
            total.kept += done.kept;
            total.after = done.after;
            if !on_progress(&total) || done.after.is_none() {
                break;
            }
            prune.after = done.after;
        }
        if total.jobs > 0 {
            let action = format!("prune {} jobs that were {state} for {age:?}", total.jobs);
            self.operator.store().control().record_audit(None, &action, "jobs", &self.actor).await?;
        }
        Ok(total)
    }
}

/// How many of some cancelled jobs have ended, or were requested to end.
fn ended(outcomes: &[ControlOutcome]) -> usize {
    let is_ended =
        |outcome: &&ControlOutcome| matches!(outcome, ControlOutcome::Done | ControlOutcome::CancelRequested);
    outcomes.iter().filter(is_ended).count()
}
