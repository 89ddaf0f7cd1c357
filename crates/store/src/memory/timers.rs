//! Firing due timers.

use super::*;

impl Inner {
    pub(super) fn fire_timers(&mut self, now: Time, limit: usize) -> TimerReport {
        let mut report = TimerReport { now, ..TimerReport::default() };
        let due: Vec<_> = self.timers.iter().copied().take_while(|(at, ..)| *at <= now).take(limit).collect();
        for timer in due {
            // An end earlier in this batch may have deleted the job's other timers.
            if !self.timers.contains(&timer) {
                continue;
            }
            let (at, id, purpose) = timer;
            match purpose {
                Timer::Wake => {
                    self.next_state(id, Event::Due);
                    self.timers.remove(&timer);
                    if self.row(id).parked {
                        self.record_wait(now, id, true);
                    }
                    self.row_mut(id).parked = false;
                    self.enter(id);
                    report.woken += 1;
                }
                Timer::Deadline => {
                    let unwind = Unwind { reason: Some(Reason::Expired), failure: Failure::expired(at) };
                    self.end_or_unwind(id, Event::Expire, unwind, now);
                    report.expired += 1;
                }
                Timer::Cancel => {
                    let failure = self.pending_cancels[&id].request.actor.failure();
                    self.end_or_unwind(id, Event::Cancel, Unwind { reason: None, failure }, now);
                    report.cancelled += 1;
                }
            }
        }
        report.fired = self.fire_schedules(now);
        let timer = self.timers.first().map(|(at, ..)| *at);
        let ticks = self.schedules.values().filter(|stored| stored.paused.is_none());
        report.next_at = ticks.filter_map(|stored| stored.next_at).chain(timer).min();
        report
    }
}
