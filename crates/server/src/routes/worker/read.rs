//! What running code reads. A token that is limited to kinds or queues reads of jobs within them only.

use windlass::{model::JournalEntry, store::BranchChildFilter};
use windlass_remote::protocol::{
    MAX_NAMED, MAX_PAGE,
    reads::{
        BranchChildren, BranchChildrenPage, Branches, BranchesAnswer, ChildEnds, ChildEndsPage, Clock,
        ClockAnswer, Context, ContextAnswer, Inbox, InboxAnswer, Journal, JournalPage, Journals,
        JournalsAnswer,
    },
    shared::answer::ContextValue,
};

use super::{super::Route, check_count, route};
use crate::{call::Call, error::Error};

/// How many entries of each journal are read at once if several are: most have fewer.
const FIRST_PAGE: usize = 200;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route("/worker/v1/journal", "workerJournal", "The journal of a workflow", journal),
        route("/worker/v1/journals", "workerJournals", "The beginnings of several journals", journals),
        route("/worker/v1/context", "workerContext", "The context of a workflow", context),
        route("/worker/v1/inbox", "workerInbox", "The signals in the inbox of a job", inbox),
        route("/worker/v1/child-ends", "workerChildEnds", "The children that a wait counts", child_ends),
        route("/worker/v1/branches", "workerBranches", "The branches of a job", branches),
        route("/worker/v1/branch-children", "workerBranchChildren", "Children of a branch", branch_children),
        route("/worker/v1/clock", "workerClock", "The store's clock", clock),
    ]
}

/// Cuts a page that was read with one row more than it may have.
fn page<T>(mut rows: Vec<T>, limit: usize) -> (Vec<T>, bool) {
    let more = rows.len() > limit;
    rows.truncate(limit);
    (rows, more)
}

fn journal_page(entries: Vec<JournalEntry>, limit: usize) -> JournalPage {
    let (entries, more) = page(entries, limit);
    JournalPage { entries: entries.into_iter().map(Into::into).collect(), more }
}

async fn journal(call: Call, Journal { job, after, limit }: Journal) -> Result<JournalPage, Error> {
    call.check_visible(job).await?;
    let limit = limit.min(MAX_PAGE);
    Ok(journal_page(call.store().journal(job, after, limit + 1).await?, limit))
}

async fn journals(call: Call, Journals { jobs }: Journals) -> Result<JournalsAnswer, Error> {
    check_count("jobs", jobs.len(), MAX_NAMED)?;
    let mut journals = Vec::with_capacity(jobs.len());
    for job in jobs {
        call.check_visible(job).await?;
        journals.push(journal_page(call.store().journal(job, None, FIRST_PAGE + 1).await?, FIRST_PAGE));
    }
    Ok(JournalsAnswer { journals })
}

async fn context(call: Call, Context { job }: Context) -> Result<ContextAnswer, Error> {
    call.check_visible(job).await?;
    let value =
        |(name, value): (String, windlass::model::Payload)| ContextValue { name, value: value.into() };
    Ok(ContextAnswer { context: call.store().context(job).await?.into_iter().map(value).collect() })
}

async fn inbox(call: Call, Inbox { job, limit }: Inbox) -> Result<InboxAnswer, Error> {
    call.check_visible(job).await?;
    // An inbox is bounded by the limits of the store.
    let signals = call.store().inbox(job, limit.unwrap_or(usize::MAX)).await?;
    Ok(InboxAnswer { signals: signals.into_iter().map(Into::into).collect() })
}

async fn child_ends(call: Call, request: ChildEnds) -> Result<ChildEndsPage, Error> {
    let ChildEnds { job, rev, after, limit } = request;
    call.check_visible(job).await?;
    let limit = limit.min(MAX_PAGE);
    let (children, more) = page(call.store().child_ends(job, rev, after, limit + 1).await?, limit);
    Ok(ChildEndsPage { children: children.into_iter().map(Into::into).collect(), more })
}

async fn branches(call: Call, Branches { job }: Branches) -> Result<BranchesAnswer, Error> {
    call.check_visible(job).await?;
    let branches = call.store().branches(job).await?;
    Ok(BranchesAnswer { branches: branches.into_iter().map(Into::into).collect() })
}

async fn branch_children(call: Call, request: BranchChildren) -> Result<BranchChildrenPage, Error> {
    let BranchChildren { job, branch, states, after, limit } = request;
    call.check_visible(job).await?;
    let limit = limit.min(MAX_PAGE);
    let filter = BranchChildFilter { job, branch, states: states.into(), after, limit: limit + 1 };
    let (children, more) = page(call.store().branch_children(&filter).await?, limit);
    Ok(BranchChildrenPage { children: children.into_iter().map(Into::into).collect(), more })
}

async fn clock(call: Call, Clock {}: Clock) -> Result<ClockAnswer, Error> {
    Ok(ClockAnswer { now: call.store().clock().await? })
}
