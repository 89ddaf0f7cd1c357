//! The class of a stored error and the beginning of its message, read from the beginning of its JSON: lists read a few hundred characters of
//! errors that may have 80 KiB each.

use crate::{FailureText, columns};

/// Reads an error of which `text` is the whole JSON or its first characters. Text that is none (written by hand) is the message.
pub(crate) fn read(text: Option<&str>, characters: usize) -> Option<FailureText> {
    let text = text?;
    if let Some((class, message, is_cut)) = parse(text) {
        let short = FailureText::new(&class, &message, characters);
        return Some(FailureText { is_cut: short.is_cut || is_cut, ..short });
    }
    let failure = columns::failure(Some(text))?;
    Some(FailureText::new(&failure.class, &failure.message, characters))
}

/// The class, the message, and whether the text ends within the message. Stores write these two first.
fn parse(text: &str) -> Option<(String, String, bool)> {
    let rest = text.strip_prefix("{\"class\":")?;
    let (class, rest) = string(rest)?;
    let rest = rest.strip_prefix(",\"message\":")?;
    match string(rest) {
        Some((message, _)) => Some((class, message, false)),
        None => Some((class, beginning(rest)?, true)),
    }
}

/// The JSON string that a text begins with, and the text after it.
fn string(text: &str) -> Option<(String, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let value = values.next()?.ok()?;
    let end = values.byte_offset();
    Some((value, &text[end..]))
}

/// The beginning of a JSON string whose end is missing.
fn beginning(text: &str) -> Option<String> {
    // At most an escaped character of two times six is torn apart.
    let torn = text.char_indices().rev().map(|(at, _)| at).take(12);
    let ends = std::iter::once(text.len()).chain(torn);
    ends.map(|end| format!("{}\"", &text[..end])).find_map(|closed| serde_json::from_str(&closed).ok())
}

#[cfg(test)]
mod tests {
    use windlass_model::Failure;

    use super::*;

    fn text(failure: &Failure) -> String {
        columns::failure_text(failure)
    }

    fn cut(text: &str, characters: usize) -> String {
        text.chars().take(characters).collect()
    }

    #[test]
    fn the_beginning_of_an_error_has_its_class_and_the_beginning_of_its_message() {
        let failure =
            Failure::retry("a \"quoted\" line\nand \u{1} 😀 more").class("b\\usy").with_detail(&vec![1; 9]);
        let all = text(&failure);
        let whole = read(Some(&all), 200).expect("an error");
        assert_eq!((whole.class.as_str(), &whole.message, whole.is_cut), ("b\\usy", &failure.message, false));
        let first = all.find("a \\\"").expect("the message");
        for length in first..all.chars().count() {
            let part = read(Some(&cut(&all, length)), 200).expect("an error");
            assert_eq!(part.class, "b\\usy", "{length}");
            assert!(failure.message.starts_with(&part.message), "{length}: {part:?}");
            assert!(part.is_cut || part.message == failure.message, "{length}: {part:?}");
        }
        let short = read(Some(&all), 5).expect("an error");
        assert_eq!((short.message.as_str(), short.is_cut), ("a \"qu", true));
    }

    #[test]
    fn text_that_is_no_error_is_the_message() {
        assert_eq!(read(None, 9), None);
        let by_hand = read(Some("it broke"), 4).expect("an error");
        assert_eq!((by_hand.message.as_str(), by_hand.is_cut), ("it b", true));
        let reordered = read(Some(r#"{"message":"x","class":"y"}"#), 9).expect("an error");
        assert_eq!((reordered.class.as_str(), reordered.message.as_str()), ("y", "x"));
    }
}
