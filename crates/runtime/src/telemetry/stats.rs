//! The counters of a worker that have no labels.
//!
//! Each line of `counters!` below is a field of [`Counts`] and a counter of `/metrics` (`windlass_<name>_total`, with its
//! comment as the help text). To count something new, add a line here and call [`add`] where it happens.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The counters of a worker.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[doc = $doc])* pub $name: AtomicU64,)*
        }

        /// The counters at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Stats {
            /// The counters now.
            pub fn counts(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Counts {
            /// The name, the help text and the value of each counter.
            pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),*).trim_ascii(), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Claims that the store answered, including those that found no job.
    claims,
    /// Jobs claimed, including those that were claimed at submit.
    claimed,
    /// Attempts started.
    started,
    /// Changes committed.
    committed,
    /// Transactions that committed changes.
    commits,
    /// Changes that came too late: the worker no longer held the job.
    fenced,
    /// Changes that the store refused for their data.
    refused,
    /// Jobs released without a start.
    released,
    /// Jobs of lost workers that were returned.
    reaped,
    /// Workers declared dead.
    dead_workers,
    /// Slots held by attempts that block their thread past their timeout.
    lost_slots,
}

pub(crate) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}
