//! One call: the request as JSON, the answer or the error that it stands for.

use std::{sync::atomic::Ordering, time::Duration};

use serde::Deserialize;
use windlass_http::{
    Client, Error as HttpError, Request as HttpRequest, Response, StatusCode, header::HeaderName,
};
use windlass_model::Invalid;
use windlass_store::Error;

use super::RemoteStore;
use crate::protocol::{PREFIX, TEST_TIME, calls::Request, code};

/// The body of an answer that is an error.
#[derive(Deserialize)]
struct ErrorBody {
    code: String,
    message: String,
    #[serde(default)]
    hint: String,
}

/// An answer that is an error, or none.
pub(super) struct Refusal {
    /// The code of the answer; empty if there is none.
    pub(super) code: String,
    pub(super) error: Error,
}

impl Refusal {
    fn new(error: Error) -> Refusal {
        Refusal { code: String::new(), error }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        refusal.error
    }
}

impl RemoteStore {
    /// Sends a request and returns its answer.
    pub(super) async fn call<R: Request>(&self, now: Option<i64>, request: &R) -> Result<R::Answer, Error> {
        Ok(self.try_call(now, request).await?)
    }

    /// The same, for a caller that tells refusals apart.
    pub(super) async fn try_call<R: Request>(
        &self,
        now: Option<i64>,
        request: &R,
    ) -> Result<R::Answer, Refusal> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        call(&self.client, now, request, self.patience).await
    }

    /// The same within a time of its own.
    pub(super) async fn call_within<R: Request>(
        &self,
        patience: Duration,
        now: Option<i64>,
        request: &R,
    ) -> Result<R::Answer, Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(call(&self.client, now, request, patience).await?)
    }
}

/// Sends the first request to a server. What is wrong with the address or the token is then an error of the setup, and no outage.
pub(super) async fn open<R: Request>(
    client: &Client,
    request: &R,
    patience: Duration,
) -> Result<R::Answer, Error> {
    let answer = match send(client, None, request, patience).await {
        Err(error) if !error.is_retryable() => return Err(Error::Config(error.to_string())),
        Err(error) => return Err(unanswered(error).error),
        Ok(answer) => answer,
    };
    read(client, answer, R::CALL).await.map_err(|Refusal { code, error }| match (code.as_str(), error) {
        (code::UNAUTHORIZED | code::FORBIDDEN, Error::Unavailable(why) | Error::Misuse(why)) => {
            Error::Config(why)
        }
        (_, error) => error,
    })
}

async fn call<R: Request>(
    client: &Client,
    now: Option<i64>,
    request: &R,
    patience: Duration,
) -> Result<R::Answer, Refusal> {
    let answer = send(client, now, request, patience).await.map_err(unanswered)?;
    read(client, answer, R::CALL).await
}

async fn send<R: Request>(
    client: &Client,
    now: Option<i64>,
    request: &R,
    patience: Duration,
) -> Result<Response, HttpError> {
    let mut message = HttpRequest::post(format!("{PREFIX}{}", R::CALL)).json(request)?.timeout(patience);
    if let Some(micros) = now {
        message = message.header(HeaderName::from_static(TEST_TIME), &micros.to_string())?;
    }
    client.send(message).await
}

/// The error of a call without an answer that was read. What the server did is not known, and every call may be repeated.
fn unanswered(error: HttpError) -> Refusal {
    Refusal::new(match error {
        HttpError::Request(why) => Error::Fault(why),
        // The same answer would be too large again.
        error @ HttpError::TooLarge { .. } => Error::Fault(error.to_string()),
        error => Error::Unavailable(error.to_string()),
    })
}

/// Reads an answer.
async fn read<A: for<'de> Deserialize<'de>>(
    client: &Client,
    answer: Response,
    call: &str,
) -> Result<A, Refusal> {
    let status = answer.status();
    if status == StatusCode::OK {
        let body = answer.bytes().await.map_err(unanswered)?;
        // A proxy that answers with a page of its own has not asked the server.
        return serde_json::from_slice(&body).map_err(|error| {
            Refusal::new(Error::Unavailable(format!(
                "{}: the answer to {call} is wrong: {error}",
                client.url()
            )))
        });
    }
    let body = match status.is_server_error() {
        true => body_of_failure(answer).await,
        false => answer.bytes().await.map(|body| body.to_vec()),
    };
    Err(refusal(client, status, &body.map_err(unanswered)?))
}

/// Reads the body of an answer of a server or a proxy that fails, and closes the connection: another one may lead to another server.
async fn body_of_failure(mut answer: Response) -> Result<Vec<u8>, HttpError> {
    const MOST: usize = 64 << 10;
    let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(MOST);
    let mut body = Vec::new();
    while body.len() < length.min(MOST) {
        let Some(chunk) = answer.chunk().await? else { break };
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The error that an answer stands for.
fn refusal(client: &Client, status: StatusCode, body: &[u8]) -> Refusal {
    let server = client.url();
    let Ok(ErrorBody { code, message, hint }) = serde_json::from_slice(body) else {
        // Not of the server, whose errors have a body: a proxy's.
        return Refusal::new(Error::Unavailable(format!("{server} answers {status}")));
    };
    let text = if hint.is_empty() { message.clone() } else { format!("{message}; {hint}") };
    let error = match (status, code.as_str()) {
        (_, code::WORKER_DEAD) => Error::Dead,
        (StatusCode::BAD_REQUEST, code::INVALID) => {
            let (what, why) = message.split_once(' ').unwrap_or((&message, ""));
            Error::Invalid(Invalid { what: what.to_owned(), why: why.to_owned(), hint })
        }
        (StatusCode::FORBIDDEN, _) => Error::Misuse(text),
        (StatusCode::PAYLOAD_TOO_LARGE, _) => Error::Refused(text),
        // A token that was revoked, or a server of another setup behind the same name: what is claimed returns to others when the
        // lease ends, and until then an operator may put it right.
        (StatusCode::UNAUTHORIZED, _) => Error::Unavailable(format!("{server} refuses the token: {text}")),
        (
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::MISDIRECTED_REQUEST
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT,
            _,
        ) => Error::Unavailable(format!("{server}: {text}")),
        _ => Error::Fault(format!("{server} answers {status}: {text}")),
    };
    Refusal { code, error }
}
