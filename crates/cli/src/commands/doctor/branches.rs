//! Checks for branches that need help, and for children that nothing waits for.

use std::time::Duration;

use windlass::{
    Engine, JobId, Merge, Time,
    model::{BranchCounts, merge::BranchProgress},
};

use super::Findings;
use crate::{durations, out, program::Program};

/// A poll this late is worth a warning: workers poll within seconds.
const LATE: Duration = Duration::from_secs(60);

/// A branch as it is stored.
struct Row {
    job: JobId,
    name: String,
    merge_record: Option<String>,
    progress: BranchProgress,
    /// When it is polled next.
    poll_at: Option<Time>,
}

impl Row {
    fn pending(&self) -> u64 {
        (self.progress.spawned - self.progress.counts.ended()).max(0).unsigned_abs()
    }

    /// Whether its merge waits for unsuccessful children only.
    fn is_blocked(&self) -> bool {
        let merge =
            self.merge_record.as_deref().and_then(|record| serde_json::from_str::<Merge>(record).ok());
        self.progress.counts.unsuccessful() > 0
            && self.pending() == 0
            && merge.is_some_and(|merge| merge.waits_for_unsuccessful())
    }
}

pub(super) async fn examine(
    findings: &mut Findings,
    engine: &Engine,
    program: &Program,
) -> anyhow::Result<()> {
    let now = engine.inspect().clock().await?;
    let awaited = rows::read(program, rows::AWAITED).await?;
    let orphaned = rows::read(program, rows::ORPHANED).await?;
    judge(findings, &awaited, &orphaned, now, &program.name);
    Ok(())
}

fn judge(findings: &mut Findings, awaited: &[Row], orphaned: &[Row], now: Time, program: &str) {
    let blocked: Vec<&Row> = awaited.iter().filter(|row| row.is_blocked()).collect();
    if let Some(first) = blocked.first() {
        let (job, name) = (first.job, &first.name);
        let unsuccessful: u64 =
            blocked.iter().map(|row| row.progress.counts.unsuccessful().unsigned_abs()).sum();
        findings.warn(
            "branches",
            format!(
                "{} for {}; `{program} redrive JOB` retries them, like `{program} redrive {job} --branch {name}`",
                out::counted(blocked.len() as u64, "branch waits", "branches wait"),
                out::counted(unsuccessful, "unsuccessful child", "unsuccessful children"),
            ),
        );
    }
    let late = |row: &&Row| row.poll_at.is_some_and(|at| now.since(at) > LATE);
    let overdue: Vec<&Row> = awaited.iter().filter(late).collect();
    if let Some(oldest) = overdue.iter().filter_map(|row| row.poll_at).min() {
        let late = durations::format(now.since(oldest));
        findings.warn(
            "branches",
            format!(
                "workers should have polled {} {late} ago; start one with `{program} worker`, or your program",
                out::counted(overdue.len() as u64, "branch", "branches")
            ),
        );
    }
    if let Some(first) = orphaned.first() {
        let children = orphaned.iter().map(Row::pending).sum();
        let job = first.job;
        findings.warn(
            "branches",
            format!(
                "{} live although the job that opened the branch has ended; `{program} cancel JOB --children` cancels them, \
                 like `{program} cancel {job} --children`",
                out::counted(children, "child is", "children are"),
            ),
        );
    }
    if !awaited.is_empty() && blocked.is_empty() && overdue.is_empty() {
        let more = if awaited.len() >= rows::LIMIT { " or more" } else { "" };
        let count = out::thousands(awaited.len() as u64);
        findings
            .ok("branches", format!("{count}{more} awaited; `{program} branches JOB` shows those of a job"));
    }
}

/// Branches of all jobs, read from the store's tables: its traits offer those of one job.
mod rows {
    use super::*;
    use crate::commands::doctor::backlog::{PREFIX, open, server};

    /// How many branches are read.
    pub(super) const LIMIT: usize = 10_000;

    /// Branches that a parent waits for, by the time of their next poll: walks the index on it.
    pub(super) const AWAITED: &str = "select b.job, b.name, b.merge_record, b.spawned, {counts}, b.poll_at \
        from (select * from {p}branches where poll_at is not null order by poll_at limit 10000) b {tallies} \
        where b.watch is not null and not {cancelling}";
    /// Those of the newest 10,000 branches whose job has ended while children have not.
    pub(super) const ORPHANED: &str = "select b.job, b.name, b.merge_record, b.spawned, {counts}, b.poll_at \
        from (select * from {p}branches order by job desc, number desc limit 10000) b \
        join {p}jobs j on j.id = b.job and j.state > 0 {tallies} \
        where not {cancelling} and b.spawned > {ended}";

    /// In SQLite the counts are in the branch's own row.
    fn sqlite(sql: &str) -> String {
        sql.replace("{counts}", "b.done, b.failed, b.cancelled")
            .replace("{tallies}", "")
            .replace("{cancelling}", "b.cancels_children")
            .replace("{ended}", "b.done + b.failed + b.cancelled")
            .replace("{p}", PREFIX)
    }

    /// In PostgreSQL they are in several rows, one per writer.
    fn postgres(sql: &str) -> String {
        let tallies = "cross join lateral (select coalesce(sum(done), 0)::int8 as done, coalesce(sum(failed), 0)::int8 as failed, \
            coalesce(sum(cancelled), 0)::int8 as cancelled from branch_counts where job = b.job and branch = b.number) t";
        sql.replace("{counts}", "t.done, t.failed, t.cancelled")
            .replace("{tallies}", tallies)
            .replace("{cancelling}", "b.cancels_children")
            .replace("{ended}", "t.done + t.failed + t.cancelled")
            .replace("{p}", "")
    }

    pub(super) async fn read(program: &Program, sql: &str) -> anyhow::Result<Vec<Row>> {
        if let Some(file) = open(program)? {
            let mut statement = file.prepare(&sqlite(sql))?;
            let rows = statement.query_map([], |row| {
                let job: [u8; 16] = row.get(0)?;
                let counts = BranchCounts {
                    started: 0,
                    done: row.get(4)?,
                    failed: row.get(5)?,
                    cancelled: row.get(6)?,
                };
                let poll_at: Option<i64> = row.get(7)?;
                Ok(Row {
                    job: JobId::from_bytes(job),
                    name: row.get(1)?,
                    merge_record: row.get(2)?,
                    progress: BranchProgress { spawned: row.get(3)?, counts },
                    poll_at: poll_at.map(Time),
                })
            })?;
            return Ok(rows.collect::<Result<_, _>>()?);
        }
        let Some(client) = server(program).await? else { return Ok(Vec::new()) };
        let row = |row: &tokio_postgres::Row| {
            let counts =
                BranchCounts { started: 0, done: row.get(4), failed: row.get(5), cancelled: row.get(6) };
            Row {
                job: JobId(row.get(0)),
                name: row.get(1),
                merge_record: row.get(2),
                progress: BranchProgress { spawned: row.get(3), counts },
                poll_at: row.get::<_, Option<i64>>(7).map(Time),
            }
        };
        Ok(client.query(&postgres(sql), &[]).await?.iter().map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::Verdict;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn row(spawned: i64, done: i64, failed: i64, merge: &Merge) -> Row {
        let counts = BranchCounts { started: 0, done, failed, cancelled: 0 };
        Row {
            job: JobId::from_parts(1, 0, 0),
            name: "items".into(),
            merge_record: serde_json::to_string(merge).ok(),
            progress: BranchProgress { spawned, counts },
            poll_at: Some(NOW),
        }
    }

    fn found(awaited: &[Row], orphaned: &[Row]) -> Vec<(Verdict, String)> {
        let mut findings = Findings::default();
        judge(&mut findings, awaited, orphaned, NOW, "windlass");
        findings.0.into_iter().map(|check| (check.verdict, check.found)).collect()
    }

    #[test]
    fn branches_that_need_help_are_warnings() {
        assert_eq!(found(&[], &[]), []);
        let healthy = found(&[row(10, 1, 0, &Merge::all()), row(10, 1, 3, &Merge::settled())], &[]);
        assert_eq!(
            healthy,
            [(Verdict::Ok, "2 awaited; `windlass branches JOB` shows those of a job".into())]
        );
        let blocked = found(&[row(10, 8, 2, &Merge::all()), row(10, 7, 2, &Merge::all())], &[]);
        assert_eq!(blocked[0].0, Verdict::Warn);
        assert!(blocked[0].1.starts_with("1 branch waits for 2 unsuccessful children; "), "{blocked:?}");
        let late = Row { poll_at: Some(NOW.minus(Duration::from_secs(600))), ..row(9, 1, 0, &Merge::all()) };
        assert!(found(&[late], &[])[0].1.starts_with("workers should have polled 1 branch 10m ago"));
        let orphaned = found(&[], &[row(10, 1, 0, &Merge::all())]);
        assert!(orphaned[0].1.starts_with("9 children are live although the job"), "{orphaned:?}");
    }
}
