//! Why a job of a list is in its state, in a few words: decided from what the store has read of the page, without further reads.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_model::{
    Reason, State, Time, WaitCondition, branch::BRANCH_SIGNAL, failure::class, wait::CHILD_SIGNAL,
};
use windlass_store::{FailureText, JobDetails, Pause, Summary, WaitDetails};

use crate::{Cause, text, unserved::Unserved, views::Situation};

/// Why a job is in its state. [`RowReason::words`] says it in a few words; the parts are typed, so that a page can show times in its own way.
/// [`Operator::why`](crate::Operator::why) says more about one job, and what to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RowReason {
    /// A worker runs it.
    Running {
        /// The worker's name.
        worker: String,
        /// When it claimed the job.
        since: Time,
    },
    /// Its worker has not renewed its lease.
    WorkerLost {
        /// The worker's name; `None` if it is gone.
        worker: Option<String>,
    },
    /// Its cancel was requested.
    CancelRequested {
        /// Who requested it.
        author: String,
        /// Why.
        note: Option<String>,
        /// When the store ends it without its attempt.
        until: Time,
    },
    /// It undoes its steps before it ends.
    Unwinding,
    /// Somebody paused it.
    Paused {
        /// Who, when and why.
        pause: Pause,
    },
    /// Somebody paused its queue.
    QueuePaused {
        /// The queue.
        queue: String,
        /// Who, when and why.
        pause: Pause,
    },
    /// No worker runs on this store.
    NoWorker,
    /// No worker serves its queue.
    QueueUnserved {
        /// The queue.
        queue: String,
    },
    /// No worker that serves its queue knows its kind.
    KindUnserved {
        /// The kind.
        kind: String,
    },
    /// No worker that serves its queue knows its version of the kind.
    VersionUnserved {
        /// The kind.
        kind: String,
        /// The version.
        version: i32,
    },
    /// It waits for a slot of its serial key.
    Serial {
        /// The key.
        key: String,
    },
    /// Its rate limit has too few tokens for it.
    Rate {
        /// The limit.
        limit: String,
        /// When it has enough, if no other job takes them.
        until: Time,
    },
    /// Workers died with it: it waits to be run alone.
    Suspect,
    /// It waits for a free slot.
    Ready {
        /// When it became due.
        since: Time,
    },
    /// It is due later.
    Scheduled {
        /// When.
        due_at: Time,
    },
    /// An attempt failed, and the next one is later.
    BackingOff {
        /// How many attempts have failed.
        attempts: u32,
        /// The last error.
        failure: FailureText,
        /// When the next attempt is due.
        due_at: Time,
    },
    /// It waits for signals.
    Signals {
        /// Their names.
        names: Vec<String>,
        /// For how many of them.
        needs: u32,
        /// When it was parked.
        since: Option<Time>,
        /// When the wait times out.
        until: Option<Time>,
    },
    /// It waits for children.
    Children {
        /// How many have not ended, if it waits for all of some; a workflow waits for the next one that ends.
        pending: Option<u32>,
        /// When it was parked.
        since: Option<Time>,
        /// When the wait times out.
        until: Option<Time>,
    },
    /// It waits for branches.
    Branches {
        /// When it was parked.
        since: Option<Time>,
        /// When the wait times out.
        until: Option<Time>,
    },
    /// It sleeps.
    Asleep {
        /// When it was parked.
        since: Option<Time>,
        /// Until when.
        until: Option<Time>,
    },
    /// It was woken just now, or gave up its slot to others for a moment.
    Woken,
    /// It is done.
    Done {
        /// How long its last attempt ran, in seconds.
        took_seconds: Option<f64>,
    },
    /// It failed.
    Failed {
        /// Why that failed the job.
        why: Reason,
        /// The last error.
        failure: FailureText,
    },
    /// It was cancelled.
    Cancelled {
        /// By whom and why: the words of the error.
        failure: FailureText,
    },
    /// It does not exist any more: it was pruned while the page was read.
    Pruned,
}

impl RowReason {
    /// Decides why a job is in its state. `details` are `None` for a job that was pruned.
    pub fn of(job: &Summary, details: Option<&JobDetails>, situation: &Situation) -> RowReason {
        let Some(details) = details else { return RowReason::Pruned };
        match details.state {
            State::Running => running(details, situation),
            State::Ready => held(details).unwrap_or_else(|| ready(job, details, situation)),
            State::Scheduled => held(details).unwrap_or_else(|| scheduled(job, details)),
            State::Waiting => held(details).unwrap_or_else(|| waiting(details)),
            State::Done => {
                let took = job.finished_at.zip(details.started_at).map(|(end, start)| end - start);
                RowReason::Done { took_seconds: took.map(|took| took.as_secs_f64()) }
            }
            State::Failed => RowReason::Failed {
                why: job.reason.unwrap_or(Reason::Stopped),
                failure: details.failure.clone().unwrap_or_default(),
            },
            State::Cancelled => RowReason::Cancelled { failure: details.failure.clone().unwrap_or_default() },
        }
    }

    /// The same as one of the causes that [`crate::Why`] names.
    pub fn cause(&self) -> Cause {
        match self {
            RowReason::Running { .. } => Cause::Running,
            RowReason::WorkerLost { .. } => Cause::WorkerLost,
            RowReason::CancelRequested { .. } => Cause::CancelRequested,
            RowReason::Unwinding => Cause::Unwinding,
            RowReason::Paused { .. } => Cause::Paused,
            RowReason::QueuePaused { .. } => Cause::QueuePaused,
            RowReason::NoWorker => Cause::NoWorker,
            RowReason::QueueUnserved { .. } => Cause::QueueUnserved,
            RowReason::KindUnserved { .. } => Cause::KindUnserved,
            RowReason::VersionUnserved { .. } => Cause::VersionUnserved,
            RowReason::Serial { .. } => Cause::Serial,
            RowReason::Rate { .. } => Cause::Rate,
            RowReason::Suspect => Cause::Suspect,
            RowReason::Ready { .. } => Cause::Behind,
            RowReason::Scheduled { .. } => Cause::Scheduled,
            RowReason::BackingOff { .. } => Cause::BackingOff,
            RowReason::Signals { .. } => Cause::Signal,
            RowReason::Children { .. } => Cause::Children,
            RowReason::Branches { .. } => Cause::Branches,
            RowReason::Asleep { .. } => Cause::Asleep,
            RowReason::Woken => Cause::Waiting,
            RowReason::Done { .. } | RowReason::Pruned => Cause::Done,
            RowReason::Cancelled { .. } => Cause::Cancelled,
            RowReason::Failed { why, .. } => match why {
                Reason::Exhausted => Cause::Exhausted,
                Reason::Stopped => Cause::Stopped,
                Reason::Timeout => Cause::Timeout,
                Reason::Poison => Cause::Poison,
                Reason::Undecodable => Cause::Undecodable,
                Reason::Expired => Cause::Expired,
                Reason::Refused => Cause::Refused,
                Reason::Diverged => Cause::Diverged,
            },
        }
    }

    /// A few words with times as spans from `now`: `on smith for 3s`.
    pub fn words(&self, now: Time) -> String {
        Words { reason: self, now: Some(now) }.to_string()
    }
}

impl fmt::Display for RowReason {
    /// A few words with times as they are: `on smith since 2026-11-19T14:31:52Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Words { reason: self, now: None }.fmt(f)
    }
}

fn running(details: &JobDetails, situation: &Situation) -> RowReason {
    let Some(running) = &details.running else { return RowReason::WorkerLost { worker: None } };
    match (&details.cancel_requested, &running.name) {
        (Some(cancel), _) => cancel_requested(cancel),
        (None, Some(_)) if !situation.is_alive(running.worker) => {
            RowReason::WorkerLost { worker: running.name.clone() }
        }
        (None, None) => RowReason::WorkerLost { worker: None },
        (None, Some(_)) if details.unwinding => RowReason::Unwinding,
        (None, Some(worker)) => RowReason::Running { worker: worker.clone(), since: running.since },
    }
}

fn cancel_requested(cancel: &windlass_store::CancelHold) -> RowReason {
    let (author, note, until) = (cancel.author.clone(), cancel.note.clone(), cancel.deadline_at);
    RowReason::CancelRequested { author, note, until }
}

/// Somebody holds the job.
fn held(details: &JobDetails) -> Option<RowReason> {
    let cancelled = details.cancel_requested.as_ref().map(cancel_requested);
    cancelled.or_else(|| details.paused.clone().map(|pause| RowReason::Paused { pause }))
}

fn ready(job: &Summary, details: &JobDetails, situation: &Situation) -> RowReason {
    let Summary { queue, kind, version, .. } = job;
    if let Some(pause) = situation.paused_queues.get(queue) {
        return RowReason::QueuePaused { queue: queue.clone(), pause: pause.clone() };
    }
    match situation.unserved(queue, kind, *version) {
        Some(Unserved::NoWorker) => return RowReason::NoWorker,
        Some(Unserved::Queue) => return RowReason::QueueUnserved { queue: queue.clone() },
        Some(Unserved::Kind) => return RowReason::KindUnserved { kind: kind.clone() },
        Some(Unserved::Version) => {
            return RowReason::VersionUnserved { kind: kind.clone(), version: *version };
        }
        None => {}
    }
    if let Some(key) = details.serial_key.as_ref().filter(|_| details.waits_for_slot) {
        return RowReason::Serial { key: key.clone() };
    }
    let unpaid = |(limit, weight): &(String, u32)| {
        Some(RowReason::Rate { until: situation.affordable_at(limit, *weight)?, limit: limit.clone() })
    };
    if let Some(unpaid) = details.rate.as_ref().and_then(unpaid) {
        return unpaid;
    }
    match (details.suspect, details.unwinding) {
        (true, _) => RowReason::Suspect,
        (false, true) => RowReason::Unwinding,
        (false, false) => RowReason::Ready { since: job.due_at },
    }
}

fn scheduled(job: &Summary, details: &JobDetails) -> RowReason {
    match &details.failure {
        Some(failure) if job.attempts > 0 => {
            RowReason::BackingOff { attempts: job.attempts, failure: failure.clone(), due_at: job.due_at }
        }
        _ => RowReason::Scheduled { due_at: job.due_at },
    }
}

fn waiting(details: &JobDetails) -> RowReason {
    details.waiting.as_ref().map_or(RowReason::Woken, RowReason::of_wait)
}

impl RowReason {
    /// What a parked job waits for.
    pub(in crate::views) fn of_wait(wait: &WaitDetails) -> RowReason {
        let WaitDetails { condition, since, until, pending_children } = wait;
        let (since, until) = (*since, *until);
        match condition {
            WaitCondition::Nothing => RowReason::Woken,
            WaitCondition::Children { .. } => {
                RowReason::Children { pending: Some(*pending_children), since, until }
            }
            WaitCondition::Signals { names, needs } => {
                let own = [CHILD_SIGNAL, BRANCH_SIGNAL];
                let others = names.iter().map(|name| &name.name).filter(|name| !own.contains(&name.as_str()));
                let others: Vec<String> = others.cloned().collect();
                let waits_for = |name: &str| condition.names().any(|awaited| awaited == name);
                if !others.is_empty() {
                    let needs = (*needs).min(others.len() as u32);
                    return RowReason::Signals { names: others, needs, since, until };
                }
                match (waits_for(BRANCH_SIGNAL), waits_for(CHILD_SIGNAL)) {
                    (true, _) => RowReason::Branches { since, until },
                    (false, true) => RowReason::Children { pending: None, since, until },
                    (false, false) => RowReason::Asleep { since, until },
                }
            }
        }
    }
}

/// A reason in words, with spans from `now`, or with times.
struct Words<'a> {
    reason: &'a RowReason,
    now: Option<Time>,
}

impl Words<'_> {
    /// ` for 3s`, or ` since` and the time.
    fn lasting(&self, since: Option<Time>) -> String {
        match (since, self.now) {
            (None, _) => String::new(),
            (Some(since), Some(now)) => format!(" for {}", text::duration(whole(now - since))),
            (Some(since), None) => format!(" since {since}"),
        }
    }

    /// `in 3s`, or the time.
    fn at(&self, at: Time) -> String {
        match self.now {
            Some(now) if at > now => format!("in {}", text::duration(whole(at - now))),
            Some(_) => "now".to_owned(),
            None => at.to_string(),
        }
    }

    /// `, for another 3s at most`.
    fn at_most(&self, until: Option<Time>) -> String {
        until.map(|until| format!(", {} at most", self.until(until))).unwrap_or_default()
    }

    /// `for another 3s`, or `until` and the time.
    fn until(&self, at: Time) -> String {
        match self.now {
            Some(now) => format!("for another {}", text::duration(whole(at - now))),
            None => format!("until {at}"),
        }
    }

    fn paused(&self, what: &str, pause: &Pause) -> String {
        let when = match self.now {
            Some(now) => text::relative(pause.at, now),
            None => pause.at.to_string(),
        };
        format!("{what}paused by {} {when}{}", pause.author, noted(pause.note.as_deref()))
    }

    fn signals(&self, names: &[String], needs: u32) -> String {
        let list = || names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        match (names, needs as usize) {
            ([name], _) => format!("waits for the signal {name:?}"),
            (names, 1) if names.len() > 1 => format!("waits for any of the signals {}", list()),
            (names, needs) if needs == names.len() => format!("waits for all of the signals {}", list()),
            (_, needs) => format!("waits for {needs} of the signals {}", list()),
        }
    }
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            RowReason::Running { worker, since } => write!(f, "on {worker}{}", self.lasting(Some(*since))),
            RowReason::WorkerLost { worker: Some(worker) } => {
                write!(f, "worker {worker} has not renewed its lease; another takes the job over")
            }
            RowReason::WorkerLost { worker: None } => {
                f.write_str("its worker is gone; another takes the job over")
            }
            RowReason::CancelRequested { author, note, until } => {
                let note = noted(note.as_deref());
                write!(f, "cancel requested by {author}{note}; it ends {} at the latest", self.at(*until))
            }
            RowReason::Unwinding => f.write_str("undoes its steps before it ends"),
            RowReason::Paused { pause } => f.write_str(&self.paused("", pause)),
            RowReason::QueuePaused { queue, pause } => {
                f.write_str(&self.paused(&format!("queue {queue} is "), pause))
            }
            RowReason::NoWorker => f.write_str("no worker is running"),
            RowReason::QueueUnserved { queue } => write!(f, "no worker serves queue {queue}"),
            RowReason::KindUnserved { kind } => write!(f, "no worker of its queue knows the kind {kind}"),
            RowReason::VersionUnserved { kind, version } => {
                write!(f, "no worker of its queue knows version {version} of {kind}")
            }
            RowReason::Serial { key } => write!(f, "waits for a slot of its serial key {key:?}"),
            RowReason::Rate { limit, until } => {
                write!(f, "waits for tokens of rate limit {limit}, which has enough {}", self.at(*until))
            }
            RowReason::Suspect => f.write_str("its worker died; it runs alone as soon as a worker is idle"),
            RowReason::Ready { since } => write!(f, "ready{}, waits for a slot", self.lasting(Some(*since))),
            RowReason::Scheduled { due_at } => write!(f, "due {}", self.at(*due_at)),
            RowReason::BackingOff { attempts, failure, due_at } => {
                write!(
                    f,
                    "attempt {attempts} failed, the next is due {}: {}",
                    self.at(*due_at),
                    error(failure)
                )
            }
            RowReason::Signals { names, needs, since, until } => {
                let (lasting, until) = (self.lasting(*since), self.at_most(*until));
                write!(f, "{}{lasting}{until}", self.signals(names, *needs))
            }
            RowReason::Children { pending, since, until } => {
                let (lasting, until) = (self.lasting(*since), self.at_most(*until));
                match pending {
                    Some(pending) => {
                        let children = text::counted(u64::from(*pending), "child", "children");
                        write!(f, "waits for {children}{lasting}{until}")
                    }
                    None => write!(f, "waits for a child to end{lasting}{until}"),
                }
            }
            RowReason::Branches { since, until } => {
                write!(f, "waits for its branches{}{}", self.lasting(*since), self.at_most(*until))
            }
            RowReason::Asleep { since, until: None } => write!(f, "sleeps{}", self.lasting(*since)),
            RowReason::Asleep { until: Some(until), .. } => write!(f, "sleeps {}", self.until(*until)),
            RowReason::Woken => f.write_str("continues soon"),
            RowReason::Done { took_seconds } => {
                let took = took_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                match took {
                    Some(took) => write!(f, "done in {}", text::duration(took)),
                    None => f.write_str("done"),
                }
            }
            RowReason::Failed { why, failure } => write!(f, "{why}: {}", error(failure)),
            RowReason::Cancelled { failure } => f.write_str(&error(failure)),
            RowReason::Pruned => f.write_str("pruned meanwhile"),
        }
    }
}

/// An error in one line, with its class if that says something.
fn error(failure: &FailureText) -> String {
    let FailureText { class, message, is_cut } = failure;
    let more = if *is_cut { "…" } else { "" };
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match class.as_str() {
        class::ERROR | class::CANCELLED | "" => format!("{line}{more}"),
        class => format!("{class}: {line}{more}"),
    }
}

fn noted(note: Option<&str>) -> String {
    note.map(|note| format!(": {note}")).unwrap_or_default()
}

/// A span without what is below a second, if it has seconds.
fn whole(span: Duration) -> Duration {
    if span < Duration::from_secs(10) { span } else { Duration::from_secs(span.as_secs()) }
}

#[cfg(test)]
mod tests {
    use windlass_model::{KindVersion, RateLimit, Rev, WorkerId, wait::SignalName};
    use windlass_store::{CancelHold, LimitView, RunningDetails, Serves, WorkerView};

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn ago(seconds: u64) -> Time {
        NOW - Duration::from_secs(seconds)
    }

    fn later(seconds: u64) -> Time {
        NOW + Duration::from_secs(seconds)
    }

    fn job(state: State) -> Summary {
        Summary {
            id: windlass_model::JobId::from_parts(0, 0, 0),
            kind: "mail".into(),
            version: 1,
            queue: "main".into(),
            key: None,
            state,
            stage: None,
            reason: (state == State::Failed).then_some(Reason::Exhausted),
            priority: 0,
            attempts: 0,
            submitted_at: ago(90),
            due_at: ago(3),
            finished_at: state.is_final().then_some(NOW),
        }
    }

    fn details(state: State) -> JobDetails {
        let running = RunningDetails {
            worker: WorkerId(7),
            name: Some("smith".into()),
            since: NOW - Duration::from_millis(1_200),
        };
        JobDetails {
            state,
            running: (state == State::Running).then_some(running),
            waiting: None,
            failure: None,
            paused: None,
            cancel_requested: None,
            serial_key: None,
            waits_for_slot: false,
            rate: None,
            suspect: false,
            unwinding: false,
            max_attempts: None,
            started_at: Some(NOW - Duration::from_millis(384)),
            parent: None,
            branch: None,
            items: 1,
        }
    }

    fn situation() -> Situation {
        let kinds = vec![KindVersion { kind: "mail".into(), version: 1 }];
        let worker = WorkerView {
            id: WorkerId(7),
            name: "smith".into(),
            liveness_file: None,
            alive: true,
            lease_until: later(10),
            lost_at: None,
            claims: 1,
            serves: vec![Serves { queue: "main".into(), slots: 1, kinds }],
        };
        Situation { workers: vec![worker], now: NOW, ..Situation::default() }
    }

    /// The words, and the cause.
    fn words(job: &Summary, details: &JobDetails, situation: &Situation) -> (String, Cause) {
        let reason = RowReason::of(job, Some(details), situation);
        let json = serde_json::to_value(&reason).expect("plain data");
        assert_eq!(serde_json::from_value::<RowReason>(json).expect("the same"), reason);
        assert!(!reason.to_string().is_empty());
        (reason.words(NOW), reason.cause())
    }

    fn pause(note: Option<&str>) -> Pause {
        Pause { at: ago(120), author: "ada".into(), note: note.map(str::to_owned) }
    }

    fn failure(class: &str, message: &str) -> Option<FailureText> {
        Some(FailureText { class: class.into(), message: message.into(), is_cut: false })
    }

    #[test]
    fn a_running_job_names_its_worker() {
        let (job, running) = (job(State::Running), details(State::Running));
        assert_eq!(words(&job, &running, &situation()), ("on smith for 1.2s".into(), Cause::Running));
        let mut lapsed = situation();
        lapsed.workers[0].lease_until = NOW;
        assert_eq!(words(&job, &running, &lapsed).1, Cause::WorkerLost);
        let nobody = JobDetails { running: None, ..running.clone() };
        assert_eq!(words(&job, &nobody, &situation()).1, Cause::WorkerLost);
        let cancel =
            CancelHold { deadline_at: later(8), author: "ada".into(), note: Some("wrong month".into()) };
        let cancelled = JobDetails { cancel_requested: Some(cancel), ..running.clone() };
        let expected = "cancel requested by ada: wrong month; it ends in 8s at the latest";
        assert_eq!(words(&job, &cancelled, &situation()), (expected.into(), Cause::CancelRequested));
        let unwinding = JobDetails { unwinding: true, ..running };
        assert_eq!(words(&job, &unwinding, &situation()).1, Cause::Unwinding);
        let reason = RowReason::of(&job, None, &situation());
        assert_eq!((&reason, reason.words(NOW).as_str()), (&RowReason::Pruned, "pruned meanwhile"));
    }

    #[test]
    fn a_ready_job_says_what_holds_it() {
        let (job, free) = (job(State::Ready), details(State::Ready));
        let all = situation();
        assert_eq!(words(&job, &free, &all), ("ready for 3s, waits for a slot".into(), Cause::Behind));
        let paused = JobDetails { paused: Some(pause(Some("OPS-812"))), ..free.clone() };
        assert_eq!(words(&job, &paused, &all), ("paused by ada 2m ago: OPS-812".into(), Cause::Paused));
        let mut queue = all.clone();
        queue.paused_queues.insert("main".into(), pause(None));
        assert_eq!(
            words(&job, &free, &queue),
            ("queue main is paused by ada 2m ago".into(), Cause::QueuePaused)
        );
        assert_eq!(words(&job, &free, &Situation { workers: vec![], ..all.clone() }).1, Cause::NoWorker);
        let of = |queue: &str, kind: &str, version| Summary {
            queue: queue.into(),
            kind: kind.into(),
            version,
            ..job.clone()
        };
        assert_eq!(words(&of("bulk", "mail", 1), &free, &all).1, Cause::QueueUnserved);
        assert_eq!(words(&of("main", "sms", 1), &free, &all).1, Cause::KindUnserved);
        assert_eq!(words(&of("main", "mail", 2), &free, &all).1, Cause::VersionUnserved);
        let serial =
            JobDetails { serial_key: Some("account-7".into()), waits_for_slot: true, ..free.clone() };
        assert_eq!(
            words(&job, &serial, &all),
            ("waits for a slot of its serial key \"account-7\"".into(), Cause::Serial)
        );
        let holder = JobDetails { waits_for_slot: false, ..serial };
        assert_eq!(words(&job, &holder, &all).1, Cause::Behind);
        let suspect = JobDetails { suspect: true, ..free };
        assert_eq!(words(&job, &suspect, &all).1, Cause::Suspect);
    }

    #[test]
    fn a_job_under_a_rate_limit_waits_for_its_tokens() {
        let job = job(State::Ready);
        let charged = JobDetails { rate: Some(("psp".into(), 3)), ..details(State::Ready) };
        let with = |tokens, lifted| {
            let limit = RateLimit::per("psp", 2, Duration::from_secs(10));
            let mut situation = situation();
            situation.limits.insert("psp".into(), LimitView { limit, lifted, tokens, waiting: 9 });
            situation
        };
        let expected = "waits for tokens of rate limit psp, which has enough in 15s";
        assert_eq!(words(&job, &charged, &with(0, false)), (expected.into(), Cause::Rate));
        assert_eq!(words(&job, &charged, &with(3, false)).1, Cause::Behind);
        assert_eq!(words(&job, &charged, &with(0, true)).1, Cause::Behind);
        assert_eq!(words(&job, &charged, &situation()).1, Cause::Behind);
    }

    #[test]
    fn a_scheduled_job_says_when_and_after_what() {
        let job = Summary { due_at: later(24), ..job(State::Scheduled) };
        let first = details(State::Scheduled);
        assert_eq!(words(&job, &first, &situation()), ("due in 24s".into(), Cause::Scheduled));
        let again = Summary { attempts: 5, ..job };
        let failed = JobDetails { failure: failure("busy", "503\nupstream"), ..first };
        let expected = "attempt 5 failed, the next is due in 24s: busy: 503 upstream";
        assert_eq!(words(&again, &failed, &situation()), (expected.into(), Cause::BackingOff));
    }

    #[test]
    fn a_waiting_job_says_for_what() {
        let job = job(State::Waiting);
        let wait = |condition, until| {
            let waiting = WaitDetails { condition, since: Some(ago(300)), until, pending_children: 2 };
            let details = JobDetails { waiting: Some(waiting), ..details(State::Waiting) };
            words(&job, &details, &situation())
        };
        let signals = |names: &[&str], needs| {
            let name = |name: &&str| SignalName { name: (*name).to_owned(), every: false };
            WaitCondition::Signals { names: names.iter().map(name).collect(), needs }
        };
        assert_eq!(
            wait(signals(&["paid"], 1), Some(later(3_600))),
            ("waits for the signal \"paid\" for 5m, for another 60m at most".into(), Cause::Signal)
        );
        assert!(
            wait(signals(&["a", "b"], 1), None).0.starts_with("waits for any of the signals \"a\", \"b\"")
        );
        assert!(wait(signals(&["a", "b"], 2), None).0.starts_with("waits for all of"));
        assert!(wait(signals(&["a", "b", "c"], 2), None).0.starts_with("waits for 2 of"));
        assert_eq!(wait(signals(&["a", CHILD_SIGNAL], 1), None).1, Cause::Signal);
        assert_eq!(wait(signals(&[CHILD_SIGNAL], 1), None).0, "waits for a child to end for 5m");
        assert_eq!(wait(signals(&[BRANCH_SIGNAL, CHILD_SIGNAL], 1), None).1, Cause::Branches);
        assert_eq!(
            wait(WaitCondition::Children { rev: Rev(1) }, None),
            ("waits for 2 children for 5m".into(), Cause::Children)
        );
        assert_eq!(wait(signals(&[], 1), Some(later(90))), ("sleeps for another 90s".into(), Cause::Asleep));
        assert_eq!(wait(WaitCondition::Nothing, None).1, Cause::Waiting);
        let paused = JobDetails { paused: Some(pause(None)), ..details(State::Waiting) };
        assert_eq!(words(&job, &paused, &situation()).1, Cause::Paused);
    }

    #[test]
    fn an_ended_job_says_how() {
        assert_eq!(
            words(&job(State::Done), &details(State::Done), &situation()),
            ("done in 384ms".into(), Cause::Done)
        );
        let failed = JobDetails { failure: failure("psp_unavailable", "503"), ..details(State::Failed) };
        assert_eq!(
            words(&job(State::Failed), &failed, &situation()),
            ("exhausted: psp_unavailable: 503".into(), Cause::Exhausted)
        );
        let by_hand = JobDetails {
            failure: failure(class::CANCELLED, "cancelled by ada: wrong month"),
            ..details(State::Cancelled)
        };
        assert_eq!(
            words(&job(State::Cancelled), &by_hand, &situation()),
            ("cancelled by ada: wrong month".into(), Cause::Cancelled)
        );
    }
}
