//! `windlass diagram`: the transitions that machines made, and the calls that workflows made, as Mermaid diagrams.

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

use crate::{named, out, place::Place};

mod mermaid;
mod workflow;

/// Print what a machine or workflow did, or those of a kind, as a Mermaid diagram
///
/// Of machines it shows the transitions, of workflows the calls and how far they got; of those also as a picture (--svg). Only
/// what happened is in it: a path that no job has gone yet is not known to the store. For a kind there is one diagram per
/// version, with how many jobs went which way.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").args(["job", "kind"]).required(true)))]
pub(crate) struct Args {
    /// The job: its id, its key, or what it is called as a child of a branch
    job: Option<String>,
    /// All jobs of this kind, instead of one job
    #[arg(long)]
    kind: Option<String>,
    /// With --kind: only this version
    #[arg(long, value_name = "N", requires = "kind")]
    version: Option<i32>,
    /// With --kind: look at so many of the newest [default: 1000 machines, 200 workflows]
    #[arg(long, value_name = "N", requires = "kind", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: Option<u32>,
    /// Of workflows: write a picture to this file, or to standard output if it is `-`
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How many machines of a kind are looked at unless something else is said.
const LIMIT: u32 = 1_000;
/// How many transitions of a job are read at a time.
const PAGE: usize = 5_000;
/// Of how many machines of a kind the first stage is looked up.
const BEGUN: usize = 20;

/// What machines did: all that a diagram shows.
#[derive(Serialize, Default)]
struct Graph {
    /// The version of the kind.
    version: i32,
    /// Where machines start.
    starts: BTreeSet<String>,
    edges: Vec<Edge>,
    /// Where the one job is that the diagram is of, if it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    here: Option<Here>,
}

#[derive(Serialize)]
struct Edge {
    from: String,
    /// `None` is the end.
    to: Option<String>,
    how: String,
    times: u64,
}

#[derive(Serialize)]
struct Here {
    stage: String,
    state: String,
}

impl Graph {
    /// Puts the edges in the order in which one comes by them from the start; ends stand last at their state.
    fn in_order(mut self) -> Graph {
        let mut met: Vec<String> = self.starts.iter().cloned().collect();
        let mut next = 0;
        while let Some(from) = met.get(next).cloned() {
            let leads =
                self.edges.iter().filter(|edge| edge.from == from).filter_map(|edge| edge.to.as_ref());
            for to in leads {
                if !met.contains(to) {
                    met.push(to.clone());
                }
            }
            next += 1;
        }
        let place = |stage: &String| met.iter().position(|met| met == stage).unwrap_or(met.len());
        self.edges.sort_by_key(|edge| (place(&edge.from), edge.to.as_ref().map_or(usize::MAX, place)));
        self
    }
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    match &args.job {
        Some(job) => {
            let id = named::own(job, &engine, place).await?;
            draw_job(&args, id, engine.inspect(), place).await?;
        }
        None => draw_kind(&args, engine.inspect(), place).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn draw_job(args: &Args, id: JobId, inspect: &dyn Inspect, place: &Place) -> anyhow::Result<()> {
    let Some(job) = inspect.job(id).await? else { bail!(place.no_job(id)) };
    let (kind, version) = (&job.summary.kind, job.summary.version);
    let title = format!("job {id}, {kind} version {version}");
    if let Some(graph) = workflow::of_job(inspect, &job).await? {
        if args.json {
            return out::print_json(&json!({ "job": id, "kind": kind, "version": version, "graph": graph }));
        }
        return picture(args.svg.as_deref(), &graph, &title);
    }
    let graph = of_job(inspect, &job).await?;
    if args.svg.is_some() {
        bail!(NO_PICTURE);
    }
    if args.json {
        let mut told = serde_json::to_value(&graph)?;
        told["job"] = json!(id);
        told["kind"] = json!(kind);
        return out::print_json(&told);
    }
    out::print(&mermaid::draw(&title, &graph, false))
}

async fn draw_kind(args: &Args, inspect: &dyn Inspect, place: &Place) -> anyhow::Result<()> {
    let kind = args.kind.as_deref().unwrap_or_default();
    let mut graphs = of_kind(inspect, kind, args.limit.unwrap_or(LIMIT) as usize).await?;
    graphs.retain(|graph| args.version.is_none_or(|version| version == graph.version));
    if graphs.is_empty() {
        return draw_workflows(args, kind, inspect, place).await;
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

const NO_PICTURE: &str = "only workflows are drawn as pictures; leave --svg out, and give what is printed to whatever draws Mermaid";

async fn draw_workflows(args: &Args, kind: &str, inspect: &dyn Inspect, place: &Place) -> anyhow::Result<()> {
    let limit = args.limit.unwrap_or(workflow::LIMIT) as usize;
    let graphs = workflow::of_kind(inspect, kind, args.version, limit).await?;
    if args.json {
        let told =
            |(version, graph): &(i32, windlass::graph::Graph)| json!({ "version": version, "graph": graph });
        let versions: Vec<serde_json::Value> = graphs.iter().map(told).collect();
        return out::print_json(&json!({ "kind": kind, "versions": versions }));
    }
    let title = |version: &i32, jobs: u64| format!("{kind} version {version}, {}", out::jobs(jobs));
    match graphs.as_slice() {
        [] => bail!(
            "no machine of kind {kind:?} has made a transition, and no workflow a call; `{} jobs --kind {kind}` lists its jobs",
            place.program
        ),
        [(version, graph)] => picture(args.svg.as_deref(), graph, &title(version, graph.jobs)),
        _ if args.svg.is_some() => {
            let versions: Vec<String> = graphs.iter().map(|(version, _)| version.to_string()).collect();
            bail!("there are jobs of the versions {}; say which with --version", versions.join(", "))
        }
        graphs => {
            let draw = |(version, graph): &(i32, windlass::graph::Graph)| {
                graph.to_mermaid(&title(version, graph.jobs))
            };
            out::print(&graphs.iter().map(draw).collect::<Vec<String>>().join("\n"))
        }
    }
}

/// Prints a graph, or writes it as a picture.
fn picture(svg: Option<&Path>, graph: &windlass::graph::Graph, title: &str) -> anyhow::Result<()> {
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
async fn of_job(inspect: &dyn Inspect, job: &Job) -> anyhow::Result<Graph> {
    let Some(stage) = job.summary.stage.clone() else {
        bail!(
            "job {} is no machine or workflow, or one that has not begun: it has no stage and no journal",
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
            *times.entry((step.stage, step.next, step.how)).or_default() += 1;
        }
    }
    if starts.is_empty() {
        starts.insert(stage.clone());
    }
    let edges = times.into_iter().map(|((from, to, how), times)| Edge { from, to, how, times }).collect();
    let state = job.summary.state;
    let here = (!state.is_final()).then(|| Here { stage, state: state.to_string() });
    Ok(Graph { version: job.summary.version, starts, edges, here }.in_order())
}

/// The transitions of the newest machines of a kind, by version.
async fn of_kind(inspect: &dyn Inspect, kind: &str, limit: usize) -> anyhow::Result<Vec<Graph>> {
    let mut graphs: BTreeMap<i32, Graph> = BTreeMap::new();
    for path in inspect.transition_counts(kind, limit).await? {
        let graph = graphs.entry(path.version).or_default();
        graph.version = path.version;
        graph.edges.push(Edge { from: path.stage, to: path.next, how: path.how, times: path.times });
    }
    for (version, graph) in &mut graphs {
        // A start is what nothing leads to. One that a circle leads back to is known by the machines that began there.
        let led: BTreeSet<&String> = graph.edges.iter().filter_map(|edge| edge.to.as_ref()).collect();
        let starts = graph.edges.iter().map(|edge| &edge.from).filter(|from| !led.contains(from));
        graph.starts = starts.cloned().collect();
        let (kind, version) = (Some(kind.to_owned()), Some(*version));
        let newest = Filter { kind, version, limit: BEGUN, ..Filter::default() };
        for job in inspect.jobs(&newest).await? {
            let first = inspect.transitions(job.id, None, 1).await?;
            graph.starts.extend(first.into_iter().map(|step| step.stage));
        }
    }
    Ok(graphs.into_values().map(Graph::in_order).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_told_in_the_order_of_the_journey() {
        let edge = |from: &str, to: Option<&str>| Edge {
            from: from.into(),
            to: to.map(String::from),
            how: "next".into(),
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
            Graph { starts: BTreeSet::from(["Start".to_owned()]), edges, ..Graph::default() }.in_order();
        let told = |edge: &Edge| format!("{} {}", edge.from, edge.to.as_deref().unwrap_or("end"));
        let told: Vec<String> = graph.edges.iter().map(told).collect();
        assert_eq!(told, ["Start Mid", "Mid Start", "Mid Last", "Mid end", "Last end", "Apart end"]);
    }
}
