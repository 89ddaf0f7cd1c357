//! What leads a page: the why-banner of one job, the attention list and the counters of many.

use askama::{Template, filters::HtmlSafe};

use super::{Action, Tone};
use crate::pages::{format::When, html::Html, icon::Icon};

/// The banner of a job or a branch: why it is where it is, what follows, what to do. Its id is `why`.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/why.html")]
pub(crate) struct Why {
    pub(crate) tone: Tone,
    pub(crate) icon: Icon,
    /// The question that it answers: "Why is it not running?"
    pub(crate) question: &'static str,
    /// The reason, and what follows if nothing happens.
    pub(crate) sentence: Html,
    /// What is usual for its kind, and what to do. May be empty.
    pub(crate) more: Html,
    /// The fitting actions; the first is the primary one.
    pub(crate) actions: Vec<Action>,
}

impl HtmlSafe for Why {}

/// One thing that needs someone: a row of the attention list, `<ul class="attention panel" data-list>`.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/attention.html")]
pub(crate) struct Attention {
    /// The id of the row.
    pub(crate) id: String,
    pub(crate) tone: Tone,
    pub(crate) icon: Icon,
    /// What is wrong, in a few words.
    pub(crate) title: Html,
    /// Where to see it.
    pub(crate) href: String,
    /// What follows, in a sentence.
    pub(crate) detail: Html,
    /// How long ago it began, and when.
    pub(crate) since: Option<(When, When)>,
    /// The fitting actions.
    pub(crate) actions: Vec<Action>,
}

impl HtmlSafe for Attention {}

/// A row of counters.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/counters.html")]
pub(crate) struct Counters {
    /// What is counted, for screen readers: "Jobs by state".
    pub(crate) label: &'static str,
    pub(crate) counters: Vec<Counter>,
    /// Whether they stand within a panel, without a border of their own.
    pub(crate) within: bool,
}

impl HtmlSafe for Counters {}

impl Counters {
    pub(crate) fn new(label: &'static str, counters: Vec<Counter>) -> Counters {
        Counters { label, counters, within: false }
    }

    pub(crate) fn within(mut self) -> Counters {
        self.within = true;
        self
    }
}

/// A number with its name, what is said about it, and a link to the list that it counts.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/counter.html")]
pub(crate) struct Counter {
    /// The id of its number.
    pub(crate) id: &'static str,
    /// The list that it counts; `None` if there is none.
    pub(crate) href: Option<String>,
    pub(crate) name: &'static str,
    pub(crate) icon: Option<(Tone, Icon)>,
    /// The number, or a word.
    pub(crate) value: String,
    /// What follows it in small: "of 532". May be empty.
    pub(crate) suffix: String,
    /// A line below: "oldest 41 min, in mail". May be empty.
    pub(crate) below: Html,
    /// The tone of the number, if it has one.
    pub(crate) tone: Option<Tone>,
}

impl HtmlSafe for Counter {}

impl Counter {
    pub(crate) fn new(id: &'static str, name: &'static str, value: &str) -> Counter {
        Counter {
            id,
            href: None,
            name,
            icon: None,
            value: value.to_owned(),
            suffix: String::new(),
            below: Html::new(),
            tone: None,
        }
    }

    pub(crate) fn href(mut self, href: &str) -> Counter {
        self.href = Some(href.to_owned());
        self
    }

    pub(crate) fn icon(mut self, tone: Tone, icon: Icon) -> Counter {
        self.icon = Some((tone, icon));
        self
    }

    pub(crate) fn suffix(mut self, text: &str) -> Counter {
        self.suffix = text.to_owned();
        self
    }

    pub(crate) fn below(mut self, html: Html) -> Counter {
        self.below = html;
        self
    }

    pub(crate) fn tone(mut self, tone: Tone) -> Counter {
        self.tone = Some(tone);
        self
    }
}
