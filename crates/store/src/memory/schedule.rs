//! Schedules: jobs that a calendar submits.

use windlass_model::{
    Schedule,
    calendar::{Missed, Overlap},
};

use super::*;
use crate::{ControlOutcome, Miss, ScheduleView, control::outcome};

/// A schedule as it is stored.
pub(super) struct StoredSchedule {
    pub(super) schedule: Schedule,
    pub(super) next_at: Option<Time>,
    pub(super) paused: Option<Pause>,
    pub(super) last_job: Option<JobId>,
    /// The jobs that it submitted, by tick.
    pub(super) firings: BTreeMap<Time, JobId>,
    pub(super) misses: Vec<Miss>,
}

impl Inner {
    /// Fires schedules that are due. Returns how many jobs were submitted.
    pub(super) fn fire_schedules(&mut self, now: Time) -> usize {
        let is_due = |stored: &StoredSchedule| {
            stored.paused.is_none() && stored.next_at.is_some_and(|next_at| next_at <= now)
        };
        let due = self.schedules.iter().filter(|(_, stored)| is_due(stored));
        let names: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        let mut fired = 0;
        for name in names {
            let stored = &self.schedules[&name];
            let (schedule, next_at) = (stored.schedule.clone(), stored.next_at.unwrap_or(now));
            let tick = schedule.due_ticks(next_at, now, self.is_busy(stored));
            fired += tick.fire.len();
            for at in tick.fire {
                self.fire_tick(&schedule, at, now, None);
            }
            let stored = self.schedules.get_mut(&name).expect("listed above");
            stored.next_at = tick.next_at;
            for (missed, why) in tick.missed {
                stored.record_miss(now, missed, why);
            }
        }
        fired
    }

    /// Whether the last job of a schedule is live.
    fn is_busy(&self, stored: &StoredSchedule) -> bool {
        stored.last_job.and_then(|id| self.jobs.get(&id)).is_some_and(Row::is_live)
    }

    /// Submits the job of one tick, under this id if one is given.
    fn fire_tick(&mut self, schedule: &Schedule, tick: Time, now: Time, id: Option<JobId>) -> JobId {
        let mut job = schedule.job(tick);
        job.id = id.unwrap_or(job.id);
        let last = self.schedules[&schedule.name].last_job.filter(|id| self.jobs.contains_key(id));
        if let (Overlap::CancelPrevious, Some(last)) = (schedule.overlap, last) {
            let _ = self.cancel(now, last, columns::GRACE, &outcome::next_tick(&schedule.name));
        }
        self.insert_jobs(now, std::slice::from_ref(&job), None);
        let stored = self.schedules.get_mut(&schedule.name).expect("read above");
        stored.firings.entry(tick).or_insert(job.id);
        stored.last_job = Some(job.id);
        job.id
    }

    /// Adds or changes a schedule.
    pub(super) fn set_schedule(&mut self, now: Time, schedule: &Schedule) -> ControlOutcome {
        self.bump_gate(TIMER_GATE);
        match self.schedules.get_mut(&schedule.name) {
            Some(stored) if stored.schedule == *schedule => {
                return ControlOutcome::Already("it is so already".into());
            }
            Some(stored) => {
                stored.next_at = schedule.next_at_when_set(Some((&stored.schedule, stored.next_at)), now);
                stored.schedule = schedule.clone();
            }
            None => {
                let stored = StoredSchedule {
                    schedule: schedule.clone(),
                    next_at: schedule.next_at_when_set(None, now),
                    paused: None,
                    last_job: None,
                    firings: BTreeMap::new(),
                    misses: Vec::new(),
                };
                self.schedules.insert(schedule.name.clone(), stored);
            }
        }
        ControlOutcome::Done
    }

    /// Pauses a schedule, or resumes it (`actor` is `None`).
    pub(super) fn pause_schedule(&mut self, now: Time, name: &str, actor: Option<&Actor>) -> ControlOutcome {
        let Some(stored) = self.schedules.get_mut(name) else { return ControlOutcome::Unknown };
        match (actor, &stored.paused) {
            (Some(_), Some(pause)) => {
                return ControlOutcome::Already(format!("it was paused by {} before", pause.author));
            }
            (None, None) => return ControlOutcome::Already("it is not paused".into()),
            (Some(Actor { author, note }), None) => {
                stored.paused = Some(Pause { at: now, author: author.clone(), note: note.clone() });
            }
            (None, Some(_)) => {
                stored.paused = None;
                stored.next_at = stored.schedule.calendar.next_after(now);
                self.bump_gate(TIMER_GATE);
            }
        }
        ControlOutcome::Done
    }

    /// Submits the job of a schedule now.
    pub(super) fn trigger(&mut self, now: Time, name: &str, id: Option<JobId>) -> ControlOutcome {
        let Some(stored) = self.schedules.get(name) else { return ControlOutcome::Unknown };
        if id.is_some_and(|id| self.jobs.contains_key(&id)) {
            return outcome::triggered_before();
        }
        let schedule = stored.schedule.clone();
        match stored.last_job {
            Some(job) if schedule.overlap == Overlap::Skip && self.is_busy(stored) => {
                outcome::still_runs(job)
            }
            _ => ControlOutcome::Created(self.fire_tick(&schedule, now, now, id)),
        }
    }

    /// Deletes what schedules fired and missed before a time.
    pub(super) fn prune_schedules(&mut self, before: Time) {
        for stored in self.schedules.values_mut() {
            stored.firings.retain(|tick, _| *tick >= before);
            stored.misses.retain(|miss| miss.at >= before || miss.missed.to >= before);
        }
    }

    pub(super) fn schedules(&self) -> Vec<ScheduleView> {
        let view = |stored: &StoredSchedule| ScheduleView {
            schedule: stored.schedule.clone(),
            next_at: stored.next_at.filter(|_| stored.paused.is_none()),
            paused: stored.paused.clone(),
            last_job: stored.last_job,
        };
        self.schedules.values().map(view).collect()
    }
}

impl StoredSchedule {
    /// Records missed ticks. They extend the latest record if nothing fired since and the reason is the same.
    fn record_miss(&mut self, now: Time, missed: Missed, why: &str) {
        let last_tick = self.firings.keys().next_back().copied();
        match self.misses.last_mut() {
            Some(last) if last.why == why && last_tick.is_none_or(|tick| tick <= last.missed.to) => {
                last.missed.to = missed.to;
                last.missed.count += missed.count;
                last.missed.at_least |= missed.at_least;
            }
            _ => self.misses.push(Miss { at: now, missed, why: why.to_owned() }),
        }
    }
}
