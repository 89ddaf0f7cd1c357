//! What `show` prints about machines: stage, wait, inbox and last transitions.

use windlass::{
    State, Time,
    model::{
        WaitCondition,
        branch::BRANCH_SIGNAL,
        wait::{self, CHILD_SIGNAL},
    },
    operate::views::{self, InboxSignal, JobView, MachineView},
    store::{Job, Transition},
};

use super::{absolute_and_relative, payload, section};
use crate::{durations, out};

/// How many signals and transitions a page shows.
const SHOWN: usize = 10;

pub(super) fn sections(view: &JobView) -> String {
    let (job, machine, now) = (&view.job, &view.machine, view.now);
    let mut page = String::new();
    // A variant without fields has no data.
    if let Some(data) = job.data.as_ref().filter(|data| data.bytes != b"null") {
        let stage = job.summary.stage.as_deref().map(out::plain).unwrap_or_default();
        page += &section(&format!("data of {stage}"), &payload(data));
    }
    if !machine.inbox.is_empty() {
        page += &section("inbox", &signals(machine, now));
    }
    if !machine.last_transitions.is_empty() {
        let transitions = &machine.last_transitions;
        let shown = &transitions[transitions.len().saturating_sub(SHOWN)..];
        page += &section("last transitions", &transition_lines(shown, now));
    }
    page
}

fn signals(machine: &MachineView, now: Time) -> String {
    let shown = machine.inbox.iter().take(SHOWN);
    let width = shown.clone().map(|signal| signal.name.len()).max().unwrap_or(0);
    let line = |signal: &InboxSignal| {
        let text = signal.payload.to_string();
        let payload = console::truncate_str(&text, 60, "…");
        let unreadable = signal.unreadable.as_ref().map(|why| {
            format!("{:<width$}  number {}, unreadable: {}\n", "", signal.number, out::plain(why))
        });
        let unreadable = unreadable.unwrap_or_default();
        format!("{:<width$}  {}  {payload}\n{unreadable}", signal.name, durations::relative(signal.at, now))
    };
    let mut text: String = shown.map(line).collect();
    let known = machine.inbox.len() + usize::from(machine.inbox_has_more);
    if known > SHOWN {
        let more = if machine.inbox_has_more { "at least " } else { "" };
        text += &format!("… and {more}{} more\n", known - SHOWN);
    }
    text
}

/// The lines of a page with the stage and the wait.
pub(super) fn lines(job: &Job, now: Time) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(stage) = job.summary.stage.as_ref().filter(|_| !views::is_block(&job.summary)) {
        lines.push(("stage", out::plain(stage)));
    }
    if job.summary.state == State::Waiting {
        let until = job.wait_until.map(|until| format!("until {}", absolute_and_relative(until, now)));
        let what = job
            .wait
            .as_ref()
            .map(|wait| wait_text(wait, job.pending_children))
            .filter(|what| !what.is_empty());
        lines.push(("waits", what.into_iter().chain(until).collect::<Vec<String>>().join(", ")));
    }
    lines
}

fn wait_text(wait: &WaitCondition, pending: u32) -> String {
    match wait {
        WaitCondition::Nothing => "for nothing: it yielded its slot".to_owned(),
        WaitCondition::Children { .. } => {
            let have = if pending == 1 { "has" } else { "have" };
            format!("for its children, of which {} {have} not ended", out::thousands(pending.into()))
        }
        WaitCondition::Signals { names, needs } => {
            let between = if *needs == 1 { " or " } else { " and " };
            let name = |name: &wait::SignalName| format!("{:?}", name.name);
            let is_signal =
                |name: &&wait::SignalName| ![CHILD_SIGNAL, BRANCH_SIGNAL].contains(&name.name.as_str());
            let signals: Vec<String> = names.iter().filter(is_signal).map(name).collect();
            let signals = (!signals.is_empty()).then(|| format!("for the signal {}", signals.join(between)));
            // A workflow receives the ends of its children as signals.
            let children =
                names.iter().any(|name| name.name == CHILD_SIGNAL).then(|| "for a child".to_owned());
            let branches =
                names.iter().any(|name| name.name == BRANCH_SIGNAL).then(|| "for its branches".to_owned());
            signals.into_iter().chain(children).chain(branches).collect::<Vec<String>>().join(between)
        }
    }
}

fn transition_lines(transitions: &[Transition], now: Time) -> String {
    let line = |step: &Transition| {
        let to = step.next.as_deref().map(|next| format!(" → {}", out::plain(next))).unwrap_or_default();
        let when = durations::relative(step.at, now);
        format!(
            "{:>3}  {}{to}  {}  {when}, worker {}\n",
            step.rev.0,
            out::plain(&step.stage),
            step.outcome,
            step.worker
        )
    };
    transitions.iter().map(line).collect()
}
