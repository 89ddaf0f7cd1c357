//! Changes to rules that many jobs share: queues, rate limits, serial keys, schedules. And the audit log.

use windlass_model::{RateLimit, rate::BucketLevel};

use super::*;
use crate::{AdminAction, ControlOutcome};

impl Inner {
    /// Adds an entry to the audit log.
    pub(super) fn log(&mut self, now: Time, action: &str, subject: &str, actor: &Actor) {
        self.audit.push(AuditEntry {
            number: self.audit.len() as i64 + 1,
            at: now,
            author: actor.author.clone(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            note: actor.note.clone(),
        });
    }

    /// Changes one rule, and records that in the audit log.
    pub(super) fn administer(
        &mut self,
        now: Time,
        action: &AdminAction,
        actor: &Actor,
    ) -> Result<ControlOutcome, Error> {
        let result = match action {
            AdminAction::PauseQueue(queue) => self.pause_queue(now, queue, actor),
            AdminAction::ResumeQueue(queue) => match self.queue_pauses.remove(queue) {
                Some(_) => {
                    self.bump_gate(queue);
                    ControlOutcome::Done
                }
                None => ControlOutcome::Already("it is not paused".into()),
            },
            AdminAction::Limit(limit) => self.set_limit(now, limit),
            AdminAction::Lift(name) => match self.buckets.get_mut(name) {
                None => ControlOutcome::Unknown,
                Some(bucket) if bucket.lifted => ControlOutcome::Already("it is lifted".into()),
                Some(bucket) => {
                    bucket.lifted = true;
                    self.limit_moved(name);
                    ControlOutcome::Done
                }
            },
            AdminAction::Slots { key, slots } => {
                self.set_slots(key, *slots);
                ControlOutcome::Done
            }
            AdminAction::Schedule(schedule) => {
                self.check_rate(&schedule.job(now))?;
                self.set_schedule(now, schedule)
            }
            AdminAction::DropSchedule(name) => match self.schedules.remove(name) {
                Some(_) => ControlOutcome::Done,
                None => ControlOutcome::Unknown,
            },
            AdminAction::PauseSchedule(name) => self.pause_schedule(now, name, Some(actor)),
            AdminAction::ResumeSchedule(name) => self.pause_schedule(now, name, None),
            AdminAction::Trigger { name, id } => self.trigger(now, name, *id),
        };
        if matches!(result, ControlOutcome::Done | ControlOutcome::Created(_)) {
            let (action, subject) = columns::admin_action(action);
            self.log(now, &action, &subject, actor);
        }
        Ok(result)
    }

    fn pause_queue(&mut self, now: Time, queue: &str, actor: &Actor) -> ControlOutcome {
        if let Some(pause) = self.queue_pauses.get(queue) {
            return ControlOutcome::Already(format!("it was paused by {} before", pause.author));
        }
        let pause = Pause { at: now, author: actor.author.clone(), note: actor.note.clone() };
        self.queues.insert(queue.to_owned());
        self.queue_pauses.insert(queue.to_owned(), pause);
        ControlOutcome::Done
    }

    fn set_limit(&mut self, now: Time, limit: &RateLimit) -> ControlOutcome {
        let level = match self.buckets.get(&limit.name) {
            Some(old) if old.limit == *limit && !old.lifted => {
                return ControlOutcome::Already("it is so already".into());
            }
            Some(old) => old.level.converted(&old.limit, limit, now),
            None => BucketLevel::full(limit, now),
        };
        let bucket = Bucket { limit: limit.clone(), lifted: false, level };
        self.buckets.insert(limit.name.clone(), bucket);
        self.limit_moved(&limit.name);
        ControlOutcome::Done
    }

    /// Moves the gates of the queues in which jobs wait for a rate limit: some of them may start now.
    fn limit_moved(&mut self, name: &str) {
        let lanes = self.ready.iter().map(|(lane, ..)| lane);
        let waiting = lanes.filter(|lane| lane.limit.as_deref() == Some(name));
        let queues: BTreeSet<String> = waiting.map(|lane| lane.queue.clone()).collect();
        queues.iter().for_each(|queue| self.bump_gate(queue));
    }
}
