//! `windlass show`: shows everything that the store has about one job.

mod branch;
mod machine;
mod workflow;

use std::process::ExitCode;

use anyhow::bail;
use serde_json::Value;
use windlass::{
    State, States, Time,
    model::{Payload, Settings},
    operate::{
        Found, text,
        views::{self, JobView},
    },
    store::{Attempt, CancelHold, Holds, Job},
};

use crate::{durations, out, outcome, program::Program, resolve};

/// Show everything about one job
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job: its id, kind/key, its key, or its name as a child of a branch, like 'orders$days$day_7'
    id: String,
    /// Show all entries of a workflow's journal, not only the last 50
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How many entries of a journal a page shows without --all.
const ENTRIES: usize = 50;

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client().await?;
    let id = match resolve::job_or_item(&args.id, &client, program).await? {
        Found::Job(id) => id,
        Found::Packed(item) if args.json => {
            out::print_json(&item)?;
            return Ok(ExitCode::SUCCESS);
        }
        Found::Packed(item) => {
            out::print(&branch::item_page(&item, &client, program).await?)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let entries = if args.all || args.json { None } else { Some(ENTRIES) };
    let Some(mut view) = client.job(id, entries).await? else {
        if client.why(id).await?.is_some() {
            bail!(
                "job {id} is an arrival: it was submitted in a transaction and no worker has admitted it yet; `{} why {id}` explains",
                program.name
            );
        }
        bail!(program.no_job(id));
    };
    for note in view.branches.iter_mut().flat_map(|branch| &mut branch.notes) {
        *note = program.with_own_name(note);
    }
    if args.json {
        out::print_json(&view)?;
    } else {
        out::print(&page(&view, program))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(view: &JobView, program: &Program) -> String {
    let JobView { job, holds, history, now, .. } = view;
    let now = *now;
    let summary = &job.summary;
    let mut page = format!("job {}\n", summary.id);
    let mut line = |name: &str, text: String| page += &format!("  {name:<11}{text}\n");
    line("state", state(job, now));
    for (name, text) in machine::lines(job, now) {
        line(name, text);
    }
    if let Some(unwind) = &job.unwind {
        line("unwind", workflow::unwind_text(unwind, summary.state.is_final()));
    }
    if let Some(pause) = &holds.paused {
        line("paused", outcome::paused_by(pause, now));
    }
    if let Some(cancel) = &holds.cancel_requested {
        line("cancel", cancel_request(cancel, now));
    }
    if let Some(fault) = &job.fault {
        line("fault", out::plain(fault));
    }
    line("kind", format!("{}, version {}", out::plain(&summary.kind), summary.version));
    let priority =
        if summary.priority == 0 { String::new() } else { format!(", priority {}", summary.priority) };
    let paused =
        holds.queue_paused.as_ref().map(|pause| format!(", paused {}", outcome::paused_by(pause, now)));
    line("queue", out::plain(&summary.queue) + &priority + &paused.unwrap_or_default());
    if let Some(key) = &summary.key {
        line("key", out::plain(key));
    }
    if !job.tags.is_empty() {
        line("tags", out::plain(&job.tags.join(", ")));
    }
    for (name, text) in branch::lines(view) {
        line(name, text);
    }
    line("submitted", absolute_and_relative(summary.submitted_at, now));
    if summary.due_at != summary.submitted_at {
        line("due", absolute_and_relative(summary.due_at, now));
    }
    if let Some(at) = job.started_at {
        line(
            if summary.state == State::Running { "claimed" } else { "last start" },
            absolute_and_relative(at, now),
        );
    }
    if let Some(progress) = &job.progress {
        line("progress", out::plain(&text::progress(progress, now)));
    }
    if let Some(at) = summary.finished_at {
        line("ended", absolute_and_relative(at, now));
    }
    if let Some(at) = job.deadline_at {
        line("deadline", absolute_and_relative(at, now));
    }
    if let Some(worker) = job.worker {
        line("worker", worker.to_string());
    }
    if job.worker_deaths > 0 {
        line(
            "deaths",
            format!(
                "{} died after claiming it, {} of them while it ran alone",
                out::counted(job.worker_deaths.into(), "worker", "workers"),
                job.solo_crashes
            ),
        );
    }
    line("writes", format!("{} committed, epoch {}", job.rev.0, job.epoch.0));
    if let Some(options) = &job.options {
        line("options", out::plain(options));
    }
    page += &settings(&job.settings);
    page += &flow_control(holds, now);
    page += &payloads(view, program);
    if !history.is_empty() {
        page += &section("failed attempts", &attempts(history, now));
    }
    page
}

/// The sections with the job's input, data, branches, journal and output.
fn payloads(view: &JobView, program: &Program) -> String {
    let job = &view.job;
    if views::is_block(&job.summary) {
        return branch::block_section(view, program);
    }
    let output = job.output.as_ref().map(|output| section("output", &payload(output)));
    section("input", &payload(&job.input))
        + &machine::sections(view)
        + &branch::section_of_branches(view, program)
        + &workflow::sections(&view.workflow)
        + &output.unwrap_or_default()
}

/// The settings of one job, a line each.
pub(crate) fn settings(settings: &Settings) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, text: String| lines += &format!("  {name:<11}{text}\n");
    if let Some(timeout) = settings.timeout {
        line("timeout", format!("{} per attempt", durations::format(timeout)));
    }
    for rule in settings.retry.iter().flat_map(|retry| retry.as_rules()) {
        let class = rule.class.as_deref().unwrap_or("any error");
        let apart = format!("{} to {} apart", durations::format(rule.base), durations::format(rule.cap));
        line("retry", format!("{class}: {} attempts, {apart}", rule.attempts));
    }
    if let Some(unique) = &settings.unique {
        let scope = match unique.scope {
            States::LIVE => "until it ends".to_owned(),
            States::PENDING => "until it starts".to_owned(),
            States::KEPT => "until it is deleted".to_owned(),
            other => format!("while it is {}", names(other)),
        };
        let within = unique.within.map(|within| format!(", for {} at most", durations::format(within)));
        line("unique", format!("{} {scope}{}", out::plain(&unique.key), within.unwrap_or_default()));
    }
    if let Some(serial) = &settings.serial {
        let hold = if serial.keeps_slot { ", kept between attempts" } else { "" };
        line("serial", format!("{}{hold}", out::plain(&serial.key)));
    }
    if let Some(charge) = &settings.rate {
        let weight = if charge.weight == 1 { String::new() } else { format!(", weight {}", charge.weight) };
        line("rate", format!("{}{weight}", out::plain(&charge.limit)));
    }
    if let Some(tick) = settings.tick {
        line("tick", format!("{tick} of its schedule"));
    }
    if let Some(trace) = &settings.trace {
        line("trace", out::plain(trace));
    }
    lines
}

fn names(states: States) -> String {
    let names = State::ALL.into_iter().filter(|state| states.contains(*state)).map(|state| state.to_string());
    names.collect::<Vec<String>>().join(", ")
}

/// The job's position for its serial key and its rate limit.
fn flow_control(holds: &Holds, now: Time) -> String {
    let mut lines = String::new();
    if let Some(serial) = &holds.serial {
        let slots = if serial.slots == 1 {
            "one at a time".to_owned()
        } else {
            format!("{} at a time", serial.slots)
        };
        let position = match serial.held {
            true => "it holds a slot".to_owned(),
            false if holds.paused.is_some() => "it is not in line while it is paused".to_owned(),
            false if serial.ahead == 0 => "it is next in line".to_owned(),
            false => format!("{} ahead of it in line", out::jobs(serial.ahead)),
        };
        lines += &format!("  {:<11}{position}, {slots}\n", "slot");
    }
    if let Some(rate) = &holds.rate {
        let text = match &rate.limit {
            None => "its rate limit is lifted".to_owned(),
            Some(_) if rate.affordable_at > now => {
                format!("its rate limit has enough tokens {}", durations::relative(rate.affordable_at, now))
            }
            Some(_) => "its rate limit has enough tokens".to_owned(),
        };
        lines += &format!("  {:<11}{text}\n", "tokens");
    }
    lines
}

fn cancel_request(cancel: &CancelHold, now: Time) -> String {
    let note = cancel.note.as_ref().map(|note| format!(": {}", out::plain(note))).unwrap_or_default();
    let end = durations::relative(cancel.deadline_at, now);
    format!("requested by {}{note}; the store ends the job {end}", out::plain(&cancel.author))
}

fn state(job: &Job, now: Time) -> String {
    let summary = &job.summary;
    match (summary.state, summary.reason) {
        (State::Failed, Some(reason)) => {
            let error = job.failure.as_ref().map(|failure| failure.text_after(reason));
            let error = error.map(|text| format!(": {}", out::plain(&text)));
            format!("failed ({reason}){}", error.unwrap_or_default())
        }
        (State::Cancelled, _) => {
            let why = job.failure.as_ref().map(|failure| format!(": {}", out::plain(&failure.message)));
            format!("cancelled{}", why.unwrap_or_default())
        }
        (State::Scheduled, _) => format!("scheduled, due {}", durations::relative(summary.due_at, now)),
        (state, _) => state.to_string(),
    }
}

fn absolute_and_relative(at: Time, now: Time) -> String {
    format!("{at}  ({})", durations::relative(at, now))
}

/// A titled part of a page.
pub(crate) fn section(title: &str, text: &str) -> String {
    let lines: String = text.lines().map(|line| format!("  {line}\n")).collect();
    format!("\n{title}\n{lines}")
}

/// A payload as indented JSON, or as a text with its size if it is encoded.
pub(crate) fn payload(payload: &Payload) -> String {
    match (payload.codec, serde_json::from_slice::<Value>(&payload.bytes)) {
        (0, Ok(value)) => pretty(&value),
        (codec, _) => pretty(&format!("<{} bytes, codec {codec}>", payload.bytes.len()).into()),
    }
}

/// Indented JSON. Strings stay escaped, so that they cannot control the terminal.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn attempts(history: &[Attempt], now: Time) -> String {
    let attempt = |(number, attempt): (usize, &Attempt)| {
        let took = durations::format(attempt.ended_at - attempt.started_at);
        format!(
            "{:>2}  {} ({}), {took}, worker {}\n    {}\n",
            number + 1,
            attempt.started_at,
            durations::relative(attempt.started_at, now),
            attempt.worker,
            out::plain(&attempt.failure.to_string())
        )
    };
    history.iter().enumerate().map(attempt).collect()
}
