//! Reads for people: jobs, their history, and counts of them. See [`super::list`] for lists.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;
use windlass_model::{BranchNo, Epoch, JobId, JournalEntry, Location, Payload, Rev, Signal, Time, WorkerId};

use super::{Postgres, SPAN, children::read_place, migrate, sql};
use crate::{
    Attempt, AuditEntry, AuditFilter, Backlog, Branch, BranchChild, BranchChildFilter, BranchChildPage,
    BranchItems, BranchRanges, BranchTimes, ChildBounds, ChildEnd, ChildGroup, ChildRange, Error, Filter,
    Firing, Fut, Holds, Inspect, ItemChild, Job, JobDetails, JobEnd, JobPage, JournalEnd, LastCall,
    LimitView, MatchCount, Miss, OpenBranch, ParkedJob, PayloadsOf, Pulse, QueueView, RangeChild, Replay,
    ScheduleView, SchemaState, SerialView, SignalWaitFilter, SignalWaits, SourceRow, StateCount, Summary,
    TableSource, Throughput, ThroughputFilter, Transition, TransitionCount, Unsuccessful, UnsuccessfulFilter,
    WorkerView,
    columns::{self, ALIVE},
};

/// A payload from two columns.
pub(super) fn payload(codec: Option<i16>, bytes: Option<Vec<u8>>) -> Option<Payload> {
    Some(Payload { codec: codec? as u8, bytes: bytes? })
}

/// Reads how jobs ended; see [`crate::Execution::job_ends`].
pub(super) async fn job_ends(store: &Postgres, ids: &[JobId]) -> Result<Vec<Option<JobEnd>>, Error> {
    let all: Vec<_> = ids.iter().map(|id| id.0).collect();
    let conn = store.conn().await?;
    // Not from a standby, which may not have the job yet.
    let mut rows = conn.query(sql::inspect::JOB_ENDS, &[&all]).await?;
    let found: HashSet<JobId> = rows.iter().map(|row| JobId(row.get(0))).collect();
    let mut missing: Vec<_> = ids.iter().filter(|id| !found.contains(id)).map(|id| id.0).collect();
    let mut arriving: HashSet<JobId> = HashSet::new();
    if !missing.is_empty() {
        let waiting = conn.query(sql::arrivals::ARE_WAITING, &[&missing]).await?;
        arriving.extend(waiting.iter().map(|row| JobId(row.get(0))));
        missing.retain(|id| !arriving.contains(&JobId(*id)));
    }
    if !missing.is_empty() {
        // A job that was admitted between the two reads is in neither.
        rows.extend(conn.query(sql::inspect::JOB_ENDS, &[&missing]).await?);
    }
    let found: HashMap<JobId, &Row> = rows.iter().map(|row| (JobId(row.get(0)), row)).collect();
    let end = |id: &JobId| {
        let Some(row) = found.get(id) else { return (!arriving.contains(id)).then_some(JobEnd::Gone) };
        let state = columns::final_state(row.get(1))?;
        let output = payload(row.get(4), row.get(5));
        JobEnd::from_parts(state, columns::reason(row.get(2)), columns::failure(row.get(3)), output)
    };
    Ok(ids.iter().map(end).collect())
}

impl Postgres {
    pub(super) fn summary(&self, row: &Row) -> Result<Summary, Error> {
        let lane = self.lane(row.get(1))?;
        let location = Location { is_parked: row.get(12), is_ready: row.get(10), is_scheduled: row.get(11) };
        let state = columns::final_state(row.get(3)).unwrap_or_else(|| location.state());
        Ok(Summary {
            id: JobId(row.get(0)),
            kind: lane.kind.kind,
            version: lane.kind.version,
            queue: lane.queue,
            key: row.get(9),
            state,
            stage: row.get(13),
            reason: columns::reason(row.get(4)),
            priority: row.get(2),
            attempts: row.get::<_, i32>(5) as u32,
            submitted_at: Time(row.get(6)),
            due_at: Time(row.get(7)),
            finished_at: row.get::<_, Option<i64>>(8).map(Time),
        })
    }

    async fn read_job(&self, id: JobId) -> Result<Option<Job>, Error> {
        let conn = self.conn().await?;
        let rows = conn.read(sql::inspect::JOB, &[&id.0, &SPAN]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.ensure_lanes(&conn, [row.get(1)].into_iter()).await?;
        let mut decoder = columns::Decoder::default();
        let epoch = Epoch(row.get(14));
        Ok(Some(Job {
            summary: self.summary(row)?,
            progress: columns::progress(row.get(43), id, epoch),
            epoch,
            rev: Rev(row.get(15)),
            worker_deaths: row.get::<_, i16>(16) as u16,
            solo_crashes: row.get::<_, i16>(17) as u16,
            worker: row.get::<_, Option<i64>>(18).map(WorkerId),
            started_at: row.get::<_, Option<i64>>(19).map(Time),
            deadline_at: row.get::<_, Option<i64>>(20).map(Time),
            parent: row.get::<_, Option<uuid::Uuid>>(30).map(JobId),
            position: read_place(row, 37),
            tags: decoder.tags(row.get(21)),
            options: row.get(22),
            settings: decoder.settings(row.get(23)),
            retry_counts: decoder.retry_counts(row.get(24)),
            input: Payload { codec: row.get::<_, i16>(25) as u8, bytes: row.get(26) },
            output: payload(row.get(27), row.get(28)),
            failure: columns::failure(row.get(29)),
            data: payload(row.get(31), row.get(32)),
            wait: decoder.wait(row.get(33)),
            wait_until: row.get::<_, Option<i64>>(34).map(Time),
            pending_children: row.get::<_, i32>(35).max(0) as u32,
            unwind: decoder.unwind(row.get(36)),
            fault: decoder.fault(),
        }))
    }

    async fn read_payload_sizes(&self, of: PayloadsOf<'_>, limit: usize) -> Result<Vec<u64>, Error> {
        let conn = self.conn().await?;
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = match of {
            PayloadsOf::Journal { job, after } => {
                let after = after.unwrap_or(i32::MIN);
                conn.read(sql::inspect::JOURNAL_SIZES, &[&job.0, &after, &most]).await?
            }
            PayloadsOf::ChildEnds { parent, parent_rev, after } => {
                let after = after.map(|id| id.0);
                let sql = sql::children::CHILD_OUTPUT_SIZES;
                conn.read(sql, &[&parent.0, &parent_rev.0, &after, &most]).await?
            }
            PayloadsOf::Outputs(ids) => {
                let ids = &ids[..limit.min(ids.len())];
                let all: Vec<_> = ids.iter().map(|id| id.0).collect();
                // Where the ends are read too.
                let rows = conn.query(sql::inspect::OUTPUT_SIZES, &[&all]).await?;
                let sizes: HashMap<JobId, i64> =
                    rows.iter().map(|row| (JobId(row.get(0)), row.get(1))).collect();
                let size = |id: &JobId| sizes.get(id).map_or(0, |bytes| bytes.unsigned_abs());
                return Ok(ids.iter().map(size).collect());
            }
        };
        Ok(rows.iter().map(|row| row.get::<_, i64>(0).unsigned_abs()).collect())
    }

    async fn read_backlog(&self, cap: u64) -> Result<Vec<Backlog>, Error> {
        let conn = self.conn().await?;
        let cap_rows = i64::try_from(cap).unwrap_or(i64::MAX);
        let rows = conn.read(sql::inspect::BACKLOG, &[&cap_rows]).await?;
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(0))).await?;
        let count = |row: &Row| (row.get(0), row.get(1), row.get::<_, i64>(2) as u64, row.get(3));
        columns::backlog(rows.iter().map(count), cap, |lane| self.lane(lane))
    }
}

impl Replay for Postgres {
    fn journal(&self, id: JobId, after: Option<i32>, limit: usize) -> Fut<'_, Vec<JournalEntry>> {
        Box::pin(self.read_journal(id, after, limit))
    }

    fn journals<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Vec<JournalEntry>>> {
        Box::pin(self.read_journals(ids))
    }

    fn context(&self, id: JobId) -> Fut<'_, Vec<(String, Payload)>> {
        Box::pin(self.read_context(id))
    }

    fn inbox(&self, id: JobId, limit: usize) -> Fut<'_, Vec<Signal>> {
        Box::pin(self.read_inbox(id, limit))
    }

    fn child_ends(
        &self,
        parent: JobId,
        parent_rev: Rev,
        after: Option<JobId>,
        limit: usize,
    ) -> Fut<'_, Vec<ChildEnd>> {
        Box::pin(self.read_child_ends(parent, parent_rev, after, limit))
    }

    fn branches(&self, job: JobId) -> Fut<'_, Vec<Branch>> {
        Box::pin(self.read_branches(job))
    }

    fn branch_children<'a>(&'a self, of: &'a BranchChildFilter) -> Fut<'a, Vec<BranchChild>> {
        Box::pin(self.read_branch_children(of))
    }

    fn source_rows<'a>(
        &'a self,
        rows: &'a TableSource,
        after: Option<&'a str>,
        limit: usize,
    ) -> Fut<'a, Vec<SourceRow>> {
        Box::pin(self.read_rows(rows, after, limit))
    }

    fn clock(&self) -> Fut<'_, Time> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::timers::NEXT, &[&None::<i64>]).await?;
            rows.first()
                .map(|row| Time(row.get(0)))
                .ok_or_else(|| Error::Fault("the clock answered nothing".into()))
        })
    }
}

impl Inspect for Postgres {
    fn pulse<'a>(&'a self, jobs: &'a [JobId]) -> Fut<'a, Pulse> {
        Box::pin(self.read_pulse(jobs))
    }

    fn summaries<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<Summary>>> {
        Box::pin(self.read_summaries(ids))
    }

    fn details<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobDetails>>> {
        Box::pin(self.read_details(ids))
    }

    fn unsuccessful<'a>(&'a self, filter: &'a UnsuccessfulFilter, limit: usize) -> Fut<'a, Unsuccessful> {
        Box::pin(self.read_unsuccessful_jobs(filter, limit))
    }

    fn parked(&self, limit: usize) -> Fut<'_, Vec<ParkedJob>> {
        Box::pin(self.read_parked(limit))
    }

    fn last_calls<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<LastCall>>> {
        Box::pin(self.read_last_calls(ids))
    }

    fn open_branches(&self, limit: usize) -> Fut<'_, Vec<OpenBranch>> {
        Box::pin(self.read_open_branches(limit))
    }

    fn job(&self, id: JobId) -> Fut<'_, Option<Job>> {
        Box::pin(self.read_job(id))
    }

    fn jobs<'a>(&'a self, filter: &'a Filter) -> Fut<'a, JobPage> {
        Box::pin(self.list_jobs(filter))
    }

    fn count_jobs<'a>(&'a self, filter: &'a Filter, most: usize) -> Fut<'a, MatchCount> {
        Box::pin(self.count_jobs_matching(filter, most))
    }

    fn history(&self, id: JobId) -> Fut<'_, Vec<Attempt>> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::inspect::HISTORY, &[&id.0]).await?;
            let attempt = |row: &Row| Attempt {
                epoch: Epoch(row.get(0)),
                worker: WorkerId(row.get(1)),
                started_at: Time(row.get(2)),
                ended_at: Time(row.get(3)),
                failure: columns::failure(Some(row.get(4))).expect("there is text"),
            };
            Ok(rows.iter().map(attempt).collect())
        })
    }

    fn transitions(&self, id: JobId, after: Option<Rev>, limit: usize) -> Fut<'_, Vec<Transition>> {
        Box::pin(self.read_transitions(id, after, limit))
    }

    fn children(&self, parent: JobId, after: Option<JobId>, limit: usize) -> Fut<'_, Vec<Summary>> {
        Box::pin(self.read_children(parent, after, limit))
    }

    fn live_children(&self, parent: JobId, group: ChildGroup, among: usize) -> Fut<'_, Vec<Summary>> {
        Box::pin(self.read_live_children(parent, group, among))
    }

    fn branch_children_page<'a>(
        &'a self,
        of: &'a BranchChildFilter,
        bounds: ChildBounds,
    ) -> Fut<'a, BranchChildPage> {
        Box::pin(self.read_branch_children_page(of, bounds))
    }

    fn branch_items<'a>(&'a self, of: BranchItems<'a>) -> Fut<'a, Vec<ItemChild>> {
        Box::pin(self.read_branch_items(of))
    }

    fn payload_sizes<'a>(&'a self, of: PayloadsOf<'a>, limit: usize) -> Fut<'a, Vec<u64>> {
        Box::pin(self.read_payload_sizes(of, limit))
    }

    fn journal_end(&self, id: JobId, limit: usize) -> Fut<'_, JournalEnd> {
        Box::pin(self.read_journal_end(id, limit))
    }

    fn branch_ends(&self, job: JobId, branch: BranchNo) -> Fut<'_, Option<ChildRange>> {
        Box::pin(self.read_branch_ends(job, branch))
    }

    fn branch_ranges<'a>(&'a self, of: BranchRanges<'a>) -> Fut<'a, Vec<Vec<RangeChild>>> {
        Box::pin(self.read_branch_ranges(of))
    }

    fn holds(&self, id: JobId) -> Fut<'_, Option<Holds>> {
        Box::pin(self.read_holds(id))
    }

    fn state_counts(&self) -> Fut<'_, Vec<StateCount>> {
        Box::pin(async move { Ok(columns::state_counts(self.lane_counts().await?)) })
    }

    fn throughput<'a>(&'a self, filter: &'a ThroughputFilter) -> Fut<'a, Vec<Throughput>> {
        Box::pin(self.read_throughput(filter))
    }

    fn signal_waits<'a>(&'a self, filter: &'a SignalWaitFilter) -> Fut<'a, Vec<SignalWaits>> {
        Box::pin(self.read_signal_waits(filter))
    }

    fn branch_times(&self, job: JobId) -> Fut<'_, Vec<BranchTimes>> {
        Box::pin(self.read_branch_times(job))
    }

    fn backlog(&self, cap: u64) -> Fut<'_, Vec<Backlog>> {
        Box::pin(self.read_backlog(cap))
    }

    fn transition_counts<'a>(&'a self, kind: &'a str, limit: usize) -> Fut<'a, Vec<TransitionCount>> {
        Box::pin(self.read_transition_counts(kind, limit))
    }

    fn workers(&self) -> Fut<'_, Vec<WorkerView>> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::views::WORKERS, &[]).await?;
            let view = |row: &Row| WorkerView {
                id: WorkerId(row.get(0)),
                name: row.get(1),
                liveness_file: row.get(2),
                alive: row.get::<_, i16>(3) == ALIVE,
                lease_until: Time(row.get(4)),
                claims: row.get::<_, i64>(5) as u64,
                serves: columns::serves(row.get(6)),
                lost_at: row.get::<_, Option<i64>>(7).map(Time),
            };
            Ok(rows.iter().map(view).collect())
        })
    }

    fn queues(&self) -> Fut<'_, Vec<QueueView>> {
        Box::pin(self.read_queues())
    }

    fn rate_limits(&self) -> Fut<'_, Vec<LimitView>> {
        Box::pin(self.read_limits())
    }

    fn serial_keys<'a>(&'a self, key: Option<&'a str>, limit: usize) -> Fut<'a, Vec<SerialView>> {
        Box::pin(self.read_serial_keys(key, limit))
    }

    fn schedules(&self) -> Fut<'_, Vec<ScheduleView>> {
        Box::pin(self.read_schedules())
    }

    fn firings<'a>(&'a self, schedule: &'a str, limit: usize) -> Fut<'a, Vec<Firing>> {
        Box::pin(self.read_firings(schedule, limit))
    }

    fn misses<'a>(&'a self, schedule: &'a str, limit: usize) -> Fut<'a, Vec<Miss>> {
        Box::pin(self.read_misses(schedule, limit))
    }

    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditEntry>> {
        Box::pin(self.read_audit(filter))
    }

    fn schema(&self) -> Fut<'_, SchemaState> {
        Box::pin(migrate::read(&self.shared.options))
    }

    fn bytes(&self) -> Fut<'_, u64> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::inspect::BYTES, &[]).await?;
            Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
        })
    }
}
