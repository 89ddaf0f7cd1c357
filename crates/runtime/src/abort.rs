//! Which attempts are given up because their claim is void or their worker has stopped.

use std::collections::HashSet;

use tokio::sync::watch;
use windlass_model::{ClaimNo, WorkerId};

use crate::releaser::ClaimGuard;

/// The claims of this process whose attempts are given up.
pub(crate) struct Aborts(watch::Sender<AbortedClaims>);

#[derive(Default)]
struct AbortedClaims {
    /// The id that this worker is registered under; `None` from when it was declared dead until it has another. Claims
    /// under any other id are void.
    registered: Option<WorkerId>,
    /// Claims that the store has lost. Numbers are not used again, and few claims are ever lost.
    lost: HashSet<ClaimNo>,
    /// Whether the worker has stopped.
    all: bool,
}

impl AbortedClaims {
    fn contains(&self, claim: &ClaimGuard) -> bool {
        self.all || self.registered != Some(claim.worker) || self.lost.contains(&claim.number)
    }
}

impl Default for Aborts {
    fn default() -> Aborts {
        Aborts(watch::channel(AbortedClaims::default()).0)
    }
}

impl Aborts {
    /// Voids the claims under every other id.
    pub(crate) fn set_registered(&self, worker: WorkerId) {
        self.0.send_modify(|aborted| aborted.registered = Some(worker));
    }

    /// Voids the claims under this id; `false` if that was done before.
    pub(crate) fn unset_registered(&self, worker: WorkerId) -> bool {
        self.0.send_if_modified(|aborted| aborted.registered.take_if(|current| *current == worker).is_some())
    }

    pub(crate) fn add_lost(&self, claims: &[ClaimNo]) {
        self.0.send_modify(|aborted| aborted.lost.extend(claims));
    }

    /// Whether the store has lost a claim of this worker.
    pub(crate) fn is_lost(&self, claim: ClaimNo) -> bool {
        self.0.borrow().lost.contains(&claim)
    }

    pub(crate) fn abort_all(&self) {
        self.0.send_modify(|aborted| aborted.all = true);
    }

    /// Whether the attempts under a claim are given up.
    pub(crate) fn contains(&self, claim: &ClaimGuard) -> bool {
        self.0.borrow().contains(claim)
    }

    pub(crate) fn subscribe(&self) -> AbortReceiver {
        AbortReceiver(self.0.subscribe())
    }
}

/// Waits until attempts are given up.
pub(crate) struct AbortReceiver(watch::Receiver<AbortedClaims>);

impl AbortReceiver {
    /// Returns when the attempts under a claim are given up, at once if they were before.
    pub(crate) async fn wait_for(&mut self, claim: &ClaimGuard) {
        // An error means that the worker is gone, and its attempts with it.
        let _ = self.0.wait_for(|aborted| aborted.contains(claim)).await;
    }
}
