//! Live updates of pages: `/live?page=PATH`, a stream of patches.
//!
//! `hub` renders the pages that are open again, `fragments` compares what changed, and this file makes the text of one stream: `patch` with a list
//! of `{id, html}` and `{id, gone}`, `stale` while the store does not answer, `fresh` when it does again, and `over` when the page must be loaded anew.
//! The first patch of a stream has everything, and the list of `{rows}`: the browser may have had no stream for hours.

pub(crate) mod fragments;
pub(crate) mod hub;

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use self::{fragments::Fragments, hub::Update};
use crate::server::StreamPermit;

/// How often something is sent to a browser that has nothing to read, so that a broken connection is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a stream lasts. A browser connects again, and is checked again: who has logged out loses the stream within this time.
const LIFETIME: Duration = Duration::from_secs(600);

/// A stream of what changes in a page. It begins with all of `sent`.
pub(crate) fn stream(
    updates: watch::Receiver<Update>,
    sent: Fragments,
    stopping: watch::Receiver<bool>,
    permit: StreamPermit,
) -> Body {
    let ends_at = Instant::now() + LIFETIME;
    let first = Some(format!("retry: 2000\n\n{}", patch(&sent.full())));
    let state = PageStream {
        updates,
        sent: Arc::new(sent),
        stopping,
        ends_at,
        first,
        is_stale: false,
        is_over: false,
        _permit: permit,
    };
    let stream = unfold(Box::new(state), |mut state| async move {
        let text = state.next().await?;
        Some((Ok::<Bytes, Infallible>(Bytes::from(text)), state))
    });
    Body::from_stream(stream)
}

struct PageStream {
    updates: watch::Receiver<Update>,
    /// What the browser has.
    sent: Arc<Fragments>,
    stopping: watch::Receiver<bool>,
    ends_at: Instant,
    first: Option<String>,
    is_stale: bool,
    is_over: bool,
    /// Counts the stream.
    _permit: StreamPermit,
}

impl PageStream {
    /// The next text; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.is_over {
            return None;
        }
        let keep_alive = tokio::time::sleep(KEEP_ALIVE);
        tokio::pin!(keep_alive);
        loop {
            let update = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
                changed = self.updates.changed() => changed.map(|()| self.updates.borrow_and_update().clone()),
                () = tokio::time::sleep_until(self.ends_at) => return None,
                () = &mut keep_alive => return Some(":\n\n".to_owned()),
            };
            // Without a sender there is no such view any more.
            if let Some(text) = self.text(update.unwrap_or(Update::Over)) {
                return Some(text);
            }
        }
    }

    /// What the browser must be told; `None` if it knows.
    fn text(&mut self, update: Update) -> Option<String> {
        match update {
            Update::Over => {
                self.is_over = true;
                Some("event: over\ndata: {}\n\n".to_owned())
            }
            Update::Stale if self.is_stale => None,
            Update::Stale => {
                self.is_stale = true;
                Some("event: stale\ndata: {}\n\n".to_owned())
            }
            Update::Rendered(newer) => {
                let fresh =
                    if std::mem::take(&mut self.is_stale) { "event: fresh\ndata: {}\n\n" } else { "" };
                let patch = self.patch(&newer).unwrap_or_default();
                Some(format!("{fresh}{patch}")).filter(|text| !text.is_empty())
            }
        }
    }

    fn patch(&mut self, newer: &Arc<Fragments>) -> Option<String> {
        let changes = self.sent.patch(newer)?;
        self.sent = Arc::clone(newer);
        Some(patch(&changes))
    }
}

/// The text of a patch. JSON has no line breaks: it is one line of the stream.
fn patch(changes: &Value) -> String {
    format!("event: patch\ndata: {changes}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(text: &str) -> Fragments {
        Fragments::of(&format!("<b id=\"a\" data-live>{text}</b>"))
    }

    async fn open(first: &str) -> (watch::Sender<Update>, watch::Sender<bool>, PageStream) {
        let (send, updates) = watch::channel(Update::Rendered(Arc::new(fragments(first))));
        let (stop, stopping) = watch::channel(false);
        let ends_at = Instant::now() + LIFETIME;
        let sent = Arc::new(fragments(first));
        let stream = PageStream {
            updates,
            sent,
            stopping,
            ends_at,
            first: None,
            is_stale: false,
            is_over: false,
            _permit: StreamPermit::for_test(),
        };
        (send, stop, stream)
    }

    #[tokio::test]
    async fn a_browser_gets_what_changed_and_that_the_store_was_away() {
        let (send, _stop, mut stream) = open("1").await;
        let send = |update| send.send_replace(update);
        send(Update::Rendered(Arc::new(fragments("2"))));
        assert_eq!(
            stream.next().await.expect("a text"),
            "event: patch\ndata: [{\"html\":\"2\",\"id\":\"a\"}]\n\n"
        );
        send(Update::Stale);
        assert_eq!(stream.next().await.expect("a text"), "event: stale\ndata: {}\n\n");
        send(Update::Rendered(Arc::new(fragments("2"))));
        assert_eq!(stream.next().await.expect("a text"), "event: fresh\ndata: {}\n\n");
        send(Update::Over);
        assert_eq!(stream.next().await.expect("a text"), "event: over\ndata: {}\n\n");
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn a_slow_browser_gets_the_newest_page_and_none_in_between() {
        let (send, stop, mut stream) = open("0").await;
        for number in 1..=1_000 {
            send.send_replace(Update::Rendered(Arc::new(fragments(&number.to_string()))));
        }
        assert!(stream.next().await.expect("a text").contains("1000"));
        stop.send_replace(true);
        assert_eq!(stream.next().await, None);
    }
}
