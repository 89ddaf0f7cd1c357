//! What came of the children of branches.

use std::{collections::VecDeque, marker::PhantomData, sync::Arc};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use windlass_model::{BranchNo, Failure, JobId, Merge, failure::class, merge::Stand};
use windlass_store::{Ended, Error, Leaf, Leaves, Only, Store};

use super::block;
use crate::{JobError, codec::Codecs, handle::output, machine::Bound, workflow::patiently};

/// How the children of merged branches ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Merged {
    job: JobId,
    branches: Vec<(String, BranchNo)>,
    /// How many were spawned.
    pub spawned: u64,
    /// How many ended well.
    pub done: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were cancelled.
    pub cancelled: u64,
}

impl Merged {
    pub(crate) fn new(
        job: JobId,
        branches: impl Iterator<Item = (String, BranchNo)>,
        stand: Stand,
    ) -> Merged {
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Merged {
            job,
            branches: branches.collect(),
            spawned: count(stand.spawned),
            done: count(stand.tally.done),
            failed: count(stand.tally.failed),
            cancelled: count(stand.tally.cancelled),
        }
    }

    /// That it took longer than it may.
    pub(crate) fn late(&self) -> String {
        let Merged { spawned, done, failed, cancelled, .. } = self;
        format!(
            "the merge of {} took longer than it may: of {spawned} children {done} are done, {failed} failed, {cancelled} \
             cancelled",
            self.names().join(", ")
        )
    }

    /// The names of the branches.
    pub fn names(&self) -> Vec<&str> {
        self.branches.iter().map(|(name, _)| name.as_str()).collect()
    }

    pub(crate) fn results<T: DeserializeOwned>(&self, bound: &Arc<Bound>) -> Results<T> {
        let pages = Pages::new(Arc::clone(bound), self.clone(), 0, None);
        Results { pages, ready: VecDeque::new(), result: PhantomData }
    }
}

/// How branches are to be merged, and were: what is kept of it with each of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Goal {
    #[serde(flatten)]
    pub(crate) merge: Merge,
    /// The branches that are merged together.
    pub(crate) of: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<Verdict>,
}

/// How a merge came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met(Merged),
    Failed(String),
    Timeout(String),
}

impl Goal {
    pub(crate) fn read(text: Option<&str>) -> Option<Goal> {
        serde_json::from_str(text?).ok()
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How a child of a branch ended.
#[derive(Debug)]
pub struct ChildOf<T> {
    /// The child.
    pub id: JobId,
    /// Which item of its spawn it was.
    pub item: String,
    /// Its output, or why it has none.
    pub result: Result<T, JobError>,
}

/// What the children of merged branches returned, read from the store a page at a time.
pub struct Results<T> {
    pages: Pages,
    ready: VecDeque<ChildOf<T>>,
    result: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Results<T> {
    /// How the next child ended, in the order of their ids; `None` if there are no more. Children that have not ended are
    /// left out.
    pub async fn next(&mut self) -> Result<Option<ChildOf<T>>, Failure> {
        loop {
            if let Some(child) = self.ready.pop_front() {
                return Ok(Some(child));
            }
            let Some(leaves) = self.pages.leaves().await? else { return Ok(None) };
            for leaf in leaves {
                self.ready.extend(children(leaf, &self.pages.bound.codecs)?);
            }
        }
    }
}

/// How the children ended that one row stands for.
fn children<T: DeserializeOwned>(leaf: Leaf, codecs: &Codecs) -> Result<Vec<ChildOf<T>>, Failure> {
    let Some(ended) = leaf.ended else { return Ok(Vec::new()) };
    if !block::is_block(leaf.summary.stage.as_deref()) {
        let id = leaf.summary.id;
        return Ok(vec![ChildOf { id, item: leaf.twig.item, result: output(id, ended, codecs) }]);
    }
    block::ended(leaf.summary.id, &leaf.input, leaf.data.as_ref(), ended, codecs)
}

/// The children of branches, page by page.
pub(crate) struct Pages {
    pub(crate) bound: Arc<Bound>,
    merged: Merged,
    branch: usize,
    after: Option<JobId>,
    limit: usize,
}

/// How many rows are read at once: of blocks, which are long, and of single children.
pub(super) const BLOCKS: usize = 16;
pub(super) const SINGLES: usize = 1_000;

impl Pages {
    pub(crate) fn new(bound: Arc<Bound>, merged: Merged, branch: usize, after: Option<JobId>) -> Pages {
        Pages { bound, merged, branch, after, limit: BLOCKS }
    }

    /// Where it stands: the branch, and the last child of it that was read.
    pub(crate) fn place(&self) -> (usize, Option<JobId>) {
        (self.branch, self.after)
    }

    /// The next children that have ended; `None` if there are no more.
    async fn leaves(&mut self) -> Result<Option<Vec<Leaf>>, Failure> {
        let store = Arc::clone(&self.bound.store);
        loop {
            let Some((_, branch)) = self.merged.branches.get(self.branch) else { return Ok(None) };
            let (job, after, limit) = (self.merged.job, self.after, self.limit);
            let of = Leaves { job, branch: *branch, only: Only::Ended, after, limit };
            let page = patiently!(store.inspect().leaves(&of))?;
            if let Some(last) = page.last() {
                self.after = Some(last.summary.id);
                let blocks = page.iter().any(|leaf| block::is_block(leaf.summary.stage.as_deref()));
                self.limit = if blocks { BLOCKS } else { SINGLES };
                return Ok(Some(page));
            }
            (self.branch, self.after, self.limit) = (self.branch + 1, None, BLOCKS);
        }
    }

    /// What the next children returned that ended well; `None` if there are no more.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, Failure> {
        let Some(leaves) = self.leaves().await? else { return Ok(None) };
        let mut results = Vec::new();
        for leaf in leaves {
            // What the items of a block returned is read without their inputs.
            if let (true, Some(Ended::Done(output))) =
                (block::is_block(leaf.summary.stage.as_deref()), &leaf.ended)
            {
                results.extend(block::results::<T>(leaf.summary.id, output, &self.bound.codecs)?);
                continue;
            }
            for child in children::<T>(leaf, &self.bound.codecs)? {
                match child.result {
                    Ok(result) => results.push(result),
                    Err(error @ (JobError::Undecodable { .. } | JobError::Unreadable { .. })) => {
                        return Err(Failure::stop(format!(
                            "what the child {} returned does not decode as {} ({error})",
                            child.id,
                            std::any::type_name::<T>()
                        ))
                        .class(class::UNDECODABLE));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(Some(results))
    }
}

/// The first children of branches that ended badly, for people to read.
pub(crate) async fn bad_children(
    store: &dyn Store,
    job: JobId,
    branches: &[BranchNo],
    most: usize,
) -> Result<String, Error> {
    let mut texts = Vec::new();
    for branch in branches {
        let of = Leaves { job, branch: *branch, only: Only::Bad, after: None, limit: most - texts.len() };
        for leaf in store.inspect().leaves(&of).await? {
            let why = match leaf.ended {
                Some(Ended::Failed { failure, .. }) => failure.message,
                Some(Ended::Cancelled(failure)) => format!("cancelled, {}", failure.message),
                _ => continue,
            };
            texts.push(format!("{}: {why}", leaf.summary.id));
        }
        if texts.len() >= most {
            break;
        }
    }
    Ok(if texts.is_empty() { String::new() } else { format!("among them {}", texts.join("; ")) })
}
