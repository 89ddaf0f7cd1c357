//! Branches: many children of one job, spawned from sources, counted as they end, and merged.
//!
//! `source` yields the items, `spawn` makes children of them, chunk by chunk, as far as there is `room`; `block` packs many
//! items into one job; `results` reads what they returned. Workflows and machines open branches with the same `Plan`.

pub mod block;
mod results;
mod room;
mod source;
mod spawn;

pub use results::{BLOCKS, ChildOf, Merged, Results, SINGLES};
pub(crate) use results::{
    MergeRecord, MergeVerdict, Pages, ReadPosition, missing_children, unsuccessful_children,
};
pub(crate) use room::wait_for_room;
pub use source::{Rows, Source, StreamSource};
pub use spawn::{AsChild, AsResult, IntoChild};
pub(crate) use spawn::{Chunk, ChunkStream, Plan, items_of};
