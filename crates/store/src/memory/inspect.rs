//! Reads for people, by walking the maps.

use super::*;
use crate::{
    AsideSignal, AuditFilter, Backlog, Branch, BranchChild, BranchChildFilter, CancelHold, ChildEnd, Filter,
    Firing, Holds, Inspect, Job, LimitView, Miss, QueueView, RateHold, Replay, ScheduleView, SchemaState,
    SerialHold, SerialView, SourceRow, StateCount, Summary, TableSource, TransitionCount, Waiting,
    WorkerView,
};

impl Inner {
    pub(super) fn summary(&self, id: JobId) -> Summary {
        let row = &self.jobs[&id];
        Summary {
            id,
            kind: row.new.kind.kind.clone(),
            version: row.new.kind.version,
            queue: row.new.queue.clone(),
            key: row.new.key.clone(),
            state: self.state(id),
            stage: row.stage.clone(),
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
            parent: row.new.parent,
            place: self.place(id),
            tags: row.new.tags.clone(),
            options: row.new.options.clone(),
            settings: row.new.settings.clone(),
            spent: row.spent.clone(),
            input: row.new.input.clone(),
            data: row.data.clone(),
            wait: row.wait.clone(),
            until: row.until,
            pending: row.pending,
            unwind: row.unwind.clone(),
            fault: None,
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
            && filter.stage.as_ref().is_none_or(|stage| row.stage.as_ref() == Some(stage))
            && filter.version.is_none_or(|version| row.new.kind.version == version)
            && filter.before.is_none_or(|before| id < before)
    }

    fn census(&self, cap: u64) -> Vec<StateCount> {
        let mut counts: BTreeMap<(String, String, State), u64> = BTreeMap::new();
        for (id, row) in &self.jobs {
            let count = counts
                .entry((row.new.queue.clone(), row.new.kind.kind.clone(), self.state(*id)))
                .or_default();
            *count = (*count + 1).min(cap);
        }
        counts
            .into_iter()
            .map(|((queue, kind, state), jobs)| StateCount { queue, kind, state, jobs })
            .collect()
    }

    fn backlog(&self, cap: u64) -> Vec<Backlog> {
        let mut queues: BTreeMap<String, Backlog> = BTreeMap::new();
        for (id, row) in self.jobs.iter().filter(|(_, row)| row.ended.is_none()) {
            let queue = queues.entry(row.new.queue.clone()).or_default();
            let count = match self.state(*id) {
                State::Ready => &mut queue.ready,
                State::Scheduled => &mut queue.scheduled,
                State::Waiting => continue,
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
            serves: worker.serves.clone(),
        };
        self.workers.iter().map(view).collect()
    }

    fn holds(&self, id: JobId, now: Time) -> Option<Holds> {
        let row = self.jobs.get(&id).filter(|row| row.ended.is_none())?;
        let lane = row.lane();
        let rank = (row.rank(), id);
        let before = self.ready.iter().filter(|(of, at, job)| *of == lane && (*at, *job) < rank).count();
        let told = self.asked.get(&id).map(|asked| CancelHold {
            deadline_at: asked.order.deadline_at,
            author: asked.order.actor.author.clone(),
            note: asked.order.actor.note.clone(),
        });
        let rate = row.new.settings.rate.as_ref().and_then(|charge| {
            let bucket = self.buckets.get(&charge.limit)?;
            let level = bucket.level.refilled(&bucket.limit, now);
            let affordable_at =
                if bucket.lifted { now } else { level.affordable_at(&bucket.limit, charge.weight) };
            let limit = (!bucket.lifted).then(|| bucket.limit.clone());
            Some(RateHold { limit, name: charge.limit.clone(), weight: charge.weight, affordable_at })
        });
        Some(Holds {
            arriving: false,
            paused: self.pauses.get(&id).cloned(),
            queue_paused: self.queue_pauses.get(&row.new.queue).cloned(),
            cancel_requested: told,
            serial: row.serial().map(|key| self.serial_hold(key, row, id)),
            rate,
            waiting: row.wait.clone().filter(|_| row.parked).map(|what| {
                let there = row.inbox.iter().filter(|signal| signal.unreadable.is_none());
                let there: BTreeSet<&String> = there.map(|signal| &signal.name).collect();
                let there = there.into_iter().cloned().collect();
                let aside =
                    row.inbox.iter().filter_map(AsideSignal::of).take(columns::UNREADABLE_SHOWN as usize);
                Waiting {
                    what,
                    until: row.until,
                    arrived: there,
                    pending: row.pending,
                    aside: aside.collect(),
                }
            }),
            suspect: row.suspect,
            ahead: if self.is_ready(id) { before.min(1_000) as u64 } else { 0 },
        })
    }

    fn serial_hold(&self, key: &str, row: &Row, id: JobId) -> SerialHold {
        let of_key = |of: &&(String, JobId)| of.0 == key;
        let ahead =
            self.line.iter().filter(|(of, at, job)| of == key && (*at, *job) < (row.place, id)).count();
        SerialHold {
            key: key.to_owned(),
            slots: self.slots.get(key).copied().unwrap_or(1),
            held: self.holders.contains(&(key.to_owned(), id)),
            holders: self.holders.iter().filter(of_key).map(|(_, job)| *job).take(10).collect(),
            ahead: if self.in_line(id) { ahead.min(1_000) as u64 } else { 0 },
        }
    }

    fn queue_views(&self) -> Vec<QueueView> {
        // The set is sorted: the first place of each lane is the one that is claimed next.
        let mut first: BTreeMap<&Lane, JobId> = BTreeMap::new();
        for (lane, _, id) in &self.ready {
            first.entry(lane).or_insert(*id);
        }
        let oldest = |name: &String| {
            let of_queue = first.iter().filter(|(lane, _)| lane.0 == *name);
            of_queue.map(|(_, id)| self.jobs[id].due_at).min()
        };
        let view = |name: &String| QueueView {
            name: name.clone(),
            paused: self.queue_pauses.get(name).cloned(),
            oldest_ready: oldest(name),
        };
        self.queues.iter().map(view).collect()
    }

    fn limit_views(&self, now: Time) -> Vec<LimitView> {
        let view = |bucket: &Bucket| LimitView {
            limit: bucket.limit.clone(),
            lifted: bucket.lifted,
            tokens: bucket.level.refilled(&bucket.limit, now).tokens(&bucket.limit),
            waiting: self
                .ready
                .iter()
                .filter(|(lane, ..)| lane.3.as_ref() == Some(&bucket.limit.name))
                .take(10_000)
                .count() as u64,
        };
        self.buckets.values().map(view).collect()
    }

    fn serial_views(&self, key: Option<&str>, limit: usize) -> Vec<SerialView> {
        let view = |(name, slots): (&String, &u32)| SerialView {
            key: name.clone(),
            slots: *slots,
            held: self.holders.iter().filter(|(of, _)| of == name).count() as u64,
            waiting: self.line.iter().filter(|(of, ..)| of == name).take(10_000).count() as u64,
        };
        let wanted = |view: &SerialView| match key {
            Some(key) => view.key == key,
            None => view.held + view.waiting > 0,
        };
        self.slots.iter().map(view).filter(wanted).take(limit).collect()
    }
}

impl Replay for Memory {
    fn journal(&self, id: JobId, after: Option<i32>, limit: usize) -> Fut<'_, Vec<JournalEntry>> {
        self.run(None, |inner, _| {
            let all = inner.jobs.get(&id).into_iter().flat_map(|row| row.journal.values());
            Ok(all.filter(|entry| after.is_none_or(|after| entry.seq > after)).take(limit).cloned().collect())
        })
    }

    fn context(&self, id: JobId) -> Fut<'_, Vec<(String, Payload)>> {
        self.run(None, |inner, _| {
            let all = inner.jobs.get(&id).into_iter().flat_map(|row| row.context.iter());
            Ok(all.map(|(name, value)| (name.clone(), value.clone())).collect())
        })
    }

    fn inbox(&self, id: JobId, limit: usize) -> Fut<'_, Vec<Signal>> {
        self.run(None, |inner, _| {
            let row = inner.jobs.get(&id);
            Ok(row.into_iter().flat_map(|row| row.inbox.iter()).take(limit).cloned().collect())
        })
    }

    fn child_ends(
        &self,
        parent: JobId,
        round: Rev,
        after: Option<JobId>,
        limit: usize,
    ) -> Fut<'_, Vec<ChildEnd>> {
        self.run(None, |inner, _| {
            let meant = |(id, row): &(&JobId, &Row)| {
                row.new.parent == Some(parent)
                    && row.new.parent_rev == Some(round)
                    && after.is_none_or(|after| **id > after)
            };
            let view = |(id, row): (&JobId, &Row)| ChildEnd {
                id: *id,
                kind: row.new.kind.kind.clone(),
                key: row.new.key.clone(),
                ended: inner.ended(*id),
            };
            Ok(inner.jobs.iter().filter(meant).take(limit).map(view).collect())
        })
    }

    fn branches(&self, job: JobId) -> Fut<'_, Vec<Branch>> {
        self.run(None, |inner, _| Ok(inner.branches(job)))
    }

    fn branch_children<'a>(&'a self, of: &'a BranchChildFilter) -> Fut<'a, Vec<BranchChild>> {
        self.run(None, |inner, _| Ok(inner.leaves_of(of)))
    }

    fn source_rows<'a>(
        &'a self,
        _: &'a TableSource,
        _: Option<&'a str>,
        _: usize,
    ) -> Fut<'a, Vec<SourceRow>> {
        let text = "the memory store has no tables; use SQLite or PostgreSQL";
        Box::pin(std::future::ready(Err(Error::Config(text.into()))))
    }

    fn clock(&self) -> Fut<'_, Time> {
        self.run(None, |_, now| Ok(now))
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

    fn transitions(&self, id: JobId, after: Option<Rev>, limit: usize) -> Fut<'_, Vec<Transition>> {
        self.run(None, |inner, _| {
            let all = inner.jobs.get(&id).into_iter().flat_map(|row| row.steps.iter());
            Ok(all.filter(|step| after.is_none_or(|after| step.rev > after)).take(limit).cloned().collect())
        })
    }

    fn children(&self, parent: JobId, after: Option<JobId>, limit: usize) -> Fut<'_, Vec<Summary>> {
        self.run(None, |inner, _| {
            let meant = |(id, row): &(&JobId, &Row)| {
                row.new.parent == Some(parent) && after.is_none_or(|after| **id > after)
            };
            let ids: Vec<JobId> = inner.jobs.iter().filter(meant).map(|(id, _)| *id).take(limit).collect();
            Ok(ids.into_iter().map(|id| inner.summary(id)).collect())
        })
    }

    fn holds(&self, id: JobId) -> Fut<'_, Option<Holds>> {
        self.run(None, |inner, now| Ok(inner.holds(id, now)))
    }

    fn state_counts(&self, cap: u64) -> Fut<'_, Vec<StateCount>> {
        self.run(None, |inner, _| Ok(inner.census(cap)))
    }

    fn backlog(&self, cap: u64) -> Fut<'_, Vec<Backlog>> {
        self.run(None, |inner, _| Ok(inner.backlog(cap)))
    }

    fn transition_counts<'a>(&'a self, kind: &'a str, limit: usize) -> Fut<'a, Vec<TransitionCount>> {
        self.run(None, |inner, _| {
            let newest = inner.jobs.values().rev().filter(|row| row.new.kind.kind == kind).take(limit);
            let mut times: BTreeMap<(i32, String, Option<String>, String), u64> = BTreeMap::new();
            for (version, step) in
                newest.flat_map(|row| row.steps.iter().map(|step| (row.new.kind.version, step)))
            {
                let path = (version, step.stage.clone(), step.next.clone(), step.how.clone());
                *times.entry(path).or_default() += 1;
            }
            let path =
                |((version, stage, next, how), times)| TransitionCount { version, stage, next, how, times };
            Ok(times.into_iter().map(path).collect())
        })
    }

    fn workers(&self) -> Fut<'_, Vec<WorkerView>> {
        self.run(None, |inner, _| Ok(inner.workers()))
    }

    fn queues(&self) -> Fut<'_, Vec<QueueView>> {
        self.run(None, |inner, _| Ok(inner.queue_views()))
    }

    fn rate_limits(&self) -> Fut<'_, Vec<LimitView>> {
        self.run(None, |inner, now| Ok(inner.limit_views(now)))
    }

    fn serial_keys<'a>(&'a self, key: Option<&'a str>, limit: usize) -> Fut<'a, Vec<SerialView>> {
        self.run(None, |inner, _| Ok(inner.serial_views(key, limit)))
    }

    fn schedules(&self) -> Fut<'_, Vec<ScheduleView>> {
        self.run(None, |inner, _| {
            let view = |kept: &schedule::Kept| ScheduleView {
                schedule: kept.schedule.clone(),
                next_at: kept.next_at.filter(|_| kept.paused.is_none()),
                paused: kept.paused.clone(),
                last_job: kept.last_job,
            };
            Ok(inner.schedules.values().map(view).collect())
        })
    }

    fn firings<'a>(&'a self, schedule: &'a str, limit: usize) -> Fut<'a, Vec<Firing>> {
        self.run(None, |inner, _| {
            let kept = inner.schedules.get(schedule);
            let all = kept.into_iter().flat_map(|kept| kept.firings.iter().rev());
            Ok(all.take(limit).map(|(tick, job)| Firing { tick: *tick, job: *job }).collect())
        })
    }

    fn misses<'a>(&'a self, schedule: &'a str, limit: usize) -> Fut<'a, Vec<Miss>> {
        self.run(None, |inner, _| {
            let kept = inner.schedules.get(schedule);
            Ok(kept.into_iter().flat_map(|kept| kept.misses.iter().rev()).take(limit).cloned().collect())
        })
    }

    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditEntry>> {
        self.run(None, |inner, _| {
            let meant = |entry: &&AuditEntry| {
                filter.subject.as_ref().is_none_or(|subject| *subject == entry.subject)
                    && filter.before.is_none_or(|before| entry.number < before)
            };
            Ok(inner.audit.iter().rev().filter(meant).take(filter.limit).cloned().collect())
        })
    }

    fn schema(&self) -> Fut<'_, SchemaState> {
        self.run(None, |_, _| Ok(SchemaState::CURRENT))
    }

    fn bytes(&self) -> Fut<'_, u64> {
        self.run(None, |_, _| Ok(0))
    }
}
