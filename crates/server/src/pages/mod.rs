//! The dashboard: pages for people, made by this server.
//!
//! In reading order: `page` is a page and the request for it; `form`, `cookies` and `session` are what browsers send. `frame` is what surrounds
//! every page; `html` and `format` write text, numbers and times; `icon` has the symbols; `parts` are what pages are made of, with `bars`,
//! `charts`, `calendar`, `timeline`, `payload` and `diagram` (laid out by `layers`) for what is drawn; `assets` are the stylesheet and the script;
//! `components` is a page that shows each part once. `live` updates open pages, from reads that `cache` and `numbers` share. Every
//! other file is a page, with the forms on it.
//!
//! What always holds: a page reads what the commands read, through `windlass::operate`, and never more than a bounded number of rows. It works
//! without script, and has no style or script within it. A form changes something only with the token that its page had, in the name of whoever is
//! logged in. What users wrote is escaped by the templates or by `html`, and the size of a page is bounded whatever they wrote.

mod access;
mod analytics;
mod assets;
mod audit;
mod bars;
mod branch;
mod branches;
mod cache;
mod calendar;
mod charts;
mod components;
mod cookies;
mod diagram;
mod failures;
mod find;
mod form;
mod format;
mod frame;
mod html;
mod icon;
mod job;
mod jobs;
mod layers;
pub(crate) mod live;
mod numbers;
mod operation;
mod overview;
pub(crate) mod page;
mod parts;
mod payload;
mod preferences;
mod queues;
mod schedules;
pub(crate) mod session;
mod shared_views;
mod submit;
mod timeline;
mod trouble;
#[cfg(test)]
mod viewer_tests;
mod waiting;
mod workers;

use std::sync::Arc;

use windlass::{Engine, Time, operate::views::Situation, store::StateCount};

use self::{
    cache::Cache,
    live::hub::Hub,
    numbers::Numbers,
    page::{Page, page},
    shared_views::SharedViews,
};
use crate::{error::Error, logins::Logins, routes::Route, server::Shared};

pub(crate) use trouble::{no_such_page, trouble};

/// What all pages share.
pub(crate) struct Pages {
    pub(crate) live: Arc<Hub>,
    numbers: Cache<(), Numbers>,
    counts: Cache<(), Vec<StateCount>>,
    situation: Cache<(), Situation>,
    views: SharedViews,
    /// Makes the tokens of forms where nobody logs in. It is new at every start.
    pub(crate) key: String,
    pub(crate) logins: Logins,
    /// The build and the kind of the store.
    build: String,
}

impl Pages {
    pub(crate) fn new(engine: &Engine) -> Pages {
        let store = match engine.url().split(':').next() {
            Some("sqlite") => "SQLite",
            Some("postgres" | "postgresql") => "PostgreSQL",
            _ => "memory",
        };
        Pages {
            live: Hub::new(),
            numbers: Cache::new(numbers::KEPT),
            counts: Cache::new(numbers::KEPT),
            situation: Cache::new(numbers::KEPT),
            views: SharedViews::new(numbers::KEPT),
            key: session::new_key(),
            logins: Logins::new(),
            build: format!("{} · {store}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// The store's clock.
    pub(crate) async fn now(&self, shared: &Shared) -> Result<Time, Error> {
        Ok(shared.engine.inspect().clock().await?)
    }

    /// Forgets what was read: a form has changed something, and the next page shows it.
    pub(crate) fn forget(&self) {
        self.numbers.clear();
        self.counts.clear();
        self.situation.clear();
        self.views.clear();
    }

    /// The numbers that are on every page.
    pub(crate) async fn numbers(&self, shared: &Shared) -> Result<Arc<Numbers>, Error> {
        let counts = self.counts(shared).await?;
        self.numbers.get(&(), async || Ok(Numbers::of_counts(&counts))).await
    }

    /// How many jobs of each queue and kind are in each state.
    pub(crate) async fn counts(&self, shared: &Shared) -> Result<Arc<Vec<StateCount>>, Error> {
        let read = async || Ok(shared.engine.inspect().state_counts().await?);
        self.counts.get(&(), read).await
    }

    /// What holds many jobs at once.
    pub(crate) async fn situation(&self, shared: &Shared) -> Result<Arc<Situation>, Error> {
        let read = async || Ok(Situation::read(&shared.operator).await?);
        self.situation.get(&(), read).await
    }
}

/// All pages.
static PAGES: &[Page] = &[
    page!("/components", components::show),
    page!("/", overview::show),
    page!("/access", access::show),
    page!("/analytics", analytics::show),
    page!("/audit", audit::show),
    page!("/branches", branches::show),
    page!("/failures", failures::show),
    page!("/jobs", jobs::show),
    page!("/jobs/{job}", job::show),
    page!("/jobs/{job}/branches/{branch}", branch::show),
    page!("/operations/{id}", operation::show),
    page!("/queues", queues::show),
    page!("/schedules", schedules::show),
    page!("/submit", submit::show),
    page!("/waiting", waiting::show),
    page!("/workers", workers::show),
];

/// All pages.
pub(crate) fn pages() -> &'static [Page] {
    PAGES
}

/// The entries of the navigation that lead to pages.
fn existing(mut groups: Vec<frame::NavGroup>) -> Vec<frame::NavGroup> {
    for group in &mut groups {
        group.items.retain(|item| PAGES.iter().any(|page| page.path == item.href));
    }
    groups.retain(|group| !group.items.is_empty());
    groups
}

/// The routes of all pages and of their forms.
pub(crate) fn routes() -> Vec<Route> {
    let pages = PAGES.iter().map(page::route);
    let parts = [
        session::routes(),
        preferences::routes(),
        find::routes(),
        assets::routes(),
        access::act::routes(),
        jobs::act::routes(),
        job::act::routes(),
        branch::act::routes(),
        operation::routes(),
        queues::routes(),
        vec![page::live_route()],
        schedules::routes(),
        submit::routes(),
    ];
    pages.chain(parts.into_iter().flatten()).collect()
}
