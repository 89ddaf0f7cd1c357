//! What is submitted, what a worker is handed, what a submitter is told.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    BranchMember, BranchPosition, ClaimNo, Epoch, JobId, NewSignal, RateCharge, Retry, Rev, Serial, Signal,
    Time, Unique, Unwind, WaitCondition, WorkerId,
};

/// Bytes with the number of the codec that wrote them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Payload {
    /// Which codec wrote the bytes; 0 is plain JSON.
    pub codec: u8,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Payload {
    /// Plain JSON text.
    pub fn json(bytes: Vec<u8>) -> Payload {
        Payload { codec: 0, bytes }
    }
}

/// Which code runs a job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct KindVersion {
    /// The kind's name.
    pub kind: String,
    /// Its version.
    pub version: i32,
}

/// When a job is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// At once, by the store's clock.
    #[default]
    Now,
    /// So long after the submit, by the store's clock.
    After(Duration),
    /// At this moment; in the past means at once.
    At(Time),
}

/// What was given with one job: policies that win over those of its kind, and its trace.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// When to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long one attempt may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Of jobs with this name only one at a time is in the states named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Box<Unique>>,
    /// Jobs with this key run one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<Box<Serial>>,
    /// Starts of jobs under this limit are spread over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Box<RateCharge>>,
    /// The tick of the schedule that submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Time>,
    /// The trace it is part of, as a W3C `traceparent`; see [`crate::trace`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Settings {
    /// Whether nothing was set.
    pub fn is_default(&self) -> bool {
        *self == Settings::default()
    }

    /// Whether rows beside the job's own hang on what becomes of it.
    pub fn is_serial(&self) -> bool {
        self.serial.is_some()
    }
}

/// A job as it is submitted. Check it with [`crate::Limits::check`] first; the stores do.
#[derive(Clone, PartialEq, Debug)]
pub struct NewJob {
    /// Made by the submitter; a repeat of the same submit carries the same id.
    pub id: JobId,
    /// Which code runs it.
    pub kind: KindVersion,
    /// The line it waits in.
    pub queue: String,
    /// A name of the caller's choice, unique per kind until the job is pruned.
    pub key: Option<String>,
    /// See [`crate::rank`].
    pub priority: i16,
    /// When it is due.
    pub when: When,
    /// When it fails if it has not ended.
    pub deadline_at: Option<Time>,
    /// The job that submitted it and has not ended without it.
    pub parent: Option<JobId>,
    /// Which wait of its parent its end counts for: the revision that the parent's change made. Only jobs that a commit
    /// submits have one. [`Rev::TOLD`] if the parent is told by a signal instead.
    pub parent_rev: Option<Rev>,
    /// What makes it a child of a branch of its parent. Only jobs that a commit submits have one.
    pub branch_position: Option<Box<BranchPosition>>,
    /// The stage it starts in, if it is a machine.
    pub stage: Option<String>,
    /// Signals that are in its inbox from the start.
    pub signals: Vec<NewSignal>,
    /// Words people search by.
    pub tags: Vec<String>,
    /// Free JSON text kept with the job and never interpreted.
    pub options: Option<String>,
    /// Policies of this job alone.
    pub settings: Settings,
    /// The encoded input.
    pub input: Payload,
    /// What tells this input from others; see [`digest`].
    pub digest: [u8; 16],
}

impl NewJob {
    /// How many bytes of payload it carries.
    pub fn bytes(&self) -> usize {
        let signals = self.signals.iter().map(|signal| signal.payload.bytes.len());
        self.input.bytes.len() + signals.sum::<usize>()
    }

    /// A job with nothing set but the kind, the queue and the input.
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
}

impl NewJob {
    /// The job as the worker is handed it that has it claimed as it is submitted.
    pub fn claimed_at_submit(&self, claim: ClaimNo, epoch: Epoch, now: Time) -> ClaimedJob {
        ClaimedJob {
            id: self.id,
            kind: self.kind.clone(),
            claim,
            epoch,
            rev: Rev(0),
            attempts: 0,
            retry_counts: Vec::new(),
            deaths: 0,
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
        }
    }

    /// Whether it needs more than its own row and a place: it is put in by a longer way, and never born claimed.
    pub fn needs_slow_path(&self) -> bool {
        let settings = &self.settings;
        settings.unique.is_some()
            || settings.serial.is_some()
            || settings.rate.is_some()
            || (self.parent.is_some() && self.branch_position.is_none())
            || !self.signals.is_empty()
    }
}

/// What tells one input from another: 128 bits of a hash over kind and plain input.
pub fn digest(kind: &str, input: &Payload) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_bytes());
    hasher.update(&[0, input.codec]);
    hasher.update(&input.bytes);
    let mut digest = [0; 16];
    digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    digest
}

/// What became of one submitted job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitOutcome {
    /// It is in.
    New {
        /// The epoch under which the submitting worker has it claimed, if it was born claimed.
        claimed: Option<Epoch>,
    },
    /// This very submit was made before: same id, same input. Nothing was written.
    Repeated,
    /// A job with this key (and kind) is there already. Nothing was written.
    Existing {
        /// That job.
        id: JobId,
        /// Whether its input is the same.
        same_input: bool,
    },
    /// It is in, in place of the job that had its unique name, which is cancelled.
    Replaced {
        /// That job.
        id: JobId,
    },
    /// A job has its unique name and the submit said to reject it then, or to replace what it cannot replace
    /// because it runs. Nothing was written.
    Rejected {
        /// That job.
        id: JobId,
    },
    /// Another job has this id. Nothing was written; make a new id and submit again.
    IdTaken,
}

impl ClaimedJob {
    /// The same job after a step that made this revision and went on to another stage, under the same claim. Its input is left out: the data
    /// of the stage has taken its place.
    pub fn after_step(&self, rev: Rev, stage: String, data: Payload, unchanged: bool) -> ClaimedJob {
        ClaimedJob {
            id: self.id,
            kind: self.kind.clone(),
            claim: self.claim,
            epoch: self.epoch,
            rev,
            attempts: if unchanged { self.attempts + 1 } else { 0 },
            retry_counts: Vec::new(),
            deaths: 0,
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
        }
    }

    /// Whether what it waited for has come.
    pub fn wait_is_met(&self) -> bool {
        let there = self.inbox.iter().filter(|signal| signal.unreadable.is_none());
        let names = there.map(|signal| signal.name.as_str());
        self.wait.as_ref().is_none_or(|wait| wait.is_met(names, self.pending_children))
    }

    /// The signals that a step is shown.
    pub fn visible_signals(&self) -> Vec<&Signal> {
        let places = self.wait.as_ref().map(|wait| wait.select_signals(&self.inbox)).unwrap_or_default();
        places.into_iter().map(|place| &self.inbox[place]).collect()
    }
}

/// A job that a worker holds, and under which of its claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobClaim {
    /// Who holds it.
    pub worker: WorkerId,
    /// The number of the claim that took it.
    pub claim: ClaimNo,
    /// The job.
    pub job: JobId,
    /// The claim's epoch.
    pub epoch: Epoch,
}

/// A job as a worker is handed it.
#[derive(Clone, PartialEq, Debug)]
pub struct ClaimedJob {
    /// The job.
    pub id: JobId,
    /// Which code runs it.
    pub kind: KindVersion,
    /// The number of the claim that took it; every write names it.
    pub claim: ClaimNo,
    /// The claim's epoch; every write names it.
    pub epoch: Epoch,
    /// The revision that the next change follows.
    pub rev: Rev,
    /// Attempts that have failed so far.
    pub attempts: u32,
    /// How much of each retry rule's budget is used.
    pub retry_counts: Vec<u32>,
    /// Deaths of workers that had it claimed.
    pub deaths: u16,
    /// The caller's name for it.
    pub key: Option<String>,
    /// When it became due.
    pub due_at: Time,
    /// When it fails if it has not ended.
    pub deadline_at: Option<Time>,
    /// Policies of this job alone.
    pub settings: Settings,
    /// The encoded input.
    pub input: Payload,
    /// The job whose wait for its children this job's end counts for.
    pub parent: Option<JobId>,
    /// The branch that this job's end counts for.
    pub branch_member: Option<BranchMember>,
    /// The stage it is in, if it is a machine.
    pub stage: Option<String>,
    /// The revision that led to that stage: it names the step, whichever attempt at it this is.
    pub stage_rev: Rev,
    /// How many steps it has made since it last waited.
    pub steps_since_wait: u32,
    /// The data of that stage; `None` while it is in the stage it was submitted in, whose data is its input.
    pub data: Option<Payload>,
    /// What it was parked for when it last made progress.
    pub wait: Option<WaitCondition>,
    /// When that wait is over whatever has come.
    pub wait_until: Option<Time>,
    /// How many children it waits for still.
    pub pending_children: u32,
    /// The signals in its inbox that it waits for, oldest first: of each name the oldest, or all of them if the wait says so.
    pub inbox: Vec<Signal>,
    /// How it ends once its undos have run, if it is being unwound.
    pub unwind: Option<Box<Unwind>>,
}
