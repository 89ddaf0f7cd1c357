//! What the cases share: fixed times, small jobs, and calls that expect to succeed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

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

/// The time at which every case begins.
pub const BEGIN: Time = Time(1_800_000_000_000_000);
/// The lease of every worker.
pub const LEASE: Duration = Duration::from_secs(1_000);
/// The kind of [`job`].
pub const KIND: &str = "work";
/// The queue of [`job`].
pub const QUEUE: &str = "main";
/// The cap of crashes that [`reap`] uses: high enough that no case reaches it by accident.
pub const MAX_CRASHES: u16 = 3;

/// A handle on the store under test.
pub type Handle = Arc<dyn Store>;

/// `n` seconds.
pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The time `n` seconds after [`BEGIN`].
pub fn t(n: u64) -> Time {
    BEGIN + secs(n)
}

/// The same, as the calls of the store take it.
pub fn at(n: u64) -> Now {
    Some(t(n))
}

/// The `n`th job id; ids sort as their numbers do.
pub fn id(n: u32) -> JobId {
    JobId::from_parts(1_800_000_000_000, n, u64::from(n))
}

/// The `n`th job: due now, of [`KIND`] in [`QUEUE`], with its number as input.
pub fn job(n: u32) -> NewJob {
    NewJob::new(id(n), KIND, QUEUE, payload(&n.to_string()))
}

/// `count` jobs, numbered from `from`.
pub fn jobs(from: u32, count: u32) -> Vec<NewJob> {
    (from..from + count).map(job).collect()
}

/// The `n`th job, of this kind and in this queue.
pub fn job_in(n: u32, kind: &str, queue: &str) -> NewJob {
    NewJob::new(id(n), kind, queue, payload(&n.to_string()))
}

/// The `n`th job with a serial key.
pub fn serial_job(n: u32, key: &str) -> NewJob {
    let mut new = job(n);
    new.settings.serial = Some(Box::new(Serial::new(key)));
    new
}

/// Text as a payload.
pub fn payload(text: &str) -> Payload {
    Payload::json(text.as_bytes().to_vec())
}

/// A kind and its version.
pub fn kind(name: &str, version: i32) -> KindVersion {
    KindVersion { kind: name.into(), version }
}

/// Registers the `n`th worker at [`BEGIN`].
pub async fn worker(store: &Handle, n: i64) -> WorkerId {
    let new = new_worker(n);
    assert!(store.register_worker(at(0), &new).await.expect("register"), "the name of worker {n} is taken");
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
        token: None,
    }
}

/// Submits at [`BEGIN`] and expects every job to be new and unclaimed.
pub async fn submit(store: &Handle, jobs: &[NewJob]) {
    let outcomes = store.submit(at(0), jobs, None).await.expect("submit");
    assert_eq!(outcomes, vec![SubmitOutcome::New { claimed: None }; jobs.len()]);
}

/// A request for up to `limit` jobs of [`KIND`] in [`QUEUE`].
pub fn claim_request(worker: WorkerId, number: i64, limit: usize) -> ClaimRequest {
    ClaimRequest {
        worker,
        number: ClaimNo(number),
        queue: QUEUE.into(),
        kinds: [kind(KIND, 1)].into(),
        limit,
        solo: false,
        only: None,
        settled: Vec::new(),
    }
}

/// A request for one suspect, to run alone.
pub fn solo_claim_request(worker: WorkerId, number: i64) -> ClaimRequest {
    ClaimRequest { solo: true, ..claim_request(worker, number, 1) }
}

/// Claims and expects no error.
pub async fn claim(store: &Handle, now: Now, request: &ClaimRequest) -> Vec<ClaimedJob> {
    store.claim(now, request).await.expect("claim").jobs
}

/// Submits the `n`th job and claims it for a new worker of the same number, at [`BEGIN`].
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

/// A claim on the jobs that a submit puts in.
pub fn claim_on_submit(worker: WorkerId, number: i64) -> Option<ClaimOnSubmit> {
    Some(ClaimOnSubmit { worker, number: ClaimNo(number) })
}

/// A change of a claimed job by its worker.
pub fn change(worker: WorkerId, job: &ClaimedJob, outcome: Outcome) -> Change {
    Change::new(job, worker, t(1), outcome)
}

/// The job ends with this output.
pub fn done(text: &str) -> Outcome {
    Outcome::Done(payload(text))
}

/// The job ends with an error.
pub fn failed(reason: Reason) -> Outcome {
    Outcome::Failed { reason, failure: Failure::stop(format!("because {reason}")) }
}

/// The attempt is repeated after an error.
pub fn retry(after: Duration, spent: &[u32]) -> Outcome {
    let failure = Some(Failure::retry("once more").class("busy"));
    Outcome::Retry { after, retry_counts: spent.to_vec(), failure }
}

/// A wait for one signal of this name.
pub fn wait_for_signal(name: &str, timeout: Option<Duration>) -> Outcome {
    wait_for_signals(&[name], 1, timeout)
}

/// A signal.
pub fn signal(job: JobId, name: &str, dedup: &str, text: &str) -> NewSignal {
    NewSignal { job, name: name.to_owned(), dedup: dedup.to_owned(), payload: payload(text) }
}

/// A wait for signals of `needs` of these names. For a name that ends with a star, the step is given every signal of it.
pub fn wait_for_signals(names: &[&str], needs: u32, timeout: Option<Duration>) -> Outcome {
    let name =
        |name: &&str| SignalName { name: name.trim_end_matches('*').to_owned(), every: name.ends_with('*') };
    let names = names.iter().map(name).collect();
    Outcome::Wait(Wait { condition: WaitCondition::Signals { names, needs }, timeout })
}

/// A wait for the children that the first change after this claim spawns.
pub fn wait_for_children(job: &ClaimedJob) -> Outcome {
    Outcome::Wait(Wait { condition: WaitCondition::Children { rev: Rev(job.rev.0 + 1) }, timeout: None })
}

/// The `n`th job as a machine.
pub fn machine(n: u32, stage: &str) -> NewJob {
    NewJob { stage: Some(stage.to_owned()), ..job(n) }
}

/// A step from the stage `ran` to the next, with its data.
pub fn step(ran: &str, stage: &str, data: &str) -> StepWrites {
    StepWrites {
        from_stage: Some(ran.to_owned()),
        stage: Some((stage.to_owned(), payload(data))),
        ..StepWrites::default()
    }
}

/// A step that spawns children and moves to a stage that may wait for them.
pub fn spawn_children(children: &[NewJob]) -> StepWrites {
    let stage = Some(("Joining".to_owned(), payload("x")));
    StepWrites { stage, children: children.to_vec(), ..StepWrites::default() }
}

/// A step that consumes the signals it was given and keeps the stage.
pub fn consume(job: &ClaimedJob) -> StepWrites {
    StepWrites {
        consumed: selected_signals(job).iter().map(|signal| signal.number).collect(),
        ..StepWrites::default()
    }
}

/// The signals of a claimed job that its step is given: those that its wait selects from the inbox.
pub fn selected_signals(job: &ClaimedJob) -> Vec<Signal> {
    let positions = job.wait.as_ref().map(|wait| wait.select_signals(&job.inbox)).unwrap_or_default();
    positions.into_iter().map(|position| job.inbox[position].clone()).collect()
}

/// The payloads of signals, as text.
pub fn texts(signals: &[Signal]) -> Vec<String> {
    signals.iter().map(|signal| String::from_utf8_lossy(&signal.payload.bytes).into_owned()).collect()
}

/// The same change with what its step writes.
pub fn with_step(change: Change, step: StepWrites) -> Change {
    Change { writes: Some(Box::new(step)), ..change }
}

/// A claimed job as its worker knows it after a step was committed and the next one runs.
pub fn after_step(job: &ClaimedJob) -> ClaimedJob {
    ClaimedJob { rev: Rev(job.rev.0 + 1), wait: None, inbox: Vec::new(), ..job.clone() }
}

/// An entry of a journal: a step that is done.
pub fn entry(seq: i32, name: &str, text: &str) -> JournalEntry {
    JournalEntry {
        seq,
        call_kind: CallKind::Step,
        event: CallEvent::Done,
        name: name.to_owned(),
        key: None,
        line: None,
        at: t(0),
        payload: payload(text),
    }
}

/// A step that adds entries to the journal.
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

/// The payloads of the signals in an inbox, as text, oldest first.
pub async fn inbox(store: &Handle, n: u32) -> Vec<String> {
    texts(&store.inspect().inbox(id(n), 10_000).await.expect("inbox"))
}

/// A machine's transitions.
pub async fn transitions(store: &Handle, n: u32) -> Vec<Transition> {
    store.inspect().transitions(id(n), None, 1_000).await.expect("transitions")
}

/// The attempt cancels its own job.
pub fn cancelled() -> Outcome {
    Outcome::Cancelled(Failure::cancel("no longer wanted"))
}

/// Commits one change.
pub async fn commit(store: &Handle, now: u64, change: Change) -> CommitOutcome {
    let mut outcomes = store.commit(at(now), &[change]).await.expect("commit");
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Commits one change, which must be applied.
pub async fn apply(store: &Handle, now: u64, change: Change) {
    let job = change.job;
    let outcome = commit(store, now, change).await;
    assert!(matches!(outcome, CommitOutcome::Committed | CommitOutcome::Halted), "{job}: {outcome:?}");
}

/// The claim of a worker on a job.
pub fn job_claim(worker: WorkerId, job: &ClaimedJob) -> JobClaim {
    JobClaim { worker, claim: job.claim, job: job.id, epoch: job.epoch }
}

/// Declares one worker dead and reaps all its claims.
pub async fn reap(store: &Handle, now: u64, worker: WorkerId) -> ReapReport {
    let request = ReapRequest { dead: vec![worker], lapsed: false, limit: 1_000, max_crashes: MAX_CRASHES };
    let report = store.reap(at(now), &request).await.expect("reap");
    assert!(!report.more, "no case has more than a thousand claims");
    report
}

/// Renews a worker's lease.
pub async fn renew(store: &Handle, now: u64, worker: WorkerId) -> Renewal {
    store.renew(at(now), &renew_request(worker)).await.expect("renew")
}

/// A renewal that settles no claims.
pub fn renew_request(worker: WorkerId) -> RenewRequest {
    RenewRequest { worker, lease: LEASE, settled: Vec::new(), solo_ended: Vec::new(), progress: None }
}

/// Fires up to `limit` timers.
pub async fn fire_timers(store: &Handle, now: u64, limit: usize) -> TimerReport {
    store.fire_timers(at(now), limit).await.expect("timers")
}

/// Everything the store shows of a job.
pub async fn view(store: &Handle, id: JobId) -> Job {
    store.inspect().job(id).await.expect("job").expect("the job exists")
}

/// A job's state.
pub async fn state(store: &Handle, id: JobId) -> State {
    view(store, id).await.summary.state
}

/// A job's failed attempts.
pub async fn history(store: &Handle, id: JobId) -> Vec<Attempt> {
    store.inspect().history(id).await.expect("history")
}

/// How many jobs are in a state.
pub async fn count(store: &Handle, state: State) -> usize {
    list(store, Filter { state: Some(state), ..all_jobs() }).await.len()
}

/// Every job.
pub fn all_jobs() -> Filter {
    Filter { limit: 100_000, ..Filter::default() }
}

/// The ids of the jobs that match, newest first.
pub async fn list(store: &Handle, filter: Filter) -> Vec<JobId> {
    list_pages(store, filter).await.concat()
}

/// The ids of the jobs that match, page by page.
pub async fn list_pages(store: &Handle, mut filter: Filter) -> Vec<Vec<JobId>> {
    let mut pages = Vec::new();
    loop {
        let page = store.inspect().jobs(&filter).await.expect("jobs");
        assert!(page.jobs.len() <= filter.limit, "{filter:?}");
        pages.push(page.jobs.iter().map(|job| job.id).collect());
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return pages,
        }
    }
}

/// Acts on the `n`th job.
pub async fn act_on_job(store: &Handle, now: u64, n: u32, action: JobAction) -> ControlOutcome {
    let mut outcomes = store.control().act_on_jobs(at(now), &[id(n)], action, &actor()).await.expect("act");
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Acts on the `n`th job, which must be possible and needed.
pub async fn must_act(store: &Handle, now: u64, n: u32, action: JobAction) {
    let outcome = act_on_job(store, now, n, action).await;
    assert!(
        matches!(outcome, ControlOutcome::Done | ControlOutcome::CancelRequested),
        "job {n}: {outcome:?}"
    );
}

/// The actor that the audit log names.
pub fn actor() -> Actor {
    Actor::new("someone")
}

/// A cancel that gives a running attempt this many seconds to end.
pub fn cancel(grace: u64) -> JobAction {
    JobAction::Cancel { grace: secs(grace) }
}

/// Changes a setting of the store and expects the change to be made.
pub async fn administer(store: &Handle, now: u64, action: AdminAction) {
    assert_eq!(
        store.control().administer(at(now), &action, &actor()).await.expect("administer"),
        ControlOutcome::Done
    );
}

/// What keeps a live job from being claimed.
pub async fn holds(store: &Handle, n: u32) -> Holds {
    store.inspect().holds(id(n)).await.expect("holds").expect("the job is live")
}

/// The gates of these queues.
pub async fn gates(store: &Handle, queues: &[&str]) -> Vec<u64> {
    let queues: Vec<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
    store.gates(&queues).await.expect("gates")
}

/// How many claims are recorded for a worker.
pub async fn claim_count(store: &Handle, worker: WorkerId) -> u64 {
    let workers = store.inspect().workers().await.expect("workers");
    workers.into_iter().find(|view| view.id == worker).expect("the worker exists").claims
}

/// Whether a renewal reports that some lease has lapsed; `None` if its own lease was lost.
pub fn reports_lapsed(renewal: &Renewal) -> Option<bool> {
    match renewal {
        Renewal::Held { lapsed, .. } => Some(*lapsed),
        Renewal::Lost => None,
    }
}

/// Expects that the numbers of jobs which the store maintains are those of its rows. Every case ends with this.
pub async fn expect_right_counts(store: &Handle) {
    let miscounts = store.diagnose().miscounts().await.expect("counted");
    assert!(miscounts.is_empty(), "{miscounts:#?}");
    // A list of a lane has the same jobs as one of all jobs has of the lane.
    let mut lanes: BTreeMap<(String, String, i32), Vec<JobId>> = BTreeMap::new();
    for job in store.inspect().jobs(&all_jobs()).await.expect("jobs").jobs {
        lanes.entry((job.queue, job.kind, job.version)).or_default().push(job.id);
    }
    for ((queue, kind, version), jobs) in lanes {
        let filter = Filter { queue: Some(queue), kind: Some(kind), version: Some(version), ..all_jobs() };
        assert_eq!(list(store, filter.clone()).await, jobs, "{filter:?}");
    }
}
