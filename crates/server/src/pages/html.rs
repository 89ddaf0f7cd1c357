//! HTML that is sent as it is, and the text of users in it.
//!
//! [`Html`] is the only type whose text templates do not escape, besides the parts, which are templates themselves. What always
//! holds: whatever a user wrote goes through [`escape`], and through [`Text`] where it stands in a sentence or a cell.

use std::fmt::{self, Display, Write};

use askama::filters::HtmlSafe;

/// HTML made by this server.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Html(String);

impl HtmlSafe for Html {}

impl Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Sentences are built from left to right: `Html::text("It waits for ").bold("picked").text(".")`.
impl Html {
    /// Nothing.
    pub(crate) fn new() -> Html {
        Html::default()
    }

    /// Words of this server. They are escaped.
    pub(crate) fn words(text: &str) -> Html {
        Html::new().text(text)
    }

    /// Something that writes HTML of its own: a part, an icon, a time.
    pub(crate) fn part(part: impl HtmlSafe) -> Html {
        Html(part.to_string())
    }

    /// HTML that the caller wrote, with what it has from users escaped.
    pub(super) fn trusted(html: String) -> Html {
        Html(html)
    }

    /// Adds words of this server.
    pub(crate) fn text(mut self, text: &str) -> Html {
        push_escaped(&mut self.0, text);
        self
    }

    /// Adds what a user wrote, up to the length of a name.
    pub(crate) fn user(self, text: &str) -> Html {
        self.add(Text::name(text))
    }

    /// Adds what a user wrote, in bold.
    pub(crate) fn bold(mut self, text: &str) -> Html {
        let _ = write!(self.0, "<b>{}</b>", Text::name(text));
        self
    }

    /// Adds an identifier or code.
    pub(crate) fn code(mut self, text: &str) -> Html {
        let _ = write!(self.0, "<code>{}</code>", Text::name(text));
        self
    }

    /// Adds a link.
    pub(crate) fn link(mut self, href: &str, text: &str) -> Html {
        let _ = write!(self.0, "<a class=\"link\" href=\"{}\">{}</a>", escape(href), Text::name(text));
        self
    }

    /// Adds something that writes HTML of its own.
    pub(crate) fn add(mut self, part: impl HtmlSafe) -> Html {
        let _ = write!(self.0, "{part}");
        self
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The HTML.
    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes text for HTML, and for attributes in double quotes.
pub(crate) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    push_escaped(&mut html, text);
    html
}

pub(super) fn push_escaped(html: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
}

/// Characters of a name in a cell or a sentence.
const NAME: usize = 80;
/// Characters of an error or a note before "show all".
const PARAGRAPH: usize = 600;
/// Characters in a tooltip. A page may have a hundred of them.
const TOOLTIP: usize = 200;
/// Characters after "show all". Whatever is longer has a page or a download of its own.
const ALL: usize = 16_000;

/// Text of a user: its direction does not change that of its surroundings, control characters are visible, and it is cut at a length
/// with a way to see more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    text: &'a str,
    most: usize,
    folds: bool,
}

impl<'a> Text<'a> {
    /// A name, a key or a short message in one line. What is cut is in a tooltip.
    pub(crate) fn name(text: &'a str) -> Text<'a> {
        Text::cut(text, NAME)
    }

    /// One line of at most this many characters. What is cut is in a tooltip.
    pub(crate) fn cut(text: &'a str, most: usize) -> Text<'a> {
        Text { text, most, folds: false }
    }

    /// An error or a note, with its line breaks. What is cut opens by "show all".
    pub(crate) fn long(text: &'a str) -> Text<'a> {
        Text { text, most: PARAGRAPH, folds: true }
    }
}

impl HtmlSafe for Text<'_> {}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Text { text, most, folds } = *self;
        let is_cut = text.char_indices().nth(most).is_some();
        match (folds, is_cut) {
            (false, false) => write!(f, "<bdi>{}</bdi>", Visible { text, most, lines: false }),
            (false, true) => {
                let tooltip = Visible { text, most: TOOLTIP, lines: false };
                let shown = Visible { text, most: most - 1, lines: false };
                write!(f, "<bdi title=\"{tooltip}\">{shown}…</bdi>")
            }
            (true, false) => write!(f, "<bdi class=\"long\">{}</bdi>", Visible { text, most, lines: true }),
            (true, true) => {
                let count = windlass::operate::text::thousands(text.chars().count() as u64);
                let (shown, all) =
                    (Visible { text, most, lines: true }, Visible { text, most: ALL, lines: true });
                write!(
                    f,
                    "<details class=\"all\"><summary><bdi class=\"long\">{shown}…</bdi> <span class=\"link\">show all \
                     {count} characters</span></summary><bdi class=\"long\">{all}</bdi></details>"
                )
            }
        }
    }
}

/// Text with visible control characters, escaped, of at most so many characters.
struct Visible<'a> {
    text: &'a str,
    most: usize,
    /// Whether line breaks and tabs stay what they are.
    lines: bool,
}

impl Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.text.chars().take(self.most) {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' if self.lines => f.write_char(c)?,
                // The control pictures, one for each of the first 32 characters.
                '\0'..='\u{1f}' => f.write_char(char::from_u32(0x2400 + c as u32).unwrap_or('␦'))?,
                '\u{7f}' => f.write_char('␡')?,
                c if is_invisible(c) => write!(f, "⟨U+{:04X}⟩", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Whether a character has no width, or changes the direction or the lines of what follows it.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_of_users_is_text() {
        let html = Html::words("It is <b>").user("<script>alert('x')</script>").link("/jobs?q=\"", "a & b");
        assert_eq!(
            html.as_str(),
            "It is &lt;b&gt;<bdi>&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;</bdi><a class=\"link\" \
             href=\"/jobs?q=&quot;\"><bdi>a &amp; b</bdi></a>"
        );
    }

    #[test]
    fn control_characters_are_visible_and_directions_stay_inside() {
        assert_eq!(Text::name("a\0b\nc\u{7f}").to_string(), "<bdi>a␀b␊c␡</bdi>");
        assert_eq!(Text::name("\u{202e}gpj.exe\u{200b}").to_string(), "<bdi>⟨U+202E⟩gpj.exe⟨U+200B⟩</bdi>");
        assert_eq!(Text::long("a\n\tb").to_string(), "<bdi class=\"long\">a\n\tb</bdi>");
    }

    #[test]
    fn long_text_is_cut_with_a_way_to_see_more() {
        let key = "k".repeat(10_000);
        let cell = Text::name(&key).to_string();
        assert!(cell.len() < 320, "{} bytes", cell.len());
        assert!(cell.contains("title=\"kkkk") && cell.ends_with("k…</bdi>"));
        let note = Text::long(&key).to_string();
        assert!(note.contains("show all 10,000 characters") && note.contains(&key));
        assert_eq!(Text::cut("abcd", 4).to_string(), "<bdi>abcd</bdi>");
        assert_eq!(Text::cut("abcde", 4).to_string(), "<bdi title=\"abcde\">abc…</bdi>");
    }
}
