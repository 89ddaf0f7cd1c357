//! Webhooks: the jobs that post messages about alerts.
//!
//! A message is a job of the engine's own kind. Its input names the webhook; the address and the secret are known only to processes that
//! have them in their settings, and these alone run such jobs. A message is posted until the receiver answers with a status of success, so it
//! may arrive more than once, always with the same `Windlass-Delivery`.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hmac::{Hmac, KeyInit, Mac};
use jiff::fmt::rfc2822::DateTimeParser;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use windlass::{
    Builder, Failure, Needs, Pool, Retry, Task, TaskCx,
    operate::alerts::AlertMessage,
    store::{ALERT_KIND, ALERT_QUEUE},
};
use windlass_http::{
    Client, Options, Request, Response, StatusCode,
    header::{HeaderName, RETRY_AFTER},
    split_url,
};

/// How long the receiver may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time to wait because a receiver says so.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);
/// How many messages a process posts at the same time.
const SLOTS: usize = 4;
/// The most bytes of an answer that are read, so that the connection can serve the next message.
const MAX_ANSWER: usize = 64 << 10;

/// The header with the signature.
const SIGNATURE: HeaderName = HeaderName::from_static("windlass-signature");
/// The header with the id of the message.
const DELIVERY: HeaderName = HeaderName::from_static("windlass-delivery");

/// A receiver of messages, with the secret that signs them.
pub struct Webhook {
    client: Client,
    /// The path and the query, which may be secrets too.
    path: String,
    secret: Vec<u8>,
}

impl Webhook {
    /// A receiver at an address. The error says what is wrong, without the path and the secret.
    pub fn new(url: &str, secret: impl Into<Vec<u8>>) -> Result<Webhook, String> {
        let secret = secret.into();
        if secret.is_empty() {
            return Err("the secret is empty; write some random characters into its file".into());
        }
        let (server, path) = split_url(url).map_err(|error| error.to_string())?;
        let options = Options {
            // Whoever reads a message on its way learns nothing from it that a signature would hide.
            allow_http: true,
            timeout: PATIENCE,
            idle_timeout: PATIENCE,
            body_limit: MAX_ANSWER,
            max_idle: 1,
            ..Options::default()
        };
        let client = Client::new(&server, options).map_err(|error| error.to_string())?;
        Ok(Webhook { client, path, secret })
    }

    /// Posts a body. Returns the status of the answer.
    async fn post(&self, body: Vec<u8>, delivery: &str) -> Result<StatusCode, Failure> {
        let now = SystemTime::now();
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let signed = signature(&self.secret, seconds, &body);
        let described = Request::post(&self.path)
            .body("application/json", body)
            .header(SIGNATURE, &signed)
            .and_then(|request| request.header(DELIVERY, delivery));
        let request = described.map_err(Failure::stop)?;
        let exchange = async {
            let response = self.client.send(request).await?;
            let (status, retry_after) = (response.status(), retry_after(&response, now));
            // Its content does not matter: the status is the answer.
            let _ = response.bytes().await;
            Ok::<_, windlass_http::Error>((status, retry_after))
        };
        let late = |_| {
            let message =
                format!("{} did not answer within {PATIENCE:?}; check that it works", self.client.url());
            Failure::retry(message).class("timeout")
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await.map_err(late)?;
        let (status, retry_after) = answered.map_err(|error| Failure::retry(error).class("connection"))?;
        if status.is_success() {
            return Ok(status);
        }
        let hint = if status.is_redirection() {
            "redirects are not followed; name the address that it redirects to"
        } else {
            "its log may say more"
        };
        let failure = Failure::retry(format!("{} answered with {status}; {hint}", self.client.url()));
        let failure = failure.class("status");
        Err(match retry_after {
            Some(span) => failure.retry_after(span),
            None => failure,
        })
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("server", &self.client.url()).finish_non_exhaustive()
    }
}

/// The receivers that a process knows, by name.
#[derive(Debug, Default)]
pub struct Webhooks(BTreeMap<String, Webhook>);

impl Webhooks {
    /// Adds one.
    pub fn add(&mut self, name: impl Into<String>, webhook: Webhook) {
        self.0.insert(name.into(), webhook);
    }

    /// Makes an engine run the jobs that post messages to these, beside its own. It serves their queue with a pool of its own, whatever
    /// other queues it serves. Without receivers it stays as it is.
    pub fn serve(self, engine: Builder) -> Builder {
        match self.0.is_empty() {
            true => engine,
            false => engine.data(self).own_task::<PostMessage>(Pool::slots(SLOTS)),
        }
    }
}

/// Posts a message.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct PostMessage(AlertMessage);

/// What the receiver answered.
#[derive(Serialize, Deserialize)]
struct PostResult {
    status: u16,
}

impl Task for PostMessage {
    const KIND: &'static str = ALERT_KIND;
    const QUEUE: &'static str = ALERT_QUEUE;
    type Output = PostResult;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<PostResult, Failure> {
        let PostMessage(AlertMessage { webhook: name, body }) = self;
        let Some(webhook) = cx.data::<Webhooks>().0.get(&name) else {
            let message = format!(
                "this process has no webhook {name:?}; add [webhooks.{name}] to its settings and restart it"
            );
            return Err(Failure::retry(message).class("unknown_webhook"));
        };
        let body = serde_json::to_vec(&body).map_err(Failure::stop)?;
        let status = webhook.post(body, &cx.id().to_string()).await?;
        Ok(PostResult { status: status.as_u16() })
    }

    /// 20 attempts within about half a day.
    fn retry() -> Retry {
        Retry::times(20).backoff(Duration::from_secs(5), Duration::from_secs(3_600))
    }

    fn timeout() -> Option<Duration> {
        Some(PATIENCE * 3)
    }

    fn needs() -> Needs {
        Needs::new().data::<Webhooks>()
    }
}

/// What proves that a body is from somebody who knows the secret, and when it was sent: `t=UNIX,v1=HEX`, where HEX is the HMAC-SHA256 over
/// `UNIX.body`.
fn signature(secret: &[u8], seconds: u64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key may have any length");
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body);
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

/// When the receiver wants the next attempt: after some seconds, or at a date.
fn retry_after(response: &Response, now: SystemTime) -> Option<Duration> {
    parse_retry_after(response.header(RETRY_AFTER.as_str())?, now)
}

fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let span = match text.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = DateTimeParser::new().parse_timestamp(text.trim()).ok()?;
            SystemTime::from(at).duration_since(now).unwrap_or_default()
        }
    };
    Some(span.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_other_implementations() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac secret
        let expected = "t=1700000000,v1=49f24e537407743fa4a0242bb63b94b9a47ee99cbbe071ccd8a22550ae411686";
        assert_eq!(signature(b"secret", 1_700_000_000, br#"{"a":1}"#), expected);
    }

    #[test]
    fn a_receiver_says_when_in_seconds_or_as_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let parse = |text| parse_retry_after(text, now);
        assert_eq!(parse("120"), Some(Duration::from_secs(120)));
        assert_eq!(parse("Tue, 14 Nov 2023 22:14:20 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(parse("Tue, 14 Nov 2023 22:00:00 GMT"), Some(Duration::ZERO), "it has passed");
        assert_eq!(parse("999999999"), Some(MAX_RETRY_AFTER));
        for bad in ["", "soon", "-3", "1.5"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_secret_is_in_no_error_and_in_no_log() {
        let webhook = Webhook::new("https://hooks.example/T00/path", "hidden").expect("a webhook");
        let shown = format!("{webhook:?}");
        assert!(
            shown.contains("hooks.example") && !shown.contains("T00") && !shown.contains("hidden"),
            "{shown}"
        );
        for bad in ["hooks.example/T00", "https://ada:T00@hooks.example/x", "https://hooks.example/T00 x"] {
            let error = Webhook::new(bad, "hidden").expect_err(bad);
            assert!(!error.contains("hidden"), "{error}");
        }
        assert!(Webhook::new("https://hooks.example/", "").expect_err("empty").contains("empty"));
    }
}
