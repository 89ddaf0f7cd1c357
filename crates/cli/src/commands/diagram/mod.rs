//! `windlass diagram`: draws the transitions of machines and the calls of workflows as Mermaid diagrams.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::json;
use windlass::{
    JobId,
    store::{Filter, Inspect, Job},
};

use crate::{out, program::Program, resolve};

mod mermaid;
mod workflow;

/// Print a Mermaid diagram of a machine or workflow, or of all of a kind
///
/// A machine's diagram has its transitions; a workflow's has its calls and their status, and can be drawn as a picture (--svg).
/// It shows only what happened: the store does not know paths that no job has taken. For a kind there is one diagram per version,
/// with the number of jobs on each path.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").args(["job", "kind"]).required(true)))]
pub(crate) struct Args {
    /// The job: its id, kind/key, its key, or its name as a child of a branch
    job: Option<String>,
    /// All jobs of this kind, instead of one job
    #[arg(long)]
    kind: Option<String>,
    /// With --kind: only this version
    #[arg(long, value_name = "N", requires = "kind")]
    version: Option<i32>,
    /// With --kind: read this many of the newest jobs [default: 1000 machines, 200 workflows]
    #[arg(long, value_name = "N", requires = "kind", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: Option<u32>,
    /// For workflows: write a picture to this file; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How many machines of a kind are read by default.
const LIMIT: u32 = 1_000;
/// How many transitions of a job are read at a time.
const PAGE: usize = 5_000;
/// For how many machines of a kind the first stage is read: it takes one query each.
const FIRST_STAGES: usize = 20;

/// The transitions of machines.
#[derive(Serialize, Default)]
struct Graph {
    /// The version of the kind.
    version: i32,
    /// The first stages.
    starts: BTreeSet<String>,
    edges: Vec<Edge>,
    /// The stage of the one job that the diagram is of, if it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<Current>,
}

#[derive(Serialize)]
struct Edge {
    from: String,
    /// `None` is the end.
    to: Option<String>,
    outcome: String,
    times: u64,
}

#[derive(Serialize)]
struct Current {
    stage: String,
    state: String,
}

impl Graph {
    /// Sorts the edges breadth-first from the start; the edges to the end are last at their stage.
    fn sorted(mut self) -> Graph {
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

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let engine = program.reader().await?;
    match &args.job {
        Some(job) => {
            let id = resolve::job(job, &engine, program).await?;
            draw_job(&args, id, engine.inspect(), program).await?;
        }
        None => draw_kind(&args, engine.inspect(), program).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn draw_job(args: &Args, id: JobId, inspect: &dyn Inspect, program: &Program) -> anyhow::Result<()> {
    let Some(job) = inspect.job(id).await? else { bail!(program.no_job(id)) };
    let (kind, version) = (&job.summary.kind, job.summary.version);
    let title = format!("job {id}, {kind} version {version}");
    if let Some(graph) = workflow::graph_of_job(inspect, &job).await? {
        if args.json {
            return out::print_json(&json!({ "job": id, "kind": kind, "version": version, "graph": graph }));
        }
        return print_graph(args.svg.as_deref(), &graph, &title);
    }
    let graph = graph_of_job(inspect, &job).await?;
    if args.svg.is_some() {
        bail!(NO_PICTURE);
    }
    if args.json {
        let mut answer = serde_json::to_value(&graph)?;
        answer["job"] = json!(id);
        answer["kind"] = json!(kind);
        return out::print_json(&answer);
    }
    out::print(&mermaid::draw(&title, &graph, false))
}

async fn draw_kind(args: &Args, inspect: &dyn Inspect, program: &Program) -> anyhow::Result<()> {
    let kind = args.kind.as_deref().unwrap_or_default();
    let mut graphs = graphs_of_kind(inspect, kind, args.limit.unwrap_or(LIMIT) as usize).await?;
    graphs.retain(|graph| args.version.is_none_or(|version| version == graph.version));
    if graphs.is_empty() {
        return draw_workflows(args, kind, inspect, program).await;
    }
    if args.svg.is_some() {
        bail!(NO_PICTURE);
    }
    if args.json {
        return out::print_json(&json!({ "kind": kind, "versions": graphs }));
    }
    let draw = |graph: &Graph| mermaid::draw(&format!("{kind} version {}", graph.version), graph, true);
    out::print(&graphs.iter().map(draw).collect::<Vec<String>>().join("\n"))
}

const NO_PICTURE: &str =
    "only workflows can be drawn as pictures; leave --svg out, and draw the printed diagram with Mermaid";

async fn draw_workflows(
    args: &Args,
    kind: &str,
    inspect: &dyn Inspect,
    program: &Program,
) -> anyhow::Result<()> {
    let limit = args.limit.unwrap_or(workflow::LIMIT) as usize;
    let graphs = workflow::graphs_of_kind(inspect, kind, args.version, limit).await?;
    if args.json {
        let version_json = |(version, graph): &(i32, windlass::operate::graph::Graph)| json!({ "version": version, "graph": graph });
        let versions: Vec<serde_json::Value> = graphs.iter().map(version_json).collect();
        return out::print_json(&json!({ "kind": kind, "versions": versions }));
    }
    let title = |version: &i32, jobs: u64| format!("{kind} version {version}, {}", out::jobs(jobs));
    match graphs.as_slice() {
        [] => bail!(
            "no machine of kind {kind:?} has made a transition, and no workflow a call; `{} jobs --kind {kind}` lists its jobs",
            program.name
        ),
        [(version, graph)] => print_graph(args.svg.as_deref(), graph, &title(version, graph.jobs)),
        _ if args.svg.is_some() => {
            let versions: Vec<String> = graphs.iter().map(|(version, _)| version.to_string()).collect();
            bail!("there are jobs of the versions {}; choose one with --version", versions.join(", "))
        }
        graphs => {
            let draw = |(version, graph): &(i32, windlass::operate::graph::Graph)| {
                graph.to_mermaid(&title(version, graph.jobs))
            };
            out::print(&graphs.iter().map(draw).collect::<Vec<String>>().join("\n"))
        }
    }
}

/// Prints a graph, or writes it as a picture.
fn print_graph(
    svg: Option<&Path>,
    graph: &windlass::operate::graph::Graph,
    title: &str,
) -> anyhow::Result<()> {
    match svg {
        None => out::print(&graph.to_mermaid(title)),
        Some(path) if path == Path::new("-") => out::print(&graph.to_svg(title)),
        Some(path) => {
            std::fs::write(path, graph.to_svg(title))
                .with_context(|| format!("{} cannot be written", path.display()))?;
            out::note(&format!("written to {}", path.display()));
            Ok(())
        }
    }
}

/// The transitions of one job.
async fn graph_of_job(inspect: &dyn Inspect, job: &Job) -> anyhow::Result<Graph> {
    let Some(stage) = job.summary.stage.clone() else {
        bail!(
            "job {} is no machine or workflow, or has not started: it has no stage and no journal",
            job.summary.id
        );
    };
    let mut times: BTreeMap<(String, Option<String>, String), u64> = BTreeMap::new();
    let mut starts = BTreeSet::new();
    let mut after = None;
    loop {
        let page = inspect.transitions(job.summary.id, after, PAGE).await?;
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
        starts.insert(stage.clone());
    }
    let edges =
        times.into_iter().map(|((from, to, outcome), times)| Edge { from, to, outcome, times }).collect();
    let state = job.summary.state;
    let current = (!state.is_final()).then(|| Current { stage, state: state.to_string() });
    Ok(Graph { version: job.summary.version, starts, edges, current }.sorted())
}

/// The transitions of the newest machines of a kind, by version.
async fn graphs_of_kind(inspect: &dyn Inspect, kind: &str, limit: usize) -> anyhow::Result<Vec<Graph>> {
    let mut graphs: BTreeMap<i32, Graph> = BTreeMap::new();
    for path in inspect.transition_counts(kind, limit).await? {
        let graph = graphs.entry(path.version).or_default();
        graph.version = path.version;
        graph.edges.push(Edge { from: path.stage, to: path.next, outcome: path.outcome, times: path.times });
    }
    for (version, graph) in &mut graphs {
        // A first stage has no transition to it. One that is part of a cycle is found from the first transitions of jobs.
        let targets: BTreeSet<&String> = graph.edges.iter().filter_map(|edge| edge.to.as_ref()).collect();
        let starts = graph.edges.iter().map(|edge| &edge.from).filter(|from| !targets.contains(from));
        graph.starts = starts.cloned().collect();
        let (kind, version) = (Some(kind.to_owned()), Some(*version));
        let newest = Filter { kind, version, limit: FIRST_STAGES, ..Filter::default() };
        for job in inspect.jobs(&newest).await? {
            let first = inspect.transitions(job.id, None, 1).await?;
            graph.starts.extend(first.into_iter().map(|step| step.stage));
        }
    }
    Ok(graphs.into_values().map(Graph::sorted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_sorted_from_the_start() {
        let edge = |from: &str, to: Option<&str>| Edge {
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
        let graph =
            Graph { starts: BTreeSet::from(["Start".to_owned()]), edges, ..Graph::default() }.sorted();
        let text = |edge: &Edge| format!("{} {}", edge.from, edge.to.as_deref().unwrap_or("end"));
        let edges: Vec<String> = graph.edges.iter().map(text).collect();
        assert_eq!(edges, ["Start Mid", "Mid Start", "Mid Last", "Mid end", "Last end", "Apart end"]);
    }
}
