//! What running code reads. A token that is limited to kinds or queues reads of jobs within them only.

use windlass::{
    JobId,
    model::JournalEntry,
    operate::views::rows_within,
    store::{BranchChildFilter, ChildBounds, PayloadsOf},
};
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
/// How many children of a branch one statement examines for some that are in other states.
const EXAMINED: usize = 10_000;

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

impl Call {
    /// How many of the next rows a page has: at most `limit`, and at most as many bytes as a page may have. Few rows always fit, and are not
    /// measured.
    pub(super) async fn fitting(&self, of: PayloadsOf<'_>, limit: usize) -> Result<usize, Error> {
        let most = self.shared.settings.page_bytes;
        let fits_always = most / (self.store().limits().payload as u64).max(1);
        if limit as u64 <= fits_always {
            return Ok(limit);
        }
        let sizes = self.engine().inspect().payload_sizes(of, limit).await?;
        Ok(rows_within(&sizes, most))
    }

    /// A page of a journal. One with few entries, as most journals are, is one read.
    async fn journal_page(
        &self,
        job: JobId,
        after: Option<i32>,
        limit: usize,
    ) -> Result<(Vec<JournalEntry>, bool), Error> {
        let most = self.shared.settings.page_bytes;
        let few = usize::try_from(most / (self.store().limits().payload as u64).max(1)).unwrap_or(usize::MAX);
        let first = limit.min(few.max(1));
        let read = self.store().journal(job, after, first + 1).await?;
        if first == limit || read.len() <= first {
            return Ok(page(read, first));
        }
        let fitting = self.fitting(PayloadsOf::Journal { job, after }, limit).await?;
        Ok(page(self.store().journal(job, after, fitting + 1).await?, fitting))
    }
}

async fn journal(call: Call, Journal { job, after, limit }: Journal) -> Result<JournalPage, Error> {
    call.check_visible(job).await?;
    let (entries, more) = call.journal_page(job, after, limit.min(MAX_PAGE)).await?;
    Ok(JournalPage { entries: entries.into_iter().map(Into::into).collect(), more })
}

/// The first page of each journal. Those for which an answer has no room are empty, with more to come.
async fn journals(call: Call, Journals { jobs }: Journals) -> Result<JournalsAnswer, Error> {
    check_count("jobs", jobs.len(), MAX_NAMED)?;
    let (mut journals, mut bytes) = (Vec::with_capacity(jobs.len()), 0);
    for job in jobs {
        call.check_visible(job).await?;
        if bytes >= call.shared.settings.page_bytes {
            journals.push(JournalPage { entries: Vec::new(), more: true });
            continue;
        }
        let (entries, more) = call.journal_page(job, None, FIRST_PAGE).await?;
        bytes += entries.iter().map(|entry| entry.payload.bytes.len() as u64).sum::<u64>();
        journals.push(JournalPage { entries: entries.into_iter().map(Into::into).collect(), more });
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
    let of = PayloadsOf::ChildEnds { parent: job, parent_rev: rev, after };
    let limit = call.fitting(of, limit.min(MAX_PAGE)).await?;
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
    let limit = limit.clamp(1, MAX_PAGE);
    let bounds = ChildBounds { examine: EXAMINED, bytes: call.shared.settings.page_bytes };
    let mut filter = BranchChildFilter { job, branch, states: states.into(), after, limit };
    // A client goes on after the last child of a page: none is empty, unless it is the last.
    loop {
        let page = call.engine().inspect().branch_children_page(&filter, bounds).await?;
        if page.children.is_empty() && page.next.is_some() {
            filter.after = page.next;
            continue;
        }
        let children: Vec<_> = page.children.into_iter().map(Into::into).collect();
        return Ok(BranchChildrenPage { children, more: page.next.is_some() });
    }
}

async fn clock(call: Call, Clock {}: Clock) -> Result<ClockAnswer, Error> {
    Ok(ClockAnswer { now: call.store().clock().await? })
}
