//! The diagnosis of the memory store: it has no database to check.

use super::*;
use crate::{BranchHealth, Database, Diagnose, OldestReady};

impl Diagnose for Memory {
    fn database(&self) -> Fut<'_, Database> {
        Box::pin(std::future::ready(Ok(Database::Memory)))
    }

    fn oldest_ready(&self) -> Fut<'_, Vec<OldestReady>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn suspects(&self, _cap: u64) -> Fut<'_, u64> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn awaited_branches(&self, _limit: usize) -> Fut<'_, Vec<BranchHealth>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn orphaned_branches(&self, _limit: usize) -> Fut<'_, Vec<BranchHealth>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
