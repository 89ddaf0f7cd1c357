//! What a worker has done, in numbers.
//!
//! Each line of `counts!` below is a field of [`Counts`] and a counter of `/metrics` (`windlass_<name>_total`, its words
//! the help text): whoever counts something new, such as contention on keys or waits for a rate limit, adds a line here
//! and calls [`add`] where it happens.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Numbers that only grow.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[doc = $doc])* pub $name: AtomicU64,)*
        }

        /// The numbers at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Stats {
            /// The numbers now.
            pub fn counts(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Counts {
            /// Each number with its name and its meaning.
            pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),*).trim_ascii(), self.$name)),*].into_iter()
            }
        }
    };
}

counts! {
    /// Claims that the store answered, those that found nothing included.
    claims,
    /// Jobs claimed, born-claimed ones included.
    claimed,
    /// Attempts started.
    started,
    /// Changes committed.
    committed,
    /// Transactions that committed changes.
    commits,
    /// Changes that came too late: the job had been taken away.
    fenced,
    /// Changes that the store refused for their data.
    refused,
    /// Jobs handed back without a start.
    released,
    /// Jobs of lost workers returned.
    reaped,
    /// Workers declared dead.
    dead_workers,
    /// Slots held by attempts that block their thread past their timeout.
    lost_slots,
}

pub(crate) fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}
