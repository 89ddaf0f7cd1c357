//! What both databases decide alike, outside of SQL.

use std::collections::{BTreeMap, HashMap, HashSet};

use windlass_model::{
    BranchPoll, BranchWatch, Epoch, Failure, Invalid, JobId, Limits, NewJob, Payload, Reason, Schedule,
    Settings, State, SubmitOutcome, Time, Unwind, WaitCondition,
    calendar::{Missed, Overlap, plan},
    limits::clean_message,
};

use crate::{
    AdminAction, Backlog, Error, Fork, JobAction, Prune, StageUpdate, StateCount, control::outcome,
    intern::Lane,
};

/// Numbers of states in the `state` column. A live job's place (ready set, timers, claim) says which of the
/// live states it is in.
pub(crate) const LIVE: i16 = 0;
pub(crate) const DONE: i16 = 1;
pub(crate) const FAILED: i16 = 2;
pub(crate) const CANCELLED: i16 = 3;

/// Numbers in the `what` column of timers.
pub(crate) const WAKE: i16 = 0;
pub(crate) const DEADLINE: i16 = 1;
pub(crate) const CANCEL: i16 = 2;

/// Numbers in the `hold` column of jobs: to be set aside when it would next be ready, and set aside.
pub(crate) const TO_HOLD: i16 = 1;
pub(crate) const ASIDE: i16 = 2;

/// How many of the signals that a job could not read people are shown at once.
pub(crate) const UNREADABLE_SHOWN: i64 = 20;

/// How long a running job is given that another takes the place of.
pub(crate) const GRACE: std::time::Duration = std::time::Duration::from_secs(10);

/// Numbers in the `life` column of workers.
pub(crate) const ALIVE: i16 = 0;

/// The final state behind a number; `None` for a live job.
pub(crate) fn final_state(number: i16) -> Option<State> {
    match number {
        DONE => Some(State::Done),
        FAILED => Some(State::Failed),
        CANCELLED => Some(State::Cancelled),
        _ => None,
    }
}

/// The number of a reason in the `reason` column.
pub(crate) fn reason_number(reason: Reason) -> i16 {
    Reason::ALL.iter().position(|r| *r == reason).map_or(0, |i| i as i16)
}

/// The reason behind a number.
pub(crate) fn reason(number: Option<i16>) -> Option<Reason> {
    Reason::ALL.get(usize::try_from(number?).ok()?).copied()
}

/// The longest detail of an error that is kept, in bytes: it is read whenever the job is looked at.
const DETAIL: usize = 64 << 10;

/// A failure as it is kept, as JSON.
pub(crate) fn failure_text(failure: &Failure) -> String {
    serde_json::to_string(&kept_failure(failure)).expect("a failure is plain data")
}

/// A failure as it is kept: cut to size, without NUL.
fn kept_failure(failure: &Failure) -> Failure {
    let mut kept = failure.clone();
    kept.message = clean_message(&kept.message);
    if kept.detail.as_ref().is_some_and(|detail| detail.to_string().len() > DETAIL) {
        kept.detail = None;
        kept.message.push_str(" (its detail was too long to keep)");
    }
    if kept.class.contains('\0') || kept.class.len() > windlass_model::limits::MAX_NAME_BYTES {
        kept.class = clean_message(&kept.class.chars().take(64).collect::<String>()).into();
    }
    kept
}

/// Reads a failure back; text that is none (written by hand) becomes the message of one.
pub(crate) fn failure(text: Option<&str>) -> Option<Failure> {
    let text = text?;
    Some(serde_json::from_str(text).unwrap_or_else(|_| Failure::stop(text)))
}

/// The counts of a retry policy as text; nothing while there are none.
pub(crate) fn retry_counts_text(spent: &[u32]) -> Option<String> {
    (!spent.is_empty()).then(|| serde_json::to_string(spent).expect("numbers are plain data"))
}

/// The counts read back.
pub(crate) fn retry_counts(text: Option<&str>) -> Vec<u32> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// What a job waits for, as text.
pub(crate) fn wait_text(wait: &WaitCondition) -> String {
    serde_json::to_string(wait).expect("names and numbers are plain data")
}

/// What a job waits for, read back.
pub(crate) fn wait(text: Option<&str>) -> Option<WaitCondition> {
    text.and_then(|text| serde_json::from_str(text).ok())
}

/// How a job that is being unwound ends, as text: its error as errors are kept.
pub(crate) fn unwind_text(unwind: &Unwind) -> String {
    let failure = kept_failure(&unwind.failure);
    serde_json::to_string(&Unwind { failure, ..*unwind }).expect("a failure is plain data")
}

/// How a job that is being unwound ends, read back.
pub(crate) fn unwind(text: Option<&str>) -> Option<Box<Unwind>> {
    text.and_then(|text| serde_json::from_str(text).ok())
}

/// What a job wants to be told of a branch, as text.
pub(crate) fn watch_text(watch: &BranchWatch) -> String {
    serde_json::to_string(watch).expect("numbers are plain data")
}

/// What a job wants to be told of a branch, read back.
pub(crate) fn watch(text: Option<&str>) -> Option<BranchWatch> {
    text.and_then(|text| serde_json::from_str(text).ok())
}

/// What was last seen of a branch, as text.
pub(crate) fn poll_text(poll: &BranchPoll) -> String {
    serde_json::to_string(poll).expect("plain data")
}

/// What was last seen of a branch, read back, and when it is looked at next: that is kept beside it.
pub(crate) fn poll(text: Option<&str>, next_at: Option<Time>) -> BranchPoll {
    let poll: BranchPoll = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    BranchPoll { next_at, ..poll }
}

/// What was found in the store for jobs that an insert did not take.
#[derive(Default)]
pub(crate) struct Found {
    /// Digests by id.
    pub(crate) ids: HashMap<JobId, [u8; 16]>,
    /// Job and digest by kind and key.
    pub(crate) keys: HashMap<(String, String), (JobId, [u8; 16])>,
    /// Jobs recorded under the claim number that this submit named: an earlier send of it put them there.
    pub(crate) claimed_before: HashSet<JobId>,
}

/// Says of each job of a submit what became of it. `wrote` says of each, in order, whether this call wrote it, and if
/// so whether it claimed it. `None` for a job that was neither written nor found: whatever stood in its way was pruned
/// meanwhile, and it must be submitted again.
pub(crate) fn answers(jobs: &[NewJob], wrote: &[Option<Wrote>], found: &Found) -> Vec<Option<SubmitOutcome>> {
    let mut seen = HashSet::new();
    jobs.iter()
        .zip(wrote)
        .map(|(job, wrote)| {
            let first = seen.insert(job.id);
            if let Some(Wrote { claimed }) = wrote {
                return Some(SubmitOutcome::New { claimed: claimed.then_some(Epoch(0)) });
            }
            if let Some(digest) = found.ids.get(&job.id) {
                return Some(match *digest == job.digest {
                    true if first && found.claimed_before.contains(&job.id) => {
                        SubmitOutcome::New { claimed: Some(Epoch(0)) }
                    }
                    true => SubmitOutcome::Repeated,
                    false => SubmitOutcome::IdTaken,
                });
            }
            let (id, digest) = found.keys.get(&(job.kind.kind.clone(), job.key.clone()?))?;
            Some(SubmitOutcome::Existing { id: *id, same_input: *digest == job.digest })
        })
        .collect()
}

/// That a job was written by a submit.
#[derive(Clone, Copy)]
pub(crate) struct Wrote {
    /// Whether it was born claimed.
    pub(crate) claimed: bool,
}

/// What is written into the audit log of a machine that is given another state.
pub(crate) fn stage_update_action(restate: &StageUpdate) -> String {
    format!("restate to {} of version {}", restate.stage, restate.version)
}

/// What a fork is called in the audit log.
pub(crate) fn fork_action(fork: &Fork) -> String {
    format!("fork before entry {} as {}", fork.before, fork.id)
}

/// Checks what a machine is to be.
pub(crate) fn check_stage_update(restate: &StageUpdate, limits: &Limits) -> Result<(), Error> {
    windlass_model::limits::check_stage(&restate.stage)?;
    if restate.version < 1 {
        let what = format!("version {} of the kind", restate.version);
        return Err(Error::Invalid(Invalid {
            what,
            why: "is not positive".into(),
            hint: "count versions from 1".into(),
        }));
    }
    Ok(limits.check_payload("data of the stage", &restate.data.bytes)?)
}

/// A job's own policies read back; none, and text that is none, are the default.
pub(crate) fn settings(text: Option<&str>) -> Settings {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// A job's tags read back from a JSON array.
pub(crate) fn tags(text: Option<&str>) -> Vec<String> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Puts a census together from counts per lane and place: what is live and neither ready, scheduled nor waiting runs.
pub(crate) fn state_counts(
    counts: BTreeMap<(i32, String), u64>,
    cap: u64,
    name: impl Fn(i32) -> Result<Lane, Error>,
) -> Result<Vec<StateCount>, Error> {
    let mut sums: BTreeMap<(String, String, State), u64> = BTreeMap::new();
    for ((lane, place), jobs) in &counts {
        let of = |place: &str| counts.get(&(*lane, place.to_owned())).copied().unwrap_or(0);
        let (state, jobs) = match place.as_str() {
            "live" => (State::Running, jobs.saturating_sub(of("ready") + of("scheduled") + of("waiting"))),
            place => (place.parse().map_err(Error::Fault)?, *jobs),
        };
        let lane = name(*lane)?;
        let sum = sums.entry((lane.queue, lane.kind.kind, state)).or_default();
        *sum = (*sum + jobs).min(cap);
    }
    let census = |((queue, kind, state), jobs)| StateCount { queue, kind, state, jobs };
    Ok(sums.into_iter().filter(|(_, jobs)| *jobs > 0).map(census).collect())
}

/// Puts a backlog together from counts per lane: what is counted ('ready', 'scheduled' or 'running'), how many, and
/// since when the first of them waits.
pub(crate) fn backlog(
    counts: impl IntoIterator<Item = (i32, String, u64, Option<i64>)>,
    cap: u64,
    name: impl Fn(i32) -> Result<Lane, Error>,
) -> Result<Vec<Backlog>, Error> {
    let mut queues: BTreeMap<String, Backlog> = BTreeMap::new();
    for (lane, place, jobs, oldest) in counts.into_iter().filter(|(.., jobs, _)| *jobs > 0) {
        let queue = name(lane)?.queue;
        let sum = queues.entry(queue.clone()).or_insert_with(|| Backlog { queue, ..Backlog::default() });
        let count = match place.as_str() {
            "ready" => &mut sum.ready,
            "scheduled" => &mut sum.scheduled,
            _ => &mut sum.running,
        };
        *count = (*count + jobs).min(cap);
        sum.oldest_at = [sum.oldest_at, oldest.map(Time)].into_iter().flatten().min();
    }
    Ok(queues.into_values().collect())
}

/// A job's own policies as text; nothing when none were given.
pub(crate) fn settings_text(settings: &Settings) -> Option<String> {
    (!settings.is_default()).then(|| serde_json::to_string(settings).expect("settings are plain data"))
}

/// How a state is looked for: its number, and whether the job must be in the ready set, among the timers, or parked.
/// A parked job may be among the timers too: one that is scheduled is not parked.
pub(crate) fn places(state: Option<State>) -> (Option<i16>, Option<bool>, Option<bool>, Option<bool>) {
    match state {
        None => (None, None, None, None),
        Some(State::Ready) => (Some(LIVE), Some(true), None, None),
        Some(State::Scheduled) => (Some(LIVE), None, Some(true), Some(false)),
        Some(State::Running) => (Some(LIVE), Some(false), Some(false), Some(false)),
        Some(State::Waiting) => (Some(LIVE), None, None, Some(true)),
        Some(State::Done) => (Some(DONE), None, None, None),
        Some(State::Failed) => (Some(FAILED), None, None, None),
        Some(State::Cancelled) => (Some(CANCELLED), None, None, None),
    }
}

/// What is said of a rate limit that is not there.
pub(crate) fn no_limit(name: &str) -> Invalid {
    Invalid {
        what: format!("the rate limit {name:?}"),
        why: "does not exist".into(),
        hint: "make it first, e.g. with `windlass limits set`".into(),
    }
}

/// What an act is called in the audit log.
pub(crate) fn action(act: JobAction) -> String {
    match act {
        JobAction::Priority(priority) => format!("priority {priority}"),
        JobAction::DropSignal(number) | JobAction::RestoreSignal(number) => {
            format!("{} {number}", act.name())
        }
        act => act.name().to_owned(),
    }
}

/// What a rule is called in the audit log, and what it is about.
pub(crate) fn admin_action(rule: &AdminAction) -> (String, String) {
    match rule {
        AdminAction::PauseQueue(queue) => ("pause queue".into(), queue.clone()),
        AdminAction::ResumeQueue(queue) => ("resume queue".into(), queue.clone()),
        AdminAction::Limit(limit) => {
            let action = format!("limit to {} per {:?}, burst {}", limit.rate, limit.per, limit.burst);
            (action, limit.name.clone())
        }
        AdminAction::Lift(name) => ("lift limit".into(), name.clone()),
        AdminAction::Slots { key, slots } => (format!("slots {slots}"), key.clone()),
        AdminAction::Schedule(schedule) => (format!("schedule {}", schedule.calendar), schedule.name.clone()),
        AdminAction::DropSchedule(name) => ("drop schedule".into(), name.clone()),
        AdminAction::PauseSchedule(name) => ("pause schedule".into(), name.clone()),
        AdminAction::ResumeSchedule(name) => ("resume schedule".into(), name.clone()),
        AdminAction::Trigger(name) => ("trigger schedule".into(), name.clone()),
    }
}

/// Refuses an act that cannot be.
pub(crate) fn check_act(act: JobAction) -> Result<(), Error> {
    match act {
        JobAction::Priority(priority) if priority.abs() > windlass_model::rank::MAX_PRIORITY => {
            let most = windlass_model::rank::MAX_PRIORITY;
            Err(Error::Invalid(Invalid {
                what: format!("priority {priority}"),
                why: "is out of range".into(),
                hint: format!("use one from -{most} (urgent) to {most} (least urgent)"),
            }))
        }
        JobAction::Cancel { grace } if grace > windlass_model::limits::MAX_DELAY => {
            Err(Error::Invalid(Invalid {
                what: "the grace".into(),
                why: "is longer than 100 years".into(),
                hint: "choose a shorter one".into(),
            }))
        }
        _ => Ok(()),
    }
}

/// Refuses a rule that cannot be.
pub(crate) fn check_admin(rule: &AdminAction, limits: &Limits) -> Result<(), Error> {
    use windlass_model::limits::{check_key, check_name, check_slots};
    match rule {
        AdminAction::PauseQueue(queue) | AdminAction::ResumeQueue(queue) => check_name("queue", queue)?,
        AdminAction::Limit(limit) => limit.check()?,
        AdminAction::Lift(name) => check_name("rate limit", name)?,
        AdminAction::Slots { key, slots } => {
            check_key("serial key", key)?;
            check_slots(key, Some(*slots))?;
        }
        AdminAction::Schedule(schedule) => schedule.check(limits)?,
        AdminAction::DropSchedule(name)
        | AdminAction::PauseSchedule(name)
        | AdminAction::ResumeSchedule(name)
        | AdminAction::Trigger(name) => check_name("schedule", name)?,
    }
    Ok(())
}

/// Refuses to delete what has not ended.
pub(crate) fn check_prune(prune: &Prune) -> Result<(), Error> {
    if prune.state.is_final() {
        return Ok(());
    }
    Err(Error::Invalid(Invalid {
        what: format!("pruning jobs that are {}", prune.state),
        why: "would delete unfinished work".into(),
        hint: "prune done, failed or cancelled jobs; cancel what is not wanted first".into(),
    }))
}

/// What a worker serves, read back.
pub(crate) fn serves(text: &str) -> Vec<crate::Serves> {
    serde_json::from_str(text).unwrap_or_default()
}

/// How many ticks of one schedule fire in one transaction.
pub(crate) const TICKS: usize = 100;

/// A schedule as it is kept, but for its input.
pub(crate) fn schedule_text(schedule: &Schedule) -> String {
    serde_json::to_string(schedule).expect("a schedule is plain data")
}

/// A schedule read back.
pub(crate) fn schedule(text: &str, input: Payload) -> Result<Schedule, Error> {
    let schedule: Schedule = serde_json::from_str(text)
        .map_err(|error| Error::Fault(format!("a schedule cannot be read: {error}")))?;
    Ok(Schedule { input, ..schedule })
}

/// What a schedule is to do now: which ticks fire, and what is noted as missed.
pub(crate) struct Tick {
    pub(crate) fire: Vec<Time>,
    pub(crate) missed: Vec<(Missed, &'static str)>,
    pub(crate) next_at: Option<Time>,
}

/// Decides what becomes of the due ticks of a schedule; `busy` says whether its last job has not ended.
pub(crate) fn tick(schedule: &Schedule, next_at: Time, now: Time, busy: bool) -> Tick {
    let plan = plan(&schedule.calendar, schedule.catch_up, next_at, now, TICKS);
    let mut missed: Vec<(Missed, &'static str)> =
        plan.missed.into_iter().map(|missed| (missed, outcome::nobody_there())).collect();
    let mut fire = plan.fire;
    if schedule.overlap == Overlap::Skip {
        // The first that fires is in the way of those behind it.
        let skipped = fire.split_off(usize::from(!busy).min(fire.len()));
        if let (Some(from), Some(to)) = (skipped.first(), skipped.last()) {
            let count = skipped.len() as u64;
            missed.push((Missed { from: *from, to: *to, count, at_least: false }, outcome::overlapped()));
        }
    }
    Tick { fire, missed, next_at: plan.next_at }
}
