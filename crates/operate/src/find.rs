//! Finds a child of a branch by its name: `parent$branch$spawn_item`.
//!
//! The store finds a job by its item. An item of a block is in the payload of the block: that of a source without keys is found by its number,
//! which is not much larger than that of the block's first item; for any other, a bounded part of the branch is read.

use windlass_model::{JobId, branch::MAX_BLOCK_ITEMS};
use windlass_store::{
    Branch, BranchChild, BranchChildFilter, BranchItems, ChildBounds, ChildStates, ItemChild, JobEnd,
};

use windlass_workflow::{
    Error,
    engine::{BLOCKS, SINGLES, block},
};

use crate::{
    Operator,
    budget::Budget,
    items::{Item, before, expand, is_block},
};

/// How many jobs of different kinds with one key are searched for a child.
const NAMESAKES: usize = 10;
/// How many blocks are read that may have an item: those that begin with the nearest numbers before it. A block that was split has parts
/// among its own items.
const CANDIDATES: usize = 32;

/// A child, if it is found.
enum Search {
    Found(Box<Item>),
    /// There is none.
    Nothing,
    /// The branch has more children than are read for this: as many were.
    Unread(usize),
}

impl Operator {
    /// Finds the child of a branch with this name: `parent$branch$spawn_item`, where the parent is a job's key, `kind/key` or id.
    pub async fn item(&self, key: &str) -> Result<Item, Error> {
        let mut why = NotFound::Format;
        for (at, _) in key.match_indices('$') {
            let Some((branch, child)) = key[at + 1..].split_once('$') else { continue };
            for (parent, name) in self.parents(&key[..at]).await? {
                let branches = self.inspect().branches(parent).await?;
                let known: Vec<String> = branches.iter().map(|branch| branch.name.clone()).collect();
                why.set_if_nearer(NotFound::Branch(parent, known));
                // A retried job may have opened several branches of one name; the newest comes first.
                for found in branches.into_iter().filter(|found| found.name == branch).rev() {
                    why.set_if_nearer(NotFound::Spawn(found.spawns.clone()));
                    for (spawn, item) in spawned(&found.spawns, child) {
                        let (named, wanted) = (found.spawns[spawn].clone(), item.to_owned());
                        match self.child(&name, &found, spawn as i16, item).await? {
                            Search::Found(item) => return Ok(*item),
                            Search::Nothing => why.set_if_nearer(NotFound::Item(named, wanted)),
                            Search::Unread(read) => {
                                why.set_if_nearer(NotFound::Unread(named, wanted, read, parent));
                            }
                        }
                    }
                }
            }
            why.set_if_nearer(NotFound::Parent(key[..at].to_owned()));
        }
        Err(Error::NoSuchChild { key: key.to_owned(), why: why.to_text() })
    }

    /// The jobs with this id, key or `kind/key`, and the names that their children begin with.
    async fn parents(&self, text: &str) -> Result<Vec<(JobId, String)>, Error> {
        if let Ok(id) = text.parse::<JobId>() {
            let job = self.inspect().job(id).await?;
            return Ok(job
                .map(|job| (id, job.summary.key.unwrap_or_else(|| id.to_string())))
                .into_iter()
                .collect());
        }
        let jobs = self.named(text, NAMESAKES).await?;
        Ok(jobs.into_iter().map(|job| (job.id, job.key.unwrap_or_else(|| text.to_owned()))).collect())
    }

    /// Finds one child of a branch.
    async fn child(&self, parent: &str, branch: &Branch, spawn: i16, item: &str) -> Result<Search, Error> {
        let of = async |items: &[String]| {
            let (job, branch) = (branch.job, branch.number);
            self.inspect().branch_items(BranchItems { job, branch, spawn, items }).await
        };
        let mut same = of(&[item.to_owned()]).await?;
        // An item that became a job, before the block that began with it.
        same.sort_by_key(|child| (is_block_stage(child), child.id));
        for child in &same {
            if let Some(found) = self.item_in(parent, branch, child.id, item).await? {
                return Ok(Search::Found(Box::new(found)));
            }
        }
        if !self.is_packed(branch).await? {
            return Ok(Search::Nothing);
        }
        let earlier = earlier_numbers(item);
        if !earlier.is_empty() {
            let found = of(&earlier).await?;
            // In the order of the items: the nearest first.
            for block in found.iter().filter(|child| is_block_stage(child)).take(CANDIDATES) {
                if let Some(found) = self.item_in(parent, branch, block.id, item).await? {
                    return Ok(Search::Found(Box::new(found)));
                }
            }
        }
        self.read_until(parent, branch, spawn, item).await
    }

    /// An item of one row.
    async fn item_in(
        &self,
        parent: &str,
        branch: &Branch,
        row: JobId,
        item: &str,
    ) -> Result<Option<Item>, Error> {
        let Some(child) = self.row_after(branch, before(row)).await? else { return Ok(None) };
        if child.summary.id != row || !self.contains(&child, item) {
            return Ok(None);
        }
        let children = expand(self, parent, branch, child).into_iter().map(|found| found.item);
        Ok(children.into_iter().find(|child| child.place.item == item))
    }

    /// The first row of a branch after an id.
    async fn row_after(&self, branch: &Branch, after: Option<JobId>) -> Result<Option<BranchChild>, Error> {
        let (job, number) = (branch.job, branch.number);
        let states = ChildStates::All;
        let one = BranchChildFilter { job, branch: number, states, after, limit: 1 };
        Ok(self.inspect().branch_children(&one).await?.pop())
    }

    /// Whether the items of a branch are packed into blocks. Then all rows are blocks but those of items that became jobs, whose ids have the
    /// time of the parent's and come first.
    async fn is_packed(&self, branch: &Branch) -> Result<bool, Error> {
        let mut last_of_parent = *branch.job.as_bytes();
        last_of_parent[6..].fill(0xff);
        let later = self.row_after(branch, Some(JobId::from_bytes(last_of_parent))).await?;
        match later {
            Some(row) => Ok(is_block(&row)),
            None => Ok(self.row_after(branch, None).await?.is_some()),
        }
    }

    /// Reads a branch until an item is found, as far as one page of a list is read.
    async fn read_until(
        &self,
        parent: &str,
        branch: &Branch,
        spawn: i16,
        item: &str,
    ) -> Result<Search, Error> {
        let (mut budget, mut read) = (Budget::of_page(), 0);
        let (job, number) = (branch.job, branch.number);
        let states = ChildStates::All;
        let mut filter = BranchChildFilter { job, branch: number, states, after: None, limit: BLOCKS };
        loop {
            let bounds = ChildBounds { examine: budget.examine(), bytes: Budget::PAGE_BYTES };
            let page = self.inspect().branch_children_page(&filter, bounds).await?;
            budget.charge(&page);
            read += page.children.len();
            filter.limit = if page.children.iter().any(is_block) { BLOCKS } else { SINGLES };
            let found = page
                .children
                .into_iter()
                .find(|child| child.branch_position.spawn == spawn && self.contains(child, item));
            if let Some(found) = found {
                let mut children = expand(self, parent, branch, found).into_iter().map(|found| found.item);
                let child = children.find(|child| child.place.item == item);
                return Ok(child.map_or(Search::Nothing, |child| Search::Found(Box::new(child))));
            }
            match page.next {
                None => return Ok(Search::Nothing),
                Some(_) if budget.is_used_up() => return Ok(Search::Unread(read)),
                next => filter.after = next,
            }
        }
    }

    /// Whether a row is or contains an item, as far as this program can decode it.
    fn contains(&self, child: &BranchChild, item: &str) -> bool {
        if !is_block(child) {
            return child.branch_position.item == item;
        }
        let kept = match &child.ended {
            Some(JobEnd::Done(output)) => Some(output),
            _ => child.data.as_ref(),
        };
        let packed = block::packed_items(&child.input, kept, self.codecs());
        packed.is_ok_and(|packed| packed.iter().any(|packed| packed.key == item))
    }
}

fn is_block_stage(child: &ItemChild) -> bool {
    block::is_block(child.stage.as_deref())
}

/// The numbers with which a block may begin that has the item with this number, the nearest first; none if the item is not a number.
fn earlier_numbers(item: &str) -> Vec<String> {
    match item.parse::<u64>() {
        Ok(number) if number.to_string() == item => {
            let first = number.saturating_sub(MAX_BLOCK_ITEMS as u64 - 1);
            (first..number).rev().map(|number| number.to_string()).collect()
        }
        _ => Vec::new(),
    }
}

/// The spawns and items that a text may name. A spawn may have an underscore in its name, so there may be several.
fn spawned<'t>(spawns: &[String], text: &'t str) -> Vec<(usize, &'t str)> {
    let item = |(place, name): (usize, &String)| match text.strip_prefix(name.as_str())? {
        "" => Some((place, "")),
        rest => Some((place, rest.strip_prefix('_')?)),
    };
    spawns.iter().enumerate().filter_map(item).collect()
}

/// Why a child is not found; later variants are nearer misses.
enum NotFound {
    Format,
    Parent(String),
    Branch(JobId, Vec<String>),
    Spawn(Vec<String>),
    Item(String, String),
    Unread(String, String, usize, JobId),
}

impl NotFound {
    fn rank(&self) -> u8 {
        match self {
            NotFound::Format => 0,
            NotFound::Parent(_) => 1,
            NotFound::Branch(..) => 2,
            NotFound::Spawn(_) => 3,
            NotFound::Item(..) => 4,
            NotFound::Unread(..) => 5,
        }
    }

    fn set_if_nearer(&mut self, other: NotFound) {
        if other.rank() > self.rank() {
            *self = other;
        }
    }

    fn to_text(&self) -> String {
        match self {
            NotFound::Format => "children of branches are named parent$branch$spawn_item".to_owned(),
            NotFound::Parent(parent) => {
                format!("no job has the id or the key {parent:?}, and it is not the kind/key of one")
            }
            NotFound::Branch(job, known) if known.is_empty() => format!("job {job} has no branches"),
            NotFound::Branch(job, known) => format!("job {job} has only the branches {}", known.join(", ")),
            NotFound::Spawn(known) => format!("the spawns of that branch are {}", known.join(", ")),
            NotFound::Item(spawn, item) if item.is_empty() => {
                format!("the spawn {spawn:?} has an item for each child: name one")
            }
            NotFound::Item(spawn, item) => {
                format!("the spawn {spawn:?} has no child for the item {item:?}, or it was pruned")
            }
            NotFound::Unread(spawn, item, read, parent) => format!(
                "the item {item:?} of the spawn {spawn:?} is in none of the first {read} rows of the branch, and no more are read for this; \
                 `windlass branches {parent} --children` lists all children"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_underscore_may_belong_to_the_spawn_or_to_the_item() {
        let spawns = ["send", "send_mail", "one"].map(String::from);
        assert_eq!(spawned(&spawns, "send_7"), [(0, "7")]);
        assert_eq!(spawned(&spawns, "send_mail_7"), [(0, "mail_7"), (1, "7")]);
        assert_eq!(spawned(&spawns, "one"), [(2, "")]);
        assert_eq!(spawned(&spawns, "ones_1"), []);
    }

    #[test]
    fn the_nearest_miss_is_reported() {
        let mut why = NotFound::Format;
        why.set_if_nearer(NotFound::Spawn(vec!["a".into(), "b".into()]));
        why.set_if_nearer(NotFound::Parent("x".into()));
        assert_eq!(why.to_text(), "the spawns of that branch are a, b");
    }

    #[test]
    fn the_block_of_a_numbered_item_begins_with_one_of_the_numbers_before_it() {
        assert_eq!(earlier_numbers("3"), ["2", "1", "0"]);
        let far = earlier_numbers("5000");
        assert_eq!((far.len(), far[0].as_str(), far[998].as_str()), (999, "4999", "4001"));
        for other in ["0", "x", "03", "-1", ""] {
            assert!(earlier_numbers(other).is_empty(), "{other}");
        }
    }
}
