//! A page of the children of a job's branches, those packed into blocks included.

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, State};
use windlass_store::ChildStates;
use windlass_workflow::Error;

use super::PAGE_BYTES;
use crate::{Item, Operator, budget::Budget, items::NextItem};

/// Which children to list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemFilter {
    /// Failed or cancelled children.
    Failed,
    /// Children that have not ended.
    Live,
    /// Done children.
    Done,
    /// All children.
    All,
}

impl ItemFilter {
    fn states(self) -> ChildStates {
        match self {
            ItemFilter::Failed => ChildStates::Unsuccessful,
            ItemFilter::Live => ChildStates::Live,
            ItemFilter::Done => ChildStates::Ended,
            ItemFilter::All => ChildStates::All,
        }
    }

    fn matches(self, item: &Item) -> bool {
        self != ItemFilter::Done || item.state == State::Done
    }
}

/// Children of a job's branches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ItemList {
    /// The job.
    pub job: JobId,
    /// Its key or id, with which the names of its children begin.
    pub parent: String,
    /// The children.
    pub children: Vec<Item>,
    /// The next page has the children after this position; `None` on the last page. A page may have few children or none and not be the
    /// last.
    pub next_after: Option<String>,
}

impl ItemList {
    /// Reads at most `limit` children of a job's branches, or of the one with this name, after a position that another page returned. A
    /// bounded number of children is examined, and they have at most [`PAGE_BYTES`] of payloads.
    pub async fn read(
        operator: &Operator,
        job: JobId,
        branch: Option<&str>,
        only: ItemFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ItemList, Error> {
        let mut items = operator.items(job, branch, only.states()).await?;
        if let Some(position) = after {
            items = items.after(position)?;
        }
        let (mut children, mut next_after) = (Vec::new(), None);
        let (mut budget, mut bytes) = (Budget::of_page(), 0);
        // One more than is wanted, to know whether there is another page.
        loop {
            let position = items.position();
            match items.next_within(&mut budget).await? {
                NextItem::Item(item, _) if !only.matches(&item) => {}
                NextItem::Item(item, size) => {
                    bytes += size as u64;
                    if children.len() == limit || (bytes > PAGE_BYTES && !children.is_empty()) {
                        next_after = position;
                        break;
                    }
                    children.push(*item);
                }
                NextItem::End => break,
                NextItem::Exhausted => {
                    next_after = items.position();
                    break;
                }
            }
        }
        Ok(ItemList { job, parent: items.parent().to_owned(), children, next_after })
    }
}
