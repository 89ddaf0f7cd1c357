//! Dark, and on a phone.

use serde_json::json;

use crate::{
    browser::Browser,
    site::{self, Site},
};

/// Whether the ground of the page is dark.
const IS_DARK: &str = "return getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).slice(0, 3).every(part => part < 80)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_theme_is_that_of_the_system_until_it_is_chosen() {
    let server = site::server(false).await;
    let browser = Browser::open(&server, "/").await;
    browser.set_theme("dark").await;
    assert_eq!(browser.run(IS_DARK, json!([])).await, true);
    browser.set_theme("light").await;
    assert_eq!(browser.run(IS_DARK, json!([])).await, false);
    browser.click("summary[aria-label='Theme and times']").await;
    browser.press("#preferences", "Dark").await;
    assert_eq!(browser.run(IS_DARK, json!([])).await, true, "at once");
    browser
        .until("fetch('/').then(page => page.text()).then(page => page.includes('data-theme=\"dark\"'))")
        .await;
    browser.goto("/jobs").await;
    assert_eq!(browser.run(IS_DARK, json!([])).await, true, "and on the next page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_scrolls_sideways_on_a_phone() {
    let site = Site::fill().await;
    let browser = Browser::open(&site.server, "/").await;
    for width in [390, 768] {
        browser.set_size(width, 844).await;
        let mut wide = Vec::new();
        for (name, path) in &site.pages {
            browser.goto(path).await;
            // The widest elements that no scrolling box contains, if the page is wider than the screen.
            let found = "const width = document.documentElement.clientWidth;
                if (document.documentElement.scrollWidth <= Math.min(width, arguments[0])) return [];
                const clipped = part => { for (let up = part.parentElement; up; up = up.parentElement)
                    if (getComputedStyle(up).overflowX !== 'visible' && up !== document.documentElement) return true; };
                return [`${document.documentElement.scrollWidth} of ${width}`,
                    ...[...document.querySelectorAll('body *')].filter(part => part.getBoundingClientRect().right > arguments[0] + .5 && !clipped(part))
                    .map(part => `${part.tagName}.${part.getAttribute('class')}`).slice(0, 6)]";
            let found = browser.run(found, json!([width])).await;
            if found != json!([]) {
                wide.push(format!("{name} at {width}: {found}"));
            }
        }
        assert!(wide.is_empty(), "{}", wide.join("\n"));
    }
}
