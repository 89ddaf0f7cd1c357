//! The calls of workers on other hosts, under `/worker/v1/`; `docs/worker-protocol.md` describes them.
//!
//! `lifecycle` registers and renews, `claim` and `commit` move jobs, `submit` is what programs and running code send, and `read` what
//! running code reads. The types are those of [`windlass_remote::protocol`]. A request says what an attempt did; what the job is, the server
//! knows from its claim.

mod claim;
mod commit;
mod lifecycle;
mod read;
mod submit;

use std::{future::Future, time::Duration};

use axum::http::Method;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use windlass::{
    JobId,
    model::WorkerId,
    store::{Now, Store},
};
use windlass_remote::protocol::{TEST_TIME, calls::Request, schema::Described};

use super::{Route, WORK};
use crate::{
    access::forbidden,
    call::Call,
    error::{Error, ErrorKind},
    reply::Reply,
    server::StreamPermit,
    worker::{Existence, Workers},
};

pub(super) fn routes() -> Vec<Route> {
    let parts = [lifecycle::routes(), claim::routes(), commit::routes(), submit::routes(), read::routes()];
    parts.into_iter().flatten().collect()
}

/// A route of a call. Its path ends with [`Request::CALL`].
fn route<R, F>(
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    handler: impl Fn(Call, R) -> F + Send + Sync + 'static,
) -> Route
where
    R: Request + DeserializeOwned + Send + 'static,
    F: Future<Output = Result<R::Answer, Error>> + Send + 'static,
{
    let respond = move |call: Call| {
        // A time is refused wherever it is sent, also with calls that have none.
        let parsed = call.now().and_then(|_| call.body::<R>());
        let answering = parsed.map(|request| handler(call, request));
        async move { Reply::json(&answering?.await?) }
    };
    Route {
        body: Some((R::describe, true)),
        answer_schema: Some(R::Answer::describe),
        ..Route::new(Method::POST, path, WORK, name, summary, respond)
    }
}

impl Call {
    fn store(&self) -> &dyn Store {
        &**self.engine().store()
    }

    fn workers(&self) -> &Workers {
        &self.shared.workers
    }

    /// The time of the call: the store's clock, unless this is a test and names one.
    fn now(&self) -> Result<Now, Error> {
        let Some(value) = self.headers.get(TEST_TIME) else { return Ok(None) };
        #[cfg(feature = "test-time")]
        if self.shared.settings.accepts_times {
            let micros = value.to_str().ok().and_then(|text| text.parse().ok());
            return micros
                .map(|micros| Some(windlass::Time(micros)))
                .ok_or_else(|| Error::invalid("the time of the call is no number", "send microseconds"));
        }
        let _ = value;
        let message = format!("the header {TEST_TIME} is for tests, and this server is not part of one");
        Err(Error::invalid(message, "leave it out"))
    }

    /// Refuses a worker of somebody else; one that does not exist is dead.
    async fn check_worker(&self, worker: WorkerId) -> Result<(), Error> {
        match self.workers().check(&self.principal, worker).await? {
            Existence::Own => Ok(()),
            Existence::Unknown => Err(windlass::store::Error::Dead.into()),
        }
    }

    /// Refuses a job of another kind or queue than the token is for, as one that does not exist.
    async fn check_visible(&self, job: JobId) -> Result<(), Error> {
        if self.sees_job(job).await? {
            return Ok(());
        }
        let hint = "it was pruned, or the token is limited to other kinds or queues";
        Err(Error::new(ErrorKind::NotFound, format!("there is no job {job}"), hint))
    }

    /// Whether a job is of the kinds and queues that the token is for. Without a limit every id is.
    async fn sees_job(&self, job: JobId) -> Result<bool, Error> {
        if self.principal.scope.is_unlimited() {
            return Ok(true);
        }
        let found = self.engine().inspect().job(job).await?;
        Ok(found.is_some_and(|job| self.principal.sees(&job.summary)))
    }

    /// Refuses a queue whose gate the token is not for.
    fn check_gate(&self, queue: &str) -> Result<(), Error> {
        if self.principal.scope.has_gate(queue) {
            return Ok(());
        }
        Err(forbidden(
            format!("this token is limited to other queues than {queue:?}"),
            "leave it out, or use a token for the queue",
        ))
    }

    /// Counts a call that waits, which stops counting among those that run. Returns until when it may wait.
    fn wait_until(&self, wait: Duration) -> Result<(Instant, StreamPermit), Error> {
        let permit = self.start_waiting()?;
        Ok((Instant::now() + wait.min(self.shared.settings.max_wait), permit))
    }
}

/// Refuses a list that is too long; `what` says what is in it.
fn check_count(what: &str, count: usize, most: usize) -> Result<(), Error> {
    if count <= most {
        return Ok(());
    }
    Err(Error::invalid(
        format!("the request has {count} {what}; at most {most} are allowed"),
        "send several requests",
    ))
}

#[cfg(test)]
mod tests {
    use windlass_remote::protocol::{PREFIX, calls::*, reads::*};

    use super::routes;

    #[test]
    fn every_call_of_the_protocol_has_a_route() {
        fn path<R: Request>() -> String {
            format!("{PREFIX}{}", R::CALL)
        }
        let mut calls = vec![
            path::<Hello>(),
            path::<Register>(),
            path::<Claim>(),
            path::<Renew>(),
            path::<ReleaseClaims>(),
            path::<Release>(),
            path::<Retire>(),
            path::<Commit>(),
            path::<Gates>(),
            path::<Cancels>(),
            path::<EndCancelled>(),
            path::<Submit>(),
            path::<Deliver>(),
            path::<Ends>(),
            path::<Journal>(),
            path::<Journals>(),
            path::<Context>(),
            path::<Inbox>(),
            path::<ChildEnds>(),
            path::<Branches>(),
            path::<BranchChildren>(),
            path::<Clock>(),
        ];
        let mut known: Vec<String> = routes().iter().map(|route| route.path.to_owned()).collect();
        calls.sort();
        known.sort();
        assert_eq!(calls, known);
    }
}
