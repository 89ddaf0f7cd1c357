//! Rate limits: the levels of their buckets, and for how many waiting jobs they pay.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use rusqlite::{Row, params};
use windlass_model::{
    NewJob, RateLimit, Time,
    rate::{BucketLevel, ClaimBucket},
};

use super::{Sqlite, sql, tx::Tx};
use crate::{Error, columns, intern::Lane};

/// A rate limit and its level, as stored.
pub(super) struct Bucket {
    pub(super) id: i32,
    pub(super) limit: RateLimit,
    pub(super) level: BucketLevel,
    pub(super) lifted: bool,
}

impl Bucket {
    /// Reads the columns of the SQL fragment `rate.limit`.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Bucket> {
        let per = Duration::from_micros(row.get::<_, i64>(3)?.unsigned_abs());
        Ok(Bucket {
            id: row.get(0)?,
            limit: RateLimit { name: row.get(1)?, rate: row.get(2)?, per, burst: row.get(4)? },
            level: BucketLevel { units: row.get(5)?, at: Time(row.get(6)?) },
            lifted: row.get(7)?,
        })
    }

    /// Reads a rate limit by name.
    pub(super) fn named(tx: &Tx<'_>, name: &str) -> Result<Option<Bucket>, Error> {
        tx.query_one(sql::rate::READ_NAMED, [name], Bucket::read)
    }
}

/// The numbers of rate limits, by name.
pub(super) type Buckets = HashMap<String, i32>;

/// Checks that the rate limits of some jobs exist and can pay for them. This needs no transaction: limits are never
/// removed, and a limit that was changed meanwhile lets jobs pass that are too heavy for it.
pub(super) fn check<'j>(
    store: &Sqlite,
    jobs: impl Iterator<Item = &'j NewJob> + Clone,
) -> Result<Buckets, Error> {
    if jobs.clone().all(|job| job.settings.rate.is_none()) {
        return Ok(Buckets::new());
    }
    store.read(|tx| check_in(tx, jobs))
}

/// The same within a transaction.
pub(super) fn check_in<'j>(tx: &Tx<'_>, jobs: impl Iterator<Item = &'j NewJob>) -> Result<Buckets, Error> {
    let mut buckets = Buckets::new();
    for charge in jobs.filter_map(|job| job.settings.rate.as_ref()) {
        let bucket = Bucket::named(tx, &charge.limit)?.ok_or_else(|| columns::no_limit(&charge.limit))?;
        if !bucket.lifted {
            bucket.limit.check_weight(charge.weight)?;
        }
        buckets.insert(charge.limit.clone(), bucket.id);
    }
    Ok(buckets)
}

/// The number of a job's rate limit; 0 for none.
pub(super) fn bucket_of(job: &NewJob, buckets: &Buckets) -> i32 {
    job.settings.rate.as_ref().and_then(|charge| buckets.get(&charge.limit)).copied().unwrap_or(0)
}

/// How many jobs a claim takes from each lane.
#[derive(Default)]
pub(super) struct Shares {
    /// The number for each lane, in their order.
    pub(super) per_lane: Vec<usize>,
    /// When to claim again for jobs that wait for their rate limit.
    pub(super) refill_at: Option<Time>,
    /// The new levels of the buckets that pay.
    charged: Vec<(i32, BucketLevel)>,
}

impl Shares {
    /// Up to `limit` jobs of the only lane.
    pub(super) fn one_lane(limit: usize) -> Shares {
        Shares { per_lane: vec![limit], ..Shares::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.per_lane.iter().all(|share| *share == 0)
    }

    /// Whether a bucket pays.
    pub(super) fn charges(&self) -> bool {
        !self.charged.is_empty()
    }

    /// Writes the new levels.
    pub(super) fn charge(&self, tx: &Tx<'_>) -> Result<(), Error> {
        for (bucket, level) in &self.charged {
            let params = params![bucket, level.units, level.at.micros()];
            tx.execute(sql::rate::CHARGE, params)?;
        }
        Ok(())
    }
}

/// Decides how many of the first `limit` jobs, by rank over all lanes, each lane provides, as far as buckets pay for
/// them. Jobs of one bucket go by rank: one that cannot be paid for makes those after it wait.
pub(super) fn shares(
    tx: &Tx<'_>,
    now: Time,
    lanes: &[Lane],
    ready_lane: impl Fn(&Lane) -> i32,
    limit: usize,
) -> Result<Shares, Error> {
    let mut buckets: BTreeMap<i32, ClaimBucket> = BTreeMap::new();
    let mut first_ready = Vec::new();
    for (index, lane) in lanes.iter().enumerate() {
        if lane.bucket != 0 && !buckets.contains_key(&lane.bucket) {
            let bucket = tx.query_one(sql::rate::READ, [lane.bucket], Bucket::read)?;
            let Some(Bucket { limit, level, lifted, .. }) = bucket else { continue };
            buckets.insert(lane.bucket, ClaimBucket::new(limit, level, lifted, now));
        }
        let (sql, limit) = match buckets.get(&lane.bucket) {
            None => (sql::claim::FIRST_READY, limit),
            Some(bucket) => {
                // One more than the bucket can pay for shows how long to wait.
                let affordable = bucket.affordable_jobs().map_or(limit, |jobs| jobs + 1);
                (sql::rate::FIRST_READY, limit.min(affordable))
            }
        };
        first_ready.extend(tx.query_all(sql, params![ready_lane(lane), limit as i64], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 16]>(1)?, index, row.get::<_, u32>(2)?))
        })?);
    }
    first_ready.sort_unstable();
    let mut shares = Shares { per_lane: vec![0; lanes.len()], ..Shares::default() };
    let mut taken = 0;
    for (.., index, weight) in first_ready {
        if taken == limit {
            break;
        }
        if buckets.get_mut(&lanes[index].bucket).is_none_or(|bucket| bucket.pay(weight)) {
            shares.per_lane[index] += 1;
            taken += 1;
        }
    }
    shares.refill_at = buckets.values().filter_map(ClaimBucket::refill_at).min();
    let charged = buckets.into_iter().filter(|(_, bucket)| bucket.is_charged());
    shares.charged = charged.map(|(id, bucket)| (id, bucket.level())).collect();
    Ok(shares)
}
