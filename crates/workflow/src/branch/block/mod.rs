//! Blocks: many items of a packed branch in one job.
//!
//! A block is a job of its items' kind. Its input is the inputs of its items, its output is their outputs, and between two
//! commits of a long block its data records which items are done. An item that fails or takes long is promoted: in the same commit
//! it becomes a job of its own, and its failed attempt becomes that job's first. A block whose worker died is split into smaller
//! blocks.
//!
//! `format` is what the store keeps of a block, `packer` fills blocks from a source, `run` runs one, `promote` replaces items by
//! jobs, and `read` reads what the items returned.

mod format;
mod packer;
mod promote;
mod read;
mod run;

use windlass_model::{BranchMember, JobId};

pub(crate) use packer::{Packer, unpackable};
pub use read::{PackedItem, packed_items};
pub(crate) use read::{done_so_far, ended, results};
pub(crate) use run::run;

use crate::machine::Services;

/// The stage of a job that is a block.
pub const BLOCK: &str = "windlass.block";

/// The most bytes of inputs, or of outputs, in one block, unless the store keeps less in one row.
const MAX_BYTES: usize = 256 << 10;

/// Whether a job in this stage is a block.
pub fn is_block(stage: Option<&str>) -> bool {
    stage == Some(BLOCK)
}

/// Returns how many bytes of inputs, or of outputs, a block may have. The store always accepts twice as many.
pub(crate) fn max_bytes(services: &Services) -> usize {
    MAX_BYTES.min(services.store.limits().payload / 4)
}

/// The item of a block that a task runs for.
pub(crate) struct BlockItem {
    member: BranchMember,
    spawn: i16,
    key: ItemKey,
}

enum ItemKey {
    Number(u64),
    Text(String),
}

impl BlockItem {
    /// Returns the id of the item, which the job has that the item becomes if it is promoted.
    pub(crate) fn id(&self) -> JobId {
        let BranchMember { parent, branch, .. } = self.member;
        match &self.key {
            ItemKey::Number(number) => JobId::of_item(parent, branch, self.spawn, &number.to_string()),
            ItemKey::Text(key) => JobId::of_item(parent, branch, self.spawn, key),
        }
    }
}
