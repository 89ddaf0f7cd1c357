//! The children of branches, those in blocks one by one.

use anyhow::bail;
use serde_json::json;
use windlass::{Engine, Error, Item, JobId, State, store::ChildStates};

use crate::{
    out,
    place::Place,
    table::{self, Column, column},
};

/// Which children are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Which {
    /// Those that failed or were cancelled
    Failed,
    /// Those that have not ended
    Live,
    /// Those that ended well
    Done,
    /// All of them
    All,
}

impl Which {
    fn only(self) -> ChildStates {
        match self {
            Which::Failed => ChildStates::Bad,
            Which::Live => ChildStates::Live,
            Which::Done => ChildStates::Ended,
            Which::All => ChildStates::All,
        }
    }

    fn is_wanted(self, item: &Item) -> bool {
        self != Which::Done || item.state == State::Done
    }

    /// As in "no child …".
    fn words(self) -> &'static str {
        match self {
            Which::Failed => "has failed or was cancelled",
            Which::Live => "is left that has not ended",
            Which::Done => "is done",
            Which::All => "was spawned",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Which::Failed => "failed",
            Which::Live => "live",
            Which::Done => "done",
            Which::All => "all",
        }
    }
}

/// A page of children that is asked for.
pub(super) struct Wanted<'a> {
    pub(super) job: JobId,
    pub(super) branch: Option<&'a str>,
    pub(super) which: Which,
    pub(super) after: Option<&'a str>,
    pub(super) limit: usize,
    pub(super) json: bool,
}

impl Wanted<'_> {
    pub(super) async fn list(&self, engine: &Engine, place: &Place) -> anyhow::Result<()> {
        let items = match engine.items(self.job, self.branch, self.which.only()).await {
            Ok(items) => items,
            Err(Error::NoSuchJob(id)) => bail!(place.no_job(id)),
            Err(error) => return Err(error.into()),
        };
        let mut items = match self.after {
            Some(mark) => items.after(mark)?,
            None => items,
        };
        let parent = items.parent().to_owned();
        let (mut found, mut next) = (Vec::new(), None);
        // One more than is shown says whether there is another page.
        loop {
            let mark = items.mark();
            match items.next().await? {
                Some(item) if !self.which.is_wanted(&item) => {}
                Some(_) if found.len() == self.limit => {
                    next = mark;
                    break;
                }
                Some(item) => found.push(item),
                None => break,
            }
        }
        if self.json {
            return out::print_json(
                &json!({ "job": self.job, "parent": parent, "children": found, "next_after": next }),
            );
        }
        let mut text = match found.is_empty() {
            true => format!("no child {}\n", self.which.words()),
            false => list(&found, &parent),
        };
        if let Some(next) = next {
            text += &format!("\nmore: {} {next}\n", self.again(place));
        }
        if let Some(first) = found.first() {
            let name = shell(&first.key);
            text += &format!("\none of them: {} show {name}\n", place.program);
        }
        out::print(&text)
    }

    /// The command that shows the next page, but for where it begins.
    fn again(&self, place: &Place) -> String {
        let mut command = format!("{} branches {} --children", place.program, self.job);
        if self.which != Which::All {
            command += &format!(" --only {}", self.which.name());
        }
        if let Some(branch) = self.branch {
            command += &format!(" --branch {branch}");
        }
        if self.limit != super::LIMIT as usize {
            command += &format!(" --limit {}", self.limit);
        }
        command + " --after"
    }
}

/// A name as a shell takes it: it has a `$` in it.
fn shell(name: &str) -> String {
    format!("'{}'", out::plain(name).replace('\'', r"'\''"))
}

const COLUMNS: [Column; 5] = [
    Column { least: Some(12), ..column("CHILD") },
    column("STATE"),
    Column { least: Some(8), expendable: 2, ..column("KIND") },
    Column { expendable: 3, ..column("JOB") },
    Column { least: Some(12), expendable: 1, ..column("RESULT") },
];

fn list(items: &[Item], parent: &str) -> String {
    let row = |item: &Item| {
        let name = item.key.strip_prefix(parent).and_then(|rest| rest.strip_prefix('$')).unwrap_or(&item.key);
        let stands_for = match item.place.items {
            0 | 1 => String::new(),
            items => format!(" and {} more", out::thousands(u64::from(items) - 1)),
        };
        vec![
            out::plain(name) + &stands_for,
            item.state.to_string(),
            out::plain(&item.kind),
            match item.block {
                Some(block) => format!("in block {block}"),
                None => item.id.to_string(),
            },
            result(item),
        ]
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    let width = out::width();
    format!("children of {}\n\n{}", out::plain(parent), table::set(&COLUMNS, &rows, width))
}

/// What came of a child, on a line.
fn result(item: &Item) -> String {
    let text = match (&item.failure, &item.result) {
        (Some(failure), _) => failure.to_string(),
        (None, Some(result)) => result.to_string(),
        (None, None) if item.block.is_some() && item.input.is_none() => {
            "this program cannot read the block: it lacks the codec".to_owned()
        }
        (None, None) => String::new(),
    };
    console::truncate_str(&out::plain(&text), 200, "…").into_owned()
}

#[cfg(test)]
mod tests {
    use windlass::{Failure, model::BranchNo, store::ChildPlace};

    use super::*;

    fn item(key: &str, state: State) -> Item {
        let place = ChildPlace {
            branch: BranchNo(1),
            name: "b".into(),
            spawn: "s".into(),
            item: key.into(),
            items: 1,
        };
        Item {
            id: JobId::from_parts(1, 0, 0),
            key: place.key("p"),
            place,
            kind: "k".into(),
            version: 1,
            state,
            block: None,
            input: Some(1.into()),
            result: None,
            reason: None,
            failure: None,
        }
    }

    #[test]
    fn children_are_called_by_what_tells_them_apart() {
        let failed = Item { failure: Some(Failure::stop("no\nroom")), ..item("7", State::Failed) };
        let block = Some(JobId::from_parts(2, 0, 0));
        let done = Item { result: Some("x".into()), block, ..item("8", State::Done) };
        let lines: Vec<String> = list(&[failed, done], "p").lines().map(String::from).collect();
        assert_eq!(lines[0], "children of p");
        assert!(lines[3].starts_with("b$s_7  failed  k     00000000-0001-"), "{}", lines[3]);
        assert!(lines[3].ends_with("  no room"), "{}", lines[3]);
        assert!(lines[4].starts_with("b$s_8  done    k     in block 00000000-0002-"), "{}", lines[4]);
        assert_eq!(shell("it's$b$s_1"), r"'it'\''s$b$s_1'");
    }

    #[test]
    fn a_block_that_cannot_be_read_says_so() {
        let mut whole =
            Item { block: Some(JobId::from_parts(2, 0, 0)), input: None, ..item("0", State::Ready) };
        whole.place.items = 1_000;
        let text = list(&[whole], "p");
        assert!(text.contains("b$s_0 and 999 more") && text.contains("it lacks the codec"), "{text}");
    }
}
