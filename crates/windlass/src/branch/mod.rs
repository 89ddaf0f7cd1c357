//! Branches: many children of one job, spawned from sources, counted as they end, and merged.
//!
//! `source` is where they come from, `spawn` makes them, chunk by chunk, as far as there is `room`; `block` packs many into one row. What came of them
//! is read by `results`, and for people by `items` and `find`. Workflows and machines open branches with the same plan.

pub(crate) mod block;
mod find;
mod items;
mod results;
mod room;
mod source;
mod spawn;

pub(crate) use items::named;
pub use items::{Item, Items};
pub use results::{ChildOf, Merged, Results};
pub(crate) use results::{Goal, Pages, Read, Verdict, bad_children, missing_children};
pub(crate) use room::room;
pub use source::{Rows, Source, Streamed, stream};
pub use spawn::{AsChild, AsResult, IntoChild};
pub(crate) use spawn::{Plan, Produced, Producing, items_of};
