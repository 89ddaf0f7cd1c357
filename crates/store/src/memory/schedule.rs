//! Schedules: what is submitted by the calendar.

use windlass_model::{Schedule, calendar::Overlap};

use super::*;
use crate::{ControlOutcome, Miss, control::outcome};

pub(super) struct Kept {
    pub(super) schedule: Schedule,
    pub(super) next_at: Option<Time>,
    pub(super) paused: Option<Pause>,
    pub(super) last_job: Option<JobId>,
    pub(super) firings: BTreeMap<Time, JobId>,
    pub(super) misses: Vec<Miss>,
}

impl Inner {
    /// Fires every schedule that is due; answers how many jobs were submitted.
    pub(super) fn fire(&mut self, now: Time) -> usize {
        let due = |kept: &Kept| kept.paused.is_none() && kept.next_at.is_some_and(|at| at <= now);
        let names: Vec<String> =
            self.schedules.iter().filter(|(_, kept)| due(kept)).map(|(name, _)| name.clone()).collect();
        let mut fired = 0;
        for name in names {
            let kept = &self.schedules[&name];
            let (schedule, next_at) = (kept.schedule.clone(), kept.next_at.expect("is due"));
            let tick = columns::tick(&schedule, next_at, now, self.is_busy(kept));
            fired += tick.fire.len();
            for at in tick.fire {
                self.fire_one(&schedule, at, now);
            }
            let kept = self.schedules.get_mut(&name).expect("listed above");
            kept.next_at = tick.next_at;
            for (missed, why) in tick.missed {
                kept.miss(now, missed, why);
            }
        }
        fired
    }

    fn is_busy(&self, kept: &Kept) -> bool {
        kept.last_job.and_then(|id| self.jobs.get(&id)).is_some_and(|row| row.ended.is_none())
    }

    fn fire_one(&mut self, schedule: &Schedule, tick: Time, now: Time) -> JobId {
        let job = schedule.job(tick);
        let last = self.schedules[&schedule.name].last_job.filter(|id| self.jobs.contains_key(id));
        if let (Overlap::CancelPrevious, Some(last)) = (schedule.overlap, last) {
            self.cancel(now, last, columns::GRACE, &outcome::next_tick(&schedule.name));
        }
        self.submit(now, std::slice::from_ref(&job), None);
        let kept = self.schedules.get_mut(&schedule.name).expect("it fires");
        kept.firings.entry(tick).or_insert(job.id);
        kept.last_job = Some(job.id);
        job.id
    }

    pub(super) fn put_schedule(&mut self, now: Time, schedule: &Schedule) -> ControlOutcome {
        *self.gates.entry(crate::TIMER_GATE.to_owned()).or_default() += 1;
        let first = schedule.calendar.next_after(now);
        match self.schedules.get_mut(&schedule.name) {
            Some(kept) if kept.schedule == *schedule => {
                return ControlOutcome::Already("it is so already".into());
            }
            Some(kept) => {
                if kept.schedule.calendar != schedule.calendar {
                    kept.next_at = first;
                }
                kept.schedule = schedule.clone();
            }
            None => {
                let (schedule, next_at) = (schedule.clone(), first);
                let (paused, last_job, firings, misses) = Default::default();
                let name = schedule.name.clone();
                let kept = Kept { schedule, next_at, paused, last_job, firings, misses };
                self.schedules.insert(name, kept);
            }
        }
        ControlOutcome::Done
    }

    pub(super) fn pause_schedule(&mut self, now: Time, name: &str, by: Option<&Actor>) -> ControlOutcome {
        let Some(kept) = self.schedules.get_mut(name) else { return ControlOutcome::Unknown };
        match (by, &kept.paused) {
            (Some(_), Some(pause)) => {
                ControlOutcome::Already(format!("it was paused by {} before", pause.author))
            }
            (None, None) => ControlOutcome::Already("it is not paused".into()),
            (Some(by), None) => {
                kept.paused = Some(Pause { at: now, author: by.author.clone(), note: by.note.clone() });
                ControlOutcome::Done
            }
            (None, Some(_)) => {
                kept.paused = None;
                kept.next_at = kept.schedule.calendar.next_after(now);
                *self.gates.entry(crate::TIMER_GATE.to_owned()).or_default() += 1;
                ControlOutcome::Done
            }
        }
    }

    pub(super) fn trigger(&mut self, now: Time, name: &str) -> ControlOutcome {
        let Some(kept) = self.schedules.get(name) else { return ControlOutcome::Unknown };
        let schedule = kept.schedule.clone();
        match kept.last_job {
            Some(job) if schedule.overlap == Overlap::Skip && self.is_busy(kept) => outcome::still_runs(job),
            _ => ControlOutcome::Created(self.fire_one(&schedule, now, now)),
        }
    }
}

impl Kept {
    /// Notes missed ticks: with those before, if nothing fired in between and the reason is the same.
    fn miss(&mut self, now: Time, missed: windlass_model::calendar::Missed, why: &str) {
        let fired_since =
            |last: &Miss| self.firings.keys().next_back().is_some_and(|tick| *tick > last.missed.to);
        match self.misses.last() {
            Some(last) if last.why == why && !fired_since(last) => {
                let last = self.misses.last_mut().expect("looked at");
                last.missed.to = missed.to;
                last.missed.count += missed.count;
                last.missed.at_least |= missed.at_least;
            }
            _ => self.misses.push(Miss { at: now, missed, why: why.to_owned() }),
        }
    }
}
