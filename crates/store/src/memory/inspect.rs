//! Reads for people, by walking the maps.

use windlass_model::{BranchNo, JournalEntry, journal::CallKind, progress};

use super::*;
use crate::{
    AuditFilter, Backlog, Branch, BranchChild, BranchChildFilter, BranchChildPage, BranchItems, BranchRanges,
    BranchTimes, ChildBounds, ChildEnd, ChildGroup, ChildRange, Filter, Firing, Holds, Inspect, ItemChild,
    Job, JobDetails, JobPage, JournalEnd, JournalHead, LastCall, LimitView, MatchCount, Miss, OpenBranch,
    ParkedJob, PayloadsOf, Pulse, QueueView, RangeChild, Replay, ScheduleView, SchemaState, SerialView,
    SignalWaitFilter, SignalWaits, SourceRow, StateCount, Summary, TableSource, Throughput, ThroughputFilter,
    TransitionCount, Unsuccessful, UnsuccessfulFilter, WorkerView, inspect::pulse,
};

impl Inner {
    pub(super) fn summary(&self, id: JobId) -> Summary {
        let row = self.row(id);
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
        let reports =
            claim.and_then(|((worker, _), _)| self.workers.get(worker)).map(|worker| &*worker.progress);
        Some(Job {
            progress: progress::of_claim(reports.unwrap_or_default(), id, row.epoch),
            epoch: row.epoch,
            rev: row.rev,
            worker_deaths: row.worker_deaths,
            solo_crashes: row.solo_crashes,
            worker: claim.map(|((worker, _), _)| *worker).or(row.worker),
            started_at: claim.map(|(_, claim)| claim.claimed_at).or(row.started_at),
            deadline_at: row.new.deadline_at,
            parent: row.new.parent,
            position: self.place(id),
            tags: row.new.tags.clone(),
            options: row.new.options.clone(),
            settings: row.new.settings.clone(),
            retry_counts: row.retry_counts.clone(),
            input: row.new.input.clone(),
            data: row.data.clone(),
            wait: row.wait.clone(),
            wait_until: row.wait_until,
            pending_children: row.pending_children,
            unwind: row.unwind.clone(),
            fault: None,
            output: row.output.clone(),
            failure: row.failure.clone(),
            summary,
        })
    }

    fn matches(&self, filter: &Filter, id: JobId) -> bool {
        let row = self.row(id);
        filter.state.is_none_or(|state| state == self.state(id))
            && filter.kind.as_ref().is_none_or(|kind| *kind == row.new.kind.kind)
            && filter.queue.as_ref().is_none_or(|queue| *queue == row.new.queue)
            && filter.tag.as_ref().is_none_or(|tag| row.new.tags.contains(tag))
            && filter.key.as_ref().is_none_or(|key| row.new.key.as_ref() == Some(key))
            && filter
                .key_prefix
                .as_ref()
                .is_none_or(|prefix| row.new.key.as_ref().is_some_and(|key| key.starts_with(prefix.as_str())))
            && filter.error_class.as_ref().is_none_or(|class| {
                let is_unsuccessful = matches!(row.final_state, Some(State::Failed | State::Cancelled));
                is_unsuccessful && row.failure.as_ref().is_some_and(|failure| failure.class == *class)
            })
            && filter.stage.as_ref().is_none_or(|stage| row.stage.as_ref() == Some(stage))
            && filter.version.is_none_or(|version| row.new.kind.version == version)
            && (!filter.top || row.new.parent.is_none())
            && filter.ids().0.is_none_or(|from| id >= from)
            && filter.ids().1.is_none_or(|before| id < before)
    }

    fn state_counts(&self) -> Vec<StateCount> {
        let mut counts: BTreeMap<(String, String, State), u64> = BTreeMap::new();
        for (id, row) in &self.jobs {
            let key = (row.new.queue.clone(), row.new.kind.kind.clone(), self.state(*id));
            *counts.entry(key).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|((queue, kind, state), jobs)| StateCount { queue, kind, state, jobs })
            .collect()
    }

    fn backlog(&self, cap: u64) -> Vec<Backlog> {
        let mut queues: BTreeMap<String, Backlog> = BTreeMap::new();
        for (id, row) in self.jobs.iter().filter(|(_, row)| row.is_live()) {
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
            // The set is sorted: only the first job of each lane counts.
            if last.replace(lane) != Some(lane) {
                let due_at = self.row(*id).due_at;
                let queue = queues.entry(lane.queue.clone()).or_default();
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
            liveness_file: worker.liveness_file.clone(),
            alive: worker.lease.status == WorkerStatus::Alive,
            lease_until: worker.lease.until,
            claims: claims(id),
            serves: worker.serves.clone(),
            lost_at: worker.lost_at,
        };
        self.workers.iter().map(view).collect()
    }

    /// How a job ended; `None` if it has not.
    pub(super) fn job_end(&self, id: JobId) -> Option<JobEnd> {
        let Some(row) = self.jobs.get(&id) else { return Some(JobEnd::Gone) };
        JobEnd::from_parts(row.final_state?, row.reason, row.failure.clone(), row.output.clone())
    }

    fn transition_counts(&self, kind: &str, limit: usize) -> Vec<TransitionCount> {
        let newest = self.jobs.values().rev().filter(|row| row.new.kind.kind == kind).take(limit);
        let mut counts: BTreeMap<(i32, String, Option<String>, String), u64> = BTreeMap::new();
        for row in newest {
            for Transition { stage, next, outcome: how, .. } in &row.transitions {
                let key = (row.new.kind.version, stage.clone(), next.clone(), how.clone());
                *counts.entry(key).or_default() += 1;
            }
        }
        let count = |((version, stage, next, how), times)| TransitionCount {
            version,
            stage,
            next,
            outcome: how,
            times,
        };
        counts.into_iter().map(count).collect()
    }
}

impl Inner {
    fn payload_sizes(&self, of: PayloadsOf<'_>, limit: usize) -> Vec<u64> {
        let end = |end: Option<JobEnd>| end.as_ref().map_or(0, JobEnd::output_bytes);
        match of {
            PayloadsOf::Journal { job, after } => {
                let entries = self.jobs.get(&job).into_iter().flat_map(|row| row.journal.values());
                let entries = entries.filter(|entry| after.is_none_or(|after| entry.seq > after));
                entries.take(limit).map(|entry| entry.payload.bytes.len() as u64).collect()
            }
            PayloadsOf::ChildEnds { parent, parent_rev, after } => {
                let ends = self.child_ends(parent, parent_rev, after, limit);
                ends.into_iter().map(|child| end(child.ended)).collect()
            }
            PayloadsOf::Outputs(ids) => {
                let size = |id: &JobId| self.jobs.get(id).map_or(0, |_| end(self.job_end(*id)));
                ids.iter().take(limit).map(size).collect()
            }
        }
    }

    fn journal_end(&self, id: JobId, limit: usize) -> JournalEnd {
        let Some(row) = self.jobs.get(&id) else { return JournalEnd::default() };
        let before = row.journal.len().saturating_sub(limit);
        let head = |entry: &JournalEntry| {
            let (mut entry, bytes) = (entry.clone(), entry.payload.bytes.len() as u64);
            if entry.call_kind != CallKind::Lifecycle {
                entry.payload.bytes.clear();
            }
            JournalHead { entry, bytes }
        };
        let entries = row.journal.values().skip(before).map(head).collect();
        JournalEnd { entries, before: (before as u64).min(JournalEnd::COUNTED) }
    }
}

impl Replay for Memory {
    fn journal(&self, id: JobId, after: Option<i32>, limit: usize) -> Fut<'_, Vec<JournalEntry>> {
        self.run(None, |inner, _| {
            let entries = inner.jobs.get(&id).into_iter().flat_map(|row| row.journal.values());
            Ok(entries
                .filter(|entry| after.is_none_or(|after| entry.seq > after))
                .take(limit)
                .cloned()
                .collect())
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
        parent_rev: Rev,
        after: Option<JobId>,
        limit: usize,
    ) -> Fut<'_, Vec<ChildEnd>> {
        self.run(None, |inner, _| Ok(inner.child_ends(parent, parent_rev, after, limit)))
    }

    fn branches(&self, job: JobId) -> Fut<'_, Vec<Branch>> {
        self.run(None, |inner, _| Ok(inner.branches(job)))
    }

    fn branch_children<'a>(&'a self, filter: &'a BranchChildFilter) -> Fut<'a, Vec<BranchChild>> {
        self.run(None, |inner, _| Ok(inner.branch_children(filter)))
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
    fn pulse<'a>(&'a self, jobs: &'a [JobId]) -> Fut<'a, Pulse> {
        self.run(None, |inner, now| {
            pulse::check(jobs)?;
            Ok(inner.pulse(now, jobs))
        })
    }

    fn summaries<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<Summary>>> {
        self.run(None, |inner, _| {
            let summary = |id: &JobId| inner.jobs.contains_key(id).then(|| inner.summary(*id));
            Ok(ids.iter().map(summary).collect())
        })
    }

    fn details<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobDetails>>> {
        self.run(None, |inner, _| Ok(ids.iter().map(|id| inner.details(*id)).collect()))
    }

    fn unsuccessful<'a>(&'a self, filter: &'a UnsuccessfulFilter, limit: usize) -> Fut<'a, Unsuccessful> {
        self.run(None, |inner, _| Ok(inner.unsuccessful(filter, limit)))
    }

    fn parked(&self, limit: usize) -> Fut<'_, Vec<ParkedJob>> {
        self.run(None, |inner, _| Ok(inner.parked_jobs(limit)))
    }

    fn last_calls<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<LastCall>>> {
        self.run(None, |inner, _| Ok(ids.iter().map(|id| inner.last_call(*id)).collect()))
    }

    fn open_branches(&self, limit: usize) -> Fut<'_, Vec<OpenBranch>> {
        self.run(None, |inner, _| Ok(inner.open_branches(limit)))
    }

    fn job(&self, id: JobId) -> Fut<'_, Option<Job>> {
        self.run(None, |inner, _| Ok(inner.job(id)))
    }

    fn jobs<'a>(&'a self, filter: &'a Filter) -> Fut<'a, JobPage> {
        self.run(None, |inner, _| {
            let mut ids = inner.jobs.keys().rev().copied().filter(|id| inner.matches(filter, *id));
            let jobs: Vec<Summary> = ids.by_ref().take(filter.limit).map(|id| inner.summary(id)).collect();
            let next = jobs.last().map(|job| job.id).filter(|_| ids.next().is_some());
            Ok(JobPage { jobs, next })
        })
    }

    fn count_jobs<'a>(&'a self, filter: &'a Filter, most: usize) -> Fut<'a, MatchCount> {
        self.run(None, |inner, _| {
            let all = Filter { before: None, ..filter.clone() };
            let most = if filter.has_maintained_counts() { usize::MAX } else { most };
            let mut ids = inner.jobs.keys().filter(|id| inner.matches(&all, **id));
            let mut jobs: BTreeMap<State, u64> = BTreeMap::new();
            for id in ids.by_ref().take(most) {
                *jobs.entry(inner.state(*id)).or_default() += 1;
            }
            Ok(MatchCount { jobs, at_least: ids.next().is_some() })
        })
    }

    fn history(&self, id: JobId) -> Fut<'_, Vec<Attempt>> {
        self.run(None, |inner, _| Ok(inner.jobs.get(&id).map(|row| row.history.clone()).unwrap_or_default()))
    }

    fn transitions(&self, id: JobId, after: Option<Rev>, limit: usize) -> Fut<'_, Vec<Transition>> {
        self.run(None, |inner, _| {
            let all = inner.jobs.get(&id).into_iter().flat_map(|row| row.transitions.iter());
            Ok(all
                .filter(|transition| after.is_none_or(|after| transition.rev > after))
                .take(limit)
                .cloned()
                .collect())
        })
    }

    fn children(&self, parent: JobId, after: Option<JobId>, limit: usize) -> Fut<'_, Vec<Summary>> {
        self.run(None, |inner, _| Ok(inner.children(parent, after, limit)))
    }

    fn live_children(&self, parent: JobId, group: ChildGroup, among: usize) -> Fut<'_, Vec<Summary>> {
        self.run(None, move |inner, _| Ok(inner.live_children(parent, group, among)))
    }

    fn branch_children_page<'a>(
        &'a self,
        filter: &'a BranchChildFilter,
        bounds: ChildBounds,
    ) -> Fut<'a, BranchChildPage> {
        self.run(None, move |inner, _| Ok(inner.branch_children_page(filter, bounds)))
    }

    fn branch_items<'a>(&'a self, of: BranchItems<'a>) -> Fut<'a, Vec<ItemChild>> {
        self.run(None, move |inner, _| Ok(inner.branch_items(of)))
    }

    fn payload_sizes<'a>(&'a self, of: PayloadsOf<'a>, limit: usize) -> Fut<'a, Vec<u64>> {
        self.run(None, move |inner, _| Ok(inner.payload_sizes(of, limit)))
    }

    fn journal_end(&self, id: JobId, limit: usize) -> Fut<'_, JournalEnd> {
        self.run(None, move |inner, _| Ok(inner.journal_end(id, limit)))
    }

    fn branch_ends(&self, job: JobId, branch: BranchNo) -> Fut<'_, Option<ChildRange>> {
        self.run(None, move |inner, _| Ok(inner.branch_ends(job, branch)))
    }

    fn branch_ranges<'a>(&'a self, of: BranchRanges<'a>) -> Fut<'a, Vec<Vec<RangeChild>>> {
        self.run(None, move |inner, _| Ok(inner.branch_ranges(of)))
    }

    fn holds(&self, id: JobId) -> Fut<'_, Option<Holds>> {
        self.run(None, |inner, now| Ok(inner.holds(now, id)))
    }

    fn state_counts(&self) -> Fut<'_, Vec<StateCount>> {
        self.run(None, |inner, _| Ok(inner.state_counts()))
    }

    fn throughput<'a>(&'a self, filter: &'a ThroughputFilter) -> Fut<'a, Vec<Throughput>> {
        self.run(None, |inner, _| Ok(inner.rollups.throughput(filter)))
    }

    fn signal_waits<'a>(&'a self, filter: &'a SignalWaitFilter) -> Fut<'a, Vec<SignalWaits>> {
        self.run(None, |inner, _| Ok(inner.rollups.signal_waits(filter)))
    }

    fn branch_times(&self, job: JobId) -> Fut<'_, Vec<BranchTimes>> {
        self.run(None, move |inner, _| Ok(inner.branch_times(job)))
    }

    fn backlog(&self, cap: u64) -> Fut<'_, Vec<Backlog>> {
        self.run(None, |inner, _| Ok(inner.backlog(cap)))
    }

    fn transition_counts<'a>(&'a self, kind: &'a str, limit: usize) -> Fut<'a, Vec<TransitionCount>> {
        self.run(None, |inner, _| Ok(inner.transition_counts(kind, limit)))
    }

    fn workers(&self) -> Fut<'_, Vec<WorkerView>> {
        self.run(None, |inner, _| Ok(inner.workers()))
    }

    fn queues(&self) -> Fut<'_, Vec<QueueView>> {
        self.run(None, |inner, _| Ok(inner.queues()))
    }

    fn rate_limits(&self) -> Fut<'_, Vec<LimitView>> {
        self.run(None, |inner, now| Ok(inner.rate_limits(now)))
    }

    fn serial_keys<'a>(&'a self, key: Option<&'a str>, limit: usize) -> Fut<'a, Vec<SerialView>> {
        self.run(None, |inner, _| Ok(inner.serial_keys(key, limit)))
    }

    fn schedules(&self) -> Fut<'_, Vec<ScheduleView>> {
        self.run(None, |inner, _| Ok(inner.schedules()))
    }

    fn firings<'a>(&'a self, name: &'a str, limit: usize) -> Fut<'a, Vec<Firing>> {
        self.run(None, |inner, _| {
            let firings =
                inner.schedules.get(name).into_iter().flat_map(|stored| stored.firings.iter().rev());
            Ok(firings.take(limit).map(|(tick, job)| Firing { tick: *tick, job: *job }).collect())
        })
    }

    fn misses<'a>(&'a self, name: &'a str, limit: usize) -> Fut<'a, Vec<Miss>> {
        self.run(None, |inner, _| {
            let misses = inner.schedules.get(name).into_iter().flat_map(|stored| stored.misses.iter().rev());
            Ok(misses.take(limit).cloned().collect())
        })
    }

    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditEntry>> {
        self.run(None, |inner, _| {
            let is_wanted = |entry: &&AuditEntry| {
                filter.subject.as_ref().is_none_or(|subject| *subject == entry.subject)
                    && filter.before.is_none_or(|before| entry.number < before)
            };
            Ok(inner.audit.iter().rev().filter(is_wanted).take(filter.limit).cloned().collect())
        })
    }

    fn schema(&self) -> Fut<'_, SchemaState> {
        self.run(None, |_, _| Ok(SchemaState::CURRENT))
    }

    fn bytes(&self) -> Fut<'_, u64> {
        self.run(None, |_, _| Ok(0))
    }
}
