//! Why a request to a server has no answer, in words that say what to do.

use std::fmt;

use serde::Deserialize;
use windlass_http::StatusCode;

/// The version of this program, which should be that of the server.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no response.
    Http(windlass_http::Error),
    /// Something answered that is not a Windlass server.
    OtherServer { url: String, status: StatusCode, content_type: String },
    /// The server answered with something that this program does not understand.
    Unexpected { url: String, path: String, version: String, why: String },
    /// The server refused the request.
    Refused(Box<Refusal>),
}

/// An error of a server.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) url: String,
    pub(super) path: String,
    pub(super) status: StatusCode,
    /// The version of the server.
    pub(super) version: String,
    /// Whether the request had a token.
    pub(super) has_token: bool,
    pub(super) body: ErrorBody,
}

/// The body of an error.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(super) struct ErrorBody {
    code: String,
    message: String,
    hint: String,
    subject: Option<String>,
}

impl ErrorBody {
    /// The text that the error had before it was divided into message and hint.
    pub(super) fn to_text(&self) -> String {
        match self.hint.as_str() {
            "" => self.message.clone(),
            hint => format!("{}; {hint}", self.message),
        }
    }
}

impl Refusal {
    pub(super) fn is_not_found(&self) -> bool {
        self.body.code == "not_found" && !self.is_no_such_path()
    }

    pub(super) fn is_no_such_job(&self) -> bool {
        self.is_not_found() && self.body.subject.as_deref() == Some("job")
    }

    pub(super) fn is_conflict(&self) -> bool {
        self.body.code == "conflict"
    }

    fn is_no_such_path(&self) -> bool {
        self.body.code == "method_not_allowed" || self.body.subject.as_deref() == Some("path")
    }

    /// What the error says.
    pub(super) fn text(&self) -> String {
        self.body.to_text()
    }
}

impl Failure {
    /// Whether the same request may succeed a little later.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Failure::Http(error) => error.is_retryable(),
            Failure::Refused(refusal) => {
                matches!(refusal.body.code.as_str(), "unavailable" | "too_many_requests")
            }
            // A proxy, while the server restarts.
            Failure::OtherServer { status, .. } => {
                [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT]
                    .contains(status)
            }
            Failure::Unexpected { .. } => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Http(error) => error.fmt(f),
            Failure::OtherServer { url, status, content_type } => write!(
                f,
                "{url} is not a Windlass server: what answers there is something else (status {}, {content_type}); check the \
                 address that --server has",
                status.as_u16()
            ),
            Failure::Unexpected { url, path, version, why } => write!(
                f,
                "the answer of {url} to {path} is not what this program expects ({why}); {}",
                same_version(version)
            ),
            Failure::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { url, path, status, version, has_token, body } = self;
        match body.code.as_str() {
            "unauthorized" if *has_token => write!(
                f,
                "{url} does not accept the token: {}; use another, which `windlass tokens create` makes on the machine of the store, \
                 and name its file with --token-file",
                body.message
            ),
            "unauthorized" => write!(
                f,
                "{url} asks for a token; name the file that has it with --token-file, or set WINDLASS_TOKEN"
            ),
            "" => write!(
                f,
                "{url} answered {path} with status {} and without a reason; its log may say more",
                status.as_u16()
            ),
            _ if self.is_no_such_path() => {
                write!(f, "{url} does not know {path}; {}", same_version(version))
            }
            // A field or a value that only one of the two knows.
            "invalid" if version != OWN_VERSION => write!(f, "{}; {}", body.to_text(), same_version(version)),
            _ => f.write_str(&body.to_text()),
        }
    }
}

impl std::error::Error for Failure {}

/// Whether a server refused a request because it had no token.
pub(crate) fn needs_login(error: &anyhow::Error) -> bool {
    let refusal = match error.downcast_ref() {
        Some(Failure::Refused(refusal)) => refusal,
        _ => return false,
    };
    refusal.status == StatusCode::UNAUTHORIZED && !refusal.has_token
}

/// What to do about a server of another version.
fn same_version(version: &str) -> String {
    match version == OWN_VERSION {
        true => format!("both are version {OWN_VERSION}, so this is a fault: please report it"),
        false => {
            format!(
                "the server is version {version} and this program is {OWN_VERSION}: use one version for both"
            )
        }
    }
}
