//! Why a job is where it is: the true reason in one sentence, and what to do.
//!
//! [`explain`] is a pure function of what the store says; every state and everything that can hold a job has its
//! sentence here and its test.

use std::time::Duration;

use serde::Serialize;
use windlass_model::{JobId, Reason, State, Time};
use windlass_store::{Holds, Job, Pause, WorkerView};

use crate::{Engine, Error};

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

impl Engine {
    /// Why a job is where it is; `None` if there is no such job.
    pub async fn why(&self, id: JobId) -> Result<Option<Why>, Error> {
        let inspect = self.inspect();
        let holds = inspect.holds(id).await?;
        let Some(job) = inspect.job(id).await? else {
            let arriving = holds.is_some_and(|holds| holds.arriving);
            return Ok(arriving.then(|| self::arriving(id)));
        };
        let (workers, now) = (inspect.workers().await?, inspect.clock().await?);
        Ok(Some(explain(&job, &holds.unwrap_or_default(), &workers, now)))
    }
}

fn arriving(job: JobId) -> Why {
    Why {
        job,
        state: None,
        cause: "arriving",
        because: "It was submitted in a transaction, and no worker has looked since that committed.".into(),
        hint: "Start a worker on this store; those that run look within two seconds.".into(),
        also: Vec::new(),
    }
}

/// Says why a job is where it is.
pub fn explain(job: &Job, holds: &Holds, workers: &[WorkerView], now: Time) -> Why {
    let mut causes = match job.summary.state {
        State::Done | State::Failed | State::Cancelled => vec![ended(job)],
        State::Running => running(job, holds, workers, now),
        State::Scheduled => scheduled(job, holds, now),
        State::Ready => ready(job, holds, workers, now),
    };
    let Cause(cause, because, hint) = causes.remove(0);
    let also = causes.into_iter().map(|Cause(_, because, _)| because).collect();
    Why { job: job.summary.id, state: Some(job.summary.state), cause, because, hint, also }
}

fn ended(job: &Job) -> Cause {
    let error =
        job.failure.as_ref().map(|failure| format!(" The last error: {failure}.")).unwrap_or_default();
    let at = job.summary.finished_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let retry = format!("Mend the cause and `windlass retry {}`.", job.summary.id);
    match (job.summary.state, job.summary.reason) {
        (State::Done, _) => Cause("done", format!("It is done, since{at}."), "Nothing to do.".into()),
        (State::Cancelled, _) => {
            let hint = format!("If it is wanted after all, `windlass retry {}`.", job.summary.id);
            Cause("cancelled", format!("It was cancelled{at}.{error}"), hint)
        }
        (_, reason) => {
            let attempts = job.summary.attempts;
            let (cause, why) = match reason.unwrap_or(Reason::Stopped) {
                Reason::Exhausted => ("exhausted", format!("its {attempts} attempts are used up")),
                Reason::Stopped => ("stopped", "its error said that trying again cannot help".into()),
                Reason::Timeout => {
                    ("timeout", format!("its {attempts} attempts are used up, the last ran too long"))
                }
                Reason::Poison => ("poison", format!("{} workers died while they ran it alone", job.crashes)),
                Reason::Undecodable => ("undecodable", "its input does not decode".into()),
                Reason::Expired => ("expired", "its deadline passed".into()),
                Reason::Refused => ("refused", "what it wanted written was refused".into()),
            };
            let hint = match reason {
                Some(Reason::Undecodable) => {
                    format!(
                        "Serve it with code that reads this input, then `windlass retry {}`.",
                        job.summary.id
                    )
                }
                Some(Reason::Poison) => {
                    format!(
                        "Look at what it does to its process (memory, aborts), then `windlass retry {}`.",
                        job.summary.id
                    )
                }
                _ => retry,
            };
            Cause(cause, format!("It failed{at} because {why}.{error}"), hint)
        }
    }
}

fn running(job: &Job, holds: &Holds, workers: &[WorkerView], now: Time) -> Vec<Cause> {
    let worker = workers.iter().find(|worker| Some(worker.id) == job.worker);
    let name = worker.map_or("a worker that is gone".into(), |worker| worker.name.clone());
    let since = job.started_at.map(|at| span(now.since(at))).unwrap_or_default();
    let mut causes = Vec::new();
    if let Some(told) = &holds.told {
        let left = span(told.deadline_at.since(now));
        let because = format!(
            "It runs on {name} and was told to end by {}{}; it is ended from outside in {left}.",
            told.author,
            noted(told.note.as_deref()),
        );
        causes.push(Cause("told", because, "Wait; nothing else is needed.".into()));
    }
    if worker.is_none_or(|worker| !worker.alive || worker.lease_until <= now) {
        let because =
            format!("It was claimed by {name}, which has not renewed its lease: it is taken for dead.");
        let hint = "Its job goes back to the queue within a lease of the next worker's beat; start one if none runs.";
        causes.push(Cause("worker_lost", because, hint.into()));
    }
    let because = format!("It runs on {name} for {since}.");
    let hint = format!("Wait, or `windlass cancel {}` to end it.", job.summary.id);
    causes.push(Cause("running", because, hint));
    causes.extend(
        holds.paused.as_ref().map(|pause| paused(job, pause, "It is set aside if it is tried again: ")),
    );
    causes
}

fn scheduled(job: &Job, holds: &Holds, now: Time) -> Vec<Cause> {
    let (at, left) = (job.summary.due_at, span(job.summary.due_at.since(now)));
    let mut causes = Vec::new();
    causes.extend(holds.paused.as_ref().map(|pause| paused(job, pause, "")));
    causes.push(match (job.summary.attempts, &job.failure) {
        (attempts @ 1.., Some(failure)) => {
            let because =
                format!("Attempt {attempts} failed ({failure}); it is tried again at {at}, in {left}.");
            Cause("backing_off", because, "Wait; to give up, cancel it.".into())
        }
        _ => Cause(
            "scheduled",
            format!("It is due at {at}, in {left}."),
            "Wait; to give up, cancel it.".into(),
        ),
    });
    causes
}

fn ready(job: &Job, holds: &Holds, workers: &[WorkerView], now: Time) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(told) = &holds.told {
        let because = format!("It was told to end by {} and does not start again.", told.author);
        causes.push(Cause("told", because, "Wait; it ends soon.".into()));
    }
    causes.extend(holds.paused.as_ref().map(|pause| paused(job, pause, "")));
    let queue = &job.summary.queue;
    if let Some(pause) = &holds.queue_paused {
        let because = format!("{} is paused.", said_of(&format!("Its queue {queue:?}"), pause));
        causes.push(Cause("queue_paused", because, format!("`windlass resume --queue {queue}`.")));
    }
    causes.extend(unserved(job, workers, now));
    if let Some(serial) = holds.serial.as_ref().filter(|serial| !serial.held) {
        let who = match serial.holders.as_slice() {
            [] => "nobody, which should not last".into(),
            [one] => format!("job {one}"),
            [one, rest @ ..] => format!("job {one} and {} more", rest.len()),
        };
        let because = format!(
            "Its serial key {:?} is held by {who} ({} at a time), and {} wait before it.",
            serial.key, serial.slots, serial.ahead
        );
        let hint = match serial.holders.first() {
            Some(holder) => format!("Wait, or look at the holder: `windlass why {holder}`."),
            None => "Wait for the next sweep; if it stays so, `windlass doctor`.".into(),
        };
        causes.push(Cause("serial", because, hint));
    }
    if let Some(rate) = &holds.rate
        && let Some(limit) = &rate.limit
        && rate.enough_at > now
    {
        let because = format!(
            "Its rate limit {:?} ({} per {}, burst {}) has nothing for its weight of {} before {}, in {}.",
            rate.name,
            limit.rate,
            span(limit.per),
            limit.burst,
            rate.weight,
            rate.enough_at,
            span(rate.enough_at.since(now)),
        );
        let hint = format!("Wait, or raise it: `windlass limits set {} …`.", rate.name);
        causes.push(Cause("rate", because, hint));
    }
    if causes.is_empty() {
        causes.push(waiting(job, holds));
    }
    causes
}

/// Whether anyone could run it.
fn unserved(job: &Job, workers: &[WorkerView], now: Time) -> Option<Cause> {
    let (queue, kind, version) = (&job.summary.queue, &job.summary.kind, job.summary.version);
    let alive: Vec<&WorkerView> =
        workers.iter().filter(|worker| worker.alive && worker.lease_until > now).collect();
    let serving = |worker: &&&WorkerView| worker.serves.iter().any(|serves| serves.queue == *queue);
    let running = |worker: &&&WorkerView, exact: bool| {
        let kinds =
            worker.serves.iter().filter(|serves| serves.queue == *queue).flat_map(|serves| &serves.kinds);
        kinds.into_iter().any(|served| served.kind == *kind && (!exact || served.version == version))
    };
    if alive.is_empty() {
        let hint = "Start one: `windlass worker`, or your program.".into();
        return Some(Cause("no_worker", "No worker is running on this store.".into(), hint));
    }
    if !alive.iter().any(|worker| serving(&worker)) {
        let because = format!("No worker serves its queue {queue:?} ({} serve others).", alive.len());
        return Some(Cause(
            "queue_unserved",
            because,
            format!("Start one that does: `windlass worker --queue {queue}`."),
        ));
    }
    if !alive.iter().any(|worker| running(&worker, false)) {
        let because = format!("No worker that serves queue {queue:?} knows the kind {kind:?}.");
        return Some(Cause("kind_unserved", because, "Start the program that registers this kind.".into()));
    }
    if !alive.iter().any(|worker| running(&worker, true)) {
        let because =
            format!("No worker that serves queue {queue:?} has version {version} of kind {kind:?}.");
        let hint = "Run a build with that version beside the new one until its jobs are through.";
        return Some(Cause("version_unserved", because, hint.into()));
    }
    None
}

fn waiting(job: &Job, holds: &Holds) -> Cause {
    if holds.suspect {
        let because = format!("{} workers died with it, so it waits to be run alone.", job.deaths);
        return Cause("suspect", because, "Wait; its turn comes when a worker has a quiet moment.".into());
    }
    let queue = &job.summary.queue;
    if holds.ahead > 0 {
        let more = if holds.ahead >= 1_000 { "1,000 or more".into() } else { holds.ahead.to_string() };
        let because =
            format!("{more} jobs of its kind stand before it in queue {queue:?}, and all slots are busy.");
        let hint = "Wait, add workers or slots, or raise its priority.";
        return Cause("behind", because, hint.into());
    }
    let because =
        format!("It is the next of its kind in queue {queue:?} and starts as soon as a slot is free.");
    Cause("next", because, "Nothing to do; if it stays so, all slots of the queue are busy.".into())
}

fn paused(job: &Job, pause: &Pause, lead: &str) -> Cause {
    let because = format!("{lead}{} is paused.", said_of("It", pause));
    Cause("paused", because, format!("`windlass resume {}`.", job.summary.id))
}

fn said_of(what: &str, pause: &Pause) -> String {
    // "It (paused by ada at …: why)": who and why belong to the sentence.
    format!("{what} (by {} since {}{})", pause.author, pause.at, noted(pause.note.as_deref()))
}

fn noted(note: Option<&str>) -> String {
    note.map(|note| format!(": {note}")).unwrap_or_default()
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
