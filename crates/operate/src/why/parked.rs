//! Why a parked job waits.

use windlass_model::{State, Time, WaitCondition, branch::BRANCH_SIGNAL, wait::CHILD_SIGNAL};
use windlass_store::{Branch, Holds, Job, UnreadableSignalView, Waiting, WorkerView};

use super::{Cause, Explanation, branches, counted, no_worker, paused, queue_paused, span, unserved};

use crate::unserved::is_alive;

pub(super) fn causes(
    job: &Job,
    holds: &Holds,
    branches: &[Branch],
    workers: &[WorkerView],
    now: Time,
) -> Vec<Explanation> {
    debug_assert_eq!(job.summary.state, State::Waiting);
    let until = holds.waiting.as_ref().and_then(|waiting| waiting.wait_until);
    let mut causes = Vec::new();
    if until.is_some_and(|until| until <= now) && !workers.iter().any(|worker| is_alive(worker, now)) {
        causes.push(no_worker());
    }
    match &holds.waiting {
        Some(waiting) => {
            causes.extend(awaited(job, waiting, branches, now));
            causes.extend(unreadable(job, waiting));
        }
        None => causes.push(Explanation(
            Cause::Waiting,
            "It waits, and was woken just now.".into(),
            "Look again.".into(),
        )),
    }
    causes.extend(holds.paused.iter().map(|pause| paused(job, pause)));
    causes.extend(queue_paused(job, holds));
    causes.extend(unserved(job, workers, now).filter(|Explanation(cause, ..)| *cause != Cause::NoWorker));
    causes
}

/// What it waits for: first what must be done about it, if there is such a thing.
fn awaited(job: &Job, waiting: &Waiting, branches: &[Branch], now: Time) -> Vec<Explanation> {
    let names: Vec<&str> = waiting.condition.names().filter(|name| *name != BRANCH_SIGNAL).collect();
    let of_branches = waiting.condition.names().any(|name| name == BRANCH_SIGNAL);
    let mut causes = if of_branches { branches::causes(job, waiting, branches, now) } else { Vec::new() };
    if !of_branches || !names.is_empty() {
        causes.push(other(job, waiting, now));
    }
    causes
}

/// Signals arrived that its code could not decode.
fn unreadable(job: &Job, waiting: &Waiting) -> Option<Explanation> {
    let first = waiting.unreadable.first()?;
    let id = job.summary.id;
    let more = match waiting.unreadable.len() - 1 {
        0 => String::new(),
        more => format!(" So are {} after it: see `windlass show {id}`.", counted(more as u64, "signal")),
    };
    let UnreadableSignalView { number, name, at, why } = first;
    let because = format!(
        "The signal {name:?} of {at} is unreadable: {why}. `windlass signal --drop {id} {number}` drops it; `windlass \
         signal --restore {id} {number}` restores it, once the code can decode it.{more}"
    );
    Some(Explanation(
        Cause::SignalUnreadable,
        because,
        format!("See its payload: `windlass show {id} --json`."),
    ))
}

fn other(job: &Job, waiting: &Waiting, now: Time) -> Explanation {
    let id = job.summary.id;
    let stage = job.summary.stage.as_ref().map(|stage| format!("In {stage}, it")).unwrap_or("It".into());
    let until = match waiting.wait_until {
        Some(until) if until > now => format!(" until {until}, in {}", span(until - now)),
        Some(until) => format!(" until {until}, which has passed"),
        None => ", without a time limit".to_owned(),
    };
    match &waiting.condition {
        WaitCondition::Signals { names, needs } => {
            let has_arrived = |name: &&str| waiting.arrived.iter().any(|arrived| arrived == name);
            let names: Vec<&str> =
                names.iter().map(|name| name.name.as_str()).filter(|name| *name != BRANCH_SIGNAL).collect();
            // A workflow receives the ends of its children as signals.
            if names == [CHILD_SIGNAL] {
                let because = format!("{stage} waits for a child to end{until}.");
                return Explanation(
                    Cause::Children,
                    because,
                    format!("See what they do: `windlass jobs --parent {id}`."),
                );
            }
            let child = if names.contains(&CHILD_SIGNAL) { ", or for a child to end" } else { "" };
            let names: Vec<&str> = names.into_iter().filter(|name| *name != CHILD_SIGNAL).collect();
            let missing: Vec<&str> = names.iter().copied().filter(|name| !has_arrived(name)).collect();
            let what = match (names.as_slice(), *needs as usize) {
                ([name], _) => format!("the signal {name:?}"),
                (names, 1) => format!("any of the signals {}", list(names)),
                (names, needs) if needs == names.len() && missing.len() < needs => {
                    format!("all of the signals {}, of which {} is missing", list(names), list(&missing))
                }
                (names, needs) if needs == names.len() => format!("all of the signals {}", list(names)),
                (names, needs) => format!("{needs} of the signals {}", list(names)),
            };
            if names.is_empty() {
                let because = format!("{stage} sleeps{until}.");
                return Explanation(
                    Cause::Asleep,
                    because,
                    format!("Wait, or cancel it: `windlass cancel {id}`."),
                );
            }
            let because = format!("{stage} waits for {what}{child}{until}.");
            let name = missing.first().or(names.first()).copied().unwrap_or("NAME");
            let hint = format!("Wait, or send it: `windlass signal {id} {name} JSON`.");
            Explanation(Cause::Signal, because, hint)
        }
        WaitCondition::Children { .. } => {
            let because = format!(
                "{stage} waits for its children, of which {} has not ended{until}.",
                counted(waiting.pending_children.into(), "job").replace("1 job", "one")
            );
            let because =
                if waiting.pending_children == 1 { because } else { because.replace("has not", "have not") };
            Explanation(Cause::Children, because, format!("See what they do: `windlass jobs --parent {id}`."))
        }
        WaitCondition::Nothing => Explanation(
            Cause::Waiting,
            format!("{stage} yielded its slot to others and continues soon."),
            "Wait.".into(),
        ),
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}
