//! Why a job may not consume a signal soon that was sent to it.

use windlass_model::{JobId, State, WaitCondition, branch::BRANCH_SIGNAL, wait::CHILD_SIGNAL};
use windlass_store::Job;
use windlass_workflow::Error;

use crate::Operator;

impl Operator {
    /// Why a job may not consume a signal of this name soon; `None` if nothing speaks against it.
    pub async fn why_not_awaited(&self, id: JobId, name: &str) -> Result<Option<String>, Error> {
        let Some(job) = self.inspect().job(id).await? else { return Ok(None) };
        let begun = !self.inspect().journal(id, None, 1).await?.is_empty();
        Ok(why_not_awaited(&job, begun, name))
    }
}

/// `begun` is whether the job has a journal.
fn why_not_awaited(job: &Job, begun: bool, name: &str) -> Option<String> {
    if job.summary.stage.is_none() && !begun && job.wait.is_none() {
        return Some(
            "the job has no stage and no journal: it is a machine or workflow that has not started, or a task, which \
             consumes no signals"
                .into(),
        );
    }
    let names = job.wait.as_ref().map(|wait| wait.names().collect::<Vec<&str>>()).unwrap_or_default();
    let children = job.wait.as_ref().is_some_and(|wait| matches!(wait, WaitCondition::Children { .. }));
    let child = children || names.contains(&CHILD_SIGNAL);
    let branch = names.contains(&BRANCH_SIGNAL);
    let waits: Vec<&str> =
        names.into_iter().filter(|name| ![CHILD_SIGNAL, BRANCH_SIGNAL].contains(name)).collect();
    if job.summary.state != State::Waiting || waits.contains(&name) {
        return None;
    }
    let what = match waits.as_slice() {
        [] if branch => "its branches".to_owned(),
        [] if child => "its children".to_owned(),
        [] => "a time".to_owned(),
        names => names.join(", "),
    };
    Some(format!(
        "the job waits for {what} and not for {name}; the signal stays in its inbox until it waits for it"
    ))
}
