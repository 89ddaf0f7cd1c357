//! Rate limits: what is in their buckets, and which jobs they could not pay for.

use std::time::Duration;

use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;
use windlass_model::{RateLimit, Time, rate::BucketLevel};

use super::{pool::Guard, sql};
use crate::Error;

/// Reads a bucket as it comes.
pub(super) fn bucket(row: &Row) -> (RateLimit, BucketLevel, bool) {
    let limit = RateLimit {
        name: row.get(1),
        rate: row.get::<_, i64>(2) as u32,
        per: Duration::from_micros(row.get::<_, i64>(3) as u64),
        burst: row.get::<_, i64>(4) as u32,
    };
    (limit, BucketLevel { units: row.get(5), at: Time(row.get(6)) }, row.get(7))
}

/// A claim that charges buckets: they are locked first, so that it sees what the one before it took.
pub(super) async fn charged(
    conn: &Guard<'_>,
    buckets: &[i32],
    sql: &'static str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let buckets: Vec<i32> = buckets.iter().copied().filter(|bucket| *bucket != 0).collect();
    let lock = sql::rate::LOCK;
    // One that is still being prepared would be overtaken by the next.
    conn.prepare(lock).await?;
    conn.prepare(sql).await?;
    // Sent together, in this order: the buckets are locked no longer than the server needs, which is what all processes
    // under a limit share. After one that fails, the others do nothing, and the last one rolls back.
    let (begun, locked, rows, committed) = futures_util::future::join4(
        conn.begin(),
        conn.query(lock, &[&buckets]),
        conn.query(sql, params),
        conn.commit(),
    )
    .await;
    begun?;
    locked?;
    let rows = rows?;
    committed?;
    Ok(rows)
}

/// The first job that a bucket could not pay for.
pub(super) struct Dry {
    pub(super) rank: i64,
    pub(super) job: Uuid,
    weight: u32,
    limit: RateLimit,
    level: BucketLevel,
}

impl Dry {
    pub(super) fn next_claim_at(&self) -> Time {
        self.level.next_claim_at(&self.limit, self.weight)
    }
}

pub(super) fn dry(text: Option<&str>) -> Result<Vec<Dry>, Error> {
    type Columns = (i64, Uuid, u32, u32, u64, u32, i64, i64);
    let read = |(rank, job, weight, rate, per, burst, units, at): Columns| Dry {
        rank,
        job,
        weight,
        limit: RateLimit { name: String::new(), rate, per: Duration::from_micros(per), burst },
        level: BucketLevel { units, at: Time(at) },
    };
    let Some(text) = text else { return Ok(Vec::new()) };
    let columns: Vec<Columns> = serde_json::from_str(text).map_err(|e| Error::Fault(e.to_string()))?;
    Ok(columns.into_iter().map(read).collect())
}
