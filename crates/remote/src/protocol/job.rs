//! Jobs as they are submitted, and as they are claimed.

use serde::{Deserialize, Serialize};
use windlass_model::{
    BranchMember, BranchNo, BranchPosition, ClaimNo, ClaimedJob, Epoch, JobId, KindVersion, NewJob,
    NewSignal, Rev, Time, When, job::digest,
};

use super::{
    payload::WirePayload,
    schema::described,
    shared::{answer, is_default, request},
    spans::Millis,
};

const fn first_version() -> i32 {
    1
}

const fn is_first_version(version: &i32) -> bool {
    *version == 1
}

described! {
    /// A job to be submitted: by a submit, or by the commit of its parent. Into [`NewJob`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Job {
        /// Its id, which the client draws.
        pub id: JobId,
        /// Its kind.
        pub kind: String,
        /// The version of the kind.
        #[serde(default = "first_version", skip_serializing_if = "is_first_version")]
        pub version: i32,
        /// Its queue.
        pub queue: String,
        /// Its key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
        /// From -100, most urgent, to 100.
        #[serde(default, skip_serializing_if = "is_default")]
        pub priority: i16,
        /// It is due this long after the submit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub delay_ms: Option<Millis>,
        /// It is due at this time. Not with `delay_ms`; without both it is due at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub due_at: Option<Time>,
        /// When it fails if it has not ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deadline_at: Option<Time>,
        /// The job that submitted it. Not of children in a commit, whose parent is the job of the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent: Option<JobId>,
        /// Of a child in a commit: its end is reported to nobody.
        #[serde(default, skip_serializing_if = "is_default")]
        pub detached: bool,
        /// Of a child in a commit: its position in a branch of its parent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub branch: Option<Box<Position>>,
        /// The stage it starts in, if it is a machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub stage: Option<String>,
        /// The signals in its inbox from the start.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub signals: Vec<FirstSignal>,
        /// Words to find it by.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub tags: Vec<String>,
        /// JSON text of the caller's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub options: Option<String>,
        /// How long one attempt may run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timeout_ms: Option<Millis>,
        /// When failed attempts are repeated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retry: Option<Vec<request::RetryRule>>,
        /// Its unique name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unique: Option<Box<request::Unique>>,
        /// Its serial key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub serial: Option<Box<request::Serial>>,
        /// The rate limit that it starts under.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rate: Option<Box<request::Rate>>,
        /// The tick of the schedule that it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tick: Option<Time>,
        /// The W3C trace that it is part of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub trace: Option<String>,
        /// Its input.
        pub input: WirePayload,
        /// 32 hexadecimal digits that distinguish this input from others, of a client that encodes inputs; without it the server makes one
        /// of the kind and the input.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub digest: Option<String>,
    }
}

described! {
    /// The position of a child in a branch; see [`BranchPosition`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Position {
        /// The number of the branch.
        pub number: BranchNo,
        /// The index of the spawn's name in the branch.
        #[serde(default, skip_serializing_if = "is_default")]
        pub spawn: i16,
        /// Which item of the spawn's source it is.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub item: String,
        /// How many items it represents.
        #[serde(default = "one_item", skip_serializing_if = "is_one_item")]
        pub items: u32,
    }
}

const fn one_item() -> u32 {
    1
}

const fn is_one_item(items: &u32) -> bool {
    *items == 1
}

described! {
    /// A signal that a job has in its inbox from the start.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct FirstSignal {
        /// Its name.
        pub name: String,
        /// Its dedup id.
        pub dedup: String,
        /// The message.
        pub payload: WirePayload,
    }
}

impl From<NewJob> for Job {
    fn from(job: NewJob) -> Job {
        let settings = request::SettingsFields::of(job.settings);
        let (delay_ms, due_at) = match job.when {
            When::Now => (None, None),
            When::After(delay) => (Some(Millis(delay)), None),
            When::At(at) => (None, Some(at)),
        };
        let position = |position: Box<BranchPosition>| {
            let BranchPosition { branch, spawn, item, items } = *position;
            Box::new(Position { number: branch, spawn, item, items })
        };
        let signal = |signal: NewSignal| FirstSignal {
            name: signal.name,
            dedup: signal.dedup,
            payload: signal.payload.into(),
        };
        let own_digest = digest(&job.kind.kind, &job.input);
        Job {
            id: job.id,
            kind: job.kind.kind,
            version: job.kind.version,
            queue: job.queue,
            key: job.key,
            priority: job.priority,
            delay_ms,
            due_at,
            deadline_at: job.deadline_at,
            parent: job.parent,
            detached: job.parent_rev == Some(Rev::DETACHED),
            branch: job.branch_position.map(position),
            stage: job.stage,
            signals: job.signals.into_iter().map(signal).collect(),
            tags: job.tags,
            options: job.options,
            timeout_ms: settings.timeout_ms,
            retry: settings.retry,
            unique: settings.unique,
            serial: settings.serial,
            rate: settings.rate,
            tick: settings.tick,
            trace: settings.trace,
            digest: (own_digest != job.digest).then(|| hex(job.digest)),
            input: job.input.into(),
        }
    }
}

impl TryFrom<Job> for NewJob {
    type Error = String;

    fn try_from(job: Job) -> Result<NewJob, String> {
        let when = match (job.delay_ms, job.due_at) {
            (None, None) => When::Now,
            (Some(delay), None) => When::After(delay.0),
            (None, Some(at)) => When::At(at),
            (Some(_), Some(_)) => {
                return Err(format!("the job {} has `delay_ms` and `due_at`; give one of them", job.id));
            }
        };
        let settings = request::SettingsFields {
            timeout_ms: job.timeout_ms,
            retry: job.retry,
            unique: job.unique,
            serial: job.serial,
            rate: job.rate,
            tick: job.tick,
            trace: job.trace,
        };
        let position = |position: Box<Position>| {
            let Position { number, spawn, item, items } = *position;
            Box::new(BranchPosition { branch: number, spawn, item, items })
        };
        let id = job.id;
        let signal = |signal: FirstSignal| NewSignal {
            job: id,
            name: signal.name,
            dedup: signal.dedup,
            payload: signal.payload.into(),
        };
        let input = job.input.into();
        let digest = match job.digest {
            None => digest(&job.kind, &input),
            Some(text) => {
                unhex(&text).ok_or_else(|| format!("the digest {text:?} has not 32 hexadecimal digits"))?
            }
        };
        Ok(NewJob {
            id,
            kind: KindVersion { kind: job.kind, version: job.version },
            queue: job.queue,
            key: job.key,
            priority: job.priority,
            when,
            deadline_at: job.deadline_at,
            parent: job.parent,
            parent_rev: job.detached.then_some(Rev::DETACHED),
            branch_position: job.branch.map(position),
            stage: job.stage,
            signals: job.signals.into_iter().map(signal).collect(),
            tags: job.tags,
            options: job.options,
            settings: settings.into_settings(),
            input,
            digest,
        })
    }
}

fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_hex).map(u128::to_be_bytes)
}

described! {
    /// A job as a claim returns it. Made from [`ClaimedJob`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct Claimed {
        /// The job.
        pub id: JobId,
        /// Its kind.
        pub kind: String,
        /// The version of the kind.
        #[serde(default = "first_version")]
        pub version: i32,
        /// The number of the claim that took it; every write names it.
        pub claim: ClaimNo,
        /// The epoch of the claim; every write names it.
        pub epoch: Epoch,
        /// The revision that the first change follows.
        pub rev: Rev,
        /// Failed attempts since it last made progress.
        #[serde(default)]
        pub attempts: u32,
        /// How often each rule of its retry policy was used since then.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub retry_counts: Vec<u32>,
        /// How many workers died while they had it claimed.
        #[serde(default, skip_serializing_if = "is_default")]
        pub worker_deaths: u16,
        /// Its key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
        /// When it became due.
        pub due_at: Time,
        /// When it fails if it has not ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deadline_at: Option<Time>,
        /// How long one attempt may run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timeout_ms: Option<Millis>,
        /// Its own retry policy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retry: Option<Vec<answer::RetryRule>>,
        /// Its unique name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unique: Option<Box<answer::Unique>>,
        /// Its serial key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub serial: Option<Box<answer::Serial>>,
        /// The rate limit that it started under.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rate: Option<Box<answer::Rate>>,
        /// The tick of the schedule that it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tick: Option<Time>,
        /// The W3C trace that it is part of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub trace: Option<String>,
        /// Its input.
        pub input: WirePayload,
        /// The parent, if its wait for children counts this job's end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent: Option<JobId>,
        /// The branch that counts its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub branch: Option<Member>,
        /// The stage that it is in, if it is a machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub stage: Option<String>,
        /// The revision that led to the stage.
        #[serde(default, skip_serializing_if = "is_default")]
        pub stage_rev: Rev,
        /// Steps since it last waited.
        #[serde(default, skip_serializing_if = "is_default")]
        pub steps: u32,
        /// The data of the stage; without it the input is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub data: Option<WirePayload>,
        /// What it was parked for when it last made progress.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub wait: Option<answer::Wait>,
        /// When that wait times out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub wait_until: Option<Time>,
        /// How many of the children that it waits for have not ended.
        #[serde(default, skip_serializing_if = "is_default")]
        pub pending_children: u32,
        /// The signals that it waits for and that have arrived, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub inbox: Vec<Signal>,
        /// How it ends once its undos have run, if it is being unwound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unwind: Option<Box<answer::UnwindTo>>,
        /// What of it cannot be decoded, and why. Such a job must not run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fault: Option<Box<str>>,
    }
}

described! {
    /// The branch that counts a job's end; see [`BranchMember`].
    #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
    pub struct Member {
        /// The job that opened the branch.
        pub parent: JobId,
        /// The number of the branch.
        pub number: BranchNo,
        /// How many items the job represents that are not counted yet.
        pub items: u32,
    }
}

described! {
    /// A signal in an inbox; see [`windlass_model::Signal`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct Signal {
        /// Its number, which orders the signals of an inbox.
        pub number: i64,
        /// Its name.
        pub name: String,
        /// When it was delivered.
        pub at: Time,
        /// The message.
        pub payload: WirePayload,
        /// Why the job's code could not decode it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unreadable: Option<String>,
    }
}

impl From<windlass_model::Signal> for Signal {
    fn from(signal: windlass_model::Signal) -> Signal {
        let windlass_model::Signal { number, name, at, payload, unreadable } = signal;
        Signal { number, name, at, payload: payload.into(), unreadable }
    }
}

impl From<Signal> for windlass_model::Signal {
    fn from(signal: Signal) -> windlass_model::Signal {
        let Signal { number, name, at, payload, unreadable } = signal;
        windlass_model::Signal { number, name, at, payload: payload.into(), unreadable }
    }
}

impl From<ClaimedJob> for Claimed {
    fn from(job: ClaimedJob) -> Claimed {
        let settings = answer::SettingsFields::of(job.settings);
        let member = |BranchMember { parent, branch, items }| Member { parent, number: branch, items };
        Claimed {
            id: job.id,
            kind: job.kind.kind,
            version: job.kind.version,
            claim: job.claim,
            epoch: job.epoch,
            rev: job.rev,
            attempts: job.attempts,
            retry_counts: job.retry_counts,
            worker_deaths: job.worker_deaths,
            key: job.key,
            due_at: job.due_at,
            deadline_at: job.deadline_at,
            timeout_ms: settings.timeout_ms,
            retry: settings.retry,
            unique: settings.unique,
            serial: settings.serial,
            rate: settings.rate,
            tick: settings.tick,
            trace: settings.trace,
            input: job.input.into(),
            parent: job.parent,
            branch: job.branch_member.map(member),
            stage: job.stage,
            stage_rev: job.stage_rev,
            steps: job.steps_since_wait,
            data: job.data.map(WirePayload),
            wait: job.wait.map(Into::into),
            wait_until: job.wait_until,
            pending_children: job.pending_children,
            inbox: job.inbox.into_iter().map(Into::into).collect(),
            unwind: job.unwind.map(|unwind| Box::new((*unwind).into())),
            fault: job.fault,
        }
    }
}

impl TryFrom<Claimed> for ClaimedJob {
    type Error = &'static str;

    fn try_from(job: Claimed) -> Result<ClaimedJob, &'static str> {
        let settings = answer::SettingsFields {
            timeout_ms: job.timeout_ms,
            retry: job.retry,
            unique: job.unique,
            serial: job.serial,
            rate: job.rate,
            tick: job.tick,
            trace: job.trace,
        };
        let member = |Member { parent, number, items }| BranchMember { parent, branch: number, items };
        Ok(ClaimedJob {
            id: job.id,
            kind: KindVersion { kind: job.kind, version: job.version },
            claim: job.claim,
            epoch: job.epoch,
            rev: job.rev,
            attempts: job.attempts,
            retry_counts: job.retry_counts,
            worker_deaths: job.worker_deaths,
            key: job.key,
            due_at: job.due_at,
            deadline_at: job.deadline_at,
            settings: settings.into_settings(),
            input: job.input.into(),
            parent: job.parent,
            branch_member: job.branch.map(member),
            stage: job.stage,
            stage_rev: job.stage_rev,
            steps_since_wait: job.steps,
            data: job.data.map(Into::into),
            wait: job.wait.map(TryInto::try_into).transpose()?,
            wait_until: job.wait_until,
            pending_children: job.pending_children,
            inbox: job.inbox.into_iter().map(Into::into).collect(),
            unwind: job.unwind.map(|unwind| Box::new((*unwind).into())),
            fault: job.fault,
        })
    }
}
