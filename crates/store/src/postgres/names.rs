//! The numbers of lanes, serial keys and rate limits.

use std::collections::{BTreeSet, HashMap};

use windlass_model::{KindVersion, NewJob};

use super::{Postgres, conn::Conn, errors::PgError, rate::read_bucket, serial, sql};
use crate::{Error, columns, intern::Lane};

/// The error for a caller whose cached numbers may mean other names by now.
pub(super) fn database_restored() -> Error {
    Error::Unavailable("the database has gone back to an earlier state; names are read again".into())
}

/// The numbers of the names in a batch, committed before they are used. They are added over a connection of their own, so never while
/// the caller has a transaction open: that may hold the locks that they wait for.
#[derive(Default)]
pub(super) struct Names {
    pub(super) serial_keys: HashMap<String, i64>,
    /// Buckets by the names of their limits.
    buckets: HashMap<String, i32>,
}

impl Postgres {
    /// Adds lanes that do not exist yet; they are committed before they are cached.
    pub(super) async fn intern_lanes<'a>(
        &self,
        names: impl Iterator<Item = (&'a str, &'a KindVersion, i32)>,
    ) -> Result<(), PgError> {
        let unknown: BTreeSet<_> =
            names.filter(|(q, k, b)| self.shared.lanes.get_in(q, k, *b).is_none()).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let queues: Vec<&str> = unknown.iter().map(|(queue, ..)| *queue).collect();
        let kinds: Vec<&str> = unknown.iter().map(|(_, kind, _)| kind.kind.as_str()).collect();
        let versions: Vec<i32> = unknown.iter().map(|(_, kind, _)| kind.version).collect();
        let buckets: Vec<i32> = unknown.iter().map(|(.., bucket)| *bucket).collect();
        let conn = self.conn().await?;
        conn.execute(sql::names::ADD_QUEUE, &[&queues]).await?;
        conn.execute(sql::names::ADD_KIND, &[&kinds]).await?;
        conn.execute(sql::names::ADD_LANE, &[&queues, &kinds, &versions, &buckets]).await?;
        self.read_lanes(&conn).await.map(drop)
    }

    /// Reads all lanes and queues into the cache. Drops cached ones that no longer exist: the database was restored to an earlier
    /// state, or a standby that lacked them took over. Returns whether none was dropped.
    pub(super) async fn read_lanes(&self, conn: &Conn) -> Result<bool, PgError> {
        let lane = |row: &tokio_postgres::Row| {
            let kind = KindVersion { kind: row.get(4), version: row.get(5) };
            let (id, queue_id, kind_id, bucket) = (row.get(0), row.get(1), row.get(2), row.get(6));
            Lane { id, queue_id, kind_id, bucket, queue: row.get(3), kind }
        };
        // Lanes that other calls add while these are read may be missing in them.
        let before = self.shared.lanes.snapshot();
        let lanes = conn.read(sql::names::LANES, &[]).await?;
        let lanes: Vec<Lane> = lanes.iter().map(lane).collect();
        let queues = conn.read(sql::names::QUEUES, &[]).await?;
        let queues: HashMap<String, i32> = queues.iter().map(|row| (row.get(1), row.get(0))).collect();
        let known = &self.shared.lanes;
        let kept = known.keep_if_among(&before, &lanes, &queues);
        lanes.into_iter().for_each(|lane| known.add(lane));
        queues.iter().for_each(|(name, id)| known.add_queue(name, *id));
        conn.set_lanes_checked();
        Ok(kept)
    }

    /// Reads the lanes if one of some numbers is not cached: another process may have added it.
    pub(super) async fn ensure_lanes(
        &self,
        conn: &Conn,
        mut ids: impl Iterator<Item = i32>,
    ) -> Result<(), PgError> {
        if ids.any(|id| self.shared.lanes.by_id(id).is_none()) {
            self.read_lanes(conn).await?;
        }
        Ok(())
    }

    pub(super) fn lane(&self, id: i32) -> Result<Lane, Error> {
        let lane = self.shared.lanes.by_id(id);
        lane.ok_or_else(|| Error::Fault(format!("a job is in lane {id}, which is not in the lanes table")))
    }
}

impl Names {
    /// Finds the numbers of names, and adds missing ones. A rate limit must exist, and its burst must cover the weight of the job.
    pub(super) async fn of(store: &Postgres, jobs: &[NewJob]) -> Result<Names, PgError> {
        Names::read(store, jobs, true).await
    }

    /// The same for jobs whose weight was checked before: a burst that was lowered since is no reason to refuse them.
    pub(super) async fn unchecked(store: &Postgres, jobs: &[NewJob]) -> Result<Names, PgError> {
        Names::read(store, jobs, false).await
    }

    async fn read(store: &Postgres, jobs: &[NewJob], check: bool) -> Result<Names, PgError> {
        let mut names = Names::default();
        if jobs.iter().any(NewJob::needs_slow_path) {
            let wanted: BTreeSet<&str> =
                jobs.iter().filter_map(|job| Some(job.settings.rate.as_ref()?.limit.as_str())).collect();
            if !wanted.is_empty() {
                let wanted: Vec<&str> = wanted.into_iter().collect();
                let rows = store.conn().await?.query(sql::rate::READ, &[&Some(&wanted)]).await?;
                let limits: HashMap<String, _> =
                    rows.iter().map(|row| (row.get(1), (row.get(0), read_bucket(row)))).collect();
                for charge in jobs.iter().filter_map(|job| job.settings.rate.as_ref()) {
                    let (id, (limit, _, lifted)) =
                        limits.get(&charge.limit).ok_or_else(|| columns::no_limit(&charge.limit))?;
                    if check && !lifted {
                        limit.check_weight(charge.weight)?;
                    }
                    names.buckets.insert(charge.limit.clone(), *id);
                }
            }
            names.serial_keys = serial::intern(store, jobs).await?;
        }
        store.intern_lanes(jobs.iter().map(|job| (job.queue.as_str(), &job.kind, names.bucket(job)))).await?;
        Ok(names)
    }

    /// Whether it has all names of a job.
    pub(super) fn has(&self, store: &Postgres, job: &NewJob) -> bool {
        let serial =
            job.settings.serial.as_ref().is_none_or(|serial| self.serial_keys.contains_key(&serial.key));
        let bucket = job.settings.rate.as_ref().is_none_or(|charge| self.buckets.contains_key(&charge.limit));
        serial && bucket && store.shared.lanes.get_in(&job.queue, &job.kind, self.bucket(job)).is_some()
    }

    /// Adds the names of other jobs.
    pub(super) fn extend(&mut self, other: Names) {
        self.serial_keys.extend(other.serial_keys);
        self.buckets.extend(other.buckets);
    }

    /// The lane of a job whose names it has.
    pub(super) fn lane(&self, store: &Postgres, job: &NewJob) -> Result<Lane, Error> {
        let lane = store.shared.lanes.get_in(&job.queue, &job.kind, self.bucket(job));
        lane.ok_or_else(database_restored)
    }

    pub(super) fn bucket(&self, job: &NewJob) -> i32 {
        job.settings.rate.as_ref().map_or(0, |charge| self.buckets[&charge.limit])
    }
}
