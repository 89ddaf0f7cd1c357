//! Finds the job that a person means by an id, by `kind/key`, by a key, or by its name as the child of a branch
//! (`parent$branch$spawn_item`), with errors that name this program.

use anyhow::bail;
use windlass::{JobId, operate::Found};

use crate::{
    client::{Client, NameError},
    out,
    program::Program,
};

/// Finds a job or a packed child. A job that was named by its id need not exist.
pub(crate) async fn job_or_item(name: &str, client: &Client, program: &Program) -> anyhow::Result<Found> {
    match client.find(name).await? {
        Ok(found) => Ok(found),
        Err(NameError::Unknown) => bail!(
            "{:?} is not a job id, and no job in {} has it as its key, or as kind/key; ids look like \
             0199f0c2-6f7a-7000-8000-000000000000, and `{} jobs` lists the jobs with their kinds and keys",
            name,
            program.display_url(),
            program.name
        ),
        Err(NameError::Ambiguous(text)) => bail!(out::plain(&text)),
        Err(NameError::NoSuchChild(text)) => {
            bail!("{text}; `{} branches JOB --children` lists the children of a job's branches", program.name)
        }
    }
}

/// Finds a job to act on. A packed child is an error: it is not a job of its own.
pub(crate) async fn job(name: &str, client: &Client, program: &Program) -> anyhow::Result<JobId> {
    match job_or_item(name, client, program).await? {
        Found::Job(id) => Ok(id),
        Found::Packed(item) => bail!(
            "{:?} is packed into a block with other children and is not a job of its own; name the block, {}, to act on all of \
             them",
            name,
            item.block.unwrap_or(item.id)
        ),
    }
}

/// Finds a job; for a packed child, its block.
pub(crate) async fn job_or_block(name: &str, client: &Client, program: &Program) -> anyhow::Result<JobId> {
    Ok(match job_or_item(name, client, program).await? {
        Found::Job(id) => id,
        Found::Packed(item) => item.block.unwrap_or(item.id),
    })
}
