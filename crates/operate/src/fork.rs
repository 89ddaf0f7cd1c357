//! Fork: starts a new job from part of another's journal.

use windlass_model::{JobId, JournalEntry, journal::CallKind};
use windlass_store::{Actor, ControlOutcome, Filter, Fork as StoreFork};

use windlass_workflow::Error;

use crate::Operator;

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
}

enum ForkPoint {
    Beginning,
    Entry(i32),
    Call { name: String, key: Option<String> },
    End,
}

/// The outcome of forking many jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "jobs may have been refused"]
pub struct ForkProgress {
    /// The jobs that were forked, each with its new job.
    pub made: Vec<(JobId, JobId)>,
    /// Those that were not, and why.
    pub refused: Vec<(JobId, String)>,
}

impl Fork {
    pub(crate) fn new(operator: Operator, actor: Actor) -> Fork {
        Fork { operator, actor, from: ForkPoint::End, key: None }
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

    /// Forks one job. Returns the new one.
    pub async fn run(&self, job: JobId) -> Result<JobId, Error> {
        let id = self.operator.new_id();
        match self.fork(job, id, self.key.clone()).await? {
            Ok(()) => Ok(id),
            Err(why) => Err(Error::Setup(format!("job {job} cannot be forked: {why}"))),
        }
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
        let newest = self.operator.new_id();
        let before = Some(filter.before.map_or(newest, |before| before.min(newest)));
        let mut filter = Filter { before, limit: PAGE, ..filter };
        let mut progress = ForkProgress::default();
        loop {
            let page = self.operator.inspect().jobs(&filter).await?;
            filter.before = page.last().map(|job| job.id);
            for job in &page {
                let id = self.operator.new_id();
                match self.fork(job.id, id, None).await? {
                    Ok(()) => progress.made.push((job.id, id)),
                    Err(why) => progress.refused.push((job.id, why)),
                }
            }
            if !on_progress(&progress) || page.len() < PAGE {
                return Ok(progress);
            }
        }
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
