//! The same calls on a reference and on a subject: every answer and everything visible must agree.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner},
};
use windlass_model::{
    BranchMember, BranchNo, Change, ClaimNo, ClaimedJob, CommitOutcome, JobId, KindVersion, NewJob, Outcome,
    Rev, Signal, State, StepWrites, Time, WorkerId, branch::BRANCH_SIGNAL,
};

mod build;
pub mod ops;
mod regressions;

use self::{
    build::{QUEUES, STAGES, limit},
    ops::{Draft, Edit, IDS, Op, growing, sequence},
};
use super::kit::{BEGIN, Handle, all_jobs, id, kind, payload};
use crate::{
    Actor, AdminAction, AuditFilter, BranchChildFilter, CANCEL_GATE, ChildStates, ClaimBatch, ClaimOnSubmit,
    ClaimRequest, Error, Filter, Fork, Holds, JobAction, LimitView, NewWorker, Prune, RateHold, ReapRequest,
    RenewRequest, StageUpdate, TIMER_GATE, memory::Memory,
};

/// The longest random sequence.
const MOST: usize = 60;
/// After how many ops everything is compared in detail; lists and counts are compared after each.
const DETAIL: usize = 8;
/// Long enough that most sequences have workers that serve.
const LEASE: Duration = Duration::from_secs(90);

/// Runs the kept sequences and then `cases` random ones, on fresh stores and on the memory store, and panics with the shortest
/// sequence on which they disagree. PROPTEST_CASES overrides the number, and PROPTEST_RNG_SEED the seed, which is printed.
pub fn run<K>(cases: u32, open: impl AsyncFn() -> (K, Handle)) {
    let runtime = runtime();
    let kept = regressions::sequences().into_iter();
    let failed = kept.filter_map(|(name, ops)| Some((name, runtime.block_on(once(&open, &ops)).err()?)));
    let failed: Vec<String> = failed.map(|(name, why)| format!("{name}: {why}")).collect();
    assert!(failed.is_empty(), "of the kept sequences:\n{}", failed.join("\n"));
    check(config(cases), &sequence(MOST), &runtime, &open);
}

/// The same with random sequences in which branches grow, half as many as PROPTEST_CASES says: they are longer, and more comes
/// of their calls.
pub fn run_with_branches<K>(cases: u32, open: impl AsyncFn() -> (K, Handle)) {
    let all = config(cases * 2);
    check(Config { cases: all.cases.div_ceil(2), ..all }, &growing(MOST), &runtime(), &open);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn config(cases: u32) -> Config {
    let mut config = Config { failure_persistence: None, max_shrink_iters: 1_000, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if let RngSeed::Random = config.rng_seed {
        config.rng_seed = RngSeed::Fixed(RandomState::new().build_hasher().finish());
    }
    config
}

fn check<K>(
    config: Config,
    sequences: &impl Strategy<Value = Vec<Op>>,
    runtime: &tokio::runtime::Runtime,
    open: &impl AsyncFn() -> (K, Handle),
) {
    let again = match config.rng_seed {
        RngSeed::Fixed(seed) => format!("PROPTEST_RNG_SEED={seed}"),
        RngSeed::Random => unreachable!("a seed was drawn before"),
    };
    println!("{} random sequences; to run the same ones again, set {again}", config.cases);
    let outcome = TestRunner::new(config)
        .run(sequences, |ops| runtime.block_on(once(open, &ops)).map_err(TestCaseError::fail));
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, ops)) => panic!(
            "{why}\nfound with {again}; the shortest sequence, to be added to conformance/kept.rs:\n{}",
            regressions::text(&ops)
        ),
        Err(error) => panic!("{error} (with {again})"),
    }
}

/// Makes the calls of one sequence on a fresh store and on the memory store.
async fn once<K>(open: &impl AsyncFn() -> (K, Handle), ops: &[Op]) -> Result<(), String> {
    let (_keep, subject) = open().await;
    let reference: Handle = Arc::new(Memory::with_limits(subject.limits().clone()));
    agree(&reference, &subject, ops).await
}

/// Makes the calls of `ops` on both stores, which must be empty; says where they first disagree.
pub async fn agree(reference: &Handle, subject: &Handle, ops: &[Op]) -> Result<(), String> {
    let mut pair = Pair::new(reference, subject);
    for worker in 0..3 {
        pair.step(&Op::Enlist { worker, again: false }).await?;
    }
    for store in [reference, subject] {
        let rule = AdminAction::Limit(limit(3));
        store
            .control()
            .administer(Some(BEGIN), &rule, &Actor::new("setup"))
            .await
            .map_err(|e| e.to_string())?;
    }
    pair.gates_moved().await?;
    for (n, op) in ops.iter().enumerate() {
        let detail = n % DETAIL == DETAIL - 1 || n + 1 == ops.len();
        let mut outcome = pair.step(op).await;
        if outcome.is_ok() {
            outcome = pair.compare(detail).await;
        }
        outcome.map_err(|why| format!("at {}, op {n}, {op:?}: {why}", pair.now))?;
    }
    Ok(())
}

/// The two stores, and what their callers remember.
struct Pair {
    stores: [Handle; 2],
    now: Time,
    /// The name each of the three workers has now, and the number of its last claim.
    workers: [(WorkerId, i64); 3],
    enlisted: i64,
    /// Every job ever handed out, with its worker, as each store handed it out: numbers of signals are a store's own.
    held: Vec<(WorkerId, [ClaimedJob; 2])>,
    submits: Vec<(Vec<NewJob>, Option<ClaimOnSubmit>)>,
    asks: Vec<ClaimRequest>,
    commits: Vec<[Vec<Change>; 2]>,
    gates: [Vec<u64>; 2],
    /// Whether gates may move in vain: a job that is named twice in one call may have been ready between the two.
    vain: bool,
    /// How often each id was pruned: nobody makes an id for two, and epochs tell only claims of one job apart.
    lives: [u32; IDS as usize],
}

/// Makes one call on both stores and compares the answers.
macro_rules! on_both {
    ($pair:expr, |$store:ident| $call:expr) => {{
        let answers = {
            let $store = &$pair.stores[0];
            let reference = $call.await;
            let $store = &$pair.stores[1];
            [reference, $call.await]
        };
        same(answers)?
    }};
}

impl Pair {
    fn new(reference: &Handle, subject: &Handle) -> Pair {
        Pair {
            stores: [reference.clone(), subject.clone()],
            now: BEGIN,
            workers: [(WorkerId(0), 0); 3],
            enlisted: 0,
            held: Vec::new(),
            submits: Vec::new(),
            asks: Vec::new(),
            commits: Vec::new(),
            gates: Default::default(),
            vain: false,
            lives: Default::default(),
        }
    }

    async fn step(&mut self, op: &Op) -> Result<(), String> {
        let now = Some(self.now);
        match op {
            Op::Submit { jobs, born } => {
                let jobs = self.jobs(jobs);
                let born = born.map(|n| ClaimOnSubmit { worker: self.worker(n), number: self.number(n) });
                self.submits.push((jobs, born));
                self.submit(self.submits.len() - 1).await?;
            }
            Op::SubmitAgain { which } => {
                let index = newest(self.submits.len(), *which);
                let is_there = |index: &usize| self.submits[*index].0.iter().all(|job| self.is_there(job));
                if let Some(index) = index.filter(is_there) {
                    self.submit(index).await?;
                }
            }
            Op::Claim { worker, queue, kinds, limit, alone, settle } => {
                let settled = self.earlier(*worker, *settle);
                let lane = |bit: u8| kind(["a", "b"][usize::from(bit / 2)], i32::from(bit % 2) + 1);
                let kinds: Vec<KindVersion> =
                    (0..4).filter(|bit| kinds & (1 << bit) != 0).map(lane).collect();
                let ask = ClaimRequest {
                    worker: self.worker(*worker),
                    number: self.number(*worker),
                    queue: QUEUES[usize::from(*queue)].into(),
                    kinds: kinds.into(),
                    limit: usize::from(*limit),
                    solo: *alone,
                    settled,
                };
                self.asks.push(ask);
                self.claim(self.asks.len() - 1).await?;
            }
            Op::ClaimAgain { which } => {
                if let Some(index) = newest(self.asks.len(), *which) {
                    self.claim(index).await?;
                }
            }
            Op::Commit { changes } => {
                let changes = self.changes(changes).await?;
                self.commits.push(changes);
                self.commit(self.commits.len() - 1).await?;
            }
            Op::CommitAgain { which } => {
                let are_there = |change: &Change| {
                    let mut jobs =
                        change.step.iter().flat_map(|step| step.children.iter().chain(&step.promoted));
                    jobs.all(|job| self.is_there(job))
                };
                let index = newest(self.commits.len(), *which);
                if let Some(index) = index.filter(|index| self.commits[*index][0].iter().all(are_there)) {
                    self.commit(index).await?;
                }
            }
            Op::Signal { signals } => {
                let signal = |(to, name, dedup): &(u8, u8, u8)| build::signal_to(self.id(*to), *name, *dedup);
                let signals: Vec<_> = signals.iter().map(signal).collect();
                on_both!(self, |store| store.signal(now, &signals));
            }
            Op::Restate { id, version, stage, outdated } => {
                let job = self.id(*id);
                let seen = self.stores[0].inspect().job(job).await.map_err(|error| error.to_string())?;
                let (epoch, rev) = seen.map(|seen| (seen.epoch, seen.rev)).unwrap_or_default();
                let restate = StageUpdate {
                    job,
                    epoch,
                    rev: Rev(rev.0 - i32::from(*outdated)),
                    version: i32::from(*version),
                    stage: STAGES[usize::from(*stage)].to_owned(),
                    data: payload("restated"),
                };
                let by = Actor::new("someone").note("because");
                on_both!(self, |store| store.control().update_stages(
                    now,
                    std::slice::from_ref(&restate),
                    &by
                ));
            }
            Op::Renew { worker, lease, settle, join } => {
                let beat = RenewRequest {
                    worker: self.worker(*worker),
                    lease: Duration::from_secs(u64::from(*lease)),
                    settled: self.earlier(*worker, *settle),
                    solo_ended: self.earlier(*worker, *join),
                };
                on_both!(self, |store| store.renew(now, &beat));
            }
            Op::Reap { dead, lapsed, limit, crashes } => {
                let dead = dead.iter().map(|n| self.worker(*n)).collect();
                let limit = usize::from(*limit);
                let sweep = ReapRequest { dead, lapsed: *lapsed, limit, crashes: u16::from(*crashes) };
                on_both!(self, |store| sorted(store.reap(now, &sweep)));
            }
            Op::Release { picks } => {
                let mut seen = BTreeSet::new();
                let held = picks
                    .iter()
                    .filter_map(|pick| newest(self.held.len(), *pick))
                    .map(|n| (self.held[n].0, &self.held[n].1[0]));
                let back: Vec<_> = held
                    .filter(|(_, job)| seen.insert(job.id))
                    .map(|(worker, job)| super::kit::job_claim(worker, job))
                    .collect();
                on_both!(self, |store| store.release(now, &back));
            }
            Op::Retire { worker } => {
                let worker = self.worker(*worker);
                on_both!(self, |store| store.retire_worker(now, worker));
            }
            Op::Enlist { worker, again } => {
                if !again {
                    self.enlisted += 1;
                    self.workers[usize::from(*worker)] = (WorkerId(self.enlisted), 0);
                }
                let id = self.worker(*worker);
                let new = NewWorker {
                    id,
                    name: format!("worker {id}"),
                    liveness_file: None,
                    lease: LEASE,
                    serves: Vec::new(),
                };
                on_both!(self, |store| store.register_worker(now, &new));
            }
            Op::Due { limit } => {
                let limit = usize::from(*limit);
                on_both!(self, |store| store.fire_timers(now, limit));
            }
            Op::Act { ids, act, amount } => {
                self.vain = (1..ids.len()).any(|n| ids[..n].contains(&ids[n]));
                let ids: Vec<JobId> = ids.iter().map(|n| self.id(*n)).collect();
                let grace = Duration::from_secs(u64::from(amount.unsigned_abs()));
                let act = match act {
                    0 => JobAction::Cancel { grace },
                    1 => JobAction::Pause,
                    2 => JobAction::Resume,
                    3 => JobAction::Retry,
                    _ => JobAction::Priority(i16::from(*amount)),
                };
                let by = Actor::new("someone");
                on_both!(self, |store| store.control().act_on_jobs(now, &ids, act, &by));
            }
            Op::Rule { rule, amount } => {
                let amount = u32::from(*amount);
                let rule = match rule {
                    0 => AdminAction::PauseQueue(QUEUES[0].into()),
                    1 => AdminAction::ResumeQueue(QUEUES[0].into()),
                    2 => AdminAction::Lift("api".into()),
                    3 => AdminAction::Slots { key: "serial 0".into(), slots: amount },
                    _ => AdminAction::Limit(limit(amount)),
                };
                let by = Actor::new("someone").note("because");
                on_both!(self, |store| store.control().administer(now, &rule, &by));
            }
            Op::Prune { state, age } => {
                let state = [State::Done, State::Failed, State::Cancelled][usize::from(*state)];
                let before = self.now.minus(Duration::from_secs(u64::from(*age)));
                let prune = Prune { state, before, kind: None, after: None, limit: 1_000 };
                on_both!(self, |store| store.prune(now, &prune));
                self.bury().await?;
            }
            Op::Fork { from, id, before, key } => {
                let (from, id) = (self.id(*from), self.id(*id));
                let read = self.stores[0].inspect().journal(from, None, usize::MAX).await;
                let places: Vec<i32> =
                    read.map_err(|error| error.to_string())?.iter().map(|entry| entry.seq).collect();
                let end = places.last().map_or(0, |last| last + 1);
                let mut choices = places.iter().copied().chain([end, 10_000]).cycle();
                let before = choices.nth(usize::from(*before)).expect("goes round");
                let fork = Fork { from, id, before, key: key.map(|key| format!("key {key}")) };
                let by = Actor::new("someone");
                on_both!(self, |store| store.control().fork(now, std::slice::from_ref(&fork), &by));
            }
            Op::Poll { limit } => {
                let limit = usize::from(*limit);
                on_both!(self, |store| store.poll_branches(now, limit));
            }
            Op::Pass { seconds } => self.now = self.now.plus(Duration::from_secs(u64::from(*seconds))),
        }
        Ok(())
    }

    async fn submit(&mut self, index: usize) -> Result<(), String> {
        let (jobs, born) = &self.submits[index];
        let answers = on_both!(self, |store| store.submit(Some(self.now), jobs, *born));
        let Some(born) = *born else { return Ok(()) };
        let claimed = answers.iter().flatten().zip(jobs).filter_map(|(answer, job)| match answer {
            windlass_model::SubmitOutcome::New { claimed: Some(epoch) } => {
                Some(job.claimed_at_submit(born.number, *epoch, self.now))
            }
            _ => None,
        });
        self.held.extend(claimed.map(|job| (born.worker, [job.clone(), job])));
        Ok(())
    }

    async fn claim(&mut self, index: usize) -> Result<(), String> {
        let mut ask = self.asks[index].clone();
        let mut over = Vec::new();
        for number in std::mem::take(&mut ask.settled) {
            if self.is_over(ask.worker, number).await? {
                over.push(number);
            }
        }
        ask.settled = over;
        let mut claimed: [Vec<ClaimedJob>; 2] = Default::default();
        let mut answers = Vec::new();
        for (store, claimed) in self.stores.iter().zip(&mut claimed) {
            let haul = store.claim(Some(self.now), &ask).await;
            // Whether there may be more is a hint, and one store may know less than the other.
            let mut haul = haul.map(|haul| ClaimBatch { more: false, ..haul });
            claimed.extend(haul.iter().flat_map(|haul| haul.jobs.clone()));
            haul.iter_mut().flat_map(|haul| &mut haul.jobs).for_each(|job| unnumber(&mut job.inbox));
            answers.push(haul);
        }
        same(answers.try_into().expect("two stores"))?;
        let [reference, subject] = claimed;
        let worker = ask.worker;
        self.held.extend(reference.into_iter().zip(subject).map(|(one, other)| (worker, [one, other])));
        Ok(())
    }

    async fn commit(&mut self, index: usize) -> Result<(), String> {
        let [one, other] = &self.commits[index];
        let now = Some(self.now);
        let answers = [self.stores[0].commit(now, one).await, self.stores[1].commit(now, other).await];
        let verdicts = same(answers)?.unwrap_or_default();
        // Whoever goes on knows what it has written.
        let changes = one.iter().zip(verdicts);
        for (change, _) in
            changes.filter(|(change, to)| change.outcome == Outcome::Next && *to == CommitOutcome::Committed)
        {
            // Of a commit that is repeated, too, it follows the revision before.
            let is_it = |(_, [job, _]): &&(WorkerId, [ClaimedJob; 2])| {
                (job.id, job.epoch, job.rev, job.claim)
                    == (change.job, change.epoch, change.rev, change.claim)
            };
            let Some((worker, jobs)) = self.held.iter().rev().find(is_it).cloned() else { continue };
            let stage = change.step.as_ref().and_then(|step| step.stage.clone());
            let counted = |step: &StepWrites| step.items + step.promoted.len() as u32;
            let items = change.step.as_deref().map_or(0, counted);
            let further = |job: ClaimedJob| ClaimedJob {
                branch_member: job
                    .branch_member
                    .map(|counted| BranchMember { items: counted.items.saturating_sub(items), ..counted }),
                rev: Rev(change.rev.0 + 1),
                stage: stage.clone().map(|(stage, _)| stage).or(job.stage),
                wait: None,
                inbox: Vec::new(),
                ..job
            };
            self.held.push((worker, jobs.map(further)));
        }
        Ok(())
    }

    /// Compares what everyone can see; with `detail`, all of every job.
    async fn compare(&mut self, detail: bool) -> Result<(), String> {
        let jobs = on_both!(self, |store| store.inspect().jobs(&all_jobs())).unwrap_or_default();
        on_both!(self, |store| sorted(store.inspect().state_counts(5)));
        on_both!(self, |store| sorted(store.inspect().workers()));
        self.gates_moved().await?;
        if detail {
            let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
            on_both!(self, |store| store.job_ends(&ids));
            for id in ids {
                on_both!(self, |store| store.inspect().job(id));
                on_both!(self, |store| store.inspect().history(id));
                on_both!(self, |store| holds(store, id));
                on_both!(self, |store| store.inspect().children(id, None, 5));
                on_both!(self, |store| inbox(store, id));
                on_both!(self, |store| store.inspect().transitions(id, Some(Rev(1)), 5));
                on_both!(self, |store| store.inspect().journal(id, None, usize::MAX));
                on_both!(self, |store| store.inspect().journal(id, Some(4), 2));
                on_both!(self, |store| store.inspect().context(id));
                for rev in 1..4 {
                    on_both!(self, |store| store.inspect().child_ends(id, Rev(rev), None, 5));
                }
                let branches = on_both!(self, |store| store.inspect().branches(id));
                for branch in branches.iter().flatten() {
                    for only in [ChildStates::All, ChildStates::Live, ChildStates::Ended, ChildStates::Bad] {
                        let of =
                            BranchChildFilter { job: id, branch: branch.number, only, after: None, limit: 9 };
                        on_both!(self, |store| store.inspect().branch_children(&of));
                    }
                }
            }
            for kind in ["a", "b"] {
                on_both!(self, |store| store.inspect().transition_counts(kind, 5));
            }
            for state in State::ALL {
                let filter = Filter {
                    state: Some(state),
                    stage: Some(STAGES[0].into()),
                    version: Some(2),
                    ..all_jobs()
                };
                on_both!(self, |store| store.inspect().jobs(&filter));
                on_both!(self, |store| store.inspect().jobs(&Filter { stage: None, ..filter.clone() }));
            }
            let audit = AuditFilter { limit: 100, ..AuditFilter::default() };
            on_both!(self, |store| store.inspect().audit(&audit));
            on_both!(self, |store| store.inspect().queues());
            on_both!(self, |store| store.inspect().serial_keys(None, 100));
            on_both!(self, |store| rate_limits(store));
            on_both!(self, |store| store.repair(Some(self.now)));
            for worker in self.workers {
                on_both!(self, |store| store.cancel_requests(worker.0));
            }
        }
        Ok(())
    }

    /// Compares which gates moved since the last look; what they say is each store's own.
    async fn gates_moved(&mut self) -> Result<(), String> {
        let queues =
            [QUEUES[0].to_owned(), QUEUES[1].to_owned(), TIMER_GATE.to_owned(), CANCEL_GATE.to_owned()];
        let mut moved = Vec::new();
        for (store, last) in self.stores.iter().zip(&mut self.gates) {
            let now = store.gates(&queues).await.map_err(|error| error.to_string())?;
            moved.push(now.iter().zip(last.iter()).map(|(now, last)| now != last).collect::<Vec<_>>());
            *last = now;
        }
        let vain = std::mem::take(&mut self.vain);
        if moved[0].iter().zip(&moved[1]).all(|(one, other)| one == other || (vain && *other)) {
            return Ok(());
        }
        Err(format!(
            "of the gates {queues:?} moved {:?} in the reference and {:?} in the subject",
            moved[0], moved[1]
        ))
    }

    /// The id that a number stands for now.
    fn id(&self, n: u8) -> JobId {
        id(u32::from(n) + u32::from(IDS) * self.lives[usize::from(n)])
    }

    /// Whether a number stands for the id of a job now.
    fn is_there(&self, job: &NewJob) -> bool {
        (0..IDS).any(|n| self.id(n) == job.id)
    }

    /// Gives the numbers of jobs that are no longer there new ids.
    async fn bury(&mut self) -> Result<(), String> {
        for n in 0..IDS {
            let there = self.stores[0].inspect().job(self.id(n)).await.map_err(|error| error.to_string())?;
            self.lives[usize::from(n)] += u32::from(there.is_none());
        }
        Ok(())
    }

    fn worker(&self, n: u8) -> WorkerId {
        self.workers[usize::from(n)].0
    }

    fn number(&mut self, n: u8) -> ClaimNo {
        self.workers[usize::from(n)].1 += 1;
        ClaimNo(self.workers[usize::from(n)].1)
    }

    /// An earlier claim of the worker, counted from its newest.
    fn earlier(&self, n: u8, back: Option<u8>) -> Vec<ClaimNo> {
        let newest = self.workers[usize::from(n)].1;
        back.map(|back| ClaimNo(newest - i64::from(back))).filter(|number| number.0 > 0).into_iter().collect()
    }

    /// Whether a worker may say that a claim is settled: none of its jobs is still with it.
    async fn is_over(&self, worker: WorkerId, number: ClaimNo) -> Result<bool, String> {
        for (_, [job, _]) in self.held.iter().filter(|(by, [job, _])| (*by, job.claim) == (worker, number)) {
            let seen = self.stores[0].inspect().job(job.id).await.map_err(|error| error.to_string())?;
            if seen.is_some_and(|seen| seen.summary.state == State::Running && seen.epoch == job.epoch) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Jobs of one call. Two with the same id are the same job, but for its input: nobody makes an id for two.
    fn jobs(&self, drafts: &[Draft]) -> Vec<NewJob> {
        let mut jobs = Vec::new();
        for (draft, first) in drafts.iter().zip(firsts(drafts)) {
            jobs.push(build::job(&Draft { input: draft.input, ..first.clone() }, self.now, |n| self.id(n)));
        }
        jobs
    }

    /// At most one change per job, as the contract asks; for each store with its own numbers of signals.
    async fn changes(&self, edits: &[Edit]) -> Result<[Vec<Change>; 2], String> {
        let mut seen = BTreeSet::new();
        let mut changes = <[Vec<Change>; 2]>::default();
        for edit in edits {
            let Some((worker, jobs)) = newest(self.held.len(), edit.pick).map(|n| &self.held[n]) else {
                continue;
            };
            if seen.insert(jobs[0].id) {
                let known = self.stores[0].inspect().branches(jobs[0].id).await;
                let known = known.map_err(|error| error.to_string())?;
                let known: Vec<BranchNo> = known.iter().map(|branch| branch.number).collect();
                for (job, changes) in jobs.iter().zip(&mut changes) {
                    changes.push(self.change(edit, *worker, job, &known));
                }
            }
        }
        Ok(changes)
    }

    fn change(&self, edit: &Edit, worker: WorkerId, job: &ClaimedJob, known: &[BranchNo]) -> Change {
        let rev = Rev(job.rev.0 + i32::from(edit.rev));
        let step = edit.step.as_ref().map(|step| {
            let children = self.jobs(&step.children).into_iter().zip(firsts(&step.children));
            let children = children.map(|(child, draft)| build::child(draft, child)).collect();
            let promoted = self.jobs(&step.promoted).into_iter().zip(firsts(&step.promoted));
            let promoted =
                promoted.map(|(child, draft)| build::promoted(draft, child, job.branch_member)).collect();
            // Places in the journal come from the revision that the change says it follows.
            let job = &ClaimedJob { rev, ..job.clone() };
            Box::new(build::step(step, job, known, children, promoted))
        });
        Change {
            job: job.id,
            epoch: job.epoch,
            rev,
            worker,
            claim: if edit.lost { ClaimNo(-1) } else { job.claim },
            started_at: self.now.minus(Duration::from_secs(1)),
            deadline_at: job.deadline_at,
            is_serial: job.settings.is_serial(),
            parent: job.parent,
            branch_member: job.branch_member,
            step,
            outcome: build::outcome(edit, self.stores[0].limits().payload, rev),
        }
    }
}

/// The first of those with the id of each.
fn firsts(drafts: &[Draft]) -> impl Iterator<Item = &Draft> {
    drafts.iter().map(|draft| drafts.iter().find(|first| first.id == draft.id).expect("at least this one"))
}

/// Takes away what is each store's own: the numbers, and where signals of branches stand among those of the same moment (see
/// decision 0008).
fn unnumber(signals: &mut [Signal]) {
    signals.iter_mut().for_each(|signal| signal.number = 0);
    for run in signals.chunk_by_mut(|one, next| one.at == next.at) {
        // The others stay in their order.
        run.sort_by_key(|signal| (signal.name == BRANCH_SIGNAL).then(|| signal.payload.bytes.clone()));
    }
}

/// The signals in an inbox, but for their numbers.
async fn inbox(store: &Handle, id: JobId) -> Result<Vec<Signal>, Error> {
    let mut inbox = store.inspect().inbox(id, 100).await?;
    unnumber(&mut inbox);
    Ok(inbox)
}

/// What keeps a job, but for what hangs on the real clock.
async fn holds(store: &Handle, id: JobId) -> Result<Option<Holds>, Error> {
    let mut holds = store.inspect().holds(id).await?;
    if let Some(RateHold { affordable_at, .. }) = holds.as_mut().and_then(|holds| holds.rate.as_mut()) {
        *affordable_at = BEGIN;
    }
    let waiting = holds.iter_mut().filter_map(|holds| holds.waiting.as_mut());
    waiting.flat_map(|waiting| &mut waiting.aside).for_each(|signal| signal.number = 0);
    Ok(holds)
}

/// The rate limits, but for what hangs on the real clock.
async fn rate_limits(store: &Handle) -> Result<Vec<LimitView>, Error> {
    let mut limits = store.inspect().rate_limits().await?;
    limits.iter_mut().for_each(|limit| limit.tokens = 0);
    Ok(limits)
}

/// The index of the `back`th from the end.
fn newest(len: usize, back: u8) -> Option<usize> {
    len.checked_sub(usize::from(back) + 1)
}

/// What a call answers in no order of its own, in one.
trait Sorted {
    fn sorted(self) -> Self;
}

impl Sorted for crate::ReapReport {
    fn sorted(mut self) -> Self {
        self.workers.sort();
        self
    }
}

impl Sorted for Vec<crate::StateCount> {
    fn sorted(mut self) -> Self {
        self.sort();
        self
    }
}

impl Sorted for Vec<crate::WorkerView> {
    fn sorted(mut self) -> Self {
        self.sort_by_key(|worker| worker.id);
        self
    }
}

async fn sorted<T: Sorted>(call: crate::Fut<'_, T>) -> Result<T, Error> {
    call.await.map(Sorted::sorted)
}

/// The answer that both gave; `None` if both refused alike.
fn same<T: Debug>(answers: [Result<T, Error>; 2]) -> Result<Option<T>, String> {
    let text = |answer: &Result<T, Error>| match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(Error::Unavailable(_)) => "not available".to_owned(),
        Err(error) => format!("{error:?}"),
    };
    let texts = answers.each_ref().map(text);
    if texts[0] != texts[1] {
        return Err(format!("the reference answers\n  {}\nand the subject\n  {}", texts[0], texts[1]));
    }
    let [reference, _] = answers;
    Ok(reference.ok())
}
