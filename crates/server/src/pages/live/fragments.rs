//! The parts of a page that live updates may replace, found in its HTML. Pure.
//!
//! The server renders a page again, whole, and compares its parts with those that a browser has: so nothing is written twice, once for the
//! page and once for its updates. A part is an element with an id and the attribute `data-live`; parts are not nested. A row is an element
//! with an id and the attribute `data-row`: of a row that a later rendering does not have any more, the browser is told that it is gone, and of
//! one that is there again, that it is back. A browser ignores what it has no place for: rows of which it only counts that they are new.
//!
//! This reads only what the templates of this crate have written: attributes are quoted, and text from users is escaped, so that a `<` always
//! begins a tag.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The parts and rows of one rendering.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fragments {
    /// The content of each part, by its id.
    parts: BTreeMap<String, String>,
    /// The ids of rows.
    rows: BTreeSet<String>,
}

/// A tag as it begins in the text.
struct Tag<'a> {
    name: &'a str,
    id: Option<&'a str>,
    is_live: bool,
    is_row: bool,
    is_closing: bool,
    /// Where the text after it begins.
    end: usize,
}

impl Fragments {
    /// The parts and rows of a page.
    pub(crate) fn of(html: &str) -> Fragments {
        let mut fragments = Fragments::default();
        let mut at = 0;
        while let Some((_, tag)) = next_tag(html, at) {
            at = tag.end;
            let Some(id) = tag.id.filter(|_| !tag.is_closing) else { continue };
            if tag.is_row {
                fragments.rows.insert(id.to_owned());
            }
            if tag.is_live
                && let Some((content, end)) = content(html, tag.name, tag.end)
            {
                fragments.parts.insert(id.to_owned(), content.to_owned());
                at = end;
            }
        }
        fragments
    }

    /// What a browser that has `self` must be told to have `newer`; `None` if nothing has changed.
    pub(crate) fn patch(&self, newer: &Fragments) -> Option<Value> {
        let changed = newer.parts.iter().filter(|(id, html)| self.parts.get(*id) != Some(*html));
        let changed = changed.map(|(id, html)| json!({ "id": id, "html": html }));
        let gone = self.rows.difference(&newer.rows).map(|id| json!({ "id": id, "gone": true }));
        let back = newer.rows.difference(&self.rows).map(|id| json!({ "id": id, "gone": false }));
        let patches: Vec<Value> = changed.chain(gone).chain(back).collect();
        (!patches.is_empty()).then(|| patches.into())
    }

    /// What a browser must be told that has the page as it was at some time: all parts, and which rows there are. All others are gone.
    pub(crate) fn full(&self) -> Value {
        let parts = self.parts.iter().map(|(id, html)| json!({ "id": id, "html": html }));
        parts.chain([json!({ "rows": self.rows })]).collect()
    }
}

/// The content of an element whose tag ends at `start`, and where the text after the element begins.
fn content<'a>(html: &'a str, name: &str, start: usize) -> Option<(&'a str, usize)> {
    let (mut at, mut depth) = (start, 1);
    while let Some((begin, tag)) = next_tag(html, at) {
        at = tag.end;
        if tag.name == name {
            depth += if tag.is_closing { -1 } else { 1 };
        }
        if depth == 0 {
            return Some((&html[start..begin], tag.end));
        }
    }
    None
}

/// The next tag at or after a position, and where it begins.
fn next_tag(html: &str, mut at: usize) -> Option<(usize, Tag<'_>)> {
    loop {
        let begin = at + html.get(at..)?.find('<')?;
        at = begin + 1;
        let is_closing = html[at..].starts_with('/');
        let name_at = at + usize::from(is_closing);
        let length = html[name_at..].find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')?;
        if length > 0 {
            let name = &html[name_at..name_at + length];
            return Some((begin, attributes(html, name_at + length, name, is_closing)?));
        }
    }
}

/// The attributes of a tag from `at` on; `None` if the tag does not end.
fn attributes<'a>(html: &'a str, mut at: usize, name: &'a str, is_closing: bool) -> Option<Tag<'a>> {
    let mut tag = Tag { name, id: None, is_live: false, is_row: false, is_closing, end: 0 };
    loop {
        at += html[at..].find(|letter: char| !letter.is_ascii_whitespace() && letter != '/')?;
        if html[at..].starts_with('>') {
            tag.end = at + 1;
            return Some(tag);
        }
        let length =
            html[at..].find(|letter: char| letter.is_ascii_whitespace() || "=>/".contains(letter))?;
        let attribute = &html[at..at + length];
        at += length;
        let mut value = "";
        if html[at..].starts_with("=\"") {
            let length = html[at + 2..].find('"')?;
            value = &html[at + 2..at + 2 + length];
            at += length + 3;
        } else if length == 0 {
            // No attribute begins like this: it is not one of our templates'.
            at += html[at..].chars().next().map_or(1, char::len_utf8);
        }
        match attribute {
            "id" => tag.id = Some(value),
            "data-live" => tag.is_live = true,
            "data-row" => tag.is_row = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_and_rows_are_found() {
        let html = r#"<main><ul><li id="r1" data-row><b id="s1" data-live class="x>y">a <i>b</i></b></li>
            <li data-row id="r2"><b id="s2" data-live><b>nested</b> &lt;b&gt;</b></li></ul>
            <p data-live>without an id</p><br><p id="p" data-live></p></main>"#;
        let found = Fragments::of(html);
        let parts: Vec<(&str, &str)> = found.parts.iter().map(|(id, html)| (&**id, &**html)).collect();
        assert_eq!(parts, [("p", ""), ("s1", "a <i>b</i>"), ("s2", "<b>nested</b> &lt;b&gt;")]);
        assert_eq!(found.rows.iter().collect::<Vec<_>>(), ["r1", "r2"]);
    }

    #[test]
    fn a_patch_has_what_changed_and_rows_that_are_gone_or_back() {
        let of = |first: &str, rows: &[&str]| {
            let rows: String = rows.iter().map(|id| format!("<tr id=\"{id}\" data-row></tr>")).collect();
            Fragments::of(&format!("<b id=\"a\" data-live>{first}</b><b id=\"c\" data-live>same</b>{rows}"))
        };
        let (old, new) = (of("1", &["x", "y"]), of("2", &["y", "z"]));
        let patch = old.patch(&new).expect("a patch");
        let (gone, back) = (json!({ "id": "x", "gone": true }), json!({ "id": "z", "gone": false }));
        assert_eq!(patch, json!([{ "id": "a", "html": "2" }, gone, back]));
        assert_eq!(old.patch(&old), None);
        let all = json!([{ "id": "a", "html": "2" }, { "id": "c", "html": "same" }, { "rows": ["y", "z"] }]);
        assert_eq!(new.full(), all, "for a browser of which nothing is known");
    }

    #[test]
    fn a_part_that_is_there_again_is_sent_again() {
        let (with, without) = (Fragments::of("<b id=\"a\" data-live>1</b>"), Fragments::of(""));
        assert_eq!(with.patch(&without), None);
        assert_eq!(without.patch(&with), Some(json!([{ "id": "a", "html": "1" }])));
    }

    proptest! {
        /// Whatever the text is, it is read to its end without a panic.
        #[test]
        fn any_text_is_read(html in r#"[<>/="a-c \-é!]{0,60}"#, tail in "\\PC{0,20}") {
            let _ = Fragments::of(&(html + &tail));
        }
    }
}
