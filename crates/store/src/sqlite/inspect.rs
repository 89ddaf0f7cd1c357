//! Reads for people: jobs and their history. See [`super::list`] for lists of them, [`super::views`] for what limits them, and
//! [`super::children`] for children.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Row, params};
use windlass_model::{
    BranchNo, Epoch, JobCounts, JobId, JournalEntry, Location, Payload, Rev, Signal, State, Time, WorkerId,
    rank::AGEING_SPAN,
};

use super::{
    Sqlite, arrivals, children, counts, details, journal, list, migrate, pulse, rollups, schedule,
    source_rows, sql,
    tx::{Tx, read_id, unpack},
    views,
};
use crate::{
    Attempt, AuditEntry, AuditFilter, Backlog, Branch, BranchChild, BranchChildFilter, BranchChildPage,
    BranchItems, BranchRanges, BranchTimes, ChildBounds, ChildEnd, ChildGroup, ChildRange, Error, Filter,
    Firing, Fut, Holds, Inspect, ItemChild, Job, JobDetails, JobEnd, JobPage, JournalEnd, LastCall,
    LimitView, MatchCount, Miss, OpenBranch, ParkedJob, PayloadsOf, Pulse, QueueView, RangeChild, Replay,
    ScheduleView, SchemaState, SerialView, SignalWaitFilter, SignalWaits, SourceRow, StateCount, Summary,
    TableSource, Throughput, ThroughputFilter, Transition, TransitionCount, Unsuccessful, UnsuccessfulFilter,
    WorkerView,
    columns::{self, ALIVE, LaneCounts},
    intern::Lane,
};

/// By how much a priority moves a job's rank, in microseconds.
pub(super) const SPAN: i64 = AGEING_SPAN.as_micros() as i64;

/// How jobs ended, if they did.
pub(super) fn job_ends(tx: &Tx<'_>, ids: &[JobId]) -> Result<Vec<Option<JobEnd>>, Error> {
    let read = |id: &JobId| {
        tx.query_one(sql::inspect::JOB_ENDS, [id.as_bytes().as_slice()], |row| {
            let output = row.get::<_, Option<Vec<u8>>>(4)?;
            let output = output.map(|bytes| row.get(3).map(|codec| Payload { codec, bytes })).transpose();
            Ok((row.get::<_, i16>(0)?, row.get(1)?, row.get::<_, Option<String>>(2)?, output?))
        })
    };
    let mut ends = Vec::with_capacity(ids.len());
    for id in ids {
        let mut row = read(id)?;
        if row.is_none() {
            if arrivals::is_arriving(tx, *id)? {
                ends.push(None);
                continue;
            }
            // It may have been admitted between the two reads.
            row = read(id)?;
        }
        ends.push(match row {
            None => Some(JobEnd::Gone),
            Some((state, reason, failure, output)) => columns::final_state(state).and_then(|state| {
                JobEnd::from_parts(
                    state,
                    columns::reason(reason),
                    columns::failure(failure.as_deref()),
                    output,
                )
            }),
        });
    }
    Ok(ends)
}

/// The bytes of the outputs of jobs.
fn output_sizes(tx: &Tx<'_>, ids: &[JobId]) -> Result<Vec<u64>, Error> {
    let size = |id: &JobId| {
        let id = [id.as_bytes().as_slice()];
        let size = tx.query_one(sql::inspect::OUTPUT_SIZES, id, |row| row.get::<_, i64>(0))?;
        Ok(size.unwrap_or(0).unsigned_abs())
    };
    ids.iter().map(size).collect()
}

/// Reads the columns of the SQL fragment `common.summary`.
pub(super) fn summary(tx: &Tx<'_>, row: &Row<'_>) -> Result<Summary, Error> {
    let lane = tx.store.lane(tx, row.get(1)?)?;
    let location = Location { is_parked: row.get(12)?, is_ready: row.get(10)?, is_scheduled: row.get(11)? };
    let state = columns::final_state(row.get(3)?).unwrap_or_else(|| location.state());
    Ok(Summary {
        stage: row.get(13)?,
        id: read_id(row, 0)?,
        kind: lane.kind.kind,
        version: lane.kind.version,
        queue: lane.queue,
        key: row.get(9)?,
        state,
        reason: columns::reason(row.get(4)?),
        priority: row.get(2)?,
        attempts: row.get(5)?,
        submitted_at: Time(row.get(6)?),
        due_at: Time(row.get(7)?),
        finished_at: row.get::<_, Option<i64>>(8)?.map(Time),
    })
}

/// Which worker has each running job, and since when.
pub(super) type Holders = HashMap<(JobId, Epoch), (WorkerId, Time)>;

/// Reads all claims.
pub(super) fn holders(tx: &Tx<'_>) -> Result<Holders, Error> {
    let mut statement = tx.prepare(sql::inspect::CLAIMS)?;
    let mut rows = statement.query([])?;
    let mut holders = HashMap::new();
    while let Some(row) = rows.next()? {
        let holder = (WorkerId(row.get(0)?), Time(row.get(1)?));
        for pair in unpack(&row.get::<_, Vec<u8>>(2)?)? {
            holders.insert(pair, holder);
        }
    }
    Ok(holders)
}

fn job(tx: &Tx<'_>, id: JobId) -> Result<Option<Job>, Error> {
    let mut statement = tx.prepare(sql::inspect::JOB)?;
    let mut rows = statement.query(params![id.as_bytes(), SPAN])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let summary = summary(tx, row)?;
    let epoch = Epoch(row.get(14)?);
    let holder = match summary.state {
        State::Running => holders(tx)?.remove(&(id, epoch)),
        _ => None,
    };
    let data: Option<u8> = row.get(31)?;
    let output: Option<Vec<u8>> = row.get(28)?;
    let mut decoder = columns::Decoder::default();
    let reports: Option<String> = match holder {
        Some((worker, _)) => tx.query_one(sql::inspect::PROGRESS, [worker.0], |row| row.get(0))?.flatten(),
        None => None,
    };
    Ok(Some(Job {
        progress: columns::progress(reports.as_deref(), id, epoch),
        epoch,
        rev: Rev(row.get(15)?),
        worker_deaths: row.get(16)?,
        solo_crashes: row.get(17)?,
        worker: holder.map(|(worker, _)| worker).or(row.get::<_, Option<i64>>(18)?.map(WorkerId)),
        started_at: holder.map(|(_, at)| at).or(row.get::<_, Option<i64>>(19)?.map(Time)),
        deadline_at: row.get::<_, Option<i64>>(20)?.map(Time),
        parent: row.get::<_, Option<[u8; 16]>>(30)?.map(JobId::from_bytes),
        position: children::place(tx, id)?,
        tags: decoder.tags(row.get::<_, Option<String>>(21)?.as_deref()),
        options: row.get(22)?,
        settings: decoder.settings(row.get::<_, Option<String>>(23)?.as_deref()),
        retry_counts: decoder.retry_counts(row.get::<_, Option<String>>(24)?.as_deref()),
        input: Payload { codec: row.get(25)?, bytes: row.get(26)? },
        output: output.map(|bytes| Ok::<_, Error>(Payload { codec: row.get(27)?, bytes })).transpose()?,
        failure: columns::failure(row.get::<_, Option<String>>(29)?.as_deref()),
        data: data.map(|codec| Ok::<_, Error>(Payload { codec, bytes: row.get(32)? })).transpose()?,
        wait: decoder.wait(row.get::<_, Option<String>>(33)?.as_deref()),
        wait_until: row.get::<_, Option<i64>>(34)?.map(Time),
        pending_children: row.get(35)?,
        unwind: decoder.unwind(row.get::<_, Option<String>>(36)?.as_deref()),
        fault: decoder.fault(),
        summary,
    }))
}

fn history(tx: &Tx<'_>, id: JobId) -> Result<Vec<Attempt>, Error> {
    let mut statement = tx.prepare(sql::inspect::HISTORY)?;
    let mut rows = statement.query([id.as_bytes().as_slice()])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        attempts.push(Attempt {
            epoch: Epoch(row.get(0)?),
            worker: WorkerId(row.get(1)?),
            started_at: Time(row.get(2)?),
            ended_at: Time(row.get(3)?),
            failure: columns::failure(Some(&row.get::<_, String>(4)?)).expect("there is text"),
        });
    }
    Ok(attempts)
}

/// Reads how many jobs of each lane are in which state, from the counts that are maintained.
pub(super) fn lane_counts(tx: &Tx<'_>) -> Result<Vec<(Lane, LaneCounts)>, Error> {
    let running = running_per_lane(tx, usize::MAX)?;
    let count = |(lane, counts): (i32, JobCounts)| {
        let by_state = counts.by_state(running.get(&lane).copied().unwrap_or(0));
        Ok((tx.store.lane(tx, lane)?, by_state))
    };
    counts::read_all(tx)?.into_iter().map(count).collect()
}

/// Counts claimed jobs per lane, reading at most `limit` of them.
fn running_per_lane(tx: &Tx<'_>, limit: usize) -> Result<BTreeMap<i32, u64>, Error> {
    let mut claims = tx.prepare(sql::inspect::CLAIMS)?;
    let mut rows = claims.query([])?;
    let mut running: BTreeMap<i32, u64> = BTreeMap::new();
    let mut left = limit;
    while left > 0
        && let Some(row) = rows.next()?
    {
        for (id, epoch) in unpack(&row.get::<_, Vec<u8>>(2)?)?.into_iter().take(left) {
            left -= 1;
            let sql = sql::inspect::RUNNING_LANE;
            if let Some(lane) = tx.query_one(sql, params![id.as_bytes(), epoch.0], |row| row.get(0))? {
                *running.entry(lane).or_default() += 1;
            }
        }
    }
    Ok(running)
}

fn backlog(tx: &Tx<'_>, cap: u64) -> Result<Vec<Backlog>, Error> {
    let mut statement = tx.prepare(sql::inspect::BACKLOG)?;
    let mut rows = statement.query([i64::try_from(cap).unwrap_or(i64::MAX)])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        counts.push((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)? as u64, row.get(3)?));
    }
    let running = running_per_lane(tx, usize::try_from(cap).unwrap_or(usize::MAX))?;
    counts.extend(running.into_iter().map(|(lane, jobs)| (lane, "running".to_owned(), jobs, None)));
    columns::backlog(counts, cap, |lane| tx.store.lane(tx, lane))
}

fn workers(tx: &Tx<'_>) -> Result<Vec<WorkerView>, Error> {
    let mut statement = tx.prepare(sql::views::WORKERS)?;
    let rows = statement.query_map([], |row| {
        Ok(WorkerView {
            id: WorkerId(row.get(0)?),
            name: row.get(1)?,
            liveness_file: row.get(2)?,
            alive: row.get::<_, i16>(3)? == ALIVE,
            lease_until: Time(row.get(4)?),
            claims: row.get::<_, i64>(5)? as u64,
            serves: serde_json::from_str(&row.get::<_, String>(6)?).unwrap_or_default(),
            lost_at: row.get::<_, Option<i64>>(7)?.map(Time),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Replay for Sqlite {
    fn journal(&self, id: JobId, after: Option<i32>, limit: usize) -> Fut<'_, Vec<JournalEntry>> {
        Box::pin(std::future::ready(self.read(|tx| journal::read(tx, id, after, limit))))
    }

    fn context(&self, id: JobId) -> Fut<'_, Vec<(String, Payload)>> {
        Box::pin(std::future::ready(self.read(|tx| journal::context(tx, id))))
    }

    fn inbox(&self, id: JobId, limit: usize) -> Fut<'_, Vec<Signal>> {
        Box::pin(std::future::ready(self.read(|tx| views::inbox(tx, id, limit))))
    }

    fn child_ends(
        &self,
        parent: JobId,
        parent_rev: Rev,
        after: Option<JobId>,
        limit: usize,
    ) -> Fut<'_, Vec<ChildEnd>> {
        Box::pin(std::future::ready(
            self.read(|tx| children::child_ends(tx, parent, parent_rev, after, limit)),
        ))
    }

    fn branches(&self, job: JobId) -> Fut<'_, Vec<Branch>> {
        Box::pin(std::future::ready(self.read(|tx| children::branches(tx, job))))
    }

    fn branch_children<'a>(&'a self, of: &'a BranchChildFilter) -> Fut<'a, Vec<BranchChild>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| children::branch_children(tx, of))))
    }

    fn source_rows<'a>(
        &'a self,
        rows: &'a TableSource,
        after: Option<&'a str>,
        limit: usize,
    ) -> Fut<'a, Vec<SourceRow>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| source_rows::rows(tx.conn, rows, after, limit))))
    }

    fn clock(&self) -> Fut<'_, Time> {
        Box::pin(std::future::ready(self.read(|tx| Ok(tx.now(None)))))
    }
}

impl Inspect for Sqlite {
    fn pulse<'a>(&'a self, jobs: &'a [JobId]) -> Fut<'a, Pulse> {
        Box::pin(std::future::ready(self.read(|tx| pulse::pulse(tx, jobs))))
    }

    fn summaries<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<Summary>>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| details::summaries(tx, ids))))
    }

    fn details<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobDetails>>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| details::details(tx, ids))))
    }

    fn unsuccessful<'a>(&'a self, filter: &'a UnsuccessfulFilter, limit: usize) -> Fut<'a, Unsuccessful> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| details::unsuccessful(tx, filter, limit))))
    }

    fn parked(&self, limit: usize) -> Fut<'_, Vec<ParkedJob>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| details::parked(tx, limit))))
    }

    fn last_calls<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<LastCall>>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| details::last_calls(tx, ids))))
    }

    fn open_branches(&self, limit: usize) -> Fut<'_, Vec<OpenBranch>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| children::open_branches(tx, limit))))
    }

    fn job(&self, id: JobId) -> Fut<'_, Option<Job>> {
        Box::pin(std::future::ready(self.read(|tx| job(tx, id))))
    }

    fn jobs<'a>(&'a self, filter: &'a Filter) -> Fut<'a, JobPage> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| list::jobs(tx, filter))))
    }

    fn count_jobs<'a>(&'a self, filter: &'a Filter, most: usize) -> Fut<'a, MatchCount> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| list::count_jobs(tx, filter, most))))
    }

    fn history(&self, id: JobId) -> Fut<'_, Vec<Attempt>> {
        Box::pin(std::future::ready(self.read(|tx| history(tx, id))))
    }

    fn transitions(&self, id: JobId, after: Option<Rev>, limit: usize) -> Fut<'_, Vec<Transition>> {
        Box::pin(std::future::ready(self.read(|tx| views::transitions(tx, id, after, limit))))
    }

    fn children(&self, parent: JobId, after: Option<JobId>, limit: usize) -> Fut<'_, Vec<Summary>> {
        Box::pin(std::future::ready(self.read(|tx| children::children(tx, parent, after, limit))))
    }

    fn live_children(&self, parent: JobId, group: ChildGroup, among: usize) -> Fut<'_, Vec<Summary>> {
        Box::pin(std::future::ready(self.read(|tx| children::live_children(tx, parent, group, among))))
    }

    fn branch_children_page<'a>(
        &'a self,
        of: &'a BranchChildFilter,
        bounds: ChildBounds,
    ) -> Fut<'a, BranchChildPage> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| children::branch_children_page(tx, of, bounds))))
    }

    fn branch_items<'a>(&'a self, of: BranchItems<'a>) -> Fut<'a, Vec<ItemChild>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| children::branch_items(tx, of))))
    }

    fn payload_sizes<'a>(&'a self, of: PayloadsOf<'a>, limit: usize) -> Fut<'a, Vec<u64>> {
        Box::pin(std::future::ready(self.read(|tx| match of {
            PayloadsOf::Journal { job, after } => journal::sizes(tx, job, after, limit),
            PayloadsOf::ChildEnds { parent, parent_rev, after } => {
                children::child_output_sizes(tx, parent, parent_rev, after, limit)
            }
            PayloadsOf::Outputs(ids) => output_sizes(tx, &ids[..limit.min(ids.len())]),
        })))
    }

    fn journal_end(&self, id: JobId, limit: usize) -> Fut<'_, JournalEnd> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| journal::end(tx, id, limit))))
    }

    fn branch_ends(&self, job: JobId, branch: BranchNo) -> Fut<'_, Option<ChildRange>> {
        Box::pin(std::future::ready(self.read(|tx| children::branch_ends(tx, job, branch))))
    }

    fn branch_ranges<'a>(&'a self, of: BranchRanges<'a>) -> Fut<'a, Vec<Vec<RangeChild>>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| children::branch_ranges(tx, of))))
    }

    fn holds(&self, id: JobId) -> Fut<'_, Option<Holds>> {
        Box::pin(std::future::ready(self.read(|tx| views::holds(tx, id))))
    }

    fn state_counts(&self) -> Fut<'_, Vec<StateCount>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| Ok(columns::state_counts(lane_counts(tx)?)))))
    }

    fn throughput<'a>(&'a self, filter: &'a ThroughputFilter) -> Fut<'a, Vec<Throughput>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| rollups::throughput(tx, filter))))
    }

    fn signal_waits<'a>(&'a self, filter: &'a SignalWaitFilter) -> Fut<'a, Vec<SignalWaits>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| rollups::signal_waits(tx, filter))))
    }

    fn branch_times(&self, job: JobId) -> Fut<'_, Vec<BranchTimes>> {
        Box::pin(std::future::ready(self.read_snapshot(|tx| rollups::branch_times(tx, job))))
    }

    fn backlog(&self, cap: u64) -> Fut<'_, Vec<Backlog>> {
        Box::pin(std::future::ready(self.read(|tx| backlog(tx, cap))))
    }

    fn transition_counts<'a>(&'a self, kind: &'a str, limit: usize) -> Fut<'a, Vec<TransitionCount>> {
        Box::pin(std::future::ready(self.read(|tx| views::transition_counts(tx, kind, limit))))
    }

    fn workers(&self) -> Fut<'_, Vec<WorkerView>> {
        Box::pin(std::future::ready(self.read(workers)))
    }

    fn queues(&self) -> Fut<'_, Vec<QueueView>> {
        Box::pin(std::future::ready(self.read(views::queues)))
    }

    fn rate_limits(&self) -> Fut<'_, Vec<LimitView>> {
        Box::pin(std::future::ready(self.read(views::rate_limits)))
    }

    fn serial_keys<'a>(&'a self, key: Option<&'a str>, limit: usize) -> Fut<'a, Vec<SerialView>> {
        Box::pin(std::future::ready(self.read(|tx| views::serial_keys(tx, key, limit))))
    }

    fn schedules(&self) -> Fut<'_, Vec<ScheduleView>> {
        Box::pin(std::future::ready(self.read(schedule::schedules)))
    }

    fn firings<'a>(&'a self, name: &'a str, limit: usize) -> Fut<'a, Vec<Firing>> {
        Box::pin(std::future::ready(self.read(|tx| schedule::firings(tx, name, limit))))
    }

    fn misses<'a>(&'a self, name: &'a str, limit: usize) -> Fut<'a, Vec<Miss>> {
        Box::pin(std::future::ready(self.read(|tx| schedule::misses(tx, name, limit))))
    }

    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditEntry>> {
        Box::pin(std::future::ready(self.read(|tx| views::audit(tx, filter))))
    }

    fn schema(&self) -> Fut<'_, SchemaState> {
        Box::pin(std::future::ready(self.read(|tx| migrate::state(tx.conn, migrate::MIGRATIONS))))
    }

    fn bytes(&self) -> Fut<'_, u64> {
        let bytes = self.read(|tx| {
            let size = tx.query_one(sql::inspect::BYTES, [], |row| row.get::<_, i64>(0))?;
            Ok(size.unwrap_or(0) as u64)
        });
        Box::pin(std::future::ready(bytes))
    }
}
