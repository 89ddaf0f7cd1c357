//! Long operations: bulk actions, redrives, forks, prunes.
//!
//! A client that accepts events gets the progress as they go on, for as long as they take; if it closes the connection, the operation stops
//! after the batch that it is in. For other clients an operation stops before the request takes too long, and says that it was
//! interrupted.

use std::{convert::Infallible, future::Future, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::header,
};
use futures_util::stream::unfold;
use serde::Serialize;
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use crate::{call::Call, error::Error, reply::Reply, routes::Answer, server::StreamPermit};

/// How often progress is sent: as often as people can read it.
const INTERVAL: Duration = Duration::from_millis(200);
/// How often something is sent while nothing progresses, so that the client knows that the server lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Is called with the progress after every batch. Returns whether to go on.
pub(crate) type OnProgress<P> = Box<dyn FnMut(&P) -> bool + Send>;

/// Runs an operation in batches, and answers with its result.
pub(crate) async fn run<P, F>(call: &Call, operation: impl FnOnce(OnProgress<P>) -> F) -> Answer
where
    P: Serialize + 'static,
    F: Future<Output = Result<P, windlass::Error>> + Send + 'static,
{
    if !accepts_events(call) {
        // It stops by itself, between two batches.
        call.permit.limits_itself();
        let deadline = Deadline::new(call);
        return Reply::json(&operation(Box::new(move |_| !deadline.is_over())).await?);
    }
    let permit = call.start_waiting()?;
    let (sender, latest) = watch::channel(Value::Null);
    let stopping = call.shared.stopping.clone();
    let on_progress = move |progress: &P| {
        // The receiver is gone if the client is.
        let is_connected = sender.send(serde_json::to_value(progress).unwrap_or_default()).is_ok();
        is_connected && !*stopping.borrow()
    };
    let operation = operation(Box::new(on_progress));
    let task = tokio::spawn(async move {
        let ended = operation.await.map_err(Error::from)?;
        serde_json::to_value(&ended).map_err(|error| Error::internal(&error))
    });
    let state = Stream { task: Some(task), latest, next_at: Instant::now(), _permit: permit };
    let stream = unfold(Box::new(state), |mut state| async move {
        let text = state.next().await?;
        Some((Ok::<Bytes, Infallible>(Bytes::from(text)), state))
    });
    Ok(Reply::Stream(Body::from_stream(stream)))
}

fn accepts_events(call: &Call) -> bool {
    let accepted = call.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|list| list.split(',')).any(|media_type| media_type.trim() == "text/event-stream")
}

struct Stream {
    /// The operation, until its end was sent.
    task: Option<JoinHandle<Result<Value, Error>>>,
    latest: watch::Receiver<Value>,
    /// When progress is sent again.
    next_at: Instant,
    /// Counts the stream.
    _permit: StreamPermit,
}

impl Stream {
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        let task = self.task.as_mut()?;
        let (latest, next_at) = (&mut self.latest, self.next_at);
        let progressed = async {
            // The sender is dropped shortly before the task ends.
            if latest.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep_until(next_at).await;
        };
        tokio::select! {
            biased;
            ended = task => {
                self.task = None;
                let ended = ended.unwrap_or_else(|error| Err(Error::internal(&error)));
                Some(match ended {
                    Ok(result) => event("done", &result),
                    Err(error) => event("error", &error.to_json()),
                })
            }
            () = progressed => {
                self.next_at = Instant::now() + INTERVAL;
                let progress = self.latest.borrow_and_update().clone();
                Some(event("progress", &progress))
            }
            () = tokio::time::sleep(KEEP_ALIVE) => Some(":\n\n".to_owned()),
        }
    }
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// When work in batches must stop: a little before the request takes too long, or when the server stops.
struct Deadline {
    at: Instant,
    stopping: watch::Receiver<bool>,
}

impl Deadline {
    fn new(call: &Call) -> Deadline {
        // The last batch and the answer take time too.
        let time = call.shared.settings.request_timeout.mul_f64(0.8);
        Deadline { at: Instant::now() + time, stopping: call.shared.stopping.clone() }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.at || *self.stopping.borrow()
    }
}
