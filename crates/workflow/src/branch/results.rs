//! The results of the children of branches.

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
    /// How many succeeded.
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
        progress: BranchProgress,
    ) -> Merged {
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Merged {
            job,
            branches: branches.collect(),
            spawned: count(progress.spawned),
            done: count(progress.counts.done),
            failed: count(progress.counts.failed),
            cancelled: count(progress.counts.cancelled),
        }
    }

    /// The error text for a merge that took too long.
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

    /// The error for children that were counted and whose rows are gone.
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

    /// The results, read through `services`; without them, every read returns the error.
    pub(crate) fn results<T: DeserializeOwned>(
        &self,
        services: Result<&Arc<Services>, Failure>,
    ) -> Results<T> {
        let pages = |services| Pages::new(Arc::clone(services), self.clone(), ReadPosition::default());
        Results { pages: services.map(pages), ready: VecDeque::new(), result: PhantomData }
    }
}

/// How branches are merged, and the verdict; kept with each of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MergeRecord {
    #[serde(flatten)]
    pub(crate) merge: Merge,
    /// The branches that are merged together.
    pub(crate) of: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<MergeVerdict>,
}

/// The result of a merge.
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
    /// The item of its spawn.
    pub item: String,
    /// Its output, or why it has none.
    pub result: Result<T, JobError>,
}

/// The results of the children of merged branches, read from the store a page at a time.
pub struct Results<T> {
    /// The error of a context that has no store.
    pages: Result<Pages, Failure>,
    ready: VecDeque<ChildOf<T>>,
    result: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Results<T> {
    /// Returns how the next child ended, in the order of their ids; `None` after the last one. Children that have not ended are
    /// skipped. If fewer children are found than the merge counted as done, because their rows are gone, the last call returns
    /// an error of the class `missing`.
    pub async fn next(&mut self) -> Result<Option<ChildOf<T>>, Failure> {
        let pages = self.pages.as_mut().map_err(|failure| failure.clone())?;
        loop {
            if let Some(child) = self.ready.pop_front() {
                return Ok(Some(child));
            }
            let Some(rows) = pages.read_page().await? else { return Ok(None) };
            for row in rows {
                let children = children::<T>(row, &pages.services.codecs)?;
                pages.read.done += children.iter().filter(|child| is_done(child)).count() as u64;
                self.ready.extend(children);
            }
        }
    }
}

/// Whether a child succeeded, even if its output cannot be decoded.
fn is_done<T>(child: &ChildOf<T>) -> bool {
    matches!(child.result, Ok(_) | Err(JobError::Undecodable { .. } | JobError::Unreadable { .. }))
}

/// Returns how the children of one row ended: the job itself, or the items of a block.
fn children<T: DeserializeOwned>(row: BranchChild, codecs: &Codecs) -> Result<Vec<ChildOf<T>>, Failure> {
    let Some(ended) = row.ended else {
        // Done items of a block are counted before the block has ended.
        return match row.items_done {
            0 => Ok(Vec::new()),
            _ => block::done_so_far(row.summary.id, &row.input, row.data.as_ref(), codecs),
        };
    };
    if !block::is_block(row.summary.stage.as_deref()) {
        let id = row.summary.id;
        return Ok(vec![ChildOf {
            id,
            item: row.branch_position.item,
            result: decode_output(id, ended, codecs),
        }]);
    }
    block::ended(row.summary.id, &row.input, row.data.as_ref(), ended, codecs)
}

/// The children of branches, page by page.
pub(crate) struct Pages {
    pub(crate) services: Arc<Services>,
    merged: Merged,
    read: ReadPosition,
    limit: usize,
}

/// The position in the children of branches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReadPosition {
    /// The index of the branch that is being read.
    branch: usize,
    /// Its child that was read last.
    after: Option<JobId>,
    /// The number of children of all branches that were read and had succeeded.
    done: u64,
}

/// The rows in one read, if they are blocks, which are long.
pub const BLOCKS: usize = 16;
/// The rows in one read, if they are single children.
pub const SINGLES: usize = 1_000;

impl Pages {
    pub(crate) fn new(services: Arc<Services>, merged: Merged, read: ReadPosition) -> Pages {
        Pages { services, merged, read, limit: BLOCKS }
    }

    /// Returns the position.
    pub(crate) fn read(&self) -> ReadPosition {
        self.read
    }

    /// Reads the next children that have ended, and blocks with ended items; `None` after the last one. Fails if fewer are
    /// found than were counted as done when the branches were merged.
    async fn read_page(&mut self) -> Result<Option<Vec<BranchChild>>, Failure> {
        let store = Arc::clone(&self.services.store);
        let Merged { job, spawned, done, failed, cancelled, .. } = self.merged;
        let states = if done + failed + cancelled < spawned { ChildStates::All } else { ChildStates::Ended };
        loop {
            let Some((_, branch)) = self.merged.branches.get(self.read.branch) else {
                return if self.read.done < done {
                    Err(self.merged.missing_error(self.read.done))
                } else {
                    Ok(None)
                };
            };
            let (after, limit) = (self.read.after, self.limit);
            let filter = BranchChildFilter { job, branch: *branch, states, after, limit };
            let page = retry_unavailable!(store.inspect().branch_children(&filter))?;
            if let Some(last) = page.last() {
                self.read.after = Some(last.summary.id);
                let blocks = page.iter().any(|row| block::is_block(row.summary.stage.as_deref()));
                self.limit = if blocks { BLOCKS } else { SINGLES };
                return Ok(Some(page));
            }
            self.read = ReadPosition { branch: self.read.branch + 1, after: None, ..self.read };
            self.limit = BLOCKS;
        }
    }

    /// Returns the outputs of the next children that succeeded; `None` after the last one.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, Failure> {
        let Some(rows) = self.read_page().await? else { return Ok(None) };
        let mut results = Vec::new();
        for row in rows {
            // The results of a done block are read without the inputs of its items.
            if let (true, Some(JobEnd::Done(output))) =
                (block::is_block(row.summary.stage.as_deref()), &row.ended)
            {
                let block = block::results::<T>(row.summary.id, output, &self.services.codecs)?;
                self.read.done += block.len() as u64;
                results.extend(block);
                continue;
            }
            for child in children::<T>(row, &self.services.codecs)? {
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

/// Returns an error text if a merge waits for children whose rows are gone: it would wait for ever. Counts the rows only if the
/// poll of a branch has found some missing, and counts again because rows may have been restored since.
pub(crate) async fn missing_children(
    store: &dyn Store,
    branches: &[&Branch],
) -> Result<Option<String>, Error> {
    for branch in branches.iter().filter(|branch| branch.poll.missing > 0) {
        let (mut rows, mut after) = (0, None);
        loop {
            let filter = BranchChildFilter {
                job: branch.job,
                branch: branch.number,
                states: ChildStates::All,
                after,
                limit: SINGLES,
            };
            let page = store.inspect().branch_children(&filter).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.summary.id);
            rows += page.iter().map(|row| i64::from(row.branch_position.items)).sum::<i64>();
        }
        let (missing, spawned) = (branch.spawned - rows, branch.spawned);
        if missing > 0 {
            return Ok(Some(format!(
                "of the {spawned} children of {} {missing} are not in the store any more: they were deleted by hand, so the merge \
                 would wait for ever. Put their rows back from a backup and retry the job; or fork it from before the branch, which \
                 spawns them again: `windlass fork {} --before {}`",
                branch.name, branch.job, branch.name
            )));
        }
    }
    Ok(None)
}

/// Lists the first children of branches that failed or were cancelled, for people to read.
pub(crate) async fn unsuccessful_children(
    store: &dyn Store,
    job: JobId,
    branches: &[BranchNo],
    limit: usize,
) -> Result<String, Error> {
    let mut texts = Vec::new();
    for branch in branches {
        let filter = BranchChildFilter {
            job,
            branch: *branch,
            states: ChildStates::Unsuccessful,
            after: None,
            limit: limit - texts.len(),
        };
        for row in store.inspect().branch_children(&filter).await? {
            let why = match row.ended {
                Some(JobEnd::Failed { failure, .. }) => failure.message,
                Some(JobEnd::Cancelled(failure)) => format!("cancelled, {}", failure.message),
                _ => continue,
            };
            texts.push(format!("{}: {why}", row.summary.id));
        }
        if texts.len() >= limit {
            break;
        }
    }
    Ok(if texts.is_empty() { String::new() } else { format!("among them {}", texts.join("; ")) })
}
