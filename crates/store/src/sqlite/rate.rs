//! Rate limits: what is in their buckets, and how far it pays for the jobs that wait.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use rusqlite::{Row, params};
use windlass_model::{NewJob, RateLimit, Time, rate::BucketLevel};

use super::{Sqlite, sql, tx::Tx};
use crate::{Error, columns, intern::Lane};

/// A bucket as it is in the file.
pub(super) struct Bucket {
    pub(super) id: i32,
    pub(super) limit: RateLimit,
    pub(super) level: BucketLevel,
    pub(super) lifted: bool,
}

impl Bucket {
    /// Reads id, name, rate, per, burst, level, at and lifted.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Bucket> {
        let per = Duration::from_micros(row.get::<_, i64>(3)?.unsigned_abs());
        Ok(Bucket {
            id: row.get(0)?,
            limit: RateLimit { name: row.get(1)?, rate: row.get(2)?, per, burst: row.get(4)? },
            level: BucketLevel { units: row.get(5)?, at: Time(row.get(6)?) },
            lifted: row.get(7)?,
        })
    }

    pub(super) fn named(tx: &Tx<'_>, name: &str) -> Result<Option<Bucket>, Error> {
        tx.one(sql::rate::READ_NAMED, [name], Bucket::read)
    }
}

/// The numbers of rate limits by name.
pub(super) type Buckets = HashMap<String, i32>;

/// Checks that the rate limits of some jobs are there and can pay for them. Limits are never removed, and one that is
/// changed meanwhile lets those that are too heavy for it pass, so this needs no transaction.
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

/// What may be taken of some lanes.
#[derive(Default)]
pub(super) struct Shares {
    /// How many of each lane, in order.
    pub(super) each: Vec<usize>,
    /// When to ask again for jobs that wait for their rate limit.
    pub(super) refill_at: Option<Time>,
    /// The levels of the buckets that pay.
    charged: Vec<(i32, BucketLevel)>,
}

impl Shares {
    /// Whatever the one lane has, up to `most`.
    pub(super) fn one_lane(most: usize) -> Shares {
        Shares { each: vec![most], ..Shares::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.each.iter().all(|share| *share == 0)
    }

    /// Whether a bucket pays.
    pub(super) fn charges(&self) -> bool {
        !self.charged.is_empty()
    }

    /// Writes what the buckets pay.
    pub(super) fn charge(&self, tx: &Tx<'_>) -> Result<(), Error> {
        for (bucket, level) in &self.charged {
            let params = params![bucket, level.units, level.at.micros()];
            tx.run(sql::rate::CHARGE, params)?;
        }
        Ok(())
    }
}

/// How many of the first `most` places, by rank over all lanes, each lane has, as far as buckets pay for them. Jobs of
/// one bucket go by rank: one that cannot be paid for makes those behind it wait.
pub(super) fn shares(
    tx: &Tx<'_>,
    now: Time,
    lanes: &[Lane],
    number: impl Fn(&Lane) -> i32,
    most: usize,
) -> Result<Shares, Error> {
    let mut buckets: BTreeMap<i32, Bucket> = BTreeMap::new();
    let mut heads = Vec::new();
    for (index, lane) in lanes.iter().enumerate() {
        if lane.bucket != 0 && !buckets.contains_key(&lane.bucket) {
            let bucket = tx.one(sql::rate::READ, [lane.bucket], Bucket::read)?;
            let Some(mut bucket) = bucket else { continue };
            bucket.level = bucket.level.refilled(&bucket.limit, now);
            buckets.insert(lane.bucket, bucket);
        }
        let (sql, most) = match buckets.get(&lane.bucket) {
            None => (sql::claim::FIRST_READY, most),
            Some(bucket) if bucket.lifted => (sql::rate::FIRST_READY, most),
            // Each costs a token at least, and one more shows how long to wait.
            Some(bucket) => {
                let tokens = usize::try_from(bucket.level.tokens(&bucket.limit)).unwrap_or(0);
                (sql::rate::FIRST_READY, most.min(tokens + 1))
            }
        };
        heads.extend(tx.all(sql, params![number(lane), most as i64], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 16]>(1)?, index, row.get::<_, u32>(2)?))
        })?);
    }
    heads.sort_unstable();
    let mut shares = Shares { each: vec![0; lanes.len()], ..Shares::default() };
    let mut dry: HashSet<i32> = HashSet::new();
    let mut charged: BTreeMap<i32, BucketLevel> = BTreeMap::new();
    let mut taken = 0;
    for (.., index, weight) in heads {
        if taken == most {
            break;
        }
        if let Some(bucket) = buckets.get_mut(&lanes[index].bucket).filter(|bucket| !bucket.lifted) {
            if dry.contains(&bucket.id) {
                continue;
            }
            let Some(level) = bucket.level.charged(&bucket.limit, weight) else {
                let at = bucket.level.next_claim_at(&bucket.limit, weight);
                shares.refill_at = Some(shares.refill_at.map_or(at, |other| other.min(at)));
                dry.insert(bucket.id);
                continue;
            };
            bucket.level = level;
            charged.insert(bucket.id, level);
        }
        shares.each[index] += 1;
        taken += 1;
    }
    shares.charged = charged.into_iter().collect();
    Ok(shares)
}
