//! The children of a job, level by level: `open` in the query names the jobs whose children are shown, however deep they are.

use windlass::{
    JobId, State,
    operate::views::{BranchView, BranchesView, ChildLevel, JobRow},
};

use super::name_of;
use crate::{
    error::Error,
    pages::{
        bars::Band,
        form::{Form, url},
        format::thousands,
        html::Html,
        page::PageCall,
        parts::{Action, Pill},
    },
};

/// How many children of a job are shown.
const ROWS: usize = 30;
/// How many jobs are open at most, and how deep the tree is.
const OPEN: usize = 8;
const DEPTH: usize = 5;
/// How many branches of a job in the tree are shown.
const BRANCHES: usize = 20;

/// The tree, line by line.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) lines: Vec<Line>,
}

/// A line of the tree.
pub(super) struct Line {
    /// The id of the row.
    pub(super) id: String,
    /// The class that indents it.
    pub(super) level: &'static str,
    pub(super) href: String,
    pub(super) name: String,
    /// The kind of a job, or what a branch is.
    pub(super) what: String,
    pub(super) pill: Option<Pill>,
    /// Why it is in its state; of a branch how far it is.
    pub(super) why: Html,
    pub(super) band: Option<Band>,
    /// Where its children are shown or hidden, and whether they are shown.
    pub(super) toggle: Option<(String, bool)>,
    pub(super) retry: Option<Action>,
}

impl Tree {
    /// Reads the children of a job and of those that are open. Its own branches are elsewhere on the page.
    pub(super) async fn read(call: &PageCall, job: JobId) -> Result<Tree, Error> {
        let mut tree = Tree::default();
        let open = Open::of(&call.query, job);
        let of_job = level(call, job, &open, 0, &[]).await?;
        // What is open is put below its line, and then is looked through itself.
        let mut rest: Vec<(Line, Option<JobId>, usize)> = of_job.into_iter().rev().collect();
        let mut opened = 0;
        while let Some((line, child, depth)) = rest.pop() {
            tree.lines.push(line);
            let Some(child) = child.filter(|child| open.has(*child)) else { continue };
            opened += 1;
            if opened > OPEN || depth + 1 >= DEPTH {
                continue;
            }
            let branches = BranchesView::read(call.operator(), child, None).await?.branches;
            let below = level(call, child, &open, depth + 1, &branches).await?;
            if below.is_empty() {
                rest.push((Line::note(depth + 1, child, "It has no children."), None, depth + 1));
            }
            rest.extend(below.into_iter().rev());
        }
        Ok(tree)
    }
}

/// The jobs that are open.
struct Open {
    here: String,
    jobs: Vec<JobId>,
}

impl Open {
    fn of(query: &Form, job: JobId) -> Open {
        let jobs = query.values("open").filter_map(|id| id.parse().ok()).take(OPEN).collect();
        Open { here: format!("/jobs/{job}"), jobs }
    }

    fn has(&self, job: JobId) -> bool {
        self.jobs.contains(&job)
    }

    /// The page with a job opened, or closed if it is open.
    fn toggled(&self, job: JobId) -> String {
        let others = self.jobs.iter().filter(|open| **open != job).map(ToString::to_string);
        let mut jobs: Vec<String> = others.collect();
        if !self.has(job) {
            jobs.push(job.to_string());
        }
        format!("{}#children", url(&self.here, jobs.iter().map(|job| ("open", Some(job.as_str())))))
    }
}

/// The lines of one level: branches, then children in none of them.
async fn level(
    call: &PageCall,
    job: JobId,
    open: &Open,
    depth: usize,
    branches: &[BranchView],
) -> Result<Vec<(Line, Option<JobId>, usize)>, Error> {
    let shared = call.shared();
    let situation = shared.pages.situation(shared).await?;
    let children = ChildLevel::read(call.operator(), job, &situation, ROWS).await?;
    let csrf = crate::access::form_token(&shared.pages.key, call.principal());
    let csrf = call.may_act().then_some(csrf);
    let mut shown: Vec<&BranchView> = branches.iter().collect();
    shown.sort_by_key(|branch| (branch.unsuccessful() == 0, branch.pending == 0, branch.number));
    let more = shown.len().saturating_sub(BRANCHES);
    let mut lines: Vec<_> = shown
        .into_iter()
        .take(BRANCHES)
        .map(|branch| (Line::branch(depth, job, branch), None, depth))
        .collect();
    if more > 0 {
        lines.push((
            Line::note(depth, job, &format!("and {} more branches", thousands(more as u64))),
            None,
            depth,
        ));
    }
    for row in &children.rows {
        lines.push((Line::job(depth, row, open, csrf.as_deref()), Some(row.job.id), depth));
    }
    if children.has_more {
        lines.push((
            Line::note(depth, job, "There may be more children: only the oldest 100 are looked at."),
            None,
            depth,
        ));
    }
    Ok(lines)
}

fn class(depth: usize) -> &'static str {
    ["", "d1", "d2", "d3", "d4"][depth.min(DEPTH - 1)]
}

impl Line {
    fn job(depth: usize, row: &JobRow, open: &Open, csrf: Option<&str>) -> Line {
        let job = &row.job;
        let is_over = matches!(job.state, State::Failed | State::Cancelled);
        let retry = csrf.filter(|_| is_over).map(|csrf| {
            Action::post("Retry", &format!("/jobs/{}/retry", job.id), csrf)
                .field("back", &open.here)
                .small()
                .quiet()
        });
        Line {
            id: format!("c-{}", job.id),
            level: class(depth),
            href: format!("/jobs/{}", job.id),
            name: name_of(job, None),
            // A job without a key is named by its kind.
            what: job.key.as_ref().map_or(String::new(), |_| job.kind.clone()),
            pill: Some(Pill::state(job.state)),
            why: Html::new().user(&row.why),
            band: None,
            toggle: (depth + 1 < DEPTH).then(|| (open.toggled(job.id), open.has(job.id))),
            retry,
        }
    }

    fn branch(depth: usize, job: JobId, branch: &BranchView) -> Line {
        let pill = match (branch.blocked, branch.unsuccessful()) {
            (true, _) => Some(Pill::blocked()),
            (false, 0) => None,
            (false, count) => {
                let word = format!("{} unsuccessful", thousands(count));
                Some(Pill::state(State::Failed).saying(&word))
            }
        };
        Line {
            id: format!("b-{}-{}", &job.to_string()[24..], branch.number),
            level: class(depth),
            href: format!("/jobs/{job}/branches/{}", branch.number),
            name: branch.name.clone(),
            what: format!("branch, {}", branch.state()),
            pill,
            why: Html::words(&super::pace(branch)),
            band: Some(super::band(branch).small()),
            toggle: None,
            retry: None,
        }
    }

    fn note(depth: usize, job: JobId, text: &str) -> Line {
        Line {
            id: format!("n-{}-{}", &job.to_string()[24..], text.len()),
            level: class(depth),
            href: String::new(),
            name: String::new(),
            what: String::new(),
            pill: None,
            why: Html::words(text),
            band: None,
            toggle: None,
            retry: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_opened_and_closed() {
        let id = |n| JobId::from_parts(1, n, 0);
        let query = format!("open={}&open=none&open={}", id(2), id(3));
        let open = Open::of(&Form::parse(query.as_bytes()), id(1));
        assert!(open.has(id(2)) && open.has(id(3)) && !open.has(id(1)));
        assert_eq!(open.toggled(id(2)), format!("/jobs/{}?open={}#children", id(1), id(3)));
        assert_eq!(
            open.toggled(id(4)),
            format!("/jobs/{}?open={}&open={}&open={}#children", id(1), id(2), id(3), id(4))
        );
        let many: String = (0..99).map(|n| format!("open={}&", id(n))).collect();
        assert_eq!(Open::of(&Form::parse(many.as_bytes()), id(1)).jobs.len(), OPEN);
    }
}
