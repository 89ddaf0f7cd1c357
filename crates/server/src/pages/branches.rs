//! The branches of all jobs that are not merged: what fans out, and whether it is stuck.

use std::sync::Arc;

use askama::Template;
use windlass::operate::views::{OpenBranchRow, OpenBranches};

use super::{
    bars::Band,
    format::When,
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    job,
    page::{PageCall, html},
    parts::{Blank, Pill},
};
use crate::error::Error;

#[derive(Template)]
#[template(path = "branches.html")]
struct BranchesPage {
    frame: Frame,
    branches: Arc<OpenBranches>,
    blank: Option<Blank>,
}

impl BranchesPage {
    fn band(&self, row: &OpenBranchRow) -> Band {
        job::band(&row.branch).small()
    }

    fn pace(&self, row: &OpenBranchRow) -> String {
        job::pace(&row.branch)
    }

    fn parent(&self, row: &OpenBranchRow) -> String {
        row.key.clone().unwrap_or_else(|| row.job.to_string()[24..].to_owned())
    }

    fn id(&self, row: &OpenBranchRow) -> String {
        format!("{}-{}", &row.job.to_string()[24..], row.branch.number)
    }

    fn pill(&self, row: &OpenBranchRow) -> Pill {
        match row.branch.blocked {
            true => Pill::blocked(),
            false => Pill::state(row.state).saying(&row.branch.state()),
        }
    }

    fn ago(&self, at: &windlass::Time) -> When {
        self.frame.clock().ago(*at)
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let branches = call.open_branches().await?;
    let frame = call.frame("Branches", "branches").await?;
    let blank = branches.branches.is_empty().then(|| Blank {
        icon: Icon::Branches,
        title: "No branch is open".into(),
        text: Html::words("A branch is a set of children that a workflow or machine spawns and merges. Merged ones are on the pages of their jobs."),
        actions: Vec::new(),
    });
    html(&BranchesPage { frame, branches, blank })
}
