//! Rate limits: the levels of their buckets, and the jobs that they could not pay for.

use std::time::Duration;

use futures_util::future::join4;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;
use windlass_model::{RateLimit, Time, rate::BucketLevel};

use super::{conn::Conn, errors::PgError, sql, tx::Tx};
use crate::Error;

/// Reads a bucket: its limit, its level, and whether the limit is lifted.
pub(super) fn read_bucket(row: &Row) -> (RateLimit, BucketLevel, bool) {
    let limit = RateLimit {
        name: row.get(1),
        rate: row.get::<_, i64>(2) as u32,
        per: Duration::from_micros(row.get::<_, i64>(3) as u64),
        burst: row.get::<_, i64>(4) as u32,
    };
    (limit, BucketLevel { units: row.get(5), at: Time(row.get(6)) }, row.get(7))
}

/// Sends a claim that charges buckets. They are locked first, so that it sees what the claim before it charged.
pub(super) async fn claim_charged(
    conn: &mut Conn,
    buckets: &[i32],
    sql: &'static str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, PgError> {
    let buckets: Vec<i32> = buckets.iter().copied().filter(|bucket| *bucket != 0).collect();
    let lock = sql::rate::LOCK;
    conn.prepare(lock).await?;
    conn.prepare(sql).await?;
    let tx = Tx::pipelined(conn);
    // Sent together, in this order: the buckets, which all processes share, are locked only as long as the server needs. If one
    // fails, those after it do nothing, and the last one rolls back.
    let (begun, locked, rows, committed) =
        join4(tx.begin(), tx.query(lock, &[&buckets]), tx.query(sql, params), tx.commit()).await;
    begun?;
    locked?;
    let rows = rows?;
    committed?;
    Ok(rows)
}

/// The first job that a bucket could not pay for.
pub(super) struct Unaffordable {
    pub(super) rank: i64,
    pub(super) job: Uuid,
    weight: u32,
    limit: RateLimit,
    level: BucketLevel,
}

impl Unaffordable {
    pub(super) fn next_claim_at(&self) -> Time {
        self.level.next_claim_at(&self.limit, self.weight)
    }
}

/// Reads them from the JSON that a claim returns.
pub(super) fn unaffordable(text: Option<&str>) -> Result<Vec<Unaffordable>, PgError> {
    type Columns = (i64, Uuid, u32, u32, u64, u32, i64, i64);
    let read = |(rank, job, weight, rate, per, burst, units, at): Columns| Unaffordable {
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
