//! Finds the job that a person means by a name: an id, `kind/key`, a key, or the name of a child in a branch.

use windlass_model::JobId;
use windlass_store::{Filter, Summary};

use windlass_workflow::Error;

use crate::{Item, Operator};

/// How many jobs with one name an error lists.
const LISTED: usize = 5;
/// At how many slashes a name is read as `kind/key`: kinds and keys may contain some, and each costs a read.
const SLASHES: usize = 8;

/// What a name means.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// A job. If it was named by its id, it need not exist.
    Job(JobId),
    /// A child of a branch that is packed into a block with others: it is not a job of its own.
    Packed(Box<Item>),
}

impl Operator {
    /// Finds the job with this name: its id, `kind/key`, its key if no other kind has a job with that key, or
    /// `parent$branch$spawn_item` if it is a child in a branch, where the parent is named in one of the other ways.
    ///
    /// [`Error::NoSuchName`], [`Error::AmbiguousName`] and [`Error::NoSuchChild`] say what to write instead.
    pub async fn find(&self, name: &str) -> Result<Found, Error> {
        if let Ok(id) = name.parse() {
            return Ok(Found::Job(id));
        }
        match self.named(name, LISTED + 1).await?.as_slice() {
            [job] => return Ok(Found::Job(job.id)),
            [] if name.contains('$') => {}
            [] => return Err(Error::NoSuchName(name.to_owned())),
            several => return Err(ambiguous(name, several)),
        }
        let item = self.item(name).await?;
        Ok(match item.block {
            None => Found::Job(item.id),
            Some(_) => Found::Packed(Box::new(item)),
        })
    }

    /// The jobs of which this text is the key, or `kind/key`; at most about `limit`.
    pub(crate) async fn named(&self, name: &str, limit: usize) -> Result<Vec<Summary>, Error> {
        let by_key = Filter { key: Some(name.to_owned()), limit, ..Filter::default() };
        let mut jobs = self.inspect().jobs(&by_key).await?.jobs;
        for (at, _) in name.match_indices('/').take(SLASHES) {
            let (kind, key) = (name[..at].to_owned(), name[at + 1..].to_owned());
            let of_kind = Filter { kind: Some(kind), key: Some(key), limit: 1, ..Filter::default() };
            jobs.extend(self.inspect().jobs(&of_kind).await?.jobs);
        }
        Ok(jobs)
    }
}

fn ambiguous(name: &str, jobs: &[Summary]) -> Error {
    let shown =
        |job: &Summary| format!("{}/{} ({})", job.kind, job.key.as_deref().unwrap_or_default(), job.id);
    let mut listed: Vec<String> = jobs.iter().take(LISTED).map(shown).collect();
    if jobs.len() > LISTED {
        listed.push("…".to_owned());
    }
    Error::AmbiguousName { name: name.to_owned(), jobs: listed }
}
