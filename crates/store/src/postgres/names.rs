//! Names of lanes, serial keys and rate limits as numbers.

use std::collections::{BTreeSet, HashMap};

use windlass_model::NewJob;

use super::{Postgres, admin::bucket, serial, sql};
use crate::{Error, columns, intern::Lane};

/// What is said to whoever has numbers of names that may stand for something else by now.
pub(super) fn gone_back() -> Error {
    Error::Unavailable("the database has gone back to an earlier state; names are read anew".into())
}

/// Numbers for the names in a batch, committed before they are used. They are made over a connection of their own: never
/// while a transaction is open that may hold what they wait for.
#[derive(Default)]
pub(super) struct Names {
    pub(super) serials: HashMap<String, i64>,
    /// Buckets by the names of their limits.
    buckets: HashMap<String, i32>,
}

impl Names {
    /// Looks names up and makes those that are missing; a rate limit must be there and pay for what is asked.
    pub(super) async fn of(store: &Postgres, jobs: &[NewJob]) -> Result<Names, Error> {
        Names::read(store, jobs, true).await
    }

    /// The same for jobs whose weight was checked when it was given; a burst that was lowered since is no reason to
    /// refuse them.
    pub(super) async fn unchecked(store: &Postgres, jobs: &[NewJob]) -> Result<Names, Error> {
        Names::read(store, jobs, false).await
    }

    async fn read(store: &Postgres, jobs: &[NewJob], check: bool) -> Result<Names, Error> {
        let mut names = Names { serials: HashMap::new(), buckets: HashMap::new() };
        if jobs.iter().any(NewJob::needs_slow_path) {
            let wanted: BTreeSet<&str> =
                jobs.iter().filter_map(|job| Some(job.settings.rate.as_ref()?.limit.as_str())).collect();
            if !wanted.is_empty() {
                let wanted: Vec<&str> = wanted.into_iter().collect();
                let rows = store.conn().await?.query(sql::rate::READ, &[&Some(&wanted)]).await?;
                let limits: HashMap<String, _> =
                    rows.iter().map(|row| (row.get(1), (row.get(0), bucket(row)))).collect();
                for charge in jobs.iter().filter_map(|job| job.settings.rate.as_ref()) {
                    let (id, (limit, _, lifted)) =
                        limits.get(&charge.limit).ok_or_else(|| columns::no_limit(&charge.limit))?;
                    if check && !lifted {
                        limit.check_weight(charge.weight)?;
                    }
                    names.buckets.insert(charge.limit.clone(), *id);
                }
            }
            names.serials = serial::intern(store, jobs).await?;
        }
        store.intern(jobs.iter().map(|job| (job.queue.as_str(), &job.kind, names.bucket(job)))).await?;
        Ok(names)
    }

    /// Whether all names of a job are known.
    pub(super) fn know(&self, store: &Postgres, job: &NewJob) -> bool {
        let serial = job.settings.serial.as_ref().is_none_or(|serial| self.serials.contains_key(&serial.key));
        let bucket = job.settings.rate.as_ref().is_none_or(|charge| self.buckets.contains_key(&charge.limit));
        serial && bucket && store.shared.lanes.get_in(&job.queue, &job.kind, self.bucket(job)).is_some()
    }

    /// Adds the names of other jobs.
    pub(super) fn extend(&mut self, other: Names) {
        self.serials.extend(other.serials);
        self.buckets.extend(other.buckets);
    }

    /// The lane of a job whose names are known.
    pub(super) fn lane(&self, store: &Postgres, job: &NewJob) -> Result<Lane, Error> {
        let lane = store.shared.lanes.get_in(&job.queue, &job.kind, self.bucket(job));
        lane.ok_or_else(gone_back)
    }

    pub(super) fn bucket(&self, job: &NewJob) -> i32 {
        job.settings.rate.as_ref().map_or(0, |charge| self.buckets[&charge.limit])
    }
}
