//! Suggestions for misspelt names.

/// The known name that is most similar to `word`, if any is similar enough.
pub(super) fn of<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|name| (distance(word, name), name)).min()?;
    // Up to a third of the letters may differ: beyond that it is another word.
    (near.0 * 3 <= word.chars().count().max(3)).then_some(near.1)
}

/// The Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = change.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_recognised_and_other_words_are_not() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(of("laese", ["store", "lease"]), None);
        assert_eq!(of("leas", ["store", "lease"]), Some("lease"));
        assert_eq!(of("prefech", ["prefetch", "poll"]), Some("prefetch"));
        assert_eq!(of("colour", ["store", "lease"]), None);
    }
}
