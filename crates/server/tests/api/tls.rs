//! TLS by certificate files.

use std::sync::Arc;

use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring},
};
use windlass_server::{Server, Settings, StartError, TlsFiles};

use crate::{
    client::{Request, read_response},
    kit::{self, Database, Running, settings},
};

#[tokio::test]
async fn requests_are_answered_over_tls_and_not_without() {
    let (dir, engine) = kit::engine(Database::Sqlite).await;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let files = TlsFiles { cert: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&files.cert, made.cert.pem()).expect("written");
    std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("written");
    let server = Running::on(dir, engine, Settings { tls: Some(files), ..settings() }).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address).await.expect("a connection");
    let name = "localhost".try_into().expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake");
    let origin = format!("https://{}", server.address);
    let request = Request::get("/v1/jobs").header("origin", &origin).to_text(server.address);
    stream.write_all(request.as_bytes()).await.expect("written");
    read_response(&mut BufReader::new(stream)).await.expect(200);
    let mut plain = TcpStream::connect(server.address).await.expect("a connection");
    plain.write_all(request.as_bytes()).await.expect("written");
    let mut answer = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut plain, &mut answer).await.ok();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn files_without_a_certificate_are_refused() {
    let (dir, engine) = kit::engine(Database::Sqlite).await;
    let junk = dir.path().join("junk.pem");
    std::fs::write(&junk, "junk").expect("written");
    let missing = dir.path().join("missing.pem");
    for (cert, key) in [(&junk, &junk), (&missing, &junk)] {
        let tls = Some(TlsFiles { cert: cert.clone(), key: key.clone() });
        let refused = Server::bind(engine.clone(), Settings { tls, ..settings() }).await;
        assert!(matches!(refused, Err(StartError::Tls(_))));
    }
}
