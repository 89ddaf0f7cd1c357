//! What came of the children of branches.

use std::{collections::VecDeque, marker::PhantomData, sync::Arc};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use windlass_model::{BranchNo, Failure, JobId, Merge, failure::class, merge::BranchProgress};
use windlass_store::{Branch, BranchChild, BranchChildFilter, ChildStates, Error, JobEnd, Store};

use super::block;
use crate::{
    JobError, codec::Codecs, machine::Services, output::decode_output, store_retry::retry_unavailable,
};

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
        stand: BranchProgress,
    ) -> Merged {
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Merged {
            job,
            branches: branches.collect(),
            spawned: count(stand.spawned),
            done: count(stand.counts.done),
            failed: count(stand.counts.failed),
            cancelled: count(stand.counts.cancelled),
        }
    }

    /// That it took longer than it may.
    pub(crate) fn timeout_text(&self) -> String {
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

    /// That fewer children were read than had been counted.
    fn missing_error(&self, read: u64) -> Failure {
        let (Merged { done, job, .. }, names) = (self, self.names());
        let text = format!(
            "of the {done} children of {} that were counted as done {read} could be read, so {} not in the store any more: they \
             were deleted by hand, or pruned with the job that this one was forked from. What they returned is lost. To run all \
             of them again, fork the job from before its branch: `windlass fork {job} --before {}`",
            names.join(", "),
            match done - read {
                1 => "1 is".to_owned(),
                missing => format!("{missing} are"),
            },
            names.first().copied().unwrap_or_default(),
        );
        Failure::stop(text).class(class::MISSING)
    }

    pub(crate) fn results<T: DeserializeOwned>(&self, bound: &Arc<Services>) -> Results<T> {
        let pages = Pages::new(Arc::clone(bound), self.clone(), ReadPosition::default());
        Results { pages, ready: VecDeque::new(), result: PhantomData }
    }
}

/// How branches are to be merged, and were: what is kept of it with each of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MergeRecord {
    #[serde(flatten)]
    pub(crate) merge: Merge,
    /// The branches that are merged together.
    pub(crate) of: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<MergeVerdict>,
}

/// How a merge came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MergeVerdict {
    Met(Merged),
    Failed(String),
    Timeout(String),
}

impl MergeRecord {
    pub(crate) fn read(text: Option<&str>) -> Option<MergeRecord> {
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
    /// left out. If fewer were done than the merge had counted, because their rows are gone, the last call is an error of the
    /// class `missing`.
    pub async fn next(&mut self) -> Result<Option<ChildOf<T>>, Failure> {
        loop {
            if let Some(child) = self.ready.pop_front() {
                return Ok(Some(child));
            }
            let Some(leaves) = self.pages.read_page().await? else { return Ok(None) };
            for leaf in leaves {
                let children = children::<T>(leaf, &self.pages.bound.codecs)?;
                self.pages.read.done += children.iter().filter(|child| is_done(child)).count() as u64;
                self.ready.extend(children);
            }
        }
    }
}

/// Whether a child has ended well, whether or not what it returned can be decoded.
fn is_done<T>(child: &ChildOf<T>) -> bool {
    matches!(child.result, Ok(_) | Err(JobError::Undecodable { .. } | JobError::Unreadable { .. }))
}

/// How the children ended that one row stands for.
fn children<T: DeserializeOwned>(leaf: BranchChild, codecs: &Codecs) -> Result<Vec<ChildOf<T>>, Failure> {
    let Some(ended) = leaf.ended else {
        // Items of a block are counted before all of them have ended.
        return match leaf.items_done {
            0 => Ok(Vec::new()),
            _ => block::done_so_far(leaf.summary.id, &leaf.input, leaf.data.as_ref(), codecs),
        };
    };
    if !block::is_block(leaf.summary.stage.as_deref()) {
        let id = leaf.summary.id;
        return Ok(vec![ChildOf {
            id,
            item: leaf.branch_position.item,
            result: decode_output(id, ended, codecs),
        }]);
    }
    block::ended(leaf.summary.id, &leaf.input, leaf.data.as_ref(), ended, codecs)
}

/// The children of branches, page by page.
pub(crate) struct Pages {
    pub(crate) bound: Arc<Services>,
    merged: Merged,
    read: ReadPosition,
    limit: usize,
}

/// How far the children of branches were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReadPosition {
    /// Which branch is under way.
    branch: usize,
    /// The child of it that was read last.
    after: Option<JobId>,
    /// How many children were read, of all branches, that had ended well.
    done: u64,
}

/// How many rows are read at once: of blocks, which are long, and of single children.
pub const BLOCKS: usize = 16;
/// How many rows of single children are read at once.
pub const SINGLES: usize = 1_000;

impl Pages {
    pub(crate) fn new(bound: Arc<Services>, merged: Merged, read: ReadPosition) -> Pages {
        Pages { bound, merged, read, limit: BLOCKS }
    }

    /// How far it is.
    pub(crate) fn read(&self) -> ReadPosition {
        self.read
    }

    /// The next children that have ended, and blocks of which items have; `None` if there are no more. Whoever was counted as
    /// done when the branches were merged is among them, or that is an error.
    async fn read_page(&mut self) -> Result<Option<Vec<BranchChild>>, Failure> {
        let store = Arc::clone(&self.bound.store);
        let Merged { job, spawned, done, failed, cancelled, .. } = self.merged;
        let only = if done + failed + cancelled < spawned { ChildStates::All } else { ChildStates::Ended };
        loop {
            let Some((_, branch)) = self.merged.branches.get(self.read.branch) else {
                return if self.read.done < done {
                    Err(self.merged.missing_error(self.read.done))
                } else {
                    Ok(None)
                };
            };
            let (after, limit) = (self.read.after, self.limit);
            let of = BranchChildFilter { job, branch: *branch, only, after, limit };
            let page = retry_unavailable!(store.inspect().branch_children(&of))?;
            if let Some(last) = page.last() {
                self.read.after = Some(last.summary.id);
                let blocks = page.iter().any(|leaf| block::is_block(leaf.summary.stage.as_deref()));
                self.limit = if blocks { BLOCKS } else { SINGLES };
                return Ok(Some(page));
            }
            self.read = ReadPosition { branch: self.read.branch + 1, after: None, ..self.read };
            self.limit = BLOCKS;
        }
    }

    /// What the next children returned that ended well; `None` if there are no more.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, Failure> {
        let Some(leaves) = self.read_page().await? else { return Ok(None) };
        let mut results = Vec::new();
        for leaf in leaves {
            // What the items of a block returned is read without their inputs.
            if let (true, Some(JobEnd::Done(output))) =
                (block::is_block(leaf.summary.stage.as_deref()), &leaf.ended)
            {
                let block = block::results::<T>(leaf.summary.id, output, &self.bound.codecs)?;
                self.read.done += block.len() as u64;
                results.extend(block);
                continue;
            }
            for child in children::<T>(leaf, &self.bound.codecs)? {
                self.read.done += u64::from(is_done(&child));
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

/// Says that a merge waits for children that are not in the store any more, if it does: then it waits in vain. Only if a count of
/// the children has found that are they counted again, since rows may have been put back meanwhile.
pub(crate) async fn missing_children(
    store: &dyn Store,
    branches: &[&Branch],
) -> Result<Option<String>, Error> {
    for branch in branches.iter().filter(|branch| branch.poll.missing > 0) {
        let (mut rows, mut after) = (0, None);
        loop {
            let of = BranchChildFilter {
                job: branch.job,
                branch: branch.number,
                only: ChildStates::All,
                after,
                limit: SINGLES,
            };
            let page = store.inspect().branch_children(&of).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.summary.id);
            rows += page.iter().map(|leaf| i64::from(leaf.branch_position.items)).sum::<i64>();
        }
        let (missing, spawned) = (branch.spawned - rows, branch.spawned);
        if missing > 0 {
            return Ok(Some(format!(
                "of the {spawned} children of {} {missing} are not in the store any more: they were deleted by hand, so the merge \
                 would wait for ever. Put their rows back from a backup and retry the job; or fork it from before the branch, which \
                 spawns them anew: `windlass fork {} --before {}`",
                branch.name, branch.job, branch.name
            )));
        }
    }
    Ok(None)
}

/// The first children of branches that ended badly, for people to read.
pub(crate) async fn unsuccessful_children(
    store: &dyn Store,
    job: JobId,
    branches: &[BranchNo],
    most: usize,
) -> Result<String, Error> {
    let mut texts = Vec::new();
    for branch in branches {
        let of = BranchChildFilter {
            job,
            branch: *branch,
            only: ChildStates::Bad,
            after: None,
            limit: most - texts.len(),
        };
        for leaf in store.inspect().branch_children(&of).await? {
            let why = match leaf.ended {
                Some(JobEnd::Failed { failure, .. }) => failure.message,
                Some(JobEnd::Cancelled(failure)) => format!("cancelled, {}", failure.message),
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
