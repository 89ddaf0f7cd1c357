//! What is known of branches: where a job stands in one of its parent's, and the job's own.

use anyhow::Context;
use serde_json::{Value, json};
use windlass::{
    Item, Time,
    store::{Inspect, Job},
};

use super::block;
use crate::{
    commands::{
        branches::{self, Parent, Setting, View, counted},
        jobs::BLOCK,
    },
    out,
    place::Place,
};

/// A job's place in a branch, and its own branches.
pub(super) struct Branches {
    /// What it is called as a child.
    called: Option<String>,
    views: Vec<View>,
}

/// Whether a job is a block: many children of a packed branch.
pub(super) fn is_block(job: &Job) -> bool {
    job.summary.stage.as_deref() == Some(BLOCK)
}

impl Branches {
    pub(super) async fn of(
        job: &Job,
        inspect: &dyn Inspect,
        now: Time,
        place: &Place,
    ) -> anyhow::Result<Branches> {
        let called = match (job.parent, &job.place) {
            (Some(parent), Some(at)) => {
                let key = inspect.job(parent).await?.and_then(|parent| parent.summary.key);
                Some(at.key(&key.unwrap_or_else(|| parent.to_string())))
            }
            _ => None,
        };
        let parent = Parent::of(&job.summary);
        let view = |branch| View::of(branch, &parent, None, now, &place.program);
        let views = inspect.branches(job.summary.id).await?.into_iter().map(view).collect();
        Ok(Branches { called, views })
    }

    pub(super) fn tell(&self, told: &mut Value) {
        if let Some(called) = &self.called {
            told["called"] = json!(called);
        }
        told["branches"] = self.views.iter().map(View::told).collect();
    }

    /// The lines of a page that say whose child it is.
    pub(super) fn lines(&self, job: &Job) -> Vec<(&'static str, String)> {
        let (Some(parent), Some(at), Some(called)) = (job.parent, &job.place, &self.called) else {
            return job.parent.map(|parent| ("parent", format!("job {parent}"))).into_iter().collect();
        };
        let of = format!("branch {} of job {parent}", out::plain(&at.name));
        let called = match is_block(job) {
            true => format!(
                "{}, the first of {}",
                out::plain(called),
                counted(at.items.into(), "", "").trim_end()
            ),
            false => out::plain(called),
        };
        vec![("child", of), ("called", called)]
    }

    /// The blocks of a page.
    pub(super) fn blocks(&self, place: &Place, job: &Job) -> String {
        if self.views.is_empty() {
            return String::new();
        }
        // Two columns are the block's own.
        let here = Setting::here();
        let setting = Setting { width: here.width.map(|width| width.saturating_sub(2)), ..here };
        let mut text = branches::list(&self.views, setting);
        let notes = branches::notes(&self.views, job.summary.id, &place.program);
        text += &branches::noted(&notes, 0, setting);
        text +=
            &format!("`{} branches {}` shows more, and how fast they are\n", place.program, job.summary.id);
        block("branches", &text)
    }

    /// In place of what a block carries: where its children are listed.
    pub(super) fn packed(&self, place: &Place, job: &Job) -> String {
        let (Some(parent), Some(at)) = (job.parent, &job.place) else { return String::new() };
        let text = format!(
            "{} in one job; `{} branches {parent} --branch {} --children` lists them one by one",
            counted(at.items.into(), "", "").trim_end(),
            place.program,
            out::plain(&at.name)
        );
        block("block", &text)
    }
}

/// All that is known of a child that is in a block.
pub(super) async fn item(item: &Item, inspect: &dyn Inspect, place: &Place) -> anyhow::Result<String> {
    let id = item.block.context("a child in a block")?;
    let row = inspect.job(id).await?;
    let (state, parent) = match &row {
        Some(row) => (row.summary.state.to_string(), row.parent),
        None => ("gone".to_owned(), None),
    };
    let mut page = format!("child {}\n", out::plain(&item.key));
    let mut line = |name: &str, text: String| page += &format!("  {name:<11}{text}\n");
    line("state", item.state.to_string());
    line("kind", format!("{}, version {}", out::plain(&item.kind), item.version));
    if let Some(parent) = parent {
        line("child", format!("branch {} of job {parent}", out::plain(&item.place.name)));
    }
    line("block", format!("{id}, which is {state}; `{} show {id}` shows it", place.program));
    line("id", format!("{}, should it become a job of its own", item.id));
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    page += &block("input", &item.input.as_ref().map(pretty).unwrap_or_default());
    if let Some(result) = &item.result {
        page += &block("output", &pretty(result));
    }
    if let Some(failure) = &item.failure {
        page += &block("what made its block fail", &out::plain(&failure.to_string()));
    }
    Ok(page)
}
