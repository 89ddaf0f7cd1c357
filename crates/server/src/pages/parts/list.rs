//! What stands around a list: tabs, filters, the bar of newer rows, what is folded, the way to other pages.

use askama::{Template, filters::HtmlSafe};

use crate::pages::{
    format::{counted, thousands},
    html::{Html, Text},
    icon::Icon,
};

/// Tabs that filter a list, usually by state.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/tabs.html")]
pub(crate) struct Tabs {
    /// What they choose, for screen readers: "State".
    pub(crate) label: &'static str,
    pub(crate) tabs: Vec<Tab>,
}

impl HtmlSafe for Tabs {}

/// A tab.
#[derive(Clone, Debug)]
pub(crate) struct Tab {
    pub(crate) name: String,
    pub(crate) href: String,
    pub(crate) icon: Option<Icon>,
    /// How many rows it has; may be empty.
    pub(crate) count: String,
    /// The id of the number, for live updates.
    pub(crate) id: String,
    pub(crate) is_current: bool,
}

/// The filters of a list: each is a chip with a link that removes it, and a form adds one.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/filters.html")]
pub(crate) struct Filters {
    /// The list, without its filters.
    pub(crate) action: String,
    pub(crate) chips: Vec<Chip>,
    /// What the form has besides its fields: the filters that are set.
    pub(crate) hidden: Vec<(String, String)>,
    /// The filters that can be added.
    pub(crate) fields: Vec<FilterField>,
}

impl HtmlSafe for Filters {}

/// A filter that is set.
#[derive(Clone, Debug)]
pub(crate) struct Chip {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The list without it.
    pub(crate) without: String,
}

impl Chip {
    fn shown(&self) -> Text<'_> {
        Text::cut(&self.value, 40)
    }
}

/// A filter that can be added.
#[derive(Clone, Debug)]
pub(crate) struct FilterField {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    /// An example, or what is meant.
    pub(crate) hint: &'static str,
    /// The values to choose from; empty for any text.
    pub(crate) values: Vec<String>,
}

/// The bar that says how many rows came since the page was made: "14 newer jobs · show". New rows never push others down.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/newer.html")]
pub(crate) struct Newer {
    pub(crate) count: u64,
    /// What is counted, one and many: `("job", "jobs")`.
    pub(crate) noun: (&'static str, &'static str),
    /// The list from its newest row.
    pub(crate) href: String,
}

impl HtmlSafe for Newer {}

impl Newer {
    fn text(&self) -> String {
        counted(self.count, &format!("newer {}", self.noun.0), &format!("newer {}", self.noun.1))
    }
}

/// The foot of a list: how much of it is shown, and links to the rows before and after.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/pages.html")]
pub(crate) struct Pages {
    /// "50 of 1,204 jobs".
    pub(crate) text: String,
    /// The first page, if this is another one.
    pub(crate) first: Option<String>,
    /// The next page.
    pub(crate) next: Option<String>,
}

impl HtmlSafe for Pages {}

/// What is left out between two rows, with a link to it: "1,204 more entries".
#[derive(Clone, Debug, Template)]
#[template(path = "parts/fold.html")]
pub(crate) struct Fold {
    pub(crate) text: Html,
    pub(crate) href: Option<String>,
}

impl HtmlSafe for Fold {}

impl Fold {
    /// So many rows that are not shown.
    pub(crate) fn more(count: u64, many: &str, href: &str) -> Fold {
        Fold { text: Html::words(&format!("{} more {many}", thousands(count))), href: Some(href.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_newer_is_an_empty_bar() {
        let newer = |count| Newer { count, noun: ("job", "jobs"), href: "/jobs".into() };
        assert!(newer(0).to_string().contains(" data-live></div>"));
        assert!(newer(1).to_string().contains(">1 newer job · show</a>"));
        assert!(newer(1_400).to_string().contains(">1,400 newer jobs · show</a>"));
    }
}
