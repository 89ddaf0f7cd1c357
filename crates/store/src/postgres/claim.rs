//! Taking ready jobs.

use tokio_postgres::Row;
use windlass_model::{Claimed, Epoch, JobId, Payload, Rev, Time};

use super::{Postgres, micros};
use crate::{Ask, Error, Haul, Now, memory::lease_ran_out, pick};

pub(super) async fn claim(store: &Postgres, now: Now, ask: &Ask) -> Result<Haul, Error> {
    match once(store, now, ask).await {
        // The same claim, sent twice at once: the other one has recorded it, and this one is a repeat.
        Err(Error::Refused(_)) => once(store, now, ask).await,
        answer => answer,
    }
}

async fn once(store: &Postgres, now: Now, ask: &Ask) -> Result<Haul, Error> {
    store.intern(ask.kinds.iter().map(|kind| (ask.queue.as_str(), kind))).await?;
    let served: Vec<i32> = ask
        .kinds
        .iter()
        .filter_map(|kind| store.shared.lanes.get(&ask.queue, kind))
        .map(|lane| lane.id)
        .collect();
    let suspects: Vec<i32> = served.iter().map(|lane| -lane).collect();
    let lanes = if ask.alone { &suspects } else { &served };
    let limit = if ask.alone { 1 } else { i64::try_from(ask.limit).unwrap_or(i64::MAX) };
    let settled: Vec<i64> = ask.settled.iter().map(|number| number.0).collect();
    let sql = match lanes.as_slice() {
        [_] => include_str!("sql/claim.sql"),
        _ => include_str!("sql/claim_lanes.sql"),
    };
    let (floors, raised) = store.shared.floors.of(lanes);
    let conn = store.conn().await?;
    let mut rows = conn
        .query(
            sql,
            &[
                &micros(now),
                &ask.worker.0,
                &ask.number.0,
                lanes,
                &suspects,
                &limit,
                &settled,
                &ask.alone,
                &floors,
            ],
        )
        .await?;
    let first = rows.first().ok_or_else(|| Error::Fault("a claim answered nothing".into()))?;
    if !first.get::<_, bool>(0) {
        return Err(Error::Dead);
    }
    if !first.get::<_, bool>(1) {
        return Err(lease_ran_out());
    }
    let (repeat, suspects, passed_over) = (first.get(2), first.get(3), first.get::<_, bool>(18));
    let now = Time(first.get(17));
    if repeat {
        rows = conn.query(include_str!("sql/claim_repeat.sql"), &[&ask.worker.0, &ask.number.0]).await?;
    }
    rows.retain(|row| row.get::<_, Option<i32>>(5).is_some());
    let full = limit > 0 && rows.len() as i64 >= limit;
    if !repeat {
        let last = rows.iter().map(|row| (row.get(5), row.get(16)));
        store.shared.floors.reached(lanes, raised, full && !ask.alone, last);
    }
    store.know_lanes(&conn, rows.iter().map(|row| row.get(5))).await?;
    let jobs = rows.iter().map(|row| claimed(store, row)).collect::<Result<_, _>>()?;
    // A claim that began behind the beginning and came back short, or found places locked, has passed something over.
    Ok(Haul { jobs, more: full || passed_over || (raised && !repeat), suspects, now })
}

fn claimed(store: &Postgres, row: &Row) -> Result<Claimed, Error> {
    Ok(Claimed {
        id: JobId(row.get(4)),
        kind: store.lane(row.get(5))?.kind,
        epoch: Epoch(row.get(6)),
        rev: Rev(row.get(7)),
        attempts: row.get::<_, i32>(8) as u32,
        deaths: row.get::<_, i16>(9) as u16,
        key: row.get(10),
        due_at: Time(row.get(19)),
        deadline_at: row.get::<_, Option<i64>>(11).map(Time),
        spent: pick::spent(row.get(12)),
        settings: pick::settings(row.get(13)),
        input: Payload { codec: row.get::<_, i16>(14) as u8, bytes: row.get(15) },
    })
}
