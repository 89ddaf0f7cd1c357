//! Compares table layouts for the job store on PostgreSQL and SQLite.
//!
//! Every layout lives through the same 100,000 jobs: they are submitted in batches of 1,000, claimed in batches
//! of 500 and committed in batches of 500. The layouts take turns in every repeat, so that noise hits all alike.
//! The results are in `docs/decisions/0001-table-layout.md`.

mod job;
mod pg;
mod report;
mod sqlite;

use std::fs::File;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use job::{CLAIM_BATCH, IdKind};
use report::{Latency, Sample};

/// Compares table layouts for the job store.
#[derive(Parser)]
struct Options {
    /// PostgreSQL URL of a superuser on a server that this program may fill, checkpoint and slow down.
    #[arg(long)]
    pg: Option<String>,
    /// SQLite file to write; an existing one is replaced.
    #[arg(long)]
    sqlite: Option<PathBuf>,
    /// Jobs in each run.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Lanes to which the jobs are dealt in turn.
    #[arg(long, default_value_t = 4)]
    lanes: i32,
    /// Runs of every layout.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// What to measure.
    #[arg(long, value_enum, default_value_t = Part::All)]
    part: Part,
    /// Only the layouts whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// File to which all samples are appended as JSON lines.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A part of the experiment.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All layouts and kinds of id.
    Layouts,
    /// Fill factor, batch size, connections and claim choices of R3 on PostgreSQL.
    Tuning,
    /// Claim latency of R3 on a large PostgreSQL store.
    Latency,
    /// Everything.
    All,
}

/// A run that can be repeated.
enum Run {
    Pg(pg::Shape, pg::Flow),
    Sqlite(sqlite::Shape),
}

/// The flow of the comparison.
const FLOW: pg::Flow = pg::Flow { claim_batch: CLAIM_BATCH, commit_batch: 500, connections: 2, floor: false };

/// The layouts and kinds of id.
fn layouts() -> Vec<(&'static str, Run)> {
    use pg::{Layout as P, Shape};
    use sqlite::{Keys, Layout as S};
    let pg = |layout| Run::Pg(Shape::plain(layout), FLOW);
    let lite = |layout, keys| Run::Sqlite(sqlite::Shape { layout, keys });
    vec![
        ("W", pg(P::W)),
        ("R1", pg(P::R1)),
        ("R1 without worker index", pg(P::R1h)),
        ("R2", pg(P::R2)),
        ("R3", pg(P::R3)),
        ("R3 bigint id", Run::Pg(Shape { ids: IdKind::Number, ..Shape::plain(P::R3) }, FLOW)),
        ("A", pg(P::A)),
        ("W", lite(S::W, Keys::Blob)),
        ("R1", lite(S::R1, Keys::Blob)),
        ("R2", lite(S::R2, Keys::Blob)),
        ("R3", lite(S::R3, Keys::Blob)),
        ("R3 integer id", lite(S::R3, Keys::Integer)),
        ("R3 rowid + unique blob id", lite(S::R3, Keys::Indexed)),
        ("R3 blob id, refers by rowid", lite(S::R3, Keys::Pair)),
        ("A", lite(S::A, Keys::Blob)),
    ]
}

/// The choices within R3 on PostgreSQL.
fn tuning() -> Vec<(&'static str, Run)> {
    let base = pg::Shape::plain(pg::Layout::R3);
    let fill = |fillfactor| Run::Pg(pg::Shape { fillfactor, ..base }, FLOW);
    let commit = |commit_batch| Run::Pg(base, pg::Flow { commit_batch, ..FLOW });
    let all = |fillfactor| {
        Run::Pg(pg::Shape { fillfactor, compress: false, ..base }, pg::Flow { floor: true, ..FLOW })
    };
    vec![
        ("R3 fillfactor 100", fill(100)),
        ("R3 fillfactor 90", fill(90)),
        ("R3 fillfactor 70", fill(70)),
        ("R3 fillfactor 50", fill(50)),
        ("R3 commit 100", commit(100)),
        ("R3 commit 500", commit(500)),
        ("R3 commit 1000", commit(1_000)),
        ("R3 one connection", Run::Pg(base, pg::Flow { connections: 1, ..FLOW })),
        ("R3 two connections", Run::Pg(base, FLOW)),
        ("R3 rank floor", Run::Pg(base, pg::Flow { floor: true, ..FLOW })),
        ("W rank floor", Run::Pg(pg::Shape::plain(pg::Layout::W), pg::Flow { floor: true, ..FLOW })),
        ("R3 claims not compressed", Run::Pg(pg::Shape { compress: false, ..base }, FLOW)),
        ("R3 claim without row locks", Run::Pg(pg::Shape { row_locks: false, ..base }, FLOW)),
        ("R3 fillfactor 70, rank floor, no compression", all(70)),
        ("R3 fillfactor 50, rank floor, no compression", all(50)),
    ]
}

/// Runs everything `repeat` times; each repeat starts with another layout.
async fn compare(options: &Options, runs: &[(&str, Run)], json: &mut Option<File>) -> Result<Vec<Sample>> {
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut samples = Vec::new();
    for repeat in 0..options.repeat {
        for turn in 0..runs.len() {
            let (name, run) = &runs[(turn + repeat * 4) % runs.len()];
            let sample = match (run, &options.pg, &options.sqlite) {
                (Run::Pg(shape, flow), Some(url), _) if wanted(name) => {
                    Box::pin(pg::run(url, *shape, *flow, options.jobs, options.lanes)).await?
                }
                (Run::Sqlite(shape), _, Some(path)) if wanted(name) => {
                    sqlite::run(path, *shape, options.jobs, options.lanes)?
                }
                _ => continue,
            };
            let sample = Sample { layout: (*name).to_owned(), repeat, ..sample };
            eprintln!(
                "{} {} {}: submit {:.2} µs, drain {:.2} µs, load {:.2}",
                repeat, sample.store, name, sample.submit_us, sample.drain_us, sample.load
            );
            report::append(json.as_mut(), &sample)?;
            samples.push(sample);
        }
    }
    // In the order of the list, whatever layout the repeats began with.
    let place = |s: &Sample| {
        runs.iter()
            .position(|(name, run)| *name == s.layout && matches!(run, Run::Pg(..)) == (s.store != "SQLite"))
    };
    samples.sort_by_key(place);
    Ok(samples)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut json = match &options.json {
        Some(path) => Some(File::options().create(true).append(true).open(path)?),
        None => None,
    };
    println!("load average before: {:.2}\n", report::load());
    for (part, runs) in [(Part::Layouts, layouts()), (Part::Tuning, tuning())] {
        if options.part == part || options.part == Part::All {
            report::print(&compare(&options, &runs, &mut json).await?);
            println!();
        }
    }
    if let (Some(url), Part::Latency | Part::All) = (&options.pg, options.part) {
        let latencies: Vec<Latency> = Box::pin(pg::latency(url)).await?;
        for latency in &latencies {
            report::append(json.as_mut(), latency)?;
        }
        report::print_latencies(&latencies);
    }
    println!("\nload average after: {:.2}", report::load());
    Ok(())
}
