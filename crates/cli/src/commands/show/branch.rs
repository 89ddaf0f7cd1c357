//! What `show` prints about branches: the job's position in a branch of its parent, its own branches, and packed children.

use anyhow::Context;
use windlass::{
    operate::Item,
    operate::views::{self, JobView},
};

use super::{pretty, section};
use crate::{
    client::Client,
    commands::branches::{self, Layout},
    out,
    program::Program,
};

/// The lines of a page with its parent, and its name as a child.
pub(super) fn lines(view: &JobView) -> Vec<(&'static str, String)> {
    let job = &view.job;
    let (Some(parent), Some(place), Some(name)) = (job.parent, &job.position, &view.child_name) else {
        return job.parent.map(|parent| ("parent", format!("job {parent}"))).into_iter().collect();
    };
    let of = format!("branch {} of job {parent}", out::plain(&place.name));
    let name = match views::is_block(&job.summary) {
        true => format!("{}, the first of {}", out::plain(name), children(place.items)),
        false => out::plain(name),
    };
    vec![("child of", of), ("name", name)]
}

/// The job's branches.
pub(super) fn section_of_branches(view: &JobView, program: &Program) -> String {
    if view.branches.is_empty() {
        return String::new();
    }
    // A section is indented by two.
    let terminal = Layout::of_terminal();
    let layout = Layout { width: terminal.width.map(|width| width.saturating_sub(2)), ..terminal };
    let mut text = branches::table(&view.branches, layout);
    let notes: Vec<String> = view.branch_notes().iter().map(|note| program.with_own_name(note)).collect();
    text += &branches::render_notes(&notes, 0, layout);
    text += &format!("`{} branches {}` shows more, and their rates\n", program.name, view.job.summary.id);
    section("branches", &text)
}

/// For a block, instead of its payloads: the command that lists its children.
pub(super) fn block_section(view: &JobView, program: &Program) -> String {
    let (Some(parent), Some(place)) = (view.job.parent, &view.job.position) else { return String::new() };
    let text = format!(
        "{} in one job; `{} branches {parent} --branch {} --children` lists them",
        children(place.items),
        program.name,
        out::plain(&place.name)
    );
    section("block", &text)
}

fn children(items: u32) -> String {
    out::counted(items.into(), "child", "children")
}

/// The page of a packed child.
pub(super) async fn item_page(item: &Item, client: &Client, program: &Program) -> anyhow::Result<String> {
    let id = item.block.context("the child is not packed into a block")?;
    let block = client.job(id, Some(1)).await?;
    let (state, parent) = match &block {
        Some(block) => (block.job.summary.state.to_string(), block.job.parent),
        None => ("deleted".to_owned(), None),
    };
    let mut page = format!("child {}\n", out::plain(&item.key));
    let mut line = |name: &str, text: String| page += &format!("  {name:<11}{text}\n");
    line("state", item.state.to_string());
    line("kind", format!("{}, version {}", out::plain(&item.kind), item.version));
    if let Some(parent) = parent {
        line("child of", format!("branch {} of job {parent}", out::plain(&item.place.name)));
    }
    line("block", format!("{id}, which is {state}; see `{} show {id}`", program.name));
    line("id", format!("{}, if it is promoted to a job of its own", item.id));
    page += &section("input", &item.input.as_ref().map(pretty).unwrap_or_default());
    if let Some(result) = &item.result {
        page += &section("output", &pretty(result));
    }
    if let Some(failure) = &item.failure {
        page += &section("failure of its block", &out::plain(&failure.to_string()));
    }
    Ok(page)
}
