//! The dashboard: pages for people, made by this server.
//!
//! In reading order: `page` is a page and the request for it, `frame` what is around every page; `form`, `cookies` and `session` are what
//! browsers send; `format`, `parts` and `charts` make text, components and drawings, which the templates in `templates` use; `live` updates open pages,
//! from reads that `cache` and `numbers` share. Every other file is a page, with the forms on it.
//!
//! What always holds: a page reads what the commands read, by way of `windlass::operate`, and never more than a bounded number of rows. It works
//! without script. A form changes something only with the token that its page had, in the name of whoever is logged in. Text from users is escaped.

mod cache;
mod cookies;
mod find;
mod form;
pub(crate) mod live;
mod numbers;
pub(crate) mod page;
mod preferences;
pub(crate) mod session;
mod trouble;

use std::sync::{Arc, Mutex};

use windlass::{Engine, Time};

use self::{cache::Cache, live::hub::Hub, numbers::Numbers, page::Page};
use crate::{error::Error, logins::Logins, routes::Route, server::Shared};

pub(crate) use trouble::{no_such_page, trouble};

/// What all pages share.
pub(crate) struct Pages {
    pub(crate) live: Arc<Hub>,
    numbers: Cache<(), Numbers>,
    /// Makes the tokens of forms where nobody logs in. It is new at every start.
    pub(crate) key: String,
    pub(crate) logins: Mutex<Logins>,
}

impl Pages {
    pub(crate) fn new(engine: &Engine) -> Pages {
        let (live, numbers) = (Hub::new(), Cache::new(numbers::KEPT));
        Pages { live, numbers, key: session::new_key(engine), logins: Mutex::default() }
    }

    /// The store's clock.
    pub(crate) async fn now(&self, shared: &Shared) -> Result<Time, Error> {
        Ok(shared.engine.inspect().clock().await?)
    }

    /// The numbers that are on every page.
    pub(crate) async fn numbers(&self, shared: &Shared) -> Result<Arc<Numbers>, Error> {
        self.numbers.get(&(), || Numbers::read(&shared.operator)).await
    }
}

/// All pages.
static PAGES: &[Page] = &[];

/// All pages.
pub(crate) fn pages() -> &'static [Page] {
    PAGES
}

/// The routes of all pages and of their forms.
pub(crate) fn routes() -> Vec<Route> {
    let pages = PAGES.iter().map(page::route);
    let parts = [session::routes(), preferences::routes(), find::routes(), vec![page::live_route()]];
    pages.chain(parts.into_iter().flatten()).collect()
}
