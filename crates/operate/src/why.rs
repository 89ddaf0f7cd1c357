//! Explains why a job is in its state: the reason in one sentence, and what to do.
//!
//! [`explain`] is a pure function of what the store returned. Every state and every hold has its sentence here and its test. Hints name
//! commands as the stock binary has them, between backticks.

mod branches;
mod cause;
mod child;
mod decided;
mod parked;
#[cfg(test)]
mod tests;
mod usual;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, RateLimit, Reason, State, Time, failure::class};
use windlass_store::{Branch, Holds, Job, JournalEnd, Pause, RateHold, SerialHold, WorkerView};

use windlass_workflow::Error;

use crate::{
    Operator, text,
    unserved::{Unserved, is_alive},
};

pub use cause::Cause;
pub use child::AwaitedChild;

/// How many of the last entries of a journal are read to find out what made a workflow end.
const ENTRIES: usize = 10_000;

/// Why a job is in its state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Why {
    /// The job.
    pub job: JobId,
    /// Its state; `None` for an arrival.
    pub state: Option<State>,
    /// The cause.
    pub cause: Cause,
    /// The reason, in a sentence.
    pub because: String,
    /// What to do about it.
    pub hint: String,
    /// The child that it waits for, if it waits for children, and why that one is in its state. Of several, one about which somebody
    /// must do something, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<AwaitedChild>,
    /// What else holds it, once that is resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

/// One reason: its cause, its sentence, and what to do.
struct Explanation(Cause, String, String);

impl Operator {
    /// Explains why a job is in its state; `None` if there is no such job.
    pub async fn why(&self, id: JobId) -> Result<Option<Why>, Error> {
        let inspect = self.inspect();
        let holds = self.visible_holds(id).await?;
        let Some(job) = inspect.job(id).await? else {
            let arriving = holds.is_some_and(|holds| holds.arriving);
            return Ok(arriving.then(|| self::arriving(id)));
        };
        let branches = match branches::is_awaited(&job) {
            true => inspect.branches(id).await?,
            false => Vec::new(),
        };
        // The journal of a workflow decides whether a retry can help.
        let journal = match job.summary.state {
            State::Failed | State::Cancelled => inspect.journal_end(id, ENTRIES).await?,
            _ => JournalEnd::default(),
        };
        let (workers, now) = (inspect.workers().await?, inspect.clock().await?);
        let holds = holds.unwrap_or_default();
        let mut why = explain(&job, &holds, &branches, &journal, &workers, now);
        if let Some(waiting) = holds.waiting.as_ref().filter(|_| why.cause == Cause::Signal)
            && let Some(usual) = usual::sentence(inspect, &job.summary.kind, waiting, now).await?
        {
            why.because = format!("{} {usual}", why.because);
        }
        if let Some(child) = self.awaited_child(&job, &holds, &branches, &workers, now).await? {
            why.hint = format!("{} {}", why.hint, child.hint());
            why.child = Some(child);
        }
        Ok(Some(why))
    }
}

fn arriving(job: JobId) -> Why {
    Why {
        job,
        state: None,
        cause: Cause::Arriving,
        because: "It was submitted in a transaction, and no worker has admitted it since that was committed.".into(),
        hint: "Wait: workers admit arrivals within two seconds. If none runs, start one: `windlass worker`, or your program.".into(),
        child: None,
        also: Vec::new(),
    }
}

/// Explains why a job is in its state, without [`Why::child`]. `branches` are its own, needed while it waits for them; `journal` is the end of that of a
/// workflow, needed once it has failed or was cancelled.
pub fn explain(
    job: &Job,
    holds: &Holds,
    branches: &[Branch],
    journal: &JournalEnd,
    workers: &[WorkerView],
    now: Time,
) -> Why {
    let mut causes = match job.summary.state {
        State::Done | State::Failed | State::Cancelled => vec![ended(job, journal)],
        State::Running => running(job, holds, workers, now),
        State::Scheduled => scheduled(job, holds, workers, now),
        State::Ready => ready(job, holds, workers, now),
        State::Waiting => parked::causes(job, holds, branches, workers, now),
    };
    causes.extend(unwinding(job));
    causes.splice(0..0, undecodable_row(job));
    let Explanation(cause, because, hint) = causes.remove(0);
    let also = causes.into_iter().map(|Explanation(_, because, _)| because).collect();
    Why { job: job.summary.id, state: Some(job.summary.state), cause, because, hint, child: None, also }
}

/// The job runs its undos before it ends.
fn unwinding(job: &Job) -> Option<Explanation> {
    let unwind = job.unwind.as_ref().filter(|_| !job.summary.state.is_final())?;
    let how = match unwind.reason {
        Some(reason) => format!("fails ({reason}): {}", unwind.failure.text_after(reason)),
        None => format!("is cancelled: {}", unwind.failure),
    };
    let because = sentence(&format!("It undoes its steps, and then it {how}"));
    let hint = format!("Wait, or end it at once without its undos: `windlass cancel {}`.", job.summary.id);
    Some(Explanation(Cause::Unwinding, because, hint))
}

/// A column of the job's row cannot be decoded.
fn undecodable_row(job: &Job) -> Option<Explanation> {
    let fault = job.fault.as_ref()?;
    let repair = "Repair the row in the database: it was changed by hand, or written by a newer version";
    let (consequence, hint) = match job.summary.state {
        State::Done => return None,
        State::Failed | State::Cancelled => {
            ("It cannot be retried", format!("{repair}. Then `windlass retry {}`.", job.summary.id))
        }
        _ => ("It fails when it is claimed next", format!("{repair}.")),
    };
    Some(Explanation(Cause::Undecodable, sentence(&format!("{consequence}, because {fault}")), hint))
}

fn ended(job: &Job, journal: &JournalEnd) -> Explanation {
    let id = job.summary.id;
    let ending = decided::ending(journal.entries.iter().map(|head| &head.entry));
    let at = job.summary.finished_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let Explanation(cause, because, hint) = match job.summary.state {
        State::Done => Explanation(Cause::Done, format!("It was done{at}."), "Nothing to do.".into()),
        State::Cancelled => {
            let why = job.failure.as_ref().map(|failure| match failure.message.strip_prefix("cancelled ") {
                Some(actor) if failure.class == class::CANCELLED => format!(" {actor}"),
                _ => format!(": {failure}"),
            });
            let because = sentence(&format!("It was cancelled{at}{}", why.unwrap_or_default()));
            let hint = match is_own_cancel(job) {
                true => format!(
                    "Nothing to do: its own code cancelled it, and a retry does the same unless the cause has changed; then \
                     `windlass retry {id}`."
                ),
                false => format!("To run it after all: `windlass retry {id}`."),
            };
            Explanation(Cause::Cancelled, because, hint)
        }
        _ => failed(job, &at),
    };
    let hint = match journal.before {
        0 => fork_hint(job, &ending).unwrap_or(hint),
        _ => format!(
            "{hint} Its journal has more than the {ENTRIES} entries that are read here: check first whether the retry would replay what made \
             it end, `windlass show {id}`."
        ),
    };
    let hint = match ending.not_undone.as_slice() {
        [] => hint,
        left => {
            let names: Vec<String> = left.iter().map(|entry| decided::shown(entry)).collect();
            format!("First take care of what was not undone: {}. {hint}", names.join(", "))
        }
    };
    Explanation(cause, because, hint)
}

/// Whether a job was cancelled by its own code, not by a person.
fn is_own_cancel(job: &Job) -> bool {
    job.failure.as_ref().is_some_and(|failure| failure.class != class::CANCELLED)
}

/// What to do about a workflow that ended because of a recorded result: a retry would replay it.
fn fork_hint(job: &Job, ending: &decided::Ending<'_>) -> Option<String> {
    let by_itself = match job.summary.state {
        State::Failed => {
            matches!(job.summary.reason, None | Some(Reason::Stopped | Reason::Exhausted | Reason::Timeout))
        }
        State::Cancelled => is_own_cancel(job),
        _ => false,
    };
    let (decided, before) = (ending.decided.filter(|_| by_itself)?, ending.fork_before?);
    let why = match before.seq == decided.seq || (&before.name, &before.key) == (&decided.name, &decided.key)
    {
        true => "so run that again in a new job".to_owned(),
        false => format!(
            "so run that again in a new job, starting from the {}, which was undone",
            decided::shown(before)
        ),
    };
    Some(format!(
        "A retry cannot help, because it replays the recorded result of the {}; {why}: `{}`.",
        decided::shown(decided),
        decided::fork_command(job.summary.id, before)
    ))
}

fn failed(job: &Job, at: &str) -> Explanation {
    let id = job.summary.id;
    let used = match job.summary.attempts {
        0 | 1 => "its only attempt is used up".to_owned(),
        attempts => format!("its {attempts} attempts are used up"),
    };
    let fix = "Fix the cause";
    let (cause, why, first) = match job.summary.reason.unwrap_or(Reason::Stopped) {
        Reason::Exhausted => (Cause::Exhausted, used, fix),
        Reason::Stopped => (Cause::Stopped, "its error says that a retry cannot help".into(), fix),
        Reason::Timeout => {
            (Cause::Timeout, format!("{used} and the last ran too long"), "Give it more time or less to do")
        }
        Reason::Poison => {
            let why = format!("{} died while it ran alone", counted(job.solo_crashes.into(), "worker"));
            (Cause::Poison, why, "Check what it does to its process (memory, aborts)")
        }
        Reason::Undecodable if job.summary.stage.is_some() => {
            let first = "Serve it with code that decodes this stage, or migrate it";
            (Cause::Undecodable, "its stage does not decode".into(), first)
        }
        Reason::Undecodable => (
            Cause::Undecodable,
            "its input does not decode".into(),
            "Serve it with code that decodes this input",
        ),
        Reason::Expired => {
            (Cause::Expired, "its deadline passed before it ended".into(), "If it is still wanted")
        }
        Reason::Refused => (Cause::Refused, "the engine or the store refused what it did".into(), fix),
        Reason::Diverged => {
            let why = "its code no longer matches its journal".into();
            (Cause::Diverged, why, "Serve it with code that matches (see docs/changing-workflows.md)")
        }
    };
    let error = job.failure.as_ref().map(|failure| sentence(&format!(" The last error: {failure}")));
    let because = format!("It failed{at} because {why}.{}", error.unwrap_or_default());
    Explanation(cause, because, format!("{first}, then `windlass retry {id}`."))
}

fn running(job: &Job, holds: &Holds, workers: &[WorkerView], now: Time) -> Vec<Explanation> {
    let id = job.summary.id;
    let worker = workers.iter().find(|worker| Some(worker.id) == job.worker);
    let name = worker.map_or("a worker that is gone".into(), |worker| format!("worker {}", worker.name));
    let mut causes = Vec::new();
    if let Some(cancel) = &holds.cancel_requested {
        let end = match cancel.deadline_at > now {
            true => format!("in {} at the latest", span(cancel.deadline_at - now)),
            false => "at the next poll of a worker".to_owned(),
        };
        let because = format!(
            "It runs on {name}, and {}{} requested its cancel; it ends {end}.",
            cancel.author,
            noted(cancel.note.as_deref()),
        );
        causes.push(Explanation(Cause::CancelRequested, because, "Wait; nothing else is needed.".into()));
    }
    if worker.is_none_or(|worker| !is_alive(worker, now)) {
        let because =
            format!("It was claimed by {name}, which has not renewed its lease and is considered dead.");
        let hint = "Wait: the other workers take it over within a lease. If none runs, start one: `windlass worker`, \
                    or your program.";
        causes.push(Explanation(Cause::WorkerLost, because, hint.into()));
    }
    if causes.is_empty() {
        let since = job.started_at.map(|at| format!(" for {}", span(now - at))).unwrap_or_default();
        let progress = job.progress.as_ref().map(|progress| text::progress(progress, now));
        let progress = progress.map(|text| format!(" Its progress: {text}.")).unwrap_or_default();
        let because = format!("It has been running on {name}{since}.{progress}");
        causes.push(Explanation(
            Cause::Running,
            because,
            format!("Wait, or cancel it: `windlass cancel {id}`."),
        ));
    }
    if let Some(pause) = &holds.paused {
        let Explanation(cause, because, hint) = paused(job, pause);
        let because = format!("{because} That applies if it is retried.");
        causes.push(Explanation(cause, because, hint));
    }
    causes
}

fn scheduled(job: &Job, holds: &Holds, workers: &[WorkerView], now: Time) -> Vec<Explanation> {
    let mut causes: Vec<Explanation> = holds.paused.iter().map(|pause| paused(job, pause)).collect();
    let at = job.summary.due_at;
    let when = match at > now {
        true => format!("at {at}, in {}", span(at - now)),
        false => format!("since {at}"),
    };
    let wait = format!("Wait, or cancel it: `windlass cancel {}`.", job.summary.id);
    if at <= now && !workers.iter().any(|worker| is_alive(worker, now)) {
        causes.push(no_worker());
    }
    causes.push(match (job.summary.attempts, &job.failure) {
        (attempts @ 1.., Some(failure)) => {
            let because = format!("Attempt {attempts} failed ({failure}); the next is due {when}.");
            Explanation(Cause::BackingOff, because, wait)
        }
        _ => Explanation(Cause::Scheduled, format!("It is due {when}."), wait),
    });
    causes.extend(queue_paused(job, holds));
    causes
}

fn ready(job: &Job, holds: &Holds, workers: &[WorkerView], now: Time) -> Vec<Explanation> {
    let mut causes = Vec::new();
    if let Some(cancel) = &holds.cancel_requested {
        let because = format!(
            "Its cancel was requested by {}{}; it does not start again.",
            cancel.author,
            noted(cancel.note.as_deref())
        );
        causes.push(Explanation(Cause::CancelRequested, because, "Wait; it ends soon.".into()));
    }
    causes.extend(holds.paused.iter().map(|pause| paused(job, pause)));
    causes.extend(queue_paused(job, holds));
    causes.extend(unserved(job, workers, now));
    causes.extend(holds.serial.as_ref().filter(|serial| !serial.held).map(in_line));
    causes.extend(holds.rate.as_ref().and_then(|rate| unpaid(rate, now)));
    if causes.is_empty() {
        causes.push(waiting(job, holds));
    }
    causes
}

/// It waits for a slot of its serial key.
fn in_line(serial: &SerialHold) -> Explanation {
    let many = match serial.slots {
        1 => "one at a time".to_owned(),
        slots => format!("{slots} at a time"),
    };
    let hidden = serial.hidden_holders as usize;
    let who = match (serial.holders.as_slice(), hidden) {
        ([], 0) => "no job has a slot, which should not last".into(),
        ([], 1) => "another job has the slot".into(),
        ([], _) => format!("{hidden} other jobs have slots"),
        ([one], 0) => format!("job {one} has the slot"),
        ([one, rest @ ..], _) => format!("job {one} and {} more have slots", rest.len() + hidden),
    };
    let place = match serial.ahead {
        0 => "it is next".to_owned(),
        1 => "1 job is before it in line".to_owned(),
        1_000.. => "1,000 jobs or more are before it in line".to_owned(),
        ahead => format!("{ahead} jobs are before it in line"),
    };
    let because = format!("Jobs with its serial key {:?} run {many}: {who}, and {place}.", serial.key);
    let hint = match serial.holders.first() {
        Some(holder) => {
            format!("Wait, or see what the job with the slot does: `windlass why {holder}`.")
        }
        None if hidden > 0 => "Wait, or ask whoever may see the jobs of other kinds and queues.".into(),
        None => "Wait: workers repair this every few minutes. If it stays so: `windlass doctor`.".into(),
    };
    Explanation(Cause::Serial, because, hint)
}

/// It waits for tokens of its rate limit.
fn unpaid(rate: &RateHold, now: Time) -> Option<Explanation> {
    let limit = rate.limit.as_ref().filter(|_| rate.affordable_at > now)?;
    let RateLimit { name, rate: tokens, per, burst } = limit;
    let cost = match rate.weight {
        1 => "no token left for it".to_owned(),
        weight => format!("too few tokens for its weight of {weight}"),
    };
    let because = format!(
        "Its rate limit {name:?} ({tokens} per {}, burst {burst}) has {cost} until {}, in {}.",
        span(*per),
        rate.affordable_at,
        span(rate.affordable_at - now),
    );
    let hint =
        format!("Wait, or raise the limit: `windlass limits set {name} {} …`.", tokens.saturating_mul(2));
    Some(Explanation(Cause::Rate, because, hint))
}

/// No live worker serves its queue, its kind or its version.
fn unserved(job: &Job, workers: &[WorkerView], now: Time) -> Option<Explanation> {
    let (queue, kind, version) = (&job.summary.queue, &job.summary.kind, job.summary.version);
    Some(match Unserved::of((queue, kind, version), workers, now)? {
        Unserved::NoWorker => no_worker(),
        Unserved::Queue => {
            let others = match workers.iter().filter(|worker| is_alive(worker, now)).count() {
                1 => "the only live one serves others".to_owned(),
                count => format!("{count} workers serve others"),
            };
            let because = format!("No worker serves its queue {queue:?}; {others}.");
            let hint = format!("Start one that does: `windlass worker --queue {queue}`, or your program.");
            Explanation(Cause::QueueUnserved, because, hint)
        }
        Unserved::Kind => {
            let because = format!("No worker that serves queue {queue:?} knows the kind {kind:?}.");
            let hint = match kind.as_str() {
                // The kind of the stock binary that its workers serve only if they are started for that.
                "exec" => "Start `windlass worker --exec`, or the program that registers this kind.",
                _ => "Start the program that registers this kind.",
            };
            Explanation(Cause::KindUnserved, because, hint.into())
        }
        Unserved::Version => {
            let because = format!(
                "No worker that serves queue {queue:?} knows version {version} of the kind {kind:?}."
            );
            let hint = match &job.summary.stage {
                Some(_) => {
                    "Run a build with that version next to the new one until its jobs have ended, or migrate their stages to a \
                     version that is served."
                }
                None => "Run a build with that version next to the new one until its jobs have ended.",
            };
            Explanation(Cause::VersionUnserved, because, hint.into())
        }
    })
}

fn no_worker() -> Explanation {
    let hint = "Start one: `windlass worker`, or your program.".into();
    Explanation(Cause::NoWorker, "No worker is running on this store.".into(), hint)
}

/// Nothing holds it: it waits for a slot.
fn waiting(job: &Job, holds: &Holds) -> Explanation {
    if holds.suspect {
        let died = counted(job.worker_deaths.into(), "worker");
        let because = format!("{died} died while it was claimed, so it waits to be run alone.");
        return Explanation(Cause::Suspect, because, "Wait: it runs as soon as a worker is idle.".into());
    }
    let queue = &job.summary.queue;
    let more = match holds.ahead {
        0 => {
            let because = format!(
                "It is the next of its kind in queue {queue:?} and starts as soon as a slot is free."
            );
            let hint = "Wait. If it stays so, all slots of the queue are busy: add workers or slots.";
            return Explanation(Cause::Next, because, hint.into());
        }
        1 => "1 job of its kind is".to_owned(),
        1_000.. => "1,000 jobs of its kind or more are".to_owned(),
        ahead => format!("{ahead} jobs of its kind are"),
    };
    let because = format!("{more} before it in queue {queue:?}.");
    let id = job.summary.id;
    let hint = format!("Wait, add workers or slots, or raise its priority: `windlass priority -10 {id}`.");
    Explanation(Cause::Behind, because, hint)
}

fn paused(job: &Job, pause: &Pause) -> Explanation {
    let because = paused_text("It", pause);
    Explanation(Cause::Paused, because, format!("To resume it: `windlass resume {}`.", job.summary.id))
}

fn queue_paused(job: &Job, holds: &Holds) -> Option<Explanation> {
    let queue = &job.summary.queue;
    let because = paused_text(&format!("Its queue {queue:?}"), holds.queue_paused.as_ref()?);
    Some(Explanation(Cause::QueuePaused, because, format!("To resume it: `windlass queues resume {queue}`.")))
}

fn paused_text(what: &str, pause: &Pause) -> String {
    format!("{what} was paused by {} at {}{}.", pause.author, pause.at, noted(pause.note.as_deref()))
}

fn noted(note: Option<&str>) -> String {
    note.map(|note| format!(" ({note})")).unwrap_or_default()
}

/// Ends a text with exactly one full stop.
fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches(['.', '\n', ' ']))
}

fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A duration in one unit.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
