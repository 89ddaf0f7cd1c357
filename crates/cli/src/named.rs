//! Jobs as people name them: by id, by key, or as the child of a branch.

use anyhow::bail;
use windlass::{Engine, Error, Item, JobId, store::Filter};

use crate::{out, place::Place};

/// How many jobs with the same key are told apart in an error.
const TOLD: usize = 5;

/// What a name stands for.
pub(crate) enum Found {
    /// A job, which need not be there if it was named by its id.
    Job(JobId),
    /// A child of a branch that is in a block.
    Packed(Box<Item>),
}

/// What people mean by a job's id, its key, or `parent$branch$spawn_item`.
pub(crate) async fn find(name: &str, engine: &Engine, place: &Place) -> anyhow::Result<Found> {
    if let Ok(id) = name.parse() {
        return Ok(Found::Job(id));
    }
    let filter = Filter { key: Some(name.to_owned()), limit: TOLD + 1, ..Filter::default() };
    let jobs = engine.inspect().jobs(&filter).await?;
    match jobs.as_slice() {
        [job] => return Ok(Found::Job(job.id)),
        [] if name.contains('$') => {}
        [] => bail!(
            "{:?} is not a job id, and no job in {} has it as its key; ids look like 0199f0c2-6f7a-7000-8000-000000000000, and \
             `{} jobs` lists the jobs with their keys",
            name,
            place.shown(),
            place.program
        ),
        jobs => {
            let told = jobs.iter().take(TOLD).map(|job| format!("{} ({})", job.id, out::plain(&job.kind)));
            let more = if jobs.len() > TOLD { ", …" } else { "" };
            let told = told.collect::<Vec<String>>().join(", ") + more;
            bail!("several jobs have the key {name:?}, of different kinds: {told}; name one by its id")
        }
    }
    match engine.item(name).await {
        Ok(item) if item.block.is_none() => Ok(Found::Job(item.id)),
        Ok(item) => Ok(Found::Packed(Box::new(item))),
        Err(error @ Error::NoSuchChild { .. }) => bail!(
            "{error}; `{} branches JOB --children` lists the children of a job's branches",
            place.program
        ),
        Err(error) => Err(error.into()),
    }
}

/// The same where something is done to a job: a child that is in a block is none.
pub(crate) async fn own(name: &str, engine: &Engine, place: &Place) -> anyhow::Result<JobId> {
    match find(name, engine, place).await? {
        Found::Job(id) => Ok(id),
        Found::Packed(item) => bail!(
            "{:?} is one of many in a block and no job of its own; name the block, {}, to do this to all that are in it",
            name,
            item.block.unwrap_or(item.id)
        ),
    }
}

/// The same where only a job will do: for a child that is in a block, that is the block.
pub(crate) async fn job(name: &str, engine: &Engine, place: &Place) -> anyhow::Result<JobId> {
    Ok(match find(name, engine, place).await? {
        Found::Job(id) => id,
        Found::Packed(item) => item.block.unwrap_or(item.id),
    })
}
