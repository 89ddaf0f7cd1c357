//! What the cases share: fixed moments, small jobs, and calls that expect to succeed.

use std::{sync::Arc, time::Duration};

use windlass_model::{
    Change, ClaimNo, ClaimedJob, CommitOutcome, Failure, JobClaim, JobId, JournalEntry, KindVersion, NewJob,
    NewSignal, Outcome, Payload, Reason, Rev, Serial, Signal, State, StepWrites, SubmitOutcome, Time, Wait,
    WaitCondition, WorkerId,
    journal::{CallEvent, CallKind},
    wait::SignalName,
};

use crate::{
    Actor, AdminAction, Attempt, ClaimOnSubmit, ClaimRequest, ControlOutcome, Filter, Holds, Job, JobAction,
    NewWorker, Now, ReapReport, ReapRequest, RenewRequest, Renewal, SignalOutcome, Store, TimerReport,
    Transition,
};

/// The moment at which every case begins.
pub const BEGIN: Time = Time(1_800_000_000_000_000);
/// How long the leases of the cases' workers run.
pub const LEASE: Duration = Duration::from_secs(1_000);
/// The kind of a job that names no other.
pub const KIND: &str = "work";
/// The queue of a job that names no other.
pub const QUEUE: &str = "main";
/// A cap of crashes that no case reaches by accident.
pub const MAX_CRASHES: u16 = 3;

/// A handle on the store under test.
pub type Handle = Arc<dyn Store>;

/// So many seconds.
pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The moment `n` seconds after the beginning.
pub fn t(n: u64) -> Time {
    BEGIN.plus(secs(n))
}

/// The same, as verbs take it.
pub fn at(n: u64) -> Now {
    Some(t(n))
}

/// The `n`th job id; ids sort as their numbers do.
pub fn id(n: u32) -> JobId {
    JobId::from_parts(1_800_000_000_000, n, u64::from(n))
}

/// The `n`th job: due now, kind and queue of the kit, an input of its own.
pub fn job(n: u32) -> NewJob {
    NewJob::new(id(n), KIND, QUEUE, payload(&n.to_string()))
}

/// Jobs numbered from `from`.
pub fn jobs(from: u32, count: u32) -> Vec<NewJob> {
    (from..from + count).map(job).collect()
}

/// A job of another kind or queue.
pub fn job_in(n: u32, kind: &str, queue: &str) -> NewJob {
    NewJob::new(id(n), kind, queue, payload(&n.to_string()))
}

/// The `n`th job under a serial key.
pub fn serial_job(n: u32, key: &str) -> NewJob {
    let mut new = job(n);
    new.settings.serial = Some(Box::new(Serial::new(key)));
    new
}

/// Text as a plain payload.
pub fn payload(text: &str) -> Payload {
    Payload::json(text.as_bytes().to_vec())
}

/// A kind and its version.
pub fn kind(name: &str, version: i32) -> KindVersion {
    KindVersion { kind: name.into(), version }
}

/// Takes the `n`th worker on at the beginning.
pub async fn worker(store: &Handle, n: i64) -> WorkerId {
    let new = new_worker(n);
    assert!(store.register_worker(at(0), &new).await.expect("enlist"), "the name of worker {n} is taken");
    new.id
}

/// The `n`th worker.
pub fn new_worker(n: i64) -> NewWorker {
    NewWorker {
        id: WorkerId(n),
        name: format!("worker {n}"),
        liveness_file: None,
        lease: LEASE,
        serves: Vec::new(),
    }
}

/// Submits at the beginning and expects every job to be new and unclaimed.
pub async fn submit(store: &Handle, jobs: &[NewJob]) {
    let answers = store.submit(at(0), jobs, None).await.expect("submit");
    assert_eq!(answers, vec![SubmitOutcome::New { claimed: None }; jobs.len()]);
}

/// What a worker asks of the kit's queue and kind.
pub fn claim_request(worker: WorkerId, number: i64, limit: usize) -> ClaimRequest {
    ClaimRequest {
        worker,
        number: ClaimNo(number),
        queue: QUEUE.into(),
        kinds: [kind(KIND, 1)].into(),
        limit,
        solo: false,
        settled: Vec::new(),
    }
}

/// The same for a suspect.
pub fn solo_claim_request(worker: WorkerId, number: i64) -> ClaimRequest {
    ClaimRequest { solo: true, ..claim_request(worker, number, 1) }
}

/// Claims and expects to be answered.
pub async fn claim(store: &Handle, now: Now, ask: &ClaimRequest) -> Vec<ClaimedJob> {
    store.claim(now, ask).await.expect("claim").jobs
}

/// Submits the `n`th job and claims it for a worker of the same number, at the beginning.
pub async fn running_job(store: &Handle, n: u32) -> (WorkerId, ClaimedJob) {
    let holder = worker(store, i64::from(n)).await;
    submit(store, &[job(n)]).await;
    (holder, claim_one(store, 0, holder, 1).await)
}

/// Claims exactly one job.
pub async fn claim_one(store: &Handle, now: u64, worker: WorkerId, number: i64) -> ClaimedJob {
    let mut jobs = claim(store, at(now), &claim_request(worker, number, 1)).await;
    assert_eq!(jobs.len(), 1, "a job was ready to be claimed");
    jobs.remove(0)
}

/// The ids of claimed jobs, in order.
pub fn ids(jobs: &[ClaimedJob]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

/// A claim born with the submit.
pub fn claim_on_submit(worker: WorkerId, number: i64) -> Option<ClaimOnSubmit> {
    Some(ClaimOnSubmit { worker, number: ClaimNo(number) })
}

/// What an attempt of `worker` asks to be written.
pub fn change(worker: WorkerId, job: &ClaimedJob, outcome: Outcome) -> Change {
    Change::new(job, worker, t(1), outcome)
}

/// An output.
pub fn done(text: &str) -> Outcome {
    Outcome::Done(payload(text))
}

/// An error that ends the job.
pub fn failed(reason: Reason) -> Outcome {
    Outcome::Failed { reason, failure: Failure::stop(format!("because {reason}")) }
}

/// An error that is tried again.
pub fn retry(after: Duration, spent: &[u32]) -> Outcome {
    let failure = Some(Failure::retry("once more").class("busy"));
    Outcome::Retry { after, retry_counts: spent.to_vec(), failure }
}

/// A wait for one signal.
pub fn wait_for_signal(name: &str, timeout: Option<Duration>) -> Outcome {
    wait_for_signals(&[name], 1, timeout)
}

/// A signal.
pub fn signal(job: JobId, name: &str, dedup: &str, text: &str) -> NewSignal {
    NewSignal { job, name: name.to_owned(), dedup: dedup.to_owned(), payload: payload(text) }
}

/// A wait for so many of some signals; a name that ends with a star is one of which all are shown.
pub fn wait_for_signals(names: &[&str], needs: u32, timeout: Option<Duration>) -> Outcome {
    let name =
        |name: &&str| SignalName { name: name.trim_end_matches('*').to_owned(), every: name.ends_with('*') };
    let names = names.iter().map(name).collect();
    Outcome::Wait(Wait { condition: WaitCondition::Signals { names, needs }, timeout })
}

/// A wait for the children that the change submits which follows a claim.
pub fn wait_for_children(job: &ClaimedJob) -> Outcome {
    Outcome::Wait(Wait { condition: WaitCondition::Children { rev: Rev(job.rev.0 + 1) }, timeout: None })
}

/// The `n`th job as a machine.
pub fn machine(n: u32, stage: &str) -> NewJob {
    NewJob { stage: Some(stage.to_owned()), ..job(n) }
}

/// A step from one stage to the next, with its data.
pub fn step(ran: &str, stage: &str, data: &str) -> StepWrites {
    StepWrites {
        from_stage: Some(ran.to_owned()),
        stage: Some((stage.to_owned(), payload(data))),
        ..StepWrites::default()
    }
}

/// A step that submits jobs and goes on to a stage that may wait for them.
pub fn spawn_children(children: &[NewJob]) -> StepWrites {
    let stage = Some(("Joining".to_owned(), payload("x")));
    StepWrites { stage, children: children.to_vec(), ..StepWrites::default() }
}

/// A step that consumes what it was shown and leaves the stage as it is.
pub fn consume(job: &ClaimedJob) -> StepWrites {
    StepWrites {
        consumed: selected_signals(job).iter().map(|signal| signal.number).collect(),
        ..StepWrites::default()
    }
}

/// The signals that a step is shown of what its worker was handed.
pub fn selected_signals(job: &ClaimedJob) -> Vec<Signal> {
    let places = job.wait.as_ref().map(|wait| wait.select_signals(&job.inbox)).unwrap_or_default();
    places.into_iter().map(|place| job.inbox[place].clone()).collect()
}

/// What signals say.
pub fn texts(signals: &[Signal]) -> Vec<String> {
    signals.iter().map(|signal| String::from_utf8_lossy(&signal.payload.bytes).into_owned()).collect()
}

/// The same change with a step.
pub fn with_step(change: Change, step: StepWrites) -> Change {
    Change { step: Some(Box::new(step)), ..change }
}

/// A claim as its worker knows it after a step that goes on.
pub fn after_step(job: &ClaimedJob) -> ClaimedJob {
    ClaimedJob { rev: Rev(job.rev.0 + 1), wait: None, inbox: Vec::new(), ..job.clone() }
}

/// An entry of a journal: a step that has ended well.
pub fn entry(seq: i32, name: &str, text: &str) -> JournalEntry {
    JournalEntry {
        seq,
        op: CallKind::Step,
        mark: CallEvent::Done,
        name: name.to_owned(),
        key: None,
        line: None,
        at: t(0),
        payload: payload(text),
    }
}

/// A step that adds to the journal.
pub fn journal_writes(entries: Vec<JournalEntry>) -> StepWrites {
    StepWrites { entries, ..StepWrites::default() }
}

/// A job's journal.
pub async fn journal(store: &Handle, n: u32) -> Vec<JournalEntry> {
    store.inspect().journal(id(n), None, usize::MAX).await.expect("journal")
}

/// A job's context.
pub async fn context(store: &Handle, n: u32) -> Vec<(String, Payload)> {
    store.inspect().context(id(n)).await.expect("context")
}

/// Sends signals.
pub async fn send(store: &Handle, now: u64, signals: &[NewSignal]) -> Vec<SignalOutcome> {
    store.signal(at(now), signals).await.expect("signal")
}

/// What the signals in an inbox say, oldest first.
pub async fn inbox(store: &Handle, n: u32) -> Vec<String> {
    texts(&store.inspect().inbox(id(n), 10_000).await.expect("inbox"))
}

/// A machine's transitions.
pub async fn transitions(store: &Handle, n: u32) -> Vec<Transition> {
    store.inspect().transitions(id(n), None, 1_000).await.expect("steps")
}

/// An end by the attempt's own wish.
pub fn cancelled() -> Outcome {
    Outcome::Cancelled(Failure::cancel("no longer wanted"))
}

/// Commits one change.
pub async fn commit(store: &Handle, now: u64, change: Change) -> CommitOutcome {
    let mut verdicts = store.commit(at(now), &[change]).await.expect("commit");
    assert_eq!(verdicts.len(), 1);
    verdicts.remove(0)
}

/// A job as the worker that has claimed it names it.
pub fn job_claim(worker: WorkerId, job: &ClaimedJob) -> JobClaim {
    JobClaim { worker, claim: job.claim, job: job.id, epoch: job.epoch }
}

/// Declares one worker dead and walks all its claims.
pub async fn reap(store: &Handle, now: u64, worker: WorkerId) -> ReapReport {
    let sweep = ReapRequest { dead: vec![worker], lapsed: false, limit: 1_000, crashes: MAX_CRASHES };
    let reaped = store.reap(at(now), &sweep).await.expect("reap");
    assert!(!reaped.more, "a thousand claims are enough for every case");
    reaped
}

/// Renews a worker's lease.
pub async fn renew(store: &Handle, now: u64, worker: WorkerId) -> Renewal {
    store.renew(at(now), &renew_request(worker)).await.expect("renew")
}

/// A renewal with nothing to tell.
pub fn renew_request(worker: WorkerId) -> RenewRequest {
    RenewRequest { worker, lease: LEASE, settled: Vec::new(), solo_ended: Vec::new() }
}

/// Fires timers.
pub async fn fire_timers(store: &Handle, now: u64, limit: usize) -> TimerReport {
    store.fire_timers(at(now), limit).await.expect("due")
}

/// All that is known of a job.
pub async fn view(store: &Handle, id: JobId) -> Job {
    store.inspect().job(id).await.expect("job").expect("the job is there")
}

/// Where a job stands.
pub async fn state(store: &Handle, id: JobId) -> State {
    view(store, id).await.summary.state
}

/// A job's failed attempts.
pub async fn history(store: &Handle, id: JobId) -> Vec<Attempt> {
    store.inspect().history(id).await.expect("history")
}

/// How many jobs there are in a state.
pub async fn count(store: &Handle, state: State) -> usize {
    list(store, Filter { state: Some(state), ..all_jobs() }).await.len()
}

/// Every job.
pub fn all_jobs() -> Filter {
    Filter { limit: 100_000, ..Filter::default() }
}

/// The ids that match, newest first.
pub async fn list(store: &Handle, filter: Filter) -> Vec<JobId> {
    store.inspect().jobs(&filter).await.expect("jobs").into_iter().map(|job| job.id).collect()
}

/// Does something to one job.
pub async fn act_on_job(store: &Handle, now: u64, n: u32, act: JobAction) -> ControlOutcome {
    let mut did = store.control().act_on_jobs(at(now), &[id(n)], act, &actor()).await.expect("act");
    assert_eq!(did.len(), 1);
    did.remove(0)
}

/// Who does things in the cases.
pub fn actor() -> Actor {
    Actor::new("someone")
}

/// A cancel that gives a running job so many seconds.
pub fn cancel(grace: u64) -> JobAction {
    JobAction::Cancel { grace: secs(grace) }
}

/// Changes a rule and expects that to be done.
pub async fn administer(store: &Handle, now: u64, rule: AdminAction) {
    assert_eq!(
        store.control().administer(at(now), &rule, &actor()).await.expect("rule"),
        ControlOutcome::Done
    );
}

/// What keeps a live job.
pub async fn holds(store: &Handle, n: u32) -> Holds {
    store.inspect().holds(id(n)).await.expect("holds").expect("it is live")
}

/// The gates of some queues.
pub async fn gates(store: &Handle, queues: &[&str]) -> Vec<u64> {
    let queues: Vec<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
    store.gates(&queues).await.expect("gate")
}

/// How many claims are recorded for a worker.
pub async fn claim_count(store: &Handle, worker: WorkerId) -> u64 {
    let workers = store.inspect().workers().await.expect("workers");
    workers.into_iter().find(|view| view.id == worker).expect("the worker is there").claims
}

/// Whether a renewal says that there is someone to reap; `None` if the lease was lost.
pub fn reports_lapsed(renewal: &Renewal) -> Option<bool> {
    match renewal {
        Renewal::Held { lapsed, .. } => Some(*lapsed),
        Renewal::Lost => None,
    }
}
