//! Branches: many children of one job, spawned from sources, counted as they end, and merged.
//!
//! `source` is where they come from, `spawn` makes them, chunk by chunk, as far as there is `room`; `block` packs many into one row. What came of them
//! is read by `results`, and for people by `items` and `find`. Workflows and machines open branches with the same plan.

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
pub use source::{Rows, Source, StreamSource, stream};
pub use spawn::{AsChild, AsResult, IntoChild};
pub(crate) use spawn::{Chunk, ChunkStream, Plan, items_of};
