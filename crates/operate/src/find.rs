//! Finds a child of a branch by its name: `parent$branch$spawn_item`.

use windlass_model::JobId;
use windlass_store::{Branch, BranchChild, BranchChildFilter, ChildStates, JobEnd};

use windlass_workflow::{
    Error,
    engine::{BLOCKS, SINGLES, block},
};

use crate::{
    Operator,
    items::{Item, before, expand, is_block},
};

/// How many jobs of different kinds with one key are searched for a child.
const NAMESAKES: usize = 10;

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
                        why.set_if_nearer(NotFound::Item(found.spawns[spawn].clone(), item.to_owned()));
                        if let Some(item) = self.child(&name, &found, spawn as i16, item).await? {
                            return Ok(item);
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

    /// Finds one child of a branch: a promoted one by its id, the others by reading the branch.
    async fn child(
        &self,
        parent: &str,
        branch: &Branch,
        spawn: i16,
        item: &str,
    ) -> Result<Option<Item>, Error> {
        let id = JobId::of_item(branch.job, branch.number, spawn, item);
        let promoted = BranchChildFilter {
            job: branch.job,
            branch: branch.number,
            states: ChildStates::All,
            after: before(id),
            limit: 1,
        };
        let mut rows = self.inspect().branch_children(&promoted).await?;
        if rows.first().is_some_and(|row| row.summary.id == id) {
            return Ok(expand(self, parent, branch, rows.remove(0)).pop().map(|(_, item)| item));
        }
        let mut all = BranchChildFilter { after: None, limit: BLOCKS, ..promoted };
        loop {
            let page = self.inspect().branch_children(&all).await?;
            let Some(last) = page.last() else { return Ok(None) };
            all.after = Some(last.summary.id);
            all.limit = if page.iter().any(is_block) { BLOCKS } else { SINGLES };
            let found = page
                .into_iter()
                .find(|child| child.branch_position.spawn == spawn && self.contains(child, item));
            if let Some(found) = found {
                let mut children = expand(self, parent, branch, found).into_iter().map(|(_, child)| child);
                return Ok(children.find(|child| child.place.item == item));
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
}

impl NotFound {
    fn rank(&self) -> u8 {
        match self {
            NotFound::Format => 0,
            NotFound::Parent(_) => 1,
            NotFound::Branch(..) => 2,
            NotFound::Spawn(_) => 3,
            NotFound::Item(..) => 4,
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
}
