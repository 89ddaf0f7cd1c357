//! Resolves the small numbers of an op to ids, workers and claims, and makes jobs and changes of drafts.

use std::{collections::BTreeSet, time::Duration};

use windlass_model::{BranchNo, Change, ClaimNo, ClaimedJob, JobId, NewJob, Rev, State, WorkerId};

use super::{
    super::kit::id,
    build,
    ops::{ChangeDraft, IDS, JobDraft},
    pair::{Pair, newest},
};

impl Pair {
    /// The current id of a number.
    pub(super) fn id(&self, n: u8) -> JobId {
        id(u32::from(n) + u32::from(IDS) * self.pruned[usize::from(n)])
    }

    /// Whether the job has the current id of some number.
    pub(super) fn is_current(&self, job: &NewJob) -> bool {
        (0..IDS).any(|n| self.id(n) == job.id)
    }

    /// Gives new ids to the numbers whose jobs do not exist.
    pub(super) async fn replace_pruned_ids(&mut self) -> Result<(), String> {
        for n in 0..IDS {
            let job = self.stores[0].inspect().job(self.id(n)).await.map_err(|error| error.to_string())?;
            self.pruned[usize::from(n)] += u32::from(job.is_none());
        }
        Ok(())
    }

    pub(super) fn worker(&self, n: u8) -> WorkerId {
        self.workers[usize::from(n)].0
    }

    /// An earlier claim of the worker, counted from its newest.
    pub(super) fn earlier_claim(&self, n: u8, back: Option<u8>) -> Vec<ClaimNo> {
        let newest = self.workers[usize::from(n)].1;
        back.map(|back| ClaimNo(newest - i64::from(back))).filter(|number| number.0 > 0).into_iter().collect()
    }

    /// Whether a worker may report a claim as settled: it holds none of its jobs any more.
    pub(super) async fn is_settled(&self, worker: WorkerId, number: ClaimNo) -> Result<bool, String> {
        let of_claim =
            |(holder, [job, _]): &&(WorkerId, [ClaimedJob; 2])| (*holder, job.claim) == (worker, number);
        for (_, [job, _]) in self.claimed.iter().filter(of_claim) {
            let seen = self.stores[0].inspect().job(job.id).await.map_err(|error| error.to_string())?;
            if seen.is_some_and(|seen| seen.summary.state == State::Running && seen.epoch == job.epoch) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The jobs of one call. Two with the same id differ only in their input, because callers never use an id for two jobs.
    pub(super) fn jobs(&self, drafts: &[JobDraft]) -> Vec<NewJob> {
        let mut jobs = Vec::new();
        for (draft, first) in drafts.iter().zip(first_of_same_id(drafts)) {
            let draft = JobDraft { input: draft.input, ..first.clone() };
            jobs.push(build::job(&draft, self.now, |n| self.id(n)));
        }
        jobs
    }

    /// At most one change per job, as `commit` requires; for each store with its own numbers of signals.
    pub(super) async fn changes(&self, drafts: &[ChangeDraft]) -> Result<[Vec<Change>; 2], String> {
        let mut seen = BTreeSet::new();
        let mut changes = <[Vec<Change>; 2]>::default();
        for draft in drafts {
            let Some((worker, jobs)) = newest(self.claimed.len(), draft.pick).map(|n| &self.claimed[n])
            else {
                continue;
            };
            if seen.insert(jobs[0].id) {
                let known = self.stores[0].inspect().branches(jobs[0].id).await;
                let known = known.map_err(|error| error.to_string())?;
                let known: Vec<BranchNo> = known.iter().map(|branch| branch.number).collect();
                for (job, changes) in jobs.iter().zip(&mut changes) {
                    changes.push(self.change(draft, *worker, job, &known));
                }
            }
        }
        Ok(changes)
    }

    fn change(&self, draft: &ChangeDraft, worker: WorkerId, job: &ClaimedJob, known: &[BranchNo]) -> Change {
        let rev = Rev(job.rev.0 + i32::from(draft.rev));
        let step = draft.step.as_ref().map(|step| {
            let children = self.jobs(&step.children).into_iter().zip(first_of_same_id(&step.children));
            let children = children.map(|(child, draft)| build::child(draft, child)).collect();
            let promoted = self.jobs(&step.promoted).into_iter().zip(first_of_same_id(&step.promoted));
            let promoted =
                promoted.map(|(child, draft)| build::promoted(draft, child, job.branch_member)).collect();
            // Positions in the journal are made of the revision that the change says it follows.
            let job = &ClaimedJob { rev, ..job.clone() };
            Box::new(build::step(step, job, known, children, promoted))
        });
        Change {
            job: job.id,
            epoch: job.epoch,
            rev,
            worker,
            claim: if draft.lost_claim { ClaimNo(-1) } else { job.claim },
            started_at: self.now - Duration::from_secs(1),
            deadline_at: job.deadline_at,
            is_serial: job.settings.is_serial(),
            parent: job.parent,
            branch_member: job.branch_member,
            writes: step,
            outcome: build::outcome(draft, self.stores[0].limits().payload, rev),
        }
    }
}

/// For each draft, the first one with the same id.
fn first_of_same_id(drafts: &[JobDraft]) -> impl Iterator<Item = &JobDraft> {
    drafts.iter().map(|draft| drafts.iter().find(|first| first.id == draft.id).expect("at least this one"))
}
