//! What can be done with a branch.

use windlass::{
    model::Permission,
    operate::{operation::begin_redrive, views::BranchesView},
};

use super::{find_in, unknown};
use crate::{
    error::Error,
    pages::page::{Done, Posted, form_route},
    routes::Route,
};

pub(in crate::pages) fn routes() -> Vec<Route> {
    vec![form_route("/jobs/{job}/branches/{branch}/redrive", Permission::Act, redrive)]
}

/// Retries the unsuccessful children as an operation in the background.
async fn redrive(posted: Posted) -> Result<Done, Error> {
    let Posted { call, form } = posted;
    let job = call.job_id().await?;
    let number = find_in(call.operator(), job, call.path("branch")).await?;
    let branches = BranchesView::read(call.operator(), job, None).await?.branches;
    let branch = branches.into_iter().find(|branch| branch.number == number).ok_or_else(unknown)?;
    let mut redrive = call.control(form.text("note").map(str::to_owned)).redrive(job, Some(&branch.name));
    if let Some(rate) = form.parsed::<u32>("rate")? {
        redrive = redrive.per_second(rate);
    }
    let operation = begin_redrive(redrive).await?;
    let id = operation.id();
    // It goes on when the request has been answered; its record says how it ends.
    tokio::spawn(async move {
        if let Err(error) = operation.run().await {
            tracing::warn!(%error, operation = %id, "an operation has failed");
        }
    });
    let text = format!("The redrive of the branch {} began.", branch.name);
    Ok(Done { text, next: Some(format!("/operations/{id}")) })
}
