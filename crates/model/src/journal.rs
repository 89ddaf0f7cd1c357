//! What a workflow has done so far: its journal, by which it is brought back to where it was.
//!
//! An entry is one row: a call of the workflow's code, by its name and key, and how far it got. A call may have several:
//! that it was begun (with a due time, or the child it submitted), failed tries, and its end. Journals only grow, but for
//! entries that later ones have made needless.

use serde::{Deserialize, Serialize};

use crate::{Failure, Payload, Reason, Time};

/// One row of a job's journal.
#[derive(Clone, PartialEq, Debug)]
pub struct JournalEntry {
    /// Its place: larger than that of every entry committed before. Two entries of one job never share one: a change with an
    /// entry whose place is taken is refused.
    pub seq: i32,
    /// What was called.
    pub op: Op,
    /// How far it got.
    pub mark: Mark,
    /// The name of the call.
    pub name: String,
    /// What tells it from other calls of the same name.
    pub key: Option<String>,
    /// Where in the source it was called, as `file:line`.
    pub line: Option<String>,
    /// When, by the clock of the worker.
    pub at: Time,
    /// Its result, or whatever must be known to go on with it.
    pub payload: Payload,
}

macro_rules! numbered {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $number:literal $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $type { $($(#[$doc])* $variant = $number,)* }

        impl $type {
            /// All of them, in the order of their numbers.
            pub const ALL: &[$type] = &[$($type::$variant,)*];

            /// Its number in the stores.
            pub const fn number(self) -> i16 {
                self as i16
            }

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }

            /// The one with this number.
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
    /// What a workflow called.
    Op {
        /// A step.
        Step = 1 "step",
        /// A step whose writes to the database were committed with it.
        Transaction = 2 "transaction",
        /// A sleep, for a time or until one.
        Sleep = 3 "sleep",
        /// A wait for a signal.
        Signal = 4 "signal",
        /// A wait until a condition holds, looked at from time to time.
        WaitUntil = 5 "wait_until",
        /// A wait until a condition holds, looked at when someone says so.
        ContinueIf = 6 "continue_if",
        /// The first of several.
        Select = 7 "select",
        /// Something done by the calendar.
        Repeat = 8 "repeat",
        /// A job that was submitted and waited for.
        Child = 9 "child",
        /// What time it was.
        Now = 10 "now",
        /// Which version of changed code the job runs.
        Version = 11 "version",
        /// What happened to the job as a whole: it was forked, or has ended.
        Life = 12 "life",
        /// A value of the context that the step before it has set.
        Context = 13 "context",
        /// A branch: children spawned in it, until it is sealed.
        Branch = 14 "branch",
        /// The merge of branches.
        Merge = 15 "merge",
        /// What the results of a branch's children were reduced to.
        Reduce = 16 "reduce",
    }
}

numbered! {
    /// How far a call got.
    Mark {
        /// It was begun.
        Begun = 1 "begun",
        /// A try at it failed, and another follows.
        Tried = 2 "tried",
        /// It ended well.
        Done = 3 "done",
        /// It ended badly.
        Failed = 4 "failed",
        /// What it did was undone.
        Undone = 5 "undone",
        /// What it did could not be undone.
        NotUndone = 6 "not_undone",
        /// It ended well, and has an undo that runs if the workflow does not end well.
        DoneWithUndo = 7 "done_with_undo",
    }
}

impl Mark {
    /// Whether the call ended well.
    pub const fn is_done(self) -> bool {
        matches!(self, Mark::Done | Mark::DoneWithUndo)
    }
}

/// How a job ends once its undos have run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Unwind {
    /// Why it has failed; `None` if it is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The error.
    pub failure: Failure,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_one_each() {
        for op in Op::ALL {
            assert_eq!(Op::from_number(op.number()), Some(*op));
        }
        for mark in Mark::ALL {
            assert_eq!(Mark::from_number(mark.number()), Some(*mark));
        }
        assert_eq!((Op::from_number(0), Mark::from_number(99)), (None, None));
    }
}
