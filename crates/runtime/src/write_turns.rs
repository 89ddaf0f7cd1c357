//! Turns of the submitter and the committer, on a store whose write transactions wait for each other.
//!
//! A batch that is made before its transaction can begin misses everything that comes while it waits. So whoever writes waits for its
//! turn first, and then takes all that waits. Turns are given in the order in which they were asked for.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Gives turns, one at a time; or all at once, if the store writes several transactions at a time.
#[derive(Clone)]
pub(crate) struct WriteTurns(Option<Arc<Mutex<()>>>);

/// The right to send one transaction, until it is dropped.
#[must_use = "the turn is over once it is dropped"]
pub(crate) struct WriteTurn(
    #[expect(dead_code, reason = "only its lifetime matters")] Option<OwnedMutexGuard<()>>,
);

impl WriteTurns {
    /// For a store whose write transactions wait for each other, or not.
    pub(crate) fn new(writes_in_turn: bool) -> WriteTurns {
        WriteTurns(writes_in_turn.then(Arc::default))
    }

    /// Waits for the next turn.
    pub(crate) async fn next(&self) -> WriteTurn {
        match &self.0 {
            Some(turns) => WriteTurn(Some(Arc::clone(turns).lock_owned().await)),
            None => WriteTurn(None),
        }
    }

    /// Lets tasks of this thread that can run do so first, where transactions do not wait for each other: tasks that were woken
    /// together add their part together, and it goes into one transaction. Where they wait, that wait has gathered enough.
    pub(crate) async fn gather(&self) {
        if self.0.is_none() {
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_store_with_one_writer_has_one_turn_at_a_time() {
        let turns = WriteTurns::new(true);
        let first = turns.next().await;
        let mut second = std::pin::pin!(turns.next());
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let _second = second.await;
        let several = WriteTurns::new(false);
        let _both = (several.next().await, several.next().await);
    }
}
