//! The arrays that a submit sends for its jobs.

use std::collections::HashMap;

use uuid::Uuid;
use windlass_model::{JobId, NewJob, Time, When};

use super::{Postgres, change_params::Param, errors::PgError, names::database_restored, span, submit::Batch};
use crate::{columns, list::period_of};

/// Jobs as columns, in the order in which they are written.
pub(super) struct Rows<'a> {
    /// Their indexes in the batch.
    pub(super) indexes: Vec<usize>,
    pub(super) index_of: HashMap<JobId, usize>,
    pub(super) id: Vec<Uuid>,
    pub(super) lane: Vec<i32>,
    pub(super) kind: Vec<i32>,
    pub(super) priority: Vec<i16>,
    pub(super) at: Vec<Option<i64>>,
    pub(super) delay: Vec<i64>,
    pub(super) deadline_at: Vec<Option<i64>>,
    pub(super) digest: Vec<&'a [u8]>,
    pub(super) codec: Vec<i16>,
    pub(super) input: Vec<&'a [u8]>,
    pub(super) key: Vec<Option<&'a str>>,
    pub(super) tags: Vec<Option<String>>,
    pub(super) options: Vec<Option<&'a str>>,
    pub(super) settings: Vec<Option<String>>,
    pub(super) stage: Vec<Option<&'a str>>,
    pub(super) tag: Vec<&'a str>,
    pub(super) tag_job: Vec<Uuid>,
    /// The periods in which the ids of each lane were made, each once.
    pub(super) periods: Periods,
}

/// Lanes and periods, as columns.
#[derive(Default)]
pub(super) struct Periods {
    pub(super) lane: Vec<i32>,
    pub(super) period: Vec<i64>,
}

impl Periods {
    /// The periods of jobs with these lanes.
    fn of<'a>(jobs: impl Iterator<Item = (&'a i32, &'a Uuid)>) -> Periods {
        let mut all: Vec<(i32, i64)> = Vec::new();
        for (lane, id) in jobs {
            let period = (*lane, period_of(JobId(*id)));
            // Jobs of one period mostly come together.
            if all.last() != Some(&period) {
                all.push(period);
            }
        }
        all.sort_unstable();
        all.dedup();
        let (lane, period) = all.into_iter().unzip();
        Periods { lane, period }
    }
}

impl<'a> Rows<'a> {
    /// The columns of the jobs of a wave.
    pub(super) fn of(batch: &Batch<'a>, wave: &[usize]) -> Result<Rows<'a>, PgError> {
        let all = batch.jobs;
        let mut indexes: Vec<usize> = wave.to_vec();
        // By keys first: two batches with the same keys must insert them in the same order.
        indexes.sort_by(|a, b| {
            let order = |index: usize| {
                let unique = all[index].settings.unique.as_ref().map(|unique| &unique.key);
                (&all[index].kind.kind, &all[index].key, unique, all[index].id)
            };
            order(*a).cmp(&order(*b))
        });
        let jobs: Vec<&'a NewJob> = indexes.iter().map(|index| &all[*index]).collect();
        let lane = |job| batch.lane(job).map(|lane| (lane.id, lane.kind_id));
        let lanes = jobs.iter().copied().map(lane).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let index_of = indexes.iter().map(|index| (all[*index].id, *index)).collect();
        Ok(Rows { indexes, index_of, ..Rows::columns(&jobs, lanes) })
    }

    /// The columns of jobs without a rate limit, in this order. Their lanes are cached.
    pub(super) fn plain(store: &Postgres, jobs: &[&'a NewJob]) -> Result<Rows<'a>, PgError> {
        let lane = |job: &NewJob| {
            let lane = store.shared.lanes.get(&job.queue, &job.kind).ok_or_else(database_restored)?;
            Ok::<_, PgError>((lane.id, lane.kind_id))
        };
        let mut lanes: (Vec<i32>, Vec<i32>) = Default::default();
        // Mostly all of one lane.
        let mut last: Option<(&NewJob, (i32, i32))> = None;
        for job in jobs {
            let same = last.filter(|(last, _)| last.queue == job.queue && last.kind == job.kind);
            let known = match same {
                Some(known) => known,
                None => (*job, lane(job)?),
            };
            let (_, (lane, kind)) = *last.insert(known);
            lanes.0.push(lane);
            lanes.1.push(kind);
        }
        Ok(Rows::columns(jobs, lanes))
    }

    fn columns(jobs: &[&'a NewJob], (lane, kind): (Vec<i32>, Vec<i32>)) -> Rows<'a> {
        let at = |job: &&NewJob| match job.when {
            When::At(at) => Some(at.micros()),
            _ => None,
        };
        let delay = |job: &&NewJob| match job.when {
            When::After(delay) => span(delay),
            _ => 0,
        };
        let tags = |job: &&NewJob| {
            (!job.tags.is_empty())
                .then(|| serde_json::to_string(&job.tags).expect("strings always serialize"))
        };
        let id: Vec<Uuid> = jobs.iter().map(|job| job.id.0).collect();
        Rows {
            indexes: Vec::new(),
            index_of: HashMap::new(),
            periods: Periods::of(lane.iter().zip(&id)),
            id,
            lane,
            kind,
            priority: jobs.iter().map(|job| job.priority).collect(),
            at: jobs.iter().map(at).collect(),
            delay: jobs.iter().map(delay).collect(),
            deadline_at: jobs.iter().map(|job| job.deadline_at.map(Time::micros)).collect(),
            digest: jobs.iter().map(|job| job.digest.as_slice()).collect(),
            codec: jobs.iter().map(|job| i16::from(job.input.codec)).collect(),
            input: jobs.iter().map(|job| job.input.bytes.as_slice()).collect(),
            key: jobs.iter().map(|job| job.key.as_deref()).collect(),
            tags: jobs.iter().map(tags).collect(),
            options: jobs.iter().map(|job| job.options.as_deref()).collect(),
            settings: jobs.iter().map(|job| columns::settings_text(&job.settings)).collect(),
            stage: jobs.iter().map(|job| job.stage.as_deref()).collect(),
            tag_job: jobs.iter().flat_map(|job| std::iter::repeat_n(job.id.0, job.tags.len())).collect(),
            tag: jobs.iter().flat_map(|job| job.tags.iter().map(String::as_str)).collect(),
        }
    }

    /// The parameters that all statements which insert jobs take after the time and the latest possible time.
    pub(super) fn params(&self) -> [Param<'_>; 16] {
        [
            &self.id,
            &self.lane,
            &self.kind,
            &self.priority,
            &self.at,
            &self.delay,
            &self.deadline_at,
            &self.digest,
            &self.codec,
            &self.input,
            &self.tags,
            &self.options,
            &self.settings,
            &self.stage,
            &self.tag,
            &self.tag_job,
        ]
    }
}

/// The positions of jobs in branches, as columns; nulls for jobs in none.
pub(super) struct BranchColumns<'a> {
    pub(super) branch: Vec<Option<i64>>,
    pub(super) spawn: Vec<Option<i16>>,
    pub(super) item: Vec<Option<&'a str>>,
    pub(super) items: Vec<Option<i32>>,
}

impl<'a> BranchColumns<'a> {
    pub(super) fn of(jobs: &[&'a NewJob]) -> BranchColumns<'a> {
        let position = |job: &&'a NewJob| job.branch_position.as_deref();
        BranchColumns {
            branch: jobs.iter().map(|job| Some(position(job)?.branch.0)).collect(),
            spawn: jobs.iter().map(|job| Some(position(job)?.spawn)).collect(),
            item: jobs
                .iter()
                .map(|job| Some(position(job)?.item.as_str()).filter(|item| !item.is_empty()))
                .collect(),
            items: jobs
                .iter()
                .map(|job| Some(position(job)?.items as i32).filter(|items| *items != 1))
                .collect(),
        }
    }

    pub(super) fn params(&self) -> [Param<'_>; 4] {
        [&self.branch, &self.spawn, &self.item, &self.items]
    }
}
