//! Making a job that goes on from somewhere in the journal of another.

use windlass_model::{JobId, JournalEntry, journal::CallKind};
use windlass_store::{Actor, ControlOutcome, Filter, Fork as StoreFork};

use windlass_workflow::Error;

use crate::Operator;

/// How many jobs are looked at in one read.
const PAGE: usize = 100;

/// A fork that is being described: say from where, then [`Fork::run`] or [`Fork::each`].
///
/// The new job has the input of the other and what its journal says before that place: those calls return what they
/// returned there, and the rest is run anew. The other job stays as it is.
#[must_use = "a fork does nothing until it is run"]
pub struct Fork {
    operator: Operator,
    by: Actor,
    from: ForkPoint,
    key: Option<String>,
}

enum ForkPoint {
    Beginning,
    Entry(i32),
    Call { name: String, key: Option<String> },
    End,
}

/// What came of forking many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForkProgress {
    /// The jobs that were forked, each with the new one.
    pub made: Vec<(JobId, JobId)>,
    /// Those that were not, and why.
    pub refused: Vec<(JobId, String)>,
}

impl Fork {
    pub(crate) fn new(operator: Operator, by: Actor) -> Fork {
        Fork { operator, by, from: ForkPoint::End, key: None }
    }

    /// From the beginning: nothing of what the other did is taken over.
    pub fn from_beginning(mut self) -> Fork {
        self.from = ForkPoint::Beginning;
        self
    }

    /// From the entry at this place of its journal, which is not taken over.
    pub fn before_entry(mut self, seq: i32) -> Fork {
        self.from = ForkPoint::Entry(seq);
        self
    }

    /// From the call of this name, which is run anew.
    pub fn before(mut self, name: impl Into<String>) -> Fork {
        self.from = ForkPoint::Call { name: name.into(), key: None };
        self
    }

    /// From the call of this name and key, which is run anew.
    pub fn before_key(mut self, name: impl Into<String>, key: impl ToString) -> Fork {
        self.from = ForkPoint::Call { name: name.into(), key: Some(key.to_string()) };
        self
    }

    /// With this key. Without, the new job has none.
    pub fn key(mut self, key: impl Into<String>) -> Fork {
        self.key = Some(key.into());
        self
    }

    /// Forks one job; answers the new one.
    pub async fn run(&self, job: JobId) -> Result<JobId, Error> {
        let id = self.operator.new_id();
        match self.one(job, id, self.key.clone()).await? {
            Ok(()) => Ok(id),
            Err(why) => Err(Error::Setup(format!("job {job} cannot be forked: {why}"))),
        }
    }

    /// Forks every job that matches, newest first, and says of each what came of it. Jobs that are submitted meanwhile are
    /// left alone.
    pub async fn each(
        &self,
        filter: Filter,
        mut seen: impl FnMut(&ForkProgress) -> bool,
    ) -> Result<ForkProgress, Error> {
        if self.key.is_some() {
            return Err(Error::Setup("many forks cannot have one key; leave it out".into()));
        }
        let newest = self.operator.new_id();
        let before = Some(filter.before.map_or(newest, |before| before.min(newest)));
        let mut filter = Filter { before, limit: PAGE, ..filter };
        let mut forked = ForkProgress::default();
        loop {
            let page = self.operator.inspect().jobs(&filter).await?;
            filter.before = page.last().map(|job| job.id);
            for job in &page {
                let id = self.operator.new_id();
                match self.one(job.id, id, None).await? {
                    Ok(()) => forked.made.push((job.id, id)),
                    Err(why) => forked.refused.push((job.id, why)),
                }
            }
            if !seen(&forked) || page.len() < PAGE {
                return Ok(forked);
            }
        }
    }

    async fn one(&self, job: JobId, id: JobId, key: Option<String>) -> Result<Result<(), String>, Error> {
        let entries = self.operator.inspect().journal(job, None, usize::MAX).await?;
        let before = match self.place(&entries) {
            Ok(before) => before,
            Err(why) => return Ok(Err(why)),
        };
        let fork = StoreFork { from: job, id, before, key };
        let mut dids = self.operator.store().control().fork(None, &[fork], &self.by).await?;
        self.operator.poke();
        Ok(match dids.pop() {
            Some(ControlOutcome::Created(_)) => Ok(()),
            Some(ControlOutcome::Refused(why)) => Err(why),
            _ => Err("it is not there; it was pruned, or never submitted".into()),
        })
    }

    /// The place in a journal from which the fork goes on.
    fn place(&self, entries: &[JournalEntry]) -> Result<i32, String> {
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
                        && !matches!(entry.op, CallKind::Context | CallKind::Lifecycle)
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

/// What there is to fork from.
fn known(entries: &[JournalEntry]) -> String {
    let mut names: Vec<&str> = Vec::new();
    // What undos left has a blank in its name.
    let is_call = |entry: &&JournalEntry| {
        !matches!(entry.op, CallKind::Context | CallKind::Lifecycle | CallKind::Now)
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
