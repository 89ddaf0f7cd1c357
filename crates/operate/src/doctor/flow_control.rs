//! Checks flow control: paused queues, serial keys held by jobs of dead workers, schedules that do not fire.

use std::{collections::BTreeMap, time::Duration};

use windlass_model::{JobId, State, Time};
use windlass_store::{Error, Filter, Inspect, QueueView, ScheduleView, WorkerView};

use super::Finding;
use crate::{Operator, text};

/// A schedule that has not fired this long after its tick is worth a warning: workers fire it within seconds.
const LATE: Duration = Duration::from_secs(120);
/// How many running jobs are checked for serial keys: it takes a query each.
const CHECKED: usize = 1_000;

/// What was read.
pub(super) struct FlowControl {
    queues: Vec<QueueView>,
    /// Serial keys that a job of a dead worker holds.
    held_by_dead: BTreeMap<String, JobId>,
    schedules: Vec<ScheduleView>,
    now: Time,
}

pub(super) async fn read(operator: &Operator) -> Result<FlowControl, Error> {
    let inspect = operator.inspect();
    let now = inspect.clock().await?;
    Ok(FlowControl {
        queues: inspect.queues().await?,
        held_by_dead: held_by_dead(inspect, now).await?,
        schedules: inspect.schedules().await?,
        now,
    })
}

async fn held_by_dead(inspect: &dyn Inspect, now: Time) -> Result<BTreeMap<String, JobId>, Error> {
    let workers = inspect.workers().await?;
    let dead = |worker: &&WorkerView| (!worker.alive || worker.lease_until < now) && worker.claims > 0;
    let dead: Vec<_> = workers.iter().filter(dead).map(|worker| worker.id).collect();
    let mut held = BTreeMap::new();
    if dead.is_empty() {
        return Ok(held);
    }
    let running = Filter { state: Some(State::Running), limit: CHECKED, ..Filter::default() };
    for summary in inspect.jobs(&running).await?.jobs {
        let Some(job) = inspect.job(summary.id).await? else { continue };
        if let Some(serial) = job.settings.serial
            && job.worker.is_some_and(|worker| dead.contains(&worker))
        {
            held.insert(serial.key, summary.id);
        }
    }
    Ok(held)
}

impl FlowControl {
    pub(super) fn judge(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.queues.iter().filter_map(|queue| self.queue(queue)).collect();
        findings.extend(self.held_by_dead.iter().map(|(key, job)| serial(key, *job)));
        findings.extend(self.schedules.iter().filter_map(|view| self.schedule(view)));
        let count = self.schedules.len() as u64;
        if count > 0 {
            let known = Finding::ok("schedules", format!("{} known", text::thousands(count)));
            findings.push(known.number("schedules", count));
        }
        findings
    }

    fn queue(&self, queue: &QueueView) -> Option<Finding> {
        let (name, pause) = (&queue.name, queue.paused.as_ref()?);
        let finding =
            Finding::warn("queue", format!("{name} was paused {}", text::paused_by(pause, self.now)));
        Some(finding.advice(format!("`windlass queues resume {name}` resumes it")))
    }

    fn schedule(&self, view: &ScheduleView) -> Option<Finding> {
        let name = &view.schedule.name;
        match (&view.paused, view.next_at) {
            (Some(pause), _) => Some(
                Finding::warn("schedule", format!("{name} was paused {}", text::paused_by(pause, self.now)))
                    .advice(format!("`windlass schedules resume {name}` resumes it")),
            ),
            (None, Some(at)) if self.now - at > LATE => {
                let late = self.now - at;
                let found = format!("{name} should have fired {} ago", text::duration(late));
                let finding = Finding::warn("schedule", found).seconds("late_seconds", late);
                Some(finding.advice("start a worker to fire it: `windlass worker`"))
            }
            (None, None) => Some(
                Finding::warn("schedule", format!("{name} never fires again"))
                    .advice(format!("`windlass schedules drop {name}` deletes it")),
            ),
            (None, Some(_)) => None,
        }
    }
}

/// A key held by a job of a dead worker: the jobs behind it wait until another worker takes it over.
fn serial(key: &str, job: JobId) -> Finding {
    let found = format!("key {key:?} is held by job {job}, whose worker is dead");
    Finding::warn("serial", found)
        .advice("another worker takes it over; start one with `windlass worker` if none runs")
}

#[cfg(test)]
mod tests {
    use windlass_store::Pause;

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);

    #[test]
    fn pauses_and_keys_of_dead_workers_are_warnings() {
        let pause = Pause { at: NOW - LATE, author: "ada".into(), note: Some("deploy".into()) };
        let queue = |name: &str, paused| QueueView { name: name.into(), paused, oldest_ready: None };
        let job = JobId::from_parts(1, 0, 0);
        let rules = FlowControl {
            queues: vec![queue("mail", Some(pause)), queue("default", None)],
            held_by_dead: BTreeMap::from([("user 9".to_owned(), job)]),
            schedules: Vec::new(),
            now: NOW,
        };
        let found: Vec<String> = rules.judge().into_iter().map(|finding| finding.found).collect();
        let key = format!("key \"user 9\" is held by job {job}, whose worker is dead");
        assert_eq!(found, ["mail was paused by ada 2m ago: deploy".to_owned(), key]);
    }
}
