//! `windlass show`: all that is known of one job.

mod branch;
mod machine;
mod workflow;

use std::process::ExitCode;

use anyhow::bail;
use branch::Branches;
use machine::Machine;
use windlass::{
    Payload, State, States, Time,
    model::Settings,
    store::{Attempt, CancelHold, Holds, Job},
};
use workflow::Workflow;

use crate::{
    named::{self, Found},
    out,
    place::Place,
    rule, span,
};

/// Show all that is known of one job.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job: its id, its key, or what it is called as a child of a branch, like 'orders$days$day_7'
    id: String,
    /// All entries of a workflow's journal, not only the last 50
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let inspect = engine.inspect();
    let id = match named::find(&args.id, &engine, place).await? {
        Found::Job(id) => id,
        Found::Packed(item) if args.json => {
            out::print_json(&item)?;
            return Ok(ExitCode::SUCCESS);
        }
        Found::Packed(item) => {
            out::print(&branch::item(&item, inspect, place).await?)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let holds = inspect.holds(id).await?;
    let Some(job) = inspect.job(id).await? else {
        if holds.is_some_and(|holds| holds.arriving) {
            bail!(
                "job {id} was submitted in a transaction and waits to be taken in; `{} why {id}` says more",
                place.program
            );
        }
        bail!(place.no_job(id));
    };
    let (holds, history, now) =
        (holds.unwrap_or_default(), inspect.history(id).await?, inspect.clock().await?);
    let machine = Machine::of(&job, inspect).await?;
    let workflow = Workflow::of(&job, &engine, args.all || args.json).await?;
    let branches = Branches::of(&job, inspect, now, place).await?;
    if args.json {
        let mut told = serde_json::to_value(&job)?;
        told["history"] = serde_json::to_value(&history)?;
        told["holds"] = serde_json::to_value(&holds)?;
        machine.tell(&mut told)?;
        workflow.tell(&mut told, &engine);
        branches.tell(&mut told);
        out::print_json(&told)?;
    } else {
        let carried = match branch::is_block(&job) {
            true => branches.packed(place, &job),
            false => {
                let output = job.output.as_ref().map(|output| block("output", &payload(output)));
                let own =
                    machine.blocks(&job, now) + &branches.blocks(place, &job) + &workflow.blocks(&engine);
                block("input", &payload(&job.input)) + &own + &output.unwrap_or_default()
            }
        };
        out::print(&page(&job, &holds, &history, &branches, &carried, now))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All of it; `carried` are the blocks with what it was given, keeps and returned.
fn page(
    job: &Job,
    holds: &Holds,
    history: &[Attempt],
    branches: &Branches,
    carried: &str,
    now: Time,
) -> String {
    let summary = &job.summary;
    let mut page = format!("job {}\n", summary.id);
    let mut line = |name: &str, text: String| page += &format!("  {name:<11}{text}\n");
    line("state", state(job, now));
    for (name, text) in machine::lines(job, now) {
        line(name, text);
    }
    if let Some(unwind) = &job.unwind {
        line("unwinds", workflow::unwinding(unwind, summary.state.is_final()));
    }
    if let Some(pause) = &holds.paused {
        line("paused", rule::paused(pause, now));
    }
    if let Some(told) = &holds.cancel_requested {
        line("told", self::told(told, now));
    }
    line("kind", format!("{}, version {}", out::plain(&summary.kind), summary.version));
    let priority =
        if summary.priority == 0 { String::new() } else { format!(", priority {}", summary.priority) };
    let paused = holds.queue_paused.as_ref().map(|pause| format!(", paused {}", rule::paused(pause, now)));
    line("queue", out::plain(&summary.queue) + &priority + &paused.unwrap_or_default());
    if let Some(key) = &summary.key {
        line("key", out::plain(key));
    }
    if !job.tags.is_empty() {
        line("tags", out::plain(&job.tags.join(", ")));
    }
    for (name, text) in branches.lines(job) {
        line(name, text);
    }
    line("submitted", moment(summary.submitted_at, now));
    if summary.due_at != summary.submitted_at {
        line("due", moment(summary.due_at, now));
    }
    if let Some(at) = job.started_at {
        line(if summary.state == State::Running { "claimed" } else { "last start" }, moment(at, now));
    }
    if let Some(at) = summary.finished_at {
        line("ended", moment(at, now));
    }
    if let Some(at) = job.deadline_at {
        line("deadline", moment(at, now));
    }
    if let Some(worker) = job.worker {
        line("worker", worker.to_string());
    }
    if job.deaths > 0 {
        line(
            "deaths",
            format!("{} workers died holding it, {} of them while it ran alone", job.deaths, job.crashes),
        );
    }
    line("writes", format!("{} committed, epoch {}", job.rev.0, job.epoch.0));
    if let Some(options) = &job.options {
        line("options", out::plain(options));
    }
    page += &settings(&job.settings);
    page += &standing(holds, now);
    page += carried;
    if !history.is_empty() {
        page += &block("attempts that failed", &attempts(history, now));
    }
    page
}

/// Policies of a job alone, a line each.
pub(crate) fn settings(settings: &Settings) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, text: String| lines += &format!("  {name:<11}{text}\n");
    if let Some(timeout) = settings.timeout {
        line("timeout", format!("{} per attempt", span::show(timeout)));
    }
    for rule in settings.retry.iter().flat_map(|retry| retry.as_rules()) {
        let class = rule.class.as_deref().unwrap_or("any error");
        let apart = format!("{} to {} apart", span::show(rule.base), span::show(rule.cap));
        line("retry", format!("{class}: {} attempts, {apart}", rule.attempts));
    }
    if let Some(unique) = &settings.unique {
        let scope = match unique.scope {
            States::LIVE => "until it ends".to_owned(),
            States::PENDING => "until it starts".to_owned(),
            States::KEPT => "until it is deleted".to_owned(),
            other => format!("while it is {}", names(other)),
        };
        let within = unique.within.map(|within| format!(", for {} at most", span::show(within)));
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

/// Where it stands with its serial key and its rate limit.
fn standing(holds: &Holds, now: Time) -> String {
    let mut lines = String::new();
    if let Some(serial) = &holds.serial {
        let slots = if serial.slots == 1 {
            "one at a time".to_owned()
        } else {
            format!("{} at a time", serial.slots)
        };
        let place = match serial.held {
            true => "it has its turn".to_owned(),
            false if holds.paused.is_some() => "it has left the line while it is paused".to_owned(),
            false if serial.ahead == 0 => "it is next in line".to_owned(),
            false => format!("{} before it in line", out::jobs(serial.ahead)),
        };
        lines += &format!("  {:<11}{place}, {slots}\n", "turn");
    }
    if let Some(rate) = &holds.rate {
        let text = match &rate.limit {
            None => "its rate limit is lifted".to_owned(),
            Some(_) if rate.enough_at > now => {
                format!("its rate limit has enough for it {}", span::relative(rate.enough_at, now))
            }
            Some(_) => "its rate limit has enough for it".to_owned(),
        };
        lines += &format!("  {:<11}{text}\n", "tokens");
    }
    lines
}

fn told(told: &CancelHold, now: Time) -> String {
    let note = told.note.as_ref().map(|note| format!(": {}", out::plain(note))).unwrap_or_default();
    let end = span::relative(told.deadline_at, now);
    format!("to end, by {}{note}; ended from outside {end}", out::plain(&told.author))
}

fn state(job: &Job, now: Time) -> String {
    let summary = &job.summary;
    match (summary.state, summary.reason) {
        (State::Failed, Some(reason)) => {
            let error = job.failure.as_ref().map(|failure| format!(": {}", out::plain(&failure.to_string())));
            format!("failed ({reason}){}", error.unwrap_or_default())
        }
        (State::Cancelled, _) => {
            let why = job.failure.as_ref().map(|failure| format!(": {}", out::plain(&failure.message)));
            format!("cancelled{}", why.unwrap_or_default())
        }
        (State::Scheduled, _) => format!("scheduled, due {}", span::relative(summary.due_at, now)),
        (state, _) => state.to_string(),
    }
}

fn moment(at: Time, now: Time) -> String {
    format!("{at}  ({})", span::relative(at, now))
}

pub(crate) fn block(title: &str, text: &str) -> String {
    let lines: String = text.lines().map(|line| format!("  {line}\n")).collect();
    format!("\n{title}\n{lines}")
}

/// A payload as readable JSON; strings in it stay escaped, so that it cannot steer the terminal.
pub(crate) fn payload(payload: &Payload) -> String {
    match (payload.codec, serde_json::from_slice::<serde_json::Value>(&payload.bytes)) {
        (0, Ok(value)) => serde_json::to_string_pretty(&value).unwrap_or_default(),
        (codec, _) => format!("{} bytes written by codec {codec}", payload.bytes.len()),
    }
}

fn attempts(history: &[Attempt], now: Time) -> String {
    let attempt = |(number, attempt): (usize, &Attempt)| {
        let took = span::show(attempt.ended_at.since(attempt.started_at));
        format!(
            "{:>2}  {} ({}), {took}, worker {}\n    {}\n",
            number + 1,
            attempt.started_at,
            span::relative(attempt.started_at, now),
            attempt.worker,
            out::plain(&attempt.failure.to_string())
        )
    };
    history.iter().enumerate().map(attempt).collect()
}
