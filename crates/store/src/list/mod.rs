//! Lists of jobs without scans: what both databases share of [`crate::Inspect::jobs`] and [`crate::Inspect::count_jobs`].
//!
//! A list walks one index newest first, the [`Lead`], and compares the jobs that it finds there with the whole filter. [`lead`] chooses
//! the index by how many entries a walk of each would have. [`Walk`] says what to read next and when the page is complete: it
//! examines a bounded number of jobs. Jobs of a queue, kind or version have no index of their own, but [`periods`] in which there are any.

mod lead;
mod periods;
mod walk;

pub(crate) use lead::{Lead, Sizes, key_range};
pub(crate) use periods::{period_of, ranges, span};
pub(crate) use walk::{Action, Ids, Walk};

/// How many jobs one read examines unless more are asked for: few enough for a page to take some 10 ms even if all are in vain.
pub(crate) const EXAMINED: usize = 10_000;

/// Up to how many entries an index is read and sorted as a whole.
pub(crate) const SORTED: u64 = 20_000;

/// How many periods are read at a time.
pub(crate) const PERIODS: usize = 256;
