//! Reads for people, by walking the maps.

use super::*;
use crate::{Backlog, Census, Filter, Job, SchemaState, Summary, WorkerView};

impl Inner {
    fn summary(&self, id: JobId) -> Summary {
        let row = &self.jobs[&id];
        Summary {
            id,
            kind: row.new.kind.kind.clone(),
            version: row.new.kind.version,
            queue: row.new.queue.clone(),
            key: row.new.key.clone(),
            state: self.state(id),
            reason: row.reason,
            priority: row.new.priority,
            attempts: row.attempts,
            submitted_at: row.submitted_at,
            due_at: row.due_at,
            finished_at: row.finished_at,
        }
    }

    fn job(&self, id: JobId) -> Option<Job> {
        let row = self.jobs.get(&id)?;
        let summary = self.summary(id);
        let claim = (summary.state == State::Running)
            .then(|| self.claims.iter().find(|(_, claim)| claim.jobs.contains(&(id, row.epoch))))
            .flatten();
        Some(Job {
            epoch: row.epoch,
            rev: row.rev,
            deaths: row.deaths,
            crashes: row.crashes,
            worker: claim.map(|((worker, _), _)| *worker).or(row.worker),
            started_at: claim.map(|(_, claim)| claim.claimed_at).or(row.started_at),
            deadline_at: row.new.deadline_at,
            tags: row.new.tags.clone(),
            options: row.new.options.clone(),
            settings: row.new.settings.clone(),
            spent: row.spent.clone(),
            input: row.new.input.clone(),
            output: row.output.clone(),
            failure: row.failure.clone(),
            summary,
        })
    }

    fn matches(&self, filter: &Filter, id: JobId) -> bool {
        let row = &self.jobs[&id];
        filter.state.is_none_or(|state| state == self.state(id))
            && filter.kind.as_ref().is_none_or(|kind| *kind == row.new.kind.kind)
            && filter.queue.as_ref().is_none_or(|queue| *queue == row.new.queue)
            && filter.tag.as_ref().is_none_or(|tag| row.new.tags.contains(tag))
            && filter.key.as_ref().is_none_or(|key| row.new.key.as_ref() == Some(key))
            && filter.before.is_none_or(|before| id < before)
    }

    fn census(&self, cap: u64) -> Vec<Census> {
        let mut counts: BTreeMap<(String, String, State), u64> = BTreeMap::new();
        for (id, row) in &self.jobs {
            let count = counts
                .entry((row.new.queue.clone(), row.new.kind.kind.clone(), self.state(*id)))
                .or_default();
            *count = (*count + 1).min(cap);
        }
        counts.into_iter().map(|((queue, kind, state), jobs)| Census { queue, kind, state, jobs }).collect()
    }

    fn backlog(&self, cap: u64) -> Vec<Backlog> {
        let mut queues: BTreeMap<String, Backlog> = BTreeMap::new();
        for (id, row) in self.jobs.iter().filter(|(_, row)| row.ended.is_none()) {
            let queue = queues.entry(row.new.queue.clone()).or_default();
            let count = match self.state(*id) {
                State::Ready => &mut queue.ready,
                State::Scheduled => &mut queue.scheduled,
                _ => &mut queue.running,
            };
            *count = (*count + 1).min(cap);
        }
        let mut last = None;
        for (lane, _, id) in &self.ready {
            // The first of each lane.
            if last.replace(lane) != Some(lane) {
                let (due_at, queue) = (self.jobs[id].due_at, queues.entry(lane.0.clone()).or_default());
                queue.oldest_at = Some(queue.oldest_at.map_or(due_at, |at| at.min(due_at)));
            }
        }
        queues.into_iter().map(|(queue, backlog)| Backlog { queue, ..backlog }).collect()
    }

    fn workers(&self) -> Vec<WorkerView> {
        let claims = |id: &WorkerId| self.claims.keys().filter(|(worker, _)| worker == id).count() as u64;
        let view = |(id, worker): (&WorkerId, &Worker)| WorkerView {
            id: *id,
            name: worker.name.clone(),
            beacon: worker.beacon.clone(),
            alive: worker.life == Life::Alive,
            lease_until: worker.lease_until,
            claims: claims(id),
        };
        self.workers.iter().map(view).collect()
    }
}

impl Inspect for Memory {
    fn job(&self, id: JobId) -> Fut<'_, Option<Job>> {
        self.run(None, |inner, _| Ok(inner.job(id)))
    }

    fn jobs<'a>(&'a self, filter: &'a Filter) -> Fut<'a, Vec<Summary>> {
        self.run(None, |inner, _| {
            let ids =
                inner.jobs.keys().rev().copied().filter(|id| inner.matches(filter, *id)).take(filter.limit);
            Ok(ids.map(|id| inner.summary(id)).collect())
        })
    }

    fn history(&self, id: JobId) -> Fut<'_, Vec<Attempt>> {
        self.run(None, |inner, _| Ok(inner.jobs.get(&id).map(|row| row.history.clone()).unwrap_or_default()))
    }

    fn census(&self, cap: u64) -> Fut<'_, Vec<Census>> {
        self.run(None, |inner, _| Ok(inner.census(cap)))
    }

    fn backlog(&self, cap: u64) -> Fut<'_, Vec<Backlog>> {
        self.run(None, |inner, _| Ok(inner.backlog(cap)))
    }

    fn workers(&self) -> Fut<'_, Vec<WorkerView>> {
        self.run(None, |inner, _| Ok(inner.workers()))
    }

    fn schema(&self) -> Fut<'_, SchemaState> {
        self.run(None, |_, _| Ok(SchemaState::CURRENT))
    }

    fn bytes(&self) -> Fut<'_, u64> {
        self.run(None, |_, _| Ok(0))
    }

    fn clock(&self) -> Fut<'_, Time> {
        self.run(None, |_, now| Ok(now))
    }
}
