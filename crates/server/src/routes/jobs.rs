//! Reading jobs: lists, one with everything, explanations, records, results.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use windlass::{
    Filter, JobError, JobId, State, Time, Why,
    model::Rev,
    operate::views::{BranchesView, ChildList, ItemFilter, ItemList, JobList, JobView, JournalPage},
    store::Attempt,
};

use super::{Answer, READ, Route, filter::job_filter, page_limit};
use crate::{
    answers::{JobResult, TransitionPage, Unfinished},
    call::Call,
    error::{Error, ErrorKind},
    input::{Described, Span, input},
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    let get = Method::GET;
    let list = "List jobs, newest first, with how many there are in each state";
    let result = "The result of a job. With `wait` it waits for its end; 202 if it has not ended";
    vec![
        Route::new(get.clone(), "/v1/jobs", READ, "listJobs", list, list_jobs)
            .returns::<JobList>()
            .query::<JobsQuery>()
            .answers("Counts per state, the jobs, and `next_before` for the next page"),
        Route::new(get.clone(), "/v1/jobs/{job}", READ, "showJob", "Everything about a job", show)
            .returns::<JobView>()
            .query::<ShowQuery>()
            .answers("The job with its history, holds, inbox, journal and branches"),
        Route::new(
            get.clone(),
            "/v1/jobs/{job}/why",
            READ,
            "why",
            "Why a job is in its state, and what to do",
            why,
        )
        .returns::<Why>()
        .answers("The cause, a sentence, and what to do"),
        Route::new(
            get.clone(),
            "/v1/jobs/{job}/history",
            READ,
            "history",
            "The failed attempts of a job",
            history,
        )
        .returns::<Vec<Attempt>>()
        .answers("The attempts, oldest first"),
        Route::new(
            get.clone(),
            "/v1/jobs/{job}/transitions",
            READ,
            "transitions",
            "The transitions of a machine",
            transitions,
        )
        .returns::<TransitionPage>()
        .query::<TransitionsQuery>()
        .answers("The transitions, oldest first, and `next_after` for the next page"),
        Route::new(
            get.clone(),
            "/v1/jobs/{job}/journal",
            READ,
            "journal",
            "The journal of a workflow",
            journal,
        )
        .returns::<JournalPage>()
        .query::<JournalQuery>()
        .answers("The entries by position, at most 16 MiB of results, and `next_after` for the next page"),
        Route::new(get.clone(), "/v1/jobs/{job}/result", READ, "result", result, self::result)
            .returns::<JobResult>()
            .also_returns::<Unfinished>(StatusCode::ACCEPTED, "It has not ended")
            .query::<ResultQuery>()
            .answers("The state, with `output` or `failure` if it has ended"),
        Route::new(
            get.clone(),
            "/v1/jobs/{job}/children",
            READ,
            "children",
            "The jobs that a job submitted",
            children,
        )
        .returns::<ChildList>()
        .query::<ChildrenQuery>()
        .answers(
            "The children, oldest first, and `next_after` for the next page: 10,000 are examined for a page, which may be short, or empty, \
             and not the last",
        ),
        Route::new(
            get.clone(),
            "/v1/jobs/{job}/branches",
            READ,
            "branches",
            "How far the branches of a job are",
            branches,
        )
        .returns::<BranchesView>()
        .query::<BranchQuery>()
        .answers("The branches with their counts"),
        Route::new(
            get,
            "/v1/jobs/{job}/items",
            READ,
            "items",
            "The children of branches, those in blocks included",
            items,
        )
        .returns::<ItemList>()
        .query::<ItemsQuery>()
        .answers(
            "The children, and `next_after` for the next page: 10,000 are examined for a page, which may be short, or empty, and not the \
             last",
        ),
    ]
}

job_filter! {
    /// Which jobs to list.
    JobsQuery {
        /// Only older than this job: `next_before` of the previous page.
        before,
        /// At most this many, from 1 to 1,000 [default: 50].
        limit: Option<u32>,
    }
}

async fn list_jobs(call: Call) -> Answer {
    let query: JobsQuery = call.query()?;
    let limit = page_limit(query.limit)?;
    let filter = query.into_filter(limit);
    let list = JobList::read(call.operator(), &call.principal.limit(filter)?).await?;
    Reply::json_at(&list, list.now)
}

input! {
    /// How much of a job to show.
    ShowQuery {
        /// How many of the last entries of its journal, from 1 to 1,000 [default: 50].
        entries: Option<u32>,
    }
}

async fn show(call: Call) -> Answer {
    let query: ShowQuery = call.query()?;
    let (id, entries) = (call.job_id().await?, page_limit(query.entries)?);
    match JobView::read(&call.scoped_operator(), id, Some(entries)).await? {
        Some(view) => Reply::json_at(&view, view.now),
        None => Err(windlass::Error::NoSuchJob(id).into()),
    }
}

async fn why(call: Call) -> Answer {
    no_query(&call)?;
    let id = match call.job_id().await {
        // It may be an arrival: submitted in a transaction, and not admitted yet.
        Err(error) if error.is_no_such_job() && call.principal.scope.is_unlimited() => {
            call.path("job").parse().map_err(|_| error)?
        }
        id => id?,
    };
    Reply::json(&call.scoped_operator().why(id).await?.ok_or(windlass::Error::NoSuchJob(id))?)
}

async fn history(call: Call) -> Answer {
    no_query(&call)?;
    let id = call.job_id().await?;
    Reply::json(&call.engine().inspect().history(id).await?)
}

input! {
    /// Which transitions to list.
    TransitionsQuery {
        /// Only after this revision: `next_after` of the previous page.
        after: Option<i32>,
        /// At most this many, from 1 to 1,000 [default: 50].
        limit: Option<u32>,
    }
}

async fn transitions(call: Call) -> Answer {
    let TransitionsQuery { after, limit } = call.query()?;
    let (id, limit) = (call.job_id().await?, page_limit(limit)?);
    let mut page = call.engine().inspect().transitions(id, after.map(Rev), limit + 1).await?;
    let more = page.len() > limit;
    page.truncate(limit);
    let next_after = page.last().filter(|_| more).map(|transition| transition.rev);
    Reply::json(&json!({ "transitions": page, "next_after": next_after }))
}

input! {
    /// Which entries to list.
    JournalQuery {
        /// Only after this position: `next_after` of the previous page.
        after: Option<i32>,
        /// At most this many, from 1 to 1,000 [default: 50].
        limit: Option<u32>,
    }
}

async fn journal(call: Call) -> Answer {
    let JournalQuery { after, limit } = call.query()?;
    let (id, limit) = (call.job_id().await?, page_limit(limit)?);
    Reply::json(&JournalPage::read(call.operator(), id, after, limit).await?)
}

input! {
    /// How long to wait for a result.
    ResultQuery {
        /// Wait at most this long for the end of the job [default: 0s].
        wait: Option<Span>,
    }
}

async fn result(call: Call) -> Answer {
    let ResultQuery { wait } = call.query()?;
    let job = call.job().await?.summary;
    let wait = wait.map_or(Duration::ZERO, |span| span.0);
    let most = call.shared.settings.max_wait;
    if wait > most {
        return Err(Error::invalid(
            format!("{wait:?} is longer than the longest wait, {most:?}"),
            "ask again after it",
        ));
    }
    if !job.state.is_final() {
        if wait.is_zero() {
            return unfinished(job.id, job.state);
        }
        let _stream = call.start_waiting()?;
        let ended = tokio::select! {
            ended = tokio::time::timeout(wait, call.engine().result::<Value>(job.id)) => ended.ok(),
            () = call.shared.stopped() => None,
        };
        return match ended {
            Some(ended) => ended_result(job.id, ended),
            None => match call.engine().inspect().job(job.id).await? {
                Some(now) => unfinished(job.id, now.summary.state),
                None => Err(windlass::Error::NoSuchJob(job.id).into()),
            },
        };
    }
    ended_result(job.id, call.engine().result::<Value>(job.id).await)
}

fn unfinished(id: JobId, state: State) -> Answer {
    Reply::json_with(StatusCode::ACCEPTED, &json!({ "job": id, "state": state }))
}

fn ended_result(id: JobId, ended: Result<Value, JobError>) -> Answer {
    Reply::json(&match ended {
        Ok(output) => json!({ "job": id, "state": State::Done, "output": output }),
        Err(JobError::Failed { reason, failure, .. }) => {
            json!({ "job": id, "state": State::Failed, "reason": reason, "failure": failure })
        }
        Err(JobError::Cancelled(failure)) => {
            json!({ "job": id, "state": State::Cancelled, "failure": failure })
        }
        Err(JobError::Gone(id)) => return Err(windlass::Error::NoSuchJob(id).into()),
        // It was retried between two reads.
        Err(JobError::Unfinished(id)) => return unfinished(id, State::Ready),
        Err(JobError::Store(error)) => return Err(error.into()),
        Err(error @ (JobError::Unreadable { .. } | JobError::Undecodable { .. })) => {
            return Err(Error::new(
                ErrorKind::Conflict,
                error.to_string(),
                "read it with a program that has its codec",
            ));
        }
    })
}

input! {
    /// Which children to list.
    ChildrenQuery {
        /// Only of the branch of this name.
        branch: Option<String>,
        /// Only in this state.
        state: Option<State>,
        /// Only of this kind.
        kind: Option<String>,
        /// Only in this queue.
        queue: Option<String>,
        /// Only with this key.
        key: Option<String>,
        /// Only with a key that begins with this.
        key_prefix: Option<String>,
        /// Only machines in this stage.
        stage: Option<String>,
        /// Only of this version of their kind.
        version: Option<i32>,
        /// Only submitted at this time or later.
        since: Option<Time>,
        /// Only submitted before this time.
        until: Option<Time>,
        /// Only after this child: `next_after` of the previous page.
        after: Option<JobId>,
        /// At most this many, from 1 to 1,000 [default: 50].
        limit: Option<u32>,
    }
}

async fn children(call: Call) -> Answer {
    let query: ChildrenQuery = call.query()?;
    let ChildrenQuery { branch, state, kind, queue, key, key_prefix, stage, .. } = query;
    let ChildrenQuery { version, since, until, after, limit, .. } = query;
    let limit = page_limit(limit)?;
    let filter = Filter { state, kind, queue, key, key_prefix, stage, version, ..Filter::default() };
    let filter = call.principal.limit(Filter { since, until, limit, ..filter })?;
    let id = call.job_id().await?;
    let list = ChildList::read(call.operator(), id, branch.as_deref(), &filter, after).await?;
    Reply::json_at(&list, list.now)
}

input! {
    /// Which branches to show.
    BranchQuery {
        /// Only those of this name.
        branch: Option<String>,
        /// Whether to say why a branch in which no child ends has stalled [default: false].
        explain: Option<bool>,
    }
}

async fn branches(call: Call) -> Answer {
    let BranchQuery { branch, explain } = call.query()?;
    if explain == Some(true) {
        call.principal.check_unlimited("children of branches")?;
    }
    let id = call.job_id().await?;
    let mut view = BranchesView::read(call.operator(), id, branch.as_deref()).await?;
    if explain == Some(true) {
        view.explain_stalls(call.operator()).await?;
    }
    Reply::json(&view)
}

/// Which children of branches to list.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Only {
    Failed,
    Live,
    Done,
    All,
}

impl Described for Only {
    fn schema() -> Value {
        json!({ "type": "string", "enum": ["failed", "live", "done", "all"] })
    }
}

input! {
    /// Which children of branches to list.
    ItemsQuery {
        /// Only of the branch of this name.
        branch: Option<String>,
        /// Failed or cancelled ones, ones that have not ended, done ones, or all [default: all].
        only: Option<Only>,
        /// Only after this position: `next_after` of the previous page.
        after: Option<String>,
        /// At most this many, from 1 to 1,000 [default: 50].
        limit: Option<u32>,
    }
}

async fn items(call: Call) -> Answer {
    let ItemsQuery { branch, only, after, limit } = call.query()?;
    call.principal.check_unlimited("children of branches")?;
    let (id, limit) = (call.job_id().await?, page_limit(limit)?);
    let only = match only.unwrap_or(Only::All) {
        Only::Failed => ItemFilter::Failed,
        Only::Live => ItemFilter::Live,
        Only::Done => ItemFilter::Done,
        Only::All => ItemFilter::All,
    };
    let list = ItemList::read(call.operator(), id, branch.as_deref(), only, after.as_deref(), limit);
    Reply::json(&list.await?)
}

input! {
    /// Nothing.
    NoQuery {}
}

/// Refuses any parameter.
pub(super) fn no_query(call: &Call) -> Result<(), Error> {
    let NoQuery {} = call.query()?;
    Ok(())
}
