//! Branches that go no further by themselves, and children that nobody waits for.

use std::time::Duration;

use windlass::{
    Engine, JobId, Merge, Time,
    model::{Tally, merge::BranchProgress},
};

use super::Findings;
use crate::{commands::branches::counted, out, place::Place, span};

/// How long after its time a look may come before it is worth a word: workers look within seconds.
const LATE: Duration = Duration::from_secs(60);

/// A branch as its row tells.
struct Row {
    job: JobId,
    name: String,
    goal: Option<String>,
    stand: BranchProgress,
    /// When it is looked at next.
    poll_at: Option<Time>,
}

impl Row {
    fn pending(&self) -> u64 {
        (self.stand.spawned - self.stand.tally.ended()).max(0).unsigned_abs()
    }

    /// Whether it waits for children that have not ended well, and for none else.
    fn is_blocked(&self) -> bool {
        let merge = self.goal.as_deref().and_then(|goal| serde_json::from_str::<Merge>(goal).ok());
        self.stand.tally.unsuccessful() > 0
            && self.pending() == 0
            && merge.is_some_and(|merge| merge.waits_for_unsuccessful())
    }
}

pub(super) async fn examine(findings: &mut Findings, engine: &Engine, place: &Place) -> anyhow::Result<()> {
    let now = engine.inspect().clock().await?;
    let waited = rows::read(place, rows::WAITED).await?;
    let left = rows::read(place, rows::LEFT).await?;
    judge(findings, &waited, &left, now, &place.program);
    Ok(())
}

fn judge(findings: &mut Findings, waited: &[Row], left: &[Row], now: Time, program: &str) {
    let blocked: Vec<&Row> = waited.iter().filter(|row| row.is_blocked()).collect();
    if let Some(first) = blocked.first() {
        let (job, name) = (first.job, &first.name);
        let bad: u64 = blocked.iter().map(|row| row.stand.tally.unsuccessful().unsigned_abs()).sum();
        findings.warn(
            "branches",
            format!(
                "{} for {}; `{program} redrive JOB` retries them, like `{program} redrive {job} --branch {name}`",
                waiting(blocked.len(), "waits", "wait"),
                counted(bad, "that has not ended well", "that have not ended well"),
            ),
        );
    }
    let late = |row: &&Row| row.poll_at.is_some_and(|at| now.since(at) > LATE);
    let overdue: Vec<&Row> = waited.iter().filter(late).collect();
    if let Some(oldest) = overdue.iter().filter_map(|row| row.poll_at).min() {
        let since = span::show(now.since(oldest));
        findings.warn(
            "branches",
            format!(
                "{} to be looked at since {since}, which workers do; start one with `{program} worker`, or your program",
                waiting(overdue.len(), "is", "are")
            ),
        );
    }
    if let Some(first) = left.first() {
        let children = left.iter().map(Row::pending).sum();
        let job = first.job;
        findings.warn(
            "branches",
            format!(
                "{} though the job that opened the branch has ended; `{program} cancel JOB --children` ends what is not wanted, \
                 like `{program} cancel {job} --children`",
                counted(children, "goes on", "go on"),
            ),
        );
    }
    if !waited.is_empty() && blocked.is_empty() && overdue.is_empty() {
        let more = if waited.len() >= rows::LIMIT { " or more" } else { "" };
        let count = out::thousands(waited.len() as u64);
        findings.ok(
            "branches",
            format!("{count}{more} waited for; `{program} branches JOB` shows those of a job"),
        );
    }
}

fn waiting(count: usize, one: &str, more: &str) -> String {
    match count {
        1 => format!("1 branch {one}"),
        count => format!("{} branches {more}", out::thousands(count as u64)),
    }
}

/// Branches of all jobs. The store's doors tell those of one, so they are read from its tables.
mod rows {
    use super::*;
    use crate::commands::doctor::backlog::{PREFIX, open, server};

    /// How many branches are looked at.
    pub(super) const LIMIT: usize = 10_000;

    /// Those that somebody waits for, by when they are looked at next: walks the index of that.
    pub(super) const WAITED: &str = "select b.job, b.name, b.merge_record, b.spawned, {tally}, b.poll_at \
        from (select * from {p}branches where poll_at is not null order by poll_at limit 10000) b {tallies} \
        where b.watch is not null and not {cut}";
    /// Those of the newest 10,000 branches whose job has ended, and that have children that have not.
    pub(super) const LEFT: &str = "select b.job, b.name, b.merge_record, b.spawned, {tally}, b.poll_at \
        from (select * from {p}branches order by job desc, number desc limit 10000) b \
        join {p}jobs j on j.id = b.job and j.state > 0 {tallies} \
        where not {cut} and b.spawned > {ended}";

    /// In SQLite the counts stand in the branch's own row.
    fn lite(sql: &str) -> String {
        sql.replace("{tally}", "b.done, b.failed, b.cancelled")
            .replace("{tallies}", "")
            .replace("{cut}", "b.cancels_children")
            .replace("{ended}", "b.done + b.failed + b.cancelled")
            .replace("{p}", PREFIX)
    }

    /// In PostgreSQL they are in several, by writer.
    fn postgres(sql: &str) -> String {
        let tallies = "cross join lateral (select coalesce(sum(done), 0)::int8 as done, coalesce(sum(failed), 0)::int8 as failed, \
            coalesce(sum(cancelled), 0)::int8 as cancelled from branch_counts where job = b.job and branch = b.number) t";
        sql.replace("{tally}", "t.done, t.failed, t.cancelled")
            .replace("{tallies}", tallies)
            .replace("{cut}", "b.cancels_children")
            .replace("{ended}", "t.done + t.failed + t.cancelled")
            .replace("{p}", "")
    }

    pub(super) async fn read(place: &Place, sql: &str) -> anyhow::Result<Vec<Row>> {
        if let Some(file) = open(place)? {
            let mut statement = file.prepare(&lite(sql))?;
            let rows = statement.query_map([], |row| {
                let job: [u8; 16] = row.get(0)?;
                let tally =
                    Tally { started: 0, done: row.get(4)?, failed: row.get(5)?, cancelled: row.get(6)? };
                let poll_at: Option<i64> = row.get(7)?;
                Ok(Row {
                    job: JobId::from_bytes(job),
                    name: row.get(1)?,
                    goal: row.get(2)?,
                    stand: BranchProgress { spawned: row.get(3)?, tally },
                    poll_at: poll_at.map(Time),
                })
            })?;
            return Ok(rows.collect::<Result<_, _>>()?);
        }
        let Some(client) = server(place).await? else { return Ok(Vec::new()) };
        let row = |row: &tokio_postgres::Row| {
            let tally = Tally { started: 0, done: row.get(4), failed: row.get(5), cancelled: row.get(6) };
            Row {
                job: JobId(row.get(0)),
                name: row.get(1),
                goal: row.get(2),
                stand: BranchProgress { spawned: row.get(3), tally },
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
        let tally = Tally { started: 0, done, failed, cancelled: 0 };
        Row {
            job: JobId::from_parts(1, 0, 0),
            name: "items".into(),
            goal: serde_json::to_string(merge).ok(),
            stand: BranchProgress { spawned, tally },
            poll_at: Some(NOW),
        }
    }

    fn said(waited: &[Row], left: &[Row]) -> Vec<(Verdict, String)> {
        let mut findings = Findings::default();
        judge(&mut findings, waited, left, NOW, "windlass");
        findings.0.into_iter().map(|check| (check.verdict, check.found)).collect()
    }

    #[test]
    fn what_only_people_can_help_is_told() {
        assert_eq!(said(&[], &[]), []);
        let well = said(&[row(10, 1, 0, &Merge::all()), row(10, 1, 3, &Merge::settled())], &[]);
        assert_eq!(
            well,
            [(Verdict::Ok, "2 waited for; `windlass branches JOB` shows those of a job".into())]
        );
        let blocked = said(&[row(10, 8, 2, &Merge::all()), row(10, 7, 2, &Merge::all())], &[]);
        assert_eq!(blocked[0].0, Verdict::Warn);
        assert!(
            blocked[0].1.starts_with("1 branch waits for 2 children that have not ended well; "),
            "{blocked:?}"
        );
        let late = Row { poll_at: Some(NOW.minus(Duration::from_secs(600))), ..row(9, 1, 0, &Merge::all()) };
        assert!(said(&[late], &[])[0].1.starts_with("1 branch is to be looked at since 10m"));
        let left = said(&[], &[row(10, 1, 0, &Merge::all())]);
        assert!(left[0].1.starts_with("9 children go on though the job"), "{left:?}");
    }
}
