//! What machines and workflows did, as graphs: of one job, or of the newest jobs of a kind.
//!
//! A machine's graph has its transitions, a workflow's its calls (see [`crate::graph`]). Both contain only what happened.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, JournalEntry, State, WaitCondition, journal::CallKind};
use windlass_store::{Branch, Filter, Inspect, Job, JobPage};
use windlass_workflow::Error;

use crate::{
    Operator,
    graph::{Graph, Run},
};

/// How many machines of a kind are read by default.
const MACHINES: usize = 1_000;
/// How many workflows of a kind are read by default; few, because their journals are read too.
const WORKFLOWS: usize = 200;
/// How many transitions of a job are read at a time.
const TRANSITIONS: usize = 5_000;
/// How many jobs are read at a time.
const PAGE: usize = 500;
/// For how many machines of a kind the first stage is read: it takes one query each.
const FIRST_STAGES: usize = 20;

/// The diagram of one job: of a machine, of a workflow, or of neither if it is a task or has not started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobDiagram {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// Its kind's version.
    pub version: i32,
    /// The transitions of a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Transitions>,
    /// The calls of a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Graph>,
}

/// The diagrams of the newest jobs of a kind, by version; of machines, or else of workflows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct KindDiagrams {
    /// Of machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Transitions>,
    /// Of workflows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workflows: Vec<WorkflowDiagram>,
}

/// The calls of the workflows of one version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WorkflowDiagram {
    /// The version of the kind.
    pub version: i32,
    /// The calls.
    pub graph: Graph,
}

/// The transitions of machines.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Transitions {
    /// The version of the kind.
    pub version: i32,
    /// The first stages.
    pub starts: BTreeSet<String>,
    /// The transitions, breadth-first from the start.
    pub edges: Vec<TransitionEdge>,
    /// The stage of the one job that the diagram is of, if it has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<CurrentStage>,
}

/// A transition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransitionEdge {
    /// The stage that ran.
    pub from: String,
    /// The stage that it led to; `None` is the end.
    pub to: Option<String>,
    /// How.
    pub outcome: String,
    /// How often.
    pub times: u64,
}

/// Where one machine is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CurrentStage {
    /// Its stage.
    pub stage: String,
    /// Its state.
    pub state: String,
}

impl JobDiagram {
    /// Reads it; `None` if there is no such job.
    pub async fn read(operator: &Operator, id: JobId) -> Result<Option<JobDiagram>, Error> {
        let inspect = operator.inspect();
        let Some(job) = inspect.job(id).await? else { return Ok(None) };
        let workflow = graph_of_job(inspect, &job).await?;
        let machine = match (&workflow, &job.summary.stage) {
            (None, Some(stage)) => Some(transitions_of_job(inspect, &job, stage).await?),
            _ => None,
        };
        let (kind, version) = (job.summary.kind, job.summary.version);
        Ok(Some(JobDiagram { job: id, kind, version, machine, workflow }))
    }
}

impl KindDiagrams {
    /// Reads the newest `limit` jobs of a kind, of one version or of all.
    pub async fn read(
        operator: &Operator,
        kind: &str,
        version: Option<i32>,
        limit: Option<usize>,
    ) -> Result<KindDiagrams, Error> {
        let inspect = operator.inspect();
        let mut machines = transitions_of_kind(inspect, kind, limit.unwrap_or(MACHINES)).await?;
        machines.retain(|graph| version.is_none_or(|version| version == graph.version));
        if !machines.is_empty() {
            return Ok(KindDiagrams { machines, workflows: Vec::new() });
        }
        let workflows = graphs_of_kind(inspect, kind, version, limit.unwrap_or(WORKFLOWS)).await?;
        Ok(KindDiagrams { machines, workflows })
    }
}

impl Transitions {
    /// Sorts the edges breadth-first from the start; the edges to the end are last at their stage.
    fn sorted(mut self) -> Transitions {
        let mut reached: Vec<String> = self.starts.iter().cloned().collect();
        let mut next = 0;
        while let Some(from) = reached.get(next).cloned() {
            let targets =
                self.edges.iter().filter(|edge| edge.from == from).filter_map(|edge| edge.to.as_ref());
            for to in targets {
                if !reached.contains(to) {
                    reached.push(to.clone());
                }
            }
            next += 1;
        }
        let position =
            |stage: &String| reached.iter().position(|other| other == stage).unwrap_or(reached.len());
        self.edges.sort_by_key(|edge| (position(&edge.from), edge.to.as_ref().map_or(usize::MAX, position)));
        self
    }
}

/// The transitions of one job, which is in this stage.
async fn transitions_of_job(inspect: &dyn Inspect, job: &Job, stage: &str) -> Result<Transitions, Error> {
    let mut times: BTreeMap<(String, Option<String>, String), u64> = BTreeMap::new();
    let mut starts = BTreeSet::new();
    let mut after = None;
    loop {
        let page = inspect.transitions(job.summary.id, after, TRANSITIONS).await?;
        if after.is_none() {
            starts.extend(page.first().map(|step| step.stage.clone()));
        }
        let Some(last) = page.last().map(|step| step.rev) else { break };
        after = Some(last);
        for step in page {
            *times.entry((step.stage, step.next, step.outcome)).or_default() += 1;
        }
    }
    if starts.is_empty() {
        starts.insert(stage.to_owned());
    }
    let edge = |((from, to, outcome), times)| TransitionEdge { from, to, outcome, times };
    let edges = times.into_iter().map(edge).collect();
    let state = job.summary.state;
    let current =
        (!state.is_final()).then(|| CurrentStage { stage: stage.to_owned(), state: state.to_string() });
    Ok(Transitions { version: job.summary.version, starts, edges, current }.sorted())
}

/// The transitions of the newest machines of a kind, by version.
async fn transitions_of_kind(
    inspect: &dyn Inspect,
    kind: &str,
    limit: usize,
) -> Result<Vec<Transitions>, Error> {
    let mut graphs: BTreeMap<i32, Transitions> = BTreeMap::new();
    for path in inspect.transition_counts(kind, limit).await? {
        let graph = graphs.entry(path.version).or_default();
        graph.version = path.version;
        let (from, to, outcome, times) = (path.stage, path.next, path.outcome, path.times);
        graph.edges.push(TransitionEdge { from, to, outcome, times });
    }
    for (version, graph) in &mut graphs {
        // A first stage has no transition to it. One that is part of a cycle is found from the first transitions of jobs.
        let targets: BTreeSet<&String> = graph.edges.iter().filter_map(|edge| edge.to.as_ref()).collect();
        let starts = graph.edges.iter().map(|edge| &edge.from).filter(|from| !targets.contains(from));
        graph.starts = starts.cloned().collect();
        let (kind, version) = (Some(kind.to_owned()), Some(*version));
        let newest = Filter { kind, version, limit: FIRST_STAGES, ..Filter::default() };
        for job in inspect.jobs(&newest).await?.jobs {
            let first = inspect.transitions(job.id, None, 1).await?;
            graph.starts.extend(first.into_iter().map(|step| step.stage));
        }
    }
    Ok(graphs.into_values().map(Transitions::sorted).collect())
}

/// The calls of one job; `None` if it is no workflow, or has not started.
async fn graph_of_job(inspect: &dyn Inspect, job: &Job) -> Result<Option<Graph>, Error> {
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
async fn graphs_of_kind(
    inspect: &dyn Inspect,
    kind: &str,
    version: Option<i32>,
    limit: usize,
) -> Result<Vec<WorkflowDiagram>, Error> {
    let mut runs: BTreeMap<i32, Vec<Records>> = BTreeMap::new();
    let mut filter = Filter { kind: Some(kind.to_owned()), version, ..Filter::default() };
    let mut left = limit;
    while left > 0 {
        filter.limit = left.min(PAGE);
        let JobPage { jobs, next } = inspect.jobs(&filter).await?;
        left -= jobs.len();
        for summary in &jobs {
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
        if next.is_none() {
            break;
        }
        filter.before = next;
    }
    let diagram = |(version, runs): (&i32, &Vec<Records>)| {
        let graph = Graph::of_kind(runs.iter().map(Records::run));
        WorkflowDiagram { version: *version, graph }
    };
    Ok(runs.iter().map(diagram).collect())
}

/// The branches of a job, read only if its journal has a branch.
async fn branches(inspect: &dyn Inspect, id: JobId, entries: &[JournalEntry]) -> Result<Vec<Branch>, Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_sorted_from_the_start() {
        let edge = |from: &str, to: Option<&str>| TransitionEdge {
            from: from.into(),
            to: to.map(String::from),
            outcome: "next".into(),
            times: 1,
        };
        let edges = vec![
            edge("Apart", None),
            edge("Last", None),
            edge("Mid", None),
            edge("Mid", Some("Start")),
            edge("Mid", Some("Last")),
            edge("Start", Some("Mid")),
        ];
        let starts = BTreeSet::from(["Start".to_owned()]);
        let graph = Transitions { starts, edges, ..Transitions::default() }.sorted();
        let text = |edge: &TransitionEdge| format!("{} {}", edge.from, edge.to.as_deref().unwrap_or("end"));
        let edges: Vec<String> = graph.edges.iter().map(text).collect();
        assert_eq!(edges, ["Start Mid", "Mid Start", "Mid Last", "Mid end", "Last end", "Apart end"]);
    }
}
