//! One action on jobs that are named, or on all that match filters: what `cancel`, `retry`, `pause`, `resume` and `priority`
//! share.
//!
//! Named jobs are acted on at once. With filters it is a bulk operation: it shows a preview, asks for confirmation, works in
//! batches at a bounded rate, can be interrupted, and reports the outcome of all jobs at the end.

use std::{process::ExitCode, sync::atomic::Ordering, time::Duration};

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{
    Control, ControlOutcome, Engine, JobId, State,
    operate::{Acted, BulkProgress, JobAction, Preview},
    store::Filter,
};

use crate::{
    args::{Actor, Filters},
    client::Client,
    commands::jobs,
    confirm::confirm,
    out,
    program::Program,
    progress::Progress,
    resolve,
    stop::{self, StopSignals},
};

/// Which jobs to act on, in whose name, and how.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// The jobs, by id, as kind/key, by key, or by their names as children of a branch; or select them with filters
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,
    #[command(flatten)]
    actor: Actor,
    /// With filters: only show the jobs that match
    #[arg(long)]
    dry_run: bool,
    /// With filters: do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// With filters: at most this many jobs per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Filters, instead of jobs")]
    filters: Filters,
    /// Every job in the store
    #[arg(long)]
    all: bool,
}

/// The verb for an action.
pub(crate) struct Verb {
    /// As in "cancel 3 jobs".
    pub(crate) infinitive: &'static str,
    /// As in "3 jobs were cancelled".
    pub(crate) participle: &'static str,
}

impl Target {
    /// Whether jobs are named rather than filtered.
    pub(crate) fn is_named(&self) -> bool {
        !self.jobs.is_empty()
    }

    fn is_filtered(&self) -> bool {
        self.all || !self.filters.is_empty()
    }

    /// Whether the answer is printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Who acts, and why.
    pub(crate) fn control(&self, engine: &Engine) -> Control {
        self.actor.control(engine)
    }

    /// Resolves the one job that is named, and opens an engine that can run it and serves no queue.
    pub(crate) async fn one_to_run(&self, program: &Program) -> anyhow::Result<(Engine, JobId)> {
        let [name] = self.jobs.as_slice() else {
            bail!("it runs one job; name one, or leave it out, so that workers run them")
        };
        if self.is_filtered() || self.dry_run || self.rate.is_some() {
            bail!("filters, --dry-run and --rate are for many jobs; leave them out");
        }
        let engine = program.runner().await?;
        let id = resolve::job(name, &Client::store(engine.clone(), program), program).await?;
        Ok((engine, id))
    }

    /// Resolves the named jobs, each once.
    async fn resolve(&self, program: &Program) -> anyhow::Result<(Client, Vec<JobId>)> {
        if self.dry_run || self.rate.is_some() {
            bail!("--dry-run and --rate work with filters only; named jobs are acted on at once");
        }
        if self.is_filtered() {
            bail!("both jobs and filters are given; use one or the other");
        }
        let (client, mut jobs) = (program.client().await?, Vec::new());
        for name in &self.jobs {
            let id = resolve::job(name, &client, program).await?;
            if !jobs.contains(&id) {
                jobs.push(id);
            }
        }
        Ok((client, jobs))
    }
}

/// Performs the action on the target.
pub(crate) async fn run(
    target: Target,
    action: JobAction,
    verb: Verb,
    program: &Program,
) -> anyhow::Result<ExitCode> {
    match (target.is_named(), target.is_filtered()) {
        (true, _) => act_on_named(&target, action, &verb, program).await,
        (false, true) => act_on_matching(&target, action, &verb, program).await,
        (false, false) => bail!(
            "no jobs are given; name them, select them with filters like --kind or --queue, or use --all for every job"
        ),
    }
}

async fn act_on_named(
    target: &Target,
    action: JobAction,
    verb: &Verb,
    program: &Program,
) -> anyhow::Result<ExitCode> {
    let (client, jobs) = target.resolve(program).await?;
    let acted = client.act(&jobs, action, &target.actor).await?;
    report_named(target, &acted, verb, program)
}

/// Prints what was done to named jobs.
fn report_named(
    target: &Target,
    acted: &[Acted],
    verb: &Verb,
    program: &Program,
) -> anyhow::Result<ExitCode> {
    let mut answers = Vec::new();
    for Acted { job, outcome, children_cancelled, children, .. } in acted {
        if target.json {
            let mut answer = to_json(*job, outcome);
            if let Some(children) = children_cancelled {
                answer["children_cancelled"] = json!(children);
            }
            if let Some(descendants) = children {
                answer["children"] = json!(descendants);
            }
            answers.push(answer);
        } else {
            let branches = children_cancelled.map(|children| and_its_branches(children, outcome));
            let descendants =
                children.map(|count| format!(", and {}", out::counted(count, "descendant", "descendants")));
            let more = branches.or(descendants).unwrap_or_default();
            print_outcome(*job, outcome, verb, program, &more)?;
        }
    }
    if target.json {
        out::print_json(&answers)?;
    }
    let all_achieved = acted.iter().all(|acted| acted.achieved);
    Ok(if all_achieved { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn and_its_branches(children: u64, outcome: &ControlOutcome) -> String {
    let children = match children {
        0 => "no live child of its branches".to_owned(),
        children => out::counted(children, "live child of its branches", "live children of its branches"),
    };
    match outcome {
        ControlOutcome::CancelRequested => format!("; cancelled with it: {children}"),
        _ => format!(", and {children}"),
    }
}

/// Cancels the named jobs and all their descendants.
pub(crate) async fn cancel_with_descendants(
    target: &Target,
    grace: Duration,
    verb: &Verb,
    program: &Program,
) -> anyhow::Result<ExitCode> {
    let (client, jobs) = target.resolve(program).await?;
    let mut acted = Vec::new();
    for id in jobs {
        acted.push(client.cancel_tree(id, grace, &target.actor).await?);
    }
    report_named(target, &acted, verb, program)
}

fn print_outcome(
    id: JobId,
    outcome: &ControlOutcome,
    verb: &Verb,
    program: &Program,
    more: &str,
) -> anyhow::Result<()> {
    let text = format!("{id} {}{more}", to_text(outcome, verb, program));
    if matches!(outcome, ControlOutcome::Refused(_) | ControlOutcome::Unknown) {
        out::note(&format!("error: {text}"));
        return Ok(());
    }
    out::print(&(text + "\n"))
}

pub(crate) fn to_json(id: JobId, outcome: &ControlOutcome) -> Value {
    let mut answer = serde_json::to_value(outcome).unwrap_or_default();
    answer["job"] = json!(id);
    answer
}

fn to_text(outcome: &ControlOutcome, verb: &Verb, program: &Program) -> String {
    match outcome {
        ControlOutcome::Done | ControlOutcome::Created(_) => verb.participle.to_owned(),
        ControlOutcome::CancelRequested => "is running; its cancel is requested".to_owned(),
        ControlOutcome::Already(why) => format!("unchanged: {}", out::plain(why)),
        ControlOutcome::Refused(why) => format!("cannot be {}: {}", verb.participle, out::plain(why)),
        ControlOutcome::Unknown => format!(
            "is not in {}; it was pruned, or it is in another store (`{} jobs` lists the jobs of this one)",
            program.display_url(),
            program.name
        ),
    }
}

/// Performs the action on all jobs that match the filters.
async fn act_on_matching(
    target: &Target,
    action: JobAction,
    verb: &Verb,
    program: &Program,
) -> anyhow::Result<ExitCode> {
    check_all(target.all, &target.filters)?;
    if let Some(state) = target.filters.state.filter(|state| !action.applies_to(*state)) {
        bail!(
            "{state} jobs cannot be {}; leave --state out, or use one of {}",
            verb.participle,
            applicable_states(action)
        );
    }
    let client = program.client().await?;
    let filter = target.filters.to_filter();
    let preview = client.preview(&filter, action).await?;
    if target.dry_run && target.json {
        out::print_json(&preview_json(&preview))?;
        return Ok(ExitCode::SUCCESS);
    }
    let nothing =
        || format!("no {} job matches; nothing to {}\n", applicable_states(action), verb.infinitive);
    let text = preview_text(&preview, verb.infinitive, nothing);
    if target.dry_run {
        out::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::note(text.trim_end());
    let mut result = BulkProgress::default();
    if preview.matching > 0 {
        let question = format!("{} {}?", capitalized(verb.infinitive), matching(&preview));
        if !confirm(target.yes, &question)? {
            return Ok(ExitCode::FAILURE);
        }
        let stop = StopSignals::flag()?;
        let mut progress = Progress::of_jobs(Some(preview.matching as u64));
        let mut on_batch = |so_far: &BulkProgress| {
            progress.update(so_far.seen as u64, &counts(so_far, verb));
            !stop.load(Ordering::Relaxed)
        };
        // Not those that were submitted after the preview.
        let filter = Filter { before: preview.before, ..filter };
        let ended = client.bulk(&filter, action, target.rate, &target.actor, &mut on_batch).await;
        progress.close();
        result = ended?;
    }
    report(target, &result, verb, preview.matching)
}

/// Refuses --all together with filters.
pub(crate) fn check_all(all: bool, filters: &Filters) -> anyhow::Result<()> {
    if all && !filters.is_empty() {
        bail!("--all selects every job, and filters select some; use one or the other");
    }
    Ok(())
}

fn applicable_states(action: JobAction) -> String {
    let states = State::ALL.into_iter().filter(|state| action.applies_to(*state));
    states.map(|state| state.to_string()).collect::<Vec<String>>().join(", ")
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// How many jobs match.
pub(crate) fn matching(preview: &Preview) -> String {
    let more = if preview.at_least { "at least " } else { "" };
    format!("{more}{}", out::jobs(preview.matching as u64))
}

pub(crate) fn preview_json(preview: &Preview) -> Value {
    let Preview { matching, at_least, sample, .. } = preview;
    json!({ "matching": matching, "at_least": at_least, "sample": sample })
}

/// How many jobs match, with a list of the first of them; `nothing` is the text if there are none.
pub(crate) fn preview_text(preview: &Preview, verb: &str, nothing: impl FnOnce() -> String) -> String {
    let Preview { matching: count, sample, block_items, now, .. } = preview;
    if *count == 0 {
        return nothing();
    }
    let mut text = format!("{} to {verb}:\n\n{}", matching(preview), jobs::list(sample, block_items, *now));
    if *count > sample.len() {
        text += &format!("… and {} more\n", out::thousands((count - sample.len()) as u64));
    }
    text
}

fn counts(result: &BulkProgress, verb: &Verb) -> String {
    let parts = [
        (result.done, verb.participle),
        (result.cancel_requested, "running (cancel requested)"),
        (result.already, "unchanged"),
        (result.refused, "refused"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(jobs, _)| *jobs > 0)
        .map(|(jobs, what)| format!("{} {what}", out::thousands(jobs as u64)))
        .collect();
    if parts.is_empty() { format!("0 {}", verb.participle) } else { parts.join(", ") }
}

fn report(target: &Target, result: &BulkProgress, verb: &Verb, matching: usize) -> anyhow::Result<ExitCode> {
    if target.json {
        let BulkProgress { seen, done, cancel_requested, already, refused, interrupted, .. } = result;
        out::print_json(&json!({
            "matching": matching, "seen": seen, "done": done, "cancel_requested": cancel_requested,
            "unchanged": already, "refused": refused, "interrupted": interrupted,
        }))?;
    } else {
        out::print(&format!("{}\n", counts(result, verb)))?;
        if result.interrupted {
            let left = out::thousands(matching.saturating_sub(result.seen) as u64);
            out::note(&format!("interrupted with about {left} left; run it again for the rest"));
        }
    }
    Ok(match result {
        BulkProgress { interrupted: true, .. } => ExitCode::from(stop::INTERRUPTED),
        BulkProgress { refused: 1.., .. } => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}
