//! The shape of an error's message: what is left when numbers, ids and quoted parts are taken out, so that errors that differ in these alone are
//! one group.

/// Stands for a part that differs.
const HOLE: &str = "{…}";

/// The shape of a message, of which the end may be missing.
pub(super) fn shape(message: &str, is_cut: bool) -> String {
    let mut shape = String::with_capacity(message.len());
    let mut rest = message;
    let mut previous = None;
    while let Some(first) = rest.chars().next() {
        let (part, length) = match closing_quote(first, previous) {
            Some(close) => quoted(rest, first, close, is_cut),
            None if is_word(first) => word(rest),
            None => (first.to_string(), first.len_utf8()),
        };
        previous = rest[..length].chars().next_back();
        rest = &rest[length..];
        // Line breaks and indents differ as well.
        match part.trim().is_empty() {
            true if shape.ends_with(' ') || shape.is_empty() => {}
            true => shape.push(' '),
            false => shape.push_str(&part),
        }
    }
    shape.truncate(shape.trim_end().len());
    shape
}

/// The quote that closes this one. An apostrophe within a word opens nothing.
fn closing_quote(first: char, previous: Option<char>) -> Option<char> {
    match first {
        '"' | '`' => Some(first),
        '\'' if !previous.is_some_and(char::is_alphanumeric) => Some('\''),
        '“' | '„' => Some('”'),
        '«' => Some('»'),
        _ => None,
    }
}

/// The shape of a quoted part, and its length. A quote that nothing closes is a character like others, unless the message is cut.
fn quoted(text: &str, open: char, close: char, is_cut: bool) -> (String, usize) {
    let inside = &text[open.len_utf8()..];
    match inside.find(close) {
        Some(at) => (format!("{open}{HOLE}{close}"), open.len_utf8() + at + close.len_utf8()),
        None if is_cut => (format!("{open}{HOLE}"), text.len()),
        None => (open.to_string(), open.len_utf8()),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The shape of a word, and its length. A word with a digit is a number or an id; it goes on over single marks that such have inside.
fn word(text: &str) -> (String, usize) {
    let mut end = 0;
    for (at, c) in text.char_indices() {
        if !is_word(c) && !goes_on(&text[..at], &text[at + c.len_utf8()..], c) {
            break;
        }
        end = at + c.len_utf8();
    }
    let word = &text[..end];
    match has_digit(word) {
        true => (HOLE.to_owned(), end),
        false => (word.to_owned(), end),
    }
}

fn has_digit(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit())
}

/// Whether a word goes on behind a mark: a number over marks between digits, an id over a hyphen to its next part.
fn goes_on(before: &str, after: &str, mark: char) -> bool {
    let next: &str = after.split(|c: char| !is_word(c)).next().unwrap_or_default();
    match mark {
        '.' | ':' | ',' => {
            before.ends_with(|c: char| c.is_ascii_digit()) && after.starts_with(|c: char| c.is_ascii_digit())
        }
        // The parts of a UUID need not all have digits.
        '-' => has_digit(next) || (has_digit(before) && matches!(next.len(), 4 | 12)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ids_and_quoted_parts_are_holes() {
        for (message, expected) in [
            ("503 upstream connect error", "{…} upstream connect error"),
            ("no match for address \"Main St 7\"", "no match for address \"{…}\""),
            (
                "missing field `weight_unit` at line 1 column 482",
                "missing field `{…}` at line {…} column {…}",
            ),
            ("took 2,114 ms (1.5 s)", "took {…} ms ({…} s)"),
            ("job 0199f0c2-6f7a-7000-8000-000000000000 is gone", "job {…} is gone"),
            ("order-48102 has no parcel", "{…} has no parcel"),
            ("it doesn't know 'charge' or “send”", "it doesn't know '{…}' or “{…}”"),
            ("connect-timeout of a well-known host", "connect-timeout of a well-known host"),
            ("at 10.0.0.7:5432: refused", "at {…}: refused"),
            ("a\n   b\t c ", "a b c"),
            ("", ""),
            ("12:30:07 late", "{…} late"),
        ] {
            assert_eq!(shape(message, false), expected, "{message}");
        }
    }

    #[test]
    fn messages_that_differ_in_such_parts_have_one_shape() {
        let of = |n: u32| format!("customer {n} (\"c-{n}\") of 2026-11-{:02}T10:00:0{}Z", n % 28 + 1, n % 10);
        let shapes: std::collections::BTreeSet<String> = (0..50).map(|n| shape(&of(n), false)).collect();
        assert_eq!(shapes.len(), 1, "{shapes:?}");
        assert_ne!(shape("connection refused", false), shape("connection reset", false));
    }

    #[test]
    fn an_open_quote_is_a_hole_only_where_the_message_is_cut() {
        assert_eq!(shape("unexpected \" here", false), "unexpected \" here");
        assert_eq!(shape("in the document \"very lo", true), "in the document \"{…}");
        assert_eq!(shape("ü „ö” ×7", false), "ü „{…}” ×{…}");
    }
}
