//! The same calls on a reference and on a subject: every answer and everything visible must agree.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc, time::Duration};

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use windlass_model::{
    Change, Charge, ClaimNo, Claimed, Conflict, Failure, JobId, KindVersion, Limit, NewJob, Outcome, Payload,
    Reason, Rev, Serial, State, States, Time, Unique, When, WorkerId,
};

use super::{
    kit::{BEGIN, Handle, all, id, kind},
    ops::{Draft, Edit, IDS, Op, sequence},
};
use crate::{
    Act, Ask, AuditFilter, Beat, Born, By, Error, Haul, Holds, LimitView, NewWorker, ORDER_GATE, Prune,
    RateHold, Rule, Sweep, TIMER_GATE, memory::Memory,
};

/// The longest random sequence.
const MOST: usize = 60;
/// After how many ops everything is compared in detail; lists and counts are compared after each.
const DETAIL: usize = 8;
/// Long enough that most sequences have workers that serve.
const LEASE: Duration = Duration::from_secs(90);
const QUEUES: [&str; 2] = ["main", "aside"];

/// Runs `cases` random sequences on fresh stores and on the memory store, and panics with the shortest sequence
/// on which they disagree. PROPTEST_CASES overrides the number.
pub fn random<K>(cases: u32, open: impl AsyncFn() -> (K, Handle)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut config = Config { failure_persistence: None, max_shrink_iters: 1_000, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    let outcome = TestRunner::new(config).run(&sequence(MOST), |ops| {
        runtime.block_on(async {
            let (_keep, subject) = open().await;
            let reference: Handle = Arc::new(Memory::with_limits(subject.limits().clone()));
            agree(&reference, &subject, &ops).await.map_err(TestCaseError::fail)
        })
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, ops)) => panic!("{why}\nthe shortest sequence found: {ops:#?}"),
        Err(error) => panic!("{error}"),
    }
}

/// Makes the calls of `ops` on both stores, which must be empty; says where they first disagree.
pub async fn agree(reference: &Handle, subject: &Handle, ops: &[Op]) -> Result<(), String> {
    let mut pair = Pair::new(reference, subject);
    for worker in 0..3 {
        pair.step(&Op::Enlist { worker, again: false }).await?;
    }
    for store in [reference, subject] {
        let rule = Rule::Limit(limit(3));
        store.control().rule(Some(BEGIN), &rule, &By::new("setup")).await.map_err(|e| e.to_string())?;
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
    /// Every job ever handed out, with its worker.
    held: Vec<(WorkerId, Claimed)>,
    submits: Vec<(Vec<NewJob>, Option<Born>)>,
    asks: Vec<Ask>,
    commits: Vec<Vec<Change>>,
    gates: [Vec<u64>; 2],
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
            lives: Default::default(),
        }
    }

    async fn step(&mut self, op: &Op) -> Result<(), String> {
        let now = Some(self.now);
        match op {
            Op::Submit { jobs, born } => {
                let jobs = self.jobs(jobs);
                let born = born.map(|n| Born { worker: self.worker(n), number: self.number(n) });
                self.submits.push((jobs, born));
                self.submit(self.submits.len() - 1).await?;
            }
            Op::SubmitAgain { which } => {
                let index = newest(self.submits.len(), *which);
                let is_there = |job: &NewJob| (0..IDS).any(|n| self.id(n) == job.id);
                if let Some(index) = index.filter(|index| self.submits[*index].0.iter().all(is_there)) {
                    self.submit(index).await?;
                }
            }
            Op::Claim { worker, queue, kinds, limit, alone, settle } => {
                let settled = self.earlier(*worker, *settle);
                let lane = |bit: u8| kind(["a", "b"][usize::from(bit / 2)], i32::from(bit % 2) + 1);
                let kinds: Vec<KindVersion> =
                    (0..4).filter(|bit| kinds & (1 << bit) != 0).map(lane).collect();
                let ask = Ask {
                    worker: self.worker(*worker),
                    number: self.number(*worker),
                    queue: QUEUES[usize::from(*queue)].into(),
                    kinds: kinds.into(),
                    limit: usize::from(*limit),
                    alone: *alone,
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
                let changes = self.changes(changes);
                self.commits.push(changes);
                let changes = &self.commits[self.commits.len() - 1];
                on_both!(self, |store| store.commit(now, changes));
            }
            Op::CommitAgain { which } => {
                if let Some(index) = newest(self.commits.len(), *which) {
                    let changes = &self.commits[index];
                    on_both!(self, |store| store.commit(now, changes));
                }
            }
            Op::Renew { worker, lease, settle, join } => {
                let beat = Beat {
                    worker: self.worker(*worker),
                    lease: Duration::from_secs(u64::from(*lease)),
                    settled: self.earlier(*worker, *settle),
                    joined: self.earlier(*worker, *join),
                };
                on_both!(self, |store| store.renew(now, &beat));
            }
            Op::Reap { dead, lapsed, limit, crashes } => {
                let dead = dead.iter().map(|n| self.worker(*n)).collect();
                let limit = usize::from(*limit);
                let sweep = Sweep { dead, lapsed: *lapsed, limit, crashes: u16::from(*crashes) };
                on_both!(self, |store| sorted(store.reap(now, &sweep)));
            }
            Op::Release { picks } => {
                let mut seen = BTreeSet::new();
                let held =
                    picks.iter().filter_map(|pick| newest(self.held.len(), *pick)).map(|n| &self.held[n].1);
                let pairs: Vec<_> =
                    held.filter(|job| seen.insert(job.id)).map(|job| (job.id, job.epoch)).collect();
                on_both!(self, |store| store.release(now, &pairs));
            }
            Op::Retire { worker } => {
                let worker = self.worker(*worker);
                on_both!(self, |store| store.retire(now, worker));
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
                    beacon: None,
                    lease: LEASE,
                    serves: Vec::new(),
                };
                on_both!(self, |store| store.enlist(now, &new));
            }
            Op::Due { limit } => {
                let limit = usize::from(*limit);
                on_both!(self, |store| store.due(now, limit));
            }
            Op::Act { ids, act, amount } => {
                let ids: Vec<JobId> = ids.iter().map(|n| self.id(*n)).collect();
                let grace = Duration::from_secs(u64::from(amount.unsigned_abs()));
                let act = match act {
                    0 => Act::Cancel { grace },
                    1 => Act::Pause,
                    2 => Act::Resume,
                    3 => Act::Retry,
                    _ => Act::Priority(i16::from(*amount)),
                };
                let by = By::new("someone");
                on_both!(self, |store| store.control().act(now, &ids, act, &by));
            }
            Op::Rule { rule, amount } => {
                let amount = u32::from(*amount);
                let rule = match rule {
                    0 => Rule::PauseQueue(QUEUES[0].into()),
                    1 => Rule::ResumeQueue(QUEUES[0].into()),
                    2 => Rule::Lift("api".into()),
                    3 => Rule::Slots { key: "serial 0".into(), slots: amount },
                    _ => Rule::Limit(limit(amount)),
                };
                let by = By::new("someone").note("because");
                on_both!(self, |store| store.control().rule(now, &rule, &by));
            }
            Op::Prune { state, age } => {
                let state = [State::Done, State::Failed, State::Cancelled][usize::from(*state)];
                let before = self.now.minus(Duration::from_secs(u64::from(*age)));
                let prune = Prune { state, before, kind: None, after: None, limit: 1_000 };
                on_both!(self, |store| store.control().prune(now, &prune));
                self.bury().await?;
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
            windlass_model::Submitted::New { claimed: Some(epoch) } => Some(Claimed {
                id: job.id,
                kind: job.kind.clone(),
                epoch: *epoch,
                rev: Rev(0),
                attempts: 0,
                spent: Vec::new(),
                deaths: 0,
                key: job.key.clone(),
                due_at: self.now,
                deadline_at: job.deadline_at,
                settings: job.settings.clone(),
                input: job.input.clone(),
            }),
            _ => None,
        });
        self.held.extend(claimed.map(|job| (born.worker, job)));
        Ok(())
    }

    async fn claim(&mut self, index: usize) -> Result<(), String> {
        let ask = &self.asks[index];
        // Whether there may be more is a hint, and one store may know less than the other.
        let claim = async |store: &Handle| {
            let haul = store.claim(Some(self.now), ask).await;
            haul.map(|haul| Haul { more: false, ..haul })
        };
        let haul = on_both!(self, |store| claim(store));
        let worker = ask.worker;
        self.held.extend(haul.into_iter().flat_map(|haul| haul.jobs).map(|job| (worker, job)));
        Ok(())
    }

    /// Compares what everyone can see; with `detail`, all of every job.
    async fn compare(&mut self, detail: bool) -> Result<(), String> {
        let jobs = on_both!(self, |store| store.inspect().jobs(&all())).unwrap_or_default();
        on_both!(self, |store| sorted(store.inspect().census(5)));
        on_both!(self, |store| sorted(store.inspect().workers()));
        self.gates_moved().await?;
        if detail {
            let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
            on_both!(self, |store| store.ended(&ids));
            for id in ids {
                on_both!(self, |store| store.inspect().job(id));
                on_both!(self, |store| store.inspect().history(id));
                on_both!(self, |store| holds(store, id));
                on_both!(self, |store| store.inspect().children(id, None, 5));
            }
            let audit = AuditFilter { limit: 100, ..AuditFilter::default() };
            on_both!(self, |store| store.inspect().audit(&audit));
            on_both!(self, |store| store.inspect().queues());
            on_both!(self, |store| store.inspect().serial_keys(None, 100));
            on_both!(self, |store| rate_limits(store));
            on_both!(self, |store| store.sweep(Some(self.now)));
            for worker in self.workers {
                on_both!(self, |store| store.orders(worker.0));
            }
        }
        Ok(())
    }

    /// Compares which gates moved since the last look; what they say is each store's own.
    async fn gates_moved(&mut self) -> Result<(), String> {
        let queues =
            [QUEUES[0].to_owned(), QUEUES[1].to_owned(), TIMER_GATE.to_owned(), ORDER_GATE.to_owned()];
        let mut moved = Vec::new();
        for (store, last) in self.stores.iter().zip(&mut self.gates) {
            let now = store.gate(&queues).await.map_err(|error| error.to_string())?;
            moved.push(now.iter().zip(last.iter()).map(|(now, last)| now != last).collect::<Vec<_>>());
            *last = now;
        }
        if moved[0] == moved[1] {
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

    /// Jobs of one call. Two with the same id are the same job, but for its input: nobody makes an id for two.
    fn jobs(&self, drafts: &[Draft]) -> Vec<NewJob> {
        let mut jobs = Vec::new();
        for draft in drafts {
            let first = drafts.iter().find(|first| first.id == draft.id).expect("at least this one");
            jobs.push(self.job(&Draft { input: draft.input, ..first.clone() }));
        }
        jobs
    }

    fn job(&self, draft: &Draft) -> NewJob {
        let input = Payload::json(vec![b'0' + draft.input]);
        let name = ["a", "b"][usize::from(draft.kind / 2)];
        let mut job = NewJob::new(self.id(draft.id), name, QUEUES[usize::from(draft.queue)], input);
        job.kind.version = i32::from(draft.kind % 2) + 1;
        job.key = draft.key.map(|key| format!("key {key}"));
        job.priority = i16::from(draft.priority);
        job.tags = draft.key.iter().map(|key| format!("tag {key}")).collect();
        job.when = match draft.delay {
            0 => When::Now,
            delay if delay % 2 == 0 => When::After(Duration::from_secs(u64::from(delay))),
            delay => When::At(self.now.plus(Duration::from_secs(u64::from(delay)))),
        };
        job.deadline_at = draft.deadline.map(|wait| self.now.plus(Duration::from_secs(u64::from(wait))));
        job.settings.serial = draft.serial.map(|key| {
            let slots = (key == 2).then_some(2);
            Box::new(Serial { key: format!("serial {key}"), slots, hold: key == 1 })
        });
        job.settings.unique = draft.unique.map(|(key, conflict, scope)| {
            let all = [Conflict::Keep, Conflict::Reject, Conflict::Replace, Conflict::CancelAndReplace];
            let scopes =
                [States::LIVE, States::WAITING, States::KEPT, States::of([State::Running, State::Failed])];
            let within = (key == 1).then_some(Duration::from_secs(40));
            let (scope, conflict) = (scopes[usize::from(scope)], all[usize::from(conflict)]);
            Box::new(Unique { key: format!("name {key}"), scope, within, conflict })
        });
        job.settings.rate =
            draft.weight.map(|weight| Box::new(Charge { limit: "api".into(), weight: u32::from(weight) }));
        job.parent = draft.parent.filter(|parent| *parent != draft.id).map(|parent| self.id(parent));
        job
    }

    /// At most one change per job, as the contract asks.
    fn changes(&self, edits: &[Edit]) -> Vec<Change> {
        let mut seen = BTreeSet::new();
        let mut changes = Vec::new();
        for edit in edits {
            let Some((worker, job)) = newest(self.held.len(), edit.pick).map(|n| &self.held[n]) else {
                continue;
            };
            if seen.insert(job.id) {
                changes.push(Change {
                    job: job.id,
                    epoch: job.epoch,
                    rev: Rev(job.rev.0 + i32::from(edit.rev)),
                    worker: *worker,
                    started_at: self.now.minus(Duration::from_secs(1)),
                    deadline_at: job.deadline_at,
                    tied: job.settings.ties(),
                    outcome: outcome(edit, self.stores[0].limits().payload),
                });
            }
        }
        changes
    }
}

fn outcome(edit: &Edit, most: usize) -> Outcome {
    let failure = Failure::retry("went wrong").class("busy");
    match edit.outcome {
        0 | 1 => Outcome::Done(Payload { codec: 1, bytes: vec![edit.after; 3] }),
        2 => Outcome::Failed { reason: Reason::Stopped, failure: Failure::stop("for good") },
        3 => Outcome::Failed { reason: Reason::Undecodable, failure },
        4 => Outcome::Cancelled(Failure::cancel("enough")),
        5 if edit.after % 5 == 1 => Outcome::Done(Payload::json(vec![b'1'; most + 1])),
        _ => {
            let after = Duration::from_secs(u64::from(edit.after));
            Outcome::Retry { after, spent: vec![u32::from(edit.after)], failure }
        }
    }
}

/// The one rate limit, with so many tokens.
fn limit(tokens: u32) -> Limit {
    Limit::per("api", tokens, Duration::from_secs(20)).burst(tokens + 1)
}

/// What keeps a job, but for what hangs on the real clock.
async fn holds(store: &Handle, id: JobId) -> Result<Option<Holds>, Error> {
    let mut holds = store.inspect().holds(id).await?;
    if let Some(RateHold { enough_at, .. }) = holds.as_mut().and_then(|holds| holds.rate.as_mut()) {
        *enough_at = BEGIN;
    }
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

impl Sorted for crate::Reaped {
    fn sorted(mut self) -> Self {
        self.workers.sort();
        self
    }
}

impl Sorted for Vec<crate::Census> {
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
