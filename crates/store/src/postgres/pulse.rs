//! Whether anything may have changed that people see.

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{Epoch, JobId, Location, Rev};

use super::{Postgres, SPAN, sql};
use crate::{
    Error, JobPulse, Pulse, columns,
    inspect::pulse::{check, digest},
};

/// How many numbers the digest is made of, before the id of the newest job.
const NUMBERS: usize = 11;

impl Postgres {
    pub(super) async fn read_pulse(&self, jobs: &[JobId]) -> Result<Pulse, Error> {
        check(jobs)?;
        let ids: Vec<Uuid> = jobs.iter().map(|id| id.0).collect();
        let rows = self.conn().await?.read(sql::pulse::PULSE, &[&None::<i64>, &ids, &SPAN]).await?;
        let mut pulse = Pulse { store: rows.first().map_or(0, store_digest), jobs: vec![None; jobs.len()] };
        for row in &rows {
            // Positions are counted from one.
            let position = row.get::<_, Option<i64>>(NUMBERS + 1).and_then(|n| usize::try_from(n - 1).ok());
            if let Some(place) = position.and_then(|position| pulse.jobs.get_mut(position)) {
                *place = job_pulse(row, NUMBERS + 2);
            }
        }
        Ok(pulse)
    }
}

fn store_digest(row: &Row) -> u64 {
    let mut parts: Vec<i64> = (0..NUMBERS).map(|column| row.get(column)).collect();
    let (high, low) = row.get::<_, Option<Uuid>>(NUMBERS).unwrap_or_default().as_u64_pair();
    parts.extend([high as i64, low as i64]);
    digest(&parts)
}

/// Where a job is; `None` if the row has none.
fn job_pulse(row: &Row, from: usize) -> Option<JobPulse> {
    let rev = Rev(row.get::<_, Option<i32>>(from)?);
    let location = Location {
        is_ready: row.get(from + 3),
        is_scheduled: row.get(from + 4),
        is_parked: row.get(from + 5),
    };
    Some(JobPulse {
        rev,
        epoch: Epoch(row.get(from + 1)),
        state: columns::final_state(row.get(from + 2)).unwrap_or_else(|| location.state()),
        newest_signal: row.get(from + 6),
    })
}
