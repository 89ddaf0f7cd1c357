//! Putting jobs in.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use windlass_model::{JobId, NewJob, Submitted, Time, When, rank::rank};

use super::{Postgres, SPAN, conn::Guard, micros, span};
use crate::{
    Born, Error, Now,
    pick::{self, Found, Wrote},
};

/// How often a submit is sent again because what stood in its way was pruned between two statements.
const TRIES: usize = 5;

pub(super) async fn submit(
    store: &Postgres,
    now: Now,
    jobs: &[NewJob],
    born: Option<Born>,
) -> Result<Vec<Submitted>, Error> {
    jobs.iter().try_for_each(|job| store.shared.options.limits.check(job))?;
    store.intern(jobs.iter().map(|job| (job.queue.as_str(), &job.kind))).await?;
    for _ in 0..TRIES {
        let wrote = write(store, now, jobs, born).await?;
        let found = match wrote.iter().all(Option::is_some) {
            true => Found::default(),
            false => find(store, jobs, &wrote, born).await?,
        };
        let answers: Option<Vec<Submitted>> = pick::answers(jobs, &wrote, &found).into_iter().collect();
        if let Some(answers) = answers {
            return Ok(answers);
        }
    }
    Err(Error::Unavailable("jobs with these keys are being pruned; submit again".into()))
}

/// Writes the batch; says of each job whether it was written.
async fn write(
    store: &Postgres,
    now: Now,
    jobs: &[NewJob],
    born: Option<Born>,
) -> Result<Vec<Option<Wrote>>, Error> {
    let urgent = jobs.iter().map(|job| job.priority).min().unwrap_or(0);
    let now_here = now.unwrap_or_else(|| Time::from_system(std::time::SystemTime::now()));
    // The server's clock may be a little behind this one.
    store.shared.floors.lowered(rank(now_here.minus(Duration::from_secs(1)), urgent));
    let waves = waves(jobs);
    let mut wrote = vec![None; jobs.len()];
    let conn = store.conn().await?;
    if let [wave] = waves.as_slice() {
        insert(store, &conn, now, jobs, wave, born, &mut wrote).await?;
        return Ok(wrote);
    }
    conn.begin().await?;
    for wave in &waves {
        if let Err(error) = insert(store, &conn, now, jobs, wave, born, &mut wrote).await {
            conn.rollback().await;
            return Err(error);
        }
    }
    conn.commit().await?;
    Ok(wrote)
}

/// Parts a batch so that no id and no key stands twice in a part: of two equal ones the first in the call is to win,
/// and within a statement it would be the one that sorts first. All but odd batches are one part.
fn waves(jobs: &[NewJob]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut rest: Vec<usize> = (0..jobs.len()).collect();
    while !rest.is_empty() {
        let mut ids = HashSet::with_capacity(rest.len());
        let mut keys = HashSet::new();
        let alone = |place: &usize| {
            let job = &jobs[*place];
            let new_id = ids.insert(job.id);
            let new_key = job.key.as_ref().is_none_or(|key| keys.insert((&job.kind.kind, key)));
            new_id && new_key
        };
        let (wave, later) = rest.into_iter().partition(alone);
        waves.push(wave);
        rest = later;
    }
    waves
}

/// Sends a part of the batch, and notes which jobs were written.
async fn insert(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    jobs: &[NewJob],
    wave: &[usize],
    born: Option<Born>,
    wrote: &mut [Option<Wrote>],
) -> Result<(), Error> {
    let mut places: Vec<usize> = wave.to_vec();
    // Keys first: two batches with the same keys must meet them in the same order.
    places.sort_by(|a, b| {
        let order = |place: usize| (&jobs[place].kind.kind, &jobs[place].key, jobs[place].id);
        order(*a).cmp(&order(*b))
    });
    let place_of: HashMap<JobId, usize> = places.iter().map(|place| (jobs[*place].id, *place)).collect();
    let sorted: Vec<&NewJob> = places.iter().map(|place| &jobs[*place]).collect();
    let lanes: Vec<_> = sorted
        .iter()
        .map(|job| store.shared.lanes.get(&job.queue, &job.kind).expect("interned before"))
        .collect();
    let ids: Vec<_> = sorted.iter().map(|job| job.id.0).collect();
    let lane: Vec<i32> = lanes.iter().map(|lane| lane.id).collect();
    let kind: Vec<i32> = lanes.iter().map(|lane| lane.kind_id).collect();
    let priority: Vec<i16> = sorted.iter().map(|job| job.priority).collect();
    let at: Vec<Option<i64>> = sorted
        .iter()
        .map(|job| match job.when {
            When::At(at) => Some(at.micros()),
            _ => None,
        })
        .collect();
    let delay: Vec<i64> = sorted
        .iter()
        .map(|job| match job.when {
            When::After(delay) => span(delay),
            _ => 0,
        })
        .collect();
    let deadline: Vec<Option<i64>> = sorted.iter().map(|job| job.deadline_at.map(Time::micros)).collect();
    let digest: Vec<&[u8]> = sorted.iter().map(|job| job.digest.as_slice()).collect();
    let codec: Vec<i16> = sorted.iter().map(|job| i16::from(job.input.codec)).collect();
    let input: Vec<&[u8]> = sorted.iter().map(|job| job.input.bytes.as_slice()).collect();
    let key: Vec<Option<&str>> = sorted.iter().map(|job| job.key.as_deref()).collect();
    let tags: Vec<Option<String>> = sorted
        .iter()
        .map(|job| {
            (!job.tags.is_empty()).then(|| serde_json::to_string(&job.tags).expect("text is plain data"))
        })
        .collect();
    let options: Vec<Option<&str>> = sorted.iter().map(|job| job.options.as_deref()).collect();
    let settings: Vec<Option<String>> = sorted.iter().map(|job| pick::settings_text(&job.settings)).collect();
    let tag_job: Vec<_> =
        sorted.iter().flat_map(|job| std::iter::repeat_n(job.id.0, job.tags.len())).collect();
    let tag: Vec<&str> = sorted.iter().flat_map(|job| job.tags.iter().map(String::as_str)).collect();
    let (worker, number) = (born.map(|b| b.worker.0), born.map(|b| b.number.0));

    let rows = conn
        .query(
            include_str!("sql/submit.sql"),
            &[
                &micros(now),
                &worker,
                &number,
                &ids,
                &lane,
                &kind,
                &priority,
                &at,
                &delay,
                &deadline,
                &digest,
                &codec,
                &input,
                &key,
                &tags,
                &options,
                &settings,
                &SPAN,
                &tag,
                &tag_job,
                &conn.gate_writer,
                &Time::MAX.micros(),
            ],
        )
        .await?;
    for row in rows {
        wrote[place_of[&JobId(row.get(0))]] = Some(Wrote { claimed: row.get(1) });
    }
    Ok(())
}

/// Looks up what stood in the way of those that were not inserted.
async fn find(
    store: &Postgres,
    jobs: &[NewJob],
    wrote: &[Option<Wrote>],
    born: Option<Born>,
) -> Result<Found, Error> {
    let (mine, missing): (Vec<_>, Vec<_>) = jobs.iter().zip(wrote).partition(|(_, wrote)| wrote.is_some());
    let mine: HashSet<JobId> = mine.into_iter().map(|(job, _)| job.id).collect();
    let missing: Vec<&NewJob> = missing.into_iter().map(|(job, _)| job).collect();
    let ids: Vec<_> = missing.iter().map(|job| job.id.0).collect();
    let keyed: Vec<(i32, &NewJob, &str)> = missing
        .iter()
        .filter_map(|job| {
            let lane = store.shared.lanes.get(&job.queue, &job.kind).expect("interned before");
            Some((lane.kind_id, *job, job.key.as_deref()?))
        })
        .collect();
    let kinds: Vec<i32> = keyed.iter().map(|(kind, ..)| *kind).collect();
    let keys: Vec<&str> = keyed.iter().map(|(.., key)| *key).collect();
    let (worker, number) = (born.map(|b| b.worker.0), born.map(|b| b.number.0));
    let conn = store.conn().await?;
    let rows =
        conn.query(include_str!("sql/submit_existing.sql"), &[&worker, &number, &ids, &kinds, &keys]).await?;
    let mut found = Found::default();
    for row in rows {
        let id = JobId(row.get(0));
        let digest: [u8; 16] = row.get::<_, &[u8]>(1).try_into().unwrap_or_default();
        match row.get::<_, Option<i32>>(2) {
            None => {
                found.ids.insert(id, digest);
                if row.get(4) && !mine.contains(&id) {
                    found.claimed_before.insert(id);
                }
            }
            Some(kind) => {
                let name = keyed.iter().find(|(k, ..)| *k == kind).map(|(_, job, _)| job.kind.kind.clone());
                found.keys.insert((name.unwrap_or_default(), row.get(3)), (id, digest));
            }
        }
    }
    Ok(found)
}
