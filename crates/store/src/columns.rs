//! What both databases have in common outside of SQL: numbers in columns, values as text, checks, and texts for the
//! audit log.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::de::DeserializeOwned;
use windlass_model::{
    BranchPoll, BranchWatch, Epoch, Failure, Invalid, JobId, Limits, Location, NewJob, Payload, Progress,
    ProgressReport, Reason, Schedule, Settings, State, SubmitOutcome, Time, Unique, Unwind, WaitCondition,
    limits::clean_message,
};

use crate::{
    AdminAction, Backlog, Error, Filter, Fork, JobAction, Prune, StageUpdate, StateCount, intern::Lane,
};

/// Numbers in the column `state` of jobs. Where a live job is (ready set, timers, claim) says which of the live
/// states it is in.
pub(crate) const LIVE: i16 = 0;
pub(crate) const DONE: i16 = 1;
pub(crate) const FAILED: i16 = 2;
pub(crate) const CANCELLED: i16 = 3;

/// Numbers in the column `purpose` of timers.
pub(crate) const WAKE: i16 = 0;
pub(crate) const DEADLINE: i16 = 1;
pub(crate) const CANCEL: i16 = 2;

/// Numbers in the column `hold` of jobs: to be held when it would next be ready, and held.
pub(crate) const TO_HOLD: i16 = 1;
pub(crate) const HELD: i16 = 2;

/// How many unreadable signals of a job people are shown: enough to see what is wrong.
pub(crate) const UNREADABLE_SHOWN: i64 = 20;

/// The grace period of a running job that another job replaces.
pub(crate) const GRACE: std::time::Duration = std::time::Duration::from_secs(10);

/// Numbers in the column `status` of workers; others are gone.
pub(crate) const ALIVE: i16 = 0;
#[cfg(feature = "sqlite")]
pub(crate) const DEAD: i16 = 1;

/// The number of a final state in the column `state`; a live job has [`LIVE`].
pub(crate) fn state_number(state: State) -> i16 {
    match state {
        State::Done => DONE,
        State::Failed => FAILED,
        State::Cancelled => CANCELLED,
        _ => LIVE,
    }
}

/// The final state behind a number; `None` for a live job.
pub(crate) fn final_state(number: i16) -> Option<State> {
    match number {
        DONE => Some(State::Done),
        FAILED => Some(State::Failed),
        CANCELLED => Some(State::Cancelled),
        _ => None,
    }
}

/// The number of a reason in the column `reason`.
pub(crate) fn reason_number(reason: Reason) -> i16 {
    Reason::ALL.iter().position(|r| *r == reason).map_or(0, |i| i as i16)
}

/// The reason behind a number.
pub(crate) fn reason(number: Option<i16>) -> Option<Reason> {
    Reason::ALL.get(usize::try_from(number?).ok()?).copied()
}

/// The longest detail of an error that is kept, in bytes: every read of the job reads it.
const DETAIL: usize = 64 << 10;

/// A failure as JSON, cleaned as it is stored.
pub(crate) fn failure_text(failure: &Failure) -> String {
    serde_json::to_string(&kept_failure(failure)).expect("a failure is plain data")
}

/// A failure as it is stored: shortened if needed, without NUL.
pub(crate) fn kept_failure(failure: &Failure) -> Failure {
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

/// The class of an error as it stands in its JSON, which begins with it: the column `error_class` has it so on PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) fn class_in_json(class: &str) -> String {
    let quoted = serde_json::to_string(class).expect("text is plain data");
    quoted[1..quoted.len() - 1].to_owned()
}

/// Decodes a failure; text that is none (written by hand) becomes the message of one.
pub(crate) fn failure(text: Option<&str>) -> Option<Failure> {
    let text = text?;
    Some(serde_json::from_str(text).unwrap_or_else(|_| Failure::stop(text)))
}

/// How much of each retry rule is used, as text; `None` if nothing is.
pub(crate) fn retry_counts_text(counts: &[u32]) -> Option<String> {
    (!counts.is_empty()).then(|| serde_json::to_string(counts).expect("numbers are plain data"))
}

/// What a job waits for, as text.
pub(crate) fn wait_text(wait: &WaitCondition) -> String {
    serde_json::to_string(wait).expect("names and numbers are plain data")
}

/// How a job that is being unwound ends, as text.
pub(crate) fn unwind_text(unwind: &Unwind) -> String {
    serde_json::to_string(&kept_unwind(unwind)).expect("a failure is plain data")
}

/// How a job that is being unwound ends, as it is stored: its error is cleaned as errors are.
pub(crate) fn kept_unwind(unwind: &Unwind) -> Unwind {
    Unwind { failure: kept_failure(&unwind.failure), ..*unwind }
}

/// What a job watches a branch for, as text.
pub(crate) fn watch_text(watch: &BranchWatch) -> String {
    serde_json::to_string(watch).expect("numbers are plain data")
}

/// Decodes what a job watches a branch for. A watch that cannot be decoded is met by any count: the job is woken, reads the
/// counts, and watches anew.
pub(crate) fn watch(text: Option<&str>) -> Option<BranchWatch> {
    let any_count = || BranchWatch { ended: Some(0), ..BranchWatch::default() };
    text.map(|text| serde_json::from_str(text).unwrap_or_else(|_| any_count()))
}

/// What the last poll of a branch found, as text.
pub(crate) fn poll_text(poll: &BranchPoll) -> String {
    serde_json::to_string(poll).expect("plain data")
}

/// Decodes what the last poll of a branch found; the time of the next poll has a column of its own. It decides only when to poll
/// next, so one that cannot be decoded counts as no poll.
pub(crate) fn poll(text: Option<&str>, next_at: Option<Time>) -> BranchPoll {
    let poll: BranchPoll = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    BranchPoll { next_at, ..poll }
}

/// What the attempts of a worker reported, as it is kept.
pub(crate) fn progress_text(reports: &[ProgressReport]) -> String {
    serde_json::to_string(reports).expect("plain data")
}

/// The progress of a job's current claim, from what the worker's row has; nothing if that cannot be decoded: it is for people alone.
pub(crate) fn progress(text: Option<&str>, job: JobId, epoch: Epoch) -> Option<Progress> {
    let reports: Vec<ProgressReport> = serde_json::from_str(text?).ok()?;
    windlass_model::progress::of_claim(&reports, job, epoch)
}

/// Decodes the columns of one job's row that are JSON. A column that cannot be decoded has its default value, and is a fault of the
/// job: its row was changed by hand, or written by a newer version. The job must not run then.
#[derive(Default)]
pub(crate) struct Decoder {
    fault: Option<Box<str>>,
}

impl Decoder {
    /// The job's own policies.
    pub(crate) fn settings(&mut self, text: Option<&str>) -> Settings {
        self.decode("settings", text)
    }

    /// Words to search by.
    pub(crate) fn tags(&mut self, text: Option<&str>) -> Vec<String> {
        self.decode("tags", text)
    }

    /// How much of each retry rule is used.
    pub(crate) fn retry_counts(&mut self, text: Option<&str>) -> Vec<u32> {
        self.decode("retry_counts", text)
    }

    /// What the job waits for.
    pub(crate) fn wait(&mut self, text: Option<&str>) -> Option<WaitCondition> {
        self.decode("wait", text)
    }

    /// How the job ends once its undos have run.
    pub(crate) fn unwind(&mut self, text: Option<&str>) -> Option<Box<Unwind>> {
        self.decode("unwind", text)
    }

    /// The first column that could not be decoded, and why.
    pub(crate) fn fault(self) -> Option<Box<str>> {
        self.fault
    }

    fn decode<T: Default + DeserializeOwned>(&mut self, column: &str, text: Option<&str>) -> T {
        let Some(text) = text else { return T::default() };
        serde_json::from_str(text).unwrap_or_else(|error| {
            self.fault.get_or_insert_with(|| {
                format!("the column {column} of its row cannot be decoded: {error}").into()
            });
            T::default()
        })
    }
}

/// Whether a job that took a unique name holds it in a state. If its settings cannot be decoded, it holds the name as long as it would
/// by default: the name must not be given to two jobs.
pub(crate) fn holds_name(
    (settings, fault): (&Settings, Option<&str>),
    name: &str,
    state: State,
    submitted_at: Time,
    now: Time,
) -> bool {
    let by_default = fault.map(|_| Unique::new(name));
    let unique = by_default.as_ref().or(settings.unique.as_deref());
    unique.is_some_and(|unique| unique.holds(state, submitted_at, now))
}

/// Decodes the names of a branch's spawns. Without them, children are shown without the name of their spawn.
pub(crate) fn spawns(text: Option<&str>) -> Vec<String> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Jobs that have the ids or keys of jobs that were not inserted.
#[derive(Default)]
pub(crate) struct ExistingJobs {
    /// Digests by id.
    pub(crate) ids: HashMap<JobId, [u8; 16]>,
    /// Job and digest by kind and key.
    pub(crate) keys: HashMap<(String, String), (JobId, [u8; 16])>,
    /// Jobs in the claim that this submit names: an earlier send of it claimed them.
    pub(crate) claimed_before: HashSet<JobId>,
}

/// The outcome of each job of a submit. `inserted` says of each, in order, whether this call inserted it, and if so
/// whether it claimed it. `None` for a job that was neither inserted nor found: the job with its key was pruned
/// meanwhile, and it must be submitted again.
pub(crate) fn submit_outcomes(
    jobs: &[NewJob],
    inserted: &[Option<Inserted>],
    found: &ExistingJobs,
) -> Vec<Option<SubmitOutcome>> {
    let mut seen = HashSet::new();
    jobs.iter()
        .zip(inserted)
        .map(|(job, inserted)| {
            let first = seen.insert(job.id);
            if let Some(Inserted { claimed }) = inserted {
                return Some(SubmitOutcome::New { claimed: claimed.then_some(Epoch(0)) });
            }
            if let Some(digest) = found.ids.get(&job.id) {
                let was_claimed = first && found.claimed_before.contains(&job.id);
                return Some(SubmitOutcome::of_same_id(job, digest, was_claimed));
            }
            let (id, digest) = found.keys.get(&(job.kind.kind.clone(), job.key.clone()?))?;
            Some(SubmitOutcome::of_same_key(job, *id, digest))
        })
        .collect()
}

/// A job that a submit has inserted.
#[derive(Clone, Copy)]
pub(crate) struct Inserted {
    /// Whether the submit claimed it.
    pub(crate) claimed: bool,
}

/// The entry of a stage update in the audit log.
pub(crate) fn stage_update_action(update: &StageUpdate) -> String {
    format!("update stage to {} of version {}", update.stage, update.version)
}

/// The entry of a fork in the audit log.
pub(crate) fn fork_action(fork: &Fork) -> String {
    format!("fork before entry {} as {}", fork.before, fork.id)
}

/// Checks a stage update.
pub(crate) fn check_stage_update(update: &StageUpdate, limits: &Limits) -> Result<(), Error> {
    windlass_model::limits::check_stage(&update.stage)?;
    if update.version < 1 {
        let what = format!("version {} of the kind", update.version);
        return Err(Error::Invalid(Invalid {
            what,
            why: "is not positive".into(),
            hint: "count versions from 1".into(),
        }));
    }
    Ok(limits.check_payload("data of the stage", &update.data.bytes)?)
}

/// The number of jobs of a lane in each state.
pub(crate) type LaneCounts = [(State, u64); 7];

/// Sums up the counts of lanes per queue and kind.
pub(crate) fn state_counts(lanes: Vec<(Lane, LaneCounts)>) -> Vec<StateCount> {
    let mut sums: BTreeMap<(String, String, State), u64> = BTreeMap::new();
    for (lane, counts) in lanes {
        for (state, jobs) in counts.into_iter().filter(|(_, jobs)| *jobs > 0) {
            let key = (lane.queue.clone(), lane.kind.kind.clone(), state);
            *sums.entry(key).or_default() += jobs;
        }
    }
    let count = |((queue, kind, state), jobs)| StateCount { queue, kind, state, jobs };
    sums.into_iter().map(count).collect()
}

/// Whether jobs of a lane can match a filter.
pub(crate) fn is_selected(filter: &Filter, lane: &Lane) -> bool {
    filter.kind.as_ref().is_none_or(|kind| *kind == lane.kind.kind)
        && filter.version.is_none_or(|version| version == lane.kind.version)
        && filter.queue.as_ref().is_none_or(|queue| *queue == lane.queue)
}

/// Sums up the counts of the lanes that a filter selects, which must select by lane and state alone.
pub(crate) fn count_selected(lanes: Vec<(Lane, LaneCounts)>, filter: &Filter) -> BTreeMap<State, u64> {
    let mut sums: BTreeMap<State, u64> = BTreeMap::new();
    for (_, counts) in lanes.iter().filter(|(lane, _)| is_selected(filter, lane)) {
        for (state, jobs) in counts.iter().filter(|(_, jobs)| *jobs > 0) {
            if filter.state.is_none_or(|wanted| wanted == *state) {
                *sums.entry(*state).or_default() += jobs;
            }
        }
    }
    sums
}

/// Adds counts of jobs by the column `state` and by where they are.
pub(crate) fn add_by_state(
    sums: &mut BTreeMap<State, u64>,
    counts: impl IntoIterator<Item = (i16, Location, u64)>,
) {
    for (state, location, jobs) in counts {
        *sums.entry(final_state(state).unwrap_or_else(|| location.state())).or_default() += jobs;
    }
}

/// Sums up a backlog from counts per lane: what is counted ('ready', 'scheduled' or 'running'), how many, and since
/// when the first of them waits.
pub(crate) fn backlog(
    counts: impl IntoIterator<Item = (i32, String, u64, Option<i64>)>,
    cap: u64,
    name: impl Fn(i32) -> Result<Lane, Error>,
) -> Result<Vec<Backlog>, Error> {
    let mut queues: BTreeMap<String, Backlog> = BTreeMap::new();
    for (lane, placement, jobs, oldest) in counts.into_iter().filter(|(.., jobs, _)| *jobs > 0) {
        let queue = name(lane)?.queue;
        let sum = queues.entry(queue.clone()).or_insert_with(|| Backlog { queue, ..Backlog::default() });
        let count = match placement.as_str() {
            "ready" => &mut sum.ready,
            "scheduled" => &mut sum.scheduled,
            _ => &mut sum.running,
        };
        *count = (*count + jobs).min(cap);
        sum.oldest_at = [sum.oldest_at, oldest.map(Time)].into_iter().flatten().min();
    }
    Ok(queues.into_values().collect())
}

/// A job's own policies as text; `None` if none were given.
pub(crate) fn settings_text(settings: &Settings) -> Option<String> {
    (!settings.is_default()).then(|| serde_json::to_string(settings).expect("settings are plain data"))
}

/// How jobs in a state are found: the number of the state, and whether the job must be ready, scheduled, or parked. A
/// parked job may have a timer too, so a scheduled one must not be parked.
pub(crate) fn state_filter(state: Option<State>) -> (Option<i16>, Option<bool>, Option<bool>, Option<bool>) {
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

/// The error for a rate limit that does not exist.
pub(crate) fn no_limit(name: &str) -> Invalid {
    Invalid {
        what: format!("the rate limit {name:?}"),
        why: "does not exist".into(),
        hint: "create it first, e.g. with `windlass limits set`".into(),
    }
}

/// The entry of an action on a job in the audit log.
pub(crate) fn action(action: JobAction) -> String {
    match action {
        JobAction::Priority(priority) => format!("priority {priority}"),
        JobAction::DropSignal(number) | JobAction::RestoreSignal(number) => {
            format!("{} {number}", action.name())
        }
        action => action.name().to_owned(),
    }
}

/// The entry of a rule change in the audit log, and its subject.
pub(crate) fn admin_action(change: &AdminAction) -> (String, String) {
    match change {
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
        AdminAction::Trigger { name, .. } => ("trigger schedule".into(), name.clone()),
    }
}

/// Refuses an invalid action.
pub(crate) fn check_act(action: JobAction) -> Result<(), Error> {
    match action {
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

/// Refuses an invalid rule change.
pub(crate) fn check_admin(change: &AdminAction, limits: &Limits) -> Result<(), Error> {
    use windlass_model::limits::{check_key, check_name, check_slots};
    match change {
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
        | AdminAction::Trigger { name, .. } => check_name("schedule", name)?,
    }
    Ok(())
}

/// Refuses to delete jobs that have not ended.
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

/// Decodes what a worker serves.
pub(crate) fn serves(text: &str) -> Vec<crate::Serves> {
    serde_json::from_str(text).unwrap_or_default()
}

/// A schedule as text, without its input, which has a column of its own.
pub(crate) fn schedule_text(schedule: &Schedule) -> String {
    serde_json::to_string(schedule).expect("a schedule is plain data")
}

/// Decodes a schedule.
pub(crate) fn schedule(text: &str, input: Payload) -> Result<Schedule, Error> {
    let schedule: Schedule = serde_json::from_str(text)
        .map_err(|error| Error::Fault(format!("a schedule cannot be read: {error}")))?;
    Ok(Schedule { input, ..schedule })
}
