//! Whether anything may have changed that people see.

use rusqlite::{Row, params};
use windlass_model::{Epoch, JobId, Location, Rev};

use super::{inspect::SPAN, sql, tx::Tx};
use crate::{
    Error, JobPulse, Pulse, columns,
    inspect::pulse::{check, digest},
};

/// How many numbers the digest is made of, before the id of the newest job.
const NUMBERS: usize = 11;

pub(super) fn pulse(tx: &Tx<'_>, jobs: &[JobId]) -> Result<Pulse, Error> {
    check(jobs)?;
    let mut statement = tx.prepare(sql::pulse::PULSE)?;
    let mut rows = statement.query(params![tx.now(None).micros(), id_list(jobs), SPAN])?;
    let mut pulse = Pulse { store: 0, jobs: vec![None; jobs.len()] };
    let mut is_first = true;
    while let Some(row) = rows.next()? {
        if std::mem::take(&mut is_first) {
            pulse.store = store_digest(row)?;
        }
        let position =
            row.get::<_, Option<i64>>(NUMBERS + 1)?.and_then(|position| usize::try_from(position).ok());
        if let Some(place) = position.and_then(|position| pulse.jobs.get_mut(position)) {
            *place = job_pulse(row, NUMBERS + 2)?;
        }
    }
    Ok(pulse)
}

fn store_digest(row: &Row<'_>) -> Result<u64, Error> {
    let mut parts = (0..NUMBERS).map(|column| row.get(column)).collect::<Result<Vec<i64>, _>>()?;
    let newest = row.get::<_, Option<[u8; 16]>>(NUMBERS)?.unwrap_or_default();
    parts
        .extend(newest.chunks_exact(8).map(|half| i64::from_be_bytes(half.try_into().expect("eight bytes"))));
    Ok(digest(&parts))
}

/// Where a job is; `None` if the row has none.
fn job_pulse(row: &Row<'_>, from: usize) -> Result<Option<JobPulse>, Error> {
    let Some(rev) = row.get::<_, Option<i32>>(from)? else { return Ok(None) };
    let location = Location {
        is_ready: row.get(from + 3)?,
        is_scheduled: row.get(from + 4)?,
        is_parked: row.get(from + 5)?,
    };
    Ok(Some(JobPulse {
        rev: Rev(rev),
        epoch: Epoch(row.get(from + 1)?),
        state: columns::final_state(row.get(from + 2)?).unwrap_or_else(|| location.state()),
        newest_signal: row.get(from + 6)?,
    }))
}

/// Ids as a parameter of statements that read many jobs: a JSON array of their hexadecimal digits.
pub(super) fn id_list(ids: &[JobId]) -> String {
    let digits: Vec<String> = ids.iter().map(|id| format!("\"{}\"", id.0.simple())).collect();
    format!("[{}]", digits.join(","))
}
