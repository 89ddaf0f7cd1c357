//! Messages: a note within a page, what came of a request, a list without rows.

use askama::{Template, filters::HtmlSafe};

use super::{Action, Tone};
use crate::pages::{html::Html, icon::Icon};

/// A warning or an explanation within a page.
#[derive(Clone, Debug, Template)]
#[template(
    source = "<div class=\"note {{ tone.class() }}\"{% if tone == Tone::Bad %} role=\"alert\"{% endif %}>{{ icon }}<div>{{ text }}</div></div>",
    ext = "html"
)]
pub(crate) struct Note {
    pub(crate) tone: Tone,
    pub(crate) icon: Icon,
    pub(crate) text: Html,
}

impl HtmlSafe for Note {}

impl Note {
    /// What will probably happen.
    pub(crate) fn warning(text: Html) -> Note {
        Note { tone: Tone::Warn, icon: Icon::Warn, text }
    }

    /// What went wrong, what is not lost, and what to do.
    pub(crate) fn error(text: Html) -> Note {
        Note { tone: Tone::Bad, icon: Icon::Failed, text }
    }

    /// What is good to know.
    pub(crate) fn info(text: Html) -> Note {
        Note { tone: Tone::Idle, icon: Icon::Info, text }
    }
}

/// What came of the request that led to a page. It goes away by itself, unless it is an error.
#[derive(Clone, Debug, Template)]
#[template(
    source = "<div class=\"toast {{ tone.class() }}\" data-done{% if tone == Tone::Bad %} role=\"alert\"{% endif %}>{{ self.icon() }}<div>{{ text }}</div></div>",
    ext = "html"
)]
pub(crate) struct Message {
    pub(crate) tone: Tone,
    pub(crate) text: Html,
}

impl HtmlSafe for Message {}

impl Message {
    /// The icon of its tone.
    pub(crate) fn icon(&self) -> Icon {
        match self.tone {
            Tone::Bad => Icon::Failed,
            Tone::Warn => Icon::Warn,
            _ => Icon::Done,
        }
    }
}

/// What stands where rows would: why there are none, and what to do.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/blank.html")]
pub(crate) struct Blank {
    pub(crate) icon: Icon,
    pub(crate) title: String,
    pub(crate) text: Html,
    pub(crate) actions: Vec<Action>,
}

impl HtmlSafe for Blank {}
