//! Limits: which names and sizes are accepted.
//!
//! Every way into a store checks with [`Limits`] first: [`Limits::check`] before a submit, [`Limits::check_signal`] before a
//! signal, [`Limits::check_change`] before a commit. So a database never refuses data that these rules know to be bad, and the
//! error says what to do about it.
//!
//! The fields of [`Limits`] can be set; the constants here are fixed.

mod change;
mod job;
mod settings;

pub use settings::Limits;

use std::time::Duration;

use crate::serial::MAX_SLOTS;

/// The longest kind, queue or tag, in bytes: long enough for a path of names, short enough to print.
pub const MAX_NAME_BYTES: usize = 128;
/// The longest key, in bytes: a database index takes at most about 2,700, and a longer key should be hashed.
pub const MAX_KEY_BYTES: usize = 512;
/// The most tags of one job.
pub const MAX_TAGS: usize = 32;
/// The longest `options` text, in bytes: every listing reads it.
pub const MAX_OPTIONS_BYTES: usize = 16 << 10;
/// The longest error message kept, in bytes. Longer ones are truncated, and say so.
pub const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// The longest delay: a hundred years.
pub const MAX_DELAY: Duration = Duration::from_secs(100 * 365 * 86_400);
/// The most children that one step may submit: the transaction that commits the step inserts them all.
pub const MAX_CHILDREN: usize = 10_000;
/// The most payload bytes in one batch of changes or jobs: a few large ones must not make a transaction as slow as thousands of
/// small ones.
pub const MAX_BATCH_BYTES: usize = 16 << 20;
/// The prefix of the engine's own kinds, queues, tags, keys and signals.
pub const RESERVED_PREFIX: &str = "windlass.";

/// Why something was refused: what, why, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} {why}; {hint}")]
pub struct Invalid {
    /// Which part is wrong, with its value where that is short.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
    /// What to do.
    pub hint: String,
}

pub(crate) fn invalid(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Invalid {
    Invalid { what: what.into(), why: why.into(), hint: hint.into() }
}

/// Quotes a value for an error, at most 40 characters of it.
pub(crate) fn quoted(value: &str) -> String {
    let mut short: String = value.chars().take(40).collect();
    if short.len() < value.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// Checks a name; `what` says of what, for example "kind" or "queue".
pub fn check_name(what: &str, name: &str) -> Result<(), Invalid> {
    if name.is_empty() {
        return Err(invalid(format!("the {what}"), "is empty", "give it a name"));
    }
    if name.len() > MAX_NAME_BYTES {
        let why = format!("is {} bytes long, more than the {MAX_NAME_BYTES} allowed", name.len());
        return Err(invalid(format!("the {what} {}", quoted(name)), why, "choose a shorter name"));
    }
    if let Some(bad) = name.chars().find(|c| c.is_control() || c.is_whitespace() || *c == '$') {
        let why = format!("contains {bad:?}");
        let hint = "use letters, digits and punctuation other than $, which separates names of children";
        return Err(invalid(format!("the {what} {}", quoted(name)), why, hint));
    }
    check_prefix(what, name, "choose another name")
}

/// Checks that text is not longer than `max` bytes and contains no NUL; `what` says what it is.
pub fn check_text(what: &str, text: &str, max: usize) -> Result<(), Invalid> {
    if text.len() > max {
        let why = format!("is {} bytes long, more than the {max} allowed", text.len());
        return Err(invalid(format!("the {what} {}", quoted(text)), why, "shorten it, or use a hash of it"));
    }
    if text.contains('\0') {
        return Err(invalid(format!("the {what} {}", quoted(text)), "contains a NUL byte", "remove it"));
    }
    Ok(())
}

/// Checks a key that must not be empty; `what` says which key.
pub fn check_key(what: &str, key: &str) -> Result<(), Invalid> {
    if key.is_empty() {
        return Err(invalid(format!("the {what}"), "is empty", "leave it out, or give it a value"));
    }
    check_prefix(what, key, "choose another key")?;
    check_text(what, key, MAX_KEY_BYTES)
}

/// Checks the name of a machine's stage: the name of an enum variant, which may have any characters.
pub fn check_stage(stage: &str) -> Result<(), Invalid> {
    if stage.is_empty() {
        return Err(invalid("the name of the stage", "is empty", "give the variant a name"));
    }
    check_text("name of the stage", stage, MAX_NAME_BYTES)
}

/// Checks the number of slots of a serial key.
pub fn check_slots(key: &str, slots: Option<u32>) -> Result<(), Invalid> {
    match slots {
        Some(slots) if slots == 0 || slots > MAX_SLOTS => {
            let what = format!("the slots of serial key {}", quoted(key));
            let hint = format!("use 1 to {MAX_SLOTS}; to stop its jobs, pause them");
            Err(invalid(what, format!("are {slots}"), hint))
        }
        _ => Ok(()),
    }
}

fn check_prefix(what: &str, name: &str, hint: &str) -> Result<(), Invalid> {
    if name.starts_with(RESERVED_PREFIX) {
        let why = format!("begins with {RESERVED_PREFIX:?}, which is reserved for the engine");
        return Err(invalid(format!("the {what} {}", quoted(name)), why, hint));
    }
    Ok(())
}

/// Returns an error message as it is kept: without NUL, which PostgreSQL's text cannot contain, and not much longer than
/// [`MAX_MESSAGE_BYTES`].
pub fn clean_message(text: &str) -> String {
    let mut clean = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text.to_owned() };
    if clean.len() > MAX_MESSAGE_BYTES {
        let mut end = MAX_MESSAGE_BYTES;
        while !clean.is_char_boundary(end) {
            end -= 1;
        }
        let length = clean.len();
        clean.truncate(end);
        clean.push_str(&format!(" … (truncated; {length} bytes in all)"));
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_truncated_at_a_character_and_lose_their_nul() {
        assert_eq!(clean_message("a\0b"), "a\u{fffd}b");
        let long = clean_message(&"é".repeat(MAX_MESSAGE_BYTES));
        assert!(long.len() < MAX_MESSAGE_BYTES + 64 && long.contains("32768 bytes in all"));
    }
}
