//! Checks workers and the jobs that wait for them.

use std::{collections::BTreeMap, time::Duration};

use windlass::{Engine, State, Time, store::WorkerView};

use super::Findings;
use crate::{durations, out, program::Program};

/// A ready job that waits longer than this is worth a warning.
const LONG_WAIT: Duration = Duration::from_secs(60);
/// Counting stops here.
const CAP: u64 = 100_000;

pub(super) async fn examine(
    findings: &mut Findings,
    engine: &Engine,
    program: &Program,
) -> anyhow::Result<()> {
    let inspect = engine.inspect();
    let (workers, state_counts, now) =
        (inspect.workers().await?, inspect.state_counts(CAP).await?, inspect.clock().await?);
    let count = |state: State| {
        state_counts.iter().filter(|count| count.state == state).map(|count| count.jobs).sum::<u64>()
    };
    let parked = count(State::Waiting);
    // Parked jobs need a worker too: for their timeouts, and once their waits are over.
    let waiting = count(State::Ready) + count(State::Scheduled) + parked;
    let alive = alive(findings, program, &workers, waiting, now);
    let oldest = oldest::ready(program).await?;
    ready(findings, program, count(State::Ready), &oldest, now);
    if parked > 0 {
        let list = format!("`{} jobs --state waiting` lists them", program.name);
        findings
            .ok("parked", format!("{}, waiting for signals, children or a time; {list}", out::jobs(parked)));
    }
    if alive > 0 {
        unserved(findings, program, &workers, &oldest, now);
    }
    let suspects = oldest::suspects(program).await?;
    if suspects > 0 {
        let found = "ready jobs are suspects: a worker died while running them; each runs alone next";
        findings.warn("suspects", format!("{} {found}", out::thousands(suspects)));
    }
    let failed = count(State::Failed);
    if failed > 0 {
        let list = format!("`{} jobs --state failed` lists them", program.name);
        findings.warn("failed", format!("{} failed; {list}", out::jobs(failed)));
    }
    Ok(())
}

/// Checks the workers. Returns how many are alive.
fn alive(
    findings: &mut Findings,
    program: &Program,
    workers: &[WorkerView],
    waiting: u64,
    now: Time,
) -> usize {
    let (held, lapsed): (Vec<&WorkerView>, Vec<&WorkerView>) =
        workers.iter().filter(|worker| worker.alive).partition(|worker| worker.lease_until >= now);
    let names = |workers: &[&WorkerView]| {
        let names: Vec<&str> = workers.iter().take(5).map(|worker| worker.name.as_str()).collect();
        names.join(", ") + if workers.len() > 5 { ", …" } else { "" }
    };
    if !lapsed.is_empty() {
        let found = format!("{} stopped renewing ({})", lapsed.len(), names(&lapsed));
        findings.warn("workers", format!("{found}; other workers take over their jobs"));
    }
    match (held.len(), waiting) {
        (0, 0) => findings.ok("workers", "none is alive, and no job waits"),
        (0, _) => {
            let found = format!("none is alive, and {}", out::counted(waiting, "job waits", "jobs wait"));
            findings.warn("workers", format!("{found}; start one with `{} worker`", program.name));
        }
        (alive, _) => findings.ok("workers", format!("{alive} alive ({})", names(&held))),
    }
    held.len()
}

fn ready(findings: &mut Findings, program: &Program, ready: u64, oldest: &[Oldest], now: Time) {
    let due = oldest.iter().map(|lane| lane.due_at).min();
    match due {
        None => findings.ok("backlog", "no job is ready"),
        Some(due) => {
            let waits = now.since(due);
            let found =
                format!("{} ready, the oldest for {}", out::thousands(ready), durations::format(waits));
            if waits < LONG_WAIT {
                findings.ok("backlog", found);
            } else {
                let list = format!("`{} jobs --state ready` lists them", program.name);
                findings.warn("backlog", format!("{found}; {list}"));
            }
        }
    }
}

/// Warns of kinds with ready jobs that no live worker serves.
fn unserved(
    findings: &mut Findings,
    program: &Program,
    workers: &[WorkerView],
    oldest: &[Oldest],
    now: Time,
) {
    let serves = |lane: &Oldest| {
        let alive = workers.iter().filter(|worker| worker.alive && worker.lease_until >= now);
        let mut pools = alive.flat_map(|worker| &worker.serves).filter(|pool| pool.queue == lane.queue);
        pools.any(|pool| pool.kinds.iter().any(|kind| kind.kind == lane.kind && kind.version == lane.version))
    };
    let mut stuck: BTreeMap<(&str, &str, i32), Time> = BTreeMap::new();
    for lane in oldest.iter().filter(|lane| !serves(lane)) {
        let since = stuck.entry((&lane.queue, &lane.kind, lane.version)).or_insert(lane.due_at);
        *since = lane.due_at.min(*since);
    }
    for ((queue, kind, version), due) in stuck {
        let waits = durations::format(now.since(due));
        let version = if version == 1 { String::new() } else { format!(" v{version}") };
        let found = format!(
            "no live worker serves kind {kind}{version} in queue {queue}, and a job has waited for {waits}"
        );
        let list = format!("`{} jobs --state ready --kind {kind} --queue {queue}` lists them", program.name);
        findings.warn("unserved", format!("{found}; start one that serves it; {list}"));
    }
}

pub(super) use oldest::Oldest;
pub(super) use oldest::{PREFIX, open, server};

/// The oldest ready job of each lane, read from the store's tables: its traits do not offer it.
mod oldest {
    use rusqlite::{Connection, OpenFlags};
    use windlass::Time;

    use crate::{
        pg,
        program::{Program, is_postgres, sqlite_path},
    };

    /// The first job in line of one lane.
    pub(in crate::commands::doctor) struct Oldest {
        pub(in crate::commands::doctor) queue: String,
        pub(in crate::commands::doctor) kind: String,
        pub(in crate::commands::doctor) version: i32,
        pub(in crate::commands::doctor) due_at: Time,
    }

    /// The prefix of every table in a SQLite file, which the application may share.
    pub(in crate::commands::doctor) const PREFIX: &str = "windlass_";

    /// The first row of each lane, the lanes of suspects (negative numbers) included: one index lookup per lane.
    const READY: &str = "select q.name, k.name, l.version, j.due_at from {p}lanes l \
        join {p}queues q on q.id = l.queue join {p}kinds k on k.id = l.kind \
        join {p}jobs j on j.id in ( \
            (select r.job from {p}ready r where r.lane = l.id order by r.rank limit 1), \
            (select r.job from {p}ready r where r.lane = -l.id order by r.rank limit 1))";
    const SUSPECTS: &str = "select count(*) from (select 1 from {p}ready where lane < 0 limit 100000) s";

    pub(in crate::commands::doctor) fn open(program: &Program) -> anyhow::Result<Option<Connection>> {
        let Some(path) = sqlite_path(program.url()) else { return Ok(None) };
        Ok(Some(Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?))
    }

    pub(in crate::commands::doctor) async fn server(
        program: &Program,
    ) -> anyhow::Result<Option<tokio_postgres::Client>> {
        if !is_postgres(program.url()) {
            return Ok(None);
        }
        let (client, schema) = pg::connect(program.url()).await?;
        client.batch_execute(&format!("set search_path to {schema}")).await?;
        Ok(Some(client))
    }

    pub(in crate::commands::doctor) async fn ready(program: &Program) -> anyhow::Result<Vec<Oldest>> {
        if let Some(file) = open(program)? {
            let mut statement = file.prepare(&READY.replace("{p}", PREFIX))?;
            let rows = statement.query_map([], |row| {
                let (queue, kind, version) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Oldest { queue, kind, version, due_at: Time(row.get(3)?) })
            })?;
            return Ok(rows.collect::<Result<_, _>>()?);
        }
        let Some(client) = server(program).await? else { return Ok(Vec::new()) };
        let rows = client.query(&READY.replace("{p}", ""), &[]).await?;
        let lane = |row: &tokio_postgres::Row| {
            let (queue, kind, version) = (row.get(0), row.get(1), row.get(2));
            Oldest { queue, kind, version, due_at: Time(row.get(3)) }
        };
        Ok(rows.iter().map(lane).collect())
    }

    pub(in crate::commands::doctor) async fn suspects(program: &Program) -> anyhow::Result<u64> {
        if let Some(file) = open(program)? {
            return Ok(
                file.query_row(&SUSPECTS.replace("{p}", PREFIX), [], |row| row.get::<_, i64>(0))?.max(0)
                    as u64,
            );
        }
        let Some(client) = server(program).await? else { return Ok(0) };
        Ok(client.query_one(&SUSPECTS.replace("{p}", ""), &[]).await?.get::<_, i64>(0).max(0) as u64)
    }
}
