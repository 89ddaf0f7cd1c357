//! A job as it is submitted and as it is claimed.
//!
//! [`NewJob`] is the only form in which a job enters a store, whoever submits it: a program, a schedule, or the commit of its
//! parent. [`ClaimedJob`] is all that an attempt knows of its job.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    BranchMember, BranchPosition, ClaimNo, Epoch, JobId, NewSignal, RateCharge, Retry, Rev, Serial, Signal,
    Time, Unique, Unwind, WaitCondition, WorkerId,
};

/// Encoded bytes with the number of the codec that wrote them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Payload {
    /// Which codec wrote the bytes; 0 is plain JSON.
    pub codec: u8,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Payload {
    /// Makes a payload of plain JSON text.
    pub fn json(bytes: Vec<u8>) -> Payload {
        Payload { codec: 0, bytes }
    }
}

/// Which code runs a job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct KindVersion {
    /// The kind's name.
    pub kind: String,
    /// Its version, counted from 1.
    pub version: i32,
}

/// When a job is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// At once, by the store's clock.
    #[default]
    Now,
    /// This long after the submit, by the store's clock.
    After(Duration),
    /// At this time; a time in the past means at once.
    At(Time),
}

impl When {
    /// Returns when a job is due that is submitted now.
    pub fn due_at(self, now: Time) -> Time {
        match self {
            When::Now => now,
            When::After(delay) => now + delay,
            When::At(at) => at.max(now),
        }
    }
}

/// Settings of one job. A policy set here overrides the one of the job's kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// When failed attempts are repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long one attempt may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Its unique name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Box<Unique>>,
    /// Its serial key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<Box<Serial>>,
    /// The rate limit that pays for its starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Box<RateCharge>>,
    /// The tick for which a schedule submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Time>,
    /// The trace it is part of, as a W3C `traceparent`; see [`crate::trace`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Settings {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Settings::default()
    }

    /// Whether the job has a serial key, so that its end must free a slot of the key.
    pub fn is_serial(&self) -> bool {
        self.serial.is_some()
    }
}

/// A job as it is submitted. Every store checks it with [`crate::Limits::check`].
#[derive(Clone, PartialEq, Debug)]
pub struct NewJob {
    /// Made by the submitter. A repeat of the same submit has the same id.
    pub id: JobId,
    /// Which code runs it.
    pub kind: KindVersion,
    /// Its queue.
    pub queue: String,
    /// The caller's own name for it, unique within its kind until the job is pruned.
    pub key: Option<String>,
    /// See [`crate::rank`].
    pub priority: i16,
    /// When it is due.
    pub when: When,
    /// When it fails if it has not ended.
    pub deadline_at: Option<Time>,
    /// The job that submitted it.
    pub parent: Option<JobId>,
    /// The parent's revision whose wait counts this child's end, or [`Rev::SIGNALLED`] if its end is sent to the parent as a signal.
    /// The store sets it for children that a commit submits; nobody else may.
    pub parent_rev: Option<Rev>,
    /// Its position in a branch of its parent. Only children that a commit submits have one.
    pub branch_position: Option<Box<BranchPosition>>,
    /// The stage it starts in, if it is a machine.
    pub stage: Option<String>,
    /// The signals that its inbox holds from the start.
    pub signals: Vec<NewSignal>,
    /// Words that people search by.
    pub tags: Vec<String>,
    /// JSON text of the caller, kept with the job and never interpreted.
    pub options: Option<String>,
    /// Settings of this job alone.
    pub settings: Settings,
    /// The encoded input.
    pub input: Payload,
    /// Distinguishes this input from others; see [`digest`].
    pub digest: [u8; 16],
}

impl NewJob {
    /// Makes a job with nothing set but the kind (version 1), the queue and the input.
    pub fn new(id: JobId, kind: &str, queue: &str, input: Payload) -> NewJob {
        let digest = digest(kind, &input);
        NewJob {
            id,
            kind: KindVersion { kind: kind.to_owned(), version: 1 },
            queue: queue.to_owned(),
            key: None,
            priority: 0,
            when: When::Now,
            deadline_at: None,
            parent: None,
            parent_rev: None,
            branch_position: None,
            stage: None,
            signals: Vec::new(),
            tags: Vec::new(),
            options: None,
            settings: Settings::default(),
            input,
            digest,
        }
    }

    /// Returns the parent whose wait counts its end, and the revision that waits for it; `None` if it has no parent, its end is sent
    /// as a signal, or its branch counts it.
    pub fn counting_parent(&self) -> Option<(JobId, Rev)> {
        let parent_rev = self.parent_rev.filter(|parent_rev| *parent_rev != Rev::SIGNALLED);
        self.parent.zip(parent_rev)
    }

    /// Returns the number of payload bytes.
    pub fn bytes(&self) -> usize {
        let signals = self.signals.iter().map(|signal| signal.payload.bytes.len());
        self.input.bytes.len() + signals.sum::<usize>()
    }

    /// Whether inserting it takes more than its own row and its place in the ready set or among the timers. Stores insert such
    /// a job by a slower path and never let the submitting worker claim it at submit.
    pub fn needs_slow_path(&self) -> bool {
        let settings = &self.settings;
        settings.unique.is_some()
            || settings.serial.is_some()
            || settings.rate.is_some()
            || (self.parent.is_some() && self.branch_position.is_none())
            || !self.signals.is_empty()
    }

    /// Returns the job as the submitting worker receives it if it claims the job in the submit itself.
    pub fn claimed_at_submit(&self, claim: ClaimNo, epoch: Epoch, now: Time) -> ClaimedJob {
        ClaimedJob {
            id: self.id,
            kind: self.kind.clone(),
            claim,
            epoch,
            rev: Rev(0),
            attempts: 0,
            retry_counts: Vec::new(),
            worker_deaths: 0,
            key: self.key.clone(),
            due_at: now,
            deadline_at: self.deadline_at,
            settings: self.settings.clone(),
            input: self.input.clone(),
            parent: None,
            branch_member: None,
            stage: self.stage.clone(),
            stage_rev: Rev(0),
            steps_since_wait: 0,
            data: None,
            wait: None,
            wait_until: None,
            pending_children: 0,
            inbox: Vec::new(),
            unwind: None,
            fault: None,
        }
    }
}

/// Returns the deadline of a job that is retried by hand now: as far away as it was at its submit.
pub fn deadline_after_revival(deadline_at: Time, submitted_at: Time, now: Time) -> Time {
    now + (deadline_at - submitted_at)
}

/// Returns 128 bits of a hash over the kind and the plain input, by which a store tells whether two inputs are the same.
pub fn digest(kind: &str, input: &Payload) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_bytes());
    hasher.update(&[0, input.codec]);
    hasher.update(&input.bytes);
    let mut digest = [0; 16];
    digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    digest
}

/// One claimed job and the claim it is in, as a worker names it to the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobClaim {
    /// The worker that claimed it.
    pub worker: WorkerId,
    /// The number of the claim.
    pub claim: ClaimNo,
    /// The job.
    pub job: JobId,
    /// The claim's epoch.
    pub epoch: Epoch,
}

/// A job as a worker receives it from a claim.
#[derive(Clone, PartialEq, Debug)]
pub struct ClaimedJob {
    /// The job.
    pub id: JobId,
    /// Which code runs it.
    pub kind: KindVersion,
    /// The number of the claim. Every write names it.
    pub claim: ClaimNo,
    /// The claim's epoch. Every write names it.
    pub epoch: Epoch,
    /// The revision that the next change follows.
    pub rev: Rev,
    /// How many attempts have failed since the job last made progress.
    pub attempts: u32,
    /// How often each rule of the retry policy was used since then.
    pub retry_counts: Vec<u32>,
    /// How many workers died while they had it claimed.
    pub worker_deaths: u16,
    /// The caller's own name for it.
    pub key: Option<String>,
    /// When it became due.
    pub due_at: Time,
    /// When it fails if it has not ended.
    pub deadline_at: Option<Time>,
    /// Settings of this job alone.
    pub settings: Settings,
    /// The encoded input.
    pub input: Payload,
    /// The parent, if its wait for children counts this job's end.
    pub parent: Option<JobId>,
    /// The branch that counts this job's end.
    pub branch_member: Option<BranchMember>,
    /// The stage it is in, if it is a machine.
    pub stage: Option<String>,
    /// The revision that led to that stage. It identifies the step, whichever attempt at it this is.
    pub stage_rev: Rev,
    /// How many steps it has made since it last waited.
    pub steps_since_wait: u32,
    /// The data of the stage; `None` in the stage it was submitted in, whose data is the input.
    pub data: Option<Payload>,
    /// What it was parked for when it last made progress.
    pub wait: Option<WaitCondition>,
    /// When that wait times out.
    pub wait_until: Option<Time>,
    /// How many of the children it waits for have not ended.
    pub pending_children: u32,
    /// The signals in its inbox that it waits for, oldest first: of each name the oldest, or all if the wait asks for all.
    pub inbox: Vec<Signal>,
    /// How it ends once its undos have run, if it is being unwound.
    pub unwind: Option<Box<Unwind>>,
    /// Which of its columns cannot be decoded, and why. Such a job must not run: it would run without its own settings, its wait or
    /// its end.
    pub fault: Option<Box<str>>,
}

impl ClaimedJob {
    /// Returns the job as it is after a committed step that made `rev` and moved it to `stage` under the same claim. Its input
    /// is empty: the data of the stage replaces it.
    pub fn after_step(&self, rev: Rev, stage: String, data: Payload, unchanged: bool) -> ClaimedJob {
        ClaimedJob {
            id: self.id,
            kind: self.kind.clone(),
            claim: self.claim,
            epoch: self.epoch,
            rev,
            attempts: if unchanged { self.attempts + 1 } else { 0 },
            retry_counts: Vec::new(),
            worker_deaths: 0,
            key: self.key.clone(),
            due_at: self.due_at,
            deadline_at: self.deadline_at,
            settings: self.settings.clone(),
            input: Payload::default(),
            parent: self.parent,
            branch_member: self.branch_member,
            stage: Some(stage),
            stage_rev: rev,
            steps_since_wait: self.steps_since_wait + 1,
            data: Some(data),
            wait: None,
            wait_until: None,
            pending_children: 0,
            inbox: Vec::new(),
            unwind: None,
            fault: None,
        }
    }

    /// Whether what it waited for has happened.
    pub fn wait_is_met(&self) -> bool {
        let readable = self.inbox.iter().filter(|signal| signal.unreadable.is_none());
        let names = readable.map(|signal| signal.name.as_str());
        self.wait.as_ref().is_none_or(|wait| wait.is_met(names, self.pending_children))
    }

    /// Returns the signals that the next step sees.
    pub fn visible_signals(&self) -> Vec<&Signal> {
        let indexes = self.wait.as_ref().map(|wait| wait.select_signals(&self.inbox)).unwrap_or_default();
        indexes.into_iter().map(|index| &self.inbox[index]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u32) -> NewJob {
        let input = Payload::json(number.to_string().into_bytes());
        NewJob::new(JobId::from_parts(1, number, 1), "k", "q", input)
    }

    #[test]
    fn a_job_is_never_due_before_its_submit() {
        let now = Time(1_000_000);
        assert_eq!(When::Now.due_at(now), now);
        assert_eq!(When::After(Duration::from_secs(2)).due_at(now), Time(3_000_000));
        assert_eq!(When::At(Time(5_000_000)).due_at(now), Time(5_000_000));
        assert_eq!(When::At(Time(5)).due_at(now), now, "a time in the past means at once");
    }

    #[test]
    fn a_wait_counts_children_that_neither_signal_their_end_nor_are_in_a_branch() {
        let parent = job(9).id;
        let child = |parent_rev| NewJob { parent: Some(parent), parent_rev, ..job(1) };
        assert_eq!(child(Some(Rev(4))).counting_parent(), Some((parent, Rev(4))));
        assert_eq!(child(Some(Rev::SIGNALLED)).counting_parent(), None);
        assert_eq!(child(None).counting_parent(), None, "its branch counts it");
        assert_eq!(job(1).counting_parent(), None);
    }

    #[test]
    fn a_revival_moves_the_deadline_with_it() {
        assert_eq!(deadline_after_revival(Time(500), Time(200), Time(1_000)), Time(1_300));
        assert_eq!(
            deadline_after_revival(Time(100), Time(200), Time(1_000)),
            Time(1_000),
            "it was past at once"
        );
    }
}
