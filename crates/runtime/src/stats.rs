//! What a worker has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Numbers that only grow.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// The numbers at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// The numbers now.
            pub fn counts(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
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
