//! Schedules: a job submitted at each tick of a calendar.
//!
//! A tick fires once, however many workers fire timers: the id of its job is derived from the schedule's name and the tick, and
//! the store advances the schedule in the transaction that submits the job.

use serde::{Deserialize, Serialize};

use crate::{
    Calendar, Invalid, JobId, KindVersion, Limits, NewJob, Payload, Serial, Settings, Time, When,
    calendar::{CatchUp, Overlap},
    job::digest,
    limits,
};

/// A calendar, and the job to submit at each of its ticks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// Its name, unique in the store.
    pub name: String,
    /// When it ticks.
    pub calendar: Calendar,
    /// What happens to a tick while the job of the previous tick has not ended.
    #[serde(default)]
    pub overlap: Overlap,
    /// What happens to ticks that passed while no worker was running.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// Which code runs its jobs.
    pub kind: KindVersion,
    /// The queue of its jobs.
    pub queue: String,
    /// Their priority.
    #[serde(default)]
    pub priority: i16,
    /// Their tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Their settings.
    #[serde(default)]
    pub settings: Settings,
    /// The stage they start in, if they are machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Their encoded input. Stores keep it in a column of its own.
    #[serde(skip)]
    pub input: Payload,
}

impl Schedule {
    /// Makes a schedule of jobs in the queue `default`, with nothing else set.
    pub fn new(name: impl Into<String>, calendar: Calendar, kind: KindVersion, input: Payload) -> Schedule {
        Schedule {
            name: name.into(),
            calendar,
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            kind,
            queue: "default".into(),
            priority: 0,
            tags: Vec::new(),
            settings: Settings::default(),
            stage: None,
            input,
        }
    }

    /// Checks its name and the job it would submit.
    pub fn check(&self, limits: &Limits) -> Result<(), Invalid> {
        limits::check_name("schedule", &self.name)?;
        if self.overlap == Overlap::Queue && self.settings.serial.is_some() {
            let hint = "leave the key out, or use another overlap policy";
            let why = "has a serial key of its own, and the overlap policy `queue` sets one";
            return Err(limits::invalid(format!("the schedule {:?}", self.name), why, hint));
        }
        // The key that `queue` adds has the reserved prefix, which the check would refuse.
        let without_key = Schedule { overlap: Overlap::Allow, ..self.clone() };
        limits.check(&without_key.job(Time(0)))
    }

    /// Returns the job of a tick.
    pub fn job(&self, tick: Time) -> NewJob {
        let mut settings = self.settings.clone();
        settings.tick = Some(tick);
        if self.overlap == Overlap::Queue {
            settings.serial = Some(Box::new(Serial::new(self.serial_key())));
        }
        NewJob {
            id: self.job_id(tick),
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            key: None,
            priority: self.priority,
            when: When::Now,
            deadline_at: None,
            parent: None,
            parent_rev: None,
            branch_position: None,
            stage: self.stage.clone(),
            signals: Vec::new(),
            tags: self.tags.clone(),
            options: None,
            settings,
            input: self.input.clone(),
            digest: digest(&self.kind.kind, &self.input),
        }
    }

    /// Returns the serial key by which jobs of this schedule wait for each other.
    pub fn serial_key(&self) -> String {
        format!("{}schedule/{}", limits::RESERVED_PREFIX, self.name)
    }

    fn job_id(&self, tick: Time) -> JobId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.name.as_bytes());
        hasher.update(&tick.micros().to_be_bytes());
        let hash = hasher.finalize();
        let bytes = hash.as_bytes();
        let counter = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        let random = u64::from_be_bytes(bytes[8..16].try_into().expect("eight bytes"));
        JobId::from_parts((tick.micros().max(0) / 1_000) as u64, counter, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Unit;

    fn schedule() -> Schedule {
        let kind = KindVersion { kind: "report".into(), version: 1 };
        let calendar = Calendar::every(1, Unit::Hours).expect("valid");
        Schedule::new("hourly", calendar, kind, Payload::json(b"1".to_vec()))
    }

    #[test]
    fn a_tick_always_has_the_same_job_and_every_tick_another() {
        let (one, two) = (Time(1_800_000_000_000_000), Time(1_800_003_600_000_000));
        assert_eq!(schedule().job(one), schedule().job(one));
        assert_ne!(schedule().job(one).id, schedule().job(two).id);
        let other = Schedule { name: "other".into(), ..schedule() };
        assert_ne!(schedule().job(one).id, other.job(one).id);
        assert_eq!(schedule().job(one).settings.tick, Some(one));
    }

    #[test]
    fn faults_are_refused_and_a_schedule_serializes_without_its_input() {
        let limits = Limits::default();
        assert_eq!(schedule().check(&limits), Ok(()));
        let queued = Schedule { overlap: Overlap::Queue, ..schedule() };
        assert_eq!(queued.check(&limits), Ok(()));
        let mut keyed = queued.clone();
        keyed.settings.serial = Some(Box::new(Serial::new("a")));
        assert!(keyed.check(&limits).unwrap_err().to_string().contains("serial key of its own"));
        let bad = Schedule { name: "a b".into(), ..schedule() };
        assert!(bad.check(&limits).unwrap_err().to_string().contains("schedule"));
        let text = serde_json::to_string(&queued).expect("plain data");
        let back: Schedule = serde_json::from_str(&text).expect("as written");
        assert_eq!(Schedule { input: queued.input.clone(), ..back }, queued);
    }
}
