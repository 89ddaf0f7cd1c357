//! What commands ask of a store or of a server: one method for each thing, with the same answers.
//!
//! [`Store`] answers from an engine of this process, through `windlass::operate`; [`Server`] sends requests to the HTTP API of
//! `windlass serve`, which answers with the same values as JSON. Both make the errors that people read, with the same texts. A command that
//! needs something new gets a line in [`Client`] and a method in both.

mod server;
mod store;

use serde_json::Value;
pub(crate) use server::{Server, needs_login};
pub(crate) use store::Store;
use windlass::{
    Calendar, CatchUp, ControlOutcome, Delivery, Engine, JobId, Overlap, RateCharge, Reason, Serial, State,
    Time, Unique,
    model::Role,
    operate::{
        Acted, AuditFilter, BulkProgress, ForkPoint, ForkProgress, Found, JobAction, Preview, PruneProgress,
        RedriveProgress, TokenRequest, Why,
        alerts::{AlertsView, RuleView},
        diagram::{JobDiagram, KindDiagrams},
        doctor::Finding,
        views::{
            AuditPage, BranchesView, ChildList, ItemFilter, ItemList, JobList, JobView, Queues, RateLimits,
            ScheduleDetails, Schedules, SerialKeys, SignalWaitsView, ThroughputRequest, ThroughputView,
        },
    },
    store::{AdminAction, Filter, Token, User},
};

use crate::{args::Actor, program::Program};

/// A store, or a server in front of one.
pub(crate) enum Client {
    Store(Store),
    Server(Server),
}

impl Client {
    /// A client of the store of an engine.
    pub(crate) fn store(engine: Engine, program: &Program) -> Client {
        Client::Store(Store::new(engine, program))
    }
}

/// Declares the methods once; each is called on whichever the client is.
macro_rules! methods {
    ($($(#[doc = $doc:literal])+ $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty;)+) => {
        impl Client {$(
            $(#[doc = $doc])+
            pub(crate) async fn $name(&self, $($arg: $type),*) -> anyhow::Result<$answer> {
                match self {
                    Client::Store(store) => store.$name($($arg),*).await,
                    Client::Server(server) => server.$name($($arg),*).await,
                }
            }
        )+}
    };
}

methods! {
    /// Finds what a name means. A job that is named by its id need not exist.
    find(name: &str) -> Result<Found, NameError>;
    /// A page of jobs: at most `filter.limit`.
    jobs(filter: &Filter) -> JobList;
    /// A page of the children of a job, or of its branch of this name.
    children(parent: JobId, branch: Option<&str>, filter: &Filter, after: Option<JobId>) -> ChildList;
    /// Everything about a job, with the last entries of its journal or all of them; `None` if it does not exist.
    job(id: JobId, entries: Option<usize>) -> Option<JobView>;
    /// Why a job is in its state; `None` if it does not exist.
    why(id: JobId) -> Option<Why>;
    /// The branches of a job, or those of one name; with `explain` also why one has stalled.
    branches(job: JobId, branch: Option<&str>, explain: bool) -> BranchesView;
    /// A page of the children of a job's branches, those in blocks included.
    items(job: JobId, branch: Option<&str>, only: ItemFilter, after: Option<&str>, limit: usize) -> ItemList;
    /// What a machine or a workflow did; `None` if the job does not exist.
    job_diagram(id: JobId) -> Option<JobDiagram>;
    /// What the newest jobs of a kind did.
    kind_diagrams(kind: &str, version: Option<i32>, limit: Option<usize>) -> KindDiagrams;
    /// The queues.
    queues() -> Queues;
    /// What ended, and how long jobs waited and ran.
    throughput(request: &ThroughputRequest) -> ThroughputView;
    /// How long jobs of these kinds, or of all, waited for a signal, or for all.
    signal_waits(kinds: &[String], signal: Option<&str>, since: std::time::Duration) -> SignalWaitsView;
    /// The rate limits.
    rate_limits() -> RateLimits;
    /// Serial keys, or the one named.
    serial_keys(key: Option<&str>, limit: usize) -> SerialKeys;
    /// The schedules.
    schedules() -> Schedules;
    /// One schedule with at most `limit` firings and misses; `None` if it does not exist.
    schedule(name: &str, limit: usize) -> Option<ScheduleDetails>;
    /// A page of the audit log.
    audit(filter: &AuditFilter) -> AuditPage;
    /// The tokens, and the store's clock.
    tokens() -> (Vec<Token>, Time);
    /// The users, and the store's clock.
    users() -> (Vec<User>, Time);
    /// Alerts, at most `limit`; with `only_open`, none that is resolved.
    alerts(limit: usize, only_open: bool) -> AlertsView;
    /// The alert rules of the server, or of the settings of this machine.
    alert_rules() -> Vec<RuleView>;
    /// Whether any worker is alive.
    has_worker() -> bool;

    /// Applies an action to jobs. In order.
    act(jobs: &[JobId], action: JobAction, actor: &Actor) -> Vec<Acted>;
    /// Cancels a job and all its descendants.
    cancel_tree(job: JobId, grace: std::time::Duration, actor: &Actor) -> Acted;
    /// Counts the jobs that an action would change.
    preview(filter: &Filter, action: JobAction) -> Preview;
    /// Applies an action to all jobs that match, as long as `on_progress` returns true.
    bulk(filter: &Filter, action: JobAction, rate: Option<u32>, actor: &Actor, on_progress: OnProgress<'_, BulkProgress>) -> BulkProgress;
    /// Retries the unsuccessful children of a job's branches, as long as `on_progress` returns true.
    redrive(job: JobId, branch: Option<&str>, rate: Option<u32>, actor: &Actor, on_progress: OnProgress<'_, RedriveProgress>) -> RedriveProgress;
    /// Forks a job. Returns the new one.
    fork(job: JobId, point: &ForkPoint, key: Option<&str>, actor: &Actor) -> JobId;
    /// Counts the jobs that would be forked.
    fork_preview(filter: &Filter) -> Preview;
    /// Forks all jobs that match, as long as `on_progress` returns true.
    fork_each(filter: &Filter, point: &ForkPoint, actor: &Actor, on_progress: OnProgress<'_, ForkProgress>) -> ForkProgress;
    /// Deletes jobs that ended long ago, as long as `on_progress` returns true.
    prune(state: State, age: std::time::Duration, kind: Option<&str>, actor: &Actor, on_progress: OnProgress<'_, PruneProgress>) -> PruneProgress;
    /// Changes a queue, a rate limit, a serial key, or a schedule other than by setting it.
    administer(action: &AdminAction, actor: &Actor) -> ControlOutcome;
    /// Creates or replaces a schedule. Returns also the store's clock.
    set_schedule(schedule: &NewSchedule, actor: &Actor) -> (ControlOutcome, Time);
    /// Creates a token. Returns also its text.
    create_token(request: &TokenRequest, actor: &Actor) -> (Token, String);
    /// Revokes a token by its id or name.
    revoke_token(token: &str, actor: &Actor) -> ControlOutcome;
    /// Creates a user.
    create_user(name: &str, role: Role, password: &str, actor: &Actor) -> User;
    /// Changes a user.
    change_user(user: &str, action: &UserAction, actor: &Actor) -> ControlOutcome;
    /// Mutes an alert rule, or one subject of it.
    mute_alerts(rule: &str, subject: Option<&str>, span: Option<std::time::Duration>, actor: &Actor) -> ControlOutcome;
    /// Ends the mute of an alert rule, or of one subject of it.
    unmute_alerts(rule: &str, subject: Option<&str>, actor: &Actor) -> ControlOutcome;
    /// Submits a job that posts a test message.
    test_alert(rule: &str, actor: &Actor) -> ControlOutcome;
    /// Sends a signal.
    signal(job: JobId, name: &str, payload: &Value, dedup: Option<&str>) -> SentSignal;
    /// Submits a job `count` times. `on_submitted` is called with each, in order.
    submit(job: &NewJob, count: u32, on_submitted: &mut dyn FnMut(Submitted) -> anyhow::Result<()>) -> ();
    /// Waits until a job has ended.
    result(job: JobId) -> Ended;
}

/// Is called with the progress of an operation. Returns whether to go on.
pub(crate) type OnProgress<'a, P> = &'a mut dyn FnMut(&P) -> bool;

impl Client {
    /// Checks the installation: from the store, or the server, upward.
    pub(crate) async fn doctor(program: &Program) -> Vec<Finding> {
        match program.is_remote() {
            true => Server::doctor(program).await,
            false => Store::doctor(program).await,
        }
    }
}

/// Why a name means no job.
pub(crate) enum NameError {
    /// It is no id, no key, and no kind/key.
    Unknown,
    /// It looks like that of a child of a branch, which does not exist.
    NoSuchChild(String),
    /// Several jobs have it.
    Ambiguous(String),
}

/// What is done to a user.
pub(crate) enum UserAction {
    SetPassword(String),
    SetRole(Role),
    Disable,
    Enable,
    EndSessions,
}

/// A job to be submitted.
#[derive(Clone)]
pub(crate) struct NewJob {
    pub(crate) kind: String,
    pub(crate) version: i32,
    pub(crate) input: Value,
    /// Whether an input is accepted that is known not to decode.
    pub(crate) is_unchecked: bool,
    pub(crate) key: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) priority: i16,
    pub(crate) delay: Option<std::time::Duration>,
    pub(crate) at: Option<Time>,
    pub(crate) deadline_at: Option<Time>,
    pub(crate) tags: Vec<String>,
    pub(crate) options: Option<Value>,
    pub(crate) attempts: Option<u32>,
    pub(crate) timeout: Option<std::time::Duration>,
    pub(crate) trace: Option<String>,
    pub(crate) unique: Option<Unique>,
    pub(crate) serial: Option<Serial>,
    pub(crate) rate: Option<RateCharge>,
    pub(crate) parent: Option<JobId>,
    pub(crate) signals: Vec<(String, Value)>,
}

/// A job that was submitted, or one that was there already.
#[derive(Clone, Copy, serde::Deserialize)]
pub(crate) struct Submitted {
    pub(crate) id: JobId,
    /// Whether this submit made it.
    #[serde(rename = "new")]
    pub(crate) is_new: bool,
    /// Whether the one that was there has another input.
    pub(crate) differs: bool,
    /// The job that was cancelled because this one took its unique name.
    pub(crate) replaced: Option<JobId>,
}

/// A schedule to be set.
pub(crate) struct NewSchedule {
    pub(crate) name: String,
    pub(crate) calendar: Calendar,
    pub(crate) kind: String,
    pub(crate) version: i32,
    pub(crate) input: Value,
    /// Whether an input is accepted that is known not to decode.
    pub(crate) is_unchecked: bool,
    pub(crate) queue: Option<String>,
    pub(crate) overlap: Overlap,
    pub(crate) catch_up: CatchUp,
    pub(crate) priority: i16,
    pub(crate) tags: Vec<String>,
    pub(crate) attempts: Option<u32>,
    pub(crate) timeout: Option<std::time::Duration>,
    pub(crate) serial: Option<Serial>,
    pub(crate) rate: Option<RateCharge>,
}

/// A signal that was sent.
#[derive(serde::Deserialize)]
pub(crate) struct SentSignal {
    pub(crate) delivery: Delivery,
    /// Why the job may not consume it soon.
    pub(crate) note: Option<String>,
}

/// How a job ended that a command waited for.
pub(crate) enum Ended {
    Done(Value),
    Error { text: String, reason: Option<Reason>, failure: Option<windlass::Failure> },
}

impl Ended {
    /// The end by an error, unless it is one of the store.
    pub(crate) fn error(error: windlass::JobError) -> anyhow::Result<Ended> {
        let text = error.to_string();
        Ok(match error {
            windlass::JobError::Store(error) => return Err(error.into()),
            windlass::JobError::Failed { reason, failure, .. } => {
                Ended::Error { text, reason: Some(reason), failure: Some(failure) }
            }
            _ => Ended::Error { text, reason: None, failure: None },
        })
    }
}
