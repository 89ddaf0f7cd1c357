//! Waiting for a condition.

use std::time::{Duration, Instant};

/// The longest wait. Long enough for a loaded machine, and shorter than the check interval of a worker (120 s): a test
/// fails if only the check interval notices a change.
const LIMIT: Duration = Duration::from_secs(90);

/// Returns once `holds` does. Panics with `what` after 90 s.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
