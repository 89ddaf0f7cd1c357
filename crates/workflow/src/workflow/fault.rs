//! The errors for code that breaks the rules of workflows or does not match its journal.

use std::panic::Location;

use windlass_model::{Failure, failure::class, journal::CallKind};

use super::journal::Ident;

/// The error for code that breaks a rule, whatever its journal says.
pub(super) fn misuse(text: impl std::fmt::Display) -> Failure {
    Failure::stop(text).class(class::REFUSED)
}

/// The error for code that does not match its journal.
pub(super) fn diverged(text: &str) -> Failure {
    Failure::stop(text).class(class::DIVERGED)
}

/// The error for a durable call inside the body of a step.
pub(super) fn nested(what: &str, inside: &str) -> Failure {
    misuse(format!(
        "{what} is called inside {inside:?}, and what runs inside a step is not durable: it is run again as a whole. \
         Make the call before or after it, in the workflow itself."
    ))
}

/// The error for a name and key that two calls use.
pub(super) fn reused(
    ident: &Ident,
    before: CallKind,
    first: &Location<'_>,
    call_kind: CallKind,
    line: &Location<'_>,
) -> Failure {
    let hint = match &ident.1 {
        None => {
            "In a loop, tell them apart with `.key(…)`; otherwise give one of them another name with `.name(…)`."
        }
        Some(_) => "Choose keys that are different in each turn of a loop.",
    };
    misuse(format!(
        "{} is used twice: by a {before} at {} and by a {call_kind} at {}. Replay finds a call by its name, so each needs its own. \
         {hint}",
        display_ident(ident),
        source_location(first),
        source_location(line),
    ))
}

/// The error for a workflow that awaits something other than its durable calls.
pub(super) fn foreign_wait(last_call_at: Option<&Location<'_>>) -> Failure {
    let near = match last_call_at {
        Some(line) => format!("after the durable call at {}", source_location(line)),
        None => "before its first durable call".to_owned(),
    };
    misuse(format!(
        "the workflow waits, {near}, for something that is not durable: a timer, channel, lock, socket or task that is \
         awaited in the workflow itself. It would be lost with the process and is not replayed. Put it into a step, or use \
         `flow.sleep`, `flow.signal` or `flow.child`."
    ))
}

/// A location in the source as text.
pub(super) fn source_location(line: &Location<'_>) -> String {
    format!("{}:{}", line.file(), line.line())
}

/// A call as people see it.
pub(super) fn display_ident(ident: &Ident) -> String {
    match &ident.1 {
        Some(key) => format!("{:?} with key {key:?}", ident.0),
        None => format!("{:?}", ident.0),
    }
}
