//! How many jobs have left each claim.
//!
//! A settled claim is deleted if as many jobs have left it as it took. Otherwise, and for claims of other handles,
//! each of its jobs is looked up.

use std::{collections::HashMap, sync::Mutex};

use windlass_model::{ClaimNo, WorkerId};

/// For how many claims jobs are counted: more than a worker has open. Beyond, jobs are looked up.
const MAX_CLAIMS: usize = 10_000;

/// How many jobs have left each claim by commits of this handle.
#[derive(Default)]
pub(super) struct OpenClaims {
    left: Mutex<HashMap<(WorkerId, ClaimNo), usize>>,
}

impl OpenClaims {
    /// Adds what a committed transaction has counted.
    pub(super) fn add_left(&self, left: Vec<((WorkerId, ClaimNo), usize)>) {
        if left.is_empty() {
            return;
        }
        let mut counts = self.left.lock().unwrap_or_else(|e| e.into_inner());
        if counts.len() > MAX_CLAIMS {
            counts.clear();
        }
        left.into_iter().for_each(|(claim, count)| *counts.entry(claim).or_default() += count);
    }

    /// Returns how many jobs have left a claim that is settled, and stops counting for it.
    pub(super) fn settled(&self, worker: WorkerId, number: ClaimNo) -> usize {
        let mut counts = self.left.lock().unwrap_or_else(|e| e.into_inner());
        counts.remove(&(worker, number)).unwrap_or(0)
    }
}
