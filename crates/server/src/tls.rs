//! TLS: the certificate and the key of the server.

use std::{path::Path, sync::Arc};

use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring},
};

use crate::settings::{StartError, TlsFiles};

/// Reads the files. Returns what accepts TLS connections.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, StartError> {
    let TlsFiles { cert, key } = files;
    let unusable = |path: &Path, error: &dyn std::fmt::Display, what: &str| {
        StartError::Tls(format!(
            "{} has no usable {what} ({error}); name a PEM file with one",
            path.display()
        ))
    };
    let certificates = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(cert, &error, "certificate"))?;
    let private_key =
        PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error, "private key"))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, private_key))
        .map_err(|error| unusable(cert, &error, "certificate for the key"))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
