//! Connections: TCP, TLS, and the task that drives one.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring},
};

use crate::{
    Error,
    address::Address,
    error::{innermost, tls_text},
};

/// The most bytes of a response's head.
const MAX_HEAD: usize = 64 << 10;

/// One end of a connection that can send requests, one after the other.
pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// Makes TLS connections that trust the authorities in a file, or else those of the operating system.
pub(crate) fn tls(ca_file: Option<&Path>) -> Result<TlsConnector, Error> {
    let roots = match ca_file {
        Some(path) => roots_of_file(path)?,
        None => roots_of_system()?,
    };
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Certificates(format!("TLS cannot be set up: {error}")))?;
    let mut config = versions.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots_of_file(path: &Path) -> Result<RootCertStore, Error> {
    let unusable = |why: &dyn std::fmt::Display| {
        Error::Certificates(format!(
            "{} has no usable certificate ({why}); name a PEM file with the certificate of the authority",
            path.display()
        ))
    };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() { Err(unusable(&"it has none")) } else { Ok(roots) }
}

fn roots_of_system() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some systems have certificates that nobody can use.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(Error::Certificates(format!(
            "this system has no certificates of authorities{why}; install them (`ca-certificates`), or name a file with `--ca-file`"
        )));
    }
    Ok(roots)
}

/// Opens a connection within a time.
pub(crate) async fn connect(
    address: &Address,
    tls: Option<&TlsConnector>,
    limit: Duration,
) -> Result<Sender, Error> {
    match tokio::time::timeout(limit, open(address, tls)).await {
        Ok(opened) => opened,
        Err(_) => Err(Error::Connect {
            server: address.to_text(),
            why: format!("nothing answered within {limit:?}"),
        }),
    }
}

async fn open(address: &Address, tls: Option<&TlsConnector>) -> Result<Sender, Error> {
    let failed = |error: std::io::Error| Error::Connect { server: address.to_text(), why: error.to_string() };
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let Some(tls) = tls else { return http(stream, address).await };
    let name = ServerName::try_from(address.host.clone()).map_err(|_| {
        Error::Address(format!("{:?} is not a host name for TLS; use a name or an IP address", address.host))
    })?;
    let stream = tls.connect(name, stream).await.map_err(|error| {
        let why = tls_text(&error, &address.host);
        Error::Tls { server: address.to_text(), why }
    })?;
    http(stream, address).await
}

async fn http<S>(stream: S, address: &Address) -> Result<Sender, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let made = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await;
    let (sender, connection) =
        made.map_err(|error| Error::Connect { server: address.to_text(), why: innermost(&error) })?;
    // It ends when the sender and the body of its last response are dropped. Whoever waits for a response sees its error.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}
