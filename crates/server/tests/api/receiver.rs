//! A receiver of messages about alerts: checks their signatures, and refuses each the first time.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode, Uri},
    response::IntoResponse,
    routing::post,
};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use tokio::{net::TcpListener, sync::mpsc};

use crate::kit::PATIENCE;

const SECRET: &str = "a secret of the tests";

/// A message that was received, and what it was answered with.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) body: Value,
    pub(crate) delivery: String,
    pub(crate) status: u16,
}

pub(crate) struct Receiver {
    pub(crate) url: String,
    received: mpsc::UnboundedReceiver<Received>,
}

impl Receiver {
    pub(crate) async fn start() -> Receiver {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
        let url = format!("http://{}/hook?key=k", listener.local_addr().expect("an address"));
        let (sender, received) = mpsc::unbounded_channel();
        let seen = Arc::new(Mutex::new(HashSet::new()));
        let handler = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let (sender, seen) = (sender.clone(), Arc::clone(&seen));
            async move {
                let header = |name: &str| headers[name].to_str().expect("text").to_owned();
                assert_eq!(uri.query(), Some("key=k"));
                assert_eq!(header("content-type"), "application/json");
                check_signature(&header("windlass-signature"), &body);
                let delivery = header("windlass-delivery");
                let is_first = seen.lock().expect("no panic").insert(delivery.clone());
                let status = if is_first { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
                let body = serde_json::from_slice(&body).expect("JSON");
                let _ = sender.send(Received { body, delivery, status: status.as_u16() });
                // Without it, the next attempt would be seconds later.
                (status, [("retry-after", "0")]).into_response()
            }
        };
        let router = Router::new().route("/hook", post(handler));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Receiver { url, received }
    }

    pub(crate) fn webhook(&self) -> windlass_server::Webhook {
        windlass_server::Webhook::new(&self.url, SECRET).expect("a webhook")
    }

    pub(crate) async fn next(&mut self) -> Received {
        let received = tokio::time::timeout(PATIENCE, self.received.recv()).await;
        received.expect("a message in time").expect("it runs")
    }

    /// The next message, which is refused once and then accepted.
    pub(crate) async fn accepted(&mut self) -> Received {
        let first = self.next().await;
        assert_eq!(first.status, 500, "{first:?}");
        let again = self.next().await;
        assert_eq!((again.status, &again.delivery, &again.body), (200, &first.delivery, &first.body));
        again
    }

    /// Whether nothing more has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.received.is_empty()
    }
}

fn check_signature(header: &str, body: &[u8]) {
    let (seconds, hex) =
        header.strip_prefix("t=").and_then(|rest| rest.split_once(",v1=")).expect("t=UNIX,v1=HEX");
    let age = std::time::SystemTime::now().duration_since(
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds.parse().expect("seconds")),
    );
    assert!(age.expect("past").as_secs() < 60, "it was sent now");
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key");
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body);
    let expected: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected);
}
