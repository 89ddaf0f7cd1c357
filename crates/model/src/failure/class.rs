//! The classes of the engine's own failures: as words, which are stored and which retry policies match, and as an enum.

use std::borrow::Cow;

/// Declares the classes once: the word of each, and its variant.
macro_rules! classes {
    ($(#[$about:meta] $word:ident $class:ident = $text:literal,)+) => {
        $(#[$about] pub const $word: &str = $text;)+

        /// The class of a failure, to match on: one of the engine's own, or a word of the program's.
        ///
        /// [`crate::Failure::class_of`] returns it. It is accepted wherever a class is: `Retry::rules().on(FailureClass::Timeout, 3)`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum FailureClass<'a> {
            $(#[$about] $class,)+
            /// A class of the program's own.
            Other(&'a str),
        }

        impl<'a> FailureClass<'a> {
            /// The class that a word names.
            pub fn of(word: &'a str) -> FailureClass<'a> {
                match word {
                    $($word => FailureClass::$class,)+
                    other => FailureClass::Other(other),
                }
            }

            /// Its word, as it is stored.
            pub fn as_str(self) -> &'a str {
                match self {
                    $(FailureClass::$class => $word,)+
                    FailureClass::Other(other) => other,
                }
            }
        }
    };
}

classes! {
    /// An error without a class of its own.
    ERROR Error = "error",
    /// The attempt ran longer than its timeout.
    TIMEOUT Timeout = "timeout",
    /// The attempt panicked.
    PANIC Panic = "panic",
    /// The worker died while it ran the attempt.
    LOST Lost = "lost",
    /// The input could not be decoded.
    UNDECODABLE Undecodable = "undecodable",
    /// The engine or the store refused what the code did: an output that cannot be encoded, data that was never given.
    REFUSED Refused = "refused",
    /// The deadline passed.
    EXPIRED Expired = "expired",
    /// The code of a workflow does not match its journal.
    DIVERGED Diverged = "diverged",
    /// Somebody cancelled the job.
    CANCELLED Cancelled = "cancelled",
    /// Another job has the key or the unique name of a job that was submitted in a transaction.
    DUPLICATE Duplicate = "duplicate",
    /// A child of a workflow is not in the store: another job has its key or its unique name, or it was pruned.
    CHILD Child = "child",
    /// The payload of a signal that a workflow received does not decode.
    SIGNAL Signal = "signal",
    /// The rule of a merge failed.
    MERGE Merge = "merge",
    /// Children of a branch, with their results, are no longer in the store.
    MISSING Missing = "missing",
    /// The store failed or did not answer.
    STORE Store = "store",
    /// A database refused a row because of a constraint.
    CONSTRAINT Constraint = "constraint",
    /// A value does not fit its parameter, its column or the number of rows: found by a database or its driver.
    DATA Data = "data",
    /// A database rolled a transaction back, or did not let it lock, because of another: a deadlock, a serialization failure.
    CONFLICT Conflict = "conflict",
    /// Any other error of a database: the connection is lost, a table does not exist.
    DATABASE Database = "database",
    /// A `std::io::Error`.
    IO Io = "io",
}

impl From<FailureClass<'static>> for Cow<'static, str> {
    fn from(class: FailureClass<'static>) -> Cow<'static, str> {
        Cow::Borrowed(class.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, Outcome, Retry};

    #[test]
    fn a_class_and_its_word_are_the_same_thing() {
        for (word, class) in [(TIMEOUT, FailureClass::Timeout), (MISSING, FailureClass::Missing)] {
            let failure = Failure::retry("x").class(word);
            assert_eq!((failure.class_of(), failure.class_of().as_str()), (class, word));
            assert_eq!(Failure::retry("x").class(class), failure, "what is stored does not change");
        }
        assert_eq!(Failure::retry("x").class_of(), FailureClass::Error);
        assert_eq!(Failure::retry("x").class("busy").class_of(), FailureClass::Other("busy"));
    }

    #[test]
    fn a_retry_rule_takes_a_class() {
        let retry = Retry::rules().on(FailureClass::Timeout, 2);
        let outcome =
            |class: FailureClass<'static>| retry.outcome(Failure::retry("x").class(class), &[], 0.0);
        assert!(matches!(outcome(FailureClass::Timeout), Outcome::Retry { .. }));
        assert!(matches!(outcome(FailureClass::Panic), Outcome::Failed { .. }));
    }
}
