//! The children of branches, one by one: jobs of their own, and the items of blocks.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_model::{Failure, JobId, Reason, State};
use windlass_store::{
    Branch, BranchChild, BranchChildFilter, ChildBounds, ChildPosition, ChildStates, JobEnd,
};

use windlass_workflow::{
    Error,
    engine::{
        BLOCKS, SINGLES,
        block::{self, PackedItem},
    },
};

use crate::{Operator, budget::Budget};

/// A child of a branch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Item {
    /// The id of its job; in a block, the id of the job that it becomes if it is promoted.
    pub id: JobId,
    /// Its name: its parent's key or id, the branch, the spawn and the item.
    pub key: String,
    /// Its position in the branch.
    pub place: ChildPosition,
    /// Its kind.
    pub kind: String,
    /// Its kind's version.
    pub version: i32,
    /// Its state; in a block it is done, or has the state of the block.
    pub state: State,
    /// The block it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<JobId>,
    /// Its input, if this program can decode it.
    #[serde(default, deserialize_with = "if_there", skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Its output, if it is done and this program can decode it.
    #[serde(default, deserialize_with = "if_there", skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Its last error, or that of its block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// Reads a value that is left out if there is none, so that null is a value.
fn if_there<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// The children of a job's branches, read a page at a time; created by [`Operator::items`].
///
/// Branch by branch, in the order of the ids of their rows. A block that this program cannot decode (it lacks the codec) is one child
/// that represents all of its items, see [`windlass_store::ChildPosition::items`].
pub struct Items {
    operator: Operator,
    parent: String,
    branches: Vec<Branch>,
    /// Which children are wanted.
    states: ChildStates,
    at: ReadPosition,
    /// What was read and not returned, with its row.
    ready: VecDeque<(JobId, Expanded)>,
    /// What was returned last, or examined.
    last: Option<Position>,
    rows: usize,
}

/// Where reading continues.
#[derive(Clone, Copy, Default)]
struct ReadPosition {
    branch: usize,
    after: Option<JobId>,
    /// Items of this row with a smaller index were returned before.
    begun: Option<(JobId, usize)>,
    /// Whether all rows of the branch were read.
    is_read: bool,
}

/// The position of a child that was returned, or of a row of which all children were examined.
#[derive(Clone, Copy)]
struct Position {
    branch: usize,
    row: JobId,
    index: Option<usize>,
}

/// What is next among children.
pub(crate) enum NextItem {
    /// A child, with the bytes of its payloads.
    Item(Box<Item>, usize),
    /// There are no more.
    End,
    /// The budget is used up. [`Items::position`] says where to go on.
    Exhausted,
}

/// A child in a row.
pub(crate) struct Expanded {
    /// Its index in the row.
    pub(crate) index: usize,
    /// The bytes of its payloads.
    pub(crate) bytes: usize,
    pub(crate) item: Item,
}

impl Operator {
    /// The children of a job's branches, or of the one with this name, including those in blocks.
    pub async fn items(&self, job: JobId, branch: Option<&str>, states: ChildStates) -> Result<Items, Error> {
        let Some(parent) = self.inspect().job(job).await? else { return Err(Error::NoSuchJob(job)) };
        let branches = branches_named(self.inspect().branches(job).await?, job, branch)?;
        let parent = parent.summary.key.unwrap_or_else(|| job.to_string());
        Ok(Items::new(self.clone(), parent, branches, states))
    }
}

impl Items {
    fn new(operator: Operator, parent: String, branches: Vec<Branch>, states: ChildStates) -> Items {
        let (at, ready, last) = (ReadPosition::default(), VecDeque::new(), None);
        Items { operator, parent, branches, states, at, ready, last, rows: BLOCKS }
    }

    /// The parent's key or id.
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// Continues after a child that was returned before; `position` is what [`Items::position`] returned then.
    pub fn after(mut self, position: &str) -> Result<Items, Error> {
        let wrong = || {
            Error::Setup(format!(
                "{position:?} is not a position among children; use one that a previous page returned"
            ))
        };
        let (number, row, index) = parse_position(position).ok_or_else(wrong)?;
        let branch = self.branches.iter().position(|branch| branch.number.0 == number).ok_or_else(wrong)?;
        self.at = match index {
            Some(index) => {
                let begun = Some((row, index as usize + 1));
                ReadPosition { branch, after: before(row), begun, is_read: false }
            }
            None => ReadPosition { branch, after: Some(row), ..ReadPosition::default() },
        };
        Ok(self)
    }

    /// The position of the child that was returned last; `None` before the first.
    pub fn position(&self) -> Option<String> {
        let Position { branch, row, index } = self.last?;
        let index = index.map(|index| format!("/{index}")).unwrap_or_default();
        Some(format!("{}/{row}{index}", self.branches[branch].number))
    }

    /// The next child; `None` if there are no more.
    pub async fn next(&mut self) -> Result<Option<Item>, Error> {
        match self.next_within(&mut Budget::unlimited()).await? {
            NextItem::Item(item, _) => Ok(Some(*item)),
            NextItem::End | NextItem::Exhausted => Ok(None),
        }
    }

    /// The next child, as long as a budget lasts.
    pub(crate) async fn next_within(&mut self, budget: &mut Budget) -> Result<NextItem, Error> {
        loop {
            if let Some((row, Expanded { index, bytes, item })) = self.ready.pop_front() {
                self.last = Some(Position { branch: self.at.branch, row, index: Some(index) });
                return Ok(NextItem::Item(Box::new(item), bytes));
            }
            if std::mem::take(&mut self.at.is_read) {
                self.advance();
            }
            let Some(branch) = self.branches.get(self.at.branch) else { return Ok(NextItem::End) };
            if let (Some(row), true) = (self.at.after, budget.is_used_up()) {
                self.last = Some(Position { branch: self.at.branch, row, index: None });
                return Ok(NextItem::Exhausted);
            }
            // Of a block that has not ended, some items may have.
            let states = match self.states {
                ChildStates::Ended => ChildStates::All,
                states => states,
            };
            let (job, number, after) = (branch.job, branch.number, self.at.after);
            let filter = BranchChildFilter { job, branch: number, states, after, limit: self.rows };
            let bounds = ChildBounds { examine: budget.examine(), bytes: Budget::PAGE_BYTES };
            let page = self.operator.inspect().branch_children_page(&filter, bounds).await?;
            budget.charge(&page);
            self.rows = if page.children.iter().any(is_block) { BLOCKS } else { SINGLES };
            for child in page.children {
                let row = child.summary.id;
                let first = self.at.begun.take_if(|(begun, _)| *begun == row).map_or(0, |(_, index)| index);
                let items = expand(&self.operator, &self.parent, branch, child).into_iter();
                let wanted = items.filter(|found| found.index >= first && self.is_wanted(&found.item));
                self.ready.extend(wanted.map(|found| (row, found)).collect::<Vec<_>>());
            }
            (self.at.after, self.at.is_read) = (page.next, page.next.is_none());
        }
    }

    /// Continues with the next branch.
    fn advance(&mut self) {
        self.at = ReadPosition { branch: self.at.branch + 1, ..ReadPosition::default() };
        self.rows = BLOCKS;
    }

    fn is_wanted(&self, item: &Item) -> bool {
        match self.states {
            ChildStates::All => true,
            ChildStates::Live => !item.state.is_final(),
            ChildStates::Ended => item.state.is_final(),
            ChildStates::Unsuccessful => item.state.is_final() && item.state != State::Done,
        }
    }
}

/// The children in one row.
pub(super) fn expand(
    operator: &Operator,
    parent: &str,
    branch: &Branch,
    child: BranchChild,
) -> Vec<Expanded> {
    let whole = child.payload_bytes() as usize;
    let BranchChild { summary, branch_position: position, ended, input, data, .. } = child;
    let spawn = usize::try_from(position.spawn).ok().and_then(|spawn| branch.spawns.get(spawn));
    let (output, failure) = match ended {
        Some(JobEnd::Done(output)) => (Some(output), None),
        Some(JobEnd::Failed { failure, .. } | JobEnd::Cancelled(failure)) => (None, Some(failure)),
        Some(JobEnd::Gone) | None => (None, None),
    };
    let place = ChildPosition {
        branch: branch.number,
        name: branch.name.clone(),
        spawn: spawn.cloned().unwrap_or_default(),
        item: position.item,
        items: position.items,
    };
    let row = Item {
        id: summary.id,
        key: place.key(parent),
        place,
        kind: summary.kind,
        version: summary.version,
        state: summary.state,
        block: None,
        input: None,
        result: None,
        reason: summary.reason,
        failure,
    };
    if !block::is_block(summary.stage.as_deref()) {
        let read = |payload| serde_json::from_slice(&operator.decode(payload).ok()?).ok();
        let (input, result) = (read(&input), output.as_ref().and_then(read));
        return vec![Expanded { index: 0, bytes: whole, item: Item { input, result, ..row } }];
    }
    let block = Some(row.id);
    let kept = output.as_ref().or(data.as_ref());
    let Ok(packed) = block::packed_items(&input, kept, operator.codecs()) else {
        return vec![Expanded { index: 0, bytes: 0, item: Item { block, ..row } }];
    };
    let item = |PackedItem { index, key, input, result }: PackedItem| {
        let id = JobId::of_item(branch.job, branch.number, position.spawn, &key);
        let place = ChildPosition { item: key, items: 1, ..row.place.clone() };
        let key = place.key(parent);
        let bytes = input.get().len() + result.as_ref().map_or(0, |result| result.get().len());
        let input = serde_json::from_str(input.get()).ok();
        let item = Item { id, key, place, block, input, ..row.clone() };
        let item = match result {
            Some(result) => {
                let result = serde_json::from_str(result.get()).ok();
                Item { state: State::Done, result, reason: None, failure: None, ..item }
            }
            None => item,
        };
        Expanded { index, bytes, item }
    };
    packed.into_iter().map(item).collect()
}

pub(super) fn is_block(child: &BranchChild) -> bool {
    block::is_block(child.summary.stage.as_deref())
}

/// The id before another: a page after it begins with the other.
pub(super) fn before(id: JobId) -> Option<JobId> {
    let number = u128::from_be_bytes(*id.as_bytes());
    number.checked_sub(1).map(|before| JobId::from_bytes(before.to_be_bytes()))
}

/// The branches with a name, or all of them.
pub(crate) fn branches_named(
    branches: Vec<Branch>,
    job: JobId,
    name: Option<&str>,
) -> Result<Vec<Branch>, Error> {
    let Some(name) = name else { return Ok(branches) };
    let known: Vec<String> = branches.iter().map(|branch| branch.name.clone()).collect();
    let named: Vec<Branch> = branches.into_iter().filter(|branch| branch.name == name).collect();
    match named.is_empty() {
        true => Err(Error::NoSuchBranch { job, branch: name.to_owned(), known }),
        false => Ok(named),
    }
}

/// The parts of a position: the number of a branch, a row, and an item of the row, if not all were examined.
fn parse_position(text: &str) -> Option<(i64, JobId, Option<u32>)> {
    let mut parts = text.split('/');
    let (number, row) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let index = parts.next().map(str::parse).transpose().ok()?;
    parts.next().is_none().then_some((number, row, index))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_breaks_the_parser_of_positions(text in "(-?[0-9]{0,21}/){0,2}([0-9a-f-]{36}/)?[0-9]{0,21}|\\PC{0,40}") {
            if let Some((number, row, index)) = parse_position(&text) {
                let index = index.map(|index| format!("/{index}")).unwrap_or_default();
                let again = format!("{number}/{row}{index}");
                prop_assert_eq!(parse_position(&again), parse_position(&text), "{}", text);
                let _ = before(row);
            }
        }

        #[test]
        fn every_position_is_parsed(number in any::<i64>(), row in any::<(u32, u64)>(), index in any::<u32>()) {
            let row = JobId::from_parts(u64::from(row.0), 1, row.1);
            prop_assert_eq!(parse_position(&format!("{number}/{row}")), Some((number, row, None)));
            prop_assert_eq!(parse_position(&format!("{number}/{row}/{index}")), Some((number, row, Some(index))));
        }
    }
}
