//! The two stores, and the calls of a sequence on both.

use std::{collections::BTreeSet, time::Duration};

use windlass_model::{
    BranchMember, Change, ClaimNo, ClaimedJob, CommitOutcome, JobId, KindVersion, NewJob, Outcome, Rev,
    State, StepWrites, SubmitOutcome, Time, WorkerId,
};

use super::{
    super::kit::{BEGIN, Handle, job_claim, kind, payload},
    build::{self, QUEUES, STAGES, limit},
    compare::{clear_signal_numbers, on_both, same, sorted},
    ops::{ChangeDraft, IDS, JobDraft, Op},
};
use crate::{
    Actor, AdminAction, ClaimBatch, ClaimOnSubmit, ClaimRequest, Fork, JobAction, NewWorker, Prune,
    ReapRequest, RenewRequest, StageUpdate,
};

/// Long enough that most workers of a sequence keep their leases.
const LEASE: Duration = Duration::from_secs(90);

/// The reference and the subject, and what their callers remember.
pub(super) struct Pair {
    pub stores: [Handle; 2],
    pub now: Time,
    /// The current id of each of the three workers, and the number of its last claim.
    pub workers: [(WorkerId, i64); 3],
    registered: i64,
    /// Every job ever claimed, with its worker, as each store returned it: the numbers of signals may differ.
    pub claimed: Vec<(WorkerId, [ClaimedJob; 2])>,
    submits: Vec<(Vec<NewJob>, Option<ClaimOnSubmit>)>,
    claim_requests: Vec<ClaimRequest>,
    commits: Vec<[Vec<Change>; 2]>,
    /// What the gates of each store were when they were last compared.
    pub gates: [Vec<u64>; 2],
    /// Whether the subject may move gates that the reference does not: a job that is named twice in one call may have been ready
    /// in between.
    pub extra_gate_moves: bool,
    /// How often the job of each id was pruned. A pruned id is not used again, because epochs distinguish only the claims of one
    /// job.
    pub pruned: [u32; IDS as usize],
}

impl Pair {
    pub(super) fn new(reference: &Handle, subject: &Handle) -> Pair {
        Pair {
            stores: [reference.clone(), subject.clone()],
            now: BEGIN,
            workers: [(WorkerId(0), 0); 3],
            registered: 0,
            claimed: Vec::new(),
            submits: Vec::new(),
            claim_requests: Vec::new(),
            commits: Vec::new(),
            gates: Default::default(),
            extra_gate_moves: false,
            pruned: Default::default(),
        }
    }

    /// Makes one call on both stores and compares the results.
    pub(super) async fn call(&mut self, op: &Op) -> Result<(), String> {
        let now = Some(self.now);
        match op {
            Op::Submit { jobs, claimed_by } => self.new_submit(jobs, *claimed_by).await?,
            Op::RepeatSubmit { which } => {
                let index = newest(self.submits.len(), *which);
                let is_current =
                    |index: &usize| self.submits[*index].0.iter().all(|job| self.is_current(job));
                if let Some(index) = index.filter(is_current) {
                    self.submit(index).await?;
                }
            }
            Op::Claim { .. } => self.new_claim(op).await?,
            Op::RepeatClaim { which } => {
                if let Some(index) = newest(self.claim_requests.len(), *which) {
                    self.claim(index).await?;
                }
            }
            Op::Commit { changes } => self.new_commit(changes).await?,
            Op::RepeatCommit { which } => {
                let is_current = |change: &Change| {
                    let mut jobs =
                        change.writes.iter().flat_map(|step| step.children.iter().chain(&step.promoted));
                    jobs.all(|job| self.is_current(job))
                };
                let index = newest(self.commits.len(), *which);
                if let Some(index) = index.filter(|index| self.commits[*index][0].iter().all(is_current)) {
                    self.commit(index).await?;
                }
            }
            Op::Signal { signals } => {
                let signal = |(to, name, dedup): &(u8, u8, u8)| build::signal_to(self.id(*to), *name, *dedup);
                let signals: Vec<_> = signals.iter().map(signal).collect();
                on_both!(self, |store| store.signal(now, &signals));
            }
            Op::Release { picks } => {
                let mut seen = BTreeSet::new();
                let claimed = picks
                    .iter()
                    .filter_map(|pick| newest(self.claimed.len(), *pick))
                    .map(|n| (self.claimed[n].0, &self.claimed[n].1[0]));
                let claims: Vec<_> = claimed
                    .filter(|(_, job)| seen.insert(job.id))
                    .map(|(worker, job)| job_claim(worker, job))
                    .collect();
                on_both!(self, |store| store.release(now, &claims));
            }
            Op::FireTimers { limit } => {
                let limit = usize::from(*limit);
                on_both!(self, |store| store.fire_timers(now, limit));
            }
            Op::Poll { limit } => {
                let limit = usize::from(*limit);
                on_both!(self, |store| store.poll_branches(now, limit));
            }
            Op::Prune { state, age } => {
                let state = [State::Done, State::Failed, State::Cancelled][usize::from(*state)];
                let before = self.now - Duration::from_secs(u64::from(*age));
                let prune = Prune { state, before, kind: None, after: None, limit: 1_000 };
                on_both!(self, |store| store.prune(now, &prune));
                self.replace_pruned_ids().await?;
            }
            Op::Renew { .. } | Op::Reap { .. } | Op::Retire { .. } | Op::Register { .. } => {
                self.worker_call(op).await?;
            }
            Op::Act { .. } | Op::Administer { .. } | Op::UpdateStage { .. } | Op::Fork { .. } => {
                self.control_call(op).await?;
            }
            Op::AdvanceClock { seconds } => {
                self.now += Duration::from_secs(u64::from(*seconds));
            }
        }
        Ok(())
    }

    /// Calls about workers and their leases.
    async fn worker_call(&mut self, op: &Op) -> Result<(), String> {
        let now = Some(self.now);
        match op {
            Op::Renew { worker, lease, settled, solo_ended } => {
                let request = RenewRequest {
                    worker: self.worker(*worker),
                    lease: Duration::from_secs(u64::from(*lease)),
                    settled: self.earlier_claim(*worker, *settled),
                    solo_ended: self.earlier_claim(*worker, *solo_ended),
                    progress: None,
                };
                on_both!(self, |store| store.renew(now, &request));
            }
            Op::Reap { dead, lapsed, limit, crashes } => {
                let dead = dead.iter().map(|n| self.worker(*n)).collect();
                let limit = usize::from(*limit);
                let request = ReapRequest { dead, lapsed: *lapsed, limit, max_crashes: u16::from(*crashes) };
                on_both!(self, |store| sorted(store.reap(now, &request)));
            }
            Op::Retire { worker } => {
                let worker = self.worker(*worker);
                on_both!(self, |store| store.retire_worker(now, worker));
            }
            Op::Register { worker, again } => {
                if !again {
                    self.registered += 1;
                    self.workers[usize::from(*worker)] = (WorkerId(self.registered), 0);
                }
                let id = self.worker(*worker);
                let new = NewWorker {
                    id,
                    name: format!("worker {id}"),
                    liveness_file: None,
                    lease: LEASE,
                    serves: Vec::new(),
                    token: None,
                };
                on_both!(self, |store| store.register_worker(now, &new));
            }
            _ => unreachable!("{op:?} is not about workers"),
        }
        Ok(())
    }

    /// Calls that people make.
    async fn control_call(&mut self, op: &Op) -> Result<(), String> {
        let now = Some(self.now);
        let actor = Actor::new("someone");
        match op {
            Op::Act { ids, action, amount } => {
                self.extra_gate_moves = (1..ids.len()).any(|n| ids[..n].contains(&ids[n]));
                let ids: Vec<JobId> = ids.iter().map(|n| self.id(*n)).collect();
                let grace = Duration::from_secs(u64::from(amount.unsigned_abs()));
                let action = match action {
                    0 => JobAction::Cancel { grace },
                    1 => JobAction::Pause,
                    2 => JobAction::Resume,
                    3 => JobAction::Retry,
                    _ => JobAction::Priority(i16::from(*amount)),
                };
                on_both!(self, |store| store.control().act_on_jobs(now, &ids, action, &actor));
            }
            Op::Administer { action, amount } => {
                let amount = u32::from(*amount);
                let action = match action {
                    0 => AdminAction::PauseQueue(QUEUES[0].into()),
                    1 => AdminAction::ResumeQueue(QUEUES[0].into()),
                    2 => AdminAction::Lift("api".into()),
                    3 => AdminAction::Slots { key: "serial 0".into(), slots: amount },
                    _ => AdminAction::Limit(limit(amount)),
                };
                let actor = actor.note("because");
                on_both!(self, |store| store.control().administer(now, &action, &actor));
            }
            Op::UpdateStage { id, version, stage, outdated } => {
                let job = self.id(*id);
                let seen = self.stores[0].inspect().job(job).await.map_err(|error| error.to_string())?;
                let (epoch, rev) = seen.map(|seen| (seen.epoch, seen.rev)).unwrap_or_default();
                let update = StageUpdate {
                    job,
                    epoch,
                    rev: Rev(rev.0 - i32::from(*outdated)),
                    version: i32::from(*version),
                    stage: STAGES[usize::from(*stage)].to_owned(),
                    data: payload("updated"),
                };
                let (updates, actor) = ([update], actor.note("because"));
                on_both!(self, |store| store.control().update_stages(now, &updates, &actor));
            }
            Op::Fork { from, id, before, key } => {
                let (from, id) = (self.id(*from), self.id(*id));
                let entries = self.stores[0].inspect().journal(from, None, usize::MAX).await;
                let positions: Vec<i32> =
                    entries.map_err(|error| error.to_string())?.iter().map(|entry| entry.seq).collect();
                let end = positions.last().map_or(0, |last| last + 1);
                let mut choices = positions.iter().copied().chain([end, 10_000]).cycle();
                let before = choices.nth(usize::from(*before)).expect("it cycles");
                let forks = [Fork { from, id, before, key: key.map(|key| format!("key {key}")) }];
                on_both!(self, |store| store.control().fork(now, &forks, &actor));
            }
            _ => unreachable!("{op:?} is not made by people"),
        }
        Ok(())
    }

    async fn new_submit(&mut self, jobs: &[JobDraft], claimed_by: Option<u8>) -> Result<(), String> {
        let jobs = self.jobs(jobs);
        let claim =
            claimed_by.map(|n| ClaimOnSubmit { worker: self.worker(n), number: self.next_claim_number(n) });
        self.submits.push((jobs, claim));
        self.submit(self.submits.len() - 1).await
    }

    async fn submit(&mut self, index: usize) -> Result<(), String> {
        let (jobs, claim) = &self.submits[index];
        let outcomes = on_both!(self, |store| store.submit(Some(self.now), jobs, *claim));
        let Some(claim) = *claim else { return Ok(()) };
        let claimed = outcomes.iter().flatten().zip(jobs).filter_map(|(outcome, job)| match outcome {
            SubmitOutcome::New { claimed: Some(epoch) } => {
                Some(job.claimed_at_submit(claim.number, *epoch, self.now))
            }
            _ => None,
        });
        self.claimed.extend(claimed.map(|job| (claim.worker, [job.clone(), job])));
        Ok(())
    }

    async fn new_claim(&mut self, op: &Op) -> Result<(), String> {
        let Op::Claim { worker, queue, kinds, limit, solo, only, settled } = op else {
            unreachable!("{op:?} is no claim")
        };
        let settled = self.earlier_claim(*worker, *settled);
        let served = |bit: u8| kind(["a", "b"][usize::from(bit / 2)], i32::from(bit % 2) + 1);
        let kinds: Vec<KindVersion> = (0..4).filter(|bit| kinds & (1 << bit) != 0).map(served).collect();
        let request = ClaimRequest {
            worker: self.worker(*worker),
            number: self.next_claim_number(*worker),
            queue: QUEUES[usize::from(*queue)].into(),
            kinds: kinds.into(),
            limit: usize::from(*limit),
            solo: *solo,
            only: only.filter(|_| !solo).map(|n| self.id(n)),
            settled,
        };
        self.claim_requests.push(request);
        self.claim(self.claim_requests.len() - 1).await
    }

    async fn claim(&mut self, index: usize) -> Result<(), String> {
        let mut request = self.claim_requests[index].clone();
        let mut settled = Vec::new();
        for number in std::mem::take(&mut request.settled) {
            if self.is_settled(request.worker, number).await? {
                settled.push(number);
            }
        }
        request.settled = settled;
        let mut claimed: [Vec<ClaimedJob>; 2] = Default::default();
        let mut results = Vec::new();
        for (store, claimed) in self.stores.iter().zip(&mut claimed) {
            let batch = store.claim(Some(self.now), &request).await;
            // `more` is a hint, and one store may know less than the other.
            let mut batch = batch.map(|batch| ClaimBatch { more: false, ..batch });
            claimed.extend(batch.iter().flat_map(|batch| batch.jobs.clone()));
            let jobs = batch.iter_mut().flat_map(|batch| &mut batch.jobs);
            jobs.for_each(|job| clear_signal_numbers(&mut job.inbox));
            results.push(batch);
        }
        same(results.try_into().expect("two stores"))?;
        let [reference, subject] = claimed;
        let worker = request.worker;
        self.claimed.extend(reference.into_iter().zip(subject).map(|(one, other)| (worker, [one, other])));
        Ok(())
    }

    async fn new_commit(&mut self, changes: &[ChangeDraft]) -> Result<(), String> {
        let mut changes = self.changes(changes).await?;
        // A parent that ends in the same call as a child of its branch: whether it still gets the signal of the branch depends on
        // which end is written first, which is not promised.
        for changes in &mut changes {
            let ends = changes.iter().filter(|change| change.outcome.ends());
            let parents: BTreeSet<_> = ends.filter_map(|change| Some(change.branch_member?.parent)).collect();
            changes.retain(|change| !change.outcome.ends() || !parents.contains(&change.job));
            // A parent with a serial key that is woken by its branch: whether it enters the line before or after the slots that the
            // call frees are handed over depends on when the branch is read, which is not promised.
            for writes in
                changes.iter_mut().filter(|change| change.is_serial).filter_map(|c| c.writes.as_mut())
            {
                writes.branches.iter_mut().for_each(|update| update.watch = None);
            }
        }
        self.commits.push(changes);
        self.commit(self.commits.len() - 1).await
    }

    async fn commit(&mut self, index: usize) -> Result<(), String> {
        let [one, other] = &self.commits[index];
        let now = Some(self.now);
        let results = [self.stores[0].commit(now, one).await, self.stores[1].commit(now, other).await];
        let outcomes = same(results)?.unwrap_or_default();
        // A worker that continues with the next step knows what it has written.
        let mut continued = Vec::new();
        for (change, outcome) in one.iter().zip(outcomes) {
            if change.outcome == Outcome::Next && outcome == CommitOutcome::Committed {
                continued.extend(self.after_step(change));
            }
        }
        self.claimed.extend(continued);
        Ok(())
    }

    /// The claim of a committed change as its worker knows it from then on. It follows the revision of the change, also if the
    /// commit was a repeat.
    fn after_step(&self, change: &Change) -> Option<(WorkerId, [ClaimedJob; 2])> {
        let is_its_claim = |(_, [job, _]): &&(WorkerId, [ClaimedJob; 2])| {
            (job.id, job.epoch, job.rev, job.claim) == (change.job, change.epoch, change.rev, change.claim)
        };
        let (worker, jobs) = self.claimed.iter().rev().find(is_its_claim).cloned()?;
        let stage = change.writes.as_ref().and_then(|step| step.stage.clone());
        let counted = |step: &StepWrites| step.items + step.promoted.len() as u32;
        let items = change.writes.as_deref().map_or(0, counted);
        let after = |job: ClaimedJob| ClaimedJob {
            branch_member: job
                .branch_member
                .map(|member| BranchMember { items: member.items.saturating_sub(items), ..member }),
            rev: Rev(change.rev.0 + 1),
            stage: stage.clone().map(|(stage, _)| stage).or(job.stage),
            wait: None,
            inbox: Vec::new(),
            ..job
        };
        Some((worker, jobs.map(after)))
    }

    fn next_claim_number(&mut self, n: u8) -> ClaimNo {
        self.workers[usize::from(n)].1 += 1;
        ClaimNo(self.workers[usize::from(n)].1)
    }
}

/// The index of the `back`th from the end.
pub(super) fn newest(len: usize, back: u8) -> Option<usize> {
    len.checked_sub(usize::from(back) + 1)
}
