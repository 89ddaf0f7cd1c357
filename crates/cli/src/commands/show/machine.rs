//! What `show` prints about machines: stage, wait, inbox and last transitions.

use serde_json::{Value, json};
use windlass::{
    State, Time,
    model::{
        Rev, Signal, WaitCondition,
        branch::BRANCH_SIGNAL,
        wait::{self, CHILD_SIGNAL},
    },
    store::{Inspect, Job, Transition},
};

use super::{absolute_and_relative, branch::is_block, payload, section};
use crate::{durations, out};

/// How many signals and transitions a page shows.
const SHOWN: usize = 10;
/// How many signals and transitions the JSON has.
const IN_JSON: usize = 100;

/// The inbox and the last transitions.
pub(super) struct Machine {
    inbox: Vec<Signal>,
    transitions: Vec<Transition>,
}

impl Machine {
    /// Reads them. A job that is no machine has an inbox too.
    pub(super) async fn read(job: &Job, inspect: &dyn Inspect) -> anyhow::Result<Machine> {
        let mut inbox = inspect.inbox(job.summary.id, IN_JSON + 1).await?;
        // A branch signal is internal: it tells the engine to check the branch.
        inbox.retain(|signal| signal.name != BRANCH_SIGNAL);
        let transitions = match job.summary.stage {
            Some(_) => last_transitions(job, inspect).await?,
            None => Vec::new(),
        };
        Ok(Machine { inbox, transitions })
    }

    pub(super) fn add_to_json(&self, answer: &mut Value) -> anyhow::Result<()> {
        let signal = |signal: &Signal| {
            let mut json = json!({ "number": signal.number, "name": signal.name, "at": signal.at, "payload": value(signal) });
            if let Some(why) = &signal.unreadable {
                json["unreadable"] = json!(why);
            }
            json
        };
        answer["inbox"] = self.inbox.iter().take(IN_JSON).map(signal).collect();
        answer["inbox_has_more"] = json!(self.inbox.len() > IN_JSON);
        answer["last_transitions"] = serde_json::to_value(&self.transitions)?;
        Ok(())
    }

    pub(super) fn sections(&self, job: &Job, now: Time) -> String {
        let mut page = String::new();
        // A variant without fields has no data.
        if let Some(data) = job.data.as_ref().filter(|data| data.bytes != b"null") {
            let stage = job.summary.stage.as_deref().map(out::plain).unwrap_or_default();
            page += &section(&format!("data of {stage}"), &payload(data));
        }
        if !self.inbox.is_empty() {
            page += &section("inbox", &self.signals(now));
        }
        if !self.transitions.is_empty() {
            let shown = &self.transitions[self.transitions.len().saturating_sub(SHOWN)..];
            page += &section("last transitions", &transition_lines(shown, now));
        }
        page
    }

    fn signals(&self, now: Time) -> String {
        let shown = self.inbox.iter().take(SHOWN);
        let width = shown.clone().map(|signal| signal.name.len()).max().unwrap_or(0);
        let line = |signal: &Signal| {
            let text = value(signal).to_string();
            let payload = console::truncate_str(&text, 60, "…");
            let unreadable = signal.unreadable.as_ref().map(|why| {
                format!("{:<width$}  number {}, unreadable: {}\n", "", signal.number, out::plain(why))
            });
            let unreadable = unreadable.unwrap_or_default();
            format!(
                "{:<width$}  {}  {payload}\n{unreadable}",
                signal.name,
                durations::relative(signal.at, now)
            )
        };
        let mut text: String = shown.map(line).collect();
        if self.inbox.len() > SHOWN {
            let more = if self.inbox.len() > IN_JSON { "at least " } else { "" };
            text += &format!("… and {more}{} more\n", self.inbox.len() - SHOWN);
        }
        text
    }
}

/// The lines of a page with the stage and the wait.
pub(super) fn lines(job: &Job, now: Time) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(stage) = job.summary.stage.as_ref().filter(|_| !is_block(job)) {
        lines.push(("stage", out::plain(stage)));
    }
    if job.summary.state == State::Waiting {
        let until = job.until.map(|until| format!("until {}", absolute_and_relative(until, now)));
        let what = job.wait.as_ref().map(|wait| wait_text(wait, job.pending)).filter(|what| !what.is_empty());
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

/// The payload of a signal, or its size if it is encoded.
fn value(signal: &Signal) -> Value {
    match (signal.payload.codec, serde_json::from_slice(&signal.payload.bytes)) {
        (0, Ok(value)) => value,
        (codec, _) => json!(format!("<{} bytes, codec {codec}>", signal.payload.bytes.len())),
    }
}

/// The last transitions, oldest first. They are numbered by revision, and failed attempts have revisions too: if there are few
/// among the last revisions, it reads further back.
async fn last_transitions(job: &Job, inspect: &dyn Inspect) -> anyhow::Result<Vec<Transition>> {
    let mut back = IN_JSON as i32;
    loop {
        let after = job.rev.0 - back;
        let mut transitions =
            inspect.transitions(job.summary.id, Some(Rev(after.max(-1))), back as usize).await?;
        if transitions.len() >= IN_JSON || after < 0 {
            transitions.drain(..transitions.len().saturating_sub(IN_JSON));
            return Ok(transitions);
        }
        back = back.saturating_mul(10);
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
            step.how,
            step.worker
        )
    };
    transitions.iter().map(line).collect()
}
