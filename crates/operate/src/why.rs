//! Why a job is where it is: the true reason in one sentence, and what to do.
//!
//! [`explain`] is a pure function of what the store says; every state and everything that can hold a job has its
//! sentence here and its test. Hints name commands as the stock binary has them, between backticks.

mod branches;
mod decided;
mod parked;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;
use windlass_model::{JobId, JournalEntry, RateLimit, Reason, State, Time, failure::class};
use windlass_store::{Branch, Holds, Job, Pause, RateHold, SerialHold, WorkerView};

use windlass_workflow::Error;

use crate::Operator;

/// The answer to "why?".
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Why {
    /// The job.
    pub job: JobId,
    /// Where it stands.
    pub state: Option<State>,
    /// Which of the reasons it is, as a word that stays the same.
    pub cause: &'static str,
    /// The reason, in a sentence.
    pub because: String,
    /// What to do about it.
    pub hint: String,
    /// What else would keep it, once that is gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

/// One reason: its word, its sentence, and what to do.
struct Cause(&'static str, String, String);

impl Operator {
    /// Why a job is where it is; `None` if there is no such job.
    pub async fn why(&self, id: JobId) -> Result<Option<Why>, Error> {
        let inspect = self.inspect();
        let holds = inspect.holds(id).await?;
        let Some(job) = inspect.job(id).await? else {
            let arriving = holds.is_some_and(|holds| holds.arriving);
            return Ok(arriving.then(|| self::arriving(id)));
        };
        let branches = match branches::is_awaited(&job) {
            true => inspect.branches(id).await?,
            false => Vec::new(),
        };
        // What a workflow has recorded decides whether a retry can help.
        let journal = match job.summary.state {
            State::Failed | State::Cancelled => inspect.journal(id, None, usize::MAX).await?,
            _ => Vec::new(),
        };
        let (workers, now) = (inspect.workers().await?, inspect.clock().await?);
        Ok(Some(explain(&job, &holds.unwrap_or_default(), &branches, &journal, &workers, now)))
    }
}

fn arriving(job: JobId) -> Why {
    Why {
        job,
        state: None,
        cause: "arriving",
        because: "It was submitted in a transaction, and no worker has looked since that was committed.".into(),
        hint: "Wait: workers look every two seconds. If none runs, start one: `windlass worker`, or your program.".into(),
        also: Vec::new(),
    }
}

/// Says why a job is where it is. `branches` are its own; they matter while it waits for them. `journal` is that of a
/// workflow; it matters once it has failed or was cancelled.
pub fn explain(
    job: &Job,
    holds: &Holds,
    branches: &[Branch],
    journal: &[JournalEntry],
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
    let Cause(cause, because, hint) = causes.remove(0);
    let also = causes.into_iter().map(|Cause(_, because, _)| because).collect();
    Why { job: job.summary.id, state: Some(job.summary.state), cause, because, hint, also }
}

/// That a job undoes what it did before it ends.
fn unwinding(job: &Job) -> Option<Cause> {
    let unwind = job.unwind.as_ref().filter(|_| !job.summary.state.is_final())?;
    let how = match unwind.reason {
        Some(reason) => format!("fails ({reason}): {}", unwind.failure),
        None => format!("is cancelled: {}", unwind.failure),
    };
    let because = sentence(&format!("It undoes what it did, and then it {how}"));
    let hint = format!("Wait; to end it at once, without its undos: `windlass cancel {}`.", job.summary.id);
    Some(Cause("unwinding", because, hint))
}

fn ended(job: &Job, journal: &[JournalEntry]) -> Cause {
    let id = job.summary.id;
    let ending = decided::ending(journal);
    let at = job.summary.finished_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let Cause(cause, because, hint) = match job.summary.state {
        State::Done => Cause("done", format!("It was done{at}."), "Nothing to do.".into()),
        State::Cancelled => {
            let why = job.failure.as_ref().map(|failure| match failure.message.strip_prefix("cancelled ") {
                Some(by) if failure.class == class::CANCELLED => format!(" {by}"),
                _ => format!(": {failure}"),
            });
            let because = sentence(&format!("It was cancelled{at}{}", why.unwrap_or_default()));
            let hint = match is_own_cancel(job) {
                true => format!(
                    "Nothing to do: its own code cancelled it, and a retry does the same unless what led to that has \
                     changed; then `windlass retry {id}`."
                ),
                false => format!("If it is wanted after all: `windlass retry {id}`."),
            };
            Cause("cancelled", because, hint)
        }
        _ => failed(job, &at),
    };
    let hint = again(job, &ending).unwrap_or(hint);
    let hint = match ending.not_undone.as_slice() {
        [] => hint,
        left => {
            let names: Vec<String> = left.iter().map(|entry| decided::shown(entry)).collect();
            format!("See first to what was not undone: {}. {hint}", names.join(", "))
        }
    };
    Cause(cause, because, hint)
}

/// Whether a cancelled job was cancelled by its own code, and not by somebody.
fn is_own_cancel(job: &Job) -> bool {
    job.failure.as_ref().is_some_and(|failure| failure.class != class::CANCELLED)
}

/// What to do about a workflow that ended by what it has recorded: a retry would read that again.
fn again(job: &Job, ending: &decided::Ending<'_>) -> Option<String> {
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
        true => "so run that anew, in a new job".to_owned(),
        false => format!(
            "so run that anew, in a new job, from the {} on, which was undone",
            decided::shown(before)
        ),
    };
    Some(format!(
        "A retry cannot help, since it ends by what is recorded of the {}; {why}: `{}`.",
        decided::shown(decided),
        decided::fork_command(job.summary.id, before)
    ))
}

fn failed(job: &Job, at: &str) -> Cause {
    let id = job.summary.id;
    let used = match job.summary.attempts {
        0 | 1 => "its only attempt is used up".to_owned(),
        attempts => format!("its {attempts} attempts are used up"),
    };
    let mend = "Mend the cause";
    let (cause, why, first) = match job.summary.reason.unwrap_or(Reason::Stopped) {
        Reason::Exhausted => ("exhausted", used, mend),
        Reason::Stopped => ("stopped", "its error said that trying again cannot help".into(), mend),
        Reason::Timeout => {
            ("timeout", format!("{used} and the last ran too long"), "Give it more time or less to do")
        }
        Reason::Poison => {
            let why = format!("{} died while it ran alone", counted(job.crashes.into(), "worker"));
            ("poison", why, "Look at what it does to its process (memory, aborts)")
        }
        Reason::Undecodable if job.summary.stage.is_some() => {
            let first = "Serve it with code that reads this state, or migrate its state";
            ("undecodable", "its state does not decode".into(), first)
        }
        Reason::Undecodable => {
            ("undecodable", "its input does not decode".into(), "Serve it with code that reads this input")
        }
        Reason::Expired => {
            ("expired", "its deadline passed before it ended".into(), "If it is worth doing still")
        }
        Reason::Refused => ("refused", "the store refused what it wanted written".into(), mend),
        Reason::Diverged => {
            let why = "its code no longer fits what its journal says it has done".into();
            ("diverged", why, "Serve it with code that fits (see docs/changing-workflows.md)")
        }
    };
    let error = job.failure.as_ref().map(|failure| sentence(&format!(" The last error: {failure}")));
    let because = format!("It failed{at} because {why}.{}", error.unwrap_or_default());
    Cause(cause, because, format!("{first}, then `windlass retry {id}`."))
}

fn running(job: &Job, holds: &Holds, workers: &[WorkerView], now: Time) -> Vec<Cause> {
    let id = job.summary.id;
    let worker = workers.iter().find(|worker| Some(worker.id) == job.worker);
    let name = worker.map_or("a worker that is gone".into(), |worker| format!("worker {}", worker.name));
    let mut causes = Vec::new();
    if let Some(told) = &holds.cancel_requested {
        let end = match told.deadline_at > now {
            true => format!("in {} at the latest", span(told.deadline_at.since(now))),
            false => "at the next look of a worker".to_owned(),
        };
        let because = format!(
            "It runs on {name} and was told to end by {}{}; it is over {end}.",
            told.author,
            noted(told.note.as_deref()),
        );
        causes.push(Cause("told", because, "Wait; nothing else is needed.".into()));
    }
    if worker.is_none_or(|worker| !is_alive(worker, now)) {
        let because =
            format!("It was claimed by {name}, which has not renewed its lease and is taken for dead.");
        let hint = "Wait: the other workers take it over within a lease. If none runs, start one: `windlass worker`, \
                    or your program.";
        causes.push(Cause("worker_lost", because, hint.into()));
    }
    if causes.is_empty() {
        let since = job.started_at.map(|at| format!(" for {}", span(now.since(at)))).unwrap_or_default();
        let because = format!("It has been running on {name}{since}.");
        causes.push(Cause("running", because, format!("Wait, or end it: `windlass cancel {id}`.")));
    }
    if let Some(pause) = &holds.paused {
        let Cause(cause, because, hint) = paused(job, pause);
        let because = format!("{because} That holds if it is to be tried again.");
        causes.push(Cause(cause, because, hint));
    }
    causes
}

fn scheduled(job: &Job, holds: &Holds, workers: &[WorkerView], now: Time) -> Vec<Cause> {
    let mut causes: Vec<Cause> = holds.paused.iter().map(|pause| paused(job, pause)).collect();
    let at = job.summary.due_at;
    let when = match at > now {
        true => format!("at {at}, in {}", span(at.since(now))),
        false => format!("since {at}"),
    };
    let wait = format!("Wait, or give it up: `windlass cancel {}`.", job.summary.id);
    if at <= now && !workers.iter().any(|worker| is_alive(worker, now)) {
        causes.push(no_worker());
    }
    causes.push(match (job.summary.attempts, &job.failure) {
        (attempts @ 1.., Some(failure)) => {
            let because = format!("Attempt {attempts} failed ({failure}); the next is due {when}.");
            Cause("backing_off", because, wait)
        }
        _ => Cause("scheduled", format!("It is due {when}."), wait),
    });
    causes.extend(queue_paused(job, holds));
    causes
}

fn ready(job: &Job, holds: &Holds, workers: &[WorkerView], now: Time) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(told) = &holds.cancel_requested {
        let because = format!(
            "It was told to end by {}{}, and does not start again.",
            told.author,
            noted(told.note.as_deref())
        );
        causes.push(Cause("told", because, "Wait; it ends soon.".into()));
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

/// It waits for its turn under a serial key.
fn in_line(serial: &SerialHold) -> Cause {
    let many = match serial.slots {
        1 => "one at a time".to_owned(),
        slots => format!("{slots} at a time"),
    };
    let who = match serial.holders.as_slice() {
        [] => "nobody has the turn, which does not last".into(),
        [one] => format!("job {one} has the turn"),
        [one, rest @ ..] => format!("job {one} and {} more have a turn", rest.len()),
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
            format!("Wait, or see what keeps the one that has the turn: `windlass why {holder}`.")
        }
        None => "Wait: workers look after this every few minutes. If it stays so: `windlass doctor`.".into(),
    };
    Cause("serial", because, hint)
}

/// It waits for tokens of its rate limit.
fn unpaid(rate: &RateHold, now: Time) -> Option<Cause> {
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
        span(rate.affordable_at.since(now)),
    );
    let hint =
        format!("Wait, or raise the limit: `windlass limits set {name} {} …`.", tokens.saturating_mul(2));
    Some(Cause("rate", because, hint))
}

/// Whether anyone could run it.
fn unserved(job: &Job, workers: &[WorkerView], now: Time) -> Option<Cause> {
    let (queue, kind, version) = (&job.summary.queue, &job.summary.kind, job.summary.version);
    let alive: Vec<&WorkerView> = workers.iter().filter(|worker| is_alive(worker, now)).collect();
    if alive.is_empty() {
        return Some(no_worker());
    }
    let pools = || alive.iter().flat_map(|worker| &worker.serves).filter(|serves| serves.queue == *queue);
    let mut kinds = pools().flat_map(|serves| &serves.kinds).filter(|served| served.kind == *kind).peekable();
    if pools().next().is_none() {
        let others = match alive.len() {
            1 => "the one that runs serves others".to_owned(),
            count => format!("{count} workers serve others"),
        };
        let because = format!("No worker serves its queue {queue:?}; {others}.");
        let hint = format!("Start one that does: `windlass worker --queue {queue}`, or your program.");
        return Some(Cause("queue_unserved", because, hint));
    }
    if kinds.peek().is_none() {
        let because = format!("No worker that serves queue {queue:?} knows the kind {kind:?}.");
        return Some(Cause("kind_unserved", because, "Start the program that registers this kind.".into()));
    }
    if !kinds.any(|served| served.version == version) {
        let because =
            format!("No worker that serves queue {queue:?} knows version {version} of the kind {kind:?}.");
        let hint = match &job.summary.stage {
            Some(_) => {
                "Run a build with that version beside the new one until its jobs are through, or migrate their state to a \
                 version that is served."
            }
            None => "Run a build with that version beside the new one until its jobs are through.",
        };
        return Some(Cause("version_unserved", because, hint.into()));
    }
    None
}

fn no_worker() -> Cause {
    let hint = "Start one: `windlass worker`, or your program.".into();
    Cause("no_worker", "No worker is running on this store.".into(), hint)
}

/// Nothing keeps it but others of its kind.
fn waiting(job: &Job, holds: &Holds) -> Cause {
    if holds.suspect {
        let died = counted(job.deaths.into(), "worker");
        let because = format!("{died} died while it was claimed, so it waits to be run alone.");
        return Cause("suspect", because, "Wait: its turn comes when a worker has a quiet moment.".into());
    }
    let queue = &job.summary.queue;
    let more = match holds.ahead {
        0 => {
            let because = format!(
                "It is the next of its kind in queue {queue:?} and starts as soon as a slot is free."
            );
            let hint = "Wait; if it stays so, all slots of the queue are busy: add workers or slots.";
            return Cause("next", because, hint.into());
        }
        1 => "1 job of its kind is".to_owned(),
        1_000.. => "1,000 jobs of its kind or more are".to_owned(),
        ahead => format!("{ahead} jobs of its kind are"),
    };
    let because = format!("{more} before it in queue {queue:?}.");
    let id = job.summary.id;
    let hint = format!("Wait, add workers or slots, or move it forward: `windlass priority -10 {id}`.");
    Cause("behind", because, hint)
}

fn paused(job: &Job, pause: &Pause) -> Cause {
    let because = said_of("It", pause);
    Cause("paused", because, format!("To let it go on: `windlass resume {}`.", job.summary.id))
}

fn queue_paused(job: &Job, holds: &Holds) -> Option<Cause> {
    let queue = &job.summary.queue;
    let because = said_of(&format!("Its queue {queue:?}"), holds.queue_paused.as_ref()?);
    Some(Cause("queue_paused", because, format!("To let it go on: `windlass queues resume {queue}`.")))
}

fn said_of(what: &str, pause: &Pause) -> String {
    format!("{what} was paused by {} at {}{}.", pause.author, pause.at, noted(pause.note.as_deref()))
}

fn noted(note: Option<&str>) -> String {
    note.map(|note| format!(" ({note})")).unwrap_or_default()
}

/// A sentence ends with one full stop, whatever the text in it ends with.
fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches(['.', '\n', ' ']))
}

fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn is_alive(worker: &WorkerView, now: Time) -> bool {
    worker.alive && worker.lease_until > now
}

/// A span as people say it.
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
