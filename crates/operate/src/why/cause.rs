//! The causes that [`crate::why`] names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares the causes once, with the word of each: what JSON has, and what `Display` writes.
macro_rules! causes {
    ($($(#[$about:meta])+ $cause:ident = $word:literal,)+) => {
        /// Why a job is in its state. In JSON, and as text, it is a word that stays the same between versions.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Cause {
            $($(#[$about])+ #[serde(rename = $word)] $cause,)+
        }

        impl Cause {
            /// All causes.
            pub const ALL: &[Cause] = &[$(Cause::$cause),+];

            /// Its word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Cause::$cause => $word,)+
                }
            }
        }
    };
}

causes! {
    /// It was submitted in a transaction that has committed, and no worker has admitted it yet.
    Arriving = "arriving",
    /// It is due later.
    Scheduled = "scheduled",
    /// An attempt failed, and the next one is later.
    BackingOff = "backing_off",
    /// Someone paused it.
    Paused = "paused",
    /// Someone paused its queue.
    QueuePaused = "queue_paused",
    /// No worker runs on this store.
    NoWorker = "no_worker",
    /// No worker serves its queue.
    QueueUnserved = "queue_unserved",
    /// No worker that serves its queue knows its kind.
    KindUnserved = "kind_unserved",
    /// The workers that serve its queue know its kind only in other versions.
    VersionUnserved = "version_unserved",
    /// All slots of its serial key are held.
    Serial = "serial",
    /// Its rate limit has too few tokens.
    Rate = "rate",
    /// Workers died with it: it waits to be run alone.
    Suspect = "suspect",
    /// Other jobs of its kind are before it.
    Behind = "behind",
    /// It is the next of its kind.
    Next = "next",
    /// It runs.
    Running = "running",
    /// Its worker has not renewed its lease.
    WorkerLost = "worker_lost",
    /// Its cancel was requested, and it ends soon.
    CancelRequested = "cancel_requested",
    /// It undoes its steps before it ends.
    Unwinding = "unwinding",
    /// It waits for signals.
    Signal = "signal",
    /// It received a signal that its code could not decode.
    SignalUnreadable = "signal_unreadable",
    /// It sleeps until some time.
    Asleep = "asleep",
    /// It waits for children.
    Children = "children",
    /// It waits for the merge of branches, or for room in one.
    Branches = "branches",
    /// It waits for the merge of branches, and unsuccessful children block that.
    Blocked = "blocked",
    /// It was woken just now, or gave up its slot to others for a moment.
    Waiting = "waiting",
    /// It is done.
    Done = "done",
    /// It was cancelled.
    Cancelled = "cancelled",
    /// It failed: its attempts are used up.
    Exhausted = "exhausted",
    /// It failed: an error said that no further attempt can help.
    Stopped = "stopped",
    /// It failed: its attempts are used up, and the last one ran too long.
    Timeout = "timeout",
    /// It failed: its worker died too often while running it alone.
    Poison = "poison",
    /// Its input or its stage does not decode, or a column of its row.
    Undecodable = "undecodable",
    /// It failed: its deadline passed.
    Expired = "expired",
    /// It failed: the store refused what it wanted to write.
    Refused = "refused",
    /// It failed: its code does not match its journal.
    Diverged = "diverged",
}

impl Cause {
    /// How much a person is needed: 3 nothing happens until someone acts, 2 it waits for others or for a time, 1 it waits for its
    /// turn, 0 it runs or is over. Of several children the one with the highest is named.
    pub(super) fn urgency(self) -> u8 {
        match self {
            Cause::Paused
            | Cause::QueuePaused
            | Cause::NoWorker
            | Cause::QueueUnserved
            | Cause::KindUnserved
            | Cause::VersionUnserved
            | Cause::SignalUnreadable
            | Cause::Blocked
            | Cause::Exhausted
            | Cause::Stopped
            | Cause::Timeout
            | Cause::Poison
            | Cause::Undecodable
            | Cause::Expired
            | Cause::Refused
            | Cause::Diverged => 3,
            Cause::BackingOff
            | Cause::Serial
            | Cause::Rate
            | Cause::Suspect
            | Cause::WorkerLost
            | Cause::Signal
            | Cause::Children
            | Cause::Branches
            | Cause::Cancelled => 2,
            Cause::Arriving | Cause::Scheduled | Cause::Behind | Cause::Asleep | Cause::Unwinding => 1,
            Cause::Next | Cause::Running | Cause::CancelRequested | Cause::Waiting | Cause::Done => 0,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
