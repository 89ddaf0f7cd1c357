//! The requests and answers of workers and of programs that submit.

use serde::{Deserialize, Serialize};
use windlass_model::{
    ClaimNo, Epoch, JobId, KindVersion, Limits, Progress, ProgressReport, Reason, State, SubmitOutcome, Time,
    WorkerId,
};
use windlass_store::{Actor, CancelRequest, JobEnd, SignalOutcome};

use super::{
    change::{Change, Committed},
    job::{Claimed, Job},
    payload::WirePayload,
    schema::{Described, described},
    shared::{answer, is_default},
    spans::Millis,
};

macro_rules! requests {
    ($($(#[$($about:tt)*])* $name:ident $path:literal -> $answer:ty { $($(#[$($doc:tt)*])* $field:ident: $type:ty,)* })*) => {$(
        $crate::protocol::schema::described! {
            $(#[$($about)*])*
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct $name { $($(#[$($doc)*])* pub $field: $type,)* }
        }

        impl $crate::protocol::calls::Request for $name {
            const CALL: &'static str = $path;
            type Answer = $answer;
        }
    )*};
}
pub(super) use requests;

/// A request, and what is answered to it.
pub trait Request: Serialize + Described {
    /// The last part of its path, after [`super::PREFIX`].
    const CALL: &'static str;
    /// The answer.
    type Answer: Serialize + for<'de> Deserialize<'de> + Described;
}

requests! {
    /// What the server is, and whether it accepts the token.
    Hello "hello" -> ServerInfo {}

    /// Registers a worker.
    Register "register" -> Registered {
        /// Its id, if the client draws it. A call that is repeated with it registers one worker.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker: Option<WorkerId>,
        /// Its name for people.
        name: String,
        /// How long it may go without renewing.
        lease_ms: Millis,
        /// What it serves.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        serves: Vec<Serves>,
    }

    /// Claims jobs.
    Claim "claim" -> ClaimAnswer {
        /// The worker.
        worker: WorkerId,
        /// The worker's number for this claim, counted from 1.
        number: ClaimNo,
        /// The queue.
        queue: String,
        /// The kinds that it can run.
        kinds: Vec<Kind>,
        /// The most jobs.
        limit: usize,
        /// How long to wait for a job if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<Millis>,
        /// All claims up to this number were received, and all of their jobs are finished or released.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settled: Option<ClaimNo>,
        /// These claims have no jobs left, whatever is with those before them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        settled_claims: Vec<ClaimNo>,
        /// Whether to claim a suspect, which runs alone, instead of ordinary jobs.
        #[serde(default, skip_serializing_if = "is_default")]
        solo: bool,
        /// Claims only this job, ahead of others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<JobId>,
    }

    /// Extends the lease of a worker.
    Renew "renew" -> Renewed {
        /// The worker.
        worker: WorkerId,
        /// The length of the lease from now.
        lease_ms: Millis,
        /// As of a claim.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settled: Option<ClaimNo>,
        /// As of a claim.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        settled_claims: Vec<ClaimNo>,
        /// Claims that ran alone and no longer do.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        solo_ended: Vec<ClaimNo>,
        /// What the attempts report, in place of all that they reported before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        progress: Option<Vec<Report>>,
    }

    /// Releases all jobs of some claims whose answers were lost.
    ReleaseClaims "release-claims" -> Released {
        /// The worker.
        worker: WorkerId,
        /// The claims.
        numbers: Vec<ClaimNo>,
    }

    /// Releases jobs that were not started.
    Release "release" -> Released {
        /// The worker.
        worker: WorkerId,
        /// The jobs.
        jobs: Vec<Held>,
    }

    /// Ends the service of a worker.
    Retire "retire" -> Released {
        /// The worker.
        worker: WorkerId,
    }

    /// Commits changes.
    Commit "commit" -> CommitAnswer {
        /// The worker.
        worker: WorkerId,
        /// The changes, at most one per job.
        changes: Vec<Change>,
    }

    /// Reads the versions of gates, and waits until one differs from those that are known.
    Gates "gates" -> GatesAnswer {
        /// The queues. An empty text is the gate of timers, the character U+0001 that of cancels.
        queues: Vec<String>,
        /// What an earlier answer returned for the same queues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<Vec<String>>,
        /// How long to wait at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<Millis>,
    }

    /// Reads the cancel requests for the jobs of a worker.
    Cancels "cancels" -> CancelsAnswer {
        /// The worker.
        worker: WorkerId,
    }

    /// Ends jobs of a worker that stopped between two steps because they are being cancelled.
    EndCancelled "end-cancelled" -> EndCancelledAnswer {
        /// The worker.
        worker: WorkerId,
        /// The jobs.
        jobs: Vec<JobId>,
    }

    /// Submits jobs, all in one transaction.
    Submit "submit" -> SubmitAnswer {
        /// The jobs.
        jobs: Vec<Job>,
        /// The claim under which the jobs that are due now are inserted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim: Option<ClaimAtSubmit>,
    }

    /// Delivers signals, all in one transaction.
    Deliver "signal" -> DeliverAnswer {
        /// The signals.
        signals: Vec<NewSignal>,
    }

    /// Reads how jobs ended.
    Ends "ends" -> EndsAnswer {
        /// The jobs.
        jobs: Vec<JobId>,
    }
}

described! {
    /// The answer to [`Hello`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct ServerInfo {
        /// The version of the protocol.
        pub protocol: u32,
        /// The store's clock.
        pub now: Time,
        /// The most bytes of a request's body.
        pub body_limit: usize,
        /// How many commits at once pay off.
        pub concurrent_commits: usize,
        /// The limits of what may be submitted and committed, by name.
        pub limits: std::collections::BTreeMap<String, usize>,
    }
}

impl ServerInfo {
    /// The limits of a store by name.
    pub fn limits_of(limits: &Limits) -> std::collections::BTreeMap<String, usize> {
        Limits::NAMES.iter().filter_map(|name| Some(((*name).to_owned(), limits.get(name)?))).collect()
    }

    /// The limits of the model. Those that this version does not know are ignored.
    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for (name, value) in &self.limits {
            limits.set(name, *value);
        }
        limits
    }
}

described! {
    /// A kind with its version.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Kind {
        /// The kind.
        pub kind: String,
        /// Its version.
        #[serde(default = "first_version")]
        pub version: i32,
    }
}

const fn first_version() -> i32 {
    1
}

impl From<KindVersion> for Kind {
    fn from(kind: KindVersion) -> Kind {
        Kind { kind: kind.kind, version: kind.version }
    }
}

impl From<Kind> for KindVersion {
    fn from(kind: Kind) -> KindVersion {
        KindVersion { kind: kind.kind, version: kind.version }
    }
}

described! {
    /// A queue that a worker serves.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Serves {
        /// The queue.
        pub queue: String,
        /// How many of its jobs the worker runs at once.
        pub slots: usize,
        /// The kinds.
        pub kinds: Vec<Kind>,
    }
}

impl From<windlass_store::Serves> for Serves {
    fn from(serves: windlass_store::Serves) -> Serves {
        let windlass_store::Serves { queue, slots, kinds } = serves;
        Serves { queue, slots, kinds: kinds.into_iter().map(Into::into).collect() }
    }
}

impl From<Serves> for windlass_store::Serves {
    fn from(serves: Serves) -> windlass_store::Serves {
        let Serves { queue, slots, kinds } = serves;
        windlass_store::Serves { queue, slots, kinds: kinds.into_iter().map(Into::into).collect() }
    }
}

described! {
    /// The answer to [`Register`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct Registered {
        /// The worker.
        pub worker: WorkerId,
        /// The store's clock.
        pub now: Time,
        /// The most bytes of an input, an output or a message.
        pub payload_limit: usize,
    }
}

described! {
    /// The answer to [`Claim`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct ClaimAnswer {
        /// The jobs, by rank.
        pub jobs: Vec<Claimed>,
        /// Whether there may be more to claim at once.
        pub more: bool,
        /// Whether suspects wait, which run alone.
        #[serde(default, skip_serializing_if = "is_default")]
        pub suspects: bool,
        /// When to claim again for jobs that wait for their rate limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub refill_at: Option<Time>,
        /// The store's clock at the claim.
        pub now: Time,
    }
}

described! {
    /// What an attempt reports of itself; see [`Progress`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Report {
        /// The job.
        pub job: JobId,
        /// The epoch of the claim.
        pub epoch: Epoch,
        /// How much is done.
        pub done: u64,
        /// Of how much.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub total: Option<u64>,
        /// What it is doing.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub note: String,
        /// The step of a workflow that reports it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub step: Option<String>,
        /// When, by the worker's clock.
        pub at: Time,
    }
}

impl From<ProgressReport> for Report {
    fn from(report: ProgressReport) -> Report {
        let ProgressReport { job, epoch, progress: Progress { done, total, note, step, at } } = report;
        Report { job, epoch, done, total, note, step, at }
    }
}

impl From<Report> for ProgressReport {
    fn from(report: Report) -> ProgressReport {
        let Report { job, epoch, done, total, note, step, at } = report;
        let progress = Progress { step, ..Progress::new(done, total, &note, at) };
        ProgressReport { job, epoch, progress }
    }
}

described! {
    /// The answer to [`Renew`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct Renewed {
        /// Whether the worker lives. If not, all of its claims are void, and it registers anew.
        pub held: bool,
        /// Whether leases of other workers have run out. The server takes care of them.
        #[serde(default, skip_serializing_if = "is_default")]
        pub lapsed: bool,
        /// The claims that are recorded for it.
        pub claims: Vec<ClaimNo>,
        /// The cancel requests for its jobs.
        pub cancels: Vec<Cancel>,
    }
}

described! {
    /// A request to an attempt to end; see [`CancelRequest`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct Cancel {
        /// The job.
        pub job: JobId,
        /// The epoch of the attempt.
        pub epoch: Epoch,
        /// When the job is ended without the attempt.
        pub deadline_at: Time,
        /// Who cancels the job.
        pub author: String,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
    }
}

impl From<CancelRequest> for Cancel {
    fn from(request: CancelRequest) -> Cancel {
        let CancelRequest { job, epoch, deadline_at, actor: Actor { author, note } } = request;
        Cancel { job, epoch, deadline_at, author, note }
    }
}

impl From<Cancel> for CancelRequest {
    fn from(cancel: Cancel) -> CancelRequest {
        let Cancel { job, epoch, deadline_at, author, note } = cancel;
        CancelRequest { job, epoch, deadline_at, actor: Actor { author, note } }
    }
}

described! {
    /// A claimed job.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Held {
        /// The job.
        pub job: JobId,
        /// The epoch of its claim.
        pub epoch: Epoch,
        /// The number of the claim.
        pub claim: ClaimNo,
    }
}

described! {
    /// How many jobs were released.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub struct Released {
        /// The number.
        pub released: usize,
    }
}

described! {
    /// The answer to [`Commit`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct CommitAnswer {
        /// What happened to each change, in order.
        pub outcomes: Vec<Committed>,
    }
}

described! {
    /// The answer to [`Gates`].
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub struct GatesAnswer {
        /// A text for each queue, in order, to be compared for equality only.
        pub gates: Vec<String>,
    }
}

described! {
    /// The answer to [`Cancels`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct CancelsAnswer {
        /// The requests.
        pub cancels: Vec<Cancel>,
    }
}

described! {
    /// The answer to [`EndCancelled`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub struct EndCancelledAnswer {
        /// How many of the jobs were ended.
        pub ended: usize,
    }
}

described! {
    /// The claim under which a submit inserts jobs.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ClaimAtSubmit {
        /// The worker.
        pub worker: WorkerId,
        /// Its number for this claim.
        pub number: ClaimNo,
    }
}

described! {
    /// The answer to [`Submit`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct SubmitAnswer {
        /// What happened to each job, in order.
        pub outcomes: Vec<Submitted>,
    }
}

described! {
    /// What happened to a submitted job. Made from [`SubmitOutcome`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(tag = "outcome", rename_all = "snake_case")]
    pub enum Submitted {
        /// It was inserted.
        New {
            /// The epoch under which the worker has it claimed, if it was claimed at once.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            claimed: Option<Epoch>,
        },
        /// It was submitted before.
        Repeated,
        /// Another job has its key or its unique name.
        Existing {
            /// That job.
            job: JobId,
            /// Whether its input is the same.
            same_input: bool,
        },
        /// It was inserted, and replaced the job that held its unique name.
        Replaced {
            /// That job.
            job: JobId,
        },
        /// Another job holds its unique name.
        Rejected {
            /// That job.
            job: JobId,
        },
        /// Another job has its id.
        IdTaken,
    }
}

impl From<SubmitOutcome> for Submitted {
    fn from(outcome: SubmitOutcome) -> Submitted {
        match outcome {
            SubmitOutcome::New { claimed } => Submitted::New { claimed },
            SubmitOutcome::Repeated => Submitted::Repeated,
            SubmitOutcome::Existing { id, same_input } => Submitted::Existing { job: id, same_input },
            SubmitOutcome::Replaced { id } => Submitted::Replaced { job: id },
            SubmitOutcome::Rejected { id } => Submitted::Rejected { job: id },
            SubmitOutcome::IdTaken => Submitted::IdTaken,
        }
    }
}

impl From<Submitted> for SubmitOutcome {
    fn from(outcome: Submitted) -> SubmitOutcome {
        match outcome {
            Submitted::New { claimed } => SubmitOutcome::New { claimed },
            Submitted::Repeated => SubmitOutcome::Repeated,
            Submitted::Existing { job, same_input } => SubmitOutcome::Existing { id: job, same_input },
            Submitted::Replaced { job } => SubmitOutcome::Replaced { id: job },
            Submitted::Rejected { job } => SubmitOutcome::Rejected { id: job },
            Submitted::IdTaken => SubmitOutcome::IdTaken,
        }
    }
}

described! {
    /// A signal to be delivered; see [`windlass_model::NewSignal`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct NewSignal {
        /// The job.
        pub job: JobId,
        /// Its name.
        pub name: String,
        /// A text that distinguishes it from others of its name: a signal that is sent again is delivered once.
        pub dedup: String,
        /// The message.
        pub payload: WirePayload,
    }
}

impl From<windlass_model::NewSignal> for NewSignal {
    fn from(signal: windlass_model::NewSignal) -> NewSignal {
        let windlass_model::NewSignal { job, name, dedup, payload } = signal;
        NewSignal { job, name, dedup, payload: payload.into() }
    }
}

impl From<NewSignal> for windlass_model::NewSignal {
    fn from(signal: NewSignal) -> windlass_model::NewSignal {
        let NewSignal { job, name, dedup, payload } = signal;
        windlass_model::NewSignal { job, name, dedup, payload: payload.into() }
    }
}

described! {
    /// The answer to [`Deliver`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct DeliverAnswer {
        /// What happened to each signal, in order.
        pub outcomes: Vec<Delivered>,
    }
}

described! {
    /// What happened to a signal. Made from [`SignalOutcome`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(tag = "outcome", rename_all = "snake_case")]
    pub enum Delivered {
        /// It is in the inbox.
        Delivered {
            /// Whether it woke the job.
            woke: bool,
        },
        /// It was delivered before.
        Duplicate,
        /// The job has ended.
        Ended {
            /// In this state.
            state: State,
        },
        /// The inbox is full.
        Full,
        /// There is no such job.
        Unknown,
    }
}

impl From<SignalOutcome> for Delivered {
    fn from(outcome: SignalOutcome) -> Delivered {
        match outcome {
            SignalOutcome::Delivered { woke } => Delivered::Delivered { woke },
            SignalOutcome::Duplicate => Delivered::Duplicate,
            SignalOutcome::Ended(state) => Delivered::Ended { state },
            SignalOutcome::Full => Delivered::Full,
            SignalOutcome::Unknown => Delivered::Unknown,
        }
    }
}

impl From<Delivered> for SignalOutcome {
    fn from(outcome: Delivered) -> SignalOutcome {
        match outcome {
            Delivered::Delivered { woke } => SignalOutcome::Delivered { woke },
            Delivered::Duplicate => SignalOutcome::Duplicate,
            Delivered::Ended { state } => SignalOutcome::Ended(state),
            Delivered::Full => SignalOutcome::Full,
            Delivered::Unknown => SignalOutcome::Unknown,
        }
    }
}

described! {
    /// The answer to [`Ends`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct EndsAnswer {
        /// How each job ended, in order; null for those that have not.
        pub ends: Vec<Option<Ended>>,
    }
}

described! {
    /// How a job ended. Made from [`JobEnd`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct Ended {
        /// `done`, `failed` or `cancelled`; `gone` for a job that does not exist.
        pub state: EndState,
        /// Its output, if it is done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub output: Option<WirePayload>,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<Reason>,
        /// The last error, if it failed or was cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<answer::Failure>,
    }
}

described! {
    /// The state of an ended job.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum EndState {
        /// It has an output.
        Done,
        /// It failed.
        Failed,
        /// It was cancelled.
        Cancelled,
        /// It does not exist.
        Gone,
    }
}

impl From<JobEnd> for Ended {
    fn from(end: JobEnd) -> Ended {
        let of = |state| Ended { state, output: None, reason: None, error: None };
        match end {
            JobEnd::Done(output) => Ended { output: Some(output.into()), ..of(EndState::Done) },
            JobEnd::Failed { reason, failure } => {
                Ended { reason: Some(reason), error: Some(failure.into()), ..of(EndState::Failed) }
            }
            JobEnd::Cancelled(failure) => Ended { error: Some(failure.into()), ..of(EndState::Cancelled) },
            JobEnd::Gone => of(EndState::Gone),
        }
    }
}

impl From<Ended> for JobEnd {
    fn from(ended: Ended) -> JobEnd {
        let failure = |error: Option<answer::Failure>| match error {
            Some(error) => error.into(),
            None => windlass_model::Failure::stop("no error was kept"),
        };
        match ended.state {
            EndState::Done => JobEnd::Done(ended.output.map(Into::into).unwrap_or_default()),
            EndState::Failed => JobEnd::Failed {
                reason: ended.reason.unwrap_or(Reason::Stopped),
                failure: failure(ended.error),
            },
            EndState::Cancelled => JobEnd::Cancelled(failure(ended.error)),
            EndState::Gone => JobEnd::Gone,
        }
    }
}

/// A span as a request has it.
pub fn millis(span: std::time::Duration) -> Millis {
    Millis(span)
}
