//! Finds the job that a person means by an id, by a key, or by its name as the child of a branch (`parent$branch$spawn_item`).

use anyhow::bail;
use windlass::{Engine, Error, JobId, operate::Item, store::Filter};

use crate::{out, program::Program};

/// How many jobs with the same key an error lists.
const LISTED: usize = 5;

pub(crate) enum Resolved {
    /// A job. If it was named by its id, it need not exist.
    Job(JobId),
    /// A child of a branch that is packed into a block.
    Packed(Box<Item>),
}

/// Finds a job or a packed child.
pub(crate) async fn job_or_item(name: &str, engine: &Engine, program: &Program) -> anyhow::Result<Resolved> {
    if let Ok(id) = name.parse() {
        return Ok(Resolved::Job(id));
    }
    let filter = Filter { key: Some(name.to_owned()), limit: LISTED + 1, ..Filter::default() };
    let jobs = engine.inspect().jobs(&filter).await?;
    match jobs.as_slice() {
        [job] => return Ok(Resolved::Job(job.id)),
        [] if name.contains('$') => {}
        [] => bail!(
            "{:?} is not a job id, and no job in {} has it as its key; ids look like 0199f0c2-6f7a-7000-8000-000000000000, and \
             `{} jobs` lists the jobs with their keys",
            name,
            program.display_url(),
            program.name
        ),
        jobs => {
            let listed =
                jobs.iter().take(LISTED).map(|job| format!("{} ({})", job.id, out::plain(&job.kind)));
            let more = if jobs.len() > LISTED { ", …" } else { "" };
            let listed = listed.collect::<Vec<String>>().join(", ") + more;
            bail!(
                "several jobs of different kinds have the key {name:?}: {listed}; use the id of one of them"
            )
        }
    }
    match engine.item(name).await {
        Ok(item) if item.block.is_none() => Ok(Resolved::Job(item.id)),
        Ok(item) => Ok(Resolved::Packed(Box::new(item))),
        Err(error @ Error::NoSuchChild { .. }) => bail!(
            "{error}; `{} branches JOB --children` lists the children of a job's branches",
            program.name
        ),
        Err(error) => Err(error.into()),
    }
}

/// Finds a job to act on. A packed child is an error: it is not a job of its own.
pub(crate) async fn job(name: &str, engine: &Engine, program: &Program) -> anyhow::Result<JobId> {
    match job_or_item(name, engine, program).await? {
        Resolved::Job(id) => Ok(id),
        Resolved::Packed(item) => bail!(
            "{:?} is packed into a block with other children and is not a job of its own; name the block, {}, to act on all of \
             them",
            name,
            item.block.unwrap_or(item.id)
        ),
    }
}

/// Finds a job; for a packed child, its block.
pub(crate) async fn job_or_block(name: &str, engine: &Engine, program: &Program) -> anyhow::Result<JobId> {
    Ok(match job_or_item(name, engine, program).await? {
        Resolved::Job(id) => id,
        Resolved::Packed(item) => item.block.unwrap_or(item.id),
    })
}
