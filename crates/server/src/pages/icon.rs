//! Icons: one list of symbols, of which a page has only those that it uses.
//!
//! A template writes `{{ Icon::Plus }}`, which refers to a symbol. [`with_sprite`] adds the symbols and fill patterns that a page
//! refers to at its end, and those of the states, which live updates may bring.

use std::{
    fmt::{self, Display},
    sync::LazyLock,
};

use askama::filters::HtmlSafe;

use super::html::Html;

/// The symbols and patterns, one on each line.
const SYMBOLS: &str = include_str!("../../assets/icons.svg");

/// Where a page has its symbols.
pub(super) const PLACE: &str = "<!--symbols-->";

/// Declares the icons once, with the names of their symbols.
macro_rules! icons {
    ($($icon:ident = $name:literal,)+) => {
        /// An icon, drawn in the colour of its surroundings. It is hidden from screen readers: a word stands beside it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(dead_code, reason = "a part that no page uses yet")]
        pub(crate) enum Icon {
            $(#[doc = $name] $icon,)+
        }

        impl Icon {
            /// All icons.
            #[cfg(test)]
            pub(crate) const ALL: &[Icon] = &[$(Icon::$icon),+];

            /// The name of its symbol.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Icon::$icon => $name,)+
                }
            }
        }
    };
}

icons! {
    Running = "running",
    Ready = "ready",
    Scheduled = "scheduled",
    Waiting = "waiting",
    Done = "done",
    Failed = "failed",
    Cancelled = "cancelled",
    Paused = "paused",
    Held = "held",
    Blocked = "blocked",
    Warn = "warn",
    Info = "info",
    Drain = "drain",
    Home = "home",
    Jobs = "jobs",
    Branches = "branches",
    Failures = "failures",
    Schedules = "schedules",
    Queues = "queues",
    Workers = "workers",
    Analytics = "analytics",
    Audit = "audit",
    Access = "access",
    Plus = "plus",
    Close = "close",
    Search = "search",
    Down = "down",
    Retry = "retry",
    Copy = "copy",
    Send = "send",
    Display = "display",
    Asleep = "asleep",
    Undo = "undo",
    More = "more",
    Flag = "flag",
    Link = "link",
    Download = "download",
    Fork = "fork",
    Lost = "lost",
    Play = "play",
    Signal = "signal",
    Out = "out",
}

/// Those that live updates and the script may bring to any page.
const ALWAYS: [Icon; 13] = [
    Icon::Running,
    Icon::Ready,
    Icon::Scheduled,
    Icon::Waiting,
    Icon::Done,
    Icon::Failed,
    Icon::Cancelled,
    Icon::Paused,
    Icon::Held,
    Icon::Blocked,
    Icon::Warn,
    Icon::Drain,
    Icon::Close,
];

impl HtmlSafe for Icon {}

impl Display for Icon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<svg class=\"i\" aria-hidden=\"true\"><use href=\"#i-{}\"/></svg>", self.name())
    }
}

/// The symbols and patterns by their ids.
static BY_ID: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let id = |line: &'static str| line.split('"').nth(1).unwrap_or_default();
    SYMBOLS.lines().map(|line| (id(line), line)).collect()
});

/// Puts the symbols that a page uses where its template has the place for them.
pub(super) fn with_sprite(page: &str) -> String {
    let Some((before, after)) = page.split_once(PLACE) else { return page.to_owned() };
    format!("{before}{}{after}", sprite(page))
}

/// The symbols and patterns that some HTML refers to.
pub(super) fn sprite(html: &str) -> Html {
    let mut used: Vec<&str> = Vec::new();
    for (start, _) in html.match_indices("#i-").chain(html.match_indices("#p-")) {
        let rest = &html[start + 1..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        used.push(&rest[..end]);
    }
    let is_used =
        |id: &str| used.contains(&id) || ALWAYS.iter().any(|icon| id.strip_prefix("i-") == Some(icon.name()));
    let symbols: String = BY_ID.iter().filter(|(id, _)| is_used(id)).map(|(_, line)| *line).collect();
    Html::trusted(format!(
        "<svg class=\"sprite\" width=\"0\" height=\"0\" aria-hidden=\"true\">{symbols}</svg>"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_icon_has_its_symbol_and_each_symbol_its_icon() {
        let symbols: Vec<&str> = BY_ID.iter().filter_map(|(id, _)| id.strip_prefix("i-")).collect();
        let icons: Vec<&str> = Icon::ALL.iter().map(|icon| icon.name()).collect();
        assert_eq!(symbols, icons);
    }

    #[test]
    fn a_page_has_the_symbols_that_it_uses() {
        let page = format!("{}<rect fill=\"url(#p-bad)\"/>{PLACE}", Icon::Plus);
        let page = with_sprite(&page);
        assert!(page.contains("<symbol id=\"i-plus\"") && page.contains("<pattern id=\"p-bad\""));
        assert!(page.contains("<symbol id=\"i-failed\""), "any state may come");
        assert!(
            !page.contains("<symbol id=\"i-undo\"")
                && !page.contains("id=\"p-wait\"")
                && !page.contains(PLACE)
        );
    }
}
