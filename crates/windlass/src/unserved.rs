//! The warning about queues that nobody serves, when a worker starts.

use crate::Engine;

impl Engine {
    /// Warns of each queue that a kind of this engine uses by default and that neither this worker nor another live one serves. A
    /// worker that starts later may serve it: it is a warning, not an error.
    pub(crate) async fn warn_of_unserved_queues(&self) {
        if self.queues().is_empty() {
            // It serves no queue on purpose.
            return;
        }
        let own: Vec<&str> = self.queues().iter().map(|(queue, _)| queue.as_str()).collect();
        match self.operator().unserved_queues(&own).await {
            Ok(unserved) => {
                for queue in unserved {
                    let (kinds, advice) = (queue.kinds.join(", "), queue.advice());
                    tracing::warn!(
                        queue = queue.queue,
                        kinds,
                        "no live worker serves this queue, which these kinds use by default, so their jobs wait: {advice}"
                    );
                }
            }
            // The worker serves what it can; `doctor` says the same later.
            Err(error) => tracing::debug!(%error, "cannot tell which queues other workers serve"),
        }
    }
}
