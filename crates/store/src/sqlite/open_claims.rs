//! How many jobs have left each claim.
//!
//! A claim that is settled is deleted if as many jobs have left it as it took. Otherwise, and for claims of other handles, each of
//! its jobs is looked up.

use std::{collections::HashMap, sync::Mutex};

use windlass_model::{ClaimNo, WorkerId};

/// For how many claims it is counted.
const COUNTED: usize = 10_000;

/// How many jobs have left each claim by commits of this handle.
#[derive(Default)]
pub(super) struct OpenClaims {
    left: Mutex<HashMap<(WorkerId, ClaimNo), usize>>,
}

impl OpenClaims {
    /// Adds what a transaction that is committed has counted.
    pub(super) fn left(&self, left: Vec<((WorkerId, ClaimNo), usize)>) {
        if left.is_empty() {
            return;
        }
        let mut counts = self.left.lock().unwrap_or_else(|e| e.into_inner());
        if counts.len() > COUNTED {
            counts.clear();
        }
        left.into_iter().for_each(|(claim, count)| *counts.entry(claim).or_default() += count);
    }

    /// How many have left a claim, which is settled.
    pub(super) fn settled(&self, worker: WorkerId, number: ClaimNo) -> usize {
        let mut counts = self.left.lock().unwrap_or_else(|e| e.into_inner());
        counts.remove(&(worker, number)).unwrap_or(0)
    }
}
