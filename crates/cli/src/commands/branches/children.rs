//! `windlass branches --children`: lists the children of branches, packed ones included.

use windlass::{
    JobId,
    operate::Item,
    operate::views::{ItemFilter, ItemList},
};

use crate::{
    client::Client,
    out,
    program::Program,
    table::{self, Column, column},
};

/// Which children to list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum ChildFilter {
    /// Failed or cancelled children
    Failed,
    /// Children that have not ended
    Live,
    /// Done children
    Done,
    /// All children
    All,
}

impl ChildFilter {
    fn to_filter(self) -> ItemFilter {
        match self {
            ChildFilter::Failed => ItemFilter::Failed,
            ChildFilter::Live => ItemFilter::Live,
            ChildFilter::Done => ItemFilter::Done,
            ChildFilter::All => ItemFilter::All,
        }
    }

    /// As in "no child …".
    fn predicate(self) -> &'static str {
        match self {
            ChildFilter::Failed => "has failed or been cancelled",
            ChildFilter::Live => "is live",
            ChildFilter::Done => "is done",
            ChildFilter::All => "was spawned",
        }
    }

    fn name(self) -> &'static str {
        match self {
            ChildFilter::Failed => "failed",
            ChildFilter::Live => "live",
            ChildFilter::Done => "done",
            ChildFilter::All => "all",
        }
    }
}

/// A page of children.
pub(super) struct ChildPage<'a> {
    pub(super) job: JobId,
    pub(super) branch: Option<&'a str>,
    pub(super) only: ChildFilter,
    pub(super) after: Option<&'a str>,
    pub(super) limit: usize,
    pub(super) json: bool,
}

impl ChildPage<'_> {
    pub(super) async fn print(&self, client: &Client, program: &Program) -> anyhow::Result<()> {
        let only = self.only.to_filter();
        let list = client.items(self.job, self.branch, only, self.after, self.limit).await?;
        if self.json {
            return out::print_json(&list);
        }
        let ItemList { parent, children, next_after, .. } = &list;
        let mut text = match (children.is_empty(), next_after) {
            (true, None) => format!("no child {}\n", self.only.predicate()),
            (true, Some(_)) => format!("no child {} among those that were examined\n", self.only.predicate()),
            (false, _) => render(children, parent),
        };
        if let Some(next) = next_after {
            text += &format!("\nmore: {} {next}\n", self.next_page_command(program));
        }
        if let Some(first) = children.first() {
            let name = shell_quoted(&first.key);
            text += &format!("\nthe first: {} show {name}\n", program.name);
        }
        out::print(&text)
    }

    /// The command that prints the next page, without its position.
    fn next_page_command(&self, program: &Program) -> String {
        let mut command = format!("{} branches {} --children", program.name, self.job);
        if self.only != ChildFilter::All {
            command += &format!(" --only {}", self.only.name());
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

/// A name in single quotes: it contains a `$`.
fn shell_quoted(name: &str) -> String {
    format!("'{}'", out::plain(name).replace('\'', r"'\''"))
}

const COLUMNS: [Column; 5] = [
    Column { min_width: Some(12), ..column("CHILD") },
    column("STATE"),
    Column { min_width: Some(8), expendable: 2, ..column("KIND") },
    Column { expendable: 3, ..column("JOB") },
    Column { min_width: Some(12), expendable: 1, ..column("RESULT") },
];

fn render(items: &[Item], parent: &str) -> String {
    let row = |item: &Item| {
        let name = item.key.strip_prefix(parent).and_then(|rest| rest.strip_prefix('$')).unwrap_or(&item.key);
        let others = match item.place.items {
            0 | 1 => String::new(),
            items => format!(" and {} more", out::thousands(u64::from(items) - 1)),
        };
        vec![
            out::plain(name) + &others,
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
    format!("children of {}\n\n{}", out::plain(parent), table::render(&COLUMNS, &rows, width))
}

/// The failure or the result of a child, on one line.
fn result(item: &Item) -> String {
    let text = match (&item.failure, &item.result) {
        (Some(failure), _) => failure.to_string(),
        (None, Some(result)) => result.to_string(),
        (None, None) if item.block.is_some() && item.input.is_none() => {
            "this program lacks the codec of the block and cannot decode it".to_owned()
        }
        (None, None) => String::new(),
    };
    console::truncate_str(&out::plain(&text), 200, "…").into_owned()
}

#[cfg(test)]
mod tests {
    use windlass::{Failure, State, model::BranchNo, store::ChildPosition};

    use super::*;

    fn item(key: &str, state: State) -> Item {
        let position = ChildPosition {
            branch: BranchNo(1),
            name: "b".into(),
            spawn: "s".into(),
            item: key.into(),
            items: 1,
        };
        Item {
            id: JobId::from_parts(1, 0, 0),
            key: position.key("p"),
            place: position,
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
    fn children_are_listed_without_the_name_of_their_parent() {
        let failed = Item { failure: Some(Failure::stop("no\nroom")), ..item("7", State::Failed) };
        let block = Some(JobId::from_parts(2, 0, 0));
        let done = Item { result: Some("x".into()), block, ..item("8", State::Done) };
        let lines: Vec<String> = render(&[failed, done], "p").lines().map(String::from).collect();
        assert_eq!(lines[0], "children of p");
        assert!(lines[3].starts_with("b$s_7  failed  k     00000000-0001-"), "{}", lines[3]);
        assert!(lines[3].ends_with("  no room"), "{}", lines[3]);
        assert!(lines[4].starts_with("b$s_8  done    k     in block 00000000-0002-"), "{}", lines[4]);
        assert_eq!(shell_quoted("it's$b$s_1"), r"'it'\''s$b$s_1'");
    }

    #[test]
    fn a_block_that_cannot_be_decoded_is_one_line() {
        let mut block =
            Item { block: Some(JobId::from_parts(2, 0, 0)), input: None, ..item("0", State::Ready) };
        block.place.items = 1_000;
        let text = render(&[block], "p");
        assert!(
            text.contains("b$s_0 and 999 more") && text.contains("lacks the codec of the block"),
            "{text}"
        );
    }
}
