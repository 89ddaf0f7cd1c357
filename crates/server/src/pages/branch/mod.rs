//! One branch of a job: when it is done, what holds it up, what failed, and its children.
//!
//! Its address has the number of the branch, or its name. `only` chooses which children are listed, `from` where the list begins,
//! `preview=redrive` opens a drawer.

pub(super) mod act;
mod children;
mod drawn;

use std::sync::Arc;

use askama::Template;
use windlass::{
    JobId,
    model::BranchNo,
    operate::views::{BranchDetails, BranchFailures, BranchesView, FailureGroup},
};

use self::children::Children;
use super::{
    bars::{Band, ItemMap, Percentiles},
    format::{When, counted, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    job,
    page::{PageCall, html},
    parts::{Action, Counters, Pill, Tally, Tone, Why},
};
use crate::error::{Error, ErrorKind};

/// How many groups of errors are shown.
const GROUPS: usize = 20;

#[derive(Template)]
#[template(path = "branch.html")]
struct BranchPage {
    frame: Frame,
    here: String,
    details: Arc<BranchDetails>,
    failures: Arc<BranchFailures>,
    parent: String,
    pill: Pill,
    why: Why,
    actions: Vec<Action>,
    counters: Counters,
    band: Band,
    map: ItemMap,
    /// How many items are in a cell, and how they were read.
    map_text: String,
    times: Vec<(&'static str, Percentiles)>,
    children: Children,
    /// What a redrive would retry, if its drawer is open.
    redrive: Option<Tally>,
    /// How many children failed in a way that no retry helps.
    hopeless: u64,
}

impl BranchPage {
    fn groups(&self) -> impl Iterator<Item = &FailureGroup> {
        self.failures.failures.groups.iter().take(GROUPS)
    }

    fn id(&self, group: &FailureGroup) -> String {
        blake3::hash(format!("{} {} {}", group.kind, group.class, group.shape).as_bytes()).to_hex()[..12]
            .to_owned()
    }

    fn count(&self, count: &u64) -> String {
        thousands(*count)
    }

    fn ago(&self, at: &windlass::Time) -> When {
        self.frame.clock().ago(*at)
    }

    fn at(&self, at: &windlass::Time) -> When {
        self.frame.clock().at(*at)
    }

    fn seconds(&self, seconds: &f64) -> String {
        drawn::seconds(*seconds)
    }

    fn unsuccessful(&self) -> String {
        counted(self.details.branch.unsuccessful(), "child", "children")
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let (job, number) = find(&call).await?;
    let details = call.branch(job, number).await?;
    let failures = call.branch_failures(&details).await?;
    let here = format!("/jobs/{job}/branches/{number}");
    let children = Children::read(&call, &here, &details, &failures).await?;
    let title = details.branch.name.clone();
    let frame = call.frame_at(title, "branches", &children.live).await?;
    let (branch, clock) = (&details.branch, frame.clock());
    let can_redrive = frame.may_act && branch.unsuccessful() > 0 && !branch.cancels_children;
    let redrive = (can_redrive && call.query.text("preview") == Some("redrive")).then(|| tally(&failures));
    let hopeless = failures.failures.groups.iter().filter(|group| group.advice.retry_helps() == Some(false));
    let page = BranchPage {
        parent: details.key.clone().unwrap_or_else(|| format!("{} {}", details.kind, &job.to_string()[24..])),
        pill: drawn::pill(&details),
        why: drawn::why(&details, &here, can_redrive, clock),
        actions: actions(&details, &here, can_redrive, &frame),
        counters: drawn::counters(&details, &here, clock),
        band: drawn::band(branch, &here),
        map: drawn::map(&details, &failures),
        map_text: drawn::map_text(&details),
        times: drawn::times(&branch.times.wait, &branch.times.run),
        hopeless: hopeless.map(|group| group.count).sum(),
        children,
        redrive,
        failures,
        details: Arc::clone(&details),
        here,
        frame,
    };
    html(&page)
}

/// The job and the number of its branch that the path names.
async fn find(call: &PageCall) -> Result<(JobId, BranchNo), Error> {
    let job = job::find(call, call.call.path("job")).await?;
    Ok((job, find_in(call.operator(), job, call.call.path("branch")).await?))
}

/// The branch of a job with this number or name.
async fn find_in(operator: &windlass::operate::Operator, job: JobId, name: &str) -> Result<BranchNo, Error> {
    let branches = BranchesView::read(operator, job, None).await?.branches;
    let number = name.parse().ok().map(BranchNo);
    let numbered = branches.iter().find(|branch| Some(branch.number) == number);
    let named = branches.iter().find(|branch| branch.name == name);
    numbered.or(named).map(|branch| branch.number).ok_or_else(unknown)
}

pub(super) fn unknown() -> Error {
    Error::new(ErrorKind::NotFound, "the job has no such branch", "the page of the job lists its branches")
}

fn actions(details: &BranchDetails, here: &str, can_redrive: bool, frame: &Frame) -> Vec<Action> {
    let mut actions = Vec::new();
    if can_redrive {
        let redrive = Action::link("Redrive…", &format!("{here}?preview=redrive"));
        actions.push(redrive.icon(Icon::Retry).command("Redrive failed children").key('r'));
    }
    if frame.may_act && !details.state.is_final() {
        let cancel = Action::link("Cancel its job…", &format!("/jobs/{}?preview=cancel", details.job));
        actions.push(cancel.danger());
    }
    actions
}

/// How many children of each error would be retried.
fn tally(failures: &BranchFailures) -> Tally {
    let groups = failures.failures.groups.iter().take(6);
    Tally {
        numbers: groups
            .map(|group| (thousands(group.count), group.class.chars().take(40).collect()))
            .collect(),
    }
}
