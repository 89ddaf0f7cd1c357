//! What people see of a store, from a server.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use windlass::{
    JobId, Time,
    operate::{
        AuditFilter, Found, Item, Why,
        alerts::{AlertsView, RuleView},
        diagram::{JobDiagram, KindDiagrams},
        views::{
            AuditPage, BranchesView, ChildList, EntryView, ItemFilter, ItemList, JobList, JobView, Queues,
            RateLimits, ScheduleDetails, Schedules, SerialKeys, SignalWaitsView, ThroughputRequest,
            ThroughputView,
        },
    },
    store::{Filter, SerialView, ThroughputBy, Token, User, WorkerView},
};
use windlass_http::Request;

use super::{Failure, Reply, Server, with};
use crate::client::NameError;

/// The most that one page of a list has.
const PAGE: usize = 1_000;

/// Adds the conditions of a filter to a query.
fn with_filter(request: Request, filter: &Filter) -> Request {
    let Filter { state, kind, queue, tag, key, key_prefix, error_class, .. } = filter;
    let Filter { stage, version, top, since, until, before, .. } = filter;
    let request = with(request, "state", *state);
    let request = with(request, "kind", kind.as_ref());
    let request = with(request, "queue", queue.as_ref());
    let request = with(request, "tag", tag.as_ref());
    let request = with(request, "key", key.as_ref());
    let request = with(request, "key_prefix", key_prefix.as_ref());
    let request = with(request, "error_class", error_class.as_ref());
    let request = with(request, "stage", stage.as_ref());
    let request = with(request, "version", *version);
    let request = with(request, "top", top.then_some(true));
    let request = with(request, "since", *since);
    let request = with(request, "until", *until);
    with(request, "before", *before)
}

/// Names as the API reads them; none are none.
fn names(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(","))
}

impl Server {
    pub(crate) async fn find(&self, name: &str) -> anyhow::Result<Result<Found, NameError>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Answer {
            Job(JobId),
            Item(Box<Item>),
        }
        if let Ok(id) = name.parse() {
            return Ok(Ok(Found::Job(id)));
        }
        match self.get(Request::get("/v1/find").query("name", name)).await {
            Ok(Reply { value: Answer::Job(id), .. }) => Ok(Ok(Found::Job(id))),
            Ok(Reply { value: Answer::Item(item), .. }) => Ok(Ok(Found::Packed(item))),
            Err(Failure::Refused(refusal)) if refusal.is_not_found() => Ok(Err(match name.contains('$') {
                true => NameError::NoSuchChild(refusal.text()),
                false => NameError::Unknown,
            })),
            Err(Failure::Refused(refusal)) if refusal.is_conflict() => {
                Ok(Err(NameError::Ambiguous(refusal.text())))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    pub(crate) async fn jobs(&self, filter: &Filter) -> anyhow::Result<JobList> {
        let page = async |limit: usize, before: Option<JobId>| {
            let of_page = Filter { before, ..filter.clone() };
            let request = with_filter(Request::get("/v1/jobs"), &of_page);
            self.get::<JobList>(request.query("limit", &limit.min(PAGE).to_string())).await
        };
        let Reply { value, now } = page(filter.limit, filter.before).await?;
        let mut list = JobList { now, ..value };
        // A page that is not full ends here too: the server has examined as many jobs as it examines for a list.
        let mut is_full = list.jobs.len() == PAGE;
        while let Some(next) = list.next_before.filter(|_| is_full && list.jobs.len() < filter.limit) {
            let more = page(filter.limit - list.jobs.len(), Some(next)).await?.value;
            is_full = more.jobs.len() == PAGE;
            list.jobs.extend(more.jobs);
            list.block_items.extend(more.block_items);
            list.next_before = more.next_before;
        }
        Ok(list)
    }

    pub(crate) async fn children(
        &self,
        parent: JobId,
        branch: Option<&str>,
        filter: &Filter,
        after: Option<JobId>,
    ) -> anyhow::Result<ChildList> {
        // What is read of a child has no tags and no error, and a child has a parent.
        let of_children = Filter { tag: None, error_class: None, top: false, before: None, ..filter.clone() };
        let page = async |limit: usize, after: Option<JobId>| {
            let request = with_filter(Request::get(Server::job_path(parent, "/children")), &of_children);
            let request = with(with(request, "branch", branch), "after", after);
            let request = request.query("limit", &limit.min(PAGE).to_string());
            self.get_of_known_job::<ChildList>(parent, request).await
        };
        let Reply { value, now } = page(filter.limit, after).await?;
        let mut list = ChildList { now, ..value };
        // As of jobs.
        let mut is_full = list.jobs.len() == PAGE;
        while let Some(next) = list.next_after.filter(|_| is_full && list.jobs.len() < filter.limit) {
            let more = page(filter.limit - list.jobs.len(), Some(next)).await?.value;
            is_full = more.jobs.len() == PAGE;
            list.jobs.extend(more.jobs);
            list.block_items.extend(more.block_items);
            list.next_after = more.next_after;
        }
        Ok(list)
    }

    pub(crate) async fn job(&self, id: JobId, entries: Option<usize>) -> anyhow::Result<Option<JobView>> {
        let wanted = entries.unwrap_or(PAGE);
        let request = Request::get(Server::job_path(id, "")).query("entries", &wanted.to_string());
        let Some(Reply { value: mut view, now }) = self.get_of_job::<JobView>(request).await? else {
            return Ok(None);
        };
        view.now = now;
        view.job = view.job.with_output();
        if entries.is_none() && view.workflow.omitted > 0 {
            let first = view.workflow.journal.first().map_or(i32::MAX, |entry| entry.seq);
            let earlier = self.journal_before(id, first).await?;
            view.workflow.journal.splice(0..0, earlier);
            (view.workflow.omitted, view.workflow.previous_at) = (0, None);
        }
        Ok(Some(view))
    }

    /// The entries of a journal before a position.
    async fn journal_before(&self, id: JobId, end: i32) -> anyhow::Result<Vec<EntryView>> {
        #[derive(Deserialize)]
        struct Page {
            journal: Vec<EntryView>,
            next_after: Option<i32>,
        }
        let (mut entries, mut after) = (Vec::new(), None);
        loop {
            let request = Request::get(Server::job_path(id, "/journal")).query("limit", &PAGE.to_string());
            let reply = self.get_of_known_job::<Page>(id, with(request, "after", after)).await?;
            let Page { journal, next_after } = reply.value;
            let is_last = next_after.is_none() || journal.last().is_some_and(|entry| entry.seq >= end);
            entries.extend(journal.into_iter().filter(|entry| entry.seq < end));
            if is_last {
                return Ok(entries);
            }
            after = next_after;
        }
    }

    pub(crate) async fn why(&self, id: JobId) -> anyhow::Result<Option<Why>> {
        let reply = self.get_of_job(Request::get(Server::job_path(id, "/why"))).await?;
        Ok(reply.map(|reply| reply.value))
    }

    pub(crate) async fn branches(
        &self,
        job: JobId,
        branch: Option<&str>,
        explain: bool,
    ) -> anyhow::Result<BranchesView> {
        let request = with(Request::get(Server::job_path(job, "/branches")), "branch", branch);
        let request = with(request, "explain", explain.then_some(true));
        Ok(self.get_of_known_job(job, request).await?.value)
    }

    pub(crate) async fn items(
        &self,
        job: JobId,
        branch: Option<&str>,
        only: ItemFilter,
        after: Option<&str>,
        limit: usize,
    ) -> anyhow::Result<ItemList> {
        let only = match only {
            ItemFilter::Failed => "failed",
            ItemFilter::Live => "live",
            ItemFilter::Done => "done",
            ItemFilter::All => "all",
        };
        let page = async |limit: usize, after: Option<&str>| {
            let request = Request::get(Server::job_path(job, "/items")).query("only", only);
            let request = with(with(request, "branch", branch), "after", after);
            let request = request.query("limit", &limit.min(PAGE).to_string());
            anyhow::Ok(self.get_of_known_job::<ItemList>(job, request).await?.value)
        };
        let mut list = page(limit, after).await?;
        // As of jobs.
        let mut is_full = list.children.len() == PAGE;
        while let Some(next) = list.next_after.clone().filter(|_| is_full && list.children.len() < limit) {
            let more = page(limit - list.children.len(), Some(&next)).await?;
            is_full = more.children.len() == PAGE;
            list.children.extend(more.children);
            list.next_after = more.next_after;
        }
        Ok(list)
    }

    pub(crate) async fn job_diagram(&self, id: JobId) -> anyhow::Result<Option<JobDiagram>> {
        let reply = self.get_of_job(Request::get(Server::job_path(id, "/diagram"))).await?;
        Ok(reply.map(|reply| reply.value))
    }

    pub(crate) async fn kind_diagrams(
        &self,
        kind: &str,
        version: Option<i32>,
        limit: Option<usize>,
    ) -> anyhow::Result<KindDiagrams> {
        let request = Request::get("/v1/diagrams").query("kind", kind);
        Ok(self.get(with(with(request, "version", version), "limit", limit)).await?.value)
    }

    pub(crate) async fn queues(&self) -> anyhow::Result<Queues> {
        let Reply { value, now } = self.get::<Queues>(Request::get("/v1/queues")).await?;
        Ok(Queues { now, ..value })
    }

    pub(crate) async fn throughput(&self, request: &ThroughputRequest) -> anyhow::Result<ThroughputView> {
        let ThroughputRequest { queues, kinds, since, by } = request;
        let by = match by {
            ThroughputBy::Minute => "minute",
            ThroughputBy::Hour => "hour",
            ThroughputBy::Kind => "kind",
        };
        let query = Request::get("/v1/throughput").query("by", by).query("since", &Server::span(*since));
        let query = with(query, "queue", names(queues));
        Ok(self.get(with(query, "kind", names(kinds))).await?.value)
    }

    pub(crate) async fn signal_waits(
        &self,
        kinds: &[String],
        signal: Option<&str>,
        since: Duration,
    ) -> anyhow::Result<SignalWaitsView> {
        let query = Request::get("/v1/signal-waits").query("since", &Server::span(since));
        Ok(self.get(with(with(query, "kind", names(kinds)), "signal", signal)).await?.value)
    }

    pub(crate) async fn rate_limits(&self) -> anyhow::Result<RateLimits> {
        Ok(self.get(Request::get("/v1/limits")).await?.value)
    }

    pub(crate) async fn serial_keys(&self, key: Option<&str>, limit: usize) -> anyhow::Result<SerialKeys> {
        #[derive(Deserialize)]
        struct Answer {
            keys: Vec<SerialView>,
            has_more: bool,
        }
        let request = with(Request::get("/v1/serial-keys"), "key", key);
        let Answer { keys, has_more } = self.get(with(request, "limit", Some(limit))).await?.value;
        Ok(SerialKeys { keys, has_more })
    }

    pub(crate) async fn schedules(&self) -> anyhow::Result<Schedules> {
        let Reply { value, now } = self.get::<Schedules>(Request::get("/v1/schedules")).await?;
        Ok(Schedules { now, ..value })
    }

    pub(crate) async fn schedule(&self, name: &str, limit: usize) -> anyhow::Result<Option<ScheduleDetails>> {
        let request =
            Request::get(Server::path("/v1/schedules", name, "")).query("limit", &limit.to_string());
        match self.get::<ScheduleDetails>(request).await {
            Ok(Reply { value, now }) => Ok(Some(ScheduleDetails { now, ..value })),
            Err(Failure::Refused(refusal)) if refusal.is_not_found() => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    pub(crate) async fn audit(&self, filter: &AuditFilter) -> anyhow::Result<AuditPage> {
        let page = async |limit: usize, before: Option<i64>| {
            let request = with(Request::get("/v1/audit"), "subject", filter.subject.as_ref());
            let request = with(request, "before", before).query("limit", &limit.min(PAGE).to_string());
            self.get::<AuditPage>(request).await
        };
        let Reply { value, now } = page(filter.limit, filter.before).await?;
        let mut all = AuditPage { now, ..value };
        while let Some(next) = all.next_before.filter(|_| all.entries.len() < filter.limit) {
            let more = page(filter.limit - all.entries.len(), Some(next)).await?.value;
            all.entries.extend(more.entries);
            all.next_before = more.next_before;
        }
        Ok(all)
    }

    pub(crate) async fn tokens(&self) -> anyhow::Result<(Vec<Token>, Time)> {
        let Reply { value, now } = self.get(Request::get("/v1/tokens")).await?;
        Ok((value, now))
    }

    pub(crate) async fn users(&self) -> anyhow::Result<(Vec<User>, Time)> {
        let Reply { value, now } = self.get(Request::get("/v1/users")).await?;
        Ok((value, now))
    }

    pub(crate) async fn alerts(&self, limit: usize, only_open: bool) -> anyhow::Result<AlertsView> {
        let request = Request::get("/v1/alerts").query("limit", &limit.clamp(1, PAGE).to_string());
        let Reply { value, now } =
            self.get::<AlertsView>(with(request, "open", only_open.then_some(true))).await?;
        Ok(AlertsView { now, ..value })
    }

    pub(crate) async fn alert_rules(&self) -> anyhow::Result<Vec<RuleView>> {
        Ok(self.get(Request::get("/v1/alerts/rules")).await?.value)
    }

    pub(crate) async fn has_worker(&self) -> anyhow::Result<bool> {
        let workers: Vec<WorkerView> = self.get(Request::get("/v1/workers")).await?.value;
        Ok(workers.iter().any(|worker| worker.alive))
    }
}

/// A body with the fields that have a value.
pub(super) fn body(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect())
}
