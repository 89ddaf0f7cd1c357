//! `windlass diagram`: draws the transitions of machines and the calls of workflows as Mermaid diagrams.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use windlass::{
    JobId,
    operate::{
        diagram::{JobDiagram, KindDiagrams, Transitions, WorkflowDiagram},
        graph::Graph,
    },
};

use crate::{client::Client, out, program::Program, resolve};

mod mermaid;

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

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client().await?;
    match &args.job {
        Some(job) => {
            let id = resolve::job(job, &client, program).await?;
            draw_job(&args, id, &client, program).await?;
        }
        None => draw_kind(&args, &client, program).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn draw_job(args: &Args, id: JobId, client: &Client, program: &Program) -> anyhow::Result<()> {
    let Some(diagram) = client.job_diagram(id).await? else { bail!(program.no_job(id)) };
    let JobDiagram { kind, version, machine, workflow, .. } = diagram;
    let title = format!("job {id}, {kind} version {version}");
    if let Some(graph) = workflow {
        if args.json {
            return out::print_json(&json!({ "job": id, "kind": kind, "version": version, "graph": graph }));
        }
        return print_graph(args.svg.as_deref(), &graph, &title);
    }
    let Some(graph) = machine else {
        bail!("job {id} is no machine or workflow, or has not started: it has no stage and no journal");
    };
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

async fn draw_kind(args: &Args, client: &Client, program: &Program) -> anyhow::Result<()> {
    let kind = args.kind.as_deref().unwrap_or_default();
    let limit = args.limit.map(|limit| limit as usize);
    let KindDiagrams { machines, workflows } = client.kind_diagrams(kind, args.version, limit).await?;
    if machines.is_empty() {
        return draw_workflows(args, kind, &workflows, program);
    }
    if args.svg.is_some() {
        bail!(NO_PICTURE);
    }
    if args.json {
        return out::print_json(&json!({ "kind": kind, "versions": machines }));
    }
    let draw = |graph: &Transitions| mermaid::draw(&format!("{kind} version {}", graph.version), graph, true);
    out::print(&machines.iter().map(draw).collect::<Vec<String>>().join("\n"))
}

const NO_PICTURE: &str =
    "only workflows can be drawn as pictures; leave --svg out, and draw the printed diagram with Mermaid";

fn draw_workflows(
    args: &Args,
    kind: &str,
    diagrams: &[WorkflowDiagram],
    program: &Program,
) -> anyhow::Result<()> {
    if args.json {
        let version_json =
            |diagram: &WorkflowDiagram| json!({ "version": diagram.version, "graph": diagram.graph });
        let versions: Vec<Value> = diagrams.iter().map(version_json).collect();
        return out::print_json(&json!({ "kind": kind, "versions": versions }));
    }
    let title = |WorkflowDiagram { version, graph }: &WorkflowDiagram| {
        format!("{kind} version {version}, {}", out::jobs(graph.jobs))
    };
    match diagrams {
        [] => bail!(
            "no machine of kind {kind:?} has made a transition, and no workflow a call; `{} jobs --kind {kind}` lists its jobs",
            program.name
        ),
        [diagram] => print_graph(args.svg.as_deref(), &diagram.graph, &title(diagram)),
        _ if args.svg.is_some() => {
            let versions: Vec<String> = diagrams.iter().map(|diagram| diagram.version.to_string()).collect();
            bail!("there are jobs of the versions {}; choose one with --version", versions.join(", "))
        }
        diagrams => {
            let draw = |diagram: &WorkflowDiagram| diagram.graph.to_mermaid(&title(diagram));
            out::print(&diagrams.iter().map(draw).collect::<Vec<String>>().join("\n"))
        }
    }
}

/// Prints a graph, or writes it as a picture.
fn print_graph(svg: Option<&Path>, graph: &Graph, title: &str) -> anyhow::Result<()> {
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
