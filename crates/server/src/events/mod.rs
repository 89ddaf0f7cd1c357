//! Events: what changes, as a stream that costs almost nothing while nothing does.
//!
//! `hub` polls the store for all streams of the process with at most two small statements a second, and only while there are streams.
//! This file makes the text of one stream. A stream has no queue of its own: it reads from a shared ring, and one that falls behind
//! by more than the ring is ended with the event `dropped`.

mod hub;

pub(crate) use hub::{Hub, Interest, MAX_JOBS};

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use futures_util::stream::unfold;
use tokio::{
    sync::{broadcast::error::RecvError, watch},
    time::Instant,
};

use self::hub::{Event, Subscription};
use crate::{error::Error, server::StreamPermit};

/// How often something is sent to a client that has nothing to read, so that a broken connection is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a stream lasts. A client that connects again is checked again: a revoked token loses its streams within this time.
const LIFETIME: Duration = Duration::from_secs(3_600);

/// A stream of what changes in `interest`, from after the event `last_id` on.
pub(crate) fn stream(
    hub: &Arc<Hub>,
    interest: Interest,
    last_id: Option<String>,
    permit: StreamPermit,
) -> Result<Body, Error> {
    let stopping = hub.stopping();
    let (subscription, backlog) = hub.subscribe(interest, last_id.as_deref())?;
    let mut first = "retry: 2000\n\n".to_owned();
    if backlog.is_none() {
        first +=
            "event: reset\ndata: {\"why\":\"events may have been missed; read what you watch again\"}\n\n";
    }
    let begin =
        Beginning { first: Some(first), missed: backlog.unwrap_or_default().into(), gates: Gates::Begin };
    let ends_at = Instant::now() + LIFETIME;
    let state = StreamState { subscription, begin, stopping, ends_at, is_over: false, _permit: permit };
    let stream = unfold(Box::new(state), |mut state| async move {
        let text = state.next().await?;
        Some((Ok::<Bytes, Infallible>(Bytes::from(text)), state))
    });
    Ok(Body::from_stream(stream))
}

/// What is sent before anything new. A text is made when the client reads it: there may be many queues and many streams.
struct Beginning {
    first: Option<String>,
    /// Events that the client has missed.
    missed: VecDeque<Event>,
    gates: Gates,
}

/// Which gates were sent.
enum Gates {
    Begin,
    /// Up to this queue, by name.
    Sent(Arc<str>),
    All,
}

impl Beginning {
    /// The next text; `None` when all of it was sent.
    fn next(&mut self, subscription: &Subscription) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if let Some(event) = self.missed.pop_front() {
            return Some(event.to_text());
        }
        let after = match &self.gates {
            Gates::Begin => None,
            Gates::Sent(queue) => Some(queue),
            Gates::All => return None,
        };
        match subscription.next_gate(after) {
            Some((queue, event)) => {
                self.gates = Gates::Sent(queue);
                Some(event.to_text())
            }
            None => {
                self.gates = Gates::All;
                None
            }
        }
    }
}

struct StreamState {
    subscription: Subscription,
    begin: Beginning,
    stopping: watch::Receiver<bool>,
    ends_at: Instant,
    is_over: bool,
    /// Counts the stream.
    _permit: StreamPermit,
}

impl StreamState {
    /// The next text; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if let Some(text) = self.begin.next(&self.subscription) {
            return Some(text);
        }
        if self.is_over {
            return None;
        }
        let keep_alive = tokio::time::sleep(KEEP_ALIVE);
        tokio::pin!(keep_alive);
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut self.stopping) => {
                    return self.end("stop", "the server stops; connect again");
                }
                received = self.subscription.receiver.recv() => match received {
                    Ok(event) if self.subscription.wants(&event) => return Some(event.to_text()),
                    Ok(_) => {}
                    Err(RecvError::Lagged(missed)) => {
                        let why = format!("this client reads too slowly and missed {missed} events; connect again");
                        return self.end("dropped", &why);
                    }
                    Err(RecvError::Closed) => return self.end("stop", "the server stops; connect again"),
                },
                () = tokio::time::sleep_until(self.ends_at) => {
                    return self.end("renew", "the stream has lasted its time; connect again");
                }
                () = &mut keep_alive => return Some(":\n\n".to_owned()),
            }
        }
    }

    /// The last event.
    fn end(&mut self, event: &str, why: &str) -> Option<String> {
        self.is_over = true;
        Some(format!("event: {event}\ndata: {}\n\n", serde_json::json!({ "why": why })))
    }
}

/// Waits until the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

#[cfg(test)]
mod tests {
    use windlass::Engine;

    use super::*;

    async fn open(hub: &Arc<Hub>, last_id: Option<&str>) -> StreamState {
        let permit = StreamPermit::for_test();
        let interest = Interest { queues: Some(vec!["q".into()]), jobs: Vec::new() };
        let (subscription, _) = hub.subscribe(interest, last_id).expect("a subscription");
        let ends_at = Instant::now() + LIFETIME;
        let begin = Beginning { first: None, missed: VecDeque::new(), gates: Gates::All };
        let stopping = hub.stopping();
        StreamState { subscription, begin, stopping, ends_at, is_over: false, _permit: permit }
    }

    async fn hub() -> (watch::Sender<bool>, Arc<Hub>) {
        let engine = Engine::open("memory:").await.expect("an engine");
        let (stop, stopping) = watch::channel(false);
        (stop, Hub::new(engine, stopping))
    }

    #[tokio::test]
    async fn a_stream_that_falls_behind_is_ended_and_another_continues() {
        let (_stop, hub) = hub().await;
        let mut slow = open(&hub, None).await;
        let mut fast = open(&hub, None).await;
        for version in 1..=3_000 {
            hub.gate_moved("q", version);
            assert!(fast.next().await.expect("an event").contains("event: gate"));
        }
        let last = slow.next().await.expect("an event");
        assert!(last.starts_with("event: dropped\n") && last.contains("too slowly"), "{last}");
        assert_eq!(slow.next().await, None);
    }

    #[tokio::test]
    async fn the_first_gates_are_made_one_by_one_when_they_are_read() {
        let (_stop, hub) = hub().await;
        for queue in ["a", "c", "b"] {
            hub.gate_moved(queue, 7);
        }
        let interest = Interest { queues: Some(vec!["c".into(), "a".into(), "x".into()]), jobs: Vec::new() };
        let (subscription, _) = hub.subscribe(interest, None).expect("a subscription");
        let mut begin =
            Beginning { first: Some("retry".into()), missed: VecDeque::new(), gates: Gates::Begin };
        assert_eq!(begin.next(&subscription).as_deref(), Some("retry"));
        assert!(begin.next(&subscription).expect("a gate").contains(r#"{"queue":"a","version":7}"#));
        hub.gate_moved("c", 8);
        assert!(begin.next(&subscription).expect("a gate").contains(r#"{"queue":"c","version":8}"#));
        assert_eq!((begin.next(&subscription), begin.next(&subscription)), (None, None));
    }

    #[tokio::test]
    async fn a_stream_ends_after_its_time() {
        let (_stop, hub) = hub().await;
        let mut stream = open(&hub, None).await;
        stream.ends_at = Instant::now();
        let mut text = stream.next().await.expect("an event");
        // The first poll may have come before.
        while text.contains("event: gate") {
            text = stream.next().await.expect("an event");
        }
        assert!(text.starts_with("event: renew\n"), "{text}");
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn a_stop_is_the_last_event() {
        let (stop, hub) = hub().await;
        let mut stream = open(&hub, None).await;
        stop.send_replace(true);
        assert!(stream.next().await.expect("an event").starts_with("event: stop\n"));
        assert_eq!(stream.next().await, None);
    }
}
