//! Graphs of the calls of workflows.

use std::collections::BTreeMap;

use windlass::{
    JobId, State,
    model::{JournalEntry, WaitCondition, journal::CallKind},
    operate::graph::{Graph, Run},
    store::{Branch, Filter, Inspect, Job},
};

/// How many workflows of a kind are read by default; few, because their journals are read too.
pub(super) const LIMIT: u32 = 200;
/// How many jobs are read at a time.
const PAGE: usize = 500;

/// The calls of one job; `None` if it is no workflow, or has not started.
pub(super) async fn graph_of_job(inspect: &dyn Inspect, job: &Job) -> anyhow::Result<Option<Graph>> {
    let entries = inspect.journal(job.summary.id, None, usize::MAX).await?;
    // A workflow whose first call waits for a signal has no entries yet.
    let parked = job.summary.stage.is_none() && job.summary.state == State::Waiting;
    if entries.is_empty() && !parked {
        return Ok(None);
    }
    let (state, wait, branches) =
        (job.summary.state, job.wait.clone(), branches(inspect, job.summary.id, &entries).await?);
    Ok(Some(Graph::of_job(Records { entries, state, wait, branches }.run())))
}

/// The calls of the newest jobs of a kind, by version.
pub(super) async fn graphs_of_kind(
    inspect: &dyn Inspect,
    kind: &str,
    version: Option<i32>,
    limit: usize,
) -> anyhow::Result<Vec<(i32, Graph)>> {
    let mut runs: BTreeMap<i32, Vec<Records>> = BTreeMap::new();
    let mut filter = Filter { kind: Some(kind.to_owned()), version, ..Filter::default() };
    let mut left = limit;
    while left > 0 {
        filter.limit = left.min(PAGE);
        let page = inspect.jobs(&filter).await?;
        filter.before = page.last().map(|job| job.id);
        left -= page.len();
        for summary in &page {
            let entries = inspect.journal(summary.id, None, usize::MAX).await?;
            let wait = match summary.state {
                State::Waiting => inspect.job(summary.id).await?.and_then(|job| job.wait),
                _ => None,
            };
            if !entries.is_empty() || wait.is_some() {
                let (state, branches) = (summary.state, branches(inspect, summary.id, &entries).await?);
                runs.entry(summary.version).or_default().push(Records { entries, state, wait, branches });
            }
        }
        if page.len() < filter.limit {
            break;
        }
    }
    let graph = |runs: &Vec<Records>| Graph::of_kind(runs.iter().map(Records::run));
    Ok(runs.iter().map(|(version, runs)| (*version, graph(runs))).collect())
}

/// The branches of a job, read only if its journal has a branch.
async fn branches(inspect: &dyn Inspect, id: JobId, entries: &[JournalEntry]) -> anyhow::Result<Vec<Branch>> {
    match entries.iter().any(|entry| entry.call_kind == CallKind::Branch) {
        true => Ok(inspect.branches(id).await?),
        false => Ok(Vec::new()),
    }
}

/// What the store has about one job.
struct Records {
    entries: Vec<JournalEntry>,
    state: State,
    wait: Option<WaitCondition>,
    branches: Vec<Branch>,
}

impl Records {
    fn run(&self) -> Run<'_> {
        Run { entries: &self.entries, state: self.state, wait: self.wait.as_ref(), branches: &self.branches }
    }
}
