//! The journal: the record of a workflow's calls, from which the workflow is replayed.
//!
//! An entry is one row: a call, by its name and key, and one thing that happened to it. A call may have several entries: that it
//! began (with a due time, or the child it submitted), attempts that failed, and its end. Entries are only added, except that a
//! commit may delete those that later ones have made superfluous.

use serde::{Deserialize, Serialize};

use crate::{Failure, Payload, Reason, Time};

/// One row of a job's journal.
#[derive(Clone, PartialEq, Debug)]
pub struct JournalEntry {
    /// Its sequence number, larger than that of every entry committed before. No two entries of a job share one: the store
    /// refuses a change with an entry whose number is taken.
    pub seq: i32,
    /// What kind of call it was.
    pub call_kind: CallKind,
    /// What happened to the call.
    pub event: CallEvent,
    /// The name of the call.
    pub name: String,
    /// Distinguishes it from other calls of the same name.
    pub key: Option<String>,
    /// Where in the source it was called, as `file:line`.
    pub line: Option<String>,
    /// When, by the worker's clock.
    pub at: Time,
    /// The call's result, or what a replay needs to continue the call.
    pub payload: Payload,
}

/// Declares an enum whose values stores keep as numbers and people see as names.
macro_rules! numbered {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $number:literal $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $type { $($(#[$doc])* $variant = $number,)* }

        impl $type {
            /// All values, in the order of their numbers.
            pub const ALL: &[$type] = &[$($type::$variant,)*];

            /// Returns its number in the stores.
            pub const fn number(self) -> i16 {
                self as i16
            }

            /// Returns its name.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }

            /// Returns the value with this number.
            pub fn from_number(number: i16) -> Option<$type> {
                $type::ALL.iter().copied().find(|known| known.number() == number)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

numbered! {
    /// The kind of a call.
    CallKind {
        /// A step.
        Step = 1 "step",
        /// A step whose writes to the store's database were committed with its entry.
        Transaction = 2 "transaction",
        /// A sleep, for a span or until a time.
        Sleep = 3 "sleep",
        /// A wait for a signal.
        Signal = 4 "signal",
        /// A wait until a condition holds, checked at intervals.
        WaitUntil = 5 "wait_until",
        /// A wait until a condition holds, checked when a signal arrives.
        ContinueIf = 6 "continue_if",
        /// The first of several calls to end.
        Select = 7 "select",
        /// A call repeated by a calendar.
        Repeat = 8 "repeat",
        /// A child that was submitted and waited for.
        Child = 9 "child",
        /// The time that the code asked for.
        Now = 10 "now",
        /// Which version of changed code the job runs.
        Version = 11 "version",
        /// Not a call: something that happened to the job, which was forked or has ended.
        #[serde(rename = "life")]
        Lifecycle = 12 "life",
        /// A value of the context, set by the step before it.
        Context = 13 "context",
        /// A branch: children spawned in it, until it is sealed.
        Branch = 14 "branch",
        /// The merge of branches.
        Merge = 15 "merge",
        /// The value that the results of a branch were reduced to.
        Reduce = 16 "reduce",
        /// Code that continues when the job is cancelled.
        CancelScope = 17 "cancel_scope",
    }
}

numbered! {
    /// What happened to a call.
    CallEvent {
        /// It began.
        Begun = 1 "begun",
        /// An attempt at it failed, and another follows.
        Tried = 2 "tried",
        /// It succeeded.
        Done = 3 "done",
        /// It failed.
        Failed = 4 "failed",
        /// Its undo succeeded.
        Undone = 5 "undone",
        /// Its undo failed.
        NotUndone = 6 "not_undone",
        /// It succeeded, and its undo runs if the job fails or is cancelled.
        DoneWithUndo = 7 "done_with_undo",
    }
}

impl CallEvent {
    /// Whether the call succeeded.
    pub const fn is_done(self) -> bool {
        matches!(self, CallEvent::Done | CallEvent::DoneWithUndo)
    }
}

/// How a job ends once its undos have run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Unwind {
    /// Why it fails; `None` if it is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The error.
    pub failure: Failure,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_means_one_value() {
        for call_kind in CallKind::ALL {
            assert_eq!(CallKind::from_number(call_kind.number()), Some(*call_kind));
            assert_eq!(serde_json::to_value(call_kind).expect("written"), call_kind.name());
        }
        for event in CallEvent::ALL {
            assert_eq!(CallEvent::from_number(event.number()), Some(*event));
            assert_eq!(serde_json::to_value(event).expect("written"), event.name());
        }
        assert_eq!((CallKind::from_number(0), CallEvent::from_number(99)), (None, None));
    }
}
