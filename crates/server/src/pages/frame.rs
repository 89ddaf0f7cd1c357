//! What surrounds every page: navigation, search, the reader's preferences, who they are.
//!
//! A page is an askama template that extends `base.html` and has a field `frame: Frame`. [`render`] makes the response of it, with the
//! symbols that it uses. Everything in the frame is a link or a form, so it works without the script.

use askama::Template;
use windlass::Time;

use super::{
    assets,
    format::{Clock, rfc3339},
    icon::{self, Icon},
    parts::Message,
};

/// What `base.html` shows around a page.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// What the page shows: the title of its window.
    pub(crate) title: String,
    /// The id of its item in the navigation; empty if it has none.
    pub(crate) here: &'static str,
    /// Its path and query: where the forms of the frame return to.
    pub(crate) path: String,
    /// The navigation, from [`navigation`].
    pub(crate) nav: Vec<NavGroup>,
    /// Who looks at it; `None` where no login is needed.
    pub(crate) user: Option<User>,
    /// Whether the reader may change jobs. Buttons that they may not use are not drawn.
    pub(crate) may_act: bool,
    /// Whether the reader may change users, tokens and rules.
    pub(crate) may_administer: bool,
    /// The token that every form posts in its field `csrf`.
    pub(crate) csrf: String,
    /// How the reader wants to see pages.
    pub(crate) preferences: Preferences,
    /// The store's clock.
    pub(crate) now: Time,
    /// The name of the installation, for example `production`; may be empty.
    pub(crate) place: String,
    /// The build and the kind of the store: `0.1.0 · PostgreSQL`.
    pub(crate) build: String,
    /// The stream with the page's updates; `None` if it has none.
    pub(crate) live: Option<String>,
    /// What came of the request that led here.
    pub(crate) message: Option<Message>,
}

/// Items of the navigation under one heading.
#[derive(Clone, Debug)]
pub(crate) struct NavGroup {
    /// The heading; empty for the first group.
    pub(crate) name: &'static str,
    pub(crate) items: Vec<NavItem>,
}

/// A link in the navigation.
#[derive(Clone, Debug)]
pub(crate) struct NavItem {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) href: &'static str,
    pub(crate) icon: Icon,
    /// The key after `g` that leads to it.
    pub(crate) key: char,
    /// A number beside it; may be empty.
    pub(crate) count: String,
    /// Whether the number needs someone.
    pub(crate) hot: bool,
}

/// Whoever is logged in.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    /// `viewer`, `operator` or `admin`.
    pub(crate) role: String,
}

impl User {
    /// Up to two letters for the badge: of the parts of the name, or its first two.
    pub(crate) fn initials(&self) -> String {
        let parts = || self.name.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
        let initials: String = match parts().nth(1) {
            Some(_) => parts().take(2).filter_map(|part| part.chars().next()).collect(),
            None => parts().flat_map(str::chars).take(2).collect(),
        };
        initials.to_uppercase()
    }
}

/// Light or dark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Theme {
    /// Dark text on light ground.
    Light,
    /// Light text on dark ground.
    Dark,
}

/// How a reader wants to see pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Preferences {
    /// The theme; `None` for the system's.
    pub(crate) theme: Option<Theme>,
    /// Whether times are shown as dates and not as `3 min ago`.
    pub(crate) absolute_times: bool,
    /// Whether times are in UTC and not in the browser's zone. Without the script they are in UTC.
    pub(crate) utc: bool,
}

impl Preferences {
    /// The theme as a value of the form: `system`, `light` or `dark`.
    pub(crate) fn theme(self) -> &'static str {
        match self.theme {
            None => "system",
            Some(Theme::Light) => "light",
            Some(Theme::Dark) => "dark",
        }
    }

    /// How times are shown, as a value of the form.
    pub(crate) fn times(self) -> &'static str {
        if self.absolute_times { "absolute" } else { "relative" }
    }

    /// The zone of times, as a value of the form.
    pub(crate) fn zone(self) -> &'static str {
        if self.utc { "utc" } else { "local" }
    }

    /// What the form offers.
    pub(crate) fn choices(self) -> [Choice; 3] {
        let choice = |legend, name, chosen: &'static str, values: &[(&'static str, &'static str)]| Choice {
            legend,
            name,
            values: values.iter().map(|(value, label)| (*value, *label, *value == chosen)).collect(),
        };
        [
            choice(
                "Theme",
                "theme",
                self.theme(),
                &[("system", "System"), ("light", "Light"), ("dark", "Dark")],
            ),
            choice("Times", "times", self.times(), &[("relative", "Relative"), ("absolute", "Absolute")]),
            choice("Zone", "zone", self.zone(), &[("local", "Local"), ("utc", "UTC")]),
        ]
    }
}

/// A preference in the form.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) legend: &'static str,
    /// The field.
    pub(crate) name: &'static str,
    /// Values of the field, what their buttons say, and whether they are chosen.
    pub(crate) values: Vec<(&'static str, &'static str, bool)>,
}

impl Frame {
    /// The clock that the page's times are made from.
    pub(crate) fn clock(&self) -> Clock {
        Clock { now: self.now, relative: !self.preferences.absolute_times }
    }

    /// The title of the window.
    pub(crate) fn window_title(&self) -> String {
        match self.place.as_str() {
            "" => format!("{} · Windlass", self.title),
            place => format!("{} · {place} · Windlass", self.title),
        }
    }

    /// The store's clock for the script.
    pub(crate) fn now_text(&self) -> String {
        rfc3339(self.now)
    }

    /// The items of the bar at the bottom of a phone.
    pub(crate) fn tabs(&self) -> impl Iterator<Item = &NavItem> {
        let items = self.nav.iter().flat_map(|group| &group.items);
        items.filter(|item| ["overview", "jobs", "failures", "queues"].contains(&item.id))
    }

    pub(crate) fn script(&self) -> &'static str {
        assets::script()
    }
}

/// The navigation. `count` gives the number beside an item, and whether it needs someone.
pub(crate) fn navigation(count: impl Fn(&str) -> Option<(String, bool)>) -> Vec<NavGroup> {
    let item = |id, name, href, icon, key| {
        let (count, hot) = count(id).unwrap_or_default();
        NavItem { id, name, href, icon, key, count, hot }
    };
    vec![
        NavGroup { name: "", items: vec![item("overview", "Overview", "/", Icon::Home, 'o')] },
        NavGroup {
            name: "Work",
            items: vec![
                item("jobs", "Jobs", "/jobs", Icon::Jobs, 'j'),
                item("branches", "Branches", "/branches", Icon::Branches, 'b'),
                item("waiting", "Waiting", "/waiting", Icon::Waiting, 'w'),
                item("failures", "Failures", "/failures", Icon::Failures, 'f'),
                item("schedules", "Schedules", "/schedules", Icon::Schedules, 's'),
                item("queues", "Queues", "/queues", Icon::Queues, 'q'),
                item("workers", "Workers", "/workers", Icon::Workers, 'h'),
            ],
        },
        NavGroup {
            name: "Look back",
            items: vec![
                item("analytics", "Analytics", "/analytics", Icon::Analytics, 'a'),
                item("audit", "Audit", "/audit", Icon::Audit, 'l'),
                item("access", "Access", "/access", Icon::Access, 'u'),
            ],
        },
    ]
}

/// Renders a page, with the symbols that it uses.
pub(crate) fn render(page: &impl Template) -> askama::Result<String> {
    Ok(icon::with_sprite(&page.render()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_shows_what_is_chosen() {
        let dark = Preferences { theme: Some(Theme::Dark), absolute_times: true, utc: false };
        for preferences in [dark, Preferences::default()] {
            let chosen = preferences.choices().map(|choice| {
                let chosen: Vec<&str> =
                    choice.values.iter().filter(|(.., chosen)| *chosen).map(|(value, ..)| *value).collect();
                assert_eq!(chosen.len(), 1, "{}", choice.name);
                chosen[0]
            });
            assert_eq!(chosen, [preferences.theme(), preferences.times(), preferences.zone()]);
        }
    }

    #[test]
    fn badges_have_two_letters() {
        let initials = |name: &str| User { name: name.into(), role: String::new() }.initials();
        assert_eq!(
            [initials("mira"), initials("p.nowak"), initials("ß"), initials("")],
            ["MI", "PN", "SS", ""]
        );
    }

    #[test]
    fn a_key_leads_to_one_page() {
        let items: Vec<NavItem> = navigation(|_| None).into_iter().flat_map(|group| group.items).collect();
        for item in &items {
            assert_eq!(items.iter().filter(|other| other.key == item.key).count(), 1, "{}", item.id);
        }
    }
}
