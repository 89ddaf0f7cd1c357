//! Fork: starts a new job from part of another's journal.

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, JournalEntry, journal::CallKind};
use windlass_store::{Actor, ControlOutcome, Filter, Fork as StoreFork, JobPage};

use windlass_workflow::Error;

use crate::{Operator, Preview, Refusal};

/// How many jobs are read at a time.
const PAGE: usize = 100;

/// A fork to be run: choose where it starts, then call [`Fork::run`] or [`Fork::each`].
///
/// The new job has the input of the original and the entries of its journal before that position: those calls return what they
/// returned in the original, and the rest runs again. The original stays as it is.
#[must_use = "a fork does nothing until it is run"]
pub struct Fork {
    operator: Operator,
    actor: Actor,
    from: ForkPoint,
    key: Option<String>,
    request: Option<JobId>,
}

/// Where in a journal a fork starts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ForkPoint {
    /// At the end: every call of the original is taken over.
    #[default]
    End,
    /// At the beginning: none is.
    Beginning,
    /// At this entry.
    Entry(i32),
    /// At the first call of this name, and key if one is given.
    Call {
        /// The name.
        name: String,
        /// The key.
        key: Option<String>,
    },
}

/// The outcome of forking many jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[must_use = "jobs may have been refused"]
pub struct ForkProgress {
    /// The jobs that were forked, each with its new job.
    #[serde(rename = "forked")]
    pub made: Vec<Forked>,
    /// Those that were not, and why.
    pub refused: Vec<Refusal>,
    /// Whether it was interrupted before the last job.
    pub interrupted: bool,
    /// If it was interrupted: the rest are the matching jobs before this one. See [`Filter::before`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_before: Option<JobId>,
}

/// A job that was forked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Forked {
    /// The original.
    pub from: JobId,
    /// The new job.
    pub job: JobId,
}

impl Fork {
    pub(crate) fn new(operator: Operator, actor: Actor) -> Fork {
        Fork { operator, actor, from: ForkPoint::End, key: None, request: None }
    }

    /// Starts at a point.
    pub fn at(mut self, from: ForkPoint) -> Fork {
        self.from = from;
        self
    }

    /// Starts from the beginning: no call of the original is taken over.
    pub fn from_beginning(mut self) -> Fork {
        self.from = ForkPoint::Beginning;
        self
    }

    /// Starts at this entry of the journal, which is not taken over.
    pub fn before_entry(mut self, seq: i32) -> Fork {
        self.from = ForkPoint::Entry(seq);
        self
    }

    /// Starts at the call of this name, which runs again.
    pub fn before(mut self, name: impl Into<String>) -> Fork {
        self.from = ForkPoint::Call { name: name.into(), key: None };
        self
    }

    /// Starts at the call of this name and key, which runs again.
    pub fn before_key(mut self, name: impl Into<String>, key: impl ToString) -> Fork {
        self.from = ForkPoint::Call { name: name.into(), key: Some(key.to_string()) };
        self
    }

    /// The key of the new job; it has none by default.
    pub fn key(mut self, key: impl Into<String>) -> Fork {
        self.key = Some(key.into());
        self
    }

    /// Makes the fork repeatable: of one job, all runs with the same id make one fork. Its id is made of this one. Many forks leave jobs
    /// alone that were submitted after this id was drawn.
    pub fn request(mut self, id: JobId) -> Fork {
        self.request = Some(id);
        self
    }

    /// The id of the fork of a job, and whether there is such a job already.
    async fn new_id(&self, job: JobId) -> Result<(JobId, bool), Error> {
        match self.request {
            None => Ok((self.operator.new_id(), false)),
            Some(request) => {
                let id = JobId::of_request(request, "fork", &job.to_string());
                Ok((id, self.operator.inspect().job(id).await?.is_some()))
            }
        }
    }

    /// Forks one job. Returns the new one.
    pub async fn run(&self, job: JobId) -> Result<JobId, Error> {
        let (id, exists) = self.new_id(job).await?;
        if exists {
            return Ok(id);
        }
        match self.fork(job, id, self.key.clone()).await? {
            Ok(()) => Ok(id),
            Err(why) => Err(Error::Setup(format!("job {job} cannot be forked: {why}"))),
        }
    }

    /// Counts the matching jobs, and returns some of them. Changes nothing.
    pub async fn preview(&self, filter: &Filter) -> Result<Preview, Error> {
        Preview::read(&self.operator, &self.older(filter.clone()), |_| true).await
    }

    /// Forks every job that matches, newest first. Jobs that are submitted meanwhile are left alone. `on_progress` is called after every
    /// page; it ends the run by returning `false`.
    pub async fn each(
        &self,
        filter: Filter,
        mut on_progress: impl FnMut(&ForkProgress) -> bool,
    ) -> Result<ForkProgress, Error> {
        if self.key.is_some() {
            return Err(Error::Setup("many forks cannot have one key; leave it out".into()));
        }
        let mut filter = Filter { limit: PAGE, ..self.older(filter) };
        let mut progress = ForkProgress::default();
        loop {
            let JobPage { jobs, next } = self.operator.inspect().jobs(&filter).await?;
            for job in &jobs {
                let (id, exists) = self.new_id(job.id).await?;
                let outcome = if exists { Ok(()) } else { self.fork(job.id, id, None).await? };
                match outcome {
                    Ok(()) => progress.made.push(Forked { from: job.id, job: id }),
                    Err(why) => progress.refused.push(Refusal { job: job.id, why }),
                }
            }
            let proceed = on_progress(&progress);
            if next.is_none() {
                return Ok(progress);
            }
            if !proceed {
                (progress.interrupted, progress.next_before) = (true, next);
                return Ok(progress);
            }
            filter.before = next;
        }
    }

    /// The same filter without jobs that are submitted from now on.
    fn older(&self, filter: Filter) -> Filter {
        let newest = match self.request {
            None => self.operator.new_id(),
            // Below all forks of the request.
            Some(request) => JobId::lowest_at(request.made_at()),
        };
        Filter { before: Some(filter.before.map_or(newest, |before| before.min(newest))), ..filter }
    }

    async fn fork(&self, job: JobId, id: JobId, key: Option<String>) -> Result<Result<(), String>, Error> {
        let entries = self.operator.inspect().journal(job, None, usize::MAX).await?;
        let before = match self.position(&entries) {
            Ok(before) => before,
            Err(why) => return Ok(Err(why)),
        };
        let fork = StoreFork { from: job, id, before, key };
        let mut outcomes = self.operator.store().control().fork(None, &[fork], &self.actor).await?;
        self.operator.poke();
        Ok(match outcomes.pop() {
            Some(ControlOutcome::Created(_)) => Ok(()),
            Some(ControlOutcome::Refused(why)) => Err(why),
            _ => Err("it does not exist; it was pruned, or never submitted".into()),
        })
    }

    /// The position in a journal at which the fork starts.
    fn position(&self, entries: &[JournalEntry]) -> Result<i32, String> {
        let end = entries.last().map_or(0, |entry| entry.seq + 1);
        match &self.from {
            ForkPoint::Beginning => Ok(entries.first().map_or(0, |entry| entry.seq)),
            ForkPoint::End => Ok(end),
            ForkPoint::Entry(seq) if *seq == end || entries.iter().any(|entry| entry.seq == *seq) => Ok(*seq),
            ForkPoint::Entry(seq) => Err(format!("its journal has no entry {seq}; {}", known(entries))),
            ForkPoint::Call { name, key } => {
                let is_meant = |entry: &&JournalEntry| {
                    entry.name == *name
                        && (key.is_none() || entry.key == *key)
                        && !matches!(entry.call_kind, CallKind::Context | CallKind::Lifecycle)
                };
                match entries.iter().find(is_meant) {
                    Some(entry) => Ok(entry.seq),
                    None => {
                        let key = key.as_ref().map(|key| format!(" with key {key:?}")).unwrap_or_default();
                        Err(format!("its journal has no call {name:?}{key}; {}", known(entries)))
                    }
                }
            }
        }
    }
}

/// The calls at which a fork can start.
fn known(entries: &[JournalEntry]) -> String {
    let mut names: Vec<&str> = Vec::new();
    // Entries of undos have a space in their names.
    let is_call = |entry: &&JournalEntry| {
        !matches!(entry.call_kind, CallKind::Context | CallKind::Lifecycle | CallKind::Now)
            && !entry.name.contains(' ')
    };
    for entry in entries.iter().filter(is_call) {
        if !names.contains(&entry.name.as_str()) {
            names.push(&entry.name);
        }
    }
    match names.as_slice() {
        [] => "it is empty".to_owned(),
        names => format!("it has {}", names.iter().take(20).copied().collect::<Vec<_>>().join(", ")),
    }
}
