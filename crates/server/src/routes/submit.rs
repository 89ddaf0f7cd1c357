//! Submitting jobs.

use std::future::IntoFuture;

use axum::http::{Method, StatusCode};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use windlass::{
    AnyKind, Handle, JobId, RateCharge, Serial, States, SubmitJson, Time, Unique, model::Conflict,
};

use super::{ACT, Answer, Route};
use crate::{
    access::forbidden,
    answers::{Submitted, SubmittedMany},
    call::Call,
    error::Error,
    input::{Described, Span, input},
    reply::Reply,
};

/// The most jobs of one request: as many as one transaction submits.
const MAX_JOBS: usize = 1_000;

pub(super) fn routes() -> Vec<Route> {
    let one = "Submit a job. Repeat it with the same id after its answer was lost: it is submitted once";
    let many = "Submit up to 1,000 jobs. Each has its own answer; the others are submitted if one is refused";
    vec![
        Route::new(Method::POST, "/v1/jobs", ACT, "submit", one, submit)
            .returns::<Submitted>()
            .also_returns::<Submitted>(StatusCode::CREATED, "It is new")
            .body::<JobInput>()
            .answers("The job: its id, whether it is new, and whether the existing one has another input"),
        Route::new(Method::POST, "/v1/jobs/batch", ACT, "submitMany", many, submit_many)
            .returns::<SubmittedMany>()
            .body::<BatchInput>()
            .answers("An answer for each job, in order: as of a single submit, or `error`"),
    ]
}

input! {
    /// A job to be submitted.
    JobInput {
        /// Its kind.
        kind: String,
        /// The version of the kind [default: the newest that the server knows, or 1].
        version: Option<i32>,
        /// Its input: any JSON [default: null].
        input: Option<Value>,
        /// Its id, drawn by the client: a UUID of version 7. A repeat with the same id and input submits nothing.
        id: Option<JobId>,
        /// Its key, unique among the jobs of its kind: a second submit with the same key returns the first job.
        key: Option<String>,
        /// Its queue [default: that of the kind].
        queue: Option<String>,
        /// From -100 (most urgent) to 100 (least urgent) [default: 0].
        priority: Option<i16>,
        /// Start it this long from now.
        delay: Option<Span>,
        /// Start it at this time.
        at: Option<Time>,
        /// Fail it if it has not ended by then.
        deadline_at: Option<Time>,
        /// Words to find it by.
        tags: Option<Vec<String>>,
        /// Any JSON, kept with the job.
        options: Option<Value>,
        /// The number of attempts in total [default: the kind's].
        attempts: Option<u32>,
        /// How long one attempt may run [default: the kind's].
        timeout: Option<Span>,
        /// The trace that it belongs to, a W3C traceparent.
        trace: Option<String>,
        /// Its parent, by id, kind/key or key.
        parent: Option<String>,
        /// A name that only one job of its kind holds at a time.
        unique: Option<UniqueInput>,
        /// Jobs with the same serial key run one after the other.
        serial: Option<SerialInput>,
        /// The rate limit that it starts under.
        rate: Option<RateInput>,
        /// Signals in its inbox from the start.
        signals: Option<Vec<SignalInput>>,
        /// Accept an input that the server's own code of the kind cannot decode [default: false].
        any_input: Option<bool>,
    }
}

input! {
    /// A unique name.
    UniqueInput {
        /// The name.
        name: String,
        /// If another job holds it: `keep` that job, `reject` this one, `replace` that job unless it runs, or `cancel_and_replace` it
        /// [default: keep].
        on_conflict: Option<Conflict>,
        /// A job holds it while it is `live` (has not ended), `waiting` (has not started) or `kept` (is not deleted) [default: live].
        held_while: Option<HeldWhile>,
        /// A job holds it for at most this long after its submit.
        within: Option<Span>,
    }
}

input! {
    /// A serial key.
    SerialInput {
        /// The key.
        key: String,
        /// How many jobs of the key run at once, from now on [default: unchanged; 1 for a new key].
        slots: Option<u32>,
        /// Whether it keeps its slot while it waits for a retry [default: false].
        hold: Option<bool>,
    }
}

input! {
    /// A charge to a rate limit.
    RateInput {
        /// The limit.
        limit: String,
        /// How many tokens it costs [default: 1].
        weight: Option<u32>,
    }
}

impl SerialInput {
    pub(super) fn into_serial(self) -> Serial {
        Serial { key: self.key, slots: self.slots, keeps_slot: self.hold.unwrap_or(false) }
    }
}

impl RateInput {
    pub(super) fn into_charge(self) -> RateCharge {
        RateCharge { limit: self.limit, weight: self.weight.unwrap_or(1) }
    }
}

input! {
    /// A signal.
    SignalInput {
        /// Its name.
        name: String,
        /// Its payload: any JSON [default: null].
        payload: Option<Value>,
        /// Deliver it once: a signal with this name and dedup id that was sent before is not sent again.
        dedup: Option<String>,
    }
}

input! {
    /// Jobs to be submitted.
    BatchInput {
        /// The jobs.
        jobs: Vec<JobInput>,
    }
}

/// When a job holds its unique name.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HeldWhile {
    Live,
    Waiting,
    Kept,
}

impl Described for HeldWhile {
    fn schema() -> Value {
        json!({ "type": "string", "enum": ["live", "waiting", "kept"] })
    }
}

impl Described for Conflict {
    fn schema() -> Value {
        json!({ "type": "string", "enum": ["keep", "reject", "replace", "cancel_and_replace"] })
    }
}

async fn submit(call: Call) -> Answer {
    let job = submit_one(&call, call.body()?).await?;
    let status = if job.is_new() { StatusCode::CREATED } else { StatusCode::OK };
    Reply::json_with(status, &to_json(&job))
}

async fn submit_many(call: Call) -> Answer {
    let BatchInput { jobs } = call.body()?;
    if jobs.len() > MAX_JOBS {
        let message = format!("the request has {} jobs; at most {MAX_JOBS} are allowed", jobs.len());
        return Err(Error::invalid(message, "send several requests"));
    }
    let call = &call;
    // The submitter of the engine sends what comes at the same time in one transaction.
    let submits = stream::iter(jobs).map(|job| async move {
        let job = build(call, job).await?.into_future().await?;
        Ok::<_, Error>((job.is_new().then(|| job.id()), to_json(&job)))
    });
    let answers: Vec<(Option<JobId>, Value)> = submits
        .buffered(MAX_JOBS)
        .map(|answer| answer.unwrap_or_else(|error| (None, json!({ "error": error.to_json() }))))
        .collect()
        .await;
    let new: Vec<JobId> = answers.iter().filter_map(|(new, _)| *new).collect();
    match new.as_slice() {
        [] => {}
        [one] => call.note_act("submit".into(), *one).await,
        [first, ..] => {
            call.note_act(format!("submit {} jobs, of which this is the first", new.len()), *first).await
        }
    }
    let answers: Vec<Value> = answers.into_iter().map(|(_, answer)| answer).collect();
    Reply::json(&json!({ "jobs": answers }))
}

/// Makes a submit of the input, if whoever asks may submit it.
async fn build(call: &Call, job: JobInput) -> Result<SubmitJson<'_>, Error> {
    let queue = check_scope(call, &job)?;
    let known =
        call.engine().kinds().into_iter().filter(|known| known.kind == job.kind).map(|known| known.version);
    let version = job.version.unwrap_or_else(|| known.max().unwrap_or(1));
    let attempts = super::attempts(job.attempts)?;
    let mut submit = call.engine().submit_json(&job.kind, version, job.input.unwrap_or_default());
    if job.any_input == Some(true) {
        submit = submit.unchecked();
    }
    if let Some(parent) = &job.parent {
        submit = submit.parent(call.find(parent).await?.summary.id);
    }
    for tag in job.tags.unwrap_or_default() {
        submit = submit.tag(tag);
    }
    for SignalInput { name, payload, dedup } in job.signals.unwrap_or_default() {
        submit = match dedup {
            Some(dedup) => submit.signal_once(&name, dedup, payload.unwrap_or_default()),
            None => submit.signal(&name, payload.unwrap_or_default()),
        };
    }
    if let Some(UniqueInput { name, on_conflict, held_while, within }) = job.unique {
        let unique = Unique::new(name);
        let scope = held_while.map_or(unique.scope, |held| match held {
            HeldWhile::Live => States::LIVE,
            HeldWhile::Waiting => States::PENDING,
            HeldWhile::Kept => States::KEPT,
        });
        let within = within.map(|span| span.0);
        submit = submit.unique(Unique { conflict: on_conflict.unwrap_or_default(), scope, within, ..unique });
    }
    if let Some(serial) = job.serial {
        submit = submit.serial(serial.into_serial());
    }
    if let Some(rate) = job.rate {
        submit = submit.rate(rate.into_charge());
    }
    macro_rules! set {
        ($($value:expr => $setting:ident;)*) => {$(
            if let Some(value) = $value {
                submit = submit.$setting(value);
            }
        )*};
    }
    set! {
        job.id => id;
        job.key => key;
        queue => queue;
        job.priority => priority;
        job.delay.map(|span| span.0) => delay;
        job.at => at;
        job.deadline_at => deadline;
        job.options => options;
        attempts => retry;
        job.timeout.map(|span| span.0) => timeout;
        job.trace => trace;
    }
    Ok(submit)
}

/// Refuses what the token may not submit. Returns the queue, if it is not that of the kind.
fn check_scope(call: &Call, job: &JobInput) -> Result<Option<String>, Error> {
    let scope = &call.principal.scope;
    let queue = match (&job.queue, scope.queues.as_slice()) {
        (Some(queue), _) => Some(queue.clone()),
        (None, []) => None,
        (None, [only]) => Some(only.clone()),
        (None, _) => {
            let message = "this token is limited to several queues, and the job names none";
            return Err(forbidden(message, "set `queue`"));
        }
    };
    call.principal.check_new_job(&job.kind, queue.as_deref().unwrap_or_default())?;
    // These reach jobs and rules that the scope may not have.
    let replaces = job.unique.as_ref().is_some_and(|unique| {
        matches!(unique.on_conflict, Some(Conflict::Replace | Conflict::CancelAndReplace))
    });
    let signals = job.signals.as_ref().is_some_and(|signals| !signals.is_empty());
    if !scope.queues.is_empty() && (replaces || signals) {
        let message = "this token is limited to queues, and the job of the same name may be in another one";
        return Err(forbidden(message, "leave `signals` out, and use on_conflict keep or reject"));
    }
    if !scope.is_unlimited() && job.serial.as_ref().is_some_and(|serial| serial.slots.is_some()) {
        let message =
            "the slots of a serial key concern jobs of all kinds, and this token is limited to some";
        return Err(forbidden(message, "leave `slots` out"));
    }
    Ok(queue)
}

fn to_json(job: &Handle<AnyKind>) -> Value {
    let mut answer = json!({ "id": job.id(), "new": job.is_new(), "differs": job.differs() });
    if let Some(other) = job.replaced() {
        answer["replaced"] = json!(other);
    }
    answer
}

/// Submits the job that a page's form describes, with the fields and the checks of `POST /v1/jobs`.
pub(crate) async fn submit_form(call: &Call, job: Value) -> Result<Handle<AnyKind>, Error> {
    let job: JobInput = serde_json::from_value(job).map_err(|error| {
        Error::invalid(format!("the form is wrong: {error}"), "correct it, and send it again")
    })?;
    submit_one(call, job).await
}

/// Submits a job, and notes that in the audit log.
async fn submit_one(call: &Call, job: JobInput) -> Result<Handle<AnyKind>, Error> {
    let job = build(call, job).await?.into_future().await?;
    if job.is_new() {
        call.note_act("submit".into(), job.id()).await;
    }
    Ok(job)
}
