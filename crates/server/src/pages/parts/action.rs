//! Buttons. One that ends in "…" is a link to a preview; one without posts at once, and may be pressed twice.

use askama::{Template, filters::HtmlSafe};

use crate::pages::icon::Icon;

/// A button: a link, or a form with one button.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "parts/action.html")]
pub(crate) struct Action {
    text: String,
    target: Target,
    /// Further classes.
    classes: String,
    icon: Option<Icon>,
    /// Its name in the command palette; empty if it is not there.
    command: String,
    /// The key that presses it.
    key: Option<char>,
}

/// What a button does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// It leads to a page.
    Link(String),
    /// It posts these fields to a URL.
    Post(String, Vec<(&'static str, String)>),
}

impl HtmlSafe for Action {}

impl Action {
    /// A button that leads to a page, or to a preview.
    pub(crate) fn link(text: &str, href: &str) -> Action {
        Action::new(text, Target::Link(href.to_owned()))
    }

    /// A button that acts at once. `csrf` is that of the frame.
    pub(crate) fn post(text: &str, url: &str, csrf: &str) -> Action {
        Action::new(text, Target::Post(url.to_owned(), vec![("csrf", csrf.to_owned())]))
    }

    fn new(text: &str, target: Target) -> Action {
        Action {
            text: text.to_owned(),
            target,
            classes: String::new(),
            icon: None,
            command: String::new(),
            key: None,
        }
    }

    /// Adds a field to what it posts.
    pub(crate) fn field(mut self, name: &'static str, value: &str) -> Action {
        if let Target::Post(_, fields) = &mut self.target {
            fields.push((name, value.to_owned()));
        }
        self
    }

    /// The one that fits best. A page shows one of these at a time.
    pub(crate) fn primary(self) -> Action {
        self.looking(" primary")
    }

    /// It ends or deletes something.
    pub(crate) fn danger(self) -> Action {
        self.looking(" danger")
    }

    /// Without a border.
    pub(crate) fn quiet(self) -> Action {
        self.looking(" quiet")
    }

    /// As high as a row.
    pub(crate) fn small(self) -> Action {
        self.looking(" small")
    }

    fn looking(mut self, class: &str) -> Action {
        self.classes += class;
        self
    }

    pub(crate) fn icon(mut self, icon: Icon) -> Action {
        self.icon = Some(icon);
        self
    }

    /// Puts it into the command palette under this name.
    pub(crate) fn command(mut self, name: &str) -> Action {
        self.command = name.to_owned();
        self
    }

    /// Lets a key press it: `r` for retry, `y` to copy the id.
    pub(crate) fn key(mut self, key: char) -> Action {
        self.key = Some(key);
        self
    }

    /// Whether it leads to a preview, which the script opens beside the page.
    fn opens_preview(&self) -> bool {
        matches!(&self.target, Target::Link(href) if href.contains("preview="))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_preview_opens_next_to_the_page() {
        let retry = Action::link("Retry…", "/jobs?state=failed&preview=retry").primary().key('r');
        assert_eq!(
            retry.to_string(),
            "<a class=\"btn primary\" href=\"/jobs?state=failed&#38;preview=retry\" data-preview data-key=\"r\">Retry…</a>"
        );
    }

    #[test]
    fn a_post_has_the_token_and_its_fields() {
        let resume = Action::post("Resume", "/queues/mail/resume", "t\"").field("note", "<ok>").small();
        assert_eq!(
            resume.to_string(),
            "<form class=\"inline\" method=\"post\" action=\"/queues/mail/resume\"><input type=\"hidden\" name=\"csrf\" value=\"t&#34;\">\
             <input type=\"hidden\" name=\"note\" value=\"&#60;ok&#62;\"><button class=\"btn small\">Resume</button></form>"
        );
    }
}
