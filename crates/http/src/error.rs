//! Why a request has no response: what happened, why, and what to do.

use std::time::Duration;

use tokio_rustls::rustls::{self, CertificateError};

/// Why there is no client, or no response. A response with a status of an error is none of these.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("{0}")]
    Address(String),
    /// The address is unencrypted, and not on this machine.
    #[error(
        "http://{0} is not encrypted: everybody on the way could read the token and the jobs; use https://, or set \
         `allow_http = true` if the whole way is private"
    )]
    Unencrypted(String),
    /// The file of certificates, or those of the operating system, cannot be used.
    #[error("{0}")]
    Certificates(String),
    /// The token cannot be sent.
    #[error("the token has characters that no token has; use the text that `windlass tokens create` printed")]
    Token,
    /// A request that cannot be sent: its path or a header is wrong.
    #[error("the request cannot be sent: {0}")]
    Request(String),
    /// No connection. Nothing was sent.
    #[error("{server} cannot be reached ({why}); check the address, and that the server runs")]
    Connect {
        /// The server.
        server: String,
        /// What the system says.
        why: String,
    },
    /// No TLS connection. Nothing was sent.
    #[error("{server} cannot be reached over TLS: {why}")]
    Tls {
        /// The server.
        server: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The other end does not speak HTTP.
    #[error(
        "{server} does not answer as a web server does ({why}); check the port, and whether it is https or http"
    )]
    NotHttp {
        /// The server.
        server: String,
        /// What is wrong.
        why: String,
    },
    /// The connection broke. The request may have been carried out.
    #[error("the connection to {server} broke ({why}); what was asked for may have been done")]
    Lost {
        /// The server.
        server: String,
        /// What the system says.
        why: String,
    },
    /// The response did not arrive in time. The request may have been carried out.
    #[error("{server} did not answer within {limit:?}; what was asked for may have been done")]
    Timeout {
        /// The server.
        server: String,
        /// How long it waited.
        limit: Duration,
    },
    /// The body of the response is larger than it may be.
    #[error("the answer of {server} has more than {limit} bytes; ask for less")]
    TooLarge {
        /// The server.
        server: String,
        /// The most bytes.
        limit: usize,
    },
    /// The body of the response is not the JSON that was expected.
    #[error(
        "the answer of {server} is not the expected JSON ({why}); is it a server of this version of Windlass?"
    )]
    Json {
        /// The server.
        server: String,
        /// What serde says.
        why: String,
    },
}

impl Error {
    /// Whether the same request may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Connect { .. } | Error::Lost { .. } | Error::Timeout { .. })
    }

    /// Whether the request may have been carried out.
    pub fn may_have_arrived(&self) -> bool {
        matches!(
            self,
            Error::NotHttp { .. }
                | Error::Lost { .. }
                | Error::Timeout { .. }
                | Error::TooLarge { .. }
                | Error::Json { .. }
        )
    }
}

/// The innermost text of an error: the outer ones of hyper only say that something failed.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Why a TLS handshake failed, and what to do.
pub(crate) fn tls_text(error: &std::io::Error, host: &str) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(certificate)) => match certificate {
            // Another authority may have the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is signed by nobody that is trusted here; if it is that of a private authority, name \
                 the authority's certificate with `--ca-file`"
                    .to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is not for {host:?}; use a name that the certificate has")
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired; renew it".to_owned()
            }
            other => format!("its certificate is not accepted ({other:?})"),
        },
        Some(rustls::Error::InvalidMessage(_)) => {
            "the other end does not speak TLS; check the port, or use http:// on this machine".to_owned()
        }
        Some(other) => format!("{other}; check the address and the server's certificate"),
        None => format!("{error}; check the address, and that the server speaks TLS"),
    }
}
