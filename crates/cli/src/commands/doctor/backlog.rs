//! Workers and what waits for them.

use std::{collections::BTreeMap, time::Duration};

use windlass::{Engine, State, Time, store::WorkerView};

use super::Findings;
use crate::{out, place::Place, span};

/// How long a ready job may wait before it is worth a word.
const LONG: Duration = Duration::from_secs(60);
/// How far jobs are counted.
const CAP: u64 = 100_000;

pub(super) async fn examine(findings: &mut Findings, engine: &Engine, place: &Place) -> anyhow::Result<()> {
    let inspect = engine.inspect();
    let (workers, census, now) =
        (inspect.workers().await?, inspect.state_counts(CAP).await?, inspect.clock().await?);
    let count = |state: State| {
        census.iter().filter(|count| count.state == state).map(|count| count.jobs).sum::<u64>()
    };
    let parked = count(State::Waiting);
    // What is parked needs a worker too: for its timeout, or once what it waits for has come.
    let waiting = count(State::Ready) + count(State::Scheduled) + parked;
    let alive = alive(findings, place, &workers, waiting, now);
    let oldest = oldest::ready(place).await?;
    ready(findings, place, count(State::Ready), &oldest, now);
    if parked > 0 {
        let list = format!("`{} jobs --state waiting` lists them", place.program);
        findings.ok("parked", format!("{} until signals come or children end; {list}", out::jobs(parked)));
    }
    if alive > 0 {
        unserved(findings, place, &workers, &oldest, now);
    }
    let suspects = oldest::suspects(place).await?;
    if suspects > 0 {
        let found = "ready jobs had a worker die under them; each runs alone before it is trusted again";
        findings.warn("suspects", format!("{} {found}", out::thousands(suspects)));
    }
    let failed = count(State::Failed);
    if failed > 0 {
        let list = format!("`{} jobs --state failed` lists them", place.program);
        findings.warn("failed", format!("{} jobs have failed for good; {list}", out::thousands(failed)));
    }
    Ok(())
}

/// Says who works; answers how many do.
fn alive(findings: &mut Findings, place: &Place, workers: &[WorkerView], waiting: u64, now: Time) -> usize {
    let (held, lapsed): (Vec<&WorkerView>, Vec<&WorkerView>) =
        workers.iter().filter(|worker| worker.alive).partition(|worker| worker.lease_until >= now);
    let names = |workers: &[&WorkerView]| {
        let names: Vec<&str> = workers.iter().take(5).map(|worker| worker.name.as_str()).collect();
        names.join(", ") + if workers.len() > 5 { ", …" } else { "" }
    };
    if !lapsed.is_empty() {
        let found = format!("{} stopped renewing ({})", lapsed.len(), names(&lapsed));
        findings
            .warn("workers", format!("{found}; the others take their jobs over, or the next that starts"));
    }
    match (held.len(), waiting) {
        (0, 0) => findings.ok("workers", "none is alive, and nothing waits"),
        (0, _) => {
            let found = format!("none is alive, and {} jobs wait", out::thousands(waiting));
            findings.warn("workers", format!("{found}; start one with `{} worker`", place.program));
        }
        (alive, _) => findings.ok("workers", format!("{alive} alive ({})", names(&held))),
    }
    held.len()
}

fn ready(findings: &mut Findings, place: &Place, ready: u64, oldest: &[Oldest], now: Time) {
    let due = oldest.iter().map(|lane| lane.due_at).min();
    match due {
        None => findings.ok("backlog", "no job is ready"),
        Some(due) => {
            let waits = now.since(due);
            let found = format!("{} ready, the oldest since {}", out::thousands(ready), span::show(waits));
            if waits < LONG {
                findings.ok("backlog", found);
            } else {
                let list = format!("`{} jobs --state ready` lists them", place.program);
                findings.warn("backlog", format!("{found}; {list}"));
            }
        }
    }
}

/// Kinds of which jobs wait, and that no live worker serves.
fn unserved(findings: &mut Findings, place: &Place, workers: &[WorkerView], oldest: &[Oldest], now: Time) {
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
        let waits = span::show(now.since(due));
        let version = if version == 1 { String::new() } else { format!(" v{version}") };
        let found = format!(
            "no live worker serves kind {kind}{version} in queue {queue}, and a job waits since {waits}"
        );
        let list = format!("`{} jobs --state ready --kind {kind} --queue {queue}` lists them", place.program);
        findings.warn("unserved", format!("{found}; start one that does; {list}"));
    }
}

pub(super) use oldest::Oldest;
pub(super) use oldest::{PREFIX, open, server};

/// The oldest ready job of each lane. The store's doors do not tell it, so it is read from its tables.
mod oldest {
    use rusqlite::{Connection, OpenFlags};
    use windlass::Time;

    use crate::{
        pg,
        place::{Place, is_postgres, sqlite_path},
    };

    /// The first job in line of one lane.
    pub(in crate::commands::doctor) struct Oldest {
        pub(in crate::commands::doctor) queue: String,
        pub(in crate::commands::doctor) kind: String,
        pub(in crate::commands::doctor) version: i32,
        pub(in crate::commands::doctor) due_at: Time,
    }

    /// In a SQLite file, which is shared with others, every table's name begins with this.
    pub(in crate::commands::doctor) const PREFIX: &str = "windlass_";

    /// Walks to the first row of each lane, suspects' lanes (the negative ones) included: one index look per lane.
    const READY: &str = "select q.name, k.name, l.version, j.due_at from {p}lanes l \
        join {p}queues q on q.id = l.queue join {p}kinds k on k.id = l.kind \
        join {p}jobs j on j.id in ( \
            (select r.job from {p}ready r where r.lane = l.id order by r.rank limit 1), \
            (select r.job from {p}ready r where r.lane = -l.id order by r.rank limit 1))";
    const SUSPECTS: &str = "select count(*) from (select 1 from {p}ready where lane < 0 limit 100000) s";

    pub(in crate::commands::doctor) fn open(place: &Place) -> anyhow::Result<Option<Connection>> {
        let Some(path) = sqlite_path(place.url()) else { return Ok(None) };
        Ok(Some(Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?))
    }

    pub(in crate::commands::doctor) async fn server(
        place: &Place,
    ) -> anyhow::Result<Option<tokio_postgres::Client>> {
        if !is_postgres(place.url()) {
            return Ok(None);
        }
        let (client, schema) = pg::connect(place.url()).await?;
        client.batch_execute(&format!("set search_path to {schema}")).await?;
        Ok(Some(client))
    }

    pub(in crate::commands::doctor) async fn ready(place: &Place) -> anyhow::Result<Vec<Oldest>> {
        if let Some(file) = open(place)? {
            let mut statement = file.prepare(&READY.replace("{p}", PREFIX))?;
            let rows = statement.query_map([], |row| {
                let (queue, kind, version) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Oldest { queue, kind, version, due_at: Time(row.get(3)?) })
            })?;
            return Ok(rows.collect::<Result<_, _>>()?);
        }
        let Some(client) = server(place).await? else { return Ok(Vec::new()) };
        let rows = client.query(&READY.replace("{p}", ""), &[]).await?;
        let lane = |row: &tokio_postgres::Row| {
            let (queue, kind, version) = (row.get(0), row.get(1), row.get(2));
            Oldest { queue, kind, version, due_at: Time(row.get(3)) }
        };
        Ok(rows.iter().map(lane).collect())
    }

    pub(in crate::commands::doctor) async fn suspects(place: &Place) -> anyhow::Result<u64> {
        if let Some(file) = open(place)? {
            return Ok(
                file.query_row(&SUSPECTS.replace("{p}", PREFIX), [], |row| row.get::<_, i64>(0))?.max(0)
                    as u64,
            );
        }
        let Some(client) = server(place).await? else { return Ok(0) };
        Ok(client.query_one(&SUSPECTS.replace("{p}", ""), &[]).await?.get::<_, i64>(0).max(0) as u64)
    }
}
