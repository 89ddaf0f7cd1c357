//! Rows of a list of jobs: each says why the job is in its state.

mod reason;

use serde::{Deserialize, Serialize};
use windlass_model::{BranchNo, JobId, Time};
use windlass_store::{Filter, JobDetails, JobPage, Summary};
use windlass_workflow::Error;

use super::Situation;
use crate::Operator;

pub use reason::RowReason;

/// Jobs, newest first, with why each is in its state. A page takes a constant number of reads, however many jobs it has.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobRows {
    /// The jobs.
    pub rows: Vec<JobRow>,
    /// The next page has the jobs before this one; `None` on the last page. A page may have few jobs or none and not be the last: a
    /// bounded number of jobs is examined for each.
    pub next_before: Option<JobId>,
    /// The store's clock, as of the situation.
    #[serde(skip)]
    pub now: Time,
}

/// A job of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobRow {
    /// The job. Its state is that of the reason, which is read after the list.
    #[serde(flatten)]
    pub job: Summary,
    /// Why it is in its state.
    pub because: RowReason,
    /// The same in a few words.
    pub why: String,
    /// How many attempts it has at most, if it was submitted with a retry policy that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Its serial key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial_key: Option<String>,
    /// The job that submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// The branch of that job that it is a child in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchNo>,
    /// How many items of a branch it represents, if it is a block of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
}

impl JobRows {
    /// Reads a page: at most `filter.limit` jobs before `filter.before`.
    pub async fn read(operator: &Operator, filter: &Filter, situation: &Situation) -> Result<JobRows, Error> {
        let JobPage { jobs, next } = operator.inspect().jobs(filter).await?;
        let rows = JobRow::read(operator, jobs, situation).await?;
        Ok(JobRows { rows, next_before: next, now: situation.now })
    }
}

impl JobRow {
    /// Reads the rows of some jobs, such as those on a page that is open.
    pub async fn of_ids(
        operator: &Operator,
        ids: &[JobId],
        situation: &Situation,
    ) -> Result<Vec<Option<JobRow>>, Error> {
        let jobs = operator.inspect().summaries(ids).await?;
        let known = jobs.iter().flatten().cloned().collect();
        let mut rows = JobRow::read(operator, known, situation).await?.into_iter();
        Ok(jobs.into_iter().map(|job| job.and_then(|_| rows.next())).collect())
    }

    /// Adds to jobs why they are in their states.
    pub async fn read(
        operator: &Operator,
        jobs: Vec<Summary>,
        situation: &Situation,
    ) -> Result<Vec<JobRow>, Error> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let details = operator.inspect().details(&ids).await?;
        let rows = jobs.into_iter().zip(details).map(|(job, details)| JobRow::new(job, details, situation));
        Ok(rows.collect())
    }

    fn new(job: Summary, details: Option<JobDetails>, situation: &Situation) -> JobRow {
        let because = RowReason::of(&job, details.as_ref(), situation);
        let (state, details) =
            (details.as_ref().map_or(job.state, |details| details.state), details.as_ref());
        JobRow {
            why: because.words(situation.now),
            because,
            max_attempts: details.and_then(|details| details.max_attempts),
            serial_key: details.and_then(|details| details.serial_key.clone()),
            parent: details.and_then(|details| details.parent),
            branch: details.and_then(|details| details.branch),
            items: details.map(|details| details.items).filter(|items| *items > 1),
            job: Summary { state, ..job },
        }
    }
}
