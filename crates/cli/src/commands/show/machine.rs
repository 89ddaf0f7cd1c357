//! What is known of a machine beside what is known of every job: its stage, what it waits for, its inbox, and how it came
//! there.

use serde_json::{Value, json};
use windlass::{
    State, Time,
    model::{
        Awaited, Rev, Signal,
        branch::BRANCH,
        wait::{self, CHILD},
    },
    store::{Inspect, Job, Transition},
};

use super::{block, branch::is_block, moment, payload};
use crate::{out, span};

/// How many signals and transitions a page shows.
const SHOWN: usize = 10;
/// How many signals and transitions are told as JSON.
const TOLD: usize = 100;

/// A machine's inbox and its last transitions.
pub(super) struct Machine {
    inbox: Vec<Signal>,
    steps: Vec<Transition>,
}

impl Machine {
    /// Reads them; of a job that is no machine, its inbox all the same.
    pub(super) async fn of(job: &Job, inspect: &dyn Inspect) -> anyhow::Result<Machine> {
        let mut inbox = inspect.inbox(job.summary.id, TOLD + 1).await?;
        // That a branch is to be looked at is nobody's affair but the engine's.
        inbox.retain(|signal| signal.name != BRANCH);
        let steps = match job.summary.stage {
            Some(_) => last(job, inspect).await?,
            None => Vec::new(),
        };
        Ok(Machine { inbox, steps })
    }

    pub(super) fn tell(&self, told: &mut Value) -> anyhow::Result<()> {
        let signal = |signal: &Signal| {
            let mut told = json!({ "number": signal.number, "name": signal.name, "at": signal.at, "payload": value(signal) });
            if let Some(why) = &signal.unreadable {
                told["set_aside"] = json!(why);
            }
            told
        };
        told["inbox"] = self.inbox.iter().take(TOLD).map(signal).collect();
        told["inbox_has_more"] = json!(self.inbox.len() > TOLD);
        told["last_steps"] = serde_json::to_value(&self.steps)?;
        Ok(())
    }

    /// The blocks of a page.
    pub(super) fn blocks(&self, job: &Job, now: Time) -> String {
        let mut page = String::new();
        // A variant without fields has nothing to show.
        if let Some(data) = job.data.as_ref().filter(|data| data.bytes != b"null") {
            let stage = job.summary.stage.as_deref().map(out::plain).unwrap_or_default();
            page += &block(&format!("data of {stage}"), &payload(data));
        }
        if !self.inbox.is_empty() {
            page += &block("inbox", &self.signals(now));
        }
        if !self.steps.is_empty() {
            page += &block(
                "last transitions",
                &steps(&self.steps[self.steps.len().saturating_sub(SHOWN)..], now),
            );
        }
        page
    }

    fn signals(&self, now: Time) -> String {
        let shown = self.inbox.iter().take(SHOWN);
        let width = shown.clone().map(|signal| signal.name.len()).max().unwrap_or(0);
        let line = |signal: &Signal| {
            let text = value(signal).to_string();
            let said = console::truncate_str(&text, 60, "…");
            let aside = signal.unreadable.as_ref().map(|why| {
                format!("{:<width$}  number {}, set aside: {}\n", "", signal.number, out::plain(why))
            });
            let aside = aside.unwrap_or_default();
            format!("{:<width$}  {}  {said}\n{aside}", signal.name, span::relative(signal.at, now))
        };
        let mut text: String = shown.map(line).collect();
        if self.inbox.len() > SHOWN {
            let more = if self.inbox.len() > TOLD { "at least " } else { "" };
            text += &format!("… and {more}{} more\n", self.inbox.len() - SHOWN);
        }
        text
    }
}

/// The lines of a page that say where a machine is and what it waits for.
pub(super) fn lines(job: &Job, now: Time) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(stage) = job.summary.stage.as_ref().filter(|_| !is_block(job)) {
        lines.push(("stage", out::plain(stage)));
    }
    if job.summary.state == State::Waiting {
        let until = job.until.map(|until| format!("until {}", moment(until, now)));
        let what = job.wait.as_ref().map(|wait| awaited(wait, job.pending)).filter(|what| !what.is_empty());
        lines.push(("waits", what.into_iter().chain(until).collect::<Vec<String>>().join(", ")));
    }
    lines
}

fn awaited(wait: &Awaited, pending: u32) -> String {
    match wait {
        Awaited::Nothing => "for nothing: it lets others pass".to_owned(),
        Awaited::Children { .. } => {
            format!("for its children, of which {} not ended", counted(pending))
        }
        Awaited::Signals { names, needs } => {
            let between = if *needs == 1 { " or " } else { " and " };
            let name = |name: &wait::SignalName| format!("{:?}", name.name);
            let is_signal = |name: &&wait::SignalName| ![CHILD, BRANCH].contains(&name.name.as_str());
            let signals: Vec<String> = names.iter().filter(is_signal).map(name).collect();
            let signals = (!signals.is_empty()).then(|| format!("for the signal {}", signals.join(between)));
            // A workflow is told of the ends of its children by signals.
            let children = names.iter().any(|name| name.name == CHILD).then(|| "for a child".to_owned());
            let branches =
                names.iter().any(|name| name.name == BRANCH).then(|| "for its branches".to_owned());
            signals.into_iter().chain(children).chain(branches).collect::<Vec<String>>().join(between)
        }
    }
}

fn counted(pending: u32) -> String {
    if pending == 1 { "1 has".to_owned() } else { format!("{} have", out::thousands(pending.into())) }
}

/// What a signal says, or how large it is.
fn value(signal: &Signal) -> Value {
    match (signal.payload.codec, serde_json::from_slice(&signal.payload.bytes)) {
        (0, Ok(value)) => value,
        (codec, _) => json!(format!("<{} bytes, codec {codec}>", signal.payload.bytes.len())),
    }
}

/// The last transitions, oldest first. They are numbered by revision, and tries that led nowhere have revisions too: if
/// there are few among the last ones, it looks further back.
async fn last(job: &Job, inspect: &dyn Inspect) -> anyhow::Result<Vec<Transition>> {
    let mut back = TOLD as i32;
    loop {
        let after = job.rev.0 - back;
        let mut steps = inspect.transitions(job.summary.id, Some(Rev(after.max(-1))), back as usize).await?;
        if steps.len() >= TOLD || after < 0 {
            steps.drain(..steps.len().saturating_sub(TOLD));
            return Ok(steps);
        }
        back = back.saturating_mul(10);
    }
}

fn steps(steps: &[Transition], now: Time) -> String {
    let line = |step: &Transition| {
        let to = step.next.as_deref().map(|next| format!(" → {}", out::plain(next))).unwrap_or_default();
        let when = span::relative(step.at, now);
        format!(
            "{:>3}  {}{to}  {}  {when}, worker {}\n",
            step.rev.0,
            out::plain(&step.stage),
            step.how,
            step.worker
        )
    };
    steps.iter().map(line).collect()
}
