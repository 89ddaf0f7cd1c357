//! The children of a branch that are listed: those that failed, those that have not ended, or all, from one on.

use windlass::{
    JobId, State,
    operate::views::{BranchDetails, BranchFailures, BranchPage, JobRow},
    store::{ChildRange, RangeChild},
};

use crate::{
    error::Error,
    pages::{
        form::url,
        format::{Clock, When, counted, thousands},
        html::Html,
        page::PageCall,
        parts::{Action, Newer, Pages, Pill, Tab, Tabs},
    },
};

/// How many children a page has.
const ROWS: usize = 30;

/// The list, with what is around it.
pub(super) struct Children {
    pub(super) tabs: Tabs,
    pub(super) newer: Newer,
    pub(super) rows: Vec<Row>,
    pub(super) pages: Pages,
    /// Why there are none.
    pub(super) blank: &'static str,
    /// Where the same rows are rendered again.
    pub(super) live: String,
}

/// A child.
pub(super) struct Row {
    pub(super) id: JobId,
    /// Its item.
    pub(super) name: String,
    /// How many items it has, if it is a block.
    pub(super) block: String,
    pub(super) pill: Pill,
    pub(super) why: Html,
    pub(super) at: When,
    pub(super) retry: Option<Action>,
}

/// Which children are listed.
#[derive(Clone, Copy, PartialEq)]
enum Only {
    Failed,
    Live,
    All,
}

impl Only {
    /// That of the query; by default what needs someone.
    fn of(call: &PageCall, details: &BranchDetails) -> Only {
        match call.query.text("only") {
            Some("failed") => Only::Failed,
            Some("live") => Only::Live,
            Some("all") => Only::All,
            _ if details.branch.unsuccessful() > 0 => Only::Failed,
            _ if details.branch.pending > 0 => Only::Live,
            _ => Only::All,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Only::Failed => "failed",
            Only::Live => "live",
            Only::All => "all",
        }
    }

    fn blank(self) -> &'static str {
        match self {
            Only::Failed => "No child has failed or was cancelled.",
            Only::Live => "No child that was looked at is live.",
            Only::All => "No child was spawned, or they were pruned after their retention.",
        }
    }
}

impl Children {
    /// Reads a page of them.
    pub(super) async fn read(
        call: &PageCall,
        here: &str,
        details: &BranchDetails,
        failures: &BranchFailures,
    ) -> Result<Children, Error> {
        let only = Only::of(call, details);
        let from = call.query.text("from").and_then(|id| id.parse::<JobId>().ok());
        let page = page(call, details, failures, only, from).await?;
        let to = |from: Option<JobId>| address(here, only, from);
        let first = page.children.first().map(|child| child.summary.id);
        let newer = match (only, first) {
            (Only::Failed, Some(first)) => failures.children.iter().filter(|id| **id > first).count() as u64,
            _ => 0,
        };
        let text = match page.is_partial {
            true => "Of the first and the last 500 children. Those that are held up come first.".to_owned(),
            false => counted(page.children.len() as u64, "child", "children"),
        };
        Ok(Children {
            tabs: tabs(here, details, only),
            newer: Newer { count: newer, noun: ("failed child", "failed children"), href: to(None) },
            pages: Pages {
                text,
                // The newest failed children have an address of their own, so that they stay.
                first: (from.is_some() && (only != Only::Failed || newer > 0)).then(|| to(None)),
                next: page.next.map(|next| to(Some(next))),
            },
            // The newest failed children stay where they are when others fail.
            live: match only {
                Only::Failed => to(first.or(from)),
                _ => to(from),
            },
            blank: only.blank(),
            rows: rows(call, here, page.children).await?,
        })
    }
}

async fn page(
    call: &PageCall,
    details: &BranchDetails,
    failures: &BranchFailures,
    only: Only,
    from: Option<JobId>,
) -> Result<BranchPage, Error> {
    let (operator, job, number) = (call.operator(), details.job, details.branch.number);
    let Some(ends) = details.ends else { return Ok(BranchPage::default()) };
    let page = match only {
        Only::Failed => {
            let (ids, next) = failures.page(from, ROWS);
            let mut children = BranchPage::of_ids(operator, job, number, ids).await?;
            // Somebody may have retried them since.
            children.retain(|child| matches!(child.summary.state, State::Failed | State::Cancelled));
            BranchPage { children, next, is_partial: false }
        }
        Only::Live => BranchPage::live(operator, job, number, ends, ROWS).await?,
        Only::All => {
            let range = ChildRange { first: from.unwrap_or(ends.first), last: ends.last };
            BranchPage::of_range(operator, job, number, range, ROWS).await?
        }
    };
    Ok(page)
}

/// The list with these children, from one on.
fn address(here: &str, only: Only, from: Option<JobId>) -> String {
    let from = from.map(|id| id.to_string());
    url(here, [("only", Some(only.name())), ("from", from.as_deref())])
}

fn tabs(here: &str, details: &BranchDetails, only: Only) -> Tabs {
    let branch = &details.branch;
    let tab = |of: Only, name: &str, count: u64, icon| Tab {
        name: name.to_owned(),
        href: format!("{}#children", address(here, of, None)),
        icon,
        count: thousands(count),
        id: format!("tab-{}", of.name()),
        is_current: of == only,
    };
    let tabs = vec![
        tab(Only::Failed, "failed or cancelled", branch.unsuccessful(), Some(Pill::icon_of(State::Failed))),
        tab(Only::Live, "live", branch.pending, Some(Pill::icon_of(State::Running))),
        tab(Only::All, "all", branch.spawned, None),
    ];
    Tabs { label: "Children", tabs }
}

async fn rows(call: &PageCall, here: &str, children: Vec<RangeChild>) -> Result<Vec<Row>, Error> {
    let shared = call.shared();
    let situation = shared.pages.situation(shared).await?;
    let jobs = children.iter().map(|child| child.summary.clone()).collect();
    let reasons = JobRow::read(call.operator(), jobs, &situation).await?;
    let clock = Clock { now: call.now, relative: !call.preferences.absolute_times };
    let csrf = crate::access::form_token(&shared.pages.key, call.principal());
    let may_act = call.may_act();
    let row = |(child, reason): (RangeChild, JobRow)| {
        let job = &child.summary;
        let can_retry = may_act && matches!(reason.job.state, State::Failed | State::Cancelled);
        let retry = can_retry.then(|| {
            let retry = Action::post("Retry", &format!("/jobs/{}/retry", job.id), &csrf);
            retry.field("back", here).small().quiet()
        });
        Row {
            id: job.id,
            block: match child.items {
                0 | 1 => String::new(),
                items => format!(
                    "block of {} items, {} done",
                    thousands(u64::from(items)),
                    thousands(u64::from(if job.state == State::Done { items } else { child.items_done }))
                ),
            },
            pill: Pill::state(reason.job.state),
            why: Html::new().user(&reason.why),
            at: clock.ago(job.finished_at.unwrap_or(job.due_at.min(call.now))),
            name: match child.item.as_str() {
                "" => job.id.to_string()[24..].to_owned(),
                item => item.to_owned(),
            },
            retry,
        }
    };
    Ok(children.into_iter().zip(reasons).map(row).collect())
}
