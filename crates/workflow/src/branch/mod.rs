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

/// The settings of a branch that is being described, in the field `plan`. `$full` says what happens while the branch is full.
macro_rules! branch_settings {
    ($full:literal) => {
        /// Spawns one child.
        pub fn spawn<C: $crate::branch::IntoChild<M>, M>(mut self, name: &str, child: C) -> Self {
            self.plan.spawn(name, child.into_child());
            self
        }

        /// Spawns a child for each item of a source: an iterator or range, a [`crate::StreamSource`], or [`crate::Rows`] of a table of
        /// yours. The closure returns a job of any kind, a [`crate::Child`] with settings of its own, or a `Result` of either; the
        /// kinds may differ from item to item.
        pub fn spawn_each<S, F, C, M>(mut self, name: &str, source: S, child: F) -> Self
        where
            S: $crate::branch::Source,
            F: FnMut(S::Item) -> C + Send + 'static,
            C: $crate::branch::IntoChild<M>,
        {
            self.plan.spawn_each(name, source, child);
            self
        }

        /// How many children are committed at once: by default 1,000.
        pub fn chunk(mut self, children: usize) -> Self {
            self.plan.chunk = children;
            self
        }

        #[doc = concat!("Limits how many children may exist that have not ended. ", $full)]
        pub fn in_flight(mut self, children: u64) -> Self {
            self.plan.in_flight = Some(children);
            self
        }

        /// Limits how many children start per second: each is spawned with a start time of its own.
        pub fn per_second(mut self, children: f64) -> Self {
            self.plan.per_second = Some(children);
            self
        }

        /// Packs the items into blocks of up to a thousand, each of which is one row and one commit: for huge sets of small tasks
        /// that may run again. An item that fails or takes long becomes a job of its own.
        pub fn packed(mut self) -> Self {
            self.plan.packed = true;
            self
        }
    };
}
pub(crate) use branch_settings;
