//! What running code reads, as calls. Pages are read until the caller has what it asks for.

use windlass_model::{BranchNo, JobId, JournalEntry, Payload, Rev, Signal, Time};
use windlass_store::{
    Branch, BranchChild, BranchChildFilter, ChildEnd, Error, Fut, Replay, SourceRow, TableSource,
};

use super::{RemoteStore, execution::no_transactions};
use crate::protocol::{
    MAX_NAMED, MAX_PAGE,
    reads::{self, JournalPage},
};

impl RemoteStore {
    async fn read_journal(
        &self,
        job: JobId,
        after: Option<i32>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, Error> {
        self.rest_of_journal(job, after, limit, Vec::new()).await
    }

    /// Reads on in a journal of which some entries were read.
    async fn rest_of_journal(
        &self,
        job: JobId,
        mut after: Option<i32>,
        limit: usize,
        mut entries: Vec<JournalEntry>,
    ) -> Result<Vec<JournalEntry>, Error> {
        while entries.len() < limit {
            let page = (limit - entries.len()).min(MAX_PAGE);
            let JournalPage { entries: read, more } =
                self.call(None, &reads::Journal { job, after, limit: page }).await?;
            entries.extend(read.into_iter().map(JournalEntry::from));
            after = entries.last().map(|entry| entry.seq).or(after);
            if !more {
                break;
            }
        }
        Ok(entries)
    }

    async fn read_journals(&self, ids: &[JobId]) -> Result<Vec<Vec<JournalEntry>>, Error> {
        let mut journals = Vec::with_capacity(ids.len());
        for part in ids.chunks(MAX_NAMED) {
            let answer = self.call(None, &reads::Journals { jobs: part.to_vec() }).await?;
            if answer.journals.len() != part.len() {
                return Err(Error::Fault("the answer to journals has another number of journals".into()));
            }
            for (job, JournalPage { entries, more }) in part.iter().zip(answer.journals) {
                let entries: Vec<JournalEntry> = entries.into_iter().map(JournalEntry::from).collect();
                let after = entries.last().map(|entry| entry.seq);
                journals.push(match more {
                    true => self.rest_of_journal(*job, after, usize::MAX, entries).await?,
                    false => entries,
                });
            }
        }
        Ok(journals)
    }

    async fn read_child_ends(
        &self,
        job: JobId,
        rev: Rev,
        mut after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<ChildEnd>, Error> {
        let mut children: Vec<ChildEnd> = Vec::new();
        while children.len() < limit {
            let page = (limit - children.len()).min(MAX_PAGE);
            let answer = self.call(None, &reads::ChildEnds { job, rev, after, limit: page }).await?;
            children.extend(answer.children.into_iter().map(ChildEnd::from));
            after = children.last().map(|child| child.id).or(after);
            if !answer.more {
                break;
            }
        }
        Ok(children)
    }

    async fn read_branch_children(&self, filter: &BranchChildFilter) -> Result<Vec<BranchChild>, Error> {
        let (mut children, mut after): (Vec<BranchChild>, _) = (Vec::new(), filter.after);
        let (branch, states): (BranchNo, reads::Which) = (filter.branch, filter.states.into());
        while children.len() < filter.limit {
            let limit = (filter.limit - children.len()).min(MAX_PAGE);
            let call = reads::BranchChildren { job: filter.job, branch, states, after, limit };
            let answer = self.call(None, &call).await?;
            children.extend(answer.children.into_iter().map(BranchChild::from));
            after = children.last().map(|child| child.summary.id).or(after);
            if !answer.more {
                break;
            }
        }
        Ok(children)
    }
}

impl Replay for RemoteStore {
    fn journal(&self, id: JobId, after: Option<i32>, limit: usize) -> Fut<'_, Vec<JournalEntry>> {
        Box::pin(self.read_journal(id, after, limit))
    }

    fn journals<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Vec<JournalEntry>>> {
        Box::pin(self.read_journals(ids))
    }

    fn context(&self, id: JobId) -> Fut<'_, Vec<(String, Payload)>> {
        Box::pin(async move {
            let answer = self.call(None, &reads::Context { job: id }).await?;
            Ok(answer.context.into_iter().map(|value| (value.name, value.value.into())).collect())
        })
    }

    fn inbox(&self, id: JobId, limit: usize) -> Fut<'_, Vec<Signal>> {
        Box::pin(async move {
            let limit = Some(limit).filter(|limit| *limit < usize::MAX);
            let answer = self.call(None, &reads::Inbox { job: id, limit }).await?;
            Ok(answer.signals.into_iter().map(Signal::from).collect())
        })
    }

    fn child_ends(
        &self,
        parent: JobId,
        parent_rev: Rev,
        after: Option<JobId>,
        limit: usize,
    ) -> Fut<'_, Vec<ChildEnd>> {
        Box::pin(self.read_child_ends(parent, parent_rev, after, limit))
    }

    fn branches(&self, job: JobId) -> Fut<'_, Vec<Branch>> {
        Box::pin(async move {
            let answer = self.call(None, &reads::Branches { job }).await?;
            Ok(answer.branches.into_iter().map(Branch::from).collect())
        })
    }

    fn branch_children<'a>(&'a self, filter: &'a BranchChildFilter) -> Fut<'a, Vec<BranchChild>> {
        Box::pin(self.read_branch_children(filter))
    }

    /// An error: a worker of a server sends no SQL.
    fn source_rows<'a>(
        &'a self,
        source: &'a TableSource,
        _after: Option<&'a str>,
        _limit: usize,
    ) -> Fut<'a, Vec<SourceRow>> {
        let what = format!("reading rows of {}", source.from);
        Box::pin(std::future::ready(Err(no_transactions(&what))))
    }

    fn clock(&self) -> Fut<'_, Time> {
        Box::pin(async move { Ok(self.call(None, &reads::Clock {}).await?.now) })
    }
}
