//! The name that was most likely meant.

/// The one of `known` that is nearest to `word`, if it is near at all.
pub(super) fn of<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|name| (distance(word, name), name)).min()?;
    // A third of the letters may be wrong: more is another word.
    (near.0 * 3 <= word.chars().count().max(3)).then_some(near.1)
}

/// How many letters must be put in, taken out or changed to make one word the other.
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
    fn slips_are_recognised_and_strangers_are_not() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(of("laese", ["store", "lease"]), None);
        assert_eq!(of("leas", ["store", "lease"]), Some("lease"));
        assert_eq!(of("prefech", ["prefetch", "poll"]), Some("prefetch"));
        assert_eq!(of("colour", ["store", "lease"]), None);
    }
}
