//! What `show` prints about branches: the job's position in a branch of its parent, its own branches, and packed children.

use anyhow::Context;
use serde_json::{Value, json};
use windlass::{
    Item, Time,
    store::{Inspect, Job},
};

use super::section;
use crate::{
    commands::{
        branches::{self, BranchView, Layout, Parent},
        jobs::BLOCK,
    },
    out,
    program::Program,
};

/// A job's name as a child, and its own branches.
pub(super) struct Branches {
    /// `parent$branch$spawn_item`, if it is a child in a branch.
    child_name: Option<String>,
    views: Vec<BranchView>,
}

/// Whether a job is a block: many items of a packed branch.
pub(super) fn is_block(job: &Job) -> bool {
    job.summary.stage.as_deref() == Some(BLOCK)
}

impl Branches {
    pub(super) async fn read(
        job: &Job,
        inspect: &dyn Inspect,
        now: Time,
        program: &Program,
    ) -> anyhow::Result<Branches> {
        let child_name = match (job.parent, &job.place) {
            (Some(parent), Some(position)) => {
                let key = inspect.job(parent).await?.and_then(|parent| parent.summary.key);
                Some(position.key(&key.unwrap_or_else(|| parent.to_string())))
            }
            _ => None,
        };
        let parent = Parent::new(&job.summary);
        let view = |branch| BranchView::new(branch, &parent, None, now, &program.name);
        let views = inspect.branches(job.summary.id).await?.into_iter().map(view).collect();
        Ok(Branches { child_name, views })
    }

    pub(super) fn add_to_json(&self, answer: &mut Value) {
        if let Some(name) = &self.child_name {
            answer["child_name"] = json!(name);
        }
        answer["branches"] = self.views.iter().map(BranchView::to_json).collect();
    }

    /// The lines of a page with its parent, and its name as a child.
    pub(super) fn lines(&self, job: &Job) -> Vec<(&'static str, String)> {
        let (Some(parent), Some(position), Some(name)) = (job.parent, &job.place, &self.child_name) else {
            return job.parent.map(|parent| ("parent", format!("job {parent}"))).into_iter().collect();
        };
        let of = format!("branch {} of job {parent}", out::plain(&position.name));
        let name = match is_block(job) {
            true => format!("{}, the first of {}", out::plain(name), children(position.items)),
            false => out::plain(name),
        };
        vec![("child of", of), ("name", name)]
    }

    /// The job's branches.
    pub(super) fn section(&self, program: &Program, job: &Job) -> String {
        if self.views.is_empty() {
            return String::new();
        }
        // A section is indented by two.
        let terminal = Layout::of_terminal();
        let layout = Layout { width: terminal.width.map(|width| width.saturating_sub(2)), ..terminal };
        let mut text = branches::table(&self.views, layout);
        let notes = branches::notes(&self.views, job.summary.id, &program.name);
        text += &branches::render_notes(&notes, 0, layout);
        text += &format!("`{} branches {}` shows more, and their rates\n", program.name, job.summary.id);
        section("branches", &text)
    }

    /// For a block, instead of its payloads: the command that lists its children.
    pub(super) fn packed_section(&self, program: &Program, job: &Job) -> String {
        let (Some(parent), Some(position)) = (job.parent, &job.place) else { return String::new() };
        let text = format!(
            "{} in one job; `{} branches {parent} --branch {} --children` lists them",
            children(position.items),
            program.name,
            out::plain(&position.name)
        );
        section("block", &text)
    }
}

fn children(items: u32) -> String {
    out::counted(items.into(), "child", "children")
}

/// The page of a packed child.
pub(super) async fn item_page(
    item: &Item,
    inspect: &dyn Inspect,
    program: &Program,
) -> anyhow::Result<String> {
    let id = item.block.context("the child is not packed into a block")?;
    let row = inspect.job(id).await?;
    let (state, parent) = match &row {
        Some(row) => (row.summary.state.to_string(), row.parent),
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
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    page += &section("input", &item.input.as_ref().map(pretty).unwrap_or_default());
    if let Some(result) = &item.result {
        page += &section("output", &pretty(result));
    }
    if let Some(failure) = &item.failure {
        page += &section("failure of its block", &out::plain(&failure.to_string()));
    }
    Ok(page)
}
