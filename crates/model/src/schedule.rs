//! Schedules: a job submitted at each tick of a calendar.
//!
//! A tick fires once, however many workers fire timers: the id of its job is derived from the schedule's name and the tick, and
//! the store advances the schedule in the transaction that submits the job.

use serde::{Deserialize, Serialize};

use crate::{
    Calendar, Invalid, JobId, KindVersion, Limits, NewJob, Payload, Serial, Settings, Time, When,
    calendar::{CatchUp, Missed, Overlap, plan},
    job::digest,
    limits,
};

/// How many ticks of one schedule fire in one transaction: few enough to end soon. The next call fires the rest.
pub const MAX_TICKS: usize = 100;

/// Why ticks were missed, as it is stored: no worker was running.
pub const MISSED_WITHOUT_WORKER: &str = "no worker was running";

/// Why ticks were missed, as it is stored: their overlap policy is [`Overlap::Skip`].
pub const MISSED_BY_OVERLAP: &str = "the job before had not ended";

/// What a schedule does with the ticks that are due.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DueTicks {
    /// The ticks that fire, oldest first.
    pub fire: Vec<Time>,
    /// The ticks that are missed, and why.
    pub missed: Vec<(Missed, &'static str)>,
    /// The first tick that is not handled yet.
    pub next_at: Option<Time>,
}

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

    /// Decides what it does with its ticks from `next_at` up to now. `is_busy`: its last job has not ended.
    ///
    /// If its overlap policy is [`Overlap::Skip`], the first tick that fires blocks those after it, and its last job blocks all.
    pub fn due_ticks(&self, next_at: Time, now: Time, is_busy: bool) -> DueTicks {
        let plan = plan(&self.calendar, self.catch_up, next_at, now, MAX_TICKS);
        let (mut fire, mut missed) = (plan.fire, Vec::new());
        missed.extend(plan.missed.map(|missed| (missed, MISSED_WITHOUT_WORKER)));
        if self.overlap == Overlap::Skip {
            let skipped = fire.split_off(usize::from(!is_busy).min(fire.len()));
            if let (Some(from), Some(to)) = (skipped.first(), skipped.last()) {
                let count = skipped.len() as u64;
                let skipped = Missed { from: *from, to: *to, count, at_least: false };
                missed.push((skipped, MISSED_BY_OVERLAP));
            }
        }
        DueTicks { fire, missed, next_at: plan.next_at }
    }

    /// Returns the next tick of a schedule that is set now. `previous` is what is stored under its name, with its next tick: if the
    /// calendar stays the same, no tick is skipped and none fires twice.
    pub fn next_at_when_set(&self, previous: Option<(&Schedule, Option<Time>)>, now: Time) -> Option<Time> {
        match previous {
            Some((previous, next_at)) if previous.calendar == self.calendar => next_at,
            _ => self.calendar.next_after(now),
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

    /// Some hours after 1970.
    fn hours(hours: i64) -> Time {
        Time(hours * 3_600_000_000)
    }

    #[test]
    fn ticks_that_are_due_fire_or_are_recorded_as_missed() {
        let newest = schedule().due_ticks(hours(1), hours(3), false);
        assert_eq!((newest.fire, newest.next_at), (vec![hours(3)], Some(hours(4))));
        let [(missed, why)] = newest.missed[..] else { panic!("{:?}", newest.missed) };
        assert_eq!(
            (missed.from, missed.to, missed.count, why),
            (hours(1), hours(2), 2, MISSED_WITHOUT_WORKER)
        );
        let none = schedule().due_ticks(hours(4), hours(3), false);
        assert_eq!(none, DueTicks { next_at: Some(hours(4)), ..DueTicks::default() });
    }

    #[test]
    fn a_tick_is_skipped_while_the_job_before_has_not_ended() {
        let catch_up = CatchUp::All { window: std::time::Duration::from_secs(86_400) };
        let fires = |overlap, is_busy| {
            let ticks = Schedule { overlap, catch_up, ..schedule() }.due_ticks(hours(1), hours(3), is_busy);
            let missed: Vec<_> =
                ticks.missed.iter().map(|(missed, why)| (missed.from, missed.count, *why)).collect();
            (ticks.fire.len(), missed)
        };
        assert_eq!(fires(Overlap::Skip, false), (1, vec![(hours(2), 2, MISSED_BY_OVERLAP)]));
        assert_eq!(fires(Overlap::Skip, true), (0, vec![(hours(1), 3, MISSED_BY_OVERLAP)]));
        for overlap in [Overlap::Allow, Overlap::Queue, Overlap::CancelPrevious] {
            assert_eq!(fires(overlap, true), (3, Vec::new()), "{overlap:?}");
        }
    }

    #[test]
    fn a_schedule_that_keeps_its_calendar_keeps_its_next_tick() {
        let now = Time(hours(5).0 + 1);
        assert_eq!(schedule().next_at_when_set(None, now), Some(hours(6)), "a new one");
        let same = Schedule { priority: 3, ..schedule() };
        assert_eq!(same.next_at_when_set(Some((&schedule(), Some(hours(4)))), now), Some(hours(4)));
        assert_eq!(same.next_at_when_set(Some((&schedule(), None)), now), None, "it has no more ticks");
        let calendar = Calendar::every(2, Unit::Hours).expect("valid");
        let other = Schedule { calendar, ..schedule() };
        assert_eq!(other.next_at_when_set(Some((&schedule(), Some(hours(4)))), now), Some(hours(6)));
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
