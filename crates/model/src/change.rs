//! What an attempt commits. See [`crate::outcome`] for how it ended and how the store answers.
//!
//! A [`Change`] is the only way in which an attempt writes. The store applies it if the claim is recorded, the epoch is the job's
//! and the revision is the one it follows; then the job's revision is one higher. All of a change is written, or nothing.

use std::collections::HashSet;

use crate::{
    BranchMember, BranchUpdate, ClaimNo, ClaimedJob, Epoch, JobId, JournalEntry, NewJob, Outcome, Payload,
    Rev, Time, Unwind, WorkerId, wait::UnreadableSignal,
};

/// Everything that one attempt, or one step of it, writes.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The job.
    pub job: JobId,
    /// The epoch of the claim under which the attempt ran. If the job's is newer, the change is fenced.
    pub epoch: Epoch,
    /// The revision that this change follows. If the job is one revision further and this claim wrote that one, the change was
    /// committed before and its answer was lost: the outcome is `Committed`, and nothing is written.
    pub rev: Rev,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// The number of that worker's claim. If the store does not know it, the change is fenced.
    pub claim: ClaimNo,
    /// When the attempt started, by the worker's clock; of a step that follows others within its claim, when the first of them did.
    pub started_at: Time,
    /// The deadline that the job was claimed with, whose timer the store deletes when the job ends.
    pub deadline_at: Option<Time>,
    /// Whether the job has a serial key, whose slot the store hands to the next job when this one ends or parks.
    pub is_serial: bool,
    /// The parent, if its wait for children counts this job's end.
    pub parent: Option<JobId>,
    /// The branch that counts this job's end, and the items the job represents before this change.
    pub branch_member: Option<BranchMember>,
    /// What a step of a machine or workflow writes besides its outcome.
    pub writes: Option<Box<StepWrites>>,
    /// How the attempt or step ended.
    pub outcome: Outcome,
}

impl Change {
    /// Returns the number of payload bytes.
    pub fn bytes(&self) -> usize {
        let output = match &self.outcome {
            Outcome::Done(output) => output.bytes.len(),
            _ => 0,
        };
        let step = self.writes.as_ref().map_or(0, |step| {
            let data = step.stage.as_ref().map_or(0, |(_, data)| data.bytes.len());
            let jobs = step.children.iter().chain(&step.promoted).map(NewJob::bytes);
            let entries = step.entries.iter().map(|entry| entry.payload.bytes.len());
            let context = step.context.iter().map(|(_, value)| value.bytes.len());
            data + jobs.chain(entries).chain(context).sum::<usize>()
        });
        output + step
    }

    /// Makes the change of an attempt without a step.
    pub fn new(job: &ClaimedJob, worker: WorkerId, started_at: Time, outcome: Outcome) -> Change {
        Change {
            job: job.id,
            epoch: job.epoch,
            rev: job.rev,
            worker,
            claim: job.claim,
            started_at,
            deadline_at: job.deadline_at,
            is_serial: job.settings.is_serial(),
            parent: job.parent,
            branch_member: job.branch_member,
            writes: None,
            outcome,
        }
    }

    /// What the step does to the counts of attempts and retries:
    /// - `Some(false)`: the job moved on; the counts start again.
    /// - `Some(true)`: it is in the same stage with the same data; the step counts as an attempt.
    /// - `None`: the step is only a part of an attempt; counts and wait stay as they are.
    pub fn stage_unchanged(&self) -> Option<bool> {
        match self.writes.as_deref() {
            Some(step) if step.partial => None,
            step => Some(step.is_some_and(|step| step.unchanged)),
        }
    }

    /// Returns the jobs that it submits.
    pub fn submitted_jobs(&self) -> impl Iterator<Item = &NewJob> + Clone {
        self.writes.iter().flat_map(|step| step.children.iter().chain(&step.promoted))
    }

    /// Returns one of its children with its parent set, and with how its end reaches this job: the wait counts it, a signal reports
    /// it, its branch counts it, or, if it is detached, nothing does.
    pub fn child(&self, job: &NewJob) -> NewJob {
        let signals_end = self.writes.as_ref().is_some_and(|step| step.signal_child_ends);
        let parent_rev = if signals_end { Rev::SIGNALLED } else { Rev(self.rev.0 + 1) };
        let reports_end = job.branch_position.is_none() && job.parent_rev != Some(Rev::DETACHED);
        NewJob { parent: Some(self.job), parent_rev: Some(parent_rev).filter(|_| reports_end), ..job.clone() }
    }

    /// Returns the changes that record the first attempts at promoted items: an item that failed in its block becomes a job of its
    /// own, and that failure is the job's first attempt. The store applies them after it has inserted these jobs, as if this
    /// change's worker had claimed them.
    pub fn first_attempts(&self) -> impl Iterator<Item = Change> {
        let attempts = self.writes.iter().flat_map(|step| &step.first_attempts);
        attempts.map(|attempt| Change {
            job: attempt.job,
            epoch: Epoch(0),
            rev: Rev(0),
            worker: self.worker,
            claim: self.claim,
            started_at: attempt.started_at,
            deadline_at: None,
            is_serial: false,
            parent: None,
            branch_member: self.branch_member.map(|member| BranchMember { items: 1, ..member }),
            writes: None,
            outcome: attempt.outcome.clone(),
        })
    }
}

/// What a step of a machine or workflow writes besides its outcome.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StepWrites {
    /// The stage that ran. The store records a transition from it to the stage it led to; `None` records nothing.
    pub from_stage: Option<String>,
    /// The stage the job is in from now on, with its data; `None` leaves both as they are.
    pub stage: Option<(String, Payload)>,
    /// Whether the stage and its data are the same as before. Then the step counts as an attempt instead of resetting the
    /// number of attempts.
    pub unchanged: bool,
    /// Whether this is only a part of what the attempt does. Then the job's wait, its attempts and its retry counts stay as they
    /// are. Only with `Next`.
    pub partial: bool,
    /// The numbers of the signals that the step saw. The commit deletes them if the step makes progress.
    pub consumed: Vec<i64>,
    /// The signals that the attempt could not decode. The commit marks them, whatever the outcome; a wait continues as if they
    /// had not arrived.
    pub unreadable: Vec<UnreadableSignal>,
    /// Jobs to submit with the commit. Each has this job as its parent, and its end counts for this job's wait.
    pub children: Vec<NewJob>,
    /// Whether the end of each of these children is sent to this job as a signal ([`crate::wait::CHILD_SIGNAL`]) instead of being
    /// counted for its wait.
    pub signal_child_ends: bool,
    /// Updates of this job's branches. Children with a [`crate::BranchPosition`] belong to them: their ends are counted in the
    /// branch, and neither counted for the wait nor sent as signals.
    pub branches: Vec<BranchUpdate>,
    /// If this job is a block of a packed branch: how many of its items are done with this change.
    pub items: u32,
    /// If this job is a block: jobs of the same branch that replace the items they represent.
    pub promoted: Vec<NewJob>,
    /// Attempts that the block made at promoted items. Each becomes the first attempt of a promoted job with one item.
    pub first_attempts: Vec<FirstAttempt>,
    /// New journal entries, by sequence number.
    pub entries: Vec<JournalEntry>,
    /// The sequence numbers of journal entries that are no longer needed.
    pub forget_entries: Vec<i32>,
    /// Values of the context that have changed.
    pub context: Vec<(String, Payload)>,
    /// Whether the job continues as new: its journal is deleted before `entries` are added. Only with `stage`, whose data is the
    /// new input.
    pub continue_as_new: bool,
    /// Whether the job has something to undo from now on. A cancel or its deadline must then unwind it instead of ending it.
    pub has_undo: bool,
    /// The job is being unwound from now on, and ends like this afterwards. Until then nothing ends or holds it: the commit
    /// deletes its deadline, a pause and a cancel request.
    pub unwind: Option<Box<Unwind>>,
}

impl StepWrites {
    /// Returns the promoted jobs with a first attempt. The store puts them where that attempt leads, not into the ready set.
    pub fn attempted_jobs(&self) -> HashSet<JobId> {
        self.first_attempts.iter().map(|attempt| attempt.job).collect()
    }
}

/// An attempt that a block made at an item before the item was promoted.
#[derive(Clone, PartialEq, Debug)]
pub struct FirstAttempt {
    /// The job that the item becomes.
    pub job: JobId,
    /// When the attempt started, by the worker's clock.
    pub started_at: Time,
    /// How it ended: with a retry, a failure or a cancel.
    pub outcome: Outcome,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BranchNo, BranchPosition};

    fn job(number: u32) -> NewJob {
        NewJob::new(JobId::from_parts(1, number, 1), "k", "q", Payload::default())
    }

    fn change(outcome: Outcome, step: Option<StepWrites>) -> Change {
        let claimed = job(1).claimed_at_submit(ClaimNo(1), Epoch(0), Time(0));
        let change = Change::new(&claimed, WorkerId(1), Time(0), outcome);
        Change { rev: Rev(4), writes: step.map(Box::new), ..change }
    }

    #[test]
    fn a_step_is_unchanged_only_if_it_says_so_and_a_part_of_an_attempt_never() {
        let unchanged = |step| change(Outcome::Next, step).stage_unchanged();
        assert_eq!(unchanged(None), Some(false));
        assert_eq!(unchanged(Some(StepWrites::default())), Some(false));
        assert_eq!(unchanged(Some(StepWrites { unchanged: true, ..StepWrites::default() })), Some(true));
        let partial = StepWrites { partial: true, unchanged: true, ..StepWrites::default() };
        assert_eq!(unchanged(Some(partial)), None);
    }

    #[test]
    fn a_change_submits_its_children_and_what_it_promotes() {
        let step =
            StepWrites { children: vec![job(2), job(3)], promoted: vec![job(4)], ..StepWrites::default() };
        let change = change(Outcome::Next, Some(step));
        let ids: Vec<JobId> = change.submitted_jobs().map(|job| job.id).collect();
        assert_eq!(ids, [job(2).id, job(3).id, job(4).id]);
    }

    #[test]
    fn the_end_of_a_child_is_counted_by_the_wait_or_by_a_branch_or_is_a_signal() {
        let counted = change(Outcome::Next, Some(StepWrites::default())).child(&job(2));
        assert_eq!((counted.parent, counted.parent_rev), (Some(job(1).id), Some(Rev(5))));
        let step = StepWrites { signal_child_ends: true, ..StepWrites::default() };
        let signalling = change(Outcome::Next, Some(step));
        assert_eq!(signalling.child(&job(2)).parent_rev, Some(Rev::SIGNALLED));
        let position = BranchPosition { branch: BranchNo(1), spawn: 0, item: String::new(), items: 1 };
        let in_branch = NewJob { branch_position: Some(Box::new(position)), ..job(2) };
        let child = signalling.child(&in_branch);
        assert_eq!((child.parent, child.parent_rev), (Some(job(1).id), None));
    }
}
