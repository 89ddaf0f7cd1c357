//! Doing one thing to jobs: to those that are named, or to all that match a filter. The commands `cancel`, `retry`,
//! `pause`, `resume` and `priority` are this with an act of their own.
//!
//! Jobs that are named are done at once. With a filter it is a bulk operation: a preview is shown and asked about first,
//! it goes in batches at a bounded rate, can be ended on the way, and says at the end what became of all of them.

use std::{process::ExitCode, sync::atomic::Ordering, time::Duration};

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{
    BulkProgress, ControlOutcome, Engine, JobAction, JobId, Preview, State,
    store::{Inspect, Summary},
};

use crate::{
    ask, author::Author, commands::jobs, named, out, place::Place, progress::Progress, stop, stop::Stop,
    which::Which,
};

/// To which jobs, in whose name, and how.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// The jobs, by id, by key, or by what they are called as children of a branch; or say which by filters
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,
    #[command(flatten)]
    author: Author,
    /// With filters: only show which jobs it would be done to
    #[arg(long)]
    dry_run: bool,
    /// With filters: do it without asking
    #[arg(long)]
    yes: bool,
    /// With filters: at most so many jobs a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Filters, instead of jobs")]
    which: Which,
    /// Every job there is
    #[arg(long)]
    all: bool,
}

/// An act in words.
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
        self.all || !self.which.is_all()
    }

    /// The store, and the jobs that are named, each once.
    async fn named(&self, place: &Place) -> anyhow::Result<(Engine, Vec<JobId>)> {
        if self.dry_run || self.rate.is_some() {
            bail!("--dry-run and --rate are for filters; jobs that are named are done at once");
        }
        if self.is_filtered() {
            bail!("both jobs and filters are given; name the jobs, or say which by filters, not both");
        }
        let (engine, mut jobs) = (place.reader().await?, Vec::new());
        for name in &self.jobs {
            let id = named::own(name, &engine, place).await?;
            if !jobs.contains(&id) {
                jobs.push(id);
            }
        }
        Ok((engine, jobs))
    }
}

/// Does it.
pub(crate) async fn run(
    target: Target,
    act: JobAction,
    verb: Verb,
    place: &Place,
) -> anyhow::Result<ExitCode> {
    match (target.is_named(), target.is_filtered()) {
        (true, _) => named(&target, act, &verb, place).await,
        (false, true) => many(&target, act, &verb, place).await,
        (false, false) => bail!(
            "no jobs are given; name them, say which by filters like --kind or --queue, or say --all for every job"
        ),
    }
}

/// Does it to the jobs that are named.
async fn named(target: &Target, act: JobAction, verb: &Verb, place: &Place) -> anyhow::Result<ExitCode> {
    let (engine, jobs) = target.named(place).await?;
    let dids = target.author.control(&engine).act_on(&jobs, act).await?;
    let mut all = true;
    let mut told = Vec::new();
    for (id, did) in jobs.iter().zip(&dids) {
        all &= came_true(engine.inspect(), *id, act, did).await?;
        let cut = match act {
            JobAction::Cancel { .. } => cut(engine.inspect(), *id, did).await?,
            _ => None,
        };
        if target.json {
            let mut answer = answer(*id, did);
            if let Some(children) = cut {
                answer["cut"] = json!(children);
            }
            told.push(answer);
        } else {
            say(*id, did, verb, place, &cut.map(|children| cut_off(children, did)).unwrap_or_default())?;
        }
    }
    if target.json {
        out::print_json(&told)?;
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many children of a cancelled job's branches are cancelled with it, if it has branches that are not merged.
async fn cut(inspect: &dyn Inspect, id: JobId, did: &ControlOutcome) -> anyhow::Result<Option<u64>> {
    if !matches!(did, ControlOutcome::Done | ControlOutcome::CancelRequested) {
        return Ok(None);
    }
    let branches = inspect.branches(id).await?;
    let open: Vec<_> = branches.iter().filter(|branch| !branch.merged).collect();
    let live = open.iter().map(|branch| (branch.spawned - branch.tally.ended()).max(0).unsigned_abs());
    Ok((!open.is_empty()).then(|| live.sum()))
}

/// The same in words.
fn cut_off(children: u64, did: &ControlOutcome) -> String {
    let what = match children {
        0 => "no child of theirs is left".to_owned(),
        1 => "1 child that has not ended is cancelled".to_owned(),
        many => format!("{} children that have not ended are cancelled", out::thousands(many)),
    };
    match did {
        ControlOutcome::CancelRequested => format!("; its branches are cut with it: {what}"),
        _ => format!(", and its branches are cut: {what}"),
    }
}

/// Cancels the jobs that are named, and everything that came of them.
pub(crate) async fn cancel_families(
    target: &Target,
    grace: Duration,
    verb: &Verb,
    place: &Place,
) -> anyhow::Result<ExitCode> {
    let (engine, jobs) = target.named(place).await?;
    let control = target.author.control(&engine);
    let (mut all, mut told) = (true, Vec::new());
    for id in jobs {
        let did = control.cancel_within(id, grace).await?;
        // The parent is done already, so only the rest is counted.
        let children = control.cancel_with_children(id, grace).await?;
        all &= came_true(engine.inspect(), id, JobAction::Cancel { grace }, &did).await?;
        if target.json {
            let mut answer = answer(id, &did);
            answer["children"] = json!(children);
            told.push(answer);
        } else {
            say(id, &did, verb, place, &format!(", and {} that came of it", out::jobs(children as u64)))?;
        }
    }
    if target.json {
        out::print_json(&told)?;
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what came of one job: an answer, or what stood in the way.
fn say(id: JobId, did: &ControlOutcome, verb: &Verb, place: &Place, more: &str) -> anyhow::Result<()> {
    let text = format!("{id} {}{more}", said(did, verb, place));
    if matches!(did, ControlOutcome::Refused(_) | ControlOutcome::Unknown) {
        out::note(&format!("error: {text}"));
        return Ok(());
    }
    out::print(&(text + "\n"))
}

pub(crate) fn answer(id: JobId, did: &ControlOutcome) -> Value {
    let mut told = serde_json::to_value(did).unwrap_or_default();
    told["job"] = json!(id);
    told
}

/// Whether what was asked for is so now.
async fn came_true(
    inspect: &dyn Inspect,
    id: JobId,
    act: JobAction,
    did: &ControlOutcome,
) -> anyhow::Result<bool> {
    Ok(match (did, act) {
        // A job that ended otherwise is not cancelled.
        (ControlOutcome::Already(_), JobAction::Cancel { .. }) => {
            let state = inspect.job(id).await?.map(|job| job.summary.state);
            !matches!(state, Some(State::Done | State::Failed))
        }
        (
            ControlOutcome::Done
            | ControlOutcome::CancelRequested
            | ControlOutcome::Created(_)
            | ControlOutcome::Already(_),
            _,
        ) => true,
        (ControlOutcome::Refused(_) | ControlOutcome::Unknown, _) => false,
    })
}

/// What came of it, as it is said of a job.
fn said(did: &ControlOutcome, verb: &Verb, place: &Place) -> String {
    match did {
        ControlOutcome::Done | ControlOutcome::Created(_) => verb.participle.to_owned(),
        ControlOutcome::CancelRequested => "runs and was told to end".to_owned(),
        ControlOutcome::Already(why) => format!("left as it is: {}", out::plain(why)),
        ControlOutcome::Refused(why) => format!("cannot be {}: {}", verb.participle, out::plain(why)),
        ControlOutcome::Unknown => format!(
            "is not in {}; it was pruned, or is in another store (`{} jobs` lists this one's)",
            place.shown(),
            place.program
        ),
    }
}

/// Does it to all that match.
async fn many(target: &Target, act: JobAction, verb: &Verb, place: &Place) -> anyhow::Result<ExitCode> {
    if target.all && !target.which.is_all() {
        bail!("--all is every job, and filters say which; leave one of them out");
    }
    if let Some(state) = target.which.state.filter(|state| !act.applies_to(*state)) {
        bail!(
            "jobs that are {state} cannot be {}; leave --state out, or name one of {}",
            verb.participle,
            applicable(act)
        );
    }
    let engine = place.reader().await?;
    let control = target.author.control(&engine);
    let bulk = control.bulk(target.which.filter(), act);
    let preview = bulk.preview().await?;
    if target.dry_run && target.json {
        let Preview { matching, at_least, sample } = &preview;
        out::print_json(&json!({ "matching": matching, "at_least": at_least, "sample": sample }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = shown(&engine, &preview, act, verb).await?;
    if target.dry_run {
        out::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::note(text.trim_end());
    let mut tally = BulkProgress::default();
    if preview.matching > 0 {
        let question = format!("{} {}?", capital(verb.infinitive), count(&preview));
        if !ask::sure(target.yes, &question)? {
            return Ok(ExitCode::FAILURE);
        }
        let bulk = match target.rate {
            Some(rate) => bulk.per_second(rate),
            None => bulk,
        };
        let told = Stop::flag()?;
        let mut progress = Progress::new(Some(preview.matching as u64));
        let seen = |tally: &BulkProgress| {
            progress.at(tally.seen as u64, &detail(tally, verb));
            !told.load(Ordering::Relaxed)
        };
        let ended = bulk.run(seen).await;
        progress.close();
        tally = ended?;
    }
    account(target, &tally, verb, preview.matching)
}

fn applicable(act: JobAction) -> String {
    let states = State::ALL.into_iter().filter(|state| act.applies_to(*state));
    states.map(|state| state.to_string()).collect::<Vec<String>>().join(", ")
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

pub(crate) fn count(preview: &Preview) -> String {
    let more = if preview.at_least { "at least " } else { "" };
    format!("{more}{}", out::jobs(preview.matching as u64))
}

/// How many there are, and some of them.
async fn shown(engine: &Engine, preview: &Preview, act: JobAction, verb: &Verb) -> anyhow::Result<String> {
    if preview.matching == 0 {
        return Ok(format!("no job that is {} matches; nothing to {}\n", applicable(act), verb.infinitive));
    }
    let now = engine.inspect().clock().await?;
    let sample: &[Summary] = &preview.sample;
    let mut shown = sample.to_vec();
    jobs::count_blocks(&mut shown, engine.inspect()).await?;
    let mut text = format!("{} to {}:\n\n{}", count(preview), verb.infinitive, jobs::list(&shown, now));
    if preview.matching > sample.len() {
        text += &format!("… and {} more\n", out::thousands((preview.matching - sample.len()) as u64));
    }
    Ok(text)
}

fn detail(tally: &BulkProgress, verb: &Verb) -> String {
    let parts = [
        (tally.done, verb.participle),
        (tally.cancel_requested, "told to end"),
        (tally.already, "left as they were"),
        (tally.refused, "refused"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(jobs, _)| *jobs > 0)
        .map(|(jobs, what)| format!("{} {what}", out::thousands(jobs as u64)))
        .collect();
    if parts.is_empty() { format!("0 {}", verb.participle) } else { parts.join(", ") }
}

fn account(target: &Target, tally: &BulkProgress, verb: &Verb, matching: usize) -> anyhow::Result<ExitCode> {
    if target.json {
        let BulkProgress { seen, done, cancel_requested: told, already, refused, cut_short } = tally;
        out::print_json(&json!({
            "matching": matching, "seen": seen, "done": done, "told": told, "already": already,
            "refused": refused, "cut_short": cut_short,
        }))?;
    } else {
        out::print(&format!("{}\n", detail(tally, verb)))?;
        if tally.cut_short {
            let left = out::thousands(matching.saturating_sub(tally.seen) as u64);
            out::note(&format!("ended on the way: about {left} were not looked at; repeat it for the rest"));
        }
    }
    Ok(match tally {
        BulkProgress { cut_short: true, .. } => ExitCode::from(stop::INTERRUPTED),
        BulkProgress { refused: 1.., .. } => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}
