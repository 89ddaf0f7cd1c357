//! Workers over TLS, with a private authority.

use windlass::Engine;
use windlass_server::{Settings, TlsFiles};

use crate::{
    engine::soon,
    kinds::Double,
    kit::{Database, Running},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_trusts_the_authority_that_it_is_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let tls = TlsFiles { cert: cert.clone(), key };
    let server = Running::with(Database::Sqlite, |settings: &mut Settings| settings.tls = Some(tls)).await;
    let url = format!("https://localhost:{}", server.address.port());

    let untrusted = Engine::builder(&url).task::<Double>().open().await;
    let error = untrusted.err().expect("nobody has signed it").to_string();
    assert!(error.contains("signed by nobody that is trusted"), "{error}");
    let worker = Engine::builder(&url).task::<Double>().ca_file(&cert).start().await.expect("a worker");
    let job = worker.submit(Double { test: "tls".into(), n: 2 }).await.expect("submitted");
    assert_eq!(soon(job.result()).await.expect("an output"), 4);
    worker.stop().await;
}
