//! Errors of requests. Only this file makes status codes of them.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use serde::Serialize;
use windlass::{ControlOutcome, store};
use windlass_remote::protocol::code;

/// Why a request is not answered as it asks. The body of the response is `{"code", "message", "hint"}`.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    kind: ErrorKind,
    /// What is wrong, and why.
    message: String,
    /// What to do next.
    hint: String,
    /// What is not found, if a client has to know: a job, or the path itself.
    subject: Option<&'static str>,
}

/// The kinds of errors. Their names are the `code` of the body, which clients compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ErrorKind {
    /// The request does not parse, or a value in it cannot be accepted.
    Invalid,
    /// There is no token, or it is not accepted.
    Unauthorized,
    /// The token may not do this.
    Forbidden,
    /// There is no such path, job, queue, or other subject.
    NotFound,
    /// The path has other methods.
    MethodNotAllowed,
    /// The body did not arrive in time.
    SlowBody,
    /// The state of the subject does not allow it.
    Conflict,
    /// The id of a worker is taken.
    WorkerTaken,
    /// A worker was declared dead, or has retired.
    WorkerDead,
    /// The body is too large.
    TooLarge,
    /// The body is not JSON.
    NotJson,
    /// The `Host` is not one of this server's.
    WrongHost,
    /// The client sends too many requests.
    TooMany,
    /// A fault of the server.
    Internal,
    /// The store does not answer, or the server is busy or stops.
    Unavailable,
    /// The request took too long.
    Timeout,
}

impl ErrorKind {
    /// All kinds, for the API description.
    pub(crate) const ALL: [ErrorKind; 16] = [
        ErrorKind::Invalid,
        ErrorKind::Unauthorized,
        ErrorKind::Forbidden,
        ErrorKind::NotFound,
        ErrorKind::MethodNotAllowed,
        ErrorKind::SlowBody,
        ErrorKind::Conflict,
        ErrorKind::WorkerTaken,
        ErrorKind::WorkerDead,
        ErrorKind::TooLarge,
        ErrorKind::NotJson,
        ErrorKind::WrongHost,
        ErrorKind::TooMany,
        ErrorKind::Internal,
        ErrorKind::Unavailable,
        ErrorKind::Timeout,
    ];

    /// The status code.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            ErrorKind::SlowBody => StatusCode::REQUEST_TIMEOUT,
            ErrorKind::Conflict | ErrorKind::WorkerTaken | ErrorKind::WorkerDead => StatusCode::CONFLICT,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorKind::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            ErrorKind::TooMany => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The `code` of the body.
    pub(crate) fn code(self) -> &'static str {
        match self {
            ErrorKind::Invalid => "invalid",
            ErrorKind::Unauthorized => "unauthorized",
            ErrorKind::Forbidden => "forbidden",
            ErrorKind::NotFound => "not_found",
            ErrorKind::MethodNotAllowed => "method_not_allowed",
            ErrorKind::SlowBody => "slow_body",
            ErrorKind::Conflict => "conflict",
            ErrorKind::WorkerTaken => code::WORKER_TAKEN,
            ErrorKind::WorkerDead => code::WORKER_DEAD,
            ErrorKind::TooLarge => "too_large",
            ErrorKind::NotJson => "not_json",
            ErrorKind::WrongHost => "wrong_host",
            ErrorKind::TooMany => "too_many_requests",
            ErrorKind::Internal => "internal",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Timeout => "timeout",
        }
    }
}

/// The subject of an error about a job.
pub(crate) const JOB: &str = "job";
/// The subject of an error about a path that this server does not have.
pub(crate) const PATH: &str = "path";

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'static str,
    message: &'a str,
    hint: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'static str>,
}

impl Error {
    /// An error with what is wrong and what to do next.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error { kind, message: message.into(), hint: hint.into(), subject: None }
    }

    /// Names what is not found.
    pub(crate) fn about(self, subject: &'static str) -> Error {
        Error { subject: Some(subject), ..self }
    }

    /// What is wrong.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What kind of error it is.
    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether something is not found.
    pub(crate) fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }

    /// Whether no such job is found.
    pub(crate) fn is_no_such_job(&self) -> bool {
        self.kind == ErrorKind::NotFound && self.subject == Some(JOB)
    }

    /// An error of a text of the library, which has what to do next after a semicolon.
    pub(crate) fn of_text(kind: ErrorKind, text: &str) -> Error {
        match text.split_once("; ") {
            Some((message, hint)) => Error::new(kind, message, hint),
            None => Error::new(kind, text, ""),
        }
    }

    /// A value of the request that cannot be accepted.
    pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message, hint)
    }

    /// A fault of the server. What happened is for its log, and not for the client.
    pub(crate) fn internal(what: &dyn std::fmt::Display) -> Error {
        tracing::error!(error = %what, "a request failed");
        Error::new(
            ErrorKind::Internal,
            "the server failed to answer",
            "its log says more; repeat the request with the same id, or tell whoever runs the server",
        )
    }

    /// The body.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let body = ErrorBody {
            code: self.kind.code(),
            message: &self.message,
            hint: &self.hint,
            subject: self.subject,
        };
        serde_json::to_value(body).unwrap_or_default()
    }

    /// The response.
    pub(crate) fn into_response(self) -> Response<Body> {
        let bytes = self.to_json().to_string();
        let mut response = Response::new(Body::from(bytes));
        *response.status_mut() = self.kind.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.kind {
            ErrorKind::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            ErrorKind::TooMany | ErrorKind::Unavailable => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // The rest of the body is not read.
            ErrorKind::TooLarge | ErrorKind::SlowBody => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

impl From<windlass::Error> for Error {
    fn from(error: windlass::Error) -> Error {
        use windlass::Error as E;
        let text = error.to_string();
        match error {
            E::Invalid(_) | E::Input { .. } => Error::of_text(ErrorKind::Invalid, &text),
            E::IdTaken(_) | E::Rejected(_) | E::Ended { .. } | E::InboxFull { .. } => {
                Error::of_text(ErrorKind::Conflict, &text)
            }
            E::AmbiguousName { .. } | E::Setup(_) => Error::of_text(ErrorKind::Conflict, &text),
            E::NoSuchJob(_) => Error::of_text(ErrorKind::NotFound, &text).about(JOB),
            E::NoSuchKey { .. }
            | E::NoSuchName(_)
            | E::NoSuchBranch { .. }
            | E::NoSuchChild { .. }
            | E::OtherKind { .. } => Error::of_text(ErrorKind::NotFound, &text),
            E::Store(error) => error.into(),
            E::Encode { .. } | E::Codec { .. } => Error::internal(&text),
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Error {
        match error {
            store::Error::Unavailable(why) => {
                tracing::warn!(%why, "the store is not available");
                Error::new(
                    ErrorKind::Unavailable,
                    "the store is not available",
                    "repeat the request with the same id a little later",
                )
            }
            store::Error::Invalid(invalid) => Error::of_text(ErrorKind::Invalid, &invalid.to_string()),
            store::Error::Refused(why) | store::Error::Misuse(why) => {
                Error::of_text(ErrorKind::Invalid, &why)
            }
            store::Error::Dead => Error::new(
                ErrorKind::WorkerDead,
                "this worker was declared dead because it did not renew in time, or has retired",
                "drop what it holds, and register anew",
            ),
            other => Error::internal(&other),
        }
    }
}

/// Makes an error of an outcome that is none: a refusal is a conflict, and an unknown subject is not found.
pub(crate) fn accepted(outcome: ControlOutcome, subject: &str) -> Result<ControlOutcome, Error> {
    match outcome {
        ControlOutcome::Refused(why) => Err(Error::of_text(ErrorKind::Conflict, &why)),
        ControlOutcome::Unknown => {
            Err(Error::new(ErrorKind::NotFound, format!("there is no {subject}"), "list what there is"))
        }
        outcome => Ok(outcome),
    }
}
